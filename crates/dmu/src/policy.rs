//! How the blocks of a set are written.

use codec::checksum::Checksum;
use codec::compress::Compress;
use zio::DedupMode;

/// log2 of the bytes of an indirect block.
pub const INDIRECT_SHIFT: u8 = 17;

/// How the blocks of a set are written: what its properties say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjsetPolicy {
    /// Checksum of data.
    pub checksum: Checksum,
    /// Whether data is deduplicated, and with which checksum then.
    pub dedup: DedupMode,
    /// Checksum of data that is.
    pub dedup_checksum: Checksum,
    /// Compression of data, and its level where it has any.
    pub compress: Compress,
    /// Level of compression.
    pub compress_level: i32,
    /// Compression of metadata.
    pub compress_meta: Compress,
    /// Copies of data: 1 to 3.
    pub copies: u8,
    /// Which metadata has one copy more.
    pub redundant: Redundant,
    /// Blocks of data that take up to so many bytes on disk go to vdevs for special contents.
    pub special_up_to: u64,
    /// Whether it is the pool's own set: three copies of everything.
    pub is_meta: bool,
    /// Whether small blocks may be embedded in their pointers.
    pub embed: bool,
    /// Whether holes carry the txg in which they were made.
    pub hole_birth: bool,
    /// Version of the pool: old ones have less in heads and dnodes.
    pub pool_version: u64,
}

impl Default for ObjsetPolicy {
    /// By properties that have their default values, in a pool that has the features for them.
    fn default() -> ObjsetPolicy {
        ObjsetPolicy {
            checksum: Checksum::Fletcher4,
            dedup: DedupMode::Off,
            dedup_checksum: Checksum::Sha256,
            compress: Compress::Lz4,
            compress_level: 0,
            compress_meta: Compress::Lz4,
            copies: 1,
            redundant: Redundant::All,
            special_up_to: 0,
            is_meta: false,
            embed: true,
            hole_birth: true,
            pool_version: format::feature::VERSION,
        }
    }
}

/// Which metadata of a set has a copy more than its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redundant {
    /// All of it.
    #[default]
    All,
    /// All but the lowest indirect blocks of files.
    Most,
    /// What many files and directories depend on.
    Some,
    /// None.
    None,
}
