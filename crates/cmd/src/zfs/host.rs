//! The pool process's side of `zfs`: [`answer`] does what a [`Request`] asks.
//!
//! The process hands in itself as a [`Host`]: the pool, and the mounts, which it alone can make and
//! take away. On import it mounts what [`mount_plan`](super::mount_plan) says.

use std::sync::Arc;

use base::Result;
use dsl::Property;
use pool::Pool;

use super::limits::Limit;
use super::mount_plan::{Bounds, PlannedMount};
use super::request::{Mounted, Request, Response};

/// What answers need of a pool process.
pub trait Host {
    /// The pool as of its last transaction group. Each call may give a later one, so an answer asks once.
    fn pool(&self) -> Arc<Pool>;
    /// What its import lets the properties of its file systems say.
    fn bounds(&self) -> &Bounds;
    /// The folder that all its mountpoints are below, if it was imported with one.
    fn altroot(&self) -> Option<&str> {
        self.bounds().altroot.as_deref()
    }
    /// What is mounted now; without snapshots.
    fn mounts(&self) -> Vec<Mounted>;
    /// Mounts a file system, whose mountpoint is made if it is not there; an error that says
    /// [`NO_MOUNTPOINT`](fuse::NO_MOUNTPOINT) if it cannot be made.
    fn mount(&self, plan: &PlannedMount) -> Result<()>;
    /// Gives a mounted file system what a property says in a plan, in place; false if it has to be mounted anew for
    /// that. What it was told otherwise when it was mounted stays. Errors: `Busy` if it cannot be read-only now.
    fn remount(&self, plan: &PlannedMount, property: Property) -> Result<bool>;
    /// Unmounts a file system.
    fn unmount(&self, dataset: &str, force: bool) -> Result<()>;
    /// Changes datasets, and returns when that is on disk. Errors: `ReadOnly` if the pool is; why it is refused.
    fn change(&self, change: &DatasetChange) -> Result<()>;
    /// Adds a command line to the history of the pool.
    fn record(&self, line: &str) -> Result<()>;
}

/// A change of one dataset. Names and values have been checked as far as that is possible without changing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub enum DatasetChange {
    /// Makes a file system.
    Create { name: String, properties: Vec<(String, String)> },
    /// Destroys a file system or volume that has nothing below it, and is not mounted.
    Destroy { name: String },
    /// Sets a property.
    Set { name: String, property: String, value: String },
    /// Sets the limit of a user, group or project.
    SetLimit { name: String, limit: Limit },
    /// Makes a property inherited; with `received`, as it was received.
    Inherit { name: String, property: String, received: bool },
    /// Gives a file system or volume, which is not mounted, another name in the same pool.
    Rename { from: String, to: String },
}

/// Answers a request. Errors: of reading the pool. What only concerns one of the datasets that were
/// asked for is part of the answer.
pub fn answer(host: &dyn Host, request: &Request) -> Result<Response> {
    match request {
        Request::Datasets(select) => super::query::datasets(host, select).map(Response::Datasets),
        Request::Space { dataset, owner } => super::query::space(host, dataset, *owner).map(Response::Space),
        Request::Holds { snapshots, recursive } => {
            let (holds, failures) = super::query::holds(host, snapshots, *recursive)?;
            Ok(Response::Holds(holds, failures))
        }
        Request::Mounts => Ok(Response::Mounts(host.mounts())),
        Request::Mount(request) => super::mounting::mount(host, request).map(Response::Done),
        Request::Change { change, history } => {
            let (out, failures) = super::changing::change(host, change, history.as_deref())?;
            Ok(Response::Changed { out, failures })
        }
        Request::Unmount(request) => super::mounting::unmount(host, request).map(Response::Done),
    }
}
