//! Which blocks go on to cache devices: those that soon have to leave RAM, and are worth it.
//!
//! ```text
//!   frequent metadata, recent metadata, frequent data, recent data
//!        │ those that leave first, as far as `l2arc_headroom` says
//!        ▼
//!   bytes at hand? not there already? worth it? ──▶ the device whose turn it is
//! ```
//!
//! Frequent blocks are worth it. Of a recent one nobody knows yet: so it is tried what becomes of those that leave.
//! As long as some of them are asked for again, from the ghosts' memory or from a device, all are taken; when hardly
//! any come back, as of a large file that is copied, only a few are, to see when that changes.
//!
//! The feeder holds a lock only to look, and never when it writes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use l2arc::{FedBlock, L2Key, L2arc, Tunables};

use crate::kept::Kept;
use crate::policy::{ArcState, Contents, Waiting};
use crate::stats;
use crate::store::Store;

/// One of so many recent blocks has to come back for all to be taken.
const COME_BACK: u64 = 64;
/// Otherwise one of so many is taken.
const TRIED: u64 = 16;
/// The part of the cache that one round may take.
pub(crate) const ROUND_PART: u64 = 8;
/// Blocks after which older experience counts half.
const EXPERIENCE: u64 = 1 << 16;

/// Feeds the cache devices of a pool, for as long as they are there.
pub struct Feeder {
    store: Weak<Store>,
    l2arc: Weak<L2arc>,
    worth: Worth,
    /// The shard that is looked at first.
    first: usize,
}

/// What becomes of recent blocks.
#[derive(Default)]
pub(crate) struct Worth {
    left: u64,
    back: u64,
    /// The counters when they were looked at last: left, back, found on a device.
    counted: [u64; 3],
}

impl Worth {
    /// Looks at the counters again: left, back, found on a device.
    pub(crate) fn look(&mut self, now: [u64; 3]) {
        let [left, back, found] = std::array::from_fn(|i| now[i].saturating_sub(self.counted[i]));
        self.counted = now;
        (self.left, self.back) = (self.left + left, self.back + back + found);
        while self.left > EXPERIENCE {
            (self.left, self.back) = (self.left / 2, self.back / 2);
        }
    }

    /// Whether recent blocks are worth it as far as known.
    pub(crate) fn is_good(&self) -> bool {
        // too little is known to judge
        self.left < COME_BACK * TRIED || self.back * COME_BACK >= self.left
    }
}

impl Feeder {
    pub(crate) fn new(store: &Arc<Store>, l2arc: &Arc<L2arc>) -> Feeder {
        let (store, l2arc) = (Arc::downgrade(store), Arc::downgrade(l2arc));
        Feeder { store, l2arc, worth: Worth::default(), first: 0 }
    }

    /// Works until the cache is gone; on a thread of its own.
    pub fn run(mut self) {
        while let Some(pause) = self.step() {
            std::thread::sleep(pause);
        }
    }

    /// A round, and the pause until the next one. `None` if there is no cache any more.
    pub fn step(&mut self) -> Option<Duration> {
        let (store, l2arc) = (self.store.upgrade()?, self.l2arc.upgrade()?);
        let tunables = l2arc.renew_tunables();
        l2arc.set_ram(store.c());
        let long = Duration::from_secs(tunables.feed_secs);
        let [left, back] = stats::recent_left_and_back(&store);
        self.worth.look([left, back, l2arc.recent_hits()]);
        let Some(turn) = l2arc.turn(&tunables, left == 0) else { return Some(long) };
        // what is being written stays in memory even if it has to leave
        let target = turn.target.min(store.c() / ROUND_PART);
        let chosen = self.choose(&store, &l2arc, &tunables, target);
        if chosen.is_empty() {
            return Some(long);
        }
        let (keys, records): (Vec<L2Key>, Vec<FedBlock>) = chosen.into_iter().unzip();
        let bytes = l2arc.feed(&turn, &records);
        keys.iter().filter(|key| l2arc.contains(key)).for_each(|key| store.was_fed(key));
        let is_more = tunables.feed_again && bytes > target / 2;
        Some(if is_more { long.min(Duration::from_millis(tunables.feed_min_ms)) } else { long })
    }

    /// Blocks of up to `target` bytes.
    fn choose(&mut self, store: &Store, l2arc: &L2arc, tunables: &Tunables, target: u64) -> Vec<(L2Key, FedBlock)> {
        let shards = store.shards();
        self.first = (self.first + 1) % shards.len();
        let headroom = headroom(tunables, target) / shards.len() as u64;
        let (mut chosen, mut bytes) = (Vec::new(), 0);
        let worth = self.worth.is_good() || !tunables.learn;
        for (state, contents) in passes(tunables.mfuonly) {
            for i in 0..shards.len() {
                let shard = &shards[(self.first + i) % shards.len()];
                shard.leaving((state, contents), headroom, &mut |waiting| {
                    let key = *waiting.key;
                    if is_wanted(waiting, state, tunables, worth || is_tried(key.hash()))
                        && !l2arc.contains(&key)
                        && let Some(record) = record(waiting, state, contents)
                    {
                        bytes += record.physical.block().len() as u64;
                        if bytes > target {
                            return false;
                        }
                        chosen.push((key, record));
                    }
                    true
                });
                if bytes > target {
                    return chosen;
                }
            }
        }
        chosen
    }
}

/// As far as so many bytes the feeder looks at what is soon to be evicted, to choose `target` of them.
pub(crate) fn headroom(tunables: &Tunables, target: u64) -> u64 {
    match tunables.headroom {
        0 => u64::MAX,
        headroom => target.saturating_mul(headroom).saturating_mul(tunables.headroom_boost) / 100,
    }
}

/// Whether a block is worth being given to a device, if recent ones are as `takes_recent` says.
pub(crate) fn is_wanted<K, V>(
    waiting: &Waiting<'_, K, V>,
    state: ArcState,
    tunables: &Tunables,
    takes_recent: bool,
) -> bool {
    let is_worth = state == ArcState::Frequent || waiting.is_touched || takes_recent;
    is_worth && !(waiting.is_prefetched && tunables.noprefetch)
}

/// Whether a recent block of that hash is taken only to see what becomes of it.
pub(crate) fn is_tried(hash: u64) -> bool {
    hash.is_multiple_of(TRIED)
}

/// The lists in their order.
pub(crate) fn passes(mfuonly: u64) -> impl Iterator<Item = (ArcState, Contents)> {
    use {ArcState::*, Contents::*};
    let all = [(Frequent, Metadata), (Recent, Metadata), (Frequent, Data), (Recent, Data)];
    all.into_iter().filter(move |(state, contents)| match (mfuonly, state) {
        (0, _) | (_, Frequent) => true,
        (1, Recent) => false,
        (_, Recent) => *contents == Metadata,
    })
}

/// What a device is given of a block, if its bytes are at hand.
fn record(waiting: &Waiting<'_, L2Key, Kept>, state: ArcState, contents: Contents) -> Option<FedBlock> {
    let (physical, compress) = waiting.value.for_device()?;
    Some(FedBlock {
        key: *waiting.key,
        physical,
        is_protected: waiting.value.seal().is_some(),
        lsize: waiting.value.len(),
        compress,
        is_metadata: contents == Contents::Metadata,
        is_frequent: state == ArcState::Frequent || waiting.is_touched,
        is_prefetched: waiting.is_prefetched,
    })
}

#[cfg(test)]
mod tests;
