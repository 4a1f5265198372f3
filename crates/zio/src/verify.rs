//! Checking blocks without using them: every copy of each, by its checksum.
//!
//! A read is content with the first copy that is right; a check of the pool wants to know of all.
//! Copies are read in one batch; one that is wrong is tried again with all the redundancy that its
//! vdev has, which charges the device at fault, and counts as good if that helps.

use std::cell::Cell;

use base::{AlignedBuf, Bookmark, Error, Kind, Result, ResultExt};
use format::blkptr::{BlkPtr, Dva};
use vdev::Extent;

use crate::effort;
use crate::pointer::{check_shape, extent};
use crate::zio::Zio;

/// A copy on its way from the device.
struct CopyRead {
    /// Number of the block in the batch.
    block: usize,
    bp: BlkPtr,
    extent: Extent,
    buf: AlignedBuf,
}

impl Zio {
    /// The state of each copy of each block, in the order of its addresses. Holes and embedded blocks
    /// have none. Encrypted blocks are checked as they are.
    pub fn verify_batch(&self, blocks: &[(BlkPtr, Bookmark)]) -> Vec<Vec<Result<()>>> {
        let mut copies = Vec::new();
        for (block, (bp, _)) in blocks.iter().enumerate().filter(|(_, (bp, _))| is_plain(bp)) {
            copies.extend(bp.copies().map(|dva| {
                let buf = AlignedBuf::for_overwrite(bp.psize() as usize);
                CopyRead { block, bp: *bp, extent: extent(bp, dva), buf }
            }));
        }
        let reads = {
            let extents: Vec<Extent> = copies.iter().map(|copy| copy.extent).collect();
            let mut bufs: Vec<&mut [u8]> = copies.iter_mut().map(|copy| &mut *copy.buf).collect();
            self.tree().read_batch(&extents, &mut bufs)
        };
        let work_ns = copies.iter().map(|copy| effort::of_check(&copy.bp)).sum();
        let work: Vec<_> = copies.into_iter().zip(reads).collect();
        let checked = self.env().map(work, work_ns, |(copy, read)| (copy.block, self.check_copy(copy, read.is_ok())));
        let mut results: Vec<Vec<Result<()>>> = blocks.iter().map(|_| Vec::new()).collect();
        for (block, result) in checked {
            results[block].push(result.at_block(blocks[block].1));
        }
        for ((bp, bookmark), results) in blocks.iter().zip(&mut results).filter(|((bp, _), _)| !is_plain(bp)) {
            let copies = check_shape(bp).map(|()| bp.copies().map(|dva| self.check_ganged(bp, dva)));
            match copies {
                Ok(copies) => results.extend(copies.map(|result| result.at_block(*bookmark))),
                Err(e) => results.push(Err(e.at_block(*bookmark))),
            }
        }
        results
    }

    fn check_copy(&self, mut copy: CopyRead, was_read: bool) -> Result<()> {
        if was_read && self.sums().is_good(&copy.bp, &copy.buf) {
            return Ok(());
        }
        self.tree()
            .read_verified(copy.extent, &mut copy.buf, &mut |bytes| self.sums().is_good(&copy.bp, bytes))
            .map(drop)
    }

    /// A copy of a block of which one copy at least is a gang block.
    fn check_ganged(&self, bp: &BlkPtr, dva: &Dva) -> Result<()> {
        if dva.is_gang() {
            let whole = self.read_gang(bp, dva, &Cell::default())?;
            // the members have sums of their own, so this is about which of them are put together
            let wrong = || Error::new(Kind::Checksum, "members of a gang block do not sum to it");
            return if self.sums().is_good(bp, &whole) { Ok(()) } else { Err(wrong()) };
        }
        let mut buf = AlignedBuf::for_overwrite(bp.psize() as usize);
        self.tree().read_verified(extent(bp, dva), &mut buf, &mut |bytes| self.sums().is_good(bp, bytes)).map(drop)
    }
}

/// Whether all copies are what they seem: runs of `psize` bytes.
fn is_plain(bp: &BlkPtr) -> bool {
    check_shape(bp).is_ok() && bp.copies().all(|dva| !dva.is_gang())
}
