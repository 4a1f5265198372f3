//! What a file system should hold: a model of its files by number, compared with what is on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use base::Result;
use dmu::zap::Zap;
use format::ids::ObjectId;
use zpl::{FileKind, Zpl};

/// Stands for the number of the root directory.
pub const ROOT: ObjectId = ObjectId::NONE;

/// The files of a file system. A copy shares them until they are changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// All that have a name, by number.
    pub nodes: BTreeMap<ObjectId, Arc<FileModel>>,
    /// Numbers of those that have lost their names, and are to be freed after a crash.
    pub orphans: BTreeSet<ObjectId>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileModel {
    /// What it is: a file, a directory, or a symbolic link.
    pub kind: FileKind,
    /// Permissions.
    pub mode: u32,
    /// Names that it has; of a directory, its subdirectories and 2.
    pub links: u64,
    /// What is in it; of a symbolic link, its target.
    pub bytes: Vec<u8>,
    /// Numbers of the files in a directory, by name.
    pub entries: BTreeMap<Vec<u8>, ObjectId>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl FileModel {
    /// One without anything in it.
    pub fn new(kind: FileKind, mode: u32) -> FileModel {
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        let (bytes, entries, xattrs) = Default::default();
        FileModel { kind, mode, links, bytes, entries, xattrs }
    }
}

impl Default for Files {
    /// A new file system: only the root directory.
    fn default() -> Files {
        let root = FileModel::new(FileKind::Directory, 0o755);
        Files { nodes: [(ROOT, Arc::new(root))].into(), orphans: BTreeSet::new() }
    }
}

impl Files {
    /// The files of a file system.
    pub fn read(zpl: &Zpl) -> Result<Files> {
        let mut nodes = BTreeMap::new();
        let mut rest = vec![(ROOT, zpl.root())];
        while let Some((key, ino)) = rest.pop() {
            let node = read_node(zpl, ino)?;
            rest.extend(node.entries.values().filter(|ino| !nodes.contains_key(*ino)).map(|&ino| (ino, ino)));
            nodes.insert(key, Arc::new(node));
        }
        let queue = Zap::open(zpl.objset().object(zpl.master().delete_queue)?)?;
        let orphans = queue.entries()?.iter().filter_map(|entry| entry.value.first_object()).collect();
        Ok(Files { nodes, orphans })
    }

    /// A file to be changed. Panics if there is none.
    pub fn node(&mut self, ino: ObjectId) -> &mut FileModel {
        Arc::make_mut(self.nodes.get_mut(&ino).expect("a file of the model"))
    }

    /// Numbers of all of a kind.
    pub fn all(&self, kind: FileKind) -> Vec<ObjectId> {
        self.nodes.iter().filter(|(_, node)| node.kind == kind).map(|(&ino, _)| ino).collect()
    }

    /// Every name: the directory, the name, and what is called so.
    pub fn names(&self) -> Vec<(ObjectId, Vec<u8>, ObjectId)> {
        let of = |(&dir, node): (&ObjectId, &Arc<FileModel>)| -> Vec<(ObjectId, Vec<u8>, ObjectId)> {
            node.entries.iter().map(|(name, &ino)| (dir, name.clone(), ino)).collect()
        };
        self.nodes.iter().flat_map(of).collect()
    }

    /// Whether a file is a directory or lies, perhaps deep, in it.
    pub fn is_below(&self, ino: ObjectId, top: ObjectId) -> bool {
        ino == top || self.nodes[&top].entries.values().any(|&child| self.is_below(ino, child))
    }

    /// Gives a file a name.
    pub fn add_name(&mut self, dir: ObjectId, name: &[u8], ino: ObjectId) {
        self.node(dir).entries.insert(name.to_vec(), ino);
        if self.nodes[&ino].kind == FileKind::Directory {
            self.node(dir).links += 1;
        }
    }

    /// Takes away a name. Returns what had it.
    pub fn remove_name(&mut self, dir: ObjectId, name: &[u8]) -> ObjectId {
        let ino = self.node(dir).entries.remove(name).expect("a name of the model");
        if self.nodes[&ino].kind == FileKind::Directory {
            self.node(dir).links -= 1;
        }
        ino
    }

    /// A name of it is gone; whether that was the last.
    pub fn drop_link(&mut self, ino: ObjectId) -> bool {
        let node = self.node(ino);
        node.links -= 1;
        let is_gone = node.links == 0 || node.kind == FileKind::Directory;
        if is_gone {
            self.nodes.remove(&ino);
            self.orphans.insert(ino);
        }
        is_gone
    }

    /// The first way in which a file system is not what the model says; `None` if it is.
    pub fn compare(&self, zpl: &Zpl) -> Result<Option<String>> {
        let queue = Zap::open(zpl.objset().object(zpl.master().delete_queue)?)?;
        let orphans: BTreeSet<ObjectId> =
            queue.entries()?.iter().filter_map(|entry| entry.value.first_object()).collect();
        if orphans != self.orphans {
            return Ok(Some(format!("files without a name: {orphans:?}, not {:?}", self.orphans)));
        }
        for (&ino, node) in &self.nodes {
            let number = if ino == ROOT { zpl.root() } else { ino };
            if let Some(what) = compare_node(zpl, number, node)? {
                return Ok(Some(format!("file {number}: {what}")));
            }
        }
        Ok(None)
    }
}

fn read_node(zpl: &Zpl, ino: ObjectId) -> Result<FileModel> {
    let stat = zpl.stat(ino)?;
    let mut node = FileModel::new(stat.kind, stat.mode);
    node.links = stat.nlink;
    for name in zpl.xattr_names(ino)? {
        node.xattrs.insert(name.clone(), zpl.xattr(ino, &name)?);
    }
    match stat.kind {
        FileKind::Directory => zpl.readdir(ino, 2, &mut |entry| {
            node.entries.insert(entry.name, entry.ino);
            ControlFlow::Continue(())
        })?,
        FileKind::Symlink => node.bytes = zpl.readlink(ino)?,
        FileKind::File => {
            node.bytes = vec![0; stat.size as usize + 1];
            let len = zpl.open_file(ino)?.read(0, &mut node.bytes)?;
            node.bytes.truncate(len);
        }
        _ => {}
    }
    Ok(node)
}

fn compare_node(zpl: &Zpl, ino: ObjectId, model: &FileModel) -> Result<Option<String>> {
    let stat = zpl.stat(ino)?;
    let size = match model.kind {
        FileKind::Directory => model.entries.len() + 2,
        _ => model.bytes.len(),
    };
    let found = (stat.kind, stat.mode, stat.nlink, stat.size);
    let wanted = (model.kind, model.mode, model.links, size as u64);
    if found != wanted {
        return Ok(Some(format!("{found:?}, not {wanted:?}")));
    }
    let mut xattrs = BTreeMap::new();
    for name in zpl.xattr_names(ino)? {
        xattrs.insert(name.clone(), zpl.xattr(ino, &name)?);
    }
    if xattrs != model.xattrs {
        return Ok(Some(format!("attributes {:?}, not {:?}", xattrs.keys(), model.xattrs.keys())));
    }
    match model.kind {
        FileKind::Directory => {
            let mut entries = BTreeMap::new();
            zpl.readdir(ino, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    entries.insert(entry.name.to_vec(), entry.ino);
                }
                ControlFlow::Continue(())
            })?;
            Ok((entries != model.entries).then(|| format!("names {entries:?}, not {:?}", model.entries)))
        }
        FileKind::Symlink => Ok((zpl.readlink(ino)? != model.bytes).then(|| "another target".into())),
        _ => {
            let mut bytes = vec![0; model.bytes.len() + 1];
            let len = zpl.open_file(ino)?.read(0, &mut bytes)?;
            bytes.truncate(len);
            let wrong = bytes.iter().zip(&model.bytes).position(|(found, wanted)| found != wanted);
            let is_right = bytes == model.bytes;
            Ok((!is_right).then(|| format!("{len} bytes, of which number {wrong:?} is the first wrong one")))
        }
    }
}
