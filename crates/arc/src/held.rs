//! Metadata in use of datasets whose metadata the cache does not keep (`primarycache=none`). Each block of a file that
//! is read or written needs the same few blocks above it; OpenZFS holds them as buffers of open objects.

use std::collections::VecDeque;

use base::{Block, Mutex};
use format::blkptr::BlkPtr;

use crate::seal_id::SealId;

/// Blocks that are held, at most.
const COUNT_MAX: usize = 64;
/// Bytes of a block that is held, at most.
const BYTES_MAX: usize = 128 << 10;

/// The blocks lately used, by the whole of their pointers: within a group, a block may be written again at its address.
/// The one used last is at the front.
#[derive(Default)]
pub(crate) struct Held(Mutex<VecDeque<HeldBlock>>);

/// A block by its pointer, and for whom it is, if its set is encrypted.
type HeldBlock = (BlkPtr, Option<SealId>, Block);

impl Held {
    pub(crate) fn get(&self, bp: &BlkPtr, seal: Option<SealId>) -> Option<Block> {
        let mut blocks = self.0.lock();
        let at = blocks.iter().position(|(held, of, _)| held == bp && *of == seal)?;
        let found = blocks.remove(at)?;
        let block = found.2.clone();
        blocks.push_front(found);
        Some(block)
    }

    pub(crate) fn put(&self, bp: BlkPtr, seal: Option<SealId>, block: Block) {
        if block.len() > BYTES_MAX {
            return;
        }
        let mut blocks = self.0.lock();
        blocks.retain(|(held, of, _)| *held != bp || *of != seal);
        blocks.push_front((bp, seal, block));
        blocks.truncate(COUNT_MAX);
    }

    pub(crate) fn empty(&self) {
        self.0.lock().clear();
    }
}
