//! Destroying heads that have neither snapshots nor children.
//!
//! The records go at once. The blocks go to the queue of destroyed heads ([`super::bptree`]), if the pool has the
//! feature, and their accounts to the directory `$FREE`; else the caller frees them in this group.

use base::{Error, Kind, Result, ResultExt};
use dmu::bpobj::Totals;
use dmu::zap::Zap;
use format::dsl::DatasetPhys;

use super::Change;
use super::bptree::Destroyed;
use super::create::refuse_encrypted;
use super::feature::{ASYNC_DESTROY, BOOKMARK_WRITTEN, BOOKMARKS};
use super::space::{Column, Delta};
use crate::Dsl;

const BOOKMARKS_FIELD: &str = "com.delphix:bookmarks";
/// A bookmark tells how much was freed before the next snapshot.
const FLAG_FREED_BEFORE_NEXT: u64 = 1;

impl Change<'_> {
    /// Destroys the file system or volume of that name. `dsl` is that of the MOS that is being changed.
    ///
    /// Returns what to do with its blocks. Nobody may have it open. Errors: `NotFound`; `NotEmpty` if it has
    /// snapshots or children; `Unsupported` if its origin waits for it to be destroyed; `Encrypted`.
    pub fn destroy(&self, dsl: &Dsl, name: &str) -> Result<Destroyed> {
        let dir = dsl.find_dir(name)?;
        let head = dsl.head(&dir)?;
        if dir.phys.parent == 0 {
            return Err(Error::new(Kind::Invalid, "operation does not apply to pools"));
        }
        let has_snapshots = self.entries_of(head.phys.snapnames_zap)? > 0;
        if has_snapshots || self.entries_of(dir.phys.child_zap)? > 0 {
            return Err(Error::new(Kind::NotEmpty, "filesystem has children"));
        }
        refuse_encrypted(dsl, &dir)?;
        if head.phys.prev_snap != 0 {
            let origin = self.dataset(head.phys.prev_snap)?;
            if origin.flags & DatasetPhys::FLAG_DEFER_DESTROY != 0 && origin.num_children == 2 {
                let what = "the origin is to be destroyed with it, and destroying snapshots is not supported yet";
                return Err(Error::new(Kind::Unsupported, what));
            }
        }
        self.destroy_head(dir.id, head.id, name).in_dataset(name)
    }

    fn destroy_head(&self, dir: u64, id: u64, name: &str) -> Result<Destroyed> {
        self.forget_refreservation(dir, id)?;
        self.drop_livelist(dir)?;
        let head = self.dataset(id)?;
        self.leave_origin(&head, id)?;
        self.free_deadlist(head.deadlist)?;
        let destroyed = self.give_up_blocks(dir, &head)?;
        self.free_bookmarks(id)?;
        self.leave_features(id)?;
        self.free_object(head.snapnames_zap)?;
        self.free_record(id)?;
        self.destroy_dir(dir, name.rsplit_once('/').map_or(name, |(_, name)| name))?;
        Ok(destroyed)
    }

    fn forget_refreservation(&self, dir: u64, head: u64) -> Result<()> {
        let reserved = self.refreservation_of(dir)?;
        let unique = self.dataset(head)?.unique_bytes;
        match reserved.saturating_sub(unique) as i64 {
            0 => Ok(()),
            rest => self.charge(dir, Column::Refreservation, Delta::used(-rest)),
        }
    }

    fn leave_origin(&self, head: &DatasetPhys, id: u64) -> Result<()> {
        if head.prev_snap == 0 {
            return Ok(());
        }
        let origin = self.dataset(head.prev_snap)?;
        let key = format!("{id:x}");
        if origin.next_clones_zap != 0 {
            self.remove(origin.next_clones_zap, &key)?;
        }
        self.update_dataset(head.prev_snap, |phys| phys.num_children = phys.num_children.saturating_sub(1))?;
        match self.dir(origin.dir)?.clones_zap {
            0 => Ok(()),
            clones => self.remove(clones, &key).map(drop),
        }
    }

    /// Takes the head's blocks from its directory's accounts, and into the queue.
    fn give_up_blocks(&self, dir: u64, head: &DatasetPhys) -> Result<Destroyed> {
        let phys = self.dir(dir)?;
        let all = Delta {
            used: phys.used_bytes as i64,
            compressed: phys.compressed_bytes as i64,
            uncompressed: phys.uncompressed_bytes as i64,
        };
        let totals =
            Totals { used: phys.used_bytes, compressed: phys.compressed_bytes, uncompressed: phys.uncompressed_bytes };
        self.charge(dir, Column::Head, all.negative())?;
        if head.bp.is_hole() || head.bp.reference_birth() <= head.prev_snap_txg {
            return Ok(Destroyed::Nothing);
        }
        if !self.has_feature(ASYNC_DESTROY)? {
            return Ok(Destroyed::Blocks { root: head.bp, since_txg: head.prev_snap_txg });
        }
        self.charge(self.own_dir("$FREE")?, Column::Head, all)?;
        self.queue_destroyed(&head.bp, head.prev_snap_txg, totals)?;
        Ok(Destroyed::Queued)
    }

    fn free_bookmarks(&self, head: u64) -> Result<()> {
        let object = self.mos.object(head)?;
        if object.dnode().object_type.0 != 0xc4 {
            return Ok(());
        }
        let Some(table) = Zap::open(object)?.u64(BOOKMARKS_FIELD)? else { return Ok(()) };
        for entry in Zap::open(self.mos.object(table)?)?.entries()? {
            let words = entry.value.u64s();
            if let Some(&redaction) = words.get(3).filter(|id| **id != 0) {
                self.free_object(redaction)?;
                self.count_feature("com.delphix:redaction_bookmarks", -1)?;
            }
            if words.get(4).is_some_and(|flags| flags & FLAG_FREED_BEFORE_NEXT != 0) {
                self.count_feature(BOOKMARK_WRITTEN, -1)?;
            }
        }
        self.free_object(table)?;
        self.remove(head, BOOKMARKS_FIELD)?;
        self.count_feature(BOOKMARKS, -1).map(drop)
    }

    /// Notes that a dataset uses a feature, if that is not noted yet: it has blocks that only versions with
    /// the feature can read.
    pub fn use_feature(&self, dataset: u64, guid: &str) -> Result<()> {
        self.zapify(dataset)?;
        if self.number(dataset, guid)?.is_some() {
            return Ok(());
        }
        self.add(dataset, guid, 0)?;
        self.count_feature(guid, 1).map(drop)
    }

    /// Notes that a dataset uses no feature any more.
    fn leave_features(&self, dataset: u64) -> Result<()> {
        let object = self.mos.object(dataset)?;
        if object.dnode().object_type.0 != 0xc4 {
            return Ok(());
        }
        for entry in Zap::open(object)?.entries()? {
            self.count_feature(&entry.name.to_string(), -1)?;
        }
        Ok(())
    }

    fn destroy_dir(&self, id: u64, name: &str) -> Result<()> {
        self.reserve(id, 0)?;
        let dir = self.dir(id)?;
        self.adjust_counts(dir.parent, -1, 0)?;
        for table in [dir.child_zap, dir.props_zap, dir.clones_zap] {
            self.free_object(table)?;
        }
        if dir.deleg_zap != 0 {
            // one table of permissions for each user, group or set
            for entry in Zap::open(self.mos.object(dir.deleg_zap)?)?.entries()? {
                self.free_object(entry.value.first_u64().unwrap_or(0))?;
            }
            self.free_object(dir.deleg_zap)?;
        }
        let parent = self.dir(dir.parent)?;
        self.remove(parent.child_zap, name)?;
        self.free_record(id)
    }
}
