//! Taking snapshots.
//!
//! ```text
//!   before    older ◀── head                      after    older ◀── snapshot ◀── head
//!                        dead list: since older                dead list     dead list: none yet, a part more
//! ```
//!
//! A snapshot takes over what its head had: the root pointer, the sizes, the dead list. The head goes on with an empty
//! dead list, which has a part more, for blocks that were born after the snapshot before this one.
//!
//! Blocks are young or old by their group, so a head is written in no group after its snapshot has been taken in it,
//! and no second snapshot is.

use base::{Error, Kind, Result, ResultExt};
use dmu::zap::{Match, Zap, ZapValue};
use format::dsl::DatasetPhys;
use format::feature::{BOOKMARK_V2, EXTENSIBLE_DATASET};
use format::ids::{DatasetId, DirId, Txg};
use format::object_type::ObjectType;

use super::bookmark::Bookmarks;
use super::deadlist::Deadlist;
use super::space::{Delta, UsedColumn};
use super::{Change, RefusedChanges, counts, create, feature, props, room, space, versions};
use crate::key::IVSET_GUID;
use crate::name::split_snapshot;
use crate::property::DatasetKind;
use crate::property::rules::{self, Given};
use crate::{Dataset, Dsl};

const SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";

/// What became of a request for snapshots.
#[derive(Debug)]
pub enum Taken {
    /// All were taken: name and object of each.
    All(Vec<(String, DatasetId)>),
    /// None: one of the heads has a snapshot of this group already. The next group can have them.
    NextGroup,
    /// None: those that cannot be, and why not.
    Refused(RefusedChanges),
}

/// A snapshot that can be taken.
pub(super) struct Planned {
    name: String,
    pub(super) head: Dataset,
}

impl Planned {
    /// One of which it is known that nothing is in its way.
    pub(super) fn new(name: String, head: Dataset) -> Planned {
        Planned { name, head }
    }
}

/// Takes snapshots, all or none; each name is a full one, such as `tank/home@monday`. `properties` are those of
/// users; all snapshots get them. `dsl` is that of the MOS that is being changed, whose heads have been written.
///
/// Errors: `Invalid` for a property that snapshots cannot get; those of reading.
pub fn take_snapshots(
    change: &Change<'_>,
    dsl: &Dsl,
    names: &[String],
    properties: &[(String, String)],
    usable_bytes: u64,
) -> Result<Taken> {
    let given = rules::check_all(properties, DatasetKind::Snapshot)?;
    if !given.is_empty() && !change.is_since(versions::SNAPSHOT_PROPERTIES)? {
        return Err(Error::new(Kind::Unsupported, "pool must be upgraded to set properties of snapshots"));
    }
    if let Some(given) = given.iter().find(|given| given.property.is_some()) {
        let what = format!("'{}': only user properties can be set as a snapshot is taken", given.name);
        return Err(Error::new(Kind::Invalid, what));
    }
    let (mut planned, mut refused) = (Vec::new(), Vec::new());
    for name in names {
        match plan(change, dsl, name, usable_bytes) {
            Ok(plan) => planned.push(plan),
            Err(e) => refused.push((name.clone(), e)),
        }
    }
    if !refused.is_empty() {
        return Ok(Taken::Refused(refused));
    }
    let mut heads: Vec<DatasetId> = planned.iter().map(|plan| plan.head.id).collect();
    heads.sort_unstable();
    heads.dedup();
    if heads.len() != planned.len() {
        return Err(Error::new(Kind::Invalid, "multiple snapshots of same fs not allowed"));
    }
    if planned.iter().any(|plan| plan.head.phys.prev_snap_txg >= change.tx.txg()) {
        return Ok(Taken::NextGroup);
    }
    let mut taken = Vec::new();
    for plan in planned {
        let id = take(change, &plan, &given).in_dataset(&plan.name)?;
        taken.push((plan.name, id));
    }
    Ok(Taken::All(taken))
}

pub(super) fn plan(change: &Change<'_>, dsl: &Dsl, name: &str, usable_bytes: u64) -> Result<Planned> {
    let (fs, own) = split_snapshot(name)?;
    let dir = dsl.find_dir(fs)?;
    let head = dsl.head(&dir)?;
    if find_named(change, &head.phys, own)?.is_some() {
        return Err(Error::new(Kind::Exists, "dataset already exists"));
    }
    if head.phys.flags & DatasetPhys::FLAG_INCONSISTENT != 0 {
        return Err(Error::new(Kind::Busy, "dataset is busy"));
    }
    let reserved = room::refreservation_of(change, dir.id)?.min(head.phys.unique_bytes);
    if reserved > 0 && reserved > dsl.available_in_dir(&dir, usable_bytes)? {
        return Err(Error::new(Kind::NoSpace, "out of space"));
    }
    Ok(Planned { name: name.to_owned(), head })
}

/// Object of a head's snapshot of that name.
pub(super) fn find_named(change: &Change<'_>, head: &DatasetPhys, name: &str) -> Result<Option<DatasetId>> {
    let names = Zap::open(change.mos.object(head.snapnames_zap)?)?;
    let id = match head.flags & DatasetPhys::FLAG_CASE_INSENSITIVE {
        0 => names.u64(name)?,
        _ => names.lookup_match(name.as_bytes(), Match::Normalized)?.and_then(|(_, id)| id.first_u64()),
    };
    Ok(id.map(DatasetId::new))
}

pub(super) fn take(change: &Change<'_>, plan: &Planned, given: &[Given]) -> Result<DatasetId> {
    let (head_id, head) = (plan.head.id, &plan.head.phys);
    let (_, own) = split_snapshot(&plan.name)?;
    counts::adjust(change, head.dir, 0, 1)?;
    let snapshot = DatasetPhys {
        prev_snap: head.prev_snap,
        prev_snap_txg: head.prev_snap_txg,
        next_snap: head_id,
        num_children: 1,
        deadlist: head.deadlist,
        referenced_bytes: head.referenced_bytes,
        compressed_bytes: head.compressed_bytes,
        uncompressed_bytes: head.uncompressed_bytes,
        flags: head.flags,
        bp: head.bp,
        ..create::blank_dataset(change, head.dir)?
    };
    let txg = snapshot.creation_txg;
    let id = create::put_dataset(change, &snapshot)?;
    feature::copy_all(change, head_id, id)?;
    if head.bp.uses_crypt() && feature::is_enabled(change, BOOKMARK_V2)? {
        feature::zapify(change, id.object())?;
        change.add(id.object(), IVSET_GUID, change.new_guid().get())?;
    }
    put_between(change, head, head_id, id)?;
    let reserved = room::refreservation_of(change, head.dir)?.min(head.unique_bytes);
    if reserved > 0 {
        space::charge(change, head.dir, UsedColumn::Refreservation, Delta::used(reserved as i64))?;
    }
    let accurate = create::blank_dataset(change, head.dir)?.flags;
    let dead = Deadlist::open(change, head.deadlist)?.clone_parts(Txg::MAX, head.prev_snap)?;
    dead.add_key(head.prev_snap_txg)?;
    for key in Bookmarks::open(change, head_id)?.keys_after(head.prev_snap_txg)? {
        dead.add_key(key)?;
    }
    change.update_dataset(head_id, |phys| {
        phys.deadlist = dead.id();
        (phys.prev_snap, phys.prev_snap_txg, phys.unique_bytes) = (id, txg, 0);
        phys.flags |= accurate;
    })?;
    change.add(head.snapnames_zap, own, id.get())?;
    note_snapshots_changed(change, head.dir)?;
    store_on_snapshot(change, id, given)?;
    Ok(id)
}

/// Makes a new snapshot the next one of the snapshot before it.
fn put_between(change: &Change<'_>, head: &DatasetPhys, head_id: DatasetId, id: DatasetId) -> Result<()> {
    if head.prev_snap.is_none() {
        return Ok(());
    }
    let before = change.dataset(head.prev_snap)?;
    if before.next_snap == head_id {
        return change.update_dataset(head.prev_snap, |phys| phys.next_snap = id);
    }
    replace_next_clone(change, &before, head_id, Some(id))
}

/// A snapshot has another clone instead of one: the oldest dataset after it there.
pub(super) fn replace_next_clone(
    change: &Change<'_>,
    of: &DatasetPhys,
    old: DatasetId,
    new: Option<DatasetId>,
) -> Result<()> {
    if of.next_clones_zap.is_none() {
        return Ok(());
    }
    change.remove(of.next_clones_zap, &format!("{old:x}"))?;
    new.map_or(Ok(()), |new| change.add_number(of.next_clones_zap, new.object()))
}

/// Notes when snapshots of a directory were last made or destroyed.
pub(super) fn note_snapshots_changed(change: &Change<'_>, dir: DirId) -> Result<()> {
    if !feature::is_enabled(change, EXTENSIBLE_DATASET)? {
        return Ok(());
    }
    feature::zapify(change, dir.object())?;
    let (now_s, now_ns) = change.env.now();
    change.set(dir.object(), SNAPSHOTS_CHANGED, &ZapValue::new(8, &[now_s, u64::from(now_ns)]))
}

/// Stores properties of users on a snapshot.
fn store_on_snapshot(change: &Change<'_>, id: DatasetId, given: &[Given]) -> Result<()> {
    if given.is_empty() {
        return Ok(());
    }
    let table = change.create_table(ObjectType::DSL_PROPS)?;
    change.update_dataset(id, |phys| phys.props_zap = table)?;
    given.iter().try_for_each(|given| props::put_value(change, table, given))
}
