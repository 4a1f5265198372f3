//! Changing a leaf.
//!
//! Everything that a change needs is looked up and checked before the first byte is written, so that a damaged
//! leaf is an error that leaves the block as it was.
//!
//! ```text
//!   insert      chunks from the free list: entry, name, value    -> into its chain, behind those of the
//!                                                                   same or a lower cd
//!   remove      chunks of value, name, entry                     -> to the front of the free list
//!   split       all entries are put into two new leaves by the next bit of their hash
//! ```
//!
//! Invariant: every chunk is in the free list or belongs to one entry; the header counts free chunks and entries.

use base::{Error, Result};

use super::super::{LEAF, ZapPosition};
use super::{ARRAY, ARRAY_SIZE, CHAIN_END, CHUNK_SIZE, ENTRY, FREE, HEADER_SIZE, LINK_AT, LeafEntry, MAGIC, ZapLeaf};

const FREE_COUNT_AT: usize = 28;
const ENTRY_COUNT_AT: usize = 30;
const FREE_LIST_AT: usize = 34;
const FLAGS_AT: usize = 36;
/// Chains are sorted by cd; leaves of tables that normalize names say so.
const FLAG_SORTED: u8 = 1;
const NEXT_AT: usize = 2;

/// An entry to be put into a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLeafEntry<'a> {
    /// Hash and collision differentiator.
    pub position: ZapPosition,
    /// The name with its NUL, or the integers of a key, big-endian.
    pub key: &'a [u8],
    /// Bytes of the name, or number of integers.
    pub key_len: u16,
    /// Bytes of each number of the value: 1, 2, 4 or 8.
    pub width: u8,
    /// The numbers, big-endian.
    pub value: &'a [u8],
}

impl NewLeafEntry<'_> {
    /// Chunks that it takes.
    pub fn chunks(&self) -> usize {
        1 + self.key.len().div_ceil(ARRAY_SIZE) + self.value.len().div_ceil(ARRAY_SIZE)
    }
}

impl ZapLeaf<'_> {
    /// The two leaves that this one is split into, by the first bit of the hash behind the prefix. `sorted` is
    /// for tables that normalize names, `u64_keys` for those of integer keys.
    pub fn split(&self, sorted: bool, u64_keys: bool) -> Result<[Vec<u8>; 2]> {
        let bits = self.prefix_bits() + 1;
        if bits + self.head_count().trailing_zeros() > 64 {
            return Err(Error::corrupt(format!("ZAP leaf with a prefix of {} bits is split", self.prefix_bits())));
        }
        let mut halves = [0, 1].map(|bit| {
            let mut block = vec![0; self.block_bytes()];
            LeafMut::init(&mut block, self.prefix() << 1 | bit, bits, sorted);
            block
        });
        for entry in self.entries()? {
            if !self.covers(entry.position.hash) {
                return Err(Error::corrupt(format!(
                    "ZAP entry with hash {:#x} in the wrong leaf",
                    entry.position.hash
                )));
            }
            let half = (super::upper_bits(entry.position.hash, bits) & 1) as usize;
            let key = self.key_bytes(&entry, u64_keys)?;
            let value = self.value(&entry)?;
            let record = NewLeafEntry {
                position: entry.position,
                key: &key,
                key_len: entry.name_len,
                width: entry.value_width,
                value: &value,
            };
            if !(LeafMut { block: &mut halves[half] }).insert(&record)? {
                return Err(Error::corrupt("ZAP leaf: entries use more chunks than there are"));
            }
        }
        Ok(halves)
    }
}

/// A leaf that is changed.
#[derive(Debug)]
pub struct LeafMut<'a> {
    block: &'a mut [u8],
}

impl<'a> LeafMut<'a> {
    /// Makes `block` an empty leaf for hashes that start with the `bits` bits of `prefix`. Panics if the size
    /// of the block is not one that [`ZapLeaf::parse`] takes.
    pub fn init(block: &'a mut [u8], prefix: u64, bits: u32, sorted: bool) -> LeafMut<'a> {
        block.fill(0);
        block[..8].copy_from_slice(&LEAF.to_le_bytes());
        block[16..24].copy_from_slice(&prefix.to_le_bytes());
        block[24..28].copy_from_slice(&MAGIC.to_le_bytes());
        block[32..34].copy_from_slice(&(bits as u16).to_le_bytes());
        block[FLAGS_AT] = if sorted { FLAG_SORTED } else { 0 };
        let count = ZapLeaf::parse(block).expect("made as parsed").chunk_count() as u16;
        let mut leaf = LeafMut { block };
        leaf.put16(FREE_COUNT_AT, count);
        let chunks_at = leaf.chunks_at();
        leaf.block[HEADER_SIZE..chunks_at].fill(0xff);
        for index in 0..count {
            let next = if index + 1 < count { index + 1 } else { CHAIN_END };
            leaf.chunk_mut(index)[0] = FREE;
            leaf.link(index, next);
        }
        leaf
    }

    /// Takes `block` as a leaf.
    pub fn parse(block: &'a mut [u8]) -> Result<LeafMut<'a>> {
        ZapLeaf::parse(block)?;
        Ok(LeafMut { block })
    }

    /// The leaf as it is now.
    pub fn as_leaf(&self) -> ZapLeaf<'_> {
        ZapLeaf::parse(self.block).expect("parsed when it was taken, and kept so")
    }

    /// Adds an entry; `false` if there is no room for it. Its position must not be taken, and its hash must
    /// start with the prefix of the leaf.
    pub fn insert(&mut self, record: &NewLeafEntry<'_>) -> Result<bool> {
        let leaf = self.as_leaf();
        assert!(leaf.covers(record.position.hash), "{:?} goes to another leaf", record.position);
        let count = record.chunks();
        if count > usize::from(leaf.free) {
            return Ok(false);
        }
        let head = leaf.head(record.position.hash);
        let mut before = None;
        for entry in leaf.chain(head) {
            let entry = entry?;
            if entry.position.cd > record.position.cd {
                break;
            }
            before = Some(entry.chunk);
        }
        let chunks = self.allocate(count)?;
        let (own, arrays) = (chunks[0], &chunks[1..]);
        let (key, value) = arrays.split_at(record.key.len().div_ceil(ARRAY_SIZE));
        let link_at = self.link_of(head, before);
        let next = self.get16(link_at);
        self.put16(link_at, own);
        self.fill(key, record.key);
        self.fill(value, record.value);
        let value_len = record.value.len() / usize::from(record.width);
        let words = [next, first(key), record.key_len, first(value), value_len as u16];
        let chunk = self.chunk_mut(own);
        chunk.fill(0);
        chunk[..2].copy_from_slice(&[ENTRY, record.width]);
        for (out, word) in chunk[NEXT_AT..12].chunks_exact_mut(2).zip(words) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        chunk[12..16].copy_from_slice(&record.position.cd.to_le_bytes());
        chunk[16..24].copy_from_slice(&record.position.hash.to_le_bytes());
        self.add16(ENTRY_COUNT_AT, 1);
        Ok(true)
    }

    /// Removes an entry that [`ZapLeaf::find`] found in this leaf.
    pub fn remove(&mut self, entry: &LeafEntry, u64_keys: bool) -> Result<()> {
        let leaf = self.as_leaf();
        let head = leaf.head(entry.position.hash);
        let mut before = None;
        for other in leaf.chain(head) {
            let other = other?;
            if other.chunk == entry.chunk {
                break;
            }
            before = Some(other.chunk);
        }
        let mut chunks = vec![entry.chunk];
        chunks.extend(leaf.array_chunks(entry.name_chunk, entry.key_len_bytes(u64_keys))?);
        chunks.extend(leaf.array_chunks(entry.value_chunk, entry.value_bytes())?);
        let link_at = self.link_of(head, before);
        assert_eq!(self.get16(link_at), entry.chunk, "the entry was found in this leaf");
        self.put16(link_at, entry.next);
        self.release(&chunks);
        self.add16(ENTRY_COUNT_AT, -1);
        Ok(())
    }

    /// Changes the value of an entry that [`ZapLeaf::find`] found in this leaf; `false` if there is no room.
    pub fn set_value(&mut self, entry: &LeafEntry, width: u8, value: &[u8]) -> Result<bool> {
        let leaf = self.as_leaf();
        if !leaf.has_room_for_value(entry, value.len()) {
            return Ok(false);
        }
        let mut chunks = leaf.array_chunks(entry.value_chunk, entry.value_bytes())?;
        let count = value.len().div_ceil(ARRAY_SIZE);
        if count > chunks.len() {
            chunks.extend(self.allocate(count - chunks.len())?);
        }
        let (kept, surplus) = chunks.split_at(count);
        self.release(surplus);
        self.fill(kept, value);
        let chunk = self.chunk_mut(entry.chunk);
        chunk[1] = width;
        chunk[8..10].copy_from_slice(&first(kept).to_le_bytes());
        chunk[10..12].copy_from_slice(&((value.len() / usize::from(width)) as u16).to_le_bytes());
        Ok(true)
    }

    /// Takes chunks from the front of the free list, which says it has so many.
    fn allocate(&mut self, count: usize) -> Result<Vec<u16>> {
        let leaf = self.as_leaf();
        let chunks = leaf.free_list(self.get16(FREE_LIST_AT), count)?;
        if let Some(last) = chunks.last() {
            let link_at = self.chunk_at(*last) + LINK_AT;
            self.put16(FREE_LIST_AT, self.get16(link_at));
        }
        self.add16(FREE_COUNT_AT, -(count as i16));
        Ok(chunks)
    }

    /// Puts chunks at the front of the free list, in their order.
    fn release(&mut self, chunks: &[u16]) {
        for &index in chunks.iter().rev() {
            let next = self.get16(FREE_LIST_AT);
            let chunk = self.chunk_mut(index);
            chunk.fill(0);
            chunk[0] = FREE;
            self.link(index, next);
            self.put16(FREE_LIST_AT, index);
        }
        self.add16(FREE_COUNT_AT, chunks.len() as i16);
    }

    fn fill(&mut self, chunks: &[u16], bytes: &[u8]) {
        for (i, (&index, part)) in chunks.iter().zip(bytes.chunks(ARRAY_SIZE)).enumerate() {
            let chunk = self.chunk_mut(index);
            chunk.fill(0);
            chunk[0] = ARRAY;
            chunk[1..1 + part.len()].copy_from_slice(part);
            self.link(index, chunks.get(i + 1).copied().unwrap_or(CHAIN_END));
        }
    }

    /// Where the link to what follows an entry, or to the first of a chain, is.
    fn link_of(&self, head: usize, before: Option<u16>) -> usize {
        before.map_or(HEADER_SIZE + 2 * head, |chunk| self.chunk_at(chunk) + NEXT_AT)
    }

    fn link(&mut self, index: u16, next: u16) {
        self.put16(self.chunk_at(index) + LINK_AT, next);
    }

    fn chunks_at(&self) -> usize {
        HEADER_SIZE + self.block.len() / 16
    }

    fn chunk_at(&self, index: u16) -> usize {
        self.chunks_at() + usize::from(index) * CHUNK_SIZE
    }

    fn chunk_mut(&mut self, index: u16) -> &mut [u8] {
        let at = self.chunk_at(index);
        &mut self.block[at..at + CHUNK_SIZE]
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.block[at], self.block[at + 1]])
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.block[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn add16(&mut self, at: usize, delta: i16) {
        self.put16(at, self.get16(at).wrapping_add_signed(delta));
    }
}

fn first(chunks: &[u16]) -> u16 {
    chunks.first().copied().unwrap_or(CHAIN_END)
}

/// Checks that every chunk has one place and the counts are those of the header; for tests.
pub fn check(leaf: &ZapLeaf<'_>, block: &[u8], u64_keys: bool) -> Result<()> {
    let mut chunks =
        leaf.free_list(u16::from_le_bytes([block[FREE_LIST_AT], block[FREE_LIST_AT + 1]]), leaf.free.into())?;
    let entries = leaf.entries()?;
    for entry in &entries {
        chunks.push(entry.chunk);
        chunks.extend(leaf.array_chunks(entry.name_chunk, entry.key_len_bytes(u64_keys))?);
        chunks.extend(leaf.array_chunks(entry.value_chunk, entry.value_bytes())?);
    }
    chunks.sort_unstable();
    let expect = (0..leaf.chunk_count() as u16).collect::<Vec<_>>();
    if chunks != expect || entries.len() != usize::from(leaf.entries) {
        return Err(Error::corrupt(format!("ZAP leaf of {} entries: chunks in use {chunks:?}", entries.len())));
    }
    for head in 0..leaf.heads.len() / 2 {
        let chain = leaf.chain(head).collect::<Result<Vec<_>>>()?;
        if chain.iter().any(|entry| leaf.head(entry.position.hash) != head || !leaf.covers(entry.position.hash))
            || !chain.is_sorted_by_key(|entry| entry.position.cd)
        {
            return Err(Error::corrupt(format!("ZAP leaf: chain {head} is {chain:?}")));
        }
    }
    Ok(())
}
