//! What records of a stream say, by their kinds; the drawing of each is in `record`.

use super::StreamFeatures;
use crate::ids::{Guid, ObjectId};
use crate::object_type::ObjectType;

/// The beginning of a stream, or of a package of streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamBegin {
    /// A package of streams.
    pub is_package: bool,
    /// What is in it.
    pub features: StreamFeatures,
    /// When the snapshot was taken.
    pub creation_time_s: u64,
    /// Number of the object set's type.
    pub objset_type: u32,
    /// The `FLAG_` bits.
    pub flags: u32,
    /// Guid of the snapshot that it begins from; 0 if it is whole.
    pub from_guid: Guid,
    /// Full name of the snapshot at the sender.
    pub name: String,
    /// Bytes of the packed list that follows.
    pub list_len: u32,
}

impl StreamBegin {
    /// What it begins from is another dataset's snapshot.
    pub const FLAG_CLONE: u32 = 1 << 0;
    /// Names of the dataset's snapshots are compared without case.
    pub const FLAG_CASE_INSENSITIVE: u32 = 1 << 1;
    /// A whole stream tells what is free, too.
    pub const FLAG_FREE_RECORDS: u32 = 1 << 2;
    /// OBJECT says whether there is a spill block, SPILL whether it has changed.
    pub const FLAG_SPILL_BLOCK: u32 = 1 << 3;
}

/// An object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamObject {
    /// Its number.
    pub object: ObjectId,
    /// Its type.
    pub object_type: ObjectType,
    /// The type of its bonus buffer.
    pub bonus_type: ObjectType,
    /// Bytes of a block.
    pub block_size: u64,
    /// Bytes of the bonus buffer.
    pub bonus_len: usize,
    /// Checksum that it asks for.
    pub checksum: u8,
    /// Compression that it asks for.
    pub compress: u8,
    /// Slots of its dnode, at least 1.
    pub slots: usize,
    /// It has a spill block.
    pub has_spill: bool,
    /// Bytes of the bonus buffer in a raw stream, else 0.
    pub raw_bonus_len: u32,
}

/// A block of data, or a part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamWrite {
    /// The object.
    pub object: ObjectId,
    /// Its type.
    pub object_type: ObjectType,
    /// Where it begins.
    pub offset: u64,
    /// Bytes of contents.
    pub len: u64,
    /// Number of its checksum.
    pub checksum: u8,
    /// The sum is good enough for deduplication.
    pub has_dedup_sum: bool,
    /// How it is compressed; 0 if it is not.
    pub compress: u8,
    /// Checksum and properties of the block on disk.
    pub key: [u64; 5],
    /// Bytes of what follows, if it is compressed.
    pub compressed_len: u64,
}

/// Data that came before, in this stream or in an earlier one of its package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // see the drawing
pub struct StreamReference {
    pub object: ObjectId,
    pub offset: u64,
    pub len: u64,
    pub from_guid: Guid,
    pub from_object: ObjectId,
    pub from_offset: u64,
}

/// A spill block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSpill {
    /// The object.
    pub object: ObjectId,
    /// Bytes of it.
    pub len: u64,
    /// It has not changed since what the stream begins from.
    pub is_unmodified: bool,
    /// Bytes of what follows, in a raw stream.
    pub compressed_len: u64,
}

/// A block that was embedded in its pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamEmbedded {
    /// The object.
    pub object: ObjectId,
    /// Where it begins.
    pub offset: u64,
    /// Bytes of the block.
    pub len: u64,
    /// How it is compressed.
    pub compress: u8,
    /// What is embedded.
    pub kind: u8,
    /// Bytes of contents.
    pub lsize: u32,
    /// Bytes of what follows, without what fills it up.
    pub psize: u32,
}
