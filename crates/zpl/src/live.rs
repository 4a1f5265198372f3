//! File systems that may be changed: their transactions, their locks, what they ask before they grow.
//!
//! ```text
//!   Room::admit ──▶ Txgs::begin ──▶ locks of objects ──▶ look, then change ──▶ end of the transaction
//! ```
//!
//! Changes cannot be taken back. So an operation first does all that may fail (reading, adding a name to a
//! table), and changes attributes last; where two steps may fail, the first is done in reverse if the
//! second one did.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use base::tunables::Tunable;
use base::{Env, Error, Kind, Mutex, MutexGuard, Result, RwLock};
use dmu::sync::Owners;
use dmu::{RootHolder, Txgs};
use format::objset::Owner;
use zil::{Log, SyncMode};

use crate::attr_tables::AttrTables;
use crate::drain::Drain;
use crate::locks::ObjectLocks;
use crate::logged_files::LoggedFiles;
use crate::nodes::Nodes;
use crate::orphans::OrphanQueue;

/// What is asked for room before anything changes: quotas, reservations, the pool.
pub trait Room: Send + Sync {
    /// May about `bytes` more be written? `frees`: by an operation that frees more than that, which is
    /// to succeed also when the pool is full. Errors: `NoSpace`, `Quota`.
    fn admit(&self, bytes: u64, frees: bool) -> Result<()>;

    /// How many of about `bytes` more may be written: as many as there is room for, but `portion` as long as there is any.
    /// Errors: as of [`Room::admit`] if there is none.
    fn admit_some(&self, bytes: u64, _portion: u64) -> Result<u64> {
        self.admit(bytes, false).map(|()| bytes)
    }

    /// Whether any user, group or project has a limit.
    fn has_limits(&self) -> bool {
        false
    }

    /// May more bytes be charged to one of them, and another object if `is_new`? Errors: `Quota`.
    fn admit_owner(&self, _owner: Owner, _id: u64, _is_new: bool) -> Result<()> {
        Ok(())
    }
}

/// There is always room.
struct Endless;

impl Room for Endless {
    fn admit(&self, _bytes: u64, _frees: bool) -> Result<()> {
        Ok(())
    }
}

/// What properties say of files that are written.
#[derive(Clone)]
pub struct ZplOptions {
    /// `recordsize`: bytes, a power of two.
    pub record_bytes: u64,
    /// Whether small extended attributes lie with the file (`xattr=sa`), not in a hidden directory.
    pub xattr_sa: bool,
    /// Slots of 512 bytes that a new file's dnode has: `dnodesize`.
    pub dnode_slots: usize,
    /// When changes are brought to disk: `sync`.
    pub sync: SyncMode,
    /// What copies may share blocks of; `None`: of nothing.
    pub shares: Option<Arc<dyn RootHolder>>,
    /// What is asked for room.
    pub room: Arc<dyn Room>,
}

impl Default for ZplOptions {
    fn default() -> ZplOptions {
        ZplOptions {
            record_bytes: 128 << 10,
            xattr_sa: true,
            dnode_slots: 1,
            sync: SyncMode::Standard,
            shares: None,
            room: Arc::new(Endless),
        }
    }
}

/// What is needed to change a file system.
pub(crate) struct LiveZpl {
    txgs: Arc<Txgs>,
    env: Env,
    options: RwLock<ZplOptions>,
    locks: Arc<ObjectLocks>,
    /// Without one, a sync waits for its group.
    log: Option<Arc<Log>>,
    /// Whether the log is being replayed.
    is_replaying: AtomicBool,
    /// When what is replayed was done, if that is known.
    replay_time: Mutex<Option<[u64; 2]>>,
    /// What the log reads.
    _logged_files: Option<Arc<LoggedFiles>>,
    /// Held by an operation that moves a directory to another one: no other moves what is above it.
    renames: Mutex<()>,
    orphans: OrphanQueue,
    drain: Drain,
    /// `None` where files have fixed znodes.
    tables: Option<AttrTables>,
}

impl LiveZpl {
    /// The file system of `nodes` changes in the groups of `txgs`, which `log` is told of.
    pub(crate) fn new(
        nodes: &Nodes,
        txgs: Arc<Txgs>,
        env: Env,
        options: ZplOptions,
        log: Option<Arc<Log>>,
        (orphans, tables): (OrphanQueue, Option<AttrTables>),
    ) -> LiveZpl {
        let locks = Arc::new(ObjectLocks::new());
        let logged_files = log.as_ref().map(|log| {
            let files = Arc::new(LoggedFiles::new(nodes.clone(), locks.clone()));
            let weak: Weak<LoggedFiles> = Arc::downgrade(&files);
            log.set_contents(weak);
            files
        });
        LiveZpl {
            txgs,
            env,
            options: RwLock::new(options),
            locks,
            log,
            is_replaying: AtomicBool::new(false),
            replay_time: Mutex::default(),
            _logged_files: logged_files,
            renames: Mutex::default(),
            orphans,
            drain: Drain::default(),
            tables,
        }
    }

    pub(crate) fn txgs(&self) -> &Txgs {
        &self.txgs
    }

    pub(crate) fn options(&self) -> ZplOptions {
        self.options.read().clone()
    }

    pub(crate) fn set_options(&self, options: ZplOptions) {
        *self.options.write() = options;
    }

    pub(crate) fn locks(&self) -> &ObjectLocks {
        &self.locks
    }

    pub(crate) fn log(&self) -> Option<&Arc<Log>> {
        self.log.as_ref()
    }

    /// Whether the log is being replayed.
    pub(crate) fn is_replaying(&self) -> bool {
        self.is_replaying.load(Ordering::Relaxed)
    }

    pub(crate) fn set_replaying(&self, is_replaying: bool) {
        self.is_replaying.store(is_replaying, Ordering::Relaxed);
    }

    /// Tells what is to be asked for the limits of users, groups and projects, if there are any. What is replayed was
    /// promised: nothing is asked.
    pub(crate) fn owner_limits(&self) -> Option<Arc<dyn Room>> {
        if self.is_replaying() {
            return None;
        }
        let room = self.options().room;
        room.has_limits().then_some(room)
    }

    pub(crate) fn renames(&self) -> MutexGuard<'_, ()> {
        self.renames.lock()
    }

    /// Files without a name.
    pub(crate) fn orphans(&self) -> &OrphanQueue {
        &self.orphans
    }

    /// Those that are freed in the background.
    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    /// The tables of attributes.
    /// Errors: `Unsupported` where files have fixed znodes.
    pub(crate) fn tables(&self) -> Result<&AttrTables> {
        let fixed = || Error::new(Kind::Unsupported, "file systems of old versions have no system attributes");
        self.tables.as_ref().ok_or_else(fixed)
    }

    pub(crate) fn set_replay_time(&self, time: Option<[u64; 2]>) {
        *self.replay_time.lock() = time;
    }

    /// Seconds since 1970, nanoseconds.
    pub(crate) fn now(&self) -> [u64; 2] {
        if self.is_replaying()
            && let Some(time) = *self.replay_time.lock()
        {
            return time;
        }
        let (secs, nanos) = self.env.now();
        [secs, nanos.into()]
    }

    pub(crate) fn random(&self) -> u64 {
        self.env.random()
    }

    pub(crate) fn tunable(&self, tunable: Tunable) -> u64 {
        self.env.tunable(tunable)
    }
}

/// Asks for each of the owners.
pub(crate) fn admit_owners(room: &dyn Room, owners: &Owners, is_new: bool) -> Result<()> {
    room.admit_owner(Owner::User, owners.user, is_new)?;
    room.admit_owner(Owner::Group, owners.group, is_new)?;
    admit_project(room, owners, is_new)
}

/// Asks for the project.
pub(crate) fn admit_project(room: &dyn Room, owners: &Owners, is_new: bool) -> Result<()> {
    match owners.project {
        // what is in no project
        0 => Ok(()),
        project => room.admit_owner(Owner::Project, project, is_new),
    }
}

pub(crate) fn read_only() -> Error {
    Error::new(Kind::ReadOnly, "read-only file system")
}
