//! What is asked of a block, and what comes of it.

use base::{AlignedBuf, Bookmark};
use format::blkptr::BlkPtr;
use format::sealing::{StoredBytes, Unsealed};

/// What a reader can do with encrypted blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Contents: an encrypted block is an error.
    #[default]
    Plain,
    /// Whatever is there: encrypted contents come back as they are on disk, after decompression where
    /// that is possible. For checking, and for the parts of dnodes that are never encrypted.
    Raw,
}

/// A block to read, and what to call it in an error.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    /// Where it is.
    pub bp: BlkPtr,
    /// Which it is.
    pub bookmark: Bookmark,
    /// What to do if it is encrypted.
    pub mode: Mode,
}

/// What was read of a block.
pub struct BlockContents {
    /// Its contents, as from [`Zio::read`](crate::Zio::read).
    pub data: AlignedBuf,
    /// The bytes as they are on disk.
    pub physical: Physical,
}

/// The bytes of a block as they are on disk, verified.
pub enum Physical {
    /// They are its contents.
    Same(Unsealed),
    /// They are others: compressed, or sealed.
    Apart(StoredBytes),
    /// There are none, or nothing can verify them.
    Nowhere,
}
