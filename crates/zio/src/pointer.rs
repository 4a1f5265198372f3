//! What a block pointer says of its block, checked before anything is done by it.

use base::{Endian, Error, Kind, Result};
use codec::checksum::{self, Checksum};
use codec::compress::{self, Compress};
use format::blkptr::{BLOCK_SIZE_MAX, BlkPtr, Dva};
use format::swap;
use vdev::Extent;

/// Whether a block's bytes on disk can be told from others, wherever they come from.
pub fn is_verifiable(bp: &BlkPtr) -> bool {
    let is_sum = |kind: Checksum| !kind.is_embedded() && !matches!(kind, Checksum::Off | Checksum::NoParity);
    let has_bytes = !bp.is_hole() && !bp.is_embedded() && check_shape(bp).is_ok();
    has_bytes && checksum_kind(bp).is_ok_and(is_sum)
}

/// Whether the last two words of the checksum are a MAC.
pub(crate) fn has_mac(bp: &BlkPtr) -> bool {
    bp.uses_crypt() && bp.object_type() != format::object_type::ObjectType::OBJSET
}

pub(crate) fn log_block_sums(kind: Checksum, bp: &BlkPtr, physical: &[u8]) -> Result<checksum::embedded::EmbeddedSums> {
    if !matches!(kind, Checksum::Zilog | Checksum::Zilog2) {
        return Err(Error::corrupt(format!("block pointer with checksum {}", kind.name())));
    }
    let sums = checksum::embedded::inspect(kind, &bp.checksum(), physical)?;
    if is_match(kind, bp, &sums) {
        Ok(sums)
    } else {
        Err(Error::new(Kind::Checksum, "log block checksum does not match"))
    }
}

/// Whether the sum in a block that carries it is right; what `bp` points at decides how much of it there is.
pub(crate) fn is_match(kind: Checksum, bp: &BlkPtr, sums: &checksum::embedded::EmbeddedSums) -> bool {
    if has_mac(bp) { kind.cut_for_mac(sums.computed) == sums.stored[..2] } else { sums.computed == sums.stored }
}

pub(crate) fn extent(bp: &BlkPtr, dva: &Dva) -> Extent {
    Extent { top: dva.vdev(), offset: dva.offset(), size: bp.psize(), birth_txg: bp.physical_birth() }
}

/// Refuses sizes that no version writes, before anything is allocated for them.
pub(crate) fn check_shape(bp: &BlkPtr) -> Result<()> {
    if bp.lsize() > BLOCK_SIZE_MAX || bp.psize() > BLOCK_SIZE_MAX {
        return Err(Error::corrupt(format!("block of {} bytes, {} on disk", bp.lsize(), bp.psize())));
    }
    if bp.is_embedded() && bp.psize() as usize > BlkPtr::EMBEDDED_SIZE_MAX {
        return Err(Error::corrupt(format!("{} bytes embedded in a block pointer", bp.psize())));
    }
    Ok(())
}

pub(crate) fn checksum_kind(bp: &BlkPtr) -> Result<Checksum> {
    let n = bp.checksum_kind();
    let kind = Checksum::from_u8(n).filter(|kind| kind.is_concrete());
    kind.ok_or_else(|| Error::corrupt(format!("block pointer with unknown checksum {n}")))
}

pub(crate) fn compress_kind(bp: &BlkPtr) -> Result<Compress> {
    let n = bp.compress();
    let kind = Compress::from_u8(n).filter(|kind| kind.is_concrete());
    kind.ok_or_else(|| Error::corrupt(format!("block pointer with unknown compression {n}")))
}

pub(crate) fn decompress(bp: &BlkPtr, physical: &[u8], contents: &mut [u8]) -> Result<()> {
    compress::decompress(compress_kind(bp)?, physical, contents)
}

/// Turns the contents to little-endian if the block's writer had the other byte order.
pub(crate) fn turn(bp: &BlkPtr, contents: &mut [u8]) {
    if bp.endian() == Endian::Big {
        if bp.level() > 0 { swap::words(contents) } else { swap::block(bp.object_type(), contents) }
    }
}
