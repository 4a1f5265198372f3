//! The pool of a pool process: open for reading only, or for writing.
//!
//! All that reads asks for a view, which is the pool as of one transaction group. A pool that is open for
//! reading has one view for as long as it is open.
//!
//! ```text
//!   zpool create ── NewPool ▶ create ──┐
//!   zpool import ──────────▶ import ──┴─▶ ServedPool ── view ──▶ everything that reads
//!                                              ├── change ─▶ one task of LivePool: datasets, properties
//!                                              └── record, sync, close
//! ```

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use base::{Env, Error, Kind, Result};
use dsl::write::file_system_options;
use dsl::{Dataset, Property, PropertyValue, Subject};
use format::dnode::SLOT_SIZE;
use format::ids::{DatasetId, Guid, ObjectId};
use pool::{
    AttachAs, Candidate, Events, Head, LivePool, NewDevices, NewLeaf, NewPool, OfflineReason, OpenOptions, Pool,
    PoolState, PruneAmount, RefusedChanges,
};
use protocol::kstat::Kstat;
use protocol::log_report::{DatasetTimes, LogReport};
use protocol::wire::ScrubAction;
use zil::Replayed;
use zpl::{Counts, SyncMode, Zpl};

use crate::compat::{self, Allowed};
use crate::file_room::FileRoom;
use crate::histories;
use crate::locks::{self, DeviceLocks};
use crate::verbs::{DatasetChange, Limit, SnapshotChange, SnapshotGuard};
use crate::{files_version, new_contents, pool_props, report};

/// The pool of a pool process.
pub enum ServedPool {
    /// Nothing changes in it.
    ReadOnly(Arc<Pool>),
    /// It can be changed.
    Live(Arc<LivePool>),
}

impl ServedPool {
    /// The pool as of the last transaction group.
    pub fn view(&self) -> Arc<Pool> {
        match self {
            ServedPool::ReadOnly(pool) => pool.clone(),
            ServedPool::Live(live) => live.view(),
        }
    }

    /// Whether it can be changed.
    pub fn is_writable(&self) -> bool {
        matches!(self, ServedPool::Live(_))
    }

    /// The pool that can be changed. Errors: `ReadOnly`.
    pub fn live(&self) -> Result<&Arc<LivePool>> {
        match self {
            ServedPool::ReadOnly(_) => Err(Error::new(Kind::ReadOnly, "pool is read-only")),
            ServedPool::Live(live) => Ok(live),
        }
    }

    /// What its logs have done, `now_ns` after it was imported; `None` if it has none.
    pub fn log_report(&self, now_ns: u64) -> Option<LogReport> {
        self.live().ok().map(|live| report::log::gather(live, now_ns))
    }

    /// How long reads and writes of file systems and volumes took; none if it is not written.
    pub fn request_times(&self) -> Vec<DatasetTimes> {
        self.live().map_or_else(|_| Vec::new(), |live| report::log::request_times(live))
    }

    /// Counters as files: those of the pool, whose file systems and volumes were used so (by their objects), and what it
    /// adds to those of all pools.
    pub fn kstats(&self, used: &BTreeMap<DatasetId, Used>) -> [Vec<Kstat>; 2] {
        let view = self.view();
        let mut shared = vec![
            Kstat::new("arcstats", view.cache().arcstats()),
            Kstat::dbufs(),
            Kstat::new("zfetchstats", view.cache().ahead().values()),
            // there is no such cache, as in OpenZFS since 2.2; tools of 2.1 want to read it
            Kstat::new("vdev_cache_stats", ["delegations", "hits", "misses"].map(|name| (name, 0))),
        ];
        let (mut own, mut logs) = (Vec::new(), HashMap::new());
        if let Ok(live) = self.live() {
            own.extend(histories::tables(live));
            logs.extend(live.log_stats());
            let mut sums = zil::Stats::default().all();
            let add = |stats: &Vec<_>| sums.iter_mut().zip(stats).for_each(|((_, sum), (_, value))| *sum += value);
            logs.values().for_each(add);
            shared.extend([Kstat::new("dmu_tx", live.txgs().counters()), Kstat::new("zil", sums)]);
        }
        let health = view.tree().health(view.tree().root().id()).name();
        let word = if self.suspended().is_some() { "SUSPENDED" } else { health };
        own.extend([vdev_io(&view), Kstat::state(word)]);
        for (id, used) in used {
            // a dataset that is being destroyed has no name any more
            let Ok(name) = view.dsl().name_of(*id) else { continue };
            let log = logs.remove(id).unwrap_or_else(|| zil::Stats::default().all());
            let rows = counted(&used.counts).into_iter().chain(log).chain([kept(used)]);
            own.push(Kstat::of_dataset(*id, name, rows));
        }
        [own, shared]
    }

    /// Brings all changes to disk; with `force`, writes a group even if there are none.
    pub fn sync(&self, force: bool) -> Result<()> {
        match self {
            ServedPool::ReadOnly(_) => Ok(()),
            ServedPool::Live(live) if force => live.run(|context| context.write_config()),
            ServedPool::Live(live) => live.sync(),
        }
    }

    /// Ends all writing; the labels say how from then on.
    pub fn close(&self, state: PoolState) -> Result<()> {
        match self {
            ServedPool::ReadOnly(_) if state == PoolState::Destroyed => self.live().map(drop),
            ServedPool::ReadOnly(_) => Ok(()),
            ServedPool::Live(live) => live.close(state),
        }
    }

    /// What has happened to it; `None` if nothing can.
    pub fn events(&self) -> Option<Arc<Events>> {
        self.live().ok().map(|live| live.events().clone())
    }

    /// Whether it is suspended, and if so, whether operations that change something wait.
    pub fn suspended(&self) -> Option<bool> {
        self.live().ok()?.suspended()
    }

    /// Errors: `Suspended`, if the pool is.
    pub fn check_running(&self) -> Result<()> {
        match self.suspended() {
            None => Ok(()),
            Some(_) => Err(Error::new(Kind::Suspended, "pool I/O is currently suspended")),
        }
    }

    /// Whether it is suspended because another host may have it.
    pub fn is_lost(&self) -> bool {
        self.live().is_ok_and(|live| live.is_lost())
    }

    /// Waits until changes can be made. Errors: `Suspended` if operations that make some are not to wait.
    pub fn wait_resumed(&self) -> Result<()> {
        self.live()?.wait_resumed()
    }

    /// Gives up what is not on disk.
    pub fn abandon(&self) {
        self.live().into_iter().for_each(|live| live.abandon());
    }

    /// Clears the error counts of a vdev, or of all, and lets the pool go on if it is suspended. Errors: as from
    /// [`LivePool::clear`].
    pub fn clear(&self, vdev: Option<Guid>) -> Result<()> {
        self.live()?.clear(vdev, &locks::reopen)
    }

    /// Uses a device again. Errors: as from [`LivePool::online`].
    pub fn online(&self, vdev: Guid, expand: bool) -> Result<vdev::Health> {
        self.live()?.online(vdev, expand, &locks::reopen)
    }

    /// Looks at all devices again. Errors: as from [`LivePool::reopen`].
    pub fn reopen(&self, restart: bool) -> Result<()> {
        self.live()?.reopen(restart, &locks::reopen)
    }

    /// Begins a resilver anew. Errors: as from [`LivePool::restart_resilver`].
    pub fn restart_resilver(&self) -> Result<()> {
        self.live()?.restart_resilver()
    }

    /// Begins, halts or ends a scrub, of all or of the error log. Errors: as from [`LivePool::scrub`],
    /// [`LivePool::pause_scrub`] and [`LivePool::cancel_scrub`], and [`LivePool::scrub_errors`] and its likes.
    pub fn scrub(&self, action: ScrubAction) -> Result<()> {
        let live = self.live()?;
        match action {
            ScrubAction::Start(range) => live.scrub(range),
            ScrubAction::Errors => live.scrub_errors(),
            ScrubAction::Pause if live.is_scrubbing_errors() => live.pause_error_scrub(),
            ScrubAction::Pause => live.pause_scrub(),
            ScrubAction::Stop if live.is_scrubbing_errors() => live.cancel_error_scrub(),
            ScrubAction::Stop => live.cancel_scrub(),
        }
    }

    /// Keeps the state that the pool has now, or gives it up. Errors: as from [`LivePool::checkpoint`] and
    /// [`LivePool::discard_checkpoint`].
    pub fn checkpoint(&self, discard: bool) -> Result<()> {
        if discard { self.live()?.discard_checkpoint() } else { self.live()?.checkpoint() }
    }

    /// Does not use a device any more. Errors: as from [`LivePool::take_off`].
    pub fn take_off(&self, vdev: Guid, how: OfflineReason, temporary: bool, locks: &DeviceLocks) -> Result<()> {
        let live = self.live()?;
        live.take_off(vdev, how, temporary)?;
        // a cache device is opened anew, and locked, when it is back
        let view = live.view();
        let cache = view.caches().iter().find(|config| config.opt_guid("guid") == Some(vdev));
        let path = cache.and_then(|config| config.opt_str("path"));
        locks.let_go(&Vec::from_iter(path.map(str::to_owned)));
        Ok(())
    }

    /// Adds devices. Errors: as from [`LivePool::add`]; `Busy` if one is in use.
    pub fn add(&self, new: &NewDevices) -> Result<()> {
        let live = self.live()?;
        let paths: Vec<PathBuf> = new.leaves().map(|leaf| PathBuf::from(&leaf.path)).collect();
        let (locks, devices) = DeviceLocks::for_writing(&paths)?;
        live.add(new, &devices)?;
        // pools may share a spare
        locks.let_go(&spare_paths(&new.spares));
        locks.keep();
        Ok(())
    }

    /// Lets devices go that have been replaced, when they leave the pool; takes spares when they are needed.
    pub fn watch_leaves(&self, locks: &Arc<DeviceLocks>) {
        if let ServedPool::Live(live) = self {
            let locks = locks.clone();
            live.on_leaf_gone(move |path| locks.let_go(&[path.to_owned()]));
            live.let_spares_step_in(locks::reopen_labelled);
            live.let_devices_return(locks::reopen_labelled);
            live.let_new_devices_replace(locks::open_blank);
        }
    }

    /// Lets a device come beside another one; a spare of the pool stands in for it then, if it does not already. Errors:
    /// as from [`LivePool::attach`]; `Busy` if it is in use.
    pub fn attach(
        &self,
        vdev: Guid,
        new: &NewLeaf,
        (how, sequentially): (AttachAs, bool),
        ashift: Option<u32>,
    ) -> Result<()> {
        let live = self.live()?;
        let replaces = how == AttachAs::Replacement;
        if replaces && live.stands_in(vdev, &new.path) {
            return Ok(());
        }
        if replaces && let Some(outcome) = live.use_distributed_spare(vdev, &new.path, sequentially) {
            return outcome;
        }
        let is_raidz =
            live.tree().tops().any(|top| top.guid() == vdev && matches!(top.kind(), vdev::VdevKind::Raidz { .. }));
        let attach = |how, device| match sequentially {
            false if is_raidz && how == AttachAs::Side => live.widen(vdev, new, ashift, device),
            true => live.attach_sequentially(vdev, new, how, ashift, device),
            false => live.attach(vdev, new, how, ashift, device),
        };
        let (locks, mut devices) = match DeviceLocks::for_writing(&[PathBuf::from(&new.path)]) {
            // it may be that of the pool itself, which has its lock
            Err(error) if error.kind() == Kind::Busy && replaces => {
                return live.overwritten_device(vdev, &new.path).map_or(Err(error), |device| attach(how, device));
            }
            opened => opened?,
        };
        for (_, device) in devices.drain() {
            match live.spare_at(&new.path).filter(|_| replaces) {
                Some(spare) => attach(AttachAs::Spare(spare), live.spare_device(spare, device)?)?,
                None => attach(how, device)?,
            }
        }
        locks.keep();
        Ok(())
    }

    /// Takes a device off its mirror. Errors: as from [`LivePool::detach`].
    pub fn detach(&self, vdev: Guid, locks: &DeviceLocks) -> Result<()> {
        let path = self.live()?.detach_as_asked(vdev)?;
        locks.let_go(&[path]);
        Ok(())
    }

    /// Makes a pool of one device of each mirror. Errors: as from [`LivePool::split`]; `Unsupported` for a property that
    /// cannot be set.
    pub fn split(
        &self,
        name: &str,
        vdevs: &[Guid],
        properties: &[(String, String)],
        history: &str,
        locks: &DeviceLocks,
    ) -> Result<Guid> {
        let (live, mut stored) = (self.live()?, Vec::new());
        let when = pool_props::When::Split(live.view().uberblock().version);
        for (property, value) in properties {
            let known = pool_props::check(property, value, when).and_then(|()| pool_props::stored(property, value));
            let known = known.map_err(|why| Error::new(Kind::Unsupported, why))?;
            stored.extend(known.map(|known| (property.clone(), known)));
        }
        let (paths, guid) = live.split(name, vdevs, stored, history)?;
        locks.let_go(&paths);
        Ok(guid)
    }

    /// Takes a log device, spare or cache device off, or begins to move what is on another one. Errors: as from [`LivePool::remove`].
    pub fn remove(&self, vdev: Guid, locks: &DeviceLocks) -> Result<()> {
        let paths = self.live()?.remove(vdev)?;
        locks.let_go(&paths);
        paths.iter().for_each(|path| locks::clear_label(path, vdev));
        Ok(())
    }

    /// Bytes of memory that it takes to remove a device. Errors: as from [`LivePool::removal_table_bytes`].
    pub fn removal_table_bytes(&self, vdev: Guid) -> Result<u64> {
        self.live()?.removal_table_bytes(vdev)
    }

    /// Gives up the removal that is under way. Errors: as from [`LivePool::cancel_removal`].
    pub fn cancel_removal(&self) -> Result<()> {
        self.live()?.cancel_removal()
    }

    /// Adds a line to the history, without waiting for a pool that is suspended; that of a pool that is read-only stays as
    /// it is.
    pub fn record(&self, line: &str) -> Result<()> {
        match self {
            ServedPool::ReadOnly(_) => Ok(()),
            ServedPool::Live(live) => live.record_done(line),
        }
    }

    /// Changes a dataset.
    pub fn change(&self, env: &Env, change: DatasetChange) -> Result<()> {
        let live = self.live()?;
        match change {
            DatasetChange::Create { name, properties } => {
                live.create_dataset(&name, properties, new_contents::of_file_system(env))
            }
            DatasetChange::CreateVolume { name, properties } => {
                live.create_volume(&name, properties, new_contents::of_volume(env))
            }
            DatasetChange::Destroy { name } => live.destroy_dataset(&name),
            DatasetChange::Set { name, property, value } if property == Property::Version.name() => {
                files_version::upgrade(live, env, &name, &value)
            }
            DatasetChange::Set { name, property, value } => live.set_property(&name, &property, &value),
            // the volume has done it
            DatasetChange::Resize { name, size } => live.log_resize(&name, size),
            DatasetChange::SetLimit { name, limit: Limit { owner, counted, who, limit } } => {
                live.set_owner_limit(&name, owner, counted, &who, limit)
            }
            DatasetChange::Inherit { name, property, received } => live.inherit_property(&name, &property, received),
            DatasetChange::Rename { from, to } => live.rename_dataset(&from, &to),
        }
    }

    /// Lets nobody destroy snapshots as long as what it returns lives. Errors: as of
    /// [`LivePool::keep_snapshots`].
    pub fn keep_snapshots(&self, ids: &[DatasetId], lists: &[ObjectId]) -> Result<SnapshotGuard> {
        Ok(match self {
            ServedPool::ReadOnly(_) => Box::new(()),
            ServedPool::Live(live) => Box::new(live.keep_snapshots(ids, lists)?),
        })
    }

    /// Changes snapshots. Returns what was refused of it.
    pub fn change_snapshots(&self, change: &SnapshotChange) -> Result<RefusedChanges> {
        let live = self.live()?;
        let done = |result: Result<()>| result.map(|()| RefusedChanges::new());
        match change {
            SnapshotChange::Take { names, properties } => live.snapshot(names, properties),
            SnapshotChange::Destroy { names, defer } => live.destroy_snapshots(names, *defer),
            SnapshotChange::Hold(holds) => live.hold(holds),
            SnapshotChange::Release(holds) => live.release(holds),
            SnapshotChange::Bookmark { new, source } => done(live.bookmark(new, source)),
            SnapshotChange::Redact { snapshot, bookmark, later } => done(live.redact(snapshot, bookmark, later)),
            SnapshotChange::DestroyBookmark { name } => done(live.destroy_bookmark(name)),
            SnapshotChange::Rename { from, to, recursive } => done(live.rename_snapshot(from, to, *recursive)),
            SnapshotChange::Rollback { to } => done(live.rollback(to)),
            SnapshotChange::Clone { snapshot, target, properties } => {
                done(live.clone_snapshot(snapshot, target, properties))
            }
            SnapshotChange::Promote { name } => {
                let conflict = |name: String| (name, Error::new(Kind::Exists, "conflicting snapshot name"));
                Ok(live.promote(name)?.into_iter().map(conflict).collect())
            }
        }
    }

    /// The file system in the head of a dataset, to be changed; `None` in a pool that is read-only. What a
    /// crash has left in its intent log is done again. With `sync`, all is on disk at once.
    pub fn writable(&self, env: &Env, subject: &Subject, head: &Dataset, sync: bool) -> Result<Option<Zpl>> {
        let ServedPool::Live(live) = self else { return Ok(None) };
        let open = live.open_head(head.id)?;
        open.log().reopen();
        let options = options_of(live, &open, subject, sync);
        let (objset, log) = (open.objset().clone(), Some(open.log().clone()));
        let zpl = Zpl::open_writable(objset, live.txgs().clone(), env.clone(), options, log)?;
        tell_replayed(&head.name, zpl.replay_log()?.unwrap_or_default());
        live.count_anew(head.id)?;
        Ok(Some(zpl))
    }

    /// Lets files of the file system in head `id` be written as its properties say now; with `sync`, all at once.
    pub fn renew(&self, zpl: &Zpl, id: DatasetId, sync: bool) -> Result<()> {
        let ServedPool::Live(live) = self else { return Ok(()) };
        if !zpl.is_writable() {
            return Ok(());
        }
        let view = live.view();
        let subject = view.dsl().subject(&view.dsl().name_of(id)?)?;
        zpl.set_options(options_of(live, &live.open_head(id)?, &subject, sync))
    }

    /// Whether the root of head `id` has been replaced since `zpl` was opened on it. Errors: those of opening it.
    pub fn has_other_root(&self, zpl: &Zpl, id: DatasetId) -> Result<bool> {
        match self {
            ServedPool::ReadOnly(_) => Ok(false),
            ServedPool::Live(live) => Ok(!Arc::ptr_eq(live.open_head(id)?.objset(), zpl.objset())),
        }
    }

    /// Enables features, by name, and all that they need.
    pub fn enable_features(&self, names: &[String]) -> Result<()> {
        let wishes: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), true)).collect();
        self.live()?.enable_features(compat::features_for(&Allowed::default(), true, &wishes))
    }

    /// Takes the oldest entries of blocks with one pointer out of dedup tables.
    pub fn prune_dedup(&self, amount: PruneAmount) -> Result<()> {
        self.live()?.prune_dedup(amount).map(drop)
    }

    /// Gives the pool another guid: this, or one that nobody has.
    pub fn change_guid(&self, guid: Option<Guid>) -> Result<()> {
        self.live()?.change_guid(guid)
    }

    /// Sets a property of a vdev, or takes it away. Errors: as from [`LivePool::set_vdev_property`].
    pub fn set_vdev_property(&self, vdev: Guid, name: &str, value: Option<&PropertyValue>) -> Result<()> {
        if name == "sit_out" {
            return self.live()?.set_sit_out(vdev, value == Some(&PropertyValue::Number(1)));
        }
        self.live()?.set_vdev_property(vdev, name, value.cloned())
    }

    /// Sets a property of the pool, whose value has been checked.
    pub fn set_property(&self, name: &str, value: &str) -> Result<()> {
        if let Some(feature) = name.strip_prefix("feature@") {
            return self.enable_features(&[feature.to_owned()]);
        }
        let live = self.live()?;
        if name == "version" {
            let version = value.parse().map_err(|_| Error::new(Kind::Invalid, "no number"))?;
            return live.upgrade(version);
        }
        let stored = match name {
            "bootfs" if value.is_empty() => Some(PropertyValue::Number(0)),
            "bootfs" => Some(PropertyValue::Number(live.view().dsl().find(value)?.id.get())),
            _ => pool_props::stored(name, value).map_err(|why| Error::new(Kind::Unsupported, why))?,
        };
        stored.map_or(Ok(()), |stored| live.set_pool_properties(vec![(pool_props::real_name(name), stored)]))
    }
}

/// Tells what was done again as a dataset was opened.
pub fn tell_replayed(dataset: &str, replayed: Replayed) {
    if let Some(damage) = replayed.damage {
        tracing::warn!(dataset, "the end of the intent log could not be read: {damage}");
    }
    if replayed.left > 0 {
        tracing::info!(dataset, "{} operations of the process before are done again", replayed.left);
    }
}

/// What all vdevs together have read and written.
fn vdev_io(pool: &Pool) -> Kstat {
    let root = report::io::gather(pool, 0).vdevs.remove(&pool.guid()).unwrap_or_default();
    let ([reads, writes], [nread, nwritten]) = (root.operations, root.bytes);
    let [wcnt, rcnt] = [root.pending, root.active].map(|now| now.iter().sum());
    Kstat::io(&[
        ("nread", nread),
        ("nwritten", nwritten),
        ("reads", reads),
        ("writes", writes),
        ("wcnt", wcnt),
        ("rcnt", rcnt),
    ])
}

/// How a file system was used, by OpenZFS's names.
fn counted(counts: &Counts) -> [(&'static str, u64); 6] {
    [
        ("writes", counts.writes),
        ("nwritten", counts.written_bytes),
        ("reads", counts.reads),
        ("nread", counts.read_bytes),
        ("nunlinks", counts.unlinks),
        ("nunlinked", counts.unlinked),
    ]
}

/// How much a mounted file system, or a volume, has been used.
pub struct Used {
    /// Operations and bytes since it was mounted, or opened.
    pub counts: Counts,
    /// The kernel keeps the contents of its files, so that these are the reads of what it has not.
    pub page_cache: bool,
}

/// A row of our own: bytes read that the kernel keeps from then on, as it did not have them.
fn kept(used: &Used) -> (&'static str, u64) {
    ("page_cache_fill", if used.page_cache { used.counts.read_bytes } else { 0 })
}

/// How the files of a file system are written; with `sync`, all at once.
fn options_of(live: &LivePool, head: &Head, subject: &Subject, sync: bool) -> zpl::ZplOptions {
    let settings = file_system_options(subject.levels(), live.view().features().enabled());
    zpl::ZplOptions {
        record_bytes: settings.record_size,
        xattr_sa: settings.xattr == XATTR_SA,
        dnode_slots: settings.dnode_size as usize / SLOT_SIZE,
        sync: sync_mode(settings.sync, sync),
        shares: Some(live.root_holder()),
        room: Arc::new(FileRoom(head.clone())),
    }
}

/// When changes are brought to disk by that value of property `sync`; with `always`, all at once.
pub fn sync_mode(value: u64, always: bool) -> SyncMode {
    match value {
        _ if always => SyncMode::Always,
        SYNC_ALWAYS => SyncMode::Always,
        SYNC_DISABLED => SyncMode::Disabled,
        _ => SyncMode::Standard,
    }
}

/// Value of property `xattr` by which small ones lie with the file.
const XATTR_SA: u64 = 2;
/// Values of property `sync`.
const SYNC_ALWAYS: u64 = 1;
const SYNC_DISABLED: u64 = 2;

/// Makes a pool. Errors: why not, for the user.
pub fn create(env: &Env, new: &NewPool) -> Result<(ServedPool, DeviceLocks), String> {
    let words = |e: Error| match e.kind() {
        Kind::Busy => "one or more vdevs refer to the same device, or one of\n\
                       the devices is part of an active md or lvm device"
            .to_owned(),
        Kind::NoSpace => "one or more devices is out of space".to_owned(),
        _ => e.to_string(),
    };
    let paths: Vec<PathBuf> = new.leaves().map(|leaf| PathBuf::from(&leaf.path)).collect();
    let (locks, devices) = DeviceLocks::for_writing(&paths).map_err(words)?;
    let live = LivePool::create(env, new, &devices, new_contents::of_file_system(env)).map_err(words)?;
    live.start();
    let mut properties = Vec::new();
    for (name, value) in &new.properties {
        // an empty comment is none, and both are in the configuration from the start
        if !matches!(name.as_str(), "comment" | "compatibility")
            && let Some(stored) = pool_props::stored(name, value)?
        {
            properties.push((name.clone(), stored));
        }
    }
    if !properties.is_empty() {
        live.set_pool_properties(properties).map_err(words)?;
    }
    locks.let_go(&spare_paths(&new.spares));
    Ok((ServedPool::Live(live), locks))
}

fn spare_paths(spares: &[NewLeaf]) -> Vec<String> {
    spares.iter().map(|spare| spare.path.clone()).collect()
}

/// Opens a pool to be changed; `host` are id and name of this machine.
pub fn import(
    env: &Env,
    candidate: &Candidate,
    options: &OpenOptions,
    host: (u64, String),
) -> Result<(ServedPool, DeviceLocks)> {
    let (locks, candidate) = DeviceLocks::with_writable(candidate)?;
    let live = LivePool::import(env, &candidate, options, host)?;
    locks.let_unused_go(&candidate, &live.tree().leaves().map(|leaf| leaf.guid()).collect());
    live.start();
    live.open_caches(&locks::reopen_labelled);
    Ok((ServedPool::Live(live), locks))
}
