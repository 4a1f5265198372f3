//! Features that the dataset layer turns on and off: how many things there are that use one.
//!
//! A feature that has an entry in one of the two tables of the object directory is enabled; its number counts
//! the things.

use base::Result;
use dmu::zap::{Editor, Zap, ZapValue};
use format::feature::{BOOKMARKS, EXTENSIBLE_DATASET, FeatureSet};
use format::ids::{DatasetId, ObjectId};
use format::object_type::ObjectType;

use super::{Change, DIRECTORY};

/// The tables, by their names in the object directory.
const TABLES: [&str; 2] = ["features_for_write", "features_for_read"];

/// How many things use a feature; `None` if it is not enabled.
pub fn uses(change: &Change<'_>, guid: &str) -> Result<Option<u64>> {
    Ok(find(change, guid)?.map(|(_, count)| count))
}

/// The features that are enabled.
pub(super) fn enabled(change: &Change<'_>) -> Result<FeatureSet> {
    let mut guids = Vec::new();
    for name in TABLES {
        if let Some(table) = change.object_id(DIRECTORY, name)? {
            let entries = Zap::open(change.mos.object(table)?)?.entries()?;
            guids.extend(entries.into_iter().map(|entry| entry.name.to_string()));
        }
    }
    let enabled = FeatureSet::of(|feature| guids.iter().any(|guid| guid == feature.guid));
    Ok(enabled.in_version(change.mos.pool_version()?))
}

/// Whether a feature is enabled.
pub(super) fn is_enabled(change: &Change<'_>, guid: &str) -> Result<bool> {
    Ok(uses(change, guid)?.is_some())
}

/// Adds `delta` to how many things use a feature, and returns the sum. One that is not enabled is left
/// alone, and counts 0.
pub fn count(change: &Change<'_>, guid: &str, delta: i64) -> Result<u64> {
    let Some((table, count)) = find(change, guid)? else { return Ok(0) };
    let count = count.saturating_add_signed(delta);
    change.set(table, guid, &ZapValue::one(count))?;
    Ok(count)
}

/// Notes that a dataset uses a feature, if that is not noted yet: it has blocks that only versions with
/// the feature can read.
pub fn use_in(change: &Change<'_>, dataset: DatasetId, guid: &str) -> Result<()> {
    zapify(change, dataset.object())?;
    if change.number(dataset.object(), guid)?.is_some() {
        return Ok(());
    }
    change.add(dataset.object(), guid, 0)?;
    count(change, guid, 1).map(drop)
}

/// Notes that a dataset uses no feature any more.
pub(super) fn leave_all(change: &Change<'_>, dataset: DatasetId) -> Result<()> {
    used_by(change, dataset)?.iter().try_for_each(|(guid, _)| count(change, guid, -1).map(drop))
}

/// As [`leave_all`], of a dataset that stays.
pub(super) fn drop_all(change: &Change<'_>, dataset: DatasetId) -> Result<()> {
    for (guid, _) in used_by(change, dataset)? {
        count(change, &guid, -1)?;
        change.remove(dataset.object(), &guid)?;
    }
    Ok(())
}

/// Notes that a dataset uses all features that another one does, with what is known of each.
pub(super) fn copy_all(change: &Change<'_>, from: DatasetId, to: DatasetId) -> Result<()> {
    for (guid, value) in used_by(change, from)? {
        zapify(change, to.object())?;
        change.set(to.object(), &guid, &value)?;
        count(change, &guid, 1)?;
    }
    Ok(())
}

/// The features that a dataset uses, with what is known of each.
pub(super) fn used_by(change: &Change<'_>, dataset: DatasetId) -> Result<Vec<(String, ZapValue)>> {
    if !is_zapified(change, dataset.object())? {
        return Ok(Vec::new());
    }
    let mut features = Vec::new();
    for entry in Zap::open(change.mos.object(dataset.object())?)?.entries()? {
        let guid = entry.name.to_string();
        // that entry is the table of the dataset's bookmarks, which is called as the feature is
        if guid != BOOKMARKS && is_enabled(change, &guid)? {
            features.push((guid, entry.value));
        }
    }
    Ok(features)
}

fn find(change: &Change<'_>, guid: &str) -> Result<Option<(ObjectId, u64)>> {
    for name in TABLES {
        let Some(table) = change.object_id(DIRECTORY, name)? else { continue };
        if let Some(count) = change.number(table, guid)? {
            return Ok(Some((table, count)));
        }
    }
    Ok(None)
}

/// Frees the object of a directory or dataset, which may be a table, too.
pub(super) fn free_record(change: &Change<'_>, id: ObjectId) -> Result<()> {
    if is_zapified(change, id)? {
        count(change, EXTENSIBLE_DATASET, -1)?;
    }
    change.free_object(id)
}

/// Whether the object of a directory or dataset is a table, too.
pub(super) fn is_zapified(change: &Change<'_>, id: ObjectId) -> Result<bool> {
    Ok(change.mos.object(id)?.dnode().object_type == ObjectType::ZAP_METADATA)
}

/// Makes the object of a directory or dataset a table too, for later additions to it.
pub(super) fn zapify(change: &Change<'_>, id: ObjectId) -> Result<()> {
    if is_zapified(change, id)? {
        return Ok(());
    }
    change.mos.object(id)?.update(change.tx, |dnode| dnode.object_type = ObjectType::ZAP_METADATA)?;
    count(change, EXTENSIBLE_DATASET, 1)?;
    Editor::create(&change.mos.object(id)?.changing(change.tx), 0, 0, change.env.random()).map(drop)
}
