//! The second level of the cache: blocks on cache devices, as they are in the pool.
//!
//! ```text
//!   read   key ─▶ index ─▶ drive ─▶ bytes ─▶ (the reader verifies them, or reads the pool)
//!
//!   write  records ─▶ cache device: ring, log, header ─▶ drive ─▶ device
//!                                 └▶ index
//!   begin  header ─▶ logs ─▶ index                        rebuild, in the background
//! ```
//!
//! Nothing here can fail for a user: a device that is broken, slow, stuck or gone means that a block is not here.
//! Any number of devices is used in turns, none twice for the same block.
//!
//! Which blocks are worth it is known above, to `arc`; what they contain where their pointer is. Below are
//! `device`, and `vdev` for the place of labels.
//!
//! Invariants: a block in the index was written whole before it came there; no place is written while the index
//! leads to what was there before.

mod allowance;
mod cache_device;
mod drive;
mod index;
mod log;
mod rebuild;
mod ring;
mod stats;
#[cfg(test)]
mod tests;
mod tunables;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base::{AlignedBuf, Env, Error, Kind, Mutex, Result, RwLock};
use device::Device;
use device::meter::Meter;

pub use allowance::Allowance;
use cache_device::CacheDevice;
pub use cache_device::{CacheLookup, FedBlock};
use format::ids::Guid;
pub use index::L2Key;
use index::{DEVICES_MAX, Index, Spot};
use ring::RingSums;
use stats::{ABSENT, Stats, add};
pub use tunables::Tunables;

/// The cache devices of a pool.
pub struct L2arc {
    env: Env,
    index: Index,
    devices: RwLock<Vec<Arc<CacheDevice>>>,
    count: AtomicUsize,
    next: AtomicUsize,
    tunables: RwLock<Tunables>,
    stats: Stats,
    recent_hits: AtomicU64,
    /// Bytes that the index may take.
    index_max: AtomicU64,
    changing: Mutex<()>,
}

/// Bytes from a cache device, not verified.
pub struct CachedBytes {
    bytes: AlignedBuf,
    place: CachePlace,
}

/// Where bytes were found.
#[derive(Clone, Copy, Debug)]
pub struct CachePlace(Spot);

impl CachedBytes {
    /// The bytes, and where they were.
    pub fn split(self) -> (AlignedBuf, CachePlace) {
        (self.bytes, self.place)
    }
}

/// A cache device as it is now.
#[derive(Clone, Debug)]
pub struct CacheDeviceReport {
    /// Its guid.
    pub guid: Guid,
    /// Whether it is used.
    pub is_usable: bool,
    /// Whether it is not used because it was pulled.
    pub was_pulled: bool,
    /// Bytes for blocks and logs, and how many are taken.
    pub bytes: [u64; 2],
    /// Errors reading, writing, and in checksums.
    pub errors: [u64; 3],
    /// Reads and writes that went well: how many, and their bytes.
    pub done: [[u64; 2]; 2],
    /// How long they took.
    pub meter: Arc<Meter>,
    /// Bytes of the device.
    pub device_bytes: u64,
}

impl L2arc {
    /// Without any device.
    pub fn new(env: &Env) -> L2arc {
        let (devices, count, next, stats, recent_hits, changing) = Default::default();
        let (tunables, index_max) = (RwLock::new(Tunables::of(env)), AtomicU64::new(u64::MAX));
        let (env, index) = (env.clone(), Index::new());
        L2arc { env, index, devices, count, next, tunables, stats, recent_hits, index_max, changing }
    }

    fn devices(&self) -> Vec<Arc<CacheDevice>> {
        self.devices.read().clone()
    }

    fn device(&self, is_it: impl Fn(&CacheDevice) -> bool) -> Option<Arc<CacheDevice>> {
        let devices = self.devices.read();
        devices.iter().find(|device| is_it(device)).cloned()
    }

    /// The cache in RAM has so many bytes, of which the index may take a part.
    pub fn set_ram(&self, bytes: u64) {
        let percent = self.tunables.read().meta_percent;
        self.index_max.store(bytes / 100 * percent, Ordering::Relaxed);
    }

    /// Whether the index may not take more memory.
    fn is_index_full(&self) -> bool {
        self.index.bytes() > self.index_max.load(Ordering::Relaxed)
    }

    /// Whether there are any devices.
    pub fn has_devices(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Uses a device from now on. What this pool has left on it is known again some time soon.
    ///
    /// Errors: `Exists`; `Invalid` if it is too small; `TooBig` if there are too many.
    pub fn add(self: &Arc<Self>, pool_guid: Guid, guid: Guid, device: Arc<dyn Device>) -> Result<()> {
        let _alone = self.changing.lock();
        let known = self.devices();
        if known.iter().any(|device| device.guid == guid) {
            return Err(Error::new(Kind::Exists, "the cache device is there already").at_vdev(device.path()));
        }
        let number = (0..DEVICES_MAX).find(|number| known.iter().all(|device| usize::from(device.number) != *number));
        let number = number.ok_or_else(|| Error::new(Kind::TooBig, "too many cache devices"))?;
        let (device, has_more) = CacheDevice::open(&self.env, number as u8, (pool_guid, guid), device, &self.stats)?;
        let device = Arc::new(device);
        device.show(&self.index);
        if !has_more && let Err(error) = device.begin(&self.stats) {
            device.note_error(1, &error);
        }
        self.devices.write().push(device.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        if has_more {
            let l2arc = self.clone();
            let rebuilding = device.clone();
            let rebuild = move || rebuild::rebuild(&rebuilding, &l2arc.index, &l2arc.stats, &|| l2arc.is_index_full());
            if !self.env.spawn("l2arc_rebuild", rebuild) {
                rebuild::rebuild(&device, &self.index, &self.stats, &|| self.is_index_full());
            }
        }
        Ok(())
    }

    /// Does not use a device any more. False if there is no such.
    pub fn remove(&self, guid: Guid) -> bool {
        let _alone = self.changing.lock();
        let mut devices = self.devices.write();
        let Some(at) = devices.iter().position(|device| device.guid == guid) else { return false };
        let device = devices.remove(at);
        self.count.fetch_sub(1, Ordering::Relaxed);
        drop(devices);
        device.is_gone.store(true, Ordering::Relaxed);
        // a writer at this moment would show its hands again
        drop(device.writer());
        self.index.hands.clear(device.number);
        self.index.clean();
        true
    }

    /// Sets the error counts of a device to 0, and uses it again if it had too many. False if there is no such.
    pub fn clear(&self, guid: Guid) -> bool {
        let Some(device) = self.device(|device| device.guid == guid) else { return false };
        device.clear_errors();
        true
    }

    /// The pool has another guid.
    pub fn set_pool_guid(&self, pool_guid: Guid) {
        for device in self.devices() {
            device.writer().header.pool_guid = pool_guid;
            if let Err(error) = device.begin(&self.stats) {
                device.note_error(1, &error);
            }
        }
    }

    /// Brings all that is known of the blocks to the devices, for the next time, and uses them no more.
    pub fn close(&self) {
        for device in self.devices() {
            if let Err(error) = device.finish(&self.index, &self.stats) {
                device.note_error(1, &error);
            }
            self.remove(device.guid);
        }
    }

    /// Whether a block is on a device, as far as known.
    pub fn contains(&self, key: &L2Key) -> bool {
        self.has_devices() && self.index.find(key).is_some()
    }

    /// The bytes of blocks, as far as they are here.
    pub fn read(&self, wanted: &[CacheLookup]) -> Vec<Option<CachedBytes>> {
        let mut found: Vec<Option<CachedBytes>> = wanted.iter().map(|_| None).collect();
        let spots: Vec<Option<Spot>> = wanted.iter().map(|wanted| self.index.find(&wanted.key)).collect();
        let tunables = *self.tunables.read();
        let most = Duration::from_millis(tunables.read_timeout_ms);
        let mut begun = Vec::new();
        for device in self.devices() {
            let is_here = |at: &usize| spots[*at].is_some_and(|spot| spot.device == device.number);
            let here: Vec<usize> = (0..wanted.len()).filter(is_here).collect();
            if here.is_empty() || !device.is_usable() {
                continue;
            }
            if tunables.norw && device.is_writing.load(Ordering::Relaxed) {
                add(&self.stats.rw_clash, here.len() as u64);
                continue;
            }
            let end = device.drive.device().size();
            let place = |at: &usize| (spots[*at].map_or(end, |spot| spot.offset), wanted[*at].psize);
            match device.drive.begin_read(here.iter().map(place).collect()) {
                Ok(pending) => begun.push((device, here, pending)),
                Err(_) => add(&self.stats.io_error, here.len() as u64),
            }
        }
        for (device, here, pending) in begun {
            let results = match pending.wait(most) {
                Ok(results) => results,
                Err(error) => {
                    add(&self.stats.io_error, here.len() as u64);
                    device.note_error(0, &error);
                    continue;
                }
            };
            for (at, result) in here.into_iter().zip(results) {
                match (result, spots[at]) {
                    (Ok(bytes), Some(spot)) => {
                        add(&self.stats.read_bytes, bytes.len() as u64);
                        found[at] = Some(CachedBytes { bytes, place: CachePlace(spot) });
                    }
                    (Err(error), Some(spot)) => {
                        add(&self.stats.io_error, 1);
                        device.note_error(0, &error);
                        self.lost(&wanted[at], spot);
                    }
                    (_, None) => {}
                }
            }
        }
        found
    }

    /// Bytes that were found are those that were asked for, or nothing was found.
    pub fn count(&self, found: Option<&CachePlace>) {
        match found {
            Some(CachePlace(spot)) => {
                add(&self.stats.hits, 1);
                add(&self.recent_hits, u64::from(spot.is_recent));
            }
            None => add(&self.stats.misses, 1),
        }
    }

    /// Bytes that were found are not those of the block: it is not looked for there again. Where the hands have come
    /// meanwhile, that is nobody's fault.
    pub fn is_bad(&self, wanted: &CacheLookup, &CachePlace(spot): &CachePlace) {
        let still = self.index.find(&wanted.key) == Some(spot);
        if still && let Some(device) = self.device(|device| device.number == spot.device) {
            add(&self.stats.cksum_bad, 1);
            device.note_error(2, &Error::new(Kind::Checksum, "block on a cache device has another checksum"));
        }
        self.lost(wanted, spot);
    }

    /// A block is freed: nobody will look for it again.
    pub fn forget(&self, wanted: &CacheLookup) {
        if self.has_devices()
            && let Some(spot) = self.index.find(&wanted.key)
        {
            self.lost(wanted, spot);
        }
    }

    fn lost(&self, wanted: &CacheLookup, spot: Spot) {
        if self.index.forget(&wanted.key, spot)
            && let Some(device) = self.device(|device| device.number == spot.device)
        {
            device.lost(wanted, spot);
        }
    }

    /// Blocks that were found and had come from the recent ones, ever.
    pub fn recent_hits(&self) -> u64 {
        self.recent_hits.load(Ordering::Relaxed)
    }

    /// Looks up the tunables.
    pub fn renew_tunables(&self) -> Tunables {
        let tunables = Tunables::of(&self.env);
        *self.tunables.write() = tunables;
        tunables
    }

    /// The device whose turn it is to be fed, and how many bytes it should have; `None` if none takes any.
    /// `is_warming`: the cache in RAM has never been full.
    pub fn turn(&self, tunables: &Tunables, is_warming: bool) -> Option<Turn> {
        let devices = self.devices();
        if !devices.is_empty() && self.is_index_full() {
            add(&self.stats.abort_lowmem, 1);
            return None;
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        (0..devices.len())
            .map(|i| &devices[(first.wrapping_add(i)) % devices.len()])
            .filter(|device| device.takes_blocks())
            .map(|device| Turn { target: device.target(&self.env, tunables, is_warming), device: device.clone() })
            .find(|turn| turn.target > 0)
    }

    /// Gives blocks to a device; how many bytes it took.
    pub fn feed(&self, turn: &Turn, records: &[FedBlock]) -> u64 {
        add(&self.stats.feeds, 1);
        turn.device.write(records, &self.index, &self.stats)
    }

    /// All devices.
    pub fn reports(&self) -> Vec<CacheDeviceReport> {
        let report = |device: Arc<CacheDevice>| {
            let (capacity, taken) = {
                let ring = device.ring();
                (ring.capacity(), ring.sums.asize + ring.logs()[1])
            };
            let is_usable = !device.is_faulted.load(Ordering::Relaxed);
            CacheDeviceReport {
                guid: device.guid,
                is_usable,
                was_pulled: !is_usable && device.was_pulled.load(Ordering::Relaxed),
                bytes: [capacity, taken],
                errors: device.errors.each_ref().map(|count| count.load(Ordering::Relaxed)),
                done: device.drive.done(),
                meter: device.meter.clone(),
                device_bytes: device.drive.device().size(),
            }
        };
        self.devices().into_iter().map(report).collect()
    }

    /// Whether something is still being looked for on the devices.
    pub fn is_rebuilding(&self) -> bool {
        self.devices().iter().any(|device| device.is_rebuilding.load(Ordering::Relaxed))
    }

    /// The rows of the kstat `arcstats` that begin with `l2_`.
    pub fn table(&self) -> Vec<(&'static str, u64)> {
        let mut sums = RingSums::default();
        let (mut logs, mut logs_asize) = (0, 0);
        for device in self.devices() {
            let ring = device.ring();
            sums.add(&ring.sums);
            let [count, asize] = ring.logs();
            (logs, logs_asize) = (logs + count, logs_asize + asize);
        }
        let mut table = self.stats.table();
        table.extend([
            ("l2_size", sums.lsize),
            ("l2_asize", sums.asize + logs_asize),
            ("l2_hdr_size", if self.has_devices() { self.index.bytes() } else { 0 }),
            ("l2_mru_asize", sums.asize.saturating_sub(sums.frequent_asize + sums.prefetched_asize)),
            ("l2_mfu_asize", sums.frequent_asize),
            ("l2_prefetch_asize", sums.prefetched_asize),
            ("l2_bufc_data_asize", sums.asize.saturating_sub(sums.metadata_asize)),
            ("l2_bufc_metadata_asize", sums.metadata_asize),
            ("l2_log_blk_count", logs),
            ("l2_log_blk_asize", logs_asize),
            ("l2_log_blk_avg_asize", logs_asize.checked_div(logs).unwrap_or(0)),
            ("l2_data_to_meta_ratio", sums.asize.checked_div(logs_asize).unwrap_or(0)),
        ]);
        table.extend(ABSENT.iter().map(|name| (*name, 0)));
        table
    }
}

/// A device that is to be fed.
pub struct Turn {
    device: Arc<CacheDevice>,
    /// Bytes that it should have at most.
    pub target: u64,
}
