//! Bytes on their way through the layers without being copied: [`Data`] to be written, [`Piece`]s that were read.
//!
//! ```text
//!   request   [ block 0 ][ block 1 ][ block 2 .. ]     Data: blocks of one size, filled from the first on
//!   file          record     record    part of one     a record that is one of the blocks shares it; others copy
//! ```
//!
//! Above are those that take requests and those that answer them; below is only [`Block`].

use std::ops::{Deref, Range};

use crate::Block;
use crate::copies::{CopyKind, count_copy};

/// Bytes to be written: in one piece, or in blocks of one size.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    from: DataSource<'a>,
    start: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
enum DataSource<'a> {
    Slice(&'a [u8]),
    Blocks(&'a [Block]),
}

impl<'a> Data<'a> {
    /// The first `len` bytes of `blocks`, which are all of one size; fewer if they do not hold as many.
    pub fn in_blocks(blocks: &'a [Block], len: usize) -> Data<'a> {
        let room = blocks.len() * blocks.first().map_or(0, |block| block.len());
        Data { from: DataSource::Blocks(blocks), start: 0, len: len.min(room) }
    }

    /// How many bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Are there none?
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Those in `range`, as far as there are any.
    pub fn part(self, range: Range<usize>) -> Data<'a> {
        let end = range.end.min(self.len);
        let start = range.start.min(end);
        Data { start: self.start + start, len: end - start, ..self }
    }

    /// The block that holds all of these bytes, and no others.
    pub fn as_block(self) -> Option<&'a Block> {
        match self.from {
            DataSource::Slice(_) => None,
            DataSource::Blocks(blocks) => {
                let size = blocks.first()?.len();
                let is_one = self.len == size && self.start.is_multiple_of(size);
                blocks.get(self.start / size).filter(|_| is_one)
            }
        }
    }

    /// The bytes, one slice after the other.
    pub fn slices(self) -> impl Iterator<Item = &'a [u8]> {
        let (whole, blocks) = match self.from {
            DataSource::Slice(slice) => (Some(&slice[self.start..self.start + self.len]), &[][..]),
            DataSource::Blocks(blocks) => (None, blocks),
        };
        let size = blocks.first().map_or(1, |block| block.len().max(1));
        let (mut skip, mut rest) = (self.start % size, self.len);
        let parts = blocks.iter().skip(self.start / size).map_while(move |block| {
            let len = rest.min(size - skip);
            let part = (len > 0).then(|| &block[skip..skip + len]);
            (skip, rest) = (0, rest - len);
            part
        });
        whole.into_iter().chain(parts)
    }

    /// Copies them to `buf`, which has room for all.
    pub fn copy_to(self, buf: &mut [u8]) {
        count_copy(CopyKind::IntoBlocks, self.len);
        let mut rest = buf;
        for slice in self.slices() {
            let (part, tail) = rest.split_at_mut(slice.len());
            part.copy_from_slice(slice);
            rest = tail;
        }
    }

    /// A copy in one piece.
    pub fn to_vec(self) -> Vec<u8> {
        count_copy(CopyKind::IntoNew, self.len);
        let mut bytes = Vec::with_capacity(self.len);
        self.slices().for_each(|slice| bytes.extend_from_slice(slice));
        bytes
    }
}

impl<'a> std::convert::From<&'a [u8]> for Data<'a> {
    fn from(slice: &'a [u8]) -> Data<'a> {
        Data { from: DataSource::Slice(slice), start: 0, len: slice.len() }
    }
}

impl<'a, const N: usize> std::convert::From<&'a [u8; N]> for Data<'a> {
    fn from(array: &'a [u8; N]) -> Data<'a> {
        Data::from(array.as_slice())
    }
}

impl<'a> std::convert::From<&'a Vec<u8>> for Data<'a> {
    fn from(bytes: &'a Vec<u8>) -> Data<'a> {
        Data::from(bytes.as_slice())
    }
}

/// Bytes that were read: a part of a block that others share, or zeros.
#[derive(Clone, Debug)]
pub struct Piece {
    block: Option<Block>,
    start: usize,
    len: usize,
}

/// Zeros for pieces of holes; a longer one is several pieces.
static ZEROS: [u8; Piece::ZEROS_MAX] = [0; Piece::ZEROS_MAX];

impl Piece {
    /// Most bytes of zeros in one piece.
    pub const ZEROS_MAX: usize = 16 << 10;

    /// The bytes of `block` in `range`, cut off at its end.
    pub fn of(block: Block, range: Range<usize>) -> Piece {
        let end = range.end.min(block.len());
        let start = range.start.min(end);
        Piece { block: Some(block), start, len: end - start }
    }

    /// `len` zeros, in as many pieces as it takes.
    pub fn zeros(len: usize) -> impl Iterator<Item = Piece> {
        (0..len).step_by(Piece::ZEROS_MAX).map(move |at| Piece {
            block: None,
            start: 0,
            len: Piece::ZEROS_MAX.min(len - at),
        })
    }
}

impl Deref for Piece {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let whole: &[u8] = self.block.as_deref().unwrap_or(&ZEROS);
        &whole[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_blocks() {
        let blocks: Vec<Block> = (0..4u8).map(|n| crate::AlignedBuf::from(&[n; 1000][..]).into()).collect();
        let all = Data::in_blocks(&blocks, 3500);
        let flat = all.to_vec();
        assert_eq!((all.len(), flat.len(), flat[2999], flat[3000]), (3500, 3500, 2, 3));
        for (start, end) in [(0, 1000), (1000, 2000), (999, 2001), (0, 3500), (3400, 3500), (700, 700), (3500, 9000)] {
            let part = all.part(start..end);
            assert_eq!(part.to_vec(), flat[start..end.min(3500)], "{start}..{end}");
            let mut buf = vec![9; part.len()];
            part.copy_to(&mut buf);
            assert_eq!(buf, part.to_vec());
            let is_block = end - start == 1000;
            assert_eq!(part.as_block().map(|block| block.as_ptr()), is_block.then(|| blocks[start / 1000].as_ptr()));
            assert_eq!(Data::from(&flat).part(start..end).to_vec(), part.to_vec());
        }
        // the last block is not full
        assert!(all.part(3000..3500).as_block().is_none() && all.part(2500..3500).as_block().is_none());
        assert_eq!(Data::in_blocks(&blocks, 1 << 40).len(), 4000);
        assert!(Data::in_blocks(&[], 10).is_empty() && Data::in_blocks(&[], 10).as_block().is_none());
        assert!(Data::from(&[1, 2]).as_block().is_none());
    }

    #[test]
    fn pieces() {
        let block = Block::from(crate::AlignedBuf::from(&[1, 2, 3, 4][..]));
        assert_eq!(&*Piece::of(block.clone(), 1..3), [2, 3]);
        assert_eq!(&*Piece::of(block, 3..900), [4]);
        for len in [0, 1, Piece::ZEROS_MAX, 3 * Piece::ZEROS_MAX + 5] {
            assert_eq!(Piece::zeros(len).map(|piece| piece.len()).sum::<usize>(), len);
            assert!(Piece::zeros(len).all(|piece| piece.iter().all(|&b| b == 0)));
        }
    }
}
