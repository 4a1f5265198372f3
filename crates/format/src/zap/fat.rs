//! The header of a fat ZAP and its pointer table.
//!
//! ```text
//!    0  type u64 | magic u64
//!   16  pointer table: first block | blocks | log2 of its entries | next first block | blocks copied
//!   56  first free block | leaves | entries | salt | normflags | flags
//!  ...
//!  1/2  pointer table, while it fits in this half of the block; `blocks` above is 0 then
//! ```
//!
//! While the table is being doubled, "next" is where its successor grows; until that is complete the
//! old one is whole and counts.

use base::{Error, Result};

use super::block::{HEADER, ZapBlockKind, upper_bits, word};
use super::text::TextPrep;

const MAGIC: u64 = 0x2_f52a_b2ab;
/// log2 of the smallest and the largest block size in bytes; a leaf above 1 MiB would have more chunks
/// than its 16-bit links can tell apart.
const BLOCK_SHIFT: std::ops::RangeInclusive<u32> = 9..=20;

/// The checked header of a fat ZAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapHeader {
    /// log2 of the block size in bytes.
    pub block_shift: u32,
    /// The pointer table.
    pub table: PointerTable,
    /// Number of the first block never used.
    pub free_block: u64,
    /// Number of leaves.
    pub leaves: u64,
    /// Number of entries.
    pub entries: u64,
    /// What the hash starts from.
    pub salt: u64,
    /// How names are compared.
    pub prep: TextPrep,
    /// The `FLAG_` bits.
    pub flags: u64,
}

/// Where a pointer table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointerTable {
    /// Number of its first block.
    pub block: u64,
    /// Number of its blocks; 0 if it is in the header.
    pub blocks: u64,
    /// log2 of the number of its entries, which is the number of hash bits that index it.
    pub shift: u32,
    /// First block of the table of twice the size, if it is being doubled, else 0.
    pub next_block: u64,
    /// How many of its blocks have been copied there.
    pub blocks_copied: u64,
}

impl ZapHeader {
    /// 48 bits of the hash count, not 28.
    pub const FLAG_HASH64: u64 = 1 << 0;
    /// Keys are arrays of 64-bit integers, not strings.
    pub const FLAG_UINT64_KEY: u64 = 1 << 1;
    /// The first integer of a key is its hash.
    pub const FLAG_PRE_HASHED_KEY: u64 = 1 << 2;

    /// Reads block 0 of a fat ZAP.
    pub fn parse(block: &[u8]) -> Result<ZapHeader> {
        let bad = |what: String| Err(Error::corrupt(format!("ZAP header: {what}")));
        let at = |index: usize| word(block, index * 8);
        if ZapBlockKind::of(block) != ZapBlockKind::Header || at(1) != MAGIC {
            return bad(format!("type {:#x}, magic {:#x}", at(0), at(1)));
        }
        let block_shift = block.len().trailing_zeros();
        if !block.len().is_power_of_two() || !BLOCK_SHIFT.contains(&block_shift) {
            return bad(format!("block of {} bytes", block.len()));
        }
        let entries_shift = block_shift - 3;
        let (blocks, shift) = (at(3), at(4));
        let fits = match blocks {
            0 => shift == u64::from(entries_shift - 1),
            // An external table is at least one block; of the hash no more than 48 bits are there to index it.
            _ => shift <= 48 && blocks.checked_mul(1 << entries_shift) == Some(1 << shift),
        };
        if !fits {
            return bad(format!("pointer table of {blocks} blocks is indexed by {shift} bits"));
        }
        let table = PointerTable { block: at(2), blocks, shift: shift as u32, next_block: at(5), blocks_copied: at(6) };
        Ok(ZapHeader {
            block_shift,
            table,
            free_block: at(7),
            leaves: at(8),
            entries: at(9),
            salt: at(10),
            prep: TextPrep::from_flags(at(11)),
            flags: at(12),
        })
    }

    /// Whether keys are arrays of 64-bit integers.
    pub fn has_u64_keys(&self) -> bool {
        self.flags & ZapHeader::FLAG_UINT64_KEY != 0
    }

    /// The index in the pointer table for a hash.
    pub fn leaf_index(&self, hash: u64) -> u64 {
        upper_bits(hash, self.table.shift)
    }

    /// The block number at `index` of the table inside the header block.
    pub fn embedded(&self, block: &[u8], index: u64) -> u64 {
        usize::try_from(index).map_or(0, |index| word(block, block.len() / 2 + index.saturating_mul(8)))
    }

    /// The block of an external table that holds `index`, and the index inside that block.
    pub fn external(&self, index: u64) -> (u64, usize) {
        let entries_shift = self.block_shift - 3;
        (self.table.block.saturating_add(index >> entries_shift), (index & ((1 << entries_shift) - 1)) as usize)
    }

    /// The block number at `index` of a block of an external table.
    pub fn pointer(block: &[u8], index: usize) -> u64 {
        word(block, index.saturating_mul(8))
    }

    /// Makes `block` the header of a table that has one empty leaf, in block 1. Panics if the size of the
    /// block is not one that [`ZapHeader::parse`] takes.
    pub fn init(block: &mut [u8], salt: u64, normflags: u64, flags: u64) -> ZapHeader {
        block.fill(0);
        let table_shift = block.len().trailing_zeros() - 4;
        let words = [HEADER, MAGIC, 0, 0, table_shift.into(), 0, 0, 2, 1, 0, salt, normflags, flags];
        words.iter().enumerate().for_each(|(index, &word)| put(block, index, word));
        let half = block.len() / 2;
        (0..half / 8).for_each(|index| put(&mut block[half..], index, 1));
        ZapHeader::parse(block).expect("made as parsed")
    }

    /// Writes back to block 0 what changes: where the table is, and the counts.
    pub fn store(&self, block: &mut [u8]) {
        let PointerTable { block: first, blocks, shift, next_block, blocks_copied } = self.table;
        let counts = [self.free_block, self.leaves, self.entries];
        let words = [&[first, blocks, shift.into(), next_block, blocks_copied][..], &counts].concat();
        words.iter().enumerate().for_each(|(i, &word)| put(block, 2 + i, word));
    }

    /// Puts a block number at `index` of the table inside the header block.
    pub fn set_embedded(block: &mut [u8], index: usize, blkid: u64) {
        let half = block.len() / 2;
        put(&mut block[half..], index, blkid);
    }

    /// Puts a block number at `index` of a block of an external table.
    pub fn set_pointer(block: &mut [u8], index: usize, blkid: u64) {
        put(block, index, blkid);
    }

    /// How many bits of a hash count.
    pub fn hash_bits(&self) -> u32 {
        hash_bits(self.flags)
    }
}

/// How many bits of a hash count in a table with such flags.
pub(super) fn hash_bits(flags: u64) -> u32 {
    if flags & ZapHeader::FLAG_HASH64 != 0 { 48 } else { 28 }
}

fn put(block: &mut [u8], index: usize, word: u64) {
    block[index * 8..][..8].copy_from_slice(&word.to_le_bytes());
}
