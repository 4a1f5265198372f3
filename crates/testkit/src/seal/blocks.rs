//! The blocks of a pool, as they were found.

use std::sync::Arc;

use format::blkptr::BlkPtr;
use format::ids::{DatasetId, ObjectId};
use format::object_type::ObjectType;

/// The number of the MOS among object sets; a dataset's is that of its object there.
pub const MOS: DatasetId = DatasetId::MOS;
/// The number of the object whose data are a set's dnodes.
pub const META: ObjectId = ObjectId::META_DNODE;

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The head of an object set.
    Objset,
    /// A block of dnodes.
    Dnodes,
    /// Pointers to blocks one level below.
    Indirect,
    /// An object's data.
    Data,
    /// What did not fit into an object's bonus buffer.
    Spill,
    /// A block of an intent log.
    Log,
}

/// A block of a pool, as it was found.
#[derive(Clone, Debug)]
pub struct FoundBlock {
    /// What it is for.
    pub role: Role,
    /// The object set that it was first found in.
    pub objset: DatasetId,
    /// The object there.
    pub object: ObjectId,
    /// Its level; 0 is data.
    pub level: u8,
    /// Its number on that level.
    pub blkid: u64,
    /// What leads to it.
    pub bp: BlkPtr,
    /// Its contents; of a log block, its bytes on disk.
    pub contents: Arc<[u8]>,
    pub(super) parents: Vec<Parent>,
}

impl FoundBlock {
    /// Type of the object that it belongs to.
    pub fn object_type(&self) -> ObjectType {
        self.bp.object_type()
    }
}

/// What points to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parent {
    Uberblock,
    /// A block, and the pointer's offset in its contents.
    Block(usize, usize),
}

/// A place in a block of an [`Atlas`](super::Atlas).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtlasPlace {
    /// Number of the block.
    pub block: usize,
    /// Offset in its contents, bytes.
    pub at: usize,
}
