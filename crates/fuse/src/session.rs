//! One mounted file system as `fuser` sees it: each request of the kernel in one short function.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
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
use crate::changes::{asker, new_file, node_kind, seconds, set_time};
use crate::find::{Entry, Place};
use crate::flood::Flood;
use crate::holds::Holds;
use crate::list::answer;
use crate::mount::{Life, Stage};
use crate::node::Branch;
use crate::opened::OpenedIn;
use crate::options::{MountOptions, Remountable};
use crate::parked::Parked;
use crate::snapshots::Snapshots;
use crate::statfs::Statfs;
use crate::tree::{Source, Tree, TreeFile};
use zpl::{NewKind, SetAttr};

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
    pub(crate) source: Arc<S>,
    pub(crate) parked: Parked<S>,
    /// Itself, for threads of its own.
    pub(crate) me: Weak<Session<S>>,
    life: Arc<Life>,
    pub(crate) flood: Flood,
    /// The kernel understands that files, or directories, need not be opened.
    no_open: AtomicBool,
    no_opendir: AtomicBool,
}

/// What answers the kernel's requests.
pub(crate) struct Requests<S: Source>(pub(crate) Arc<Session<S>>);

impl<S: Source> std::ops::Deref for Requests<S> {
    type Target = Session<S>;
    fn deref(&self) -> &Session<S> {
        &self.0
    }
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
    pub(crate) fn new(source: Arc<S>, options: MountOptions, env: Env, life: Arc<Life>) -> Result<Arc<Session<S>>> {
        let live = Branch::live(source.tree());
        let root = live.tree.stat(live.tree.root()).in_dataset(&options.fs_name)?;
        Ok(Arc::new_cyclic(|me| Session {
            me: me.clone(),
            parked: Parked::default(),
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
            no_open: AtomicBool::new(false),
            no_opendir: AtomicBool::new(false),
        }))
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

impl<S: Source> Filesystem for Requests<S> {
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
        self.no_open.store(wanted.contains(InitFlags::FUSE_NO_OPEN_SUPPORT), Ordering::Relaxed);
        self.no_opendir.store(wanted.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT), Ordering::Relaxed);
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
        let is_root = request.uid() == 0;
        let work = move |session: &Session<S>| session.set_attributes(node.0, set, is_root);
        self.change(work, move |session, done| match done {
            Ok(Entry { attr, attr_ttl, .. }) => reply.attr(&attr_ttl, &attr),
            Err(error) => reply.error(session.fail("setattr", node.0, error)),
        });
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
        match self.no_open.load(Ordering::Relaxed) {
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

    /// As for `open`; the kernel may keep the listing.
    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.no_opendir.load(Ordering::Relaxed) {
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

    /// What the kernel has not sent yet looks like a hole from here; so with its write-back cache, all is data.
    fn lseek(&self, _: &Request, node: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        if self.options.writeback_cache && self.writable {
            return reply.error(Errno::ENOSYS);
        }
        match self.seek(node.0, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) if error.kind() == Kind::Missing => reply.error(Errno::ENXIO),
            Err(error) => reply.error(self.fail("lseek", node.0, error)),
        }
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let work = move |session: &Session<S>| session.sync(node.0, data_only);
        self.change(work, move |session, done| session.reply_empty("fsync", node, done, reply));
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let work = move |session: &Session<S>| session.sync(node.0, data_only);
        self.change(work, move |session, done| session.reply_empty("fsyncdir", node, done, reply));
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
        let (asker, name) = (asker(request), name.to_owned());
        let work = move |session: &Session<S>| {
            let new = new_file(asker, node_kind(mode, rdev)?, mode, umask);
            session.create_name(parent.0, name.as_bytes(), &new)
        };
        self.change(work, move |session, made| session.reply_entry("mknod", parent, made, reply));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (asker, name) = (asker(request), name.to_owned());
        let work = move |session: &Session<S>| {
            let new = new_file(asker, NewKind::Directory, mode, umask);
            session.create_name(parent.0, name.as_bytes(), &new)
        };
        self.change(work, move |session, made| session.reply_entry("mkdir", parent, made, reply));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (asker, name, target) = (asker(request), name.to_owned(), target.to_owned());
        let work = move |session: &Session<S>| {
            let new = new_file(asker, NewKind::Symlink(target.as_os_str().as_bytes()), 0o777, 0);
            session.create_name(parent.0, name.as_bytes(), &new)
        };
        self.change(work, move |session, made| session.reply_entry("symlink", parent, made, reply));
    }

    /// Where files need no opening, "not implemented" makes the kernel use `mknod` from now on: that leaves
    /// nothing to be released at close, and tells it for how long the name holds, not only the attributes.
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
        if self.no_open.load(Ordering::Relaxed) && !self.live.tree.has_aliases() {
            return reply.error(Errno::ENOSYS);
        }
        let (asker, name) = (asker(request), name.to_owned());
        let work = move |session: &Session<S>| {
            let new = new_file(asker, NewKind::File, mode, umask);
            session.open_or_create(parent.0, name.as_bytes(), &new, flags)
        };
        self.change(work, move |session, made| match made {
            Ok(Entry { attr, attr_ttl, generation }) => {
                session.hold(attr.ino.0);
                // one time for both: name and attributes
                let ttl = attr_ttl.min(session.name_ttl(parent.0));
                reply.created(&ttl, &attr, generation, FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(session.fail("create", parent.0, error)),
        });
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.writable && !self.are_together(node.0, parent.0) {
            return reply.error(Errno::EXDEV);
        }
        let name = name.to_owned();
        let work = move |session: &Session<S>| session.link_name(node.0, parent.0, name.as_bytes());
        self.change(work, move |session, made| session.reply_entry("link", parent, made, reply));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        let work = move |session: &Session<S>| session.unlink_name(parent.0, name.as_bytes());
        self.change(work, move |session, done| session.reply_empty("unlink", parent, done, reply));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        let work = move |session: &Session<S>| session.remove_directory(parent.0, name.as_bytes());
        self.change(work, move |session, done| session.reply_empty("rmdir", parent, done, reply));
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
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        let work = move |session: &Session<S>| {
            session.rename_name((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()), flags)
        };
        self.change(work, move |session, done| session.reply_empty("rename", parent, done, reply));
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
        let answer = move |session: &Session<S>, done: Result<usize>| match done {
            // it came in one request, so its length fits
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(session.fail("write", node.0, error)),
        };
        match self.write_at(node.0, offset, data, drop_set_ids) {
            // only then is there need for a copy
            Err(error) if error.kind() == Kind::Suspended => {
                let data = data.to_vec();
                self.park(move |session| session.write_at(node.0, offset, &data, drop_set_ids), answer);
            }
            done => answer(self, done),
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
        let is_root = request.uid() == 0;
        let work = move |session: &Session<S>| session.allocate(node.0, mode, offset, len, is_root);
        self.change(work, move |session, done| session.reply_empty("fallocate", node, done, reply));
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
        let is_root = request.uid() == 0;
        let work = move |session: &Session<S>| session.copy((from.0, from_offset), (to.0, to_offset), len, is_root);
        self.change(work, move |session, done| match done {
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(error) => reply.error(session.fail("copy_file_range", to.0, error)),
        });
    }

    fn setxattr(&self, _: &Request, node: INodeNo, name: &OsStr, value: &[u8], flags: i32, _: u32, reply: ReplyEmpty) {
        if !self.options.xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let (name, value) = (name.to_owned(), value.to_owned());
        let work = move |session: &Session<S>| session.set_xattr(node.0, name.as_bytes(), &value, flags);
        self.change(work, move |session, done| session.reply_empty("setxattr", node, done, reply));
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if !self.options.xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let name = name.to_owned();
        let work = move |session: &Session<S>| session.remove_xattr(node.0, name.as_bytes());
        self.change(work, move |session, done| session.reply_empty("removexattr", node, done, reply));
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
