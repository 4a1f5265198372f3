//! A file system in memory, in the place of a pool: it can be as large, as odd and as broken as a
//! test wants, and it counts what is asked of it.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, Kind, Result};
use fuse::{Snapshot, Source, Space, Tree, TreeFile};
use zpl::{DirEntry, FileKind, Stat};

pub const ROOT: u64 = 34;

/// One object.
#[derive(Clone)]
pub struct Node {
    pub stat: Stat,
    pub body: Body,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What an object holds.
#[derive(Clone)]
pub enum Body {
    Dir(Vec<(Vec<u8>, u64)>),
    File(Content),
    Link(Vec<u8>),
    Special,
    /// Every use fails like this.
    Broken(Kind),
}

/// Bytes of a file: those of [`byte_at`] inside the extents, zeros elsewhere.
#[derive(Clone)]
pub struct Content {
    pub seed: u64,
    pub size: u64,
    pub extents: Vec<Range<u64>>,
}

/// Calls of each method.
#[derive(Default)]
pub struct Calls {
    pub stat: AtomicU64,
    pub lookup: AtomicU64,
    pub readdir: AtomicU64,
    pub readlink: AtomicU64,
    pub open: AtomicU64,
    pub read: Arc<AtomicU64>,
    pub read_bytes_max: Arc<AtomicU64>,
    pub xattr: AtomicU64,
}

impl Calls {
    pub fn total(&self) -> u64 {
        [&self.stat, &self.lookup, &self.readdir, &self.readlink, &self.open, &self.read, &self.xattr]
            .iter()
            .map(|count| count.load(Ordering::SeqCst))
            .sum()
    }
}

#[derive(Default)]
pub struct Memory {
    pub nodes: HashMap<u64, Node>,
    pub calls: Calls,
    next: u64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

/// The byte at `offset` of a file's data.
pub fn fill(seed: u64, offset: u64, buf: &mut [u8]) {
    let mut word = [0; 8];
    for (at, byte) in (offset..).zip(buf) {
        if at == offset || at.is_multiple_of(8) {
            word = ((at / 8) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        }
        *byte = word[(at % 8) as usize];
    }
}

impl Memory {
    /// An empty root directory.
    pub fn new() -> Memory {
        let mut memory = Memory { next: 128, ..Memory::default() };
        let root = Node { stat: stat(ROOT, FileKind::Directory, 0o755), body: Body::Dir(vec![]), xattrs: vec![] };
        memory.nodes.insert(ROOT, root);
        memory
    }

    /// Adds an object to a directory and returns its number.
    pub fn add(&mut self, dir: u64, name: &str, kind: FileKind, body: Body) -> u64 {
        let object = self.next;
        self.next += 1;
        let mut stat = stat(object, kind, if kind == FileKind::Directory { 0o755 } else { 0o644 });
        stat.parent = dir;
        stat.size = match &body {
            Body::File(content) => content.size,
            Body::Link(target) => target.len() as u64,
            _ => 2,
        };
        self.nodes.insert(object, Node { stat, body, xattrs: vec![] });
        self.link(dir, name.as_bytes(), object);
        object
    }

    /// Adds a name for whatever object.
    pub fn link(&mut self, dir: u64, name: &[u8], object: u64) {
        match &mut self.node(dir).body {
            Body::Dir(entries) => entries.push((name.to_vec(), object)),
            _ => panic!("{dir} is not a directory"),
        }
    }

    pub fn dir(&mut self, dir: u64, name: &str) -> u64 {
        self.add(dir, name, FileKind::Directory, Body::Dir(vec![]))
    }

    /// A file of `size` bytes without holes.
    pub fn file(&mut self, dir: u64, name: &str, size: u64) -> u64 {
        let content = Content { seed: self.next, size, extents: std::iter::once(0..size).collect() };
        self.add(dir, name, FileKind::File, Body::File(content))
    }

    pub fn node(&mut self, object: u64) -> &mut Node {
        self.nodes.get_mut(&object).expect("the test made it")
    }

    fn get(&self, object: u64) -> Result<&Node> {
        match self.nodes.get(&object) {
            None => Err(Error::new(Kind::NotFound, format!("no object {object}"))),
            Some(Node { body: Body::Broken(kind), .. }) => Err(Error::new(*kind, format!("object {object} is broken"))),
            Some(node) => Ok(node),
        }
    }

    fn entries(&self, dir: u64) -> Result<&[(Vec<u8>, u64)]> {
        match &self.get(dir)?.body {
            Body::Dir(entries) => Ok(entries),
            _ => Err(Error::new(Kind::NotDirectory, "not a directory")),
        }
    }
}

fn stat(object: u64, kind: FileKind, mode: u32) -> Stat {
    Stat {
        ino: object,
        generation: 7,
        kind,
        mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        projid: 0,
        size: 0,
        blocks: 1,
        block_size: 512,
        rdev: 0,
        atime: (1_600_000_000, 1),
        mtime: (1_700_000_000, 2),
        ctime: (1_700_000_001, 3),
        btime: (1_500_000_000, 4),
        parent: ROOT,
        flags: 0,
    }
}

impl Tree for Memory {
    type File = MemoryFile;

    fn root(&self) -> u64 {
        ROOT
    }

    fn stat(&self, object: u64) -> Result<Stat> {
        count(&self.calls.stat);
        Ok(self.get(object)?.stat.clone())
    }

    fn lookup(&self, directory: u64, name: &[u8]) -> Result<u64> {
        count(&self.calls.lookup);
        assert!(name != b"." && name != b"..");
        if name.len() > 255 {
            return Err(Error::new(Kind::TooLong, "name too long"));
        }
        let found = self.entries(directory)?.iter().find(|(have, _)| have == name);
        found.map(|&(_, object)| object).ok_or_else(|| Error::new(Kind::NotFound, "no such name"))
    }

    fn readdir(&self, dir: u64, cookie: u64, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> Result<()> {
        count(&self.calls.readdir);
        assert_ne!(cookie, 3, "belongs to .zfs");
        let entries = self.entries(dir)?;
        let dots = [(b".".to_vec(), dir, 1), (b"..".to_vec(), self.get(dir)?.stat.parent, 2)];
        let first = if cookie <= 2 { 0 } else { (cookie >> 20) as usize + 1 };
        let names = (first..).zip(entries.iter().skip(first));
        let names = names.map(|(i, (name, object))| (name.clone(), *object, (i as u64) << 20 | 0xabcde));
        for (name, ino, at) in dots.into_iter().filter(|&(_, _, at)| at > cookie).chain(names) {
            let kind = self.nodes.get(&ino).map_or(FileKind::File, |node| node.stat.kind);
            if each(DirEntry { ino, kind, name, cookie: at }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn readlink(&self, object: u64) -> Result<Vec<u8>> {
        count(&self.calls.readlink);
        match &self.get(object)?.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Error::new(Kind::Invalid, "not a link")),
        }
    }

    fn open_file(&self, object: u64) -> Result<MemoryFile> {
        count(&self.calls.open);
        match &self.get(object)?.body {
            Body::File(content) => Ok(MemoryFile {
                content: content.clone(),
                reads: self.calls.read.clone(),
                read_bytes_max: self.calls.read_bytes_max.clone(),
            }),
            _ => Err(Error::new(Kind::IsDirectory, "not a file")),
        }
    }

    fn xattr_names(&self, object: u64) -> Result<Vec<Vec<u8>>> {
        count(&self.calls.xattr);
        Ok(self.get(object)?.xattrs.iter().map(|(name, _)| name.clone()).collect())
    }

    fn xattr(&self, object: u64, name: &[u8]) -> Result<Vec<u8>> {
        count(&self.calls.xattr);
        let found = self.get(object)?.xattrs.iter().find(|(have, _)| have == name);
        found.map(|(_, value)| value.clone()).ok_or_else(|| Error::new(Kind::NoAttribute, "no such attribute"))
    }
}

pub struct MemoryFile {
    content: Content,
    reads: Arc<AtomicU64>,
    read_bytes_max: Arc<AtomicU64>,
}

impl TreeFile for MemoryFile {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        count(&self.reads);
        self.read_bytes_max.fetch_max(buf.len() as u64, Ordering::SeqCst);
        let Content { seed, size, extents } = &self.content;
        let end = (offset + buf.len() as u64).min(*size);
        let len = end.saturating_sub(offset) as usize;
        buf[..len].fill(0);
        for extent in extents {
            let (from, to) = (extent.start.max(offset), extent.end.min(end));
            if from < to {
                fill(*seed, from, &mut buf[(from - offset) as usize..(to - offset) as usize]);
            }
        }
        Ok(len)
    }

    fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.content.extents.iter().find(|extent| extent.end > offset).map(|extent| extent.start.max(offset)))
    }

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        if offset >= self.content.size {
            return Ok(None);
        }
        let inside = self.content.extents.iter().find(|extent| extent.contains(&offset));
        Ok(Some(inside.map_or(offset, |extent| extent.end)))
    }
}

/// A dataset made of trees in memory.
pub struct MemorySource {
    pub live: Arc<Memory>,
    pub snapshots: Vec<(Snapshot, Arc<Memory>)>,
    pub space: Space,
    pub lists: AtomicU64,
    pub opens: AtomicU64,
}

impl MemorySource {
    pub fn new(live: Memory) -> MemorySource {
        let space = Space {
            referenced_bytes: 10 << 20,
            available_bytes: 30 << 20,
            objects_used: 1000,
            objects_available: 1 << 40,
            record_bytes: 128 << 10,
            name_bytes_max: 255,
        };
        MemorySource {
            live: Arc::new(live),
            snapshots: vec![],
            space,
            lists: AtomicU64::new(0),
            opens: AtomicU64::new(0),
        }
    }

    pub fn with_snapshot(mut self, name: &str, tree: Memory) -> MemorySource {
        let dataset = 1000 + self.snapshots.len() as u64;
        let snapshot = Snapshot { name: name.to_owned(), dataset, created_s: 1_650_000_000 };
        self.snapshots.push((snapshot, Arc::new(tree)));
        self
    }
}

impl Source for MemorySource {
    type Tree = Memory;

    fn tree(&self) -> Arc<Memory> {
        self.live.clone()
    }

    fn space(&self) -> Result<Space> {
        Ok(self.space)
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        count(&self.lists);
        Ok(self.snapshots.iter().map(|(snapshot, _)| snapshot.clone()).collect())
    }

    fn open_snapshot(&self, snapshot: &Snapshot) -> Result<Arc<Memory>> {
        count(&self.opens);
        let found = self.snapshots.iter().find(|(have, _)| have == snapshot);
        found.map(|(_, tree)| tree.clone()).ok_or_else(|| Error::new(Kind::NotFound, "no such snapshot"))
    }
}
