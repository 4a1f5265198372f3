//! Replaying what was made.

use base::{Error, Kind, Result};
use dmu::Object;
use format::ids::ObjectId;
use format::sa::Attr;
use format::znode::FLAG_XATTR;
use zil::{Born, Create, Made};

use crate::attr_tables::word;
use crate::create::{Birth, ParentDirectory, exists};
use crate::op::Op;
use crate::{FileKind, NewKind, Zpl};

use super::RECORD_BYTES;

impl Zpl {
    pub(super) fn replay_create(&self, create: &Create<'_>) -> Result<()> {
        let op = self.begin(RECORD_BYTES, true)?;
        let _held = op.alone(&[create.dir]);
        if create.made == Made::XattrDirectory {
            return op.replay_xattr_dir(create);
        }
        self.check_name(create.name)?;
        let (node, parent) = op.parent(create.dir)?;
        if self.find_entry(node.object(), create.name)?.is_some() {
            return Err(exists());
        }
        let kind = FileKind::of_mode(create.born.mode);
        let new = match (create.made, kind) {
            (Made::Directory, FileKind::Directory) => NewKind::Directory,
            (Made::Symlink(target), FileKind::Symlink) => NewKind::Symlink(target),
            (Made::File, kind) if !matches!(kind, FileKind::Directory | FileKind::Symlink) => NewKind::File,
            _ => return Err(Error::corrupt(format!("a file of mode {:o}", create.born.mode))),
        };
        let is_directory = kind == FileKind::Directory;
        let birth = Birth {
            links: if is_directory { 2 } else { 1 },
            size: match create.made {
                Made::Symlink(target) => target.len() as u64,
                _ if is_directory => 2,
                _ => 0,
            },
            flags: parent.inherited_flags(kind),
            projid: parent.inherited_project(kind),
            ..self.birth(&create.born, (create.dir, kind), &create.domains)?
        };
        let object = op.born(&birth, new)?;
        let named = op.made_with(&object, create);
        if let Err(error) = named.and_then(|()| op.add_name(node.object(), create.name, object.id(), kind)) {
            self.objset().free_object(op.tx(), object.id())?;
            return Err(error);
        }
        op.directory_changed(node.object(), 1, i64::from(is_directory))?;
        op.names_unlogged(None);
        Ok(())
    }

    /// What the record says of the new file.
    fn birth(&self, born: &Born, (parent, kind): (ObjectId, FileKind), domains: &[&[u8]]) -> Result<Birth> {
        Ok(Birth {
            place: Some((born.object, usize::from(born.slots))),
            kind,
            mode: (born.mode & 0o7777) as u32,
            uid: self.logged_owner(born.uid, domains)?,
            gid: self.logged_owner(born.gid, domains)?,
            parent,
            links: 2,
            size: 2,
            flags: 0,
            rdev: born.rdev,
            projid: None,
            generation: born.generation,
            now: born.crtime,
        })
    }

    /// The owner that a record names: of a domain, by the names of domains in the record.
    pub(super) fn logged_owner(&self, id: u64, domains: &[&[u8]]) -> Result<u64> {
        let Some(index) = ((id >> 32) as usize).checked_sub(1) else { return Ok(id) };
        let name = domains.get(index);
        let name = name.ok_or_else(|| Error::corrupt("an owner of a domain without a name"))?;
        let name = String::from_utf8_lossy(name);
        match self.domain_number(&name)? {
            Some(number) => Ok(u64::from(number) << 32 | id & u64::from(u32::MAX)),
            None => Err(Error::new(Kind::Unsupported, format!("an owner of the new domain '{name}'"))),
        }
    }
}

impl Op<'_> {
    /// Gives a new file the access control list and the attributes that it was made with.
    fn made_with(&self, object: &Object, create: &Create<'_>) -> Result<()> {
        let node = self.zpl().node_of(object.fresh()?)?;
        let mut changes = match &create.acl {
            Some(acl) if !acl.entries.is_empty() => self.acl_changes(&node, acl, &create.domains)?,
            _ => Vec::new(),
        };
        if let Some(extra) = &create.extra {
            self.extra_changes(&node, extra, &mut changes)?;
        }
        if changes.is_empty() { Ok(()) } else { self.change(object, &changes) }
    }

    /// Makes the whiteout that a record of a rename tells of.
    pub(crate) fn logged_whiteout(&self, parent: &ParentDirectory, dir: ObjectId, born: &Born) -> Result<Object> {
        let kind = FileKind::of_mode(born.mode);
        if kind != FileKind::CharDevice {
            return Err(Error::corrupt(format!("a whiteout of mode {:o}", born.mode)));
        }
        let birth = Birth {
            links: 1,
            size: 0,
            flags: parent.inherited_flags(kind),
            projid: parent.inherited_project(kind),
            ..self.zpl().birth(born, (dir, kind), &[])?
        };
        self.born(&birth, NewKind::CharDevice(0))
    }

    /// Makes the hidden directory of a file's extended attributes.
    fn replay_xattr_dir(&self, create: &Create<'_>) -> Result<()> {
        let node = self.zpl().node(create.dir)?;
        if self.zpl().attributes(&node)?.opt_u64(Attr::Xattr)?.is_some_and(|dir| dir != 0) {
            return Err(exists());
        }
        let birth = Birth {
            flags: FLAG_XATTR,
            ..self.zpl().birth(&create.born, (create.dir, FileKind::Directory), &create.domains)?
        };
        let projid = self.zpl().attributes(&node)?.opt_u64(Attr::Projid)?;
        let dir = self.born(&Birth { projid, ..birth }, NewKind::Directory)?;
        self.change(node.object(), &[word(Attr::Xattr, dir.id().get())])?;
        self.names_unlogged(None);
        Ok(())
    }
}
