//! Holds on snapshots: while there is one, a snapshot cannot be destroyed.

use base::{Error, Kind, Result};
use format::dsl::DatasetPhys;
use format::object_type::ObjectType;

use super::{Change, RefusedChanges, destroy_snapshot};
use crate::name::split_snapshot;
use crate::{Dataset, Dsl};

/// Most bytes of a tag, and of that and the object's number, which temporary holds are named after.
const TAG_LEN_MAX: usize = 255;

/// Holds snapshots, all or none: pairs of a full name and a tag. Returns those that cannot be held, and why not:
/// `NotFound`, `Exists` if there is such a hold, `TooLong`.
pub fn hold(change: &Change<'_>, dsl: &Dsl, holds: &[(String, String)]) -> Result<RefusedChanges> {
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
            0 => {
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
    if tag.len() > TAG_LEN_MAX {
        return Err(Error::new(Kind::TooLong, "tag too long"));
    }
    match change.number(snapshot.phys.userrefs_zap, tag)? {
        Some(_) => Err(Error::new(Kind::Exists, "tag already exists on this dataset")),
        None => Ok(()),
    }
}

/// Takes holds away, all or none; a snapshot whose destruction has waited for that goes with its last one. Returns
/// those that are not there, and why not: `NotFound`, with the text of `zfs release`.
pub fn release(change: &Change<'_>, dsl: &Dsl, holds: &[(String, String)]) -> Result<RefusedChanges> {
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
        return Ok(refused);
    }
    for (name, tag) in holds {
        let Ok(snapshot) = find_snapshot(dsl, name) else { continue };
        change.remove(snapshot.phys.userrefs_zap, tag)?;
        let (_, own) = split_snapshot(name)?;
        remove_if_deferred(change, snapshot.id, own)?;
    }
    Ok(Vec::new())
}

/// Destroys a snapshot whose destruction has waited for its last hold or clone, if that is gone.
pub(super) fn remove_if_deferred(change: &Change<'_>, id: u64, name: &str) -> Result<bool> {
    let phys = change.dataset(id)?;
    let is_wanted = phys.flags & DatasetPhys::FLAG_DEFER_DESTROY != 0;
    if !is_wanted || phys.num_children > 1 || destroy_snapshot::holds_on(change, &phys)? > 0 {
        return Ok(false);
    }
    destroy_snapshot::remove(change, id, name)?;
    Ok(true)
}

fn find_snapshot(dsl: &Dsl, name: &str) -> Result<Dataset> {
    match dsl.find(name) {
        Err(e) if e.kind() == Kind::NotFound => Err(Error::new(Kind::NotFound, "dataset does not exist")),
        found => found,
    }
}
