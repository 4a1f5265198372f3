//! Which features a pool uses, and whether that stands in the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Result, ResultExt};
use dmu::Objset;
use dmu::zap::Zap;
use format::feature::{self, FeatureSet, Support};

use crate::object_directory;

/// The features that a pool lists.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// By guid: number of uses, and whether it is needed for reading.
    listed: BTreeMap<String, (u64, bool)>,
    descriptions: BTreeMap<String, String>,
    /// Version of the pool.
    version: u64,
}

/// As in `feature@NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureState {
    /// Not listed.
    Disabled,
    /// Listed, not in use.
    Enabled,
    /// In use.
    Active,
}

impl Features {
    /// What the pool of that MOS and version lists; nothing, below version 5000.
    pub fn read(mos: &Arc<Objset>, version: u64) -> Result<Features> {
        let directory = object_directory(mos)?;
        let mut features = Features { version, ..Features::default() };
        for (list, for_reading) in [("features_for_write", false), ("features_for_read", true)] {
            let Some(id) = directory.object_id(list)? else { continue };
            for entry in Zap::open(mos.object(id)?)?.entries()? {
                let uses = entry.value.first_u64().unwrap_or(1);
                features.listed.insert(entry.name.to_string(), (uses, for_reading));
            }
        }
        if let Some(id) = directory.object_id("feature_descriptions")? {
            for entry in Zap::open(mos.object(id)?)?.entries()? {
                let text = String::from_utf8_lossy(entry.value.bytes());
                features.descriptions.insert(entry.name.to_string(), text.trim_end_matches('\0').to_owned());
            }
        }
        Ok(features)
    }

    /// The state of a feature by its guid.
    pub fn state(&self, guid: &str) -> FeatureState {
        match self.listed.get(guid) {
            None => FeatureState::Disabled,
            Some((0, _)) => FeatureState::Enabled,
            Some(_) => FeatureState::Active,
        }
    }

    /// How many datasets, vdevs or other things use it.
    pub fn uses(&self, guid: &str) -> u64 {
        self.listed.get(guid).map_or(0, |(uses, _)| *uses)
    }

    /// Those that are enabled, as far as they are known.
    pub fn enabled(&self) -> FeatureSet {
        FeatureSet::of(|feature| self.state(feature.guid) != FeatureState::Disabled).in_version(self.version)
    }

    /// All guids that are listed.
    pub fn guids(&self) -> impl Iterator<Item = &str> {
        self.listed.keys().map(String::as_str)
    }

    /// The active features that forbid reading the pool, each with its description as the pool has it.
    pub fn unreadable(&self) -> Vec<(String, String)> {
        self.active_where(|guid, for_reading| match feature::find(guid) {
            Some(known) => known.support < Support::Read,
            None => for_reading,
        })
    }

    /// The active features that allow reading the pool, but no more, because they are unknown.
    pub fn unwritable(&self) -> Vec<(String, String)> {
        self.active_where(|guid, for_reading| feature::find(guid).is_none() && !for_reading)
    }

    fn active_where(&self, test: impl Fn(&str, bool) -> bool) -> Vec<(String, String)> {
        let active = self.listed.iter().filter(|(guid, (uses, for_reading))| *uses > 0 && test(guid, *for_reading));
        active.map(|(guid, _)| (guid.clone(), self.descriptions.get(guid).cloned().unwrap_or_default())).collect()
    }
}

/// The features that a label says are needed for reading: all there is to go by before the MOS is open.
pub(crate) fn unreadable_by_label(label: &format::nvlist::NvList) -> Vec<String> {
    let Some(listed) = label.opt_list("features_for_read") else { return Vec::new() };
    let unknown =
        listed.iter().filter(|(guid, _)| feature::find(guid).is_none_or(|known| known.support < Support::Read));
    unknown.map(|(guid, _)| guid.to_owned()).collect()
}

/// The ways in which a pool cannot be read, as an error that names each feature.
pub(crate) fn check_readable(features: &Features, pool: &str) -> Result<()> {
    let unreadable = features.unreadable();
    if unreadable.is_empty() {
        return Ok(());
    }
    let mut what = "This pool uses the following feature(s) not supported by this system:".to_owned();
    for (guid, description) in unreadable {
        what.push_str(&match description.as_str() {
            "" => format!("\n\t{guid}"),
            _ => format!("\n\t{guid} ({description})"),
        });
    }
    Err(base::Error::new(base::Kind::Unsupported, what)).in_pool(pool)
}
