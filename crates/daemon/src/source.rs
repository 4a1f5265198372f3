//! A dataset as the FUSE adapter mounts it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::{Env, Error, Kind, Mutex, Result, RwLock};
use dmu::{Mode, Objset};
use dsl::accounting::{Accounts, Counted, Owner};
use dsl::property::DatasetKind;
use dsl::{Dataset, Property, PropertyValue, Subject};
use format::feature::LONGNAME;
use format::ids::{DatasetId, Txg};
use fuse::{DatasetSpace, MountOptions, ProjectSpace, Snapshot, SnapshotEdit, Source};
use pool::{FeatureState, Pool};
use zpl::{Counters, Unsettled, Zpl};

use crate::exports::Exports;
use crate::live::ServedPool;
use crate::verbs::SnapshotChange;

/// Most objects that an object set can have.
const OBJECTS_MAX: u64 = 1 << 48;

/// A file system of an imported pool, with its snapshots; or one of these alone.
pub struct FileSystem {
    served: Arc<ServedPool>,
    /// What else serves datasets of the pool.
    exports: Weak<Exports>,
    head: Dataset,
    /// There are POSIX ACLs.
    acls: AtomicBool,
    /// Another one when the root of the dataset has been replaced.
    live: RwLock<Arc<Zpl>>,
    env: Env,
    /// All that is written is on disk at once, whatever property `sync` says.
    sync: AtomicBool,
    /// Where changes are noted that a crash would take back.
    unsettled: OnceLock<Arc<Unsettled>>,
    /// Whether it is a snapshot itself.
    is_snapshot: bool,
    /// Changes when snapshots do.
    snapshots_version: AtomicU64,
    /// The sizes, and the transaction group that they are of.
    space: Mutex<Option<(Txg, DatasetSpace)>>,
}

impl FileSystem {
    /// The file system or snapshot that `options` name, as they want it. Files that lost their last name are removed, if the
    /// kernel knows none of it (`is_new`); what else serves the pool's datasets is among
    /// `exports`. Errors: `NotFound`, `Encrypted`, those of reading the pool.
    pub fn open(
        served: &Arc<ServedPool>,
        exports: &Arc<Exports>,
        options: &MountOptions,
        env: &Env,
        is_new: bool,
    ) -> Result<FileSystem> {
        let (pool, name) = (&served.view(), options.fs_name.as_str());
        let subject = pool.dsl().subject(name)?;
        let head = subject.dataset().cloned();
        let head = head.ok_or_else(|| Error::new(Kind::Invalid, "dataset is not a file system").in_dataset(name))?;
        let is_snapshot = subject.kind() == DatasetKind::Snapshot;
        let writable = || if is_snapshot { Ok(None) } else { served.writable(env, &subject, &head, options.sync) };
        let live = match writable()? {
            Some(zpl) => zpl,
            None => Zpl::open(objset(pool, &subject, &head)?)?,
        };
        if live.is_writable() && is_new {
            live.clean_unlinked()?;
        }
        live.show_acls(options.posix_acl);
        let (live, acls) = (RwLock::new(Arc::new(live)), options.posix_acl.into());
        let (sync, space, snapshots_version) = (options.sync.into(), Mutex::default(), AtomicU64::new(0));
        let (served, exports, env) = (served.clone(), Arc::downgrade(exports), env.clone());
        let unsettled = OnceLock::new();
        Ok(FileSystem {
            served,
            exports,
            head,
            acls,
            live,
            env,
            sync,
            unsettled,
            is_snapshot,
            snapshots_version,
            space,
        })
    }

    /// Whether it can be changed.
    pub fn is_writable(&self) -> bool {
        self.live().is_writable()
    }

    /// The object of its dataset, and how much it is used.
    pub fn counters(&self) -> (DatasetId, Arc<Counters>) {
        (self.head.id, self.live().counters().clone())
    }

    /// Lets files be written as its properties say now, and its snapshots be listed anew. Errors: those of reading the pool.
    pub fn renew(&self) -> Result<()> {
        self.snapshots_version.fetch_add(1, Ordering::Relaxed);
        self.served.renew(&self.live(), self.head.id, self.sync.load(Ordering::Relaxed))
    }

    /// From now on, all that is written is on disk at once, or as property `sync` says. Errors: those of reading the
    /// pool.
    pub fn set_sync(&self, sync: bool) -> Result<()> {
        if self.sync.swap(sync, Ordering::Relaxed) != sync { self.renew() } else { Ok(()) }
    }

    /// From now on, there are POSIX ACLs, or none.
    pub fn set_acls(&self, acls: bool) {
        self.acls.store(acls, Ordering::Relaxed);
        self.live().show_acls(acls);
    }

    /// Its files, as they are now.
    pub fn live(&self) -> Arc<Zpl> {
        self.live.read().clone()
    }

    /// Its snapshots; a snapshot has none.
    fn listed(&self, pool: &Pool) -> Result<Vec<Dataset>> {
        if self.is_snapshot {
            return Ok(Vec::new());
        }
        let dsl = pool.dsl();
        dsl.snapshots(&dsl.dataset(self.head.id, &dsl.name_of(self.head.id)?)?)
    }

    /// Tells all that serve datasets that snapshots have changed. Not at once: the kernel waits for an answer to the
    /// request that changed them, and may answer no question in which they are before.
    fn tell_exports(&self) {
        let exports = self.exports.clone();
        let tell = move || {
            if let Some(exports) = exports.upgrade() {
                exports.properties_changed();
            }
        };
        if !self.env.spawn("snapdir", tell) {
            tracing::warn!("no thread can be started: mounts may show snapshots that are gone");
        }
    }

    fn compute_space(&self, pool: &Pool) -> Result<DatasetSpace> {
        // the dataset may have another name now
        let subject = pool.dsl().subject(&pool.dsl().name_of(self.head.id)?)?;
        let head = subject.dataset().unwrap_or(&self.head);
        let usable_bytes = pool.usable_bytes()?;
        let objects_used = head.phys.bp.fill();
        let has_long_names = pool.features().state(LONGNAME) == FeatureState::Active;
        Ok(DatasetSpace {
            referenced_bytes: head.phys.referenced_bytes,
            available_bytes: number(pool, &subject, Property::Available, usable_bytes)?,
            objects_used,
            objects_available: OBJECTS_MAX.saturating_sub(objects_used),
            record_bytes: number(pool, &subject, Property::Recordsize, usable_bytes)?.try_into().unwrap_or(128 << 10),
            name_bytes_max: if has_long_names { 1023 } else { 255 },
        })
    }
}

impl Source for FileSystem {
    type Tree = Zpl;

    fn tree(&self) -> Arc<Zpl> {
        self.live()
    }

    fn reopened(&self) -> Result<Option<Arc<Zpl>>> {
        if !self.served.has_other_root(&self.live(), self.head.id)? {
            return Ok(None);
        }
        let pool = self.served.view();
        let subject = pool.dsl().subject(&pool.dsl().name_of(self.head.id)?)?;
        let head = subject.dataset().unwrap_or(&self.head);
        let zpl = self.served.writable(&self.env, &subject, head, self.sync.load(Ordering::Relaxed))?;
        let zpl = zpl.ok_or_else(|| Error::new(Kind::ReadOnly, "pool is read-only"))?;
        zpl.clean_unlinked()?;
        if let Some(unsettled) = self.unsettled.get() {
            unsettled.clear();
            zpl.keep_unsettled(unsettled)?;
        }
        zpl.show_acls(self.acls.load(Ordering::Relaxed));
        let zpl = Arc::new(zpl);
        *self.live.write() = zpl.clone();
        *self.space.lock() = None;
        Ok(Some(zpl))
    }

    fn keep_unsettled(&self, unsettled: &Arc<Unsettled>) -> Result<()> {
        let live = self.live();
        if live.is_writable() {
            // a source is mounted once
            let _ = self.unsettled.set(unsettled.clone());
            live.keep_unsettled(unsettled)?;
        }
        Ok(())
    }

    fn has_lost_nothing(&self) -> bool {
        self.live().has_lost_nothing()
    }

    /// Computed once for each transaction group.
    fn space(&self) -> Result<DatasetSpace> {
        let pool = self.served.view();
        let txg = pool.uberblock().txg;
        let known = *self.space.lock();
        if let Some((_, space)) = known.filter(|(of, _)| *of == txg) {
            return Ok(space);
        }
        let space = self.compute_space(&pool)?;
        *self.space.lock() = Some((txg, space));
        Ok(space)
    }

    fn room_bytes(&self) -> Result<u64> {
        match &*self.served {
            ServedPool::ReadOnly(_) => Ok(0),
            ServedPool::Live(live) => live.room_left(self.head.id),
        }
    }

    /// As of the latest group on disk.
    fn project_space(&self, project: u64) -> Result<ProjectSpace> {
        let pool = self.served.view();
        let dataset = pool.dsl().find(&pool.dsl().name_of(self.head.id)?)?;
        let accounts = Accounts::open(pool.dsl().raw_objset(&dataset)?)?;
        let of = |counted| accounts.used_and_limit(Owner::Project, counted, project);
        Ok(ProjectSpace { bytes: of(Counted::Bytes)?, objects: of(Counted::Objects)? })
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let snapshot = |dataset: &Dataset| Snapshot {
            name: dataset.name.split_once('@').map_or("", |(_, name)| name).to_owned(),
            dataset: dataset.id.object(),
            created_s: dataset.phys.creation_time_s,
        };
        Ok(self.listed(&self.served.view())?.iter().map(snapshot).collect())
    }

    fn change_snapshots(&self, edit: SnapshotEdit<'_>) -> Result<()> {
        if self.is_snapshot {
            return Err(Error::new(Kind::ReadOnly, "a snapshot has no snapshots"));
        }
        let fs = self.served.view().dsl().name_of(self.head.id)?;
        let full = |own: &str| format!("{fs}@{own}");
        let change = match edit {
            SnapshotEdit::Take(own) => SnapshotChange::Take { names: vec![full(own)], properties: Vec::new() },
            SnapshotEdit::Destroy(own) => {
                let name = full(own);
                if self.exports.upgrade().is_some_and(|exports| exports.has(&name)) {
                    return Err(Error::new(Kind::Busy, "it is mounted").in_dataset(&name));
                }
                SnapshotChange::Destroy { names: vec![name], defer: false }
            }
            SnapshotEdit::Rename { from, to } => {
                SnapshotChange::Rename { from: full(from), to: full(to), recursive: false }
            }
        };
        if let Some((name, error)) = self.served.change_snapshots(&change)?.into_iter().next() {
            return Err(error.in_dataset(&name));
        }
        self.snapshots_version.fetch_add(1, Ordering::Relaxed);
        self.tell_exports();
        Ok(())
    }

    fn snapshots_changed_s(&self) -> Result<u64> {
        let pool = self.served.view();
        let subject = pool.dsl().subject(&pool.dsl().name_of(self.head.id)?)?;
        number(&pool, &subject, Property::SnapshotsChanged, 0)
    }

    fn snapshots_version(&self) -> u64 {
        self.snapshots_version.load(Ordering::Relaxed)
    }

    fn sync(&self) -> Result<()> {
        self.served.sync(false)
    }

    fn wait_resumed(&self) -> Result<()> {
        self.served.wait_resumed()
    }

    fn open_snapshot(&self, snapshot: &Snapshot) -> Result<Arc<Zpl>> {
        let pool = self.served.view();
        let dataset = self.listed(&pool)?.into_iter().find(|dataset| dataset.id.object() == snapshot.dataset);
        let dataset = dataset.ok_or_else(|| Error::new(Kind::NotFound, "no such snapshot"))?;
        if pool.dsl().redacted_for(&dataset)?.is_some() {
            let what = "its sender redacted some of it, which would read as zeros";
            return Err(Error::new(Kind::Permission, what).in_dataset(&dataset.name));
        }
        let subject = pool.dsl().subject(&dataset.name)?;
        // the mount hides attributes while their properties are off
        Ok(Arc::new(Zpl::open(objset(&pool, &subject, &dataset)?)?))
    }
}

/// An object set that is only read.
fn objset(pool: &Pool, subject: &Subject, dataset: &Dataset) -> Result<Arc<Objset>> {
    let objset = pool.dsl().objset(dataset, Mode::Plain)?;
    dsl::write::set_reads(&objset, subject.levels());
    Ok(objset)
}

fn number(pool: &Pool, subject: &Subject, property: Property, usable_bytes: u64) -> Result<u64> {
    let value = pool.dsl().property(subject, property, usable_bytes)?.map(|sourced| sourced.value);
    Ok(match value {
        Some(PropertyValue::Number(number)) => number,
        _ => property.default_number(),
    })
}
