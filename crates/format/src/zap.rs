//! ZAP blocks: the name-value tables behind directories, properties and most of the MOS.
//!
//! A micro ZAP is a single block of names below 50 bytes with one 64-bit value each ([`Micro`]). A fat
//! ZAP is a hash table over many blocks: block 0 is the [`ZapHeader`], the others are leaves ([`ZapLeaf`])
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
//! differentiator (cd); that pair is also the order in which tables are listed ([`ZapPosition`]).
//!
//! Invariant: nothing here allocates more than the block holds, and every chain is followed for no
//! more steps than a block has chunks.
//!
//! Source: the published ZFS on-disk specification, chapter 5; integer keys and the wide hash by the
//! behaviour of OpenZFS.

mod block;
mod fat;
mod hash;
mod leaf;
mod micro;
mod position;
mod text;

pub use block::{NAME_MAX, ZapBlockKind};
pub use fat::{PointerTable, ZapHeader};
pub use hash::{hash_name, hash_u64s};
pub use leaf::{LeafEntry, LeafMut, NewLeafEntry, ZapLeaf, check as check_leaf};
pub use micro::{Micro, MicroEntry, MicroMut};
pub use position::ZapPosition;
pub use text::{NormalizationForm, TextPrep};

use block::{LEAF, MICRO};

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
        if let Ok(header) = ZapHeader::parse(block) {
            let _ = (header.leaf_index(u64::MAX), header.embedded(block, 0));
        }
        let Ok(leaf) = ZapLeaf::parse(block) else { continue };
        let _ = leaf.find(leaf.prefix(), |_| Ok(false));
        for entry in leaf.entries().unwrap_or_default() {
            let _ = (leaf.name(&entry), leaf.key(&entry), leaf.value(&entry));
        }
    }
}

#[cfg(test)]
mod tests;
