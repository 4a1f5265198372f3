//! Where the blocks of a table are while it is changed.

use base::{Block, Bookmark, Result};

/// Where the blocks of a table are kept while it is changed.
pub trait ZapStore {
    /// Bytes of a block.
    fn block_size(&self) -> usize;
    /// The contents of a block as they are now.
    fn block(&self, blkid: u64) -> Result<Block>;
    /// Changes a block by `f`, which sees its contents, zeros if it is new. If `f` fails it has changed nothing.
    fn modify(&self, blkid: u64, f: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<()>;
    /// Changes the size of the table's only block: it is cut off, or goes on with zeros.
    fn set_block_size(&self, bytes: usize) -> Result<()>;
    /// Says that the contents of these blocks are not needed any more.
    fn discard(&self, _first: u64, _count: u64) -> Result<()> {
        Ok(())
    }
    /// The address of a block, for errors.
    fn bookmark(&self, blkid: u64) -> Bookmark;
}

/// What is to happen if the name is there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PutMode {
    Add,
    Set,
}
