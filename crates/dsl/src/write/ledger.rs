//! What a head wrote and killed in one group.
//!
//! ```text
//!   born    ─▶ referenced + , unique +, directory's head +
//!   killed  ─┬ born after the previous snapshot: freed; referenced -, unique -, directory's head -
//!            └ else a snapshot has it: dead list; referenced -; directory: head ─▶ snapshots
//!                                      if only the previous snapshot has it now: that one's unique +
//!   both of a clone    ─▶ what it wrote and freed: [`super::livelist`]
//! ```
//!
//! Sums are collected while the head is written, and brought to the records at the end, since only where they
//! end counts for reservations, not the way there. What is to be freed can be taken out before.

use std::sync::Arc;

use base::{Result, ResultExt};
use dmu::bpobj::{SizeOf, Totals};
use dmu::{Ledger, Objset};
use format::blkptr::BlkPtr;
use format::dsl::{DatasetPhys, DirPhys};
use format::ids::{DatasetId, DirId, ObjectId, Txg};

use super::bookmark::Bookmarks;
use super::deadlist::Deadlist;
use super::livelist::{self, LiveChanges};
use super::space::{Delta, UsedColumn, charged};
use super::{Change, room, space};

/// Collects what one head writes and kills in one group.
pub struct DatasetLedger<'a> {
    dataset: DatasetId,
    prev_snap_txg: Txg,
    size_of: SizeOf<'a>,
    born: Totals,
    freed: Totals,
    dead: Totals,
    to_free: Vec<BlkPtr>,
    to_deadlist: Vec<BlkPtr>,
    /// Of a clone that has a list of what it wrote: that, and what is to go there.
    live: Option<LiveLedger>,
}

struct LiveLedger {
    list: ObjectId,
    /// The group of the origin: only what was born later is the clone's.
    since_txg: Txg,
    changes: LiveChanges,
}

impl LiveLedger {
    fn of(mos: &Arc<Objset>, dir: DirId) -> Result<Option<LiveLedger>> {
        let Some(list) = livelist::find(mos, dir)? else { return Ok(None) };
        let origin = DirPhys::parse(mos.object(dir.object())?.bonus())?.origin;
        let since_txg = DatasetPhys::parse(mos.object(origin.object())?.bonus())?.creation_txg;
        Ok(Some(LiveLedger { list, since_txg, changes: LiveChanges::default() }))
    }

    fn has(&self, bp: &BlkPtr) -> bool {
        !bp.is_embedded() && bp.reference_birth() > self.since_txg
    }
}

impl<'a> DatasetLedger<'a> {
    /// For head `dataset` of a MOS. `size_of` is as in [`Change`].
    pub fn open(mos: &Arc<Objset>, dataset: DatasetId, size_of: SizeOf<'a>) -> Result<DatasetLedger<'a>> {
        let phys = DatasetPhys::parse(mos.object(dataset.object())?.bonus())?;
        Ok(DatasetLedger {
            dataset,
            prev_snap_txg: phys.prev_snap_txg,
            size_of,
            born: Totals::default(),
            freed: Totals::default(),
            dead: Totals::default(),
            to_free: Vec::new(),
            to_deadlist: Vec::new(),
            live: LiveLedger::of(mos, phys.dir)?,
        })
    }

    /// The blocks to be freed, that were not taken before.
    pub fn take_freed(&mut self) -> Vec<BlkPtr> {
        std::mem::take(&mut self.to_free)
    }

    /// Writes the new root pointer and all numbers. Returns the blocks to be freed.
    pub fn finish(mut self, change: &Change<'_>, rootbp: BlkPtr) -> Result<Vec<BlkPtr>> {
        self.finish_records(change, rootbp).in_dataset("a head")?;
        Ok(self.take_freed())
    }

    fn finish_records(&self, change: &Change<'_>, rootbp: BlkPtr) -> Result<()> {
        let id = self.dataset;
        let before = change.dataset(id)?;
        let reserved = room::refreservation_of(change, before.dir)?;
        let unique = Delta::between(self.freed, self.born);
        let delta = Delta { used: charged(before.unique_bytes, reserved, unique.used), ..unique };
        let referenced = Delta::between(self.freed.plus(self.dead), self.born);
        change.update_dataset(id, |phys| {
            phys.bp = rootbp;
            phys.referenced_bytes = phys.referenced_bytes.wrapping_add_signed(referenced.used);
            phys.compressed_bytes = phys.compressed_bytes.wrapping_add_signed(referenced.compressed);
            phys.uncompressed_bytes = phys.uncompressed_bytes.wrapping_add_signed(referenced.uncompressed);
            phys.unique_bytes = phys.unique_bytes.wrapping_add_signed(unique.used);
        })?;
        space::charge_and_move(change, before.dir, delta, unique.used, UsedColumn::Refreservation, UsedColumn::Head)?;
        if let Some(LiveLedger { list, changes, .. }) = &self.live {
            livelist::add(change, *list, &change.dataset(id)?, changes)?;
        }
        self.finish_dead(change, &before)
    }

    /// The blocks that a snapshot has still.
    fn finish_dead(&self, change: &Change<'_>, head: &DatasetPhys) -> Result<()> {
        if self.to_deadlist.is_empty() {
            return Ok(());
        }
        Deadlist::open(change, head.deadlist)?.insert(&self.to_deadlist)?;
        let used_after = |txg: Txg| -> u64 {
            let young = self.to_deadlist.iter().filter(|bp| bp.reference_birth() > txg);
            young.map(|bp| (self.size_of)(bp)).sum()
        };
        let previous = change.dataset(head.prev_snap)?;
        if previous.next_snap == self.dataset {
            let used = used_after(previous.prev_snap_txg);
            change.update_dataset(head.prev_snap, |phys| phys.unique_bytes = phys.unique_bytes.wrapping_add(used))?;
        }
        let origin_txg = match change.dir(head.dir)?.origin {
            DatasetId::NONE => Txg::ZERO,
            origin => change.dataset(origin)?.creation_txg,
        };
        space::move_space(change, head.dir, used_after(origin_txg) as i64, UsedColumn::Head, UsedColumn::Snapshots)?;
        Bookmarks::open(change, self.dataset)?.tell_dead(self.prev_snap_txg, &self.to_deadlist)
    }
}

impl Ledger for DatasetLedger<'_> {
    fn born(&mut self, bp: &BlkPtr) {
        if bp.is_hole() {
            return;
        }
        self.born = self.born.plus(Totals::of(bp, (self.size_of)(bp)));
        if let Some(live) = self.live.as_mut().filter(|live| live.has(bp)) {
            live.changes.born.push(*bp);
        }
    }

    fn killed(&mut self, bp: &BlkPtr) -> Result<()> {
        if bp.is_hole() {
            return Ok(());
        }
        let totals = Totals::of(bp, (self.size_of)(bp));
        if let Some(live) = self.live.as_mut().filter(|live| live.has(bp)) {
            live.changes.freed.push(*bp);
        }
        if bp.reference_birth() > self.prev_snap_txg {
            self.freed = self.freed.plus(totals);
            if !bp.is_embedded() {
                self.to_free.push(*bp);
            }
        } else {
            self.dead = self.dead.plus(totals);
            self.to_deadlist.push(*bp);
        }
        Ok(())
    }
}
