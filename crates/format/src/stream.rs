//! Send streams: the records that `zfs send` writes and `zfs receive` reads.
//!
//! ```text
//!   one snapshot:  | BEGIN | list? | OBJECT | bonus | WRITE | data | FREE | SPILL | ... | END |
//!   a package:     | BEGIN (compound) | list | END | one snapshot | one snapshot | ... | END |
//!
//!   a record, 312 bytes, in the byte order of its writer:
//!     0  kind u32 | length of the list behind a BEGIN u32
//!     8  fields of the kind, see `record`
//!   280  fletcher4 of the stream up to here (not in BEGIN, whose name ends there)
//! ```
//!
//! The sum runs over everything: records with their sums, and what follows them. BEGIN's magic number tells the byte
//! order of all records; contents are in that order, too, unless they are compressed, which turns them when they are read.
//!
//! Source: the behaviour of OpenZFS, and streams as `zstream dump` shows them.

mod fields;
mod record;

use base::{Endian, Error, Kind, Result};

pub use fields::{StreamBegin, StreamEmbedded, StreamObject, StreamReference, StreamSpill, StreamWrite};
pub use record::{RECORD_SIZE, RecordFields, SUM_OFFSET, StreamRecord};

/// The first field of BEGIN.
pub const MAGIC: u64 = 0x2_f5ba_cbac;
/// Longest list behind a BEGIN, in bytes.
pub const LIST_BYTES_MAX: u32 = 256 << 20;

/// Bits of a stream's features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFeatures(pub u32);

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl StreamFeatures {
            $($(#[$doc])* pub const $name: StreamFeatures = StreamFeatures(1 << $bit);)*

            /// All that have a name, each with that.
            const NAMED: &'static [(StreamFeatures, &'static str)] = &[$((StreamFeatures::$name, $text)),*];
        }
    };
}

features! {
    /// Data may be told by reference to other streams.
    DEDUP = 0, "dedup";
    /// Such references have the checksums of the pool.
    DEDUPPROPS = 1, "dedupprops";
    /// There may be spill blocks.
    SA_SPILL = 2, "sa_spill";
    /// Data may come as it was embedded in block pointers.
    EMBED_DATA = 16, "embed_data";
    /// What is compressed may be so by LZ4.
    LZ4 = 17, "lz4";
    /// Blocks may have more than 128 KiB.
    LARGE_BLOCKS = 19, "large_blocks";
    /// The stream goes on where an earlier one ended.
    RESUMING = 20, "resuming";
    /// Some blocks are left out on purpose.
    REDACTED = 21, "redacted";
    /// Data may be compressed.
    COMPRESSED = 22, "compressed";
    /// Dnodes may have more than 512 bytes.
    LARGE_DNODE = 23, "large_dnode";
    /// Everything is encrypted as it was on disk.
    RAW = 24, "raw";
    /// What is compressed may be so by zstd.
    ZSTD = 25, "zstd";
    /// The list tells of holds.
    HOLDS = 26, "holds";
    /// Earlier streams may have had their large blocks cut.
    SWITCH_TO_LARGE_BLOCKS = 27, "switch_to_large_blocks";
    /// Names may have up to 1023 bytes.
    LONGNAME = 28, "longname";
    /// Small tables may have more than 128 KiB.
    LARGE_MICROZAP = 29, "large_microzap";
}

impl StreamFeatures {
    /// Whether all of `other` are among these.
    pub fn has(self, other: StreamFeatures) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and those.
    pub const fn with(self, other: StreamFeatures) -> StreamFeatures {
        StreamFeatures(self.0 | other.0)
    }

    /// Those of these that are not among `other`, in words.
    pub fn names_beyond(self, other: StreamFeatures) -> Vec<String> {
        let rest = self.0 & !other.0;
        let bits = (0..u32::BITS).filter(|bit| rest & (1 << bit) != 0);
        let name_of = |bit| StreamFeatures::NAMED.iter().find(|(one, _)| one.0 == 1u32 << bit).map(|(_, name)| *name);
        bits.map(|bit| name_of(bit).map_or_else(|| format!("feature {bit}"), str::to_owned)).collect()
    }
}

/// The byte order of a stream that begins with `record`. Errors: `Corrupt` if no stream does.
pub fn endian_of(record: &[u8; RECORD_SIZE]) -> Result<Endian> {
    let at = |endian: Endian| endian.u64(&record[8..]) == Some(MAGIC);
    match (at(Endian::Little), at(Endian::Big)) {
        (true, _) => Ok(Endian::Little),
        (_, true) => Ok(Endian::Big),
        _ => Err(Error::new(Kind::Invalid, "invalid stream (bad magic number)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_by_name() {
        let some = StreamFeatures::DEDUP.with(StreamFeatures::ZSTD).with(StreamFeatures(1 << 5));
        assert!(some.has(StreamFeatures::ZSTD) && !some.has(StreamFeatures::RAW));
        assert_eq!(some.names_beyond(StreamFeatures::ZSTD), ["dedup", "feature 5"]);
    }
}
