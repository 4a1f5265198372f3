//! File systems that may be changed: their transactions, their locks, what they ask before they grow.
//!
//! ```text
//!   Room::admit ──▶ Txgs::begin ──▶ locks of objects ──▶ look, then change ──▶ end of the transaction
//! ```
//!
//! Changes cannot be taken back. So an operation first does all that may fail (reading, adding a name to a
//! table), and changes attributes last; where two steps may fail, the first is done in reverse if the
//! second one did.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use base::{Env, Error, Kind, Mutex, MutexGuard, Result, RwLock};
use dmu::sync::Owners;
use dmu::zap::Zap;
use dmu::{Object, Objset, Tx, Txgs};

use zil::Log;

use crate::Zpl;
use crate::locks::{Held, Locks};
use crate::log::LoggedFiles;
use crate::owners::{owners, owners_of};

/// The one version of file systems that are changed.
const VERSION: u64 = 5;

/// Who is asked for room before anything changes: quotas, reservations, the pool.
pub trait Room: Send + Sync {
    /// May about `bytes` more be written? `frees`: by an operation that frees more than that, which is
    /// to succeed also when the pool is full. Errors: `NoSpace`, `Quota`.
    fn admit(&self, bytes: u64, frees: bool) -> Result<()>;

    /// Whether any user, group or project has a limit.
    fn has_limits(&self) -> bool {
        false
    }

    /// May more bytes be charged to one of them, and another object if `is_new`? Errors: `Quota`.
    fn admit_owner(&self, _owner: Owner, _id: u64, _is_new: bool) -> Result<()> {
        Ok(())
    }
}

/// To whom files are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A user.
    User,
    /// A group.
    Group,
    /// A project.
    Project,
}

/// Nobody is asked.
struct Endless;

impl Room for Endless {
    fn admit(&self, _bytes: u64, _frees: bool) -> Result<()> {
        Ok(())
    }
}

/// What properties say of files that are written.
#[derive(Clone)]
pub struct Options {
    /// `recordsize`: bytes, a power of two.
    pub record_bytes: u64,
    /// Whether small extended attributes lie with the file (`xattr=sa`), not in a hidden directory.
    pub xattr_sa: bool,
    /// Slots of 512 bytes that a new file's dnode has: `dnodesize`.
    pub dnode_slots: usize,
    /// When changes are brought to disk: `sync`.
    pub sync: SyncMode,
    /// Who is asked for room.
    pub room: Arc<dyn Room>,
}

/// When changes are brought to disk, beside with their group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// When somebody asks for it.
    #[default]
    Standard,
    /// Before an operation returns.
    Always,
    /// Never, whoever asks.
    Disabled,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            record_bytes: 128 << 10,
            xattr_sa: true,
            dnode_slots: 1,
            sync: SyncMode::Standard,
            room: Arc::new(Endless),
        }
    }
}

/// What is needed to change a file system.
pub(crate) struct Live {
    txgs: Arc<Txgs>,
    env: Env,
    options: RwLock<Options>,
    pub(crate) locks: Arc<Locks>,
    /// Without one, who wants something to be on disk waits for its group.
    pub(crate) log: Option<Arc<Log>>,
    /// Whether the log is being replayed.
    pub(crate) replaying: AtomicBool,
    /// What the log reads.
    _contents: Option<Arc<LoggedFiles>>,
    /// Held by who moves a directory to another one: nobody else moves what is above it.
    renames: Mutex<()>,
    /// Held by who changes the queue of unlinked files.
    queue: Mutex<()>,
    /// Held by who changes the tables of attributes: the registry's object and that of the layouts.
    tables: Mutex<[u64; 2]>,
    /// Files that were made without a name, and never had one.
    unnamed: Mutex<HashSet<u64>>,
}

/// An operation at work: its transaction and its time.
pub(crate) struct Op<'a> {
    pub(crate) zpl: &'a Zpl,
    pub(crate) live: &'a Live,
    pub(crate) tx: Tx<'a>,
    /// Seconds since 1970, nanoseconds.
    pub(crate) now: [u64; 2],
}

impl Zpl {
    /// The file system in `objset`, which is one that changes in memory, to be changed in the groups of
    /// `txgs`, which `log` is told of; without a log, who syncs waits for a group. After a crash,
    /// [`Zpl::replay_log`] and [`Zpl::clean_unlinked`] are to be called next. Errors: as of [`Zpl::open`];
    /// `ReadOnly` for versions below 5.
    pub fn open_writable(
        objset: Arc<Objset>,
        txgs: Arc<Txgs>,
        env: Env,
        options: Options,
        log: Option<Arc<Log>>,
    ) -> Result<Zpl> {
        let zpl = Zpl::open(objset)?;
        let master = &zpl.master;
        if master.version < VERSION || master.sa_attrs == 0 || master.delete_queue == 0 {
            let what = format!("file systems of version {} can only be read: upgrade it first", master.version);
            return Err(Error::new(Kind::ReadOnly, what).in_dataset(zpl.objset.name()));
        }
        zpl.objset.set_owners_of(owners_of(zpl.registry.clone()))?;
        let tables = Zap::open(zpl.objset.object(master.sa_attrs)?)?;
        let tables = [tables.require_u64("REGISTRY")?, tables.require_u64("LAYOUTS")?];
        let locks = Arc::new(Locks::new());
        let contents = log.as_ref().map(|log| {
            let contents = Arc::new(LoggedFiles { zpl: zpl.clone(), locks: locks.clone() });
            let weak: Weak<LoggedFiles> = Arc::downgrade(&contents);
            log.set_contents(weak);
            contents
        });
        let live = Live {
            txgs,
            env,
            options: RwLock::new(options),
            locks,
            log,
            replaying: AtomicBool::new(false),
            _contents: contents,
            renames: Mutex::default(),
            queue: Mutex::default(),
            tables: Mutex::new(tables),
            unnamed: Mutex::default(),
        };
        Ok(Zpl { live: Some(Arc::new(live)), ..zpl })
    }

    /// Whether it may be changed.
    pub fn is_writable(&self) -> bool {
        self.live.is_some()
    }

    /// Whether several names may stand for the same entry of a directory.
    pub fn has_aliases(&self) -> bool {
        !self.master.prep.is_exact()
    }

    /// What applies to files that are written from now on. Errors: `ReadOnly`.
    pub fn set_options(&self, options: Options) -> Result<()> {
        *self.live()?.options.write() = options;
        Ok(())
    }

    pub(crate) fn live(&self) -> Result<&Live> {
        self.live.as_deref().ok_or_else(read_only)
    }

    /// Begins an operation that will write about so many bytes.
    pub(crate) fn begin(&self, bytes: u64, frees: bool) -> Result<Op<'_>> {
        let live = self.live()?;
        // what was promised had its room
        if !live.is_replaying() {
            live.options().room.admit(bytes, frees)?;
        }
        let tx = live.txgs.begin()?;
        let (secs, nanos) = live.env.now();
        Ok(Op { zpl: self, live, tx, now: [secs, nanos.into()] })
    }

    /// Refuses to let a file grow whose owners have used up what they may.
    pub(crate) fn check_owners(&self, object: &Object) -> Result<()> {
        let Some(room) = self.live()?.owner_limits() else { return Ok(()) };
        let owners = owners(object.fresh()?.dnode(), &self.registry());
        owners.map_or(Ok(()), |owners| admit_owners(&*room, &owners, false))
    }
}

/// Asks for each of the owners.
pub(crate) fn admit_owners(room: &dyn Room, owners: &Owners, is_new: bool) -> Result<()> {
    room.admit_owner(Owner::User, owners.user, is_new)?;
    room.admit_owner(Owner::Group, owners.group, is_new)?;
    match owners.project {
        // what is in no project
        0 => Ok(()),
        project => room.admit_owner(Owner::Project, project, is_new),
    }
}

impl Live {
    pub(crate) fn txgs(&self) -> &Txgs {
        &self.txgs
    }

    pub(crate) fn options(&self) -> Options {
        self.options.read().clone()
    }

    /// Who is to be asked for the limits of users, groups and projects, if there are any. What is replayed was
    /// promised: nobody is asked.
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

    pub(crate) fn queue(&self) -> MutexGuard<'_, ()> {
        self.queue.lock()
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, [u64; 2]> {
        self.tables.lock()
    }

    pub(crate) fn unnamed(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.unnamed.lock()
    }

    pub(crate) fn random(&self) -> u64 {
        self.env.random()
    }
}

impl<'a> Op<'a> {
    /// Locks objects that will be changed.
    pub(crate) fn alone(&self, inos: &[u64]) -> Held<'a> {
        self.live.locks.alone(inos)
    }
}

pub(crate) fn read_only() -> Error {
    Error::new(Kind::ReadOnly, "read-only file system")
}
