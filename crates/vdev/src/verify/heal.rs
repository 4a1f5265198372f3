//! Mending: the right bytes of an extent are written to every leaf that has others.
//!
//! Parity is mended with the data. A leaf that is known to have missed the block's birth is given it by a resilver
//! only ([`Lacking::Fill`]): what it lacks is more than one block. Nobody is charged with an error that a reader was
//! told of.
//!
//! The caller sees to it that the block is still in use, and stays so until this is done: otherwise another may have
//! its place.

use std::sync::atomic::Ordering;

use base::{AlignedBuf, Error, Kind, Result};
use device::meter::Purpose;
use format::ids::Txg;

use super::copy::LeafCopy;
use super::search;
use super::source::VersionSource;
use crate::health::VdevStats;
use crate::locate::{Choice, Extent};
use crate::tree::Tree;

/// What happens to leaves that are known to have missed the birth of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// They are left alone.
    Leave,
    /// They are given the block, which is what a resilver does. What cannot be written to them they go on lacking
    /// ([`crate::Dtl::note_unfilled`]).
    Fill,
}

impl Tree {
    /// Reads `extent` in every way that there is until `good` says that the bytes are right, and writes them to all
    /// leaves that have others, or fail to read theirs. How many bytes were written; they last with the next
    /// [`Tree::flush`].
    ///
    /// Errors: as from [`Tree::read_verified`]. A leaf that fails to write has the error counted.
    pub fn heal(&self, extent: Extent, lacking: Lacking, good: &mut dyn FnMut(&[u8]) -> bool) -> Result<u64> {
        let wanted = extent.size as usize;
        let size = self.padded_size(&extent, wanted)?;
        let mut sources = self.sources_to_mend(&extent, size)?;
        let mut block = AlignedBuf::zeroed(size);
        search::search(self, &mut sources, &mut block, &mut |block| good(&block[..wanted]))?;
        // what fills up the last sector has no checksum
        block[wanted..].fill(0);
        self.count_block(&extent, VdevStats::count_read);
        self.mend(&extent, lacking, &mut sources, &block)
    }

    /// As [`Tree::heal`], to see whether all is right: all that leaves return of `extent` is read and compared,
    /// and leaves are charged with what is wrong, as by [`Tree::read_verified`]. How many bytes were written.
    pub fn scrub(&self, extent: Extent, lacking: Lacking, good: &mut dyn FnMut(&[u8]) -> bool) -> Result<u64> {
        let wanted = extent.size as usize;
        let size = self.padded_size(&extent, wanted)?;
        let (mut sources, order) = self.sources(&extent, size)?;
        if order.is_some() {
            // of before a raidz was expanded: the blocks are verified, but not mended
            let mut buf = AlignedBuf::zeroed(wanted);
            return self.read_verified(extent, &mut buf, good).map(|_| 0);
        }
        let mut block = AlignedBuf::zeroed(size);
        let outcome = search::search(self, &mut sources, &mut block, &mut |block| good(&block[..wanted]));
        if outcome.is_ok() {
            sources.iter_mut().for_each(|source| source.load_all(self));
        }
        sources.iter().flat_map(VersionSource::copies).for_each(|copy| copy.charge_failure(self));
        if let Err(error) = outcome {
            sources.iter().flat_map(VersionSource::copies).for_each(|copy| copy.charge(self, None));
            return Err(self.naming(error, &sources));
        }
        block[wanted..].fill(0);
        self.count_block(&extent, VdevStats::count_read);
        let mut is_wounded = false;
        for source in &sources {
            source.compare(&block[source.range()], &mut |copy, right| {
                copy.charge(self, Some(right));
                is_wounded |= copy.is_wounded(right);
            });
        }
        let has_work = is_wounded || lacking == Lacking::Fill;
        if has_work { self.mend(&extent, lacking, &mut sources, &block) } else { Ok(0) }
    }

    /// Writes `right` to all leaves that have other bytes in `extent`, none of which is right there. How many bytes.
    pub fn write_over(&self, extent: Extent, lacking: Lacking, right: &[u8]) -> Result<u64> {
        let size = self.padded_size(&extent, right.len())?;
        let mut block = AlignedBuf::zeroed(size);
        block[..right.len()].copy_from_slice(right);
        self.mend(&extent, lacking, &mut self.sources_to_mend(&extent, size)?, &block)
    }

    fn sources_to_mend(&self, extent: &Extent, size: usize) -> Result<Vec<VersionSource>> {
        match self.sources(extent, size)? {
            (sources, None) => Ok(sources),
            (_, Some(_)) => Err(Error::new(Kind::Unsupported, "blocks of before a raidz was expanded are not mended")),
        }
    }

    fn mend(&self, extent: &Extent, lacking: Lacking, sources: &mut [VersionSource], block: &[u8]) -> Result<u64> {
        let sector = 1usize << self.top(extent.top)?.ashift();
        let mut wounds: Vec<(Choice, AlignedBuf)> = Vec::new();
        for source in sources {
            source.load_all(self);
            source.compare(&block[source.range()], &mut |copy: &LeafCopy, right| {
                if copy.is_wounded(right) || lacking == Lacking::Fill && copy.is_to_be_filled(right) {
                    let mut bytes = AlignedBuf::zeroed(right.len().next_multiple_of(sector));
                    bytes[..right.len()].copy_from_slice(right);
                    wounds.push((copy.from, bytes));
                }
            });
        }
        let mut writes: Vec<_> = wounds
            .iter()
            .map(|(from, bytes)| self.write_of(from.leaf, from.offset, bytes, Purpose::AsyncWrite))
            .collect();
        device::write_batch(&mut writes);
        let results: Vec<Result<()>> = writes.into_iter().map(|write| write.result).collect();
        let mut healed = 0;
        for ((from, bytes), result) in wounds.iter().zip(results) {
            let leaf = self.state_of(from.leaf);
            match result {
                Ok(()) => {
                    let (offset, bytes) = (from.offset, bytes.len() as u64);
                    tracing::debug!(vdev = self.vdev(from.leaf).name(), offset, bytes, "mended");
                    leaf.note_written(Txg::ZERO..Txg::ZERO);
                    leaf.stats().healed_bytes.fetch_add(bytes, Ordering::Relaxed);
                    healed += bytes;
                }
                Err(error) => {
                    leaf.charge_write(&error);
                    leaf.dtl().note_unfilled(extent.birth_txg);
                }
            }
        }
        Ok(healed)
    }
}
