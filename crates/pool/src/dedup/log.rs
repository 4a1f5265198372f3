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
/// Blocks of a log at most.
const BLOCKS_MAX: u64 = 1 << 20;

/// Whether that is the name of a log.
pub(crate) fn is_log(name: &str) -> bool {
    name.starts_with("DDT-log-")
}

/// What the logs of a checksum hold: values by key, words as bytes in little-endian order.
pub(crate) fn read(logs: &[Object]) -> Result<BTreeMap<EntryKey, Vec<u8>>> {
    let mut logs = logs.iter().map(|log| Ok((Head::read(log.bonus())?, log))).collect::<Result<Vec<_>>>()?;
    logs.sort_by_key(|(head, _)| !head.is_flushing);
    let mut entries = BTreeMap::new();
    for (head, log) in logs {
        let size = log.dnode().block_size;
        let blocks = head.len.div_ceil(size.max(1));
        if blocks > BLOCKS_MAX {
            return Err(log.placed(Error::corrupt(format!("log of a dedup table of {} bytes", head.len)), 0, 0));
        }
        let mut block = vec![0; size as usize];
        for number in 0..blocks {
            log.read(number * size, &mut block)?;
            add_block(&block, &head, &mut entries).map_err(|e| log.placed(e, 0, number))?;
        }
    }
    Ok(entries)
}

struct Head {
    is_flushing: bool,
    len: u64,
    checkpoint: Option<EntryKey>,
}

impl Head {
    fn read(bonus: &[u8]) -> Result<Head> {
        let mut r = Reader::new(bonus, Endian::Little);
        let (info, len, _first_txg) = (r.u64()?, r.u64()?, r.u64()?);
        let flags = info >> 8 & 0xff;
        if info & 0xff != VERSION {
            return Err(Error::corrupt(format!("log of a dedup table of version {}", info & 0xff)));
        }
        let checkpoint = if flags & CHECKPOINT != 0 { Some(key(&mut r)?) } else { None };
        Ok(Head { is_flushing: flags & FLUSHING != 0, len, checkpoint })
    }
}

fn key(r: &mut Reader<'_>) -> Result<EntryKey> {
    Ok([r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?])
}

fn add_block(block: &[u8], head: &Head, entries: &mut BTreeMap<EntryKey, Vec<u8>>) -> Result<()> {
    let mut rest = block;
    while let Some(info) = Endian::Little.u64(rest.get(..8).unwrap_or_default()) {
        let (kind, len) = (info & 0xff, (info >> 8 & 0xffff) as usize);
        match kind {
            0 => break,
            ENTRY if (RECORD_HEAD..=rest.len()).contains(&len) => {}
            _ => {
                return Err(Error::corrupt(format!("record of type {kind} and {len} bytes in a log of a dedup table")));
            }
        }
        let (record, behind) = rest.split_at(len);
        let key = key(&mut Reader::new(&record[8..], Endian::Little))?;
        if head.checkpoint.is_none_or(|last| key > last) {
            entries.insert(key, record[RECORD_HEAD..].to_vec());
        }
        rest = behind;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(first: u64, value: u64) -> Vec<u8> {
        [ENTRY | 56 << 8, first, 0, 0, 0, 7, value].map(u64::to_le_bytes).concat()
    }

    #[test]
    fn later_records_count_and_flushed_ones_do_not() {
        let mut block = [record(1, 10), record(2, 20), record(3, 30), record(2, 21)].concat();
        block.resize(4096, 0);
        let mut entries = BTreeMap::new();
        let head = Head { is_flushing: true, len: 4096, checkpoint: Some([1, 0, 0, 0, 7]) };
        add_block(&block, &head, &mut entries).unwrap();
        let found: Vec<(u64, u8)> = entries.iter().map(|(key, value)| (key[0], value[0])).collect();
        assert_eq!(found, [(2, 21), (3, 30)]);
    }

    #[test]
    fn records_that_make_no_sense() {
        for info in [2, ENTRY, ENTRY | 47 << 8, ENTRY | 4097 << 8] {
            let mut block = info.to_le_bytes().to_vec();
            block.resize(4096, 0);
            let head = Head { is_flushing: false, len: 4096, checkpoint: None };
            assert!(add_block(&block, &head, &mut BTreeMap::new()).is_err());
        }
        assert!(Head::read(&[2; 64]).is_err() && Head::read(&[1]).is_err());
    }
}
