//! One cache device: what is written to it, and what it says of that itself.
//!
//! ```text
//!   blocks ─▶ room in the ring ─▶ gathered, written ─▶ index
//!                                         └▶ entry of the pending log ─ full ─▶ log, written ─▶ header
//! ```
//!
//! A block is in the index and in a log when it has been written. What a failed write would have left is a gap in
//! the ring. A header is written after what it leads to, without a flush: what is not there after a power cut has
//! another checksum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{AlignedBuf, Endian, Env, Error, Kind, Mutex, MutexGuard, Result};
use codec::checksum::{Checksum, embedded};
use device::Device;
use device::meter::Meter;
use format::ids::Guid;
use format::l2arc::{DeviceHeader, HEADER_AT, HEADER_BYTES, L2LogBlock, LOG_BYTES, LOG_ENTRIES_MAX, LogEntry, LogPtr};
use format::sealing::StoredBytes;
use vdev::geometry;

use crate::allowance::Allowance;
use crate::drive::Drive;
use crate::index::{Index, L2Key, OFFSET_MAX, Spot};
use crate::log;
use crate::ring::{Ring, RingSums};
use crate::stats::{Stats, add};
use crate::tunables::Tunables;

/// Bytes that are written at once.
const GATHER_BYTES: usize = 1 << 20;
/// The largest block that there is.
const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// How long a write may take.
pub(crate) const WRITE_TIME: Duration = Duration::from_secs(10);
/// Errors within so much time after which a device is not used any more.
const ERRORS_MAX: u64 = 10;
const ERRORS_NS: u64 = 600 * 1_000_000_000;

/// A block that is looked for, as its pointer tells of it.
#[derive(Clone, Copy, Debug)]
pub struct CacheLookup {
    /// Which it is.
    pub key: L2Key,
    /// Its bytes as they are in the pool.
    pub psize: usize,
    /// Bytes of its contents.
    pub lsize: u64,
    /// It is metadata.
    pub is_metadata: bool,
}

/// A block for a cache device.
#[derive(Clone, Debug)]
pub struct FedBlock {
    /// Which it is.
    pub key: L2Key,
    /// Its bytes as they are in the pool.
    pub physical: StoredBytes,
    /// Its set is encrypted.
    pub is_protected: bool,
    /// Bytes of its contents.
    pub lsize: u64,
    /// How it is compressed.
    pub compress: u8,
    /// It is metadata.
    pub is_metadata: bool,
    /// It comes from the frequent blocks.
    pub is_frequent: bool,
    /// It was prefetched, and nobody has asked for it.
    pub is_prefetched: bool,
}

/// A device and what is on it.
pub(crate) struct CacheDevice {
    pub(crate) number: u8,
    pub(crate) guid: Guid,
    pub(crate) drive: Drive,
    /// Bytes that places are multiples of.
    pub(crate) sector: u64,
    pub(crate) meter: Arc<Meter>,
    /// Reads, writes, checksums.
    pub(crate) errors: [AtomicU64; 3],
    pub(crate) is_faulted: AtomicBool,
    /// It is faulted because it was pulled.
    pub(crate) was_pulled: AtomicBool,
    /// When it failed, of late.
    recent_errors: Mutex<Vec<u64>>,
    pub(crate) is_rebuilding: AtomicBool,
    pub(crate) is_writing: AtomicBool,
    pub(crate) is_gone: AtomicBool,
    /// Held while something is written.
    writer: Mutex<FeedWriter>,
    /// Never held while something is written or read. Where both are needed, the writer is taken first.
    ring: Mutex<Ring>,
}

/// What the feeder changes.
pub(crate) struct FeedWriter {
    pub(crate) header: DeviceHeader,
    /// Blocks that are in no log yet.
    pending: Vec<LogEntry>,
    allowance: Allowance,
}

impl CacheDevice {
    /// A device with that number in the index. What a header of this pool says of it is taken up, but for the blocks,
    /// which are for [`crate::rebuild`]; whether there are any. Errors: `Invalid` if it is too small.
    pub(crate) fn open(
        env: &Env,
        number: u8,
        (pool_guid, guid): (Guid, Guid),
        device: Arc<dyn Device>,
        stats: &Stats,
    ) -> Result<(CacheDevice, bool)> {
        let tunables = Tunables::of(env);
        let end = (HEADER_AT + geometry::leaf_asize(device.size())?).min(OFFSET_MAX);
        let meter = Arc::<Meter>::default();
        let drive = Drive::new(env, device, meter.clone());
        let found = read_header(&drive, stats);
        let sector = match &found {
            Some((_, sector)) => *sector,
            None => drive.device().sector_bytes().clamp(HEADER_BYTES as u64, 64 << 10),
        };
        let start = HEADER_AT + sector;
        let capacity = (end / sector * sector).saturating_sub(start);
        if capacity < 4 * BLOCK_BYTES_MAX {
            tracing::debug!(vdev = drive.device().path(), capacity, "a cache device for small blocks only");
        }
        let log_entries = match end < tunables.rebuild_min_size {
            true => 0,
            false => (capacity / BLOCK_BYTES_MAX).min(LOG_ENTRIES_MAX as u64),
        };
        let fresh = DeviceHeader { pool_guid, vdev_guid: guid, log_entries, start, end, ..DeviceHeader::default() };
        let is_ours = |header: &DeviceHeader| {
            let same = (header.pool_guid, header.vdev_guid, header.end) == (pool_guid, guid, end);
            same && header.log_entries == log_entries && (start..=end).contains(&header.evict)
        };
        let (ring, header, has_more) = match found.map(|(header, _)| header) {
            Some(header) if is_ours(&header) => {
                let has_more = log_entries > 0 && tunables.rebuild_enabled;
                (Ring::of_header(start, end / sector * sector, &header), DeviceHeader { start, ..header }, has_more)
            }
            other => {
                other.iter().for_each(|_| add(&stats.rebuild_unsupported, 1));
                (Ring::new(start, end / sector * sector), fresh, false)
            }
        };
        let writer = Mutex::new(FeedWriter { header, pending: Vec::new(), allowance: Allowance::default() });
        let (errors, is_faulted, was_pulled, is_writing, is_gone) = Default::default();
        let is_rebuilding = AtomicBool::new(has_more);
        Ok((
            CacheDevice {
                number,
                guid,
                drive,
                sector,
                meter,
                errors,
                is_faulted,
                was_pulled,
                recent_errors: Mutex::default(),
                is_rebuilding,
                is_writing,
                is_gone,
                writer,
                ring: Mutex::new(ring),
            },
            has_more,
        ))
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, FeedWriter> {
        self.writer.lock()
    }

    /// Where is written next, and what is on the device.
    pub(crate) fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }

    /// Whether it can be read.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_gone.load(Ordering::Relaxed) && !self.is_faulted.load(Ordering::Relaxed) && !self.drive.is_stuck()
    }

    /// Whether it can be written.
    pub(crate) fn takes_blocks(&self) -> bool {
        self.is_usable() && !self.is_rebuilding.load(Ordering::Relaxed)
    }

    /// Forgets its errors, and uses it again.
    pub(crate) fn clear_errors(&self) {
        self.errors.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.recent_errors.lock().clear();
        self.is_faulted.store(false, Ordering::Relaxed);
    }

    /// Tells readers where the hands are.
    pub(crate) fn show(&self, index: &Index) {
        let ring = self.ring();
        index.hands.set(self.number, ring.sweep, ring.hand, ring.evict);
    }

    /// How many bytes it should be given in a round at most.
    pub(crate) fn target(&self, env: &Env, tunables: &Tunables, is_warming: bool) -> u64 {
        let mut writer = self.writer();
        let (capacity, is_first) = {
            let ring = self.ring();
            (ring.capacity(), ring.is_first)
        };
        let wanted = tunables.write_max.saturating_add(if is_warming { tunables.write_boost } else { 0 });
        // the first sweep wears nothing that was not new
        let allowed = match tunables.dwpd_limit == 0 || is_first {
            true => u64::MAX,
            false => writer.allowance.left(Allowance::a_day(capacity, tunables), env.ticks_ns()),
        };
        wanted.min(allowed).min((capacity / 4).saturating_sub(LOG_BYTES as u64))
    }

    /// Writes blocks, as many as a quarter of the ring takes; how many bytes it took.
    pub(crate) fn write(&self, records: &[FedBlock], index: &Index, stats: &Stats) -> u64 {
        let mut writer = self.writer();
        let asize = |record: &FedBlock| (record.physical.block().len() as u64).next_multiple_of(self.sector);
        let most = self.ring().capacity() / 4;
        let (mut bytes, mut count) = (0, 0);
        let log_bytes = |count: u64| match writer.header.log_entries {
            0 => 0,
            entries => ((writer.pending.len() as u64 + count) / entries) * LOG_BYTES as u64,
        };
        for record in records {
            if bytes + asize(record) + log_bytes(count + 1) > most {
                break;
            }
            (bytes, count) = (bytes + asize(record), count + 1);
        }
        if count == 0 {
            return 0;
        }
        let room = bytes + log_bytes(count);
        let begin = self.make_room(room, index);
        self.is_writing.store(true, Ordering::Relaxed);
        add(&stats.writes_sent, 1);
        let mut rest = &records[..count as usize];
        let mut outcome = Ok(());
        while !rest.is_empty() && outcome.is_ok() {
            let (mut len, mut gathered) = (0, 0);
            let until_log = match writer.header.log_entries {
                0 => rest.len(),
                entries => (entries as usize).saturating_sub(writer.pending.len()).max(1),
            };
            for record in rest.iter().take(until_log) {
                if gathered > 0 && len + asize(record) as usize > GATHER_BYTES {
                    break;
                }
                (len, gathered) = (len + asize(record) as usize, gathered + 1);
            }
            let (now, later) = rest.split_at(gathered);
            outcome = self.write_run(&mut writer, now, len, index);
            rest = later;
        }
        let outcome = outcome.and_then(|()| self.write_header(&mut writer, stats));
        self.show(index);
        self.is_writing.store(false, Ordering::Relaxed);
        let (taken, is_first) = {
            let ring = self.ring();
            (ring.hand - begin, ring.is_first)
        };
        if !is_first {
            writer.allowance.spend(taken);
        }
        match outcome {
            Ok(()) => {
                add(&stats.writes_done, 1);
                add(&stats.write_bytes, taken);
            }
            Err(error) => {
                add(&stats.writes_error, 1);
                self.note_error(1, &error);
            }
        }
        taken
    }

    /// Writes blocks that lie one after the other, `len` bytes, and the log if it is full then.
    fn write_run(&self, writer: &mut FeedWriter, records: &[FedBlock], len: usize, index: &Index) -> Result<()> {
        let mut bytes = AlignedBuf::zeroed(len);
        let start = self.ring().take(len as u64);
        let mut at = 0;
        let mut entries = Vec::with_capacity(records.len());
        for record in records {
            let psize = record.physical.block().len();
            bytes[at..at + psize].copy_from_slice(record.physical.block());
            entries.push(LogEntry {
                dva: record.key.dva,
                birth: record.key.birth,
                at: start + at as u64,
                lsize: record.lsize,
                psize: psize as u64,
                compress: record.compress,
                compress_level: 0,
                is_metadata: record.is_metadata,
                is_protected: record.is_protected,
                is_prefetched: record.is_prefetched,
                is_frequent: record.is_frequent,
            });
            at += psize.next_multiple_of(self.sector as usize);
        }
        self.drive.write(start, bytes, WRITE_TIME)?;
        self.show(index);
        let mut sums = RingSums::default();
        entries.iter().for_each(|entry| sums.add(&self.sums_of(entry)));
        let sweep = {
            let mut ring = self.ring();
            ring.wrote(start, sums);
            ring.sweep
        };
        for entry in &entries {
            index.insert(&L2Key { dva: entry.dva, birth: entry.birth }, self.spot_of(entry, sweep), true);
        }
        if writer.header.log_entries > 0 {
            writer.pending.extend(entries);
            if writer.pending.len() as u64 >= writer.header.log_entries {
                self.write_log(writer)?;
            }
        }
        Ok(())
    }

    /// What a block adds to the sums.
    pub(crate) fn sums_of(&self, entry: &LogEntry) -> RingSums {
        let asize = entry.psize.next_multiple_of(self.sector);
        let if_so = |is_so: bool| if is_so { asize } else { 0 };
        RingSums {
            count: 1,
            lsize: entry.lsize,
            asize,
            frequent_asize: if_so(entry.is_frequent && !entry.is_prefetched),
            prefetched_asize: if_so(entry.is_prefetched),
            metadata_asize: if_so(entry.is_metadata),
        }
    }

    /// Where a block is that was written in that sweep.
    pub(crate) fn spot_of(&self, entry: &LogEntry, sweep: u8) -> Spot {
        let (is_recent, is_prefetched) = (!entry.is_frequent, entry.is_prefetched);
        Spot { device: self.number, sweep, offset: entry.at, is_recent, is_prefetched }
    }

    /// A block is not looked for there any more.
    pub(crate) fn lost(&self, wanted: &CacheLookup, spot: Spot) {
        let &CacheLookup { psize, lsize, is_metadata, .. } = wanted;
        let (is_prefetched, is_frequent) = (spot.is_prefetched, !spot.is_recent);
        let sums = self.sums_of(&LogEntry {
            psize: psize as u64,
            lsize,
            is_metadata,
            is_prefetched,
            is_frequent,
            ..LogEntry::default()
        });
        self.ring().lost(spot.sweep, spot.offset, &sums);
    }

    /// Makes room for so many bytes; where it begins.
    fn make_room(&self, bytes: u64, index: &Index) -> u64 {
        let mut ring = self.ring();
        ring.make_room(bytes);
        let begin = ring.hand;
        drop(ring);
        self.show(index);
        begin
    }

    /// Writes the pending log, for which there is room.
    fn write_log(&self, writer: &mut FeedWriter) -> Result<()> {
        let entries = std::mem::take(&mut writer.pending);
        let Some(first) = entries.first() else { return Ok(()) };
        let payload_start = first.at;
        let payload_asize = entries.iter().map(|entry| entry.psize.next_multiple_of(self.sector)).sum();
        let block = L2LogBlock { older: writer.header.newest[1], entries };
        let (bytes, ptr) = log::pack(&block, self.sector as usize);
        let ptr = LogPtr { at: self.ring().take(ptr.asize), payload_start, payload_asize, ..ptr };
        self.drive.write(ptr.at, bytes, WRITE_TIME)?;
        writer.header.newest = [ptr, writer.header.newest[0]];
        self.ring().wrote_log(ptr);
        Ok(())
    }

    fn write_header(&self, writer: &mut FeedWriter, stats: &Stats) -> Result<()> {
        let before = writer.header.logs;
        let header = {
            let ring = self.ring();
            let [logs, logs_asize] = ring.logs();
            let (evict, is_first_sweep) = (ring.evict, ring.is_first);
            DeviceHeader { evict, is_first_sweep, logs, logs_asize, ..writer.header.clone() }
        };
        add(&stats.log_blk_writes, header.logs.saturating_sub(before));
        let mut sector = AlignedBuf::zeroed(self.sector as usize);
        let bytes = header.build();
        sector[..bytes.len()].copy_from_slice(&bytes);
        embedded::seal(Checksum::Label, Endian::Little, &[HEADER_AT, 0, 0, 0], &mut sector)?;
        writer.header = header;
        self.drive.write(HEADER_AT, sector, WRITE_TIME)
    }

    /// Writes a header for a pool of that guid, so that the pool that had one before finds none of its blocks.
    pub(crate) fn begin(&self, stats: &Stats) -> Result<()> {
        self.write_header(&mut self.writer(), stats)
    }

    /// Puts what is pending into a log, which is filled up with its last entry, and flushes.
    pub(crate) fn finish(&self, index: &Index, stats: &Stats) -> Result<()> {
        if !self.takes_blocks() {
            return Ok(());
        }
        let mut writer = self.writer();
        if let Some(last) = writer.pending.last().copied() {
            let entries = writer.header.log_entries as usize;
            writer.pending.resize(entries, last);
            self.make_room(LOG_BYTES as u64, index);
            self.write_log(&mut writer)?;
            self.write_header(&mut writer, stats)?;
        }
        drop(writer);
        self.drive.flush(WRITE_TIME)
    }

    /// Counts an error: 0 reading, 1 writing, 2 checksum. A device that has gone, or has had too many lately, is not
    /// used any more; one that is only slow has made none.
    pub(crate) fn note_error(&self, kind: usize, error: &Error) {
        if error.kind() == Kind::Busy {
            return;
        }
        self.errors[kind].fetch_add(1, Ordering::Relaxed);
        let now_ns = self.drive.now_ns();
        let mut recent = self.recent_errors.lock();
        recent.retain(|then_ns| now_ns.saturating_sub(*then_ns) < ERRORS_NS);
        if kind < 2 {
            recent.push(now_ns);
        }
        let is_too_much = error.kind() == Kind::Missing || recent.len() as u64 >= ERRORS_MAX;
        if is_too_much {
            self.was_pulled.store(self.drive.device().is_gone(), Ordering::Relaxed);
        }
        if is_too_much && !self.is_faulted.swap(true, Ordering::Relaxed) {
            tracing::error!(vdev = self.drive.device().path(), "the cache device is not used any more: {error}");
        }
    }
}

/// The header and the bytes of its sector, if there is one.
fn read_header(drive: &Drive, stats: &Stats) -> Option<(DeviceHeader, u64)> {
    let own = drive.device().sector_bytes();
    let sizes = [own, 512, 4096, 8192].into_iter().filter(|size| (512..=64 << 10).contains(size));
    for size in sizes {
        let read = drive.begin_read(vec![(HEADER_AT, size as usize)]).and_then(|pending| pending.wait(WRITE_TIME));
        let sector = match read.map(|mut all| all.pop()) {
            Ok(Some(Ok(sector))) => sector,
            _ => {
                add(&stats.rebuild_dh_errors, 1);
                return None;
            }
        };
        if embedded::verify(Checksum::Label, &[HEADER_AT, 0, 0, 0], &sector).is_ok()
            && let Ok(Some(header)) = DeviceHeader::parse(&sector)
        {
            return Some((header, size));
        }
    }
    None
}
