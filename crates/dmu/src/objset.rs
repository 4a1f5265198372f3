//! Object sets: the MOS, file systems, volumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use base::{Bookmark, Error, Kind, Result, ResultExt, RwLock};
use format::blkptr::BlkPtr;
use format::dnode::{Dnode, SLOT_SIZE};
use format::object_type::ObjectType;
use format::objset::{ObjsetPhys, ObjsetType};

use crate::live::Live;
use crate::node::Node;
use crate::{Cache, Keep, Mode, Object, Policy, ReadRequest, Which};

/// An object set: as it was when its root pointer was written, or (see [`crate::live`]) one that is
/// being changed.
pub struct Objset {
    id: u64,
    name: String,
    cache: Arc<Cache>,
    kind: ObjsetType,
    root: RwLock<Root>,
    mode: Mode,
    keep: AtomicU8,
    ahead: AtomicU8,
    pub(crate) live: Option<Live>,
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

impl Objset {
    /// The level that bookmarks give the head of an object set.
    pub const HEAD_LEVEL: i64 = -1;

    /// The set under `rootbp`, whose number in the pool is `id` (0 for the MOS); `name` is the dataset's,
    /// or for the MOS the pool's, and is what errors will call it.
    ///
    /// With [`Mode::Raw`] also the dnodes of an encrypted one can be read, but not what is encrypted
    /// in them and below them. Errors: as from reading a block, or `Corrupt`.
    pub fn open(cache: Arc<Cache>, id: u64, rootbp: BlkPtr, mode: Mode, name: &str) -> Result<Arc<Objset>> {
        Objset::open_head(cache, id, rootbp, mode, name).in_dataset(name).map(Arc::new)
    }

    fn open_head(cache: Arc<Cache>, id: u64, rootbp: BlkPtr, mode: Mode, name: &str) -> Result<Objset> {
        let bookmark = Bookmark { objset: id, object: 0, level: Objset::HEAD_LEVEL, blkid: 0 };
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
        Ok(Objset {
            id,
            name: name.to_owned(),
            cache,
            kind: phys.kind,
            root: RwLock::new(Root::new(rootbp, phys)),
            mode,
            keep: AtomicU8::new(Keep::ALL.as_u8()),
            ahead: AtomicU8::new(Which::All as u8),
            live: None,
        })
    }

    /// The same set, to be changed: as on disk under `rootbp`, or empty and of `kind` if that is a hole.
    ///
    /// Errors: as from [`Objset::open`].
    pub fn open_live(
        cache: Arc<Cache>,
        id: u64,
        rootbp: BlkPtr,
        kind: ObjsetType,
        name: &str,
        policy: Policy,
    ) -> Result<Arc<Objset>> {
        let mut objset = if rootbp.is_hole() {
            let root = Root::new(BlkPtr::HOLE, crate::live::empty_head(kind));
            let (keep, ahead) = (AtomicU8::new(Keep::ALL.as_u8()), AtomicU8::new(Which::All as u8));
            let (name, mode) = (name.to_owned(), Mode::Plain);
            Objset { id, name, cache, kind, root: RwLock::new(root), mode, keep, ahead, live: None }
        } else {
            Objset::open_head(cache, id, rootbp, Mode::Plain, name).in_dataset(name)?
        };
        objset.live = Some(Live::new(policy));
        Ok(Arc::new(objset))
    }

    /// Number of the set in the pool.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Name of the dataset.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for.
    pub fn kind(&self) -> ObjsetType {
        self.kind
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
        self.root.read().clone()
    }

    pub(crate) fn set_root(&self, root: Root) {
        *self.root.write() = root;
    }

    /// Whether its objects are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.rootbp().uses_crypt()
    }

    /// The cache that its blocks come through.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// What the cache may keep of its blocks.
    pub fn keep(&self) -> Keep {
        Keep::of_u8(self.keep.load(Ordering::Relaxed))
    }

    /// What the cache may keep of its blocks from now on: what `primarycache` says.
    pub fn set_keep(&self, keep: Keep) {
        self.keep.store(keep.as_u8(), Ordering::Relaxed);
    }

    /// What is read ahead from now on: what `prefetch` says.
    pub fn set_ahead(&self, which: Which) {
        self.ahead.store(which as u8, Ordering::Relaxed);
    }

    /// What is read ahead.
    pub(crate) fn ahead(&self) -> Which {
        Which::of_u8(self.ahead.load(Ordering::Relaxed))
    }

    /// How encrypted blocks are read.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The object of all dnodes, as on disk.
    pub fn meta(self: &Arc<Self>) -> Object {
        Object::new(self.clone(), 0, self.root().meta)
    }

    /// Object number `id`. Errors: `NotFound` if it is not allocated.
    pub fn object(self: &Arc<Self>, id: u64) -> Result<Object> {
        let Some(live) = &self.live else {
            return self.dnode_on_disk(id).map(|dnode| Object::new(self.clone(), id, Arc::new(dnode)));
        };
        let absent = || Error::new(Kind::NotFound, format!("object {id} is not allocated"));
        let node = live.node(id, || self.dnode_on_disk(id).map(|dnode| Node::new(id, Arc::new(dnode))))?;
        Object::of_node(self.clone(), node).ok_or_else(absent)
    }

    /// The dnode of object `id` in what is on disk. Errors: `NotFound` if there is none.
    pub(crate) fn dnode_on_disk(self: &Arc<Self>, id: u64) -> Result<Dnode> {
        let absent = || Error::new(Kind::NotFound, format!("object {id} is not allocated"));
        let meta = self.meta();
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        let (blkid, slot) = (id / per_block, (id % per_block) as usize);
        if id == 0 || blkid > meta.dnode().block_max {
            return Err(absent());
        }
        let block = meta.block(blkid)?;
        // The dnodes before it are only stepped over: reading them all would take most of the time.
        let mut at = 0;
        while at < slot {
            at += Dnode::slots_at(&block[at * SLOT_SIZE..]).map_err(|e| meta.placed(e, 0, blkid))?;
        }
        let bytes = block.get(slot * SLOT_SIZE..).filter(|_| at == slot).ok_or_else(absent)?;
        Dnode::parse(bytes).map_err(|e| meta.placed(e, 0, blkid))?.ok_or_else(absent)
    }

    /// Starts reading the dnodes of objects that will be opened soon.
    pub fn prefetch(self: &Arc<Self>, ids: impl IntoIterator<Item = u64>) {
        let meta = self.meta();
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        let mut blkids: Vec<u64> = ids.into_iter().map(|id| id / per_block).collect();
        blkids.sort_unstable();
        blkids.dedup();
        meta.prefetch(blkids);
    }

    /// The lowest object number above `after` that is allocated.
    pub fn next_object(self: &Arc<Self>, after: u64) -> Result<Option<u64>> {
        let meta = self.meta();
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        let first = after + 1;
        let mut from = first / per_block;
        while let Some(blkid) = meta.seek_block(from, true)? {
            let block = meta.block(blkid)?;
            let mut at = 0;
            while let Some(slot) = block.get(at * SLOT_SIZE..).filter(|rest| rest.len() >= SLOT_SIZE) {
                let id = blkid * per_block + at as u64;
                if id >= first && slot[0] != ObjectType::NONE.0 {
                    Dnode::parse(slot).map_err(|e| meta.placed(e, 0, blkid))?;
                    return Ok(Some(id));
                }
                at += Dnode::slots_at(slot).map_err(|e| meta.placed(e, 0, blkid))?;
            }
            from = blkid + 1;
        }
        Ok(None)
    }

    /// All dnodes in one block of the meta dnode, each with its object number; one that makes no sense
    /// ends the list with an error.
    pub fn dnodes_in_block(self: &Arc<Self>, blkid: u64, block: &[u8]) -> Vec<Result<(u64, Dnode)>> {
        let meta = self.meta();
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        Slots::new(block)
            .map(|dnode| match dnode {
                Ok((at, dnode)) => Ok((blkid * per_block + at as u64, dnode)),
                Err(e) => Err(meta.placed(e, 0, blkid)),
            })
            .collect()
    }
}

/// The allocated dnodes of a block and the slots where they begin; ends after the first error.
pub(crate) struct Slots<'a> {
    block: &'a [u8],
    next: usize,
}

impl Slots<'_> {
    pub(crate) fn new(block: &[u8]) -> Slots<'_> {
        Slots { block, next: 0 }
    }
}

impl Iterator for Slots<'_> {
    type Item = Result<(usize, Dnode)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let slot = self.next;
            let rest = self.block.get(slot * SLOT_SIZE..).filter(|rest| rest.len() >= SLOT_SIZE)?;
            match Dnode::parse(rest) {
                Ok(None) => self.next += 1,
                Ok(Some(dnode)) => {
                    self.next += dnode.slots;
                    return Some(Ok((slot, dnode)));
                }
                Err(e) => {
                    self.next = usize::MAX / SLOT_SIZE;
                    return Some(Err(e));
                }
            }
        }
    }
}
