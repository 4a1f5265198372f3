//! All shards under one budget: making room, and the target that they share.
//!
//! ```text
//!   0 ─────────────────────────────── soft ──── c ─── c_max
//!     size: what blocks take and what   │        └ before a block is kept, room is made for it
//!     knowing them takes                └ from here on the worker makes room
//! ```
//!
//! Invariant: `size` is the sum of what the shards hold, and of what is about to be inserted.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use base::{Block, Mutex};
use l2arc::L2Key;
use rustc_hash::FxBuildHasher;

use crate::ahead::Ahead;
use crate::bell::Bell;
use crate::budget::Budget;
use crate::kept::{Kept, Use};
use crate::nodes::KeptNodes;
use crate::policy::Limits;
use crate::pressure::MemoryUse;
use crate::price::Price;
use crate::shard::{Ask, Loading, Lookup, Shard, ShardSums, SizeChange};

/// Bytes of the budget that a shard has at least, and how many shards there are at most.
const SHARD_BYTES: u64 = 16 << 20;
const SHARDS_MAX: u64 = 64;
/// The part of the budget that the worker keeps free.
const SOFT_PART: u64 = 64;
/// Rounds of eviction after which is looked what knowing the blocks takes.
const OVERHEAD_LOOKS: usize = 256;
/// The part of the budget that nodes can take from blocks.
const NODES_PART: u64 = 2;
/// The part of the budget that one block may take.
const BLOCK_PART: u64 = 4;

/// The blocks in RAM, of one pool.
pub(crate) struct Store {
    shards: Vec<Shard>,
    /// A power of two, less 1.
    mask: usize,
    limits: CacheLimits,
    size: AtomicU64,
    /// Bytes that knowing the blocks takes, as last looked at.
    overhead: AtomicU64,
    /// The target of the recent lists: p.
    target: AtomicU64,
    next: AtomicUsize,
    memory: Mutex<MemoryUse>,
    shrinks: AtomicU64,
    pub(crate) bell: Arc<Bell>,
    pub(crate) ahead: Ahead,
    pub(crate) price: Price,
    pub(crate) nodes: Arc<KeptNodes>,
    /// The worker waits for longer than usual.
    rests: AtomicBool,
}

/// The budget as it is now.
#[derive(Default)]
struct CacheLimits {
    c: AtomicU64,
    c_min: AtomicU64,
    c_max: AtomicU64,
    metadata_max: AtomicU64,
    metadata_min: AtomicU64,
    nodes_percent: AtomicU64,
}

impl Store {
    pub(crate) fn new(budget: Budget) -> Store {
        let count = (budget.c_max / SHARD_BYTES).clamp(1, SHARDS_MAX).next_power_of_two() as usize;
        let none = Limits { budget: 0, recent: 0, metadata_max: 0, metadata_min: 0 };
        let bell: Arc<Bell> = Arc::default();
        let store = Store {
            shards: (0..count).map(|_| Shard::new(none)).collect(),
            mask: count - 1,
            limits: CacheLimits::default(),
            size: AtomicU64::new(0),
            overhead: AtomicU64::new(0),
            target: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            memory: Mutex::default(),
            shrinks: AtomicU64::new(0),
            bell: bell.clone(),
            ahead: Ahead::default(),
            price: Price::default(),
            nodes: Arc::new(KeptNodes::new(bell)),
            rests: AtomicBool::new(false),
        };
        store.limits.c.store(budget.c_max, Ordering::Relaxed);
        store.set_budget(budget);
        store
    }

    /// Takes another budget; c stays where it is as far as that is within it.
    pub(crate) fn set_budget(&self, budget: Budget) {
        let c_min = budget.c_min.min(budget.c_max);
        self.limits.c_min.store(c_min, Ordering::Relaxed);
        // a limit that was raised is meant to be used
        let before = self.limits.c_max.swap(budget.c_max, Ordering::Relaxed);
        let c = if budget.c_max > before { budget.c_max } else { self.c() };
        self.limits.metadata_max.store(budget.metadata_max, Ordering::Relaxed);
        self.limits.metadata_min.store(budget.metadata_min, Ordering::Relaxed);
        self.limits.nodes_percent.store(budget.nodes_percent, Ordering::Relaxed);
        self.set_c(c);
    }

    /// Sets the budget of now, within its bounds.
    pub(crate) fn set_c(&self, c: u64) {
        self.limits.c.store(c.clamp(self.c_min(), self.c_max()), Ordering::Relaxed);
        let c = self.c();
        self.target.fetch_min(c, Ordering::Relaxed);
        self.nodes.set_bytes_max(c / 100 * self.limits.nodes_percent.load(Ordering::Relaxed));
    }

    pub(crate) fn c(&self) -> u64 {
        self.limits.c.load(Ordering::Relaxed)
    }

    pub(crate) fn c_min(&self) -> u64 {
        self.limits.c_min.load(Ordering::Relaxed)
    }

    pub(crate) fn c_max(&self) -> u64 {
        self.limits.c_max.load(Ordering::Relaxed)
    }

    pub(crate) fn metadata_limits(&self) -> (u64, u64) {
        (self.limits.metadata_min.load(Ordering::Relaxed), self.limits.metadata_max.load(Ordering::Relaxed))
    }

    /// The target of the recent lists.
    pub(crate) fn target(&self) -> u64 {
        self.target.load(Ordering::Relaxed)
    }

    /// Bytes that the cache takes.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed) + self.beside()
    }

    /// Bytes that are not for blocks: knowing them takes some, and nodes of objects.
    fn beside(&self) -> u64 {
        // nodes with changes can be very many for a while: some blocks stay
        self.overhead.load(Ordering::Relaxed) + self.nodes.bytes().min(self.c() / NODES_PART)
    }

    /// Whether blocks of so many bytes should be packed when room is needed, and that may be soon.
    pub(crate) fn packs(&self, len: u64) -> bool {
        self.size() > self.c() / 2 && self.price.is_worth_packing(len)
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    fn shard(&self, key: &L2Key) -> &Shard {
        let hash = FxBuildHasher.hash_one(key);
        &self.shards[(hash >> 32) as usize & self.mask]
    }

    /// What the lists of a shard should keep to.
    fn shard_limits(&self) -> Limits {
        let count = self.shards.len() as u64;
        let (metadata_min, metadata_max) = self.metadata_limits();
        let blocks = self.c().saturating_sub(self.beside());
        Limits {
            budget: blocks / count,
            recent: self.target() / count,
            metadata_max: metadata_max / count,
            metadata_min: metadata_min / count,
        }
    }

    pub(crate) fn hit(&self, ask: &Ask) -> Option<Lookup> {
        self.shard(&ask.key).hit(ask)
    }

    pub(crate) fn find(&self, ask: &Ask) -> Lookup {
        self.shard(&ask.key).find(ask)
    }

    /// Ends a read that [`Store::find`] asked for.
    pub(crate) fn fulfil(&self, ask: &Ask, loading: &Loading, kept: Option<Kept>) {
        let shard = self.shard(&ask.key);
        let bytes = kept.as_ref().map_or(0, Kept::footprint);
        let keeps = kept.is_some() && self.makes_room(bytes);
        let change = shard.fulfil(ask, loading, kept, keeps, self.shard_limits());
        if keeps {
            self.settle(bytes, change);
        }
    }

    /// Keeps a block that was written; unless `keeps_new`, only in place of what is kept under its key.
    pub(crate) fn keep(&self, ask: &Ask, kept: Kept, keeps_new: bool) {
        let (shard, bytes) = (self.shard(&ask.key), kept.footprint());
        if (keeps_new || shard.has(&ask.key)) && self.makes_room(bytes) {
            self.settle(bytes, shard.keep(ask, kept, self.shard_limits(), keeps_new));
        }
    }

    /// Lets a block go that nobody will ask for again.
    pub(crate) fn forget(&self, key: &L2Key) {
        self.give_back(self.shard(key).forget(key));
    }

    /// A cache device has a block.
    pub(crate) fn was_fed(&self, key: &L2Key) {
        let more = self.shard(key).was_fed(key);
        self.give_back(more.unsigned_abs());
    }

    /// Keeps the contents of a packed block, which somebody needed.
    pub(crate) fn unpack(&self, key: &L2Key, contents: &Block, packed: Use) {
        let bytes = contents.footprint() as u64;
        if self.makes_room(bytes) {
            let more = self.shard(key).unpack(key, contents.clone(), packed);
            self.settle(bytes, SizeChange { bytes: more, target: 0 });
        }
    }

    fn give_back(&self, bytes: u64) {
        let less = |size: u64| Some(size.saturating_sub(bytes));
        let _ = self.size.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Lets others go until there is room for a block of so many bytes, and takes that room. False for one that is too
    /// large.
    fn makes_room(&self, bytes: u64) -> bool {
        let c = self.c();
        if bytes > c / BLOCK_PART {
            return false;
        }
        let size = self.size.fetch_add(bytes, Ordering::Relaxed) + bytes + self.beside();
        if size > c {
            self.evict(size - c, true);
        }
        let ends_rest = || self.rests.load(Ordering::Relaxed) && !is_little(size, self.c_min());
        if size > c - c / SOFT_PART || ends_rest() {
            self.bell.ring();
        }
        true
    }

    /// Corrects the room that was taken for a block by what came of it.
    fn settle(&self, bytes: u64, change: SizeChange) {
        let surplus = bytes as i64 - change.bytes;
        let _ = self
            .size
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |size| Some(size.saturating_add_signed(-surplus)));
        if change.target != 0 {
            let c = self.c();
            let moved = |target: u64| Some(target.saturating_add_signed(change.target).min(c));
            let _ = self.target.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
        }
    }

    /// Whether there is so little that it would not become less if memory were short. For the worker, which is called
    /// when there is more.
    pub(crate) fn may_rest(&self) -> bool {
        let may_rest = is_little(self.size(), self.c_min()) && !self.nodes.is_over() && !self.nodes.has_gone();
        self.rests.store(may_rest, Ordering::Relaxed);
        may_rest
    }

    /// Makes the room that should be free; for the worker.
    pub(crate) fn make_room(&self) {
        self.look_at_overhead();
        let (size, c) = (self.size(), self.c());
        let soft = c - c / SOFT_PART;
        if size > soft {
            self.evict(size - soft, size > c);
        }
    }

    fn look_at_overhead(&self) {
        self.overhead.store(self.shards.iter().map(|shard| shard.sums().overhead).sum(), Ordering::Relaxed);
    }

    /// Lets blocks of `bytes` go, of the shards that have most.
    fn evict(&self, bytes: u64, waits: bool) {
        let count = self.shards.len();
        let held: u64 = self.shards.iter().map(Shard::bytes).sum();
        let share = held.saturating_sub(bytes) / count as u64;
        let mut rest = bytes;
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        if first.is_multiple_of(OVERHEAD_LOOKS) {
            self.look_at_overhead();
        }
        for i in 0..count {
            let shard = &self.shards[(first + i) & self.mask];
            let over = shard.bytes().saturating_sub(share).min(rest);
            if over > 0 {
                let freed = shard.evict(over, self.shard_limits(), waits);
                self.give_back(freed);
                rest = rest.saturating_sub(freed);
            }
            if rest == 0 {
                return;
            }
        }
    }

    /// Lets all blocks go.
    pub(crate) fn empty(&self) {
        self.evict(self.shards.iter().map(Shard::bytes).sum(), true);
    }

    /// Notes what memory there is, for counters.
    pub(crate) fn set_memory(&self, memory: MemoryUse) {
        *self.memory.lock() = memory;
    }

    /// What memory there was at the last look; nothing if nobody looks.
    pub(crate) fn memory(&self) -> MemoryUse {
        *self.memory.lock()
    }

    pub(crate) fn count_shrink(&self) {
        self.shrinks.fetch_add(1, Ordering::Relaxed);
    }

    /// How often memory was given back because it was short.
    pub(crate) fn shrinks(&self) -> u64 {
        self.shrinks.load(Ordering::Relaxed)
    }

    /// Sums over all shards.
    pub(crate) fn sums(&self) -> ShardSums {
        self.shards.iter().map(Shard::sums).fold(ShardSums::default(), ShardSums::plus)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // the worker may rest
        self.bell.ring();
    }
}

/// Whether a cache of so many bytes is far from having something to give back.
fn is_little(size: u64, c_min: u64) -> bool {
    size < c_min / 2
}
