//! The snapshots of a mounted file system: listed once, each opened when somebody goes there, and
//! kept open for a while.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Error, Kind, Mutex, Result, ResultExt};

use crate::cache::Cache;
use crate::node::{Branch, SNAPSHOTS_MAX};
use crate::tree::{Snapshot, Source};

/// Snapshots that stay open at least, if used last.
const OPEN_MAX: usize = 32;

/// All snapshots of one source.
pub(crate) struct Snapshots<S: Source> {
    source: Arc<S>,
    fs_name: String,
    list: Mutex<Option<Arc<List>>>,
    open: Cache<u16, Arc<S::Tree>>,
}

/// Snapshots in the order of their places, the oldest being at place 1.
pub(crate) struct List {
    snapshots: Vec<Snapshot>,
    places: HashMap<String, u16>,
}

impl<S: Source> Snapshots<S> {
    pub(crate) fn new(source: Arc<S>, fs_name: &str) -> Snapshots<S> {
        Snapshots { source, fs_name: fs_name.to_owned(), list: Mutex::default(), open: Cache::new(OPEN_MAX) }
    }

    /// The list, asked for at its first use: a read-only pool's does not change.
    pub(crate) fn list(&self) -> Result<Arc<List>> {
        let mut list = self.list.lock();
        if let Some(list) = &*list {
            return Ok(list.clone());
        }
        let snapshots = self.source.snapshots().in_dataset(&self.fs_name)?;
        if snapshots.len() > SNAPSHOTS_MAX {
            tracing::warn!(
                dataset = self.fs_name,
                "only the first {SNAPSHOTS_MAX} of {} snapshots can be reached through .zfs",
                snapshots.len()
            );
        }
        Ok(list.insert(Arc::new(List::new(snapshots))).clone())
    }

    /// Opens the tree at a place, if it is not open.
    pub(crate) fn branch(&self, place: u16) -> Result<Branch<S::Tree>> {
        let list = self.list()?;
        let snapshot = list.at(place).ok_or_else(|| Error::new(Kind::NotFound, "no such snapshot"))?;
        let open = || self.source.open_snapshot(snapshot).in_dataset(&format!("{}@{}", self.fs_name, snapshot.name));
        Ok(Branch::snapshot(self.open.get_or_make(place, open)?, place, snapshot.dataset))
    }

    /// `tank/home` or `tank/home@monday`, for messages.
    pub(crate) fn dataset_name(&self, place: u16) -> String {
        match self.list().ok().as_ref().and_then(|list| list.at(place)) {
            Some(snapshot) => format!("{}@{}", self.fs_name, snapshot.name),
            None => self.fs_name.clone(),
        }
    }
}

impl List {
    fn new(mut snapshots: Vec<Snapshot>) -> List {
        snapshots.truncate(SNAPSHOTS_MAX);
        let places = snapshots.iter().zip(1..).map(|(snapshot, place)| (snapshot.name.clone(), place)).collect();
        List { snapshots, places }
    }

    /// The snapshot at a place, if the place is one of a snapshot.
    pub(crate) fn at(&self, place: u16) -> Option<&Snapshot> {
        self.snapshots.get(usize::from(place).checked_sub(1)?)
    }

    pub(crate) fn place(&self, name: &[u8]) -> Option<u16> {
        self.places.get(std::str::from_utf8(name).ok()?).copied()
    }

    /// Places and snapshots from a place on.
    pub(crate) fn from(&self, place: u16) -> impl Iterator<Item = (u16, &Snapshot)> {
        (place..).zip(self.snapshots.iter().skip(usize::from(place).saturating_sub(1)))
    }
}
