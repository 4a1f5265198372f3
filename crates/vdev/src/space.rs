//! What blocks take up on a top-level vdev.

use base::Result;

use crate::raidz::RaidzGeometry;
use crate::spec::VdevKind;
use crate::tree::Tree;
use crate::vdev::{Placement, Vdev};

impl Tree {
    /// Bytes that a block of `size` bytes takes up on top-level vdev `number`, parity and padding
    /// included.
    pub fn asize(&self, number: u64, size: u64) -> Result<u64> {
        let top = self.top(number)?;
        Ok(self.asize_below(top, size).max(size.next_multiple_of(1 << top.ashift())))
    }

    /// Bytes of data that the least that top-level vdev `number` allocates has room for. Errors as of [`Tree::asize`].
    pub fn shortest_block(&self, number: u64) -> Result<u64> {
        let top = self.top(number)?;
        let sectors = if let VdevKind::Draid(shape) = top.kind() { shape.ndata } else { 1 };
        Ok(sectors << top.ashift())
    }

    /// Bytes of data that `asize` bytes of top-level vdev `number` stand for in all accounts of space:
    /// how much of a block of 128 KiB is not parity or padding there decides. Errors as of
    /// [`Tree::asize`].
    pub fn deflate(&self, number: u64, asize: u64) -> Result<u64> {
        let ratio = (128 << 10) / (self.asize(number, 128 << 10)? >> 9);
        Ok((asize >> 9).saturating_mul(ratio))
    }

    fn asize_below(&self, vdev: &Vdev, size: u64) -> u64 {
        match vdev.place() {
            // by the width it had at first: accounts of space must not change with an expansion
            Placement::Raidz(geometry) => {
                let expansion = vdev.top_spec().and_then(|top| top.expansion.as_ref());
                let width = expansion.and_then(|expansion| expansion.first_width(geometry.width));
                RaidzGeometry { width: width.unwrap_or(geometry.width), ..*geometry }.asize(size)
            }
            Placement::Draid(layout) => layout.asize(size),
            Placement::Copies if vdev.has_parity() => {
                vdev.children().iter().map(|&c| self.asize_below(self.vdev(c), size)).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}
