//! What a shard counts: each for itself, so that counting is no meeting place of all readers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kept::Kept;
use crate::policy::{AccessPurpose, ArcState, Contents, Victim};

/// Counters of a shard; its own cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct ShardCounters {
    /// By state, purpose, contents.
    pub(crate) hits: [[[AtomicU64; 2]; 2]; 2],
    /// By purpose, contents.
    pub(crate) misses: [[AtomicU64; 2]; 2],
    /// By state.
    pub(crate) ghost_hits: [AtomicU64; 2],
    pub(crate) prefetched_hits: AtomicU64,
    /// Blocks and bytes that were let go, by state.
    pub(crate) evicted: [AtomicU64; 2],
    pub(crate) evicted_bytes: [AtomicU64; 2],
    /// Bytes of those that cache devices had been given; the others are above.
    pub(crate) evicted_fed: AtomicU64,
    pub(crate) mutex_miss: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl ShardCounters {
    pub(crate) fn hit(&self, state: ArcState, purpose: AccessPurpose, contents: Contents, was_prefetched: bool) {
        add(&self.hits[state as usize][purpose as usize][contents as usize], 1);
        if was_prefetched {
            add(&self.prefetched_hits, 1);
        }
    }

    pub(crate) fn miss(&self, purpose: AccessPurpose, contents: Contents) {
        add(&self.misses[purpose as usize][contents as usize], 1);
    }

    pub(crate) fn ghost_hit(&self, state: ArcState) {
        add(&self.ghost_hits[state as usize], 1);
    }

    pub(crate) fn evicted(&self, victim: &Victim<Kept>) {
        add(&self.evicted[victim.state as usize], 1);
        match victim.value.is_fed {
            true => add(&self.evicted_fed, victim.bytes),
            false => add(&self.evicted_bytes[victim.state as usize], victim.bytes),
        }
    }

    pub(crate) fn mutex_miss(&self) {
        add(&self.mutex_miss, 1);
    }
}
