//! Devices that are pulled and come back: they are used again, by a command or by themselves.
//!
//! ```text
//!   reopen          each leaf: is its device at its path, and does it answer? ─▶ away, or back
//!   by themselves   a leaf is away ─▶ now and then: is there a device with its label at its path? ─▶ online
//! ```

use std::sync::Arc;

use base::Result;
use device::Device;
use vdev::{LeafVdev, VdevState};

use super::{DeviceOpener, LivePool};

/// Seconds between two looks for devices that are away.
const LOOK_EVERY_S: u64 = 5;

impl LivePool {
    /// Looks at all devices again: those that are gone are used no more, those that are there again are. A resilver that
    /// is under way begins anew, with these, if `restart`. Errors: `Suspended`, those of writing.
    pub fn reopen(&self, restart: bool, open: DeviceOpener<'_>) -> Result<()> {
        self.suspension().check_running()?;
        let pool_guid = self.config().guid;
        let (mut back, mut lost) = (Vec::new(), false);
        for leaf in self.tree().leaves() {
            match leaf.state().health().state {
                VdevState::Healthy | VdevState::Degraded => {
                    lost |= !self.leaf_watch().look_again(leaf, pool_guid, open)
                }
                VdevState::Unavail | VdevState::Removed if self.leaf_watch().is_back(leaf, pool_guid, open) => {
                    back.push(leaf.guid());
                }
                VdevState::Unavail | VdevState::Removed => {}
                VdevState::Faulted | VdevState::Offline => {}
            }
        }
        let was_under_way = !self.scan().lock().covers.is_empty();
        let mut is_back = false;
        for guid in back {
            is_back |= self.online(guid, false, open)?.is_readable();
        }
        if restart && was_under_way && is_back {
            self.resilver_anew()?;
        }
        if lost {
            self.run(|context| context.write_config())?;
        }
        Ok(())
    }

    /// From now on devices that come back are used by themselves; `open` opens one that has a label, for writing, for
    /// nobody else's use. Once only.
    pub fn let_devices_return(&self, open: impl Fn(&str) -> Result<Arc<dyn Device>> + Send + Sync + 'static) {
        self.return_watch().begin(Box::new(open));
    }

    /// Begins to look for devices that are away, if there are some, on another thread.
    pub(super) fn look_for_devices(&self) {
        let now_s = self.env().now_s();
        let is_due = || self.return_watch().is_due(now_s, LOOK_EVERY_S);
        if self.away().next().is_none() || self.suspended().is_some() || !is_due() || !self.return_watch().begin_work()
        {
            return;
        }
        let pool = self.weak();
        let work = move || {
            if let Some(pool) = pool.upgrade() {
                pool.use_returned();
                pool.return_watch().end_work();
            }
        };
        if !self.env().spawn("returns", work) {
            self.return_watch().end_work();
        }
    }

    fn away(&self) -> impl Iterator<Item = LeafVdev<'_>> {
        self.tree()
            .leaves()
            .filter(|leaf| matches!(leaf.state().health().state, VdevState::Unavail | VdevState::Removed))
    }

    /// Uses devices again that are back.
    fn use_returned(&self) {
        let pool_guid = self.config().guid;
        let open = |path: &str| self.return_watch().open(path);
        let away: Vec<LeafVdev<'_>> = self.away().collect();
        for leaf in away.into_iter().filter(|leaf| self.leaf_watch().is_back(*leaf, pool_guid, &open)) {
            if let Err(error) = self.online(leaf.guid(), false, &open) {
                tracing::warn!(pool = self.name(), vdev = leaf.name(), "it is back, and not used: {error}");
            }
        }
    }
}
