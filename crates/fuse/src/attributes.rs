//! Requests of attributes: reading and changing those of POSIX, and how full the file system is.

use std::sync::Arc;

use base::{Error, Kind, Result};
use export::Parking;
use zpl::{FLAG_PROJINHERIT, FileKind, SetAttr, SetTime};

use crate::accesses::Accesses;
use crate::asker::Asker;
use crate::attr::FuseEntry;
use crate::entries::Entries;
use crate::faults::FaultLog;
use crate::negotiated::WRITER_HANDLE;
use crate::opened::OpenFiles;
use crate::reply::Reply;
use crate::set_ids::{drop_capability, has_set_ids, without_set_ids};
use crate::statfs::Statfs;
use crate::tree::{FileTree, Source};
use crate::trees::{NodePlace, Trees};
use crate::wire::{self, InHeader, RequestBody};
use crate::write_back::WriteBack;

/// Answers the requests of attributes.
pub(crate) struct AttributeRequests<S: Source> {
    pub(crate) trees: Arc<Trees<S>>,
    pub(crate) entries: Arc<Entries<S>>,
    pub(crate) accesses: Arc<Accesses<S>>,
    pub(crate) files: Arc<OpenFiles<S>>,
    pub(crate) faults: Arc<FaultLog<S>>,
    pub(crate) parking: Arc<Parking>,
    pub(crate) write_back: Arc<WriteBack>,
}

impl<S: Source> AttributeRequests<S> {
    /// GETATTR. The kernel asks so about a file that is open for writing before it keeps what is written.
    pub(crate) fn getattr(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let node = header.node;
        let answer = move |attributes: &Self, failed: Option<Kind>| {
            let entry = match failed {
                Some(kind) => Err(Error::new(kind, "what was written before could not be kept")),
                None => attributes.entries.of_node(node),
            };
            attributes.faults.answer("getattr", node, entry, reply, |reply, entry| reply.attr(&entry));
        };
        match wire::asked_handle(&mut body)? {
            Some(WRITER_HANDLE) => {
                let attributes = self.clone();
                self.write_back.before_write(node, move |failed| answer(&attributes, failed));
            }
            _ => answer(self, None),
        }
        Ok(())
    }

    /// STATX. What is asked for besides is the birth time, so all is told. The kernel asks so only if a program asks it
    /// for that.
    pub(crate) fn statx(&self, header: &InHeader, reply: Reply) -> Result<()> {
        let entry = self.entries.of_node(header.node);
        self.faults.answer("statx", header.node, entry, reply, |reply, entry| reply.statx(&entry));
        Ok(())
    }

    /// SETATTR.
    pub(crate) fn setattr(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (node, asker) = (header.node, Asker::of(header));
        let (set, drop_set_ids) = wire::set_attr(&mut body)?;
        if self.write_back.visits().is_correction(node, &set, asker.is_root()) {
            let entry = self.entries.of_node(node);
            self.faults.answer("setattr", node, entry, reply, |reply, entry| reply.attr(&entry));
            return Ok(());
        }
        let work = move |attributes: &Self| match set == SetAttr::default() {
            true => attributes.prepare_change(node, asker),
            false => attributes.change(node, set, drop_set_ids, asker),
        };
        let attributes = self.clone();
        let answer = move || {
            attributes.parking.change(&attributes, work, move |attributes, done| {
                attributes.faults.answer("setattr", node, done, reply, |reply, entry| reply.attr(&entry));
            });
        };
        match (set.mtime, set.size) {
            // with a size, the kernel sends no pages meanwhile
            (Some(SetTime::At(..)), None) => self.write_back.before_times(node, answer),
            _ => answer(),
        }
        Ok(())
    }

    /// STATFS.
    pub(crate) fn statfs(&self, header: &InHeader, reply: Reply) -> Result<()> {
        let space = self.space(header.node);
        self.faults.answer("statfs", header.node, space, reply, |reply, space| reply.statfs(&space));
        Ok(())
    }

    /// Changes attributes. A new owner, and a new size if `drop_set_ids`, take set-id bits away, and both take
    /// capabilities: to change all at once is safest.
    pub(crate) fn change(&self, node: u64, mut set: SetAttr, drop_set_ids: bool, asker: Asker) -> Result<FuseEntry> {
        let object = self.trees.changeable(node)?;
        self.accesses.write_one(object);
        let live = self.trees.live();
        let is_chown = set.uid.is_some() || set.gid.is_some();
        if is_chown || set.size.is_some() {
            let stat = live.tree.stat(object)?;
            // overlayfs copies a file to one of root's without a name, and gives it its owner last; the kernel has told
            // file systems of its own not to mind, and FUSE has no word for that. Nobody runs such a file
            let is_copied = stat.nlink == 0 && stat.uid == 0 && asker.is_root();
            if set.mode.is_none() && has_set_ids(&stat) && (is_chown || drop_set_ids) && !is_copied {
                set.mode = without_set_ids(&stat, asker).mode;
            }
            // as Linux has it, that of a directory stays
            if stat.kind != FileKind::Directory && !is_copied {
                drop_capability(&*live.tree, object)?;
            }
        }
        let stat = live.tree.set_attr(object, &set)?;
        if set.size.is_some() {
            self.trees.known().size_known(object);
        }
        self.files.attributes_changed(node);
        Ok(self.entries.of_stat(&live, object, &stat))
    }

    /// The kernel's word that `asker` is about to change contents, and may not keep set-id bits; or that its
    /// capabilities are gone, or a chown(2) of any file: see [`set_ids`](crate::set_ids).
    fn prepare_change(&self, node: u64, asker: Asker) -> Result<FuseEntry> {
        let object = self.trees.changeable(node)?;
        let live = self.trees.live();
        let stat = live.tree.stat(object)?;
        let is_write = self.files.take_capability_removed(node, asker.pid());
        let drops = has_set_ids(&stat)
            && match asker.keeps_set_ids() {
                true => !is_write && asker.is_owner(&stat),
                false => asker.may_write(&stat) || asker.is_owner(&stat),
            };
        match drops {
            true => self.change(node, without_set_ids(&stat, asker), true, asker),
            false => Ok(self.entries.of_stat(&live, object, &stat)),
        }
    }

    /// How full it is, as seen from a node.
    fn space(&self, node: u64) -> Result<Statfs> {
        let source = self.trees.source();
        let space = Statfs::from(source.space()?);
        let NodePlace::Object(branch, object) = self.trees.place(node)? else { return Ok(space) };
        let stat = branch.tree.stat(object)?;
        match branch.is_live() && stat.flags & FLAG_PROJINHERIT != 0 && stat.projid != 0 {
            true => Ok(space.within(&source.project_space(stat.projid)?)),
            false => Ok(space),
        }
    }
}
