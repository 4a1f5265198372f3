//! From contents to the bytes on disk: zeros to holes, compression, embedding, checksum.
//!
//! What compression does not make an eighth smaller is stored as it is, as is what would take up as
//! many sectors. zstd is slow to find out that data does not shrink; so above [`EARLY_ABORT_SIZE`] and
//! from level 3 on, lz4 and then zstd's level 1 must have shrunk it first.

use base::{AlignedBuf, Block, Endian, Error, Kind, Result};
use codec::checksum::{Checksum, Sum};
use codec::compress::{self, Compress, zstd};
use format::blkptr::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, BlkPtr, Shape};
use format::object_type::ObjectType;
use vdev::Tree;

use super::request::{WritePolicy, WriteRequest};
use crate::queue::Bytes;
use crate::sums::BlockSums;

/// The smallest block for which others try before zstd does.
const EARLY_ABORT_SIZE: usize = 128 << 10;
/// The first zstd level for which they do.
const EARLY_ABORT_LEVEL: i32 = 3;

/// What becomes of a block.
pub(super) enum Prepared {
    /// It is in the pointer, or where it was.
    Pointer(BlkPtr),
    /// It must be written.
    Physical(Physical),
}

/// Bytes to be written, and how they came to be.
pub(super) struct Physical {
    pub(super) bytes: Bytes,
    pub(super) compress: Compress,
    pub(super) sum: Sum,
}

/// What a block becomes on disk, written in `txg`; `sector` is what its size is rounded up to.
/// Errors: `Invalid` for a request that makes no sense.
pub(super) fn prepare(
    request: &WriteRequest,
    tree: &Tree,
    txg: u64,
    sector: u64,
    sums: &BlockSums,
) -> Result<Prepared> {
    let WriteRequest { data, object_type, level, policy, previous, .. } = request;
    check(request, sums)?;
    let (len, kind) = (data.len(), policy.compress);
    if kind != Compress::Off {
        if compress::is_zero(data) {
            return Ok(Prepared::Pointer(match previous.birth() {
                0 => BlkPtr::HOLE,
                _ => BlkPtr::new_hole(len as u64, *object_type, *level, txg),
            }));
        }
        let embed = policy.embed && is_embeddable(*object_type, *level);
        if let Some((small, n)) = shrink(policy, data, worth_having(len, sector as usize, embed)) {
            if n <= BlkPtr::EMBEDDED_SIZE_MAX && embed {
                let shape = shape(request, BLOCK_SIZE_MIN, kind);
                return Ok(Prepared::Pointer(BlkPtr::new_embedded(shape, &small[..n], txg)));
            }
            let psize = n.next_multiple_of(sector as usize);
            if psize < len {
                let physical = sum(pad(small, n, psize), kind, policy.checksum, sums);
                return Ok(same_as_before(request, tree, &physical).unwrap_or(Prepared::Physical(physical)));
            }
        }
    }
    let whole = Bytes::new(data.clone(), 0..len);
    Ok(Prepared::Physical(sum(whole, Compress::Off, policy.checksum, sums)))
}

/// The bytes for a block that must be exactly `psize` long; `None` if it cannot be.
/// Errors: as from [`prepare`].
pub(super) fn prepare_sized(request: &WriteRequest, psize: u64, sums: &BlockSums) -> Result<Option<Physical>> {
    check(request, sums)?;
    let WriteRequest { data, policy, .. } = request;
    let psize = psize as usize;
    if data.len() == psize {
        let whole = Bytes::new(data.clone(), 0..psize);
        return Ok(Some(sum(whole, Compress::Off, policy.checksum, sums)));
    }
    if data.len() < psize || policy.compress == Compress::Off || compress::is_zero(data) {
        return Ok(None);
    }
    let small = shrink(policy, data, psize);
    Ok(small.map(|(small, n)| sum(pad(small, n, psize), policy.compress, policy.checksum, sums)))
}

/// What the pointer to a block will say of it.
pub(super) fn shape(request: &WriteRequest, psize: u64, compress: Compress) -> Shape {
    Shape {
        lsize: request.data.len() as u64,
        psize,
        compress: compress as u8,
        checksum: request.policy.checksum as u8,
        object_type: request.object_type,
        level: request.level,
    }
}

fn check(request: &WriteRequest, sums: &BlockSums) -> Result<()> {
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
fn shrink(policy: &WritePolicy, data: &[u8], most: usize) -> Option<(AlignedBuf, usize)> {
    if most == 0 {
        return None;
    }
    let WritePolicy { compress: kind, compress_level: level, .. } = *policy;
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

/// The first `n` bytes of `buf`, and zeros up to `psize`. A buffer that would be mostly unused while
/// it waits to be written is changed for a smaller one.
fn pad(mut buf: AlignedBuf, n: usize, psize: usize) -> Bytes {
    buf[n..psize].fill(0);
    let buf = if psize <= buf.len() / 2 { AlignedBuf::from(&buf[..psize]) } else { buf };
    Bytes::new(buf.into(), 0..psize)
}

fn sum(bytes: Bytes, compress: Compress, checksum: Checksum, sums: &BlockSums) -> Physical {
    let sum = sums.compute(checksum, Endian::Little, &bytes);
    Physical { bytes, compress, sum }
}

/// The block as it was, if a checksum that can be trusted says that it has not changed. Blocks that
/// are not compressed are always written, as ZFS users rewrite them to move them; so is what is on a
/// removed vdev, to get rid of it.
fn same_as_before(request: &WriteRequest, tree: &Tree, new: &Physical) -> Option<Prepared> {
    let WriteRequest { policy, previous, .. } = request;
    let expected = shape(request, new.bytes.len() as u64, new.compress);
    let same = policy.checksum.is_nopwrite_strong()
        && request.level == 0
        && !previous.is_hole()
        && !previous.is_embedded()
        && !previous.is_gang()
        && !previous.uses_crypt()
        && !previous.is_dedup()
        && previous.endian() == Endian::Little
        && previous.copies().count() == usize::from(policy.copies)
        && previous.checksum() == new.sum
        && !previous.copies().any(|dva| tree.top(dva.vdev()).is_ok_and(|top| top.kind() == vdev::Kind::Indirect))
        && previous.prop() == BlkPtr::new(expected, &[], 0, [0; 4]).prop();
    same.then_some(Prepared::Pointer(*previous))
}

/// A block that somebody made of one piece.
pub(super) fn owned(buf: AlignedBuf) -> Bytes {
    let block = Block::from(buf);
    let len = block.len();
    Bytes::new(block, 0..len)
}
