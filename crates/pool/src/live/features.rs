//! Turning features on, in a new pool and in one that is in use.
//!
//! ```text
//!   object directory ─┬─ features_for_read, features_for_write ─▶ guid: uses
//!                     ├─ feature_descriptions                  ─▶ guid: text
//!                     └─ feature_enabled_txg                   ─▶ guid: the group that it was enabled in
//! ```
//!
//! A feature that is listed is enabled; what it allows is done from the next block on. Nothing that is
//! there already is changed but error logs, which `head_errlog` has in another form; datasets that are there keep what
//! they do without.

use base::Result;
use dmu::zap::ZapValue;
use dsl::write::feature;
use format::feature::{
    EMBEDDED_DATA, ENABLED_TXG, FEATURES, Feature, FeatureSet, HEAD_ERRLOG, HOLE_BIRTH, LZ4_COMPRESS, SPACEMAP_V2,
};
use format::ids::ObjectId;
use format::object_type::ObjectType;

use super::create::mos_policy;
use super::{LivePool, SyncContext};
use crate::mos::DIRECTORY;

/// The directory's entry for the salt of keyed checksums.
const SALT: &str = "org.illumos:checksum_salt";
/// Features that are in use as soon as a pool has them.
const ACTIVE_FROM_THE_START: [&str; 5] = [LZ4_COMPRESS, HOLE_BIRTH, EMBEDDED_DATA, SPACEMAP_V2, HEAD_ERRLOG];
/// Of these, those without which the MOS cannot be read: labels name them.
const NEEDED_FOR_MOS: [&str; 2] = [HOLE_BIRTH, EMBEDDED_DATA];

impl LivePool {
    /// Enables features, by guid; those that are enabled already stay as they are, and ones that nobody
    /// knows are passed over. What one needs is for the caller to name. Errors: those of writing;
    /// `Suspended`.
    pub fn enable_features(&self, guids: Vec<String>) -> Result<()> {
        self.run(move |context| {
            context.enable_features(&guids)?;
            for feature in FEATURES.iter().filter(|feature| guids.iter().any(|guid| guid == feature.guid)) {
                context.log_event("set", &format!("feature@{}=enabled", feature.name));
            }
            context.pool.renew_policies()?;
            context.write_config()
        })?;
        self.count_all_anew()
    }
}

impl SyncContext<'_> {
    /// Lists features as enabled, and does from now on what they allow.
    pub(super) fn enable_features(&self, guids: &[String]) -> Result<()> {
        let change = &self.change;
        let mut new: Vec<&Feature> = Vec::new();
        for feature in FEATURES.iter().filter(|feature| guids.iter().any(|guid| guid == feature.guid)) {
            if feature::uses(change, feature.guid)?.is_none() {
                new.push(feature);
            }
        }
        // every pool of version 5000 has these
        let [read, write, texts] =
            ["features_for_read", "features_for_write", "feature_descriptions"].map(|name| self.feature_table(name));
        let (read, write, texts) = (read?, write?, texts?);
        if new.is_empty() {
            return Ok(());
        }
        for feature in &new {
            let uses = u64::from(ACTIVE_FROM_THE_START.contains(&feature.guid));
            change.add(if feature.readonly_compatible { write } else { read }, feature.guid, uses)?;
            change.set(texts, feature.guid, &ZapValue::of_text(feature.name))?;
        }
        if feature::uses(change, ENABLED_TXG)?.is_some() {
            let since = self.feature_table("feature_enabled_txg")?;
            let dated = || new.iter().filter(|feature| feature.guid != ENABLED_TXG);
            dated().try_for_each(|feature| change.add(since, feature.guid, change.tx.txg().get()))?;
            feature::count(change, ENABLED_TXG, dated().count() as i64)?;
        }
        self.make_salt()?;
        if new.iter().any(|feature| feature.guid == HEAD_ERRLOG) {
            self.split_error_logs()?;
        }
        self.take_up(&new)
    }

    /// Labels name a feature, without which the MOS cannot be read, as long as it is active.
    pub(super) fn name_for_read(&self, guid: &str) -> Result<()> {
        let is_active = feature::uses(&self.change, guid)?.is_some_and(|uses| uses > 0);
        let mut config = self.pool.config();
        config.features_for_read.retain(|named| named != guid);
        if is_active {
            config.features_for_read.push(guid.to_owned());
        }
        Ok(())
    }

    /// A table of features, which is made if it is not there.
    fn feature_table(&self, name: &str) -> Result<ObjectId> {
        match self.change.object_id(DIRECTORY, name)? {
            Some(table) => Ok(table),
            None => {
                let table = self.change.create_table(ObjectType::ZAP_METADATA)?;
                self.change.add(DIRECTORY, name, table.get())?;
                Ok(table)
            }
        }
    }

    /// Draws the salt of keyed checksums, if there is none.
    pub(super) fn make_salt(&self) -> Result<()> {
        let change = &self.change;
        if crate::mos::checksum_salt(change.mos)?.is_some() {
            return Ok(());
        }
        let salt: Vec<u8> = (0..4).flat_map(|_| change.env.random().to_le_bytes()).collect();
        change.set(DIRECTORY, SALT, &ZapValue::of_bytes(&salt))?;
        change.mos.cache().zio().set_salt(*salt.first_chunk().expect("32 bytes"));
        Ok(())
    }

    /// Writes blocks as features allow that have just been enabled.
    fn take_up(&self, new: &[&Feature]) -> Result<()> {
        let mut config = self.pool.config();
        config.enabled = config.enabled.and(FeatureSet::of(|feature| new.contains(&feature)));
        for guid in NEEDED_FOR_MOS {
            if new.iter().any(|feature| feature.guid == guid) && !config.features_for_read.iter().any(|had| had == guid)
            {
                config.features_for_read.push(guid.to_owned());
            }
        }
        self.change.mos.set_policy(mos_policy(config.enabled))
    }
}
