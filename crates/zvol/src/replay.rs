//! Doing again what the intent log of a volume holds, after a crash.
//!
//! ```text
//!   9   write      offset | length | data, or the pointer to a whole block
//!   10  truncate   offset | length                                              what was discarded
//! ```
//!
//! There is one object with data, so nobody asks which one a record names.

use base::{Bookmark, Error, Kind, Result};
use dmu::{Mode, ReadRequest};
use format::blkptr::BlkPtr;
use format::volume;
use zil::{Data, Intent, Record};

use crate::Volume;

/// Longest block.
const BLOCK_MAX: u64 = 16 << 20;

/// Does what a record says.
pub(crate) fn replay(volume: &Volume, record: &Record<'_>) -> Result<()> {
    let done = record.intent().and_then(|intent| apply(volume, &intent));
    let what = || format!("record {} of the intent log, of type {}, cannot be replayed", record.seq, record.kind);
    done.map_err(|e| Error::new(e.kind(), what()).with_source(e))
}

fn apply(volume: &Volume, intent: &Intent<'_>) -> Result<()> {
    match intent {
        Intent::Write { offset, data: Data::Here(data), .. } => {
            volume.replay_write(check_end(*offset, data.len() as u64)?, data)
        }
        Intent::Write { offset, len, data: Data::Block(bp), .. } => block(volume, *offset, *len, bp),
        Intent::Truncate { offset, len, .. } => {
            let end = check_end(*offset, *len)?.saturating_add(*len);
            volume.replay_free(*offset..end)
        }
        _ => Err(Error::new(Kind::Unsupported, "the log of a volume does not tell of such a thing")),
    }
}

/// A write of a whole block: the block begins at a multiple of its size.
fn block(volume: &Volume, offset: u64, len: u64, bp: &BlkPtr) -> Result<()> {
    let size = bp.lsize().max(if bp.is_hole() { len } else { 0 });
    if size == 0 || size > BLOCK_MAX || len > size {
        return Err(Error::corrupt(format!("a write of {len} bytes in a block of {size}")));
    }
    let at = check_end(if len < size { offset - offset % size } else { offset }, size)?;
    let objset = volume.objset();
    let data = match bp.is_hole() {
        true => vec![0; size as usize],
        false => {
            let bookmark = Bookmark { objset: objset.id(), object: volume::DATA, level: 0, blkid: offset / size };
            objset.cache().zio().read(ReadRequest { bp: *bp, bookmark, mode: Mode::Plain })?.to_vec()
        }
    };
    volume.replay_write(at, &data)
}

/// Errors: `Corrupt` for bytes behind all that a volume can have.
fn check_end(offset: u64, len: u64) -> Result<u64> {
    match offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok()) {
        Some(_) => Ok(offset),
        None => Err(Error::corrupt("bytes behind the end of any volume")),
    }
}
