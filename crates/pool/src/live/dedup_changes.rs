//! What a group changes of dedup tables: pointers that it makes to deduplicated blocks, and those that it releases.
//!
//! ```text
//!   block to be written ─▶ find ─▶ made so far, else the tables as the last group left them
//!                     └──▶ add ──▶ made
//!   block to be freed ───▶ release ─▶ released
//!                                        phase "tables" takes both, and changes entries in the order of their keys
//! ```
//!
//! Nothing of the tables is kept here: their blocks are in the cache as others are, so that they have a share of memory
//! and no more. What a group has made takes about a hundred bytes a block until it is on disk.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::{Error, Kind, Mutex, MutexGuard, Result};
use codec::checksum::Checksum;
use dmu::zap::{Zap, ZapEntry};
use dmu::{Objset, OnFailure};
use dsl::PropertyValue;
use format::blkptr::BlkPtr;
use format::ddt::{BLOCKS, DdtKey, DdtPhys};
use format::ids::Txg;
use zio::{Class, RefTable, Twin};

use super::entry_limit::EntryLimit;
use crate::dedup::directory::DdtDirectory;
use crate::dedup::packed::{DdtForm, unpack};
use crate::dedup::{is_folder, is_table};
use crate::mos::DIRECTORY;

/// Pointers that one group takes at least off the list of frees that were put off.
const PUT_OFF_MIN: u64 = 4096;

/// Values of `dedup_table_quota`.
const QUOTA_NONE: u64 = 0;
const QUOTA_AUTO: u64 = u64::MAX;
/// Percent of vdevs for tables that they may fill by themselves, and what they leave free of large ones, in bytes.
const AUTO_PERCENT: u64 = 85;
const AUTO_SPARE_BYTES: u64 = 8 << 30;

/// What the group that is on its way to disk changes.
#[derive(Default)]
pub(super) struct DedupChanges {
    changes: Mutex<DedupGroup>,
    /// Where the tables are.
    mos: OnceLock<Weak<Objset>>,
    /// Property `dedup_table_quota`, in bytes.
    quota: Quota,
    has_logs: AtomicBool,
    entry_limit: EntryLimit,
    /// Is held while tables are pruned.
    pruning: Mutex<()>,
}

struct Quota(AtomicU64);

impl Default for Quota {
    fn default() -> Quota {
        Quota(AtomicU64::new(QUOTA_AUTO))
    }
}

#[derive(Default)]
pub(super) struct DedupGroup {
    /// By number of the checksum, and key: pointers that are gone, and how many of each.
    pub(super) released: BTreeMap<(u8, DdtKey), Vec<(BlkPtr, u64)>>,
    /// By number of the checksum, key, and which block of the entry it is: blocks, each with the number of new pointers
    /// to it.
    pub(super) made: BTreeMap<(u8, DdtKey, usize), DdtPhys>,
    /// Entries that are to be pruned, with their blocks.
    pub(super) old: Vec<((u8, DdtKey), DdtPhys)>,
    /// Pointers that are gone, and more than a group takes.
    pub(super) put_off: Vec<BlkPtr>,
    /// The tables as the last group left them, by number of the checksum.
    pub(super) directories: BTreeMap<u8, DdtDirectory>,
    /// Whether there are to be no new entries.
    is_full: Option<bool>,
}

impl RefTable for DedupChanges {
    fn release(&self, bp: &BlkPtr) -> bool {
        if !bp.is_dedup() {
            return false;
        }
        let changes = &mut *self.changes.lock();
        let key = (bp.checksum_kind(), DdtKey::of(bp));
        let is_full = changes.released.len() >= self.entry_limit.get() && !changes.released.contains_key(&key);
        if is_full || self.has_logs() {
            changes.put_off.push(*bp);
            return true;
        }
        let of_entry = changes.released.entry(key).or_default();
        let is_same = |known: &BlkPtr| known.dvas()[0] == bp.dvas()[0] && known.physical_birth() == bp.physical_birth();
        match of_entry.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, count)) => *count += 1,
            None => of_entry.push((*bp, 1)),
        }
        true
    }

    fn prepare(&self, checksum: u8, keys: &[DdtKey]) {
        let Some(mos) = self.mos.get().and_then(Weak::upgrade).filter(|_| !self.has_logs()) else { return };
        if let Ok(Some(directory)) = self.directory(&mos, checksum) {
            prefetch(&mos, &directory, keys.iter().copied());
        }
    }

    fn find(&self, txg: Txg, checksum: u8, key: &DdtKey, copies: u8) -> Result<Twin> {
        let Some(mos) = self.mos.get().and_then(Weak::upgrade).filter(|_| !self.has_logs()) else {
            return Ok(Twin::Refused);
        };
        // the group cannot do without the answer
        let mos = mos.reading(OnFailure::Wait);
        let Some(directory) = self.directory(&mos, checksum)? else { return Ok(Twin::Refused) };
        let which = directory.form.block_of(copies);
        // a flat table has a block once, whatever number of copies it has
        let has_copies = |block: &DdtPhys| key.dvas(block).count() >= usize::from(copies);
        if let Some(block) = self.changes.lock().made.get(&(checksum, *key, which)) {
            return Ok(if has_copies(block) { Twin::There(*block) } else { Twin::Refused });
        }
        let Some(blocks) = stored(&mos, &directory, key)? else {
            return Ok(if self.is_full(&mos)? { Twin::Refused } else { Twin::First });
        };
        let block = blocks[which];
        let has_place = key.dvas(&block).all(|dva| mos.cache().zio().tree().top(dva.vdev()).is_ok());
        let is_sane = key.dvas(&block).count() > 0 && has_place && block.birth < txg;
        match (block.is_none(), directory.form) {
            (true, _) => Ok(Twin::First),
            (false, _) if is_sane && has_copies(&block) => Ok(Twin::There(block)),
            (false, DdtForm::Flat) if is_sane => Ok(Twin::Refused),
            _ => Err(Error::corrupt(format!("entry {key:?} of a dedup table makes no sense"))),
        }
    }

    fn add(&self, checksum: u8, key: &DdtKey, copies: u8, block: &DdtPhys) {
        let changes = &mut *self.changes.lock();
        let form = changes.directories.get(&checksum).map_or(DdtForm::Traditional, |directory| directory.form);
        changes.note_pointer((checksum, *key, form.block_of(copies)), block);
    }
}

impl DedupChanges {
    /// The tables are in that MOS. A second call changes nothing.
    pub(super) fn set_mos(&self, mos: &Arc<Objset>) {
        let _ = self.mos.set(Arc::downgrade(mos));
    }

    /// There is a pointer more to a block that was taken as it is. False if no table has it: it is not deduplicated, or was
    /// pruned. Errors: those of reading the tables.
    pub(super) fn add_clone(&self, bp: &BlkPtr) -> Result<bool> {
        let Some(mos) = self.mos.get().and_then(Weak::upgrade).filter(|_| bp.is_dedup()) else { return Ok(false) };
        if self.has_logs() {
            return Err(Error::new(Kind::Unsupported, "a clone of a block whose dedup table is not complete yet"));
        }
        let (kind, key) = (bp.checksum_kind(), DdtKey::of(bp));
        // the group cannot do without the answer
        let mos = mos.reading(OnFailure::Wait);
        let Some(directory) = self.directory(&mos, kind)? else { return Ok(false) };
        let blocks = stored(&mos, &directory, &key)?;
        let found = blocks.iter().flatten().enumerate().find(|(_, block)| block.is_that_of(bp));
        found.inspect(|(which, block)| self.changes.lock().note_pointer((kind, key, *which), block));
        Ok(found.is_some())
    }

    /// How many entries a group changes because pointers are gone.
    pub(super) fn entry_limit(&self) -> &EntryLimit {
        &self.entry_limit
    }

    /// How many pointers that were put off the group has room for.
    pub(super) fn room(&self) -> u64 {
        let limit = self.entry_limit.get() as u64;
        limit.saturating_sub(self.changes.lock().released.len() as u64).max(PUT_OFF_MIN.min(limit))
    }

    /// Whether nothing was changed since the last time.
    pub(super) fn is_empty(&self) -> bool {
        let changes = self.changes.lock();
        changes.released.is_empty() && changes.made.is_empty() && changes.old.is_empty() && changes.put_off.is_empty()
    }

    /// What was changed since the last time.
    pub(super) fn take(&self) -> DedupGroup {
        std::mem::take(&mut *self.changes.lock())
    }

    /// Takes note of a property of the pool.
    pub(super) fn note_property(&self, name: &str, value: &PropertyValue) {
        if name == "dedup_table_quota" {
            let bytes = if let PropertyValue::Number(bytes) = value { *bytes } else { QUOTA_AUTO };
            self.quota.0.store(bytes, Ordering::Relaxed);
        }
    }

    /// Whether the tables are as large as they may become.
    fn is_full(&self, mos: &Arc<Objset>) -> Result<bool> {
        if let Some(is_full) = self.changes.lock().is_full {
            return Ok(is_full);
        }
        let is_full = match self.quota.0.load(Ordering::Relaxed) {
            QUOTA_NONE => false,
            QUOTA_AUTO => {
                let allocator = mos.cache().zio().allocator()?;
                let space = [Class::Dedup, Class::Special].map(|class| allocator.class_space(class));
                space.into_iter().find(|space| space.size > 0).is_some_and(|space| {
                    let limit = space.size / 100 * AUTO_PERCENT;
                    space.allocated >= limit.max(space.size.saturating_sub(AUTO_SPARE_BYTES))
                })
            }
            bytes => table_bytes(mos)? > bytes,
        };
        self.changes.lock().is_full = Some(is_full);
        Ok(is_full)
    }

    /// The tables of a checksum as the last group left them.
    fn directory(&self, mos: &Arc<Objset>, kind: u8) -> Result<Option<DdtDirectory>> {
        if let Some(directory) = self.changes.lock().directories.get(&kind) {
            return Ok(Some(directory.clone()));
        }
        let Some(checksum) = Checksum::from_u8(kind) else { return Ok(None) };
        let directory = DdtDirectory::find(mos, checksum)?;
        self.changes.lock().directories.insert(kind, directory.clone());
        Ok(Some(directory))
    }

    /// Whether there are logs that have not gone into their tables: until they have, nobody knows what a table should
    /// say, so nothing is deduplicated, and frees are put off.
    pub(super) fn has_logs(&self) -> bool {
        self.has_logs.load(Ordering::Relaxed)
    }

    /// Tables are pruned by one thread at a time; `None` if that is so now.
    pub(super) fn prune_alone(&self) -> Option<MutexGuard<'_, ()>> {
        self.pruning.try_lock()
    }

    /// The group takes these entries out, with these blocks, if it does not change them.
    pub(super) fn prune(&self, old: Vec<((u8, DdtKey), DdtPhys)>) {
        self.changes.lock().old.extend(old);
    }

    /// There are such logs, or none any more.
    pub(super) fn set_has_logs(&self, has_logs: bool) {
        self.has_logs.store(has_logs, Ordering::Relaxed);
    }
}

impl DedupGroup {
    /// There is a pointer more to a block of an entry.
    fn note_pointer(&mut self, place: (u8, DdtKey, usize), block: &DdtPhys) {
        self.made.entry(place).or_insert(DdtPhys { references: 0, ..*block }).references += 1;
    }
}

/// Has what tables say of these keys read ahead; errors are for the look-ups.
pub(super) fn prefetch(mos: &Arc<Objset>, directory: &DdtDirectory, keys: impl Iterator<Item = DdtKey> + Clone) {
    for table in directory.tables.into_iter().flatten() {
        if let Ok(table) = mos.object(table).and_then(Zap::open) {
            table.prefetch_u64_keys(keys.clone().map(|key| key.words()));
        }
    }
}

/// The blocks of an entry, as tables had them before the group.
fn stored(mos: &Arc<Objset>, directory: &DdtDirectory, key: &DdtKey) -> Result<Option<[DdtPhys; BLOCKS]>> {
    for table in directory.tables.into_iter().flatten() {
        if let Some(value) = Zap::open(mos.object(table)?)?.lookup_u64_key(&key.words())? {
            return unpack(value.bytes()).map(Some);
        }
    }
    Ok(None)
}

/// Bytes that all tables take up.
fn table_bytes(mos: &Arc<Objset>) -> Result<u64> {
    let mut bytes = 0u64;
    let mut add = |row: &ZapEntry| -> Result<()> {
        if let (true, Some(id)) = (is_table(&row.name.to_string()), row.value.first_object()) {
            bytes = bytes.saturating_add(mos.object(id)?.dnode().used_bytes);
        }
        Ok(())
    };
    for row in Zap::open(mos.object(DIRECTORY)?)?.entries()? {
        match row.value.first_object() {
            Some(id) if is_folder(&row.name.to_string()) => {
                Zap::open(mos.object(id)?)?.entries()?.iter().try_for_each(&mut add)?;
            }
            _ => add(&row)?,
        }
    }
    Ok(bytes)
}
