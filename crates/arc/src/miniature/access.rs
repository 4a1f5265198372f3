//! Accesses to blocks, and which of them are drawn.

use base::split_mix;

use crate::policy::{Contents, Policy};

/// The bits of a hash by which blocks are drawn begin here: those of tables are below and above.
const DRAWN_BIT: u32 = 24;

/// What a block is asked for, or what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Somebody waits for it.
    Demand = 0,
    /// Somebody may.
    Prefetch = 1,
    /// It has other contents from now on.
    Written = 2,
    /// Nobody will ask for it again.
    Freed = 3,
}

/// One access to a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockAccess {
    /// When, in nanoseconds, by a clock that never goes back.
    pub time_ns: u64,
    /// A number that names the block.
    pub block: u64,
    /// Its bytes.
    pub bytes: u64,
    /// What it holds.
    pub contents: Contents,
    /// Why.
    pub kind: AccessKind,
}

/// Whether a block of this hash is in a sample of a half to the power of `shift`.
pub(crate) fn is_drawn(hash: u64, shift: u32) -> bool {
    (hash >> DRAWN_BIT) & ((1 << shift) - 1) == 0
}

/// The name of a block in here, and its hash.
pub(crate) fn key_of(block: u64) -> (u64, u64) {
    let key = split_mix(block);
    (key, Policy::<u64, ()>::hash_of(&key))
}

/// Whether the block of that number is in a sample of a half to the power of `shift`.
pub fn is_in_sample(block: u64, shift: u32) -> bool {
    is_drawn(key_of(block).1, shift)
}
