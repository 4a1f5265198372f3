//! Going back to the latest snapshot, and giving snapshots other names.
//!
//! ```text
//!   before    snapshot ◀── head: own root, dead list       after    snapshot ◀── head: the snapshot's root, no dead
//! ```
//!
//! The head stays the same dataset. What it had written since goes the way of a destroyed head's blocks; the blocks on
//! its dead list live again.

use base::{Error, Kind, Result, ResultExt};
use dmu::bpobj::Totals;
use format::dsl::DatasetPhys;
use format::ids::{DatasetId, Txg};

use super::bookmark::Bookmarks;
use super::bptree::Destroyed;
use super::deadlist::Deadlist;
use super::space::{Delta, UsedColumn};
use super::{Change, destroy, feature, livelist, room, snapshot, space};
use crate::Dsl;
use crate::name::LEN_MAX;
use crate::name::{NameKinds, check_new_name, split_snapshot};

/// A head that went back.
#[derive(Clone, Copy, Debug)]
pub struct RolledBack {
    /// What to do with the blocks that it had written since.
    pub discarded: Destroyed,
}

pub(super) fn sizes(phys: &DatasetPhys) -> Totals {
    Totals { used: phys.referenced_bytes, compressed: phys.compressed_bytes, uncompressed: phys.uncompressed_bytes }
}

/// Lets the head of a file system or volume go back to snapshot `to`, which has to be its latest. What is open of the
/// head is of the old root. The log in the snapshot's object set is stale: the caller writes the head without it. `None` if the
/// snapshot is of this group: the next one can go back to it.
///
/// Errors: `NotFound` if it is none of its snapshots, `Exists` if there are later ones or later bookmarks, `Quota`,
/// `NoSpace` for what is reserved.
pub fn rollback(change: &Change<'_>, dsl: &Dsl, to: &str, usable_bytes: u64) -> Result<Option<RolledBack>> {
    let (fs, own) = split_snapshot(to)?;
    let subject = dsl.subject(fs)?;
    let dir = subject.dir();
    let head = dsl.head(dir)?;
    let snapshot = snapshot::find_named(change, &head.phys, own)?;
    let missing = || Error::new(Kind::NotFound, format!("'{to}' is not found among snapshots of '{fs}'"));
    let snapshot = snapshot.ok_or_else(missing)?;
    let bookmarks = Bookmarks::open(change, head.id)?;
    if snapshot != head.phys.prev_snap || bookmarks.latest_txg()? > head.phys.prev_snap_txg {
        let what = format!("there is a snapshot or bookmark more recent than '{to}'");
        return Err(Error::new(Kind::Exists, what));
    }
    let target = change.dataset(snapshot)?;
    let (refquota, _) = dsl.own_limits(dir)?;
    if refquota != 0 && target.referenced_bytes > refquota {
        return Err(Error::new(Kind::Quota, "disk quota exceeded"));
    }
    let reserved = room::refreservation_of(change, dir.id)?.min(head.phys.unique_bytes);
    if reserved > 0 && reserved > dsl.available_in_dir(dir, usable_bytes)? {
        return Err(Error::new(Kind::NoSpace, "out of space"));
    }
    if head.phys.prev_snap_txg >= change.tx.txg() {
        return Ok(None);
    }
    go_back(change, head.id, &head.phys, &target).in_dataset(fs).map(Some)
}

fn go_back(change: &Change<'_>, id: DatasetId, head: &DatasetPhys, target: &DatasetPhys) -> Result<RolledBack> {
    let dead = Deadlist::open(change, head.deadlist)?;
    let origin_txg = match change.dir(head.dir)?.origin {
        DatasetId::NONE => Txg::ZERO,
        origin => change.dataset(origin)?.creation_txg,
    };
    let (revived, of_snapshots) = (dead.totals()?, dead.totals_born(origin_txg, Txg::MAX)?);
    let all = sizes(head).plus(revived);
    let reserved = room::refreservation_of(change, head.dir)?.min(head.unique_bytes);
    space::charge(change, head.dir, UsedColumn::Head, Delta::between(all, sizes(target)))?;
    space::move_space(
        change,
        head.dir,
        (of_snapshots.used as i64).wrapping_neg(),
        UsedColumn::Head,
        UsedColumn::Snapshots,
    )?;
    if reserved > 0 {
        space::charge(change, head.dir, UsedColumn::Refreservation, Delta::used(reserved as i64))?;
    }
    let new = dead.clone_parts(Txg::MAX, head.prev_snap)?;
    dead.free()?;
    Bookmarks::open(change, id)?.next_changed(head.prev_snap_txg, &new)?;
    change.update_dataset(head.prev_snap, |phys| phys.unique_bytes = 0)?;
    feature::drop_all(change, id)?;
    feature::copy_all(change, head.prev_snap, id)?;
    livelist::drop_of(change, head.dir)?;
    change.update_dataset(id, |phys| {
        phys.bp = target.bp;
        phys.deadlist = new.id();
        phys.referenced_bytes = target.referenced_bytes;
        phys.compressed_bytes = target.compressed_bytes;
        phys.uncompressed_bytes = target.uncompressed_bytes;
        phys.unique_bytes = 0;
    })?;
    let discarded = destroy::discard(change, &head.bp, head.prev_snap_txg, all.minus(sizes(target)))?;
    Ok(RolledBack { discarded })
}

/// Gives a snapshot another name; with `recursive`, also those of the same name of all datasets below, where there
/// are such. `old` and `new` are full names of the same dataset's.
///
/// Errors: `NotFound`, `Exists`, `TooLong`, `Invalid`.
pub fn rename_snapshot(change: &Change<'_>, dsl: &Dsl, old: &str, new: &str, recursive: bool) -> Result<()> {
    let ((fs, from), (_, to)) = (split_snapshot(old)?, split_snapshot(new)?);
    let top = dsl.find_dir(fs)?;
    let dirs = if recursive { dsl.walk_from(top)? } else { vec![top] };
    let mut found = Vec::new();
    for dir in dirs {
        check_new_name(&dir.name, NameKinds::HEADS)?;
        let head = dsl.head(&dir)?;
        let Some(id) = snapshot::find_named(change, &head.phys, from)? else { continue };
        if snapshot::find_named(change, &head.phys, to)?.is_some_and(|other| other != id) {
            return Err(Error::new(Kind::Exists, "dataset already exists"));
        }
        if dir.name.len() + 1 + to.len() > LEN_MAX {
            return Err(Error::new(Kind::TooLong, "name is too long"));
        }
        found.push((dir.id, head.phys.snapnames_zap, id));
    }
    if found.is_empty() {
        return Err(Error::new(Kind::NotFound, "dataset does not exist"));
    }
    for (dir, names, id) in found {
        change.remove(names, from)?;
        change.add(names, to, id.get())?;
        snapshot::note_snapshots_changed(change, dir)?;
    }
    Ok(())
}
