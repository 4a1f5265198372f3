//! Dedup tables: each new pointer adds a reference to the block's entry, each that is gone takes one off, and the last
//! one frees the block.
//!
//! ```text
//!   zio::Zio::write_batch ─▶ DedupChanges::add ─┐
//!   zio::Zio::free ─▶ DedupChanges::release ────┴─▶ by checksum and key; too many to free: the list of frees
//!                                                            │                         that are put off
//!   after heads and tasks, before the MOS:                   ▼
//!     entry in DDT-sha256-zap-duplicate ─┬─▶ fewer references, the same table
//!                                        ├─▶ one reference left: into DDT-sha256-zap-unique
//!                                        └─▶ none: the entry goes, the block is free
//!     DDT-statistics ─▶ sums of each table by references, less what the entry was, plus what it is
//! ```
//!
//! Blocks of extra copies, which only old versions made, are freed with the first change of their entry, as OpenZFS
//! does. A block that is in no table stays allocated: nobody knows how many pointers refer to it. But what is not in a
//! flat table (feature fast_dedup) was pruned from it, when it had one pointer: that is freed as any other block.
//!
//! Nothing is written to the logs of flat tables: changes go to the tables with their group, so that none has to be kept
//! in memory until its turn comes. What others have left in logs is brought into the tables when the pool is imported
//! ([`super::dedup_logs`]); then a directory has none, as one that OpenZFS has just made.

use std::collections::BTreeMap;

use base::{Error, Kind, Result};
use codec::checksum::Checksum;
use dmu::zap::{Editor, Zap, ZapValue};
use dsl::write::feature;
use format::blkptr::BlkPtr;
use format::ddt::{BLOCKS, DdtKey, DdtPhys, EXTRA};
use format::dnode::Dnode;
use format::feature::FAST_DEDUP;
use format::ids::ObjectId;
use format::object_type::ObjectType;
use format::zap::ZapHeader;

use super::SyncContext;
use super::dedup_changes::{self, DedupGroup};
use crate::dedup::directory::{DdtDirectory, FLAGS, VERSION, folder_name, log_name};
use crate::dedup::packed::{DdtForm, FLAT_BLOCK, pack, unpack};
use crate::dedup::{BUCKETS, CLASSES, DUPLICATE, DedupSums, STATISTICS, UNIQUE, table_name};
use crate::mos::DIRECTORY;

/// log2 of the bytes of a table's blocks.
const TABLE_SHIFT: u8 = 12;
/// Entries whose places are read together, before they are changed one after the other.
const ENTRIES_AHEAD: usize = 1024;
/// Sums of a bucket: blocks, lsize, psize, dsize, and the same of all references.
const SUMS: usize = 8;

impl SyncContext<'_> {
    /// Brings what the group has changed into the tables, and frees the blocks that nobody refers to any more.
    pub(super) fn write_dedup_tables(&self) -> Result<()> {
        let DedupGroup { released, made, old, put_off, directories, .. } = self.pool.dedup_changes().take();
        let mut entries: BTreeMap<(u8, DdtKey), EntryChange> = BTreeMap::new();
        for (entry, released) in released {
            entries.entry(entry).or_default().released = released;
        }
        for ((kind, key, block), made) in made {
            entries.entry((kind, key)).or_default().made.push((block, made));
        }
        for (entry, block) in old {
            entries.entry(entry).or_default().old = Some(block);
        }
        let mut freed = Vec::new();
        let mut tables: Option<Tables<'_>> = None;
        let entries: Vec<((u8, DdtKey), EntryChange)> = entries.into_iter().collect();
        for (n, ((kind, key), change)) in entries.iter().enumerate() {
            if tables.as_ref().is_none_or(|tables| tables.kind != *kind) {
                tables.take().map_or(Ok(()), Tables::finish)?;
            }
            let tables = match &mut tables {
                Some(tables) => tables,
                none => none.insert(Tables::open(self, *kind, directories.get(kind))?),
            };
            if n % ENTRIES_AHEAD == 0 {
                let ahead = entries[n..].iter().take(ENTRIES_AHEAD).map(|(entry, _)| entry);
                tables.prefetch(ahead.filter(|(other, _)| other == kind).map(|(_, key)| *key));
            }
            freed.extend(tables.change(key, change)?);
        }
        tables.map_or(Ok(()), Tables::finish)?;
        freed.iter().for_each(|bp| self.pool.free(&self.change, bp));
        if !put_off.is_empty() {
            self.pool.put_off_list(&self.change)?.append(self.change.tx, &put_off, self.change.size_of)?;
            // so that the next group comes soon
            self.pool.frees().put_off(true);
        }
        Ok(())
    }
}

/// What becomes of an entry.
#[derive(Default)]
struct EntryChange {
    /// Pointers that are gone, and how many of each.
    released: Vec<(BlkPtr, u64)>,
    /// Which block of the entry, and blocks with the number of new pointers to each.
    made: Vec<(usize, DdtPhys)>,
    /// The block of an entry that is to be pruned, if nothing else becomes of it.
    old: Option<DdtPhys>,
}

/// The tables of one checksum while entries are changed.
pub(super) struct Tables<'a> {
    context: &'a SyncContext<'a>,
    kind: u8,
    checksum: Checksum,
    directory: DdtDirectory,
    /// Sums of the tables that are there.
    sums: [Vec<u64>; CLASSES.len()],
}

impl<'a> Tables<'a> {
    /// `known` is how the group has found them, if it looked: it tells of what form new ones are.
    pub(super) fn open(context: &'a SyncContext<'a>, kind: u8, known: Option<&DdtDirectory>) -> Result<Tables<'a>> {
        let checksum = Checksum::from_u8(kind).filter(|checksum| checksum.is_concrete());
        let checksum = checksum.ok_or_else(|| Error::corrupt(format!("deduplicated block with checksum {kind}")))?;
        let found = DdtDirectory::find(context.change.mos, checksum)?;
        // the features of the pool may have changed with the group
        let is_new = found.tables.iter().all(Option::is_none);
        let directory = known.filter(|_| is_new).cloned().unwrap_or(found);
        let mut opened = Tables { context, kind, checksum, directory, sums: Default::default() };
        for class in 0..CLASSES.len() {
            if opened.directory.tables[class].is_some() {
                opened.sums[class] = opened.stored_sums(&opened.name(class))?;
            }
        }
        Ok(opened)
    }

    fn prefetch(&self, keys: impl Iterator<Item = DdtKey> + Clone) {
        dedup_changes::prefetch(self.context.change.mos, &self.directory, keys);
    }

    fn name(&self, class: usize) -> String {
        table_name(self.checksum, CLASSES[class])
    }

    fn stored_sums(&self, name: &str) -> Result<Vec<u64>> {
        let change = &self.context.change;
        let Some(statistics) = change.object_id(DIRECTORY, STATISTICS)? else { return Ok(vec![0; BUCKETS * SUMS]) };
        let stored = Zap::open(change.mos.object(statistics)?)?.lookup(name.as_bytes())?;
        let mut sums = stored.map(|value| value.u64s()).unwrap_or_default();
        sums.resize(BUCKETS * SUMS, 0);
        Ok(sums)
    }

    /// Adds references to an entry, and takes some off; the blocks that have none left.
    fn change(&mut self, key: &DdtKey, change: &EntryChange) -> Result<Vec<BlkPtr>> {
        if change.made.is_empty() && change.released.is_empty() {
            return change.old.map_or(Ok(()), |block| self.prune(key, &block)).map(|()| Vec::new());
        }
        let (class, mut blocks) = match self.find(key) {
            Ok(Some((class, blocks))) => (Some(class), blocks),
            Ok(None) if !change.made.is_empty() => (None, [DdtPhys::NONE; BLOCKS]),
            Ok(None) if self.directory.form == DdtForm::Flat => return Ok(pruned(&change.released)),
            Ok(None) => {
                tracing::error!(
                    pool = self.context.pool.name(),
                    ?key,
                    "a deduplicated block is in no table, and stays"
                );
                return Ok(Vec::new());
            }
            Err(error) if change.made.is_empty() && matches!(error.kind(), Kind::Checksum | Kind::Corrupt) => {
                tracing::error!(pool = self.context.pool.name(), ?key, "a deduplicated block stays: {error}");
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        if let Some(class) = class {
            self.count(class, key, &blocks, u64::wrapping_sub);
        }
        for (which, made) in &change.made {
            let block = &mut blocks[*which];
            if block.is_none() {
                *block = *made;
            } else {
                block.references = block.references.saturating_add(made.references);
            }
        }
        let mut freed = self.take_off(&mut blocks, &change.released);
        freed.extend(self.store(key, class, &mut blocks, self.context.change.env.now_s())?);
        Ok(freed)
    }

    /// Makes blocks the value of an entry, which a table has already if there is a `class`, and adds it to the sums.
    /// Returns those to which no pointer is left.
    fn store(
        &mut self,
        key: &DdtKey,
        class: Option<usize>,
        blocks: &mut [DdtPhys; BLOCKS],
        changed_s: u64,
    ) -> Result<Vec<BlkPtr>> {
        let freed = take_unused(key, blocks);
        let references = blocks.iter().fold(0u64, |sum, block| sum.saturating_add(block.references));
        let class_now = if references > 1 { DUPLICATE } else { UNIQUE };
        if let Some(class) = class.filter(|class| references == 0 || class_now != *class) {
            self.edit(class, |editor| editor.remove_u64_key(&key.words()))?;
        }
        if references > 0 {
            self.make(class_now)?;
            let value = ZapValue::of_bytes(&pack(blocks, self.directory.form, changed_s));
            self.edit(class_now, |editor| editor.set_u64_key(&key.words(), &value))?;
            self.count(class_now, key, blocks, u64::wrapping_add);
        }
        Ok(freed)
    }

    /// Makes what a log has of an entry its value. The sums are without such an entry. Returns the blocks to which no
    /// pointer is left.
    pub(super) fn store_logged(
        &mut self,
        key: &DdtKey,
        mut blocks: [DdtPhys; BLOCKS],
        changed_s: u64,
    ) -> Result<Vec<BlkPtr>> {
        let class = self.find_value(key)?.map(|(class, _)| class);
        self.store(key, class, &mut blocks, changed_s)
    }

    /// Takes an entry out, if its block has one pointer still, which stays.
    fn prune(&mut self, key: &DdtKey, block: &DdtPhys) -> Result<()> {
        match self.find(key)? {
            Some((UNIQUE, blocks)) if self.directory.form == DdtForm::Flat && blocks[FLAT_BLOCK] == *block => {
                self.count(UNIQUE, key, &blocks, u64::wrapping_sub);
                self.edit(UNIQUE, |editor| editor.remove_u64_key(&key.words()))
            }
            _ => Ok(()),
        }
    }

    /// Takes references off the blocks of an entry. Returns pointers to what is none of its blocks, and is to be freed.
    fn take_off(&self, blocks: &mut [DdtPhys; BLOCKS], released: &[(BlkPtr, u64)]) -> Vec<BlkPtr> {
        let mut others = Vec::new();
        for (bp, count) in released {
            match blocks.iter_mut().find(|block| block.is_that_of(bp)) {
                Some(block) if block.references >= *count => block.references -= count,
                Some(block) => {
                    tracing::error!(pool = self.context.pool.name(), ?bp, count, "more pointers than its entry tells");
                    block.references = 0;
                }
                None if self.directory.form == DdtForm::Flat => others.push((*bp, *count)),
                None => tracing::error!(pool = self.context.pool.name(), ?bp, "not the block of its entry, and stays"),
            }
        }
        pruned(&others)
    }

    /// The table that has an entry, and its value there.
    fn find_value(&self, key: &DdtKey) -> Result<Option<(usize, ZapValue)>> {
        for class in (0..CLASSES.len()).filter(|&class| self.directory.tables[class].is_some()) {
            if let Some(value) = self.edit(class, |editor| editor.lookup_u64_key(&key.words()))? {
                return Ok(Some((class, value)));
            }
        }
        Ok(None)
    }

    /// The table that has an entry, and its blocks.
    fn find(&self, key: &DdtKey) -> Result<Option<(usize, [DdtPhys; BLOCKS])>> {
        self.find_value(key)?.map(|(class, value)| Ok((class, unpack(value.bytes())?))).transpose()
    }

    /// Does something with a table that is there.
    fn edit<T>(&self, class: usize, work: impl FnOnce(&Editor<'_>) -> Result<T>) -> Result<T> {
        let table = self.directory.tables[class].expect("the table was found or made");
        let object = self.context.change.mos.object(table)?;
        work(&Editor::new(&object.changing(self.context.change.tx)))
    }

    /// Makes a table if it is not there.
    fn make(&mut self, class: usize) -> Result<()> {
        if self.directory.tables[class].is_some() {
            return Ok(());
        }
        let change = &self.context.change;
        let names = match self.directory.names {
            Some(names) => names,
            None => self.make_directory()?,
        };
        let object =
            change.mos.allocate(change.tx, Dnode::new(ObjectType::DDT_ZAP, 1 << TABLE_SHIFT, TABLE_SHIFT, 1, 1))?;
        let is_hash = if self.checksum.is_dedup_strong() { ZapHeader::FLAG_PRE_HASHED_KEY } else { 0 };
        let flags = ZapHeader::FLAG_HASH64 | ZapHeader::FLAG_UINT64_KEY | is_hash;
        Editor::create(&object.changing(change.tx), flags, 0, change.env.random())?;
        change.add(names, &self.name(class), object.id().get())?;
        self.directory.tables[class] = Some(object.id());
        self.sums[class] = vec![0; BUCKETS * SUMS];
        Ok(())
    }

    /// Makes the directory of flat tables.
    fn make_directory(&mut self) -> Result<ObjectId> {
        let change = &self.context.change;
        let names = change.create_table(ObjectType::ZAP_METADATA)?;
        [VERSION, FLAGS].iter().try_for_each(|(name, number)| change.add(names, name, *number))?;
        change.add(DIRECTORY, &folder_name(self.checksum), names.get())?;
        feature::count(change, FAST_DEDUP, 1)?;
        self.directory.names = Some(names);
        Ok(names)
    }

    /// Adds an entry to the sums of its table, or takes it off.
    fn count(&mut self, class: usize, key: &DdtKey, blocks: &[DdtPhys; BLOCKS], with: fn(u64, u64) -> u64) {
        let sums = DedupSums::of_entry(self.context.pool.tree(), key, blocks);
        let Some(bucket) = sums.ref_blocks.checked_ilog2() else { return };
        let of_bucket = &mut self.sums[class][bucket as usize * SUMS..][..SUMS];
        of_bucket.iter_mut().zip(sums.words()).for_each(|(sum, number)| *sum = with(*sum, number));
    }

    /// Writes the sums down; tables that are all empty go, and the directory that is only theirs.
    pub(super) fn finish(self) -> Result<()> {
        let change = &self.context.change;
        let statistics = match change.object_id(DIRECTORY, STATISTICS)? {
            Some(table) => table,
            None => {
                let table = change.create_table(ObjectType::DDT_STATS)?;
                change.add(DIRECTORY, STATISTICS, table.get())?;
                table
            }
        };
        let Some(names) = self.directory.names else { return Ok(()) };
        let is_logged = self.directory.logs.iter().any(Option::is_some);
        let mut entries = 0_u64;
        for class in (0..CLASSES.len()).filter(|&class| self.directory.tables[class].is_some()) {
            entries = entries.saturating_add(self.edit(class, |editor| editor.len())?);
        }
        for (class, table) in self.directory.tables.iter().enumerate() {
            let Some(table) = table else { continue };
            let name = self.name(class);
            if entries > 0 || is_logged {
                change.set(statistics, &name, &ZapValue::new(8, &self.sums[class]))?;
            } else {
                change.remove(names, &name)?;
                change.remove(statistics, &name)?;
                change.free_object(*table)?;
            }
        }
        if entries == 0 && !is_logged && self.directory.is_folder() {
            change.remove(DIRECTORY, &folder_name(self.checksum))?;
            change.free_object(names)?;
            feature::count(change, FAST_DEDUP, -1)?;
        }
        Ok(())
    }

    /// The logs have gone into the tables, and go.
    pub(super) fn remove_logs(&mut self) -> Result<()> {
        let change = &self.context.change;
        let Some(names) = self.directory.names else { return Ok(()) };
        for (number, log) in self.directory.logs.iter_mut().enumerate() {
            if let Some(log) = log.take() {
                change.remove(names, &log_name(self.checksum, number))?;
                change.free_object(log)?;
            }
        }
        Ok(())
    }

    /// The logs of the tables.
    pub(super) fn logs(&self) -> impl Iterator<Item = ObjectId> {
        self.directory.logs.into_iter().flatten()
    }
}

/// Pointers to blocks that were pruned from their table, as many as are gone: they are as those of other blocks.
fn pruned(released: &[(BlkPtr, u64)]) -> Vec<BlkPtr> {
    // each is in the group's memory once; what several pointers lead to is counted as a clone
    let each = |(bp, count): &(BlkPtr, u64)| std::iter::repeat_n(bp.without_dedup(), *count as usize);
    released.iter().flat_map(each).collect()
}

/// Takes the blocks out of an entry that no pointer refers to.
fn take_unused(key: &DdtKey, blocks: &mut [DdtPhys; BLOCKS]) -> Vec<BlkPtr> {
    let mut unused = Vec::new();
    for (which, block) in blocks.iter_mut().enumerate().filter(|(_, block)| !block.is_none()) {
        if which == EXTRA || block.references == 0 {
            unused.push(key.pointer(block));
            *block = DdtPhys::NONE;
        }
    }
    unused
}
