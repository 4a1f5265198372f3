//! Changing the dataset layer: making, renaming and destroying datasets, their properties, and the
//! accounts of the use of space.
//!
//! ```text
//!   create, destroy, rename            file systems and volumes, the pool's first objects
//!   snapshot, destroy_snapshot, rollback, clone, promote, hold, bookmark, receive
//!   props ─▶ limits                    values, checked by `crate::property::rules`; which of them are in force elsewhere
//!     │
//!   ledger ─▶ space                    what a head wrote and killed in a group, up the tree of directories
//!     │   └─▶ deadlist                 blocks that snapshots still refer to
//!   bptree                             blocks of destroyed heads and snapshots, freed little by little
//!   counts                             of file systems and snapshots below directories, which limits are about
//!   feature                            how many things use a feature
//!     ▼
//!   Change { MOS, group, time, chance }   objects, tables and records of the MOS
//! ```
//!
//! Each is functions on a [`Change`]; what has state of its own is a type that holds one.
//!
//! All of it runs in one thread, that which syncs a group: readers use a MOS of a group that is on disk.
//! What fails half way leaves the MOS in memory half changed, so whatever can be refused is checked before
//! the first change; errors behind that are those of reading the pool.
//!
//! Source: the behaviour of OpenZFS, and objects of its pools as zdb shows them.

mod bookmark;
mod bptree;
mod clone;
mod counts;
mod create;
mod deadlist;
mod destroy;
mod destroy_snapshot;
pub mod feature;
mod hold;
mod ledger;
mod limits;
mod livelist;
mod policy;
mod promote;
mod props;
mod receive;
mod received;
mod redact;
mod redaction_list;
mod rename;
mod rollback;
mod room;
mod snapshot;
mod space;
#[cfg(test)]
mod tests;
mod upgrade;
mod versions;

use std::sync::Arc;

use base::{Env, Error, Kind, Result};
use dmu::bpobj::Totals;
use dmu::zap::{Editor, Zap, ZapValue};
use dmu::{INDIRECT_SHIFT, Object, Objset, Tx};
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::dsl::{DatasetPhys, DirPhys};
use format::ids::{DatasetId, DirId, Guid, ObjectId};
use format::object_type::ObjectType;

use crate::dir::DIRECTORY;
pub use bookmark::{create_bookmark, destroy_bookmark};
pub use bptree::{Destroyed, free_destroyed, free_tree};
pub use clone::clone_snapshot;
pub use create::{Created, NewDataset, PoolDsl, create_dataset, create_pool_dsl};
pub use destroy::{DestroyedDataset, destroy_dataset};
pub use destroy_snapshot::{SnapshotFate, destroy_snapshots};
pub use hold::{GoneSnapshot, gone_with_clone, gone_without, hold, release};
pub use ledger::DatasetLedger;
pub use policy::{FileSystemOptions, file_system_options, log_throughput, set_reads, write_policy};
pub use promote::promote;
pub use props::{ObjsetProperty, inherit_property, set_property};
pub use receive::{BegunReceive, NewReceive, ReceivePoint, SNAPSHOT_EXISTS, StreamRedaction};
pub use receive::{
    begin_receive, end_receive, end_take_over, receive_point, resume_receive, save_receive_point, take_over,
};
pub use received::set_received;
pub use redact::{BegunRedaction, begin_redaction};
pub use redaction_list::append_redacted;
pub use rename::rename_dataset;
pub use rollback::{RolledBack, rename_snapshot, rollback};
pub use room::RoomLeft;
pub use snapshot::{Taken, take_snapshots};
pub use space::charge_mos;
pub use upgrade::upgrade_datasets;

/// What was refused of a change of several things, which then was not made: each thing, and why.
pub type RefusedChanges = Vec<(String, Error)>;

/// Bytes of a block of a new object or table.
const BLOCK_SIZE: u64 = 512;

/// What a change of the dataset layer needs: the MOS, the group that is being synced, time and chance.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// The MOS, open to be changed.
    pub mos: &'a Arc<Objset>,
    /// The group that is being synced.
    pub tx: &'a Tx<'a>,
    /// Time and chance.
    pub env: &'a Env,
    /// Bytes that a block takes on disk, without parity: what `used` counts.
    pub size_of: &'a dyn Fn(&BlkPtr) -> u64,
}

impl Change<'_> {
    /// The record of a directory.
    pub fn dir(&self, id: DirId) -> Result<DirPhys> {
        let object = self.mos.object(id.object())?;
        if object.dnode().bonus_type != ObjectType::DSL_DIR {
            return Err(Error::corrupt(format!("object {id} is no dataset directory")));
        }
        DirPhys::parse(object.bonus())
    }

    /// The record of a dataset.
    pub fn dataset(&self, id: DatasetId) -> Result<DatasetPhys> {
        let object = self.mos.object(id.object())?;
        if object.dnode().bonus_type != ObjectType::DSL_DATASET {
            return Err(Error::corrupt(format!("object {id} is no dataset")));
        }
        DatasetPhys::parse(object.bonus())
    }

    /// A directory and all above it.
    fn path_up(&self, dir: DirId) -> Result<Vec<DirId>> {
        let mut path = vec![dir];
        let mut at = dir;
        while path.len() <= crate::dir::DEPTH_MAX + 2 {
            at = self.dir(at)?.parent;
            if at.is_none() {
                return Ok(path);
            }
            path.push(at);
        }
        Err(Error::corrupt("dataset tree is no tree"))
    }

    /// A directory of the pool itself, which is right below the root.
    fn own_dir(&self, name: &str) -> Result<DirId> {
        let root = self.dir(self.root_dir()?)?;
        let absent = || Error::corrupt(format!("pool without a directory {name}"));
        self.number(root.child_zap, name)?.map(DirId::new).ok_or_else(absent)
    }

    /// The directory of the pool's root file system.
    fn root_dir(&self) -> Result<DirId> {
        Ok(DirId::of_object(self.in_directory("root_dataset")?))
    }

    fn update_dir(&self, id: DirId, f: impl FnOnce(&mut DirPhys)) -> Result<()> {
        let mut phys = self.dir(id)?;
        f(&mut phys);
        self.mos.object(id.object())?.update(self.tx, |dnode| dnode.bonus = phys.bonus())
    }

    fn update_dataset(&self, id: DatasetId, f: impl FnOnce(&mut DatasetPhys)) -> Result<()> {
        let mut phys = self.dataset(id)?;
        f(&mut phys);
        self.mos.object(id.object())?.update(self.tx, |dnode| dnode.bonus = phys.bonus())
    }

    /// Makes an object without contents.
    fn create_object(&self, kind: ObjectType, bonus: (ObjectType, Vec<u8>)) -> Result<Object> {
        let mut dnode = Dnode::new(kind, BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
        (dnode.bonus_type, dnode.bonus) = bonus;
        self.mos.allocate(self.tx, dnode)
    }

    /// Makes an empty table, and returns its object number.
    pub fn create_table(&self, kind: ObjectType) -> Result<ObjectId> {
        self.create_table_with(kind, (ObjectType::NONE, Vec::new()), 0)
    }

    /// The same, with a bonus buffer, and flags of how names are compared.
    fn create_table_with(&self, kind: ObjectType, bonus: (ObjectType, Vec<u8>), normflags: u64) -> Result<ObjectId> {
        let object = self.create_object(kind, bonus)?;
        Editor::create(&object.changing(self.tx), 0, normflags, self.env.random())?;
        Ok(object.id())
    }

    /// Makes the table with the number of the caller's choice, if there is no such object.
    pub fn create_table_at(&self, id: ObjectId, kind: ObjectType) -> Result<()> {
        match self.mos.object(id) {
            Err(e) if e.kind() == Kind::NotFound => {
                let dnode = Dnode::new(kind, BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
                let object = self.mos.allocate_at(self.tx, id, dnode)?;
                Editor::create(&object.changing(self.tx), 0, 0, self.env.random()).map(drop)
            }
            result => result.map(drop),
        }
    }

    /// Adds an entry to a table. Errors: `Exists`.
    pub fn add(&self, table: ObjectId, name: &str, number: u64) -> Result<()> {
        let object = self.mos.object(table)?;
        Editor::new(&object.changing(self.tx)).add(name.as_bytes(), &ZapValue::one(number))
    }

    /// Adds an entry to a table that is a set of objects, by their numbers.
    pub fn add_number(&self, table: ObjectId, number: ObjectId) -> Result<()> {
        self.add(table, &format!("{number:x}"), number.get())
    }

    /// Adds an entry, or changes its value.
    pub fn set(&self, table: ObjectId, name: &str, value: &ZapValue) -> Result<()> {
        let object = self.mos.object(table)?;
        Editor::new(&object.changing(self.tx)).set(name.as_bytes(), value)
    }

    /// Removes an entry, if it is there; whether it was.
    pub fn remove(&self, table: ObjectId, name: &str) -> Result<bool> {
        let object = self.mos.object(table)?;
        match Editor::new(&object.changing(self.tx)).remove(name.as_bytes()) {
            Err(e) if e.kind() == Kind::NotFound => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Number of entries of a table.
    pub fn entries_of(&self, table: ObjectId) -> Result<u64> {
        let object = self.mos.object(table)?;
        Editor::new(&object.changing(self.tx)).len()
    }

    /// The number of that name in a table; in one with number 0 there is none.
    pub fn number(&self, table: ObjectId, name: &str) -> Result<Option<u64>> {
        if table.is_none() { Ok(None) } else { Zap::open(self.mos.object(table)?)?.u64(name) }
    }

    /// As [`Change::number`], of the number of an object.
    pub fn object_id(&self, table: ObjectId, name: &str) -> Result<Option<ObjectId>> {
        Ok(self.number(table, name)?.map(ObjectId::new))
    }

    /// The object of that name in the object directory. Errors: `Corrupt` if there is none.
    pub fn in_directory(&self, name: &str) -> Result<ObjectId> {
        let absent = || Error::corrupt(format!("no '{name}' in the object directory"));
        self.object_id(DIRECTORY, name)?.ok_or_else(absent)
    }

    /// All entries of a table whose names are numbers in hex.
    pub fn by_number(&self, table: ObjectId) -> Result<Vec<(u64, u64)>> {
        let mut entries = Vec::new();
        for entry in Zap::open(self.mos.object(table)?)?.entries()? {
            let key = u64::from_str_radix(&entry.name.to_string(), 16);
            let (Ok(key), Some(number)) = (key, entry.value.first_u64()) else {
                return Err(Error::corrupt(format!("entry '{}' of table {table} is no number", entry.name)));
            };
            entries.push((key, number));
        }
        entries.sort_unstable();
        Ok(entries)
    }

    /// Frees an object or table; number 0 is none.
    pub fn free_object(&self, id: ObjectId) -> Result<()> {
        if id.is_none() { Ok(()) } else { self.mos.free_object(self.tx, id) }
    }

    /// What a block counts for.
    fn totals(&self, bp: &BlkPtr) -> Totals {
        Totals::of(bp, (self.size_of)(bp))
    }

    /// Whether the pool is of that version, or a later one.
    fn is_since(&self, version: u64) -> Result<bool> {
        Ok(self.mos.pool_version()? >= version)
    }

    /// That of something new.
    fn new_guid(&self) -> Guid {
        Guid::random(self.env)
    }

    /// As a fsid must be, a number of 56 bits.
    fn new_fsid(&self) -> u64 {
        (self.env.random() >> 8).max(1)
    }
}
