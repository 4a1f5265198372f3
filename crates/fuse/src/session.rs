//! One mounted file system as `fuser` sees it: each request of the kernel in one short function.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::{AlignedBuf, Env, Error, Kind, Result, ResultExt};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};

use crate::cache::Cache;
use crate::changes::{node_kind, seconds, set_time};
use crate::find::{Entry, Place};
use crate::flood::Flood;
use crate::holds::Holds;
use crate::list::answer;
use crate::mount::{Life, Stage};
use crate::node::{Branch, NodeId};
use crate::opened::OpenedIn;
use crate::options::{MountOptions, Remountable};
use crate::snapshots::Snapshots;
use crate::statfs::Statfs;
use crate::tree::{Source, Tree, TreeFile};
use zpl::{New, NewKind, SetAttr};

/// How long the kernel may keep what it was told: nothing changes.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Open files that are kept, as the kernel does not say when it opens and closes one.
const FILES_MAX: usize = 512;
/// Reads ahead of readers that the kernel may have under way at once.
const BACKGROUND_MAX: u16 = 64;
/// Longest write, and longest read, that the kernel is asked to send, in bytes.
const IO_BYTES_MAX: u32 = 1 << 20;

thread_local! {
    /// Where a read puts its bytes until the kernel has taken them; grows to the longest read.
    static READ_BUFFER: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::zeroed(0));
}

/// The state of one mount, shared by its threads.
pub(crate) struct Session<S: Source> {
    pub(crate) live: Branch<S::Tree>,
    pub(crate) snapshots: Snapshots<S>,
    pub(crate) options: MountOptions,
    /// Those of the options that may be others by now.
    pub(crate) remountable: Arc<Remountable>,
    /// When `.zfs` was made, in seconds since 1970: as its directory, the root, changed last.
    pub(crate) born_s: u64,
    pub(crate) files: Cache<u64, OpenedIn<S::Tree>>,
    pub(crate) env: Env,
    /// The live tree may be changed: by this mount, if it is not read-only, or after a remount.
    pub(crate) writable: bool,
    /// Objects of the live tree that the kernel knows; counted only if `writable`.
    pub(crate) holds: Holds,
    source: Arc<S>,
    life: Arc<Life>,
    flood: Flood,
    /// The kernel understands that files, or directories, need not be opened.
    no_open: bool,
    no_opendir: bool,
}

/// Requests that get an errno and nothing else.
macro_rules! without {
    ($errno:ident: $($request:ident($($argument:ty),*) -> $reply:ty;)*) => {
        $(fn $request(&self, _: &Request, _: INodeNo, $(_: $argument,)* reply: $reply) {
            reply.error(Errno::$errno);
        })*
    };
}

impl<S: Source> Session<S> {
    /// Errors: those of reading the root directory.
    pub(crate) fn new(source: Arc<S>, options: MountOptions, env: Env, life: Arc<Life>) -> Result<Session<S>> {
        let live = Branch::live(source.tree());
        let root = live.tree.stat(live.tree.root()).in_dataset(&options.fs_name)?;
        Ok(Session {
            snapshots: Snapshots::new(source.clone(), &options.fs_name),
            born_s: u64::try_from(root.mtime.0).unwrap_or(0),
            writable: live.tree.is_writable(),
            remountable: Arc::new(Remountable::new(&options)),
            options,
            source,
            live,
            files: Cache::new(FILES_MAX),
            holds: Holds::new(),
            env,
            life,
            flood: Flood::default(),
            no_open: false,
            no_opendir: false,
        })
    }

    /// The errno for a request that failed. What hints at a damaged pool is logged, here and only
    /// here; what any program can provoke is not.
    pub(crate) fn fail(&self, request: &'static str, node: u64, error: Error) -> Errno {
        let errno = Errno::from_i32(error.errno());
        let is_fault = matches!(
            error.kind(),
            Kind::Io | Kind::Checksum | Kind::Corrupt | Kind::Missing | Kind::Encrypted
        )
            // whoever writes may ask for what is too big
            || error.kind() == Kind::TooBig && !self.writable;
        if is_fault && let Some(held_back) = self.flood.pass(self.env.now_s()) {
            let (tree, ino) = match NodeId::parse(node) {
                NodeId::InTree { tree: 0, object } => (0, self.live.object(object)),
                NodeId::InTree { tree, object } => (tree, object),
                NodeId::Control | NodeId::Snapshots => (0, node),
            };
            let error = error.in_dataset(&self.snapshots.dataset_name(tree));
            tracing::warn!(request, ino, held_back, "{error}");
        }
        errno
    }

    fn seek(&self, node: u64, offset: i64, whence: i32) -> Result<i64> {
        let from = u64::try_from(offset).map_err(|_| no_such_offset())?;
        let file = &self.file(node)?.file;
        let found = match whence {
            libc::SEEK_DATA => file.seek_data(from)?,
            libc::SEEK_HOLE => file.seek_hole(from)?,
            _ => return Err(Error::new(Kind::Invalid, "unknown kind of seek")),
        };
        i64::try_from(found.ok_or_else(no_such_offset)?).map_err(|_| no_such_offset())
    }

    fn reply_entry(&self, request: &'static str, parent: INodeNo, entry: Result<Entry>, reply: ReplyEntry) {
        match entry {
            Ok(Entry { attr, attr_ttl, generation }) => {
                self.hold(attr.ino.0);
                reply.entry_with_ttls(&attr_ttl, &self.name_ttl(parent.0), &attr, generation);
            }
            Err(error) => reply.error(self.fail(request, parent.0, error)),
        }
    }

    fn reply_empty(&self, request: &'static str, node: INodeNo, done: Result<()>, reply: ReplyEmpty) {
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.fail(request, node.0, error)),
        }
    }
}

/// A file that a request asks for.
fn new_file<'a>(request: &Request, kind: NewKind<'a>, mode: u32, umask: u32) -> New<'a> {
    New { kind, mode: mode & 0o7777, umask, uid: request.uid(), gid: request.gid() }
}

fn no_such_offset() -> Error {
    Error::new(Kind::Missing, "nothing of that kind from there on")
}

impl<S: Source> Filesystem for Session<S> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let mut wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        wanted.set(InitFlags::FUSE_POSIX_ACL, self.options.posix_acl);
        // a default ACL comes before the umask, and only the tree knows whether there is one
        wanted.set(InitFlags::FUSE_DONT_MASK, self.options.posix_acl && self.writable);
        // set-id bits and capabilities are our matter: otherwise the kernel asks for them at each write
        wanted.set(InitFlags::FUSE_HANDLE_KILLPRIV_V2, self.writable);
        wanted.set(InitFlags::FUSE_WRITEBACK_CACHE, self.options.writeback_cache && self.writable);
        let wanted = wanted & config.capabilities();
        config.add_capabilities(wanted).map_err(|flags| std::io::Error::other(format!("{flags:?}")))?;
        self.no_open = wanted.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.no_opendir = wanted.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // each of these is capped by what the kernel can do, and returns the cap
        let _ = config.set_max_write(IO_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    /// The kernel is gone, and with it everybody who used a file.
    fn destroy(&mut self) {
        self.life.reach(Stage::Unused);
        if !self.writable {
            return;
        }
        for object in self.holds.take_orphans() {
            self.reclaim(object);
        }
        if let Err(error) = self.source.sync() {
            tracing::error!(dataset = self.options.fs_name, "what was written last is not on disk: {error}");
        }
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent.0, name.as_bytes()) {
            // node 0: this name does not exist, and the kernel may remember that
            Err(error) if error.kind() == Kind::NotFound => {
                reply.entry(&self.name_ttl(parent.0), &crate::attr::made_up_directory(0, 0), Generation(0));
            }
            found => self.reply_entry("lookup", parent, found, reply),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        self.forgotten(node.0, count);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.place(node.0).and_then(|place| self.attributes(&place)) {
            Ok(Entry { attr, attr_ttl, .. }) => reply.attr(&attr_ttl, &attr),
            Err(error) => reply.error(self.fail("getattr", node.0, error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(seconds),
        };
        match self.set_attributes(node.0, set, request.uid() == 0) {
            Ok(Entry { attr, attr_ttl, .. }) => reply.attr(&attr_ttl, &attr),
            Err(error) => reply.error(self.fail("setattr", node.0, error)),
        }
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let target = self.place(node.0).and_then(|place| match place {
            Place::Object(branch, object) => {
                let target = branch.tree.readlink(object)?;
                self.accessed(&branch, object);
                Ok(target)
            }
            Place::Control | Place::Snapshots => Err(Error::new(Kind::Invalid, "a directory")),
        });
        match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.fail("readlink", node.0, error)),
        }
    }

    /// "Not implemented" is the kernel's sign that it need not ask again, neither here nor at close,
    /// and that it may keep the file's pages.
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.no_open {
            true => reply.error(Errno::ENOSYS),
            false => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
        }
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size as usize;
        READ_BUFFER.with_borrow_mut(|buf| {
            if buf.len() < size {
                *buf = AlignedBuf::for_overwrite(size);
            }
            let read = self.file(node.0).and_then(|opened| {
                let read = opened.file.read(offset, &mut buf[..size])?;
                if flags.0 & libc::O_NOATIME == 0 {
                    self.read_from(node.0, &opened);
                }
                Ok(read)
            });
            match read {
                Ok(read) => reply.data(&buf[..read]),
                Err(error) => reply.error(self.fail("read", node.0, error)),
            }
        });
    }

    /// As for [`Session::open`]; the kernel may keep the listing.
    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.no_opendir {
            true => reply.error(Errno::ENOSYS),
            false => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR),
        }
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, cookie: u64, mut reply: ReplyDirectory) {
        let mut found = false;
        let result = self.list(node.0, cookie, &mut |entry| {
            let full = reply.add(INodeNo(entry.ino), entry.cookie, entry.kind, OsStr::from_bytes(&entry.name));
            found |= !full;
            if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match answer(result, found) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.fail("readdir", node.0, error)),
        }
    }

    fn readdirplus(&self, _: &Request, node: INodeNo, _: FileHandle, cookie: u64, mut reply: ReplyDirectoryPlus) {
        let mut found = false;
        let result = self.list(node.0, cookie, &mut |entry| {
            let (attr, ttl, generation) = self.listed_attributes(node.0, &entry);
            let full = reply.add(attr.ino, entry.cookie, OsStr::from_bytes(&entry.name), &ttl, &attr, generation);
            if full {
                return ControlFlow::Break(());
            }
            found = true;
            if !entry.is_dot() {
                self.hold(attr.ino.0);
            }
            ControlFlow::Continue(())
        });
        match answer(result, found) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.fail("readdir", node.0, error)),
        }
    }

    fn statfs(&self, _: &Request, node: INodeNo, reply: ReplyStatfs) {
        match self.source.space() {
            Ok(space) => {
                let Statfs { block_bytes, blocks, blocks_free, files, files_free, name_bytes_max } = space.into();
                reply.statfs(
                    blocks,
                    blocks_free,
                    blocks_free,
                    files,
                    files_free,
                    block_bytes,
                    name_bytes_max,
                    block_bytes,
                );
            }
            Err(error) => reply.error(self.fail("statfs", node.0, error)),
        }
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.options.xattrs {
            return reply.error(Errno::ENOSYS); // for good
        }
        self.reply_xattr("getxattr", node.0, size, self.xattr(node.0, name.as_bytes()), reply);
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        if !self.options.xattrs {
            return reply.error(Errno::ENOSYS);
        }
        self.reply_xattr("listxattr", node.0, size, self.xattr_list(node.0, request.uid() == 0), reply);
    }

    fn lseek(&self, _: &Request, node: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        match self.seek(node.0, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) if error.kind() == Kind::Missing => reply.error(Errno::ENXIO),
            Err(error) => reply.error(self.fail("lseek", node.0, error)),
        }
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.reply_empty("fsync", node, self.sync(node.0, data_only), reply);
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.reply_empty("fsyncdir", node, self.sync(node.0, data_only), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = node_kind(mode, rdev)
            .and_then(|kind| self.create_name(parent.0, name.as_bytes(), &new_file(request, kind, mode, umask)));
        self.reply_entry("mknod", parent, made, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let new = new_file(request, NewKind::Directory, mode, umask);
        self.reply_entry("mkdir", parent, self.create_name(parent.0, name.as_bytes(), &new), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let new = new_file(request, NewKind::Symlink(target.as_os_str().as_bytes()), 0o777, 0);
        self.reply_entry("symlink", parent, self.create_name(parent.0, name.as_bytes(), &new), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let new = new_file(request, NewKind::File, mode, umask);
        match self.open_or_create(parent.0, name.as_bytes(), &new, flags) {
            Ok(Entry { attr, attr_ttl, generation }) => {
                self.hold(attr.ino.0);
                // one time for both: name and attributes
                let ttl = attr_ttl.min(self.name_ttl(parent.0));
                reply.created(&ttl, &attr, generation, FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(self.fail("create", parent.0, error)),
        }
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.writable && !self.are_together(node.0, parent.0) {
            return reply.error(Errno::EXDEV);
        }
        self.reply_entry("link", parent, self.link_name(node.0, parent.0, name.as_bytes()), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.reply_empty("unlink", parent, self.unlink_name(parent.0, name.as_bytes()), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.reply_empty("rmdir", parent, self.remove_directory(parent.0, name.as_bytes()), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if self.writable && !self.are_together(parent.0, new_parent.0) {
            return reply.error(Errno::EXDEV);
        }
        let (from, to) = ((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        self.reply_empty("rename", parent, self.rename_name(from, to, flags), reply);
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let drop_set_ids = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self.write_at(node.0, offset, data, drop_set_ids) {
            // it came in one request, so its length fits
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(self.fail("write", node.0, error)),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.allocate(node.0, mode, offset, len, request.uid() == 0);
        self.reply_empty("fallocate", node, done, reply);
    }

    /// An answer of "not supported" makes the kernel copy by reading and writing.
    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        match self.copy((from.0, from_offset), (to.0, to_offset), len, request.uid() == 0) {
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(error) => reply.error(self.fail("copy_file_range", to.0, error)),
        }
    }

    fn setxattr(&self, _: &Request, node: INodeNo, name: &OsStr, value: &[u8], flags: i32, _: u32, reply: ReplyEmpty) {
        if !self.options.xattrs {
            return reply.error(Errno::ENOSYS);
        }
        self.reply_empty("setxattr", node, self.set_xattr(node.0, name.as_bytes(), value, flags), reply);
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if !self.options.xattrs {
            return reply.error(Errno::ENOSYS);
        }
        self.reply_empty("removexattr", node, self.remove_xattr(node.0, name.as_bytes()), reply);
    }

    // the kernel does these by itself from then on
    without! { ENOSYS:
        access(AccessFlags) -> ReplyEmpty;
        flush(FileHandle, LockOwner) -> ReplyEmpty;
        bmap(u32, u64) -> ReplyBmap;
        poll(FileHandle, PollNotifier, PollEvents, PollFlags) -> ReplyPoll;
        getlk(FileHandle, LockOwner, u64, u64, i32, u32) -> ReplyLock;
        setlk(FileHandle, LockOwner, u64, u64, i32, u32, bool) -> ReplyEmpty;
    }
    without! { ENOTTY:
        ioctl(FileHandle, IoctlFlags, u32, &[u8], u32) -> ReplyIoctl;
    }
}
