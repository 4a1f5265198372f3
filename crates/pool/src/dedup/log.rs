//! Entries of dedup tables that are still in a log of theirs (feature fast_dedup).
//!
//! ```text
//!   folder of a checksum ── DDT-log-sha256-0, -1
//!     bonus   version | flags << 8 , bytes of the log, first txg, checkpoint (5 words)
//!     blocks  records, none over the end of a block:
//!             type | bytes << 8 , key (5 words) , value as in a table, not packed ; type 0: no more in this block
//! ```
//!
//! One log grows while the other goes into the tables, in the order of keys; its checkpoint is the last key that
//! has gone. What a log says of a key counts more than a table's word, and the growing log's the most. An entry that
//! has no references left stays in its log, with its block allocated, until its turn comes; one without a block has
//! been pruned.
//!
//! Source: OpenZFS's behaviour (ddt_log.c), and its description of fast dedup.

use std::collections::BTreeMap;

use base::{Endian, Error, Reader, Result};
use dmu::Object;
use format::ddt::VALUE_SIZE;

/// Key of an entry: checksum, and sizes and compression.
pub(crate) type EntryKey = [u64; 5];

const VERSION: u64 = 1;
const FLUSHING: u64 = 1;
const CHECKPOINT: u64 = 1 << 1;
const ENTRY: u64 = 1;
const RECORD_HEAD: usize = 6 * 8;
/// Bytes of a record with the largest value.
const RECORD_BYTES_MAX: usize = RECORD_HEAD + VALUE_SIZE;
/// Bytes of the logs of a checksum at most: the longest that OpenZFS lets them become hold its changes of some groups.
const LOGS_BYTES_MAX: u64 = 1 << 30;
/// Bytes of logs whose entries are in memory at once. Of longer ones the entries are taken by parts of their keys, and
/// the logs are read for each part.
const PART_BYTES: u64 = 64 << 20;

/// Whether that is the name of a log.
pub(crate) fn is_log(name: &str) -> bool {
    name.starts_with("DDT-log-")
}

/// Calls `f` with what the logs of a checksum hold: keys, and values as words in little-endian order. `salt` is a
/// random number. Errors: those of `f` and of reading; `Corrupt`.
pub(crate) fn for_each(logs: &[Object], salt: u64, f: &mut dyn FnMut(EntryKey, &[u8]) -> Result<()>) -> Result<()> {
    let mut heads = logs.iter().map(|log| Ok((DedupLogHead::read(log.bonus())?, log))).collect::<Result<Vec<_>>>()?;
    heads.sort_by_key(|(head, _)| !head.is_flushing);
    let bytes = heads.iter().fold(0u64, |sum, (head, _)| sum.saturating_add(head.len));
    if let Some((_, log)) = heads.first().filter(|_| bytes > LOGS_BYTES_MAX) {
        return Err(log.placed(Error::corrupt(format!("logs of a dedup table of {bytes} bytes")), 0, 0));
    }
    let parts = bytes.div_ceil(PART_BYTES).max(1);
    for number in 0..parts {
        let mut part = LogPart { number, parts, salt, entries: BTreeMap::new() };
        heads.iter().try_for_each(|(head, log)| part.read(head, log))?;
        part.entries.iter().try_for_each(|(key, value)| f(*key, value))?;
    }
    Ok(())
}

/// The entries of some of the keys.
struct LogPart {
    number: u64,
    parts: u64,
    salt: u64,
    entries: BTreeMap<EntryKey, Vec<u8>>,
}

impl LogPart {
    fn read(&mut self, head: &DedupLogHead, log: &Object) -> Result<()> {
        for_each_record(head, log, &mut |key, value| {
            if self.has(&key) {
                self.entries.insert(key, value.to_vec());
            }
        })
    }

    fn has(&self, key: &EntryKey) -> bool {
        // a pool cannot know which keys come together
        let mixed =
            key.iter().fold(self.salt, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        (mixed ^ mixed >> 32) % self.parts == self.number
    }
}

/// The first entries of a log that goes into the tables.
#[derive(Debug, Default)]
pub(crate) struct LogPortion {
    /// Keys, and values as words in little-endian order.
    pub(crate) entries: BTreeMap<EntryKey, Vec<u8>>,
    /// The last key of the portion, if others follow.
    pub(crate) checkpoint: Option<EntryKey>,
}

impl LogPortion {
    /// The first `count` entries of log `flushing` that have not gone into the tables; of those that `growing` has, too,
    /// it has none, as their turn comes with that. Errors: those of reading; `Corrupt`.
    pub(crate) fn read(flushing: &Object, growing: Option<&Object>, count: usize) -> Result<LogPortion> {
        let mut portion = LogPortion::default();
        for_each_record(&DedupLogHead::of(flushing)?, flushing, &mut |key, value| portion.add(key, value, count))?;
        if let Some(growing) = growing {
            for_each_record(&DedupLogHead::of(growing)?, growing, &mut |key, _| drop(portion.entries.remove(&key)))?;
        }
        Ok(portion)
    }

    fn add(&mut self, key: EntryKey, value: &[u8], count: usize) {
        if self.checkpoint.is_none_or(|last| key <= last) {
            self.entries.insert(key, value.to_vec());
        }
        if self.entries.len() > count {
            self.entries.pop_last();
            self.checkpoint = self.entries.last_key_value().map(|(key, _)| *key);
        }
    }
}

/// Calls `f` with the records of a log that have not gone into the tables. Errors: those of reading; `Corrupt`.
fn for_each_record(head: &DedupLogHead, log: &Object, f: &mut dyn FnMut(EntryKey, &[u8])) -> Result<()> {
    let size = log.dnode().block_size;
    let mut block = vec![0; size as usize];
    for number in 0..head.len.div_ceil(size.max(1)) {
        log.read(number * size, &mut block)?;
        for_each_in_block(&block, head, f).map_err(|e| log.placed(e, 0, number))?;
    }
    Ok(())
}

fn for_each_in_block(block: &[u8], head: &DedupLogHead, f: &mut dyn FnMut(EntryKey, &[u8])) -> Result<()> {
    let mut rest = block;
    while let Some(info) = Endian::Little.u64(rest.get(..8).unwrap_or_default()) {
        let (kind, len) = (info & 0xff, (info >> 8 & 0xffff) as usize);
        match kind {
            0 => break,
            ENTRY if (RECORD_HEAD..=rest.len().min(RECORD_BYTES_MAX)).contains(&len) => {}
            _ => {
                let what = format!("record of type {kind} and {len} bytes in a log of a dedup table");
                return Err(Error::corrupt(what));
            }
        }
        let (record, behind) = rest.split_at(len);
        let key = key(&mut Reader::new(&record[8..], Endian::Little))?;
        if head.checkpoint.is_none_or(|last| key > last) {
            f(key, &record[RECORD_HEAD..]);
        }
        rest = behind;
    }
    Ok(())
}

/// What the bonus buffer of a log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DedupLogHead {
    /// Whether it goes into the tables.
    pub(crate) is_flushing: bool,
    /// Bytes of it.
    pub(crate) len: u64,
    /// The group in which it began to grow.
    pub(crate) first_txg: u64,
    /// The last key that has gone into the tables.
    pub(crate) checkpoint: Option<EntryKey>,
}

impl DedupLogHead {
    /// That of a log. Errors: `Corrupt`, also if it is longer than any log.
    pub(crate) fn of(log: &Object) -> Result<DedupLogHead> {
        let head = DedupLogHead::read(log.bonus())?;
        match head.len > LOGS_BYTES_MAX {
            true => Err(log.placed(Error::corrupt(format!("log of a dedup table of {} bytes", head.len)), 0, 0)),
            false => Ok(head),
        }
    }

    fn read(bonus: &[u8]) -> Result<DedupLogHead> {
        let mut r = Reader::new(bonus, Endian::Little);
        let (info, len, first_txg) = (r.u64()?, r.u64()?, r.u64()?);
        let flags = info >> 8 & 0xff;
        if info & 0xff != VERSION {
            return Err(Error::corrupt(format!("log of a dedup table of version {}", info & 0xff)));
        }
        let checkpoint = if flags & CHECKPOINT != 0 { Some(key(&mut r)?) } else { None };
        Ok(DedupLogHead { is_flushing: flags & FLUSHING != 0, len, first_txg, checkpoint })
    }

    /// The bytes of the bonus buffer.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut flags = if self.is_flushing { FLUSHING } else { 0 };
        flags |= if self.checkpoint.is_some() { CHECKPOINT } else { 0 };
        let words = [VERSION | flags << 8, self.len, self.first_txg];
        let checkpoint = self.checkpoint.unwrap_or_default();
        words.iter().chain(&checkpoint).flat_map(|word| word.to_le_bytes()).collect()
    }
}

fn key(r: &mut Reader<'_>) -> Result<EntryKey> {
    Ok([r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> DedupLogHead {
        DedupLogHead { is_flushing: true, len: 4096, first_txg: 7, checkpoint: None }
    }

    fn record(first: u64, value: u64) -> Vec<u8> {
        [ENTRY | 56 << 8, first, 0, 0, 0, 7, value].map(u64::to_le_bytes).concat()
    }

    #[test]
    fn later_records_count_and_flushed_ones_do_not() {
        let mut block = [record(1, 10), record(2, 20), record(3, 30), record(2, 21)].concat();
        block.resize(4096, 0);
        let head = DedupLogHead { checkpoint: Some([1, 0, 0, 0, 7]), ..head() };
        let mut found = BTreeMap::new();
        let mut note = |key: EntryKey, value: &[u8]| {
            found.insert(key[0], value[0]);
        };
        for_each_in_block(&block, &head, &mut note).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(2, 21), (3, 30)]);
        assert_eq!(DedupLogHead::read(&head.to_bytes()).unwrap(), head);
        assert_eq!(DedupLogHead::read(&DedupLogHead { len: 9, ..head }.to_bytes()).unwrap().len, 9);
    }

    #[test]
    fn a_portion_has_the_first_keys_and_their_last_values() {
        let mut portion = LogPortion::default();
        for (key, value) in [(7, 1), (3, 1), (9, 1), (5, 1), (3, 2), (9, 2), (1, 1)] {
            portion.add([key, 0, 0, 0, 0], &[value], 3);
        }
        let found: Vec<(u64, u8)> = portion.entries.iter().map(|(key, value)| (key[0], value[0])).collect();
        assert_eq!((found, portion.checkpoint), (vec![(1, 1), (3, 2), (5, 1)], Some([5, 0, 0, 0, 0])));
        let mut portion = LogPortion::default();
        [4, 2].iter().for_each(|&key| portion.add([key; 5], &[], 2));
        assert_eq!((portion.entries.len(), portion.checkpoint), (2, None));
    }

    #[test]
    fn parts_have_each_key_once_and_about_as_many() {
        let blocks: Vec<Vec<u8>> = (0..1000).map(|n| record(n, n)).collect();
        let mut counts = Vec::new();
        for number in 0..8 {
            let part = LogPart { number, parts: 8, salt: 77, entries: BTreeMap::new() };
            let mut count = 0;
            let mut add = |key, _: &[u8]| count += usize::from(part.has(&key));
            blocks.iter().for_each(|block| for_each_in_block(block, &head(), &mut add).unwrap());
            counts.push(count);
        }
        assert_eq!(counts.iter().sum::<usize>(), 1000);
        assert!(counts.iter().all(|count| (60..250).contains(count)), "{counts:?}");
    }

    #[test]
    fn records_that_make_no_sense() {
        for info in [2, ENTRY, ENTRY | 47 << 8, ENTRY | 305 << 8, ENTRY | 4097 << 8] {
            let mut block = info.to_le_bytes().to_vec();
            block.resize(4096, 0);
            assert!(for_each_in_block(&block, &head(), &mut |_, _| ()).is_err());
        }
        assert!(DedupLogHead::read(&[2; 64]).is_err() && DedupLogHead::read(&[1]).is_err());
    }
}
