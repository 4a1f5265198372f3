//! Pointers to cloned blocks that a group adds and releases.
//!
//! ```text
//!   object directory: com.fudosecurity:brt:vdev:N ──▶ header (bonus), entries of each 16 MiB (contents)
//!                                                       └─▶ ZAP: offset ──▶ further pointers to the block there
//!   phase "clones":  dmu::Objset::clones_in of each head ─▶ CloneChanges::add: a pointer more
//!   zio::Zio::free ─▶ CloneChanges::release ─┬─ no entry: the block is to be freed
//!                                             └─ an entry: a pointer less, and the block stays
//!   phase "tables":  an entry is made, changed, or goes with its last further pointer; a table goes with its last entry
//! ```
//!
//! What a group adds is counted before it frees anything: so a block that it takes and frees is not free.
//! A block with one pointer has no entry, so every block of data that is freed is looked for; where nothing was ever
//! cloned on a vdev, there is no table, and that is known without reading. Blocks of dedup tables are counted there
//! alone ([`DedupChanges::add_clone`](super::dedup_changes::DedupChanges::add_clone)), but for those that were pruned.
//!
//! Source: OpenZFS's description of the feature block_cloning, and its behaviour.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use base::{Mutex, Result};
use dmu::zap::Zap;
use dmu::{Objset, OnFailure, dsize};
use format::blkptr::BlkPtr;
use format::ids::VdevNumber;
use zio::CloneTable;

use super::entry_limit::EntryLimit;
use crate::clones::{CloneHeader, count_of, header_name};
use crate::mos::DIRECTORY;

/// What the group that is on its way to disk adds and releases.
#[derive(Default)]
pub(super) struct CloneChanges {
    group: Mutex<ChangedClones>,
    /// Where the tables are.
    mos: OnceLock<Weak<Objset>>,
    entry_limit: EntryLimit,
}

#[derive(Default)]
pub(super) struct ChangedClones {
    /// By vdev and offset: entries that are changed.
    pub(super) entries: BTreeMap<(VdevNumber, u64), CloneEntry>,
    /// Pointers that are gone, and more than a group takes.
    pub(super) put_off: Vec<BlkPtr>,
    /// Tables by vdev; `None` where there is none.
    headers: BTreeMap<VdevNumber, Option<CloneHeader>>,
}

/// An entry that is changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct CloneEntry {
    /// Further pointers before the group.
    pub(super) before: u64,
    /// Those that are left.
    pub(super) left: u64,
    /// Bytes that the block takes.
    pub(super) bytes: u64,
}

impl CloneTable for CloneChanges {
    fn release(&self, bp: &BlkPtr) -> bool {
        if bp.is_dedup() || bp.level() > 0 || bp.object_type().is_metadata() {
            return false;
        }
        // a block that may have other pointers is not for anybody else to use
        self.take_one(bp).unwrap_or_else(|error| {
            tracing::error!(?bp, "a block stays, as its clones cannot be counted: {error}");
            true
        })
    }
}

impl CloneChanges {
    /// The tables are in that MOS. A second call changes nothing.
    pub(super) fn set_mos(&self, mos: &Arc<Objset>) {
        let _ = self.mos.set(Arc::downgrade(mos));
    }

    /// How many entries a group changes because pointers are gone.
    pub(super) fn entry_limit(&self) -> &EntryLimit {
        &self.entry_limit
    }

    /// Whether nothing was added or released since the last time.
    pub(super) fn is_empty(&self) -> bool {
        let group = self.group.lock();
        group.entries.is_empty() && group.put_off.is_empty()
    }

    /// What was added and released since the last time.
    pub(super) fn take(&self) -> ChangedClones {
        std::mem::take(&mut *self.group.lock())
    }

    /// There is a pointer more to a block. Errors: those of reading its table.
    pub(super) fn add(&self, bp: &BlkPtr) -> Result<()> {
        let Some(mos) = self.waiting_mos() else { return Ok(()) };
        let place = place_of(bp);
        let is_known = self.group.lock().entries.contains_key(&place);
        let stored = if is_known { 0 } else { self.stored(&mos, place)? };
        let new = CloneEntry { before: stored, left: stored, bytes: dsize(mos.cache(), bp) };
        let group = &mut *self.group.lock();
        let entry = group.entries.entry(place).or_insert(new);
        entry.left = entry.left.saturating_add(1);
        Ok(())
    }

    /// Takes a pointer off an entry. False if there is none left.
    fn take_one(&self, bp: &BlkPtr) -> Result<bool> {
        let Some(mos) = self.waiting_mos() else { return Ok(false) };
        let place = place_of(bp);
        if let Some(entry) = self.group.lock().entries.get_mut(&place) {
            let is_left = entry.left > 0;
            entry.left = entry.left.saturating_sub(1);
            return Ok(is_left);
        }
        let before = self.stored(&mos, place)?;
        let group = &mut *self.group.lock();
        if before > 0 && group.entries.len() >= self.entry_limit.get() {
            group.put_off.push(*bp);
        } else if before > 0 {
            let bytes = dsize(mos.cache(), bp);
            group.entries.insert(place, CloneEntry { before, left: before - 1, bytes });
        }
        Ok(before > 0)
    }

    /// The MOS; the group cannot do without what it says.
    fn waiting_mos(&self) -> Option<Arc<Objset>> {
        Some(self.mos.get()?.upgrade()?.reading(OnFailure::Wait))
    }

    /// Further pointers that the table on disk tells of.
    fn stored(&self, mos: &Arc<Objset>, (vdev, offset): (VdevNumber, u64)) -> Result<u64> {
        let Some(header) = self.header(mos, vdev)? else { return Ok(0) };
        let stored = Zap::open(mos.object(header.entries)?)?.lookup_u64_key(&[offset])?;
        Ok(stored.map(|value| count_of(&value, header.endian)).transpose()?.unwrap_or(0))
    }

    /// The table of a vdev.
    fn header(&self, mos: &Arc<Objset>, vdev: VdevNumber) -> Result<Option<CloneHeader>> {
        if let Some(header) = self.group.lock().headers.get(&vdev) {
            return Ok(*header);
        }
        let object = Zap::open(mos.object(DIRECTORY)?)?.object_id(&header_name(vdev))?;
        let header = object.map(|id| mos.object(id).and_then(|object| CloneHeader::of(&object))).transpose()?;
        self.group.lock().headers.insert(vdev, header);
        Ok(header)
    }
}

fn place_of(bp: &BlkPtr) -> (VdevNumber, u64) {
    let dva = &bp.dvas()[0];
    (dva.vdev(), dva.offset())
}
