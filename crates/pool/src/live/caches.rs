//! Cache devices of a pool that is in use: they come, are offline, online, and go.
//!
//! ```text
//!   list in the MOS ─▶ device with that guid at its path ─▶ arc
//! ```
//!
//! Nothing depends on them: one that is not there, or broken, is reported and no more.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Error, Kind, Result};
use device::Device;
use format::ids::Guid;
use format::nvlist::{NvList, Value};
use vdev::{Aux as Why, Health, OfflineReason, VdevState};

use super::aux_devices::AuxKind;
use super::{DeviceOpener, LivePool};
use crate::FoundDevice;

/// In the configuration of one that is not to be used.
const OFFLINE: &str = "offline";

impl LivePool {
    /// Uses the cache devices that are there; `open` opens what is at a path.
    pub fn open_caches(&self, open: DeviceOpener<'_>) {
        for config in self.view().caches() {
            if config.opt_u64(OFFLINE) == Some(1) {
                continue;
            }
            if let Err(error) = self.find_cache(config, open).and_then(|device| self.use_cache(config, device)) {
                let path = config.opt_str("path").unwrap_or_default();
                tracing::warn!(pool = self.name(), vdev = path, "the cache device is not used: {error}");
            }
        }
    }

    /// Uses those of a pool that has just been made, or of devices that were added to it.
    pub(super) fn use_caches(&self, configs: &[NvList], devices: &HashMap<PathBuf, Arc<dyn Device>>) {
        for config in configs {
            let path = config.opt_str("path").unwrap_or_default();
            let Some(device) = devices.get(&PathBuf::from(path)) else { continue };
            if let Err(error) = self.use_cache(config, device.clone()) {
                tracing::warn!(pool = self.name(), vdev = path, "the cache device is not used: {error}");
            }
        }
    }

    fn use_cache(&self, config: &NvList, device: Arc<dyn Device>) -> Result<()> {
        let pool_guid = self.config().guid;
        self.cache().add_device(pool_guid, config.guid("guid")?, device)
    }

    /// The device, or the partition in it, that has the label of a cache device: where the list says it is, or where it
    /// was found, which may be a copy.
    fn find_cache(&self, config: &NvList, open: DeviceOpener<'_>) -> Result<Arc<dyn Device>> {
        let guid = config.guid("guid")?;
        let view = self.view();
        let found = view.candidate().aux_devices.iter().find(|found| found.guid() == Some(guid));
        let paths = config.opt_str("path").into_iter().chain(found.map(|found| found.path.as_str()));
        let mut outcome = Err(Error::new(Kind::Missing, "it has no path"));
        for path in paths {
            outcome =
                open(path).and_then(|device| FoundDevice::examine(device.path(), device.clone())).and_then(|all| {
                    let it = all.into_iter().find(|found| found.guid() == Some(guid));
                    it.map(|found| found.device).ok_or_else(|| Error::corrupt("it has not the label of this device"))
                });
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// The configuration of a cache device.
    pub(super) fn cache_config(&self, guid: Guid) -> Option<NvList> {
        self.view().caches().iter().find(|config| config.opt_guid("guid") == Some(guid)).cloned()
    }

    /// Forgets the errors of a cache device, and uses the one that is at its path now if that is another one. Whether it is
    /// of use then; one that was pulled and is not back stays so, and is looked for again. `None` if it is not in use.
    pub(super) fn renew_cache(&self, guid: Guid, open: DeviceOpener<'_>) -> Option<bool> {
        let l2arc = self.cache().l2arc();
        let was_pulled = l2arc.reports().into_iter().find(|cache| cache.guid == guid)?.was_pulled;
        let Some(config) = self.cache_config(guid) else { return Some(l2arc.clear(guid)) };
        let not_back = |error: &Error| {
            tracing::warn!(pool = self.name(), %guid, "the cache device is not back: {error}");
        };
        let device = match self.find_cache(&config, open) {
            Ok(device) => device,
            // the one in use is locked, and not opened once more
            Err(error) if error.kind() == Kind::Busy || !was_pulled => return Some(l2arc.clear(guid)),
            Err(error) => {
                not_back(&error);
                return Some(false);
            }
        };
        l2arc.remove(guid);
        Some(self.use_cache(&config, device).inspect_err(not_back).is_ok())
    }

    /// The configurations of cache devices that were pulled.
    pub(super) fn pulled_caches(&self) -> Vec<NvList> {
        let reports = self.cache().l2arc().reports();
        let pulled = reports.iter().filter(|cache| cache.was_pulled).filter_map(|cache| self.cache_config(cache.guid));
        pulled.collect()
    }

    /// Uses a cache device again that was pulled, if it is back.
    pub(super) fn use_returned_cache(&self, config: &NvList, open: DeviceOpener<'_>) {
        // opened for a look only: it is closed when it is opened for use
        let is_back = match self.find_cache(config, open).map(drop) {
            Ok(()) => true,
            // in use by this pool: the same device is there again
            Err(error) => error.kind() == Kind::Busy,
        };
        config.opt_guid("guid").filter(|_| is_back).map(|guid| self.renew_cache(guid, open));
    }

    /// Uses a cache device again. Its state is then returned. Errors: those of writing.
    pub(super) fn online_cache(&self, config: &NvList, open: DeviceOpener<'_>) -> Result<Health> {
        let guid = config.guid("guid")?;
        if config.opt_u64(OFFLINE) == Some(1) {
            self.run(move |context| {
                context.change_aux(AuxKind::Cache, guid, |config| config.set(OFFLINE, Value::U64(0)))
            })?;
        }
        let is_back = self.renew_cache(guid, open).unwrap_or_else(|| {
            let used = self.find_cache(config, open).and_then(|device| self.use_cache(config, device));
            let used = used.inspect_err(|error| {
                tracing::warn!(pool = self.name(), %guid, "the cache device is not back: {error}");
            });
            used.is_ok()
        });
        Ok(if is_back { Health::HEALTHY } else { Health::new(VdevState::Unavail, Why::OpenFailed) })
    }

    /// Does not use a cache device any more. Errors: those of writing.
    pub(super) fn take_cache_off(&self, guid: Guid, how: OfflineReason, temporary: bool) -> Result<()> {
        self.cache().l2arc().remove(guid);
        if how == OfflineReason::Offline && !temporary {
            self.run(move |context| {
                context.change_aux(AuxKind::Cache, guid, |config| config.set(OFFLINE, Value::U64(1)))
            })?;
        }
        Ok(())
    }
}
