//! What a head's properties say of how it is written, and of how its files are treated.

use codec::checksum::Checksum;
use codec::compress::{Compress, zstd};
use dmu::{DedupMode, Keep, Objset, ObjsetPolicy, Redundant, Which};
use format::blkptr::BLOCK_SIZE_MAX;
use format::feature::{EMBEDDED_DATA, FeatureSet, HOLE_BIRTH, LARGE_BLOCKS, LARGE_DNODE, LZ4_COMPRESS};

use super::versions;
use crate::property::names::{COMPRESSION_BITS, VERIFY};
use crate::property::needs;
use crate::{Level, Property, PropertyValue};

/// Bytes of the smallest and of the largest dnode, and the value of `dnodesize` for a size that suits most.
const DNODE_SIZE_MIN: u64 = 512;
const DNODE_SIZE_MAX: u64 = 16 << 10;
const DNODE_SIZE_AUTO: u64 = 1;
/// The value of `dedup` for the standard checksum.
const DEDUP_ON: u64 = 1;
/// The value of `direct` with which data goes past the cache.
const DIRECT_ALWAYS: u64 = 2;

/// How files of a file system are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemOptions {
    /// Most bytes of a block of a file.
    pub record_size: u64,
    /// Bytes of dnodes of new objects.
    pub dnode_size: u64,
    /// Extended attributes: 0 none, 1 in directories, 2 as system attributes.
    pub xattr: u64,
    /// What sync means: 0 what it should, 1 every write, 2 nothing.
    pub sync: u64,
}

/// The number in force of a property.
fn number(levels: &Level, property: Property) -> u64 {
    match levels.find(property).map(|sourced| sourced.value) {
        Some(PropertyValue::Number(number)) => number,
        _ => property.default_number(),
    }
}

/// How the blocks of a head with these properties are written in a pool with those features.
///
/// Values that no version has defined count as the default, and so do those that need another feature.
pub fn write_policy(levels: &Level, enabled: FeatureSet) -> ObjsetPolicy {
    let allowed = |feature: Option<&str>| feature.is_none_or(|feature| enabled.has(feature));
    let standard = if enabled.has(LZ4_COMPRESS) { Compress::Lz4 } else { Compress::Lzjb };
    let compression = number(levels, Property::Compression);
    let (kind, level) = (compression & ((1 << COMPRESSION_BITS) - 1), compression >> COMPRESSION_BITS);
    let is_allowed = allowed(needs::feature_for_compression(kind));
    let kind = u8::try_from(kind).ok().and_then(Compress::from_u8).filter(|_| is_allowed);
    let level = u8::try_from(level).ok().and_then(zstd::level_from_phys);
    let checksum = number(levels, Property::Checksum);
    let is_allowed = allowed(needs::feature_for_checksum(checksum));
    let checksum = u8::try_from(checksum).ok().and_then(Checksum::from_u8).filter(|_| is_allowed);
    let (dedup, dedup_checksum) = dedup(levels, &allowed);
    ObjsetPolicy {
        dedup,
        dedup_checksum,
        checksum: checksum.filter(|checksum| checksum.is_concrete()).unwrap_or(Checksum::Fletcher4),
        compress: match kind {
            Some(Compress::On) | None => standard,
            Some(Compress::Inherit | Compress::Empty) => Compress::Off,
            Some(kind) => kind,
        },
        compress_level: level.unwrap_or(0),
        compress_meta: standard,
        copies: number(levels, Property::Copies).clamp(1, 3) as u8,
        redundant: match number(levels, Property::RedundantMetadata) {
            _ if enabled.version() < versions::COPIES => Redundant::None,
            1 => Redundant::Most,
            2 => Redundant::Some,
            3 => Redundant::None,
            _ => Redundant::All,
        },
        special_up_to: number(levels, Property::SpecialSmallBlocks),
        is_meta: false,
        embed: enabled.has(EMBEDDED_DATA),
        hole_birth: enabled.has(HOLE_BIRTH),
        pool_version: enabled.version(),
    }
}

/// Whether data is deduplicated, and by which checksum. One that needs another feature stands for none.
fn dedup(levels: &Level, allowed: &dyn Fn(Option<&str>) -> bool) -> (DedupMode, Checksum) {
    let value = number(levels, Property::Dedup);
    let checksum = match value & !VERIFY {
        DEDUP_ON => Some(Checksum::Sha256),
        kind => u8::try_from(kind).ok().and_then(Checksum::from_u8),
    };
    let is_possible = |sum: &Checksum| sum.is_nopwrite_strong() && allowed(needs::feature_for_checksum(*sum as u64));
    match checksum.filter(is_possible) {
        None => (DedupMode::Off, Checksum::Sha256),
        Some(checksum) if value & VERIFY == 0 => (DedupMode::BySum, checksum),
        Some(checksum) => (DedupMode::ByBytes, checksum),
    }
}

/// Lets a set be read as these properties of its dataset say: what the cache keeps, what is read ahead.
pub fn set_reads(objset: &Objset, levels: &Level) {
    objset.set_keep(keep(levels));
    objset.set_ahead(which(levels, Property::Prefetch));
}

fn keep(levels: &Level) -> Keep {
    let most = |property| match which(levels, property) {
        Which::All if number(levels, Property::Direct) == DIRECT_ALWAYS => Which::Metadata,
        which => which,
    };
    Keep { in_ram: most(Property::Primarycache), on_ssd: most(Property::Secondarycache) }
}

fn which(levels: &Level, property: Property) -> Which {
    match number(levels, property) {
        0 => Which::Nothing,
        1 => Which::Metadata,
        _ => Which::All,
    }
}

/// Whether the log of a head with these properties is for throughput, not for latency.
pub fn log_throughput(levels: &Level) -> bool {
    number(levels, Property::Logbias) != 0
}

/// How files of a file system with these properties are written in a pool with those features.
pub fn file_system_options(levels: &Level, enabled: FeatureSet) -> FileSystemOptions {
    let number = |property| number(levels, property);
    let block_size_max = if enabled.has(LARGE_BLOCKS) { BLOCK_SIZE_MAX } else { needs::OLD_BLOCK_SIZE_MAX };
    FileSystemOptions {
        record_size: number(Property::Recordsize).min(block_size_max),
        dnode_size: match number(Property::Dnodesize) {
            _ if !enabled.has(LARGE_DNODE) => DNODE_SIZE_MIN,
            DNODE_SIZE_AUTO => 2 * DNODE_SIZE_MIN,
            bytes => bytes.clamp(DNODE_SIZE_MIN, DNODE_SIZE_MAX),
        },
        xattr: number(Property::Xattr),
        sync: number(Property::Sync),
    }
}
