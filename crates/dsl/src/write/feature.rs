//! Features that the dataset layer turns on and off: how many things there are that use one.
//!
//! A feature that has an entry in one of the two tables of the object directory is enabled; its number counts
//! the things.

use base::Result;
use dmu::zap::{Zap, ZapValue};
use format::feature::{BOOKMARKS, FeatureSet};

use super::{Change, DIRECTORY};

/// The tables, by their names in the object directory.
const TABLES: [&str; 2] = ["features_for_write", "features_for_read"];

impl Change<'_> {
    /// How many things use a feature; `None` if it is not enabled.
    pub fn feature(&self, guid: &str) -> Result<Option<u64>> {
        Ok(self.find_feature(guid)?.map(|(_, count)| count))
    }

    /// The features that are enabled.
    pub(super) fn features(&self) -> Result<FeatureSet> {
        let mut guids = Vec::new();
        for name in TABLES {
            if let Some(table) = self.number(DIRECTORY, name)? {
                let entries = Zap::open(self.mos.object(table)?)?.entries()?;
                guids.extend(entries.into_iter().map(|entry| entry.name.to_string()));
            }
        }
        Ok(FeatureSet::of(|feature| guids.iter().any(|guid| guid == feature.guid)))
    }

    /// Whether a feature is enabled.
    pub(super) fn has_feature(&self, guid: &str) -> Result<bool> {
        Ok(self.feature(guid)?.is_some())
    }

    /// Adds `delta` to how many things use a feature, and returns the sum. One that is not enabled is left
    /// alone, and counts 0.
    pub fn count_feature(&self, guid: &str, delta: i64) -> Result<u64> {
        let Some((table, count)) = self.find_feature(guid)? else { return Ok(0) };
        let count = count.saturating_add_signed(delta);
        self.set(table, guid, &ZapValue::one(count))?;
        Ok(count)
    }

    /// Notes that a dataset uses a feature, if that is not noted yet: it has blocks that only versions with
    /// the feature can read.
    pub fn use_feature(&self, dataset: u64, guid: &str) -> Result<()> {
        self.zapify(dataset)?;
        if self.number(dataset, guid)?.is_some() {
            return Ok(());
        }
        self.add(dataset, guid, 0)?;
        self.count_feature(guid, 1).map(drop)
    }

    /// Notes that a dataset uses no feature any more.
    pub(super) fn leave_features(&self, dataset: u64) -> Result<()> {
        self.features_of(dataset)?.iter().try_for_each(|(guid, _)| self.count_feature(guid, -1).map(drop))
    }

    /// As [`Change::leave_features`], of a dataset that stays.
    pub(super) fn drop_features(&self, dataset: u64) -> Result<()> {
        for (guid, _) in self.features_of(dataset)? {
            self.count_feature(&guid, -1)?;
            self.remove(dataset, &guid)?;
        }
        Ok(())
    }

    /// Notes that a dataset uses all features that another one does, with what is known of each.
    pub(super) fn copy_features(&self, from: u64, to: u64) -> Result<()> {
        for (guid, value) in self.features_of(from)? {
            self.zapify(to)?;
            self.set(to, &guid, &value)?;
            self.count_feature(&guid, 1)?;
        }
        Ok(())
    }

    /// The features that a dataset uses, with what is known of each.
    pub(super) fn features_of(&self, dataset: u64) -> Result<Vec<(String, ZapValue)>> {
        let object = self.mos.object(dataset)?;
        if object.dnode().object_type.0 != 0xc4 {
            return Ok(Vec::new());
        }
        let mut features = Vec::new();
        for entry in Zap::open(object)?.entries()? {
            let guid = entry.name.to_string();
            // that entry is the table of the dataset's bookmarks, which is called as the feature is
            if guid != BOOKMARKS && self.has_feature(&guid)? {
                features.push((guid, entry.value));
            }
        }
        Ok(features)
    }

    fn find_feature(&self, guid: &str) -> Result<Option<(u64, u64)>> {
        for name in TABLES {
            let Some(table) = self.number(DIRECTORY, name)? else { continue };
            if let Some(count) = self.number(table, guid)? {
                return Ok(Some((table, count)));
            }
        }
        Ok(None)
    }
}
