//! Leaves that have failed or were away: their devices are found again, and their errors counted.
//!
//! ```text
//!   device, or the one at its path now ── label of this leaf ──▶ used again; what it missed is in its dirty time log
//!   errors ──▶ 10 in 10 minutes, or what was set ──▶ faulted (reads, writes), degraded (checksums, slow, last good side)
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Env, Error, Kind, Result, tunables};
use device::{Device, FileDevice, OpenMode};
use dsl::PropertyValue;
use format::ids::{Guid, Txg};
use format::uberblock::Uberblock;
use vdev::{Aux, Health, LeafVdev, TooMany, Tree, VdevState, label};

use crate::FoundDevice;

/// The property by which pools grow with their devices.
const AUTOEXPAND: &str = "autoexpand";
/// The property by which new devices take the places of those that are away.
const AUTOREPLACE: &str = "autoreplace";
/// Seconds between two looks for devices that have grown.
const LOOK_FOR_GROWTH_EVERY_S: u64 = 5;
/// Seconds after which a new device is tried again that could not be used.
const TRY_NEW_AGAIN_S: u64 = 60;
/// Why a device is not recognized that nobody has labelled.
const NO_LABEL: &str = "it has no label";
const LARGE_SECTORS: &str = "its sectors are larger than those of the vdev";

/// Opens the device at a path for writing, for nobody else's use.
pub type DeviceOpener<'a> = &'a dyn Fn(&str) -> Result<Arc<dyn Device>>;

/// The watch over a pool's leaves.
pub(super) struct LeafWatch {
    env: Env,
    pool: String,
    tree: Arc<Tree>,
    /// The group of the newest uberblock: those after it that had nothing to write have none.
    root_txg: AtomicU64,
    /// Is told the path of a leaf that has left the pool by itself.
    on_gone: OnceLock<OnGone>,
    /// Property `autoexpand`.
    grows_by_itself: AtomicBool,
    /// Property `autoreplace`.
    replaces_by_itself: AtomicBool,
    open_new: OnceLock<NewDeviceOpener>,
    /// When a new device could not be used.
    refused_new_s: AtomicU64,
    /// When it was last looked whether a device has grown.
    looked_for_growth_s: AtomicU64,
}

/// See [`LivePool::let_new_devices_replace`](super::LivePool::let_new_devices_replace).
type NewDeviceOpener = Box<dyn Fn(&str) -> Result<(Arc<dyn Device>, bool)> + Send + Sync>;
/// See [`LivePool::on_leaf_gone`](super::LivePool::on_leaf_gone).
type OnGone = Box<dyn Fn(&str) + Send + Sync>;

impl LeafWatch {
    pub(super) fn new(
        env: &Env,
        pool: &str,
        (tree, root_txg): (&Arc<Tree>, Txg),
        properties: &[(String, PropertyValue)],
    ) -> LeafWatch {
        let watch = LeafWatch {
            env: env.clone(),
            pool: pool.to_owned(),
            tree: tree.clone(),
            root_txg: AtomicU64::new(root_txg.get()),
            on_gone: OnceLock::new(),
            grows_by_itself: AtomicBool::new(false),
            replaces_by_itself: AtomicBool::new(false),
            open_new: OnceLock::new(),
            refused_new_s: AtomicU64::new(0),
            looked_for_growth_s: AtomicU64::new(0),
        };
        properties.iter().for_each(|(name, value)| watch.note_property(name, value));
        watch
    }

    /// Takes up what a property says of leaves.
    pub(super) fn note_property(&self, name: &str, value: &PropertyValue) {
        if name == AUTOEXPAND {
            self.grows_by_itself.store(*value == PropertyValue::Number(1), Ordering::Relaxed);
            self.look_for_growth_soon();
        }
        if name == AUTOREPLACE {
            self.replaces_by_itself.store(*value == PropertyValue::Number(1), Ordering::Relaxed);
        }
    }

    /// Whether a new device takes the place of one that is away without being asked, now.
    pub(super) fn replaces_by_itself(&self) -> bool {
        let next_s = self.refused_new_s.load(Ordering::Relaxed).saturating_add(TRY_NEW_AGAIN_S);
        let is_wanted = self.replaces_by_itself.load(Ordering::Relaxed) && self.env.tunable(tunables::CENOTE_ZED) != 0;
        is_wanted && next_s <= self.env.now_s()
    }

    /// From now on `open` opens new devices; once only.
    pub(super) fn open_new_with(&self, open: NewDeviceOpener) {
        drop(self.open_new.set(open));
    }

    /// Opens the new device at a path; whether it is a file. Errors: `Missing` if it has something on it, or nobody has
    /// said how; those of opening.
    pub(super) fn open_new(&self, path: &str) -> Result<(Arc<dyn Device>, bool)> {
        let open = self.open_new.get().ok_or_else(|| Error::new(Kind::Missing, "nobody opens it"))?;
        open(path)
    }

    /// A new device could not be used: it is tried again, but not soon.
    pub(super) fn note_refused_new(&self) {
        self.refused_new_s.store(self.env.now_s(), Ordering::Relaxed);
    }

    /// Whether a device that has become larger is used whole without being asked.
    pub(super) fn grows_by_itself(&self) -> bool {
        self.grows_by_itself.load(Ordering::Relaxed)
    }

    /// Whether it is time to look again what has grown by itself; if it is, this is that time.
    pub(super) fn is_growth_due(&self) -> bool {
        let (now_s, looked_s) = (self.env.now_s(), self.looked_for_growth_s.load(Ordering::Relaxed));
        let is_due = self.grows_by_itself() && looked_s.saturating_add(LOOK_FOR_GROWTH_EVERY_S) <= now_s;
        if is_due {
            self.looked_for_growth_s.store(now_s, Ordering::Relaxed);
        }
        is_due
    }

    /// A vdev may have room for more now.
    pub(super) fn look_for_growth_soon(&self) {
        self.looked_for_growth_s.store(0, Ordering::Relaxed);
    }

    /// From now on `f` is called when a leaf has left the pool by itself; once only.
    pub(super) fn on_gone(&self, f: OnGone) {
        drop(self.on_gone.set(f));
    }

    /// The leaf that was at `path` has left the pool.
    pub(super) fn tell_gone(&self, path: &str) {
        self.on_gone.get().into_iter().for_each(|f| f(path));
    }

    /// Uses a leaf again that is offline, faulted or away, if its device is there, with a label of that pool.
    pub(super) fn bring_back(&self, leaf: LeafVdev<'_>, pool_guid: Guid, open: DeviceOpener<'_>) {
        match self.reopen(leaf, pool_guid, open) {
            Ok(()) => tracing::info!(pool = self.pool, vdev = leaf.name(), "the device is back"),
            Err(error) => tracing::warn!(pool = self.pool, vdev = leaf.name(), "the device is not back: {error}"),
        }
        // what its device is like is known by now
        leaf.state().put_online();
    }

    /// Whether the device of a leaf that is away is at its path, with a label of that pool.
    pub(super) fn is_back(&self, leaf: LeafVdev<'_>, pool_guid: Guid, open: DeviceOpener<'_>) -> bool {
        match open(leaf.name()) {
            Ok(device) => recognize(leaf, pool_guid, device).is_ok(),
            // it is in use, by this pool
            Err(error) if error.kind() == Kind::Busy => recognize_own(leaf, pool_guid).is_ok(),
            Err(_) => false,
        }
    }

    /// A leaf that is used is used no more if its device does not answer, or is not at its path any more. Whether it
    /// is used still.
    pub(super) fn look_again(&self, leaf: LeafVdev<'_>, pool_guid: Guid, open: DeviceOpener<'_>) -> bool {
        let refuse = |aux| leaf.state().set_health(Health::new(VdevState::Unavail, aux));
        match open(leaf.name()) {
            Ok(device) => {
                // another one may be there
                if let Err(error) = recognize(leaf, pool_guid, device) {
                    refuse(why_not_used(&error));
                }
            }
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Missing) => refuse(Aux::OpenFailed),
            // it is in use, by this pool
            Err(_) => {
                if let Err(error) = recognize_own(leaf, pool_guid) {
                    refuse(why_not_used(&error));
                }
            }
        }
        leaf.state().health().is_readable()
    }

    /// Uses the leaf's device again if it answers, or the one that is at its path now.
    fn reopen(&self, leaf: LeafVdev<'_>, pool_guid: Guid, open: DeviceOpener<'_>) -> Result<()> {
        let state = leaf.state();
        let refuse = |error: &Error| state.set_health(Health::new(VdevState::Unavail, why_not_used(error)));
        let found = recognize_own(leaf, pool_guid).or_else(|before| match open(leaf.name()) {
            Ok(device) => recognize(leaf, pool_guid, device),
            // by this pool
            Err(error) if error.kind() == Kind::Busy => Err(before),
            Err(error) => Err(error),
        });
        let found = found.inspect_err(refuse)?;
        self.take(leaf, found);
        Ok(())
    }

    /// The leaf is used again, with that device. What was written since its newest uberblock it lacks.
    pub(super) fn take(&self, leaf: LeafVdev<'_>, found: FoundDevice) {
        // it was away when these were written, or it is an older copy
        leaf.state().dtl().insert(newest_txg(&found).next()..self.root_txg().next());
        let is_new = !leaf.state().is_on(&found.device);
        leaf.state().reopen(is_new.then_some(found.device));
    }

    /// The leaf is not used any more, because of that error.
    pub(super) fn refuse(&self, leaf: LeafVdev<'_>, error: &Error) {
        tracing::warn!(pool = self.pool, vdev = leaf.name(), "the device is not back: {error}");
        leaf.state().set_health(Health::new(VdevState::Unavail, why_not_used(error)));
    }

    /// The device of a leaf, whatever was known of the leaf: the one at its path now, or that with its label elsewhere, or
    /// the one that it has had, whichever has the newest uberblock. Errors: there is none that answers.
    pub(super) fn look_anew(&self, leaf: LeafVdev<'_>, pool_guid: Guid, open: DeviceOpener<'_>) -> Result<FoundDevice> {
        let own = recognize_own(leaf, pool_guid);
        let there = open(leaf.name()).and_then(|device| recognize(leaf, pool_guid, device));
        let there = there.or_else(|error| match &own {
            Ok(_) => Err(error),
            Err(_) => elsewhere(leaf, pool_guid, open).ok_or(error),
        });
        match (own, there) {
            (Ok(own), Ok(there)) if newest_txg(&own) > newest_txg(&there) => Ok(own),
            (_, Ok(there)) => Ok(there),
            (Ok(own), Err(_)) => Ok(own),
            // it is in use, by this pool: its own error says more
            (Err(own), Err(error)) if error.kind() == Kind::Busy => Err(own),
            (Err(_), Err(error)) => Err(error),
        }
    }

    /// The group of the newest uberblock, which each leaf has that lacks nothing.
    pub(super) fn root_txg(&self) -> Txg {
        Txg::new(self.root_txg.load(Ordering::Relaxed))
    }

    /// That group's uberblock has been written.
    pub(super) fn note_root(&self, txg: Txg) {
        self.root_txg.store(txg.get(), Ordering::Relaxed);
    }

    /// Whether one of the labels of a leaf that is in use is not right, or cannot be read while another one can.
    pub(super) fn has_damaged_label(&self, leaf: LeafVdev<'_>, pool_guid: Guid) -> bool {
        let Some(slot) = leaf.state().device().filter(|_| leaf.state().health().is_readable()) else { return false };
        let is_damaged = match recognize(leaf, pool_guid, slot.now()) {
            Ok(found) => found.good_labels < label::COUNT,
            Err(error) => matches!(error.kind(), Kind::Corrupt | Kind::NotFound),
        };
        if is_damaged {
            tracing::warn!(pool = self.pool, vdev = leaf.name(), "a label is damaged, and is written anew");
        }
        is_damaged
    }

    /// Takes up from which time on requests are slow.
    pub(super) fn renew_slow_ms(&self) {
        let slow_ms = self.env.tunable(tunables::ZIO_SLOW_IO_MS);
        self.tree.leaves().for_each(|leaf| leaf.stats().meter.set_slow_ms(slow_ms));
    }

    /// Looks at the errors of all leaves, and draws the consequences.
    pub(super) fn diagnose(&self) {
        self.renew_slow_ms();
        if self.env.tunable(tunables::CENOTE_ZED) == 0 {
            return;
        }
        let now_s = self.env.now_s();
        // what is in a log is in memory, too
        let is_spared = |leaf: LeafVdev<'_>| self.tree.top_of(leaf.vdev()).is_log() || self.tree.can_do_without(leaf);
        for leaf in self.tree.leaves() {
            let TooMany { io, checksum, slow_io } = leaf.state().too_many_errors(now_s);
            let new = match leaf.state().health().state {
                VdevState::Healthy | VdevState::Degraded if io && is_spared(leaf) => VdevState::Faulted,
                VdevState::Healthy if io || checksum || slow_io => VdevState::Degraded,
                _ => continue,
            };
            let new = Health::new(new, Aux::ErrExceeded);
            let [reads, writes, checksums] = leaf.stats().errors();
            tracing::error!(pool = self.pool, vdev = leaf.name(), reads, writes, checksums, "{}", new.name());
            leaf.state().set_health(new);
        }
    }
}

/// Why a device is not used that was not recognized, or not opened.
fn why_not_used(error: &Error) -> Aux {
    match error.kind() {
        Kind::NotFound if error.what() == NO_LABEL => Aux::BadLabel,
        Kind::Invalid if error.what() == LARGE_SECTORS => Aux::BadAshift,
        Kind::Corrupt => Aux::CorruptData,
        _ => Aux::OpenFailed,
    }
}

/// The newest group that a device has an uberblock of.
pub(super) fn newest_txg(found: &FoundDevice) -> Txg {
    found.uberblocks.iter().map(|Uberblock { txg, .. }| *txg).max().unwrap_or(Txg::ZERO)
}

/// Folders in which disks have names that last.
const LASTING_NAMES: [&str; 2] = ["/dev/disk/by-id", "/dev/disk/by-vdev"];

/// The device with the label of a leaf that is not at the leaf's path: among those beside that path, and those with names
/// that last.
fn elsewhere(leaf: LeafVdev<'_>, pool_guid: Guid, open: DeviceOpener<'_>) -> Option<FoundDevice> {
    let beside = Path::new(leaf.name()).parent().filter(|folder| folder.is_absolute());
    let folders = LASTING_NAMES.iter().map(Path::new).chain(beside);
    let entries = folders.filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let paths = entries.filter_map(|entry| entry.path().to_str().map(str::to_owned));
    paths.filter(|path| path != leaf.name()).find_map(|path| {
        // others' devices are looked at, and not claimed
        let looked: Arc<dyn Device> = Arc::new(FileDevice::open(&path, OpenMode::ReadOnlyCached).ok()?);
        recognize(leaf, pool_guid, looked).ok()?;
        open(&path).and_then(|device| recognize(leaf, pool_guid, device)).ok()
    })
}

/// As [`recognize`], of the device that the leaf has had.
fn recognize_own(leaf: LeafVdev<'_>, pool_guid: Guid) -> Result<FoundDevice> {
    let slot = leaf.state().device().ok_or_else(|| Error::new(Kind::Missing, "it never had a device"))?;
    recognize(leaf, pool_guid, slot.now())
}

/// The device, or the partition in it, that has the leaf's label. Errors: `NotFound` if there is no label at all,
/// `Corrupt` if it is that of another device, `Invalid` if its sectors are larger than the vdev's; those of reading.
pub(super) fn recognize(leaf: LeafVdev<'_>, pool_guid: Guid, device: Arc<dyn Device>) -> Result<FoundDevice> {
    if leaf.state().device().is_some_and(|slot| slot.faults().refuse_opening()) {
        return Err(Error::new(Kind::Missing, "a fault was injected"));
    }
    let found = FoundDevice::examine(device.path(), device.clone())?;
    if found.is_empty() {
        return Err(Error::new(Kind::NotFound, NO_LABEL));
    }
    let is_it = |found: &FoundDevice| found.guid() == Some(leaf.guid()) && found.pool_guid() == Some(pool_guid);
    let found = found.into_iter().find(is_it).ok_or_else(|| Error::corrupt("it has not the label of this device"))?;
    match leaf.state().fits_sectors(&*found.device) {
        true => Ok(found),
        false => Err(Error::new(Kind::Invalid, LARGE_SECTORS)),
    }
}
