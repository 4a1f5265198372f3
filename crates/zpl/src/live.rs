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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use base::{Env, Error, Kind, Result};
use dmu::zap::Zap;
use dmu::{Objset, Tx, Txgs};

use crate::Zpl;
use crate::locks::{Held, Locks};
use crate::owners::owners_of;

/// The one version of file systems that are changed.
const VERSION: u64 = 5;

/// Who is asked for room before anything changes: quotas, reservations, the pool.
pub trait Room: Send + Sync {
    /// May about `bytes` more be written? `frees`: by an operation that frees more than that, which is
    /// to succeed also when the pool is full. Errors: `NoSpace`, `Quota`.
    fn admit(&self, bytes: u64, frees: bool) -> Result<()>;
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
    /// Who is asked for room.
    pub room: Arc<dyn Room>,
}

impl Default for Options {
    fn default() -> Options {
        Options { record_bytes: 128 << 10, xattr_sa: true, dnode_slots: 1, room: Arc::new(Endless) }
    }
}

/// What is needed to change a file system.
pub(crate) struct Live {
    txgs: Arc<Txgs>,
    env: Env,
    options: RwLock<Options>,
    pub(crate) locks: Locks,
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
    /// `txgs`. After a crash, [`Zpl::clean_unlinked`] is to be called next. Errors: as of [`Zpl::open`];
    /// `ReadOnly` for versions below 5.
    pub fn open_writable(objset: Arc<Objset>, txgs: Arc<Txgs>, env: Env, options: Options) -> Result<Zpl> {
        let zpl = Zpl::open(objset)?;
        let master = &zpl.master;
        if master.version < VERSION || master.sa_attrs == 0 || master.delete_queue == 0 {
            let what = format!("file systems of version {} can only be read: upgrade it first", master.version);
            return Err(Error::new(Kind::ReadOnly, what).in_dataset(zpl.objset.name()));
        }
        zpl.objset.set_owners_of(owners_of(zpl.registry.clone()))?;
        let tables = Zap::open(zpl.objset.object(master.sa_attrs)?)?;
        let tables = [tables.require_u64("REGISTRY")?, tables.require_u64("LAYOUTS")?];
        let live = Live {
            txgs,
            env,
            options: RwLock::new(options),
            locks: Locks::new(),
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
        *self.live()?.options.write().unwrap_or_else(PoisonError::into_inner) = options;
        Ok(())
    }

    /// Waits until all that was changed is on disk. Errors: `ReadOnly`, `Suspended`.
    pub fn sync(&self) -> Result<()> {
        self.live()?.txgs.wait_synced()
    }

    pub(crate) fn live(&self) -> Result<&Live> {
        self.live.as_deref().ok_or_else(read_only)
    }

    /// Begins an operation that will write about so many bytes.
    pub(crate) fn begin(&self, bytes: u64, frees: bool) -> Result<Op<'_>> {
        let live = self.live()?;
        live.options().room.admit(bytes, frees)?;
        let tx = live.txgs.begin()?;
        let (secs, nanos) = live.env.now();
        Ok(Op { zpl: self, live, tx, now: [secs, nanos.into()] })
    }
}

impl Live {
    pub(crate) fn options(&self) -> Options {
        self.options.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn renames(&self) -> MutexGuard<'_, ()> {
        lock(&self.renames)
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, ()> {
        lock(&self.queue)
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, [u64; 2]> {
        lock(&self.tables)
    }

    pub(crate) fn unnamed(&self) -> MutexGuard<'_, HashSet<u64>> {
        lock(&self.unnamed)
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // nothing under these locks is left half done
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
