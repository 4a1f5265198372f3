//! Pools that are written to: the groups' way to disk, and what is changed at that moment.
//!
//! ```text
//!   mounted heads: changed at any time ─────────────┐
//!   tasks: create, set, rename, ... wait their turn ─┤
//!                                                    ▼
//!   LivePool::step   close the group ─▶ heads ─▶ tasks ─▶ MOS, in passes ─▶ labels, uberblock
//!                                                          space maps change as the MOS is written
//!                                                                            └▶ a new view
//! ```
//!
//! The MOS is changed only by who syncs a group. Everybody who only looks at datasets, properties or
//! space uses a [`Pool`] of the latest group on disk, the view, as one that is open for reading does.
//!
//! Invariant: an uberblock is written when all that it leads to is on the devices, and flushed. What a
//! group freed is used again two groups later, so that at any moment the latest uberblocks are whole.

mod aux_devices;
mod caches;
mod config;
mod create;
mod damage;
mod datasets;
mod dedup;
mod dtl;
mod features;
mod guid;
mod history;
mod import;
mod leaves;
mod logs;
mod multihost;
mod new;
mod owner_quotas;
mod props;
mod space_maps;
mod suspension;
mod sync;
mod tasks;
mod vdevs;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak, mpsc};

use arc::{Cache, Gauge};
use base::{Env, Error, Kind, Mutex, MutexGuard, Result, RwLock};
use dmu::{Objset, Throttle, Txgs};
use vdev::Tree;

use crate::Pool;
use config::Config;
use datasets::KnownRoom;
use dedup::DedupFrees;
pub use import::WRITABLE_FEATURES;
pub use leaves::DeviceOpener;
pub use logs::{LogMoment, LogTotals};
use multihost::Multihost;
pub use new::{NewLeaf, NewPool, NewVdev, Shape};
use owner_quotas::KnownLimits;
use space_maps::SpaceMaps;
use suspension::Suspension;
pub use tasks::SyncContext;
use tasks::Task;
pub use vdevs::NewDevices;

/// Groups at most in which damage is mended when a pool is closed.
const LAST_GROUPS_MAX: usize = 16;

/// A pool that is open to be changed.
pub struct LivePool {
    this: Weak<LivePool>,
    env: Env,
    /// Bytes of memory that there are, when it was imported.
    memory: u64,
    name: String,
    txgs: Arc<Txgs>,
    tree: Arc<Tree>,
    cache: Arc<Cache>,
    mos: Arc<Objset>,
    maps: Arc<SpaceMaps>,
    view: RwLock<Arc<Pool>>,
    config: Mutex<Config>,
    heads: Mutex<HashMap<u64, Head>>,
    tasks: Mutex<Vec<Task>>,
    /// Held by who syncs a group.
    syncing: Mutex<()>,
    /// Held by who changes its vdevs.
    changing_vdevs: Mutex<()>,
    suspension: Arc<Suspension>,
    multihost: Arc<Multihost>,
    /// By dataset, for [`LivePool::admit`].
    rooms: Mutex<HashMap<u64, KnownRoom>>,
    /// The most copies that an open head's data have had.
    copies_max: AtomicU8,
    /// By dataset, for [`LivePool::admit_owner`].
    limits: Mutex<HashMap<u64, KnownLimits>>,
    dedup_frees: Arc<DedupFrees>,
    /// Blocks of destroyed heads, or others that were put off, wait to be freed.
    has_destroyed: AtomicBool,
    has_thread: AtomicBool,
    /// Is closed when the thread that syncs has ended.
    thread: Mutex<Option<mpsc::Receiver<()>>>,
    ends: AtomicBool,
    /// What was logged, when the latest groups were closed.
    logged: Mutex<VecDeque<LogMoment>>,
}

/// A head whose objects may be changed.
#[derive(Clone)]
struct Head {
    objset: Arc<Objset>,
    log: Arc<zil::Log>,
}

impl LivePool {
    /// A pool whose latest group on disk is `synced`: `view` is how it is read, `mos` how it is changed. There
    /// is no thread yet.
    fn over(
        env: &Env,
        view: Pool,
        mos: Arc<Objset>,
        maps: Arc<SpaceMaps>,
        config: Config,
        synced: u64,
    ) -> Arc<LivePool> {
        let memory = Gauge::new("/").limit().unwrap_or(u64::MAX);
        let txgs = Arc::new(Txgs::new(synced, Throttle::of(env, memory)));
        let properties = view.stored_props().unwrap_or_default();
        let dedup_frees = Arc::<DedupFrees>::default();
        mos.cache().zio().set_ref_table(dedup_frees.clone());
        Arc::new_cyclic(|this| LivePool {
            this: this.clone(),
            env: env.clone(),
            memory,
            name: view.name().to_owned(),
            suspension: Arc::new(Suspension::new(view.name(), txgs.clone(), &properties)),
            multihost: Arc::new(Multihost::new(env, &properties)),
            txgs,
            tree: view.tree().clone(),
            cache: mos.cache().clone(),
            mos,
            maps,
            view: RwLock::new(Arc::new(view)),
            config: Mutex::new(config),
            heads: Mutex::default(),
            tasks: Mutex::default(),
            syncing: Mutex::default(),
            changing_vdevs: Mutex::default(),
            rooms: Mutex::default(),
            copies_max: AtomicU8::new(1),
            limits: Mutex::default(),
            dedup_frees,
            has_destroyed: AtomicBool::new(false),
            has_thread: AtomicBool::new(false),
            thread: Mutex::default(),
            ends: AtomicBool::new(false),
            logged: Mutex::default(),
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
        &self.txgs
    }

    /// Starts the thread that syncs groups. Without one, whoever waits for a group syncs it.
    pub fn start(self: &Arc<Self>) {
        let pool = self.clone();
        self.has_thread.store(true, Ordering::Relaxed);
        let (running, ended) = mpsc::channel::<()>();
        let started = self.env.spawn("txg_sync", move || {
            pool.sync_until_closed();
            // in this order: who waits for the thread's end wants the devices closed
            drop(pool);
            drop(running);
        });
        self.has_thread.store(started, Ordering::Relaxed);
        self.suspension.allow_waiting(started);
        *self.thread.lock() = started.then_some(ended);
    }

    fn sync_until_closed(&self) {
        loop {
            self.txgs.set_throttle(Throttle::of(&self.env, self.memory));
            let waited = self.txgs.wait_for_work();
            let waits = self.multihost.lost().is_some() || self.txgs.suspended().is_some();
            let has_destroyed = self.has_destroyed.load(Ordering::Relaxed);
            let has_work = waited || waits || self.has_tasks() || has_destroyed || self.has_damage();
            if self.ends.load(Ordering::Relaxed) {
                return;
            }
            if has_work && let Err(error) = self.step() {
                tracing::error!(pool = self.name, "nothing is written any more: {error}");
                return;
            }
            self.diagnose();
        }
    }

    /// Syncs the open group. Errors: whatever keeps it from being whole on disk; nothing is written any more then.
    pub fn step(&self) -> Result<()> {
        let _alone = self.syncing.lock();
        if let Some(why) = self.txgs.stopped() {
            return Err(Error::new(Kind::Suspended, format!("the pool is suspended: {why}")));
        }
        self.suspension.persist(|_| self.multihost.check())?;
        let txg = self.txgs.close();
        self.env.failpoint("group closed");
        self.note_logged(txg);
        match self.sync_txg(txg) {
            Ok(()) => {
                self.env.failpoint("group on disk");
                self.txgs.synced(txg);
                self.open_heads().iter().for_each(|(_, head)| head.log.synced(txg));
                Ok(())
            }
            Err(error) => {
                self.txgs.stop(&error.to_string());
                self.fail_tasks();
                Err(error)
            }
        }
    }

    /// Brings everything that has happened so far to disk; waits if the pool is suspended. Errors: `Suspended` if
    /// nobody is to wait then.
    pub fn sync(&self) -> Result<()> {
        loop {
            match self.sync_now() {
                Err(error) if error.kind() == Kind::Suspended => self.txgs.wait_resumed()?,
                outcome => return outcome,
            }
        }
    }

    /// Brings everything that has happened so far to disk. Errors: `Suspended`, also if others would wait.
    pub fn sync_now(&self) -> Result<()> {
        match self.has_thread.load(Ordering::Relaxed) {
            true => self.txgs.wait_synced(),
            false => self.step(),
        }
    }

    /// The object set of a file system's head, to be changed. `id` is the dataset's object.
    pub fn head(&self, id: u64) -> Result<Arc<Objset>> {
        self.open_head(id).map(|head| head.objset)
    }

    fn open_head(&self, id: u64) -> Result<Head> {
        if let Some(head) = self.heads.lock().get(&id) {
            return Ok(head.clone());
        }
        let view = self.view();
        let name = view.dsl().name_of(id)?;
        let subject = view.dsl().subject(&name)?;
        let policy = dsl::write::write_policy(subject.levels(), self.config().enabled);
        let dataset = view.dsl().find(&name)?;
        let kind = format::objset::ObjsetType::Zfs;
        let objset = Objset::open_live(self.cache.clone(), id, dataset.phys.bp, kind, &name, policy)?;
        let head = self.add_head(id, objset)?;
        self.renew_policy(&head, subject.levels())?;
        Ok(head)
    }

    /// Ends all writing: syncs, and marks the labels as those of an exported pool, or of a destroyed one.
    pub fn close(&self, state: crate::PoolState) -> Result<()> {
        self.close_logs()?;
        // what a group reads may be damaged, too, so this need not come to an end
        for _ in 0..LAST_GROUPS_MAX {
            if self.has_damage() {
                self.sync()?;
            }
        }
        self.run(move |context| {
            context.pool.config().state = match state {
                crate::PoolState::Destroyed => 2,
                crate::PoolState::Exported => 1,
                _ => 0,
            };
            context.write_config()
        })?;
        self.multihost.end();
        self.cache.l2arc().close();
        self.ends.store(true, Ordering::Relaxed);
        self.txgs.stop("it is closed");
        if let Some(thread) = self.thread.lock().take() {
            // an error tells that it has ended
            let _ = thread.recv();
        }
        Ok(())
    }

    /// Gives up what is not on disk: whoever waits gets an error.
    pub fn abandon(&self) {
        tracing::error!(pool = self.name, "what is not on disk is given up");
        self.multihost.stop();
        self.txgs.stop("it is given up");
    }

    fn config(&self) -> MutexGuard<'_, Config> {
        self.config.lock()
    }

    /// The heads that are open.
    fn open_heads(&self) -> Vec<(u64, Head)> {
        let mut heads: Vec<(u64, Head)> = self.heads.lock().iter().map(|(&id, head)| (id, head.clone())).collect();
        heads.sort_by_key(|(id, _)| *id);
        heads
    }
}

impl Head {
    /// Whether there is something to be written in a group.
    fn is_dirty(&self, txg: u64) -> bool {
        self.objset.is_dirty(txg) || self.log.is_dirty(txg)
    }
}
