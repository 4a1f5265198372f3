//! What is kept of a block: its contents, and as long as a cache device may want them, the bytes it has on disk.

use base::{Block, Endian};
use format::blkptr::BlkPtr;
use zio::{Contents, Physical, ReadRequest};

/// What is kept of a block.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) block: Block,
    pub(crate) stored: Stored,
    /// A cache device was given it.
    pub(crate) is_fed: bool,
}

/// The bytes of a block on disk.
#[derive(Clone)]
pub(crate) enum Stored {
    /// They are its contents.
    Same,
    /// They are compressed.
    Apart { bytes: Block, compress: u8 },
    /// They are not at hand, or not to be given to a cache device.
    Nowhere,
}

impl Kept {
    pub(crate) fn new(block: Block, stored: Stored) -> Kept {
        Kept { block, stored, is_fed: false }
    }

    /// What was read. Cache devices may have it if it `is_admitted`; bytes of its own are kept for them only if they
    /// want it.
    pub(crate) fn of(read: Contents, request: &ReadRequest, is_admitted: bool, is_wanted: bool) -> Kept {
        let stored = match read.physical {
            Physical::Same if is_admitted => Stored::Same,
            Physical::Apart(bytes) if is_admitted && is_wanted => {
                Stored::Apart { bytes: bytes.into(), compress: request.bp.compress() }
            }
            _ => Stored::Nowhere,
        };
        Kept::new(read.data.into(), stored)
    }

    /// Bytes of memory that it takes.
    pub(crate) fn footprint(&self) -> u64 {
        let stored = match &self.stored {
            Stored::Apart { bytes, .. } => bytes.footprint(),
            Stored::Same | Stored::Nowhere => 0,
        };
        (self.block.footprint() + stored) as u64
    }

    /// A cache device has it: only its contents are kept from now on.
    pub(crate) fn was_fed(&mut self) {
        self.is_fed = true;
        if matches!(self.stored, Stored::Apart { .. }) {
            self.stored = Stored::Nowhere;
        }
    }
}

impl Stored {
    /// Whether the bytes of a block that was written without compression are its contents.
    pub(crate) fn is_same(bp: &BlkPtr) -> bool {
        /// Not compressed.
        const OFF: u8 = 2;
        bp.compress() == OFF && bp.endian() == Endian::Little && zio::is_verifiable(bp)
    }
}
