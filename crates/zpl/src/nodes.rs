//! Attributes of an object: system attributes in bonus and spill, or the fixed znode of old versions.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use base::{Error, Kind, Result, ResultExt, RwLock};
use dmu::{Block, Object, Objset};
use format::ids::ObjectId;
use format::object_type::ObjectType;
use format::sa::{Attr, Attrs, Registry};
use format::znode::{FLAG_PROJID, Znode};

/// The objects of a file system, and what their attributes mean; clones are the same.
#[derive(Clone)]
pub(crate) struct Nodes {
    objset: Arc<Objset>,
    /// Replaced when a layout is added.
    registry: Arc<RwLock<Arc<Registry>>>,
}

/// An object that is a file of some kind.
pub(crate) struct FileNode {
    object: Object,
}

/// Its attributes.
pub(crate) struct Attributes<'a> {
    object: &'a Object,
    source: AttrSource<'a>,
}

enum AttrSource<'a> {
    Fixed(Box<Znode>),
    Sa { registry: Arc<Registry>, bonus: Attrs<'a>, spill: OnceCell<Option<Block>> },
}

impl Nodes {
    /// The objects of `objset`, whose attributes `registry` knows.
    pub(crate) fn new(objset: Arc<Objset>, registry: Registry) -> Nodes {
        Nodes { objset, registry: Arc::new(RwLock::new(Arc::new(registry))) }
    }

    /// The set of objects below.
    pub(crate) fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// The attributes and layouts known now.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().clone()
    }

    /// The same, as they are at any time.
    pub(crate) fn shared_registry(&self) -> Arc<RwLock<Arc<Registry>>> {
        self.registry.clone()
    }

    /// From now on these are known.
    pub(crate) fn set_registry(&self, registry: Registry) {
        *self.registry.write() = Arc::new(registry);
    }

    /// Object `id`, if there is one and it is a file of some kind.
    pub(crate) fn node(&self, id: ObjectId) -> Result<FileNode> {
        self.node_of(self.objset.object(id)?)
    }

    /// The same, of an object that is at hand.
    pub(crate) fn node_of(&self, object: Object) -> Result<FileNode> {
        let id = object.id();
        match object.dnode().bonus_type {
            ObjectType::SA | ObjectType::ZNODE => Ok(FileNode { object }),
            other => {
                let what = format!("object {id} is no file: its bonus buffer holds '{other}'");
                Err(Error::new(Kind::Corrupt, what).at_block(object.bookmark(0, 0)))
            }
        }
    }

    pub(crate) fn attributes<'a>(&self, node: &'a FileNode) -> Result<Attributes<'a>> {
        let object = &node.object;
        let source = match object.dnode().bonus_type {
            ObjectType::SA => {
                // after the object: layouts that it uses are there
                let registry = self.registry();
                let bonus = Attrs::parse(object.bonus(), &registry);
                bonus.map(|bonus| AttrSource::Sa { registry, bonus, spill: OnceCell::new() })
            }
            _ => Znode::parse(object.bonus()).map(|znode| AttrSource::Fixed(Box::new(znode))),
        };
        Ok(Attributes { object, source: source.at_block(object.bookmark(0, 0))? })
    }
}

impl FileNode {
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn into_object(self) -> Object {
        self.object
    }
}

impl<'a> Attributes<'a> {
    /// The fixed znode, if it is one.
    pub(crate) fn fixed(&self) -> Option<&Znode> {
        match &self.source {
            AttrSource::Fixed(znode) => Some(znode),
            AttrSource::Sa { .. } => None,
        }
    }

    /// The bytes of a system attribute; `None` if the file does not have it, as fixed znodes never do.
    pub(crate) fn bytes(&self, attr: Attr) -> Result<Option<Cow<'_, [u8]>>> {
        let AttrSource::Sa { registry, bonus, spill } = &self.source else { return Ok(None) };
        if registry.number(attr).is_none() {
            return Ok(None);
        }
        if let Some(value) = bonus.get(registry, attr) {
            return Ok(Some(Cow::Borrowed(value)));
        }
        if spill.get().is_none() {
            let _ = spill.set(self.object.spill()?);
        }
        let Some(Some(block)) = spill.get() else { return Ok(None) };
        let attrs = Attrs::parse(block, registry).at_block(self.object.bookmark(0, u64::MAX))?;
        Ok(attrs.get(registry, attr).map(|value| Cow::Owned(value.to_vec())))
    }

    /// Number and bytes of every system attribute, in their order; a fixed znode has none.
    pub(crate) fn all(&self) -> Result<Vec<(u16, Vec<u8>)>> {
        let AttrSource::Sa { registry, bonus, .. } = &self.source else { return Ok(Vec::new()) };
        let owned = |(number, value): (u16, &[u8])| (number, value.to_vec());
        let mut all: Vec<_> = bonus.iter().map(owned).collect();
        if let Some(block) = self.object.spill()? {
            let attrs = Attrs::parse(&block, registry).at_block(self.object.bookmark(0, u64::MAX))?;
            all.extend(attrs.iter().map(owned));
        }
        Ok(all)
    }

    /// A number; `None` if the file does not have it.
    pub(crate) fn opt_u64(&self, attr: Attr) -> Result<Option<u64>> {
        match &self.source {
            AttrSource::Fixed(znode) => Ok(fixed_u64(znode, attr)),
            AttrSource::Sa { .. } => Ok(self.u64s::<1>(attr)?.map(|[number]| number)),
        }
    }

    /// A number that every file has.
    pub(crate) fn u64(&self, attr: Attr) -> Result<u64> {
        self.opt_u64(attr)?.ok_or_else(|| self.lacks(attr))
    }

    /// The directory in which the file is, or was last.
    pub(crate) fn parent(&self) -> Result<ObjectId> {
        self.u64(Attr::Parent).map(ObjectId::new)
    }

    /// The hidden directory of its extended attributes, if it has one.
    pub(crate) fn xattr_dir(&self) -> Result<Option<ObjectId>> {
        Ok(self.opt_u64(Attr::Xattr)?.map(ObjectId::new).filter(|dir| dir.is_some()))
    }

    /// The project, 0 if there is none.
    pub(crate) fn project(&self) -> Result<u64> {
        match self.u64(Attr::Flags)? & FLAG_PROJID {
            0 => Ok(0),
            _ => Ok(self.opt_u64(Attr::Projid)?.unwrap_or(0)),
        }
    }

    /// A time that every file has: seconds and nanoseconds.
    pub(crate) fn time(&self, attr: Attr) -> Result<(i64, u32)> {
        let [seconds, nanos] = match (&self.source, attr) {
            (AttrSource::Fixed(znode), Attr::Atime) => znode.atime,
            (AttrSource::Fixed(znode), Attr::Mtime) => znode.mtime,
            (AttrSource::Fixed(znode), Attr::Ctime) => znode.ctime,
            (AttrSource::Fixed(znode), _) => znode.crtime,
            (AttrSource::Sa { .. }, _) => self.u64s(attr)?.ok_or_else(|| self.lacks(attr))?,
        };
        Ok((seconds as i64, nanos.min(999_999_999) as u32))
    }

    fn u64s<const N: usize>(&self, attr: Attr) -> Result<Option<[u64; N]>> {
        let Some(bytes) = self.bytes(attr)? else { return Ok(None) };
        let words = bytes.as_chunks().0;
        let words: Option<&[[u8; 8]; N]> = words.first_chunk();
        Ok(Some(words.ok_or_else(|| self.lacks(attr))?.map(u64::from_le_bytes)))
    }

    fn lacks(&self, attr: Attr) -> Error {
        let what = format!("object {} has no attribute {attr:?}", self.object.id());
        Error::corrupt(what).at_block(self.object.bookmark(0, 0))
    }
}

fn fixed_u64(znode: &Znode, attr: Attr) -> Option<u64> {
    Some(match attr {
        Attr::Gen => znode.generation,
        Attr::Mode => znode.mode,
        Attr::Size => znode.size,
        Attr::Parent => znode.parent.get(),
        Attr::Links => znode.links,
        Attr::Xattr => znode.xattr.get(),
        Attr::Rdev => znode.rdev,
        Attr::Flags => znode.flags,
        Attr::Uid => znode.uid,
        Attr::Gid => znode.gid,
        _ => return None,
    })
}
