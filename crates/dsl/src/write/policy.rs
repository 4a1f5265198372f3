//! What a head's properties say of how it is written, and of how its files are treated.

use codec::checksum::Checksum;
use codec::compress::{Compress, zstd};
use dmu::{Keep, Policy, Which};

use crate::{Level, Property, PropertyValue};

/// Bits of a compression value below the level.
const COMPRESSION_BITS: u32 = 7;

/// What the pool's features allow in blocks.
#[derive(Clone, Copy, Debug)]
pub struct PoolTraits {
    /// `lz4_compress` is enabled: it is what `on` means.
    pub lz4: bool,
    /// `embedded_data` is enabled.
    pub embedded_data: bool,
    /// `hole_birth` is enabled.
    pub hole_birth: bool,
}

/// How files of a file system are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemOptions {
    /// Most bytes of a block of a file.
    pub record_size: u64,
    /// Bytes of dnodes of new objects; 0: `auto`.
    pub dnode_size: u64,
    /// Reads change access times.
    pub atime: bool,
    /// Only if they are older than other times, or a day.
    pub relatime: bool,
    /// Nothing may be changed.
    pub readonly: bool,
    /// Extended attributes: 0 none, 1 in directories, 2 as system attributes.
    pub xattr: u64,
    /// 0 no access control lists, 1 those of POSIX, 2 those of NFS version 4.
    pub acl_type: u64,
    /// What a change of mode does to an NFS list: the number of the property's value.
    pub acl_mode: u64,
    /// What new files inherit: the number of the property's value.
    pub acl_inherit: u64,
    /// Devices can be opened.
    pub devices: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Bits of set-uid count.
    pub setuid: bool,
    /// Locks of other systems are in force.
    pub nbmand: bool,
    /// Names can be of up to 1023 bytes.
    pub long_names: bool,
    /// What sync means: 0 what it should, 1 every write, 2 nothing.
    pub sync: u64,
    /// The directory of snapshots: 0 hidden, 1 visible, 2 none.
    pub snapdir: u64,
    /// Blocks of data of up to so many bytes go to special vdevs.
    pub special_small_blocks: u64,
    /// How much metadata has copies: the number of the property's value.
    pub redundant_metadata: u64,
}

/// The number in force of a property.
fn number(levels: &Level, property: Property) -> u64 {
    match levels.find(property).map(|sourced| sourced.value) {
        Some(PropertyValue::Number(number)) => number,
        _ => property.default_number(),
    }
}

/// How the blocks of a head with these properties are written.
///
/// Values that no version has defined count as the default.
pub fn write_policy(levels: &Level, pool: PoolTraits) -> Policy {
    let standard = if pool.lz4 { Compress::Lz4 } else { Compress::Lzjb };
    let compression = number(levels, Property::Compression);
    let kind = u8::try_from(compression & ((1 << COMPRESSION_BITS) - 1)).ok().and_then(Compress::from_u8);
    let level = u8::try_from(compression >> COMPRESSION_BITS).ok().and_then(zstd::level_from_phys);
    let checksum = u8::try_from(number(levels, Property::Checksum)).ok().and_then(Checksum::from_u8);
    Policy {
        checksum: checksum.filter(|checksum| checksum.is_concrete()).unwrap_or(Checksum::Fletcher4),
        compress: match kind {
            Some(Compress::On) | None => standard,
            Some(Compress::Inherit | Compress::Empty) => Compress::Off,
            Some(kind) => kind,
        },
        compress_level: level.unwrap_or(0),
        compress_meta: standard,
        copies: number(levels, Property::Copies).clamp(1, 3) as u8,
        is_meta: false,
        embed: pool.embedded_data,
        hole_birth: pool.hole_birth,
    }
}

/// What the cache may keep of a head with these properties.
pub fn keep(levels: &Level) -> Keep {
    let which = |property| match number(levels, property) {
        0 => Which::Nothing,
        1 => Which::Metadata,
        _ => Which::All,
    };
    Keep { in_ram: which(Property::Primarycache), on_ssd: which(Property::Secondarycache) }
}

/// Whether the log of a head with these properties is for throughput, not for latency.
pub fn log_throughput(levels: &Level) -> bool {
    number(levels, Property::Logbias) != 0
}

/// How files of a file system with these properties are treated.
pub fn file_system_options(levels: &Level) -> FileSystemOptions {
    let number = |property| number(levels, property);
    let is_on = |property| number(property) != 0;
    FileSystemOptions {
        record_size: number(Property::Recordsize),
        // legacy is one slot
        dnode_size: match number(Property::Dnodesize) {
            0 => 512,
            1 => 0,
            bytes => bytes,
        },
        atime: is_on(Property::Atime),
        relatime: is_on(Property::Relatime),
        readonly: is_on(Property::Readonly),
        xattr: number(Property::Xattr),
        acl_type: number(Property::Acltype),
        acl_mode: number(Property::Aclmode),
        acl_inherit: number(Property::Aclinherit),
        devices: is_on(Property::Devices),
        exec: is_on(Property::Exec),
        setuid: is_on(Property::Setuid),
        nbmand: is_on(Property::Nbmand),
        long_names: is_on(Property::Longname),
        sync: number(Property::Sync),
        snapdir: number(Property::Snapdir),
        special_small_blocks: number(Property::SpecialSmallBlocks),
        redundant_metadata: number(Property::RedundantMetadata),
    }
}
