//! The log of commands and events that every pool keeps.
//!
//! ```text
//!   bonus:  end of the creation record | physical end | logical begin | logical end | records lost
//!
//!   0         create            max      records: | length (u64, little-endian) | packed list |
//!   | creation | ring of records  |      logical offsets grow for ever; the ring takes them modulo
//!                                        its length
//! ```
//!
//! The record of the pool's creation is never overwritten.

use std::collections::VecDeque;
use std::ops::Range;

use base::{Error, Reader, Result, ResultExt};
use dmu::Object;
use format::nvlist::NvList;

use crate::{Pool, object_directory};

/// Largest log that ZFS makes.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// Far more than the largest record.
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// How much is read at a time.
const READ_BYTES: u64 = 1 << 20;

/// More bytes than any log was ever given.
const END_MAX: u64 = 1 << 62;

/// Where in the log something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryOffsets {
    pub(crate) creation_end: u64,
    pub(crate) physical_end: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// The records of a log, read as they are asked for, oldest first: first that of the pool's creation,
/// then what the ring still has. A record that makes no sense is an error, and the last item.
pub struct History {
    object: Option<Object>,
    /// What is still to be read, in order.
    ranges: VecDeque<Range<u64>>,
    /// What was read and not yet taken apart.
    bytes: VecDeque<u8>,
}

impl Pool {
    /// The log of commands and events; nothing in pools that are older than such logs.
    pub fn history(&self) -> Result<History> {
        self.open_history().in_pool(self.name())
    }

    fn open_history(&self) -> Result<History> {
        let mut history = History { object: None, ranges: VecDeque::new(), bytes: VecDeque::new() };
        if let Some(id) = object_directory(self.mos())?.object_id("history")? {
            let object = self.mos().object(id)?;
            let bounds = HistoryOffsets::parse(object.bonus()).map_err(|e| e.at_block(object.bookmark(0, 0)))?;
            history.ranges = bounds.ranges().into();
            history.object = Some(object);
        }
        Ok(history)
    }
}

impl Iterator for History {
    type Item = Result<NvList>;

    fn next(&mut self) -> Option<Result<NvList>> {
        let record = self.next_record().transpose()?;
        if record.is_err() {
            // there is no telling where the next record begins
            self.ranges.clear();
            self.bytes.clear();
        }
        Some(record)
    }
}

impl History {
    fn next_record(&mut self) -> Result<Option<NvList>> {
        let Some(head) = self.take(8)? else { return Ok(None) };
        let len = head.iter().rev().fold(0, |len, byte| len << 8 | u64::from(*byte));
        if !(1..=RECORD_BYTES_MAX).contains(&len) {
            return Err(Error::corrupt(format!("history record of {len} bytes")));
        }
        match self.take(len as usize)? {
            Some(record) => NvList::unpack(&record).map(Some),
            None => Err(Error::corrupt(format!("history ends within a record of {len} bytes"))),
        }
    }

    /// The next `len` bytes; `None` if there are not that many.
    fn take(&mut self, len: usize) -> Result<Option<Vec<u8>>> {
        while self.bytes.len() < len {
            let (Some(object), Some(range)) = (&self.object, self.ranges.front_mut()) else { return Ok(None) };
            let mut part = vec![0; (range.end - range.start).min(READ_BYTES) as usize];
            object.read(range.start, &mut part)?;
            range.start += part.len() as u64;
            if range.is_empty() {
                self.ranges.pop_front();
            }
            self.bytes.extend(part);
        }
        Ok(Some(self.bytes.drain(..len).collect()))
    }
}

impl HistoryOffsets {
    /// Reads the bonus buffer. Errors: `Corrupt` for bounds that no log has.
    pub(crate) fn parse(bonus: &[u8]) -> Result<HistoryOffsets> {
        let mut r = Reader::new(bonus, base::Endian::Little);
        let bounds = HistoryOffsets { creation_end: r.u64()?, physical_end: r.u64()?, begin: r.u64()?, end: r.u64()? };
        let HistoryOffsets { creation_end, physical_end, begin, end } = bounds;
        let fits = physical_end <= LOG_BYTES_MAX
            && creation_end <= physical_end
            && begin <= end
            && end <= END_MAX
            && end.saturating_sub(begin.max(creation_end)) <= physical_end - creation_end;
        match fits {
            true => Ok(bounds),
            false => Err(Error::corrupt(format!("history with the impossible bounds {bounds:?}"))),
        }
    }

    /// The parts of the object to read, in order.
    fn ranges(&self) -> Vec<Range<u64>> {
        let creation = 0..self.creation_end;
        let ring = self.physical_end - self.creation_end;
        let begin = self.begin.max(self.creation_end);
        let len = self.end.saturating_sub(begin);
        if ring == 0 || len == 0 {
            return vec![creation];
        }
        let first = (begin - self.creation_end) % ring + self.creation_end;
        let until_wrap = len.min(self.physical_end - first);
        vec![creation, first..first + until_wrap, self.creation_end..self.creation_end + len - until_wrap]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::nvlist::Value;

    #[test]
    fn the_ring() {
        let bounds = |words: [u64; 4]| HistoryOffsets::parse(&words.map(u64::to_le_bytes).concat());
        let ranges = |words| bounds(words).unwrap().ranges();
        assert_eq!(ranges([100, 1000, 100, 300]), [0..100, 100..300, 100..100]);
        assert_eq!(ranges([100, 1000, 1200, 2000]), [0..100, 300..1000, 100..200]);
        assert_eq!(ranges([0, 1000, 0, 0]), std::slice::from_ref(&(0..0)));
        for bad in [
            [100, 50, 100, 300],
            [100, 1000, 300, 200],
            [100, 1000, 100, 2000],
            [100, 2 << 30, 100, 300],
            [9, 99, u64::MAX, u64::MAX],
        ] {
            assert!(bounds(bad).is_err(), "{bad:?}");
        }
        assert!(HistoryOffsets::parse(&[0; 16]).is_err());
    }

    #[test]
    fn records_end_with_nonsense() {
        let record: NvList = [("history time".to_owned(), Value::U64(7))].into_iter().collect();
        let packed = record.pack();
        let mut bytes = (packed.len() as u64).to_le_bytes().to_vec();
        bytes.extend(&packed);
        let one = bytes.clone();
        bytes.extend(u64::MAX.to_le_bytes());
        bytes.extend(&one);
        let records = |bytes: Vec<u8>| History { object: None, ranges: VecDeque::new(), bytes: bytes.into() };
        let all: Vec<_> = records(bytes).collect();
        assert_eq!(all[0].as_ref().unwrap(), &record);
        assert!(all.len() == 2 && all[1].is_err());
        assert_eq!(records(vec![0; 3]).count(), 0);
        assert!(records(one[..one.len() - 1].to_vec()).next().unwrap().is_err());
    }
}
