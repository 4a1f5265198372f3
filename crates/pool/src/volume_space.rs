//! How much room a volume may come to take, and which size of its blocks suits a pool.
//!
//! ```text
//!   refreservation=auto  =  data, as accounts of space count it where it takes most    (raidz, draid: padding)
//!                         + the blocks of pointers above it, without compression, one copy more than of the data
//! ```
//!
//! Source: what zfsprops(7) says of `refreservation` and `volblocksize`, and the numbers that libzfs comes to.

use vdev::{Vdev, VdevKind};

use crate::Pool;

/// Bytes of the blocks by which accounts of space are scaled.
const USUAL_BLOCK_BYTES: u64 = 128 << 10;
/// Pointers in a block of pointers, as this reckons, and its bytes.
const POINTERS: u64 = 1024;
const POINTER_BLOCK_BYTES: u64 = 128 << 10;
/// Blocks that lead to the dnodes of an object set.
const DNODE_BLOCKS: u64 = 7;
const COPIES_MAX: u64 = 3;
/// Bytes of a block of a volume that needs no more.
const BLOCK_BYTES: u64 = 16 << 10;
const SECTOR_SHIFT: u32 = 9;

impl Pool {
    /// Bytes that `refreservation=auto` stands for, for a volume of `size` bytes in blocks of `block_size`.
    pub fn volume_reservation(&self, size: u64, block_size: u64, copies: u64) -> u64 {
        let mut blocks = size / block_size.max(1);
        let data = self.volume_data_bytes(blocks, block_size).saturating_mul(copies);
        let mut above = DNODE_BLOCKS;
        while blocks > 1 {
            blocks = blocks.div_ceil(POINTERS);
            above = above.saturating_add(blocks);
        }
        above.saturating_mul(COPIES_MAX.min(copies + 1)).saturating_mul(POINTER_BLOCK_BYTES).saturating_add(data)
    }

    /// Bytes that so many blocks are charged with, where that is most.
    fn volume_data_bytes(&self, blocks: u64, block_size: u64) -> u64 {
        let plain = blocks.saturating_mul(block_size);
        let with_parity = self.tops().filter(|top| top.kind().nparity() > 0);
        let charged = with_parity.filter_map(|top| {
            let asize = |bytes| self.tree().asize(top.number(), bytes).ok();
            let (usual, own) = (asize(USUAL_BLOCK_BYTES)? >> SECTOR_SHIFT, asize(block_size)?);
            let units = u128::from(blocks) * u128::from(own) / u128::from(usual.max(1));
            let bytes = units * u128::from(USUAL_BLOCK_BYTES >> SECTOR_SHIFT);
            Some(u64::try_from(bytes).unwrap_or(u64::MAX))
        });
        charged.max().filter(|bytes| *bytes > 0).unwrap_or(plain)
    }

    /// Bytes of the blocks of a new volume that leave no room unused.
    pub fn volume_block_size(&self) -> u64 {
        let least = self.volume_allocation_bytes();
        let mut size = BLOCK_BYTES;
        while size * 2 <= least {
            size *= 2;
        }
        size
    }

    /// Bytes that the top-level vdev with the largest stripes allocates at once, more or less.
    pub fn volume_allocation_bytes(&self) -> u64 {
        let least = |top: &Vdev| {
            let sectors = match top.kind() {
                VdevKind::Draid(shape) => shape.ndata,
                VdevKind::Raidz { nparity: 1 } => 2,
                VdevKind::Raidz { .. } => 4,
                _ => 1,
            };
            sectors << top.top_spec().map_or(0, |spec| spec.ashift)
        };
        self.tops().map(least).max().unwrap_or(0).max(1 << SECTOR_SHIFT)
    }
}
