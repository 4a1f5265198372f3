//! Writing gang blocks, for want of a run that is long enough: see [`crate::gang`] for their shape.
//!
//! A block is cut into up to three members of about the same size; one that finds no run either
//! becomes a gang block itself. A header has one copy more than the block, where there is room, as
//! much depends on it. Nothing is written before all has been allocated.

use base::{AlignedBuf, Endian, Error, Kind, Result};
use codec::checksum::{Checksum, embedded};
use codec::compress::Compress;
use format::blkptr::{BlkPtr, BlkPtrBuilder, BlockShape, Dva};
use format::ids::Txg;
use format::object_type::ObjectType;
use zerocopy::IntoBytes;

use super::request::BlockWrite;
use super::transform::owned;
use crate::alloc::Allocator;
use crate::gang::{DEPTH_MAX, HEADER_SIZE, MEMBERS};
use crate::issue::{BlockSlice, ExtentWrite};
use crate::sums::BlockSums;

/// A gang block in the making.
struct Gang<'a> {
    sums: &'a BlockSums,
    allocator: &'a Allocator,
    request: &'a BlockWrite,
    txg: Txg,
    sector: usize,
    placed: Vec<Dva>,
    writes: Vec<ExtentWrite>,
}

/// Allocates `bytes` in pieces: the addresses of the header, and all writes.
/// Errors: `NoSpace`, and then nothing is allocated.
pub(super) fn place_gang(
    sums: &BlockSums,
    allocator: &Allocator,
    txg: Txg,
    request: &BlockWrite,
    bytes: &BlockSlice,
) -> Result<(Vec<Dva>, Vec<ExtentWrite>)> {
    let sector = allocator.sector(request.policy.class) as usize;
    let mut gang = Gang { sums, allocator, request, txg, sector, placed: Vec::new(), writes: Vec::new() };
    match gang.place(bytes, 0) {
        Ok(dvas) => Ok((dvas, gang.writes)),
        Err(e) => {
            for dva in &gang.placed {
                allocator.unallocate(txg, dva).expect("allocated a moment ago");
            }
            Err(e)
        }
    }
}

impl Gang<'_> {
    fn place(&mut self, bytes: &BlockSlice, depth: usize) -> Result<Vec<Dva>> {
        if bytes.len() <= self.sector || depth > DEPTH_MAX {
            return Err(Error::new(Kind::NoSpace, "no room for the members of a gang block"));
        }
        let copies = self.request.policy.copies;
        let headers = match self.allocate(HEADER_SIZE, (copies + 1).min(3)) {
            Err(e) if e.kind() == Kind::NoSpace && copies < 3 => self.allocate(HEADER_SIZE, copies),
            other => other,
        }?;
        let mut asizes: Vec<u64> = headers.iter().map(Dva::asize).collect();
        let as_gang = |dva: &Dva, asize: u64| Dva::new(dva.vdev(), dva.offset(), asize, true);
        self.placed.extend(headers.iter().map(|dva| as_gang(dva, dva.asize())));
        let mut header = AlignedBuf::zeroed(HEADER_SIZE);
        let mut at = 0;
        for number in 0..MEMBERS {
            let left = bytes.len() - at;
            let len = (left / (MEMBERS - number)).next_multiple_of(self.sector).min(left);
            if len == 0 {
                break;
            }
            let member = self.member(&bytes.part(at..at + len), depth)?;
            asizes.iter_mut().zip(member.dvas()).for_each(|(sum, dva)| *sum += dva.asize());
            header[number * BlkPtr::SIZE..(number + 1) * BlkPtr::SIZE].copy_from_slice(member.as_bytes());
            at += len;
        }
        let verifier = [headers[0].vdev().get(), headers[0].offset(), self.txg.get(), 0];
        embedded::seal(Checksum::GangHeader, Endian::Little, &verifier, &mut header)?;
        let header = owned(header);
        for dva in &headers {
            self.writes.push(ExtentWrite::new(dva, dva.asize(), self.txg, header.clone(), self.request.bookmark));
        }
        Ok(headers.iter().zip(asizes).map(|(dva, asize)| as_gang(dva, asize)).collect())
    }

    fn member(&mut self, bytes: &BlockSlice, depth: usize) -> Result<BlkPtr> {
        let dvas = match self.allocate(bytes.len(), self.request.policy.copies) {
            Ok(dvas) => {
                self.placed.extend(&dvas);
                for dva in &dvas {
                    self.writes.push(ExtentWrite::new(
                        dva,
                        dva.asize(),
                        self.txg,
                        bytes.clone(),
                        self.request.bookmark,
                    ));
                }
                dvas
            }
            Err(e) if e.kind() == Kind::NoSpace => self.place(bytes, depth + 1)?,
            Err(e) => return Err(e),
        };
        let kind = self.request.policy.checksum;
        let size = bytes.len() as u64;
        let shape = BlockShape {
            lsize: size,
            psize: size,
            compress: Compress::Off as u8,
            checksum: kind as u8,
            object_type: ObjectType::NONE,
            level: 0,
        };
        let sum = self.sums.compute(kind, Endian::Little, bytes);
        Ok(BlkPtrBuilder::new(shape, self.txg).at(&dvas).checksum(sum).build())
    }

    fn allocate(&self, size: usize, copies: u8) -> Result<Vec<Dva>> {
        self.allocator.allocate(self.request.policy.class, size as u64, copies, self.txg)
    }
}
