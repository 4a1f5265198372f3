//! Metadata in use of datasets whose metadata the cache does not keep (`primarycache=none`). Each block of a file that
//! is read or written needs the same few blocks above it; OpenZFS holds them as buffers of open objects.

use std::collections::VecDeque;

use base::{Block, Mutex};
use format::blkptr::BlkPtr;

/// Blocks that are held, at most.
const COUNT_MAX: usize = 64;
/// Bytes of a block that is held, at most.
const BYTES_MAX: usize = 128 << 10;

/// The blocks lately used, by the whole of their pointers: within a group, a block may be written again at its address.
/// The one used last is at the front.
#[derive(Default)]
pub(crate) struct Held(Mutex<VecDeque<(BlkPtr, Block)>>);

impl Held {
    pub(crate) fn get(&self, bp: &BlkPtr) -> Option<Block> {
        let mut blocks = self.0.lock();
        let at = blocks.iter().position(|(held, _)| held == bp)?;
        let found = blocks.remove(at)?;
        let block = found.1.clone();
        blocks.push_front(found);
        Some(block)
    }

    pub(crate) fn put(&self, bp: BlkPtr, block: Block) {
        if block.len() > BYTES_MAX {
            return;
        }
        let mut blocks = self.0.lock();
        blocks.retain(|(held, _)| *held != bp);
        blocks.push_front((bp, block));
        blocks.truncate(COUNT_MAX);
    }

    pub(crate) fn empty(&self) {
        self.0.lock().clear();
    }
}
