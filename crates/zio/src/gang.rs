//! Gang blocks: a block that found no free run long enough, written as several smaller ones.
//!
//! ```text
//!   0         128        256        384    472          512
//!   | pointer | pointer  | pointer  |  pad | magic, sum |   a gang header: 512 bytes
//! ```
//!
//! With the feature dynamic_gang_header it is as long as the shortest block of the vdevs that have its copies,
//! with as many pointers as fit; which of both it is, the sum tells. Cenote writes the short one.
//!
//! A pointer in a header may itself be a gang block. Its members' bytes, in order, are the block's
//! physical bytes; each member has its own checksum. The header's checksum is keyed with its address
//! and birth txg; that of an encrypted block is cut as if there were a MAC, though there is none.

use std::cell::Cell;

use base::{AlignedBuf, Endian, Error, Kind, Result};
use codec::checksum::{Checksum, embedded};
use format::blkptr::{BlkPtr, Dva};
use format::swap;
use vdev::Extent;

use crate::Zio;
use crate::read::is_match;

/// Bytes of a gang header, at least.
pub(crate) const HEADER_SIZE: usize = 512;
/// Pointers in a gang header of that size.
pub(crate) const MEMBERS: usize = 3;
/// Most bytes of a gang header: those of the largest group of sectors of a draid.
const HEADER_SIZE_MAX: usize = 16 << 20;
/// How deep gang blocks may nest: a block of 16 MiB in sectors of 512 needs ten.
pub(crate) const DEPTH_MAX: usize = 16;

/// Where the header of a gang block is in a pool that Cenote writes.
pub(crate) fn header_extent(bp: &BlkPtr, dva: &Dva) -> Extent {
    Extent { top: dva.vdev(), offset: dva.offset(), size: HEADER_SIZE as u64, birth_txg: bp.physical_birth() }
}

/// The length of the header that these bytes begin with, and the byte order of who wrote it; `None` if it is wrong.
fn inspect_header(bp: &BlkPtr, bytes: &[u8]) -> Option<(usize, Endian)> {
    let identity = bp.dvas()[0];
    let verifier = [identity.vdev(), identity.offset(), bp.physical_birth(), 0];
    [bytes.len(), HEADER_SIZE].into_iter().find_map(|len| {
        let sums = embedded::inspect(Checksum::GangHeader, &verifier, bytes.get(..len)?).ok()?;
        is_match(Checksum::GangHeader, bp, &sums).then_some((len, sums.endian))
    })
}

impl Zio {
    /// The physical bytes of a gang block by one of its copies. `wounded` is set if something of it is wrong, and
    /// was read elsewhere.
    pub(crate) fn read_gang(&self, bp: &BlkPtr, dva: &Dva, wounded: &Cell<bool>) -> Result<AlignedBuf> {
        let mut whole = AlignedBuf::for_overwrite(bp.psize() as usize);
        let filled = self.fill_from_gang(bp, dva, &mut whole, (0, wounded))?;
        if filled != whole.len() {
            return Err(Error::corrupt(format!("gang block of {} bytes has members of {filled}", whole.len())));
        }
        Ok(whole)
    }

    /// The pointers in a gang header that lead somewhere.
    pub fn gang_members(&self, bp: &BlkPtr, dva: &Dva) -> Result<Vec<BlkPtr>> {
        self.gang_members_noting(bp, dva, &Cell::default())
    }

    /// The same, and notes if a copy of the header is wrong.
    fn gang_members_noting(&self, bp: &BlkPtr, dva: &Dva, wounded: &Cell<bool>) -> Result<Vec<BlkPtr>> {
        let extent = Extent { size: self.header_size(bp)?, ..header_extent(bp, dva) };
        let mut header = AlignedBuf::zeroed(extent.size as usize);
        let good = &mut |bytes: &[u8]| self.is_good_header(bp, bytes);
        self.read_noting(extent, &mut header, good, wounded)?;
        self.members_in(bp, &header)
    }

    /// Whether these are the bytes of the header of a gang block.
    pub(crate) fn is_good_header(&self, bp: &BlkPtr, bytes: &[u8]) -> bool {
        inspect_header(bp, bytes).is_some()
    }

    /// The pointers in the bytes of a header.
    pub(crate) fn members_in(&self, bp: &BlkPtr, header: &[u8]) -> Result<Vec<BlkPtr>> {
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

    /// The most bytes that a header at all the addresses of `bp` can have.
    fn header_size(&self, bp: &BlkPtr) -> Result<u64> {
        let mut shortest = bp.copies().map(|dva| self.tree().shortest_block(dva.vdev()));
        let shortest = shortest.try_fold(u64::MAX, |least, size| Ok::<_, Error>(least.min(size?)))?;
        Ok(shortest.clamp(HEADER_SIZE as u64, HEADER_SIZE_MAX as u64))
    }

    fn fill_from_gang(&self, bp: &BlkPtr, dva: &Dva, out: &mut [u8], at: (usize, &Cell<bool>)) -> Result<usize> {
        let (depth, wounded) = at;
        if depth > DEPTH_MAX {
            return Err(Error::corrupt(format!("gang blocks nested deeper than {DEPTH_MAX}")));
        }
        let mut filled = 0;
        for member in self.gang_members_noting(bp, dva, wounded)? {
            let size = member.psize() as usize;
            let left = out.len() - filled;
            let Some(part) = out.get_mut(filled..filled + size) else {
                return Err(Error::corrupt(format!("gang block: a member of {size} bytes where {left} are left")));
            };
            if member.is_gang() {
                self.fill_member(&member, part, at)?;
            } else {
                part.copy_from_slice(&self.recover(&member, wounded)?);
            }
            filled += size;
        }
        Ok(filled)
    }

    fn fill_member(&self, member: &BlkPtr, part: &mut [u8], (depth, wounded): (usize, &Cell<bool>)) -> Result<()> {
        let mut error = Error::new(Kind::Corrupt, "gang member without address");
        for dva in member.copies() {
            match self.fill_from_gang(member, dva, part, (depth + 1, wounded)) {
                Ok(filled) if filled == part.len() => return Ok(()),
                Ok(filled) => {
                    error = Error::corrupt(format!("gang member of {} bytes has members of {filled}", part.len()));
                }
                Err(e) => error = e,
            }
        }
        Err(error)
    }
}
