//! A file system in memory, in the place of a pool: it can be as large, as odd and as broken as a
//! test wants, and it counts what is asked of it. A writable one is a model of what POSIX demands.

pub mod acl;
mod data;
mod state;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, Kind, Mutex, Result, RwLock, RwLockReadGuard, RwLockWriteGuard};
use format::ids::ObjectId;
use fuse::{Allocate, DatasetSpace, FileTree, New, RenameMode, SetAttr, Snapshot, Source, TreeFile, XattrMode};
use zpl::{DirEntry, FileKind, Stat};

pub use data::{Content, Data, fill};
use state::State;

pub const ROOT: ObjectId = ObjectId::new(34);
/// There is no room for a longer file.
pub const SIZE_MAX: u64 = 1 << 40;
/// Entries of a directory that are taken out of it under one lock.
const AT_ONCE: usize = 1000;

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
    Dir(Vec<(Vec<u8>, ObjectId)>),
    File(Content),
    Data(Data),
    Link(Vec<u8>),
    Special,
    /// Every use fails like this.
    Broken(Kind),
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
    pub write: Arc<AtomicU64>,
    pub write_bytes_max: Arc<AtomicU64>,
    pub copy: Arc<AtomicU64>,
    pub touch_atime: AtomicU64,
    pub sync: AtomicU64,
}

impl Calls {
    /// Of the methods that read.
    pub fn total(&self) -> u64 {
        [&self.stat, &self.lookup, &self.readdir, &self.readlink, &self.open, &self.read, &self.xattr]
            .iter()
            .map(|count| count.load(Ordering::SeqCst))
            .sum()
    }
}

#[derive(Default)]
pub struct Memory {
    pub calls: Calls,
    pub is_writable: bool,
    pub has_aliases: bool,
    state: Arc<RwLock<State>>,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

impl Memory {
    /// An empty root directory.
    pub fn new() -> Memory {
        let mut memory = Memory::default();
        let root = Node { stat: fresh_stat(ROOT, FileKind::Directory, 0o755), body: Body::Dir(vec![]), xattrs: vec![] };
        memory.building().nodes.insert(ROOT, root);
        memory.building().next = ObjectId::new(128);
        memory
    }

    /// An empty root directory in which everybody may write.
    pub fn writable() -> Memory {
        let mut memory = Memory { is_writable: true, ..Memory::new() };
        let stat = &mut memory.node(ROOT).stat;
        (stat.mode, stat.nlink, stat.size) = (0o777, 2, 2);
        memory
    }

    /// Names differ no more in case.
    pub fn ignoring_case(mut self) -> Memory {
        self.has_aliases = true;
        self.building().ignore_case = true;
        self
    }

    /// The same as it is now, apart from later changes of either. What is made in one is not taken for what is made in
    /// the other.
    pub fn copy(&self) -> Memory {
        let mut state = self.read().clone();
        state.generation += 1000;
        let (is_writable, has_aliases) = (self.is_writable, self.has_aliases);
        Memory { is_writable, has_aliases, state: Arc::new(RwLock::new(state)), ..Memory::default() }
    }

    /// Before it is shared.
    fn building(&mut self) -> &mut State {
        Arc::get_mut(&mut self.state).expect("no file is open").get_mut()
    }

    /// Changes attributes behind the kernel's back.
    pub fn change_stat(&self, object: ObjectId, change: impl FnOnce(&mut Stat)) {
        change(&mut self.write().get_mut(object).unwrap().stat);
    }

    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    /// Adds an object to a directory and returns its number.
    pub fn add(&mut self, dir: ObjectId, name: &str, kind: FileKind, body: Body) -> ObjectId {
        let object = self.building().next;
        self.building().next = object.next();
        let mut stat = fresh_stat(object, kind, if kind == FileKind::Directory { 0o755 } else { 0o644 });
        stat.parent = dir;
        stat.size = match &body {
            Body::File(content) => content.size,
            Body::Link(target) => target.len() as u64,
            _ => 2,
        };
        self.building().nodes.insert(object, Node { stat, body, xattrs: vec![] });
        self.link(dir, name.as_bytes(), object);
        object
    }

    /// Adds a name for whatever object.
    pub fn link(&mut self, dir: ObjectId, name: &[u8], object: ObjectId) {
        match &mut self.node(dir).body {
            Body::Dir(entries) => entries.push((name.to_vec(), object)),
            _ => panic!("{dir} is not a directory"),
        }
    }

    pub fn dir(&mut self, dir: ObjectId, name: &str) -> ObjectId {
        self.add(dir, name, FileKind::Directory, Body::Dir(vec![]))
    }

    /// A file of `size` bytes without holes.
    pub fn file(&mut self, dir: ObjectId, name: &str, size: u64) -> ObjectId {
        let content = Content { seed: self.building().next.get(), size, extents: std::iter::once(0..size).collect() };
        self.add(dir, name, FileKind::File, Body::File(content))
    }

    pub fn node(&mut self, object: ObjectId) -> &mut Node {
        self.building().nodes.get_mut(&object).expect("the test made it")
    }
}

fn fresh_stat(object: ObjectId, kind: FileKind, mode: u32) -> Stat {
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

impl FileTree for Memory {
    type File = MemoryFile;

    fn root(&self) -> ObjectId {
        ROOT
    }

    fn stat(&self, object: ObjectId) -> Result<Stat> {
        count(&self.calls.stat);
        Ok(self.read().get(object)?.stat.clone())
    }

    fn lookup(&self, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        count(&self.calls.lookup);
        assert!(name != b"." && name != b"..");
        self.read().lookup(directory, name)
    }

    fn readdir(&self, dir: ObjectId, cookie: u64, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> Result<()> {
        count(&self.calls.readdir);
        assert_ne!(cookie, 3, "belongs to .zfs");
        let mut found = Vec::new();
        {
            let state = self.read();
            let dots = [(b".".to_vec(), dir, 1), (b"..".to_vec(), state.get(dir)?.stat.parent, 2)];
            let first = if cookie <= 2 { 0 } else { (cookie >> 20) as usize + 1 };
            let names = (first..).zip(state.entries(dir)?.iter().skip(first));
            let names = names.filter(|(_, entry)| State::is_entry(entry));
            let names = names.map(|(i, (name, object))| (name.clone(), *object, (i as u64) << 20 | 0xabcde));
            for (name, ino, at) in dots.into_iter().filter(|&(_, _, at)| at > cookie).chain(names).take(AT_ONCE) {
                let kind = state.nodes.get(&ino).map_or(FileKind::File, |node| node.stat.kind);
                found.push(DirEntry { ino, kind: Some(kind), name, cookie: at });
            }
        }
        // unlocked: whoever takes them may ask for more
        let Some(last) = found.last().map(|entry| entry.cookie) else { return Ok(()) };
        for entry in found {
            if each(entry).is_break() {
                return Ok(());
            }
        }
        self.readdir(dir, last, each)
    }

    fn readlink(&self, object: ObjectId) -> Result<Vec<u8>> {
        count(&self.calls.readlink);
        match &self.read().get(object)?.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Error::new(Kind::Invalid, "not a link")),
        }
    }

    fn open_file(&self, object: ObjectId) -> Result<MemoryFile> {
        count(&self.calls.open);
        match &self.read().get(object)?.body {
            Body::File(_) | Body::Data(_) => Ok(MemoryFile {
                object,
                state: self.state.clone(),
                reads: self.calls.read.clone(),
                read_bytes_max: self.calls.read_bytes_max.clone(),
                writes: self.calls.write.clone(),
                write_bytes_max: self.calls.write_bytes_max.clone(),
                copies: self.calls.copy.clone(),
            }),
            _ => Err(Error::new(Kind::IsDirectory, "not a file")),
        }
    }

    fn xattr_names(&self, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        count(&self.calls.xattr);
        Ok(self.read().get(object)?.xattrs.iter().map(|(name, _)| name.clone()).collect())
    }

    fn xattr(&self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        count(&self.calls.xattr);
        let state = self.read();
        let found = state.get(object)?.xattrs.iter().find(|(have, _)| have == name);
        found.map(|(_, value)| value.clone()).ok_or_else(|| Error::new(Kind::NoAttribute, "no such attribute"))
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    fn has_aliases(&self) -> bool {
        self.has_aliases
    }

    fn create(&self, directory: ObjectId, name: &[u8], new: &New<'_>) -> Result<Stat> {
        self.write().create(directory, name, new)
    }

    fn create_unnamed(&self, directory: ObjectId, new: &New<'_>) -> Result<Stat> {
        self.write().create_unnamed(directory, new)
    }

    fn link(&self, object: ObjectId, directory: ObjectId, name: &[u8]) -> Result<Stat> {
        self.write().link(object, directory, name)
    }

    fn unlink(&self, directory: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        self.write().unlink(directory, name)
    }

    fn rmdir(&self, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        self.write().rmdir(directory, name)
    }

    fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), mode: RenameMode) -> Result<Option<ObjectId>> {
        self.write().rename(from, to, mode)
    }

    fn reclaim(&self, object: ObjectId) -> Result<()> {
        self.write().reclaim(object)
    }

    fn set_attr(&self, object: ObjectId, set: &SetAttr) -> Result<Stat> {
        self.write().set_attr(object, set)
    }

    fn touch_atime(&self, object: ObjectId, at: (i64, u32)) -> Result<()> {
        count(&self.calls.touch_atime);
        self.write().touch_atime(object, at)
    }

    fn set_xattr(&self, object: ObjectId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.write().set_xattr(object, name, value, mode)
    }

    fn remove_xattr(&self, object: ObjectId, name: &[u8]) -> Result<()> {
        self.write().remove_xattr(object, name)
    }

    fn sync(&self, object: ObjectId, _: bool) -> Result<()> {
        count(&self.calls.sync);
        self.read().get(object).map(|_| ())
    }
}

pub struct MemoryFile {
    object: ObjectId,
    state: Arc<RwLock<State>>,
    reads: Arc<AtomicU64>,
    read_bytes_max: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
    write_bytes_max: Arc<AtomicU64>,
    copies: Arc<AtomicU64>,
}

impl MemoryFile {
    fn look<R>(&self, content: impl FnOnce(&Content) -> R, data: impl FnOnce(&Data) -> R) -> Result<R> {
        match &self.state.read().get(self.object)?.body {
            Body::File(have) => Ok(content(have)),
            Body::Data(have) => Ok(data(have)),
            _ => panic!("it was a file when opened"),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Data)) -> Result<()> {
        let mut state = self.state.write();
        change(state.data(self.object)?);
        state.written(self.object)
    }
}

impl TreeFile for MemoryFile {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        count(&self.reads);
        self.read_bytes_max.fetch_max(buf.len() as u64, Ordering::SeqCst);
        let buf = std::cell::RefCell::new(buf);
        self.look(
            |content| content.read(offset, &mut buf.borrow_mut()),
            |data| data.read(offset, &mut buf.borrow_mut()),
        )
    }

    fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.look(|content| content.seek_data(offset), |data| data.seek_data(offset))
    }

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.look(|content| content.seek_hole(offset), |data| data.seek_hole(offset))
    }

    fn write(&self, offset: u64, data: base::Data<'_>) -> Result<usize> {
        let data = data.to_vec();
        count(&self.writes);
        self.write_bytes_max.fetch_max(data.len() as u64, Ordering::SeqCst);
        let room = SIZE_MAX.saturating_sub(offset).min(data.len() as u64) as usize;
        if room == 0 {
            return Err(Error::new(Kind::NoSpace, "the model is full"));
        }
        self.change(|have| have.write(offset, &data[..room]))?;
        Ok(room)
    }

    fn allocate(&self, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.change(|data| {
            let size = data.size.max(offset + len);
            match how {
                Allocate::PunchHole => data.punch(offset, len),
                Allocate::Reserve { keep_size: true } => {}
                Allocate::Reserve { keep_size: false } => data.resize(size),
                Allocate::ZeroRange { keep_size } => {
                    data.punch(offset, len);
                    data.resize(if keep_size { data.size } else { size });
                }
            }
        })
    }

    fn copy_from(&self, offset: u64, from: &MemoryFile, from_offset: u64, len: u64) -> Result<u64> {
        count(&self.copies);
        let mut buf = vec![0; len.min(4 << 20) as usize];
        let read = from.read(from_offset, &mut buf)?;
        if read > 0 {
            self.change(|data| data.write(offset, &buf[..read]))?;
        }
        Ok(read as u64)
    }
}

/// A dataset made of trees in memory.
pub struct MemorySource {
    pub live: Arc<Memory>,
    pub snapshots: RwLock<Vec<(Snapshot, Arc<Memory>)>>,
    pub space: DatasetSpace,
    pub lists: AtomicU64,
    pub opens: AtomicU64,
    pub syncs: AtomicU64,
    /// Counts changes of the snapshots.
    pub version: AtomicU64,
    /// What is in the place of the live tree next.
    pub next: Mutex<Option<Arc<Memory>>>,
    /// That cannot be read.
    pub next_fails: AtomicBool,
}

impl MemorySource {
    pub fn new(live: Memory) -> MemorySource {
        let space = DatasetSpace {
            referenced_bytes: 10 << 20,
            available_bytes: 30 << 20,
            objects_used: 1000,
            objects_available: 1 << 40,
            record_bytes: 128 << 10,
            name_bytes_max: 255,
        };
        MemorySource {
            live: Arc::new(live),
            snapshots: RwLock::default(),
            space,
            lists: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            version: AtomicU64::new(0),
            next: Mutex::default(),
            next_fails: AtomicBool::new(false),
        }
    }

    pub fn with_snapshot(self, name: &str, tree: Memory) -> MemorySource {
        let dataset = ObjectId::new(1000 + self.snapshots.read().len() as u64);
        let snapshot = Snapshot { name: name.to_owned(), dataset, created_s: 1_650_000_000 };
        self.snapshots.write().push((snapshot, Arc::new(tree)));
        self
    }
}

impl Source for MemorySource {
    type Tree = Memory;

    fn tree(&self) -> Arc<Memory> {
        self.live.clone()
    }

    fn reopened(&self) -> Result<Option<Arc<Memory>>> {
        match self.next_fails.load(Ordering::SeqCst) {
            true => Err(Error::new(Kind::Checksum, "the new root cannot be read")),
            false => Ok(self.next.lock().take()),
        }
    }

    fn space(&self) -> Result<DatasetSpace> {
        let objects_used = self.space.objects_used + self.live.read().nodes.len() as u64 - 1;
        Ok(DatasetSpace { objects_used, ..self.space })
    }

    fn sync(&self) -> Result<()> {
        count(&self.syncs);
        Ok(())
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        count(&self.lists);
        Ok(self.snapshots.read().iter().map(|(snapshot, _)| snapshot.clone()).collect())
    }

    fn snapshots_version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    fn open_snapshot(&self, snapshot: &Snapshot) -> Result<Arc<Memory>> {
        count(&self.opens);
        let snapshots = self.snapshots.read();
        let found = snapshots.iter().find(|(have, _)| have == snapshot);
        found.map(|(_, tree)| tree.clone()).ok_or_else(|| Error::new(Kind::NotFound, "no such snapshot"))
    }
}
