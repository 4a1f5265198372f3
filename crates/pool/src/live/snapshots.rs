//! Snapshots: what `zfs snapshot`, `destroy`, `rename`, `rollback`, `clone`, `promote`, `hold`, `release` and `bookmark`
//! ask for.
//!
//! All of it is done in a group behind the writing of heads, so that no head gets blocks of a group that its snapshot
//! has been taken in.

use base::{Error, Kind, Result};
use dmu::Objset;
use dsl::write::{RefusedChanges, SnapshotFate, Taken};
use format::blkptr::BlkPtr;
use format::ids::{DatasetId, ObjectId};
use format::nvlist::{NvList, Value};

use super::space_check::SpaceCheck;
use super::{KeepsSnapshots, LivePool, SyncContext};

/// A snapshot is tried again in so many groups, if others take snapshots of the same heads all the time.
const ATTEMPTS_MAX: usize = 64;

impl LivePool {
    /// Takes snapshots of all that was written so far, all or none. Errors: as from [`dsl::write::take_snapshots`].
    pub fn snapshot(&self, names: &[String], properties: &[(String, String)]) -> Result<RefusedChanges> {
        self.check_space(SpaceCheck::Normal, names.len())?;
        self.in_some_group(|pool, usable| {
            let (names, properties) = (names.to_vec(), properties.to_vec());
            pool.run_last(move |context| {
                let snapshots =
                    match dsl::write::take_snapshots(&context.change, &context.dsl()?, &names, &properties, usable)? {
                        Taken::All(snapshots) => snapshots,
                        Taken::Refused(refused) => return Ok(Some(refused)),
                        Taken::NextGroup => return Ok(None),
                    };
                context.log_request("snapshot", asked("snaps", names.iter().map(|name| (name, Value::Flag))));
                for (name, id) in snapshots {
                    let next = context.change.dataset(id)?.next_snap;
                    context.pool.scan().snapshotted(next, id);
                    context.log_dataset_event((&name, id), "snapshot", " ");
                }
                Ok(Some(RefusedChanges::new()))
            })
        })
    }

    /// Destroys snapshots, all or none. Errors: as from [`dsl::write::destroy_snapshots`].
    pub fn destroy_snapshots(&self, names: &[String], defer: bool) -> Result<RefusedChanges> {
        let names = names.to_vec();
        self.run_last_without_roots(move |context| {
            let dsl = context.dsl()?;
            let is_kept = |name: &&String| dsl.find(name).is_ok_and(|one| context.pool.kept_snapshots().has(one.id));
            let busy = |name: &String| (name.clone(), Error::new(Kind::Busy, "dataset is busy"));
            let kept: RefusedChanges = names.iter().filter(is_kept).map(busy).collect();
            if !kept.is_empty() {
                return Ok(kept);
            }
            let fates = match dsl::write::destroy_snapshots(&context.change, &context.dsl()?, &names, defer)? {
                Ok(fates) => fates,
                Err(refused) => return Ok(refused),
            };
            context.log_request("destroy_snaps", asked("snaps", names.iter().map(|name| (name, Value::Flag))));
            for (name, fate) in names.iter().zip(fates) {
                match fate {
                    SnapshotFate::Destroyed { id, next } => {
                        context.pool.scan().destroyed(id, Some(next));
                        context.log_dataset_event((name, id), "destroy", " ");
                    }
                    SnapshotFate::Deferred(id) => context.log_dataset_event((name, id), "defer_destroy", " "),
                    SnapshotFate::Absent => {}
                }
            }
            context.pool.frees().wake();
            Ok(RefusedChanges::new())
        })
    }

    /// Lets nobody destroy snapshots, nor redaction lists, as long as what it returns lives. One that was destroyed before
    /// is not in [`LivePool::view`] any more when this returns. Of an interrupted receive, what came is kept likewise, and
    /// nobody goes on with it. Errors: `Busy` if that goes on; `Suspended`, also if others would wait.
    pub fn keep_snapshots(&self, ids: &[DatasetId], lists: &[ObjectId]) -> Result<KeepsSnapshots> {
        let kept = self.kept_snapshots().keep(ids, lists);
        // the group on its way may destroy what was not kept when that was looked for
        self.txgs().wait_closed()?;
        match ids.iter().any(|id| self.receives().is_active(*id)) {
            true => Err(Error::new(Kind::Busy, "dataset is busy")),
            false => Ok(kept),
        }
    }

    /// Holds snapshots, all or none: pairs of a snapshot and a tag. Errors: as from [`dsl::write::hold`].
    pub fn hold(&self, holds: &[(String, String)]) -> Result<RefusedChanges> {
        self.check_space(SpaceCheck::Reserved, holds.len())?;
        let holds = holds.to_vec();
        self.run_last(move |context| {
            let dsl = context.dsl()?;
            let refused = dsl::write::hold(&context.change, &dsl, &holds)?;
            if refused.is_empty() {
                let tags = holds.iter().map(|(name, tag)| (name, Value::Str(tag.clone())));
                context.log_request("hold", asked("holds", tags));
                for (name, tag) in &holds {
                    let id = dsl.find(name)?.id;
                    context.log_dataset_event((name, id), "hold", &format!("tag={tag} temp=0"));
                }
            }
            Ok(refused)
        })
    }

    /// Takes holds away, all or none. `Busy` is what would go with its last one, and is being sent. Errors: as from
    /// [`dsl::write::release`].
    pub fn release(&self, holds: &[(String, String)]) -> Result<RefusedChanges> {
        self.check_space(SpaceCheck::ExtraReserved, 1)?;
        let holds = holds.to_vec();
        self.run_last_without_roots(move |context| {
            let dsl = context.dsl()?;
            let mut going = dsl::write::gone_without(&context.change, &dsl, &holds)?;
            going.retain(|(_, id)| context.pool.kept_snapshots().has(*id));
            if !going.is_empty() {
                let busy = |(name, _)| (name, Error::new(Kind::Busy, "dataset is busy"));
                return Ok(going.into_iter().map(busy).collect());
            }
            let ids: Vec<DatasetId> =
                holds.iter().map(|(name, _)| dsl.find(name).map_or(DatasetId::NONE, |one| one.id)).collect();
            let gone = match dsl::write::release(&context.change, &dsl, &holds)? {
                Ok(gone) => gone,
                Err(refused) => return Ok(refused),
            };
            for ((name, tag), id) in holds.iter().zip(ids) {
                context.log_dataset_event((name, id), "release", &format!("tag={tag}"));
            }
            gone.iter().for_each(|one| context.finish_snapshot(one));
            context.pool.frees().wake();
            Ok(RefusedChanges::new())
        })
    }

    /// Makes a bookmark of a snapshot or bookmark. Errors: as from [`dsl::write::create_bookmark`].
    pub fn bookmark(&self, new: &str, source: &str) -> Result<()> {
        self.check_space(SpaceCheck::Normal, 1)?;
        let (new, source) = (new.to_owned(), source.to_owned());
        self.run_last(move |context| {
            dsl::write::create_bookmark(&context.change, &context.dsl()?, &new, &source)?;
            context.log_event("bookmark", &format!("name={new} source={source}"));
            Ok(())
        })
    }

    /// Destroys a bookmark. Errors: as from [`dsl::write::destroy_bookmark`]; `Busy` if its list is made, or used.
    pub fn destroy_bookmark(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.run_last(move |context| {
            let is_kept = |list: ObjectId| context.pool.kept_snapshots().has_list(list);
            if context
                .dsl()?
                .bookmark(&name)
                .is_ok_and(|one| one.redaction_object.is_some() && is_kept(one.redaction_object))
            {
                return Err(Error::new(Kind::Busy, "dataset is busy"));
            }
            dsl::write::destroy_bookmark(&context.change, &context.dsl()?, &name)?;
            context.log_event("remove bookmark", &format!("name={name}"));
            Ok(())
        })
    }

    /// Gives a snapshot another name, with `recursive` also those of all datasets below. Errors: as from
    /// [`dsl::write::rename_snapshot`].
    pub fn rename_snapshot(&self, old: &str, new: &str, recursive: bool) -> Result<()> {
        let view = self.view();
        let top = old.split('@').next().unwrap_or_default();
        let below = view.dsl().find_dir(top).and_then(|top| view.dsl().walk_from(top));
        // that there is none is for others to say
        self.check_space(SpaceCheck::Reserved, below.map_or(1, |all| if recursive { all.len() } else { 1 }))?;
        let (old, new) = (old.to_owned(), new.to_owned());
        self.run_last(move |context| {
            dsl::write::rename_snapshot(&context.change, &context.dsl()?, &old, &new, recursive)?;
            context.log_event("rename", &format!("{old} -> {new}"));
            Ok(())
        })
    }

    /// Lets a file system or volume go back to its latest snapshot. What serves it has to be frozen. Errors: as from
    /// [`dsl::write::rollback`] and [`LivePool::replace_root`].
    pub fn rollback(&self, to: &str) -> Result<()> {
        self.check_space(SpaceCheck::Reserved, 1)?;
        let fs = to.split('@').next().unwrap_or_default();
        let id = self.view().dsl().find(fs)?.id;
        self.in_some_group(|pool, usable| {
            let (fs, to) = (fs.to_owned(), to.to_owned());
            pool.replace_root(id, move |context| {
                let Some(done) = dsl::write::rollback(&context.change, &context.dsl()?, &to, usable)? else {
                    return Ok(None);
                };
                context.free_discarded(done.discarded)?;
                context.log_dataset_event((&fs, id), "rollback", &format!("to {to}"));
                Ok(Some(()))
            })
        })
    }

    /// Makes a file system or volume of what a snapshot holds. Errors: as from [`dsl::write::clone_snapshot`].
    pub fn clone_snapshot(&self, snapshot: &str, target: &str, properties: &[(String, String)]) -> Result<()> {
        self.check_space(SpaceCheck::Normal, 5)?;
        self.in_some_group(|pool, usable| {
            let (snapshot, target, properties) = (snapshot.to_owned(), target.to_owned(), properties.to_vec());
            pool.run_last(move |context| {
                let dsl = context.dsl()?;
                let made = dsl::write::clone_snapshot(&context.change, &dsl, &snapshot, &target, &properties, usable)?;
                let Some(made) = made else { return Ok(None) };
                context.write_without_log(made.dataset, &target)?;
                context.log_dataset_event((&target, made.dataset), "clone", &format!("origin={snapshot}"));
                Ok(Some(()))
            })
        })
    }

    /// Makes a clone the origin of what it was cloned from. Returns the names of snapshots and bookmarks that both have;
    /// then nothing is changed. Errors: as from [`dsl::write::promote`].
    pub fn promote(&self, name: &str) -> Result<Vec<String>> {
        self.check_space(SpaceCheck::Reserved, 2)?;
        let name = name.to_owned();
        self.run_last(move |context| {
            let dsl = context.dsl()?;
            let id = dsl.find(&name)?.id;
            let clone = dsl.find_dir(&name)?.phys;
            let shared = match clone.origin.is_some() {
                true => {
                    let origin = context.change.dataset(clone.origin)?;
                    Some((context.change.dir(origin.dir)?.head_dataset, origin.creation_txg))
                }
                false => None,
            };
            let conflicts = dsl::write::promote(&context.change, &dsl, &name)?;
            if conflicts.is_empty() {
                context.log_dataset_event((&name, id), "promote", " ");
                if let Some((old_head, until)) = shared {
                    context.move_entries((old_head, clone.head_dataset), until)?;
                }
            }
            Ok(conflicts)
        })
    }

    /// Tries something in one group after another, until it is not put off to the next one.
    pub(super) fn in_some_group<T>(&self, attempt: impl Fn(&LivePool, u64) -> Result<Option<T>>) -> Result<T> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(done) = attempt(self, self.view().usable_bytes()?)? {
                return Ok(done);
            }
        }
        Err(Error::new(Kind::Busy, "dataset is busy"))
    }
}

/// A request about things by their names.
fn asked<'a>(title: &str, names: impl Iterator<Item = (&'a String, Value)>) -> NvList {
    let (mut asked, mut list) = (NvList::new(), NvList::new());
    names.for_each(|(name, value)| list.set(name, value));
    asked.set(title, Value::List(list));
    asked
}

impl SyncContext<'_> {
    /// Writes the head of a dataset that has a snapshot's root, if that has an intent log: it is the log of a head at
    /// some earlier time, and its blocks may be gone.
    fn write_without_log(&self, id: DatasetId, name: &str) -> Result<()> {
        let (change, pool) = (&self.change, self.pool);
        let root: BlkPtr = change.dataset(id)?.bp;
        if root.is_hole() {
            return Ok(());
        }
        let dsl = self.dsl()?;
        let subject = dsl.subject(name)?;
        let policy = dsl::write::write_policy(subject.levels(), pool.config().enabled);
        let kind = dsl.raw_objset(&dsl.find(name)?)?.kind();
        let objset = Objset::open_live(change.mos.cache().clone(), id, root, kind, name, policy)?;
        if objset.phys().log_header.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        objset.set_log_header([0; 192])?;
        let head = pool.add_head(objset)?;
        pool.sync_head(change, id, &head)?;
        // it is opened with its properties when it is used
        pool.heads().remove(id);
        Ok(())
    }
}
