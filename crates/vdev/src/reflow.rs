//! Moving of sectors: a raidz gets one more child, and what is on it is dealt out anew.
//!
//! ```text
//!   group   what is copied                                    its uberblock says            readers find it
//!   1       the first sectors, to the scratch area            they are in the scratch area  (from then on) there
//!   2       the same, out of it to their new places           moved: the first sectors      there
//!   3 ...   the next ones that are in use, to new places      moved: all these              there
//! ```
//!
//! What is copied in a group goes where nothing is that the uberblock on disk leads to: so it moves as far only as the
//! new place of the last sector is in front of the old place of the first line that counts as not moved yet. Each step
//! is by a share of what has moved before.
//!
//! Copying knows neither blocks nor sums. So it waits until all children have everything.
//!
//! Source: the published description of raidz expansion, and the behaviour of OpenZFS's vdev_raidz.c.

use std::ops::Range;

use base::{AlignedBuf, Env, Error, Kind as ErrorKind, Result, WorkKind};
use device::meter::Purpose;
use format::ids::Txg;

use crate::expansion::{Reflow, ReflowState, SectorLayout};
use crate::geometry;
use crate::locate::Choice;
use crate::raidz::RaidzGeometry;
use crate::relocate::cut;
use crate::spec::TopSpec;
use crate::tree::Tree;
use crate::vdev::{LeafVdev, Placement, Vdev, VdevId};

/// Bytes that are read from, and written to, each child at once.
const COLUMN_BYTES: u64 = 1 << 20;

/// What a child has of a run of sectors: whole lines, one after the other.
struct ColumnRun {
    first_line: u64,
    bytes: AlignedBuf,
}

impl Tree {
    /// The raidz that is being expanded.
    pub fn expanding(&self) -> Option<&Vdev> {
        self.tops().find(|top| top.top_spec().is_some_and(TopSpec::is_expanding))
    }

    /// How far the expansion is, as the uberblock in force says.
    pub fn reflow(&self) -> Reflow {
        self.reflow_state().on_disk
    }

    /// How far the expansion is that is copied by now, for the next uberblock.
    pub fn reflow_to_come(&self) -> Reflow {
        self.reflow_state().copied
    }

    /// That uberblock is on disk, or one that was read is to be gone on from.
    pub fn set_reflow(&self, reflow: Reflow) {
        self.set_reflow_state(ReflowState { on_disk: reflow, copied: reflow });
    }

    /// Whether all children of the raidz that is being expanded are there and have everything, and none is being replaced.
    pub fn can_reflow(&self) -> bool {
        self.expanding().is_some_and(|top| self.reflow_leaves(top).is_ok())
    }

    /// How far sectors may be moved now: bytes of the address space.
    pub fn reflow_limit(&self) -> u64 {
        let Some((_, geometry)) = self.expanding().and_then(with_geometry) else { return 0 };
        let (sectors, before) = (self.reflow().moved >> geometry.ashift, (geometry.width - 1) as u64);
        // a line is read at its old place as long as not all of it has moved
        (sectors + sectors / before).saturating_sub(before) << geometry.ashift
    }

    /// Makes the next step of those that lead through the scratch area: group 1 or 2 of the drawing. It lasts with the
    /// next [`Tree::flush`].
    ///
    /// Errors: `Missing` if a child cannot be used; that of a child, which is charged with it; `Corrupt` if the uberblock
    /// says what cannot be.
    pub fn reflow_first(&self) -> Result<()> {
        let (top, geometry) = self.expanding().and_then(with_geometry).ok_or_else(none_running)?;
        let size = Reflow::scratch_size(geometry.ashift, geometry.width);
        let now = self.reflow();
        let next = Reflow { moved: size, in_scratch: !now.in_scratch };
        if now.moved != 0 && now != (Reflow { moved: size, in_scratch: true }) {
            return Err(Error::corrupt("an impossible size of the scratch area").at_vdev(top.name()));
        }
        let from = if now.in_scratch { now.layout(geometry.width) } else { layout_before(&geometry) };
        // blocks of logs are written at any time, to places that were allocated long ago
        let _alone = self.shapes().alone();
        for piece in cut(&(0..size), piece_bytes(from)) {
            self.copy_sectors(top, geometry.ashift, &piece, (from, next.layout(geometry.width)))?;
        }
        self.set_reflow_state(ReflowState { on_disk: now, copied: next });
        Ok(())
    }

    /// Moves what is in use, in ranges that are in order, up to `until`, which is [`Tree::reflow_limit`] at most. It lasts
    /// with the next [`Tree::flush`]. Returns how many bytes. Errors: as from [`Tree::reflow_first`].
    pub fn reflow_up_to(&self, until: u64, used: &[Range<u64>]) -> Result<u64> {
        let (top, geometry) = self.expanding().and_then(with_geometry).ok_or_else(none_running)?;
        assert!(until <= self.reflow_limit(), "nothing is overwritten that is still needed");
        let layouts = (layout_before(&geometry), SectorLayout { width: geometry.width, start: 0 });
        let mut bytes = 0;
        for piece in used.iter().flat_map(|range| cut(range, piece_bytes(layouts.0))) {
            let _alone = self.shapes().alone();
            self.copy_sectors(top, geometry.ashift, &piece, layouts)?;
            self.set_copied(piece.end);
            bytes += piece.end - piece.start;
        }
        let _alone = self.shapes().alone();
        self.set_copied(until);
        Ok(bytes)
    }

    fn set_copied(&self, moved: u64) {
        let copied = Reflow { moved, in_scratch: false };
        self.set_reflow_state(ReflowState { copied, ..self.reflow_state() });
    }

    /// Copies the sectors of a range, all at once.
    fn copy_sectors(
        &self,
        top: &Vdev,
        shift: u32,
        range: &Range<u64>,
        (from, to): (SectorLayout, SectorLayout),
    ) -> Result<()> {
        let leaves = self.reflow_leaves(top)?;
        let sectors = range.start >> shift..range.end >> shift;
        let mut old = columns(from, shift, &sectors);
        self.read_columns(&leaves, from, shift, &mut old)?;
        let mut new = columns(to, shift, &sectors);
        for sector in sectors {
            let (source, target) = (place_in(&old, from, shift, sector), place_in(&new, to, shift, sector));
            new[target.0].bytes[target.1].copy_from_slice(&old[source.0].bytes[source.1]);
        }
        self.write_columns(&leaves, to, shift, &new)
    }

    /// The children, which are leaves. Errors: `Missing` if one is none, cannot be used, or lacks something.
    fn reflow_leaves<'a>(&'a self, top: &'a Vdev) -> Result<Vec<LeafVdev<'a>>> {
        let leaf = |id: &VdevId| {
            let leaf = self.vdev(*id).as_leaf().filter(|leaf| leaf.usable_device().is_some());
            leaf.filter(|leaf| leaf.state().dtl().is_empty()).ok_or_else(|| {
                Error::new(ErrorKind::Missing, "a device lacks something").at_vdev(self.vdev(*id).name())
            })
        };
        top.children().iter().map(leaf).collect()
    }

    fn read_columns(
        &self,
        leaves: &[LeafVdev<'_>],
        layout: SectorLayout,
        shift: u32,
        columns: &mut [ColumnRun],
    ) -> Result<()> {
        let mut reads = Vec::with_capacity(columns.len());
        let mut owners = Vec::with_capacity(columns.len());
        for (leaf, ColumnRun { first_line, bytes }) in
            leaves.iter().zip(columns).filter(|(_, run)| !run.bytes.is_empty())
        {
            let offset = on_device(layout, *first_line, shift)?;
            let from = Choice { leaf: leaf.id(), offset, trusted: true, spare: None };
            reads.push(Env::doing(WorkKind::Rebuild, || self.read_of(from, bytes)));
            owners.push(leaf);
        }
        device::read_batch(&mut reads);
        let results = owners.iter().zip(reads.into_iter().map(|read| read.result));
        let charged = results.map(|(leaf, result)| result.inspect_err(|error| leaf.state().charge_read(error)));
        charged.collect::<Vec<_>>().into_iter().collect()
    }

    fn write_columns(
        &self,
        leaves: &[LeafVdev<'_>],
        layout: SectorLayout,
        shift: u32,
        columns: &[ColumnRun],
    ) -> Result<()> {
        let (mut writes, mut owners) = (Vec::with_capacity(columns.len()), Vec::with_capacity(columns.len()));
        for (leaf, ColumnRun { first_line, bytes }) in
            leaves.iter().zip(columns).filter(|(_, run)| !run.bytes.is_empty())
        {
            let offset = on_device(layout, *first_line, shift)?;
            writes.push(self.write_of(leaf.id(), offset, bytes, Purpose::AsyncWrite));
            owners.push(leaf.state());
        }
        device::write_batch(&mut writes);
        let results: Vec<Result<()>> = writes.into_iter().map(|write| write.result).collect();
        let charged = owners.into_iter().zip(results).map(|(state, result)| {
            match &result {
                Ok(()) => state.note_written(Txg::ZERO..Txg::ZERO),
                Err(error) => state.charge_write(error),
            }
            result
        });
        charged.collect::<Vec<_>>().into_iter().collect()
    }
}

fn none_running() -> Error {
    Error::new(ErrorKind::NotFound, "no raidz is being expanded")
}

fn with_geometry(top: &Vdev) -> Option<(&Vdev, RaidzGeometry)> {
    match top.place() {
        Placement::Raidz(geometry) => Some((top, *geometry)),
        _ => None,
    }
}

/// Bytes that are copied at once.
fn piece_bytes(from: SectorLayout) -> u64 {
    COLUMN_BYTES * from.width as u64
}

fn layout_before(geometry: &RaidzGeometry) -> SectorLayout {
    SectorLayout { width: geometry.width - 1, start: 0 }
}

fn on_device(layout: SectorLayout, line: u64, shift: u32) -> Result<u64> {
    let beyond = || Error::corrupt("a sector that is past any device");
    geometry::on_device((line << shift).wrapping_add(layout.start)).ok_or_else(beyond)
}

/// For each child the lines that have the sectors, to be filled.
fn columns(layout: SectorLayout, shift: u32, sectors: &Range<u64>) -> Vec<ColumnRun> {
    let run = |child: usize| {
        let [first_line, end] = [sectors.start, sectors.end].map(|sector| layout.lines_before(sector, child));
        let count = end - first_line;
        ColumnRun { first_line, bytes: AlignedBuf::for_overwrite((count << shift) as usize) }
    };
    (0..layout.width).map(run).collect()
}

/// The child that has a sector, and where in its lines.
fn place_in(columns: &[ColumnRun], layout: SectorLayout, shift: u32, sector: u64) -> (usize, Range<usize>) {
    let wide = layout.width as u64;
    let child = (sector % wide) as usize;
    let start = ((sector / wide - columns[child].first_line) << shift) as usize;
    (child, start..start + (1 << shift))
}
