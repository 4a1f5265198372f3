//! The names of values, for properties whose value is a choice from a list.
//!
//! The first name of a value is the one that is shown; the others are older spellings of it.

use codec::checksum::Checksum;
use codec::compress::Compress;

/// Names and what they stand for.
pub type ValueNames = &'static [(&'static str, u64)];

/// Bits of a compression value below the level.
pub(crate) const COMPRESSION_BITS: u32 = 7;

const fn zstd(level: u64) -> u64 {
    Compress::Zstd as u64 | level << COMPRESSION_BITS
}

const fn compression(kind: Compress) -> (&'static str, u64) {
    (kind.name(), kind as u64)
}

const fn sum(kind: Checksum) -> (&'static str, u64) {
    (kind.name(), kind as u64)
}

pub(super) const SWITCH: ValueNames = &[("off", 0), ("on", 1)];

pub(super) const CHECKSUM: ValueNames = &[
    sum(Checksum::On),
    sum(Checksum::Off),
    sum(Checksum::Fletcher2),
    sum(Checksum::Fletcher4),
    sum(Checksum::Sha256),
    sum(Checksum::NoParity),
    sum(Checksum::Sha512),
    sum(Checksum::Skein),
    sum(Checksum::Edonr),
    sum(Checksum::Blake3),
];

/// Added to a checksum: compare the bytes, too.
pub(crate) const VERIFY: u64 = 1 << 8;

pub(super) const DEDUP: ValueNames = &[
    sum(Checksum::On),
    sum(Checksum::Off),
    ("verify", Checksum::On as u64 | VERIFY),
    sum(Checksum::Sha256),
    ("sha256,verify", Checksum::Sha256 as u64 | VERIFY),
    sum(Checksum::Sha512),
    ("sha512,verify", Checksum::Sha512 as u64 | VERIFY),
    sum(Checksum::Skein),
    ("skein,verify", Checksum::Skein as u64 | VERIFY),
    ("edonr,verify", Checksum::Edonr as u64 | VERIFY),
    sum(Checksum::Blake3),
    ("blake3,verify", Checksum::Blake3 as u64 | VERIFY),
];

pub(super) const COMPRESSION: ValueNames = &[
    compression(Compress::On),
    ("off", Compress::Off as u64),
    compression(Compress::Lzjb),
    ("gzip", Compress::Gzip6 as u64),
    compression(Compress::Gzip1),
    compression(Compress::Gzip2),
    compression(Compress::Gzip3),
    compression(Compress::Gzip4),
    compression(Compress::Gzip5),
    compression(Compress::Gzip6),
    compression(Compress::Gzip7),
    compression(Compress::Gzip8),
    compression(Compress::Gzip9),
    compression(Compress::Zle),
    compression(Compress::Lz4),
    compression(Compress::Zstd),
    ("zstd-fast", zstd(103)),
    ("zstd-1", zstd(1)),
    ("zstd-2", zstd(2)),
    ("zstd-3", zstd(3)),
    ("zstd-4", zstd(4)),
    ("zstd-5", zstd(5)),
    ("zstd-6", zstd(6)),
    ("zstd-7", zstd(7)),
    ("zstd-8", zstd(8)),
    ("zstd-9", zstd(9)),
    ("zstd-10", zstd(10)),
    ("zstd-11", zstd(11)),
    ("zstd-12", zstd(12)),
    ("zstd-13", zstd(13)),
    ("zstd-14", zstd(14)),
    ("zstd-15", zstd(15)),
    ("zstd-16", zstd(16)),
    ("zstd-17", zstd(17)),
    ("zstd-18", zstd(18)),
    ("zstd-19", zstd(19)),
    ("zstd-fast-1", zstd(103)),
    ("zstd-fast-2", zstd(104)),
    ("zstd-fast-3", zstd(105)),
    ("zstd-fast-4", zstd(106)),
    ("zstd-fast-5", zstd(107)),
    ("zstd-fast-6", zstd(108)),
    ("zstd-fast-7", zstd(109)),
    ("zstd-fast-8", zstd(110)),
    ("zstd-fast-9", zstd(111)),
    ("zstd-fast-10", zstd(112)),
    ("zstd-fast-20", zstd(113)),
    ("zstd-fast-30", zstd(114)),
    ("zstd-fast-40", zstd(115)),
    ("zstd-fast-50", zstd(116)),
    ("zstd-fast-60", zstd(117)),
    ("zstd-fast-70", zstd(118)),
    ("zstd-fast-80", zstd(119)),
    ("zstd-fast-90", zstd(120)),
    ("zstd-fast-100", zstd(121)),
    ("zstd-fast-500", zstd(122)),
    ("zstd-fast-1000", zstd(123)),
];

pub(super) const ENCRYPTION: ValueNames = &[
    ("on", 1),
    ("off", 2),
    ("aes-128-ccm", 3),
    ("aes-192-ccm", 4),
    ("aes-256-ccm", 5),
    ("aes-128-gcm", 6),
    ("aes-192-gcm", 7),
    ("aes-256-gcm", 8),
];

pub(super) const KEY_FORMAT: ValueNames = &[("none", 0), ("raw", 1), ("hex", 2), ("passphrase", 3)];
pub(super) const KEY_STATUS: ValueNames = &[("none", 0), ("unavailable", 1), ("available", 2)];
pub(super) const SNAPDIR: ValueNames = &[("hidden", 0), ("visible", 1), ("disabled", 2)];
pub(super) const SNAPDEV: ValueNames = &[("hidden", 0), ("visible", 1)];
pub(super) const ACLMODE: ValueNames = &[("discard", 0), ("groupmask", 2), ("passthrough", 3), ("restricted", 4)];
pub(super) const ACLTYPE: ValueNames =
    &[("off", 0), ("posix", 1), ("nfsv4", 2), ("disabled", 0), ("noacl", 0), ("posixacl", 1)];
pub(super) const ACLINHERIT: ValueNames =
    &[("discard", 0), ("noallow", 1), ("restricted", 4), ("passthrough", 3), ("secure", 4), ("passthrough-x", 5)];
pub(super) const CASE: ValueNames = &[("sensitive", 0), ("insensitive", 1), ("mixed", 2)];
pub(super) const COPIES: ValueNames = &[("1", 1), ("2", 2), ("3", 3)];
pub(super) const NORMALIZATION: ValueNames =
    &[("none", 0), ("formD", 0x10), ("formKC", 0x60), ("formC", 0x50), ("formKD", 0x20)];
pub(super) const VERSION: ValueNames = &[("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5), ("current", 5)];
pub(super) const LOGBIAS: ValueNames = &[("latency", 0), ("throughput", 1)];
pub(super) const CANMOUNT: ValueNames = &[("off", 0), ("on", 1), ("noauto", 2)];
pub(super) const CACHE: ValueNames = &[("none", 0), ("metadata", 1), ("all", 2)];
pub(super) const SYNC: ValueNames = &[("standard", 0), ("always", 1), ("disabled", 2)];
pub(super) const XATTR: ValueNames = &[("off", 0), ("sa", 2), ("on", 2), ("dir", 1)];
pub(super) const DNODE_SIZE: ValueNames =
    &[("legacy", 0), ("auto", 1), ("1k", 1024), ("2k", 2048), ("4k", 4096), ("8k", 8192), ("16k", 16384)];
pub(super) const REDUNDANT_METADATA: ValueNames = &[("all", 0), ("most", 1), ("some", 2), ("none", 3)];
pub(super) const VOLMODE: ValueNames = &[("default", 0), ("full", 1), ("geom", 1), ("dev", 2), ("none", 3)];
pub(super) const DIRECT: ValueNames = &[("disabled", 0), ("standard", 1), ("always", 2)];
