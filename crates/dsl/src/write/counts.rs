//! How many file systems, volumes and snapshots there are below a directory, which the properties `filesystem_limit` and
//! `snapshot_limit` are about (feature filesystem_limits).
//!
//! ```text
//!   directory, as a table:  com.joyent:filesystem_count    all below it
//!                           com.joyent:snapshot_count      its own, and of all below it
//! ```
//!
//! A directory is counted, with all below it, from when one of the limits is first set there; from then on the feature is
//! active, and each new directory is. A limit stops only users that may not change it (zfsprops(7)): with OpenZFS those
//! to whom `zfs allow` gave some rights. All that change a pool here are its administrators.

use base::{Error, Result};
use dmu::zap::{Zap, ZapValue};
use format::feature::FILESYSTEM_LIMITS;
use format::ids::{DirId, ObjectId};

use super::{Change, feature};
use crate::property::rules::Given;
use crate::{Property, PropertyValue};

const FILE_SYSTEM_COUNT: &str = "com.joyent:filesystem_count";
const SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";

/// What there is below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountsBelow {
    /// File systems and volumes.
    pub(super) file_systems: u64,
    /// Snapshots, its own among them.
    pub(super) snapshots: u64,
}

/// Where the pool counts file systems, one more for all above, and none below the new one.
pub(super) fn count_new(change: &Change<'_>, parent: DirId, dir: DirId) -> Result<()> {
    adjust(change, parent, 1, 0)?;
    if are_kept(change)? {
        feature::zapify(change, dir.object())?;
        store(change, dir, CountsBelow::default())?;
    }
    Ok(())
}

/// Changes the counts of file systems and snapshots in a directory and all above, where they are kept.
pub(super) fn adjust(change: &Change<'_>, dir: DirId, file_systems: i64, snapshots: i64) -> Result<()> {
    for dir in change.path_up(dir)? {
        if !feature::is_zapified(change, dir.object())? {
            continue;
        }
        for (name, delta) in [(FILE_SYSTEM_COUNT, file_systems), (SNAPSHOT_COUNT, snapshots)] {
            if let Some(count) = change.number(dir.object(), name)? {
                change.set(dir.object(), name, &ZapValue::one(count.saturating_add_signed(delta)))?;
            }
        }
    }
    Ok(())
}

/// What there is below a directory that gets another parent: it is counted from now on, if anything of the pool is.
pub(super) fn below(change: &Change<'_>, dir: DirId) -> Result<CountsBelow> {
    if are_kept(change)? { begin(change, dir, 0) } else { Ok(CountsBelow::default()) }
}

/// Begins to count if a limit is given to a directory.
pub(super) fn begin_if_limited(change: &Change<'_>, dir: DirId, given: &Given) -> Result<()> {
    let is_limit = matches!(given.property, Some(Property::FilesystemLimit | Property::SnapshotLimit));
    if !is_limit || given.value == PropertyValue::Number(u64::MAX) {
        return Ok(());
    }
    if !are_kept(change)? {
        feature::count(change, FILESYSTEM_LIMITS, 1)?;
    }
    begin(change, dir, 0).map(drop)
}

/// Whether anything in the pool is counted.
fn are_kept(change: &Change<'_>) -> Result<bool> {
    Ok(feature::uses(change, FILESYSTEM_LIMITS)?.is_some_and(|count| count > 0))
}

fn begin(change: &Change<'_>, dir: DirId, depth: usize) -> Result<CountsBelow> {
    if depth > crate::dir::DEPTH_MAX {
        return Err(Error::corrupt("dataset tree is no tree"));
    }
    feature::zapify(change, dir.object())?;
    if let Some(file_systems) = change.number(dir.object(), FILE_SYSTEM_COUNT)? {
        return Ok(CountsBelow { file_systems, snapshots: change.number(dir.object(), SNAPSHOT_COUNT)?.unwrap_or(0) });
    }
    let phys = change.dir(dir)?;
    let mut counts = CountsBelow::default();
    for (name, child) in names_in(change, phys.child_zap)? {
        // those are the pool's own
        if !name.starts_with('$') {
            let below = begin(change, DirId::new(child), depth + 1)?;
            counts.file_systems = counts.file_systems.saturating_add(below.file_systems).saturating_add(1);
            counts.snapshots = counts.snapshots.saturating_add(below.snapshots);
        }
    }
    if phys.head_dataset.is_some() {
        let snapshots = names_in(change, change.dataset(phys.head_dataset)?.snapnames_zap)?;
        let own = snapshots.iter().filter(|(name, _)| !name.starts_with('%')).count();
        counts.snapshots = counts.snapshots.saturating_add(own as u64);
    }
    store(change, dir, counts)?;
    Ok(counts)
}

fn store(change: &Change<'_>, dir: DirId, counts: CountsBelow) -> Result<()> {
    change.set(dir.object(), FILE_SYSTEM_COUNT, &ZapValue::one(counts.file_systems))?;
    change.set(dir.object(), SNAPSHOT_COUNT, &ZapValue::one(counts.snapshots))
}

/// The names and objects of a table; none if there is no table.
fn names_in(change: &Change<'_>, table: ObjectId) -> Result<Vec<(String, u64)>> {
    if table.is_none() {
        return Ok(Vec::new());
    }
    let entries = Zap::open(change.mos.object(table)?)?.entries()?;
    let object = |value: &ZapValue| value.first_u64().ok_or_else(|| Error::corrupt("a name leads to no object"));
    entries.iter().map(|entry| Ok((entry.name.to_string(), object(&entry.value)?))).collect()
}
