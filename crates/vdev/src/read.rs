//! First-choice reads, in batches.
//!
//! Each extent becomes reads of leaves: one for a leaf or mirror, one for each data column of a
//! raidz, one for each piece of a removed vdev. All reads of all extents run together, and put the
//! bytes where the caller wants them. Parity is read only where a data column is known to be gone
//! or stale; then the column is rebuilt before the batch returns.
//!
//! Nobody here knows checksums: what a leaf returns is taken as it is. The caller checks, and turns
//! to [`Tree::read_verified`] when the bytes are wrong, and when there are none.

use std::ops::Range;

use base::{AlignedBuf, CopyKind, Env, Result, WorkKind, count_copy};
use device::Read;
use device::meter::Purpose;
use format::ids::Txg;

use crate::expansion::SectorOrder;
use crate::health::VdevStats;
use crate::locate::{Branch, Choice, Extent, ExtentSegment, nothing_left};
use crate::raidz::{Column, Row, split_columns};
use crate::tree::Tree;
use crate::vdev::{Vdev, VdevId};

/// What served an extent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedExtent {
    /// The leaves that were read, parity columns included.
    pub leaves: Vec<VdevId>,
    /// Whether a part was rebuilt from parity.
    pub rebuilt: bool,
}

/// What must be read for an extent.
#[derive(Default)]
struct ReadPlan {
    /// In order, and apart from each other.
    reads: Vec<LeafRead>,
    rebuilds: Vec<RowRebuild>,
    /// Takes the place of the caller's buffer if that does not end with a sector, or sectors come in another order.
    padded: Option<AlignedBuf>,
    order: Option<SectorOrder>,
}

struct LeafRead {
    from: Choice,
    range: Range<usize>,
}

/// Columns to be rebuilt after the batch.
struct RowRebuild {
    row: Row,
    /// Offset in the extent of the block that the row is of.
    base: usize,
    /// Numbers of the data columns that are gone.
    missing: Vec<usize>,
    /// The parity columns to be read: as many as are needed.
    parity: Vec<Option<Choice>>,
    /// Their bytes, one after the other.
    scratch: AlignedBuf,
}

impl Tree {
    /// Reads every extent into its buffer, from the leaves of first choice, all at once.
    ///
    /// The results are in the order of the extents. An extent whose first choice failed, or could
    /// not be made up for by parity, is an error; its buffer's contents are unspecified, no error
    /// has been counted yet, and [`Tree::read_verified`] is what to call next. Panics if a buffer
    /// is not as long as its extent.
    pub fn read_batch(&self, extents: &[Extent], bufs: &mut [&mut [u8]]) -> Vec<Result<ServedExtent>> {
        assert_eq!(extents.len(), bufs.len(), "a buffer for each extent");
        let (mut plans, mut served) = (Vec::with_capacity(extents.len()), Vec::with_capacity(extents.len()));
        for (extent, buf) in extents.iter().zip(&*bufs) {
            let (plan, result) = match self.plan(extent, buf.len()) {
                Ok(plan) => (plan, Ok(ServedExtent::default())),
                Err(e) => (ReadPlan::default(), Err(e)),
            };
            plans.push(plan);
            served.push(result);
        }
        let (mut reads, mut owners) = (Vec::with_capacity(extents.len()), Vec::with_capacity(extents.len()));
        for (i, (plan, buf)) in plans.iter_mut().zip(bufs.iter_mut()).enumerate() {
            for (from, piece) in plan.pieces(buf) {
                reads.push(self.read_of(from, piece));
                owners.push((i, from.leaf));
            }
        }
        device::read_batch(&mut reads);
        for (Read { result, .. }, (i, leaf)) in reads.into_iter().zip(owners) {
            let served = &mut served[i];
            match (&mut *served, result) {
                (Ok(served), Ok(())) => served.leaves.push(leaf),
                (Ok(_), Err(e)) => *served = Err(e),
                (Err(_), _) => {}
            }
        }
        for ((plan, buf), served) in plans.into_iter().zip(bufs).zip(&mut served) {
            if let Ok(done) = served
                && let Err(e) = plan.finish(buf, done)
            {
                *served = Err(e);
            }
        }
        let good = extents.iter().zip(&served).filter(|(_, served)| served.is_ok());
        good.for_each(|(extent, _)| self.count_block(extent, VdevStats::count_read));
        served
    }

    /// Counts a block on its top-level vdev, or those that a removed one leads to. One that is a leaf
    /// counts what its device is asked for, and nothing more.
    pub(crate) fn count_block(&self, extent: &Extent, count: fn(&VdevStats, u64)) {
        for segment in self.segments(extent, extent.size as usize).into_iter().flatten() {
            if !segment.vdev.is_leaf() {
                count(segment.vdev.stats(), segment.range.len() as u64);
            }
        }
    }

    pub(crate) fn read_of<'a>(&'a self, from: Choice, buf: &'a mut [u8]) -> Read<'a> {
        let leaf = self.state_of(from.leaf);
        leaf.stats().count_read(buf.len() as u64);
        let purpose = match Env::work() {
            WorkKind::Asked => Purpose::SyncRead,
            WorkKind::Ahead => Purpose::AsyncRead,
            WorkKind::Scan => Purpose::Scrub,
            WorkKind::Rebuild => Purpose::Rebuild,
        };
        let ticket = self.ticket(leaf, purpose, buf.len());
        let device = leaf.device().expect("only leaves with a device are chosen");
        Read::new(device, from.offset, buf).metered(ticket)
    }

    fn plan(&self, extent: &Extent, len: usize) -> Result<ReadPlan> {
        let size = self.padded_size(extent, len)?;
        let mut plan = ReadPlan { padded: (size != len).then(|| AlignedBuf::zeroed(size)), ..ReadPlan::default() };
        for segment in self.segments(extent, size)? {
            self.plan_segment(&segment, extent.birth_txg, &mut plan).map_err(|e| e.at_vdev(segment.vdev.name()))?;
        }
        Ok(plan)
    }

    fn plan_segment(&self, segment: &ExtentSegment<'_>, txg: Txg, plan: &mut ReadPlan) -> Result<()> {
        let ExtentSegment { vdev, offset, ref range } = *segment;
        match self.first_branch(vdev, offset, txg).ok_or_else(|| nothing_left("no copy"))? {
            Branch::Leaf(from) => {
                plan.reads.push(LeafRead { from, range: range.clone() });
                Ok(())
            }
            Branch::Rows { vdev, .. } => {
                let vdev = self.vdev(vdev);
                let (rows, order) = self.rows(vdev, offset, range.len(), txg)?;
                if order.is_some() {
                    // what was removed leads to no raidz, so it is all of the block
                    plan.padded.get_or_insert_with(|| AlignedBuf::zeroed(range.len()));
                    plan.order = order;
                }
                rows.into_iter().try_for_each(|row| self.plan_row(vdev, row, range.start, txg, plan))
            }
        }
    }

    fn plan_row(&self, vdev: &Vdev, row: Row, base: usize, txg: Txg, plan: &mut ReadPlan) -> Result<()> {
        let choose = |c: &Column| self.first_leaf(self.child(vdev, c.child), c.offset, txg);
        let mut reads = Vec::with_capacity(row.data().len());
        let (mut missing, mut stale) = (Vec::new(), Vec::new());
        let rests = |from: &Choice| self.state_of(from.leaf).sits_out_until_s() > 0;
        let mut at = base + row.start;
        for (number, column) in row.data().iter().enumerate().filter(|(_, c)| c.size > 0) {
            let range = at..at + column.size;
            at = range.end;
            match choose(column) {
                Some(from) if from.trusted && !rests(&from) => reads.push(LeafRead { from, range }),
                Some(from) => stale.push((number, LeafRead { from, range })),
                None => missing.push(number),
            }
        }
        if !missing.is_empty() || !stale.is_empty() {
            let mut parity: Vec<Option<Choice>> =
                row.parity().iter().map(|column| choose(column).filter(|from| from.trusted)).collect();
            if missing.len() + stale.len() <= parity.iter().flatten().filter(|from| !rests(from)).count() {
                parity.iter_mut().for_each(|from| *from = from.filter(|from| !rests(from)));
            } else {
                // too little for all of them: those that sit out are read after all
                reads.extend(stale.extract_if(.., |(_, read)| read.from.trusted).map(|(_, read)| read));
            }
            let available = parity.iter().flatten().count();
            if missing.len() + stale.len() <= available {
                missing.extend(stale.drain(..).map(|(number, _)| number));
                missing.sort_unstable();
            }
            if missing.len() > available {
                return Err(nothing_left("fewer columns than the block has data"));
            }
            reads.extend(stale.into_iter().map(|(_, read)| read));
            reads.sort_unstable_by_key(|read| read.range.start);
            if !missing.is_empty() {
                let mut wanted = missing.len();
                for from in parity.iter_mut().filter(|from| from.is_some()) {
                    match wanted {
                        0 => *from = None,
                        _ => wanted -= 1,
                    }
                }
                let scratch = AlignedBuf::for_overwrite(row.nparity * row.columns[0].size);
                plan.rebuilds.push(RowRebuild { row, base, missing, parity, scratch });
            }
        }
        plan.reads.append(&mut reads);
        Ok(())
    }
}

impl ReadPlan {
    /// What is to be read, and the place for it; `buf` is the caller's buffer.
    fn pieces<'a>(&'a mut self, buf: &'a mut [u8]) -> Vec<(Choice, &'a mut [u8])> {
        let mut out = Vec::with_capacity(self.reads.len());
        let mut rest = self.padded.as_deref_mut().unwrap_or(buf);
        let mut at = 0;
        for LeafRead { from, range } in &self.reads {
            let (_, tail) = rest.split_at_mut(range.start - at);
            let (piece, tail) = tail.split_at_mut(range.len());
            (rest, at) = (tail, range.end);
            out.push((*from, piece));
        }
        for RowRebuild { row, parity, scratch, .. } in &mut self.rebuilds {
            let pieces = parity.iter().zip(scratch.chunks_exact_mut(row.columns[0].size));
            out.extend(pieces.filter_map(|(from, piece)| Some(((*from)?, piece))));
        }
        out
    }

    /// After the reads: rebuilds what is missing, and puts the bytes where they are wanted.
    fn finish(mut self, buf: &mut [u8], served: &mut ServedExtent) -> Result<()> {
        let block = self.padded.as_deref_mut().unwrap_or(buf);
        for RowRebuild { row, base, missing, parity, scratch } in &self.rebuilds {
            let mut columns = split_columns(row, &mut block[base + row.start..]);
            let pieces = scratch.chunks_exact(row.columns[0].size);
            let parity: Vec<Option<&[u8]>> =
                parity.iter().zip(pieces).map(|(from, piece)| from.map(|_| piece)).collect();
            codec::parity::reconstruct(&mut columns, missing, &parity)?;
            served.rebuilt = true;
        }
        if let (Some(padded), Some(order)) = (&self.padded, &self.order) {
            order.restore(padded, buf);
        } else if let Some(padded) = &self.padded {
            count_copy(CopyKind::FromColumns, buf.len());
            buf.copy_from_slice(&padded[..buf.len()]);
        }
        Ok(())
    }
}
