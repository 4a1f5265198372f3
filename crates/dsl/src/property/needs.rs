//! Which feature of the pool a value needs: versions that do not know the feature could not read what is written so.
//!
//! Source: zpool-features(7).

use base::{Error, Kind, Result};
use codec::checksum::Checksum;
use codec::compress::Compress;
use format::feature::{
    BLAKE3, EDONR, FILESYSTEM_LIMITS, FeatureSet, LARGE_BLOCKS, LARGE_DNODE, LONGNAME, LZ4_COMPRESS, SHA512, SKEIN,
    ZSTD_COMPRESS,
};

use super::names::{COMPRESSION_BITS, VERIFY};
use super::rules::Given;
use crate::{Property, PropertyValue};

/// Bytes of the largest block that needs no feature.
pub(crate) const OLD_BLOCK_SIZE_MAX: u64 = 128 << 10;
/// The value of `dedup` for none.
const DEDUP_OFF: u64 = 2;
/// Bits of a checksum value below those for options.
const CHECKSUM_MASK: u64 = VERIFY - 1;
/// Bits of a compression value below the level.
const COMPRESSION_MASK: u64 = (1 << COMPRESSION_BITS) - 1;

/// Refuses values that need a feature which is not enabled. `is_new`: they are those of a new dataset.
/// Errors: `Unsupported`, `Invalid`, with what `zfs` prints.
pub fn check(given: &[Given], enabled: FeatureSet, is_new: bool) -> Result<()> {
    for one in given {
        if version_for(one) > enabled.version() {
            return Err(too_old(is_new));
        }
        match feature_for(one).filter(|feature| !enabled.has(feature)) {
            None => {}
            Some(LARGE_BLOCKS) => {
                let what = format!("'{}' must be power of 2 from 512B to 128K", one.name);
                return Err(Error::new(Kind::Invalid, what));
            }
            Some(_) => return Err(too_old(is_new)),
        }
    }
    Ok(())
}

fn too_old(is_new: bool) -> Error {
    let what = if is_new { "pool" } else { "pool and or dataset" };
    Error::new(Kind::Unsupported, format!("{what} must be upgraded to set this property or value"))
}

/// The version of pools from which on there is that value.
fn version_for(given: &Given) -> u64 {
    let (Some(property), PropertyValue::Number(number)) = (given.property, &given.value) else { return 1 };
    match property {
        Property::Compression => match u8::try_from(number & COMPRESSION_MASK).ok().and_then(Compress::from_u8) {
            Some(Compress::Off | Compress::On | Compress::Lzjb | Compress::Inherit | Compress::Empty) | None => 1,
            Some(Compress::Zle) => 20,
            Some(_) => 5,
        },
        Property::Copies => 2,
        Property::Dedup if *number != DEDUP_OFF => 21,
        Property::Refquota | Property::Refreservation => 9,
        Property::Normalization | Property::Utf8only | Property::Casesensitivity => 9,
        Property::Version => pool_version_for_files(*number),
        _ => 1,
    }
}

/// The version of pools from which on there are file systems of a version.
pub fn pool_version_for_files(version: u64) -> u64 {
    match version {
        ..3 => 1,
        3 => 9,
        4 => 15,
        _ => 24,
    }
}

/// The latest version of file systems that there is in pools of a version.
pub fn files_version_in(pool_version: u64) -> u64 {
    (2..=5).rfind(|&version| pool_version_for_files(version) <= pool_version).unwrap_or(1)
}

/// The guid of the feature that a value needs; `None` if all pools have what it takes.
pub fn feature_for(given: &Given) -> Option<&'static str> {
    let (Some(property), PropertyValue::Number(number)) = (given.property, &given.value) else { return None };
    match property {
        Property::Compression => feature_for_compression(number & COMPRESSION_MASK),
        Property::Checksum | Property::Dedup => feature_for_checksum(number & CHECKSUM_MASK),
        Property::Recordsize | Property::Volblocksize => (*number > OLD_BLOCK_SIZE_MAX).then_some(LARGE_BLOCKS),
        Property::Dnodesize => (*number != 0).then_some(LARGE_DNODE),
        Property::FilesystemLimit | Property::SnapshotLimit => (*number != u64::MAX).then_some(FILESYSTEM_LIMITS),
        Property::Longname => (*number != 0).then_some(LONGNAME),
        _ => None,
    }
}

/// The same for a number in block pointers.
pub fn feature_for_compression(number: u64) -> Option<&'static str> {
    match u8::try_from(number).ok().and_then(Compress::from_u8) {
        Some(Compress::Lz4) => Some(LZ4_COMPRESS),
        Some(Compress::Zstd) => Some(ZSTD_COMPRESS),
        _ => None,
    }
}

/// The same for a number in block pointers.
pub fn feature_for_checksum(number: u64) -> Option<&'static str> {
    match u8::try_from(number).ok().and_then(Checksum::from_u8) {
        Some(Checksum::Sha512) => Some(SHA512),
        Some(Checksum::Skein) => Some(SKEIN),
        Some(Checksum::Edonr) => Some(EDONR),
        Some(Checksum::Blake3) => Some(BLAKE3),
        _ => None,
    }
}
