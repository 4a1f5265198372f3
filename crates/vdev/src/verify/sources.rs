//! From an extent to the sources of its bytes.

use std::ops::Range;

use base::Result;
use format::ids::Txg;

use super::copies::Copies;
use super::copy::{CopyState, LeafCopy};
use super::rows::RowVersions;
use super::source::{Any, VersionSource};
use crate::expansion::SectorOrder;
use crate::locate::{Branch, Extent, ExtentSegment};
use crate::raidz::Row;
use crate::tree::Tree;
use crate::vdev::{Vdev, VdevId};

impl Tree {
    /// The sources of an extent, and the order of their sectors if it is not that of the block.
    pub(super) fn sources(&self, extent: &Extent, size: usize) -> Result<(Vec<VersionSource>, Option<SectorOrder>)> {
        let mut out = Vec::with_capacity(1);
        let mut order = None;
        for ExtentSegment { vdev, offset, range } in self.segments(extent, size)? {
            let (copies, parity) = self.branches(vdev, offset, extent.birth_txg);
            if let [only] = parity[..]
                && copies.is_empty()
            {
                let (rows, of_rows) = self.row_sources(only, offset, &range, extent.birth_txg)?;
                out.extend(rows);
                // what was removed leads to no raidz, so it is all of the block
                order = order.or(of_rows);
                continue;
            }
            let mut branches = vec![VersionSource::Copies(Copies::new(range.clone(), copies))];
            for vdev in parity {
                // a raidz that is mirrored has one row; a draid is never mirrored
                branches.extend(self.row_sources(vdev, offset, &range, extent.birth_txg)?.0);
            }
            out.push(if branches.len() == 1 {
                branches.remove(0)
            } else {
                VersionSource::Any(Any::new(range, branches))
            });
        }
        Ok((out, order))
    }

    /// What holds the same as `vdev` does at `offset`: leaves, those to be tried first in front,
    /// and vdevs with parity.
    fn branches(&self, vdev: &Vdev, offset: u64, txg: Txg) -> (Vec<LeafCopy>, Vec<VdevId>) {
        let (mut copies, mut parity) = (Vec::new(), Vec::new());
        self.each_branch(vdev, offset, txg, &mut |branch| match branch {
            Branch::Leaf(from) => copies.push(LeafCopy { from, bytes: CopyState::Unread }),
            Branch::Rows { vdev, .. } => parity.push(vdev),
        });
        let first = match self.first_branch(vdev, offset, txg) {
            Some(Branch::Leaf(from)) => Some(from.leaf),
            _ => None,
        };
        copies.sort_by_key(|copy| (!copy.from.trusted, Some(copy.from.leaf) != first));
        (copies, parity)
    }

    /// A source for each row of a range on a raidz or draid.
    fn row_sources(
        &self,
        vdev: VdevId,
        offset: u64,
        range: &Range<usize>,
        txg: Txg,
    ) -> Result<(Vec<VersionSource>, Option<SectorOrder>)> {
        let vdev = self.vdev(vdev);
        let source = |row: Row| {
            let cells = row.columns.iter().map(|c| self.branches(self.child(vdev, c.child), c.offset, txg).0);
            let cells = cells.collect();
            VersionSource::Row(RowVersions::new(row, range.start, cells))
        };
        let (rows, order) = self.rows(vdev, offset, range.len(), txg)?;
        Ok((rows.into_iter().map(source).collect(), order))
    }
}
