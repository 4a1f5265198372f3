//! Changing the dataset layer: making, renaming and destroying datasets, their properties, and the
//! accounts of the use of space.
//!
//! ```text
//!   Change { MOS being changed, group, time, chance }
//!     ├─ create, destroy, rename   directories, heads, the pool's first objects
//!     ├─ snapshot, destroy_snapshot, rollback, clone, hold, bookmark
//!     ├─ props                     values, checked by `crate::property::rules`
//!     ├─ counts                    of file systems and snapshots below directories, which limits are about
//!     ├─ ledger ─▶ space           what a head wrote and killed in a group, up the tree of directories
//!     │        └▶ deadlist         blocks that snapshots still refer to
//!     └─ bptree                    blocks of destroyed heads and snapshots, freed little by little
//!   table, feature                 ZAPs in the MOS
//! ```
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
mod feature;
mod hold;
mod ledger;
mod name;
mod policy;
mod props;
mod receive;
mod received;
mod rename;
mod rollback;
mod room;
mod snapshot;
mod space;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use base::{Env, Error, Result};
use dmu::bpobj::Totals;
use dmu::{Objset, Tx};
use format::blkptr::BlkPtr;
use format::dsl::{DatasetPhys, DirPhys};
use format::object_type::ObjectType;

pub use bptree::Destroyed;
pub use create::{Created, NewDataset, PoolDsl};
pub use destroy_snapshot::SnapshotFate;
pub use ledger::DatasetLedger;
pub(crate) use name::check_component;
pub use name::{NESTING_MAX, check_name};
pub use policy::{FileSystemOptions, file_system_options, log_throughput, set_reads, write_policy};
pub use props::ObjsetProperty;
pub use receive::{BegunReceive, NewReceive, ReceivePoint, SNAPSHOT_EXISTS};
pub use rollback::RolledBack;
pub use room::RoomLeft;
pub use snapshot::Taken;

/// What was refused of a change of several things, which then was not made: each thing, and why.
pub type RefusedChanges = Vec<(String, Error)>;

/// The object directory.
const DIRECTORY: u64 = 1;

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
    pub fn dir(&self, id: u64) -> Result<DirPhys> {
        let object = self.mos.object(id)?;
        if object.dnode().bonus_type != ObjectType::DSL_DIR {
            return Err(Error::corrupt(format!("object {id} is no dataset directory")));
        }
        DirPhys::parse(object.bonus())
    }

    /// The record of a dataset.
    pub fn dataset(&self, id: u64) -> Result<DatasetPhys> {
        let object = self.mos.object(id)?;
        if object.dnode().bonus_type != ObjectType::DSL_DATASET {
            return Err(Error::corrupt(format!("object {id} is no dataset")));
        }
        DatasetPhys::parse(object.bonus())
    }

    fn update_dir(&self, id: u64, f: impl FnOnce(&mut DirPhys)) -> Result<()> {
        let mut phys = self.dir(id)?;
        f(&mut phys);
        self.mos.object(id)?.update(self.tx, |dnode| dnode.bonus = phys.bonus())
    }

    fn update_dataset(&self, id: u64, f: impl FnOnce(&mut DatasetPhys)) -> Result<()> {
        let mut phys = self.dataset(id)?;
        f(&mut phys);
        self.mos.object(id)?.update(self.tx, |dnode| dnode.bonus = phys.bonus())
    }

    /// What a block counts for.
    fn totals(&self, bp: &BlkPtr) -> Totals {
        Totals::of(bp, (self.size_of)(bp))
    }

    /// A number for something new, never 0.
    fn new_guid(&self) -> u64 {
        loop {
            match self.env.random() {
                0 => {}
                guid => return guid,
            }
        }
    }

    /// As a fsid must be, a number of 56 bits.
    fn new_fsid(&self) -> u64 {
        (self.new_guid() >> 8).max(1)
    }
}
