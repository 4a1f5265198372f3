//! The records in a log block.
//!
//! ```text
//!   0  type u64 | length of the record u64 | txg u64 | sequence number u64 | what it says ...
//!
//!   a write (type 9):
//!  32  object u64 | offset u64 | length u64 | block offset u64 | block pointer | data, if the pointer is a hole
//! ```
//!
//! In an encrypted log the head of a record and the pointer of a write can be read without the key.

use base::{Endian, Error, Reader, Result};
use format::blkptr::BlkPtr;
use format::ids::{ObjectId, Txg};

use crate::Intent;
use crate::intent::CLONE;
use crate::intent::fields::{blkptr, object};

/// Bytes that every record has.
pub(crate) const HEAD_SIZE: usize = 32;
pub(crate) const TYPE_WRITE: u64 = 9;
/// Set in the type of records about names where case does not count.
const TYPE_CASE_BIT: u64 = 1 << 63;

/// One record.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// Which operation.
    pub kind: u64,
    /// Transaction group that the operation was to be part of.
    pub txg: Txg,
    /// Sequence number.
    pub seq: u64,
    /// Whether case does not count in the names that it tells of.
    pub ignores_case: bool,
    /// What follows the head.
    body: &'a [u8],
    endian: Endian,
}

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRecord {
    /// Object written to; meaningless if the log is encrypted.
    pub object: ObjectId,
    /// Offset of the first byte written; meaningless if the log is encrypted.
    pub offset: u64,
    /// Where the data are; a hole if they are in the record.
    pub bp: BlkPtr,
}

impl<'a> Record<'a> {
    /// Takes the first record off `bytes`.
    pub(crate) fn take(bytes: &mut &'a [u8], endian: Endian) -> Result<Record<'a>> {
        let mut r = Reader::new(bytes, endian);
        let (kind, len, txg, seq) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let len = usize::try_from(len).ok().filter(|len| *len >= HEAD_SIZE && *len <= bytes.len());
        let Some(len) = len else {
            return Err(Error::corrupt(format!("log record {seq} does not fit in its block")));
        };
        let (record, rest) = bytes.split_at(len);
        *bytes = rest;
        let ignores_case = kind & TYPE_CASE_BIT != 0;
        Ok(Record {
            kind: kind & !TYPE_CASE_BIT,
            txg: Txg::new(txg),
            seq,
            ignores_case,
            body: &record[HEAD_SIZE..],
            endian,
        })
    }

    /// The write that it is, if that leads to a block of data that was allocated in group `since` or later.
    pub(crate) fn block_since(&self, since: Txg) -> Option<WriteRecord> {
        let is_block = |bp: &BlkPtr| !bp.is_hole() && !bp.is_embedded() && bp.physical_birth() >= since;
        self.write().ok().flatten().filter(|write| is_block(&write.bp))
    }

    /// What it says, if it is a write.
    pub fn write(&self) -> Result<Option<WriteRecord>> {
        if self.kind != TYPE_WRITE {
            return Ok(None);
        }
        let mut r = Reader::new(self.body, self.endian);
        let (object, offset, _length, _block_offset) = (object(&mut r)?, r.u64()?, r.u64()?, r.u64()?);
        Ok(Some(WriteRecord { object, offset, bp: blkptr(r.take(BlkPtr::SIZE)?, self.endian)? }))
    }
}

impl Record<'_> {
    /// The blocks that it takes from elsewhere, each as often as it does: from when the log is claimed until it is empty,
    /// there is one pointer more to each. Errors: `Corrupt` for a record that makes no sense.
    pub fn clones(&self) -> Result<Vec<BlkPtr>> {
        if self.kind != CLONE {
            return Ok(Vec::new());
        }
        let Intent::Clone { mut blocks, .. } = self.intent()? else { return Ok(Vec::new()) };
        blocks.retain(|bp| !bp.is_hole() && !bp.is_embedded());
        match blocks.iter().any(|bp| bp.level() > 0 || bp.object_type().is_metadata()) {
            true => Err(Error::corrupt("a clone of a block that is not one of data")),
            false => Ok(blocks),
        }
    }
}

impl<'a> Record<'a> {
    /// What it says was done, in a log that is not encrypted. Errors: `Corrupt`, `Unsupported`.
    pub fn intent(&self) -> Result<Intent<'a>> {
        Intent::parse(self.kind, self.body, self.endian)
    }
}

/// Parses any bytes as records of both byte orders, for a fuzzer.
pub fn fuzz(bytes: &[u8]) {
    for endian in [Endian::Little, Endian::Big] {
        let mut rest = bytes;
        while let Ok(record) = Record::take(&mut rest, endian) {
            let _ = record.write();
            if let Ok(intent) = record.intent() {
                // it says the same when it is written and read again
                let (kind, bytes) = (intent.kind(), intent.bytes());
                let again = Intent::parse(kind, &bytes, Endian::Little);
                assert_eq!(again.expect("it was written here").to_string(), intent.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u64, len: u64, endian: Endian) -> Vec<u8> {
        let mut words = vec![kind, len, 5, 77, 8, 4096, 10, 0];
        words.extend((0..16).map(|i| if i == 10 { 42 } else { 1 }));
        let to_bytes = |word: u64| match endian {
            Endian::Little => word.to_le_bytes(),
            Endian::Big => word.to_be_bytes(),
        };
        words.into_iter().flat_map(to_bytes).collect()
    }

    #[test]
    fn writes_of_both_byte_orders() {
        for endian in [Endian::Little, Endian::Big] {
            let bytes = [record(9, 192, endian), record(TYPE_CASE_BIT | 1, 192, endian)].concat();
            let mut rest = &*bytes;
            let first = Record::take(&mut rest, endian).unwrap();
            let write = first.write().unwrap().unwrap();
            assert_eq!(
                (first.seq, first.txg, write.object, write.offset, write.bp.birth()),
                (77, Txg::new(5), ObjectId::new(8), 4096, Txg::new(42))
            );
            let second = Record::take(&mut rest, endian).unwrap();
            assert_eq!((second.kind, second.write().unwrap()), (1, None));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn lengths_that_lead_nowhere() {
        for len in [0, 31, 193, u64::MAX] {
            let bytes = record(9, len, Endian::Little);
            assert!(Record::take(&mut &*bytes, Endian::Little).is_err(), "{len}");
        }
        let bytes = record(9, 40, Endian::Little);
        assert!(Record::take(&mut &*bytes, Endian::Little).unwrap().write().is_err());
    }
}
