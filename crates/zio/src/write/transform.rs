//! The first stage of a write, from contents to the bytes on disk: zeros to holes, compression, embedding, checksum.
//!
//! What compression does not make an eighth smaller is stored as it is, as is what would take up as
//! many sectors; what comes compressed already stays so. zstd is slow to find out that data does not
//! shrink; so above [`EARLY_ABORT_SIZE`] and from level 3 on, lz4 and then zstd's level 1 must have
//! shrunk it first.

use base::{AlignedBuf, Block, CopyKind, Endian, Error, Kind, Result, count_copy};
use codec::checksum::{Checksum, Sum};
use codec::compress::{self, Compress, zstd};
use format::blkptr::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, BlkPtr, BlkPtrBuilder, BlockShape};
use format::ids::Txg;
use format::object_type::ObjectType;
use vdev::Tree;

use super::request::{BlockWrite, Compressed, DedupMode, WritePolicy};
use crate::issue::BlockSlice;
use crate::sums::BlockSums;

/// The smallest block for which others try before zstd does.
const EARLY_ABORT_SIZE: usize = 128 << 10;
/// The first zstd level for which they do.
const EARLY_ABORT_LEVEL: i32 = 3;

/// What becomes of a block.
pub(super) enum Transformed {
    /// It is in the pointer, or where it was: the write is done.
    InPointer(BlkPtr),
    /// Bytes that must be placed, their compression, and their sum.
    Bytes(BlockSlice, Compress, Sum),
}

/// What compression makes of a block.
enum Shrunk {
    /// It is in the pointer.
    InPointer(BlkPtr),
    /// Bytes, and their compression.
    Bytes(BlockSlice, Compress),
}

/// How many of these blocks are transformed side by side on one core: [`BlockSums::compute_pair`] takes two.
pub(super) fn side_by_side(requests: &[BlockWrite]) -> usize {
    /// Fewer are better dealt to all cores.
    const WORTH_PAIRING: usize = 8;
    let is_paired = |request: &BlockWrite| request.policy.checksum == Checksum::Sha256;
    if requests.len() >= WORTH_PAIRING && requests.iter().all(is_paired) { 2 } else { 1 }
}

/// What blocks become on disk, written in `txg`; each is with what its size is rounded up to.
/// Errors: `Invalid` for a request that makes no sense.
pub(super) fn transform(
    requests: &[(&BlockWrite, u64)],
    tree: &Tree,
    txg: Txg,
    sums: &BlockSums,
) -> Vec<Result<Transformed>> {
    let shrunk: Vec<_> = requests.iter().map(|(request, sector)| shrink(request, txg, *sector, sums)).collect();
    let kind_of = |n: usize| requests[n].0.policy.checksum;
    let in_pair = match &shrunk[..] {
        [Ok(Shrunk::Bytes(one, _)), Ok(Shrunk::Bytes(two, _))] if kind_of(0) == kind_of(1) => {
            Some(sums.compute_pair(kind_of(0), Endian::Little, [one, two]))
        }
        _ => None,
    };
    let transformed = shrunk.into_iter().zip(requests).enumerate().map(|(n, (shrunk, (request, _)))| {
        let (bytes, compress) = match shrunk? {
            Shrunk::InPointer(bp) => return Ok(Transformed::InPointer(bp)),
            Shrunk::Bytes(bytes, compress) => (bytes, compress),
        };
        let sum = in_pair.map_or_else(|| sums.compute(kind_of(n), Endian::Little, &bytes), |pair| pair[n]);
        Ok(match same_as_before(request, tree, bytes.len() as u64, compress, sum) {
            true => Transformed::InPointer(request.previous.with_fill(request.fill)),
            false => Transformed::Bytes(bytes, compress, sum),
        })
    });
    transformed.collect()
}

fn shrink(request: &BlockWrite, txg: Txg, sector: u64, sums: &BlockSums) -> Result<Shrunk> {
    let BlockWrite { data, object_type, level, policy, previous, .. } = request;
    check(request, sums)?;
    let (len, kind) = (data.len(), policy.compress);
    let is_hole = || kind != Compress::Off && compress::is_zero(data);
    if let Some((bytes, kind)) = compressed_elsewhere(request, sector as usize).filter(|_| !is_hole()) {
        return Ok(Shrunk::Bytes(bytes, kind));
    }
    let embed = policy.embed && policy.dedup == DedupMode::Off && is_embeddable(*object_type, *level);
    Ok(match stored_form(data, (kind, policy.compress_level), sector as usize, embed) {
        StoredForm::Hole => Shrunk::InPointer(match previous.birth() {
            _ if !policy.hole_birth => BlkPtr::HOLE,
            Txg::ZERO => BlkPtr::HOLE,
            _ => BlkPtrBuilder::new(BlockShape::of_hole(len as u64, *object_type, *level), txg).hole(),
        }),
        StoredForm::Embedded(small, n) => {
            let shape = shape(request, BLOCK_SIZE_MIN, kind);
            Shrunk::InPointer(BlkPtrBuilder::new(shape, txg).embed(&small[..n]))
        }
        StoredForm::Smaller { bytes, n, psize } => Shrunk::Bytes(pad(bytes, n, psize), kind),
        StoredForm::AsItIs => Shrunk::Bytes(BlockSlice::new(data.clone(), 0..len), Compress::Off),
    })
}

/// How a block is stored.
enum StoredForm {
    /// All of it is 0.
    Hole,
    /// In its pointer: the first so many bytes of a buffer.
    Embedded(AlignedBuf, usize),
    /// Compressed: the first `n` bytes of a buffer, which take `psize`.
    Smaller { bytes: AlignedBuf, n: usize, psize: usize },
    /// Not compressed.
    AsItIs,
}

/// How a block is stored with a compression and its level, in whole sectors; `embed` if its pointer may have it.
fn stored_form(data: &[u8], (kind, level): (Compress, i32), sector: usize, embed: bool) -> StoredForm {
    if kind == Compress::Off {
        return StoredForm::AsItIs;
    }
    if compress::is_zero(data) {
        return StoredForm::Hole;
    }
    let Some((bytes, n)) = compressed((kind, level), data, worth_having(data.len(), sector, embed)) else {
        return StoredForm::AsItIs;
    };
    if n <= BlkPtr::EMBEDDED_SIZE_MAX && embed {
        return StoredForm::Embedded(bytes, n);
    }
    let psize = n.next_multiple_of(sector);
    if psize < data.len() { StoredForm::Smaller { bytes, n, psize } } else { StoredForm::AsItIs }
}

/// Bytes that a block of a file would take with a compression, in whole sectors: none of zeros, nor if it fits into its
/// pointer. `level` as of [`compress::compress`].
pub fn stored_bytes(data: &[u8], kind: Compress, level: i32, sector: usize) -> usize {
    match stored_form(data, (kind, level), sector, true) {
        StoredForm::Hole | StoredForm::Embedded(..) => 0,
        StoredForm::Smaller { psize, .. } => psize,
        StoredForm::AsItIs => data.len().next_multiple_of(sector),
    }
}

/// The bytes of a block that comes compressed, whole sectors of them, and how it is; `None` if they are not fewer.
fn compressed_elsewhere(request: &BlockWrite, sector: usize) -> Option<(BlockSlice, Compress)> {
    let Compressed { kind, bytes } = request.compressed.as_ref()?;
    let psize = bytes.len().next_multiple_of(sector);
    if psize >= request.data.len() {
        return None;
    }
    let bytes = if bytes.len() == psize { bytes.clone() } else { padded(bytes, psize).into() };
    Some((BlockSlice::new(bytes, 0..psize), *kind))
}

/// The bytes for a block that must be exactly `psize` long, with their compression; `None` if it cannot be.
/// Errors: as from [`transform`].
pub(super) fn transform_to(
    request: &BlockWrite,
    psize: u64,
    sums: &BlockSums,
) -> Result<Option<(BlockSlice, Compress)>> {
    check(request, sums)?;
    let BlockWrite { data, policy, .. } = request;
    let psize = psize as usize;
    if data.len() == psize {
        let whole = BlockSlice::new(data.clone(), 0..psize);
        return Ok(Some((whole, Compress::Off)));
    }
    if data.len() < psize || policy.compress == Compress::Off || compress::is_zero(data) {
        return Ok(None);
    }
    let small = compressed((policy.compress, policy.compress_level), data, psize);
    Ok(small.map(|(small, n)| (pad(small, n, psize), policy.compress)))
}

/// What the pointer to a block will say of it.
pub(super) fn shape(request: &BlockWrite, psize: u64, compress: Compress) -> BlockShape {
    BlockShape {
        lsize: request.data.len() as u64,
        psize,
        compress: compress as u8,
        checksum: request.policy.checksum as u8,
        object_type: request.object_type,
        level: request.level,
    }
}

fn check(request: &BlockWrite, sums: &BlockSums) -> Result<()> {
    let WritePolicy { checksum, compress, copies, .. } = request.policy;
    let len = request.data.len() as u64;
    let invalid = |what: String| Err(Error::new(Kind::Invalid, what));
    match () {
        _ if !(BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&len) || !len.is_multiple_of(BLOCK_SIZE_MIN) => {
            invalid(format!("block of {len} bytes"))
        }
        _ if !checksum.is_concrete() || checksum.is_embedded() => invalid(format!("checksum {}", checksum.name())),
        _ if checksum.is_salted() && !sums.has_salt() => {
            invalid(format!("{} without the pool's salt", checksum.name()))
        }
        _ if !compress.is_concrete() => invalid(format!("compression {}", compress.name())),
        _ if !(1..=3).contains(&copies) => invalid(format!("{copies} copies")),
        _ => Ok(()),
    }
}

/// Block pointers and dnodes count what is below them, which an embedded pointer has no place for.
fn is_embeddable(object_type: ObjectType, level: u8) -> bool {
    level == 0 && !matches!(object_type, ObjectType::DNODE | ObjectType::OBJSET)
}

/// The most that a block of `len` bytes may become for compression to be worth it.
fn worth_having(len: usize, sector: usize, embed: bool) -> usize {
    let most = (len - len / 8) / sector * sector;
    let embedded = if embed { BlkPtr::EMBEDDED_SIZE_MAX } else { 0 };
    most.max(embedded)
}

/// The compressed block, of `most` bytes at most, at the front of a buffer as long as `data`, and its
/// length; `None` if it does not shrink so far.
fn compressed((kind, level): (Compress, i32), data: &[u8], most: usize) -> Option<(AlignedBuf, usize)> {
    if most == 0 {
        return None;
    }
    let mut buf = AlignedBuf::for_overwrite(data.len());
    let target = if level == 0 { zstd::LEVEL_DEFAULT } else { level };
    if kind == Compress::Zstd && target >= EARLY_ABORT_LEVEL && data.len() >= EARLY_ABORT_SIZE {
        let mut shrinks = |kind| compress::compress(kind, 1, data, &mut buf[..most]).is_some();
        if !shrinks(Compress::Lz4) && !shrinks(Compress::Zstd) {
            return None;
        }
    }
    let n = compress::compress(kind, level, data, &mut buf[..most])?;
    Some((buf, n))
}

/// A copy of `bytes`, and zeros up to `psize`.
fn padded(bytes: &[u8], psize: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(psize);
    count_copy(CopyKind::IntoNew, bytes.len());
    buf[..bytes.len()].copy_from_slice(bytes);
    buf
}

/// The first `n` bytes of `buf`, and zeros up to `psize`. A buffer that would be mostly unused while
/// it waits to be written is changed for a smaller one.
fn pad(mut buf: AlignedBuf, n: usize, psize: usize) -> BlockSlice {
    buf[n..psize].fill(0);
    let buf = if psize <= buf.len() / 2 { AlignedBuf::from(&buf[..psize]) } else { buf };
    BlockSlice::new(buf.into(), 0..psize)
}

/// Whether the block is as it was, by a checksum that can be trusted. What is on a removed vdev is always written, to
/// get rid of it.
pub(super) fn same_as_before(request: &BlockWrite, tree: &Tree, psize: u64, compress: Compress, sum: Sum) -> bool {
    let BlockWrite { policy, previous, .. } = request;
    // ZFS users rewrite what they do not compress to move it
    policy.compress != Compress::Off
        && policy.checksum.is_nopwrite_strong()
        && policy.dedup == DedupMode::Off
        && request.level == 0
        && !previous.is_hole()
        && !previous.is_embedded()
        && !previous.is_gang()
        && !previous.uses_crypt()
        && !previous.is_dedup()
        && previous.endian() == Endian::Little
        && previous.copies().count() == usize::from(policy.copies)
        && previous.checksum() == sum
        && !previous.copies().any(|dva| tree.top(dva.vdev()).is_ok_and(|top| top.kind() == vdev::VdevKind::Indirect))
        && previous.prop() == BlkPtrBuilder::new(shape(request, psize, compress), Txg::ZERO).build().prop()
}

/// A block that somebody made of one piece.
pub(super) fn owned(buf: AlignedBuf) -> BlockSlice {
    let block = Block::from(buf);
    let len = block.len();
    BlockSlice::new(block, 0..len)
}
