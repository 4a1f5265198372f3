//! The snapshots of a mounted file system: listed when they have changed, each opened when somebody goes there, and
//! kept open for a while.
//!
//! A snapshot's place is part of its inode numbers: it keeps that for as long as the file system is mounted, and no other
//! gets it.

use std::collections::HashMap;
use std::sync::Arc;

use base::tunables::ZFS_ADMIN_SNAPSHOT;
use base::{Env, Error, Kind, Mutex, Result, ResultExt};
use zpl::ObjectId;

use crate::cache::MountCache;
use crate::legacy::{Legacy, NotedFact, PLACE};
use crate::node::{OpenTree, SNAPSHOTS_MAX};
use crate::tree::{Snapshot, SnapshotEdit, Source};

/// Snapshots that stay open at least, if used last.
const OPEN_MAX: usize = 32;

/// All snapshots of one source.
pub(crate) struct Snapshots<S: Source> {
    source: Arc<S>,
    env: Env,
    fs_name: String,
    /// And the version of the source's that it is of.
    list: Mutex<Option<(u64, Arc<List>)>>,
    /// The names that the kernel may know, or know not to be there.
    told: Mutex<Arc<List>>,
    open: MountCache<u16, Arc<S::Tree>>,
    legacy: Legacy,
}

/// Snapshots in the order of their places, the first being place 1. A place is empty when its snapshot is gone.
#[derive(Default)]
pub(crate) struct List {
    snapshots: Vec<Option<Snapshot>>,
    places: HashMap<String, u16>,
}

impl<S: Source> Snapshots<S> {
    pub(crate) fn new(source: Arc<S>, env: Env, fs_name: &str, legacy: &Legacy) -> Snapshots<S> {
        let before = List::inherited(legacy);
        Snapshots {
            source,
            env,
            fs_name: fs_name.to_owned(),
            // no version is that one
            list: Mutex::new(before.map(|before| (u64::MAX, Arc::new(before)))),
            legacy: legacy.clone(),
            told: Mutex::default(),
            open: MountCache::new(OPEN_MAX),
        }
    }

    /// The list as it is now.
    pub(crate) fn list(&self) -> Result<Arc<List>> {
        let version = self.source.snapshots_version();
        let mut list = self.list.lock();
        if let Some((_, list)) = list.as_ref().filter(|(of, _)| *of == version) {
            return Ok(list.clone());
        }
        let snapshots = self.source.snapshots().in_dataset(&self.fs_name)?;
        let before = list.as_ref().map(|(_, list)| list.clone()).unwrap_or_default();
        let count = snapshots.len();
        let now = Arc::new(before.renewed(snapshots));
        now.from(before.snapshots.len() as u16 + 1).for_each(|(place, one)| self.keep_place(place, one.dataset));
        if now.places.len() < count {
            tracing::warn!(
                dataset = self.fs_name,
                "only {} of {count} snapshots can be reached by path until it is mounted again",
                now.places.len()
            );
        }
        Ok(list.insert((version, now)).1.clone())
    }

    /// The process after this one gives a snapshot the same place.
    fn keep_place(&self, place: u16, dataset: ObjectId) {
        // for good: no other snapshot gets it
        if let Some(noted) = self.legacy.note(PLACE, [place.into(), dataset.get()]) {
            noted.stays();
        }
    }

    /// The names that have come and gone since this was asked last. Errors: those of reading which there are.
    pub(crate) fn changed_names(&self) -> Result<Vec<String>> {
        let mut told = self.told.lock();
        let now = self.list()?;
        let differ = |one: &List, other: &List| -> Vec<String> {
            let differs = |(name, place): &(&String, &u16)| other.places.get(*name) != Some(*place);
            one.places.iter().filter(differs).map(|(name, _)| name.clone()).collect()
        };
        let changed = [differ(&told, &now), differ(&now, &told)].concat();
        *told = now;
        Ok(changed)
    }

    /// Takes a snapshot for a user: its place. Errors: as of [`Snapshots::edit`].
    pub(crate) fn take(&self, name: &[u8], user: u32) -> Result<u16> {
        self.edit(SnapshotEdit::Take(text(name)?), user)?;
        let place = self.list()?.place(name);
        place.ok_or_else(|| Error::new(Kind::NotFound, "no room for it among the snapshots that have a path"))
    }

    /// Destroys a snapshot for a user. Errors: as of [`Snapshots::edit`].
    pub(crate) fn destroy(&self, name: &[u8], user: u32) -> Result<()> {
        self.edit(SnapshotEdit::Destroy(text(name)?), user)
    }

    /// Gives a snapshot another name for a user. Errors: as of [`Snapshots::edit`].
    pub(crate) fn rename(&self, from: &[u8], to: &[u8], user: u32) -> Result<()> {
        self.edit(SnapshotEdit::Rename { from: text(from)?, to: text(to)? }, user)
    }

    /// Makes a change. Only root and the user of the pool's process may ask for one, as they may by commands.
    /// Errors: `Forbidden` for others; `Permission` if the administrator does not want any; those of the source.
    fn edit(&self, edit: SnapshotEdit<'_>, user: u32) -> Result<()> {
        if self.env.tunable(ZFS_ADMIN_SNAPSHOT) == 0 {
            return Err(Error::new(Kind::Permission, "snapshots are not changed by path: zfs_admin_snapshot is 0"));
        }
        if user != 0 && user != nix::unistd::geteuid().as_raw() {
            return Err(Error::new(Kind::Forbidden, "only an administrator of the pool changes snapshots"));
        }
        self.source.change_snapshots(edit)
    }

    /// Opens the tree at a place, if it is not open.
    pub(crate) fn branch(&self, place: u16) -> Result<OpenTree<S::Tree>> {
        let list = self.list()?;
        let snapshot = list.at(place).ok_or_else(|| Error::new(Kind::NotFound, "no such snapshot"))?;
        let open = || self.source.open_snapshot(snapshot).in_dataset(&format!("{}@{}", self.fs_name, snapshot.name));
        Ok(OpenTree::snapshot(self.open.get_or_make(place, open)?, place, snapshot.dataset))
    }

    /// `tank/home` or `tank/home@monday`, for messages.
    pub(crate) fn dataset_name(&self, place: u16) -> String {
        match self.list().ok().as_ref().and_then(|list| list.at(place)) {
            Some(snapshot) => format!("{}@{}", self.fs_name, snapshot.name),
            None => self.fs_name.clone(),
        }
    }
}

/// The name of a snapshot.
fn text(name: &[u8]) -> Result<&str> {
    std::str::from_utf8(name).map_err(|_| Error::new(Kind::Invalid, "no name of a snapshot"))
}

impl List {
    /// The places that snapshots had in the process before, which are noted anew.
    fn inherited(legacy: &Legacy) -> Option<List> {
        let mut snapshots: Vec<Option<Snapshot>> = Vec::new();
        for [place, dataset] in legacy.inherited(PLACE) {
            let Some(at) = usize::try_from(place).ok().and_then(|place| place.checked_sub(1)) else { continue };
            if at < SNAPSHOTS_MAX {
                snapshots.resize(snapshots.len().max(at + 1), None);
                let dataset = ObjectId::new(dataset);
                snapshots[at] = Some(Snapshot { name: String::new(), dataset, created_s: 0 });
                legacy.note(PLACE, [place, dataset.get()]).into_iter().for_each(NotedFact::stays);
            }
        }
        legacy.is_inherited().then_some(List { snapshots, places: HashMap::new() })
    }

    /// The list of these snapshots, which has those that it had already in their places.
    fn renewed(&self, snapshots: Vec<Snapshot>) -> List {
        let mut left: HashMap<ObjectId, Snapshot> = snapshots.iter().map(|one| (one.dataset, one.clone())).collect();
        let stay = |old: &Option<Snapshot>| old.as_ref().and_then(|old| left.remove(&old.dataset));
        let mut places: Vec<Option<Snapshot>> = self.snapshots.iter().map(stay).collect();
        places.extend(snapshots.into_iter().filter(|one| left.contains_key(&one.dataset)).map(Some));
        places.truncate(SNAPSHOTS_MAX);
        let names = places.iter().zip(1..).filter_map(|(one, place)| Some((one.as_ref()?.name.clone(), place)));
        let names = names.collect();
        List { snapshots: places, places: names }
    }

    /// The snapshot at a place, if the place is one of a snapshot.
    pub(crate) fn at(&self, place: u16) -> Option<&Snapshot> {
        self.snapshots.get(usize::from(place).checked_sub(1)?)?.as_ref()
    }

    pub(crate) fn place(&self, name: &[u8]) -> Option<u16> {
        self.places.get(std::str::from_utf8(name).ok()?).copied()
    }

    /// Places and snapshots from a place on.
    pub(crate) fn from(&self, place: u16) -> impl Iterator<Item = (u16, &Snapshot)> {
        let from = (place..).zip(self.snapshots.iter().skip(usize::from(place).saturating_sub(1)));
        from.filter_map(|(place, one)| Some((place, one.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(name: &str, dataset: u64) -> Snapshot {
        Snapshot { name: name.to_owned(), dataset: ObjectId::new(dataset), created_s: 0 }
    }

    #[test]
    fn a_snapshot_keeps_its_place_and_nobody_gets_it_afterwards() {
        let list = List::default().renewed(vec![snapshot("a", 5), snapshot("b", 6), snapshot("c", 7)]);
        assert_eq!((list.place(b"a"), list.place(b"b"), list.place(b"c")), (Some(1), Some(2), Some(3)));
        let list = list.renewed(vec![snapshot("other", 7), snapshot("b", 6), snapshot("new", 9)]);
        assert_eq!((list.place(b"a"), list.place(b"b"), list.place(b"other")), (None, Some(2), Some(3)));
        assert_eq!((list.place(b"new"), list.at(1), list.place(b"c")), (Some(4), None, None));
        let list = list.renewed(vec![snapshot("a", 10)]);
        assert_eq!(list.from(1).map(|(place, one)| (place, one.name.clone())).collect::<Vec<_>>(), [(5, "a".into())]);
    }
}
