//! A pool whose writes wait for a moment.

use base::Result;
use pool::RefusedChanges;

use crate::exports::Exports;
use crate::live::ServedPool;
use crate::mounts::Mounts;
use crate::verbs::{SnapshotChange, StillPool};
use crate::volume_exports::VolumeExports;

/// A pool, and all by which programs write to it.
pub(super) struct Still<'a> {
    pub(super) pool: &'a ServedPool,
    pub(super) exports: &'a Exports,
    pub(super) mounts: &'a Mounts,
    pub(super) given_out: &'a VolumeExports,
}

impl StillPool for Still<'_> {
    fn prepare(&self) -> Result<()> {
        self.pool.check_running()?;
        self.mounts.send_all_pages();
        self.pool.sync(false)
    }

    fn calm(&self) {
        self.exports.calm_all();
    }

    fn flush(&self) {
        self.exports.flush_all();
    }

    fn park(&self) -> Result<()> {
        self.exports.park_all()
    }

    fn take(&self, change: &SnapshotChange) -> Result<RefusedChanges> {
        self.pool.change_snapshots(change)
    }

    fn go_on(&self) {
        self.exports.go_on_all();
    }

    fn taken(&self, change: &SnapshotChange) {
        self.given_out.changed();
        self.exports.properties_changed_of(&change.datasets().unwrap_or_default());
    }
}
