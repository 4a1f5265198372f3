//! Destroying snapshots.
//!
//! ```text
//!   previous ◀── snapshot ◀── next          of the blocks on next's dead list, those born after `previous` were the
//!                                           snapshot's alone: they go to the list of what is to be freed
//!   previous ◀─────────────── next          the rest, and all of the snapshot's dead list, are next's dead list
//! ```
//!
//! Lists go as a whole, so this takes the same time however much the snapshot has; [`super::bptree`] frees the blocks
//! some in each group.

use base::{Error, Kind, Result, ResultExt};
use dmu::bpobj::{Bpobj, Totals};
use format::dsl::DatasetPhys;

use super::bookmark::Bookmarks;
use super::deadlist::Deadlist;
use super::snapshot::split_snapshot;
use super::space::{Delta, UsedColumn, charged};
use super::{Change, DIRECTORY, RefusedChanges};
use crate::Dsl;

const FREE_LIST: &str = "free_bpobj";
/// More clones of clones than are there.
const CLONES_MAX: usize = 1 << 20;

/// A snapshot, when it is asked to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotFate {
    /// It is gone.
    Destroyed {
        /// Its object.
        id: u64,
        /// The dataset behind it.
        next: u64,
    },
    /// It goes with its last hold or clone; its object.
    Deferred(u64),
    /// There was none.
    Absent,
}

impl Change<'_> {
    /// Destroys snapshots, all or none. With `defer` (`-d`), one that is held or has clones only goes with the last of
    /// these; else that is an error. `dsl` is that of the MOS that is being changed.
    ///
    /// Returns what became of each, or those that cannot go, and why: `Busy` if it is held, `Exists` if it has clones,
    /// `Encrypted`, `Unsupported` for dead lists of versions before 26.
    pub fn destroy_snapshots(
        &self,
        dsl: &Dsl,
        names: &[String],
        defer: bool,
    ) -> Result<Result<Vec<SnapshotFate>, RefusedChanges>> {
        let (mut fates, mut refused) = (Vec::new(), Vec::new());
        for name in names {
            match self.fate_of_snapshot(dsl, name, defer) {
                Ok(fate) => fates.push(fate),
                Err(e) => refused.push((name.clone(), e)),
            }
        }
        if !refused.is_empty() {
            return Ok(Err(refused));
        }
        for (name, fate) in names.iter().zip(&mut fates) {
            match fate {
                SnapshotFate::Absent => {}
                SnapshotFate::Deferred(id) => {
                    self.update_dataset(*id, |phys| phys.flags |= DatasetPhys::FLAG_DEFER_DESTROY)?;
                }
                SnapshotFate::Destroyed { id, next } => {
                    let (_, own) = split_snapshot(name)?;
                    // others that were behind it may be gone by now
                    *next = self.dataset(*id)?.next_snap;
                    self.remove_snapshot(*id, own).in_dataset(name)?;
                }
            }
        }
        Ok(Ok(fates))
    }

    fn fate_of_snapshot(&self, dsl: &Dsl, name: &str, defer: bool) -> Result<SnapshotFate> {
        let (fs, own) = split_snapshot(name)?;
        let dir = match dsl.find_dir(fs) {
            Err(e) if e.kind() == Kind::NotFound => return Ok(SnapshotFate::Absent),
            dir => dir?,
        };
        let head = dsl.head(&dir)?;
        let Some(id) = self.snapshot_named(&head.phys, own)? else { return Ok(SnapshotFate::Absent) };
        let phys = self.dataset(id)?;
        super::create::refuse_encrypted(dsl, &dir)?;
        let is_held = self.holds_on(&phys)? > 0;
        match is_held || phys.num_children > 1 {
            true if defer => Ok(SnapshotFate::Deferred(id)),
            true if is_held => Err(Error::new(Kind::Busy, "dataset is busy")),
            true => Err(Error::new(Kind::Exists, "snapshot is cloned")),
            false => self.check_removable(&phys).map(|()| SnapshotFate::Destroyed { id, next: phys.next_snap }),
        }
    }

    /// Number of holds on a snapshot.
    pub(super) fn holds_on(&self, snapshot: &DatasetPhys) -> Result<u64> {
        match snapshot.userrefs_zap {
            0 => Ok(0),
            table => self.entries_of(table),
        }
    }

    /// Refuses what cannot be taken out of its chain.
    fn check_removable(&self, snapshot: &DatasetPhys) -> Result<()> {
        let next = self.dataset(snapshot.next_snap)?;
        Deadlist::open(self, snapshot.deadlist)?.check_parts()?;
        Deadlist::open(self, next.deadlist)?.check_parts()
    }

    /// Destroys snapshot `id`, which is called `name` and has neither holds nor clones.
    pub(super) fn remove_snapshot(&self, id: u64, name: &str) -> Result<()> {
        let phys = self.dataset(id)?;
        let head_id = self.dir(phys.dir)?.head_dataset;
        let next_id = phys.next_snap;
        let next = self.dataset(next_id)?;
        if next.prev_snap != id {
            return Err(Error::corrupt("the next snapshot comes from another one"));
        }
        let next_dead = Deadlist::open(self, next.deadlist)?;
        let bookmarks = Bookmarks::open(self, head_id)?;
        let has_bookmark = bookmarks.snapshot_destroyed(phys.prev_snap_txg, phys.creation_txg, &next_dead)?;
        self.leave_features(id)?;
        let unique_of_prev = self.bridge(id, &phys, &next_dead)?;
        if let Some((prev, more)) = unique_of_prev {
            self.update_dataset(prev, |prev| prev.unique_bytes = prev.unique_bytes.wrapping_add(more.used))?;
        }
        self.update_dataset(next_id, |next| {
            (next.prev_snap, next.prev_snap_txg) = (phys.prev_snap, phys.prev_snap_txg);
        })?;
        self.release_blocks(&phys, &next_dead)?;
        let own_dead = Deadlist::open(self, phys.deadlist)?;
        next_dead.merge(&own_dead)?;
        own_dead.free()?;
        if !has_bookmark {
            self.remove_clones_key(phys.dir, phys.creation_txg)?;
        }
        if next.is_snapshot() {
            let after = Deadlist::open(self, self.dataset(next.next_snap)?.deadlist)?;
            let shared = after.totals_born(phys.prev_snap_txg, phys.creation_txg)?;
            self.update_dataset(next_id, |next| next.unique_bytes = next.unique_bytes.wrapping_add(shared.used))?;
            if !has_bookmark {
                let head = self.dataset(head_id)?;
                Deadlist::open(self, head.deadlist)?.remove_key(phys.creation_txg)?;
            }
        } else {
            self.recount_unique(next_id)?;
        }
        self.remove(self.dataset(head_id)?.snapnames_zap, name)?;
        self.adjust_counts(phys.dir, 0, -1)?;
        self.note_snapshots_changed(phys.dir)?;
        self.forget_boot_file_system(id)?;
        for table in [phys.next_clones_zap, phys.props_zap, phys.userrefs_zap] {
            self.free_object(table)?;
        }
        self.free_record(id)
    }

    /// Joins what is before and behind a snapshot. Returns the snapshot before, and what becomes unique to that.
    fn bridge(&self, id: u64, phys: &DatasetPhys, next_dead: &Deadlist<'_>) -> Result<Option<(u64, Totals)>> {
        if phys.prev_snap == 0 {
            return Ok(None);
        }
        let prev = self.dataset(phys.prev_snap)?;
        if prev.next_snap != id {
            // it is the oldest one of a clone
            self.replace_next_clone(&prev, id, Some(phys.next_snap))?;
            return Ok(None);
        }
        self.update_dataset(phys.prev_snap, |prev| prev.next_snap = phys.next_snap)?;
        let shared = next_dead.totals_born(prev.prev_snap_txg, phys.prev_snap_txg)?;
        Ok(Some((phys.prev_snap, shared)))
    }

    /// Gives the blocks that nothing but the snapshot has to the list of what is to be freed.
    fn release_blocks(&self, phys: &DatasetPhys, next_dead: &Deadlist<'_>) -> Result<()> {
        let freed = next_dead.totals_born(phys.prev_snap_txg, u64::MAX)?;
        let delta = Delta::between(Totals::default(), freed);
        self.charge(phys.dir, UsedColumn::Snapshots, delta.negative())?;
        let list = Bpobj::open(self.mos, self.in_directory(FREE_LIST)?)?;
        next_dead.move_since(phys.prev_snap_txg, &list)?;
        self.charge(self.own_dir("$FREE")?, UsedColumn::Head, delta)
    }

    /// The heads of all clones of later snapshots, and of these clones', need no part of their own any more for blocks
    /// born after `txg`.
    pub(super) fn remove_clones_key(&self, dir: u64, txg: u64) -> Result<()> {
        let (mut left, mut seen) = (vec![dir], 0);
        while let Some(dir) = left.pop() {
            seen += 1;
            if seen > CLONES_MAX {
                return Err(Error::corrupt("clones of each other"));
            }
            let table = self.dir(dir)?.clones_zap;
            if table == 0 {
                continue;
            }
            for (_, clone) in self.by_number(table)? {
                let clone = self.dataset(clone)?;
                let origin = self.dir(clone.dir)?.origin;
                if origin != 0 && self.dataset(origin)?.creation_txg > txg {
                    Deadlist::open(self, clone.deadlist)?.remove_key(txg)?;
                    left.push(clone.dir);
                }
            }
        }
        Ok(())
    }

    /// A head's previous snapshot has changed: what is its alone, and what of its refreservation is not used.
    pub(super) fn recount_unique(&self, id: u64) -> Result<()> {
        let head = self.dataset(id)?;
        let before = if head.prev_snap == 0 { 0 } else { self.dataset(head.prev_snap)?.referenced_bytes };
        let dead = Deadlist::open(self, head.deadlist)?.totals()?.used;
        let unique = head.referenced_bytes.wrapping_sub(before.wrapping_sub(dead));
        self.update_dataset(id, |phys| {
            phys.unique_bytes = unique;
            phys.flags |= DatasetPhys::FLAG_UNIQUE_ACCURATE;
        })?;
        let reserved = self.refreservation_of(head.dir)?;
        let used = charged(head.unique_bytes, reserved, unique.wrapping_sub(head.unique_bytes) as i64);
        let unused = used.wrapping_sub(unique.wrapping_sub(head.unique_bytes) as i64);
        match unused {
            0 => Ok(()),
            unused => self.charge(head.dir, UsedColumn::Refreservation, Delta::used(unused)),
        }
    }

    /// The pool boots from a dataset no more.
    pub(super) fn forget_boot_file_system(&self, id: u64) -> Result<()> {
        let Some(table) = self.number(DIRECTORY, "pool_props")? else { return Ok(()) };
        match self.number(table, "bootfs")? {
            Some(booted) if booted == id => self.remove(table, "bootfs").map(drop),
            _ => Ok(()),
        }
    }
}
