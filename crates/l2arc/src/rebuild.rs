//! What is on a cache device that comes to its pool again: its logs are read, newest first, until one is not there
//! any more.

use std::sync::atomic::Ordering;

use base::{Error, Kind, Result};
use format::l2arc::{LogEntry, LogPtr};

use crate::cache_device::{CacheDevice, WRITE_TIME};
use crate::index::{Index, L2Key};
use crate::log;
use crate::ring::RingSums;
use crate::stats::{Stats, add};

/// Brings what the logs of a device tell into the index. Ends early when the device goes, or the index is full.
pub(crate) fn rebuild(device: &CacheDevice, index: &Index, stats: &Stats, is_full: &dyn Fn() -> bool) {
    device.show(index);
    LogWalk { device, index, stats }.tell(is_full);
    device.is_rebuilding.store(false, Ordering::Relaxed);
}

/// The way through the logs of a device.
struct LogWalk<'a> {
    device: &'a CacheDevice,
    index: &'a Index,
    stats: &'a Stats,
}

impl LogWalk<'_> {
    /// Goes it, and tells how far it led.
    fn tell(&self, is_full: &dyn Fn() -> bool) {
        let stats = self.stats;
        match &self.walk(is_full) {
            Ok(logs) => {
                add(&stats.rebuild_success, u64::from(*logs > 0));
                tracing::info!(vdev = self.device.drive.device().path(), logs, "the cache device is warm");
            }
            Err(error) => {
                let counter = match error.kind() {
                    Kind::Checksum | Kind::Corrupt => &stats.rebuild_cksum_lb_errors,
                    _ => &stats.rebuild_io_errors,
                };
                add(counter, 1);
                tracing::warn!(vdev = self.device.drive.device().path(), "not all of the cache is known: {error}");
            }
        }
    }

    fn walk(&self, is_full: &dyn Fn() -> bool) -> Result<u64> {
        let (device, stats) = (self.device, self.stats);
        let (newest, entries) = {
            let header = &device.writer().header;
            (header.newest, header.log_entries)
        };
        let capacity = device.ring().capacity();
        let [mut log, mut next] = newest;
        let (mut logs, mut bytes, mut wraps) = (0, 0, 0);
        // a chain that is longer than the device leads in a circle, and so does one that comes by its start twice
        while device.ring().holds(&log) && bytes <= capacity && wraps < 2 && !device.is_gone.load(Ordering::Relaxed) {
            if is_full() {
                add(&stats.rebuild_lowmem, 1);
                break;
            }
            let block = log::unpack(&log, &self.read_log(&log)?, entries)?;
            let mut sums = RingSums::default();
            for entry in block.entries.iter().rev() {
                self.restore(entry, &mut sums);
            }
            add(&stats.rebuild_log_blks, 1);
            add(&stats.rebuild_size, sums.lsize);
            add(&stats.rebuild_asize, sums.asize);
            add(&stats.rebuild_bufs, sums.count);
            let mut ring = device.ring();
            ring.found_log(log, sums);
            (logs, bytes) = (logs + 1, bytes + log.asize);
            if ring.is_beyond(&log, &next) {
                break;
            }
            wraps += u32::from(next.at >= log.at);
            (log, next) = (next, block.older);
        }
        Ok(logs)
    }

    fn read_log(&self, log: &LogPtr) -> Result<base::AlignedBuf> {
        let read = self.device.drive.begin_read(vec![(log.at, log.asize as usize)])?.wait(WRITE_TIME)?.pop();
        read.unwrap_or_else(|| Err(Error::new(Kind::Io, "log of a cache device was not read").at_offset(log.at)))
    }

    fn restore(&self, entry: &LogEntry, sums: &mut RingSums) {
        let (start, end, sweep) = {
            let ring = self.device.ring();
            (ring.start, ring.end, ring.sweep_at(entry.at))
        };
        let fits = entry.at >= start && entry.at.checked_add(entry.psize).is_some_and(|last| last <= end);
        if !fits || !entry.at.is_multiple_of(512) || entry.dva == [0; 2] {
            return;
        }
        let key = L2Key { dva: entry.dva, birth: entry.birth };
        match self.index.insert(&key, self.device.spot_of(entry, sweep), false) {
            true => sums.add(&self.device.sums_of(entry)),
            false => add(&self.stats.rebuild_bufs_precached, 1),
        }
    }
}
