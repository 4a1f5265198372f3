//! One block on its way back: from contents to bytes on disk that fit where the old ones were.

use base::{Endian, Error, Kind, Result};
use codec::checksum::{self, Checksum};
use codec::compress::{self, Compress};
use format::blkptr::{BlkPtr, BlkPtrBuilder, BlockShape, SECTOR_SHIFT};
use vdev::{Extent, Tree};

use super::blocks::{FoundBlock, Role};

/// The words of a block pointer that sealing changes: sizes and kinds, and the sum.
const PROP: std::ops::Range<usize> = 48..56;
const SUM: std::ops::Range<usize> = 96..128;

/// The pointer that is to stand where `old` stood, for the same block with what `new` says of its bytes.
pub(super) fn patched(old: &BlkPtr, new: &BlkPtr) -> BlkPtr {
    if new.is_embedded() {
        return *new;
    }
    let mut bytes = old.raw().to_vec();
    bytes[PROP].copy_from_slice(&new.raw()[PROP]);
    bytes[SUM].copy_from_slice(&new.raw()[SUM]);
    BlkPtr::parse(&bytes).expect("128 bytes")
}

/// Writes `contents` in the place of `block`, and returns the pointer to them.
///
/// Errors: `NoSpace` if they do not fit there however they are compressed; as of [`Tree::write_batch`].
pub(super) fn write(tree: &Tree, block: &FoundBlock, contents: &[u8]) -> Result<BlkPtr> {
    let bp = &block.bp;
    if block.role == Role::Log {
        let mut bytes = contents.to_vec();
        let kind = Checksum::from_u8(bp.checksum_kind()).filter(|kind| kind.is_embedded()).ok_or_else(unknown)?;
        // one that no longer says how much of it is used is left with a wrong sum: there the log ends
        let _ = checksum::embedded::seal(kind, Endian::Little, &bp.checksum(), &mut bytes);
        put(tree, bp, &bytes)?;
        return Ok(*bp);
    }
    let was = Compress::from_u8(bp.compress()).ok_or_else(unknown)?;
    if bp.is_embedded() {
        let (kind, bytes) = shrunk(was, contents, BlkPtr::EMBEDDED_SIZE_MAX).ok_or_else(no_room)?;
        let shape = BlockShape { psize: 512, ..shape_of(bp, kind, 512, 2) };
        return Ok(BlkPtrBuilder::new(shape, bp.birth()).embed(&bytes));
    }
    let room = room(tree, bp)?;
    let (kind, mut bytes) = shrunk(was, contents, room).ok_or_else(no_room)?;
    let (sector, old) = (1 << ashift(tree, bp)?, bp.psize() as usize);
    let psize = if kind == Compress::Off { contents.len() } else { bytes.len().next_multiple_of(sector) };
    bytes.resize(if psize <= old && kind != Compress::Off { old } else { psize }, 0);
    let sum_kind = match Checksum::from_u8(bp.checksum_kind()).ok_or_else(unknown)? {
        kind if kind.is_salted() => Checksum::Sha256,
        kind => kind,
    };
    let sum = checksum::compute(sum_kind, Endian::Little, &[0; 32], &bytes);
    put(tree, bp, &bytes)?;
    let shape = shape_of(bp, kind, bytes.len() as u64, sum_kind as u8);
    let sealed = BlkPtrBuilder::new(shape, bp.birth()).checksum(sum).build();
    // the mark of a block that the dedup table knows stays
    let mut raw = sealed.raw().to_vec();
    raw[PROP.end - 1] |= bp.raw()[PROP.end - 1] & 0x40;
    Ok(BlkPtr::parse(&raw).expect("128 bytes"))
}

fn shape_of(bp: &BlkPtr, compress: Compress, psize: u64, checksum: u8) -> BlockShape {
    BlockShape {
        lsize: bp.lsize(),
        psize,
        compress: compress as u8,
        checksum,
        object_type: bp.object_type(),
        level: bp.level(),
    }
}

/// The contents in at most `room` bytes: as before, or else as small as can be, or as they are.
fn shrunk(was: Compress, contents: &[u8], room: usize) -> Option<(Compress, Vec<u8>)> {
    for kind in [was, Compress::Gzip9, Compress::Zstd] {
        let mut out = vec![0; if kind == Compress::Off { contents.len() } else { room }];
        if !kind.is_concrete() || out.len() > room {
            continue;
        }
        let level = if kind == Compress::Zstd { 19 } else { 0 };
        if let Some(len) = compress::compress(kind, level, contents, &mut out) {
            out.truncate(len.max(1));
            return Some((kind, out));
        }
    }
    (contents.len() <= room).then(|| (Compress::Off, contents.to_vec()))
}

/// The most bytes that fit into each of a block's copies.
fn room(tree: &Tree, bp: &BlkPtr) -> Result<usize> {
    let sector = 1 << ashift(tree, bp)?.max(SECTOR_SHIFT);
    let mut room = usize::MAX;
    for dva in bp.copies() {
        let mut size = 0;
        while size < dva.asize() && tree.asize_at(dva.vdev(), size + sector, bp.physical_birth())? <= dva.asize() {
            size += sector;
        }
        // what was written in a smaller unit than the vdev's sectors fits as it was
        room = room.min(size.max(bp.psize()) as usize);
    }
    Ok(room)
}

fn ashift(tree: &Tree, bp: &BlkPtr) -> Result<u32> {
    bp.copies().try_fold(SECTOR_SHIFT, |shift, dva| {
        let top = tree.top(dva.vdev())?;
        Ok(shift.max(top.top_spec().map_or(SECTOR_SHIFT, |spec| spec.ashift)))
    })
}

fn put(tree: &Tree, bp: &BlkPtr, bytes: &[u8]) -> Result<()> {
    let extent = |dva: &format::blkptr::Dva| Extent {
        top: dva.vdev(),
        offset: dva.offset(),
        size: bytes.len() as u64,
        birth_txg: bp.physical_birth(),
    };
    let writes: Vec<(Extent, &[u8])> = bp.copies().map(|dva| (extent(dva), bytes)).collect();
    tree.write_batch(&writes).into_iter().collect()
}

fn unknown() -> Error {
    Error::new(Kind::Unsupported, "a block of a kind that cannot be sealed")
}

fn no_room() -> Error {
    Error::new(Kind::NoSpace, "the new contents do not fit where the block is")
}
