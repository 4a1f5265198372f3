//! What a guest reads of its disk, at the places that virtio 1.2 (5.2.4) gives.
//!
//! ```text
//!    0  capacity in sectors u64   8  size_max u32      12  seg_max u32       16  geometry
//!   20  blk_size u32             24  topology: physical block exponent u8, alignment u8, least u16 and best u32 of a request
//!   34  queues u16
//!   36  discards: sectors u32, segments u32, alignment u32
//!   48  zeroes: sectors u32, segments u32, may unmap u8
//! ```

use zvol::Zvol;

use crate::message::{CONFIG_BYTES_MAX, ConfigRange};
use crate::request::{SECTOR_BYTES, SEGMENTS_MAX};

/// Rings that a guest may have: QEMU takes one for each processor.
pub(crate) const RINGS_MAX: usize = 128;
/// Entries of a ring, at most: what QEMU allows.
pub(crate) const RING_ENTRIES_MAX: u16 = 1024;
/// Data segments of one request that drivers are told of; a ring of the usual 128 entries has room for head and status.
const DATA_SEGMENTS: u32 = 126;
/// Sectors of one discard or of zeroes: 1 GiB. What takes longer holds up a guest's flushes.
const RANGE_SECTORS_MAX: u32 = 1 << 21;

/// The part of the configuration that is asked for.
pub(crate) fn part(volume: &Zvol, range: ConfigRange) -> Vec<u8> {
    let mut bytes = [0; CONFIG_BYTES_MAX as usize];
    let block_sectors = volume.block_size() / SECTOR_BYTES;
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &(volume.size() / SECTOR_BYTES).to_le_bytes());
    put(12, &DATA_SEGMENTS.to_le_bytes());
    put(20, &(SECTOR_BYTES as u32).to_le_bytes());
    put(24, &[block_sectors.checked_ilog2().unwrap_or(0) as u8]);
    put(26, &u16::try_from(block_sectors).unwrap_or(0).to_le_bytes());
    put(28, &(block_sectors as u32).to_le_bytes());
    put(34, &(RINGS_MAX as u16).to_le_bytes());
    put(36, &RANGE_SECTORS_MAX.to_le_bytes());
    put(40, &SEGMENTS_MAX.to_le_bytes());
    put(44, &(block_sectors as u32).to_le_bytes());
    put(48, &RANGE_SECTORS_MAX.to_le_bytes());
    put(52, &SEGMENTS_MAX.to_le_bytes());
    put(56, &[1]);
    // checked when it was parsed
    bytes[range.offset as usize..(range.offset + range.size) as usize].to_vec()
}
