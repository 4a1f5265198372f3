//! The checksums of block pointers, and of blocks that carry their own.
//!
//! A checksum is four 64-bit words. A disk holds them in the byte order of the machine that wrote
//! the block; a [`Sum`] holds them as numbers. Going from bytes to words, the algorithms differ:
//!
//! | kinds                     | input is read as            | output words come from             |
//! |---------------------------|-----------------------------|------------------------------------|
//! | fletcher2, zilog          | 64-bit words, writer's order | sums, numbers already             |
//! | fletcher4, zilog2         | 32-bit words, writer's order | sums, numbers already             |
//! | sha256, label, gang_header| bytes                       | digest, big-endian on every machine |
//! | sha512                    | bytes                       | SHA-512/256 digest, writer's order |
//! | skein, edonr, blake3      | salt, then bytes            | digest, writer's order             |
//!
//! The last three are keyed with the pool's checksum salt (32 random bytes kept in the MOS), so
//! that two blocks of equal checksum cannot be made without it.

use base::Endian;
use sha2::{Digest, Sha256, Sha512_256};

use crate::numbered::numbered;

mod edonr;
pub mod embedded;
pub mod fletcher;
mod sha256;
mod skein;
mod sum;

pub use sum::Sum;

numbered! {
    /// The checksum function named by a block pointer or property; the number is the one on disk.
    pub enum Checksum {
        /// Property value: as the parent. Never in a block pointer.
        Inherit = 0 "inherit",
        /// Property value: the default, fletcher4. Never in a block pointer.
        On = 1 "on",
        /// None; the words are 0.
        Off = 2 "off",
        /// Labels and uberblocks: SHA-256 in the block's own tail, seeded with the block's offset.
        Label = 3 "label",
        /// Gang headers: SHA-256 in the block's own tail, seeded with the block's address and birth.
        GangHeader = 4 "gang_header",
        /// Old log blocks: fletcher2 in the block's own tail, seeded from the block pointer.
        Zilog = 5 "zilog",
        /// Two pairs of sums over 64-bit words.
        Fletcher2 = 6 "fletcher2",
        /// Four nested sums over 32-bit words; the default.
        Fletcher4 = 7 "fletcher4",
        /// SHA-256.
        Sha256 = 8 "sha256",
        /// Log blocks: fletcher4 over the used part, kept in the block's head.
        Zilog2 = 9 "zilog2",
        /// None, for data that is rebuilt from elsewhere; the words are 0.
        NoParity = 10 "noparity",
        /// SHA-512/256.
        Sha512 = 11 "sha512",
        /// Skein-512-256, keyed with the salt.
        Skein = 12 "skein",
        /// Edon-R-512 cut to 256 bits, keyed with the salt.
        Edonr = 13 "edonr",
        /// BLAKE3, keyed with the salt.
        Blake3 = 14 "blake3",
    }
}

impl Checksum {
    /// Whether a block pointer may name it: all but the two property values.
    pub fn is_concrete(self) -> bool {
        !matches!(self, Checksum::Inherit | Checksum::On)
    }

    /// Whether the block itself holds the sum, see [`embedded`].
    pub fn is_embedded(self) -> bool {
        matches!(self, Checksum::Label | Checksum::GangHeader | Checksum::Zilog | Checksum::Zilog2)
    }

    /// Whether it is keyed with the pool's salt.
    pub fn is_salted(self) -> bool {
        matches!(self, Checksum::Skein | Checksum::Edonr | Checksum::Blake3)
    }

    /// Whether equal sums are taken to mean equal data, without comparing the blocks. For
    /// encrypted blocks it also says how the sum is cut, see [`Checksum::cut_for_mac`].
    pub fn is_dedup_strong(self) -> bool {
        matches!(self, Checksum::Sha256 | Checksum::Sha512 | Checksum::Skein | Checksum::Blake3)
    }

    /// Whether an equal sum may let a write of equal data be skipped.
    pub fn is_nopwrite_strong(self) -> bool {
        self.is_dedup_strong() || self == Checksum::Edonr
    }

    /// Whether it is good enough for metadata, which otherwise gets fletcher4.
    pub fn is_for_metadata(self) -> bool {
        self.is_nopwrite_strong() || matches!(self, Checksum::Label | Checksum::GangHeader | Checksum::Fletcher4)
    }

    /// About how many nanoseconds a core takes for a KiB: enough to tell a glance from work. By `cargo bench -p codec`.
    pub fn ns_per_kib(self) -> u64 {
        match self {
            Checksum::Off | Checksum::NoParity | Checksum::Inherit | Checksum::On => 0,
            Checksum::Fletcher2 | Checksum::Fletcher4 | Checksum::Zilog | Checksum::Zilog2 => 60,
            Checksum::Blake3 => 150,
            Checksum::Edonr => 400,
            Checksum::Sha256 | Checksum::Label | Checksum::GangHeader => 600,
            Checksum::Sha512 => 1600,
            Checksum::Skein => 2200,
        }
    }

    /// The two words that an encrypted block has room for beside its 128-bit MAC. Weak sums are
    /// folded, as their entropy is not spread evenly over the four words.
    pub fn cut_for_mac(self, sum: Sum) -> [u64; 2] {
        if self.is_dedup_strong() { [sum[0], sum[1]] } else { [sum[0] ^ sum[2], sum[1] ^ sum[3]] }
    }
}

/// The checksum of `data`, a block written by a machine of byte order `endian`.
///
/// For kinds that are embedded in their block this is the bare algorithm over all of `data`; for
/// those with no algorithm (`Off`, `NoParity`, and the property values, which the caller refuses by
/// [`Checksum::is_concrete`]) it is all zero. `salt` matters only if [`Checksum::is_salted`].
pub fn compute(kind: Checksum, endian: Endian, salt: &[u8; 32], data: &[u8]) -> Sum {
    match kind {
        Checksum::Inherit | Checksum::On | Checksum::Off | Checksum::NoParity => [0; 4],
        Checksum::Fletcher2 | Checksum::Zilog => fletcher::fletcher2([0; 4], endian, data),
        Checksum::Fletcher4 | Checksum::Zilog2 => fletcher::fletcher4([0; 4], endian, data),
        Checksum::Sha256 | Checksum::Label | Checksum::GangHeader => words(Endian::Big, &Sha256::digest(data).into()),
        Checksum::Sha512 => words(endian, &Sha512_256::digest(data).into()),
        Checksum::Blake3 => words(endian, blake3::keyed_hash(salt, data).as_bytes()),
        Checksum::Skein => words(endian, &skein::skein_512_256(salt, data)),
        Checksum::Edonr => words(endian, &edonr::edonr_512_256(salt, data)),
    }
}

/// The checksums of two blocks, as [`compute`] has them, in less time than one after the other.
pub fn compute_pair(kind: Checksum, endian: Endian, salt: &[u8; 32], blocks: [&[u8]; 2]) -> [Sum; 2] {
    match kind {
        Checksum::Sha256 => sha256::sha256_pair(blocks).map(|digest| words(Endian::Big, &digest)),
        _ => blocks.map(|data| compute(kind, endian, salt, data)),
    }
}

/// The words of a digest, taken in byte order `endian`.
fn words(endian: Endian, digest: &[u8; 32]) -> Sum {
    std::array::from_fn(|i| endian.u64(&digest[i * 8..]).expect("a digest has four words"))
}

#[cfg(test)]
mod tests;
