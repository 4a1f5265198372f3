//! A part of the cache: blocks whose keys hash alike, under one lock that hits only share.
//!
//! Of compressed blocks the contents are kept, too, while there is room, and for those that are used: to make room
//! they are packed first, the longest open first, until what is open takes no more than [`OPEN_PART`] of the budget.
//!
//! Invariants: a key is held, or being read by one reader, or neither; `bytes` is what the blocks held take, and
//! `open_bytes` what the contents of packed ones take. A key that is open is in `open`, which has others, too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Block, Condvar, Mutex, RwLock};
use format::sealing::StoredBytes;
use l2arc::L2Key;
use rustc_hash::FxHashMap;

use crate::counters::ShardCounters;
use crate::kept::{CachedForm, Kept, Unpacking, Use};
use crate::policy::{AccessPurpose, ArcState, Contents, Limits, Policy, Victim, Waiting};
use crate::seal_id::SealId;

/// Blocks that one hold of the lock looks at when it lets blocks go.
const LOOKS_MAX: usize = 64;
/// The part of the budget that contents of compressed blocks may take when room is needed.
const OPEN_PART: u64 = 8;

/// How a block is asked for, and what it is.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) key: L2Key,
    pub(crate) len: u64,
    pub(crate) how: Unpacking,
    /// For which readers, if the set is encrypted.
    pub(crate) seal: Option<SealId>,
    pub(crate) contents: Contents,
    pub(crate) purpose: AccessPurpose,
    /// Whether it may be kept.
    pub(crate) keeps: bool,
}

/// What a request needs: nothing more, a wait, or a read of its own.
pub(crate) enum Lookup {
    Ready(Block),
    /// It is there, and to be decompressed.
    Packed(StoredBytes),
    Wait(Arc<Loading>),
    Read(Arc<Loading>),
    Uncached,
}

pub(crate) struct Shard {
    held: RwLock<ShardBlocks>,
    bytes: AtomicU64,
    pub(crate) counters: ShardCounters,
}

struct ShardBlocks {
    policy: Policy<L2Key, Kept>,
    loading: FxHashMap<L2Key, Arc<Loading>>,
    open: VecDeque<L2Key>,
    open_bytes: u64,
    /// Bytes of contents, open or packed.
    contents_bytes: u64,
}

impl ShardBlocks {
    /// Notes that what is kept of a block has changed.
    fn opened(&mut self, key: &L2Key, before: u64, now: u64) {
        self.open_bytes = self.open_bytes - before + now;
        if now > before {
            self.open.push_back(*key);
        }
        // those that have left are still in it
        if self.open.len() > 2 * self.policy.len() + LOOKS_MAX {
            let ShardBlocks { policy, open, .. } = self;
            open.retain(|key| policy.get(key, AccessPurpose::Prefetch).is_some_and(|hit| hit.value.open() > 0));
        }
    }

    /// Notes that a block is held no more.
    fn left(&mut self, kept: &Kept) {
        self.open_bytes -= kept.open();
        self.contents_bytes -= kept.len();
    }

    /// Packs blocks of `bytes`, after a look at a few, as far as more than `most` bytes are open; how many were freed,
    /// and whether there may be more.
    fn pack(&mut self, bytes: u64, most: u64) -> (u64, bool) {
        let mut freed = 0;
        for _ in 0..LOOKS_MAX {
            if freed >= bytes || self.open_bytes <= most {
                return (freed, false);
            }
            let Some(key) = self.open.pop_front() else { return (freed, false) };
            let (mut is_used, mut less) = (false, 0);
            self.policy.change(&key, |kept| {
                let before = kept.open();
                is_used = before > 0 && !kept.pack();
                less = before - kept.open();
                kept.footprint()
            });
            if is_used {
                self.open.push_back(key);
            }
            freed += less;
            self.open_bytes -= less;
        }
        (freed, true)
    }
}

/// A read under way, which others may wait for.
#[derive(Default)]
pub(crate) struct Loading {
    outcome: Mutex<Option<Option<Block>>>,
    done: Condvar,
}

/// Sums over a shard, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct ShardSums {
    /// By state, then contents.
    pub(crate) held: [[u64; 2]; 2],
    /// By state.
    pub(crate) ghosts: [u64; 2],
    /// Contents of blocks that are held packed, too.
    pub(crate) open: u64,
    /// Contents of all blocks, as if none were packed.
    pub(crate) contents: u64,
    /// Blocks held.
    pub(crate) count: u64,
    /// Bytes that knowing the blocks takes.
    pub(crate) overhead: u64,
}

impl ShardSums {
    pub(crate) fn plus(self, other: ShardSums) -> ShardSums {
        let state = |i: usize| [0, 1].map(|j| self.held[i][j] + other.held[i][j]);
        ShardSums {
            held: [state(0), state(1)],
            ghosts: [0, 1].map(|i| self.ghosts[i] + other.ghosts[i]),
            open: self.open + other.open,
            contents: self.contents + other.contents,
            count: self.count + other.count,
            overhead: self.overhead + other.overhead,
        }
    }
}

/// What an insertion changes outside of its shard.
#[derive(Default)]
pub(crate) struct SizeChange {
    /// Bytes that are held more, or less.
    pub(crate) bytes: i64,
    /// Bytes by which the target of the recent lists moves.
    pub(crate) target: i64,
}

impl Shard {
    pub(crate) fn new(limits: Limits) -> Shard {
        let (policy, loading) = (Policy::new(limits), FxHashMap::default());
        let held = ShardBlocks { policy, loading, open: VecDeque::new(), open_bytes: 0, contents_bytes: 0 };
        Shard { held: RwLock::new(held), bytes: AtomicU64::new(0), counters: ShardCounters::default() }
    }

    /// Bytes that the blocks here take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether a block is here.
    pub(crate) fn has(&self, key: &L2Key) -> bool {
        let held = self.held.read();
        held.policy.get(key, AccessPurpose::Prefetch).is_some()
    }

    /// A block that is here.
    pub(crate) fn hit(&self, ask: &Ask) -> Option<Lookup> {
        let held = self.held.read();
        let hit = held.policy.get(&ask.key, ask.purpose)?;
        // two pointers to one address that disagree about what is there: one of them is damaged, or of another set
        if hit.value.len() != ask.len || hit.value.seal() != ask.seal {
            return Some(Lookup::Uncached);
        }
        let found = match hit.value.form() {
            CachedForm::Open(block) => Lookup::Ready(block),
            CachedForm::Packed(bytes, how) if how == ask.how => Lookup::Packed(bytes),
            CachedForm::Packed(..) => return Some(Lookup::Uncached),
        };
        self.counters.hit(hit.state, ask.purpose, ask.contents, hit.was_prefetched);
        Some(found)
    }

    /// What a request for a block needs. If that is a read, others wait for the caller to
    /// [`Shard::fulfil`] it.
    pub(crate) fn find(&self, ask: &Ask) -> Lookup {
        if let Some(found) = self.hit(ask) {
            return found;
        }
        let mut held = self.held.write();
        if held.policy.get(&ask.key, AccessPurpose::Prefetch).is_some() {
            drop(held);
            return self.hit(ask).unwrap_or(Lookup::Uncached);
        }
        if let Some(loading) = held.loading.get(&ask.key) {
            let loading = loading.clone();
            self.counters.hit(ArcState::Recent, ask.purpose, ask.contents, false);
            return Lookup::Wait(loading);
        }
        self.counters.miss(ask.purpose, ask.contents);
        if !ask.keeps {
            return Lookup::Uncached;
        }
        let loading = Arc::<Loading>::default();
        held.loading.insert(ask.key, loading.clone());
        Lookup::Read(loading)
    }

    /// Makes a block that was read known to those that wait for it, and keeps it if `keeps`; `None` if the
    /// read failed.
    pub(crate) fn fulfil(
        &self,
        ask: &Ask,
        loading: &Loading,
        kept: Option<Kept>,
        keeps: bool,
        limits: Limits,
    ) -> SizeChange {
        let block = kept.as_ref().and_then(|kept| kept.contents().cloned());
        let change = match kept.filter(|_| keeps) {
            Some(kept) => self.keep(ask, kept, limits, true),
            None => {
                self.held.write().loading.remove(&ask.key);
                SizeChange::default()
            }
        };
        *loading.outcome.lock() = Some(block);
        loading.done.notify_all();
        change
    }

    /// Keeps a block, or, unless `keeps_new`, only if one is kept under its key already.
    pub(crate) fn keep(&self, ask: &Ask, kept: Kept, limits: Limits, keeps_new: bool) -> SizeChange {
        let mut held = self.held.write();
        held.loading.remove(&ask.key);
        if !keeps_new && held.policy.get(&ask.key, AccessPurpose::Prefetch).is_none() {
            return SizeChange::default();
        }
        held.policy.set_limits(limits);
        let (bytes, open) = (kept.footprint(), kept.open());
        held.contents_bytes += kept.len();
        let inserted = held.policy.insert(ask.key, kept, bytes, ask.contents, ask.purpose);
        let (mut before, mut was_open) = (0, 0);
        if let Some((replaced, bytes)) = &inserted.replaced {
            (before, was_open) = (*bytes, replaced.open());
            held.contents_bytes -= replaced.len();
        }
        held.opened(&ask.key, was_open, open);
        self.bytes.store(held.policy.bytes(), Ordering::Relaxed);
        drop(held);
        let target = inserted.ghost.map_or(0, |(state, step)| {
            self.counters.ghost_hit(state);
            step
        });
        SizeChange { bytes: bytes as i64 - before as i64, target }
    }

    /// Lets blocks of `bytes` go, as far as the shard has so many; how many did. Does nothing if others use
    /// the shard right now, unless told to wait.
    pub(crate) fn evict(&self, bytes: u64, limits: Limits, waits: bool) -> u64 {
        let mut freed = 0;
        let mut more = true;
        while more && freed < bytes {
            let mut held = match self.held.try_write() {
                Some(held) => held,
                None if waits => self.held.write(),
                None => {
                    self.counters.mutex_miss();
                    return freed;
                }
            };
            let mut victims: Vec<Victim<Kept>> = Vec::new();
            held.policy.set_limits(limits);
            let (packed, may_pack_more) = held.pack(bytes - freed, limits.budget / OPEN_PART);
            freed += packed;
            if !may_pack_more && freed < bytes {
                more = held.policy.evict(bytes - freed, LOOKS_MAX, &mut victims);
                victims.iter().for_each(|victim| held.left(&victim.value));
            }
            self.bytes.store(held.policy.bytes(), Ordering::Relaxed);
            drop(held);
            freed += victims.iter().map(|victim| victim.bytes).sum::<u64>();
            victims.iter().for_each(|victim| self.counters.evicted(victim));
        }
        freed
    }

    /// Goes through blocks that soon have to leave, up to so many bytes, until `f` has enough.
    pub(crate) fn leaving(
        &self,
        (state, contents): (ArcState, Contents),
        bytes: u64,
        f: &mut dyn FnMut(&Waiting<'_, L2Key, Kept>) -> bool,
    ) {
        let held = self.held.read();
        let mut passed = 0;
        for waiting in held.policy.leaving(state, contents) {
            passed += waiting.bytes;
            if passed > bytes.max(waiting.bytes) || !f(&waiting) {
                return;
            }
        }
    }

    /// Lets a block go that nobody will ask for again; how many bytes less are held.
    pub(crate) fn forget(&self, key: &L2Key) -> u64 {
        if !self.has(key) {
            return 0;
        }
        let mut held = self.held.write();
        let Some((kept, bytes)) = held.policy.remove(key) else { return 0 };
        held.left(&kept);
        self.bytes.store(held.policy.bytes(), Ordering::Relaxed);
        bytes
    }

    /// A cache device has a block; how many bytes more are held: 0 or less.
    pub(crate) fn was_fed(&self, key: &L2Key) -> i64 {
        self.change(key, Kept::was_fed)
    }

    /// Keeps the contents of a packed block, which somebody needed; how many bytes more are held.
    pub(crate) fn unpack(&self, key: &L2Key, contents: Block, packed: Use) -> i64 {
        self.change(key, |kept| kept.unpack(contents, packed))
    }

    /// Changes what is kept of a block, if it is there; how many bytes more are held.
    fn change(&self, key: &L2Key, change: impl FnOnce(&mut Kept)) -> i64 {
        let mut held = self.held.write();
        let bytes = held.policy.bytes();
        let (mut before, mut now) = (0, 0);
        held.policy.change(key, |kept| {
            before = kept.open();
            change(kept);
            now = kept.open();
            kept.footprint()
        });
        held.opened(key, before, now);
        self.bytes.store(held.policy.bytes(), Ordering::Relaxed);
        held.policy.bytes() as i64 - bytes as i64
    }

    /// What is here.
    pub(crate) fn sums(&self) -> ShardSums {
        let held = self.held.read();
        let policy = &held.policy;
        let states = [ArcState::Recent, ArcState::Frequent];
        ShardSums {
            held: states.map(|state| [Contents::Data, Contents::Metadata].map(|of| policy.bytes_at(state, of))),
            ghosts: states.map(|state| policy.ghost_bytes(state)),
            open: held.open_bytes,
            contents: held.contents_bytes,
            count: policy.len() as u64,
            overhead: policy.overhead() + (held.open.capacity() * size_of::<L2Key>()) as u64,
        }
    }
}

impl Loading {
    /// The block, or `None` if its reader failed.
    pub(crate) fn wait(&self) -> Option<Block> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(block) = &*outcome {
                return block.clone();
            }
            outcome = self.done.wait(outcome);
        }
    }
}
