//! A walk over pointers that is done when enough of them have been read.
//!
//! ```text
//!   dnodes ─▶ pointers of files of one block                       all are counted
//!          └▶ pointers to blocks that lead to data ─▶ leaves: a list, in the order of a hash
//!                                                        │ read from its beginning
//!                   interval narrow enough? ◀─ estimate ─┤ at a 128th of them, at a fifth more, and so on
//!                                                        └▶ more than [`PART_MAX`]: everything is read
//! ```
//!
//! Where pointers share places already, or something cannot be read, everything is read, too.

use std::ops::ControlFlow;

use base::{Bookmark, Error, MIX_STRIDE, Result, mixed};
use dmu::traverse::{Descend, Visit, Visitor};
use dmu::{Keep, Mode, ReadRequest};
use dsl::traverse::LOG_LEVEL;
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::ids::{DatasetId, ObjectId, Txg};
use pool::check::BlockKind;

use super::groups::{GroupEstimate, GroupSurvey};
use super::leaves::{LEAVES_MAX, LeafList};
use crate::advise::ratio::Interval;
use crate::advise::subject::PoolSubject;
use crate::dedup_survey::{DedupSurvey, TellingSum};
use crate::distinct::chance_of;
use crate::progress::ProgressDisplay;

/// Different blocks, and places, that are in memory at a time where all is read: of both 32 MiB at most, as tables grow.
pub(super) const SAMPLE_MAX: usize = 110_000;
/// The part of the blocks that lead to data after which it is asked for the first time whether enough were read, and by how
/// much it grows until it is asked again. There are few questions, as one that is answered by luck ends the walk.
const PART_FIRST: f64 = 1.0 / 128.0;
const PART_STEP: f64 = 1.189_207;
/// The part beyond which everything is read: that takes not much longer then.
const PART_MAX: f64 = 0.45;
/// Different blocks that are in memory for what the groups tell.
pub(super) const CLASSES_MAX: usize = 50_000;
/// Half of an interval, as a part of the ratio, that is narrow enough.
pub(super) const HALF_WIDTH: f64 = 0.05;
/// Where attributes of a file have its size, as most do. That is only used to have copies of a file in one group.
const SIZE_AT: std::ops::Range<usize> = 16..24;
/// Bytes of blocks that are read at once.
const BATCH_BYTES: u64 = 4 << 20;

/// What a walk came to.
pub(super) enum Walked {
    /// All pointers were read.
    All(DedupSurvey),
    /// Below a part of the blocks that lead to data.
    Part { estimate: GroupEstimate, part: f64, is_weak: bool },
}

/// See the top of the file. `L`: what is known of a block that leads to data before it is read.
pub(super) struct SampledWalk<L> {
    pub(super) groups: GroupSurvey,
    leaves: LeafList<L>,
}

/// Counts the blocks below some leaves, each with its group; `None`: it cannot.
type ReadLeaves<'a, L> = dyn FnMut(&mut GroupSurvey, &mut [(u64, L)]) -> Option<()> + 'a;

/// A block that leads to data.
#[derive(Clone, Copy)]
pub(super) struct LeafPointer {
    bp: BlkPtr,
    bookmark: Bookmark,
    /// What is not younger belongs to a snapshot.
    since_txg: Txg,
}

/// Lists the blocks of a pool that lead to data, and counts pointers in dnodes.
struct LeafWalk {
    walk: SampledWalk<LeafPointer>,
    sums: SumsSeen,
}

/// Whether checksums tell blocks apart.
#[derive(Clone, Copy, Debug, Default)]
struct SumsSeen {
    is_weak: bool,
    /// Something could not be read, or nothing tells a block from others.
    is_damaged: bool,
}

impl<L> SampledWalk<L> {
    pub(super) fn new() -> SampledWalk<L> {
        SampledWalk { groups: GroupSurvey::new(CLASSES_MAX), leaves: LeafList::new(LEAVES_MAX) }
    }

    /// Lists a block that leads to so many bytes of data, as its pointer tells it.
    pub(super) fn add_leaf(&mut self, group: u64, told_bytes: u64, leaf: L) {
        self.groups.add_group(group, told_bytes);
        self.leaves.add(group, told_bytes, leaf);
    }

    /// Bytes of memory that it takes.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        self.groups.memory_bytes() + self.leaves.memory_bytes()
    }

    /// Reads leaves until enough is known; also which part was read. `None` if everything has to be read.
    pub(super) fn rounds(&mut self, read: &mut ReadLeaves<'_, L>) -> Option<(GroupEstimate, f64)> {
        let mut part = PART_FIRST;
        while part <= PART_MAX.min(self.leaves.part()) {
            let drawn = self.leaves.take_below(part).into_iter().map(|(group, told_bytes, leaf)| {
                self.groups.draw_group(group, told_bytes);
                (group, leaf)
            });
            let mut drawn: Vec<(u64, L)> = drawn.collect();
            read(&mut self.groups, &mut drawn)?;
            if let Some(estimate) = self.groups.estimate(part).filter(is_narrow) {
                return Some((estimate, part));
            }
            part *= PART_STEP;
        }
        None
    }
}

impl SampledWalk<LeafPointer> {
    /// Reads of a pool what is needed; `is_exact`: everything. Errors: it cannot be read.
    pub(super) fn of(subject: &PoolSubject, is_exact: bool) -> Result<Walked> {
        if is_exact || subject.shares_places()? {
            return everything(subject);
        }
        let mut leaves = LeafWalk { walk: SampledWalk::new(), sums: SumsSeen::default() };
        subject.visit(&mut leaves);
        let LeafWalk { mut walk, mut sums } = leaves;
        if sums.is_damaged {
            return everything(subject);
        }
        let mut progress = ProgressDisplay::new(None);
        let mut read = |groups: &mut GroupSurvey, drawn: &mut [(u64, LeafPointer)]| {
            drawn.sort_unstable_by_key(|(_, leaf)| leaf.bp.dvas()[0].words());
            read_leaves(subject, drawn, &mut |group, bp| count(groups, &mut sums, Some(group), bp), &mut progress)?;
            (!sums.is_damaged).then_some(())
        };
        match walk.rounds(&mut read) {
            Some((estimate, part)) => Ok(Walked::Part { estimate, part, is_weak: sums.is_weak }),
            None => everything(subject),
        }
    }
}

fn everything(subject: &PoolSubject) -> Result<Walked> {
    let mut survey = DedupSurvey::new(SAMPLE_MAX, Some(ProgressDisplay::new(subject.bytes())));
    subject.walk(&mut survey)?;
    Ok(Walked::All(survey))
}

/// Shows the pointers in these blocks, each with its group. `None` if one of the blocks cannot be read.
fn read_leaves(
    subject: &PoolSubject,
    leaves: &[(u64, LeafPointer)],
    show: &mut dyn FnMut(u64, &BlkPtr),
    progress: &mut ProgressDisplay,
) -> Option<()> {
    let largest = leaves.iter().map(|(_, leaf)| leaf.bp.lsize()).max().unwrap_or(0).max(1);
    for batch in leaves.chunks((BATCH_BYTES / largest).max(1) as usize) {
        let request =
            |(_, leaf): &(u64, LeafPointer)| ReadRequest { bp: leaf.bp, bookmark: leaf.bookmark, mode: Mode::Raw };
        let requests: Vec<ReadRequest> = batch.iter().map(request).collect();
        for ((group, leaf), block) in batch.iter().zip(subject.pool.cache().get_batch(&requests, Keep::NOTHING)) {
            let block = block.ok()?;
            let is_of_it = |bp: &&BlkPtr| !bp.is_hole() && bp.reference_birth() > leaf.since_txg;
            BlkPtr::slice(&block).iter().filter(is_of_it).for_each(|bp| show(*group, bp));
            progress.add(leaf.bp.lsize());
        }
    }
    Some(())
}

/// Counts a pointer to a block of data; none of anything else.
fn count(groups: &mut GroupSurvey, sums: &mut SumsSeen, group: Option<u64>, bp: &BlkPtr) {
    if !BlockKind::of(bp).is_placed_data(bp) {
        return;
    }
    match TellingSum::of(bp) {
        Some(TellingSum { words, bytes, is_weak }) => {
            sums.is_weak |= is_weak;
            groups.add_block(group, words, bytes);
        }
        None => sums.is_damaged = true,
    }
}

/// Whether an interval is so narrow that nothing more has to be read.
pub(super) fn is_narrow(estimate: &GroupEstimate) -> bool {
    let Interval { value, low, high } = estimate.ratio;
    (high - low) / 2.0 <= HALF_WIDTH * value
}

/// Whether an object has data of users. Objects of the pool itself have none, and so have directories.
fn has_data(visit: &Visit<'_>) -> bool {
    let is_users = visit.bookmark.objset != DatasetId::MOS.get() && visit.object() != ObjectId::META_DNODE;
    is_users && visit.dnode.is_some_and(|dnode| !dnode.object_type.is_metadata())
}

/// The group of a block of pointers to data: the same for copies of a file.
fn group_of(dnode: &Dnode, blkid: u64) -> u64 {
    let size = dnode.bonus.get(SIZE_AT).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    mixed(chance_of(&[dnode.block_max, dnode.block_size, size, blkid]).wrapping_add(MIX_STRIDE))
}

/// The dnode of a block of pointers to data.
fn leaf_of<'a>(visit: &Visit<'a>) -> Option<&'a Dnode> {
    visit.dnode.filter(|_| visit.bookmark.level == 1 && has_data(visit))
}

impl Visitor for LeafWalk {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        let bp = visit.bp;
        match leaf_of(visit) {
            Some(_) if bp.level() != 1 || bp.is_embedded() => self.sums.is_damaged = true,
            Some(dnode) => {
                let leaf = LeafPointer { bp: *bp, bookmark: visit.bookmark, since_txg: visit.since_txg };
                let told_bytes = bp.fill().saturating_mul(dnode.block_size);
                self.walk.add_leaf(group_of(dnode, visit.bookmark.blkid), told_bytes, leaf);
            }
            // in dnodes, and in logs
            None => count(&mut self.walk.groups, &mut self.sums, None, bp),
        }
        ControlFlow::Continue(if self.sums.is_damaged { Descend::Past } else { Descend::Below })
    }

    fn enters(&self, visit: &Visit<'_>) -> bool {
        match (visit.bookmark.level, visit.dnode) {
            _ if leaf_of(visit).is_some() => false,
            (LOG_LEVEL, _) | (_, None) => true,
            // of metadata, only what leads to dnodes leads to data
            (level, _) => level == 0 || has_data(visit) || visit.object() == ObjectId::META_DNODE,
        }
    }

    fn lost(&mut self, _error: Error) {
        self.sums.is_damaged = true;
    }
}

#[cfg(test)]
mod tests;
