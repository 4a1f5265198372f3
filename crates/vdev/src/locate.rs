//! From an extent to the vdevs, and from a vdev to the leaves, that hold it.
//!
//! ```text
//!   extent ── tables of removed vdevs ──> segments, each on one top-level vdev that has devices
//!   segment ── mirror, replacing, spare ──> branches, each of which holds all of it:
//!              a leaf, or a raidz or draid, whose rows lead to a column on each child
//!   column ── replacing, spare, distributed spare ──> branches again, leaves only
//! ```
//!
//! Of several branches, those that have missed nothing take turns by region of the address space,
//! so that sequential readers stay on one for a while and all of them work.

use std::ops::Range;

use base::{Error, Kind as ErrorKind, Result};
use format::ids::{Txg, VdevNumber};

use crate::dtl::Dtl;
use crate::expansion::{self, SectorOrder};
use crate::geometry;
use crate::raidz::Row;
use crate::tree::Tree;
use crate::vdev::{Placement, Vdev, VdevId};

/// Binary logarithm of the region after which another branch takes its turn.
const TURN_SHIFT: u32 = 20;
/// How many removed vdevs may lead to one another.
const HOPS_MAX: usize = 64;
/// Vdevs looked at to find the branches of one. Distributed spares may lead to one another, and a
/// malicious configuration could make them a maze.
const VISITS_MAX: usize = 1024;

/// A piece of the pool's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of the top-level vdev.
    pub top: VdevNumber,
    /// Offset there in bytes, as in a DVA.
    pub offset: u64,
    /// Bytes to be read.
    pub size: u64,
    /// Transaction group in which the block was written.
    pub birth_txg: Txg,
}

/// A piece of an extent on a top-level vdev that has not been removed.
pub(crate) struct ExtentSegment<'a> {
    pub(crate) vdev: &'a Vdev,
    pub(crate) offset: u64,
    /// The bytes of the extent.
    pub(crate) range: Range<usize>,
}

/// A leaf that holds the bytes wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) leaf: VdevId,
    /// Offset on the device.
    pub(crate) offset: u64,
    /// Whether the leaf has missed nothing of what is wanted.
    pub(crate) trusted: bool,
    /// The distributed spare whose part that is.
    pub(crate) spare: Option<VdevId>,
}

impl Choice {
    /// What is charged with wrong bytes: a spare that was given them, and not the disk that it keeps them on.
    pub(crate) fn charged(self) -> VdevId {
        self.spare.unwrap_or(self.leaf)
    }
}

/// One of several that hold the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Branch {
    Leaf(Choice),
    /// A raidz or draid.
    Rows {
        vdev: VdevId,
        trusted: bool,
    },
}

impl Branch {
    fn is_trusted(&self) -> bool {
        match *self {
            Branch::Leaf(Choice { trusted, .. }) | Branch::Rows { trusted, .. } => trusted,
        }
    }
}

impl Tree {
    /// How many bytes must be read for `len` wanted ones: where there is parity, whole sectors.
    ///
    /// Panics if `len` is not the size of the extent.
    pub(crate) fn padded_size(&self, extent: &Extent, len: usize) -> Result<usize> {
        assert_eq!(extent.size, len as u64, "a buffer as long as its extent");
        let top = self.top(extent.top)?;
        Ok(if top.has_parity() { len.next_multiple_of(1 << top.ashift()) } else { len })
    }

    /// The segments of the first `size` bytes of an extent, in order.
    pub(crate) fn segments(&self, extent: &Extent, size: usize) -> Result<Vec<ExtentSegment<'_>>> {
        let mut out = Vec::with_capacity(1);
        self.add_segments(extent.top, extent.offset, 0..size, HOPS_MAX, &mut out)?;
        Ok(out)
    }

    fn add_segments<'a>(
        &'a self,
        top: VdevNumber,
        offset: u64,
        range: Range<usize>,
        hops: usize,
        out: &mut Vec<ExtentSegment<'a>>,
    ) -> Result<()> {
        let vdev = self.top(top)?;
        // what was written after an expansion has less parity
        let was_expanded = vdev.top_spec().is_some_and(|spec| spec.expansion.is_some());
        let size = if was_expanded { range.len() as u64 } else { self.asize(top, range.len() as u64)? };
        let limit = vdev.top_spec().map(|spec| spec.asize).filter(|&asize| asize > 0).unwrap_or(u64::MAX);
        if range.is_empty() || offset.checked_add(size).is_none_or(|end| end > limit) {
            let len = range.len();
            let what = format!("block of {len} bytes reaches past the end of its vdev, which is at {limit:#x}");
            return Err(Error::corrupt(what).at_vdev(vdev.name()).at_offset(offset));
        }
        match vdev.place() {
            Placement::Indirect(table) => {
                let lacks = || Error::new(ErrorKind::Missing, "the table of a removed vdev has not been read");
                let table = table.get().ok_or_else(lacks).map_err(|e| e.at_vdev(vdev.name()))?;
                let circle = || Error::corrupt("removed vdevs lead to each other in a circle");
                let hops = hops.checked_sub(1).ok_or_else(circle)?;
                let mut at = range.start;
                for (top, offset, len) in table.lookup(offset, range.len() as u64)? {
                    let end = at + len as usize;
                    self.add_segments(top, offset, at..end, hops, out)?;
                    at = end;
                }
                Ok(())
            }
            Placement::None => Err(nothing_left("it").at_vdev(vdev.name())),
            _ => {
                out.push(ExtentSegment { vdev, offset, range });
                Ok(())
            }
        }
    }

    /// The rows of `size` bytes at `offset` of a raidz or draid that were written in `txg`; and how their
    /// sectors are put into order, if they do not follow each other as the block has them.
    pub(crate) fn rows(
        &self,
        vdev: &Vdev,
        offset: u64,
        size: usize,
        txg: Txg,
    ) -> Result<(Vec<Row>, Option<SectorOrder>)> {
        match vdev.place() {
            Placement::Raidz(geometry) => {
                if let Some(expansion) = vdev.top_spec().and_then(|top| top.expansion.as_ref())
                    && let then = expansion.width_at(geometry.width, txg)
                    && then != geometry.width
                {
                    let reflow = expansion.is_running.then(|| self.reflow_state());
                    let (rows, order) = expansion::map(geometry, then, reflow, offset, size)?;
                    return Ok((rows, Some(order)));
                }
                Ok((vec![geometry.map(offset, size)?], None))
            }
            Placement::Draid(layout) => Ok((layout.map(offset, size)?, None)),
            _ => unreachable!("{} has no rows", vdev.name()),
        }
    }

    /// Calls `f` for each branch of `vdev` that may be read for what is at `offset`.
    pub(crate) fn each_branch(&self, vdev: &Vdev, offset: u64, txg: Txg, f: &mut dyn FnMut(Branch)) {
        self.visit(vdev, offset, (&|dtl| dtl.contains(txg), true), &mut VISITS_MAX.clone(), f);
    }

    /// As [`Tree::each_branch`], of whatever birth: a leaf that lacks anything is trusted with nothing.
    pub(crate) fn each_whole_branch(&self, vdev: &Vdev, offset: u64, f: &mut dyn FnMut(Branch)) {
        self.visit(vdev, offset, (&|dtl| !dtl.is_empty(), true), &mut VISITS_MAX.clone(), f);
    }

    /// `lacks` says whether a leaf with that log may have something else.
    fn visit(
        &self,
        vdev: &Vdev,
        offset: u64,
        (lacks, trusted): (&dyn Fn(&Dtl) -> bool, bool),
        visits: &mut usize,
        f: &mut dyn FnMut(Branch),
    ) {
        let Some(left) = visits.checked_sub(1) else { return };
        *visits = left;
        match *vdev.place() {
            Placement::Device => {
                if let Some(leaf) = vdev.leaf_state().filter(|leaf| leaf.usable_device().is_some())
                    && let Some(offset) = geometry::on_device(offset)
                {
                    let trusted = trusted && !lacks(leaf.dtl());
                    f(Branch::Leaf(Choice { leaf: vdev.id(), offset, trusted, spare: None }));
                }
            }
            Placement::Copies => {
                vdev.children().iter().for_each(|&c| self.visit(self.vdev(c), offset, (lacks, trusted), visits, f));
            }
            Placement::DraidSpare { draid, spare } => {
                let Some(leaf) = vdev.leaf_state().filter(|leaf| leaf.is_usable()) else { return };
                let draid = self.vdev(draid);
                let Placement::Draid(layout) = draid.place() else {
                    unreachable!("connected when the tree was opened")
                };
                let child = self.child(draid, layout.spare_child(spare, offset));
                let of_spare = &mut |branch| {
                    f(match branch {
                        Branch::Leaf(choice) => Branch::Leaf(Choice { spare: Some(vdev.id()), ..choice }),
                        rows => rows,
                    });
                };
                self.visit(child, offset, (lacks, trusted && !lacks(leaf.dtl())), visits, of_spare);
            }
            Placement::Raidz(_) | Placement::Draid(_) => {
                let trusted = vdev.parent() == Some(self.root().id()) || self.health(vdev.id()).is_readable();
                f(Branch::Rows { vdev: vdev.id(), trusted });
            }
            _ => {}
        }
    }

    /// The branch of `vdev` to be read first for what is at `offset`.
    pub(crate) fn first_branch(&self, vdev: &Vdev, offset: u64, txg: Txg) -> Option<Branch> {
        let (mut trusted, mut last, mut stale) = (0, None, None);
        self.each_branch(vdev, offset, txg, &mut |branch| {
            if branch.is_trusted() {
                trusted += 1;
                last = Some(branch);
            } else {
                stale = stale.or(Some(branch));
            }
        });
        if trusted < 2 {
            return last.or(stale);
        }
        let turn = (offset >> TURN_SHIFT) % trusted;
        let (mut number, mut chosen) = (0, None);
        self.each_branch(vdev, offset, txg, &mut |branch| {
            if branch.is_trusted() {
                if number == turn {
                    chosen = Some(branch);
                }
                number += 1;
            }
        });
        chosen.or(last)
    }

    /// The leaf to be read first for what is at `offset` of `vdev`, a child of a raidz or draid.
    pub(crate) fn first_leaf(&self, vdev: &Vdev, offset: u64, txg: Txg) -> Option<Choice> {
        match self.first_branch(vdev, offset, txg)? {
            Branch::Leaf(choice) => Some(choice),
            Branch::Rows { .. } => unreachable!("no parity below parity"),
        }
    }
}

/// The error when too many devices are gone.
pub(crate) fn nothing_left(what: &str) -> Error {
    Error::new(ErrorKind::Missing, format!("{what} is there"))
}
