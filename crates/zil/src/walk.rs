//! Walking the chain of a log.
//!
//! A block's checksum field, in the pointer to it, is not a sum but the name of its place:
//!
//! ```text
//!   | random | random | object set | sequence number |
//! ```
//!
//! The next block's is the same with the number one higher. What stands in a block of the older kind
//! (zilog) is a link at its end, of the newer kind (zilog2) a link at its start:
//!
//! ```text
//!   link: 0 | pad u64 | pointer to the next block (128) | bytes used u64 | sum (40) |   184 bytes
//! ```
//!
//! Invariant: a walk ends, as each block is visited once.

use std::collections::HashSet;
use std::ops::ControlFlow;

use base::{AlignedBuf, Bookmark, Endian, Error, Reader, Result, ResultExt};
use codec::checksum::Checksum;
use format::blkptr::{BlkPtr, Dva};
use format::ids::DatasetId;
use zio::{Keys, SetKeys, Zio};

use crate::intent::fields::blkptr;
use crate::{Record, ZilHeader};

/// Bytes of a link.
pub(crate) const LINK_SIZE: usize = 184;
/// Words of a log block's checksum field.
const OBJSET_WORD: usize = 2;
pub(crate) const SEQ_WORD: usize = 3;
/// The level that bookmarks give log blocks.
const LEVEL: i64 = -2;

/// Is shown what is in a log.
pub trait LogVisitor {
    /// A block of the log, which may turn out not to be readable. Breaking ends the walk before it is
    /// read.
    fn block(&mut self, bp: &BlkPtr, bookmark: Bookmark) -> ControlFlow<()>;

    /// A record. `bp` is the pointer of the block that it is in.
    fn record(&mut self, record: &Record<'_>) -> ControlFlow<()>;
}

/// Why a walk ended.
#[derive(Debug)]
pub enum WalkEnd {
    /// The log has no more blocks or records.
    Complete,
    /// A visitor had enough.
    Broken,
    /// A block that is not there, or not of this log: the usual end of a log that was not claimed.
    Unreadable(Error),
}

/// A log block that was read.
struct LogBlock {
    bytes: AlignedBuf,
    endian: Endian,
    /// The part of `bytes` with records.
    records: std::ops::Range<usize>,
    next: BlkPtr,
}

/// Visits the blocks of a log and their records, in order; `objset` is for bookmarks. With the keys of an encrypted set
/// its records are opened; without them, they have heads and pointers, and what else they say makes no sense.
pub fn walk(zio: &Zio, keys: &SetKeys, objset: DatasetId, header: &ZilHeader, visitor: &mut dyn LogVisitor) -> WalkEnd {
    let (last_block, last_record) = header.last_seqs();
    let mut seen: HashSet<Dva> = HashSet::new();
    let mut bp = header.first;
    let mut record_seq = 0;
    while !bp.is_hole() {
        let seq = bp.checksum()[SEQ_WORD];
        if seq > last_block || !seen.insert(bp.dvas()[0]) {
            break;
        }
        let bookmark = Bookmark { objset: objset.get(), object: 0, level: LEVEL, blkid: seq };
        if visitor.block(&bp, bookmark).is_break() {
            return WalkEnd::Broken;
        }
        if (seq, record_seq) == (last_block, last_record) {
            break;
        }
        let block = match read(zio, keys, &bp, bookmark) {
            Ok(block) => block,
            Err(e) => return WalkEnd::Unreadable(e),
        };
        let mut rest = &block.bytes[block.records];
        while !rest.is_empty() {
            let record = match Record::take(&mut rest, block.endian) {
                Ok(record) => record,
                Err(e) => return WalkEnd::Unreadable(e.at_block(bookmark)),
            };
            if record.seq > last_record {
                return WalkEnd::Complete;
            }
            if visitor.record(&record).is_break() {
                return WalkEnd::Broken;
            }
            record_seq = record.seq;
        }
        bp = block.next;
    }
    WalkEnd::Complete
}

/// Reads a log block, and finds the way on.
fn read(zio: &Zio, keys: &SetKeys, bp: &BlkPtr, bookmark: Bookmark) -> Result<LogBlock> {
    let (mut bytes, endian) = zio.read_log_block(bp, bookmark)?;
    if let Some(keys) = keys.keys() {
        open(keys, bp, endian, &mut bytes).at_block(bookmark)?;
    }
    let is_new = Checksum::from_u8(bp.checksum_kind()) == Some(Checksum::Zilog2);
    link(&bytes, endian, is_new, bp)
        .map(|(records, next)| LogBlock { bytes, endian, records, next })
        .map_err(|e| e.at_block(bookmark))
}

/// Opens the block of the log of an encrypted set in place.
fn open(keys: &dyn Keys, bp: &BlkPtr, endian: Endian, bytes: &mut [u8]) -> Result<()> {
    if !bp.uses_crypt() {
        return Err(Error::corrupt("log block that is not encrypted in an encrypted set"));
    }
    keys.open_log(bp, endian, bytes)
}

/// The range of the records, and the pointer to the next block.
fn link(bytes: &[u8], endian: Endian, is_new: bool, bp: &BlkPtr) -> Result<(std::ops::Range<usize>, BlkPtr)> {
    let too_small = || Error::corrupt(format!("log block of {} bytes", bytes.len()));
    let at = if is_new { 0 } else { bytes.len().checked_sub(LINK_SIZE).ok_or_else(too_small)? };
    let mut r = Reader::new(&bytes[at..], endian);
    r.u64()?;
    let next = blkptr(r.take(BlkPtr::SIZE)?, endian)?;
    let used = usize::try_from(r.u64()?).unwrap_or(usize::MAX);
    let records = if is_new { LINK_SIZE..used } else { 0..used };
    if records.start > records.end || records.end > if is_new { bytes.len() } else { at } {
        return Err(Error::corrupt(format!("log block of {} bytes says that {used} are used", bytes.len())));
    }
    let mut expected = bp.checksum();
    expected[SEQ_WORD] = expected[SEQ_WORD].wrapping_add(1);
    if next.is_hole() || next.checksum() != expected {
        let what = format!(
            "log block {} of object set {} leads to none of its log",
            expected[SEQ_WORD], expected[OBJSET_WORD]
        );
        return Err(Error::corrupt(what));
    }
    Ok((records, next))
}

#[cfg(test)]
mod tests;
