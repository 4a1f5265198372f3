//! The steps of a removal: what is in use on the vdev is copied to others, in the order of places.
//!
//! ```text
//!   space map of a metaslab   ██░███░░░░░░░██      as of this group, all its frees so far left out
//!   segments                  ╰─────╯      ╰╯      with short free runs in them, so that the table stays short
//!   allocated elsewhere ─▶ copied ─▶ flushed ─▶ table, births, how far it is ─▶ free runs are given back
//! ```
//!
//! All that happens in one group, in the thread that syncs it, and nothing is freed meanwhile: so a block that is freed
//! later is freed in both places if it was copied, and is not copied otherwise (`zio` `alloc`). A leaf that did not take
//! what was copied lacks all groups from then on, as blocks that were copied are older than that.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use base::{Error, Kind, Result, tunables};
use dmu::zap::ZapValue;
use format::blkptr::Dva;
use format::ids::{Txg, VdevNumber};
use format::removal::{REMOVING, RemovalPhys};
use vdev::{Relocated, Relocation, TopRange};

use super::super::create::class_of;
use super::super::{LivePool, SyncContext};
use super::table::{self, NewEntry};
use crate::metaslabs;
use crate::mos::DIRECTORY;

/// Bytes that are copied in one group at most: zfs_remove_max_copy_bytes.
const COPY_BYTES_MAX: u64 = 64 << 20;
/// Milliseconds of a group after which a step ends that somebody waits for.
const STEP_MS_MIN: u64 = 500;

/// Ranges of a vdev that are copied together, as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::live) struct UsedSegment {
    /// What is in use, in order.
    used: Vec<Range<u64>>,
}

/// A segment that was copied.
struct CopiedSegment {
    segment: UsedSegment,
    to: Dva,
}

/// How a step ended.
#[derive(Default)]
struct StepOutcome {
    copied: Vec<CopiedSegment>,
    /// Bytes in use that are yet to be copied.
    left_bytes: u64,
    /// Why it cannot go on.
    failed: Option<Error>,
    /// Why the removal has to be given up.
    is_unsafe: Option<String>,
}

impl UsedSegment {
    fn range(&self) -> Range<u64> {
        self.used.first().map_or(0, |first| first.start)..self.used.last().map_or(0, |last| last.end)
    }

    fn len(&self) -> u64 {
        let range = self.range();
        range.end - range.start
    }

    fn used_bytes(&self) -> u64 {
        self.used.iter().map(|part| part.end - part.start).sum()
    }

    /// What is free in it.
    fn gaps(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.used.windows(2).map(|pair| pair[0].end..pair[1].start)
    }

    /// Cuts ranges that are in use into segments of `len_max` bytes at most, with free runs of `gap_max` at most.
    pub(in crate::live) fn of(ranges: &[Range<u64>], len_max: u64, gap_max: u64) -> VecDeque<UsedSegment> {
        let mut segments: VecDeque<UsedSegment> = VecDeque::new();
        for range in ranges {
            let mut start = range.start;
            while start < range.end {
                let joined = segments.back_mut().filter(|last| {
                    let before = last.range();
                    start - before.end <= gap_max && range.end - before.start <= len_max
                });
                let end = match joined {
                    Some(last) => {
                        last.used.push(start..range.end);
                        range.end
                    }
                    None => {
                        let end = range.end.min(start + len_max);
                        segments.push_back(UsedSegment { used: std::iter::once(start..end).collect() });
                        end
                    }
                };
                start = end;
            }
        }
        segments
    }

    /// The two parts of a segment for which there is no room as a whole; none if it is one sector.
    fn halves(&self, sector: u64) -> Option<VecDeque<UsedSegment>> {
        let half = (self.len() / 2).next_multiple_of(sector);
        (half < self.len()).then(|| UsedSegment::of(&self.used, half, half))
    }
}

impl LivePool {
    /// Whether a step of a removal would do something.
    pub(in crate::live) fn has_removal_work(&self) -> bool {
        !self.removal().lock().is_stalled
            && self.removal().running().is_some()
            && self.env().tunable(tunables::ZFS_REMOVAL_SUSPEND_PROGRESS) == 0
    }

    /// Leaves that did not take what the last step copied lack everything from now on.
    fn distrust_after_copy(&self) {
        let Some((txg, tops)) = self.removal().lock().last.clone() else { return };
        for top in tops {
            let Ok(top) = self.tree().top(top) else { continue };
            for leaf in self.tree().leaves_of(top.id()) {
                if leaf.state().dtl().contains(txg) {
                    leaf.state().dtl().insert(Txg::INITIAL..txg.next());
                }
            }
        }
    }
}

impl SyncContext<'_> {
    /// Copies some of what is on the vdev that is being removed.
    pub(in crate::live) fn step_removal(&self) -> Result<()> {
        let pool = self.pool;
        let Some(phys) = pool.removal().running() else { return Ok(()) };
        if pool.removal().lock().is_ending {
            // that waits for the next group, which comes at once as there is work
            return Ok(());
        }
        // the flush at the end of the last group may have failed on a leaf
        pool.distrust_after_copy();
        let mut outcome = StepOutcome::default();
        if let Err(error) = self.copy_some(&phys, &mut outcome) {
            outcome.failed = Some(error);
        }
        if !outcome.copied.is_empty() {
            self.keep_copied(phys, &outcome)?;
        } else if outcome.failed.is_none() && outcome.is_unsafe.is_none() {
            pool.end_removal_soon();
        }
        if let Some(why) = outcome.is_unsafe {
            tracing::error!(pool = pool.name(), "the removal of vdev {} is given up: {why}", phys.vdev);
            pool.cancel_removal_soon();
        }
        outcome.failed.map_or(Ok(()), Err)
    }

    /// Copies what is in use behind what was copied before, until it is enough for a group.
    fn copy_some(&self, phys: &RemovalPhys, outcome: &mut StepOutcome) -> Result<()> {
        let (pool, txg) = (self.pool, self.change.tx.txg());
        let (tree, allocator) = (pool.tree(), pool.cache().zio().allocator()?);
        let top = tree.top(phys.vdev)?;
        let (spec, class) = match top.top_spec() {
            Some(spec) if top.kind().is_concrete() => (spec, class_of(top)),
            _ => return Err(Error::corrupt(format!("vdev {} cannot be removed", phys.vdev))),
        };
        let sector = 1u64 << spec.ashift;
        let len_max = self.tunable_bytes(tunables::ZFS_REMOVE_MAX_SEGMENT, sector);
        let gap_max = self.change.env.tunable(tunables::VDEV_REMOVAL_MAX_SPAN);
        let start = tree.moved_end(phys.vdev).unwrap_or(0);
        let start_ns = self.change.env.ticks_ns();
        let mut budget = COPY_BYTES_MAX;
        for metaslab in start >> spec.metaslab_shift..metaslabs::count(top) {
            let behind = allocator.allocated_from(phys.vdev, metaslab as usize + 1);
            if allocator.allocated_from(phys.vdev, metaslab as usize) == behind {
                continue;
            }
            let used = allocator.condensed(phys.vdev, metaslab, txg)?;
            let range = metaslabs::range(top, metaslab);
            let used = used.within(range.start.max(start)..range.end);
            let mut segments = UsedSegment::of(&used, len_max, gap_max);
            while let Some(segment) = segments.pop_front() {
                outcome.left_bytes = segments.iter().map(UsedSegment::used_bytes).sum::<u64>() + behind;
                let ms = self.change.env.ticks_ns().saturating_sub(start_ns) / 1_000_000;
                if budget == 0 || ms >= STEP_MS_MIN && pool.txgs().is_wanted() {
                    outcome.left_bytes += segment.used_bytes();
                    return Ok(());
                }
                budget = budget.saturating_sub(segment.len());
                let to = match allocator.allocate(class, segment.len(), 1, txg) {
                    Ok(dvas) => dvas[0],
                    Err(error) if error.kind() == Kind::NoSpace => {
                        let halves = segment.halves(sector).ok_or(error)?;
                        halves.into_iter().rev().for_each(|half| segments.push_front(half));
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                match self.copy_segment(phys.vdev, &segment, &to) {
                    Ok(Relocated::Copied) => outcome.copied.push(CopiedSegment { segment, to }),
                    failed => {
                        outcome.left_bytes += segment.used_bytes();
                        allocator.unallocate(txg, &to)?;
                        if let Relocated::Unsafe(why) = failed? {
                            outcome.is_unsafe = Some(why);
                        }
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn tunable_bytes(&self, tunable: tunables::Tunable, sector: u64) -> u64 {
        (self.change.env.tunable(tunable) / sector * sector).clamp(sector, format::blkptr::BLOCK_SIZE_MAX)
    }

    fn copy_segment(&self, top: VdevNumber, segment: &UsedSegment, to: &Dva) -> Result<Relocated> {
        if to.asize() != segment.len() {
            return Err(Error::new(Kind::Unsupported, "the sectors of the vdevs are not of one size"));
        }
        let range = segment.range();
        let used: Vec<Range<u64>> =
            segment.used.iter().map(|part| part.start - range.start..part.end - range.start).collect();
        let to = TopRange { top: to.vdev(), range: to.offset()..to.offset() + to.asize() };
        self.pool.tree().relocate(&Relocation {
            from: &TopRange { top, range },
            used: &used,
            to: &to,
            txg: self.change.tx.txg(),
            is_lossy: self.change.env.tunable(tunables::ZFS_REMOVAL_IGNORE_ERRORS) != 0,
        })
    }

    /// Lets what was copied last, and notes where it is.
    fn keep_copied(&self, phys: RemovalPhys, outcome: &StepOutcome) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        let allocator = pool.cache().zio().allocator()?;
        let kept = pool.tree().flush().and_then(|()| self.note_copied(phys, outcome));
        if let Err(error) = kept {
            for CopiedSegment { to, .. } in &outcome.copied {
                allocator.unallocate(change.tx.txg(), to)?;
            }
            return Err(error);
        }
        for CopiedSegment { segment, to } in &outcome.copied {
            let start = segment.range().start;
            for gap in segment.gaps() {
                let free = Dva::new(to.vdev(), to.offset() + (gap.start - start), gap.end - gap.start, false);
                allocator.unallocate(change.tx.txg(), &free)?;
            }
        }
        let tops: BTreeSet<VdevNumber> = outcome.copied.iter().map(|copied| copied.to.vdev()).collect();
        pool.removal().lock().last = Some((change.tx.txg(), tops));
        pool.distrust_after_copy();
        Ok(())
    }

    /// Adds what was copied to the table. The step that makes it so comes last.
    fn note_copied(&self, mut phys: RemovalPhys, outcome: &StepOutcome) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        let objects = pool.tree().top(phys.vdev)?.top_spec().and_then(|spec| spec.indirect);
        let objects = objects.ok_or_else(|| Error::corrupt("a vdev that is being removed has no table"))?;
        let entry = |copied: &CopiedSegment| NewEntry {
            offset: copied.segment.range().start,
            to: copied.to,
            obsolete: (copied.segment.len() - copied.segment.used_bytes()) as u32,
        };
        let entries: Vec<NewEntry> = outcome.copied.iter().map(entry).collect();
        let end = outcome.copied.last().map_or(0, |last| last.segment.range().end);
        phys.copied_bytes = phys.to_copy_bytes.saturating_sub(outcome.left_bytes);
        table::add_birth(change, objects.births_object, end)?;
        self.set_removal(phys)?;
        table::append(change, objects.mapping_object, &entries)?;
        let in_memory: Vec<vdev::MapEntry> = entries.iter().map(NewEntry::in_memory).collect();
        pool.tree().note_moved(phys.vdev, &in_memory)
    }

    /// Writes down how far the removal is.
    pub(in crate::live) fn set_removal(&self, phys: RemovalPhys) -> Result<()> {
        self.change.set(DIRECTORY, REMOVING, &ZapValue::new(8, &phys.words()))?;
        self.pool.removal().lock().phys = Some(phys);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(pairs: &[(u64, u64)]) -> Vec<Range<u64>> {
        pairs.iter().map(|&(start, end)| start..end).collect()
    }

    fn pairs(segments: VecDeque<UsedSegment>) -> Vec<Vec<(u64, u64)>> {
        segments.iter().map(|segment| segment.used.iter().map(|part| (part.start, part.end)).collect()).collect()
    }

    #[test]
    fn short_free_runs_are_part_of_a_segment() {
        let of = |used: &[(u64, u64)]| pairs(UsedSegment::of(&ranges(used), 100, 10));
        assert_eq!(of(&[(0, 10), (20, 30), (41, 50)]), [vec![(0, 10), (20, 30)], vec![(41, 50)]]);
        // one that is too long is cut, and what would make one too long begins the next
        let cut = [vec![(0, 100)], vec![(100, 200)], vec![(200, 250), (255, 300)]];
        assert_eq!(of(&[(0, 250), (255, 300)]), cut);
        assert_eq!(of(&[(0, 60), (65, 120)]), [vec![(0, 60)], vec![(65, 120)]]);
        let segment = UsedSegment { used: ranges(&[(0, 10), (20, 30), (40, 50)]) };
        assert_eq!(segment.gaps().collect::<Vec<_>>(), ranges(&[(10, 20), (30, 40)]));
        assert_eq!(pairs(segment.halves(10).unwrap()), [vec![(0, 10), (20, 30)], vec![(40, 50)]]);
        assert_eq!(UsedSegment { used: ranges(&[(0, 10)]) }.halves(10), None);
    }
}
