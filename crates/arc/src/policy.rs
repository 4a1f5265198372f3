//! Which blocks stay: recency and frequency lists with ghosts and an adaptive target. Pure: no I/O, no lock,
//! no clock; keys, sizes and what they are for go in, victims come out.
//!
//! ```text
//!            absent ──▶ recent (MRU) ── not used again ──▶ ghosts of recent ─────┐
//!                          │ used again                                          │ asked for again:
//!                          ▼                                                     │ the list was too short
//!            ┌────▶ frequent (MFU) ──── not used again ──▶ ghosts of frequent ───┤
//!            └ used again ─┘   ▲                                                 │
//!                              └─────────────────────────────────────────────────┘
//! ```
//!
//! That is ARC: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003. But a hit
//! only marks its block and notes it, which needs no exclusive access; the lists catch up before they are next
//! changed. What there is no room to note stays marked, and has its move when its turn to leave comes, as in
//! the clock form of ARC (Bansal and Modha, "CAR: Clock with Adaptive Replacement", FAST 2004). It is counted
//! in bytes here, and three things are added:
//!
//! - a prefetch leaves no mark, and the first demand for a prefetched block is what would have read it;
//! - hits shortly after a block came are one use: a reader of small pieces asks for each record many times;
//! - data and metadata have lists of their own, which leave in common order unless a limit says otherwise.
//!
//! The caller owns the budget and the target, as it may have several of these; see [`Limits`].
//!
//! Invariants: a key is in one list, or a ghost of one, never both; the sizes in a list sum to its bytes;
//! ghosts and blocks together remember at most twice the budget.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::ghost::Ghosts;
use crate::list::Lists;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Of files and volumes.
    Data,
    /// All that leads to data.
    Metadata,
}

/// Why a block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPurpose {
    /// Somebody waits for it.
    Demand,
    /// Somebody may.
    Prefetch,
}

/// The list that a block is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArcState {
    /// Used once, as far as known.
    Recent,
    /// Used more than once.
    Frequent,
}

/// What the lists should keep to, all in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The budget.
    pub budget: u64,
    /// How much of it the recent list should have.
    pub recent: u64,
    /// Metadata beyond this leave first.
    pub metadata_max: u64,
    /// Metadata up to this leave only when there are no data.
    pub metadata_min: u64,
}

/// A block that was found.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a, V> {
    /// What was kept of it.
    pub value: &'a V,
    /// Where.
    pub state: ArcState,
    /// It was prefetched, and this is the first demand for it.
    pub was_prefetched: bool,
}

/// What came of an insertion.
#[derive(Debug)]
pub struct Inserted<V> {
    /// What was kept under that key before, and its bytes.
    pub replaced: Option<(V, u64)>,
    /// The list whose ghost it was, and by how many bytes the target of the recent list should change.
    pub ghost: Option<(ArcState, i64)>,
}

/// A block that has to go.
#[derive(Debug)]
pub struct Victim<V> {
    /// What was kept of it.
    pub value: V,
    /// Its bytes.
    pub bytes: u64,
    /// What it held.
    pub contents: Contents,
    /// The list that it leaves.
    pub state: ArcState,
}

/// A block that is still there.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a, K, V> {
    /// Its key.
    pub key: &'a K,
    /// What is kept of it.
    pub value: &'a V,
    /// Its bytes.
    pub bytes: u64,
    /// It was prefetched and nobody has asked for it.
    pub is_prefetched: bool,
    /// It has been used again, and will not leave yet.
    pub is_touched: bool,
}

/// Blocks and the order in which they leave.
pub struct Policy<K, V> {
    limits: Limits,
    index: FxHashMap<K, u32>,
    /// By [`place`].
    lists: Lists<PolicyEntry<K, V>, 4>,
    bytes: [u64; 4],
    /// By [`ArcState`].
    ghosts: [Ghosts; 2],
    /// Bytes that have ever been inserted: the clock by which hits are one use.
    inserted: u64,
    uses: Uses,
}

struct PolicyEntry<K, V> {
    key: K,
    value: V,
    bytes: u64,
    contents: Contents,
    state: ArcState,
    marks: AtomicU8,
    /// Units of [`STAMP_UNIT`] that had been inserted when it was first asked for; it may wrap.
    stamp: AtomicU32,
}

/// Blocks that were used, in that order, as far as there is room.
struct Uses {
    blocks: [AtomicU32; USES],
    count: AtomicUsize,
}

impl Default for Uses {
    fn default() -> Uses {
        Uses { blocks: [const { AtomicU32::new(0) }; USES], count: AtomicUsize::new(0) }
    }
}

impl Uses {
    fn note(&self, at: u32) {
        if self.count.load(Ordering::Relaxed) < USES
            && let Some(place) = self.blocks.get(self.count.fetch_add(1, Ordering::Relaxed))
        {
            place.store(at, Ordering::Relaxed);
        }
    }

    fn noted(&mut self) -> usize {
        (*self.count.get_mut()).min(USES)
    }
}

/// It was used again.
const TOUCHED: u8 = 1;
/// It was prefetched and nobody has asked for it.
const PREFETCHED: u8 = 2;
/// Bytes of a stamp's unit.
const STAMP_UNIT: u64 = 512;
/// Hits until this part of the budget has been inserted are one use.
const ONE_USE_PART: u64 = 128;
/// Blocks whose uses are remembered in their order until the lists are changed.
const USES: usize = 64;

/// The number of a list.
fn place(state: ArcState, contents: Contents) -> usize {
    2 * state as usize + contents as usize
}

impl<K: Hash + Eq + Clone, V> Policy<K, V> {
    /// Without any blocks.
    pub fn new(limits: Limits) -> Policy<K, V> {
        Policy {
            limits,
            index: FxHashMap::default(),
            lists: Lists::default(),
            bytes: [0; 4],
            ghosts: Default::default(),
            inserted: 0,
            uses: Uses::default(),
        }
    }

    /// What the lists should keep to from now on; [`Policy::evict`] makes them.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Finds a block, and marks it as used if it is demanded.
    pub fn get(&self, key: &K, purpose: AccessPurpose) -> Option<Hit<'_, V>> {
        let at = *self.index.get(key)?;
        let entry = self.lists.get(at)?;
        let marks = entry.marks.load(Ordering::Relaxed);
        let was_prefetched = purpose == AccessPurpose::Demand && marks & PREFETCHED != 0;
        if was_prefetched {
            entry.stamp.store(self.stamp(), Ordering::Relaxed);
            entry.marks.fetch_and(!PREFETCHED, Ordering::Relaxed);
        } else if purpose == AccessPurpose::Demand && marks & TOUCHED == 0 && self.is_another_use(entry) {
            entry.marks.fetch_or(TOUCHED, Ordering::Relaxed);
            self.uses.note(at);
        }
        Some(Hit { value: &entry.value, state: entry.state, was_prefetched })
    }

    fn is_another_use(&self, entry: &PolicyEntry<K, V>) -> bool {
        let age = self.stamp().wrapping_sub(entry.stamp.load(Ordering::Relaxed));
        entry.state == ArcState::Frequent || u64::from(age) * STAMP_UNIT > self.limits.budget / ONE_USE_PART
    }

    fn stamp(&self) -> u32 {
        (self.inserted / STAMP_UNIT) as u32
    }

    /// Keeps a block of `bytes`; it is the caller's to [`Policy::evict`] what is too much.
    pub fn insert(&mut self, key: K, value: V, bytes: u64, contents: Contents, purpose: AccessPurpose) -> Inserted<V> {
        if let Some(at) = self.index.get(&key) {
            return Inserted { replaced: self.replace(*at, value, bytes), ghost: None };
        }
        self.catch_up();
        let ghost = self.take_ghost(FxBuildHasher.hash_one(&key), bytes);
        let is_demand = purpose == AccessPurpose::Demand;
        let state = if ghost.is_some() && is_demand { ArcState::Frequent } else { ArcState::Recent };
        self.inserted += bytes;
        let marks = if is_demand { 0 } else { PREFETCHED };
        let (marks, stamp) = (marks.into(), self.stamp().into());
        let place = place(state, contents);
        let at = self.lists.push(place, PolicyEntry { key: key.clone(), value, bytes, contents, state, marks, stamp });
        self.index.insert(key, at);
        self.bytes[place] += bytes;
        self.trim_ghosts();
        Inserted { replaced: None, ghost: ghost.filter(|_| is_demand) }
    }

    fn replace(&mut self, at: u32, value: V, bytes: u64) -> Option<(V, u64)> {
        let entry = self.lists.get_mut(at)?;
        let old = (std::mem::replace(&mut entry.value, value), std::mem::replace(&mut entry.bytes, bytes));
        let held = &mut self.bytes[place(entry.state, entry.contents)];
        *held = *held - old.1 + bytes;
        self.trim_ghosts();
        Some(old)
    }

    /// Whether the key was a ghost, which it is no more: of which list, and what its return says of the
    /// target.
    fn take_ghost(&mut self, hash: u64, bytes: u64) -> Option<(ArcState, i64)> {
        let [recent, frequent] = [self.ghosts[0].bytes().max(1), self.ghosts[1].bytes().max(1)];
        let step = |ratio: u64| bytes.saturating_mul(ratio.max(1)).min(self.limits.budget) as i64;
        if self.ghosts[0].take(hash).is_some() {
            return Some((ArcState::Recent, step(frequent / recent)));
        }
        self.ghosts[1].take(hash).map(|_| (ArcState::Frequent, -step(recent / frequent)))
    }

    /// Forgets a block.
    pub fn remove(&mut self, key: &K) -> Option<(V, u64)> {
        self.catch_up();
        let at = self.index.get(key).copied()?;
        self.release(at).map(|entry| (entry.value, entry.bytes))
    }

    /// Forgets that a block was ever here, if it is not: nobody will ask for it again.
    pub fn forget_ghost(&mut self, key: &K) {
        let hash = FxBuildHasher.hash_one(key);
        for ghosts in &mut self.ghosts {
            ghosts.take(hash);
        }
    }

    /// Forgets all blocks, and all that were here, whose hashes ([`Policy::hash_of`]) `keeps` does not want.
    pub fn keep_only(&mut self, keeps: impl Fn(u64) -> bool) {
        self.catch_up();
        let is_unwanted = |key: &&K| !keeps(FxBuildHasher.hash_one(*key));
        let unwanted: Vec<u32> = self.index.iter().filter(|(key, _)| is_unwanted(key)).map(|(_, at)| *at).collect();
        unwanted.into_iter().for_each(|at| drop(self.release(at)));
        self.ghosts.iter_mut().for_each(|ghosts| ghosts.keep_only(&keeps));
    }

    /// The hash by which a block is known here.
    pub fn hash_of(key: &K) -> u64 {
        FxBuildHasher.hash_one(key)
    }

    /// Lets blocks go until they have `bytes` less, but looks at no more than `looks_max` of them. Returns
    /// whether there is more to do.
    pub fn evict(&mut self, bytes: u64, looks_max: usize, victims: &mut Vec<Victim<V>>) -> bool {
        self.catch_up();
        let mut freed = 0;
        for _ in 0..looks_max {
            let Some(at) = self.next_to_leave().filter(|_| freed < bytes) else { return false };
            if self.gives_another_round(at) {
                continue;
            }
            let Some(mut entry) = self.release(at) else { return false };
            // what nobody has asked for leaves no trace
            if *entry.marks.get_mut() & PREFETCHED == 0 {
                self.ghosts[entry.state as usize].push(FxBuildHasher.hash_one(&entry.key), entry.bytes);
                self.trim_ghosts();
            }
            freed += entry.bytes;
            let PolicyEntry { value, bytes, contents, state, .. } = entry;
            victims.push(Victim { value, bytes, contents, state });
        }
        freed < bytes
    }

    /// The blocks of a kind in a list, those first that leave first.
    pub fn leaving(&self, state: ArcState, contents: Contents) -> impl Iterator<Item = Waiting<'_, K, V>> {
        let oldest = self.lists.oldest(place(state, contents)).map(|(at, _)| at);
        let order = std::iter::successors(oldest, |at| self.lists.newer(*at));
        order.filter_map(|at| self.lists.get(at)).map(|entry| {
            let marks = entry.marks.load(Ordering::Relaxed);
            let (is_prefetched, is_touched) = (marks & PREFETCHED != 0, marks & TOUCHED != 0);
            Waiting { key: &entry.key, value: &entry.value, bytes: entry.bytes, is_prefetched, is_touched }
        })
    }

    /// Changes what is kept of a block, if it is there; `change` tells its bytes from then on.
    pub fn change(&mut self, key: &K, change: impl FnOnce(&mut V) -> u64) {
        let Some(entry) = self.index.get(key).and_then(|at| self.lists.get_mut(*at)) else { return };
        let bytes = change(&mut entry.value);
        let held = &mut self.bytes[place(entry.state, entry.contents)];
        *held = *held - std::mem::replace(&mut entry.bytes, bytes) + bytes;
        self.trim_ghosts();
    }

    /// Moves the blocks that were used since the lists were last changed.
    fn catch_up(&mut self) {
        for i in 0..self.uses.noted() {
            let at = *self.uses.blocks[i].get_mut();
            self.gives_another_round(at);
        }
        *self.uses.count.get_mut() = 0;
    }

    /// Keeps a block that was used, among the frequent ones.
    fn gives_another_round(&mut self, at: u32) -> bool {
        let Some(entry) = self.lists.get_mut(at).filter(|entry| entry.marks.load(Ordering::Relaxed) & TOUCHED != 0)
        else {
            return false;
        };
        *entry.marks.get_mut() = 0;
        let from = place(std::mem::replace(&mut entry.state, ArcState::Frequent), entry.contents);
        let (to, bytes) = (place(ArcState::Frequent, entry.contents), entry.bytes);
        self.bytes[from] -= bytes;
        self.bytes[to] += bytes;
        self.lists.renew(at, to);
        true
    }

    fn release(&mut self, at: u32) -> Option<PolicyEntry<K, V>> {
        let entry = self.lists.remove(at)?;
        self.index.remove(&entry.key);
        self.bytes[place(entry.state, entry.contents)] -= entry.bytes;
        Some(entry)
    }

    /// The block whose turn it is: of the list that has more than its share, the older of data and metadata.
    fn next_to_leave(&self) -> Option<u32> {
        let metadata = self.bytes_of(Contents::Metadata);
        let allows = |contents: Contents| match contents {
            Contents::Data => metadata <= self.limits.metadata_max,
            Contents::Metadata => metadata > self.limits.metadata_min,
        };
        let oldest = |state: ArcState, contents: Contents| self.lists.oldest(place(state, contents));
        let of = |state: ArcState, is_allowed: &dyn Fn(Contents) -> bool| {
            let both = [Contents::Data, Contents::Metadata].into_iter().filter(|contents| is_allowed(*contents));
            both.filter_map(|contents| oldest(state, contents)).min_by_key(|(_, turn)| *turn)
        };
        let states = match self.bytes_in(ArcState::Recent) > self.limits.recent {
            true => [ArcState::Recent, ArcState::Frequent],
            false => [ArcState::Frequent, ArcState::Recent],
        };
        let anything = |_: Contents| true;
        let choices = [&allows as &dyn Fn(Contents) -> bool, &anything];
        choices
            .into_iter()
            .find_map(|is_allowed| states.into_iter().find_map(|state| of(state, is_allowed)))
            .map(|(at, _)| at)
    }

    /// Lists and ghosts remember twice the budget, of which those seen once have at most half.
    fn trim_ghosts(&mut self) {
        let budget = self.limits.budget;
        let [recent, frequent] = [ArcState::Recent, ArcState::Frequent].map(|state| self.bytes_in(state));
        self.ghosts[0].trim(budget.saturating_sub(recent));
        let others = recent + frequent + self.ghosts[0].bytes();
        self.ghosts[1].trim((2 * budget).saturating_sub(others));
    }

    /// Bytes of the blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Bytes of the blocks of a kind in a list.
    pub fn bytes_at(&self, state: ArcState, contents: Contents) -> u64 {
        self.bytes[place(state, contents)]
    }

    /// Bytes that the ghosts of a list took.
    pub fn ghost_bytes(&self, state: ArcState) -> u64 {
        self.ghosts[state as usize].bytes()
    }

    /// Bytes of the blocks in a list.
    pub fn bytes_in(&self, state: ArcState) -> u64 {
        [Contents::Data, Contents::Metadata].map(|contents| self.bytes[place(state, contents)]).iter().sum()
    }

    /// Bytes of memory that it takes itself, about, without what is kept of the blocks.
    pub fn overhead(&self) -> u64 {
        let index = self.index.capacity() * (size_of::<(K, u32)>() + 1) * 8 / 7;
        index as u64 + self.lists.overhead() + self.ghosts.iter().map(Ghosts::overhead).sum::<u64>()
    }

    /// Bytes of the blocks of a kind.
    pub fn bytes_of(&self, contents: Contents) -> u64 {
        [ArcState::Recent, ArcState::Frequent].map(|state| self.bytes[place(state, contents)]).iter().sum()
    }
}

#[cfg(test)]
mod tests;
