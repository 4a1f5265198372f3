//! Mending: the right bytes of an extent are written to every leaf that has others.
//!
//! Parity is mended with the data. A leaf that is known to have missed the block's birth is given it by a resilver
//! only ([`Lacking::Fill`]): what it lacks is more than one block. Nobody is charged with an error that a reader was
//! told of.
//!
//! The caller sees to it that the block is still in use, and stays so until this is done: otherwise another may have
//! its place.

use std::sync::atomic::Ordering;

use base::{AlignedBuf, CopyKind, Result, count_copy};
use device::meter::Purpose;
use format::ids::Txg;

use super::copy::{self, LeafCopy};
use super::lacking::Lacking;
use super::rows::columns_of;
use super::search;
use super::source::VersionSource;
use crate::expansion::SectorOrder;
use crate::health::VdevStats;
use crate::locate::{Branch, Choice, Extent, ExtentSegment};
use crate::tree::Tree;
use crate::vdev::Placement;

/// An extent of which all that leaves have was read ahead.
pub struct ExtentCopies {
    extent: Extent,
    /// Sources, and the order of their sectors.
    sources: Result<(Vec<VersionSource>, Option<SectorOrder>)>,
}

/// Reads sources in every way until `good` says that the `wanted` bytes of the block are right. The whole of it, of
/// `size` bytes, as the sources have it; what fills up the last sector has no checksum, and is zeros.
fn search_ordered(
    tree: &Tree,
    sources: &mut [VersionSource],
    order: Option<SectorOrder>,
    (wanted, size): (usize, usize),
    good: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<AlignedBuf> {
    let (mut found, mut block) = (AlignedBuf::zeroed(size), AlignedBuf::zeroed(size));
    search::search(tree, sources, &mut found, &mut |found| match &order {
        None => good(&found[..wanted]),
        Some(order) => {
            order.restore(found, &mut block);
            good(&block[..wanted])
        }
    })?;
    match order {
        None => found[wanted..].fill(0),
        Some(order) => {
            block[wanted..].fill(0);
            found = order.lines(&block);
        }
    }
    Ok(found)
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
        let (mut sources, order) = self.sources(&extent, size)?;
        let found = search_ordered(self, &mut sources, order, (wanted, size), good)?;
        self.count_block(&extent, VdevStats::count_read);
        self.mend(&extent, lacking, &mut sources, &found)
    }

    /// As [`Tree::heal`], to see whether all is right: all that leaves return of `extent` is read and compared,
    /// and leaves are charged with what is wrong, as by [`Tree::read_verified`]. How many bytes were written.
    pub fn scrub(&self, extent: Extent, lacking: Lacking, good: &mut dyn FnMut(&[u8]) -> bool) -> Result<u64> {
        let sources = self.sources_of(&extent);
        self.scrub_copies(ExtentCopies { extent, sources }, lacking, good)
    }

    /// Reads all that leaves have of `extents`, all at once, for [`Tree::scrub_ahead`]: neighbours on a leaf are asked
    /// for together.
    pub fn read_ahead(&self, extents: impl Iterator<Item = Extent>, lacking: Lacking) -> Vec<ExtentCopies> {
        let mut all: Vec<ExtentCopies> =
            extents.map(|extent| ExtentCopies { extent, sources: self.sources_of(&extent) }).collect();
        let sources = all.iter_mut().filter_map(|copies| copies.sources.as_mut().ok());
        let copies = sources.flat_map(|(sources, _)| sources).flat_map(VersionSource::copies_mut);
        copy::read_ahead(self, copies.filter(|(copy, _)| copy.is_worth_reading(lacking)));
        all
    }

    /// As [`Tree::scrub`], of what [`Tree::read_ahead`] brought. Nobody is charged with more or less than there.
    pub fn scrub_ahead(
        &self,
        copies: ExtentCopies,
        lacking: Lacking,
        good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        let mut sources = copies.sources.iter().flat_map(|(sources, _)| sources);
        let has_lost_one = sources.any(|source| source.copies().any(LeafCopy::is_gone));
        // once it is noted that a device is gone, it is asked no more
        if has_lost_one { self.scrub(copies.extent, lacking, good) } else { self.scrub_copies(copies, lacking, good) }
    }

    fn sources_of(&self, extent: &Extent) -> Result<(Vec<VersionSource>, Option<SectorOrder>)> {
        self.sources(extent, self.padded_size(extent, extent.size as usize)?)
    }

    fn scrub_copies(&self, copies: ExtentCopies, lacking: Lacking, good: &mut dyn FnMut(&[u8]) -> bool) -> Result<u64> {
        let extent = copies.extent;
        let (mut sources, order) = copies.sources?;
        let wanted = extent.size as usize;
        let size = self.padded_size(&extent, wanted)?;
        let outcome = search_ordered(self, &mut sources, order, (wanted, size), good);
        if outcome.is_ok() {
            sources.iter_mut().for_each(|source| source.load_all(self, lacking));
        }
        sources.iter().flat_map(VersionSource::copies).for_each(|copy| copy.charge_failure(self));
        let block = match outcome {
            Ok(block) => block,
            Err(error) => {
                sources.iter().flat_map(VersionSource::copies).for_each(|copy| copy.charge(self, None));
                return Err(self.naming(error, &sources));
            }
        };
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
        count_copy(CopyKind::FromColumns, right.len());
        block[..right.len()].copy_from_slice(right);
        let (mut sources, order) = self.sources(&extent, size)?;
        match order {
            None => self.mend(&extent, lacking, &mut sources, &block),
            Some(order) => self.mend(&extent, lacking, &mut sources, &order.lines(&block)),
        }
    }

    /// `block` is in the order of the sources.
    fn mend(&self, extent: &Extent, lacking: Lacking, sources: &mut [VersionSource], block: &[u8]) -> Result<u64> {
        let sector = 1usize << self.top(extent.top)?.ashift();
        let mut wounds: Vec<(Choice, AlignedBuf)> = Vec::new();
        for source in sources {
            source.load_all(self, lacking);
            source.compare(&block[source.range()], &mut |copy: &LeafCopy, right| {
                if copy.is_wounded(right) || lacking == Lacking::Fill && copy.is_to_be_filled(right) {
                    let mut bytes = AlignedBuf::zeroed(right.len().next_multiple_of(sector));
                    count_copy(CopyKind::FromColumns, right.len());
                    bytes[..right.len()].copy_from_slice(right);
                    wounds.push((copy.from, bytes));
                }
            });
        }
        if lacking == Lacking::Fill {
            self.fill_up_lines(extent, block.len(), &mut wounds)?;
        }
        if self.expanding().is_some() && (!wounds.is_empty() || lacking == Lacking::Fill) {
            self.add_other_places(extent, block, &mut wounds)?;
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

    /// The further places of all columns, on a raidz that is being expanded.
    fn add_other_places(&self, extent: &Extent, block: &[u8], wounds: &mut Vec<(Choice, AlignedBuf)>) -> Result<()> {
        for ExtentSegment { vdev, offset, range } in self.segments(extent, block.len())? {
            if !matches!(vdev.place(), Placement::Raidz(_)) {
                continue;
            }
            for row in self.rows(vdev, offset, range.len(), extent.birth_txg)?.0 {
                if row.also.is_empty() {
                    continue;
                }
                let (parity, data) = columns_of(&row, &block[range.start + row.start..]);
                let columns: Vec<&[u8]> = parity.iter().map(Vec::as_slice).chain(data).collect();
                for (number, place) in &row.also {
                    self.each_branch(self.child(vdev, place.child), place.offset, extent.birth_txg, &mut |branch| {
                        if let Branch::Leaf(from) = branch {
                            wounds.push((from, AlignedBuf::from(columns[*number])));
                        }
                    });
                }
            }
        }
        Ok(())
    }

    /// What fills up the last line of each row on a draid: zeros, which leaves lack that lack the block. A
    /// sequential rebuild, which does not know of blocks, takes them for data.
    fn fill_up_lines(&self, extent: &Extent, size: usize, wounds: &mut Vec<(Choice, AlignedBuf)>) -> Result<()> {
        for ExtentSegment { vdev, offset, range } in self.segments(extent, size)? {
            if !matches!(vdev.place(), Placement::Draid(_)) {
                continue;
            }
            for row in self.rows(vdev, offset, range.len(), extent.birth_txg)?.0 {
                let height = row.columns[0].size;
                for column in row.columns.iter().filter(|column| column.size < height) {
                    let at = column.offset.saturating_add(column.size as u64);
                    self.each_branch(
                        self.child(vdev, column.child),
                        at,
                        extent.birth_txg,
                        &mut |branch| match branch {
                            Branch::Leaf(from) if !from.trusted => {
                                wounds.push((from, AlignedBuf::zeroed(height - column.size)));
                            }
                            Branch::Leaf(_) | Branch::Rows { .. } => {}
                        },
                    );
                }
            }
        }
        Ok(())
    }
}
