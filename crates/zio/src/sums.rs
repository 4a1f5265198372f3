//! Checksums of blocks, some of which are keyed with the pool's salt.

use std::sync::OnceLock;

use base::Endian;
use codec::checksum::{self, Checksum, Sum};
use format::blkptr::BlkPtr;

use crate::pointer::{checksum_kind, has_mac, log_block_sums};

/// See the top of the file.
#[derive(Default)]
pub(crate) struct BlockSums {
    salt: OnceLock<[u8; 32]>,
}

impl BlockSums {
    /// Sets the salt. A second call changes nothing.
    pub(crate) fn set_salt(&self, salt: [u8; 32]) {
        let _ = self.salt.set(salt);
    }

    /// Whether the salt is known: before that no block is written that needs it.
    pub(crate) fn has_salt(&self) -> bool {
        self.salt.get().is_some()
    }

    /// The sum of some bytes. Until the MOS has told the salt, nothing is read that needs one.
    pub(crate) fn compute(&self, kind: Checksum, endian: Endian, bytes: &[u8]) -> Sum {
        checksum::compute(kind, endian, self.salt.get().unwrap_or(&[0; 32]), bytes)
    }

    /// The sums of two blocks, in less time than one after the other.
    pub(crate) fn compute_pair(&self, kind: Checksum, endian: Endian, blocks: [&[u8]; 2]) -> [Sum; 2] {
        checksum::compute_pair(kind, endian, self.salt.get().unwrap_or(&[0; 32]), blocks)
    }

    /// Whether the bytes are those that the pointer was made for.
    pub(crate) fn is_good(&self, bp: &BlkPtr, physical: &[u8]) -> bool {
        let Ok(kind) = checksum_kind(bp) else { return false };
        if kind.is_embedded() {
            return log_block_sums(kind, bp, physical).is_ok();
        }
        if matches!(kind, Checksum::Off | Checksum::NoParity) {
            return true;
        }
        let actual = self.compute(kind, bp.endian(), physical);
        let expected = bp.checksum();
        if has_mac(bp) { kind.cut_for_mac(actual) == expected[..2] } else { actual == expected }
    }
}
