//! A file system: its parts, and how it is opened. Its operations stand in files of their own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use base::{Bookmark, Env, Error, Kind, Result, ResultExt, RwLockReadGuard};
use dmu::{Object, Objset, Txgs};
use format::acl::Acl;
use format::ids::ObjectId;
use format::objset::ObjsetType;
use format::sa::Registry;
use format::znode::DirentValue;
use zil::Log;

use crate::FileKind;
use crate::attr_tables::AttrTables;
use crate::counters::Counters;
use crate::fuid::Domains;
use crate::live::{LiveZpl, ZplOptions, read_only};
use crate::master::Master;
use crate::nodes::{Attributes, FileNode, Nodes};
use crate::orphans::OrphanQueue;
use crate::owners::owners_of;
use crate::visible::Visible;

/// The first version whose directories tell of which kind files are.
const VERSION_OF_TYPES: u64 = 2;
/// The first version of file systems with system attributes.
const VERSION: u64 = 5;

/// One file system or snapshot; clones are cheap, and are the same.
#[derive(Clone)]
pub struct Zpl {
    nodes: Nodes,
    master: Arc<Master>,
    domains: Arc<Domains>,
    visible: Visible,
    /// There are no POSIX ACLs for now, whatever shows else.
    hides_acls: Arc<AtomicBool>,
    counters: Arc<Counters>,
    /// What is needed to change it, if it may be changed.
    live: Option<Arc<LiveZpl>>,
}

/// A file system that may be changed, as long as somebody else has it.
pub(crate) struct WeakZpl {
    zpl: Zpl,
    live: Weak<LiveZpl>,
}

impl WeakZpl {
    pub(crate) fn upgrade(&self) -> Option<Zpl> {
        Some(Zpl { live: Some(self.live.upgrade()?), ..self.zpl.clone() })
    }
}

impl Zpl {
    /// The same, without keeping it open. `None` if it may not be changed.
    pub(crate) fn downgrade(&self) -> Option<WeakZpl> {
        let live = self.live.as_ref().map(Arc::downgrade)?;
        Some(WeakZpl { zpl: Zpl { live: None, ..self.clone() }, live })
    }

    /// The file system in `objset`. Errors: `Invalid` if it is none, `Encrypted`, `Unsupported` if it is
    /// newer than version 5, those of reading. All extended attributes show, until [`Zpl::showing`] says else.
    pub fn open(objset: Arc<Objset>) -> Result<Zpl> {
        if objset.kind() != ObjsetType::Zfs {
            return Err(Error::new(Kind::Invalid, "dataset is not a file system"));
        }
        if objset.is_locked() {
            return Err(Error::new(Kind::Encrypted, "dataset is encrypted"));
        }
        let master = Master::read(&objset).in_dataset(objset.name())?;
        let registry = master.registry(&objset).in_dataset(objset.name())?;
        Ok(Zpl {
            domains: Arc::new(Domains::new(objset.clone(), master.fuid)),
            nodes: Nodes::new(objset, registry),
            master: Arc::new(master),
            visible: Visible::default(),
            hides_acls: Arc::default(),
            counters: Arc::default(),
            live: None,
        })
    }

    /// The file system in `objset`, which is one that changes in memory, to be changed in the groups of
    /// `txgs`, which `log` is told of; without a log, a sync waits for a group. After a crash,
    /// [`Zpl::replay_log`] and [`Zpl::clean_unlinked`] are to be called next. Errors: as of [`Zpl::open`].
    pub fn open_writable(
        objset: Arc<Objset>,
        txgs: Arc<Txgs>,
        env: Env,
        options: ZplOptions,
        log: Option<Arc<Log>>,
    ) -> Result<Zpl> {
        let zpl = Zpl::open(objset)?;
        let master = &zpl.master;
        if master.version >= VERSION && master.sa_attrs.is_none() || master.delete_queue.is_none() {
            let what = "the master node leads to no attributes, or to no queue of unlinked files";
            return Err(Error::corrupt(what).in_dataset(zpl.objset().name()));
        }
        zpl.objset().set_owners_of(owners_of(zpl.nodes.shared_registry()))?;
        let tables = match zpl.has_fixed_znodes() {
            true => None,
            false => Some(AttrTables::open(&zpl.nodes, master.sa_attrs)?),
        };
        let orphans = OrphanQueue::new(zpl.objset().clone(), master.delete_queue, zpl.counters.clone());
        let live = LiveZpl::new(&zpl.nodes, txgs, env, options, log, (orphans, tables));
        Ok(Zpl { live: Some(Arc::new(live)), ..zpl })
    }

    /// The same file system with only some of its extended attributes showing.
    pub fn showing(self, visible: Visible) -> Zpl {
        Zpl { visible, ..self }
    }

    /// From now on there are POSIX ACLs, or none; for all that have this file system, whatever they show else.
    pub fn show_acls(&self, shows: bool) {
        self.hides_acls.store(!shows, Ordering::Relaxed);
    }

    /// Whether its files have fixed znodes: versions before 5.
    pub(crate) fn has_fixed_znodes(&self) -> bool {
        self.master.sa_attrs.is_none()
    }

    /// What a directory says of a file in it; in the first version not of which kind it is.
    pub(crate) fn dirent_of(&self, ino: ObjectId, kind: FileKind) -> DirentValue {
        let type_bits = if self.master.version < VERSION_OF_TYPES { 0 } else { (kind.mode_bits() >> 12) as u8 };
        DirentValue { object: ino, type_bits }
    }

    /// Version of the file system, 1 to 5.
    pub fn version(&self) -> u64 {
        self.master.version
    }

    /// Object number of the root directory.
    pub fn root(&self) -> ObjectId {
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

    /// Which extended attributes show.
    pub(crate) fn visible(&self) -> Visible {
        let posix_acls = self.visible.posix_acls && !self.hides_acls.load(Ordering::Relaxed);
        Visible { posix_acls, ..self.visible }
    }

    /// The attributes and layouts known now.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.nodes.registry()
    }

    /// Object `id`, if there is one and it is a file of some kind.
    pub(crate) fn node(&self, id: ObjectId) -> Result<FileNode> {
        self.nodes.node(id)
    }

    /// The same, of an object that is at hand.
    pub(crate) fn node_of(&self, object: Object) -> Result<FileNode> {
        self.nodes.node_of(object)
    }

    pub(crate) fn attributes<'a>(&self, node: &'a FileNode) -> Result<Attributes<'a>> {
        self.nodes.attributes(node)
    }

    /// What is needed to change it. Errors: `ReadOnly`.
    pub(crate) fn live(&self) -> Result<&LiveZpl> {
        self.live.as_deref().ok_or_else(read_only)
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
    pub fn set_options(&self, options: ZplOptions) -> Result<()> {
        self.live()?.set_options(options);
        Ok(())
    }

    /// The name of the domain of foreign user ids that has a number. Errors: those of reading the table.
    pub fn domain(&self, number: u32) -> Result<Option<String>> {
        self.domains.name(number)
    }

    /// The number of a domain, if the table has it. Errors: those of reading the table.
    pub(crate) fn domain_number(&self, name: &str) -> Result<Option<u32>> {
        self.domains.number(name)
    }

    /// The text of an ACL, one entry a line, with the names of domains where the table has them.
    pub fn acl_text(&self, acl: &Acl) -> String {
        acl.text(&|number| self.domain(number).ok().flatten())
    }

    /// Keeps an object from being changed; nothing is to be kept off where nothing changes.
    pub(crate) fn shared(&self, ino: ObjectId) -> Option<RwLockReadGuard<'_, ()>> {
        self.live.as_ref().map(|live| live.locks().shared(ino))
    }

    /// The set of objects below.
    pub fn objset(&self) -> &Arc<Objset> {
        self.nodes.objset()
    }

    /// Adds the dataset and the object to an error that is about what is on disk; one about the
    /// caller's request needs none.
    pub(crate) fn placed<T>(&self, ino: ObjectId, result: Result<T>) -> Result<T> {
        result.map_err(|e| match e.kind() {
            Kind::Corrupt | Kind::Checksum | Kind::Io | Kind::Missing | Kind::Unsupported | Kind::Encrypted => {
                let bookmark = Bookmark { objset: self.objset().id().get(), object: ino.get(), level: 0, blkid: 0 };
                e.at_block(bookmark).in_dataset(self.objset().name())
            }
            _ => e,
        })
    }
}
