//! One metaslab: which of its bytes are free, and what has changed in which transaction group.
//!
//! ```text
//!              allocate                 free                    TXG_DEFER more txgs are on disk
//!    free ─────────────────▶ in use ───────────▶ deferred ─────────────────────────────▶ free
//!      ▲                       │                (free on disk)
//!      └───── unallocate ──────┘  in the same txg only
//! ```
//!
//! What a checkpoint has is kept in place of being freed: it stays in use until the checkpoint is discarded.
//!
//! The set of free bytes is loaded when it is first needed. Until then frees are noted all the same:
//! what is deferred is taken out of whatever is loaded, so it makes no difference whether the space
//! map that is read tells of these frees yet.

use std::ops::Range;

use base::{Error, RangeTree, Result};
use format::ids::Txg;
use format::space_map::Run;

use super::class::TXG_DEFER;

/// A metaslab with free runs no longer than this, or with less than a 25th free, takes the run that
/// fits best; others the next that is long enough.
const BEST_FIT_BELOW: u64 = 128 << 10;

/// So much is lent even if that is all that is free.
const LENT_BYTES_MIN: u64 = 1 << 20;

/// See the top of the file.
#[derive(Debug)]
pub(super) struct Metaslab {
    region: Range<u64>,
    shift: u32,
    /// Bytes in use, with all that open txgs did.
    allocated: u64,
    space: MetaslabSpace,
    /// What was freed in which txg and may not be used yet.
    deferred: Vec<(Txg, RangeTree)>,
    open: Vec<Open>,
    /// Free bytes that nothing is allocated from now, as something is done with them on devices.
    borrowed: RangeTree,
    /// Free bytes that devices have not been told of, if they are to be told.
    untrimmed: Option<RangeTree>,
    /// Where the next search begins.
    cursor: u64,
    /// Counts the times that `deferred` bytes came back, so that a map read before can be told from
    /// one read after.
    epoch: u64,
    /// Txg of the last allocation.
    last_used: Txg,
}

#[derive(Debug)]
enum MetaslabSpace {
    Unloaded,
    /// Bytes that may be allocated.
    Free(RangeTree),
    /// The space map is no good.
    Bad,
}

/// Changes in a txg that is not on disk yet.
#[derive(Debug)]
struct Open {
    txg: Txg,
    /// All that was allocated in the txg.
    born: RangeTree,
    /// Changes that the space map has not been told of; no byte is in both.
    allocated: RangeTree,
    freed: RangeTree,
    /// What only the checkpoint has from now on, and nobody has been told of.
    kept: RangeTree,
}

impl Metaslab {
    pub(super) fn new(region: Range<u64>, shift: u32, allocated: u64) -> Metaslab {
        Metaslab {
            cursor: region.start,
            borrowed: RangeTree::new(region.start, shift),
            untrimmed: None,
            allocated: allocated.min(region.end - region.start),
            region,
            shift,
            space: MetaslabSpace::Unloaded,
            deferred: Vec::new(),
            open: Vec::new(),
            epoch: 0,
            last_used: Txg::ZERO,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.region.end - self.region.start
    }

    pub(super) fn allocated(&self) -> u64 {
        self.allocated
    }

    pub(super) fn deferred(&self) -> u64 {
        self.deferred.iter().map(|(_, freed)| freed.total()).sum()
    }

    /// Bytes that may be allocated, whether or not they are loaded; 0 if the space map is no good.
    pub(super) fn room(&self) -> u64 {
        match &self.space {
            MetaslabSpace::Free(free) => free.total() + self.borrowed.total(),
            MetaslabSpace::Unloaded => self.size().saturating_sub(self.allocated).saturating_sub(self.deferred()),
            MetaslabSpace::Bad => 0,
        }
    }

    /// Whether `len` bytes may be found here; the answer is certain if it is loaded.
    pub(super) fn may_hold(&self, len: u64) -> bool {
        match &self.space {
            MetaslabSpace::Free(free) => free.largest() >= len,
            _ => self.room() >= len,
        }
    }

    pub(super) fn is_unloaded(&self) -> bool {
        matches!(self.space, MetaslabSpace::Unloaded)
    }

    pub(super) fn is_bad(&self) -> bool {
        matches!(self.space, MetaslabSpace::Bad)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes up the space map, whose runs were read in `epoch`. False if that has passed, and they
    /// must be read again. Errors: `Corrupt` if the runs contradict each other.
    pub(super) fn load(&mut self, epoch: u64, runs: &[Run]) -> Result<bool> {
        if !self.is_unloaded() {
            return Ok(true);
        }
        if epoch != self.epoch {
            return Ok(false);
        }
        let mut free = self.whole();
        for run in runs {
            let range = run.offset..run.offset.saturating_add(run.len);
            if range.start < self.region.start || range.end > self.region.end {
                let what = format!("a space map says of {:#x} to {:#x} what is not its own", range.start, range.end);
                return Err(Error::corrupt(what));
            }
            if run.allocated { free.remove(range)? } else { free.add(range)? }
        }
        // the map of a hostile pool may say that also these were free
        for taken in self.deferred.iter().map(|(_, freed)| freed).chain(self.open.iter().map(|open| &open.kept)) {
            taken.iter().for_each(|range| drop(free.take(range)));
        }
        self.allocated = self.size() - free.total() - self.deferred();
        self.space = MetaslabSpace::Free(free);
        Ok(true)
    }

    pub(super) fn set_aside(&mut self) {
        self.space = MetaslabSpace::Bad;
    }

    /// Forgets the free bytes if nothing has been allocated for `txgs`, nor is anything under way.
    pub(super) fn unload_if_idle(&mut self, txg: Txg, txgs: u64) {
        let is_idle = self.open.is_empty() && self.borrowed.is_empty();
        if matches!(self.space, MetaslabSpace::Free(_)) && is_idle && self.last_used.plus(txgs) < txg {
            self.space = MetaslabSpace::Unloaded;
        }
    }

    /// Allocates `len` bytes; `None` if there is no such run, or it is not loaded.
    pub(super) fn allocate(&mut self, len: u64, txg: Txg) -> Option<u64> {
        let size = self.size();
        let MetaslabSpace::Free(free) = &mut self.space else { return None };
        let largest = free.largest();
        if largest < len {
            return None;
        }
        let scarce = largest < BEST_FIT_BELOW || free.total() < size / 25;
        let offset = if scarce { free.best_fit(len) } else { free.first_fit(self.cursor, len) };
        let offset = offset.or_else(|| free.first_fit(self.region.start, len))?;
        let range = offset..offset + len;
        free.remove(range.clone()).expect("just found");
        self.untrimmed.as_mut().map(|untrimmed| untrimmed.take(range.clone()));
        self.cursor = range.end;
        self.last_used = txg;
        self.allocated += len;
        let open = self.open(txg);
        open.born.add(range.clone()).expect("free bytes are nobody's");
        shift_between(&mut open.freed, &mut open.allocated, range);
        Some(offset)
    }

    /// Looks for room from `offset` on next.
    pub(super) fn go_on_at(&mut self, offset: u64) {
        self.cursor = if self.region.contains(&offset) { offset } else { self.region.start };
    }

    /// Allocates just these bytes. Errors: `Corrupt` if they are not free, and nothing is changed.
    /// Panics if it is not loaded.
    pub(super) fn claim(&mut self, txg: Txg, range: Range<u64>) -> Result<()> {
        let taken = || Error::corrupt(format!("block from {:#x} to {:#x} is in use", range.start, range.end));
        let free = match &mut self.space {
            MetaslabSpace::Free(free) => free,
            MetaslabSpace::Unloaded => panic!("claiming in a metaslab that is not loaded"),
            MetaslabSpace::Bad => return Err(Error::corrupt("the space map of its metaslab is no good")),
        };
        let inside = range.start < range.end && range.start >= self.region.start && range.end <= self.region.end;
        if !inside || !free.contains(range.clone()) {
            return Err(taken());
        }
        free.remove(range.clone())?;
        self.untrimmed.as_mut().map(|untrimmed| untrimmed.take(range.clone()));
        self.last_used = txg;
        self.allocated += range.end - range.start;
        let open = self.open(txg);
        open.born.add(range.clone())?;
        shift_between(&mut open.freed, &mut open.allocated, range);
        Ok(())
    }

    /// Gives back at once what was allocated in this same `txg`.
    /// Errors: `Corrupt` if it was not, and nothing is changed.
    pub(super) fn unallocate(&mut self, txg: Txg, range: Range<u64>) -> Result<()> {
        self.check_not_free(&range)?;
        let open = self.open(txg);
        open.born.remove(range.clone())?;
        shift_between(&mut open.allocated, &mut open.freed, range.clone());
        self.allocated -= range.end - range.start;
        if let Some(untrimmed) = &mut self.untrimmed {
            untrimmed.add(range.clone())?;
        }
        if let MetaslabSpace::Free(free) = &mut self.space {
            free.add(range)?;
        }
        Ok(())
    }

    /// Lends free bytes from `cursor` on, some `bytes_max` of them, and not all there are if they are many: nothing is
    /// allocated there until they are given back. None if nothing is free behind, or it is not loaded.
    pub(super) fn lend(&mut self, cursor: u64, bytes_max: u64) -> Vec<Range<u64>> {
        let MetaslabSpace::Free(free) = &mut self.space else { return Vec::new() };
        let mut left = bytes_max.min((free.total() / 4).max(LENT_BYTES_MIN)) >> self.shift << self.shift;
        let mut lent = Vec::new();
        for part in free.within(cursor.max(self.region.start)..self.region.end) {
            if left == 0 {
                break;
            }
            let part = part.start..part.end.min(part.start + left);
            left -= part.end - part.start;
            lent.push(part);
        }
        self.lend_out(&lent);
        lent
    }

    /// Lends all that is free in a range; nothing if it is not loaded.
    pub(super) fn lend_all(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let MetaslabSpace::Free(free) = &self.space else { return Vec::new() };
        let lent: Vec<Range<u64>> = free.within(range).into_iter().collect();
        self.lend_out(&lent);
        lent
    }

    /// Lends what devices have not been told of, in runs of so many bytes at least; shorter ones go on waiting.
    pub(super) fn lend_untrimmed(&mut self, run_min: u64) -> Vec<Range<u64>> {
        let (MetaslabSpace::Free(_), Some(untrimmed)) = (&self.space, &mut self.untrimmed) else { return Vec::new() };
        let lent: Vec<Range<u64>> = untrimmed.iter().filter(|part| part.end - part.start >= run_min).collect();
        lent.iter().for_each(|part| drop(untrimmed.take(part.clone())));
        self.lend_out(&lent);
        lent
    }

    fn lend_out(&mut self, lent: &[Range<u64>]) {
        let MetaslabSpace::Free(free) = &mut self.space else { return };
        for part in lent {
            free.remove(part.clone()).expect("what is lent is free");
            self.borrowed.add(part.clone()).expect("what is free is not lent");
        }
    }

    /// Takes back what was lent.
    pub(super) fn take_back(&mut self, lent: &[Range<u64>]) {
        for part in lent {
            self.borrowed.remove(part.clone()).expect("it was lent");
            if let MetaslabSpace::Free(free) = &mut self.space {
                free.add(part.clone()).expect("what was lent is not free");
            }
        }
    }

    /// Whether devices are to be told of what becomes free from now on.
    pub(super) fn set_autotrim(&mut self, is_on: bool) {
        match is_on {
            true => drop(self.untrimmed.get_or_insert_with(|| RangeTree::new(self.region.start, self.shift))),
            false => self.untrimmed = None,
        }
    }

    /// Whether devices have not been told of something.
    pub(super) fn has_untrimmed(&self) -> bool {
        self.untrimmed.as_ref().is_some_and(|untrimmed| !untrimmed.is_empty())
    }

    /// Bytes that devices have not been told of, or are not to be told of yet, in runs of so many at least.
    pub(super) fn untrimmed_bytes(&self, run_min: u64) -> u64 {
        let Some(untrimmed) = &self.untrimmed else { return 0 };
        let all = self.deferred.iter().map(|(_, freed)| freed).chain([untrimmed]);
        all.flat_map(RangeTree::iter).map(|part| part.end - part.start).filter(|bytes| *bytes >= run_min).sum()
    }

    /// Frees in `txg`. Errors: `Corrupt` if some of it is known to be free already, and nothing is changed.
    pub(super) fn free(&mut self, txg: Txg, range: Range<u64>) -> Result<()> {
        self.check_not_free(&range)?;
        let (region, shift) = (self.region.clone(), self.shift);
        let at = self.deferred.iter().position(|(freed_in, _)| *freed_in == txg).unwrap_or_else(|| {
            self.deferred.push((txg, RangeTree::new(region.start, shift)));
            self.deferred.len() - 1
        });
        self.deferred[at].1.add(range.clone())?;
        self.allocated = self.allocated.saturating_sub(range.end - range.start);
        let open = self.open(txg);
        shift_between(&mut open.allocated, &mut open.freed, range);
        Ok(())
    }

    /// Leaves to the checkpoint what is in use by nothing else from `txg` on. Errors: as from [`Metaslab::free`].
    pub(super) fn keep(&mut self, txg: Txg, range: Range<u64>) -> Result<()> {
        self.check_not_free(&range)?;
        self.open(txg).kept.add(range)
    }

    /// What the space maps have not been told of `txg` yet: allocated, freed, kept for the checkpoint.
    pub(super) fn take_changes(&mut self, txg: Txg) -> Option<[Vec<Range<u64>>; 3]> {
        let empty = RangeTree::new(self.region.start, self.shift);
        let open = self.open.iter_mut().find(|open| open.txg == txg)?;
        if open.is_told() {
            return None;
        }
        let changes = [&mut open.allocated, &mut open.freed, &mut open.kept];
        Some(changes.map(|ranges| std::mem::replace(ranges, empty.clone()).iter().collect()))
    }

    /// `txg` is on disk. Panics if changes of it were never taken.
    pub(super) fn synced(&mut self, txg: Txg) {
        self.open.retain(|open| {
            assert!(open.txg > txg || open.is_told(), "txg {} is on disk without all changes of a space map", open.txg);
            open.txg > txg
        });
        for (_, freed) in self.deferred.extract_if(.., |(freed_in, _)| freed_in.plus(TXG_DEFER) <= txg) {
            self.epoch += 1;
            if let Some(untrimmed) = &mut self.untrimmed {
                freed.iter().for_each(|range| untrimmed.add(range).expect("deferred bytes are not free"));
            }
            if let MetaslabSpace::Free(free) = &mut self.space {
                freed.iter().for_each(|range| free.add(range).expect("deferred bytes are not free"));
            }
        }
    }

    /// What is allocated on disk once `txg` is there; `None` if not loaded.
    pub(super) fn allocated_on_disk(&self, txg: Txg) -> Option<RangeTree> {
        let MetaslabSpace::Free(free) = &self.space else { return None };
        let mut used = self.whole();
        let free = free.iter().chain(self.borrowed.iter());
        free.for_each(|range| used.remove(range).expect("free bytes are within the metaslab"));
        let freed = self.deferred.iter().filter(|(freed_in, _)| *freed_in <= txg).map(|(_, freed)| freed);
        let born = self.open.iter().filter(|open| open.txg > txg).map(|open| &open.born);
        freed.chain(born).flat_map(RangeTree::iter).for_each(|range| drop(used.take(range)));
        Some(used)
    }

    fn whole(&self) -> RangeTree {
        let mut whole = RangeTree::new(self.region.start, self.shift);
        if !self.region.is_empty() {
            whole.add(self.region.clone()).expect("a metaslab's bounds were checked");
        }
        whole
    }

    fn check_not_free(&self, range: &Range<u64>) -> Result<()> {
        let within = range.start >= self.region.start && range.end <= self.region.end && range.start < range.end;
        let free = matches!(&self.space, MetaslabSpace::Free(free) if free.overlaps(range.clone()))
            || self.borrowed.overlaps(range.clone());
        let freed = self.deferred.iter().map(|(_, freed)| freed);
        let gone = freed.chain(self.open.iter().map(|open| &open.kept)).any(|gone| gone.overlaps(range.clone()));
        if !within || free || gone {
            let what = if within { "is free already" } else { "is not within a metaslab" };
            return Err(Error::corrupt(format!("block from {:#x} to {:#x} {what}", range.start, range.end)));
        }
        Ok(())
    }

    fn open(&mut self, txg: Txg) -> &mut Open {
        let at = self.open.iter().position(|open| open.txg == txg).unwrap_or_else(|| {
            let empty = RangeTree::new(self.region.start, self.shift);
            let [born, allocated, freed, kept] = std::array::from_fn(|_| empty.clone());
            self.open.push(Open { txg, born, allocated, freed, kept });
            self.open.len() - 1
        });
        &mut self.open[at]
    }
}

impl Open {
    fn is_told(&self) -> bool {
        self.allocated.is_empty() && self.freed.is_empty() && self.kept.is_empty()
    }
}

/// Notes a change of `range` in `to`, but for what cancels an opposite one in `from`.
fn shift_between(from: &mut RangeTree, to: &mut RangeTree, range: Range<u64>) {
    let cancelled = from.take(range.clone());
    let mut at = range.start;
    for gap in cancelled.into_iter().chain(std::iter::once(range.end..range.end)) {
        if at < gap.start {
            to.add(at..gap.start).expect("a byte changes its state once at a time");
        }
        at = gap.end;
    }
}
