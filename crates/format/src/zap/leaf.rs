//! A leaf of a fat ZAP.
//!
//! ```text
//!    0  type u64 | 0 u64 | prefix u64
//!   24  magic u32 | free chunks u16 | entries u16 | bits of prefix u16 | first free chunk u16 | flags u8 | 0 ...
//!   48  heads of the hash chains: (block size / 32) u16
//!    -  chunks of 24 bytes:
//!
//!       +-----+-------+---------+------------+-----------+-------------+------------+-------+--------+
//!       | 252 | width | next u16| name chunk | name ints | value chunk | value ints | cd u32| hash   |  entry
//!       +-----+-------+---------+------------+-----------+-------------+------------+-------+--------+
//!       | 251 |           21 bytes of a name or value                            | next u16       |  array
//!       +-----+--------------------------------------------------------------------+----------------+
//!       | 253 |           ...                                                      | next u16       |  free
//!       +-----+--------------------------------------------------------------------+----------------+
//! ```
//!
//! Links are chunk numbers, 0xffff ends a chain. Numbers in names and values are big-endian whatever
//! the byte order of the pool, and their widths are 1, 2, 4 or 8 bytes.

mod edit;

use base::{Error, Result};

use super::block::{NAME_MAX, ZapBlockKind, turn, upper_bits, word};
use super::position::ZapPosition;
pub use edit::{LeafMut, NewLeafEntry, check};

const MAGIC: u32 = 0x02ab_1eaf;
const HEADER_SIZE: usize = 48;
const CHUNK_SIZE: usize = 24;
/// Bytes of a name or value in a chunk.
const ARRAY_SIZE: usize = 21;
const CHAIN_END: u16 = 0xffff;
/// Offset of the link in free and array chunks, and in entries.
const LINK_AT: usize = 22;
/// Most integers in a key; those of dedup tables have five.
const KEY_LEN_MAX: usize = 128;

const ENTRY: u8 = 252;
const ARRAY: u8 = 251;
const FREE: u8 = 253;

/// A leaf block whose header has been checked.
#[derive(Clone, Copy, Debug)]
pub struct ZapLeaf<'a> {
    heads: &'a [u8],
    chunks: &'a [u8],
    prefix: u64,
    prefix_bits: u32,
    entries: u16,
    free: u16,
}

/// One entry of a leaf; its name and value are read through the [`ZapLeaf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafEntry {
    /// Hash and collision differentiator.
    pub position: ZapPosition,
    /// Bytes of each number of the value: 1, 2, 4 or 8.
    pub value_width: u8,
    /// Numbers in the value.
    pub value_len: u16,
    value_chunk: u16,
    /// Bytes of the name with its NUL, or numbers of an integer key.
    name_len: u16,
    name_chunk: u16,
    next: u16,
    /// Its own chunk.
    chunk: u16,
}

impl<'a> ZapLeaf<'a> {
    /// Takes `block` as a leaf.
    pub fn parse(block: &'a [u8]) -> Result<ZapLeaf<'a>> {
        let bad = |what: String| Err(Error::corrupt(format!("ZAP leaf: {what}")));
        let magic = word(block, 24) as u32;
        if ZapBlockKind::of(block) != ZapBlockKind::Leaf || magic != MAGIC {
            return bad(format!("type {:#x}, magic {magic:#x}", word(block, 0)));
        }
        let Some((heads, chunks)) = parts(block) else {
            return bad(format!("block of {} bytes", block.len()));
        };
        let [free, entries, prefix_bits] = [28, 30, 32].map(|at| word(block, at) as u16);
        let (prefix, head_bits) = (word(block, 16), (heads.len() / 2).trailing_zeros());
        if u32::from(prefix_bits) + head_bits > 64 || prefix.checked_shr(prefix_bits.into()).unwrap_or(0) != 0 {
            return bad(format!("prefix {prefix:#x} of {prefix_bits} bits"));
        }
        Ok(ZapLeaf { heads, chunks, prefix, prefix_bits: prefix_bits.into(), entries, free })
    }

    /// The upper bits that all hashes in this leaf share.
    pub fn prefix(&self) -> u64 {
        self.prefix
    }

    /// How many bits that are.
    pub fn prefix_bits(&self) -> u32 {
        self.prefix_bits
    }

    /// Number of entries by the leaf's own count.
    pub fn entry_count(&self) -> u16 {
        self.entries
    }

    /// Number of free chunks by the leaf's own count.
    pub fn free_chunks(&self) -> u16 {
        self.free
    }

    /// Number of chunks, used and free.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len() / CHUNK_SIZE
    }

    /// Whether entries of this hash belong here.
    pub fn covers(&self, hash: u64) -> bool {
        upper_bits(hash, self.prefix_bits) == self.prefix
    }

    /// The first hash beyond this leaf; `None` if it is the last leaf.
    pub fn next_hash(&self) -> Option<u64> {
        match self.prefix_bits {
            0 => None,
            bits => (self.prefix + 1).checked_shl(64 - bits).filter(|&hash| hash != 0),
        }
    }

    /// The first entry of that hash that `matches` accepts. Those of one hash come in the order of their
    /// cd in tables that normalize names.
    pub fn find(&self, hash: u64, mut matches: impl FnMut(&LeafEntry) -> Result<bool>) -> Result<Option<LeafEntry>> {
        for entry in self.chain(self.head(hash)) {
            let entry = entry?;
            if entry.position.hash == hash && matches(&entry)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// All entries, in listing order.
    pub fn entries(&self) -> Result<Vec<LeafEntry>> {
        // Chunks used so far: those that belong to two entries give away a damaged leaf, and keep the
        // work on it within the size of the block.
        let mut used = 0;
        let mut entries = Vec::new();
        for head in 0..self.heads.len() / 2 {
            for entry in self.chain(head) {
                let entry = entry?;
                used += 1 + entry.value_bytes().div_ceil(ARRAY_SIZE) + usize::from(entry.name_len).div_ceil(ARRAY_SIZE);
                if used > self.chunk_count() {
                    return Err(Error::corrupt("ZAP leaf: entries use more chunks than there are"));
                }
                entries.push(entry);
            }
        }
        entries.sort_by_key(|entry| entry.position);
        Ok(entries)
    }

    /// The name of an entry, without its terminating NUL.
    pub fn name(&self, entry: &LeafEntry) -> Result<Vec<u8>> {
        if usize::from(entry.name_len) > NAME_MAX + 1 {
            return Err(Error::corrupt(format!("ZAP leaf: a name of {} bytes", entry.name_len)));
        }
        let mut name = self.array(entry.name_chunk, entry.name_len.into())?;
        name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
        Ok(name)
    }

    /// Whether an entry has exactly that name.
    pub fn is_named(&self, entry: &LeafEntry, name: &[u8]) -> Result<bool> {
        Ok(usize::from(entry.name_len) == name.len() + 1 && self.name(entry)? == name)
    }

    /// The key of an entry in a table of integer keys.
    pub fn key(&self, entry: &LeafEntry) -> Result<Vec<u64>> {
        if usize::from(entry.name_len) > KEY_LEN_MAX {
            return Err(Error::corrupt(format!("ZAP leaf: a key of {} integers", entry.name_len)));
        }
        let bytes = self.array(entry.name_chunk, usize::from(entry.name_len) * 8)?;
        Ok(bytes.as_chunks().0.iter().map(|raw| u64::from_be_bytes(*raw)).collect())
    }

    /// The numbers of an entry's value, big-endian.
    pub fn value(&self, entry: &LeafEntry) -> Result<Vec<u8>> {
        self.array(entry.value_chunk, entry.value_bytes())
    }

    /// The chain that entries of this hash are in.
    fn head(&self, hash: u64) -> usize {
        let heads = self.heads.len() / 2;
        upper_bits(hash, self.prefix_bits + heads.trailing_zeros()) as usize & (heads - 1)
    }

    fn chunk(&self, index: u16) -> Result<&'a [u8; CHUNK_SIZE]> {
        let chunk = self.chunks.as_chunks().0.get(usize::from(index));
        chunk.ok_or_else(|| Error::corrupt(format!("ZAP leaf: link to chunk {index} of {}", self.chunk_count())))
    }

    fn entry(&self, index: u16) -> Result<LeafEntry> {
        let chunk = self.chunk(index)?;
        let [kind, value_width] = [chunk[0], chunk[1]];
        if kind != ENTRY || !matches!(value_width, 1 | 2 | 4 | 8) {
            return Err(Error::corrupt(format!(
                "ZAP leaf: chunk {index} of type {kind}, width {value_width}, in the place of an entry"
            )));
        }
        let u16_at = |at| word(chunk, at) as u16;
        Ok(LeafEntry {
            chunk: index,
            next: u16_at(2),
            name_chunk: u16_at(4),
            name_len: u16_at(6),
            value_width,
            value_chunk: u16_at(8),
            value_len: u16_at(10),
            position: ZapPosition { hash: word(chunk, 16), cd: word(chunk, 12) as u32 },
        })
    }

    /// The entries of one hash chain. A chain that is longer than the leaf has chunks ends in an error.
    fn chain(&self, head: usize) -> impl Iterator<Item = Result<LeafEntry>> + use<'a> {
        let leaf = *self;
        let mut index = leaf.heads.as_chunks().0.get(head).map_or(CHAIN_END, |raw| u16::from_le_bytes(*raw));
        let mut left = leaf.chunk_count();
        std::iter::from_fn(move || {
            if index == CHAIN_END {
                return None;
            }
            let entry = match left {
                0 => Err(Error::corrupt("ZAP leaf: a hash chain that never ends")),
                _ => leaf.entry(index),
            };
            left = left.saturating_sub(1);
            index = entry.as_ref().map_or(CHAIN_END, |entry| entry.next);
            Some(entry)
        })
    }

    /// The first `len` bytes of a chain of array chunks.
    fn array(&self, mut index: u16, len: usize) -> Result<Vec<u8>> {
        if len.div_ceil(ARRAY_SIZE) > self.chunk_count() {
            return Err(Error::corrupt(format!("ZAP leaf: a name or value of {len} bytes")));
        }
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let [kind, array @ .., next_low, next_high] = self.chunk(index)?;
            if *kind != ARRAY {
                return Err(Error::corrupt(format!("ZAP leaf: chunk {index} of type {kind} inside a name or value")));
            }
            bytes.extend_from_slice(&array[..ARRAY_SIZE.min(len - bytes.len())]);
            index = u16::from_le_bytes([*next_low, *next_high]);
        }
        Ok(bytes)
    }

    /// The lowest collision differentiator that no entry of this hash has.
    pub fn unused_cd(&self, hash: u64) -> Result<u32> {
        let mut used = Vec::new();
        for entry in self.chain(self.head(hash)) {
            let position = entry?.position;
            if position.hash == hash {
                used.push(position.cd);
            }
        }
        used.sort_unstable();
        used.dedup();
        Ok(used.iter().zip(0..).take_while(|(used, cd)| *used == cd).count() as u32)
    }

    /// Whether the leaf has room for a value of that many bytes in the place of that of `entry`.
    pub fn has_room_for_value(&self, entry: &LeafEntry, bytes: usize) -> bool {
        let old = entry.value_bytes().div_ceil(ARRAY_SIZE);
        bytes.div_ceil(ARRAY_SIZE) <= usize::from(self.free) + old
    }

    /// The first `count` chunks of the free list.
    pub(super) fn free_list(&self, first: u16, count: usize) -> Result<Vec<u16>> {
        let mut chunks = Vec::with_capacity(count);
        let mut index = first;
        for _ in 0..count {
            let chunk = self.chunk(index)?;
            if chunk[0] != FREE || chunks.contains(&index) {
                return Err(Error::corrupt(format!("ZAP leaf: chunk {index} of type {} in the free list", chunk[0])));
            }
            chunks.push(index);
            index = u16::from_le_bytes([chunk[LINK_AT], chunk[LINK_AT + 1]]);
        }
        Ok(chunks)
    }

    /// The chunks of a name or value of that many bytes.
    pub(super) fn array_chunks(&self, mut index: u16, bytes: usize) -> Result<Vec<u16>> {
        let count = bytes.div_ceil(ARRAY_SIZE);
        let mut chunks = Vec::new();
        while index != CHAIN_END && chunks.len() < count {
            let chunk = self.chunk(index)?;
            if chunk[0] != ARRAY || chunks.contains(&index) {
                return Err(Error::corrupt(format!("ZAP leaf: chunk {index} of type {} in a chain", chunk[0])));
            }
            chunks.push(index);
            index = u16::from_le_bytes([chunk[LINK_AT], chunk[LINK_AT + 1]]);
        }
        if chunks.len() != count || index != CHAIN_END {
            return Err(Error::corrupt(format!(
                "ZAP leaf: a name or value of {bytes} bytes in a chain of other length"
            )));
        }
        Ok(chunks)
    }

    /// The bytes of an entry's name, or of its key of integers.
    pub(super) fn key_bytes(&self, entry: &LeafEntry, u64_keys: bool) -> Result<Vec<u8>> {
        self.array(entry.name_chunk, entry.key_len_bytes(u64_keys))
    }

    /// How many chains there are.
    pub(super) fn head_count(&self) -> usize {
        self.heads.len() / 2
    }

    /// Bytes of the block.
    pub(super) fn block_bytes(&self) -> usize {
        self.heads.len() * 16
    }
}

impl LeafEntry {
    /// Bytes of the name, or of the key of integers.
    pub(super) fn key_len_bytes(&self, u64_keys: bool) -> usize {
        usize::from(self.name_len) * if u64_keys { 8 } else { 1 }
    }

    fn value_bytes(&self) -> usize {
        usize::from(self.value_len) * usize::from(self.value_width)
    }
}

/// The chain heads and the chunks of a leaf block; `None` if its size is not one a leaf can have.
fn parts(block: &[u8]) -> Option<(&[u8], &[u8])> {
    let heads_len = block.len() / 16;
    if !block.len().is_power_of_two() || !(512..=1 << 20).contains(&block.len()) {
        return None;
    }
    let (heads, chunks) = block.get(HEADER_SIZE..)?.split_at_checked(heads_len)?;
    Some((heads, &chunks[..chunks.len() / CHUNK_SIZE * CHUNK_SIZE]))
}

pub(super) fn swap(block: &mut [u8]) {
    let Some((heads, chunks)) = parts(block) else { return };
    let (heads_len, chunks_len) = (heads.len(), chunks.len());
    let (header, rest) = block.split_at_mut(HEADER_SIZE);
    turn::<8>(header, 0);
    turn::<8>(header, 16);
    turn::<4>(header, 24);
    (28..36).step_by(2).for_each(|at| turn::<2>(header, at));
    let (heads, chunks) = rest.split_at_mut(heads_len);
    heads.chunks_exact_mut(2).for_each(<[u8]>::reverse);
    for chunk in chunks[..chunks_len].chunks_exact_mut(CHUNK_SIZE) {
        match chunk[0] {
            ENTRY => {
                (2..12).step_by(2).for_each(|at| turn::<2>(chunk, at));
                turn::<4>(chunk, 12);
                turn::<8>(chunk, 16);
            }
            ARRAY | FREE => turn::<2>(chunk, 22),
            _ => {}
        }
    }
}
