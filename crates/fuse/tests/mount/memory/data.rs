//! What a file in memory holds: a pattern without end, or blocks that were written.

use std::collections::BTreeMap;
use std::ops::Range;

const BLOCK: u64 = 4096;

/// Bytes of a file that is only read: those of [`fill`] inside the extents, zeros elsewhere.
#[derive(Clone)]
pub struct Content {
    pub seed: u64,
    pub size: u64,
    pub extents: Vec<Range<u64>>,
}

/// Bytes of a file that was written: blocks, and holes where there is none.
#[derive(Clone, Default)]
pub struct Data {
    pub size: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

/// The byte at `offset` of a file's data.
pub fn fill(seed: u64, offset: u64, buf: &mut [u8]) {
    let mut word = [0; 8];
    for (at, byte) in (offset..).zip(buf) {
        if at == offset || at.is_multiple_of(8) {
            word = ((at / 8) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        }
        *byte = word[(at % 8) as usize];
    }
}

impl Content {
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let end = (offset + buf.len() as u64).min(self.size);
        let len = end.saturating_sub(offset) as usize;
        buf[..len].fill(0);
        for extent in &self.extents {
            let (from, to) = (extent.start.max(offset), extent.end.min(end));
            if from < to {
                fill(self.seed, from, &mut buf[(from - offset) as usize..(to - offset) as usize]);
            }
        }
        len
    }

    pub fn seek_data(&self, offset: u64) -> Option<u64> {
        self.extents.iter().find(|extent| extent.end > offset).map(|extent| extent.start.max(offset))
    }

    pub fn seek_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let inside = self.extents.iter().find(|extent| extent.contains(&offset));
        Some(inside.map_or(offset, |extent| extent.end))
    }

    /// The same bytes as blocks.
    pub fn to_data(&self) -> Data {
        let mut data = Data { size: self.size, ..Data::default() };
        for extent in &self.extents {
            let mut bytes = vec![0; (extent.end - extent.start) as usize];
            fill(self.seed, extent.start, &mut bytes);
            data.write(extent.start, &bytes);
        }
        data
    }
}

/// The pieces of a range that lie in one block each: block number, range in the block, and in the whole.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let end = offset + len;
    (offset / BLOCK..end.div_ceil(BLOCK)).map(move |block| {
        let (from, to) = ((block * BLOCK).max(offset), ((block + 1) * BLOCK).min(end));
        let inside = (from - block * BLOCK) as usize..(to - block * BLOCK) as usize;
        (block, inside, (from - offset) as usize..(to - offset) as usize)
    })
}

impl Data {
    pub fn n_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let len = (buf.len() as u64).min(self.size.saturating_sub(offset));
        for (block, inside, whole) in pieces(offset, len) {
            match self.blocks.get(&block) {
                Some(bytes) => buf[whole].copy_from_slice(&bytes[inside]),
                None => buf[whole].fill(0),
            }
        }
        len as usize
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (block, inside, whole) in pieces(offset, data.len() as u64) {
            let bytes = self.blocks.entry(block).or_insert_with(|| vec![0; BLOCK as usize]);
            bytes[inside].copy_from_slice(&data[whole]);
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, self.size - size);
        }
        self.size = size;
    }

    /// Whole blocks become holes, parts of them zeros. The size stays.
    pub fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.size.next_multiple_of(BLOCK));
        for (block, inside, _) in pieces(offset, end.saturating_sub(offset)) {
            if inside == (0..BLOCK as usize) {
                self.blocks.remove(&block);
            } else if let Some(bytes) = self.blocks.get_mut(&block) {
                bytes[inside].fill(0);
            }
        }
    }

    pub fn seek_data(&self, offset: u64) -> Option<u64> {
        let (&block, _) = self.blocks.range(offset / BLOCK..).next()?;
        Some((block * BLOCK).max(offset)).filter(|&at| at < self.size)
    }

    pub fn seek_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let block = (offset / BLOCK..).find(|block| !self.blocks.contains_key(block)).expect("blocks end");
        Some((block * BLOCK).max(offset).min(self.size))
    }
}
