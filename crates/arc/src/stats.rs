//! What the cache has done and holds, with the names and meanings of OpenZFS's arcstats.
//!
//! Each shard counts for itself, so that counting is no meeting place of all readers; sums are made when
//! somebody looks. What Cenote's cache does not have (buffers lent out, memory that is not
//! in whole pages) is 0; the rows of cache devices are `l2arc`'s: programs that read the table expect every name.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::ShardCounters;
use crate::policy::{AccessPurpose, ArcState, Contents};
use crate::store::Store;

/// Counters since the cache was made, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArcStats {
    /// Reads served from RAM, including those that waited for another's read.
    pub hits: u64,
    /// Reads that went to the devices.
    pub misses: u64,
    /// Bytes that the cache takes.
    pub bytes: u64,
}

impl ArcStats {
    pub(crate) fn of(store: &Store) -> ArcStats {
        let sum = StoreSums(store);
        ArcStats { hits: sum.all_hits(), misses: sum.all_misses(), bytes: store.size() }
    }
}

/// Sums of counters over all shards.
struct StoreSums<'a>(&'a Store);

const PURPOSES: [AccessPurpose; 2] = [AccessPurpose::Demand, AccessPurpose::Prefetch];
const CONTENTS: [Contents; 2] = [Contents::Data, Contents::Metadata];
const STATES: [ArcState; 2] = [ArcState::Recent, ArcState::Frequent];

impl StoreSums<'_> {
    fn of(&self, counter: impl Fn(&ShardCounters) -> &AtomicU64) -> u64 {
        self.0.shards().iter().map(|shard| counter(&shard.counters).load(Ordering::Relaxed)).sum()
    }

    fn hits(&self, purpose: AccessPurpose, contents: Contents) -> u64 {
        STATES.iter().map(|&state| self.of(|c| &c.hits[state as usize][purpose as usize][contents as usize])).sum()
    }

    fn hits_in(&self, state: ArcState) -> u64 {
        let both = PURPOSES.iter().flat_map(|&purpose| CONTENTS.map(|contents| (purpose, contents)));
        both.map(|(purpose, of)| self.of(|c| &c.hits[state as usize][purpose as usize][of as usize])).sum()
    }

    fn misses(&self, purpose: AccessPurpose, contents: Contents) -> u64 {
        self.of(|c| &c.misses[purpose as usize][contents as usize])
    }

    fn all_hits(&self) -> u64 {
        STATES.iter().map(|&state| self.hits_in(state)).sum()
    }

    fn all_misses(&self) -> u64 {
        let both = PURPOSES.iter().flat_map(|&purpose| CONTENTS.map(|contents| (purpose, contents)));
        both.map(|(purpose, contents)| self.misses(purpose, contents)).sum()
    }
}

/// Recent blocks that had to leave, and those of them that were asked for again soon after.
pub(crate) fn recent_left_and_back(store: &Store) -> [u64; 2] {
    let sum = StoreSums(store);
    let recent = ArcState::Recent as usize;
    [sum.of(|c| &c.evicted[recent]), sum.of(|c| &c.ghost_hits[recent])]
}

/// Names of what is always 0.
const ABSENT: &[&str] = &[
    "access_skip",
    "evict_skip",
    "evict_not_enough",
    "evict_l2_ineligible",
    "evict_l2_skip",
    "hash_collisions",
    "hash_chains",
    "hash_chain_max",
    "dbuf_size",
    "bonus_size",
    "anon_size",
    "anon_evictable_data",
    "anon_evictable_metadata",
    "memory_throttle_count",
    "memory_direct_count",
    "arc_tempreserve",
    "arc_loaned_bytes",
    "arc_prune",
    "async_upgrade_sync",
    "demand_hit_prescient_prefetch",
    "arc_raw_size",
    "cached_only_in_progress",
    "abd_chunk_waste_size",
];

/// The table: names and values.
pub(crate) fn arcstats(store: &Store) -> Vec<(&'static str, u64)> {
    let mut table = counts(store);
    table.extend(sizes(store));
    table.extend(ABSENT.iter().map(|name| (*name, 0)));
    table
}

fn counts(store: &Store) -> Vec<(&'static str, u64)> {
    use {AccessPurpose::*, ArcState::*, Contents::*};
    let sum = StoreSums(store);
    let evicted = STATES.map(|state| sum.of(|c| &c.evicted_bytes[state as usize]));
    vec![
        ("hits", sum.all_hits()),
        ("misses", sum.all_misses()),
        ("demand_data_hits", sum.hits(Demand, Data)),
        ("demand_data_misses", sum.misses(Demand, Data)),
        ("demand_metadata_hits", sum.hits(Demand, Metadata)),
        ("demand_metadata_misses", sum.misses(Demand, Metadata)),
        ("prefetch_data_hits", sum.hits(Prefetch, Data)),
        ("prefetch_data_misses", sum.misses(Prefetch, Data)),
        ("prefetch_metadata_hits", sum.hits(Prefetch, Metadata)),
        ("prefetch_metadata_misses", sum.misses(Prefetch, Metadata)),
        ("mru_hits", sum.hits_in(Recent)),
        ("mru_ghost_hits", sum.of(|c| &c.ghost_hits[Recent as usize])),
        ("mfu_hits", sum.hits_in(Frequent)),
        ("mfu_ghost_hits", sum.of(|c| &c.ghost_hits[Frequent as usize])),
        ("deleted", STATES.iter().map(|&state| sum.of(|c| &c.evicted[state as usize])).sum()),
        ("mutex_miss", sum.of(|c| &c.mutex_miss)),
        ("demand_hit_predictive_prefetch", sum.of(|c| &c.prefetched_hits)),
        ("evict_l2_cached", sum.of(|c| &c.evicted_fed)),
        ("evict_l2_eligible", evicted.iter().sum()),
        ("evict_l2_eligible_mru", evicted[Recent as usize]),
        ("evict_l2_eligible_mfu", evicted[Frequent as usize]),
        ("memory_indirect_count", store.shrinks()),
    ]
}

fn sizes(store: &Store) -> Vec<(&'static str, u64)> {
    let sums = store.sums();
    let [[mru_data, mru_metadata], [mfu_data, mfu_metadata]] = sums.held;
    let (data, metadata) = (mru_data + mfu_data, mru_metadata + mfu_metadata);
    let (metadata_min, metadata_max) = store.metadata_limits();
    let memory = store.memory();
    vec![
        ("hash_elements", sums.count),
        ("hash_elements_max", sums.count),
        ("p", store.target()),
        ("c", store.c()),
        ("c_min", store.c_min()),
        ("c_max", store.c_max()),
        ("size", data + metadata + sums.overhead + store.nodes.bytes()),
        ("compressed_size", data + metadata - sums.open),
        ("uncompressed_size", sums.contents),
        ("overhead_size", sums.open),
        ("hdr_size", sums.overhead),
        ("dnode_size", store.nodes.bytes()),
        ("arc_dnode_limit", store.nodes.bytes_max()),
        ("data_size", data),
        ("metadata_size", metadata),
        ("mru_size", mru_data + mru_metadata),
        ("mru_evictable_data", mru_data),
        ("mru_evictable_metadata", mru_metadata),
        ("mru_ghost_size", sums.ghosts[0]),
        ("mru_ghost_evictable_data", sums.ghosts[0]),
        ("mru_ghost_evictable_metadata", 0),
        ("mfu_size", mfu_data + mfu_metadata),
        ("mfu_evictable_data", mfu_data),
        ("mfu_evictable_metadata", mfu_metadata),
        ("mfu_ghost_size", sums.ghosts[1]),
        ("mfu_ghost_evictable_data", sums.ghosts[1]),
        ("mfu_ghost_evictable_metadata", 0),
        ("arc_meta_used", metadata + sums.overhead + store.nodes.bytes()),
        ("arc_meta_limit", metadata_max),
        ("arc_meta_max", metadata + sums.overhead),
        ("arc_meta_min", metadata_min),
        ("memory_all_bytes", memory.limit),
        ("memory_free_bytes", memory.free()),
        ("memory_available_bytes", memory.free().saturating_sub(memory.reserve)),
        ("arc_no_grow", u64::from(memory.free() < 2 * memory.reserve)),
        ("arc_need_free", memory.reserve.saturating_sub(memory.free())),
        ("arc_sys_free", memory.reserve),
    ]
}
