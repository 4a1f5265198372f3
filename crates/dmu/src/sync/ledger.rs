//! The account of the blocks that a set writes and frees.

use base::Result;
use format::blkptr::BlkPtr;

/// Is told which blocks come and go.
pub trait Ledger {
    /// A block was written.
    fn born(&mut self, bp: &BlkPtr);
    /// A block is not referred to any more.
    fn killed(&mut self, bp: &BlkPtr) -> Result<()>;
}
