//! Changes: what requests that change something do to the live tree.
//!
//! Snapshots and `.zfs` do not change, and say so; a link or a rename from one tree to another is one
//! from device to device.

use base::{Data, Error, Kind, Result};

use crate::attr::library_dev;
use crate::find::{CONTROL_NAME, Entry};
use crate::node::NodeId;
use crate::session::Session;
use crate::set_ids::{Asker, has_set_ids, without_set_ids};
use crate::tree::{Source, Tree, TreeFile, read_only};
use zpl::{Allocate, New, NewKind, RenameMode, SetAttr};

impl<S: Source> Session<S> {
    /// The object of a node that may change.
    pub(crate) fn changeable(&self, node: u64) -> Result<u64> {
        match NodeId::parse(node) {
            _ if !self.writable || self.remountable.is_read_only() => Err(read_only()),
            NodeId::InTree { tree: 0, object } => Ok(self.live.object(object)),
            NodeId::InTree { .. } => Err(read_only()),
            NodeId::Control | NodeId::Shares | NodeId::Snapshots => {
                Err(Error::new(Kind::Permission, "files are not made in .zfs"))
            }
        }
    }

    /// The directory of a node, in which `name` may change.
    pub(crate) fn changeable_name(&self, node: u64, name: &[u8]) -> Result<u64> {
        let directory = self.changeable(node)?;
        match name == CONTROL_NAME && self.has_control(&self.live, directory) {
            true => Err(Error::new(Kind::Permission, "the name .zfs is taken")),
            false => Ok(directory),
        }
    }

    /// Are two nodes of the same tree? If not, nothing moves from one to the other.
    pub(crate) fn are_together(&self, one: u64, other: u64) -> bool {
        let tree = |node| match NodeId::parse(node) {
            NodeId::InTree { tree, .. } => Some(tree),
            NodeId::Control | NodeId::Shares | NodeId::Snapshots => None,
        };
        tree(one) == tree(other)
    }

    pub(crate) fn create_name(&self, node: u64, name: &[u8], new: &New<'_>) -> Result<Entry> {
        let directory = self.changeable_name(node, name)?;
        let stat = self.live.tree.create(directory, name, new)?;
        self.entry_of_stat(&stat)
    }

    /// `open` with `O_TMPFILE`: an orphan, once the kernel is told of it.
    pub(crate) fn create_unnamed(&self, node: u64, new: &New<'_>) -> Result<Entry> {
        let stat = self.live.tree.create_unnamed(self.changeable(node)?, new)?;
        self.entry_of_stat(&stat)
    }

    /// `open` with `O_CREAT`: the kernel has seen that there is no such name, but where names have
    /// aliases it may be wrong.
    pub(crate) fn open_or_create(
        &self,
        node: u64,
        name: &[u8],
        new: &New<'_>,
        (flags, drop_set_ids): (i32, bool),
    ) -> Result<Entry> {
        match self.create_name(node, name, new) {
            Err(error) if error.kind() == Kind::Exists && flags & libc::O_EXCL == 0 => {
                let object = self.live.tree.lookup(self.changeable_name(node, name)?, name)?;
                if flags & libc::O_TRUNC != 0 {
                    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
                    self.set_attributes(self.live.node(object)?, cut, drop_set_ids)?;
                }
                self.entry_of(&self.live, object)
            }
            made => made,
        }
    }

    pub(crate) fn link_name(&self, object: u64, node: u64, name: &[u8]) -> Result<Entry> {
        let object = self.changeable(object)?;
        let stat = self.live.tree.link(object, self.changeable_name(node, name)?, name)?;
        self.entry_of_stat(&stat)
    }

    pub(crate) fn unlink_name(&self, node: u64, name: &[u8]) -> Result<()> {
        let orphan = self.live.tree.unlink(self.changeable_name(node, name)?, name)?;
        self.orphaned(orphan);
        Ok(())
    }

    pub(crate) fn remove_directory(&self, node: u64, name: &[u8]) -> Result<()> {
        let orphan = self.live.tree.rmdir(self.changeable_name(node, name)?, name)?;
        self.orphaned(Some(orphan));
        Ok(())
    }

    pub(crate) fn rename_name(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Result<()> {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Error::new(Kind::Invalid, "no such kind of rename")),
        };
        let from = (self.changeable_name(from.0, from.1)?, from.1);
        let to = (self.changeable_name(to.0, to.1)?, to.1);
        let orphan = self.live.tree.rename(from, to, mode)?;
        self.orphaned(orphan);
        Ok(())
    }

    /// Changes attributes. A new owner, and a new size if `drop_set_ids`, take set-id bits away, and both take
    /// capabilities: to change all at once is safest.
    pub(crate) fn set_attributes(&self, node: u64, mut set: SetAttr, drop_set_ids: bool) -> Result<Entry> {
        let object = self.changeable(node)?;
        self.write_access(object);
        let is_chown = set.uid.is_some() || set.gid.is_some();
        if is_chown || set.size.is_some() {
            let stat = self.live.tree.stat(object)?;
            if set.mode.is_none() && has_set_ids(&stat) && (is_chown || drop_set_ids) {
                set.mode = without_set_ids(&stat).mode;
            }
            self.drop_capability(object)?;
        }
        let stat = self.live.tree.set_attr(object, &set)?;
        self.attributes_changed(node);
        Ok(self.attributes_of(&self.live, object, &stat))
    }

    /// The kernel's word that `asker` is about to change contents, and may not keep set-id bits; or that its
    /// capabilities are gone, or a chown(2) of anybody: see [`set_ids`](crate::set_ids).
    pub(crate) fn prepare_change(&self, node: u64, asker: Asker) -> Result<Entry> {
        let object = self.changeable(node)?;
        let stat = self.live.tree.stat(object)?;
        match has_set_ids(&stat) && asker.may_write(&stat) && !asker.keeps_set_ids() {
            true => self.set_attributes(node, without_set_ids(&stat), true),
            false => Ok(self.attributes_of(&self.live, object, &stat)),
        }
    }

    /// What an open file remembers of its attributes may not be true any more.
    pub(crate) fn attributes_changed(&self, node: u64) {
        if let Some(opened) = self.files.get(node) {
            opened.forget();
        }
    }

    /// Has the kernel drop what it keeps of a node's attributes.
    pub(crate) fn forget_attributes(&self, node: u64) {
        if let Some(channel) = self.kernel.get()
            && let Err(error) = channel.forget_attributes(node)
        {
            tracing::debug!(node, "the kernel keeps old attributes: {error}");
        }
    }

    pub(crate) fn write_at(&self, node: u64, offset: u64, data: Data<'_>, drop_set_ids: bool) -> Result<usize> {
        let object = self.changeable(node)?;
        let opened = self.file(node)?;
        self.drop_privileges(node, object, &opened, || !drop_set_ids)?;
        let mut written = opened.file.write(offset, data);
        if let Ok(done) = written
            && done < data.len()
            && done > 0
        {
            // what keeps the rest out may pass: then all is written again
            let rest = opened.file.write(offset + done as u64, data.part(done..data.len()));
            written = match rest {
                Err(error) if error.kind() == Kind::Suspended => Err(error),
                rest => Ok(done + rest.unwrap_or(0)),
            };
        }
        opened.written();
        written
    }

    pub(crate) fn allocate(&self, node: u64, mode: i32, offset: u64, len: u64, asker: Asker) -> Result<()> {
        let object = self.changeable(node)?;
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let how = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Allocate::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Allocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Allocate::ZeroRange { keep_size },
            _ => return Err(Error::new(Kind::Unsupported, "no such kind of fallocate")),
        };
        let opened = self.file(node)?;
        self.drop_privileges(node, object, &opened, || asker.keeps_set_ids())?;
        let done = opened.file.allocate(how, offset, len);
        opened.written();
        done
    }

    /// Copies from a file of any tree to one of the live tree.
    pub(crate) fn copy(&self, from: (u64, u64), to: (u64, u64), len: u64, asker: Asker) -> Result<u64> {
        let object = self.changeable(to.0)?;
        let (source, target) = (self.file(from.0)?, self.file(to.0)?);
        self.drop_privileges(to.0, object, &target, || asker.keeps_set_ids())?;
        let copied = target.file.copy_from(to.1, &source.file, from.1, len.min(u32::MAX.into()))?;
        target.written();
        self.read_from(from.0, &source);
        Ok(copied)
    }

    pub(crate) fn sync(&self, node: u64, data_only: bool) -> Result<()> {
        match NodeId::parse(node) {
            NodeId::InTree { tree: 0, object } if self.writable => {
                self.live.tree.sync(self.live.object(object), data_only)
            }
            // what never changes is on disk
            _ => Ok(()),
        }
    }

    /// The kernel is told of a node.
    pub(crate) fn hold(&self, node: u64) {
        if self.writable
            && let NodeId::InTree { tree: 0, object } = NodeId::parse(node)
        {
            self.holds.add(object);
        }
    }

    /// The kernel forgets a node.
    pub(crate) fn forgotten(&self, node: u64, count: u64) {
        if self.writable
            && let NodeId::InTree { tree: 0, object } = NodeId::parse(node)
            && self.holds.remove(object, count)
        {
            self.reclaim(object);
        }
    }

    /// An object lost its last name.
    pub(crate) fn orphaned(&self, object: Option<u64>) {
        if let Some(object) = object
            && self.holds.orphan(object)
        {
            self.reclaim(object);
        }
    }

    pub(crate) fn reclaim(&self, object: u64) {
        // first: its number may be given to another file at once
        self.files.remove(object);
        self.change(
            move |session| session.live.tree.reclaim(object),
            move |session, done| {
                if let Err(error) = done {
                    session.fail("forget", object, error);
                }
            },
        );
    }
}

/// A file that somebody asks for.
pub(crate) fn new_file<'a>((uid, gid): (u32, u32), kind: NewKind<'a>, mode: u32, umask: u32) -> New<'a> {
    New { kind, mode: mode & 0o7777, umask, uid, gid }
}

/// What a file of this mode, as mknod(2) takes it, and device number is.
pub(crate) fn node_kind(mode: u32, rdev: u32) -> Result<NewKind<'static>> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Ok(NewKind::File),
        libc::S_IFIFO => Ok(NewKind::Fifo),
        libc::S_IFSOCK => Ok(NewKind::Socket),
        libc::S_IFCHR => Ok(NewKind::CharDevice(library_dev(rdev))),
        libc::S_IFBLK => Ok(NewKind::BlockDevice(library_dev(rdev))),
        _ => Err(Error::new(Kind::Invalid, "no such kind of file")),
    }
}
