//! What is kept of a block: its bytes on disk if those are compressed, and its contents while they are in use.
//!
//! ```text
//!   compressed       packed ── asked for ──▶ open: its contents, too ── not used again ──▶ packed
//!   not compressed   its contents
//! ```
//!
//! While there is plenty of room the contents are all, as fresh memory is dear.

use std::sync::atomic::{AtomicBool, Ordering};

use base::{Block, Endian};
use format::blkptr::BlkPtr;
use format::object_type::ObjectType;
use format::sealing::{StoredBytes, Unsealed};
use zio::{BlockContents, Physical, ReadRequest, WrittenBlock};

use crate::seal_id::SealId;

/// Not compressed, as block pointers say it.
const OFF: u8 = 2;

/// Bytes of the smallest block whose zeros are worth looking for.
const SPARSE_MIN: usize = 16 << 10;

/// What is kept of a block. Invariant: its contents, or its compressed bytes, or both.
pub(crate) struct Kept {
    contents: Option<Block>,
    stored: Stored,
    /// For whom it is, if its set is encrypted.
    seal: Option<SealId>,
    /// Bytes of the contents.
    len: u64,
    /// The contents have been used since somebody looked whether they are.
    is_used: AtomicBool,
    /// A cache device may have it.
    is_admitted: bool,
    /// A cache device was given it.
    pub(crate) is_fed: bool,
}

/// The bytes of a block on disk.
enum Stored {
    /// They are its contents.
    Same(Unsealed),
    /// They are compressed, or sealed. Unless they `stay`, they are here for a cache device only.
    Packed { bytes: StoredBytes, how: Unpacking, stay: bool },
    /// They are not at hand.
    Nowhere,
}

impl Stored {
    /// Compressed bytes, kept for that use; of contents that take so much memory.
    fn packed(bytes: StoredBytes, bp: &BlkPtr, why: Use, footprint: usize) -> Stored {
        let stay = why == Use::Packing && bytes.block().footprint() < footprint;
        Stored::Packed { bytes, how: Unpacking::of(bp), stay }
    }
}

/// Why compressed bytes are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// They are not.
    Nothing,
    /// A cache device may want them.
    Device,
    /// To hold the block packed.
    Packing,
}

/// How contents come from compressed bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unpacking {
    compress: u8,
    /// Type and level, if they are of the other byte order.
    turned: Option<(ObjectType, u8)>,
}

impl Unpacking {
    pub(crate) fn of(bp: &BlkPtr) -> Unpacking {
        let turned = (bp.endian() == Endian::Big).then(|| (bp.object_type(), bp.level()));
        Unpacking { compress: bp.compress(), turned }
    }
}

/// What a reader of a block gets.
pub(crate) enum CachedForm {
    /// Its contents.
    Open(Block),
    /// Its bytes on disk, and how its contents come from them.
    Packed(StoredBytes, Unpacking),
}

/// The contents of a block. Those of pointers and dnodes are mostly 0 where there are few objects, which takes most of
/// the memory of thousands of small file systems.
fn sparse(contents: Block, bp: &BlkPtr) -> Block {
    if contents.len() >= SPARSE_MIN && (bp.level() > 0 || bp.object_type() == ObjectType::DNODE) {
        contents.give_zeros_back();
    }
    contents
}

impl Kept {
    fn new(contents: Block, stored: Stored, seal: Option<SealId>, is_admitted: bool) -> Kept {
        let len = contents.len() as u64;
        let is_used = AtomicBool::new(false);
        Kept { contents: Some(contents), stored, seal, len, is_used, is_admitted, is_fed: false }
    }

    /// What was read, with its compressed bytes for that use. Cache devices may have it if it `is_admitted`.
    pub(crate) fn of(
        read: BlockContents,
        request: &ReadRequest,
        seal: Option<SealId>,
        packed: Use,
        is_admitted: bool,
    ) -> Kept {
        let stored = match read.physical {
            Physical::Same(unsealed) => Stored::Same(unsealed),
            Physical::Apart(bytes) if packed != Use::Nothing => {
                Stored::packed(bytes, &request.bp, packed, read.data.footprint())
            }
            Physical::Apart(_) | Physical::Nowhere => Stored::Nowhere,
        };
        Kept::new(sparse(read.data.into(), &request.bp), stored, seal, is_admitted)
    }

    /// What was written, with its compressed bytes for that use.
    pub(crate) fn written(
        written: WrittenBlock,
        contents: Block,
        seal: Option<SealId>,
        packed: Use,
        is_admitted: bool,
    ) -> Kept {
        let WrittenBlock { bp, packed: bytes } = written;
        let is_same = bp.compress() == OFF && bp.endian() == Endian::Little && bp.psize() == bp.lsize();
        let stored = match bytes {
            _ if !zio::is_verifiable(&bp) => Stored::Nowhere,
            Some(bytes) if packed != Use::Nothing => {
                Stored::packed(StoredBytes::of_device(bytes.into_block()), &bp, packed, contents.footprint())
            }
            None if is_same => bp.unsealed().map_or(Stored::Nowhere, Stored::Same),
            _ => Stored::Nowhere,
        };
        Kept::new(sparse(contents, &bp), stored, seal, is_admitted)
    }

    /// For whom it is, if its set is encrypted.
    #[inline]
    pub(crate) fn seal(&self) -> Option<SealId> {
        self.seal
    }

    /// Bytes of its contents.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// What there is for a reader; contents count as used.
    pub(crate) fn form(&self) -> CachedForm {
        match (&self.contents, &self.stored) {
            (None, Stored::Packed { bytes, how, .. }) => CachedForm::Packed(bytes.clone(), *how),
            (Some(contents), _) => {
                // most are marked already, and a write would take the line from all other readers
                if !self.is_used.load(Ordering::Relaxed) {
                    self.is_used.store(true, Ordering::Relaxed);
                }
                CachedForm::Open(contents.clone())
            }
            (None, _) => unreachable!("a block is packed or has contents"),
        }
    }

    /// The contents of a block that was just read or written.
    pub(crate) fn contents(&self) -> Option<&Block> {
        self.contents.as_ref()
    }

    /// What a cache device may be given: the bytes on disk, and how they are compressed.
    pub(crate) fn for_device(&self) -> Option<(StoredBytes, u8)> {
        match (&self.stored, &self.contents) {
            _ if !self.is_admitted => None,
            (Stored::Packed { bytes, how, .. }, _) => Some((bytes.clone(), how.compress)),
            (Stored::Same(unsealed), Some(contents)) => {
                Some((StoredBytes::of_contents(contents.clone(), *unsealed), OFF))
            }
            _ => None,
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn footprint(&self) -> u64 {
        let packed = match &self.stored {
            Stored::Packed { bytes, .. } => bytes.block().footprint(),
            Stored::Same(_) | Stored::Nowhere => 0,
        };
        (self.contents.as_ref().map_or(0, Block::footprint) + packed) as u64
    }

    /// Bytes of memory that are free if it is packed.
    pub(crate) fn open(&self) -> u64 {
        match (&self.contents, &self.stored) {
            (Some(contents), Stored::Packed { stay: true, .. }) => contents.footprint() as u64,
            _ => 0,
        }
    }

    /// Packs it, unless it was used since this was last asked for; false for one that was.
    pub(crate) fn pack(&mut self) -> bool {
        if self.is_used.swap(false, Ordering::Relaxed) {
            return false;
        }
        if matches!(self.stored, Stored::Packed { stay: true, .. }) {
            self.contents = None;
        }
        true
    }

    /// A cache device has it.
    pub(crate) fn was_fed(&mut self) {
        self.is_fed = true;
        if matches!(self.stored, Stored::Packed { stay: false, .. }) {
            self.stored = Stored::Nowhere;
        }
    }

    /// Keeps contents again, and its compressed bytes for that use.
    pub(crate) fn unpack(&mut self, contents: Block, packed: Use) {
        self.contents.get_or_insert(contents);
        match &mut self.stored {
            Stored::Packed { .. } if packed == Use::Nothing => self.stored = Stored::Nowhere,
            Stored::Packed { stay, .. } => *stay &= packed == Use::Packing,
            Stored::Same(_) | Stored::Nowhere => {}
        }
    }
}
