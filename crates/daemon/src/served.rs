//! The state of a pool process, and its answers.

mod asked;
mod cachefile;
mod handover;
mod leaving;
mod set_here;
mod still;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock, mpsc};

use base::{Env, Mutex, MutexGuard, Result};
use dsl::Property;
use dsl::receive::StreamReader;
use dsl::write::NewReceive;
use format::ids::{DatasetId, Guid, ObjectId};
use format::nvlist::Value;
use fuse::{Helper, InheritedMount, MountOptions};
use pool::{AttachAs, Events, HealedSnapshot, OfflineReason, Pool, PoolState, Receiving, RefusedChanges};
use protocol::datasets::Mounted;
use protocol::kstat::Kstat;
use protocol::pool_report::{PoolReport, Suspended};
use protocol::wire::{Answer, PoolReply, Request};
use zil::MemoryLog;

use self::cachefile::CacheEntry;
use crate::exports::Exports;
use crate::injections::Injections;
use crate::live::ServedPool;
use crate::locks::DeviceLocks;
use crate::mount_plan::{MountBounds, PlannedMount};
use crate::mounts::Mounts;
use crate::network_door::NetworkAccess;
use crate::process_end::ProcessEnd;
use crate::revival::Revival;
use crate::server::AnswersRequests;
use crate::streams::RunningStreams;
use crate::verbs::{DatasetChange, Folders, Host, SnapshotChange, SnapshotGuard, StillPool};
use crate::volume_exports::VolumeExports;
use crate::volume_losses::VolumeLosses;
use crate::volumes::OpenVolumes;
use crate::{report, share, taps, told, verbs};

/// An imported pool.
pub struct Served {
    env: Env,
    pool: Arc<ServedPool>,
    session: report::ProcessFacts,
    exports: Arc<Exports>,
    mounts: Mounts,
    volumes: Arc<OpenVolumes>,
    streams: RunningStreams,
    given_out: VolumeExports,
    injections: Injections,
    locks: Arc<DeviceLocks>,
    /// What does not change within a transaction group: all but states and error counts.
    report: Mutex<Option<PoolReport>>,
    cachefile: CacheEntry,
    /// How another process takes it over when this one dies.
    revival: OnceLock<Revival>,
    end: Mutex<mpsc::Sender<ProcessEnd>>,
    turn: Mutex<()>,
}

impl Served {
    /// A pool that is open, with locks on its devices; `end` is told when it has been exported. `run` is the folder where
    /// the processes of pools are found.
    pub fn new(
        env: Env,
        pool: ServedPool,
        locks: DeviceLocks,
        session: report::ProcessFacts,
        (helper, network, losses): (Helper, Arc<NetworkAccess>, VolumeLosses),
        run: &Path,
        end: mpsc::Sender<ProcessEnd>,
    ) -> Served {
        let locks = Arc::new(locks);
        pool.watch_leaves(&locks);
        let (exports, volumes, pool) = (Arc::<Exports>::default(), Arc::new(OpenVolumes::new(losses)), Arc::new(pool));
        let with = (pool.clone(), volumes.clone());
        Served {
            given_out: VolumeExports::new(&exports, &with, (&helper, &network), &env, run),
            injections: Injections::new(&pool, &exports),
            env,
            pool,
            session,
            mounts: Mounts::new(helper, exports.clone()),
            volumes,
            streams: RunningStreams::default(),
            exports,
            locks,
            report: Mutex::default(),
            cachefile: CacheEntry::default(),
            revival: OnceLock::new(),
            end: Mutex::new(end),
            turn: Mutex::default(),
        }
    }

    /// Another process is to take the pool over when this one dies.
    pub fn keep_revival(&self, revival: Revival) {
        // there is one for a process
        let _ = self.revival.set(revival);
        self.renew_revival();
    }

    fn renew_revival(&self) {
        self.revival.get().iter().for_each(|revival| revival.renew(&self.pool.view(), &self.env));
    }

    /// This process ends in order.
    pub fn end_revival(&self) {
        self.revival.get().iter().for_each(|revival| revival.end());
    }

    /// Goes on serving what the process before this one has mounted.
    pub fn adopt(&self, mounts: Vec<InheritedMount>) {
        for inherited in mounts {
            let dataset = inherited.options().fs_name.clone();
            if let Err(error) = self.mounts.adopt(&self.pool, inherited, &self.env) {
                tracing::error!(dataset, "its mount has ended with the process before: {error}");
            }
        }
    }

    /// Destroys what interrupted receives have left that nobody can go on with.
    pub fn destroy_leftovers(&self) {
        if let Ok(Err(error)) = self.pool.live().map(|live| live.destroy_leftovers()) {
            tracing::warn!("what interrupted receives have left stays: {error}");
        }
    }

    /// What serves its datasets.
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// Gives its volumes to programs, as properties say.
    pub fn give_out_volumes(&self) {
        self.given_out.renew();
    }

    /// Does again what the process before left of volumes in the log in memory, after its mounts have been adopted, and tells
    /// which volumes lost changes.
    pub fn take_up_volumes(&self, left: Option<&MemoryLog>) {
        self.volumes.take_up(&self.pool, left);
    }

    /// The property `cachefile` as the pool comes. Errors: if the file cannot be written; that is tried again at the next
    /// change.
    pub fn begin_cachefile(&self, value: &str) -> Result<()> {
        self.cachefile.begin(value, &self.pool.view())
    }

    fn hand_over(&self) -> handover::HandOver<'_> {
        let revival = self.revival.get();
        handover::HandOver { pool: &self.pool, streams: &self.streams, exports: &self.exports, revival }
    }

    fn asked(&self) -> asked::AskedPool<'_> {
        let (mounts, volumes, given_out) = (&self.mounts, &*self.volumes, &self.given_out);
        asked::AskedPool { env: &self.env, pool: &self.pool, mounts, volumes, given_out }
    }

    fn leaving(&self) -> leaving::Leaving<'_> {
        leaving::Leaving {
            pool: &self.pool,
            streams: &self.streams,
            exports: &self.exports,
            mounts: &self.mounts,
            rule: &self.session.bounds.rule,
        }
    }

    fn export(&self, force: bool, stays_active: bool, history: &str) -> Result<PoolReply> {
        let state = if stays_active { PoolState::Active } else { PoolState::Exported };
        self.leaving().export(force, state, history)?;
        self.leave_for_good();
        Ok(PoolReply::Exported)
    }

    fn destroy(&self, force: bool, history: &str) -> Result<PoolReply> {
        self.leaving().destroy(force, history)?;
        self.leave_for_good();
        Ok(PoolReply::Exported)
    }

    /// The pool is no longer in use here.
    fn leave_for_good(&self) {
        self.cachefile.leave(&self.pool.view());
    }

    /// Lets nobody wait for a pool that is suspended: its process ends.
    pub fn abandon_if_suspended(&self) {
        if self.pool.suspended().is_some() {
            self.pool.abandon();
        }
    }

    /// Ends in order, though nobody exported the pool: all that was changed is on disk then.
    pub fn close(&self) -> Result<()> {
        self.leaving().close(PoolState::Active)
    }

    /// Whether the pool can be changed.
    pub fn is_writable(&self) -> bool {
        self.pool.is_writable()
    }

    /// Counters as files: those of the pool, and what it adds to those of all pools.
    pub fn kstats(&self) -> [Vec<Kstat>; 2] {
        self.pool.kstats(&self.asked().used())
    }

    /// Has those look again at tunables that look seldom.
    pub fn follow_tunables(&self) {
        self.pool.view().cache().look_again();
    }

    /// What an administrator may set, and how it is now.
    pub fn tunables(&self) -> Vec<(&'static str, u64)> {
        self.env.tunables()
    }

    /// Lets others have the devices. Nothing may be written any more.
    pub fn release_devices(&self) {
        self.locks.release();
    }

    /// Tells the main thread to end.
    pub fn end(&self, why: ProcessEnd) {
        let end = self.end.lock();
        // it may have ended already
        let _ = end.send(why);
    }

    fn answer_running(
        &self,
        request: &Request,
        descriptors: Vec<OwnedFd>,
        part: &mut dyn FnMut(PoolReply) -> Result<()>,
    ) -> Result<PoolReply> {
        match request {
            Request::Report => self.report().map(|report| PoolReply::Report(Box::new(report))),
            Request::Io => Ok(PoolReply::Io(report::io::gather(&self.pool.view(), self.env.ticks_ns()))),
            Request::Logs => Ok(self.pool.log_report(self.env.ticks_ns()).map_or(PoolReply::Done, PoolReply::Logs)),
            Request::Times => Ok(PoolReply::Times(self.pool.request_times())),
            Request::Profile => Ok(PoolReply::Profile(report::profile::gather())),
            Request::Damaged => self.asked().damaged(),
            Request::Clients => Ok(self.asked().clients()),
            Request::Paths { dataset, objects } => self.asked().paths(*dataset, objects),
            Request::Dedup => report::dedup(&self.pool.view()).map(PoolReply::Dedup),
            Request::History => told::history(&self.pool.view(), part),
            Request::Events { after } => Ok(told::since(self.events().as_deref(), *after)),
            Request::ClearEvents => Ok(PoolReply::Cleared(self.pool.events().map_or(0, |events| events.clear()))),
            Request::Export { force, stays_active, history } => self.export(*force, *stays_active, history),
            Request::Destroy { force, history } => self.destroy(*force, history),
            Request::Clear { vdev, history } => self.clear(*vdev, history),
            Request::Online { vdev, expand, history } => self.online(*vdev, *expand, history),
            Request::Offline { vdev, fault, temporary, history } => {
                let how = if *fault { OfflineReason::Faulted } else { OfflineReason::Offline };
                self.change_pool(history, |pool| pool.take_off(*vdev, how, *temporary, &self.locks))
            }
            Request::Add { devices, history } => self.change_pool(history, |pool| pool.add(devices)),
            Request::MayRemove { vdev } => self.pool.removal_table_bytes(*vdev).map(PoolReply::TableBytes),
            Request::Remove { vdev, history } => self.change_pool(history, |pool| pool.remove(*vdev, &self.locks)),
            Request::CancelRemoval { history } => self.change_pool(history, ServedPool::cancel_removal),
            Request::Attach { vdev, new, replaces, sequentially, ashift, history } => {
                let how = if *replaces { AttachAs::Replacement } else { AttachAs::Side };
                self.change_pool(history, |pool| pool.attach(*vdev, new, (how, *sequentially), *ashift))
            }
            Request::Detach { vdev, history } => self.change_pool(history, |pool| pool.detach(*vdev, &self.locks)),
            Request::Scrub { action, history } => self.change_pool(history, |pool| pool.scrub(*action)),
            Request::Checkpoint { discard, history } => self.change_pool(history, |pool| pool.checkpoint(*discard)),
            Request::Split { name, vdevs, properties, history } => self.change_pool(history, |pool| {
                self.set_here().own(pool.split(name, vdevs, properties, history, &self.locks)?);
                Ok(())
            }),
            Request::Sweep { kind, action, vdevs, history } => self.asked().sweep((*kind, *action), vdevs, history),
            Request::Reopen { restart } => self.change_pool("", |pool| pool.reopen(*restart)),
            Request::Resilver { history } => self.change_pool(history, |pool| pool.restart_resilver()),
            Request::Sync { force } => self.pool.sync(*force).map(|()| self.mounts.settled()).map(|()| PoolReply::Done),
            Request::Upgrade { process } => self.hand_over().to(*process).map(|()| PoolReply::HandedOver),
            Request::Freeze => self.pool.live()?.freeze().map(|()| PoolReply::Done),
            Request::Set { name, value, history } => self.set(name, value, history),
            Request::SetVdev { vdev, name, value, history } => {
                self.change_pool(history, |pool| pool.set_vdev_property(*vdev, name, value.as_ref()))
            }
            Request::Enable { features, history } => self.change_pool(history, |pool| pool.enable_features(features)),
            Request::Reguid { guid, history } => self.change_identity(history, |pool| pool.change_guid(*guid)),
            Request::Prune { amount, history } => self.change_pool(history, |pool| pool.prune_dedup(*amount)),
            Request::Prefetch { tables } => {
                pool::prefetch_tables(&|| self.pool.view(), *tables).map(|()| PoolReply::Done)
            }
            Request::Share(order) => share::share(&self.pool, &self.mounts, order).map(PoolReply::Shared),
            Request::Inject(request) => self.injections.answer(request).map(PoolReply::Injections),
            Request::Tap { subject, order } => taps::answer(&self.env, &self.pool.view(), (*subject, *order), part),
            Request::Zfs(request) => {
                let part = &mut |told| part(PoolReply::Zfs(told));
                let answer = || verbs::answer(self, request, descriptors, part);
                self.streams.during(request.is_stream(), answer).map(PoolReply::Zfs)
            }
        }
    }

    fn set(&self, name: &str, value: &str, history: &str) -> Result<PoolReply> {
        match name {
            "cachefile" => self.cachefile.set(value, &self.pool.view()).map(|()| PoolReply::Done),
            // an older version lacks some of what a pool is known by
            "version" => self.change_identity(history, |pool| pool.set_property(name, value)),
            _ => self.change_pool(history, |pool| pool.set_property(name, value)),
        }
    }

    /// A change of what the host knows the pool by.
    fn change_identity(&self, history: &str, change: impl FnOnce(&ServedPool) -> Result<()>) -> Result<PoolReply> {
        let reply = self.change_pool(history, change)?;
        self.set_here().own(self.pool.view().guid());
        Ok(reply)
    }

    fn set_here(&self) -> set_here::SetHere<'_> {
        set_here::SetHere { env: &self.env, pool: &self.pool, rule: &self.session.bounds.rule }
    }

    fn online(&self, vdev: Guid, expand: bool, history: &str) -> Result<PoolReply> {
        let mut state = None;
        self.change_pool(history, |pool| pool.online(vdev, expand).map(|now| state = Some(now.state)))?;
        Ok(state.map_or(PoolReply::Done, PoolReply::Onlined))
    }

    /// Changes the pool, and tells its history, unless the line is empty.
    fn change_pool(&self, history: &str, change: impl FnOnce(&ServedPool) -> Result<()>) -> Result<PoolReply> {
        change(&self.pool)?;
        self.cachefile.renew(&self.pool.view());
        self.renew_revival();
        let record = if history.is_empty() { Ok(()) } else { self.pool.record(history) };
        // so that it is told when the pool is suspended
        let _ = self.report();
        record.map(|()| PoolReply::Done)
    }

    /// Everything that `zpool list`, `status` and `get` show; of a suspended pool what was known of it before.
    pub fn report(&self) -> Result<PoolReport> {
        let pool = self.pool.view();
        let txg = pool.uberblock().txg;
        let known = self.report.lock().clone();
        let suspended = self.pool.suspended();
        let has_lost = !pool.cache().zio().damage().lost().is_empty();
        let mut report = match known {
            // a reader may wait for the thread that brings the group to disk, and that one for devices
            Some(known) if known.txg == txg && !has_lost || suspended.is_some() => known,
            None if suspended.is_some() => report::bare(&pool, &self.session),
            _ => {
                let report = report::pool(&pool, &self.session)?;
                *self.report.lock() = Some(report.clone());
                report
            }
        };
        report.suspended = suspended.map(|waits| match waits {
            _ if self.pool.is_lost() => Suspended::Multihost,
            true => Suspended::Wait,
            false => Suspended::Continue,
        });
        report::refresh(&mut report.root, pool.tree());
        if report.suspended.is_some() {
            // the last report may be old
            report::refresh_space(&mut report, &pool);
        }
        report::refresh_growth(&mut report, &pool);
        if report.suspended.is_none() {
            // it changes without a group
            report.dedup_cached_bytes = pool.dedup_cached_bytes().unwrap_or(0);
            // other pools may have begun to use them, or have sent them home, without a group of this one
            report.spares = report::spares(&pool, &report.root);
        }
        if self.pool.is_writable() {
            report::refresh_caches(&mut report.caches, &pool);
        }
        report.cachefile = self.cachefile.value();
        if let Ok(live) = self.pool.live() {
            report::refresh_scan(&mut report, live);
            report.freeing_bytes += live.put_off_bytes();
        }
        Ok(report)
    }

    /// What has happened to the pool; nothing is told of one that is read-only.
    pub fn events(&self) -> Option<Arc<Events>> {
        self.pool.events()
    }

    fn clear(&self, vdev: Option<Guid>, history: &str) -> Result<PoolReply> {
        self.pool.clear(vdev)?;
        self.pool.record(history).map(|()| PoolReply::Done)
    }
}

impl AnswersRequests for Served {
    fn guids(&self) -> (Guid, Vec<Guid>, Vec<Guid>) {
        let view = self.pool.view();
        let vdevs = view.tree().iter().map(vdev::Vdev::guid).collect();
        let aux = view.spares().iter().chain(view.caches()).filter_map(|leaf| leaf.opt_guid("guid")).collect();
        (view.guid(), vdevs, aux)
    }

    fn answer(
        &self,
        request: &Request,
        descriptors: Vec<OwnedFd>,
        part: &mut dyn FnMut(PoolReply) -> Result<()>,
    ) -> Result<PoolReply> {
        self.env.failpoint("answer");
        self.asked().prepare(request)?;
        self.answer_running(request, descriptors, part)
    }

    fn answered(&self, last: &Answer) {
        match last {
            Answer::Done(PoolReply::Exported) => self.end(ProcessEnd::Exported),
            Answer::Done(PoolReply::HandedOver) => self.end(ProcessEnd::HandedOver),
            _ => {}
        }
    }
}

impl Host for Served {
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.pool.suspended().is_none().then(|| self.turn.lock())
    }

    fn pool(&self) -> Arc<Pool> {
        self.pool.view()
    }

    fn bounds(&self) -> &MountBounds {
        &self.session.bounds
    }

    fn mounts(&self) -> Vec<Mounted> {
        self.mounts.list()
    }

    fn is_at_its_place(&self, dataset: &str) -> bool {
        self.mounts.is_at_its_place(dataset)
    }

    fn unlinked(&self, dataset: &str) -> u64 {
        self.mounts.unlinked(dataset)
    }

    fn mount(&self, plan: &PlannedMount) -> Result<()> {
        self.mounts.mount(&self.pool, &plan.options, &self.env)
    }

    fn options_of(&self, dataset: &str) -> Option<MountOptions> {
        self.mounts.options_of(dataset)
    }

    fn remount(&self, options: &MountOptions) -> Result<bool> {
        self.mounts.remount(options)
    }

    fn unmount(&self, dataset: &str, force: bool, folders: Folders) -> Result<()> {
        // it would wait for what was written last
        if !force {
            self.pool.check_running()?;
        }
        let ended = self.exports.stop(dataset, force)?;
        if folders == Folders::Remove {
            ended.clear();
        }
        Ok(())
    }

    fn remove_folder(&self, options: &MountOptions) {
        self.mounts.remove_folder(options);
    }

    fn change(&self, change: &DatasetChange) -> Result<()> {
        if let DatasetChange::Resize { name, size } = change {
            self.volumes.open(&self.pool, name)?.set_size(*size)?;
        }
        self.given_out.check_change(&self.pool.view(), change)?;
        let work = || self.pool.change(&self.env, change.clone());
        match change {
            // files are served as their version has them
            DatasetChange::Set { name, property, .. } if property == Property::Version.name() => {
                self.exports.frozen(name, work)?;
            }
            _ => work()?,
        }
        self.set_here().mark_change(change)?;
        self.volumes.renew(&self.pool);
        match change {
            DatasetChange::CreateVolume { .. } => self.give_out_volumes(),
            DatasetChange::Set { property, .. } | DatasetChange::Inherit { property, .. }
                if VolumeExports::is_about(property) =>
            {
                self.give_out_volumes();
            }
            DatasetChange::Rename { from, to } => {
                self.exports.renamed(from, to);
                // where it is now it may be given out
                self.give_out_volumes();
            }
            _ => self.given_out.changed(),
        }
        self.exports.properties_changed_of(&[change.dataset()]);
        Ok(())
    }

    fn change_snapshots(&self, change: &SnapshotChange) -> Result<RefusedChanges> {
        let refused = self.given_out.refused(&self.pool.view(), change)?;
        if !refused.is_empty() {
            return Ok(refused);
        }
        if let (SnapshotChange::Take { .. }, Some(datasets)) = (change, change.datasets()) {
            self.mounts.send_pages(&datasets);
        }
        let refused = match change {
            SnapshotChange::Rollback { to } => {
                let of = to.split('@').next().unwrap_or_default();
                self.exports.frozen(of, || {
                    let changed = self.pool.change_snapshots(change);
                    self.volumes.note_replaced();
                    changed
                })?
            }
            _ => self.pool.change_snapshots(change)?,
        };
        self.set_here().mark_snapshots(change)?;
        match change {
            SnapshotChange::Clone { .. } => self.give_out_volumes(),
            _ => self.given_out.changed(),
        }
        match change.datasets() {
            Some(datasets) => self.exports.properties_changed_of(&datasets),
            None => self.exports.properties_changed(),
        }
        Ok(refused)
    }

    fn keep_snapshots(&self, ids: &[DatasetId], lists: &[ObjectId]) -> Result<SnapshotGuard> {
        self.pool.keep_snapshots(ids, lists)
    }

    fn begin_receive(&self, new: &NewReceive) -> Result<Receiving> {
        self.pool.live()?.begin_receive(new)
    }

    fn finish_receive(&self, receiving: Receiving) -> Result<()> {
        match receiving.replaces() {
            true => self.exports.frozen(&receiving.target()?, || {
                let finished = receiving.finish();
                self.volumes.note_replaced();
                finished
            })?,
            false => receiving.finish()?,
        }
        // it may be the first volume
        self.give_out_volumes();
        self.exports.properties_changed();
        Ok(())
    }

    fn heal_snapshot(&self, name: &str, to_guid: Guid, reader: &mut StreamReader<'_>) -> Result<HealedSnapshot> {
        self.pool.live()?.heal_snapshot(name, to_guid, reader)
    }

    fn abort_receive(&self, target: &str) -> Result<()> {
        self.pool.live()?.abort_receive(target)
    }

    fn set_received(&self, dataset: &str, values: Vec<(String, Value)>) -> Result<RefusedChanges> {
        let refused = self.pool.live()?.set_received(dataset, values)?;
        self.exports.properties_changed();
        Ok(refused)
    }

    fn still(&self) -> Box<dyn StillPool + '_> {
        let (exports, mounts, given_out) = (&self.exports, &self.mounts, &self.given_out);
        Box::new(still::Still { pool: &self.pool, exports, mounts, given_out })
    }

    fn now_ns(&self) -> u64 {
        self.env.ticks_ns()
    }

    fn record(&self, line: &str) -> Result<()> {
        self.pool.record(line)
    }
}
