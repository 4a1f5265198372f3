//! The kinds of blocks of a ZAP, and words in them.

/// Block type of a leaf.
pub(super) const LEAF: u64 = 1 << 63;
/// Block type of a fat ZAP's header.
pub(super) const HEADER: u64 = (1 << 63) + 1;
/// Block type of a micro ZAP.
pub(super) const MICRO: u64 = (1 << 63) + 3;

/// Bytes that the name of an entry can have at most; the feature `longname` needs 1023.
pub const NAME_MAX: usize = 1023;

/// What a ZAP block is, by its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZapBlockKind {
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

impl ZapBlockKind {
    /// The kind of a little-endian block.
    pub fn of(block: &[u8]) -> ZapBlockKind {
        match word(block, 0) {
            MICRO => ZapBlockKind::Micro,
            HEADER => ZapBlockKind::Header,
            LEAF => ZapBlockKind::Leaf,
            _ => ZapBlockKind::Table,
        }
    }
}

/// The little-endian word at byte `at`, or 0 behind the end.
pub(super) fn word(block: &[u8], at: usize) -> u64 {
    block.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u64::from_le_bytes(*raw))
}

/// Turns the number of `N` bytes at `at`, if it is there.
pub(super) fn turn<const N: usize>(bytes: &mut [u8], at: usize) {
    if let Some(raw) = bytes.get_mut(at..at + N) {
        raw.reverse();
    }
}

/// The upper `bits` bits of a hash.
pub(super) fn upper_bits(hash: u64, bits: u32) -> u64 {
    if bits == 0 { 0 } else { hash >> (64 - bits.min(64)) }
}
