//! The dedup tables of a pool one by one, and their entries, as `zdb -D` shows them.

use std::ops::ControlFlow;

use base::{Endian, Error, Result, ResultExt};
use codec::checksum::Checksum;
use dmu::Object;
use dmu::zap::{Zap, ZapEntry, ZapKey};
use format::blkptr::BlkPtr;
use format::ddt::{DdtKey, DdtPhys};
use format::ids::ObjectId;

use super::directory::{DdtDirectory, FLAGS, LOGS, VERSION, checksums, log_name};
use super::log::{self, DedupLogHead};
use super::packed::{DdtForm, FLAT_BLOCK, blocks_of, unpack};
use super::sums::DedupSums;
use super::{CLASSES, STATISTICS, UNIQUE, table_name};
use crate::{Pool, object_directory};

/// The tables and logs of a checksum.
#[derive(Clone, Debug)]
pub struct DedupTables {
    /// That checksum.
    pub checksum: Checksum,
    /// 0 for tables as they were first, 1 for those of feature fast_dedup.
    pub version: u64,
    /// 1 if there is one block in an entry, 2 if there may be logs.
    pub flags: u64,
    /// The object that names them.
    pub names: ObjectId,
    /// Those that have entries, duplicate before unique.
    pub tables: Vec<DedupTable>,
    /// None, or two of them.
    pub logs: Vec<DedupLog>,
    form: DdtForm,
}

/// A table.
#[derive(Clone, Debug)]
pub struct DedupTable {
    /// As in `DDT-sha256-zap-unique`.
    pub name: String,
    /// Whether its blocks have one pointer each.
    pub is_unique: bool,
    /// Where it is.
    pub object: ObjectId,
    /// What it takes.
    pub size: TableSize,
    /// Sums by the binary logarithm of the number of references.
    pub histogram: Vec<DedupSums>,
}

/// What a table takes.
#[derive(Clone, Copy, Debug)]
pub struct TableSize {
    /// Bytes on the devices.
    pub disk_bytes: u64,
    /// Bytes in RAM when it is read whole.
    pub core_bytes: u64,
    /// Number of entries.
    pub entries: u64,
}

/// A log.
#[derive(Clone, Debug)]
pub struct DedupLog {
    /// As in `DDT-log-sha256-0`.
    pub name: String,
    /// Whether it goes into the tables.
    pub is_flushing: bool,
    /// Where it is; none if it has not been made.
    pub object: Option<ObjectId>,
    /// Its length in bytes.
    pub len: u64,
    /// The group in which it began to grow.
    pub first_txg: u64,
    /// The last key that has gone into the tables.
    pub checkpoint: Option<[u64; 5]>,
    /// Number of keys that have not.
    pub entries: u64,
}

/// An entry of a table, or of a log.
#[derive(Clone, Debug)]
pub struct DedupEntry {
    /// Where it is: in a table what the place behind it is called, in a log a count from 0.
    pub index: u64,
    /// Its blocks: which of the entry's, the number of references, and a pointer to it.
    pub blocks: Vec<(usize, u64, BlkPtr)>,
}

/// Is told what a log holds.
type OnLogged<'a> = dyn FnMut([u64; 5], &[u8]) -> Result<()> + 'a;

/// Is told of entries, until it breaks.
type OnEntry<'a> = dyn FnMut(DedupEntry) -> ControlFlow<()> + 'a;

impl TableSize {
    /// That of the table in an object.
    pub(super) fn of(object: Object) -> Result<TableSize> {
        let dnode = object.dnode();
        let filled: u64 = dnode.blkptrs.iter().fold(0, |sum, bp| sum.saturating_add(bp.fill()));
        let (disk_bytes, core_bytes) = (dnode.used_bytes, filled.saturating_mul(dnode.block_size));
        Ok(TableSize { disk_bytes, core_bytes, entries: Zap::open(object)?.len() })
    }
}

impl Pool {
    /// The dedup tables one by one, in the order of checksums. Errors: `Unsupported`; those of reading.
    pub fn dedup_tables(&self) -> Result<Vec<DedupTables>> {
        let tables = checksums().filter_map(|checksum| self.read_tables(checksum).transpose());
        tables.collect::<Result<Vec<_>>>().in_pool(self.name())
    }

    /// Tells of the entries of a table in the order of their keys. Errors: `Corrupt`; those of reading.
    pub fn dedup_entries(&self, of: &DedupTables, table: &DedupTable, f: &mut OnEntry<'_>) -> Result<()> {
        self.read_table_entries(of, table.object, f).in_pool(self.name())
    }

    /// Tells of the entries of a log, of which long ones are in several runs, each in the order of keys. Errors:
    /// `Corrupt`; those of reading.
    pub fn dedup_log_entries(&self, of: &DedupTables, log: &DedupLog, f: &mut OnEntry<'_>) -> Result<()> {
        let Some(id) = log.object else { return Ok(()) };
        let (mut index, mut flow) = (0, ControlFlow::Continue(()));
        let mut each = |words, value: &[u8]| {
            if flow.is_continue() {
                flow = f(of.entry(index, words, &blocks_of(value, Endian::Little)?));
            }
            index += 1;
            Ok(())
        };
        self.for_each_logged(id, &mut each).in_pool(self.name())
    }

    fn for_each_logged(&self, id: ObjectId, f: &mut OnLogged<'_>) -> Result<()> {
        log::for_each(&[self.mos().object(id)?], self.cache().zio().env().random(), f)
    }

    fn read_tables(&self, checksum: Checksum) -> Result<Option<DedupTables>> {
        let DdtDirectory { names, form, tables, logs } = DdtDirectory::find(self.mos(), checksum)?;
        let is_none = tables.iter().all(Option::is_none) && logs.iter().all(Option::is_none);
        let Some(names) = names.filter(|_| form == DdtForm::Flat || !is_none) else { return Ok(None) };
        let mut found =
            DedupTables { checksum, version: 0, flags: 0, names, tables: Vec::new(), logs: Vec::new(), form };
        if form == DdtForm::Flat {
            let directory = Zap::open(self.mos().object(names)?)?;
            found.version = directory.require_u64(VERSION.0)?;
            found.flags = directory.require_u64(FLAGS.0)?;
        }
        for (number, id) in tables.into_iter().enumerate() {
            let Some(object) = id else { continue };
            let (name, size) = (table_name(checksum, CLASSES[number]), TableSize::of(self.mos().object(object)?)?);
            if size.entries > 0 {
                let histogram = self.table_histogram(&name)?;
                found.tables.push(DedupTable { name, is_unique: number == UNIQUE, object, size, histogram });
            }
        }
        if found.flags & FLAGS.1 == FLAGS.1 {
            found.logs = (0..LOGS).map(|n| self.read_log(checksum, n, logs[n])).collect::<Result<_>>()?;
        }
        Ok(Some(found))
    }

    fn table_histogram(&self, name: &str) -> Result<Vec<DedupSums>> {
        let Some(id) = object_directory(self.mos())?.object_id(STATISTICS)? else { return Ok(Vec::new()) };
        let words = Zap::open(self.mos().object(id)?)?.lookup(name.as_bytes())?;
        Ok(words.map_or(Vec::new(), |words| words.u64s().chunks(8).map(DedupSums::of).collect()))
    }

    fn read_log(&self, checksum: Checksum, number: usize, object: Option<ObjectId>) -> Result<DedupLog> {
        let name = log_name(checksum, number);
        let Some(id) = object else {
            // the second is the one that would go into the tables
            let is_flushing = number + 1 == LOGS;
            return Ok(DedupLog { name, is_flushing, object, len: 0, first_txg: 0, checkpoint: None, entries: 0 });
        };
        let DedupLogHead { is_flushing, len, first_txg, checkpoint } = DedupLogHead::of(&self.mos().object(id)?)?;
        let mut entries = 0;
        self.for_each_logged(id, &mut |_, _| {
            entries += 1;
            Ok(())
        })?;
        Ok(DedupLog { name, is_flushing, object, len, first_txg, checkpoint, entries })
    }

    fn read_table_entries(&self, of: &DedupTables, object: ObjectId, f: &mut OnEntry<'_>) -> Result<()> {
        let table = Zap::open(self.mos().object(object)?)?;
        let mut result = Ok(());
        table.for_each_from(0, &mut |entry| match of.stored_entry(&entry) {
            Ok(entry) => f(entry),
            Err(e) => {
                result = Err(e.at_block(table.bookmark()));
                ControlFlow::Break(())
            }
        })?;
        result
    }
}

impl DedupTables {
    fn stored_entry(&self, entry: &ZapEntry) -> Result<DedupEntry> {
        let words = match &entry.name {
            ZapKey::U64s(words) => words[..].try_into().ok(),
            ZapKey::Bytes(_) => None,
        };
        let words = words.ok_or_else(|| Error::corrupt("key of a dedup table is not 5 words"))?;
        Ok(self.entry(entry.cookie, words, &unpack(entry.value.bytes())?))
    }

    fn entry(&self, index: u64, words: [u64; 5], blocks: &[DdtPhys]) -> DedupEntry {
        let key = DdtKey::from_words(words);
        let number = |n: usize| if self.form == DdtForm::Flat { n - FLAT_BLOCK } else { n };
        let there = blocks.iter().enumerate().filter(|(_, block)| !block.is_none());
        let blocks = there.map(|(n, block)| (number(n), block.references, key.listed(block, self.checksum as u8)));
        DedupEntry { index, blocks: blocks.collect() }
    }
}
