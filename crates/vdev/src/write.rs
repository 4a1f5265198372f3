//! Writes, in batches.
//!
//! Each extent becomes writes of leaves: one for a leaf, one for each side of a mirror, one for each
//! column of a raidz. All writes of all extents run together.
//!
//! ```text
//!   caller's block  | D0        | D1        | D2     |      columns are written from where they lie
//!                     └─────────┬───────────┘
//!                      codec::parity::generate
//!                               │
//!   own buffers     | P         | Q         |               parity, and zeros that fill up sectors
//! ```
//!
//! A block is written if it can be read back within the redundancy: at least one side of a mirror
//! took it, no more columns of a row failed than it has parity. What a leaf did not take, because it
//! failed or is away, is noted as missed ([`crate::dtl`]), so that readers and resilvers know.
//!
//! A block on a raidz that was expanded since the block's birth is written in lines ([`crate::expansion`]); while sectors
//! are being moved, to all places that they have.
//!
//! The padding that makes a raidz block a multiple of its parity plus one is not written. The zero
//! sectors that fill up a draid's last line are: they count in parity, and a rebuild that does not
//! know where blocks are takes them for data.
//!
//! Nothing lasts before [`Tree::flush`].

use std::ops::Range;

use base::{AlignedBuf, CopyKind, Error, Kind as ErrorKind, Result, count_copy};
use device::Write;
use device::meter::Purpose;
use format::ids::Txg;

use crate::geometry;
use crate::health::VdevStats;
use crate::locate::{Extent, nothing_left};
use crate::raidz::Row;
use crate::tree::Tree;
use crate::vdev::{Placement, Vdev, VdevId};

/// Distributed spares that a block leads through at most. They may lead to one another, and a
/// malicious configuration could make them a circle.
const SPARES_MAX: usize = 256;

/// What must be written for an extent.
#[derive(Default)]
struct WritePlan {
    /// Takes the place of the caller's block if that does not end with a sector.
    padded: Option<AlignedBuf>,
    /// Parity, and zeros.
    own: Vec<AlignedBuf>,
    writes: Vec<LeafWrite>,
    /// Leaves that should be written and cannot be.
    away: Vec<VdevId>,
    /// How many distributed spares it leads through.
    spares: usize,
    birth_txg: Txg,
}

struct LeafWrite {
    leaf: VdevId,
    /// Offset on the device.
    offset: u64,
    bytes: WriteSource,
}

/// Where the bytes of a write lie.
#[derive(Clone)]
enum WriteSource {
    /// In the block.
    Block(Range<usize>),
    /// In a buffer of the plan.
    Own(usize, Range<usize>),
}

/// Which writes must succeed.
#[derive(Clone)]
enum Need {
    /// The write of that number.
    Leaf(usize),
    /// All of these.
    All(Vec<Need>),
    /// One of these.
    Any(Vec<Need>),
    /// All of these but as many as there is parity.
    Row(Vec<Need>, usize),
    /// More than there is.
    Impossible,
}

impl Need {
    fn is_met(&self, done: &[bool]) -> bool {
        match self {
            Need::Leaf(number) => done[*number],
            Need::All(needs) => needs.iter().all(|need| need.is_met(done)),
            Need::Any(needs) => needs.iter().any(|need| need.is_met(done)),
            Need::Row(needs, nparity) => needs.iter().filter(|need| !need.is_met(done)).count() <= *nparity,
            Need::Impossible => false,
        }
    }
}

impl Tree {
    /// Writes every block to its extent, with its redundancy, all at once.
    ///
    /// An extent's size is that of its block, its `birth_txg` the transaction group that is being
    /// written. A block that does not end with a sector is filled up with zeros. The results are in
    /// the order of the writes: `Ok` if the block can be read back within the redundancy, although
    /// leaves may have failed. Those have the error counted and the transaction group noted as
    /// missed. Otherwise the error is that of a leaf ([`ErrorKind::Io`], [`ErrorKind::Missing`]).
    ///
    /// Other errors: [`ErrorKind::Corrupt`] if there is no such place, [`ErrorKind::Invalid`] if the
    /// vdev has been removed. Panics if a block is not as long as its extent.
    pub fn write_batch(&self, writes: &[(Extent, &[u8])]) -> Vec<Result<()>> {
        self.write_batch_for(Purpose::AsyncWrite, writes)
    }

    /// As [`Tree::write_batch`], for another purpose, by which the requests are counted.
    pub fn write_batch_for(&self, purpose: Purpose, writes: &[(Extent, &[u8])]) -> Vec<Result<()>> {
        let plans: Vec<Result<(WritePlan, Need)>> =
            writes.iter().map(|(extent, block)| self.plan_write(extent, block)).collect();
        let mut batch = Vec::with_capacity(writes.len());
        for (plan, (_, block)) in plans.iter().zip(writes) {
            let Ok((plan, _)) = plan else { continue };
            let bytes_of = |write: &LeafWrite| plan.slice(&write.bytes, block);
            let write_of = |write: &LeafWrite| self.write_of(write.leaf, write.offset, bytes_of(write), purpose);
            batch.extend(plan.writes.iter().map(write_of));
        }
        device::write_batch(&mut batch);
        let results: Vec<Result<()>> = batch.into_iter().map(|write| write.result).collect();
        let mut results = results.into_iter();
        let mut out = Vec::with_capacity(writes.len());
        for (plan, (extent, _)) in plans.into_iter().zip(writes) {
            out.push(plan.and_then(|(plan, need)| self.finish_write(extent, &plan, &need, &mut results)));
        }
        out
    }

    /// A write of a leaf that has a device, counted.
    pub(crate) fn write_of<'a>(&'a self, leaf: VdevId, offset: u64, bytes: &'a [u8], purpose: Purpose) -> Write<'a> {
        let leaf = self.state_of(leaf);
        leaf.stats().count_write(bytes.len() as u64);
        let ticket = self.ticket(leaf, purpose, bytes.len());
        let device = leaf.device().expect("only leaves with a device are written");
        Write::new(device, offset, bytes).metered(ticket)
    }

    /// Notes what came of the writes of an extent: the next of `results`.
    fn finish_write(
        &self,
        extent: &Extent,
        plan: &WritePlan,
        need: &Need,
        results: &mut dyn Iterator<Item = Result<()>>,
    ) -> Result<()> {
        let txgs = extent.birth_txg..extent.birth_txg.next();
        plan.away.iter().for_each(|&leaf| self.state_of(leaf).dtl().insert(txgs.clone()));
        let (mut done, mut error) = (Vec::with_capacity(plan.writes.len()), None);
        for (write, result) in plan.writes.iter().zip(results) {
            let leaf = self.state_of(write.leaf);
            done.push(result.is_ok());
            match result {
                Ok(()) => leaf.note_written(txgs.clone()),
                Err(e) => {
                    leaf.dtl().insert(txgs.clone());
                    leaf.charge_write(&e);
                    error = error.or(Some(e));
                }
            }
        }
        if need.is_met(&done) {
            self.count_block(extent, VdevStats::count_write);
            return Ok(());
        }
        let name = || self.top(extent.top).map_or("", Vdev::name);
        Err(error.unwrap_or_else(|| nothing_left("no device to write to")).at_vdev(name()))
    }

    fn plan_write(&self, extent: &Extent, block: &[u8]) -> Result<(WritePlan, Need)> {
        assert_eq!(extent.size, block.len() as u64, "a block as long as its extent");
        let top = self.top(extent.top)?;
        let invalid = |what| Err(Error::new(ErrorKind::Invalid, what).at_vdev(top.name()).at_offset(extent.offset));
        if matches!(top.place(), Placement::Indirect(_)) {
            return invalid("a removed vdev cannot be written");
        }
        let sector = 1usize << top.ashift();
        if !extent.offset.is_multiple_of(sector as u64) {
            return invalid("write that does not begin with a sector");
        }
        let size = block.len().next_multiple_of(sector);
        // checks the bounds; of a vdev that has not been removed there is one segment
        self.segments(extent, size)?;
        let mut plan = WritePlan { birth_txg: extent.birth_txg, ..WritePlan::default() };
        if size != block.len() {
            let mut padded = AlignedBuf::zeroed(size);
            count_copy(CopyKind::IntoNew, block.len());
            padded[..block.len()].copy_from_slice(block);
            plan.padded = Some(padded);
        }
        let whole = WriteSource::Block(0..size);
        let need = self.plan_vdev(top, extent.offset, &whole, block, &mut plan).map_err(|e| e.at_vdev(top.name()))?;
        Ok((plan, need))
    }

    /// Plans that `bytes` be written at `offset` of `vdev`, on all leaves that hold it.
    fn plan_vdev(
        &self,
        vdev: &Vdev,
        offset: u64,
        bytes: &WriteSource,
        block: &[u8],
        plan: &mut WritePlan,
    ) -> Result<Need> {
        let away = |plan: &mut WritePlan| {
            plan.away.push(vdev.id());
            Ok(Need::Impossible)
        };
        match *vdev.place() {
            Placement::Device if vdev.usable_device().is_some() => {
                let beyond = || Error::corrupt("block reaches past any device");
                let offset = geometry::on_device(offset).ok_or_else(beyond)?;
                plan.writes.push(LeafWrite { leaf: vdev.id(), offset, bytes: bytes.clone() });
                Ok(Need::Leaf(plan.writes.len() - 1))
            }
            Placement::Device => away(plan),
            Placement::Copies => {
                let side = |&child: &VdevId| self.plan_vdev(self.vdev(child), offset, bytes, block, plan);
                vdev.children().iter().map(side).collect::<Result<_>>().map(Need::Any)
            }
            Placement::Raidz(_) | Placement::Draid(_) => {
                let WriteSource::Block(range) = bytes else { unreachable!("no parity below parity") };
                let (rows, order) = self.rows(vdev, offset, range.len(), plan.birth_txg)?;
                if let Some(order) = order {
                    // such a raidz is a top-level vdev: it is all of the block
                    plan.padded = Some(order.lines(plan.slice(bytes, block)));
                }
                rows.iter().map(|row| self.plan_write_row(vdev, row, block, plan)).collect::<Result<_>>().map(Need::All)
            }
            Placement::DraidSpare { draid, spare }
                if self.state_of(vdev.id()).is_usable() && plan.spares < SPARES_MAX =>
            {
                plan.spares += 1;
                let draid = self.vdev(draid);
                let Placement::Draid(layout) = draid.place() else {
                    unreachable!("connected when the tree was opened")
                };
                let child = self.child(draid, layout.spare_child(spare, offset));
                self.plan_vdev(child, offset, bytes, block, plan)
            }
            Placement::DraidSpare { .. } => away(plan),
            Placement::Indirect(_) | Placement::None => Ok(Need::Impossible),
        }
    }

    fn plan_write_row(&self, vdev: &Vdev, row: &Row, block: &[u8], plan: &mut WritePlan) -> Result<Need> {
        let height = row.columns[0].size;
        let mut at = row.start;
        let data = row.data().iter().map(|column| {
            at += column.size;
            WriteSource::Block(at - column.size..at)
        });
        let data: Vec<WriteSource> = data.collect();
        let mut parity = AlignedBuf::for_overwrite(row.nparity * height);
        let slices: Vec<&[u8]> = data.iter().map(|bytes| plan.slice(bytes, block)).collect();
        codec::parity::generate(&slices, &mut parity.chunks_exact_mut(height).collect::<Vec<_>>());
        let own = plan.keep(parity);
        let parity = (0..row.nparity).map(|p| WriteSource::Own(own, p * height..(p + 1) * height));
        // of each column: where it is read now, and where it may be read later
        let mut places: Vec<Vec<Need>> = Vec::with_capacity(row.columns.len());
        for (number, (column, bytes)) in row.columns.iter().zip(parity.chain(data)).enumerate() {
            let child = self.child(vdev, column.child);
            let mut need = Vec::with_capacity(1);
            if column.size > 0 {
                need.push(self.plan_vdev(child, column.offset, &bytes, block, plan)?);
            }
            if column.size < height && matches!(vdev.place(), Placement::Draid(_)) {
                let rest = height - column.size;
                let zeros = WriteSource::Own(plan.keep(AlignedBuf::zeroed(rest)), 0..rest);
                need.push(self.plan_vdev(
                    child,
                    column.offset.saturating_add(column.size as u64),
                    &zeros,
                    block,
                    plan,
                )?);
            }
            let mut at = vec![Need::All(need)];
            for (_, place) in row.also.iter().filter(|(of, _)| *of == number) {
                at.push(self.plan_vdev(self.child(vdev, place.child), place.offset, &bytes, block, plan)?);
            }
            places.push(at);
        }
        // it is read at all of the one, or at all of the other places: a leaf may have one column here, another there
        let mut ways = vec![Need::Row(places.iter().filter_map(|at| at.first().cloned()).collect(), row.nparity)];
        if row.is_copied {
            ways.push(Need::Row(places.iter().filter_map(|at| at.last().cloned()).collect(), row.nparity));
        }
        Ok(Need::All(ways))
    }
}

impl WritePlan {
    fn slice<'a>(&'a self, bytes: &WriteSource, block: &'a [u8]) -> &'a [u8] {
        match bytes {
            WriteSource::Block(range) => &self.padded.as_deref().unwrap_or(block)[range.clone()],
            WriteSource::Own(number, range) => &self.own[*number][range.clone()],
        }
    }

    fn keep(&mut self, buf: AlignedBuf) -> usize {
        self.own.push(buf);
        self.own.len() - 1
    }
}
