//! What is to be done again that the intent log of a volume holds, after a crash.
//!
//! ```text
//!   9   write      offset | length | data, or the pointer to a whole block
//!   10  truncate   offset | length                                              what was discarded
//!   24  clone      offset | length | pointers to blocks of another volume
//! ```
//!
//! There is one object with data, so nobody asks which one a record names.

use std::ops::Range;
use std::sync::Arc;

use base::{Bookmark, Error, Kind, Result};
use dmu::{Mode, Objset, ReadRequest};
use format::blkptr::BlkPtr;
use format::volume;
use zil::{Intent, Record, WrittenData};

/// Longest block.
const BLOCK_MAX: u64 = 16 << 20;

/// What is to be done again.
pub(crate) enum Redo {
    /// Bytes are written.
    Write { at: u64, data: Vec<u8> },
    /// A range is freed.
    Free(Range<u64>),
    /// Blocks from this one on become those that are there; holes where there is none.
    Clone { blkid: u64, blocks: Vec<BlkPtr> },
}

/// What a record of the log of `objset` says.
pub(crate) fn redo(objset: &Arc<Objset>, record: &Record<'_>) -> Result<Redo> {
    let what = || format!("record {} of the intent log, of type {}, cannot be replayed", record.seq, record.kind);
    let redo = record.intent().and_then(|intent| of_intent(objset, &intent));
    redo.map_err(|e| Error::new(e.kind(), what()).with_source(e))
}

fn of_intent(objset: &Arc<Objset>, intent: &Intent<'_>) -> Result<Redo> {
    match intent {
        Intent::Write { offset, data: WrittenData::Here(data), .. } => {
            Ok(Redo::Write { at: checked(*offset, data.len() as u64)?.start, data: data.to_vec() })
        }
        Intent::Write { offset, len, data: WrittenData::Block(bp), .. } => of_block(objset, *offset, *len, bp),
        Intent::Truncate { offset, len, .. } => checked(*offset, *len).map(Redo::Free),
        Intent::Clone { offset, len, block_size, blocks, .. } => {
            let range = checked(*offset, *len)?;
            let is_whole = objset.object(volume::DATA)?.dnode().block_size == *block_size
                && range.start.is_multiple_of(*block_size)
                && len.div_ceil(*block_size) == blocks.len() as u64;
            match is_whole {
                true => Ok(Redo::Clone { blkid: range.start / block_size, blocks: blocks.clone() }),
                false => Err(Error::corrupt(format!("clones of {} blocks of {block_size} bytes", blocks.len()))),
            }
        }
        _ => Err(Error::new(Kind::Unsupported, "the log of a volume does not tell of such a thing")),
    }
}

/// A write of a whole block, which begins at a multiple of its size.
fn of_block(objset: &Arc<Objset>, offset: u64, len: u64, bp: &BlkPtr) -> Result<Redo> {
    let size = bp.lsize().max(if bp.is_hole() { len } else { 0 });
    if size == 0 || size > BLOCK_MAX || len > size {
        return Err(Error::corrupt(format!("a write of {len} bytes in a block of {size}")));
    }
    let at = checked(if len < size { offset - offset % size } else { offset }, size)?.start;
    let data = match bp.is_hole() {
        true => vec![0; size as usize],
        false => {
            let bookmark =
                Bookmark { objset: objset.id().get(), object: volume::DATA.get(), level: 0, blkid: offset / size };
            objset.cache().zio().read(ReadRequest { bp: *bp, bookmark, mode: Mode::Plain })?.to_vec()
        }
    };
    Ok(Redo::Write { at, data })
}

/// Errors: `Corrupt` for bytes behind all that a volume can have.
fn checked(offset: u64, len: u64) -> Result<Range<u64>> {
    let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
    end.map(|end| offset..end).ok_or_else(|| Error::corrupt("bytes behind the end of any volume"))
}
