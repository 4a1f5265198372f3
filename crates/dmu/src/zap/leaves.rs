//! From a hash to the leaf of a large table that has its entries.

use base::{Block, Error, Result};
use format::zap::{ZapHeader, ZapLeaf};

/// Where the pointer for a hash is, and the number of the leaf that it leads to.
pub(super) fn leaf_blkid(
    header: &ZapHeader,
    head: &[u8],
    hash: u64,
    block: impl Fn(u64) -> Result<Block>,
) -> Result<(u64, u64)> {
    let index = header.leaf_index(hash);
    match header.table.blocks {
        0 => Ok((0, header.embedded(head, index))),
        _ => {
            let (table_blkid, in_block) = header.external(index);
            Ok((table_blkid, ZapHeader::pointer(&block(table_blkid)?, in_block)))
        }
    }
}

/// Takes a block as the leaf for a hash.
pub(super) fn leaf_in<'b>(block: &'b [u8], header: &ZapHeader, hash: u64) -> Result<ZapLeaf<'b>> {
    let leaf = ZapLeaf::parse(block)?;
    if !leaf.covers(hash) || leaf.prefix_bits() > header.table.shift {
        let (prefix, bits) = (leaf.prefix(), leaf.prefix_bits());
        let what = format!("ZAP leaf of prefix {prefix:#x} ({bits} bits) in the place for hash {hash:#x}");
        return Err(Error::corrupt(what));
    }
    Ok(leaf)
}
