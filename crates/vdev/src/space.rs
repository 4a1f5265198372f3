//! What blocks take up on a top-level vdev.

use base::Result;
use format::ids::{Txg, VdevNumber};

use crate::raidz::RaidzGeometry;
use crate::spec::VdevKind;
use crate::tree::Tree;
use crate::vdev::{Placement, Vdev};

impl Tree {
    /// Bytes that a block of `size` bytes that is written now takes up on top-level vdev `number`, parity and padding
    /// included.
    pub fn asize(&self, number: VdevNumber, size: u64) -> Result<u64> {
        self.asize_at(number, size, Txg::MAX)
    }

    /// The same of a block that is written in `txg`: a raidz is as wide as it was in that group.
    pub fn asize_at(&self, number: VdevNumber, size: u64, txg: Txg) -> Result<u64> {
        let top = self.top(number)?;
        Ok(self.asize_below(top, size, txg).max(size.next_multiple_of(1 << top.ashift())))
    }

    /// Bytes of data that the least that top-level vdev `number` allocates has room for. Errors as of [`Tree::asize`].
    pub fn shortest_block(&self, number: VdevNumber) -> Result<u64> {
        let top = self.top(number)?;
        let sectors = if let VdevKind::Draid(shape) = top.kind() { shape.ndata } else { 1 };
        Ok(sectors << top.ashift())
    }

    /// Bytes of data that `asize` bytes of top-level vdev `number` stand for in all accounts of space:
    /// how much of a block of 128 KiB is not parity or padding there decides; of a raidz as wide as it was at first, as
    /// accounts do not change with an expansion. Errors as of [`Tree::asize`].
    pub fn deflate(&self, number: VdevNumber, asize: u64) -> Result<u64> {
        let ratio = (128 << 10) / (self.asize_at(number, 128 << 10, Txg::ZERO)? >> 9);
        Ok((asize >> 9).saturating_mul(ratio))
    }

    fn asize_below(&self, vdev: &Vdev, size: u64, txg: Txg) -> u64 {
        match vdev.place() {
            Placement::Raidz(geometry) => {
                let expansion = vdev.top_spec().and_then(|top| top.expansion.as_ref());
                let width = expansion.map_or(geometry.width, |expansion| expansion.width_at(geometry.width, txg));
                RaidzGeometry { width, ..*geometry }.asize(size)
            }
            Placement::Draid(layout) => layout.asize(size),
            Placement::Copies if vdev.has_parity() => {
                vdev.children().iter().map(|&c| self.asize_below(self.vdev(c), size, txg)).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}
