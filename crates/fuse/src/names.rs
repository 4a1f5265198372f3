//! Requests of names: what one stands for, `.zfs` among them, and making, moving and removing them.

use std::sync::Arc;

use base::{Error, Kind, Result};
use export::Parking;
use zpl::{New, NewKind, ObjectId, RenameMode, SetAttr, Stat, Whiteout};

use crate::asker::Asker;
use crate::attr::{FuseEntry, library_dev};
use crate::attributes::AttributeRequests;
use crate::entries::Entries;
use crate::faults::FaultLog;
use crate::known::KnownNodes;
use crate::lifetimes::NameLifetime;
use crate::losses::Losses;
use crate::negotiated::Negotiated;
use crate::node::{CONTROL_NAME, SHARES_NAME, SNAPSHOTS, SNAPSHOTS_NAME, are_together, root_node};
use crate::repeats::Repeats;
use crate::reply::Reply;
use crate::tree::{FileTree, Source};
use crate::trees::{NodePlace, Trees, WritePlace};
use crate::wire::{InHeader, OPEN_KILL_SUIDGID, RequestBody};
use crate::write_back::WriteBack;

/// Answers the requests that name something in a directory.
pub(crate) struct NameRequests<S: Source> {
    pub(crate) trees: Arc<Trees<S>>,
    pub(crate) entries: Arc<Entries<S>>,
    pub(crate) known: Arc<KnownNodes<S>>,
    pub(crate) faults: Arc<FaultLog<S>>,
    pub(crate) parking: Arc<Parking>,
    pub(crate) negotiated: Arc<Negotiated>,
    pub(crate) write_back: Arc<WriteBack>,
    pub(crate) repeats: Arc<Repeats>,
    pub(crate) losses: Arc<Losses>,
    pub(crate) attributes: Arc<AttributeRequests<S>>,
}

impl<S: Source> NameRequests<S> {
    /// LOOKUP.
    pub(crate) fn lookup(&self, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let parent = header.node;
        match self.find(parent, body.name()?) {
            Err(error) if error.kind() == Kind::NotFound => reply.no_entry(self.entries.name_ttl(parent)),
            found => self.answer_entry("lookup", parent, found, reply),
        }
        Ok(())
    }

    /// MKNOD.
    pub(crate) fn mknod(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (parent, asker) = (header.node, (header.uid, header.gid));
        let (mode, rdev, umask) = (body.u32()?, body.u32()?, body.u32()?);
        body.skip(4)?;
        let name = body.name()?.to_vec();
        let (reply, before) = self.repeats.begin_new(reply);
        let work = move |names: &Self| {
            let made = names.create_name(parent, &name, &new_file(asker, node_kind(mode, rdev)?, mode, umask));
            names.made_before(before, (parent, &name), made)
        };
        self.parking.change(self, work, move |names, made| names.answer_entry("mknod", parent, made, reply));
        Ok(())
    }

    /// MKDIR.
    pub(crate) fn mkdir(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (parent, asker) = (header.node, (header.uid, header.gid));
        let (mode, umask, name) = (body.u32()?, body.u32()?, body.name()?.to_vec());
        let (reply, before) = self.repeats.begin_new(reply);
        let work = move |names: &Self| {
            let made = match parent {
                SNAPSHOTS => names.take_snapshot(&name, asker.0),
                _ => names.create_name(parent, &name, &new_file(asker, NewKind::Directory, mode, umask)),
            };
            names.made_before(before, (parent, &name), made)
        };
        let names = self.clone();
        let answer = move || {
            let answer = move |names: &Self, made| names.answer_entry("mkdir", parent, made, reply);
            names.parking.change(&names, work, answer);
        };
        match parent {
            // what programs read it has
            SNAPSHOTS => self.write_back.after_all(answer),
            _ => answer(),
        }
        Ok(())
    }

    /// SYMLINK.
    pub(crate) fn symlink(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (parent, asker) = (header.node, (header.uid, header.gid));
        let (name, target) = (body.name()?.to_vec(), body.name()?.to_vec());
        let (reply, before) = self.repeats.begin_new(reply);
        let work = move |names: &Self| {
            let made = names.create_name(parent, &name, &new_file(asker, NewKind::Symlink(&target), 0o777, 0));
            names.made_before(before, (parent, &name), made)
        };
        self.parking.change(self, work, move |names, made| names.answer_entry("symlink", parent, made, reply));
        Ok(())
    }

    /// CREATE.
    pub(crate) fn create(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (parent, task, asker) = (header.node, Asker::of(header), (header.uid, header.gid));
        let (flags, mode, umask) = (body.u32()?.cast_signed(), body.u32()?, body.u32()?);
        let (reply, before) = self.repeats.begin_new(reply);
        // one that made the file before opens it now
        let flags = if before.is_some() { flags & !libc::O_EXCL } else { flags };
        let how = (flags, body.u32()? & OPEN_KILL_SUIDGID != 0, task);
        let name = body.name()?.to_vec();
        let work =
            move |names: &Self| names.open_or_create(parent, &name, &new_file(asker, NewKind::File, mode, umask), how);
        self.parking.change(self, work, move |names, made| {
            names.faults.answer("create", parent, made, reply, |reply, (entry, writing)| {
                let reply = reply.noted(names.known.told(entry.attr.ino, entry.generation));
                names.write_back.opened(entry.attr.ino, flags);
                reply.created(&entry, names.entries.name_ttl(parent), names.negotiated.opened(writing, flags));
            });
        });
        Ok(())
    }

    /// TMPFILE: an orphan, once the kernel is told of it.
    pub(crate) fn tmpfile(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (parent, asker) = (header.node, (header.uid, header.gid));
        let flags = body.u32()?.cast_signed();
        let (mode, umask) = (body.u32()?, body.u32()?);
        let work = move |names: &Self| names.create_unnamed(parent, &new_file(asker, NewKind::File, mode, umask));
        self.parking.change(self, work, move |names, made| {
            names.faults.answer("tmpfile", parent, made, reply, |reply, entry| {
                let reply = reply.noted(names.known.told(entry.attr.ino, entry.generation));
                names.known.orphaned(Some(ObjectId::new(entry.attr.ino)));
                names.write_back.opened(entry.attr.ino, flags);
                // it has no name that could hold
                reply.created(&entry, NameLifetime::NONE, names.negotiated.opened(WritePlace::Anywhere, flags));
            });
        });
        Ok(())
    }

    /// LINK.
    pub(crate) fn link(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (parent, node, name) = (header.node, body.u64()?, body.name()?.to_vec());
        if self.trees.is_writable() && !are_together(node, parent) {
            return reply.refuse(libc::EXDEV);
        }
        let (reply, before) = self.repeats.begin_new(reply);
        let work = move |names: &Self| names.made_before(before, (parent, &name), names.link_name(node, parent, &name));
        self.parking.change(self, work, move |names, made| names.answer_entry("link", parent, made, reply));
        Ok(())
    }

    /// UNLINK.
    pub(crate) fn unlink(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (parent, name) = (header.node, body.name()?.to_vec());
        let (reply, before) = self.begin_at(reply, parent, &name);
        let work = move |names: &Self| match names.is_removed(before, parent, &name)? {
            true => Ok(()),
            false => names.unlink_name(parent, &name),
        };
        self.parking.change(self, work, move |names, done| names.faults.answer_done("unlink", parent, done, reply));
        Ok(())
    }

    /// RMDIR.
    pub(crate) fn rmdir(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (parent, user, name) = (header.node, header.uid, body.name()?.to_vec());
        let (reply, before) = self.begin_at(reply, parent, &name);
        let work = move |names: &Self| match parent {
            SNAPSHOTS => done_before(before, names.trees.snapshots().destroy(&name, user)),
            _ if names.is_removed(before, parent, &name)? => Ok(()),
            _ => names.remove_directory(parent, &name),
        };
        self.parking.change(self, work, move |names, done| names.faults.answer_done("rmdir", parent, done, reply));
        Ok(())
    }

    /// RENAME, and RENAME2, which has flags.
    pub(crate) fn rename(
        self: &Arc<Self>,
        header: &InHeader,
        mut body: RequestBody<'_>,
        has_flags: bool,
        reply: Reply,
    ) -> Result<()> {
        let (parent, (uid, gid), new_parent) = (header.node, (header.uid, header.gid), body.u64()?);
        // and four bytes that say nothing
        let flags = if has_flags { (body.u32()?, body.u32()?).0 } else { 0 };
        let (name, new_name) = (body.name()?.to_vec(), body.name()?.to_vec());
        let is_of_snapshot = parent == SNAPSHOTS;
        if is_of_snapshot && (new_parent != SNAPSHOTS || flags & !libc::RENAME_NOREPLACE != 0) {
            return reply.refuse(libc::EINVAL);
        }
        if self.trees.is_writable() && !are_together(parent, new_parent) {
            return reply.refuse(libc::EXDEV);
        }
        let (reply, before) = self.begin_at(reply, parent, &name);
        let is_exchange = flags == libc::RENAME_EXCHANGE;
        let work = move |names: &Self| match is_of_snapshot {
            true => done_before(before, names.trees.snapshots().rename(&name, &new_name, uid)),
            false if names.is_moved(before, (parent, &name), (new_parent, &new_name), is_exchange)? => Ok(()),
            false => names.rename_name((parent, &name), (new_parent, &new_name), rename_mode(flags, (uid, gid))?),
        };
        self.parking.change(self, work, move |names, done| names.faults.answer_done("rename", parent, done, reply));
        Ok(())
    }

    /// A request begins that takes a name away, as of [`Repeats::begin`].
    fn begin_at(&self, reply: Reply, parent: u64, name: &[u8]) -> (Reply, Option<ObjectId>) {
        self.repeats.begin(reply, || self.object_at(parent, name).unwrap_or(ObjectId::NONE))
    }

    /// The object of a name that may change, 0 if there is none. Errors: those of looking.
    fn object_at(&self, node: u64, name: &[u8]) -> Result<ObjectId> {
        let found = self.trees.changeable(node).and_then(|directory| self.trees.live().tree.lookup(directory, name));
        match found {
            Err(error) if error.kind() == Kind::NotFound => Ok(ObjectId::NONE),
            found => found,
        }
    }

    /// The entry that was made, also if that was when the request came for the first time.
    fn made_before(
        &self,
        before: Option<ObjectId>,
        (parent, name): (u64, &[u8]),
        made: Result<FuseEntry>,
    ) -> Result<FuseEntry> {
        match made {
            Err(error) if error.kind() == Kind::Exists && before.is_some() => self.find(parent, name),
            made => made,
        }
    }

    /// Whether the name was removed when the request came for the first time, as it is not that object's any more. Errors:
    /// those of looking.
    fn is_removed(&self, before: Option<ObjectId>, parent: u64, name: &[u8]) -> Result<bool> {
        before.filter(|object| object.is_some()).map_or(Ok(false), |object| Ok(self.object_at(parent, name)? != object))
    }

    /// Whether the name was moved when the request came for the first time. Errors: those of looking.
    fn is_moved(
        &self,
        before: Option<ObjectId>,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        is_exchange: bool,
    ) -> Result<bool> {
        let Some(object) = before.filter(|object| object.is_some()) else { return Ok(false) };
        Ok(self.object_at(to.0, to.1)? == object && (is_exchange || self.object_at(from.0, from.1)? != object))
    }

    fn answer_entry(&self, request: &'static str, parent: u64, entry: Result<FuseEntry>, reply: Reply) {
        self.faults.answer(request, parent, entry, reply, |reply, entry| {
            reply.noted(self.known.told(entry.attr.ino, entry.generation)).entry(&entry, self.entries.name_ttl(parent));
        });
    }

    /// Looks a name up; `NotFound` if the directory does not have it.
    fn find(&self, directory: u64, name: &[u8]) -> Result<FuseEntry> {
        let place = self.trees.place(directory)?;
        match (place, name) {
            (place, b".") => self.entries.of_name(&place),
            (place, b"..") => self.entries.of_name(&self.parent(&place)?),
            (NodePlace::Control, SHARES_NAME) => self.entries.of_name(&NodePlace::Shares),
            (NodePlace::Control, SNAPSHOTS_NAME) => self.entries.of_name(&NodePlace::Snapshots),
            (NodePlace::Control | NodePlace::Shares, _) => Err(no_such_name()),
            (NodePlace::Snapshots, name) => {
                let place = self.trees.snapshots().list()?.place(name).ok_or_else(no_such_name)?;
                self.entries.of_name(&self.trees.place(root_node(place))?)
            }
            (NodePlace::Object(branch, object), CONTROL_NAME) if self.trees.has_control(&branch, object) => {
                self.entries.of_name(&NodePlace::Control)
            }
            (NodePlace::Object(branch, directory), name) => {
                let object = branch.tree.lookup(directory, name)?;
                self.entries.of_named_object(&branch, object)
            }
        }
    }

    fn parent(&self, place: &NodePlace<S::Tree>) -> Result<NodePlace<S::Tree>> {
        match place {
            NodePlace::Control => self.trees.place(root_node(0)),
            NodePlace::Shares | NodePlace::Snapshots => Ok(NodePlace::Control),
            NodePlace::Object(branch, object) if *object == branch.tree.root() => match branch.is_live() {
                true => self.trees.place(root_node(0)),
                false => Ok(NodePlace::Snapshots),
            },
            NodePlace::Object(branch, object) => {
                Ok(NodePlace::Object(branch.clone(), branch.tree.stat(*object)?.parent))
            }
        }
    }

    fn take_snapshot(&self, name: &[u8], user: u32) -> Result<FuseEntry> {
        let place = self.trees.snapshots().take(name, user)?;
        self.entries.of_name(&self.trees.place(root_node(place))?)
    }

    fn create_name(&self, node: u64, name: &[u8], new: &New<'_>) -> Result<FuseEntry> {
        let directory = self.trees.new_name(node, name)?;
        self.entry_of_made(&self.trees.live().tree.create(directory, name, new)?)
    }

    fn create_unnamed(&self, node: u64, new: &New<'_>) -> Result<FuseEntry> {
        self.entry_of_made(&self.trees.live().tree.create_unnamed(self.trees.changeable(node)?, new)?)
    }

    fn entry_of_made(&self, stat: &Stat) -> Result<FuseEntry> {
        self.losses.made(stat.ino);
        self.entries.of_new(stat)
    }

    /// `open` with `O_CREAT`: the kernel has seen that there is no such name, but where names have
    /// aliases it may be wrong.
    fn open_or_create(
        &self,
        node: u64,
        name: &[u8],
        new: &New<'_>,
        (flags, drop_set_ids, asker): (i32, bool, Asker),
    ) -> Result<(FuseEntry, WritePlace)> {
        match self.create_name(node, name, new) {
            Err(error) if error.kind() == Kind::Exists && flags & libc::O_EXCL == 0 => {
                let live = self.trees.live();
                let object = live.tree.lookup(self.trees.changeable_name(node, name)?, name)?;
                let writing = self.trees.check_open(live.node(object)?, flags)?;
                if flags & libc::O_TRUNC != 0 {
                    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
                    self.attributes.change(live.node(object)?, cut, drop_set_ids, asker)?;
                }
                Ok((self.entries.of_named_object(&live, object)?, writing))
            }
            made => Ok((made?, WritePlace::Anywhere)),
        }
    }

    fn link_name(&self, object: u64, node: u64, name: &[u8]) -> Result<FuseEntry> {
        let object = self.trees.changeable(object)?;
        self.entries.of_new(&self.trees.live().tree.link(object, self.trees.new_name(node, name)?, name)?)
    }

    fn unlink_name(&self, node: u64, name: &[u8]) -> Result<()> {
        let orphan = self.trees.live().tree.unlink(self.trees.changeable_name(node, name)?, name)?;
        self.known.orphaned(orphan);
        Ok(())
    }

    fn remove_directory(&self, node: u64, name: &[u8]) -> Result<()> {
        let orphan = self.trees.live().tree.rmdir(self.trees.changeable_name(node, name)?, name)?;
        self.known.orphaned(Some(orphan));
        Ok(())
    }

    fn rename_name(&self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Result<()> {
        let from = (self.trees.changeable_name(from.0, from.1)?, from.1);
        let to = (self.trees.new_name(to.0, to.1)?, to.1);
        let orphan = self.trees.live().tree.rename(from, to, mode)?;
        self.known.orphaned(orphan);
        Ok(())
    }
}

/// The result of removing or moving what may be gone because the request came before.
fn done_before(before: Option<ObjectId>, done: Result<()>) -> Result<()> {
    match done {
        Err(error) if error.kind() == Kind::NotFound && before.is_some() => Ok(()),
        done => done,
    }
}

/// A file that a user asks for.
fn new_file<'a>((uid, gid): (u32, u32), kind: NewKind<'a>, mode: u32, umask: u32) -> New<'a> {
    New { kind, mode: mode & 0o7777, umask, uid, gid }
}

/// A rename with these flags of renameat2(2). A whiteout belongs to the user.
fn rename_mode(flags: u32, (uid, gid): (u32, u32)) -> Result<RenameMode> {
    const WHITEOUT_NOREPLACE: u32 = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
    let whiteout = |replaces| RenameMode::Whiteout(Whiteout { replaces, uid, gid });
    Ok(match flags {
        0 => RenameMode::Replace,
        libc::RENAME_NOREPLACE => RenameMode::NoReplace,
        libc::RENAME_EXCHANGE => RenameMode::Exchange,
        libc::RENAME_WHITEOUT => whiteout(true),
        WHITEOUT_NOREPLACE => whiteout(false),
        _ => return Err(Error::new(Kind::Invalid, "no such kind of rename")),
    })
}

/// What a file of this mode, as mknod(2) takes it, and device number is.
fn node_kind(mode: u32, rdev: u32) -> Result<NewKind<'static>> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Ok(NewKind::File),
        libc::S_IFIFO => Ok(NewKind::Fifo),
        libc::S_IFSOCK => Ok(NewKind::Socket),
        libc::S_IFCHR => Ok(NewKind::CharDevice(library_dev(rdev))),
        libc::S_IFBLK => Ok(NewKind::BlockDevice(library_dev(rdev))),
        _ => Err(Error::new(Kind::Invalid, "no such kind of file")),
    }
}

fn no_such_name() -> Error {
    Error::new(Kind::NotFound, "no such name")
}
