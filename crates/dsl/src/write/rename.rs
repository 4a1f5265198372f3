//! Giving a file system or volume another name, or another parent.
//!
//! What it uses, or what is reserved for it if that is more, moves from the columns of the old parent to those of
//! the new one. Datasets below only change in name, which is told by nothing but the way to them.

use base::tunables::ZFS_MAX_DATASET_NESTING;
use base::{Error, Kind, Result};
use format::ids::DirId;

use super::space::{Delta, UsedColumn};
use super::{Change, counts, space};
use crate::name::{LEN_MAX, NameKinds, check_moved_name, level, refuse_internal};
use crate::property::DatasetKind;
use crate::{Dir, Dsl};

/// Renames the file system or volume `old`, with all below it. `dsl` is that of the MOS that is being changed.
///
/// Errors: `NotFound`, `Exists`, `Invalid` for what is no new place for it, those of [`check_moved_name`],
/// `Quota` if one of a new parent does not allow it, `Encrypted` if a key would have to go along.
pub fn rename_dataset(change: &Change<'_>, dsl: &Dsl, old: &str, new: &str) -> Result<()> {
    let invalid = |what: &'static str| Err(Error::new(Kind::Invalid, what));
    check_moved_name(new, NameKinds::HEADS)?;
    refuse_internal(old)?;
    let dir = dsl.find_dir(old)?;
    let Some((above, own_name)) = new.rsplit_once('/') else {
        return invalid("missing dataset name");
    };
    if dir.phys.parent.is_none() {
        return invalid("operation does not apply to pools");
    }
    if new.split('/').next() != old.split('/').next() {
        return invalid("datasets must be within same pool");
    }
    if new.strip_prefix(old).is_some_and(|rest| rest.starts_with('/')) {
        return invalid("New dataset name cannot be a descendant of current dataset name");
    }
    let parent = match dsl.subject(above) {
        Err(e) if e.kind() == Kind::NotFound => return Err(Error::new(Kind::NotFound, "parent does not exist")),
        parent => parent?,
    };
    if parent.kind() != DatasetKind::FileSystem {
        return invalid("parent is not a filesystem");
    }
    if change.number(parent.dir().phys.child_zap, own_name)?.is_some() {
        return Err(Error::new(Kind::Exists, "dataset already exists"));
    }
    check_names_below(dsl, &dir, (old, new), change.env.tunable(ZFS_MAX_DATASET_NESTING))?;
    let old_parent = dir.phys.parent;
    if parent.dir().id != old_parent {
        dsl.check_key_stays(&dir, parent.dir())?;
        check_quotas(change, &dir, parent.dir().id)?;
        move_accounts(change, &dir, parent.dir().id)?;
    }
    let old_name = old.rsplit_once('/').map_or(old, |(_, name)| name);
    change.remove(change.dir(old_parent)?.child_zap, old_name)?;
    change.update_dir(dir.id, |phys| phys.parent = parent.dir().id)?;
    change.add(change.dir(parent.dir().id)?.child_zap, own_name, dir.id.get())
}

fn move_accounts(change: &Change<'_>, dir: &Dir, to: DirId) -> Result<()> {
    let phys = &dir.phys;
    let below = counts::below(change, dir.id)?;
    let (file_systems, snapshots) = (below.file_systems.saturating_add(1), below.snapshots);
    let own = Delta {
        used: phys.used_bytes as i64,
        compressed: phys.compressed_bytes as i64,
        uncompressed: phys.uncompressed_bytes as i64,
    };
    let rest = Delta::used(phys.reserved.saturating_sub(phys.used_bytes) as i64);
    space::charge(change, phys.parent, UsedColumn::Children, own.negative())?;
    space::charge(change, phys.parent, UsedColumn::ChildReservations, rest.negative())?;
    space::charge(change, to, UsedColumn::Children, own)?;
    space::charge(change, to, UsedColumn::ChildReservations, rest)?;
    counts::adjust(change, phys.parent, (file_systems as i64).wrapping_neg(), (snapshots as i64).wrapping_neg())?;
    counts::adjust(change, to, file_systems as i64, snapshots as i64)
}

/// Quotas of the directories that come to be above, and were not.
fn check_quotas(change: &Change<'_>, dir: &Dir, to: DirId) -> Result<()> {
    let bytes = dir.phys.used_bytes.max(dir.phys.reserved);
    let before = change.path_up(dir.phys.parent)?;
    for above in change.path_up(to)?.into_iter().filter(|above| !before.contains(above)) {
        let phys = change.dir(above)?;
        if phys.quota != 0 && phys.used_bytes.saturating_add(bytes) > phys.quota {
            return Err(Error::new(Kind::Quota, "disk quota exceeded"));
        }
    }
    Ok(())
}

/// Whether its name and all below are still short enough, and not too deep if they become deeper.
fn check_names_below(dsl: &Dsl, dir: &Dir, (old, new): (&str, &str), nesting_max: u64) -> Result<()> {
    let deeper = level(new).saturating_sub(level(old));
    if new.len() <= old.len() && deeper == 0 {
        return Ok(());
    }
    let is_too_long = |name: &str| name.len() - old.len() + new.len() > LEN_MAX;
    for below in dsl.walk_from(dir.clone())? {
        let is_too_deep = deeper > 0 && (level(&below.name) + deeper) as u64 >= nesting_max;
        let mut snapshots = dsl.snapshots(&dsl.head(&below)?)?.into_iter();
        if is_too_deep || is_too_long(&below.name) || snapshots.any(|snapshot| is_too_long(&snapshot.name)) {
            return Err(Error::new(Kind::TooLong, "name is too long"));
        }
    }
    Ok(())
}
