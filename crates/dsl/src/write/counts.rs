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
use format::object_type::ObjectType;

use super::Change;
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

impl Change<'_> {
    /// Where the pool counts file systems, one more for all above, and none below the new one.
    pub(super) fn count_file_systems(&self, parent: u64, dir: u64) -> Result<()> {
        self.adjust_counts(parent, 1, 0)?;
        if self.counts()? {
            self.zapify(dir)?;
            self.store_counts(dir, CountsBelow::default())?;
        }
        Ok(())
    }

    /// Changes the counts of file systems and snapshots in a directory and all above, where they are kept.
    pub(super) fn adjust_counts(&self, dir: u64, file_systems: i64, snapshots: i64) -> Result<()> {
        for dir in self.path_up(dir)? {
            if self.mos.object(dir)?.dnode().object_type != ObjectType::ZAP_METADATA {
                continue;
            }
            for (name, delta) in [(FILE_SYSTEM_COUNT, file_systems), (SNAPSHOT_COUNT, snapshots)] {
                if let Some(count) = self.number(dir, name)? {
                    self.set(dir, name, &ZapValue::one(count.saturating_add_signed(delta)))?;
                }
            }
        }
        Ok(())
    }

    /// What there is below a directory that gets another parent: it is counted from now on, if anything of the pool is.
    pub(super) fn counts_below(&self, dir: u64) -> Result<CountsBelow> {
        if self.counts()? { self.begin_counting(dir, 0) } else { Ok(CountsBelow::default()) }
    }

    /// Begins to count if a limit is given to a directory.
    pub(super) fn count_if_limited(&self, dir: u64, given: &Given) -> Result<()> {
        let is_limit = matches!(given.property, Some(Property::FilesystemLimit | Property::SnapshotLimit));
        if !is_limit || given.value == PropertyValue::Number(u64::MAX) {
            return Ok(());
        }
        if !self.counts()? {
            self.count_feature(FILESYSTEM_LIMITS, 1)?;
        }
        self.begin_counting(dir, 0).map(drop)
    }

    /// Whether anything in the pool is counted.
    fn counts(&self) -> Result<bool> {
        Ok(self.feature(FILESYSTEM_LIMITS)?.is_some_and(|count| count > 0))
    }

    fn begin_counting(&self, dir: u64, depth: usize) -> Result<CountsBelow> {
        if depth > crate::dir::DEPTH_MAX {
            return Err(Error::corrupt("dataset tree is no tree"));
        }
        self.zapify(dir)?;
        if let Some(file_systems) = self.number(dir, FILE_SYSTEM_COUNT)? {
            return Ok(CountsBelow { file_systems, snapshots: self.number(dir, SNAPSHOT_COUNT)?.unwrap_or(0) });
        }
        let phys = self.dir(dir)?;
        let mut counts = CountsBelow::default();
        for (name, child) in self.names_in(phys.child_zap)? {
            // those are the pool's own
            if !name.starts_with('$') {
                let below = self.begin_counting(child, depth + 1)?;
                counts.file_systems += 1 + below.file_systems;
                counts.snapshots += below.snapshots;
            }
        }
        if phys.head_dataset != 0 {
            let snapshots = self.names_in(self.dataset(phys.head_dataset)?.snapnames_zap)?;
            counts.snapshots += snapshots.iter().filter(|(name, _)| !name.starts_with('%')).count() as u64;
        }
        self.store_counts(dir, counts)?;
        Ok(counts)
    }

    fn store_counts(&self, dir: u64, counts: CountsBelow) -> Result<()> {
        self.set(dir, FILE_SYSTEM_COUNT, &ZapValue::one(counts.file_systems))?;
        self.set(dir, SNAPSHOT_COUNT, &ZapValue::one(counts.snapshots))
    }

    /// The names and objects of a table; none if there is no table.
    fn names_in(&self, table: u64) -> Result<Vec<(String, u64)>> {
        if table == 0 {
            return Ok(Vec::new());
        }
        let entries = Zap::open(self.mos.object(table)?)?.entries()?;
        let object = |value: &ZapValue| value.first_u64().ok_or_else(|| Error::corrupt("a name leads to no object"));
        entries.iter().map(|entry| Ok((entry.name.to_string(), object(&entry.value)?))).collect()
    }
}
