//! What the intent log reads of a volume when it writes its records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Result;
use dmu::{Object, OpenBlock, Tx};
use format::ids::ObjectId;
use zil::LoggedContents;

/// The blocks of a volume as the log sees them.
pub(crate) struct LoggedBlocks {
    data: Object,
    /// Bytes of the volume.
    size: Arc<AtomicU64>,
}

impl LoggedBlocks {
    pub(crate) fn new(data: Object, size: Arc<AtomicU64>) -> LoggedBlocks {
        LoggedBlocks { data, size }
    }

    /// Not what is behind the end, as the volume has become smaller.
    fn has(&self, offset: u64) -> bool {
        offset < self.size.load(Ordering::SeqCst)
    }
}

impl LoggedContents for LoggedBlocks {
    fn read(&self, _: ObjectId, _: u64, offset: u64, buf: &mut [u8]) -> Result<bool> {
        if !self.has(offset) {
            return Ok(false);
        }
        self.data.read(offset, buf)?;
        Ok(true)
    }

    fn open_block(&self, tx: &Tx<'_>, _: ObjectId, _: u64, offset: u64) -> Result<Option<OpenBlock>> {
        if self.has(offset) { self.data.open_block(tx, offset) } else { Ok(None) }
    }
}
