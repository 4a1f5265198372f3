//! What is asked for when a block is written, and what the stages add to it.

use base::{Block, Bookmark};
use codec::checksum::Checksum;
use codec::compress::Compress;
use format::blkptr::BlkPtr;
use format::object_type::ObjectType;

use crate::alloc::Class;

/// Whether a block that is there already may take the place of a new one, with one pointer more to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DedupMode {
    /// None may.
    #[default]
    Off,
    /// One of the same checksum.
    BySum,
    /// One of the same checksum and the same bytes.
    ByBytes,
}

/// How a block is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePolicy {
    /// The checksum in its pointer: a concrete one that is not in the block.
    pub checksum: Checksum,
    /// Whether it may be one that is there already: only blocks that a transaction group writes.
    pub dedup: DedupMode,
    /// Compression; also whether zeros become a hole.
    pub compress: Compress,
    /// Level of zstd: 1 to 19, negative for zstd-fast, 0 for the default.
    pub compress_level: i32,
    /// Copies, 1 to 3.
    pub copies: u8,
    /// Where it is allocated.
    pub class: Class,
    /// Of a block of class `Normal`: if it takes no more bytes on disk, it goes to vdevs for special contents, unless
    /// their last quarter is all that is free: that is for metadata.
    pub special_up_to: u64,
    /// Whether the pool may have blocks embedded in their pointers.
    pub embed: bool,
    /// Whether a hole tells in which group it was made.
    pub hole_birth: bool,
}

/// A block's contents, compressed.
#[derive(Clone, Debug)]
pub struct Compressed {
    /// How.
    pub kind: Compress,
    /// The compressed bytes.
    pub bytes: Block,
}

/// A block to write: what the layers above say of it.
#[derive(Clone, Debug)]
pub struct BlockWrite {
    /// Contents, little-endian; a multiple of 512 bytes, at most 16 MiB. Not copied if it is stored
    /// uncompressed.
    pub data: Block,
    /// The same, as it was compressed elsewhere: it is stored so, whatever the policy says, if that takes less room.
    pub compressed: Option<Compressed>,
    /// Type of its object.
    pub object_type: ObjectType,
    /// Level: 0 is data.
    pub level: u8,
    /// Which it is.
    pub bookmark: Bookmark,
    /// How it is to be written.
    pub policy: WritePolicy,
    /// It is the head of an encrypted set: its pointer says so, and it is not compressed.
    pub is_crypt: bool,
    /// What the block was before; a hole if it is new. It is not freed.
    pub previous: BlkPtr,
    /// Blocks, or dnodes, that are below it: what its pointer will say.
    pub fill: u64,
}

impl BlockWrite {
    /// A block that takes the place of none, with nothing counted below it but itself.
    pub fn new(
        data: Block,
        (object_type, level): (ObjectType, u8),
        bookmark: Bookmark,
        policy: WritePolicy,
    ) -> BlockWrite {
        BlockWrite {
            data,
            compressed: None,
            object_type,
            level,
            bookmark,
            policy,
            is_crypt: false,
            previous: BlkPtr::HOLE,
            fill: 1,
        }
    }
}
