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

impl Zio {
    /// The physical bytes of a gang block by one of its copies.
    pub(crate) fn read_gang(&self, bp: &BlkPtr, dva: &Dva) -> Result<AlignedBuf> {
        let mut whole = AlignedBuf::for_overwrite(bp.psize() as usize);
        let filled = self.fill_from_gang(bp, dva, &mut whole, 0)?;
        if filled != whole.len() {
            return Err(Error::corrupt(format!("gang block of {} bytes has members of {filled}", whole.len())));
        }
        Ok(whole)
    }

    /// The pointers in a gang header that lead somewhere.
    pub fn gang_members(&self, bp: &BlkPtr, dva: &Dva) -> Result<Vec<BlkPtr>> {
        let identity = bp.dvas()[0];
        let verifier = [identity.vdev(), identity.offset(), bp.physical_birth(), 0];
        let mut header = AlignedBuf::zeroed(HEADER_SIZE);
        let extent =
            Extent { top: dva.vdev(), offset: dva.offset(), size: HEADER_SIZE as u64, birth_txg: bp.physical_birth() };
        let inspect = |bytes: &[u8]| embedded::inspect(Checksum::GangHeader, &verifier, bytes);
        let good = &mut |bytes: &[u8]| inspect(bytes).is_ok_and(|sums| is_match(Checksum::GangHeader, bp, &sums));
        self.tree().read_verified(extent, &mut header, good)?;
        if inspect(&header)?.endian == Endian::Big {
            swap::words(&mut header);
        }
        Ok(BlkPtr::slice(&header[..MEMBERS * BlkPtr::SIZE])
            .iter()
            .filter(|member| !member.is_hole())
            .copied()
            .collect())
    }

    fn fill_from_gang(&self, bp: &BlkPtr, dva: &Dva, out: &mut [u8], depth: usize) -> Result<usize> {
        if depth > DEPTH_MAX {
            return Err(Error::corrupt(format!("gang blocks nested deeper than {DEPTH_MAX}")));
        }
        let mut filled = 0;
        for member in self.gang_members(bp, dva)? {
            let size = member.psize() as usize;
            let left = out.len() - filled;
            let Some(part) = out.get_mut(filled..filled + size) else {
                return Err(Error::corrupt(format!("gang block: a member of {size} bytes where {left} are left")));
            };
            if member.is_gang() {
                self.fill_member(&member, part, depth)?;
            } else {
                part.copy_from_slice(&self.recover(&member)?);
            }
            filled += size;
        }
        Ok(filled)
    }

    fn fill_member(&self, member: &BlkPtr, part: &mut [u8], depth: usize) -> Result<()> {
        let mut error = Error::new(Kind::Corrupt, "gang member without address");
        for dva in member.copies() {
            match self.fill_from_gang(member, dva, part, depth + 1) {
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
