//! The allocator: which bytes of the pool are free, and where a block goes.
//!
//! ```text
//!   class      normal ─────────────┬──────────────┐      log …   special …   dedup …
//!   vdev       top 0               │ top 1        │ …            rotation, by free space
//!   metaslab   0 | 1 | 2* | 3 | …  │ 0* | 1 | …   │              * active
//!   runs       ▒▒░░▒░░░░▒▒▒ loaded when it becomes active; the others' free space is only counted
//! ```
//!
//! The space maps themselves are objects of the pool, which the layer above reads and writes: it gives
//! an allocator a [`SpaceMapSource`], asks it for changes as often as it takes in each transaction
//! group ([`Allocator::take_changes`]), and tells it when the group is on disk ([`Allocator::synced`]).
//! What is freed can be allocated again only after [`TXG_DEFER`] more groups are on disk, so that the
//! pool can go back to an older uberblock; until then it counts as deferred. What was allocated and
//! freed in one group comes back at once.
//!
//! All offsets and lengths are bytes of the top-level vdev's address space, as in a DVA.
//!
//! Invariants: no byte is allocated twice, which the sets of ranges refuse; a metaslab whose space map
//! contradicts itself is not allocated from; the lock is not held while a space map is read.

mod class;
mod metaslab;
mod rotation;
#[cfg(test)]
mod tests;
mod top;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, Kind, Mutex, MutexGuard, RangeTree, Result};
use format::blkptr::Dva;
use format::ids::{Txg, VdevNumber};
use format::space_map::Run;
use vdev::{TopRange, Tree};

use crate::gang::HEADER_SIZE;
pub use class::{Class, Serving, Space, TXG_DEFER};
use metaslab::Metaslab;
use rotation::{AllocAttempt, AllocatorState};
use top::Top;

/// Where a device is bad, it may be so for so many bytes.
const BAD_BYTES: u64 = 1 << 20;
/// Bytes for each data column of a vdev before the next one's turn.
const ALIQUOT: u64 = 512 << 10;
/// Percent of special vdevs that are for metadata alone: zfs_special_class_metadata_reserve_pct.
const METADATA_RESERVE_PERCENT: u64 = 25;
/// Pieces that what was on removed vdevs may be in.
const MOVES_MAX: usize = 1 << 16;
/// A metaslab from which nothing was allocated for so many groups is unloaded.
const UNLOAD_TXGS: u64 = 64;

/// The space of a top-level vdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopShape {
    /// Its number, as in DVAs.
    pub top: VdevNumber,
    /// What it is for.
    pub class: Class,
    /// Binary logarithm of the distance from one metaslab's start to the next one's, bytes.
    pub metaslab_shift: u32,
    /// The bytes of each metaslab, and how many of them its space map has allocated.
    pub metaslabs: Vec<(Range<u64>, u64)>,
}

/// Reads space maps for an [`Allocator`].
pub trait SpaceMapSource: Send + Sync {
    /// The runs of a metaslab's space map in the order in which they were logged, in bytes of the
    /// vdev's address space; none if it has no map.
    ///
    /// It must have all groups that were told to [`Allocator::synced`]; it may have later changes
    /// that [`Allocator::take_changes`] gave out.
    fn runs(&self, top: VdevNumber, metaslab: u64) -> Result<Vec<Run>>;
}

/// What a metaslab's space map must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaslabChange {
    /// Number of the top-level vdev.
    pub top: VdevNumber,
    /// Number of the metaslab on it.
    pub metaslab: u64,
    /// Ranges in use from now on, in order; they overlap with none of `freed`.
    pub allocated: Vec<Range<u64>>,
    /// Ranges free from now on, in order.
    pub freed: Vec<Range<u64>>,
    /// Ranges that only the checkpoint has from now on, in order: they stay allocated.
    pub kept: Vec<Range<u64>>,
}

/// The allocator of one pool.
pub struct Allocator {
    tree: Arc<Tree>,
    source: Box<dyn SpaceMapSource>,
    state: Mutex<AllocatorState>,
    /// The group of the pool's checkpoint; 0: there is none.
    checkpoint_txg: AtomicU64,
    autotrim: AtomicBool,
    /// Bytes of the normal class that were ever allocated ahead of groups.
    ahead_bytes: AtomicU64,
}

impl Allocator {
    /// An allocator for the vdevs of `tree`, none of which it has yet.
    pub fn new(tree: Arc<Tree>, source: Box<dyn SpaceMapSource>) -> Allocator {
        Allocator {
            tree,
            source,
            state: Mutex::default(),
            checkpoint_txg: AtomicU64::new(0),
            autotrim: AtomicBool::new(false),
            ahead_bytes: AtomicU64::new(0),
        }
    }

    /// From now on the pool has a checkpoint of that group, or none: what was born up to it is not freed, but kept.
    pub fn set_checkpoint(&self, txg: Option<Txg>) {
        self.checkpoint_txg.store(txg.unwrap_or(Txg::ZERO).get(), Ordering::Relaxed);
    }

    /// Adds a top-level vdev. Errors: `Corrupt` if its metaslabs are impossible, `Exists` if it was added.
    pub fn add_top(&self, shape: TopShape) -> Result<()> {
        let TopShape { top: number, class, metaslab_shift, metaslabs } = shape;
        let vdev = self.tree.top(number)?;
        let Some(ashift) = vdev.top_spec().map(|spec| spec.ashift).filter(|ashift| (9..=16).contains(ashift)) else {
            return Err(Error::corrupt(format!("vdev {number} has no sectors to allocate")));
        };
        let columns = vdev.children().len().max(1) as u64;
        let data_columns = match vdev.kind() {
            vdev::VdevKind::Raidz { nparity } => columns.saturating_sub(nparity as u64),
            vdev::VdevKind::Draid(shape) => shape.ndata,
            _ => 1,
        };
        let mut top = Top {
            number,
            class,
            ashift,
            metaslab_shift,
            metaslabs: Vec::new(),
            aliquot: ALIQUOT * data_columns.max(1),
            active: [None; 3],
            serving: Serving::Open,
            shunned_until: Txg::ZERO,
        };
        top.add_metaslabs(metaslabs, self.autotrim.load(Ordering::Relaxed))?;
        let mut state = self.lock();
        if state.tops.iter().any(|other| other.number == number) {
            return Err(Error::new(Kind::Exists, format!("the allocator has vdev {number} already")));
        }
        state.tops.push(top);
        Ok(())
    }

    /// A top-level vdev has grown: these metaslabs, in which nothing is allocated, come behind those that it has.
    /// Errors: `Corrupt` if they are impossible; `NotFound` if it was not added.
    pub fn grow_top(&self, number: VdevNumber, ranges: Vec<Range<u64>>) -> Result<()> {
        let mut state = self.lock();
        let top = state.tops.iter_mut().find(|top| top.number == number);
        let top = top.ok_or_else(|| Error::new(Kind::NotFound, format!("the allocator has no vdev {number}")))?;
        let empty = ranges.into_iter().map(|range| (range, 0)).collect();
        top.add_metaslabs(empty, self.autotrim.load(Ordering::Relaxed))
    }

    /// Whether blocks are to be allocated on a top-level vdev from now on.
    pub fn set_serving(&self, top: VdevNumber, serving: Serving) {
        self.with_top(top, |top| top.serving = serving);
    }

    /// No log block of groups before `txg` goes to a vdev for logs that has just failed with one: they go to
    /// another, or to the pool, until it is tried again.
    pub fn shun(&self, top: VdevNumber, txg: Txg) {
        self.with_top(top, |top| top.shunned_until = txg);
    }

    fn with_top(&self, number: VdevNumber, f: impl FnOnce(&mut Top)) {
        if let Some(top) = self.lock().tops.iter_mut().find(|top| top.number == number) {
            f(top);
        }
    }

    /// The smallest physical size that is worth having in a class, bytes: a sector of its vdevs.
    pub fn sector(&self, class: Class) -> u64 {
        let state = self.lock();
        let is_of = |top: &&Top, class| top.class == class && top.serving != Serving::Gone;
        let of = |class| state.tops.iter().filter(move |top| is_of(top, class)).map(|top| top.ashift).max();
        1 << class.or_else().find_map(of).unwrap_or(9)
    }

    /// Whether there is a vdev for special contents that has room for more than metadata.
    pub fn takes_small_blocks(&self) -> bool {
        let space = self.class_space(Class::Special);
        space.size > 0 && space.allocated < space.size / 100 * (100 - METADATA_RESERVE_PERCENT)
    }

    /// Allocates `copies` (1 to 3) runs for a block of `size` bytes, on different vdevs or well apart
    /// where possible. A class that is full or has no vdev is replaced by another.
    ///
    /// Errors: `NoSpace`.
    pub fn allocate(&self, class: Class, size: u64, copies: u8, txg: Txg) -> Result<Vec<Dva>> {
        self.allocate_if(class, size, copies, txg, |_| true).map(|(_, dvas)| dvas)
    }

    /// As [`Allocator::allocate`], for what intent logs write ahead of groups: `left` bytes stay free in the normal class,
    /// for the groups.
    pub fn allocate_ahead(&self, class: Class, size: u64, copies: u8, txg: Txg, left: u64) -> Result<Vec<Dva>> {
        let wanted = left.saturating_add(size.saturating_mul(copies.into()));
        let may_use = |class| class != Class::Normal || left == 0 || self.room(Class::Normal) >= wanted;
        let (class, dvas) = self.allocate_if(class, size, copies, txg, may_use)?;
        if class == Class::Normal {
            self.ahead_bytes.fetch_add(dvas.iter().map(Dva::asize).sum(), Ordering::Relaxed);
        }
        Ok(dvas)
    }

    /// Bytes of the normal class that were ever allocated by [`Allocator::allocate_ahead`].
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes.load(Ordering::Relaxed)
    }

    /// Allocates in the first class that it may use and that has room; which that is.
    fn allocate_if(
        &self,
        class: Class,
        size: u64,
        copies: u8,
        txg: Txg,
        may_use: impl Fn(Class) -> bool,
    ) -> Result<(Class, Vec<Dva>)> {
        assert!((1..=3).contains(&copies) && size > 0, "{copies} copies of {size} bytes");
        for class in class.or_else().filter(|class| may_use(*class)) {
            loop {
                let attempt = self.lock().allocate(&self.tree, class, size, copies, txg)?;
                match attempt {
                    AllocAttempt::Done(dvas) => return Ok((class, dvas)),
                    AllocAttempt::Load(top, metaslab) => self.load(top, metaslab),
                    AllocAttempt::Full => break,
                }
            }
        }
        Err(Error::new(Kind::NoSpace, format!("no room for {copies} copies of {size} bytes")))
    }

    /// Frees a run in `txg`; of a gang block its header.
    ///
    /// Of what was on a removed vdev, the bytes are freed where they are now, and those there are told as obsolete. Of
    /// one that is being removed, the bytes and their copies are freed.
    ///
    /// Errors: `Corrupt` if it is known to be free, or is nowhere.
    pub fn free(&self, txg: Txg, dva: &Dva) -> Result<()> {
        self.change_moved(dva, &|metaslab, range| metaslab.free(txg, range))
    }

    /// As [`Allocator::free`], of a block that was born in `birth_txg`: what the checkpoint has stays allocated, and is
    /// told as kept.
    pub fn release(&self, txg: Txg, dva: &Dva, birth_txg: Txg) -> Result<()> {
        let checkpoint_txg = Txg::new(self.checkpoint_txg.load(Ordering::Relaxed));
        match birth_txg <= checkpoint_txg && checkpoint_txg < txg {
            true => self.change_moved(dva, &|metaslab, range| metaslab.keep(txg, range)),
            false => self.free(txg, dva),
        }
    }

    /// Frees in `txg` a range of a top-level vdev, which was kept for a checkpoint, or is a copy of nothing that is needed
    /// any more. Errors: as from [`Allocator::free`].
    pub fn free_range(&self, txg: Txg, top: VdevNumber, range: Range<u64>) -> Result<()> {
        let mut state = self.lock();
        let nowhere =
            || Error::corrupt(format!("no metaslab of vdev {top} holds {:#x} to {:#x}", range.start, range.end));
        let top = state.tops.iter_mut().find(|known| known.number == top).ok_or_else(nowhere)?;
        let at = top.metaslab_at(range.start).ok_or_else(nowhere)?;
        top.metaslabs[at].free(txg, range)
    }

    /// Goes on some way behind these bytes, to which nothing can be written.
    pub fn pass_over(&self, top: VdevNumber, range: &Range<u64>) {
        let mut state = self.lock();
        let Some(top) = state.tops.iter_mut().find(|known| known.number == top) else { return };
        if let Some(at) = top.metaslab_at(range.start) {
            top.metaslabs[at].go_on_at(range.end + BAD_BYTES);
        }
    }

    /// Takes back a run that was allocated in this same `txg`; of a gang block its header.
    ///
    /// Errors: as from [`Allocator::free`], and `Corrupt` if it was not allocated in this txg.
    pub fn unallocate(&self, txg: Txg, dva: &Dva) -> Result<()> {
        self.change(dva, |metaslab, range| metaslab.unallocate(txg, range))
    }

    /// Allocates in `txg` a run at a place that is given; of a gang block its header. Errors: `Corrupt` if it
    /// is not free.
    pub fn claim(&self, txg: Txg, dva: &Dva) -> Result<()> {
        loop {
            let mut is_unloaded = false;
            self.change(dva, |metaslab, range| {
                is_unloaded = metaslab.is_unloaded();
                if is_unloaded { Ok(()) } else { metaslab.claim(txg, range) }
            })?;
            if !is_unloaded {
                return Ok(());
            }
            let (top, metaslab) = {
                let state = self.lock();
                let top = state.tops.iter().position(|top| top.number == dva.vdev());
                let top = top.expect("found a moment ago");
                (top, state.tops[top].metaslab_at(dva.offset()).expect("found a moment ago"))
            };
            self.load(top, metaslab);
        }
    }

    /// What has changed in `txg` since the last call, to be written to the space maps. As writing them
    /// allocates, it is called again until nothing has changed.
    pub fn take_changes(&self, txg: Txg) -> Vec<MetaslabChange> {
        let mut changes = Vec::new();
        for top in &mut self.lock().tops {
            let number = top.number;
            changes.extend((0..).zip(&mut top.metaslabs).filter_map(|(metaslab, m)| {
                let [allocated, freed, kept] = m.take_changes(txg)?;
                Some(MetaslabChange { top: number, metaslab, allocated, freed, kept })
            }));
        }
        changes
    }

    /// `txg` and all before it are on disk: what was freed [`TXG_DEFER`] groups ago may be used again.
    /// Panics if changes of the group were never taken.
    pub fn synced(&self, txg: Txg) {
        for top in &mut self.lock().tops {
            let active = top.active;
            for (i, metaslab) in top.metaslabs.iter_mut().enumerate() {
                metaslab.synced(txg);
                if !active.contains(&Some(i)) {
                    metaslab.unload_if_idle(txg, UNLOAD_TXGS);
                }
            }
        }
    }

    /// All that a metaslab's space map has allocated once `txg`, of which all changes have been taken,
    /// is on disk: for a map that grew long to be written anew.
    ///
    /// Errors: `NotFound` if there is no such metaslab, `Corrupt` if its space map is no good.
    pub fn condensed(&self, top: VdevNumber, metaslab: u64, txg: Txg) -> Result<RangeTree> {
        let missing = || Error::new(Kind::NotFound, format!("there is no metaslab {metaslab} on vdev {top}"));
        loop {
            let index = {
                let state = self.lock();
                let index = state.tops.iter().position(|t| t.number == top).ok_or_else(missing)?;
                let found = usize::try_from(metaslab).ok().and_then(|m| state.tops[index].metaslabs.get(m));
                let found = found.ok_or_else(missing)?;
                if let Some(allocated) = found.allocated_on_disk(txg) {
                    return Ok(allocated);
                }
                if found.is_bad() {
                    return Err(Error::corrupt(format!("space map of metaslab {metaslab} of vdev {top} is no good")));
                }
                index
            };
            self.load(index, metaslab as usize);
        }
    }

    /// The room in a class.
    pub fn class_space(&self, class: Class) -> Space {
        let state = self.lock();
        let counts = |top: &&Top| top.class == class && top.serving != Serving::Gone;
        state.tops.iter().filter(counts).fold(Space::default(), |sum, top| sum + top.space())
    }

    /// Bytes in use in the metaslabs of a top-level vdev, from a number on.
    pub fn allocated_from(&self, top: VdevNumber, metaslab: usize) -> u64 {
        let state = self.lock();
        let found = state.tops.iter().find(|known| known.number == top);
        found.map_or(0, |top| top.metaslabs.iter().skip(metaslab).map(Metaslab::allocated).sum())
    }

    /// Forgets all that it knows of a top-level vdev: nothing is allocated there from now on, nor freed.
    pub fn forget_top(&self, top: VdevNumber) {
        self.with_top(top, |top| {
            top.serving = Serving::Gone;
            top.active = [None; 3];
            top.metaslabs.clear();
        });
    }

    /// The room on a top-level vdev; `None` if it has not been added.
    pub fn top_space(&self, top: VdevNumber) -> Option<Space> {
        self.lock().tops.iter().find(|t| t.number == top).map(Top::space)
    }

    /// Whether `bytes`, parity and padding included, could be allocated in a class or in its stead in
    /// the normal one, if need be in pieces.
    pub fn can_allocate(&self, class: Class, bytes: u64) -> bool {
        self.room(class) >= bytes || class != Class::Normal && self.room(Class::Normal) >= bytes
    }

    /// Bytes that may be allocated in a class, parity and padding included.
    pub fn room(&self, class: Class) -> u64 {
        let state = self.lock();
        let tops = state.tops.iter().filter(|top| top.class == class && top.serving == Serving::Open);
        tops.map(|top| top.space().free).sum()
    }

    /// Lends free bytes of a top-level vdev from `cursor` on, some `bytes_max` of them, all in one metaslab: nothing is
    /// allocated there until [`Allocator::give_back`]. None if there is nothing free behind. Errors: `NotFound` if there
    /// is no such vdev.
    pub fn lend(&self, top: VdevNumber, cursor: u64, bytes_max: u64) -> Result<Vec<Range<u64>>> {
        let mut at = cursor;
        loop {
            let (index, metaslab) = {
                let mut state = self.lock();
                let index = state.tops.iter().position(|known| known.number == top);
                let absent = || Error::new(Kind::NotFound, format!("there is no vdev {top}"));
                let index = index.ok_or_else(absent)?;
                let vdev = &mut state.tops[index];
                let Some(metaslab) = vdev.metaslab_at(at) else { return Ok(Vec::new()) };
                let shift = vdev.metaslab_shift;
                let found = &mut vdev.metaslabs[metaslab];
                if !found.is_unloaded() {
                    let lent = found.lend(at, bytes_max);
                    if !lent.is_empty() {
                        return Ok(lent);
                    }
                    at = (metaslab as u64 + 1) << shift;
                    continue;
                }
                (index, metaslab)
            };
            self.load(index, metaslab);
        }
    }

    /// Lends all that is free in a range of a top-level vdev, which is in one metaslab; of a metaslab that cannot be had,
    /// nothing. Until [`Allocator::give_back`]. Errors: `NotFound` if there is no such vdev or metaslab.
    pub fn lend_all(&self, top: VdevNumber, range: Range<u64>) -> Result<Vec<Range<u64>>> {
        let start = range.start;
        let absent = || Error::new(Kind::NotFound, format!("there is no metaslab at {start:#x} of vdev {top}"));
        let (index, metaslab, is_unloaded) = {
            let state = self.lock();
            let index = state.tops.iter().position(|known| known.number == top).ok_or_else(absent)?;
            let metaslab = state.tops[index].metaslab_at(start).ok_or_else(absent)?;
            (index, metaslab, state.tops[index].metaslabs[metaslab].is_unloaded())
        };
        if is_unloaded {
            self.load(index, metaslab);
        }
        let mut lent = Vec::new();
        self.with_top(top, |top| lent = top.metaslabs[metaslab].lend_all(range));
        Ok(lent)
    }

    /// Lends what has become free since devices were told, in runs of `run_min` bytes at least: of every `of`-th
    /// metaslab, beginning with number `first`. By the number of the top-level vdev. Nothing is allocated there until
    /// [`Allocator::give_back`].
    pub fn lend_untrimmed(&self, run_min: u64, (first, of): (usize, usize)) -> Vec<(VdevNumber, Vec<Range<u64>>)> {
        let wanted: Vec<(usize, usize)> = {
            let state = self.lock();
            let of_top = |(index, top): (usize, &Top)| {
                let numbers = (first..top.metaslabs.len()).step_by(of);
                numbers.filter(|&number| top.metaslabs[number].has_untrimmed()).map(|number| (index, number)).collect()
            };
            let wanted: Vec<Vec<_>> = state.tops.iter().enumerate().map(of_top).collect();
            wanted.concat()
        };
        let mut lent = Vec::new();
        for (index, number) in wanted {
            if self.lock().tops[index].metaslabs[number].is_unloaded() {
                self.load(index, number);
            }
            let mut state = self.lock();
            let top = &mut state.tops[index];
            let ranges = top.metaslabs[number].lend_untrimmed(run_min);
            if !ranges.is_empty() {
                lent.push((top.number, ranges));
            }
        }
        lent
    }

    /// Bytes that [`Allocator::lend_untrimmed`] will lend in its turns, with those that are not free yet.
    pub fn untrimmed_bytes(&self, run_min: u64) -> u64 {
        let state = self.lock();
        state.tops.iter().flat_map(|top| &top.metaslabs).map(|metaslab| metaslab.untrimmed_bytes(run_min)).sum()
    }

    /// Takes back what was lent. Panics if it was not.
    pub fn give_back(&self, top: VdevNumber, lent: &[Range<u64>]) {
        self.with_top(top, |top| {
            for part in lent {
                let metaslab = top.metaslab_at(part.start).expect("what was lent is in a metaslab");
                top.metaslabs[metaslab].take_back(std::slice::from_ref(part));
            }
        });
    }

    /// Whether devices are to be told of what becomes free from now on ([`Allocator::lend_untrimmed`]).
    pub fn set_autotrim(&self, is_on: bool) {
        self.autotrim.store(is_on, Ordering::Relaxed);
        let mut state = self.lock();
        state.tops.iter_mut().flat_map(|top| &mut top.metaslabs).for_each(|metaslab| metaslab.set_autotrim(is_on));
    }

    /// Reads a metaslab's space map, or sets the metaslab aside if that cannot be had.
    fn load(&self, top: usize, metaslab: usize) {
        // a vdev may be forgotten meanwhile
        let (number, epoch) = {
            let state = self.lock();
            let Some(found) = state.tops[top].metaslabs.get(metaslab) else { return };
            (state.tops[top].number, found.epoch())
        };
        let runs = self.source.runs(number, metaslab as u64);
        let mut state = self.lock();
        let Some(found) = state.tops[top].metaslabs.get_mut(metaslab) else { return };
        if let Err(error) = runs.and_then(|runs| found.load(epoch, &runs)) {
            tracing::error!(top = %number, metaslab, %error, "space map is no good; nothing is allocated from its metaslab");
            found.set_aside();
        }
    }

    /// Ranges of removed vdevs that no block has any more since the last call.
    pub fn take_obsolete(&self) -> Vec<TopRange> {
        std::mem::take(&mut self.lock().obsolete)
    }

    /// As [`Allocator::change`], wherever what was on removed vdevs is now.
    fn change_moved(&self, dva: &Dva, f: &dyn Fn(&mut Metaslab, Range<u64>) -> Result<()>) -> Result<()> {
        let number = dva.vdev();
        let top = self.tree.top(number)?;
        if top.kind() != vdev::VdevKind::Indirect && self.tree.moved_end(number).is_none() {
            return self.change(dva, f);
        }
        let len = if dva.is_gang() { self.tree.asize(number, HEADER_SIZE as u64)? } else { dva.asize() };
        let mut places = vec![TopRange { top: number, range: dva.offset()..dva.offset().saturating_add(len) }];
        let (mut obsolete, mut concrete) = (Vec::new(), Vec::new());
        while let Some(place) = places.pop() {
            if obsolete.len() >= MOVES_MAX {
                return Err(Error::corrupt("removed vdevs that lead to one another"));
            }
            if let Some(pieces) = self.tree.moved(&place)? {
                places.extend(pieces);
                obsolete.push(place);
                continue;
            }
            // what was on a vdev that is being removed is there still, and its copy is free, too
            if let Some((copied, copies)) = self.tree.moved_so_far(&place)? {
                places.extend(copies);
                obsolete.push(copied);
            }
            concrete.push(place);
        }
        let mut state = self.lock();
        for TopRange { top: number, range } in concrete {
            let nowhere = || Error::corrupt(format!("no metaslab of vdev {number} holds what was on a removed vdev"));
            let top = state.tops.iter_mut().find(|top| top.number == number).ok_or_else(nowhere)?;
            let at = top.metaslab_at(range.start).ok_or_else(nowhere)?;
            f(&mut top.metaslabs[at], range)?;
        }
        state.obsolete.extend(obsolete);
        Ok(())
    }

    fn change(&self, dva: &Dva, f: impl FnOnce(&mut Metaslab, Range<u64>) -> Result<()>) -> Result<()> {
        let number = dva.vdev();
        let len = if dva.is_gang() { self.tree.asize(number, HEADER_SIZE as u64)? } else { dva.asize() };
        if self.tree.top(number)?.kind() == vdev::VdevKind::Indirect {
            return Err(Error::new(Kind::Unsupported, format!("nothing is allocated on the removed vdev {number}")));
        }
        let mut state = self.lock();
        let nowhere = || Error::corrupt(format!("no metaslab holds {dva:?}"));
        let top = state.tops.iter_mut().find(|top| top.number == number).ok_or_else(nowhere)?;
        let at = top.metaslab_at(dva.offset()).ok_or_else(nowhere)?;
        f(&mut top.metaslabs[at], dva.offset()..dva.offset().saturating_add(len))
    }

    fn lock(&self) -> MutexGuard<'_, AllocatorState> {
        self.state.lock()
    }
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").field("tops", &self.lock().tops.len()).finish_non_exhaustive()
    }
}
