//! Where on which devices the bytes of an extent are, in all their copies and parity; and where its labels are on a device.

use std::ops::Range;

use base::Result;

use crate::geometry::{BACK_BYTES, FRONT_BYTES};
use crate::label::{self, LABEL_BYTES, LabelRegion};
use crate::locate::{Branch, Choice, Extent, ExtentSegment};
use crate::tree::Tree;
use crate::vdev::{Placement, VdevId};

/// The bytes of a device of `size` bytes that are a part of one of its labels; without a part, those that are none.
pub fn region_ranges(size: u64, region: Option<LabelRegion>) -> Vec<Range<u64>> {
    let end = label::end_of(size);
    let Some(region) = region else {
        let all = FRONT_BYTES..end.saturating_sub(BACK_BYTES);
        return Vec::from([all]);
    };
    let within = region.within();
    let starts = [0, LABEL_BYTES, end.saturating_sub(2 * LABEL_BYTES), end.saturating_sub(LABEL_BYTES)];
    starts.map(|start| start + within.start..start + within.end).to_vec()
}

impl Tree {
    /// Each leaf and the bytes of its device that hold a part of `extent`, or parity of it, in no order. Leaves that
    /// are not there are left out. Errors: `Corrupt` for an extent that no vdev can have.
    pub fn leaf_ranges(&self, extent: Extent) -> Result<Vec<(VdevId, Range<u64>)>> {
        let mut found = Vec::new();
        let mut add = |branch: Branch, len: usize| {
            if let Branch::Leaf(Choice { leaf, offset, .. }) = branch {
                found.push((leaf, offset..offset.saturating_add(len as u64)));
            }
        };
        let size = self.padded_size(&extent, extent.size as usize)?;
        for ExtentSegment { vdev, offset, range } in self.segments(&extent, size)? {
            let mut with_rows = Vec::new();
            self.each_branch(vdev, offset, extent.birth_txg, &mut |branch| match branch {
                Branch::Rows { vdev, .. } => with_rows.push(vdev),
                Branch::Leaf(_) => add(branch, range.len()),
            });
            for vdev in with_rows.into_iter().map(|id| self.vdev(id)) {
                debug_assert!(matches!(vdev.place(), Placement::Raidz(_) | Placement::Draid(_)));
                for row in self.rows(vdev, offset, range.len(), extent.birth_txg)?.0 {
                    for column in &row.columns {
                        let child = self.child(vdev, column.child);
                        self.each_branch(child, column.offset, extent.birth_txg, &mut |branch| {
                            add(branch, column.size)
                        });
                    }
                }
            }
        }
        Ok(found)
    }
}
