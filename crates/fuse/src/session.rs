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
use crate::find::Place;
use crate::flood::Flood;
use crate::list::answer;
use crate::node::{Branch, NodeId};
use crate::options::MountOptions;
use crate::snapshots::Snapshots;
use crate::statfs::Statfs;
use crate::tree::{Source, Tree, TreeFile};

/// How long the kernel may keep what it was told: nothing changes.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Open files that are kept, as the kernel does not say when it opens and closes one.
const FILES_MAX: usize = 512;
/// Reads ahead of readers that the kernel may have under way at once.
const BACKGROUND_MAX: u16 = 64;
/// Longest read that the kernel is asked to send, in bytes. (It tells by the longest write.)
const READ_BYTES_MAX: u32 = 1 << 20;
/// Namespaces of extended attributes with rules of their own.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
const TRUSTED_PREFIX: &[u8] = b"trusted.";

thread_local! {
    /// Where a read puts its bytes until the kernel has taken them; grows to the longest read.
    static READ_BUFFER: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::zeroed(0));
}

/// The state of one mount, shared by its threads.
pub(crate) struct Session<S: Source> {
    pub(crate) live: Branch<S::Tree>,
    pub(crate) snapshots: Snapshots<S>,
    pub(crate) options: MountOptions,
    /// When `.zfs` was made, in seconds since 1970: as its directory, the root, changed last.
    pub(crate) born_s: u64,
    source: Arc<S>,
    files: Cache<u64, Arc<<S::Tree as Tree>::File>>,
    env: Env,
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
    pub(crate) fn new(source: Arc<S>, options: MountOptions, env: Env) -> Result<Session<S>> {
        let live = Branch::live(source.tree());
        let root = live.tree.stat(live.tree.root()).in_dataset(&options.fs_name)?;
        Ok(Session {
            live,
            snapshots: Snapshots::new(source.clone(), &options.fs_name),
            born_s: u64::try_from(root.mtime.0).unwrap_or(0),
            options,
            source,
            files: Cache::new(FILES_MAX),
            env,
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
            Kind::Io | Kind::Checksum | Kind::Corrupt | Kind::Missing | Kind::Encrypted | Kind::TooBig
        );
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

    /// The open file of a node.
    fn file(&self, node: u64) -> Result<Arc<<S::Tree as Tree>::File>> {
        self.files.get_or_make(node, || match self.place(node)? {
            Place::Object(branch, object) => Ok(Arc::new(branch.tree.open_file(object)?)),
            Place::Control | Place::Snapshots => Err(Error::new(Kind::IsDirectory, "a directory")),
        })
    }

    fn seek(&self, node: u64, offset: i64, whence: i32) -> Result<i64> {
        let from = u64::try_from(offset).map_err(|_| no_such_offset())?;
        let file = self.file(node)?;
        let found = match whence {
            libc::SEEK_DATA => file.seek_data(from)?,
            libc::SEEK_HOLE => file.seek_hole(from)?,
            _ => return Err(Error::new(Kind::Invalid, "unknown kind of seek")),
        };
        i64::try_from(found.ok_or_else(no_such_offset)?).map_err(|_| no_such_offset())
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        if name.starts_with(ACL_PREFIX) && !self.options.posix_acl {
            return Err(Error::new(Kind::Unsupported, "acltype is not posix"));
        }
        match self.place(node)? {
            Place::Object(branch, object) => branch.tree.xattr(object, name),
            Place::Control | Place::Snapshots => Err(Error::new(Kind::NoAttribute, "no such attribute")),
        }
    }

    /// Names as listxattr(2) returns them, each with a NUL after it.
    fn xattr_list(&self, node: u64, privileged: bool) -> Result<Vec<u8>> {
        let Place::Object(branch, object) = self.place(node)? else { return Ok(Vec::new()) };
        let mut list = Vec::new();
        for name in branch.tree.xattr_names(object)? {
            let shown = !name.is_empty()
                && !name.contains(&0)
                && (self.options.posix_acl || !name.starts_with(ACL_PREFIX))
                && (privileged || !name.starts_with(TRUSTED_PREFIX));
            if shown {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }

    /// The reply to a request for an attribute or for their names: a size, or the bytes if they fit.
    fn reply_xattr(&self, request: &'static str, node: u64, size: u32, value: Result<Vec<u8>>, reply: ReplyXattr) {
        match value {
            Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
            Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(value) => reply.data(&value),
            // longer than Linux lets any program have
            Err(error) if error.kind() == Kind::TooBig => reply.error(Errno::E2BIG),
            Err(error) => reply.error(self.fail(request, node, error)),
        }
    }
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
        let wanted = wanted & config.capabilities();
        config.add_capabilities(wanted).map_err(|flags| std::io::Error::other(format!("{flags:?}")))?;
        self.no_open = wanted.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.no_opendir = wanted.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // each of these is capped by what the kernel can do, and returns the cap
        let _ = config.set_max_write(READ_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent.0, name.as_bytes()) {
            Ok(entry) => reply.entry_with_ttls(&entry.attr_ttl, &FOREVER, &entry.attr, entry.generation),
            // node 0: this name does not exist, and the kernel may remember that
            Err(error) if error.kind() == Kind::NotFound => {
                reply.entry(&FOREVER, &crate::attr::made_up_directory(0, 0), Generation(0));
            }
            Err(error) => reply.error(self.fail("lookup", parent.0, error)),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.place(node.0).and_then(|place| self.attributes(&place)) {
            Ok((attr, _)) => reply.attr(&FOREVER, &attr),
            Err(error) => reply.error(self.fail("getattr", node.0, error)),
        }
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let target = self.place(node.0).and_then(|place| match place {
            Place::Object(branch, object) => branch.tree.readlink(object),
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
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size as usize;
        READ_BUFFER.with_borrow_mut(|buf| {
            if buf.len() < size {
                *buf = AlignedBuf::for_overwrite(size);
            }
            match self.file(node.0).and_then(|file| file.read(offset, &mut buf[..size])) {
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
            found |= !full;
            if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
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

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
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
    // come only once somebody has remounted it for writing
    without! { EROFS:
        setattr(
            Option<u32>, Option<u32>, Option<u32>, Option<u64>, Option<TimeOrNow>, Option<TimeOrNow>,
            Option<SystemTime>, Option<FileHandle>, Option<SystemTime>, Option<SystemTime>, Option<SystemTime>,
            Option<BsdFileFlags>
        ) -> ReplyAttr;
        mknod(&OsStr, u32, u32, u32) -> ReplyEntry;
        mkdir(&OsStr, u32, u32) -> ReplyEntry;
        unlink(&OsStr) -> ReplyEmpty;
        rmdir(&OsStr) -> ReplyEmpty;
        symlink(&OsStr, &Path) -> ReplyEntry;
        rename(&OsStr, INodeNo, &OsStr, RenameFlags) -> ReplyEmpty;
        link(INodeNo, &OsStr) -> ReplyEntry;
        create(&OsStr, u32, u32, i32) -> ReplyCreate;
        write(FileHandle, u64, &[u8], WriteFlags, OpenFlags, Option<LockOwner>) -> ReplyWrite;
        fallocate(FileHandle, u64, u64, i32) -> ReplyEmpty;
        setxattr(&OsStr, &[u8], i32, u32) -> ReplyEmpty;
        removexattr(&OsStr) -> ReplyEmpty;
        copy_file_range(FileHandle, u64, INodeNo, FileHandle, u64, u64, CopyFileRangeFlags) -> ReplyWrite;
    }
}
