//! What a mount shows: a [`Tree`] of objects, and the [`Source`] it belongs to.
//!
//! `Zpl` is the tree of a pool; the tests have one in memory. The pool process implements
//! [`Source`] over a dataset.

use std::ops::ControlFlow;
use std::sync::Arc;

use base::Result;
use zpl::{DirEntry, Stat, Zpl};

/// A dataset that can be mounted: its live tree, its snapshots, its room.
pub trait Source: Send + Sync + 'static {
    /// What trees it has.
    type Tree: Tree;

    /// The file system (or the one snapshot) that appears at the mountpoint.
    fn tree(&self) -> Arc<Self::Tree>;

    /// Sizes for `statfs`.
    fn space(&self) -> Result<Space>;

    /// All snapshots, oldest first. It is asked once for each mount.
    fn snapshots(&self) -> Result<Vec<Snapshot>>;

    /// Opens a snapshot that [`Source::snapshots`] named. Errors: any of reading the pool.
    fn open_snapshot(&self, snapshot: &Snapshot) -> Result<Arc<Self::Tree>>;
}

/// A snapshot as it is listed, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The name after the `@`.
    pub name: String,
    /// Object number of its dataset in the MOS.
    pub dataset: u64,
    /// When it was taken, in seconds since 1970.
    pub created_s: u64,
}

/// How full a dataset is, in the terms of `zfs list`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
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

/// One file system or snapshot, as `zpl::Zpl` presents it.
///
/// An object number stands for the same file for as long as the tree is open. Errors: `NotFound`
/// where there is no such object or name, `NotDirectory` and `IsDirectory` where the kind is wrong,
/// and those of reading the pool.
pub trait Tree: Send + Sync + 'static {
    /// An open file.
    type File: TreeFile;

    /// Object number of the root directory.
    fn root(&self) -> u64;
    /// The attributes of an object.
    fn stat(&self, object: u64) -> Result<Stat>;
    /// The object that a name in a directory stands for. `.` and `..` are not asked for.
    fn lookup(&self, directory: u64, name: &[u8]) -> Result<u64>;
    /// Entries after the one with that cookie, 0 being before the first; `.` (cookie 1) and `..`
    /// (cookie 2) come first, and cookie 3 is nobody's.
    fn readdir(&self, directory: u64, cookie: u64, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> Result<()>;
    /// The target of a symbolic link.
    fn readlink(&self, object: u64) -> Result<Vec<u8>>;
    /// Opens a regular file.
    fn open_file(&self, object: u64) -> Result<Self::File>;
    /// Names of the extended attributes, with their namespace (`user.`, `trusted.`, ...).
    fn xattr_names(&self, object: u64) -> Result<Vec<Vec<u8>>>;
    /// The value of an extended attribute; `NoAttribute` if there is none.
    fn xattr(&self, object: u64, name: &[u8]) -> Result<Vec<u8>>;
}

/// An open regular file.
pub trait TreeFile: Send + Sync + 'static {
    /// Fills `buf` from byte `offset` on; the result is shorter than `buf` only at the end of file.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// The first byte at or after `offset` that is data; `None` if only a hole is left.
    fn seek_data(&self, offset: u64) -> Result<Option<u64>>;
    /// The first byte at or after `offset` that is a hole, the end of file being one; `None` if
    /// `offset` is at or past the end.
    fn seek_hole(&self, offset: u64) -> Result<Option<u64>>;
}

impl Tree for Zpl {
    type File = zpl::File;

    fn root(&self) -> u64 {
        Zpl::root(self)
    }

    fn stat(&self, object: u64) -> Result<Stat> {
        Zpl::stat(self, object)
    }

    fn lookup(&self, directory: u64, name: &[u8]) -> Result<u64> {
        Zpl::lookup(self, directory, name)
    }

    fn readdir(&self, directory: u64, cookie: u64, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> Result<()> {
        Zpl::readdir(self, directory, cookie, each)
    }

    fn readlink(&self, object: u64) -> Result<Vec<u8>> {
        Zpl::readlink(self, object)
    }

    fn open_file(&self, object: u64) -> Result<zpl::File> {
        Zpl::open_file(self, object)
    }

    fn xattr_names(&self, object: u64) -> Result<Vec<Vec<u8>>> {
        Zpl::xattr_names(self, object)
    }

    fn xattr(&self, object: u64, name: &[u8]) -> Result<Vec<u8>> {
        Zpl::xattr(self, object, name)
    }
}

impl TreeFile for zpl::File {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        zpl::File::read(self, offset, buf)
    }

    fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        zpl::File::seek_data(self, offset)
    }

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        zpl::File::seek_hole(self, offset)
    }
}
