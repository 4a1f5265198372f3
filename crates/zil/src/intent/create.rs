//! Records of what was made.
//!
//! ```text
//!   directory | object; its slots less 1 in the highest 8 bits | mode | owner | group | generation
//!   | birth time: seconds, nanoseconds | device number
//!
//!   1   file        ┬ domains | name
//!   2   directory   ┤
//!   3   directory of extended attributes
//!   4   symlink     │ name | target
//!   15  file        ┬ attributes | domains | name
//!   18  directory   ┘
//!   14  file        ┬ access control list, domains: see `attrs` | name
//!   17  directory   ┘
//!   16  file        ┬ head of the list | attributes | rest of the list, domains | name
//!   19  directory   ┘
//! ```
//!
//! A file may be a device, a pipe or a socket, as its mode says. Owners that came over SMB have the number
//! of one of the domains, counted from 1, in their upper half.

use base::{Endian, Reader, Result};
use format::ids::ObjectId;

use super::attrs::{AclHead, domain_count};
use super::attrs::{Extra, LoggedAcl};
use super::fields::{self, RecordWriter, domains, name, object};

/// Bits of an object's number.
const SLOTS_SHIFT: u32 = 56;

/// Something that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// What it is.
    pub made: Made<'a>,
    /// The directory; the file whose attributes it holds, if it is a directory of them.
    pub dir: ObjectId,
    /// What was decided when it was made.
    pub born: Born,
    /// Its name; empty for a directory of extended attributes.
    pub name: &'a [u8],
    /// Attributes that it got beside the usual ones.
    pub extra: Option<Extra>,
    /// The access control list that it was made with.
    pub acl: Option<LoggedAcl>,
    /// Names of the domains that its owners are of.
    pub domains: Vec<&'a [u8]>,
}

/// Kinds of things that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made<'a> {
    /// A file of any kind but those below.
    File,
    /// A directory.
    Directory,
    /// The hidden directory of a file's extended attributes.
    XattrDirectory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
}

/// What was decided when an object was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Born {
    /// Its number.
    pub object: ObjectId,
    /// Slots of its dnode.
    pub slots: u8,
    /// Type and permissions.
    pub mode: u64,
    /// Owner; the upper half may say which domain.
    pub uid: u64,
    /// Group, likewise.
    pub gid: u64,
    /// Generation: the transaction group in which it was made.
    pub generation: u64,
    /// Time: seconds since 1970, nanoseconds.
    pub crtime: [u64; 2],
    /// Device number, in the portable form.
    pub rdev: u64,
}

/// What a type of record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CreateShape {
    base: Base,
    has_extra: bool,
    has_acl: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    File,
    Directory,
    XattrDirectory,
    Symlink,
}

const SHAPES: [(u64, CreateShape); 10] = [
    shape(1, Base::File, false, false),
    shape(2, Base::Directory, false, false),
    shape(3, Base::XattrDirectory, false, false),
    shape(4, Base::Symlink, false, false),
    shape(14, Base::File, false, true),
    shape(15, Base::File, true, false),
    shape(16, Base::File, true, true),
    shape(17, Base::Directory, false, true),
    shape(18, Base::Directory, true, false),
    shape(19, Base::Directory, true, true),
];

const fn shape(kind: u64, base: Base, has_extra: bool, has_acl: bool) -> (u64, CreateShape) {
    (kind, CreateShape { base, has_extra, has_acl })
}

impl CreateShape {
    pub(super) fn of_kind(kind: u64) -> Option<CreateShape> {
        SHAPES.iter().find(|(number, _)| *number == kind).map(|(_, shape)| *shape)
    }

    /// The type of record. What only files and directories can have is not kept for others.
    pub(super) fn kind(self) -> u64 {
        let is_plain = matches!(self.base, Base::XattrDirectory | Base::Symlink);
        let wanted = if is_plain { CreateShape { has_extra: false, has_acl: false, ..self } } else { self };
        SHAPES.iter().find(|(_, shape)| *shape == wanted).map_or(0, |(number, _)| *number)
    }
}

impl Born {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Born> {
        let id = r.u64()?;
        Ok(Born {
            object: ObjectId::new(id & ((1 << ObjectId::BITS) - 1)),
            slots: ((id >> SLOTS_SHIFT) as u8).saturating_add(1),
            mode: r.u64()?,
            uid: r.u64()?,
            gid: r.u64()?,
            generation: r.u64()?,
            crtime: [r.u64()?, r.u64()?],
            rdev: r.u64()?,
        })
    }

    pub(super) fn write(&self, out: &mut RecordWriter) {
        let id = self.object.get() | u64::from(self.slots.saturating_sub(1)) << SLOTS_SHIFT;
        let Born { mode, uid, gid, generation, crtime, rdev, .. } = *self;
        out.u64s(&[id, mode, uid, gid, generation, crtime[0], crtime[1], rdev]);
    }
}

impl<'a> Create<'a> {
    pub(super) fn parse(shape: CreateShape, r: &mut Reader<'a>, endian: Endian) -> Result<Create<'a>> {
        let (dir, born) = (object(r)?, Born::parse(r)?);
        let head = if shape.has_acl { Some(AclHead::parse(r)?) } else { None };
        let extra = if shape.has_extra { Some(Extra::parse(r, endian)?) } else { None };
        let (acl, domains) = match (head, shape.base) {
            (Some(head), _) => {
                let (acl, domains) = head.rest(r)?;
                (Some(acl), domains)
            }
            (None, Base::File | Base::Directory) => (None, domains(r, domain_count(born.uid, born.gid))?),
            (None, _) => (None, Vec::new()),
        };
        let (made, name) = match shape.base {
            Base::XattrDirectory => (Made::XattrDirectory, &b""[..]),
            Base::File => (Made::File, name(r)?),
            Base::Directory => (Made::Directory, name(r)?),
            Base::Symlink => {
                let name = name(r)?;
                (Made::Symlink(fields::name(r)?), name)
            }
        };
        Ok(Create { made, dir, born, name, extra, acl, domains })
    }

    pub(super) fn shape(&self) -> CreateShape {
        let base = match self.made {
            Made::File => Base::File,
            Made::Directory => Base::Directory,
            Made::XattrDirectory => Base::XattrDirectory,
            Made::Symlink(_) => Base::Symlink,
        };
        CreateShape { base, has_extra: self.extra.is_some(), has_acl: self.acl.is_some() }
    }

    pub(super) fn write<'o>(&self, out: &'o mut RecordWriter) -> &'o mut RecordWriter {
        out.u64s(&[self.dir.get()]);
        self.born.write(out);
        if matches!(self.made, Made::File | Made::Directory) {
            match &self.acl {
                Some(acl) => {
                    acl.write(&self.domains, self.extra.as_ref(), out);
                }
                None => {
                    self.extra.iter().for_each(|extra| extra.write(out));
                    for domain in &self.domains {
                        out.name(domain);
                    }
                }
            }
        }
        out.name(self.name);
        match self.made {
            Made::Symlink(target) => out.name(target),
            _ => out,
        }
    }
}
