//! Paths of files by the numbers of their objects, found upwards, from each directory's parent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use dmu::Mode;
use format::ids::{DatasetId, ObjectId};
use pool::Pool;
use zpl::Zpl;

/// How deep directories may nest.
const DEPTH_MAX: usize = 4096;
/// Bytes of a path that is given out: as many as the kernel takes.
const PATH_BYTES_MAX: usize = 4096;
/// Entries of directories that are looked at for one question.
const ENTRIES_MAX: u64 = 1 << 20;

/// What tells the files of a dataset as they are now, if it is mounted.
pub type FilesNow<'a> = &'a dyn Fn(DatasetId) -> Option<Arc<Zpl>>;

/// The paths of objects of a dataset, from its root; `None` of what is no file, has no name any more, or lies in
/// directories with too many entries.
pub fn paths(pool: &Pool, now: FilesNow<'_>, dataset: DatasetId, objects: &[ObjectId]) -> Vec<Option<String>> {
    let zpl = pool.dsl().name_of(dataset).ok().and_then(|name| files(pool, now, dataset, &name));
    let Some(zpl) = zpl else { return vec![None; objects.len()] };
    let found = PathFinder::new(&zpl, ENTRIES_MAX).paths(objects);
    found.into_iter().map(|path| path.filter(|path| path.len() <= PATH_BYTES_MAX)).collect()
}

/// The files of a dataset, as they are now or in the last group on disk; `None` if it has none that can be read.
pub(super) fn files(pool: &Pool, now: FilesNow<'_>, id: DatasetId, name: &str) -> Option<Arc<Zpl>> {
    let on_disk = || {
        let head = pool.dsl().dataset(id, name).ok()?;
        pool.dsl().objset(&head, Mode::Plain).and_then(Zpl::open).map(Arc::new).ok()
    };
    now(id).or_else(on_disk)
}

/// Finds paths; each directory is read once.
pub(super) struct PathFinder<'a> {
    zpl: &'a Zpl,
    /// Directories and names in them.
    names: HashMap<ObjectId, (ObjectId, String)>,
    /// Entries that may be looked at yet.
    left: u64,
}

impl PathFinder<'_> {
    /// One that looks at so many entries of directories.
    pub(super) fn new(zpl: &Zpl, entries_max: u64) -> PathFinder<'_> {
        PathFinder { zpl, names: HashMap::new(), left: entries_max }
    }

    /// The paths of objects, in their order.
    pub(super) fn paths(&mut self, objects: &[ObjectId]) -> Vec<Option<String>> {
        let mut wanted: BTreeSet<ObjectId> = objects.iter().copied().collect();
        while !wanted.is_empty() {
            let mut below = BTreeMap::<ObjectId, BTreeSet<ObjectId>>::new();
            let is_unknown = |object: &ObjectId| *object != self.zpl.root() && !self.names.contains_key(object);
            for object in wanted.into_iter().filter(is_unknown) {
                if let Ok(stat) = self.zpl.stat(object) {
                    below.entry(stat.parent).or_default().insert(object);
                }
            }
            // a directory that was found before is not looked for again: this ends, also in a circle
            wanted = below.into_iter().filter_map(|(dir, children)| self.read(dir, children)).collect();
        }
        objects.iter().map(|object| self.path(*object)).collect()
    }

    /// Looks for names in a directory; returns it if there were some.
    fn read(&mut self, dir: ObjectId, mut children: BTreeSet<ObjectId>) -> Option<ObjectId> {
        let mut has_some = false;
        let (left, names) = (&mut self.left, &mut self.names);
        let mut look = |entry: zpl::DirEntry| {
            if *left == 0 {
                return ControlFlow::Break(());
            }
            *left -= 1;
            if entry.name != b"." && entry.name != b".." && children.remove(&entry.ino) {
                names.insert(entry.ino, (dir, String::from_utf8_lossy(&entry.name).into_owned()));
                has_some = true;
            }
            if children.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // what was found before an error counts
        let _ = self.zpl.readdir(dir, 0, &mut look);
        has_some.then_some(dir)
    }

    fn path(&self, object: ObjectId) -> Option<String> {
        let (mut at, mut parts) = (object, Vec::new());
        while at != self.zpl.root() {
            let (dir, name) = self.names.get(&at).filter(|_| parts.len() <= DEPTH_MAX)?;
            parts.push(name.as_str());
            at = *dir;
        }
        parts.reverse();
        Some(format!("/{}", parts.join("/")))
    }
}
