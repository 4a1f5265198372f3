//! Files as POSIX knows them: the ZPL, which gives object sets directories, attributes and contents.
//!
//! ```text
//!  object 1, master node ─┬─ ROOT ──── directory: a ZAP of name -> object, type ─── file, link, ...
//!                         ├─ SA_ATTRS ─ registry and layouts of system attributes
//!                         ├─ FUID ───── domains of foreign user ids
//!                         └─ VERSION, casesensitivity, normalization, utf8only
//! ```
//!
//! What a file is made of lies in its dnode's bonus buffer: since version 5 as system attributes,
//! before as a fixed struct (`node`). Its contents are the object's data. Extended attributes are
//! packed into a system attribute, or are files in a hidden directory, or both (`xattr`).
//!
//! Below is `dmu`; above are the FUSE adapter and the offline commands, which know no
//! on-disk format. All of it shows files as OpenZFS on Linux does, so that one cannot tell by `stat`
//! or `getfattr` who serves them.
//!
//! A file system that may be changed has a [`live::Live`] beside: transactions, locks, options. Each
//! operation is one transaction, so that a crash shows all of it or nothing; and it tells the intent log
//! (`log`), by which what was synced is done again (`replay`).
//!
//! Invariant: nothing here follows links between objects without a bound, and no size that a file
//! claims is allocated before it is known to be small.

mod attrs;
mod change;
mod contents;
mod counters;
mod create;
mod create_fs;
mod dir;
mod file;
mod flags;
mod fuid;
mod fuzz;
mod live;
mod locks;
mod log;
mod master;
mod names;
mod node;
mod owners;
mod posix_acl;
mod rename;
mod replay;
mod set_attr;
mod set_xattr;
mod stat;
#[cfg(test)]
mod tests;
mod unlinked;
mod xattr;

use std::sync::{Arc, OnceLock};

use base::{Bookmark, Error, Kind, Result, ResultExt, RwLock, RwLockReadGuard};
use dmu::Objset;
use format::objset::ObjsetType;
use format::sa::Registry;

pub use change::{Allocate, New, NewFs, NewKind, RenameMode, SetAttr, SetFlags, SetTime, XattrMode};
pub use counters::{Counters, Counts};
pub use create_fs::create_fs;
pub use dir::DirEntry;
pub use file::File;
pub use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE, FLAG_NODUMP, FLAG_PROJINHERIT};
use fuid::Domains;
pub use fuzz::fuzz;
use live::Live;
pub use live::{Options, Owner, Room, SyncMode};
pub use master::{CaseMode, Master};
pub use names::is_possible_name;
pub use set_attr::is_atime_due;
pub use stat::{FileKind, Stat};
pub use xattr::Visible;

/// One file system or snapshot; clones are cheap, and are the same.
#[derive(Clone)]
pub struct Zpl {
    objset: Arc<Objset>,
    master: Arc<Master>,
    /// Replaced when a layout is added.
    registry: Arc<RwLock<Arc<Registry>>>,
    domains: Arc<OnceLock<Domains>>,
    visible: Visible,
    counters: Arc<Counters>,
    /// What is needed to change it, if it may be changed.
    live: Option<Arc<Live>>,
}

impl Zpl {
    /// The file system in `objset`. Errors: `Invalid` if it is none, `Encrypted`, `Unsupported` if it is
    /// newer than version 5, those of reading. All extended attributes show, until [`Zpl::showing`] says else.
    pub fn open(objset: Arc<Objset>) -> Result<Zpl> {
        if objset.kind() != ObjsetType::Zfs {
            return Err(Error::new(Kind::Invalid, "dataset is not a file system"));
        }
        if objset.is_encrypted() {
            return Err(Error::new(Kind::Encrypted, "dataset is encrypted"));
        }
        let master = Master::read(&objset).in_dataset(objset.name())?;
        let registry = master.registry(&objset).in_dataset(objset.name())?;
        Ok(Zpl {
            objset,
            master: Arc::new(master),
            registry: Arc::new(RwLock::new(Arc::new(registry))),
            domains: Arc::default(),
            visible: Visible::default(),
            counters: Arc::default(),
            live: None,
        })
    }

    /// The same file system with only some of its extended attributes showing.
    pub fn showing(self, visible: Visible) -> Zpl {
        Zpl { visible, ..self }
    }

    /// Version of the file system, 1 to 5.
    pub fn version(&self) -> u64 {
        self.master.version
    }

    /// Object number of the root directory.
    pub fn root(&self) -> u64 {
        self.master.root
    }

    /// What the master node says.
    pub fn master(&self) -> &Master {
        &self.master
    }

    /// How much it is used.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The attributes and layouts known now.
    fn registry(&self) -> Arc<Registry> {
        self.registry.read().clone()
    }

    /// Keeps an object from being changed; nothing is to be kept off where nothing changes.
    fn shared(&self, ino: u64) -> Option<RwLockReadGuard<'_, ()>> {
        self.live.as_ref().map(|live| live.locks.shared(ino))
    }

    /// The set of objects below.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// Adds the dataset and the object to an error that is about what is on disk; one about the
    /// caller's request needs none.
    fn placed<T>(&self, ino: u64, result: Result<T>) -> Result<T> {
        result.map_err(|e| match e.kind() {
            Kind::Corrupt | Kind::Checksum | Kind::Io | Kind::Missing | Kind::Unsupported | Kind::Encrypted => {
                let bookmark = Bookmark { objset: self.objset.id(), object: ino, level: 0, blkid: 0 };
                e.at_block(bookmark).in_dataset(self.objset.name())
            }
            _ => e,
        })
    }
}
