//! Blocks to which there may be several pointers.

use base::Result;
use format::blkptr::BlkPtr;
use format::ddt::{DdtKey, DdtPhys};
use format::ids::Txg;

/// What a table says of a block that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// It is there.
    There(DdtPhys),
    /// It is to be the first.
    First,
    /// It is not there, and the table takes no more.
    Refused,
}

/// Counts further pointers to blocks that were cloned, of which the pointers tell nothing.
pub trait CloneTable: Send + Sync {
    /// A pointer to the block is gone. False if it was the only one: then the block is to be freed.
    fn release(&self, bp: &BlkPtr) -> bool;
}

/// Counts pointers to blocks that may have several.
pub trait RefTable: Send + Sync {
    /// A pointer to the block is gone. False if the table does not count this block's pointers: then it is to be
    /// freed. Otherwise the table frees it when its time has come.
    fn release(&self, bp: &BlkPtr) -> bool;

    /// Says that blocks with these keys will be looked for soon.
    fn prepare(&self, checksum: u8, keys: &[DdtKey]);

    /// Looks for the block with that number of a checksum, that key and so many copies; `txg` is the group that asks.
    /// Errors: `Corrupt`, `Checksum` if what the table has of it cannot be trusted.
    fn find(&self, txg: Txg, checksum: u8, key: &DdtKey, copies: u8) -> Result<Twin>;

    /// There is a pointer more to a block, which may be one that the table did not have.
    fn add(&self, checksum: u8, key: &DdtKey, copies: u8, block: &DdtPhys);
}
