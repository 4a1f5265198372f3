//! A walk over pointers that is done when enough of them have been read: first below one in twenty of the blocks that lead
//! to data, then below one in five, then below all.
//!
//! ```text
//!   dnodes ─▶ pointers of files of one block                                     all, in the first round
//!          └▶ pointers to blocks that lead to data ─▶ hash ─▶ below the odds of this round, not of one before?  ─▶ read
//! ```
//!
//! What an earlier round has read is not read again, but for what leads there. Where pointers share places already, or
//! something cannot be read, all is read at once, in one round.

use std::ops::ControlFlow;

use base::{Error, MIX_STRIDE, Result, mixed};
use dmu::traverse::{Descend, Visit, Visitor};
use dsl::traverse::LOG_LEVEL;
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::ids::{DatasetId, ObjectId};
use pool::check::BlockKind;

use super::groups::{GroupEstimate, GroupSurvey};
use crate::advise::ratio::Interval;
use crate::advise::subject::PoolSubject;
use crate::dedup_survey::DedupSurvey;
use crate::distinct::chance_of;
use crate::progress::ProgressDisplay;

/// Different blocks, and places, that are in memory at a time where all is read: of both 32 MiB at most, as tables grow.
pub(super) const SAMPLE_MAX: usize = 110_000;
/// Parts of the blocks that lead to data: what is read by the end of each round.
const ROUNDS: [f64; 3] = [0.05, 0.2, 1.0];
/// Different blocks that are in memory for what the groups tell.
pub(super) const CLASSES_MAX: usize = 50_000;
/// Half of an interval, as a part of the ratio, that is narrow enough.
pub(super) const HALF_WIDTH: f64 = 0.05;
/// Where attributes of a file have its size, as most do. That is only used to have copies of a file in one group.
const SIZE_AT: std::ops::Range<usize> = 16..24;

/// What a walk came to.
pub(super) enum Walked {
    /// All pointers were read.
    All(DedupSurvey),
    /// Below a part of the blocks that lead to data.
    Part { estimate: GroupEstimate, part: f64, is_weak: bool },
}

/// See the top of the file.
pub(super) struct SampledWalk {
    survey: DedupSurvey,
    groups: GroupSurvey,
    /// Odds that were read before, and those of this round.
    before: f64,
    until: f64,
    is_damaged: bool,
    progress: ProgressDisplay,
}

impl SampledWalk {
    /// Reads of a pool what is needed; `is_exact`: everything. Errors: it cannot be read.
    pub(super) fn of(subject: &PoolSubject, is_exact: bool) -> Result<Walked> {
        if is_exact || subject.shares_places()? {
            return SampledWalk::everything(subject);
        }
        match SampledWalk::new().rounds(&mut |walk| subject.visit(walk)) {
            Some(walked) => Ok(walked),
            None => SampledWalk::everything(subject),
        }
    }

    /// Goes round until enough is known; `round` shows it all pointers, but for those that it does not enter. `None`: something
    /// could not be read.
    fn rounds(mut self, round: &mut dyn FnMut(&mut SampledWalk)) -> Option<Walked> {
        for part in ROUNDS {
            self.until = part;
            round(&mut self);
            if self.is_damaged || self.survey.left_out > 0 {
                return None;
            }
            let estimate = if part < 1.0 { self.groups.estimate(part).filter(is_narrow) } else { None };
            if let Some(estimate) = estimate {
                return Some(Walked::Part { estimate, part, is_weak: self.survey.is_weak });
            }
            self.before = part;
        }
        Some(Walked::All(self.survey))
    }

    fn new() -> SampledWalk {
        SampledWalk {
            survey: DedupSurvey::new(SAMPLE_MAX, None),
            groups: GroupSurvey::new(CLASSES_MAX),
            before: 0.0,
            until: 0.0,
            is_damaged: false,
            progress: ProgressDisplay::new(None),
        }
    }

    fn everything(subject: &PoolSubject) -> Result<Walked> {
        let mut survey = DedupSurvey::new(SAMPLE_MAX, Some(ProgressDisplay::new(subject.bytes())));
        subject.walk(&mut survey)?;
        Ok(Walked::All(survey))
    }

    fn is_first(&self) -> bool {
        self.before == 0.0
    }

    /// Counts a block that leads to so many blocks of data of so many bytes.
    fn add_group(&mut self, group: u64, (blocks, bytes): (u64, u64)) {
        let is_drawn = self.draws(group);
        if is_drawn {
            self.progress.add(blocks.saturating_mul(bytes));
        }
        self.groups.add_group(group, (blocks, bytes), self.is_first(), is_drawn);
    }

    /// Whether this round reads below a block of that group.
    fn draws(&self, group: u64) -> bool {
        // the high bits: 2^53 numbers, as a float has them all
        let place = (group >> 11) as f64 / (1u64 << 53) as f64;
        (self.before..self.until).contains(&place)
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

/// That of a block of data; `None` if its pointer is in the dnode, or in a log.
fn group_above(visit: &Visit<'_>) -> Option<u64> {
    let dnode = visit.dnode.filter(|dnode| dnode.levels > 1 && visit.bookmark.level == 0)?;
    Some(group_of(dnode, visit.bookmark.blkid >> dnode.pointers_shift()))
}

impl Visitor for SampledWalk {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        let bp: &BlkPtr = visit.bp;
        match visit.dnode {
            Some(dnode) if visit.bookmark.level == 1 && has_data(visit) => {
                self.add_group(group_of(dnode, visit.bookmark.blkid), (bp.fill(), dnode.block_size));
            }
            _ if BlockKind::of(bp).is_placed_data(bp) => {
                let group = group_above(visit);
                // pointers in dnodes, and those of logs, are counted once
                let is_new = group.is_some() || self.is_first();
                let taken = if is_new { self.survey.add(bp) } else { None };
                taken.into_iter().for_each(|(words, bytes)| self.groups.add_block(group, words, bytes));
            }
            _ => {}
        }
        ControlFlow::Continue(Descend::Below)
    }

    fn enters(&self, visit: &Visit<'_>) -> bool {
        match (visit.bookmark.level, visit.dnode) {
            (1, Some(dnode)) if has_data(visit) => self.draws(group_of(dnode, visit.bookmark.blkid)),
            (LOG_LEVEL, _) | (_, None) => true,
            // of metadata, only what leads to dnodes leads to data
            (level, _) => level == 0 || has_data(visit) || visit.object() == ObjectId::META_DNODE,
        }
    }

    fn lost(&mut self, _error: Error) {
        self.is_damaged = true;
    }
}

#[cfg(test)]
mod tests;
