//! Blocks to which there may be several pointers.

use format::blkptr::BlkPtr;

/// Counts pointers to blocks that may have several.
pub trait RefTable: Send + Sync {
    /// A pointer to the block is gone. False if the table does not count this block's pointers: then it is to be
    /// freed. Otherwise the table frees it when its time has come.
    fn release(&self, bp: &BlkPtr) -> bool;
}
