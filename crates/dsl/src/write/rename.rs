//! Giving a file system or volume another name, or another parent.
//!
//! What it uses, or what is reserved for it if that is more, moves from the columns of the old parent to those of
//! the new one. Datasets below only change in name, which is told by nothing but the way to them.

use base::{Error, Kind, Result};

use super::create::refuse_encrypted;
use super::name::{LEN_MAX, NESTING_MAX, level, refuse_internal};
use super::space::{Delta, UsedColumn};
use super::{Change, check_name};
use crate::property::DatasetKind;
use crate::{Dir, Dsl};

impl Change<'_> {
    /// Renames the file system or volume `old`, with all below it. `dsl` is that of the MOS that is being changed.
    ///
    /// Errors: `NotFound`, `Exists`, `Invalid` for what is no new place for it, those of [`check_name`],
    /// `Quota` if one of a new parent does not allow it, `Encrypted` if a key would have to go along.
    pub fn rename(&self, dsl: &Dsl, old: &str, new: &str) -> Result<()> {
        let invalid = |what: &'static str| Err(Error::new(Kind::Invalid, what));
        check_name(new)?;
        refuse_internal(old)?;
        let dir = dsl.find_dir(old)?;
        let Some((above, own_name)) = new.rsplit_once('/') else {
            return invalid("missing dataset name");
        };
        if dir.phys.parent == 0 {
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
        if self.number(parent.dir().phys.child_zap, own_name)?.is_some() {
            return Err(Error::new(Kind::Exists, "dataset already exists"));
        }
        check_names_below(dsl, &dir, old, new)?;
        let old_parent = dir.phys.parent;
        if parent.dir().id != old_parent {
            refuse_encrypted(dsl, &dir)?;
            refuse_encrypted(dsl, parent.dir())?;
            self.check_quotas(&dir, parent.dir().id)?;
            self.move_accounts(&dir, parent.dir().id)?;
        }
        let old_name = old.rsplit_once('/').map_or(old, |(_, name)| name);
        self.remove(self.dir(old_parent)?.child_zap, old_name)?;
        self.update_dir(dir.id, |phys| phys.parent = parent.dir().id)?;
        self.add(self.dir(parent.dir().id)?.child_zap, own_name, dir.id)
    }

    fn move_accounts(&self, dir: &Dir, to: u64) -> Result<()> {
        let phys = &dir.phys;
        let below = self.counts_below(dir.id)?;
        let (file_systems, snapshots) = (below.file_systems.saturating_add(1), below.snapshots);
        let own = Delta {
            used: phys.used_bytes as i64,
            compressed: phys.compressed_bytes as i64,
            uncompressed: phys.uncompressed_bytes as i64,
        };
        let rest = Delta::used(phys.reserved.saturating_sub(phys.used_bytes) as i64);
        self.charge(phys.parent, UsedColumn::Children, own.negative())?;
        self.charge(phys.parent, UsedColumn::ChildReservations, rest.negative())?;
        self.charge(to, UsedColumn::Children, own)?;
        self.charge(to, UsedColumn::ChildReservations, rest)?;
        self.adjust_counts(phys.parent, (file_systems as i64).wrapping_neg(), (snapshots as i64).wrapping_neg())?;
        self.adjust_counts(to, file_systems as i64, snapshots as i64)
    }

    /// Quotas of the directories that come to be above, and were not.
    fn check_quotas(&self, dir: &Dir, to: u64) -> Result<()> {
        let bytes = dir.phys.used_bytes.max(dir.phys.reserved);
        let before = self.path_up(dir.phys.parent)?;
        for above in self.path_up(to)?.into_iter().filter(|above| !before.contains(above)) {
            let phys = self.dir(above)?;
            if phys.quota != 0 && phys.used_bytes.saturating_add(bytes) > phys.quota {
                return Err(Error::new(Kind::Quota, "disk quota exceeded"));
            }
        }
        Ok(())
    }

    /// A directory and all above it.
    pub(super) fn path_up(&self, dir: u64) -> Result<Vec<u64>> {
        let mut path = vec![dir];
        let mut at = dir;
        while path.len() <= crate::dir::DEPTH_MAX + 2 {
            at = self.dir(at)?.parent;
            if at == 0 {
                return Ok(path);
            }
            path.push(at);
        }
        Err(Error::corrupt("dataset tree is no tree"))
    }
}

/// Whether all names below are still short enough, and not too deep if they become deeper.
fn check_names_below(dsl: &Dsl, dir: &Dir, old: &str, new: &str) -> Result<()> {
    let deeper = level(new).saturating_sub(level(old));
    if new.len() <= old.len() && deeper == 0 {
        return Ok(());
    }
    let is_too_long = |name: &str| name.len() - old.len() + new.len() > LEN_MAX;
    for below in dsl.walk_from(dir.clone())? {
        let is_too_deep = deeper > 0 && level(&below.name) + deeper >= NESTING_MAX;
        let mut snapshots = dsl.snapshots(&dsl.head(&below)?)?.into_iter();
        if is_too_deep || is_too_long(&below.name) || snapshots.any(|snapshot| is_too_long(&snapshot.name)) {
            return Err(Error::new(Kind::TooLong, "name is too long"));
        }
    }
    Ok(())
}
