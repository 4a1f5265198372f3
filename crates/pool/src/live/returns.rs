//! Devices that are pulled and come back: they are used again, by a command or by themselves.
//!
//! ```text
//!   reopen          each leaf: is its device at its path, and does it answer? ─▶ away, or back
//!   by themselves   a leaf is away ─▶ now and then: is there a device with its label at its path? ─▶ online
//!                                                   is there a device with nothing on it?       ─▶ it is replaced
//!   clear of a suspended pool       each leaf: at its path, elsewhere, or as it was: the newest with its label ─▶ used
//! ```
//!
//! The latter with property `autoreplace`. What has something on it, be it zeros and one byte, is let alone: whether that
//! may go, only people know.

use std::cmp::Reverse;
use std::sync::Arc;

use base::{Error, Kind, Result};
use device::Device;
use vdev::{Aux, Health, LeafVdev, VdevKind, VdevState};

use super::leaf_watch::newest_txg;
use super::{AttachAs, DeviceOpener, LivePool, NewLeaf};

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

    /// Opens the devices of a pool that is suspended anew, whatever is known of its leaves: the descriptor of a disk that
    /// was pulled is dead, and another device may be at its path. Leaves that are offline stay so. Whether any leaf is in
    /// another state now.
    pub(super) fn open_anew(&self, open: DeviceOpener<'_>) -> bool {
        let pool_guid = self.config().guid;
        let (watch, tree, mut changed) = (self.leaf_watch(), self.tree(), false);
        let mut others = Vec::new();
        for leaf in tree.leaves() {
            let before = leaf.state().health();
            if before.state == VdevState::Offline {
                continue;
            }
            match watch.look_anew(leaf, pool_guid, open) {
                Err(error) => watch.refuse(leaf, &error),
                Ok(found) if !leaf.state().is_on(&found.device) => {
                    leaf.state().set_health(Health::new(VdevState::Unavail, Aux::OpenFailed));
                    others.push((leaf, found));
                }
                Ok(_) if before.state == VdevState::Healthy => {}
                Ok(found) => watch.take(leaf, found),
            }
            leaf.state().put_online();
            self.expect_spare_home(leaf);
            changed |= leaf.state().health() != before;
        }
        // an older copy is of use only if the others have what it lacks
        others.sort_by_key(|(_, found)| Reverse(newest_txg(found)));
        for (leaf, found) in others {
            match newest_txg(&found) >= watch.root_txg() || tree.can_do_without(leaf) {
                true => watch.take(leaf, found),
                false => watch.refuse(leaf, &Error::corrupt("an older copy of the device is there")),
            }
        }
        changed
    }

    /// From now on devices that come back are used by themselves; `open` opens one that has a label, for writing, for
    /// nobody else's use. Once only.
    pub fn let_devices_return(&self, open: impl Fn(&str) -> Result<Arc<dyn Device>> + Send + Sync + 'static) {
        self.return_watch().begin(Box::new(open));
    }

    /// From now on, if property `autoreplace` says so, a device with nothing on it that is at the path of one that is
    /// away takes its place; `open` opens such a one, for writing, for nobody else's use, and says whether it is a file.
    /// Once only. Errors of `open`: `Missing` if there is something on it.
    pub fn let_new_devices_replace(
        &self,
        open: impl Fn(&str) -> Result<(Arc<dyn Device>, bool)> + Send + Sync + 'static,
    ) {
        self.leaf_watch().open_new_with(Box::new(open));
    }

    /// Begins to look for devices that are away, if there are some, on another thread.
    pub(super) fn look_for_devices(&self) {
        let now_s = self.env().now_s();
        let is_due = || self.return_watch().is_due(now_s, LOOK_EVERY_S);
        let is_any_away = || self.away().next().is_some() || !self.pulled_caches().is_empty();
        if self.suspended().is_some() || !is_due() || !is_any_away() || !self.return_watch().begin_work() {
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
        self.pulled_caches().iter().for_each(|config| self.use_returned_cache(config, &open));
        if self.leaf_watch().replaces_by_itself() {
            self.replace_by_new();
        }
    }

    /// Lets new devices take the places of those that are away, and are not being replaced yet.
    fn replace_by_new(&self) {
        let is_replaced =
            |leaf: &LeafVdev<'_>| leaf.parent().is_some_and(|id| self.tree().vdev(id).kind() == VdevKind::Replacing);
        let away: Vec<LeafVdev<'_>> = self.away().filter(|leaf| !leaf.is_spare() && !is_replaced(leaf)).collect();
        for leaf in away {
            let path = leaf.name();
            let replace = || {
                let (device, is_file) = self.leaf_watch().open_new(path)?;
                let new = NewLeaf { path: path.to_owned(), is_file };
                self.attach(leaf.guid(), &new, AttachAs::Replacement, None, device)
            };
            match replace() {
                Ok(()) => tracing::warn!(pool = self.name(), vdev = path, "a new device takes its place"),
                // there is none, or it has something on it
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Missing) => {}
                Err(error) => {
                    self.leaf_watch().note_refused_new();
                    tracing::warn!(pool = self.name(), vdev = path, "the new device is not used: {error}");
                }
            }
        }
    }
}
