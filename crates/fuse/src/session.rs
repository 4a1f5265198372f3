//! One mounted file system as the kernel sees it: each request in one short function, and the table of them.
//!
//! A function reads the request's own structure (source: linux/fuse.h) from its body, does what is asked for,
//! and uses up the reply. What is no such structure ends it early, and the reply says EIO.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::{Data, Env, Error, Kind, Result, ResultExt};

use crate::accesses::Accesses;
use crate::cache::Cache;
use crate::changes::{new_file, node_kind};
use crate::channel::Channel;
use crate::find::{Entry, Place};
use crate::flood::Flood;
use crate::holds::Holds;
use crate::list::listing;
use crate::mount::{Life, Stage};
use crate::node::Branch;
use crate::opened::OpenedIn;
use crate::options::{Direct, MountOptions, Remountable};
use crate::parked::Parked;
use crate::reply::Reply;
use crate::set_ids::Asker;
use crate::snapshots::Snapshots;
use crate::tree::{Source, Tree, TreeFile};
use crate::wire::{self, Body, Header, Request, fopen, init, opcode};
use zpl::{NewKind, SetAttr};

/// How long the kernel may keep what it was told: nothing changes.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Open files that are kept, as the kernel does not say when it opens and closes one.
const FILES_MAX: usize = 512;
/// Longest write, and longest read, that the kernel is asked to send, in bytes.
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;
/// Bytes of a file that one request copies at most: who asked cannot be killed before it is done.
const COPY_MAX: u64 = 16 << 20;

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
    pub(crate) accesses: Accesses,
    /// Itself, for threads of its own.
    pub(crate) me: Weak<Session<S>>,
    life: Arc<Life>,
    pub(crate) flood: Flood,
    /// The kernel understands that files, or directories, need not be opened.
    no_open: AtomicBool,
    no_opendir: AtomicBool,
    /// The kernel says of a new ACL whether set-group-id may stay.
    setxattr_ext: AtomicBool,
    /// Tells the kernel what it shall drop, once there is a connection.
    pub(crate) kernel: OnceLock<Arc<Channel>>,
}

impl<S: Source> Session<S> {
    /// Errors: those of reading the root directory.
    pub(crate) fn new(source: Arc<S>, options: MountOptions, env: Env, life: Arc<Life>) -> Result<Arc<Session<S>>> {
        let live = Branch::live(source.tree());
        let root = live.tree.stat(live.tree.root()).in_dataset(&options.fs_name)?;
        Ok(Arc::new_cyclic(|me| Session {
            me: me.clone(),
            parked: Parked::default(),
            accesses: Accesses::default(),
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
            setxattr_ext: AtomicBool::new(false),
            kernel: OnceLock::new(),
        }))
    }

    /// Of what a kernel can do, what it shall do.
    pub(crate) fn choose(&self, can: u64) -> u64 {
        let mut wanted = init::ASYNC_READ
            | init::BIG_WRITES
            | init::MAX_PAGES
            | init::ASYNC_DIO
            | init::DO_READDIRPLUS
            | init::READDIRPLUS_AUTO
            | init::PARALLEL_DIROPS
            | init::CACHE_SYMLINKS
            | init::EXPLICIT_INVAL_DATA
            | init::EXPORT_SUPPORT
            | init::INIT_EXT
            | init::NO_OPENDIR_SUPPORT;
        let mut want = |flag, is_wanted| wanted |= if is_wanted { flag } else { 0 };
        want(init::POSIX_ACL, self.options.posix_acl);
        // a default ACL comes before the umask, and only the tree knows whether there is one
        want(init::DONT_MASK, self.options.posix_acl && self.writable);
        want(init::SETXATTR_EXT, self.options.posix_acl && self.writable);
        // set-id bits and capabilities are our matter: otherwise the kernel asks for them at each write
        want(init::HANDLE_KILLPRIV_V2, self.writable);
        want(init::WRITEBACK_CACHE, self.options.writeback_cache && self.writable);
        // each file has to be opened, to be told how it is read
        want(init::NO_OPEN_SUPPORT, self.options.page_cache);
        want(init::DIRECT_IO_ALLOW_MMAP, !self.options.page_cache);
        let chosen = wanted & can;
        self.no_open.store(chosen & init::NO_OPEN_SUPPORT != 0, Ordering::Relaxed);
        self.no_opendir.store(chosen & init::NO_OPENDIR_SUPPORT != 0, Ordering::Relaxed);
        self.setxattr_ext.store(chosen & init::SETXATTR_EXT != 0, Ordering::Relaxed);
        chosen
    }

    /// The kernel is gone, and with it everybody who used a file.
    pub(crate) fn destroy(&self) {
        self.life.reach(Stage::Unused);
        if !self.writable {
            return;
        }
        self.write_accesses();
        for object in self.holds.take_orphans() {
            self.reclaim(object);
        }
        if let Err(error) = self.source.sync() {
            tracing::error!(dataset = self.options.fs_name, "what was written last is not on disk: {error}");
        }
    }

    /// Answers one request.
    pub(crate) fn answer(&self, request: Request<'_>, reply: Reply) {
        let Request { header, body, data } = request;
        self.env.failpoint("request");
        if let Err(error) = self.answer_one(&header, body, data, reply) {
            tracing::error!(opcode = header.opcode, node = header.node, "the kernel's request makes no sense: {error}");
        }
    }

    /// The table of requests. Errors: `Corrupt` for one that is not what it has to be.
    fn answer_one(&self, header: &Header, body: Body<'_>, data: Data<'_>, reply: Reply) -> Result<()> {
        match header.opcode {
            opcode::LOOKUP => self.lookup(header, body, reply),
            opcode::FORGET => self.forget(header, body, reply),
            opcode::BATCH_FORGET => self.batch_forget(body, reply),
            opcode::GETATTR => self.getattr(header, reply),
            opcode::STATX => self.statx(header, reply),
            opcode::SETATTR => self.setattr(header, body, reply),
            opcode::READLINK => self.readlink(header, reply),
            opcode::OPEN => self.open(reply),
            opcode::OPENDIR => self.opendir(reply),
            opcode::READ => self.read(header, body, reply),
            opcode::WRITE => self.write(header, body, data, reply),
            opcode::READDIR => self.readdir(header, body, reply),
            opcode::READDIRPLUS => self.readdirplus(header, body, reply),
            opcode::STATFS => self.statfs(header, reply),
            opcode::CREATE => self.create(header, body, reply),
            opcode::TMPFILE => self.tmpfile(header, body, reply),
            opcode::MKNOD => self.mknod(header, body, reply),
            opcode::MKDIR => self.mkdir(header, body, reply),
            opcode::SYMLINK => self.symlink(header, body, reply),
            opcode::LINK => self.link(header, body, reply),
            opcode::UNLINK => self.unlink(header, body, reply),
            opcode::RMDIR => self.rmdir(header, body, reply),
            opcode::RENAME => self.rename(header, body, false, reply),
            opcode::RENAME2 => self.rename(header, body, true, reply),
            opcode::FSYNC | opcode::FSYNCDIR => self.fsync(header, body, reply),
            opcode::LSEEK => self.lseek(header, body, reply),
            opcode::FALLOCATE => self.fallocate(header, body, reply),
            opcode::COPY_FILE_RANGE => self.copy_file_range(header, body, reply),
            opcode::IOCTL => self.ioctl(header, body, reply),
            // files have no state of being open
            opcode::RELEASE | opcode::RELEASEDIR => reply.done(),
            opcode::GETXATTR => self.getxattr(header, body, reply),
            opcode::LISTXATTR => self.listxattr(header, body, reply),
            opcode::SETXATTR => self.setxattr(header, body, reply),
            opcode::REMOVEXATTR => self.removexattr(header, body, reply),
            // the kernel does without from then on, or does it by itself: ACCESS, FLUSH, INTERRUPT, locks
            _ => reply.refuse(libc::ENOSYS),
        }
    }

    fn reply_entry(&self, request: &'static str, parent: u64, entry: Result<Entry>, reply: Reply) {
        match entry {
            Ok(entry) => {
                self.hold(entry.attr.ino);
                reply.entry(&entry, self.name_ttl(parent));
            }
            Err(error) => reply.error(self.fail(request, parent, error)),
        }
    }

    fn reply_attr(&self, request: &'static str, node: u64, entry: Result<Entry>, reply: Reply) {
        match entry {
            Ok(entry) => reply.attr(&entry),
            Err(error) => reply.error(self.fail(request, node, error)),
        }
    }

    fn reply_empty(&self, request: &'static str, node: u64, done: Result<()>, reply: Reply) {
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.fail(request, node, error)),
        }
    }

    fn lookup(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let parent = header.node;
        match self.find(parent, body.name()?) {
            Err(error) if error.kind() == Kind::NotFound => reply.no_entry(self.name_ttl(parent)),
            found => self.reply_entry("lookup", parent, found, reply),
        }
        Ok(())
    }

    fn forget(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        reply.none();
        self.forgotten(header.node, body.u64()?);
        Ok(())
    }

    fn batch_forget(&self, mut body: Body<'_>, reply: Reply) -> Result<()> {
        reply.none();
        let count = body.u32()?;
        body.skip(4)?;
        for _ in 0..count {
            let (node, uses) = (body.u64()?, body.u64()?);
            self.forgotten(node, uses);
        }
        Ok(())
    }

    fn getattr(&self, header: &Header, reply: Reply) -> Result<()> {
        let entry = self.place(header.node).and_then(|place| self.attributes(&place));
        self.reply_attr("getattr", header.node, entry, reply);
        Ok(())
    }

    /// What is asked for besides is the birth time, so all is told. The kernel asks so only who asks it for that.
    fn statx(&self, header: &Header, reply: Reply) -> Result<()> {
        match self.place(header.node).and_then(|place| self.attributes(&place)) {
            Ok(entry) => reply.statx(&entry),
            Err(error) => reply.error(self.fail("statx", header.node, error)),
        }
        Ok(())
    }

    fn setattr(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (node, asker) = (header.node, Asker::of(header));
        let (set, drop_set_ids) = wire::set_attr(&mut body)?;
        let work = move |session: &Session<S>| match set == SetAttr::default() {
            true => session.prepare_change(node, asker),
            false => session.set_attributes(node, set, drop_set_ids),
        };
        self.change(work, move |session, done| session.reply_attr("setattr", node, done, reply));
        Ok(())
    }

    fn readlink(&self, header: &Header, reply: Reply) -> Result<()> {
        let target = self.place(header.node).and_then(|place| match place {
            Place::Object(branch, object) => {
                let target = branch.tree.readlink(object)?;
                self.accessed(&branch, object, false);
                Ok(target)
            }
            Place::Control | Place::Shares | Place::Snapshots => Err(Error::new(Kind::Invalid, "a directory")),
        });
        match target {
            Ok(target) => reply.bytes(&target),
            Err(error) => reply.error(self.fail("readlink", header.node, error)),
        }
        Ok(())
    }

    /// "Not implemented" is the kernel's sign that it need not ask again, neither here nor at close,
    /// and that it may keep the file's pages.
    fn open(&self, reply: Reply) -> Result<()> {
        match self.no_open.load(Ordering::Relaxed) {
            true => reply.error(libc::ENOSYS),
            false => reply.opened(self.open_flags()),
        }
        Ok(())
    }

    /// How an open file is read, written and closed.
    fn open_flags(&self) -> u32 {
        fopen::NOFLUSH
            | match self.options.page_cache {
                true => fopen::KEEP_CACHE,
                false => fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES,
            }
    }

    /// As for `open`; the kernel may keep the listing.
    fn opendir(&self, reply: Reply) -> Result<()> {
        match self.no_opendir.load(Ordering::Relaxed) {
            true => reply.error(libc::ENOSYS),
            false => reply.opened(fopen::KEEP_CACHE | fopen::CACHE_DIR),
        }
        Ok(())
    }

    fn read(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        body.skip(8)?;
        let (offset, len) = (body.offset()?, body.u32()?.min(IO_BYTES_MAX));
        body.skip(4 + 8)?;
        let flags = body.u32()?.cast_signed();
        let read = self.file(header.node).and_then(|opened| {
            let is_direct = match self.options.direct {
                Direct::Disabled => false,
                Direct::Standard => flags & libc::O_DIRECT != 0,
                Direct::Always => true,
            };
            let read = opened.file.read_pieces(offset, len as usize, is_direct)?;
            if flags & libc::O_NOATIME == 0 {
                self.read_from(header.node, &opened);
            }
            Ok(read)
        });
        match read {
            Ok(read) => reply.pieces(&read),
            Err(error) => reply.error(self.fail("read", header.node, error)),
        }
        Ok(())
    }

    fn readdir(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (cookie, room) = listing(&mut body)?;
        match self.names(header.node, cookie, room) {
            Ok(names) => reply.bytes(&names),
            Err(error) => reply.error(self.fail("readdir", header.node, error)),
        }
        Ok(())
    }

    fn readdirplus(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (cookie, room) = listing(&mut body)?;
        match self.names_and_attributes(header.node, cookie, room) {
            Ok(entries) => reply.bytes(&entries),
            Err(error) => reply.error(self.fail("readdir", header.node, error)),
        }
        Ok(())
    }

    fn statfs(&self, header: &Header, reply: Reply) -> Result<()> {
        match self.space(header.node) {
            Ok(space) => reply.statfs(&space),
            Err(error) => reply.error(self.fail("statfs", header.node, error)),
        }
        Ok(())
    }

    fn getxattr(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let size = body.u32()?;
        body.skip(4)?;
        self.reply_xattr("getxattr", header.node, size, self.xattr(header.node, body.name()?), reply);
        Ok(())
    }

    fn listxattr(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let list = self.xattr_list(header.node, header.uid == 0);
        self.reply_xattr("listxattr", header.node, body.u32()?, list, reply);
        Ok(())
    }

    /// What the kernel has not sent yet looks like a hole from here; so with its write-back cache, all is data.
    fn lseek(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        if self.options.page_cache && self.options.writeback_cache && self.writable {
            return reply.refuse(libc::ENOSYS);
        }
        body.skip(8)?;
        let (offset, whence) = (body.u64()?.cast_signed(), body.u32()?.cast_signed());
        match self.seek(header.node, offset, whence) {
            Ok(offset) => reply.offset(offset.cast_unsigned()),
            Err(error) if error.kind() == Kind::Missing => reply.error(libc::ENXIO),
            Err(error) => reply.error(self.fail("lseek", header.node, error)),
        }
        Ok(())
    }

    fn fsync(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        body.skip(8)?;
        let (node, data_only) = (header.node, body.u32()? & wire::FSYNC_FDATASYNC != 0);
        let work = move |session: &Session<S>| session.sync(node, data_only);
        self.change(work, move |session, done| session.reply_empty("fsync", node, done, reply));
        Ok(())
    }

    fn mknod(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (parent, asker) = (header.node, (header.uid, header.gid));
        let (mode, rdev, umask) = (body.u32()?, body.u32()?, body.u32()?);
        body.skip(4)?;
        let name = body.name()?.to_vec();
        let work = move |session: &Session<S>| {
            session.create_name(parent, &name, &new_file(asker, node_kind(mode, rdev)?, mode, umask))
        };
        self.change(work, move |session, made| session.reply_entry("mknod", parent, made, reply));
        Ok(())
    }

    fn mkdir(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (parent, asker) = (header.node, (header.uid, header.gid));
        let (mode, umask, name) = (body.u32()?, body.u32()?, body.name()?.to_vec());
        let work = move |session: &Session<S>| {
            session.create_name(parent, &name, &new_file(asker, NewKind::Directory, mode, umask))
        };
        self.change(work, move |session, made| session.reply_entry("mkdir", parent, made, reply));
        Ok(())
    }

    fn symlink(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (parent, asker) = (header.node, (header.uid, header.gid));
        let (name, target) = (body.name()?.to_vec(), body.name()?.to_vec());
        let work = move |session: &Session<S>| {
            session.create_name(parent, &name, &new_file(asker, NewKind::Symlink(&target), 0o777, 0))
        };
        self.change(work, move |session, made| session.reply_entry("symlink", parent, made, reply));
        Ok(())
    }

    /// Where files need no opening, "not implemented" makes the kernel use `mknod` from now on: that leaves
    /// nothing to be released at close, and tells it for how long the name holds, not only the attributes.
    fn create(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        if self.no_open.load(Ordering::Relaxed) && !self.live.tree.has_aliases() {
            return reply.refuse(libc::ENOSYS);
        }
        let (parent, asker) = (header.node, (header.uid, header.gid));
        let (flags, mode, umask) = (body.u32()?.cast_signed(), body.u32()?, body.u32()?);
        let how = (flags, body.u32()? & wire::OPEN_KILL_SUIDGID != 0);
        let name = body.name()?.to_vec();
        let work = move |session: &Session<S>| {
            session.open_or_create(parent, &name, &new_file(asker, NewKind::File, mode, umask), how)
        };
        self.change(work, move |session, made| match made {
            Ok(mut entry) => {
                session.hold(entry.attr.ino);
                // one time for both: name and attributes
                entry.attr_ttl = entry.attr_ttl.min(session.name_ttl(parent));
                reply.created(&entry, entry.attr_ttl, session.open_flags());
            }
            Err(error) => reply.error(session.fail("create", parent, error)),
        });
        Ok(())
    }

    fn tmpfile(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (parent, asker) = (header.node, (header.uid, header.gid));
        body.skip(4)?;
        let (mode, umask) = (body.u32()?, body.u32()?);
        let work =
            move |session: &Session<S>| session.create_unnamed(parent, &new_file(asker, NewKind::File, mode, umask));
        self.change(work, move |session, made| match made {
            Ok(entry) => {
                session.hold(entry.attr.ino);
                session.orphaned(Some(entry.attr.ino));
                reply.created(&entry, entry.attr_ttl, session.open_flags());
            }
            Err(error) => reply.error(session.fail("tmpfile", parent, error)),
        });
        Ok(())
    }

    fn link(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (parent, node, name) = (header.node, body.u64()?, body.name()?.to_vec());
        if self.writable && !self.are_together(node, parent) {
            return reply.refuse(libc::EXDEV);
        }
        let work = move |session: &Session<S>| session.link_name(node, parent, &name);
        self.change(work, move |session, made| session.reply_entry("link", parent, made, reply));
        Ok(())
    }

    fn unlink(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (parent, name) = (header.node, body.name()?.to_vec());
        let work = move |session: &Session<S>| session.unlink_name(parent, &name);
        self.change(work, move |session, done| session.reply_empty("unlink", parent, done, reply));
        Ok(())
    }

    fn rmdir(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (parent, name) = (header.node, body.name()?.to_vec());
        let work = move |session: &Session<S>| session.remove_directory(parent, &name);
        self.change(work, move |session, done| session.reply_empty("rmdir", parent, done, reply));
        Ok(())
    }

    fn rename(&self, header: &Header, mut body: Body<'_>, has_flags: bool, reply: Reply) -> Result<()> {
        let (parent, new_parent) = (header.node, body.u64()?);
        // and four bytes that say nothing
        let flags = if has_flags { (body.u32()?, body.u32()?).0 } else { 0 };
        let (name, new_name) = (body.name()?.to_vec(), body.name()?.to_vec());
        if self.writable && !self.are_together(parent, new_parent) {
            return reply.refuse(libc::EXDEV);
        }
        let work = move |session: &Session<S>| session.rename_name((parent, &name), (new_parent, &new_name), flags);
        self.change(work, move |session, done| session.reply_empty("rename", parent, done, reply));
        Ok(())
    }

    fn write(&self, header: &Header, mut body: Body<'_>, data: Data<'_>, reply: Reply) -> Result<()> {
        body.skip(8)?;
        let (node, offset, size, flags) = (header.node, body.offset()?, body.u32()?, body.u32()?);
        if size as usize != data.len() {
            return Err(Error::corrupt(format!("{} bytes of data where {size} belong", data.len())));
        }
        let drop_set_ids = flags & wire::WRITE_KILL_SUIDGID != 0;
        let answer = move |session: &Session<S>, done: Result<usize>| match done {
            // it came in one request, so its length fits
            Ok(written) => reply.count(written as u32),
            Err(error) => reply.error(session.fail("write", node, error)),
        };
        match self.write_at(node, offset, data, drop_set_ids) {
            // only then is there need for a copy
            Err(error) if error.kind() == Kind::Suspended => {
                let data = data.to_vec();
                self.park(move |session| session.write_at(node, offset, (&data).into(), drop_set_ids), answer);
            }
            done => answer(self, done),
        }
        Ok(())
    }

    fn fallocate(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        body.skip(8)?;
        let (offset, len, mode) = (body.offset()?, body.offset()?, body.u32()?.cast_signed());
        let (node, asker) = (header.node, Asker::of(header));
        let work = move |session: &Session<S>| session.allocate(node, mode, offset, len, asker);
        self.change(work, move |session, done| session.reply_empty("fallocate", node, done, reply));
        Ok(())
    }

    /// An answer of "not supported" makes the kernel copy by reading and writing.
    fn copy_file_range(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        body.skip(8)?;
        let (from, to) = ((header.node, body.offset()?), body.u64()?);
        body.skip(8)?;
        let (to, len) = ((to, body.offset()?), body.u64()?.min(COPY_MAX));
        let asker = Asker::of(header);
        let work = move |session: &Session<S>| session.copy(from, to, len, asker);
        self.change(work, move |session, done| match done {
            Ok(copied) => reply.count(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(error) => reply.error(session.fail("copy_file_range", to.0, error)),
        });
        Ok(())
    }

    fn setxattr(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (node, size, flags) = (header.node, body.u32()?, body.u32()?.cast_signed());
        let mut more_flags = 0;
        if self.setxattr_ext.load(Ordering::Relaxed) {
            more_flags = body.u32()?;
            body.skip(4)?;
        }
        let drop_set_gid = more_flags & wire::SETXATTR_ACL_KILL_SGID != 0;
        let (name, value) = (body.name()?.to_vec(), body.bytes(size as usize)?.to_vec());
        let work = move |session: &Session<S>| session.set_xattr(node, &name, &value, flags, drop_set_gid);
        self.change(work, move |session, done| session.reply_empty("setxattr", node, done, reply));
        Ok(())
    }

    fn removexattr(&self, header: &Header, mut body: Body<'_>, reply: Reply) -> Result<()> {
        let (node, name) = (header.node, body.name()?.to_vec());
        let work = move |session: &Session<S>| session.remove_xattr(node, &name);
        self.change(work, move |session, done| session.reply_empty("removexattr", node, done, reply));
        Ok(())
    }
}
