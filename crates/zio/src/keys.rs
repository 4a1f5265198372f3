//! Keys of encrypted sets.

use base::{Bookmark, Error, Kind, Result};
use format::blkptr::BlkPtr;

/// Knows the keys of encrypted sets.
pub trait Keys: Send + Sync {
    /// Whether blocks of a set can be decrypted. Errors: `Encrypted` without its key.
    fn check(&self, objset: u64) -> Result<()>;

    /// Decrypts the bytes of a block, which its pointer's checksum was right for. Errors: `Encrypted` without the key;
    /// `Checksum` if they are not what was encrypted.
    fn open(&self, bp: &BlkPtr, bookmark: Bookmark, bytes: &mut [u8]) -> Result<()>;
}

/// No key is known.
pub(crate) struct NoKeys;

impl Keys for NoKeys {
    fn check(&self, _objset: u64) -> Result<()> {
        Err(Error::new(Kind::Encrypted, "block is encrypted"))
    }

    fn open(&self, _bp: &BlkPtr, bookmark: Bookmark, _bytes: &mut [u8]) -> Result<()> {
        self.check(bookmark.objset)
    }
}
