//! The header of a gang block.
//!
//! ```text
//!   0         128        256        384    472          512
//!   | pointer | pointer  | pointer  |  pad | magic, sum |   a gang header: 512 bytes
//! ```
//!
//! With the feature dynamic_gang_header it is as long as the shortest block of the vdevs that have its copies,
//! with as many pointers as fit; which of both it is, the sum tells. Cenote writes the short one.
//!
//! The header's checksum is keyed with its address and birth txg; that of an encrypted block is cut as if there were a
//! MAC, though there is none.

use base::{AlignedBuf, Endian, Error, Kind, Result};
use codec::checksum::{Checksum, embedded};
use format::blkptr::{BlkPtr, Dva};
use format::swap;
use vdev::Extent;

use crate::pointer::is_match;

/// Bytes of a gang header, at least.
pub(crate) const HEADER_SIZE: usize = 512;
/// Pointers in a gang header of that size.
pub(crate) const MEMBERS: usize = 3;
/// Most bytes of a gang header: those of the largest group of sectors of a draid.
pub(crate) const HEADER_SIZE_MAX: usize = 16 << 20;
/// How deep gang blocks may nest: a block of 16 MiB in sectors of 512 needs ten.
pub(crate) const DEPTH_MAX: usize = 16;

/// Where the header of a gang block is in a pool that Cenote writes.
pub(crate) fn header_extent(bp: &BlkPtr, dva: &Dva) -> Extent {
    Extent { top: dva.vdev(), offset: dva.offset(), size: HEADER_SIZE as u64, birth_txg: bp.physical_birth() }
}

/// The length of the header that these bytes begin with, and the byte order of its writer; `None` if it is wrong.
fn inspect_header(bp: &BlkPtr, bytes: &[u8]) -> Option<(usize, Endian)> {
    let identity = bp.dvas()[0];
    let verifier = [identity.vdev().get(), identity.offset(), bp.physical_birth().get(), 0];
    [bytes.len(), HEADER_SIZE].into_iter().find_map(|len| {
        let sums = embedded::inspect(Checksum::GangHeader, &verifier, bytes.get(..len)?).ok()?;
        is_match(Checksum::GangHeader, bp, &sums).then_some((len, sums.endian))
    })
}

/// Whether these are the bytes of the header of a gang block.
pub(crate) fn is_good_header(bp: &BlkPtr, bytes: &[u8]) -> bool {
    inspect_header(bp, bytes).is_some()
}

/// The pointers in the bytes of a header.
pub(crate) fn members_in(bp: &BlkPtr, header: &[u8]) -> Result<Vec<BlkPtr>> {
    let mut header = AlignedBuf::from(header);
    let wrong = || Error::new(Kind::Checksum, "gang header that does not match its checksum");
    let (len, endian) = inspect_header(bp, &header).ok_or_else(wrong)?;
    if endian == Endian::Big {
        swap::words(&mut header[..len]);
    }
    let count = (len - embedded::TAIL_LEN) / BlkPtr::SIZE;
    let members = BlkPtr::slice(&header[..count * BlkPtr::SIZE]).iter();
    Ok(members.filter(|member| !member.is_hole()).copied().collect())
}
