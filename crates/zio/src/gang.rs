//! Gang blocks: a block that found no free run long enough, written as up to three smaller ones.
//!
//! ```text
//!   0         128        256        384    472          512
//!   | pointer | pointer  | pointer  |  pad | magic, sum |   a gang header: 512 bytes
//! ```
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

/// Bytes of a gang header.
pub(crate) const HEADER_SIZE: usize = 512;
/// Pointers in a gang header.
pub(crate) const MEMBERS: usize = 3;
/// How deep gang blocks may nest: a block of 16 MiB in sectors of 512 needs ten.
pub(crate) const DEPTH_MAX: usize = 16;

/// Where the header of a gang block is.
pub(crate) fn header_extent(bp: &BlkPtr, dva: &Dva) -> Extent {
    Extent { top: dva.vdev(), offset: dva.offset(), size: HEADER_SIZE as u64, birth_txg: bp.physical_birth() }
}

fn inspect_header(bp: &BlkPtr, bytes: &[u8]) -> Result<embedded::Sums> {
    let identity = bp.dvas()[0];
    let verifier = [identity.vdev(), identity.offset(), bp.physical_birth(), 0];
    embedded::inspect(Checksum::GangHeader, &verifier, bytes)
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
        let mut header = AlignedBuf::zeroed(HEADER_SIZE);
        let good = &mut |bytes: &[u8]| self.is_good_header(bp, bytes);
        self.read_noting(header_extent(bp, dva), &mut header, good, wounded)?;
        self.members_in(bp, &header)
    }

    /// Whether these are the bytes of the header of a gang block.
    pub(crate) fn is_good_header(&self, bp: &BlkPtr, bytes: &[u8]) -> bool {
        inspect_header(bp, bytes).is_ok_and(|sums| is_match(Checksum::GangHeader, bp, &sums))
    }

    /// The pointers in the bytes of a header.
    pub(crate) fn members_in(&self, bp: &BlkPtr, header: &[u8]) -> Result<Vec<BlkPtr>> {
        let mut header = AlignedBuf::from(header);
        if inspect_header(bp, &header)?.endian == Endian::Big {
            swap::words(&mut header);
        }
        Ok(BlkPtr::slice(&header[..MEMBERS * BlkPtr::SIZE])
            .iter()
            .filter(|member| !member.is_hole())
            .copied()
            .collect())
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
