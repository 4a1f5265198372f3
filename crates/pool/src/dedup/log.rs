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
//! has gone. What a log says of a key counts more than a table's word, and the growing log's the most.
//!
//! Source: OpenZFS's behaviour (ddt_log.c), and its description of fast dedup.

use std::collections::BTreeMap;

use base::{Endian, Error, Reader, Result};
use dmu::Object;

/// Key of an entry: checksum, and sizes and compression.
pub(crate) type EntryKey = [u64; 5];

const VERSION: u64 = 1;
const FLUSHING: u64 = 1;
const CHECKPOINT: u64 = 1 << 1;
const ENTRY: u64 = 1;
const RECORD_HEAD: usize = 6 * 8;
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
        let size = log.dnode().block_size;
        let mut block = vec![0; size as usize];
        for number in 0..head.len.div_ceil(size.max(1)) {
            log.read(number * size, &mut block)?;
            self.add_block(&block, head).map_err(|e| log.placed(e, 0, number))?;
        }
        Ok(())
    }

    fn has(&self, key: &EntryKey) -> bool {
        // a pool cannot know which keys come together
        let mixed =
            key.iter().fold(self.salt, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        (mixed ^ mixed >> 32) % self.parts == self.number
    }

    fn add_block(&mut self, block: &[u8], head: &DedupLogHead) -> Result<()> {
        let mut rest = block;
        while let Some(info) = Endian::Little.u64(rest.get(..8).unwrap_or_default()) {
            let (kind, len) = (info & 0xff, (info >> 8 & 0xffff) as usize);
            match kind {
                0 => break,
                ENTRY if (RECORD_HEAD..=rest.len()).contains(&len) => {}
                _ => {
                    return Err(Error::corrupt(format!(
                        "record of type {kind} and {len} bytes in a log of a dedup table"
                    )));
                }
            }
            let (record, behind) = rest.split_at(len);
            let key = key(&mut Reader::new(&record[8..], Endian::Little))?;
            if self.has(&key) && head.checkpoint.is_none_or(|last| key > last) {
                self.entries.insert(key, record[RECORD_HEAD..].to_vec());
            }
            rest = behind;
        }
        Ok(())
    }
}

struct DedupLogHead {
    is_flushing: bool,
    len: u64,
    checkpoint: Option<EntryKey>,
}

impl DedupLogHead {
    fn read(bonus: &[u8]) -> Result<DedupLogHead> {
        let mut r = Reader::new(bonus, Endian::Little);
        let (info, len, _first_txg) = (r.u64()?, r.u64()?, r.u64()?);
        let flags = info >> 8 & 0xff;
        if info & 0xff != VERSION {
            return Err(Error::corrupt(format!("log of a dedup table of version {}", info & 0xff)));
        }
        let checkpoint = if flags & CHECKPOINT != 0 { Some(key(&mut r)?) } else { None };
        Ok(DedupLogHead { is_flushing: flags & FLUSHING != 0, len, checkpoint })
    }
}

fn key(r: &mut Reader<'_>) -> Result<EntryKey> {
    Ok([r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> LogPart {
        LogPart { number: 0, parts: 1, salt: 5, entries: BTreeMap::new() }
    }

    fn record(first: u64, value: u64) -> Vec<u8> {
        [ENTRY | 56 << 8, first, 0, 0, 0, 7, value].map(u64::to_le_bytes).concat()
    }

    #[test]
    fn later_records_count_and_flushed_ones_do_not() {
        let mut block = [record(1, 10), record(2, 20), record(3, 30), record(2, 21)].concat();
        block.resize(4096, 0);
        let head = DedupLogHead { is_flushing: true, len: 4096, checkpoint: Some([1, 0, 0, 0, 7]) };
        let mut part = whole();
        part.add_block(&block, &head).unwrap();
        let found: Vec<(u64, u8)> = part.entries.iter().map(|(key, value)| (key[0], value[0])).collect();
        assert_eq!(found, [(2, 21), (3, 30)]);
    }

    #[test]
    fn parts_have_each_key_once_and_about_as_many() {
        let blocks: Vec<Vec<u8>> = (0..1000).map(|n| record(n, n)).collect();
        let head = DedupLogHead { is_flushing: false, len: 4096, checkpoint: None };
        let mut counts = Vec::new();
        for number in 0..8 {
            let mut part = LogPart { number, parts: 8, salt: 77, entries: BTreeMap::new() };
            blocks.iter().for_each(|block| part.add_block(block, &head).unwrap());
            counts.push(part.entries.len());
        }
        assert_eq!(counts.iter().sum::<usize>(), 1000);
        assert!(counts.iter().all(|count| (60..250).contains(count)), "{counts:?}");
    }

    #[test]
    fn records_that_make_no_sense() {
        for info in [2, ENTRY, ENTRY | 47 << 8, ENTRY | 4097 << 8] {
            let mut block = info.to_le_bytes().to_vec();
            block.resize(4096, 0);
            let head = DedupLogHead { is_flushing: false, len: 4096, checkpoint: None };
            assert!(whole().add_block(&block, &head).is_err());
        }
        assert!(DedupLogHead::read(&[2; 64]).is_err() && DedupLogHead::read(&[1]).is_err());
    }
}
