//! The record of a leaf: all that is known of it while the pool is open, in one place.
//!
//! ```text
//!   device   errors are counted ──▶ too many in some minutes: degraded, or faulted if the others have everything
//!            gone               ──▶ unavailable               not written to: what it misses is noted
//!            there again        ──▶ healthy, but distrusted for what it missed
//!   offline  by the administrator, whatever its device is like
//! ```
//!
//! The record goes with its leaf from one shape of the tree to the next ([`crate::edit`]), wherever in the tree the
//! leaf is then. Vdevs with others below them have no such state: theirs follows from the leaves
//! ([`crate::redundancy`]).
//!
//! All of it changes behind shared references. What each read looks at are atomics.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Error, Kind as ErrorKind, Mutex};
use device::{Device, DeviceSlot};
use format::ids::Txg;

use crate::dtl::Dtl;
use crate::error_window::{ErrorRates, ErrorWindow, TooMany};
use crate::health::{Aux, Health, HealthCell, VdevState, VdevStats};
use crate::opened::fits_sectors;
use crate::spec::LeafSpec;

/// How the administrator took a leaf off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfflineReason {
    /// Not to be used.
    Offline,
    /// As if it were broken.
    Faulted,
}

/// See the top of the file.
#[derive(Debug)]
pub struct LeafState {
    /// `None` until it is found.
    device: OnceLock<DeviceSlot>,
    /// What the device is like.
    health: HealthCell,
    /// Binary logarithm of the sectors of the top-level vdev above.
    ashift: u32,
    offline: OfflineCell,
    /// See [`LeafSpec::unspare`].
    unspare: AtomicBool,
    /// See [`LeafSpec::resilver_txg`].
    resilver_txg: AtomicU64,
    /// See [`LeafSpec::rebuild_txg`].
    rebuild_txg: AtomicU64,
    /// See [`LeafSpec::resilver_deferred`].
    resilver_deferred: AtomicBool,
    dtl: Dtl,
    /// The transaction groups written since the last flush; `None` if nothing was written.
    unflushed: Mutex<Option<Range<Txg>>>,
    /// Until when it is not read where others have what it has, in seconds since 1970; 0 if it is.
    sits_out_until_s: AtomicU64,
    stats: VdevStats,
    window: Mutex<ErrorWindow>,
    rates: Mutex<ErrorRates>,
}

impl LeafState {
    /// Of a leaf that has just been opened, whose device is like that, below a top-level vdev of that ashift. Its state in
    /// the configuration is taken out of that, as it is kept here from now on.
    pub(crate) fn new(
        spec: &mut LeafSpec,
        device: Option<Arc<dyn Device>>,
        (health, ashift): (Health, u32),
    ) -> LeafState {
        let (object, offline, faulted) = (
            std::mem::take(&mut spec.dtl_object),
            std::mem::take(&mut spec.offline),
            std::mem::take(&mut spec.faulted),
        );
        let reason = match (faulted, offline) {
            (true, _) => Some(OfflineReason::Faulted),
            (_, true) => Some(OfflineReason::Offline),
            _ => None,
        };
        let state = LeafState {
            device: device.map(|device| OnceLock::from(DeviceSlot::new(device))).unwrap_or_default(),
            health: HealthCell::new(health),
            ashift,
            offline: OfflineCell::default(),
            unspare: AtomicBool::new(std::mem::take(&mut spec.unspare)),
            resilver_txg: AtomicU64::new(std::mem::take(&mut spec.resilver_txg).get()),
            rebuild_txg: AtomicU64::new(std::mem::take(&mut spec.rebuild_txg).get()),
            resilver_deferred: AtomicBool::new(std::mem::take(&mut spec.resilver_deferred)),
            dtl: Dtl::of_object(object),
            unflushed: Mutex::default(),
            sits_out_until_s: AtomicU64::new(0),
            stats: VdevStats::default(),
            window: Mutex::default(),
            rates: Mutex::default(),
        };
        reason.into_iter().for_each(|reason| state.take_offline(reason, false));
        state
    }

    /// Puts what is to be written down of the state into the leaf's configuration.
    pub(crate) fn note_in(&self, spec: &mut LeafSpec) {
        spec.dtl_object = self.dtl.object();
        spec.unspare = self.unspare();
        spec.resilver_txg = self.resilver_txg();
        spec.rebuild_txg = self.rebuild_txg();
        spec.resilver_deferred = self.resilver_deferred();
        let reason = self.offline_in_config();
        (spec.offline, spec.faulted) = (reason == Some(OfflineReason::Offline), reason == Some(OfflineReason::Faulted));
    }

    /// The device, if it has ever been found.
    pub fn device(&self) -> Option<&DeviceSlot> {
        self.device.get()
    }

    /// Whether that is the device, as it is open now.
    pub fn is_on(&self, device: &Arc<dyn Device>) -> bool {
        self.device().is_some_and(|slot| Arc::ptr_eq(&slot.now(), device))
    }

    /// Whether the sectors of a device are not larger than those of the leaf's vdev.
    pub fn fits_sectors(&self, device: &dyn Device) -> bool {
        fits_sectors(device, self.ashift)
    }

    /// The device, if it may be used.
    pub(crate) fn usable_device(&self) -> Option<&dyn Device> {
        self.device().filter(|_| self.is_usable()).map(|slot| slot as &dyn Device)
    }

    /// The device is used again, or `device` in its place. What the leaf has missed it lacks still, and it stays
    /// offline if it is. False if it has never had a device.
    pub fn reopen(&self, device: Option<Arc<dyn Device>>) -> bool {
        if let Some(device) = device {
            match self.device.get() {
                Some(slot) => slot.replace(device),
                // if another thread sets it, then with a device that is as good
                None => drop(self.device.set(DeviceSlot::new(device))),
            }
        }
        if self.device().is_some() {
            if matches!(self.health.get().state, VdevState::Unavail | VdevState::Removed) {
                // what failed because it was away is not its fault
                self.window.lock().forget(self.counted_errors());
            }
            self.set_health(Health::HEALTHY);
        }
        self.device().is_some()
    }

    /// The state: what the device is like, if the leaf is not offline.
    pub fn health(&self) -> Health {
        match self.offline.get() {
            Some((OfflineReason::Offline, _)) => Health::new(VdevState::Offline, Aux::None),
            Some((OfflineReason::Faulted, _)) => Health::new(VdevState::Faulted, Aux::External),
            None => self.health.get(),
        }
    }

    /// Says what the device is like.
    pub fn set_health(&self, health: Health) {
        self.health.set(health);
    }

    /// Whether the state allows reads and writes.
    pub(crate) fn is_usable(&self) -> bool {
        self.health().is_readable()
    }

    /// Until when it sits out, in seconds since 1970; 0 if it does not.
    pub fn sits_out_until_s(&self) -> u64 {
        self.sits_out_until_s.load(Ordering::Relaxed)
    }

    /// It sits out until then, or with 0 no more: a child of a raidz or draid is not read, what it has is reconstructed.
    /// It is written to, scrubbed, and read if there is no other way.
    pub fn sit_out(&self, until_s: u64) {
        self.sits_out_until_s.store(until_s, Ordering::Relaxed);
    }

    /// The leaf is not used any more until [`LeafState::put_online`]; if that is temporary, until the pool is imported.
    pub fn take_offline(&self, reason: OfflineReason, is_temporary: bool) {
        self.offline.set(Some((reason, is_temporary)));
    }

    /// The leaf is used again, if its device allows it.
    pub fn put_online(&self) {
        self.offline.set(None);
    }

    /// How the leaf is taken off for longer than until the pool is imported, which its configuration says.
    pub fn offline_in_config(&self) -> Option<OfflineReason> {
        self.offline.get().and_then(|(reason, is_temporary)| (!is_temporary).then_some(reason))
    }

    /// Whether a spare that stands in for it is to go when it has everything.
    pub fn unspare(&self) -> bool {
        self.unspare.load(Ordering::Relaxed)
    }

    /// Says whether a spare that stands in for it is to go.
    pub fn set_unspare(&self, unspare: bool) {
        self.unspare.store(unspare, Ordering::Relaxed);
    }

    /// The last group of the resilver that gives it all that it lacks; 0 if none does.
    pub fn resilver_txg(&self) -> Txg {
        Txg::new(self.resilver_txg.load(Ordering::Relaxed))
    }

    /// Says which resilver gives it all that it lacks; 0 if none does.
    pub fn set_resilver_txg(&self, txg: Txg) {
        self.resilver_txg.store(txg.get(), Ordering::Relaxed);
    }

    /// The group in which a sequential resilver of it began; 0 if none is under way.
    pub fn rebuild_txg(&self) -> Txg {
        Txg::new(self.rebuild_txg.load(Ordering::Relaxed))
    }

    /// Says in which group a sequential resilver of it began; 0 if none is under way.
    pub fn set_rebuild_txg(&self, txg: Txg) {
        self.rebuild_txg.store(txg.get(), Ordering::Relaxed);
    }

    /// Whether it waits for the next resilver, while another is under way.
    pub fn resilver_deferred(&self) -> bool {
        self.resilver_deferred.load(Ordering::Relaxed)
    }

    /// Says whether it waits for the next resilver. Returns whether it has waited.
    pub fn set_resilver_deferred(&self, is_deferred: bool) -> bool {
        self.resilver_deferred.swap(is_deferred, Ordering::Relaxed)
    }

    /// What it has missed.
    pub fn dtl(&self) -> &Dtl {
        &self.dtl
    }

    /// Counters.
    pub fn stats(&self) -> &VdevStats {
        &self.stats
    }

    /// Of which errors there were too many in the last minutes.
    pub fn too_many_errors(&self, now_s: u64) -> TooMany {
        let rates = *self.rates.lock();
        self.window.lock().look(self.counted_errors(), &rates, now_s)
    }

    /// Reads and writes that failed, wrong checksums, slow requests.
    fn counted_errors(&self) -> [u64; 3] {
        let [reads, writes, checksums] = self.stats.errors();
        [reads.saturating_add(writes), checksums, self.stats.meter.slow()]
    }

    /// Whether its slow requests are told as events.
    pub fn tells_slow_io(&self) -> bool {
        self.rates.lock().tells_slow_io
    }

    /// Sets how many errors are too many.
    pub fn set_error_rates(&self, rates: ErrorRates) {
        *self.rates.lock() = rates;
    }

    /// Sets the error counts to 0; there were none in the last minutes either.
    pub(crate) fn clear_errors(&self) {
        self.stats.clear_errors();
        self.stats.meter.clear_slow();
        *self.window.lock() = ErrorWindow::default();
    }

    /// A read failed. It has not been counted; a device that has gone is not tried again.
    pub(crate) fn note_failure(&self, error: &Error) {
        if error.kind() == ErrorKind::Missing {
            let is_pulled = self.device().is_some_and(Device::is_gone);
            self.set_health(match is_pulled {
                true => Health::new(VdevState::Removed, Aux::None),
                false => Health::new(VdevState::Unavail, Aux::OpenFailed),
            });
        }
    }

    /// Counts a read that failed; a device that has gone is not tried again.
    pub(crate) fn charge_read(&self, error: &Error) {
        VdevStats::count(&self.stats.read_errors);
        self.note_failure(error);
    }

    /// Counts a write or flush that failed; a device that has gone is not tried again.
    pub(crate) fn charge_write(&self, error: &Error) {
        VdevStats::count(&self.stats.write_errors);
        self.note_failure(error);
    }

    /// Notes that it was written for `txgs`, which may be empty, and needs a flush.
    pub(crate) fn note_written(&self, txgs: Range<Txg>) {
        let mut unflushed = self.unflushed.lock();
        *unflushed = Some(match unflushed.take() {
            Some(old) if txgs.is_empty() => old,
            Some(old) if !old.is_empty() => old.start.min(txgs.start)..old.end.max(txgs.end),
            _ => txgs,
        });
    }

    /// The transaction groups that it was written for since they were last taken.
    pub(crate) fn written(&self) -> Option<Range<Txg>> {
        self.unflushed.lock().clone()
    }

    /// The transaction groups that it was written for since this was last asked; `None` if it was not written.
    pub(crate) fn take_written(&self) -> Option<Range<Txg>> {
        self.unflushed.lock().take()
    }
}

/// Whether and how a leaf is offline, and whether that is temporary.
#[derive(Debug, Default)]
struct OfflineCell(AtomicU8);

impl OfflineCell {
    const VALUES: [Option<(OfflineReason, bool)>; 5] = [
        None,
        Some((OfflineReason::Offline, false)),
        Some((OfflineReason::Offline, true)),
        Some((OfflineReason::Faulted, false)),
        Some((OfflineReason::Faulted, true)),
    ];

    fn get(&self) -> Option<(OfflineReason, bool)> {
        OfflineCell::VALUES[usize::from(self.0.load(Ordering::Relaxed))]
    }

    fn set(&self, value: Option<(OfflineReason, bool)>) {
        let at = OfflineCell::VALUES.iter().position(|known| *known == value);
        self.0.store(at.expect("all values are listed") as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use format::ids::ObjectId;

    use super::*;

    #[test]
    fn offline_is_apart_from_what_the_device_is_like() {
        let mut spec = LeafSpec { offline: true, faulted: true, dtl_object: ObjectId::new(5), ..LeafSpec::default() };
        let leaf = LeafState::new(&mut spec, None, (Health::HEALTHY, 9));
        assert_eq!(spec, LeafSpec::default(), "it is kept in one place");
        assert_eq!((leaf.health().state, leaf.health().aux), (VdevState::Faulted, Aux::External));
        leaf.note_in(&mut spec);
        assert_eq!(spec, LeafSpec { faulted: true, dtl_object: ObjectId::new(5), ..LeafSpec::default() });
        for (reason, state) in
            [(OfflineReason::Offline, VdevState::Offline), (OfflineReason::Faulted, VdevState::Faulted)]
        {
            for is_temporary in [false, true] {
                leaf.take_offline(reason, is_temporary);
                leaf.set_health(Health::HEALTHY);
                assert_eq!(leaf.health().state, state, "a device that works is no reason to use it");
                assert_eq!(leaf.offline_in_config(), (!is_temporary).then_some(reason));
            }
        }
        leaf.note_failure(&Error::new(ErrorKind::Missing, "gone"));
        leaf.put_online();
        assert_eq!((leaf.health().state, leaf.health().aux), (VdevState::Unavail, Aux::OpenFailed));
        assert!(!leaf.reopen(None), "it has never had a device");
    }
}
