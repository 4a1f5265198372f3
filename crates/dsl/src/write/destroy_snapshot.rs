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
use format::blkptr::BlkPtr;
use format::dsl::DatasetPhys;
use format::ids::{DatasetId, ObjectId, Txg};

use super::bookmark::Bookmarks;
use super::deadlist::{Deadlist, OpenDeadlists};
use super::space::{Delta, UsedColumn, charged};
use super::{Change, DIRECTORY, RefusedChanges, counts, deadlist, feature, room, snapshot, space, versions};
use crate::Dsl;
use crate::name::split_snapshot;

const FREE_LIST: &str = "free_bpobj";
/// What is freed in the next group.
const PUT_OFF_LIST: &str = "sync_bplist";

/// A snapshot, when it is asked to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotFate {
    /// It is gone.
    Destroyed {
        /// Its object.
        id: DatasetId,
        /// The dataset behind it.
        next: DatasetId,
    },
    /// It goes with its last hold or clone; its object.
    Deferred(DatasetId),
    /// There was none.
    Absent,
}

/// Destroys snapshots, all or none. With `defer` (`-d`), one that is held or has clones only goes with the last of
/// these; else that is an error. `dsl` is that of the MOS that is being changed.
///
/// Returns what became of each, or those that cannot go, and why: `Busy` if it is held, `Exists` if it has clones.
pub fn destroy_snapshots(
    change: &Change<'_>,
    dsl: &Dsl,
    names: &[String],
    defer: bool,
) -> Result<Result<Vec<SnapshotFate>, RefusedChanges>> {
    let (mut fates, mut refused) = (Vec::new(), Vec::new());
    for name in names {
        match fate_of_snapshot(change, dsl, name, defer) {
            Ok(fate) => fates.push(fate),
            Err(e) => refused.push((name.clone(), e)),
        }
    }
    if !refused.is_empty() {
        return Ok(Err(refused));
    }
    let mut going = Vec::new();
    for (at, fate) in fates.iter().enumerate() {
        match fate {
            SnapshotFate::Absent => {}
            SnapshotFate::Deferred(id) => {
                change.update_dataset(*id, |phys| phys.flags |= DatasetPhys::FLAG_DEFER_DESTROY)?;
            }
            SnapshotFate::Destroyed { id, .. } => going.push((change.dataset(*id)?.creation_txg, at)),
        }
    }
    // the latest ones first: a snapshot that goes before those behind it would move what it has from one to the other
    going.sort_unstable_by(|a, b| b.cmp(a));
    let mut lists = OpenDeadlists::new(change);
    for (_, at) in going {
        if let SnapshotFate::Destroyed { id, next } = &mut fates[at] {
            let (_, own) = split_snapshot(&names[at])?;
            // others that were behind it may be gone by now
            *next = change.dataset(*id)?.next_snap;
            remove(&mut lists, *id, own).in_dataset(&names[at])?;
        }
    }
    Ok(Ok(fates))
}

fn fate_of_snapshot(change: &Change<'_>, dsl: &Dsl, name: &str, defer: bool) -> Result<SnapshotFate> {
    let (fs, own) = split_snapshot(name)?;
    let dir = match dsl.find_dir(fs) {
        Err(e) if e.kind() == Kind::NotFound => return Ok(SnapshotFate::Absent),
        dir => dir?,
    };
    let head = dsl.head(&dir)?;
    let Some(id) = snapshot::find_named(change, &head.phys, own)? else { return Ok(SnapshotFate::Absent) };
    let phys = change.dataset(id)?;
    let is_held = holds_on(change, &phys)? > 0;
    match is_held || phys.num_children > 1 {
        true if defer => Ok(SnapshotFate::Deferred(id)),
        true if is_held => Err(Error::new(Kind::Busy, "dataset is busy")),
        true => Err(Error::new(Kind::Exists, "snapshot is cloned")),
        false => Ok(SnapshotFate::Destroyed { id, next: phys.next_snap }),
    }
}

/// Number of holds on a snapshot.
pub(super) fn holds_on(change: &Change<'_>, snapshot: &DatasetPhys) -> Result<u64> {
    match snapshot.userrefs_zap {
        ObjectId::NONE => Ok(0),
        table => change.entries_of(table),
    }
}

/// Destroys snapshot `id`, which is called `name` and has neither holds nor clones.
pub(super) fn remove(lists: &mut OpenDeadlists<'_>, id: DatasetId, name: &str) -> Result<()> {
    let change = lists.change();
    let phys = change.dataset(id)?;
    let head_id = change.dir(phys.dir)?.head_dataset;
    let next_id = phys.next_snap;
    let next = change.dataset(next_id)?;
    if next.prev_snap != id {
        return Err(Error::corrupt("the next snapshot comes from another one"));
    }
    let own_dead = lists.take(phys.deadlist)?;
    let next_dead = lists.get(next.deadlist)?;
    let bookmarks = Bookmarks::open(change, head_id)?;
    let has_bookmark = bookmarks.snapshot_destroyed(phys.prev_snap_txg, phys.creation_txg, next_dead)?;
    feature::leave_all(change, id)?;
    let unique_of_prev = bridge(change, id, &phys, next_dead)?;
    if let Some((prev, more)) = unique_of_prev {
        change.update_dataset(prev, |prev| prev.unique_bytes = prev.unique_bytes.wrapping_add(more.used))?;
    }
    change.update_dataset(next_id, |next| {
        (next.prev_snap, next.prev_snap_txg) = (phys.prev_snap, phys.prev_snap_txg);
    })?;
    if next_dead.is_plain() {
        let next_dead = lists.take(next.deadlist)?;
        take_over_plain(change, id, &phys, (next_id, next_dead), &own_dead)?;
    } else {
        release_blocks(change, &phys, next_dead)?;
        next_dead.merge(own_dead)?;
    }
    if !has_bookmark {
        deadlist::remove_key_of_clones(lists, phys.dir, phys.creation_txg)?;
    }
    if next.is_snapshot() {
        let after = lists.get(change.dataset(next.next_snap)?.deadlist)?;
        let shared = after.totals_born(phys.prev_snap_txg, phys.creation_txg)?;
        change.update_dataset(next_id, |next| next.unique_bytes = next.unique_bytes.wrapping_add(shared.used))?;
        if !has_bookmark {
            let head = change.dataset(head_id)?;
            lists.get(head.deadlist)?.remove_key(phys.creation_txg)?;
        }
    } else {
        recount_unique(change, next_id)?;
    }
    change.remove(change.dataset(head_id)?.snapnames_zap, name)?;
    counts::adjust(change, phys.dir, 0, -1)?;
    snapshot::note_snapshots_changed(change, phys.dir)?;
    forget_boot_file_system(change, id)?;
    for table in [phys.next_clones_zap, phys.props_zap, phys.userrefs_zap] {
        change.free_object(table)?;
    }
    feature::free_record(change, id.object())
}

/// Joins what is before and behind a snapshot. Returns the snapshot before, and what becomes unique to that.
fn bridge(
    change: &Change<'_>,
    id: DatasetId,
    phys: &DatasetPhys,
    next_dead: &Deadlist<'_>,
) -> Result<Option<(DatasetId, Totals)>> {
    if phys.prev_snap.is_none() {
        return Ok(None);
    }
    let prev = change.dataset(phys.prev_snap)?;
    if prev.next_snap != id {
        // it is the oldest one of a clone
        snapshot::replace_next_clone(change, &prev, id, Some(phys.next_snap))?;
        return Ok(None);
    }
    change.update_dataset(phys.prev_snap, |prev| prev.next_snap = phys.next_snap)?;
    let shared = next_dead.totals_born(prev.prev_snap_txg, phys.prev_snap_txg)?;
    Ok(Some((phys.prev_snap, shared)))
}

/// Gives the blocks that nothing but the snapshot has to the list of what is to be freed.
fn release_blocks(change: &Change<'_>, phys: &DatasetPhys, next_dead: &Deadlist<'_>) -> Result<()> {
    let freed = next_dead.totals_born(phys.prev_snap_txg, Txg::MAX)?;
    let delta = Delta::between(Totals::default(), freed);
    space::charge(change, phys.dir, UsedColumn::Snapshots, delta.negative())?;
    let list = Bpobj::open(change.mos, change.in_directory(FREE_LIST)?)?;
    next_dead.move_since(phys.prev_snap_txg, &list)?;
    space::charge(change, change.own_dir("$FREE")?, UsedColumn::Head, delta)
}

/// The same where the next one has a plain list: each block on it is looked at. What is left of it goes to the list of
/// the snapshot, which becomes that of the next one. What is freed is freed with the next group.
fn take_over_plain(
    change: &Change<'_>,
    id: DatasetId,
    phys: &DatasetPhys,
    (next_id, next_dead): (DatasetId, Deadlist<'_>),
    own_dead: &Deadlist<'_>,
) -> Result<()> {
    let (dead, kept): (Vec<BlkPtr>, Vec<BlkPtr>) =
        next_dead.all()?.into_iter().partition(|bp| bp.reference_birth() > phys.prev_snap_txg);
    let freed = dead.iter().fold(Totals::default(), |sum, bp| sum.plus(change.totals(bp)));
    space::charge(change, phys.dir, UsedColumn::Snapshots, Delta::between(Totals::default(), freed).negative())?;
    let dead: Vec<BlkPtr> = dead.into_iter().filter(|bp| !bp.is_embedded()).collect();
    if !dead.is_empty() {
        let list = Bpobj::open(change.mos, change.in_directory(PUT_OFF_LIST)?)?;
        list.append(change.tx, &dead, change.size_of)?;
    }
    own_dead.insert(&kept)?;
    change.update_dataset(next_id, |next| next.deadlist = phys.deadlist)?;
    change.update_dataset(id, |gone| gone.deadlist = ObjectId::NONE)?;
    next_dead.free()
}

/// A head's previous snapshot has changed: what is its alone, and what of its refreservation is not used.
fn recount_unique(change: &Change<'_>, id: DatasetId) -> Result<()> {
    let head = change.dataset(id)?;
    let before = if head.prev_snap.is_none() { 0 } else { change.dataset(head.prev_snap)?.referenced_bytes };
    let dead = Deadlist::open(change, head.deadlist)?.totals()?.used;
    let unique = head.referenced_bytes.wrapping_sub(before.wrapping_sub(dead));
    let is_accurate = change.is_since(versions::UNIQUE_ACCURATE)?;
    change.update_dataset(id, |phys| {
        phys.unique_bytes = unique;
        if is_accurate {
            phys.flags |= DatasetPhys::FLAG_UNIQUE_ACCURATE;
        }
    })?;
    let reserved = room::refreservation_of(change, head.dir)?;
    let used = charged(head.unique_bytes, reserved, unique.wrapping_sub(head.unique_bytes) as i64);
    let unused = used.wrapping_sub(unique.wrapping_sub(head.unique_bytes) as i64);
    match unused {
        0 => Ok(()),
        unused => space::charge(change, head.dir, UsedColumn::Refreservation, Delta::used(unused)),
    }
}

/// The pool boots from a dataset no more.
pub(super) fn forget_boot_file_system(change: &Change<'_>, id: DatasetId) -> Result<()> {
    let Some(table) = change.object_id(DIRECTORY, "pool_props")? else { return Ok(()) };
    match change.number(table, "bootfs")? {
        Some(booted) if booted == id.get() => change.remove(table, "bootfs").map(drop),
        _ => Ok(()),
    }
}
