//! Leaves of a pool that is in use: taken off, brought back, and watched.
//!
//! ```text
//!   offline, fault ──▶ not used, if the others have everything ──▶ configuration
//!   online, clear  ──▶ its device, or the one at its path now ── label ──▶ used again, labels
//!   errors         ──▶ 10 in 10 minutes ──▶ faulted (reads, writes), degraded (checksums, last good side)
//! ```
//!
//! There is no resilver: a leaf that comes back is not trusted with what it has missed.

use std::sync::Arc;

use base::{Error, Kind, Result};
use device::Device;
use format::uberblock::Uberblock;
use vdev::{Aux, Health, LeafVdev, OfflineReason, State};
use zio::alloc::Serving;

use super::LivePool;
use crate::FoundDevice;

/// Opens the device at a path for writing, for nobody else's use.
pub type DeviceOpener<'a> = &'a dyn Fn(&str) -> Result<Arc<dyn Device>>;

impl LivePool {
    /// Clears the error counts of a vdev and all below it, or of all, brings leaves back that have failed, and
    /// lets the pool go on if it is suspended. Leaves that are offline stay so. Errors: `NotFound`; `Io` if the
    /// pool is suspended again; `Suspended` if it is stopped; `Elsewhere` if another host has it by now.
    pub fn clear(&self, vdev: Option<u64>, open: DeviceOpener<'_>) -> Result<()> {
        let tree = &self.tree;
        let caches = self.cache.l2arc().reports();
        caches.iter().filter(|cache| vdev.is_none_or(|guid| guid == cache.guid)).for_each(|cache| {
            self.cache.l2arc().clear(cache.guid);
        });
        let id = match vdev {
            Some(guid) if caches.iter().any(|cache| cache.guid == guid) => return Ok(()),
            None => tree.root().id(),
            Some(guid) => tree.iter().find(|vdev| vdev.guid() == guid).ok_or_else(no_such_device)?.id(),
        };
        tree.clear_errors(id);
        let mut changed = false;
        for leaf in tree.leaves_of(id) {
            let health = leaf.state().health();
            if matches!(health.state, State::Healthy | State::Offline) {
                continue;
            }
            self.bring_back(leaf, open);
            changed |= leaf.state().health() != health;
        }
        if changed {
            // nobody waits for it: devices may fail again
            self.run_later(|context| context.write_config());
        }
        self.take_back()?;
        self.txgs.resume()
    }

    /// Uses a leaf again that was offline, faulted or away. Its state is then returned: it may still not be there.
    /// Errors: `NotFound`, `Suspended`, those of writing.
    pub fn online(&self, guid: u64, open: DeviceOpener<'_>) -> Result<Health> {
        let _alone = self.changing_vdevs.lock();
        if let Some(config) = self.cache_config(guid) {
            return self.online_cache(&config, open);
        }
        let leaf = self.tree.leaf(guid).ok_or_else(no_such_device)?;
        self.check_running()?;
        let health = leaf.state().health();
        if health.state == State::Healthy {
            return Ok(health);
        }
        // a device that is back lacks nothing of a log that is nowhere
        let log = self.empty_if_log(leaf)?;
        self.bring_back(leaf, open);
        self.run(|context| context.write_config())?;
        self.log_again(log)?;
        Ok(leaf.state().health())
    }

    /// Lets nothing be on the vdev for logs that a leaf belongs to, if it does; its number.
    fn empty_if_log(&self, leaf: LeafVdev<'_>) -> Result<Option<u64>> {
        let top = self.tree.top_of(leaf.vdev());
        let log = top.is_log().then_some(top.number());
        log.map_or(Ok(()), |top| self.empty_log_vdev(top))?;
        Ok(log)
    }

    /// A vdev for logs that was emptied takes logs again, if it works.
    fn log_again(&self, top: Option<u64>) -> Result<()> {
        let allocator = self.cache.zio().allocator()?;
        top.into_iter().for_each(|top| allocator.set_serving(top, Serving::Open));
        Ok(())
    }

    /// Does not use a leaf any more, until it is online again, or if that is `temporary`, until the pool is
    /// imported. A log goes elsewhere. Errors: `NotFound`, `Suspended`; `Busy` if it has something that no other leaf
    /// has; but one that is to be faulted is degraded then.
    pub fn take_off(&self, guid: u64, how: OfflineReason, temporary: bool) -> Result<()> {
        let _alone = self.changing_vdevs.lock();
        if self.cache_config(guid).is_some() {
            return self.take_cache_off(guid, how, temporary);
        }
        let leaf = self.tree.leaf(guid).ok_or_else(no_such_device)?;
        self.check_running()?;
        let log = self.empty_if_log(leaf)?;
        match (how, log.is_some() || self.tree.can_do_without(leaf)) {
            (OfflineReason::Offline, false) => return Err(Error::new(Kind::Busy, "no valid replicas")),
            (OfflineReason::Faulted, false) => {
                leaf.state().put_online();
                leaf.state().set_health(Health::new(State::Degraded, Aux::External));
            }
            (_, true) => leaf.state().take_offline(how, temporary),
        }
        let now = leaf.state().health().name();
        tracing::info!(pool = self.name, vdev = leaf.name(), "{now} by the administrator");
        let done = self.run(|context| context.write_config());
        self.log_again(log)?;
        done
    }

    /// Whether it is suspended, and if so, whether those who want to change something wait.
    pub fn suspended(&self) -> Option<bool> {
        let stopped = self.txgs.stopped().map(|_| false);
        stopped.or_else(|| self.txgs.suspended().map(|suspended| suspended.waits))
    }

    /// Waits until changes can be made. Errors: `Suspended` if those who want to make some are not to wait.
    pub fn wait_resumed(&self) -> Result<()> {
        self.txgs.wait_resumed()
    }

    pub(super) fn check_running(&self) -> Result<()> {
        match self.txgs.suspended() {
            None => Ok(()),
            Some(_) => Err(Error::new(Kind::Suspended, "pool I/O is currently suspended")),
        }
    }

    /// Uses a leaf again that is offline, faulted or away, if its device is there.
    fn bring_back(&self, leaf: LeafVdev<'_>, open: DeviceOpener<'_>) {
        match self.reopen(leaf, open) {
            Ok(()) => tracing::info!(pool = self.name, vdev = leaf.name(), "the device is back"),
            Err(error) => tracing::warn!(pool = self.name, vdev = leaf.name(), "the device is not back: {error}"),
        }
        // what its device is like is known by now
        leaf.state().put_online();
    }

    /// Uses the leaf's device again if it answers, or the one that is at its path now.
    fn reopen(&self, leaf: LeafVdev<'_>, open: DeviceOpener<'_>) -> Result<()> {
        let state = leaf.state();
        let before = state.device().ok_or_else(|| Error::new(Kind::Missing, "it never had a device"));
        let answers = before.and_then(|slot| self.recognize(leaf, slot.now()));
        let found = match answers {
            Ok(found) => found,
            Err(_) => {
                let refuse = |aux| state.set_health(Health::new(State::Unavail, aux));
                let device = open(leaf.name()).inspect_err(|_| refuse(Aux::OpenFailed))?;
                self.recognize(leaf, device).inspect_err(|_| refuse(Aux::CorruptData))?
            }
        };
        let newest = found.uberblocks.iter().map(|Uberblock { txg, .. }| *txg).max().unwrap_or(0);
        // it was away when these were written, or it is an older copy
        state.dtl().insert(newest + 1..self.txgs.synced_txg() + 1);
        let is_new = !state.device().is_some_and(|slot| Arc::ptr_eq(&slot.now(), &found.device));
        state.reopen(is_new.then_some(found.device));
        Ok(())
    }

    /// The device, or the partition in it, that has the leaf's label.
    fn recognize(&self, leaf: LeafVdev<'_>, device: Arc<dyn Device>) -> Result<FoundDevice> {
        let pool = self.config().guid;
        let found = FoundDevice::examine(device.path(), device.clone())?;
        let is_it = |found: &FoundDevice| found.guid() == Some(leaf.guid()) && found.pool_guid() == Some(pool);
        found.into_iter().find(is_it).ok_or_else(|| Error::corrupt("it has not the label of this device"))
    }

    /// Looks at the errors of all leaves, and draws the consequences.
    pub fn diagnose(&self) {
        let now_s = self.env.now_s();
        // what is in a log is in memory, too
        let is_spared = |leaf: LeafVdev<'_>| self.tree.top_of(leaf.vdev()).is_log() || self.tree.can_do_without(leaf);
        for leaf in self.tree.leaves() {
            let [io, sums] = leaf.state().has_too_many_errors(now_s);
            let new = match leaf.state().health().state {
                State::Healthy | State::Degraded if io && is_spared(leaf) => State::Faulted,
                State::Healthy if io || sums => State::Degraded,
                _ => continue,
            };
            let new = Health::new(new, Aux::ErrExceeded);
            let [reads, writes, checksums] = leaf.stats().errors();
            tracing::error!(pool = self.name, vdev = leaf.name(), reads, writes, checksums, "{}", new.name());
            leaf.state().set_health(new);
        }
    }
}

fn no_such_device() -> Error {
    Error::new(Kind::NotFound, "no such device in pool")
}
