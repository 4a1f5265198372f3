//! Holds on snapshots: while there is one, a snapshot cannot be destroyed.

use std::collections::BTreeMap;

use base::{Error, Kind, Result};
use format::dsl::DatasetPhys;
use format::ids::{DatasetId, ObjectId};
use format::object_type::ObjectType;

use super::deadlist::OpenDeadlists;
use super::{Change, RefusedChanges, destroy_snapshot, versions};
use crate::name::split_snapshot;
use crate::{Dataset, Dsl};

/// Most bytes of a tag, and of that and the object's number, which temporary holds are named after.
const TAG_LEN_MAX: usize = 255;

/// A snapshot that went with its last hold or clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoneSnapshot {
    /// Its full name.
    pub name: String,
    /// Its object.
    pub id: DatasetId,
    /// The dataset behind it.
    pub next: DatasetId,
}

/// Holds snapshots, all or none: pairs of a full name and a tag. Returns those that cannot be held, and why not:
/// `NotFound`, `Exists` if there is such a hold, `TooLong`.
pub fn hold(change: &Change<'_>, dsl: &Dsl, holds: &[(String, String)]) -> Result<RefusedChanges> {
    if !change.is_since(versions::HOLDS)? {
        return Err(Error::new(Kind::Unsupported, "pool must be upgraded"));
    }
    let mut refused = Vec::new();
    for (name, tag) in holds {
        if let Err(e) = check_hold(change, dsl, name, tag) {
            refused.push((name.clone(), e));
        }
    }
    if !refused.is_empty() {
        return Ok(refused);
    }
    for (name, tag) in holds {
        let snapshot = dsl.find(name)?;
        let table = match change.dataset(snapshot.id)?.userrefs_zap {
            ObjectId::NONE => {
                let table = change.create_table(ObjectType::USERREFS)?;
                change.update_dataset(snapshot.id, |phys| phys.userrefs_zap = table)?;
                table
            }
            table => table,
        };
        change.add(table, tag, change.env.now_s())?;
    }
    Ok(Vec::new())
}

fn check_hold(change: &Change<'_>, dsl: &Dsl, name: &str, tag: &str) -> Result<()> {
    split_snapshot(name)?;
    let snapshot = find_snapshot(dsl, name)?;
    if tag.is_empty() || tag.contains('\0') {
        return Err(Error::new(Kind::Invalid, "invalid tag"));
    }
    if tag.len() > TAG_LEN_MAX {
        return Err(Error::new(Kind::TooLong, "tag too long"));
    }
    match change.number(snapshot.phys.userrefs_zap, tag)? {
        Some(_) => Err(Error::new(Kind::Exists, "tag already exists on this dataset")),
        None => Ok(()),
    }
}

/// Takes holds away, all or none; a snapshot whose destruction has waited for that goes with its last one. Returns
/// these, or the holds that are not there, and why not: `NotFound`, with the text of `zfs release`.
pub fn release(
    change: &Change<'_>,
    dsl: &Dsl,
    holds: &[(String, String)],
) -> Result<Result<Vec<GoneSnapshot>, RefusedChanges>> {
    let mut refused = Vec::new();
    for (name, tag) in holds {
        let found = find_snapshot(dsl, name).and_then(|snapshot| {
            let absent = || Error::new(Kind::NotFound, "no such tag on this dataset");
            change.number(snapshot.phys.userrefs_zap, tag)?.ok_or_else(absent)
        });
        if let Err(e) = found {
            refused.push((name.clone(), e));
        }
    }
    if !refused.is_empty() {
        return Ok(Err(refused));
    }
    let mut gone = Vec::new();
    for (name, tag) in holds {
        let Ok(snapshot) = find_snapshot(dsl, name) else { continue };
        change.remove(snapshot.phys.userrefs_zap, tag)?;
        gone.extend(remove_if_deferred(change, snapshot.id, name)?);
    }
    Ok(Ok(gone))
}

/// Snapshots that go if these holds are taken away, as their destruction has waited for that: name and object of each.
pub fn gone_without(change: &Change<'_>, dsl: &Dsl, holds: &[(String, String)]) -> Result<Vec<(String, DatasetId)>> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, _) in holds {
        *counts.entry(name).or_default() += 1;
    }
    let mut going = Vec::new();
    for (name, count) in counts {
        // one that is not there is refused when its hold is to be taken away
        let Ok(snapshot) = dsl.find(name) else { continue };
        if is_left_to(change, snapshot.id, count, 0)? {
            going.push((name.to_owned(), snapshot.id));
        }
    }
    Ok(going)
}

/// The snapshot that goes if a clone does, as its destruction has waited for that.
pub fn gone_with_clone(change: &Change<'_>, clone: DatasetId) -> Result<Option<DatasetId>> {
    let dataset = change.dataset(clone)?;
    let origin = change.dir(dataset.dir)?.origin;
    let is_last = origin.is_some() && dataset.prev_snap == origin && is_left_to(change, origin, 0, 1)?;
    Ok(is_last.then_some(origin))
}

/// Whether the destruction of a snapshot waits for nothing but so many holds and clones.
fn is_left_to(change: &Change<'_>, id: DatasetId, holds: u64, clones: u64) -> Result<bool> {
    let phys = change.dataset(id)?;
    let is_wanted = phys.flags & DatasetPhys::FLAG_DEFER_DESTROY != 0;
    Ok(is_wanted && phys.num_children <= 1 + clones && destroy_snapshot::holds_on(change, &phys)? <= holds)
}

/// Destroys a snapshot whose destruction has waited for its last hold or clone, if that is gone.
pub(super) fn remove_if_deferred(change: &Change<'_>, id: DatasetId, name: &str) -> Result<Option<GoneSnapshot>> {
    if !is_left_to(change, id, 0, 0)? {
        return Ok(None);
    }
    let next = change.dataset(id)?.next_snap;
    destroy_snapshot::remove(&mut OpenDeadlists::new(change), id, name.split_once('@').map_or("", |(_, own)| own))?;
    Ok(Some(GoneSnapshot { name: name.to_owned(), id, next }))
}

fn find_snapshot(dsl: &Dsl, name: &str) -> Result<Dataset> {
    match dsl.find(name) {
        Err(e) if e.kind() == Kind::NotFound => Err(Error::new(Kind::NotFound, "dataset does not exist")),
        found => found,
    }
}
