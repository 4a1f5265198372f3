//! ZAP blocks: the name-value tables behind directories, properties and most of the MOS.
//!
//! A micro ZAP is a single block of names below 50 bytes with one 64-bit value each ([`Micro`]). A fat
//! ZAP is a hash table over many blocks: block 0 is the [`Header`], the others are leaves ([`Leaf`])
//! or, once there are many leaves, blocks of the pointer table.
//!
//! ```text
//!            high bits of the hash
//!                    |
//!   +--------+-------v----------------+      +------+   the next bits of the hash pick one of the
//!   | Header | 1 | 1 | 4 | 4 | 2 | .. |----->| Leaf |   leaf's chains; a chain links the entries,
//!   +--------+------------------------+      +------+   an entry links chunks of name and value
//!     block 0   pointer table                 block 4
//! ```
//!
//! A leaf is pointed to by all hashes that start with its prefix, so a split touches no other leaf.
//! An entry is identified by its hash and, among entries of the same hash, by its collision
//! differentiator (cd); that pair is also the order in which tables are listed ([`Position`]).
//!
//! Invariant: nothing here allocates more than the block holds, and every chain is followed for no
//! more steps than a block has chunks.
//!
//! Source: the published ZFS on-disk specification, chapter 5; integer keys and the wide hash by the
//! behaviour of OpenZFS.

mod fat;
mod hash;
mod leaf;
mod micro;
mod text;

pub use fat::{Header, Table};
pub use hash::{Position, hash_name, hash_u64s};
pub use leaf::{Entry, Leaf, LeafMut, Record, check as check_leaf};
pub use micro::{Micro, MicroEntry, MicroMut};
pub use text::{Form, TextPrep};

/// Block type of a leaf.
const LEAF: u64 = 1 << 63;
/// Block type of a fat ZAP's header.
const HEADER: u64 = (1 << 63) + 1;
/// Block type of a micro ZAP.
const MICRO: u64 = (1 << 63) + 3;

/// Bytes that the name of an entry can have at most; the feature `longname` needs 1023.
pub const NAME_MAX: usize = 1023;

/// What a ZAP block is, by its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// A whole micro ZAP.
    Micro,
    /// The first block of a fat ZAP.
    Header,
    /// A leaf of a fat ZAP.
    Leaf,
    /// Part of a pointer table, whose blocks have no mark of their own: a block number can never look
    /// like one of the marks.
    Table,
}

impl BlockKind {
    /// The kind of a little-endian block.
    pub fn of(block: &[u8]) -> BlockKind {
        match word(block, 0) {
            MICRO => BlockKind::Micro,
            HEADER => BlockKind::Header,
            LEAF => BlockKind::Leaf,
            _ => BlockKind::Table,
        }
    }
}

/// Turns a big-endian block into a little-endian one. Chunks that are none are left alone; no entry
/// of an intact leaf leads to them.
pub fn swap(block: &mut [u8]) {
    let first = block.first_chunk().map_or(0, |raw| u64::from_be_bytes(*raw));
    match first {
        MICRO => micro::swap(block),
        LEAF => leaf::swap(block),
        _ => block.chunks_exact_mut(8).for_each(<[u8]>::reverse),
    }
}

/// Reads whatever `block` is to the last entry; for tests with hostile bytes.
pub fn fuzz(block: &[u8]) {
    let mut foreign = block.to_vec();
    swap(&mut foreign);
    for block in [block, &foreign] {
        if let Ok(micro) = Micro::parse(block) {
            micro.entries().for_each(|entry| drop(micro.prep().apply(entry.name)));
        }
        if let Ok(header) = Header::parse(block) {
            let _ = (header.leaf_index(u64::MAX), header.embedded(block, 0));
        }
        let Ok(leaf) = Leaf::parse(block) else { continue };
        let _ = leaf.find(leaf.prefix(), |_| Ok(false));
        for entry in leaf.entries().unwrap_or_default() {
            let _ = (leaf.name(&entry), leaf.key(&entry), leaf.value(&entry));
        }
    }
}

/// The little-endian word at byte `at`, or 0 behind the end.
fn word(block: &[u8], at: usize) -> u64 {
    block.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u64::from_le_bytes(*raw))
}

/// Turns the number of `N` bytes at `at`, if it is there.
fn turn<const N: usize>(bytes: &mut [u8], at: usize) {
    if let Some(raw) = bytes.get_mut(at..at + N) {
        raw.reverse();
    }
}

#[cfg(test)]
mod tests;
