//! Leaves of a pool that is in use: taken off, brought back, and watched.
//!
//! ```text
//!   offline, fault ──▶ not used, if the others have everything ──▶ configuration
//!   online, clear  ──▶ its device, or the one at its path now ── label ──▶ used again, labels
//! ```
//!
//! A leaf that comes back is not trusted with what it has missed, until a resilver has given it that.

mod grow;

use base::{Error, Kind, Result};
use format::ids::{Guid, VdevNumber};
use vdev::{Aux, Health, LeafVdev, OfflineReason, VdevId, VdevState};
use zio::alloc::Serving;

use super::vdevs::no_such_device;
use super::{DeviceOpener, LivePool};

/// How often groups are let go on by one command, while devices come back.
const RESUMES_MAX: usize = 4;

impl LivePool {
    /// Clears the error counts of a vdev and all below it, or of all, brings leaves back that have failed, and
    /// lets the pool go on if it is suspended. Leaves that are offline stay so. Errors: `NotFound`; `Io` if the
    /// pool is suspended again; `Suspended` if it is stopped; `Elsewhere` if another host has it by now.
    pub fn clear(&self, vdev: Option<Guid>, open: DeviceOpener<'_>) -> Result<()> {
        let tree = self.tree();
        let caches = self.cache().l2arc().reports();
        caches.iter().filter(|cache| vdev.is_none_or(|guid| guid == cache.guid)).for_each(|cache| {
            self.renew_cache(cache.guid, open);
        });
        let id = match vdev {
            Some(guid) if caches.iter().any(|cache| cache.guid == guid) => return Ok(()),
            None => tree.root().id(),
            Some(guid) => tree.iter().find(|vdev| vdev.guid() == guid).ok_or_else(no_such_device)?.id(),
        };
        tree.clear_errors(id);
        // what is not used then is not used for a reason
        let changed = match self.suspension().is_suspended() {
            true => self.open_anew(open),
            false => self.bring_all_back(id, open),
        };
        if changed {
            // nobody waits for it: devices may fail again
            self.run_later(|context| context.write_config());
        }
        self.notify("vdev_clear", vdev.map(|_| tree.vdev(id)));
        self.multihost().take_back()?;
        self.resume(open)?;
        self.wake_jobs();
        if self.needs_resilver() {
            // it has begun when this returns, unless devices fail again
            return self.sync_now().or_else(|error| if error.kind() == Kind::Suspended { Ok(()) } else { Err(error) });
        }
        Ok(())
    }

    /// Lets suspended groups go on. A request that an old descriptor has under way may fail only then, and its leaf is taken
    /// for dead though the device is back: so that is looked at again. Errors: as of [`dmu::Txgs::resume`].
    fn resume(&self, open: DeviceOpener<'_>) -> Result<()> {
        let mut resumed = self.txgs().resume();
        for _ in 1..RESUMES_MAX {
            if !resumed.as_ref().is_err_and(|error| error.kind() == Kind::Io) || !self.open_anew(open) {
                break;
            }
            resumed = self.txgs().resume();
        }
        resumed
    }

    /// Uses leaves below a vdev again that are faulted or away. Whether any is in another state now.
    fn bring_all_back(&self, id: VdevId, open: DeviceOpener<'_>) -> bool {
        let (mut changed, pool_guid) = (false, self.config().guid);
        for leaf in self.tree().leaves_of(id) {
            let health = leaf.state().health();
            if matches!(health.state, VdevState::Healthy | VdevState::Offline) {
                continue;
            }
            self.leaf_watch().bring_back(leaf, pool_guid, open);
            self.expect_spare_home(leaf);
            changed |= leaf.state().health() != health;
        }
        changed
    }

    /// Uses a leaf again that was offline, faulted or away, and all of it, however large it is by now, if it is to
    /// `expand`, or that happens by itself. Its state is then returned: it may still not be there. Errors: `NotFound`,
    /// `Suspended`, those of writing.
    pub fn online(&self, guid: Guid, expand: bool, open: DeviceOpener<'_>) -> Result<Health> {
        let health = self.bring_online(guid, open)?;
        if health.is_readable() && (expand || self.leaf_watch().grows_by_itself()) && self.cache_config(guid).is_none()
        {
            let _alone = self.change_vdevs_alone();
            self.grow(guid)?;
        }
        Ok(health)
    }

    fn bring_online(&self, guid: Guid, open: DeviceOpener<'_>) -> Result<Health> {
        let _alone = self.change_vdevs_alone();
        if let Some(config) = self.cache_config(guid) {
            return self.online_cache(&config, open);
        }
        let leaf = self.tree().leaf(guid).ok_or_else(no_such_device)?;
        self.suspension().check_running()?;
        let pool_guid = self.config().guid;
        let health = leaf.state().health();
        if health.state == VdevState::Healthy && self.leaf_watch().look_again(leaf, pool_guid, open) {
            self.expect_spare_home(leaf);
            return Ok(health);
        }
        // a device that is back lacks nothing of a log that is nowhere
        let log = self.empty_if_log(leaf)?;
        self.leaf_watch().bring_back(leaf, pool_guid, open);
        self.expect_spare_home(leaf);
        self.scan().lock().given_up.remove(&guid);
        self.run(|context| context.write_config())?;
        self.log_again(log)?;
        self.notify("vdev_online", Some(leaf.vdev()));
        Ok(leaf.state().health())
    }

    /// Lets nothing be on the vdev for logs that a leaf belongs to, if it does; its number.
    fn empty_if_log(&self, leaf: LeafVdev<'_>) -> Result<Option<VdevNumber>> {
        let top = self.tree().top_of(leaf.vdev());
        let log = top.is_log().then_some(top.number());
        log.map_or(Ok(()), |top| self.empty_log_vdev(top))?;
        Ok(log)
    }

    /// A vdev for logs that was emptied takes logs again, if it works.
    fn log_again(&self, top: Option<VdevNumber>) -> Result<()> {
        let allocator = self.cache().zio().allocator()?;
        top.into_iter().for_each(|top| allocator.set_serving(top, Serving::Open));
        Ok(())
    }

    /// Does not use a leaf any more, until it is online again, or if that is `temporary`, until the pool is
    /// imported. A log goes elsewhere. Errors: `NotFound`, `Suspended`; `Busy` if it has something that no other leaf
    /// has; but one that is to be faulted is degraded then.
    pub fn take_off(&self, guid: Guid, how: OfflineReason, temporary: bool) -> Result<()> {
        let _alone = self.change_vdevs_alone();
        if self.cache_config(guid).is_some() {
            return self.take_cache_off(guid, how, temporary);
        }
        let leaf = self.tree().leaf(guid).ok_or_else(no_such_device)?;
        self.suspension().check_running()?;
        let log = self.empty_if_log(leaf)?;
        match (how, log.is_some() || self.tree().can_do_without(leaf)) {
            (OfflineReason::Offline, false) => return Err(Error::new(Kind::Busy, "no valid replicas")),
            (OfflineReason::Faulted, false) => {
                leaf.state().put_online();
                leaf.state().set_health(Health::new(VdevState::Degraded, Aux::External));
            }
            (_, true) => leaf.state().take_offline(how, temporary),
        }
        let now = leaf.state().health().name();
        tracing::info!(pool = self.name(), vdev = leaf.name(), "{now} by the administrator");
        let done = self.run(move |context| {
            if how == OfflineReason::Faulted {
                context.cancel_sweeps(guid)?;
            }
            context.write_config()
        });
        self.log_again(log)?;
        done
    }

    /// Whether it is suspended, and if so, whether operations that change something wait.
    pub fn suspended(&self) -> Option<bool> {
        self.suspension().suspended()
    }

    /// Whether it is suspended because another host may have it.
    pub fn is_lost(&self) -> bool {
        self.suspended().is_some() && self.multihost().lost().is_some()
    }

    /// Waits until changes can be made. Errors: `Suspended` if operations that make some are not to wait.
    pub fn wait_resumed(&self) -> Result<()> {
        self.txgs().wait_resumed()
    }

    /// `f` is called with the path of each leaf that leaves the pool because its replacement has everything: its device
    /// is nobody's any more.
    pub fn on_leaf_gone(&self, f: impl Fn(&str) + Send + Sync + 'static) {
        self.leaf_watch().on_gone(Box::new(f));
    }

    /// Looks at the errors of all leaves, at those that are being replaced, and at spares, and draws the consequences.
    pub fn diagnose(&self) {
        self.leaf_watch().diagnose();
        self.look_for_slow_leaves();
        self.notify_of_leaves();
        self.end_replacements();
        self.look_after_spares();
        self.look_for_devices();
        self.look_for_growth();
    }
}
