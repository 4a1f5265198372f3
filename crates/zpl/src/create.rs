//! New files of every kind.
//!
//! The attributes come in the order that OpenZFS gives them: its space accounting, and that of others, reads
//! owner, group, flags and project at fixed places behind the header of the buffer.
//!
//! ```text
//!   mode size gen uid gid parent flags atime mtime ctime crtime links [projid] [rdev] DACL count, aces
//!        [symlink] [extended attributes]
//! ```

use base::{Error, Kind, Result};
use dmu::INDIRECT_SHIFT;
use dmu::Object;
use dmu::sync::Owners;
use dmu::zap::Editor;
use format::acl::Acl;
use format::dnode::Dnode;
use format::ids::ObjectId;
use format::object_type::ObjectType;
use format::sa::{Attr, Registry, ZPL_ATTRS};
use format::znode::{
    FLAG_ACL_TRIVIAL, FLAG_ARCHIVE, FLAG_AV_MODIFIED, FLAG_PROJID, FLAG_PROJINHERIT, FLAG_XATTR, device,
};

use crate::attr_tables::{AttrChange, AttrValue, TABLE_BLOCK_SIZE, time, word};
use crate::fixed;
use crate::live::admit_owners;
use crate::nodes::FileNode;
use crate::op::Op;
use crate::posix_acl::PosixAcl;
use crate::{FileKind, New, NewKind, Stat, Zpl};

/// The ACL is one that servers of SMB may add inherited entries to.
const FLAG_ACL_AUTO_INHERIT: u64 = 0x40;
/// Everybody may execute (of directories: search): nothing in the ACL says else.
const FLAG_NO_EXECS_DENIED: u64 = 0x100;
/// Bytes that a new file takes, roughly, with its part of a directory.
pub(crate) const CREATE_BYTES: u64 = 4 << 10;
/// Longest target of a symbolic link.
const TARGET_MAX: usize = 4095;
const BLOCK_SIZE_MIN: u64 = 512;
pub(crate) const SET_GROUP_ID: u32 = 0o2000;

/// What a new file's attributes say.
pub(crate) struct Birth {
    /// Number and slots, if a log says what they are.
    pub(crate) place: Option<(ObjectId, usize)>,
    pub(crate) kind: FileKind,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) parent: ObjectId,
    pub(crate) links: u64,
    pub(crate) size: u64,
    /// Flags beside those that follow from the rest.
    pub(crate) flags: u64,
    pub(crate) rdev: u64,
    pub(crate) projid: Option<u64>,
    pub(crate) generation: u64,
    pub(crate) now: [u64; 2],
}

/// The directory that a file is made in.
pub(crate) struct ParentDirectory {
    id: ObjectId,
    mode: u32,
    gid: u64,
    flags: u64,
    /// What a new file gets, if space is counted by project.
    project: Option<u64>,
    default_acl: Option<PosixAcl>,
}

impl ParentDirectory {
    /// Flags that a new file has from its directory.
    pub(crate) fn inherited_flags(&self, kind: FileKind) -> u64 {
        self.flags & (FLAG_XATTR | if kind.has_project() { FLAG_PROJINHERIT } else { 0 })
    }

    /// The project of a new file, if it has room for one.
    pub(crate) fn inherited_project(&self, kind: FileKind) -> Option<u64> {
        self.project.filter(|_| kind.has_project())
    }
}

impl Birth {
    pub(crate) fn attributes(&self) -> Vec<AttrChange> {
        let mode = self.mode | self.kind.mode_bits();
        let projid = if self.projid.is_some() { FLAG_PROJID } else { 0 };
        let flags = self.flags | FLAG_ARCHIVE | FLAG_AV_MODIFIED | projid;
        let flags = acl_flags(flags, mode);
        let mut list = vec![
            word(Attr::Mode, mode.into()),
            word(Attr::Size, self.size),
            word(Attr::Gen, self.generation),
            word(Attr::Uid, self.uid),
            word(Attr::Gid, self.gid),
            word(Attr::Parent, self.parent.get()),
            word(Attr::Flags, flags),
            time(Attr::Atime, self.now),
            time(Attr::Mtime, self.now),
            time(Attr::Ctime, self.now),
            time(Attr::Crtime, self.now),
            word(Attr::Links, self.links),
        ];
        list.extend(self.projid.map(|projid| word(Attr::Projid, projid)));
        if matches!(self.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            list.push(word(Attr::Rdev, self.rdev));
        }
        list.extend(acl_of_mode(mode));
        list
    }

    /// The attributes under the numbers of a file system in which all are registered.
    pub(crate) fn numbered(&self, registry: &Registry) -> Vec<(u16, Vec<u8>)> {
        let numbered = |(attr, value): AttrChange| {
            let number = registry.number(attr);
            (
                number.unwrap_or_else(|| panic!("{} is not registered", ZPL_ATTRS[attr as usize].name)),
                value.bytes().to_vec(),
            )
        };
        self.attributes().into_iter().map(numbered).collect()
    }
}

/// The ACL that says what the mode does.
pub(crate) fn acl_of_mode(mode: u32) -> [AttrChange; 2] {
    let acl = Acl::trivial(mode, is_directory(mode));
    [word(Attr::DaclCount, acl.entries.len() as u64), (Attr::DaclAces, AttrValue::Bytes(acl.bytes()))]
}

/// The flags of a file whose ACL says what the mode does.
pub(crate) fn acl_flags(flags: u64, mode: u32) -> u64 {
    let inherit = if is_directory(mode) { FLAG_ACL_AUTO_INHERIT } else { 0 };
    let execute = if mode & 0o111 == 0o111 { FLAG_NO_EXECS_DENIED } else { 0 };
    flags & !FLAG_NO_EXECS_DENIED | FLAG_ACL_TRIVIAL | inherit | execute
}

fn is_directory(mode: u32) -> bool {
    FileKind::of_mode(mode.into()) == FileKind::Directory
}

/// The dnode of a new directory.
pub(crate) fn new_directory(slots: usize) -> Dnode {
    let mut dnode = Dnode::new(ObjectType::DIRECTORY_CONTENTS, TABLE_BLOCK_SIZE, INDIRECT_SHIFT, 1, slots);
    dnode.bonus_type = ObjectType::SA;
    dnode
}

fn new_file(slots: usize) -> Dnode {
    let mut dnode = Dnode::new(ObjectType::PLAIN_FILE_CONTENTS, BLOCK_SIZE_MIN, INDIRECT_SHIFT, 1, slots);
    dnode.bonus_type = ObjectType::SA;
    dnode
}

impl Zpl {
    /// Makes a file and its name. Errors: `Exists`; `NotFound` if the directory has been removed;
    /// `Invalid`, `TooLong` for names that cannot be; `NoSpace`, `Quota`.
    pub fn create(&self, dir: ObjectId, name: &[u8], new: &New<'_>) -> Result<Stat> {
        let made = self.placed(dir, self.make(dir, Some(name), new));
        self.settled(ObjectId::NONE, made)
    }

    /// Makes a file without a name, which is gone when it is given back by [`Zpl::reclaim`], unless
    /// [`Zpl::link`] gave it a name before.
    pub fn create_unnamed(&self, dir: ObjectId, new: &New<'_>) -> Result<Stat> {
        self.placed(dir, self.make(dir, None, new))
    }

    fn make(&self, dir: ObjectId, name: Option<&[u8]>, new: &New<'_>) -> Result<Stat> {
        if let Some(name) = name {
            self.check_name(name)?;
        }
        let op = self.begin(CREATE_BYTES, false)?;
        let _held = op.alone(&[dir]);
        let (node, parent) = op.parent(dir)?;
        if let Some(name) = name
            && self.find_entry(node.object(), name)?.is_some()
        {
            return Err(exists());
        }
        let object = op.make_file(&parent, new, name.is_some())?;
        let kind = new.kind.file_kind();
        let named = match name {
            Some(name) => op.add_name(node.object(), name, object.id(), kind),
            None => op.live().orphans().add(op.tx(), object.id()),
        };
        if let Err(error) = named {
            self.objset().free_object(op.tx(), object.id())?;
            return Err(error);
        }
        match name {
            Some(_) => op.directory_changed(node.object(), 1, i64::from(kind == FileKind::Directory))?,
            None => {
                op.live().orphans().add_unnamed(object.id());
                op.nameless_unlogged(object.id());
            }
        }
        if let Some(name) = name {
            op.log_create(dir, name, new.kind, &object)?;
        }
        let made = self.stat_of(&self.node_of(object.fresh()?)?)?;
        op.makes(object.id(), made.generation);
        Ok(made)
    }
}

impl Op<'_> {
    /// A directory in which something can be made.
    pub(crate) fn parent(&self, dir: ObjectId) -> Result<(FileNode, ParentDirectory)> {
        let node = self.living_directory(dir)?;
        let attrs = self.zpl().attributes(&node)?;
        let flags = attrs.u64(Attr::Flags)?;
        let handed_on = if flags & FLAG_PROJINHERIT != 0 { attrs.project()? } else { 0 };
        let parent = ParentDirectory {
            id: dir,
            mode: attrs.u64(Attr::Mode)? as u32,
            gid: attrs.u64(Attr::Gid)?,
            flags,
            project: self.zpl().has_projects().then_some(handed_on),
            default_acl: self.zpl().default_acl(&node, &attrs)?,
        };
        drop(attrs);
        Ok((node, parent))
    }

    pub(crate) fn make_file(&self, parent: &ParentDirectory, new: &New<'_>, is_named: bool) -> Result<Object> {
        let kind = new.kind.file_kind();
        let is_directory = kind == FileKind::Directory;
        let acls = match (&parent.default_acl, kind) {
            (_, FileKind::Symlink) | (None, _) => None,
            (Some(acl), _) => Some(acl.inherited(new.mode)),
        };
        let mut mode = acls.as_ref().map_or(new.masked_mode(), |(mode, _)| *mode) & 0o7777;
        let gid = match parent.mode & SET_GROUP_ID {
            0 => new.gid.into(),
            _ => {
                mode |= if is_directory { SET_GROUP_ID } else { 0 };
                parent.gid
            }
        };
        if kind == FileKind::Symlink {
            mode = 0o777;
        }
        let birth = Birth {
            place: None,
            kind,
            mode,
            uid: new.uid.into(),
            gid,
            parent: parent.id,
            links: if is_directory { 2 } else { u64::from(is_named) },
            size: match new.kind {
                NewKind::Symlink(target) => target.len() as u64,
                _ if is_directory => 2,
                _ => 0,
            },
            flags: parent.inherited_flags(kind),
            rdev: match new.kind {
                NewKind::CharDevice(dev) | NewKind::BlockDevice(dev) => device(libc::major(dev), libc::minor(dev)),
                _ => 0,
            },
            projid: parent.inherited_project(kind),
            generation: self.tx().txg().get(),
            now: self.now(),
        };
        let owners = Owners { user: birth.uid, group: gid, project: birth.projid.unwrap_or(0) };
        if let Some(room) = self.live().owner_limits() {
            admit_owners(&*room, &owners, true)?;
        }
        let object = self.born(&birth, new.kind)?;
        if let (Some((_, access)), Some(default)) = (&acls, &parent.default_acl) {
            self.inherit_acls(&object, access.as_ref(), is_directory.then_some(default))?;
        }
        Ok(object)
    }

    /// Makes the object of a new file.
    pub(crate) fn born(&self, birth: &Birth, kind: NewKind<'_>) -> Result<Object> {
        let slots = birth.place.map_or_else(|| self.live().options().dnode_slots, |(_, slots)| slots);
        let mut list = birth.attributes();
        if let NewKind::Symlink(target) = kind {
            match target.len() {
                0 => return Err(Error::new(Kind::NotFound, "a symbolic link to nothing")),
                1..=TARGET_MAX => list.push((Attr::Symlink, AttrValue::Bytes(target.to_vec()))),
                _ => return Err(Error::new(Kind::TooLong, "a symbolic link's target is too long")),
            }
        }
        let is_directory = birth.kind == FileKind::Directory;
        let mut dnode = if is_directory { new_directory(slots) } else { new_file(slots) };
        let (mut spill, mut long_target) = (None, None);
        if self.zpl().has_fixed_znodes() {
            let (bonus, target) = fixed::new_bonus(self.zpl().version(), &list)?;
            fixed::to_fixed(&mut dnode, bonus);
            long_target = target;
        } else {
            let tables = self.live().tables()?;
            let numbered = tables.numbered(self.tx(), &list)?;
            let (most, with_spill) = (dnode.bonus_size_max(false), dnode.bonus_size_max(true));
            let built = tables.build(self.tx(), &numbered, most, with_spill)?;
            (dnode.bonus, spill) = (built.bonus, built.spill);
        }
        if let Some(target) = &long_target {
            dnode.block_size = (target.len() as u64).next_multiple_of(BLOCK_SIZE_MIN);
        }
        let object = match birth.place {
            Some((id, _)) => self.zpl().objset().claim_number(self.tx(), id, dnode)?,
            None => self.zpl().objset().allocate(self.tx(), dnode)?,
        };
        if let Some(target) = long_target {
            object.write(self.tx(), 0, &target)?;
        }
        if let Some(spill) = spill {
            object.set_spill(self.tx(), Some(&spill))?;
        }
        if is_directory {
            Editor::create(&object.changing(self.tx()), 0, self.zpl().master().normflags, self.live().random())?;
        }
        Ok(object)
    }
}

impl NewKind<'_> {
    fn file_kind(self) -> FileKind {
        match self {
            NewKind::File => FileKind::File,
            NewKind::Directory => FileKind::Directory,
            NewKind::Symlink(_) => FileKind::Symlink,
            NewKind::Fifo => FileKind::Fifo,
            NewKind::Socket => FileKind::Socket,
            NewKind::CharDevice(_) => FileKind::CharDevice,
            NewKind::BlockDevice(_) => FileKind::BlockDevice,
        }
    }
}

pub(crate) fn exists() -> Error {
    Error::new(Kind::Exists, "file exists")
}
