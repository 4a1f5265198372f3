//! The tree of directories, by name.

use std::collections::HashSet;
use std::sync::Arc;

use base::{Error, Kind, Result, ResultExt};
use dmu::Objset;
use dmu::zap::Zap;
use format::dsl::{DatasetPhys, DirPhys};
use format::ids::{DatasetId, DirId, ObjectId};
use format::object_type::ObjectType;

use crate::name::check_component;
use crate::{Dataset, DatasetBookmark};

/// The object directory of the MOS.
pub(crate) const DIRECTORY: ObjectId = ObjectId::new(1);

/// How deep the tree may be; ZFS limits names to 255 bytes, so 128 levels.
pub const DEPTH_MAX: usize = 128;
/// Directories of the pool itself, which no command shows.
const INTERNAL: [&str; 3] = ["$MOS", "$FREE", "$ORIGIN"];

/// The dataset layer of one pool.
pub struct Dsl {
    mos: Arc<Objset>,
    pool: String,
    root: DirId,
}

/// A directory of the tree: a file system or a volume, with its properties.
#[derive(Clone, Debug)]
pub struct Dir {
    /// Object number in the MOS.
    pub id: DirId,
    /// Full name, such as `tank/home`.
    pub name: String,
    /// Its record.
    pub phys: DirPhys,
    /// Whether its bonus comes with a ZAP: `key_object` and other later additions.
    pub is_zap: bool,
}

impl Dsl {
    /// The dataset layer in `mos`, whose root directory is called `pool`.
    pub fn open(mos: Arc<Objset>, pool: &str) -> Result<Dsl> {
        let directory = Zap::open(mos.object(DIRECTORY)?)?;
        let root = directory.require_object_id("root_dataset")?;
        Ok(Dsl { mos, pool: pool.to_owned(), root: DirId::of_object(root) })
    }

    /// That of a pool that is being made: there are no datasets yet.
    pub fn unborn(mos: Arc<Objset>, pool: &str) -> Dsl {
        Dsl { mos, pool: pool.to_owned(), root: DirId::NONE }
    }

    /// The MOS.
    pub fn mos(&self) -> &Arc<Objset> {
        &self.mos
    }

    /// The directory of the pool's root file system.
    pub fn root(&self) -> Result<Dir> {
        self.dir(self.root, &self.pool)
    }

    /// Directory object `id`, which is called `name`.
    pub fn dir(&self, id: DirId, name: &str) -> Result<Dir> {
        let read = || {
            let object = self.mos.object(id.object())?;
            if object.dnode().bonus_type != ObjectType::DSL_DIR {
                return Err(Error::corrupt(format!("object {id} is no dataset directory")));
            }
            let is_zap = object.dnode().object_type == ObjectType::ZAP_METADATA;
            Ok(Dir { id, name: name.to_owned(), phys: DirPhys::parse(object.bonus())?, is_zap })
        };
        read().in_dataset(name)
    }

    /// Dataset object `id`, a head or a snapshot, which is called `name`.
    pub fn dataset(&self, id: DatasetId, name: &str) -> Result<Dataset> {
        let read = || {
            let object = self.mos.object(id.object())?;
            if object.dnode().bonus_type != ObjectType::DSL_DATASET {
                return Err(Error::corrupt(format!("object {id} is no dataset")));
            }
            Ok(Dataset { id, name: name.to_owned(), phys: DatasetPhys::parse(object.bonus())? })
        };
        read().in_dataset(name)
    }

    /// The directories below `dir`, in the order of their names; in their place, the errors of those that cannot
    /// be read, or whose names cannot be.
    pub fn children(&self, dir: &Dir) -> Result<Vec<Result<Dir>>> {
        let is_shown = |name: &str| !INTERNAL.contains(&name) && !name.starts_with('%');
        let children = self.child_ids(dir)?.into_iter().filter(|(name, _)| is_shown(name));
        let open = |(name, id): (String, DirId)| {
            check_part(&name).in_dataset(&dir.name)?;
            self.dir(id, &format!("{}/{name}", dir.name))
        };
        Ok(children.map(open).collect())
    }

    /// Name and object of everything below `dir`, also what no command shows.
    pub fn child_ids(&self, dir: &Dir) -> Result<Vec<(String, DirId)>> {
        let names = self.names(dir.phys.child_zap).in_dataset(&dir.name)?;
        Ok(names.into_iter().map(|(name, id)| (name, DirId::new(id))).collect())
    }

    /// Name and object of the snapshots of a head.
    pub(crate) fn snapshot_ids(&self, head: &DatasetPhys) -> Result<Vec<(String, DatasetId)>> {
        let names = self.names(head.snapnames_zap)?;
        Ok(names.into_iter().map(|(name, id)| (name, DatasetId::new(id))).collect())
    }

    /// All directories, each before those below it, in the order of their names.
    pub fn walk(&self) -> Result<Vec<Dir>> {
        self.walk_from(self.root()?)
    }

    /// `top` and all below it.
    pub fn walk_from(&self, top: Dir) -> Result<Vec<Dir>> {
        let mut seen = HashSet::new();
        let mut out = Vec::new();
        let mut stack = vec![(0, top)];
        while let Some((depth, dir)) = stack.pop() {
            if depth > DEPTH_MAX || !seen.insert(dir.id) {
                return Err(Error::corrupt("dataset tree is no tree").in_dataset(&dir.name));
            }
            let children = self.children(&dir)?.into_iter().collect::<Result<Vec<Dir>>>()?;
            stack.extend(children.into_iter().rev().map(|child| (depth + 1, child)));
            out.push(dir);
        }
        Ok(out)
    }

    /// The directory of that full name.
    pub fn find_dir(&self, name: &str) -> Result<Dir> {
        let mut parts = name.split('/');
        if parts.next() != Some(&self.pool) {
            return Err(no_such(name));
        }
        let mut dir = self.root()?;
        for part in parts {
            let id = match dir.phys.child_zap {
                ObjectId::NONE => None,
                zap => Zap::open(self.mos.object(zap)?)?.u64(part).in_dataset(&dir.name)?,
            };
            let id = id.filter(|_| check_part(part).is_ok()).ok_or_else(|| no_such(name))?;
            dir = self.dir(DirId::new(id), &format!("{}/{part}", dir.name))?;
        }
        Ok(dir)
    }

    /// The dataset of that full name: `pool/fs`, or `pool/fs@snapshot`.
    pub fn find(&self, name: &str) -> Result<Dataset> {
        let Some((fs, snapshot)) = name.split_once('@') else {
            return self.head(&self.find_dir(name)?);
        };
        let head = self.head(&self.find_dir(fs)?)?;
        let snapnames = Zap::open(self.mos.object(head.phys.snapnames_zap)?).in_dataset(fs)?;
        let id = snapnames.u64(snapshot).in_dataset(fs)?.filter(|_| check_part(snapshot).is_ok());
        let id = id.ok_or_else(|| no_such(name))?;
        self.dataset(DatasetId::new(id), name)
    }

    /// The head of a directory: what is mounted.
    pub fn head(&self, dir: &Dir) -> Result<Dataset> {
        self.dataset(dir.phys.head_dataset, &dir.name)
    }

    /// The snapshots of a head, oldest first.
    pub fn snapshots(&self, head: &Dataset) -> Result<Vec<Dataset>> {
        let mut snapshots = Vec::new();
        for (name, id) in self.snapshot_ids(&head.phys).in_dataset(&head.name)? {
            check_part(&name).in_dataset(&head.name)?;
            snapshots.push(self.dataset(id, &format!("{}@{name}", head.name))?);
        }
        snapshots.sort_by_key(|snapshot| snapshot.phys.creation_txg);
        Ok(snapshots)
    }

    /// The bookmarks of a head, oldest first.
    pub fn bookmarks(&self, head: &Dataset) -> Result<Vec<DatasetBookmark>> {
        self.read_bookmarks(head).in_dataset(&head.name)
    }

    /// The full name of a dataset of which only the object number is known.
    pub fn name_of(&self, dataset: DatasetId) -> Result<String> {
        let phys = self.dataset(dataset, &format!("object {dataset}"))?.phys;
        let (dir_name, dir) = self.dir_name(phys.dir)?;
        if !phys.is_snapshot() {
            return Ok(dir_name);
        }
        let head = self.head(&dir)?;
        let snapshots = self.snapshot_ids(&head.phys).in_dataset(&dir_name)?;
        let name = snapshots.into_iter().find(|(name, id)| *id == dataset && check_part(name).is_ok());
        let name = name.map(|(name, _)| name);
        Ok(format!("{dir_name}@{}", name.unwrap_or_else(|| format!("object {dataset}"))))
    }

    fn dir_name(&self, id: DirId) -> Result<(String, Dir)> {
        let dir = self.dir(id, &format!("directory object {id}"))?;
        let mut parts = Vec::new();
        let (mut at, mut parent) = (id, dir.phys.parent);
        while parent.is_some() {
            if parts.len() > DEPTH_MAX {
                return Err(Error::corrupt("dataset tree is no tree").in_dataset(&dir.name));
            }
            let above = self.dir(parent, &format!("directory object {parent}"))?;
            let found = self.child_ids(&above)?.into_iter().find(|(_, child)| *child == at);
            let name = found.map(|(name, _)| name).filter(|name| check_part(name).is_ok());
            parts.push(name.unwrap_or_else(|| format!("object {at}")));
            (at, parent) = (parent, above.phys.parent);
        }
        parts.push(self.pool.clone());
        parts.reverse();
        let name = parts.join("/");
        Ok((name.clone(), Dir { name, ..dir }))
    }

    /// A ZAP of names and object numbers, sorted by name; number 0 is an empty one.
    fn names(&self, zap: ObjectId) -> Result<Vec<(String, u64)>> {
        if zap.is_none() {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for entry in Zap::open(self.mos.object(zap)?)?.entries()? {
            let id = entry.value.first_u64().ok_or_else(|| Error::corrupt("name without object number"))?;
            names.push((entry.name.to_string(), id));
        }
        names.sort();
        Ok(names)
    }
}

/// Checks one part of a name that is on disk, as those are checked that people give: it becomes part of paths.
/// A mark at its beginning makes it one of ZFS's own.
fn check_part(part: &str) -> Result<()> {
    match check_component(part.strip_prefix(['$', '%']).unwrap_or(part)) {
        Ok(()) => Ok(()),
        Err(e) => Err(Error::corrupt(format!("impossible name '{part}' below it")).with_source(e)),
    }
}

fn no_such(name: &str) -> Error {
    Error::new(Kind::NotFound, format!("cannot open '{name}': dataset does not exist"))
}
