//! Destroying heads that have neither snapshots nor children.
//!
//! The records go at once. The blocks go to the queue of destroyed heads ([`super::bptree`]), if the pool has the
//! feature, and their accounts to the directory `$FREE`; else the caller frees them in this group.

use base::{Error, Kind, Result, ResultExt};
use dmu::bpobj::Totals;
use dmu::zap::Zap;
use format::blkptr::BlkPtr;
use format::dsl::DatasetPhys;
use format::feature::ASYNC_DESTROY;

use super::Change;
use super::bookmark::Bookmarks;
use super::bptree::Destroyed;
use super::create::refuse_encrypted;
use super::deadlist::Deadlist;
use super::space::{Delta, UsedColumn};
use crate::Dsl;

impl Change<'_> {
    /// Destroys the file system or volume of that name. `dsl` is that of the MOS that is being changed.
    ///
    /// Returns what to do with its blocks. Nobody may have it open. An origin whose destruction has waited for that goes,
    /// too. Errors: `NotFound`; `NotEmpty` if it has snapshots or children; `Encrypted`.
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
        let origin = match head.phys.prev_snap {
            0 => None,
            origin => Some((origin, dsl.name_of(origin)?)),
        };
        let destroyed = self.destroy_head(dir.id, head.id, name).in_dataset(name)?;
        if let Some((origin, name)) = origin {
            let own = name.split_once('@').map_or("", |(_, own)| own);
            self.remove_if_deferred(origin, own)?;
        }
        Ok(destroyed)
    }

    fn destroy_head(&self, dir: u64, id: u64, name: &str) -> Result<Destroyed> {
        self.forget_refreservation(dir, id)?;
        self.drop_livelist(dir)?;
        let head = self.dataset(id)?;
        self.leave_origin(&head, id)?;
        Deadlist::open(self, head.deadlist)?.free()?;
        let destroyed = self.give_up_blocks(dir, &head)?;
        Bookmarks::open(self, id)?.free()?;
        self.leave_features(id)?;
        self.forget_boot_file_system(id)?;
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
            rest => self.charge(dir, UsedColumn::Refreservation, Delta::used(rest.wrapping_neg())),
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
        self.charge(dir, UsedColumn::Head, all.negative())?;
        self.discard(&head.bp, head.prev_snap_txg, totals)
    }

    /// Gives up the blocks below a root that were born after `since_txg`, and which nothing refers to any more.
    pub(super) fn discard(&self, root: &BlkPtr, since_txg: u64, totals: Totals) -> Result<Destroyed> {
        if root.is_hole() || root.reference_birth() <= since_txg {
            return Ok(Destroyed::Nothing);
        }
        if !self.has_feature(ASYNC_DESTROY)? {
            return Ok(Destroyed::Blocks { root: *root, since_txg });
        }
        self.charge(self.own_dir("$FREE")?, UsedColumn::Head, Delta::between(Totals::default(), totals))?;
        self.queue_destroyed(root, since_txg, totals)?;
        Ok(Destroyed::Queued)
    }

    fn destroy_dir(&self, id: u64, name: &str) -> Result<()> {
        self.reserve(id, 0)?;
        let dir = self.dir(id)?;
        // what receives is not counted
        if !name.starts_with('%') {
            self.adjust_counts(dir.parent, -1, 0)?;
        }
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
