//! Pools that are written to: the groups' way to disk, and what is changed at that moment.
//!
//! ```text
//!   mounted heads: changed at any time ─────────────┐
//!   tasks: create, set, rename, ... wait their turn ─┤
//!                                                    ▼
//!   LivePool::step   close the group ─▶ phases: heads ─▶ tasks ─▶ jobs ─▶ MOS, in passes ─▶ labels, uberblock
//!                                                                                               └▶ a new view
//! ```
//!
//! The pool is made of parts, each with fields of its own: heads (and their logs), rooms and owners' limits, groups,
//! suspension, heartbeats, the watch over leaves, space maps, changes of dedup and clone tables. No part knows the pool; what
//! needs several of them is a verb of the pool, in a file for its subject.
//!
//! The MOS is changed only by the thread that syncs a group. What only looks at datasets, properties or
//! space uses a [`Pool`] of the latest group on disk, the view, as one that is open for reading does.
//!
//! Invariant: an uberblock is written when all that it leads to is on the devices, and flushed. What a
//! group freed is used again two groups later, so that at any moment the latest uberblocks are whole.

mod attach;
mod aux_devices;
mod caches;
mod checkpoint;
mod checkpoint_stage;
mod clone_changes;
mod clones;
mod config;
mod corrective;
mod create;
mod damage;
mod datasets;
mod deadman;
mod dedup;
mod dedup_changes;
mod dedup_logs;
mod device_watch;
mod dtl;
mod entry_limit;
mod error_scrub;
mod error_scrub_state;
mod events;
mod expansion;
mod expansion_state;
mod features;
mod free_limits;
mod frees;
mod group_times;
mod groups;
mod guid;
mod head;
mod heads;
mod heartbeats;
mod history;
mod import;
pub mod inject;
mod jobs;
mod kept_snapshots;
mod leaf_watch;
mod leaves;
mod logs;
mod multihost;
mod new;
mod notify;
mod owner_limits;
mod owner_quotas;
mod phases;
mod props;
mod prune;
mod receive;
mod receives;
mod recount;
mod redact;
mod removal;
mod replace_root;
mod resilver;
mod returns;
mod rooms;
mod roots;
mod scan;
mod scrub;
mod sit_out;
mod sit_out_state;
mod snapshots;
mod space_check;
mod space_maps;
mod spares;
mod split;
mod suspension;
mod sweep;
mod sweeps;
mod sync;
mod task_lists;
mod tasks;
mod txg_time_log;
mod txg_times;
mod vdev_props;
mod vdevs;
mod version;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc::{Cache, Gauge};
use base::{Env, Error, Kind, Mutex, MutexGuard, Result, RwLock};
use dmu::{Objset, Roots, Txgs};
use dsl::write::Change;
use format::ids::Txg;
use vdev::Tree;

use crate::Pool;
pub use attach::{AttachAs, GROUPS_UNDER_WAY};
use checkpoint_stage::CheckpointState;
use clone_changes::CloneChanges;
use config::Config;
pub use corrective::HealedSnapshot;
use dedup_changes::DedupChanges;
use device_watch::DeviceWatch;
use error_scrub_state::ErrorScrubState;
pub use events::{Events, EventsSince};
use expansion_state::ExpansionState;
use frees::Frees;
pub use group_times::{DeviceTotals, GroupRecord, GroupStage};
use groups::Groups;
pub use head::{Head, HeadKind};
use heads::Heads;
pub use heads::{LogMoment, LogTotals};
pub use heartbeats::{HeartbeatPlace, HeartbeatRecord};
pub use kept_snapshots::KeepsSnapshots;
use kept_snapshots::KeptSnapshots;
pub use leaf_watch::DeviceOpener;
use leaf_watch::LeafWatch;
use multihost::Multihost;
pub use new::{NewDevices, NewLeaf, NewPool, NewVdev, NewVdevShape};
use owner_limits::OwnerLimits;
pub use prune::PruneAmount;
pub use receive::Receiving;
use receives::Receives;
use removal::RemovalState;
use rooms::Rooms;
use scan::Scan;
pub use scan::ScanPass;
use sit_out_state::SitOut;
use space_maps::SpaceMaps;
use suspension::Suspension;
use sweeps::Sweeps;
pub use sweeps::{SweepAction, SweepKind};
use task_lists::TaskLists;
pub use txg_time_log::ScrubRange;
use txg_time_log::{NoteTime, TxgTimeLog};

/// Groups at most in which damage is mended when a pool is closed.
const LAST_GROUPS_MAX: usize = 16;

/// A pool that is open to be changed.
pub struct LivePool {
    this: Weak<LivePool>,
    env: Env,
    name: String,
    tree: Arc<Tree>,
    cache: Arc<Cache>,
    mos: Arc<Objset>,
    view: RwLock<Arc<Pool>>,
    config: Mutex<Config>,
    maps: Arc<SpaceMaps>,
    groups: Groups,
    heads: Heads,
    rooms: Rooms,
    limits: OwnerLimits,
    tasks: TaskLists<Task, Ending>,
    leaf_watch: LeafWatch,
    /// Is held while vdevs are changed.
    changing_vdevs: Mutex<()>,
    suspension: Arc<Suspension>,
    multihost: Arc<Multihost>,
    dedup_changes: Arc<DedupChanges>,
    clone_changes: Arc<CloneChanges>,
    frees: Frees,
    scan: Scan,
    txg_times: TxgTimeLog,
    error_scrub: ErrorScrubState,
    sit_out: SitOut,
    spares: DeviceWatch,
    returns: DeviceWatch,
    events: Arc<Events>,
    kept_snapshots: KeptSnapshots,
    roots: Arc<Roots>,
    receives: Receives,
    checkpoint: CheckpointState,
    sweeps: Sweeps,
    removal: RemovalState,
    expansion: ExpansionState,
}

/// What a task works with.
pub struct SyncContext<'a> {
    /// The pool.
    pub pool: &'a LivePool,
    /// Its MOS, the group, time and chance.
    pub change: Change<'a>,
}

/// Tells the thread that waits for a task how it went.
type Tell = Box<dyn FnOnce()>;

/// A change of the pool's own objects that waits for a group to be synced.
struct Task(Box<dyn FnOnce(&SyncContext<'_>) -> Tell + Send>);

/// Ends a change in the group in which it was begun.
type EndWork = dyn FnOnce(&SyncContext<'_>) -> Result<()> + Send;

/// The rest of a change, in the same group.
struct Ending(Box<EndWork>);

impl LivePool {
    /// A pool whose latest group on disk is `synced`: `view` is how it is read, `mos` how it is changed. There
    /// is no thread yet.
    fn over(
        env: &Env,
        view: Pool,
        mos: Arc<Objset>,
        maps: Arc<SpaceMaps>,
        config: Config,
        synced: Txg,
    ) -> Arc<LivePool> {
        let groups = Groups::new(env, Gauge::new("/").limit().unwrap_or(u64::MAX), synced);
        let (txgs, tree, name) = (groups.txgs().clone(), view.tree().clone(), view.name().to_owned());
        let (properties, root_txg) = (view.stored_props().unwrap_or_default(), view.uberblock().txg);
        let dedup_changes = Arc::<DedupChanges>::default();
        dedup_changes.set_mos(&mos);
        properties.iter().for_each(|(name, value)| dedup_changes.note_property(name, value));
        mos.cache().zio().set_ref_table(dedup_changes.clone());
        let clone_changes = Arc::<CloneChanges>::default();
        clone_changes.set_mos(&mos);
        mos.cache().zio().set_clone_table(clone_changes.clone());
        let suspension = Arc::new(Suspension::new(&name, txgs.clone(), &properties));
        let waiting = suspension.clone();
        mos.cache().zio().set_device_wait(Arc::new(move |error| waiting.wait(error)));
        Arc::new_cyclic(|this| LivePool {
            this: this.clone(),
            env: env.clone(),
            multihost: Arc::new(Multihost::new(env, &tree, &suspension, &properties)),
            suspension,
            cache: mos.cache().clone(),
            mos,
            maps,
            view: RwLock::new(Arc::new(view)),
            config: Mutex::new(config),
            groups,
            heads: Heads::new(env, &txgs),
            rooms: Rooms::default(),
            limits: OwnerLimits::default(),
            tasks: TaskLists::default(),
            leaf_watch: LeafWatch::new(env, &name, (&tree, root_txg), &properties),
            changing_vdevs: Mutex::default(),
            dedup_changes,
            clone_changes,
            frees: Frees::default(),
            scan: Scan::default(),
            txg_times: TxgTimeLog::default(),
            error_scrub: ErrorScrubState::default(),
            sit_out: SitOut::default(),
            spares: DeviceWatch::default(),
            returns: DeviceWatch::default(),
            events: Arc::new(Events::new(env)),
            kept_snapshots: KeptSnapshots::default(),
            roots: Arc::default(),
            receives: Receives::default(),
            checkpoint: CheckpointState::default(),
            sweeps: Sweeps::default(),
            removal: RemovalState::default(),
            expansion: ExpansionState::default(),
            tree,
            name,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pool as of the latest group on disk.
    pub fn view(&self) -> Arc<Pool> {
        self.view.read().clone()
    }

    /// Its vdevs.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Its groups.
    pub fn txgs(&self) -> &Arc<Txgs> {
        self.groups.txgs()
    }

    /// Itself, for what is to outlive no use of it.
    fn weak(&self) -> Weak<LivePool> {
        self.this.clone()
    }

    fn env(&self) -> &Env {
        &self.env
    }

    fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The MOS as the open group has it.
    fn mos(&self) -> &Arc<Objset> {
        &self.mos
    }

    fn config(&self) -> MutexGuard<'_, Config> {
        self.config.lock()
    }

    fn maps(&self) -> &SpaceMaps {
        &self.maps
    }

    fn heads(&self) -> &Heads {
        &self.heads
    }

    fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    fn limits(&self) -> &OwnerLimits {
        &self.limits
    }

    fn leaf_watch(&self) -> &LeafWatch {
        &self.leaf_watch
    }

    fn groups(&self) -> &Groups {
        &self.groups
    }

    fn suspension(&self) -> &Arc<Suspension> {
        &self.suspension
    }

    fn multihost(&self) -> &Arc<Multihost> {
        &self.multihost
    }

    fn txg_times(&self) -> &TxgTimeLog {
        &self.txg_times
    }

    fn sit_out(&self) -> &SitOut {
        &self.sit_out
    }

    fn dedup_changes(&self) -> &DedupChanges {
        &self.dedup_changes
    }

    fn clone_changes(&self) -> &CloneChanges {
        &self.clone_changes
    }

    /// Vdevs are changed by one thread at a time.
    fn change_vdevs_alone(&self) -> MutexGuard<'_, ()> {
        self.changing_vdevs.lock()
    }

    /// As [`LivePool::change_vdevs_alone`], if no other thread changes them now.
    fn try_change_vdevs_alone(&self) -> Option<MutexGuard<'_, ()>> {
        self.changing_vdevs.try_lock()
    }

    fn set_view(&self, view: Pool) {
        *self.view.write() = Arc::new(view);
    }

    fn frees(&self) -> &Frees {
        &self.frees
    }

    fn scan(&self) -> &Scan {
        &self.scan
    }

    fn removal(&self) -> &RemovalState {
        &self.removal
    }

    fn error_scrub(&self) -> &ErrorScrubState {
        &self.error_scrub
    }

    fn spares(&self) -> &DeviceWatch {
        &self.spares
    }

    fn return_watch(&self) -> &DeviceWatch {
        &self.returns
    }

    fn event_ring(&self) -> &Arc<Events> {
        &self.events
    }

    fn receives(&self) -> &Receives {
        &self.receives
    }

    fn roots(&self) -> &Arc<Roots> {
        &self.roots
    }

    fn kept_snapshots(&self) -> &KeptSnapshots {
        &self.kept_snapshots
    }

    fn sweeps(&self) -> &Sweeps {
        &self.sweeps
    }

    fn expansion(&self) -> &ExpansionState {
        &self.expansion
    }

    fn tasks(&self) -> &TaskLists<Task, Ending> {
        &self.tasks
    }

    fn checkpoint_state(&self) -> &CheckpointState {
        &self.checkpoint
    }

    /// Bytes of memory that there are.
    fn memory_bytes(&self) -> u64 {
        self.groups.memory_bytes()
    }

    /// Starts the thread that syncs groups. Without one, a thread that waits for a group syncs it.
    pub fn start(self: &Arc<Self>) {
        let pool = self.clone();
        let started = self.groups.start(&self.env, move || pool.sync_until_closed());
        self.suspension.allow_waiting(started);
    }

    fn sync_until_closed(&self) {
        self.note_needs();
        loop {
            self.groups.renew_throttle(&self.env);
            let waited = self.has_jobs() || self.txgs().wait_for_work();
            let waits = self.multihost.lost().is_some() || self.txgs().suspended().is_some();
            let has_tasks = self.has_tasks() || self.has_jobs() || self.has_damage();
            let has_work = waited || waits || has_tasks || self.has_much_to_trim();
            if self.txgs().stopped().is_some() {
                return;
            }
            if has_work
                && !self.txgs().is_frozen()
                && let Err(error) = self.step()
            {
                tracing::error!(pool = self.name, "nothing is written any more: {error}");
                return;
            }
            self.diagnose();
        }
    }

    /// Syncs the open group. Errors: whatever keeps it from being whole on disk; nothing is written any more then.
    pub fn step(&self) -> Result<()> {
        let _alone = self.groups.sync_alone();
        if let Some(why) = self.txgs().stopped() {
            return Err(Error::new(Kind::Suspended, format!("the pool is suspended: {why}")));
        }
        self.suspension.persist(|_| self.multihost.check())?;
        self.leaf_watch.renew_slow_ms();
        let txg = self.groups.close(&self.env, self.device_totals());
        self.env.failpoint("group closed");
        self.heads.note_logged(txg);
        match self.sync_txg(txg) {
            Ok(()) => {
                self.env.failpoint("group on disk");
                self.note_needs();
                self.txgs().synced(txg);
                self.groups.note_synced(&self.env, self.device_totals());
                self.heads.synced(txg);
                Ok(())
            }
            Err(error) => {
                self.txgs().stop(&error.to_string());
                // all threads that wait for a change wait in vain
                self.tasks.clear();
                Err(error)
            }
        }
    }

    /// What its devices have done since the pool was opened.
    fn device_totals(&self) -> DeviceTotals {
        let all = |of: fn(&vdev::VdevStats) -> &AtomicU64| {
            self.tree().leaves().map(|leaf| of(leaf.stats()).load(Ordering::Relaxed)).sum()
        };
        DeviceTotals {
            read_bytes: all(|stats| &stats.read_bytes),
            written_bytes: all(|stats| &stats.write_bytes),
            reads: all(|stats| &stats.reads),
            writes: all(|stats| &stats.writes),
        }
    }

    /// How long the last groups took on their way to disk, and the open one.
    pub fn group_times(&self) -> Vec<GroupRecord> {
        self.groups.times(&self.env)
    }

    /// The last heartbeats, if the pool is guarded by property `multihost`, as many as are kept.
    pub fn heartbeats(&self) -> Vec<HeartbeatRecord> {
        self.multihost.history()
    }

    /// Brings all that has happened to disk; waits if the pool is suspended. Errors: `Suspended` if nobody is to wait then.
    pub fn sync(&self) -> Result<()> {
        loop {
            match self.sync_now() {
                Err(error) if error.kind() == Kind::Suspended => self.txgs().wait_resumed()?,
                outcome => return outcome,
            }
        }
    }

    /// Brings everything that has happened so far to disk. Errors: `Suspended`, also if others would wait.
    pub fn sync_now(&self) -> Result<()> {
        if self.txgs().is_frozen() {
            self.heads.commit_logs()
        } else if self.groups.has_thread() {
            self.txgs().wait_synced()
        } else {
            self.step()
        }
    }

    /// Brings everything to disk, and from now on nothing but what intent logs write, as OpenZFS's `zpool freeze` for tests.
    /// What is changed is in memory and in these logs only, and gone when the pool is closed. Errors: as from
    /// [`LivePool::sync`].
    pub fn freeze(&self) -> Result<()> {
        self.sync()?;
        self.txgs().freeze();
        Ok(())
    }

    /// Ends all writing: syncs, and marks labels as exported or destroyed. Errors: `Suspended`, at once; those of writing.
    pub fn close(&self, state: crate::PoolState) -> Result<()> {
        self.stall_jobs();
        if self.txgs().is_frozen() {
            self.abandon();
            return Ok(());
        }
        self.heads.close_logs()?;
        // what a group reads may be damaged, too, so this need not come to an end
        for _ in 0..LAST_GROUPS_MAX {
            if self.has_damage() {
                self.sync_now()?;
            }
        }
        let is_given_up = Arc::new(AtomicBool::new(false));
        let gives_up = is_given_up.clone();
        let last = self.run_unless_suspended(move |context| {
            if gives_up.load(Ordering::Relaxed) {
                return Ok(());
            }
            context.pool.config().state = match state {
                crate::PoolState::Destroyed => 2,
                crate::PoolState::Exported => 1,
                _ => 0,
            };
            context.note_time(NoteTime::Now)?;
            context.write_config()
        });
        // the pool stays in use, and is not to be called exported when it goes on
        is_given_up.store(last.is_err(), Ordering::Relaxed);
        last?;
        if matches!(state, crate::PoolState::Destroyed | crate::PoolState::Exported) {
            self.notify(if state == crate::PoolState::Destroyed { "pool_destroy" } else { "pool_export" }, None);
        }
        self.multihost.end();
        self.cache.l2arc().close();
        self.groups.end();
        Ok(())
    }

    /// Gives up what is not on disk: all threads that wait get an error.
    pub fn abandon(&self) {
        tracing::error!(pool = self.name, "what is not on disk is given up");
        self.multihost.stop();
        self.txgs().stop("it is given up");
    }
}
