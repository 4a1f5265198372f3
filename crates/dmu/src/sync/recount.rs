//! Accounts of a set that is older than they are: made anew, a portion of the objects in each group.
//!
//! ```text
//!   begin_recount ─▶ table of projects goes ─▶ blocks of dnodes, from the first on, some in each group ─▶ flags of the head
//! ```
//!
//! Flags of a dnode say whether its bytes and its object are counted, so these need not be counted twice when the walk
//! is interrupted. No flag says so of its project: the place of the walk does, which is in memory. So each walk begins
//! with an empty table of projects, and the head has the flags that tell users of the accounts only when a walk is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Block, Error, Result};
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::{ObjectId, Txg};

use super::accounting::{AccountingSums, table_id};
use crate::owners::{AccountKinds, OwnersOf, PROJECTS_COUNTED};
use crate::recount::{GroupCounts, Recount, RecountPlace};
use crate::{Objset, OnFailure, Tx};

/// Blocks of dnodes that are walked in one group.
const BLOCKS_IN_GROUP: usize = if cfg!(test) { 1 } else { 256 };
/// The number of the table of projects.
const TABLE_OF_PROJECTS: usize = 2;

/// What the walk does in a group.
pub(super) struct RecountStep {
    before: Recount,
    after: Recount,
    blocks: Vec<(u64, Block)>,
}

/// What a set that was written has to note in memory.
#[derive(Clone, Default)]
pub(super) struct Recounted {
    /// The state of the walk before and after.
    state: Option<(Recount, Recount)>,
    /// Dnodes with new flags.
    flagged: Vec<(ObjectId, u8)>,
}

impl Objset {
    /// Counts all objects anew, in the groups to come, if the set does not count all of that. What counts already is not
    /// begun anew, and goes on if it could not read something. Whether there is something to do. Errors: `ReadOnly`.
    pub fn begin_recount(&self, counts: AccountKinds) -> Result<bool> {
        let live = self.live()?;
        if counts.flags() & !self.phys().flags == 0 || live.owners_of().is_none() {
            return Ok(false);
        }
        live.change_recount(|recount| match recount {
            Some(recount) if recount.counts == counts => recount.is_stalled = false,
            _ => *recount = Some(Recount { counts, place: RecountPlace::Begin, txg: Txg::ZERO, is_stalled: false }),
        });
        Ok(true)
    }

    /// Whether objects are being counted anew, in all groups to come or, if one is named, in that one.
    pub fn is_recounting(&self, txg: Option<Txg>) -> bool {
        let is_due = |recount: Recount| !recount.is_stalled && txg.is_none_or(|txg| recount.txg < txg);
        self.live().ok().and_then(|live| live.recount()).is_some_and(is_due)
    }

    /// How much of the objects has been counted anew, in percent; `None` if that is not being done.
    pub fn recounted_percent(&self) -> Option<u64> {
        match self.live().ok()?.recount()?.place {
            RecountPlace::Begin => Some(0),
            RecountPlace::Block(next) => {
                Some(next.saturating_mul(100) / self.phys().meta_dnode.block_max.saturating_add(1))
            }
            RecountPlace::End => None,
        }
    }

    /// Lets the walk make no more steps, or go on.
    pub fn stall_recount(&self, is_stalled: bool) {
        let Ok(live) = self.live() else { return };
        live.change_recount(|recount| recount.iter_mut().for_each(|recount| recount.is_stalled = is_stalled));
    }

    /// Why the walk stands still, if it could not read something; once.
    pub fn take_recount_failure(&self) -> Option<Error> {
        self.live().ok()?.take_recount_failure()
    }

    /// Reads what the walk counts in a group, if it is to make a step.
    pub(super) fn recount_step(self: &Arc<Self>, tx: &Tx<'_>) -> Option<RecountStep> {
        let live = self.live().ok()?;
        let before = live.recount().filter(|_| live.owners_of().is_some() && self.is_recounting(Some(tx.txg())))?;
        let step = match before.place {
            RecountPlace::Begin => self.empty_projects(tx).map(|()| (RecountPlace::Block(0), Vec::new())),
            RecountPlace::Block(next) => self.read_dnodes(next),
            RecountPlace::End => return None,
        };
        match step {
            Ok((place, blocks)) => {
                let after = Recount { place, txg: tx.txg(), ..before };
                Some(RecountStep { before, after, blocks })
            }
            Err(error) => {
                live.fail_recount(error);
                self.stall_recount(true);
                None
            }
        }
    }

    /// Frees the table of projects, which a walk that did not come to its end may have left.
    fn empty_projects(self: &Arc<Self>, tx: &Tx<'_>) -> Result<()> {
        let phys = self.phys();
        if phys.flags & PROJECTS_COUNTED != 0 || phys.accounting[TABLE_OF_PROJECTS].is_none() {
            return Ok(());
        }
        self.reading(OnFailure::Fail).free_table(tx, TABLE_OF_PROJECTS)
    }

    /// The blocks of dnodes from one on that are walked in one group, and where the next step begins.
    fn read_dnodes(self: &Arc<Self>, mut next: u64) -> Result<(RecountPlace, Vec<(u64, Block)>)> {
        let meta = self.reading(OnFailure::Fail).meta();
        meta.prefetch((next..).take(BLOCKS_IN_GROUP).take_while(|blkid| *blkid <= meta.dnode().block_max).collect());
        let mut blocks = Vec::new();
        while blocks.len() < BLOCKS_IN_GROUP {
            let Some(blkid) = meta.seek_block(next..u64::MAX, true)? else { return Ok((RecountPlace::End, blocks)) };
            let block = meta.block(blkid)?;
            // damage is found before the group relies on it
            self.dnodes_in_block(blkid, &block).into_iter().try_for_each(|dnode| dnode.map(drop))?;
            blocks.push((blkid, block));
            next = blkid + 1;
        }
        Ok((RecountPlace::Block(next), blocks))
    }

    /// What is counted in a group in which the walk makes that step.
    pub(super) fn counting(&self, step: Option<&RecountStep>) -> GroupCounts {
        let phys = self.phys();
        let now = self.live().ok().and_then(|live| live.recount());
        let Some((before, after)) = step.map(|step| (step.before, step.after)).or(now.zip(now)) else {
            let all = if phys.flags & PROJECTS_COUNTED == 0 { 0 } else { u64::MAX };
            return GroupCounts { flags: phys.flags, projects: all..all };
        };
        let flags = phys.flags | before.counts.flags();
        let per_block = phys.meta_dnode.block_size / SLOT_SIZE as u64;
        let end_of = |place| match place {
            _ if phys.flags & PROJECTS_COUNTED != 0 => u64::MAX,
            // a head of an old pool has no room for the table of projects
            _ if !before.counts.projects => 0,
            RecountPlace::Begin => 0,
            RecountPlace::Block(next) => next.saturating_mul(per_block),
            RecountPlace::End => u64::MAX,
        };
        GroupCounts { flags, projects: end_of(before.place)..end_of(after.place) }
    }
}

impl RecountStep {
    /// The flags that the head gets by it.
    pub(super) fn new_flags(&self) -> u64 {
        if self.after.place == RecountPlace::End { self.after.counts.flags() } else { 0 }
    }

    /// Counts the objects that the group does not change, and writes those that get flags.
    pub(super) fn count(
        self,
        objset: &Arc<Objset>,
        (owners_of, counting): (&OwnersOf, &GroupCounts),
        sums: &mut AccountingSums,
        written: &mut BTreeMap<ObjectId, (usize, Option<Arc<Dnode>>)>,
    ) -> Result<Recounted> {
        let mut flagged = Vec::new();
        for (blkid, block) in &self.blocks {
            for dnode in objset.dnodes_in_block(*blkid, block) {
                let (id, before): (ObjectId, Dnode) = dnode?;
                if written.contains_key(&id) {
                    continue;
                }
                let mut after = before.clone();
                sums.count(owners_of, counting, id, &before, Some(&mut after));
                if after.flags != before.flags {
                    flagged.push((id, after.flags));
                    written.insert(id, (after.slots, Some(Arc::new(after))));
                }
            }
        }
        Ok(Recounted { state: Some((self.before, self.after)), flagged })
    }
}

impl Recounted {
    /// What is counted anew.
    pub(super) fn counts(&self) -> Option<AccountKinds> {
        self.state.map(|(before, _)| before.counts)
    }

    /// Whether the walk has come to its end.
    pub(super) fn is_done(&self) -> bool {
        self.state.is_some_and(|(_, after)| after.place == RecountPlace::End)
    }

    /// Notes it, when it is on disk.
    pub(super) fn commit(self, objset: &Objset) {
        let (Ok(live), Some((before, after))) = (objset.live(), self.state) else { return };
        self.flagged.into_iter().for_each(|(id, flags)| live.set_flags(id, flags));
        live.change_recount(|recount| {
            // another walk may have been asked for meanwhile
            if recount.is_some_and(|now| now == before) {
                *recount = Some(after).filter(|after| after.place != RecountPlace::End);
            }
        });
    }
}

/// Whether an object is one of the tables of accounts, which count for nobody.
pub(super) fn is_table(id: ObjectId) -> bool {
    (0..=TABLE_OF_PROJECTS).any(|table| id == table_id(table))
}
