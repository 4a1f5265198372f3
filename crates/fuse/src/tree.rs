//! What a mount shows: a [`FileTree`] of objects, and the [`Source`] it belongs to.
//!
//! A tree can be read, and some can be written: the second half of each trait has defaults that refuse
//! with `ReadOnly`, and are never called unless [`FileTree::is_writable`]. A change is atomic, seen by
//! everybody once the method returns, and on disk once [`FileTree::sync`] or [`Source::sync`] does.
//!
//! What each is responsible for:
//!
//! ```text
//!  kernel   permissions, sticky bit, umask without ACLs; locks; one change of a directory's names at
//!           a time, and one writer of a file; RLIMIT_FSIZE; O_APPEND, O_TRUNC, O_EXCL
//!  adapter  when an object without a name may go (`reclaim`); when a read moves the access time;
//!           which changes take set-id bits and capabilities away; what is not in the live tree
//!  tree     times, sizes, link counts; set-group-id and default ACLs of directories; mode and ACL
//!           agreeing; quotas; what changes at the same time in different files and directories
//! ```
//!
//! `Zpl` is the tree of a pool; the tests have one in memory. The pool process implements
//! [`Source`] over a dataset.

use std::ops::ControlFlow;
use std::sync::Arc;

use base::{AlignedBuf, Data, Error, Kind, Piece, Result};
use zpl::{DirEntry, ObjectId, Stat, Unsettled, Zpl};

use zpl::{Allocate, New, RenameMode, SetAttr, SetFlags, XattrMode};

/// Bytes that [`TreeFile::copy_from`] copies at a time, and at most in one call, by itself.
const COPY_STEP_BYTES: u64 = 1 << 20;
const COPY_BYTES_MAX: u64 = 32 << 20;

/// A dataset that can be mounted: its live tree, its snapshots, its room.
pub trait Source: Send + Sync + 'static {
    /// What trees it has.
    type Tree: FileTree;

    /// The file system (or the one snapshot) that appears at the mountpoint.
    fn tree(&self) -> Arc<Self::Tree>;

    /// Sizes for `statfs`.
    fn space(&self) -> Result<DatasetSpace>;

    /// How many bytes may still be written, as far as that can be known: 0 where limits of users, groups or projects are in
    /// force. Errors: those of reading the pool.
    fn room_bytes(&self) -> Result<u64> {
        Ok(self.space()?.available_bytes)
    }

    /// What a project uses and may use; without limits, that of the whole is told. Errors: those of reading the pool.
    fn project_space(&self, _project: u64) -> Result<ProjectSpace> {
        Ok(ProjectSpace::default())
    }

    /// All snapshots, oldest first. It is asked when a snapshot is looked for, and [`Source::snapshots_version`] has
    /// changed since it was last asked.
    fn snapshots(&self) -> Result<Vec<Snapshot>>;

    /// Changes whenever snapshots are made or destroyed, or get other names.
    fn snapshots_version(&self) -> u64 {
        0
    }

    /// When snapshots were last taken or destroyed, in seconds since 1970; 0: never. Errors: those of reading the pool.
    fn snapshots_changed_s(&self) -> Result<u64> {
        Ok(0)
    }

    /// Makes a change of snapshots that was asked for in `.zfs/snapshot`, and returns when it is on disk. Not from
    /// within this call, but soon after, the kernel may be told of it in other mounts. Errors: why it is refused.
    fn change_snapshots(&self, _change: SnapshotEdit<'_>) -> Result<()> {
        Err(Error::new(Kind::Forbidden, "snapshots are not changed here"))
    }

    /// Opens a snapshot that [`Source::snapshots`] named. Errors: any of reading the pool.
    fn open_snapshot(&self, snapshot: &Snapshot) -> Result<Arc<Self::Tree>>;

    /// The live tree, if the root of the dataset has been replaced since it was told last. Errors: those of opening it.
    fn reopened(&self) -> Result<Option<Arc<Self::Tree>>> {
        Ok(None)
    }

    /// Has changes of the live tree noted there that a crash would take back, from now on. Errors: those of the tree.
    fn keep_unsettled(&self, _unsettled: &Arc<Unsettled>) -> Result<()> {
        Ok(())
    }

    /// Whether nothing of the live tree was lost with the process before, though it was not on disk.
    fn has_lost_nothing(&self) -> bool {
        false
    }

    /// Waits until changes that failed as `Suspended` can be made. Errors: `Suspended` if nobody is to wait.
    fn wait_resumed(&self) -> Result<()> {
        Err(Error::new(Kind::Suspended, "pool I/O is currently suspended"))
    }

    /// Brings all that was changed to disk. Asked once a writable mount has ended, as umount promises it.
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// What is done to snapshots in `.zfs/snapshot`; names are those after the `@`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotEdit<'a> {
    /// A snapshot is taken, as by `mkdir`.
    Take(&'a str),
    /// One is destroyed, as by `rmdir`.
    Destroy(&'a str),
    /// One gets another name, as by `mv`.
    Rename {
        /// What it is called now.
        from: &'a str,
        /// What it is to be called.
        to: &'a str,
    },
}

/// A snapshot as it is listed, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The name after the `@`.
    pub name: String,
    /// Object number of its dataset in the MOS.
    pub dataset: ObjectId,
    /// When it was taken, in seconds since 1970.
    pub created_s: u64,
}

/// How full a dataset is, in the terms of `zfs list`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatasetSpace {
    /// Bytes that the dataset refers to.
    pub referenced_bytes: u64,
    /// Bytes that it may still grow by: quotas, reservations and the pool's slop counted in.
    pub available_bytes: u64,
    /// Objects in use.
    pub objects_used: u64,
    /// Objects that it may still make, were there bytes for them.
    pub objects_available: u64,
    /// The `recordsize` in bytes, a power of two.
    pub record_bytes: u32,
    /// Longest name of a file in bytes: 255, or 1023 with the feature `longname`.
    pub name_bytes_max: u32,
}

/// What a project uses and its limit, of bytes and of objects, where it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectSpace {
    /// Bytes.
    pub bytes: Option<(u64, u64)>,
    /// Objects.
    pub objects: Option<(u64, u64)>,
}

/// One file system or snapshot, as `zpl::Zpl` presents it.
///
/// An object number stands for the same file for as long as the tree is open. Errors: `NotFound`
/// where there is no such object or name, `NotDirectory` and `IsDirectory` where the kind is wrong,
/// and those of reading the pool.
pub trait FileTree: Send + Sync + 'static {
    /// An open file.
    type File: TreeFile;

    /// Object number of the root directory.
    fn root(&self) -> ObjectId;
    /// The attributes of an object.
    fn stat(&self, object: ObjectId) -> Result<Stat>;
    /// The object that a name in a directory stands for. `.` and `..` are not asked for.
    fn lookup(&self, directory: ObjectId, name: &[u8]) -> Result<ObjectId>;
    /// Entries after the one with that cookie, 0 being before the first; `.` (cookie 1) and `..`
    /// (cookie 2) come first, and cookie 3 is nobody's.
    fn readdir(
        &self,
        directory: ObjectId,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> Result<()>;
    /// The target of a symbolic link.
    fn readlink(&self, object: ObjectId) -> Result<Vec<u8>>;
    /// Opens a regular file.
    fn open_file(&self, object: ObjectId) -> Result<Self::File>;
    /// A program opens a file of the live tree that is there already.
    fn opened(&self, _object: ObjectId) {}
    /// The last user of a file that was opened has closed it.
    fn closed(&self, _object: ObjectId) {}
    /// Names of the extended attributes, with their namespace (`user.`, `trusted.`, ...).
    fn xattr_names(&self, object: ObjectId) -> Result<Vec<Vec<u8>>>;
    /// The value of an extended attribute; `NoAttribute` if there is none.
    fn xattr(&self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>>;

    /// Can it be written, for as long as it is open?
    fn is_writable(&self) -> bool {
        false
    }

    /// May several names stand for the same entry of a directory, as with `casesensitivity` and
    /// `normalization`? The kernel then has to ask again for each use of a name in a writable mount.
    fn has_aliases(&self) -> bool {
        false
    }

    /// Makes a file and its name. `Exists`; `Invalid` and `TooLong` for a name that cannot be.
    fn create(&self, _directory: ObjectId, _name: &[u8], _new: &New<'_>) -> Result<Stat> {
        Err(read_only())
    }

    /// Makes a file without a name: an orphan, unless [`FileTree::link`] gives it one.
    fn create_unnamed(&self, _directory: ObjectId, _new: &New<'_>) -> Result<Stat> {
        Err(read_only())
    }

    /// Gives an object that is no directory one more name. `Exists`, `TooManyLinks`; `NotFound` if it
    /// has lost its last one.
    fn link(&self, _object: ObjectId, _directory: ObjectId, _name: &[u8]) -> Result<Stat> {
        Err(read_only())
    }

    /// Removes a name of what is no directory (`IsDirectory`). If it was the last one, the object is
    /// returned: it can be used as before until [`FileTree::reclaim`], or until the next time that the tree is
    /// opened.
    fn unlink(&self, _directory: ObjectId, _name: &[u8]) -> Result<Option<ObjectId>> {
        Err(read_only())
    }

    /// Removes an empty directory (`NotDirectory`, `NotEmpty`), which is returned and goes on as in
    /// [`FileTree::unlink`]: empty, and with no way to make a file in it (`NotFound`).
    fn rmdir(&self, _directory: ObjectId, _name: &[u8]) -> Result<ObjectId> {
        Err(read_only())
    }

    /// Moves the name `from` of a directory to the name `to` of one. An object that lost its last name to
    /// it is returned, as in [`FileTree::unlink`]. Two names of the same object both stay. `NotFound`,
    /// `Exists`, `NotEmpty`, `IsDirectory`, `NotDirectory`; `Invalid` if a directory would come to lie
    /// below itself.
    fn rename(&self, _from: (ObjectId, &[u8]), _to: (ObjectId, &[u8]), _mode: RenameMode) -> Result<Option<ObjectId>> {
        Err(read_only())
    }

    /// Gives the object back that [`FileTree::unlink`], [`FileTree::rmdir`] or [`FileTree::rename`] returned, as
    /// nobody uses it any more. Called once for each, at the end of the mount at the latest.
    fn reclaim(&self, _object: ObjectId) -> Result<()> {
        Err(read_only())
    }

    /// Whether what is changed now outlives the process.
    fn outlives_process(&self) -> bool {
        false
    }

    /// All objects that wait for [`FileTree::reclaim`], also since before the tree was opened. Errors: those of reading.
    fn unlinked(&self) -> Result<Vec<ObjectId>> {
        Ok(Vec::new())
    }

    /// The lowest object number above `after` that is in use, also for what is no file.
    fn next_object(&self, _after: ObjectId) -> Result<Option<ObjectId>> {
        Ok(None)
    }

    /// Changes attributes. `IsDirectory`, `Invalid` for the size of what has none; `TooBig`.
    fn set_attr(&self, _object: ObjectId, _set: &SetAttr) -> Result<Stat> {
        Err(read_only())
    }

    /// Sets flags and the project of a regular file or directory: `Unsupported` for what is neither, and where there are
    /// no projects; `Quota`.
    fn set_flags(&self, _object: ObjectId, _set: &SetFlags) -> Result<()> {
        Err(read_only())
    }

    /// Sets the time of the last access, in seconds since 1970 and nanoseconds, and changes no other time. The adapter
    /// knows when it moves.
    fn touch_atime(&self, _object: ObjectId, _at: (i64, u32)) -> Result<()> {
        Err(read_only())
    }

    /// Sets an extended attribute. `Exists`, `NoAttribute` as `mode` says; `TooBig`. The access ACL
    /// (`system.posix_acl_access`, in the kernel's form) changes the mode, too.
    fn set_xattr(&self, _object: ObjectId, _name: &[u8], _value: &[u8], _mode: XattrMode) -> Result<()> {
        Err(read_only())
    }

    /// Removes an extended attribute; `NoAttribute` if there is none.
    fn remove_xattr(&self, _object: ObjectId, _name: &[u8]) -> Result<()> {
        Err(read_only())
    }

    /// Brings what was changed in an object to disk: its contents, and with them what is needed to read
    /// them; the rest only if not `data_only`. For a directory these are its names.
    fn sync(&self, _object: ObjectId, _data_only: bool) -> Result<()> {
        Err(read_only())
    }
}

/// The answer of a tree that cannot be written.
pub(crate) fn read_only() -> Error {
    Error::new(Kind::ReadOnly, "read-only file system")
}

/// An open regular file. It shows every change of the object at once, wherever it comes from, and may be
/// open more than once.
pub trait TreeFile: Send + Sync + 'static {
    /// Fills `buf` from byte `offset` on; the result is shorter than `buf` only at the end of file.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// The same of up to `len` bytes, in pieces; a tree that has them in memory need not copy them. With `direct` it
    /// should keep none for that.
    fn read_pieces(&self, offset: u64, len: usize, _direct: bool) -> Result<Vec<Piece>> {
        let mut buf = AlignedBuf::for_overwrite(len);
        let read = self.read(offset, &mut buf)?;
        Ok(vec![Piece::of(buf.into(), 0..read)])
    }
    /// The first byte at or after `offset` that is data; `None` if only a hole is left.
    fn seek_data(&self, offset: u64) -> Result<Option<u64>>;
    /// The first byte at or after `offset` that is a hole, the end of file being one; `None` if
    /// `offset` is at or past the end.
    fn seek_hole(&self, offset: u64) -> Result<Option<u64>>;

    /// Writes `data` from byte `offset` on, making the file longer if need be. How many bytes were
    /// written: fewer than all only if an error kept the rest out, and never none. `NoSpace`, `Quota`,
    /// `TooBig`.
    fn write(&self, _offset: u64, _data: Data<'_>) -> Result<usize> {
        Err(read_only())
    }

    /// The same of what the kernel has kept for a while: it tells when the file was changed by itself.
    fn write_without_times(&self, offset: u64, data: Data<'_>) -> Result<usize> {
        self.write(offset, data)
    }

    /// Does to `len` bytes from `offset` on, at least one, what `how` says. `Unsupported` if it cannot do
    /// that; `NoSpace`, `Quota`, `TooBig`.
    fn allocate(&self, _how: Allocate, _offset: u64, _len: u64) -> Result<()> {
        Err(read_only())
    }

    /// Copies up to `len` bytes of `from`, from `from_offset` on, to `offset`, and returns how many: 0 only
    /// at the end of `from`. The ranges do not overlap if it is the same file. A tree that can share blocks
    /// does it better than this.
    fn copy_from(&self, offset: u64, from: &Self, from_offset: u64, len: u64) -> Result<u64> {
        let mut buf = vec![0; len.min(COPY_STEP_BYTES) as usize];
        let mut done = 0;
        while done < len.min(COPY_BYTES_MAX) {
            let step = (len - done).min(COPY_STEP_BYTES) as usize;
            let copied = match from.read(from_offset + done, &mut buf[..step])? {
                0 => 0,
                read => match self.write(offset + done, buf[..read].into()) {
                    Err(error) if done == 0 => return Err(error),
                    written => written.unwrap_or(0),
                },
            };
            done += copied as u64;
            if copied < step {
                break;
            }
        }
        Ok(done)
    }
}

impl FileTree for Zpl {
    type File = zpl::File;

    fn outlives_process(&self) -> bool {
        Zpl::outlives_process(self)
    }

    fn unlinked(&self) -> Result<Vec<ObjectId>> {
        if self.is_writable() { Zpl::unlinked(self) } else { Ok(Vec::new()) }
    }

    fn next_object(&self, after: ObjectId) -> Result<Option<ObjectId>> {
        self.objset().next_object(after)
    }

    fn root(&self) -> ObjectId {
        Zpl::root(self)
    }

    fn stat(&self, object: ObjectId) -> Result<Stat> {
        Zpl::stat(self, object)
    }

    fn lookup(&self, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        Zpl::lookup(self, directory, name)
    }

    fn readdir(
        &self,
        directory: ObjectId,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        Zpl::readdir(self, directory, cookie, each)
    }

    fn readlink(&self, object: ObjectId) -> Result<Vec<u8>> {
        Zpl::readlink(self, object)
    }

    fn open_file(&self, object: ObjectId) -> Result<zpl::File> {
        Zpl::open_file(self, object)
    }

    fn xattr_names(&self, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        Zpl::xattr_names(self, object)
    }

    fn xattr(&self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        Zpl::xattr(self, object, name)
    }

    fn is_writable(&self) -> bool {
        Zpl::is_writable(self)
    }

    fn has_aliases(&self) -> bool {
        Zpl::has_aliases(self)
    }

    fn create(&self, directory: ObjectId, name: &[u8], new: &New<'_>) -> Result<Stat> {
        Zpl::create(self, directory, name, new)
    }

    fn create_unnamed(&self, directory: ObjectId, new: &New<'_>) -> Result<Stat> {
        Zpl::create_unnamed(self, directory, new)
    }

    fn link(&self, object: ObjectId, directory: ObjectId, name: &[u8]) -> Result<Stat> {
        Zpl::link(self, object, directory, name)
    }

    fn unlink(&self, directory: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        Zpl::unlink(self, directory, name)
    }

    fn rmdir(&self, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        Zpl::rmdir(self, directory, name)
    }

    fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), mode: RenameMode) -> Result<Option<ObjectId>> {
        Zpl::rename(self, from, to, mode)
    }

    fn reclaim(&self, object: ObjectId) -> Result<()> {
        Zpl::reclaim(self, object)
    }

    fn set_attr(&self, object: ObjectId, set: &SetAttr) -> Result<Stat> {
        Zpl::set_attr(self, object, set)
    }

    fn set_flags(&self, object: ObjectId, set: &SetFlags) -> Result<()> {
        Zpl::set_flags(self, object, set)
    }

    fn touch_atime(&self, object: ObjectId, at: (i64, u32)) -> Result<()> {
        Zpl::touch_atime(self, object, at)
    }

    fn set_xattr(&self, object: ObjectId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        Zpl::set_xattr(self, object, name, value, mode)
    }

    fn remove_xattr(&self, object: ObjectId, name: &[u8]) -> Result<()> {
        Zpl::remove_xattr(self, object, name)
    }

    fn sync(&self, object: ObjectId, _data_only: bool) -> Result<()> {
        Zpl::sync_object(self, object)
    }
}

impl TreeFile for zpl::File {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        zpl::File::read(self, offset, buf)
    }

    fn read_pieces(&self, offset: u64, len: usize, direct: bool) -> Result<Vec<Piece>> {
        zpl::File::read_pieces(self, offset, len, direct)
    }

    fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        zpl::File::seek_data(self, offset)
    }

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        zpl::File::seek_hole(self, offset)
    }

    fn write(&self, offset: u64, data: Data<'_>) -> Result<usize> {
        zpl::File::write(self, offset, data)
    }

    fn write_without_times(&self, offset: u64, data: Data<'_>) -> Result<usize> {
        zpl::File::write_without_times(self, offset, data)
    }

    fn allocate(&self, how: Allocate, offset: u64, len: u64) -> Result<()> {
        zpl::File::allocate(self, how, offset, len)
    }

    fn copy_from(&self, offset: u64, from: &zpl::File, from_offset: u64, len: u64) -> Result<u64> {
        zpl::File::copy_from(self, offset, from, from_offset, len)
    }
}
