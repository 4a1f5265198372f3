//! Bringing a pool to a later version.
//!
//! What the new version has, the pool has from that group on; what is there already stays as it is, until it is changed.

use base::{Error, Kind, Result};
use dsl::property::needs;
use format::feature::VERSION;

use super::create::mos_policy;
use super::{LivePool, SyncContext};

impl LivePool {
    /// Brings the pool to a version, of 1 to 28, or 5000, with which it gets features: none is enabled by that. Errors:
    /// `Invalid` for an earlier version; those of writing, `Suspended`.
    pub fn upgrade(&self, version: u64) -> Result<()> {
        self.run(move |context| context.upgrade(version))?;
        self.renew_policies()?;
        self.count_all_anew()
    }

    /// Whether a file system may come to a version. Errors: `Unsupported` if the pool has to come first, `Invalid` if it
    /// is not of an earlier one.
    pub fn check_files_version(&self, before: u64, version: u64) -> Result<()> {
        if version < before {
            return Err(Error::new(Kind::Invalid, format!("Can not downgrade; already at version {before}")));
        }
        if needs::pool_version_for_files(version) > self.config().version {
            return Err(Error::new(Kind::Unsupported, "pool must be upgraded to set this property or value"));
        }
        Ok(())
    }

    /// Version of the pool.
    pub fn version(&self) -> u64 {
        self.config().version
    }
}

impl SyncContext<'_> {
    fn upgrade(&self, version: u64) -> Result<()> {
        let (before, enabled) = {
            let config = self.pool.config();
            (config.version, config.enabled)
        };
        if version == before {
            return Ok(());
        }
        if version < before || !(1..=28).contains(&version) && version != VERSION {
            let what = format!("the pool is of version {before}, and cannot become one of version {version}");
            return Err(Error::new(Kind::Invalid, what));
        }
        let enabled = enabled.in_version(version);
        self.change.mos.set_policy(mos_policy(enabled))?;
        dsl::write::upgrade_datasets(&self.change, &self.dsl()?, before)?;
        if version == VERSION {
            self.enable_features(&[])?;
            self.make_salt()?;
        }
        {
            let mut config = self.pool.config();
            (config.version, config.enabled) = (version, enabled);
        }
        self.log_event("upgrade", &format!("version {before} to {version}"));
        self.write_config()
    }
}
