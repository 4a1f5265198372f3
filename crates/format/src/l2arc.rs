//! The persistent L2ARC: what a cache device says of the blocks on it.
//!
//! ```text
//!   0       4M        start                                                   end
//!   | L0 L1 | header  | block block … log | block … log | block …            | L2 L3 |
//!           │           ▲──────────────────┘ ▲───────────┘
//!           └▶ the two newest logs, each of which points to the one before the one before it
//!
//!   header   0  magic u64 ("ZFSCACHE") | version u64 (1) | pool guid u64 | vdev guid u64 |
//!               entries in a log u64 | evict u64 | flags u64 (1: first sweep) | start u64 | end u64
//!           72  pointer to the newest log | pointer to the one before
//!          200  bytes of all logs u64 | logs u64 | time of TRIM u64 | its state u64 | zeros
//!
//!   pointer  offset u64 | payload bytes u64 | payload start u64 | properties u64 | fletcher4 (4 u64)
//!
//!   log      0  magic u64 ("LOGBLKHD") | pointer to an older log | zeros
//!          128  1022 entries of 64 bytes
//!
//!   entry    address (2 u64) | birth txg u64 | properties u64 | offset u64 | compression level u64 | zeros
//!
//!                63 61  60   57     56      55  48 47    40    39     38       32 31     16 15      0
//!   properties | zeros | state | encrypted | type | checksum | ahead | compression | psize-1 | lsize-1 |
//! ```
//!
//! Words are in the writer's byte order, which the magic tells. Offsets are bytes from the beginning of the device,
//! sizes in properties units of 512 bytes. A log may be compressed on the device, and its checksum is of its bytes
//! there; the header carries its checksum itself, at the end of its sector, as a label does.
//!
//! Source: the structures `l2arc_dev_hdr_phys`, `l2arc_log_blk_phys` and `l2arc_log_ent_phys` of OpenZFS.

use base::{Endian, Error, Reader, Result};

use crate::ids::{Guid, Txg};

/// Where on the device the header is.
pub const HEADER_AT: u64 = 4 << 20;
/// Bytes of a header; it may be in a larger sector.
pub const HEADER_BYTES: usize = 512;
/// Bytes of a log that is not compressed.
pub const LOG_BYTES: usize = 64 << 10;
/// Entries that a log has room for.
pub const LOG_ENTRIES_MAX: usize = 1022;

const HEADER_MAGIC: u64 = 0x5a46_5343_4143_4845;
const LOG_MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
const VERSION: u64 = 1;
const FIRST_SWEEP: u64 = 1;
const LOG_HEAD_BYTES: usize = 128;
const SECTOR_SHIFT: u32 = 9;

/// The header of a cache device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceHeader {
    /// Whose blocks are on it.
    pub pool_guid: Guid,
    /// The device's own guid.
    pub vdev_guid: Guid,
    /// Entries that each log has; the others are zeros.
    pub log_entries: u64,
    /// Up to here, from where is written next, nothing is valid.
    pub evict: u64,
    /// Nothing behind the place that is written next has ever been written.
    pub is_first_sweep: bool,
    /// Where blocks may be: from here ...
    pub start: u64,
    /// ... to here.
    pub end: u64,
    /// The newest log, and the one before it.
    pub newest: [LogPtr; 2],
    /// Bytes of all logs that are valid.
    pub logs_asize: u64,
    /// How many they are.
    pub logs: u64,
    /// When it was trimmed, in seconds since 1970, and the state of that.
    pub trim: [u64; 2],
}

/// Where a log is; the default if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPtr {
    /// Its offset.
    pub at: u64,
    /// Bytes of the blocks that it tells of.
    pub payload_asize: u64,
    /// Offset of the first of them.
    pub payload_start: u64,
    /// Bytes that it takes on the device.
    pub asize: u64,
    /// Bytes that it has.
    pub lsize: u64,
    /// How it is compressed.
    pub compress: u8,
    /// What its checksum is.
    pub checksum_kind: u8,
    /// Its checksum.
    pub checksum: [u64; 4],
}

/// What a log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L2LogBlock {
    /// An older log; the one between is what the pointer to this one came with.
    pub older: LogPtr,
    /// The blocks, oldest first.
    pub entries: Vec<LogEntry>,
}

/// A block on a cache device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEntry {
    /// The first address in the pool, as in the block pointer.
    pub dva: [u64; 2],
    /// The group that it was allocated in.
    pub birth: Txg,
    /// Its offset.
    pub at: u64,
    /// Bytes of its contents.
    pub lsize: u64,
    /// Bytes in the pool and here.
    pub psize: u64,
    /// How it is compressed.
    pub compress: u8,
    /// Level of compression, as far as known.
    pub compress_level: u64,
    /// It is metadata, not data.
    pub is_metadata: bool,
    /// It is encrypted or authenticated.
    pub is_protected: bool,
    /// Nobody had asked for it when it came to the cache.
    pub is_prefetched: bool,
    /// It came from the frequent blocks, not the recent ones.
    pub is_frequent: bool,
}

/// Numbers of the lists in `state`.
const STATE_MRU: u64 = 1;
const STATE_MFU: u64 = 3;
/// Numbers in `type`.
const TYPE_DATA: u64 = 1;
const TYPE_METADATA: u64 = 2;

impl DeviceHeader {
    /// From the bytes at [`HEADER_AT`]; `None` if there is none, or one of another version. The checksum is for the
    /// caller.
    pub fn parse(sector: &[u8]) -> Result<Option<DeviceHeader>> {
        let Some(endian) = magic(sector, HEADER_MAGIC) else { return Ok(None) };
        let mut r = Reader::new(sector, endian);
        r.u64()?;
        if r.u64()? != VERSION {
            return Ok(None);
        }
        let [pool_guid, vdev_guid, log_entries, evict, flags, start, end] = words(&mut r)?;
        let newest = [LogPtr::parse(&mut r)?, LogPtr::parse(&mut r)?];
        let [logs_asize, logs, trim_time_s, trim_state] = words(&mut r)?;
        if log_entries > LOG_ENTRIES_MAX as u64 {
            return Err(Error::corrupt(format!("header of a cache device with {log_entries} entries in a log")));
        }
        Ok(Some(DeviceHeader {
            pool_guid: Guid::new(pool_guid),
            vdev_guid: Guid::new(vdev_guid),
            log_entries,
            evict,
            is_first_sweep: flags & FIRST_SWEEP != 0,
            start,
            end,
            newest,
            logs_asize,
            logs,
            trim: [trim_time_s, trim_state],
        }))
    }

    /// Its bytes, little-endian; the rest of the sector is zeros, and the checksum at its end for the caller.
    pub fn build(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        let flags = if self.is_first_sweep { FIRST_SWEEP } else { 0 };
        let (pool, vdev) = (self.pool_guid.get(), self.vdev_guid.get());
        let head = [HEADER_MAGIC, VERSION, pool, vdev, self.log_entries, self.evict, flags];
        push(&mut out, &head);
        push(&mut out, &[self.start, self.end]);
        self.newest.iter().for_each(|log| log.build(&mut out));
        push(&mut out, &[self.logs_asize, self.logs, self.trim[0], self.trim[1]]);
        out
    }
}

impl LogPtr {
    fn parse(r: &mut Reader<'_>) -> Result<LogPtr> {
        let [at, payload_asize, payload_start, properties] = words(r)?;
        let checksum = words(r)?;
        if at == 0 {
            return Ok(LogPtr::default());
        }
        Ok(LogPtr {
            at,
            payload_asize,
            payload_start,
            asize: size(properties, 16),
            lsize: size(properties, 0),
            compress: field(properties, 32, 7) as u8,
            checksum_kind: field(properties, 40, 8) as u8,
            checksum,
        })
    }

    fn build(&self, out: &mut Vec<u8>) {
        let sizes = in_sectors(self.lsize) | in_sectors(self.asize) << 16;
        let properties = sizes | u64::from(self.compress) << 32 | u64::from(self.checksum_kind) << 40;
        push(out, &[self.at, self.payload_asize, self.payload_start, properties]);
        push(out, &self.checksum);
    }
}

impl L2LogBlock {
    /// From the bytes of a log, decompressed, of which so many entries count.
    ///
    /// Errors: `Corrupt` if that is no log, or too short.
    pub fn parse(bytes: &[u8], entries: u64) -> Result<L2LogBlock> {
        let endian = magic(bytes, LOG_MAGIC).ok_or_else(|| Error::corrupt("log of a cache device without magic"))?;
        let mut r = Reader::new(bytes, endian);
        r.u64()?;
        let older = LogPtr::parse(&mut r)?;
        let mut r = Reader::new(bytes, endian);
        r.take(LOG_HEAD_BYTES)?;
        let count = entries.min(LOG_ENTRIES_MAX as u64);
        let entries = (0..count).map(|_| LogEntry::parse(&mut r)).collect::<Result<_>>()?;
        Ok(L2LogBlock { older, entries })
    }

    /// Its bytes, little-endian. Entries beyond [`LOG_ENTRIES_MAX`] have no room.
    pub fn build(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LOG_BYTES);
        push(&mut out, &[LOG_MAGIC]);
        self.older.build(&mut out);
        out.resize(LOG_HEAD_BYTES, 0);
        self.entries.iter().take(LOG_ENTRIES_MAX).for_each(|entry| entry.build(&mut out));
        out.resize(LOG_BYTES, 0);
        out
    }
}

impl LogEntry {
    fn parse(r: &mut Reader<'_>) -> Result<LogEntry> {
        let [dva0, dva1, birth, properties, at, compress_level, _, _] = words(r)?;
        Ok(LogEntry {
            dva: [dva0, dva1],
            birth: Txg::new(birth),
            at,
            lsize: size(properties, 0),
            psize: size(properties, 16),
            compress: field(properties, 32, 7) as u8,
            compress_level,
            is_metadata: field(properties, 48, 8) == TYPE_METADATA,
            is_protected: field(properties, 56, 1) != 0,
            is_prefetched: field(properties, 39, 1) != 0,
            is_frequent: field(properties, 57, 4) == STATE_MFU,
        })
    }

    fn build(&self, out: &mut Vec<u8>) {
        let properties = in_sectors(self.lsize)
            | in_sectors(self.psize) << 16
            | u64::from(self.compress) << 32
            | u64::from(self.is_prefetched) << 39
            | (if self.is_metadata { TYPE_METADATA } else { TYPE_DATA }) << 48
            | u64::from(self.is_protected) << 56
            | (if self.is_frequent { STATE_MFU } else { STATE_MRU }) << 57;
        push(out, &[self.dva[0], self.dva[1], self.birth.get(), properties, self.at, self.compress_level, 0, 0]);
    }
}

/// The byte order in which the first word is that number.
fn magic(bytes: &[u8], magic: u64) -> Option<Endian> {
    [Endian::Little, Endian::Big].into_iter().find(|endian| endian.u64(bytes) == Some(magic))
}

fn words<const N: usize>(r: &mut Reader<'_>) -> Result<[u64; N]> {
    let mut words = [0; N];
    for word in &mut words {
        *word = r.u64()?;
    }
    Ok(words)
}

fn push(out: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

fn field(properties: u64, shift: u32, bits: u32) -> u64 {
    properties >> shift & ((1 << bits) - 1)
}

/// Bytes from a size in properties.
fn size(properties: u64, shift: u32) -> u64 {
    (field(properties, shift, 16) + 1) << SECTOR_SHIFT
}

/// A size as in properties.
fn in_sectors(bytes: u64) -> u64 {
    (bytes >> SECTOR_SHIFT).saturating_sub(1) & 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swap;

    fn log_ptr(seed: u64) -> LogPtr {
        LogPtr {
            at: (5 << 20) + seed * 512,
            payload_asize: seed * 4096,
            payload_start: 5 << 20,
            asize: 512 * (1 + seed % 128),
            lsize: LOG_BYTES as u64,
            compress: 15,
            checksum_kind: 7,
            checksum: [seed, 2, 3, u64::MAX],
        }
    }

    fn header() -> DeviceHeader {
        DeviceHeader {
            pool_guid: Guid::new(11),
            vdev_guid: Guid::new(12),
            log_entries: 63,
            evict: 7 << 20,
            is_first_sweep: true,
            start: (4 << 20) + 512,
            end: 1 << 30,
            newest: [log_ptr(9), log_ptr(8)],
            logs_asize: 8192,
            logs: 2,
            trim: [0, 0],
        }
    }

    fn entry(n: u64) -> LogEntry {
        LogEntry {
            dva: [1 << 32 | n, n * 8],
            birth: Txg::new(n),
            at: (5 << 20) + n * 512,
            lsize: 16 << 20,
            psize: 512,
            compress: 16,
            compress_level: n,
            is_metadata: n.is_multiple_of(2),
            is_protected: n.is_multiple_of(3),
            is_prefetched: n.is_multiple_of(5),
            is_frequent: n.is_multiple_of(7),
        }
    }

    #[test]
    fn both_byte_orders() {
        let mut bytes = header().build();
        assert_eq!((bytes.len(), &bytes[..8]), (232, &b"EHCACSFZ"[..]));
        assert_eq!(DeviceHeader::parse(&bytes).unwrap(), Some(header()));
        swap::words(&mut bytes);
        assert_eq!(DeviceHeader::parse(&bytes).unwrap(), Some(header()));
        let log = L2LogBlock { older: log_ptr(3), entries: (1..=1022).map(entry).collect() };
        let mut bytes = log.build();
        assert_eq!((bytes.len(), &bytes[..8]), (LOG_BYTES, &b"DHKLBGOL"[..]));
        assert_eq!(L2LogBlock::parse(&bytes, 1022).unwrap(), log);
        swap::words(&mut bytes);
        assert_eq!(L2LogBlock::parse(&bytes, 1022).unwrap(), log);
        assert_eq!(L2LogBlock::parse(&bytes, 3).unwrap().entries, log.entries[..3]);
    }

    /// The numbers of an entry as OpenZFS 2.1 wrote it.
    #[test]
    fn properties_are_where_they_belong() {
        let mut out = Vec::new();
        let one = LogEntry { lsize: 128 << 10, psize: 4096, compress: 15, is_frequent: true, ..entry(7) };
        LogEntry { is_metadata: true, is_protected: false, is_prefetched: false, ..one }.build(&mut out);
        assert_eq!(Endian::Little.u64(&out[24..]), Some(3 << 57 | 2 << 48 | 15 << 32 | 7 << 16 | 255));
        let mut none = Vec::new();
        LogPtr::default().build(&mut none);
        assert_eq!(none, [0; 64]);
    }

    #[test]
    fn what_is_none() {
        assert_eq!(DeviceHeader::parse(&[0; 512]).unwrap(), None);
        assert_eq!(DeviceHeader::parse(&[]).unwrap(), None);
        let mut other = header().build();
        other[8] = 2;
        assert_eq!(DeviceHeader::parse(&other).unwrap(), None, "of another version");
        assert!(DeviceHeader::parse(&header().build()[..100]).is_err());
        assert!(DeviceHeader::parse(&DeviceHeader { log_entries: 1023, ..header() }.build()).is_err());
        assert!(L2LogBlock::parse(&[0; LOG_BYTES], 1).is_err());
        let log = L2LogBlock { older: log_ptr(3), entries: vec![entry(1)] }.build();
        assert!(L2LogBlock::parse(&log[..1000], 1022).is_err());
    }

    #[test]
    fn damage_is_no_panic() {
        let log = L2LogBlock { older: log_ptr(3), entries: (1..=1022).map(entry).collect() };
        for (whole, words) in [(header().build(), 29), (log.build(), 40)] {
            for at in 0..words * 8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 0xff;
                let _ = (DeviceHeader::parse(&bytes), L2LogBlock::parse(&bytes, u64::MAX));
                let _ = (DeviceHeader::parse(&whole[..at]), L2LogBlock::parse(&whole[..at], at as u64));
            }
        }
    }
}
