//! The compressions of block pointers.
//!
//! A compressed block on disk is padded with zeros to whole sectors, so the psize that the caller
//! knows is mostly more than what the compressor wrote. lz4 and zstd therefore put the exact size
//! in front; the others know their end from the data, or from the size that comes out.
//!
//! | kind      | form                                                                       |
//! |-----------|----------------------------------------------------------------------------|
//! | lzjb      | bit map of 8 items, then literals or 16-bit copies                         |
//! | gzip-1..9 | a zlib stream (RFC 1950)                                                   |
//! | zle       | runs of zeros, runs of literals                                            |
//! | lz4       | big-endian 32-bit length, then a raw lz4 block                             |
//! | zstd      | big-endian 32-bit length, level and version, then a frame without magic    |
//!
//! [`decompress`] gets bytes whose checksum was right, or that need none, and still trusts nothing:
//! it fills the whole of `dst` or returns an error, and neither reads nor writes beyond.

use base::{Error, Kind, Result};

use crate::numbered::numbered;

mod gzip;
mod lz4;
mod lzjb;
mod zle;
pub mod zstd;

numbered! {
    /// The compression named by a block pointer or property; the number is the one on disk.
    pub enum Compress {
        /// Property value: as the parent. Never in a block pointer.
        Inherit = 0 "inherit",
        /// Property value: the default. Never in a block pointer.
        On = 1 "on",
        /// The data as it is.
        Off = 2 "uncompressed",
        /// Jeff Bonwick's LZ variant, the first default.
        Lzjb = 3 "lzjb",
        /// A block of zeros, of which nothing is stored.
        Empty = 4 "empty",
        /// zlib level 1, fast.
        Gzip1 = 5 "gzip-1",
        /// zlib level 2.
        Gzip2 = 6 "gzip-2",
        /// zlib level 3.
        Gzip3 = 7 "gzip-3",
        /// zlib level 4.
        Gzip4 = 8 "gzip-4",
        /// zlib level 5.
        Gzip5 = 9 "gzip-5",
        /// zlib level 6, what the property value `gzip` means.
        Gzip6 = 10 "gzip-6",
        /// zlib level 7.
        Gzip7 = 11 "gzip-7",
        /// zlib level 8.
        Gzip8 = 12 "gzip-8",
        /// zlib level 9, small.
        Gzip9 = 13 "gzip-9",
        /// Zero-length encoding.
        Zle = 14 "zle",
        /// LZ4, the default.
        Lz4 = 15 "lz4",
        /// Zstandard.
        Zstd = 16 "zstd",
    }
}

impl Compress {
    /// Whether a block pointer may name it: all but the two property values.
    pub fn is_concrete(self) -> bool {
        !matches!(self, Compress::Inherit | Compress::On)
    }

    /// About how many nanoseconds a core takes to compress a KiB of contents, and to decompress it: enough to tell a
    /// glance from work. By `cargo bench -p codec`.
    pub fn ns_per_kib(self) -> (u64, u64) {
        match self {
            Compress::Inherit | Compress::On | Compress::Off | Compress::Empty => (0, 0),
            Compress::Zle | Compress::Lz4 => (2000, 300),
            Compress::Lzjb => (3000, 2000),
            Compress::Gzip1 | Compress::Gzip2 | Compress::Gzip3 => (3500, 800),
            Compress::Zstd => (6000, 800),
            Compress::Gzip4 | Compress::Gzip5 | Compress::Gzip6 => (14_000, 800),
            Compress::Gzip7 | Compress::Gzip8 | Compress::Gzip9 => (30_000, 800),
        }
    }
}

/// Fills `dst`, whose length is the block's lsize, from `src`, which may have padding at its end.
///
/// Errors: `Corrupt` if `src` is not such a block; `dst` then holds anything.
pub fn decompress(kind: Compress, src: &[u8], dst: &mut [u8]) -> Result<()> {
    if dst.is_empty() {
        return Ok(());
    }
    let whole = match kind {
        Compress::Inherit | Compress::On => false,
        Compress::Off => src.get(..dst.len()).map(|src| dst.copy_from_slice(src)).is_some(),
        Compress::Empty => {
            dst.fill(0);
            true
        }
        Compress::Lzjb => lzjb::decompress(src, dst),
        Compress::Zle => zle::decompress(src, dst),
        Compress::Lz4 => lz4::decompress(src, dst),
        Compress::Zstd => zstd::decompress(src, dst),
        Compress::Gzip1
        | Compress::Gzip2
        | Compress::Gzip3
        | Compress::Gzip4
        | Compress::Gzip5
        | Compress::Gzip6
        | Compress::Gzip7
        | Compress::Gzip8
        | Compress::Gzip9 => gzip::decompress(src, dst),
    };
    if whole { Ok(()) } else { Err(bad_block(kind, src.len(), dst.len())) }
}

/// Writes `src` to the front of `dst` so that [`decompress`] gives it back, and returns how long that
/// is; `None` if it is longer than `dst`, whose length is the most that is worth having.
///
/// `level` matters only to zstd: 1 to 19, negative for zstd-fast, 0 for the default. The result
/// depends on nothing but the arguments and the version of this program. Panics if `kind` is a
/// property value, or zstd cannot be set to the level ([`zstd::level_to_phys`]).
pub fn compress(kind: Compress, level: i32, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    match kind {
        Compress::Inherit | Compress::On => panic!("{} is not a compression", kind.name()),
        Compress::Off => dst.get_mut(..src.len()).map(|dst| dst.copy_from_slice(src)).map(|()| src.len()),
        Compress::Empty => is_zero(src).then_some(0),
        Compress::Lzjb => lzjb::compress(src, dst),
        Compress::Zle => zle::compress(src, dst),
        Compress::Lz4 => lz4::compress(src, dst),
        Compress::Zstd => zstd::compress(level, src, dst),
        Compress::Gzip1
        | Compress::Gzip2
        | Compress::Gzip3
        | Compress::Gzip4
        | Compress::Gzip5
        | Compress::Gzip6
        | Compress::Gzip7
        | Compress::Gzip8
        | Compress::Gzip9 => gzip::compress(kind as u8 - Compress::Gzip1 as u8 + 1, src, dst),
    }
}

/// Whether all bytes are 0: such a block is a hole, and is not stored.
pub fn is_zero(data: &[u8]) -> bool {
    let (blocks, rest) = data.as_chunks::<128>();
    blocks.iter().all(|block| block.iter().fold(0, |any, byte| any | byte) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cold]
fn bad_block(kind: Compress, psize: usize, lsize: usize) -> Error {
    Error::new(Kind::Corrupt, format!("{psize} bytes are not a {} block of {lsize}", kind.name()))
}

#[cfg(test)]
mod tests;
