//! Object sets: the MOS, file systems, volumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use arc::NodeKeeper;
use base::{Bookmark, Error, Kind, Result, ResultExt, RwLock, UserOp, UserRequest};
use format::blkptr::BlkPtr;
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::{DatasetId, ObjectId, Txg};
use format::object_type::ObjectType;
use format::objset::{ObjsetPhys, ObjsetType};
use zio::SetKeys;

use crate::live::LiveObjset;
use crate::owners::{OwnersOf, counts_projects, flags_of_objects};
use crate::request_times::{RequestHistograms, RequestTimer, UserTimes};
use crate::{Cache, Keep, Mode, ObjsetPolicy, OnFailure, ReadRequest, Which};

/// An object set: as it was when its root pointer was written, or (see [`crate::live`]) one that is
/// being changed. What is read from it waits for devices that fail if its cache's reads do.
pub struct Objset {
    cache: Arc<Cache>,
    shared: Arc<ObjsetState>,
}

/// What all handles to a set have in common.
struct ObjsetState {
    id: DatasetId,
    name: String,
    kind: ObjsetType,
    root: RwLock<Root>,
    mode: Mode,
    keep: AtomicU8,
    ahead: AtomicU8,
    live: Option<Arc<LiveObjset>>,
    times: UserTimes,
}

/// What is on disk of a set.
#[derive(Clone)]
pub(crate) struct Root {
    pub(crate) bp: BlkPtr,
    pub(crate) phys: Arc<ObjsetPhys>,
    pub(crate) meta: Arc<Dnode>,
}

impl Root {
    pub(crate) fn new(bp: BlkPtr, phys: ObjsetPhys) -> Root {
        Root { bp, meta: Arc::new(phys.meta_dnode.clone()), phys: Arc::new(phys) }
    }
}

impl Root {
    /// The same with flags of the head that it may not have.
    pub(crate) fn with_flags(mut self, flags: u64) -> Root {
        if flags & !self.phys.flags != 0 {
            Arc::make_mut(&mut self.phys).flags |= flags;
        }
        self
    }
}

impl ObjsetState {
    /// A set as it is on disk.
    fn open(cache: &Cache, id: DatasetId, rootbp: BlkPtr, mode: Mode, name: &str) -> Result<ObjsetState> {
        let bookmark = Bookmark { objset: id.get(), object: 0, level: Objset::HEAD_LEVEL, blkid: 0 };
        if rootbp.is_hole() {
            return Err(Error::corrupt("object set without a head").at_block(bookmark));
        }
        if rootbp.level() != 0 || rootbp.object_type() != ObjectType::OBJSET {
            let what = format!("object set head is a level {} block of {}", rootbp.level(), rootbp.object_type());
            return Err(Error::corrupt(what).at_block(bookmark));
        }
        let head = cache.get(ReadRequest { bp: rootbp, bookmark, mode }, Keep::ALL)?;
        let phys = ObjsetPhys::parse(&head).map_err(|e| e.at_block(bookmark))?;
        if phys.meta_dnode.object_type != ObjectType::DNODE || phys.meta_dnode.block_size < SLOT_SIZE as u64 {
            return Err(Error::corrupt("object set's meta dnode does not hold dnodes").at_block(bookmark));
        }
        Ok(ObjsetState {
            id,
            name: name.to_owned(),
            kind: phys.kind,
            root: RwLock::new(Root::new(rootbp, phys)),
            mode,
            keep: AtomicU8::new(Keep::ALL.as_u8()),
            ahead: AtomicU8::new(Which::All as u8),
            live: None,
            times: UserTimes::default(),
        })
    }
}

impl Objset {
    /// The level that bookmarks give the head of an object set.
    pub const HEAD_LEVEL: i64 = -1;

    /// The set under `rootbp`, whose number in the pool is `id` (0 for the MOS); `name` is the dataset's,
    /// or for the MOS the pool's, and is what errors will call it.
    ///
    /// With [`Mode::Raw`] also the dnodes of an encrypted one can be read, but not what is encrypted
    /// in them and below them. Errors: as from reading a block, or `Corrupt`.
    pub fn open(cache: Arc<Cache>, id: DatasetId, rootbp: BlkPtr, mode: Mode, name: &str) -> Result<Arc<Objset>> {
        let cache = cache_of(cache, &rootbp);
        let shared = ObjsetState::open(&cache, id, rootbp, mode, name).in_dataset(name)?;
        Ok(Arc::new(Objset { cache, shared: Arc::new(shared) }))
    }

    /// The same set, to be changed: as on disk under `rootbp`, or empty and of `kind` if that is a hole.
    ///
    /// Errors: as from [`Objset::open`]; `Unsupported` with keys, as nothing seals yet.
    pub fn open_live(
        cache: Arc<Cache>,
        id: DatasetId,
        rootbp: BlkPtr,
        kind: ObjsetType,
        name: &str,
        policy: ObjsetPolicy,
    ) -> Result<Arc<Objset>> {
        if cache.keys().keys().is_some() {
            let what = "writing to encrypted datasets is not supported";
            return Err(Error::new(Kind::Unsupported, what).in_dataset(name));
        }
        let cache = cache_of(cache, &rootbp);
        let mut shared = if rootbp.is_hole() {
            let root = Root::new(BlkPtr::HOLE, crate::live::empty_head(kind, policy.pool_version));
            let (keep, ahead) = (AtomicU8::new(Keep::ALL.as_u8()), AtomicU8::new(Which::All as u8));
            let (name, mode) = (name.to_owned(), Mode::Plain);
            ObjsetState {
                id,
                name,
                kind,
                root: RwLock::new(root),
                mode,
                keep,
                ahead,
                live: None,
                times: UserTimes::default(),
            }
        } else {
            ObjsetState::open(&cache, id, rootbp, Mode::Plain, name).in_dataset(name)?
        };
        let live = Arc::new(LiveObjset::new(policy, cache.nodes().clone()));
        let keeper: Arc<dyn NodeKeeper> = live.clone();
        cache.nodes().register(Arc::downgrade(&keeper));
        shared.live = Some(live);
        Ok(Arc::new(Objset { cache, shared: Arc::new(shared) }))
    }

    /// The same set, whose reads wait for devices that fail, or fail with them.
    pub fn reading(self: &Arc<Self>, on_failure: OnFailure) -> Arc<Objset> {
        match on_failure == self.cache.on_failure() {
            true => self.clone(),
            false => Arc::new(Objset { cache: Arc::new(self.cache.reading(on_failure)), shared: self.shared.clone() }),
        }
    }

    /// Whether both are handles to the same set, opened once.
    pub fn is_same(&self, other: &Objset) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The dataset that it is of, or the MOS.
    pub fn id(&self) -> DatasetId {
        self.shared.id
    }

    /// Name of the dataset.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// What it is for.
    pub fn kind(&self) -> ObjsetType {
        self.shared.kind
    }

    /// Its head, as on disk.
    pub fn phys(&self) -> Arc<ObjsetPhys> {
        self.root().phys
    }

    /// The pointer to its head.
    pub fn rootbp(&self) -> BlkPtr {
        self.root().bp
    }

    /// What is on disk now.
    pub(crate) fn root(&self) -> Root {
        self.shared.root.read().clone()
    }

    pub(crate) fn set_root(&self, root: Root) {
        *self.shared.root.write() = root;
    }

    /// Whether its objects are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.rootbp().uses_crypt()
    }

    /// Whether its objects are encrypted, and it was opened without keys.
    pub fn is_locked(&self) -> bool {
        self.is_encrypted() && self.cache.keys().keys().is_none()
    }

    /// The cache that its blocks come through.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Notes what a user asks for, if a command wants to know: which bytes of an object.
    #[inline]
    pub fn note_request(&self, op: UserOp, object: ObjectId, (offset, bytes): (u64, u64)) {
        let (dataset, object) = (self.id().get(), object.get());
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let env = self.cache.zio().env();
        env.note_request(|time_ns| UserRequest { time_ns, dataset, object, offset, bytes, op });
    }

    /// Times a request of a user, until what is returned is dropped, if somebody asks for such times.
    #[inline]
    pub fn time_request(&self, op: UserOp) -> RequestTimer<'_> {
        RequestTimer::start(&self.shared.times, self.cache.zio().env(), op)
    }

    /// How long those requests took that were timed; `None` if none was.
    pub fn request_times(&self) -> Option<RequestHistograms> {
        self.shared.times.all()
    }

    /// What the cache may keep of its blocks.
    pub fn keep(&self) -> Keep {
        Keep::of_u8(self.shared.keep.load(Ordering::Relaxed))
    }

    /// What the cache may keep of its blocks from now on: what `primarycache` says.
    pub fn set_keep(&self, keep: Keep) {
        self.shared.keep.store(keep.as_u8(), Ordering::Relaxed);
    }

    /// What is read ahead from now on: what `prefetch` says.
    pub fn set_ahead(&self, which: Which) {
        self.shared.ahead.store(which as u8, Ordering::Relaxed);
    }

    /// What is read ahead.
    pub(crate) fn ahead(&self) -> Which {
        Which::of_u8(self.shared.ahead.load(Ordering::Relaxed))
    }

    /// How encrypted blocks are read.
    pub fn mode(&self) -> Mode {
        self.shared.mode
    }

    /// Whether it has changes in that group.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.shared.live.as_ref().is_some_and(|live| live.is_dirty(txg))
    }

    /// For a set that is being made: objects are counted by user and group, too, and with `by_project` all
    /// is by project.
    pub fn count_objects(&self, by_project: bool) {
        let mut root = self.root();
        let mut phys = (*root.phys).clone();
        phys.flags |= flags_of_objects(by_project);
        root.phys = Arc::new(phys);
        self.set_root(root);
    }

    /// Is space counted by project?
    pub fn counts_projects(&self) -> bool {
        counts_projects(self.phys().flags)
    }

    /// Version of the pool. Errors: `ReadOnly` for a set that is not open to be changed.
    pub fn pool_version(&self) -> Result<u64> {
        Ok(self.live()?.policy().pool_version)
    }

    /// How its blocks are to be written from now on.
    pub fn set_policy(&self, policy: ObjsetPolicy) -> Result<()> {
        self.live()?.set_policy(policy);
        Ok(())
    }

    /// The head of its intent log: the next [`Objset::sync`] writes it, even if nothing else has changed.
    pub fn set_log_header(&self, header: [u8; 192]) -> Result<()> {
        self.live()?.set_log_header(header);
        Ok(())
    }

    /// Tells how to find out to whom an object belongs, before the first change is made.
    pub fn set_owners_of(&self, owners_of: Arc<OwnersOf>) -> Result<()> {
        self.live()?.set_owners_of(owners_of);
        Ok(())
    }

    /// Whether it is known to whom its objects belong.
    pub fn knows_owners(&self) -> bool {
        self.live().is_ok_and(|live| live.owners_of().is_some())
    }

    pub(crate) fn live(&self) -> Result<&LiveObjset> {
        self.shared.live.as_deref().ok_or_else(read_only)
    }
}

/// A handle by which a set is read: without keys, an encrypted one as far as none are needed.
fn cache_of(cache: Arc<Cache>, rootbp: &BlkPtr) -> Arc<Cache> {
    match cache.keys() {
        SetKeys::Plain if rootbp.uses_crypt() => Arc::new(cache.of_set(SetKeys::Locked)),
        _ => cache,
    }
}

pub(crate) fn read_only() -> Error {
    Error::new(Kind::ReadOnly, "this object set is open read-only")
}
