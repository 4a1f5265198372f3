//! What readers found damaged: mended in the next group, or written to the error log.
//!
//! ```text
//!   zio::Damage ──▶ is the block still at its place, in the last group on disk? ──▶ no: forgotten
//!                       │ a copy is right                        │ none is
//!                       ▼                                        ▼
//!                   Zio::heal                               errlog_last, or while a scrub runs errlog_scrub
//! ```
//!
//! A block of the last group on disk can be freed in the group that is being synced, and no earlier. What is freed is
//! used again two groups later: so nobody else writes to its place while it is mended here.
//!
//! Format of the log: [`crate::errlog`].

use base::{Bookmark, Result};
use dmu::zap::{Zap, ZapValue};
use dsl::write::feature;
use format::blkptr::BlkPtr;
use format::feature::HEAD_ERRLOG;
use format::ids::{DatasetId, ObjectId, Txg};
use format::object_type::ObjectType;
use vdev::Lacking;

use super::{LivePool, SyncContext};
use crate::errlog::{ENTRIES_MAX, ErrlogEntry, LOGS, PointerFinder};
use crate::mos::DIRECTORY;
use crate::{Pool, errlog};

/// Bytes of blocks that are mended in one group, and blocks that are taken at once.
const MEND_BYTES: u64 = 256 << 20;
const BLOCKS_AT_ONCE: usize = 64;

impl LivePool {
    /// Whether readers have found something that is neither mended nor written down.
    pub(super) fn has_damage(&self) -> bool {
        !self.cache().zio().damage().is_empty()
    }

    /// Mends blocks of which a copy is right. What cannot be mended now is found again by its next reader.
    pub(super) fn mend(&self) {
        let zio = self.cache().zio();
        let view = self.view();
        let mut places = PointerFinder::of(&view);
        let mut bytes = 0;
        while bytes < MEND_BYTES {
            let wounded = zio.damage().take_wounded(BLOCKS_AT_ONCE);
            if wounded.is_empty() {
                return;
            }
            for (place, bp) in wounded {
                bytes += bp.psize();
                if !places.has(&place, &bp) {
                    continue;
                }
                if let Err(error) = zio.heal(&bp, Lacking::Leave) {
                    tracing::warn!(pool = self.name(), %place, "a damaged copy was not mended: {error}");
                }
            }
        }
    }
}

impl SyncContext<'_> {
    /// Writes blocks without a right copy to the error log.
    pub(super) fn log_lost(&self) -> Result<()> {
        let lost = self.pool.cache().zio().damage().take_lost();
        if lost.is_empty() {
            return Ok(());
        }
        let view = self.pool.view().reading(self.change.mos.cache().on_failure())?;
        let mut places = PointerFinder::of(&view);
        let lost: Vec<(Bookmark, BlkPtr)> = lost.into_iter().filter(|(place, bp)| places.has(place, bp)).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let name = LOGS[usize::from(self.pool.scan().is_scrubbing())];
        let log = match self.log_named(name)? {
            Some(log) => log,
            None => self.make_log(name)?,
        };
        self.notify_of_lost(lost.iter().map(|(place, _)| *place));
        let is_by_head = feature::uses(&self.change, HEAD_ERRLOG)?.is_some();
        for (place, bp) in lost {
            tracing::error!(pool = self.pool.name(), %place, "no copy is right");
            let Bookmark { objset, object, level, blkid } = place;
            let nothing = ZapValue::of_text("");
            if is_by_head {
                let of_head = self.log_of_head(log, self.head_of(&view, DatasetId::new(objset)))?;
                let birth = bp.physical_birth();
                self.log_entry(of_head, &format!("{object:x}:{level:x}:{blkid:x}:{birth:x}"), &nothing)?;
            } else {
                self.log_entry(log, &format!("{objset:x}:{object:x}:{level:x}:{blkid:x}"), &nothing)?;
            }
        }
        Ok(())
    }

    /// A block that no copy of was right has been mended: it is in no log any more.
    pub(super) fn unlog(&self, view: &Pool, place: &Bookmark, bp: &BlkPtr) -> Result<()> {
        self.pool.cache().zio().damage().forget_lost(bp);
        let Bookmark { objset, object, level, blkid } = *place;
        let is_by_head = feature::uses(&self.change, HEAD_ERRLOG)?.is_some();
        for name in LOGS {
            let Some(log) = self.log_named(name)? else { continue };
            if !is_by_head {
                self.change.remove(log, &format!("{objset:x}:{object:x}:{level:x}:{blkid:x}"))?;
                continue;
            }
            let head = format!("{:x}", self.head_of(view, DatasetId::new(objset)));
            let Some(of_head) = self.change.object_id(log, &head)? else { continue };
            for birth in [bp.physical_birth(), bp.birth()] {
                self.change.remove(of_head, &format!("{object:x}:{level:x}:{blkid:x}:{birth:x}"))?;
            }
            self.free_if_empty(log, &head, of_head)?;
        }
        Ok(())
    }

    /// An entry is not in the logs any more.
    pub(super) fn remove_entry(&self, entry: &ErrlogEntry) -> Result<()> {
        let (head, key) = entry.keys();
        for name in LOGS {
            let Some(log) = self.log_named(name)? else { continue };
            let Some(head) = &head else {
                self.change.remove(log, &key)?;
                continue;
            };
            let Some(of_head) = self.change.object_id(log, head)? else { continue };
            self.change.remove(of_head, &key)?;
            self.free_if_empty(log, head, of_head)?;
        }
        Ok(())
    }

    /// What was born up to `until` is looked for from another head on: that of a clone which was promoted, as the first may
    /// be destroyed before it.
    pub(super) fn move_entries(&self, (from, to): (DatasetId, DatasetId), until: Txg) -> Result<()> {
        let change = &self.change;
        if feature::uses(change, HEAD_ERRLOG)?.is_none() {
            return Ok(());
        }
        for name in LOGS {
            let Some(log) = self.log_named(name)? else { continue };
            let head = format!("{from:x}");
            let Some(of_head) = change.object_id(log, &head)? else { continue };
            for row in Zap::open(change.mos.object(of_head)?)?.entries()? {
                let key = row.name.to_string();
                if errlog::birth_in(&key)? <= until {
                    self.log_entry(self.log_of_head(log, to)?, &key, &row.value)?;
                    change.remove(of_head, &key)?;
                }
            }
            self.free_if_empty(log, &head, of_head)?;
        }
        Ok(())
    }

    fn free_if_empty(&self, log: ObjectId, head: &str, of_head: ObjectId) -> Result<()> {
        if self.change.entries_of(of_head)? == 0 {
            self.change.remove(log, head)?;
            self.change.free_object(of_head)?;
        }
        Ok(())
    }

    fn log_entry(&self, log: ObjectId, key: &str, value: &ZapValue) -> Result<()> {
        match self.change.entries_of(log)? < ENTRIES_MAX as u64 {
            true => self.change.set(log, key, value),
            false => Ok(()),
        }
    }

    /// Brings the logs into the form of `head_errlog`, which is being enabled. Blocks that are no more are left out; of
    /// one that cannot be looked for, the birth is told as 0, which stands for any.
    pub(super) fn split_error_logs(&self) -> Result<()> {
        let mut logs = Vec::new();
        for name in LOGS {
            logs.extend(self.log_named(name)?.map(|log| (name, log)));
        }
        if logs.is_empty() {
            // a new pool has none, and nothing to look in
            return Ok(());
        }
        let view = self.pool.view().reading(self.change.mos.cache().on_failure())?;
        let mut places = PointerFinder::of(&view);
        for (name, log) in logs {
            let entries = view.entries_of_blocks(log)?;
            self.change.free_object(log)?;
            let log = self.change.create_table(ObjectType::ERROR_LOG)?;
            self.change.set(DIRECTORY, name, &ZapValue::one(log.get()))?;
            for entry in entries {
                let Some(birth) = entry.look_for_birth(&mut places) else { continue };
                let head = self.head_of(&view, entry.dataset());
                let (_, key) = entry.of_head(head, birth).keys();
                let of_head = self.log_of_head(log, head)?;
                self.log_entry(of_head, &key, &ZapValue::of_text(""))?;
            }
        }
        Ok(())
    }

    fn log_named(&self, name: &str) -> Result<Option<ObjectId>> {
        Ok(self.change.object_id(DIRECTORY, name)?.filter(|log| log.is_some()))
    }

    fn make_log(&self, name: &str) -> Result<ObjectId> {
        let log = self.change.create_table(ObjectType::ERROR_LOG)?;
        for other in LOGS.iter().filter(|&&other| other != name) {
            if self.change.object_id(DIRECTORY, other)?.is_none() {
                self.change.add(DIRECTORY, other, 0)?;
            }
        }
        self.change.set(DIRECTORY, name, &ZapValue::one(log.get()))?;
        Ok(log)
    }

    /// Labels of leaves in use are written anew if one of them is damaged.
    pub(super) fn mend_labels(&self) -> Result<()> {
        let (pool, pool_guid) = (self.pool, self.pool.config().guid);
        match pool.tree().leaves().any(|leaf| pool.leaf_watch().has_damaged_label(leaf, pool_guid)) {
            true => self.write_config(),
            false => Ok(()),
        }
    }

    /// A scrub has ended: what it found is the log now, and what was known before is forgotten.
    pub(super) fn rotate_error_logs(&self) -> Result<()> {
        let change = &self.change;
        let [last, scrub] = LOGS.map(|name| change.object_id(DIRECTORY, name).map(Option::unwrap_or_default));
        let (last, scrub) = (last?, scrub?);
        if last.is_some() {
            if feature::uses(change, HEAD_ERRLOG)?.is_some() {
                for (_, of_head) in change.by_number(last)? {
                    change.free_object(ObjectId::new(of_head))?;
                }
            }
            change.free_object(last)?;
        }
        if last.is_some() || scrub.is_some() {
            change.set(DIRECTORY, LOGS[0], &ZapValue::one(scrub.get()))?;
            change.set(DIRECTORY, LOGS[1], &ZapValue::one(0))?;
        }
        Ok(())
    }

    /// The table of a head's entries in a log.
    fn log_of_head(&self, log: ObjectId, head: DatasetId) -> Result<ObjectId> {
        let key = format!("{head:x}");
        if let Some(table) = self.change.object_id(log, &key)? {
            return Ok(table);
        }
        let table = self.change.create_table(ObjectType::ERROR_LOG)?;
        self.change.add(log, &key, table.get())?;
        Ok(table)
    }

    /// The head of the file system that a dataset is of; one that is gone, and the MOS, stand for themselves.
    fn head_of(&self, view: &Pool, dataset: DatasetId) -> DatasetId {
        let name = format!("object {dataset}");
        let dir = view.dsl().dataset(dataset, &name).and_then(|dataset| self.change.dir(dataset.phys.dir));
        dir.map_or(dataset, |dir| dir.head_dataset)
    }
}
