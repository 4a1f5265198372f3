//! About how long a core computes for a block, in nanoseconds: what decides whether others are woken to help.

use codec::compress::Compress;
use format::blkptr::BlkPtr;

use crate::pointer::checksum_kind;
use crate::write::BlockWrite;

/// To compress it, and for its checksum.
pub(crate) fn of_write(request: &BlockWrite) -> u64 {
    let compress = match request.compressed {
        Some(_) => 0,
        None => request.policy.compress.ns_per_kib().0,
    };
    (request.data.len() as u64 >> 10) * (compress + request.policy.checksum.ns_per_kib())
}

/// To verify its checksum, and to decompress it.
pub fn of_read(bp: &BlkPtr) -> u64 {
    of_check(bp) + of_unpacking(bp)
}

/// To verify its checksum.
pub(crate) fn of_check(bp: &BlkPtr) -> u64 {
    (bp.psize() >> 10) * checksum_kind(bp).map_or(0, |kind| kind.ns_per_kib())
}

/// To decompress it.
pub fn of_unpacking(bp: &BlkPtr) -> u64 {
    let (_, decompress) = Compress::from_u8(bp.compress()).map_or((0, 0), Compress::ns_per_kib);
    (bp.lsize() >> 10) * decompress
}
