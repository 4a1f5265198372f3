//! Gang blocks: a block that found no free run long enough, written as several smaller ones.
//!
//! A header ([`header`]) has the pointers to its members. A pointer in it may itself be a gang block. Its members'
//! bytes, in order, are the block's physical bytes; each member has its own checksum.

mod header;

use std::cell::Cell;

use base::{AlignedBuf, Error, Kind, Result};
use format::blkptr::{BlkPtr, Dva};
use vdev::Extent;

use crate::pointer::check_shape;
use crate::zio::Zio;
use header::HEADER_SIZE_MAX;
use header::header_extent;
pub(crate) use header::{DEPTH_MAX, HEADER_SIZE, MEMBERS, is_good_header, members_in};

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
        let extent = self.whole_header(bp, dva)?;
        let mut header = AlignedBuf::zeroed(extent.size as usize);
        let good = &mut |bytes: &[u8]| is_good_header(bp, bytes);
        self.read_noting(extent, &mut header, good, wounded)?;
        members_in(bp, &header)
    }

    /// Where a header is, with as much as it can be.
    pub(crate) fn whole_header(&self, bp: &BlkPtr, dva: &Dva) -> Result<Extent> {
        Ok(Extent { size: self.header_size(bp)?, ..header_extent(bp, dva) })
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

    /// All addresses of a block, those of gang members and headers included.
    pub(crate) fn addresses_of(&self, bp: &BlkPtr) -> Result<Vec<Dva>> {
        let mut dvas = Vec::new();
        self.addresses(bp, 0, &mut dvas)?;
        Ok(dvas)
    }

    fn addresses(&self, bp: &BlkPtr, depth: usize, out: &mut Vec<Dva>) -> Result<()> {
        check_shape(bp)?;
        out.extend(bp.copies());
        let mut headers = bp.copies().filter(|dva| dva.is_gang()).map(|dva| self.gang_members(bp, dva));
        let Some(mut members) = headers.next() else { return Ok(()) };
        while members.is_err()
            && let Some(next) = headers.next()
        {
            members = next;
        }
        let members = members?;
        // so there are no more members than the block has sectors
        let sum: u64 = members.iter().map(BlkPtr::psize).sum();
        if depth > DEPTH_MAX || sum != bp.psize() || members.iter().any(|member| member.is_embedded()) {
            return Err(Error::corrupt(format!("gang block of {} bytes has members of {sum}", bp.psize())));
        }
        members.iter().try_for_each(|member| self.addresses(member, depth + 1, out))
    }
}
