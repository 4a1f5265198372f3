//! What the answers need of a pool's process: [`Host`], the changes it makes for them, and nothing else.
//!
//! The process hands in itself as a [`Host`]: the pool, and the mounts, which it alone can make and
//! take away. On import it mounts what [`mount_plan`](crate::mount_plan) says.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{MutexGuard, Result};
use dsl::receive::StreamReader;
use dsl::write::NewReceive;
use format::ids::{DatasetId, Guid, ObjectId};
use format::nvlist::Value;
use fuse::MountOptions;
use pool::{HealedSnapshot, Pool, Receiving, RefusedChanges};
use protocol::datasets::Mounted;

use super::limits::Limit;
use crate::mount_plan::{MountBounds, PlannedMount};

/// Snapshots that are not destroyed as long as this lives.
pub type SnapshotGuard = Box<dyn std::any::Any>;

/// What becomes of folders that were made for a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Folders {
    /// They stay: it may be mounted there again.
    Keep,
    /// They are removed, as far as they are empty.
    Remove,
}

/// What answers need of a pool process.
pub trait Host {
    /// Held while what is mounted is looked at and changed, or the names of datasets are. None if the pool is suspended:
    /// a command that has it then may have it for long.
    fn turn(&self) -> Option<MutexGuard<'_, ()>>;
    /// The pool as of its last transaction group. Each call may give a later one, so an answer asks once.
    fn pool(&self) -> Arc<Pool>;
    /// What its import lets the properties of its file systems say.
    fn bounds(&self) -> &MountBounds;
    /// The folder that all its mountpoints are below, if it was imported with one.
    fn altroot(&self) -> Option<&str> {
        self.bounds().altroot.as_deref()
    }
    /// What is mounted now; without snapshots.
    fn mounts(&self) -> Vec<Mounted>;
    /// Whether a file system is mounted where the path of its mountpoint leads: the kernel takes away what is mounted on a
    /// folder that is gone when somebody goes there, as this does.
    fn is_at_its_place(&self, dataset: &str) -> bool;
    /// How many files of a mounted file system have no name, and are not freed yet; 0 if it is not mounted.
    fn unlinked(&self, dataset: &str) -> u64;
    /// Mounts a file system or snapshot, whose mountpoint is made if it is not there; an error that says
    /// [`NO_MOUNTPOINT`](fuse::NO_MOUNTPOINT) if it cannot be made.
    fn mount(&self, plan: &PlannedMount) -> Result<()>;
    /// The options of a mounted file system, as they are now.
    fn options_of(&self, dataset: &str) -> Option<MountOptions>;
    /// Gives a mounted file system other options, in place; false if it has to be mounted anew for that. Errors: `Busy`
    /// if it cannot be read-only now.
    fn remount(&self, options: &MountOptions) -> Result<bool>;
    /// Unmounts a file system.
    fn unmount(&self, dataset: &str, force: bool, folders: Folders) -> Result<()>;
    /// Removes a mountpoint where nothing is mounted, if it is empty.
    fn remove_folder(&self, options: &MountOptions);
    /// Changes datasets, and returns when that is on disk. Errors: `ReadOnly` if the pool is; why it is refused.
    fn change(&self, change: &DatasetChange) -> Result<()>;
    /// Changes snapshots, all of a change or none of it, and returns when that is on disk: what was refused, and why.
    /// Errors: as of [`Host::change`].
    fn change_snapshots(&self, change: &SnapshotChange) -> Result<RefusedChanges>;
    /// Lets nobody destroy snapshots, by their objects, as long as what it returns lives. Errors: as of
    /// [`pool::LivePool::keep_snapshots`].
    fn keep_snapshots(&self, ids: &[DatasetId], lists: &[ObjectId]) -> Result<SnapshotGuard>;
    /// Begins to receive a stream. Errors: as of [`Host::change`].
    fn begin_receive(&self, new: &NewReceive) -> Result<Receiving>;
    /// Ends a receive; exports of the dataset are frozen meanwhile. Errors: as of [`Host::change`].
    fn finish_receive(&self, receiving: Receiving) -> Result<()>;
    /// Mends a snapshot from a stream of it, whose BEGIN has been read, by its guid. Errors: as of
    /// [`pool::LivePool::heal_snapshot`] and [`Host::change`].
    fn heal_snapshot(&self, name: &str, to_guid: Guid, reader: &mut StreamReader<'_>) -> Result<HealedSnapshot>;
    /// Destroys what an interrupted receive has left. Errors: `NotFound` if there is nothing; as of [`Host::change`].
    fn abort_receive(&self, target: &str) -> Result<()>;
    /// Stores properties that a stream says; what was refused. Errors: as of [`Host::change`].
    fn set_received(&self, dataset: &str, values: Vec<(String, Value)>) -> Result<RefusedChanges>;
    /// The pool at a moment at which nothing is changed.
    fn still(&self) -> Box<dyn StillPool + '_>;
    /// Nanoseconds since the process began.
    fn now_ns(&self) -> u64;
    /// Adds a command line to the history of the pool.
    fn record(&self, line: &str) -> Result<()>;
}

/// A pool whose writes wait for a moment: the steps of [`protocol::cut`].
pub trait StillPool: Sync {
    /// Brings what was written to disk, so that the moment is a short one. Errors: `Suspended`; `ReadOnly`.
    fn prepare(&self) -> Result<()>;
    /// What programs write, and kernels would keep, waits.
    fn calm(&self);
    /// Kernels send what they keep.
    fn flush(&self);
    /// No request is done. Errors: `Unsupported` for what cannot wait.
    fn park(&self) -> Result<()>;
    /// Takes snapshots meanwhile. Errors: as of [`Host::change_snapshots`].
    fn take(&self, change: &SnapshotChange) -> Result<RefusedChanges>;
    /// All goes on, whatever step it was.
    fn go_on(&self);
    /// When all goes on: there are these snapshots now.
    fn taken(&self, change: &SnapshotChange);
}

/// A change of one dataset. Names and values have been checked as far as that is possible without changing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub enum DatasetChange {
    /// Makes a file system.
    Create { name: String, properties: Vec<(String, String)> },
    /// Makes a volume; its size is among the properties.
    CreateVolume { name: String, properties: Vec<(String, String)> },
    /// Destroys a file system or volume that has nothing below it, and is not mounted.
    Destroy { name: String },
    /// Sets a property.
    Set { name: String, property: String, value: String },
    /// Gives a volume another size.
    Resize { name: String, size: u64 },
    /// Sets the limit of a user, group or project.
    SetLimit { name: String, limit: Limit },
    /// Makes a property inherited; with `received`, as it was received.
    Inherit { name: String, property: String, received: bool },
    /// Gives a file system or volume, which is not mounted, another name in the same pool.
    Rename { from: String, to: String },
}

impl DatasetChange {
    /// The dataset that it changes, as it is called afterwards.
    pub fn dataset(&self) -> &str {
        match self {
            DatasetChange::Create { name, .. }
            | DatasetChange::CreateVolume { name, .. }
            | DatasetChange::Destroy { name }
            | DatasetChange::Set { name, .. }
            | DatasetChange::Resize { name, .. }
            | DatasetChange::SetLimit { name, .. }
            | DatasetChange::Inherit { name, .. } => name,
            DatasetChange::Rename { to, .. } => to,
        }
    }
}

/// A change of snapshots, by their full names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub enum SnapshotChange {
    /// Takes snapshots.
    Take { names: Vec<String>, properties: Vec<(String, String)> },
    /// Destroys snapshots; with `defer`, those that are held or cloned when that ends.
    Destroy { names: Vec<String>, defer: bool },
    /// Holds snapshots: pairs of a name and a tag.
    Hold(Vec<(String, String)>),
    /// Takes holds away.
    Release(Vec<(String, String)>),
    /// Makes a bookmark of a snapshot or bookmark.
    Bookmark { new: String, source: String },
    /// Makes a redaction bookmark of a snapshot, for some later snapshots.
    Redact { snapshot: String, bookmark: String, later: Vec<String> },
    /// Destroys a bookmark.
    DestroyBookmark { name: String },
    /// Gives a snapshot another name.
    Rename { from: String, to: String, recursive: bool },
    /// Lets a file system or volume go back to its latest snapshot. What serves it is frozen meanwhile.
    Rollback { to: String },
    /// Makes a file system or volume of a snapshot.
    Clone { snapshot: String, target: String, properties: Vec<(String, String)> },
    /// Makes a clone the origin; what is refused are names of snapshots that both have.
    Promote { name: String },
}

impl SnapshotChange {
    /// The datasets whose snapshots come or go; `None` if it may be more than that.
    pub fn datasets(&self) -> Option<Vec<&str>> {
        let (SnapshotChange::Take { names, .. } | SnapshotChange::Destroy { names, .. }) = self else { return None };
        let datasets: BTreeSet<&str> = names.iter().filter_map(|name| name.split('@').next()).collect();
        Some(datasets.into_iter().collect())
    }
}
