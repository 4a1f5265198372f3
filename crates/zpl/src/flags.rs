//! Flags that chattr(1) sets, and projects.
//!
//! ```text
//!   immutable, append-only   what the file lets nobody do
//!   nodump                   says so to programs that dump file systems
//!   inherits its project     what is made in the directory gets the project, and this flag;
//!                            a file of another project is not moved there, nor linked
//! ```
//!
//! A regular file or directory that was made where projects are counted has room for its project. An older one gets it
//! with its first project: see `attrs`, as accounts are kept by where it lies. Other files have no project.

use base::{Error, Kind, Result};
use dmu::zap::Zap;
use format::ids::ObjectId;
use format::sa::Attr;
use format::znode::{
    FLAG_APPENDONLY, FLAG_ARCHIVE, FLAG_AV_MODIFIED, FLAG_HIDDEN, FLAG_IMMUTABLE, FLAG_NODUMP, FLAG_NOUNLINK,
    FLAG_PROJID, FLAG_PROJINHERIT, FLAG_READONLY, FLAG_SYSTEM, FLAG_XATTR,
};
use zil::{Extra, Intent};

use crate::attr_tables::{AttrChange, time, word};
use crate::dir::dirent;
use crate::nodes::FileNode;
use crate::op::Op;
use crate::{FileKind, SetFlags, Zpl};
use format::objset::Owner;

/// Bytes that changed flags take, roughly.
const FLAGS_BYTES: u64 = 1 << 10;
/// Bits of a log record, and the flags of a file that they stand for.
pub(crate) const LOGGED: [(u32, u64); 10] = [
    (Extra::ARCHIVE, FLAG_ARCHIVE),
    (Extra::SYSTEM, FLAG_SYSTEM),
    (Extra::READONLY, FLAG_READONLY),
    (Extra::HIDDEN, FLAG_HIDDEN),
    (Extra::NOUNLINK, FLAG_NOUNLINK),
    (Extra::IMMUTABLE, FLAG_IMMUTABLE),
    (Extra::APPENDONLY, FLAG_APPENDONLY),
    (Extra::NODUMP, FLAG_NODUMP),
    (Extra::AV_MODIFIED, FLAG_AV_MODIFIED),
    (Extra::PROJINHERIT, FLAG_PROJINHERIT),
];

impl SetFlags {
    /// The flags that can be set.
    pub const ALL: u64 = FLAG_IMMUTABLE | FLAG_APPENDONLY | FLAG_NODUMP | FLAG_PROJINHERIT;
}

impl Zpl {
    /// Sets flags, and the project, of a regular file or directory. Errors: `Unsupported` for what is neither, and for
    /// projects where none are counted; `Quota` if the project may not have more.
    pub fn set_flags(&self, ino: ObjectId, set: &SetFlags) -> Result<()> {
        let done = self.placed(ino, self.change_flags(ino, set));
        self.settled(ino, done)
    }

    fn change_flags(&self, ino: ObjectId, set: &SetFlags) -> Result<()> {
        let op = self.begin(FLAGS_BYTES, true)?;
        let _held = op.alone(&[ino]);
        let node = self.node(ino)?;
        let attrs = self.attributes(&node)?;
        if !FileKind::of_mode(attrs.u64(Attr::Mode)?).has_project() {
            return Err(Error::new(Kind::Unsupported, "only regular files and directories have flags and projects"));
        }
        let (old, project) = (attrs.u64(Attr::Flags)?, attrs.project()?);
        drop(attrs);
        let mut flags = old & !SetFlags::ALL | set.flags & SetFlags::ALL;
        let project = set.project.map(u64::from).filter(|new| *new != project);
        if (project.is_some() || (flags ^ old) & FLAG_PROJINHERIT != 0) && !self.has_projects() {
            return Err(Error::new(Kind::Unsupported, "the file system does not count by project"));
        }
        let mut changes = vec![time(Attr::Ctime, op.now())];
        if let Some(project) = project {
            if project != 0
                && let Some(room) = op.live().owner_limits()
            {
                room.admit_owner(Owner::Project, project, true)?;
            }
            flags |= FLAG_PROJID;
            changes.push(word(Attr::Projid, project));
        }
        changes.push(word(Attr::Flags, flags));
        op.share_owners(&node, &changes)?;
        op.change(node.object(), &changes)?;
        if op.as_logged(node.object())?.has_name {
            let extra = logged(flags ^ old, flags, project);
            op.log_names(&Intent::SetAttr(zil::LoggedSetAttr {
                object: ino,
                extra: Some(extra),
                ..zil::LoggedSetAttr::default()
            }));
        } else {
            op.nameless_unlogged(ino);
        }
        Ok(())
    }

    /// Is space counted by project, so that files can have one?
    pub(crate) fn has_projects(&self) -> bool {
        self.objset().counts_projects() && !self.has_fixed_znodes()
    }
}

/// What a log is told of flags that changed, and of a new project. What follows in it may be possible by that only, so
/// it is told in order with changes of names.
fn logged(changed: u64, flags: u64, project: Option<u64>) -> Extra {
    let mut extra = Extra { project: project.unwrap_or(0), ..Extra::default() };
    for (bit, flag) in LOGGED {
        extra.which |= if changed & flag != 0 { bit } else { 0 };
        extra.values |= if changed & flags & flag != 0 { bit.into() } else { 0 };
    }
    extra.which |= if project.is_some() { Extra::PROJECT } else { 0 };
    extra
}

impl Op<'_> {
    /// Gives what a file keeps in its hidden directory to the file's new owners.
    pub(crate) fn share_owners(&self, node: &FileNode, changes: &[AttrChange]) -> Result<()> {
        let is_owner = |(attr, _): &&AttrChange| matches!(attr, Attr::Uid | Attr::Gid | Attr::Projid);
        let owners: Vec<AttrChange> = changes.iter().filter(is_owner).cloned().collect();
        if owners.is_empty() {
            return Ok(());
        }
        let has_project = if owners.iter().any(|(attr, _)| *attr == Attr::Projid) { FLAG_PROJID } else { 0 };
        for ino in hidden(self.zpl(), node)? {
            let hidden = self.zpl().node(ino)?;
            let flags = self.zpl().attributes(&hidden)?.u64(Attr::Flags)?;
            if flags & FLAG_XATTR == 0 {
                return Err(Error::corrupt(format!("object {ino} is no extended attribute")));
            }
            let mut owners = owners.clone();
            owners.push(word(Attr::Flags, flags | has_project));
            self.change(hidden.object(), &owners)?;
        }
        Ok(())
    }

    /// `OtherProject` if a directory that hands its project on is to get a file of another one. `kind` is the file's:
    /// what can have no project may be anywhere.
    pub(crate) fn check_project(&self, directory: &FileNode, node: &FileNode, kind: FileKind) -> Result<()> {
        let attrs = self.zpl().attributes(directory)?;
        let hands_on = attrs.u64(Attr::Flags)? & FLAG_PROJINHERIT != 0;
        if !hands_on || !kind.has_project() || self.live().is_replaying() {
            return Ok(());
        }
        match attrs.project()? == self.zpl().attributes(node)?.project()? {
            true => Ok(()),
            false => Err(Error::new(Kind::OtherProject, "a file of another project than the directory's")),
        }
    }

    /// The flags that a file gets by a directory which it is moved to, if they are others than it has.
    pub(crate) fn flags_by_move(
        &self,
        directory: &FileNode,
        node: &FileNode,
        kind: FileKind,
    ) -> Result<Option<AttrChange>> {
        let handed_on = self.zpl().attributes(directory)?.u64(Attr::Flags)? & FLAG_PROJINHERIT;
        let flags = self.zpl().attributes(node)?.u64(Attr::Flags)?;
        let is_new = kind.has_project() && handed_on & !flags != 0;
        Ok(is_new.then(|| word(Attr::Flags, flags | handed_on)))
    }
}

/// Object numbers of the hidden directory of a file's attributes, and of the files in it.
fn hidden(zpl: &Zpl, node: &FileNode) -> Result<Vec<ObjectId>> {
    let Some(dir) = zpl.xattr_node(&zpl.attributes(node)?)? else { return Ok(Vec::new()) };
    let table = Zap::open(dir.object().fresh()?)?;
    let mut all = vec![dir.object().id()];
    for entry in table.entries()? {
        all.push(dirent(&entry.value).map_err(|e| e.at_block(table.bookmark()))?.object);
    }
    Ok(all)
}
