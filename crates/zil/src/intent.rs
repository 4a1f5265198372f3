//! What the records of a file system say was done.
//!
//! All numbers are u64 but where it is said; names end with a NUL byte; all of a record behind its head is:
//!
//! ```text
//!   5, 6    remove, rmdir     directory | name
//!   7       link              directory | object | name
//!   8       rename            from directory | to directory | old name | new name
//!   22      exchange          as a rename
//!   23      whiteout          as a rename, but before the names the file that takes the old name
//!   9       write             object | offset | length | 0 | block pointer (128) | data, or else they are where
//!                             the pointer leads to
//!   20      extend            as a write, without data: only the end of the file may move
//!   10      truncate          object | offset | length; length 0: up to the end
//!   21      set xattr         object | length of the value | name | value; without a value it is removed
//!   24      clone             object | offset | length | block size | number of pointers | block pointers
//!   others  create: see `create`; attributes and access control lists: see `attrs`
//! ```
//!
//! With the highest bit of the type, case does not count in the names. Records about one object only may
//! stand before or after those of others; all about names are in the order in which things happened.
//!
//! Source: the format of OpenZFS, its `sys/zil.h`.

mod attrs;
mod create;
pub(crate) mod fields;
#[cfg(test)]
mod tests;
mod text;

use base::{Endian, Error, Reader, Result};
use format::blkptr::BlkPtr;
use format::ids::ObjectId;

pub use attrs::{AclEntry, Extra, LoggedAcl, LoggedSetAttr};
pub use create::{Born, Create, Made};

use fields::{RecordWriter, blkptr, name, object};

const REMOVE: u64 = 5;
const RMDIR: u64 = 6;
const LINK: u64 = 7;
const RENAME: u64 = 8;
const WRITE: u64 = 9;
const TRUNCATE: u64 = 10;
const SETATTR: u64 = 11;
const ACL_V0: u64 = 12;
const ACL: u64 = 13;
const EXTEND: u64 = 20;
const SET_XATTR: u64 = 21;
const EXCHANGE: u64 = 22;
const WHITEOUT: u64 = 23;
pub(crate) const CLONE: u64 = 24;

/// An operation, as a record tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are drawn above")]
pub enum Intent<'a> {
    /// Something was made, and got a name.
    Create(Create<'a>),
    /// A name was removed: of a directory, or of anything else.
    Remove { dir: ObjectId, name: &'a [u8], is_rmdir: bool },
    /// An object got one more name.
    Link { dir: ObjectId, object: ObjectId, name: &'a [u8] },
    /// A name was moved.
    Rename(Rename<'a>),
    /// Bytes were written.
    Write { object: ObjectId, offset: u64, len: u64, data: WrittenData<'a> },
    /// The file reaches to the end of these bytes at least.
    Extend { object: ObjectId, offset: u64, len: u64 },
    /// Bytes became zeros; with length 0, the file ends at `offset`.
    Truncate { object: ObjectId, offset: u64, len: u64 },
    /// Attributes were set.
    SetAttr(LoggedSetAttr<'a>),
    /// An access control list was set.
    SetAcl { object: ObjectId, acl: LoggedAcl, domains: Vec<&'a [u8]> },
    /// An extended attribute that lies with the file was set, or removed if there is no value.
    SetXattr { object: ObjectId, name: &'a [u8], value: Option<&'a [u8]> },
    /// Blocks of another file became those of this one.
    Clone { object: ObjectId, offset: u64, len: u64, block_size: u64, blocks: Vec<BlkPtr> },
}

/// A name that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename<'a> {
    /// The old directory, and the old name.
    pub from: (ObjectId, &'a [u8]),
    /// The new directory, and the new name.
    pub to: (ObjectId, &'a [u8]),
    /// What became of both names.
    pub how: Renamed,
}

/// What became of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// What had the new name lost it.
    Replaced,
    /// What had the new name has the old one now.
    Exchanged,
    /// As `Replaced`, and a new file of a special kind has the old name.
    Whiteout(Born),
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenData<'a> {
    /// These bytes.
    Here(&'a [u8]),
    /// A whole block, which lies there. If it is longer than what was written, it begins at a multiple of
    /// its own length.
    Block(BlkPtr),
}

impl<'a> Intent<'a> {
    /// From the type of a record, without the bit about case, and what follows its head. Errors: `Corrupt`;
    /// `Unsupported` for an unknown type.
    pub(crate) fn parse(kind: u64, body: &'a [u8], endian: Endian) -> Result<Intent<'a>> {
        let mut r = Reader::new(body, endian);
        let r = &mut r;
        Ok(match kind {
            REMOVE | RMDIR => Intent::Remove { dir: object(r)?, name: name(r)?, is_rmdir: kind == RMDIR },
            LINK => Intent::Link { dir: object(r)?, object: object(r)?, name: name(r)? },
            RENAME | EXCHANGE | WHITEOUT => Intent::Rename(Rename::parse(kind, r)?),
            WRITE | EXTEND => parse_write(kind, r, endian)?,
            TRUNCATE => Intent::Truncate { object: object(r)?, offset: r.u64()?, len: r.u64()? },
            SETATTR => Intent::SetAttr(LoggedSetAttr::parse(r, endian)?),
            ACL_V0 | ACL => {
                let object = object(r)?;
                let (acl, domains) =
                    if kind == ACL { LoggedAcl::parse(r)? } else { (LoggedAcl::parse_v0(r)?, Vec::new()) };
                Intent::SetAcl { object, acl, domains }
            }
            SET_XATTR => {
                let (object, len) = (object(r)?, r.u64()?);
                let name = name(r)?;
                let value = r.take(usize::try_from(len).unwrap_or(usize::MAX))?;
                Intent::SetXattr { object, name, value: (len > 0).then_some(value) }
            }
            CLONE => parse_clone(r, endian)?,
            _ => match create::CreateShape::of_kind(kind) {
                Some(shape) => Intent::Create(Create::parse(shape, r, endian)?),
                None => return Err(Error::new(base::Kind::Unsupported, format!("log record of type {kind}"))),
            },
        })
    }

    /// The object that it is about, if it is about none but one.
    pub fn object(&self) -> Option<ObjectId> {
        match *self {
            Intent::Create(_) | Intent::Remove { .. } | Intent::Link { .. } | Intent::Rename(_) => None,
            Intent::Write { object, .. }
            | Intent::Extend { object, .. }
            | Intent::Truncate { object, .. }
            | Intent::SetAcl { object, .. }
            | Intent::SetXattr { object, .. }
            | Intent::Clone { object, .. } => Some(object),
            Intent::SetAttr(LoggedSetAttr { object, .. }) => Some(object),
        }
    }

    /// The type of its record.
    pub fn kind(&self) -> u64 {
        match self {
            Intent::Create(create) => create.shape().kind(),
            Intent::Remove { is_rmdir: false, .. } => REMOVE,
            Intent::Remove { is_rmdir: true, .. } => RMDIR,
            Intent::Link { .. } => LINK,
            Intent::Rename(Rename { how, .. }) => match how {
                Renamed::Replaced => RENAME,
                Renamed::Exchanged => EXCHANGE,
                Renamed::Whiteout(_) => WHITEOUT,
            },
            Intent::Write { .. } => WRITE,
            Intent::Extend { .. } => EXTEND,
            Intent::Truncate { .. } => TRUNCATE,
            Intent::SetAttr(_) => SETATTR,
            Intent::SetAcl { .. } => ACL,
            Intent::SetXattr { .. } => SET_XATTR,
            Intent::Clone { .. } => CLONE,
        }
    }

    /// Its record without the head: little-endian, and as long as a multiple of 8.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = RecordWriter(Vec::new());
        match self {
            Intent::Create(create) => create.write(&mut out),
            Intent::Remove { dir, name, .. } => out.u64s(&[dir.get()]).name(name),
            Intent::Link { dir, object, name } => out.u64s(&[dir.get(), object.get()]).name(name),
            Intent::Rename(rename) => rename.write(&mut out),
            Intent::Write { object, offset, len, data } => {
                out.u64s(&[object.get(), *offset, *len, 0]);
                match data {
                    WrittenData::Here(data) => out.pointer(&BlkPtr::HOLE).raw(data),
                    WrittenData::Block(bp) => out.pointer(bp),
                }
            }
            Intent::Extend { object, offset, len } => {
                out.u64s(&[object.get(), *offset, *len, 0]).pointer(&BlkPtr::HOLE)
            }
            Intent::Truncate { object, offset, len } => out.u64s(&[object.get(), *offset, *len]),
            Intent::SetAttr(set) => set.write(&mut out),
            Intent::SetAcl { object, acl, domains } => {
                out.u64s(&[object.get()]);
                acl.write(domains, None, &mut out)
            }
            Intent::SetXattr { object, name, value } => {
                let value = value.unwrap_or_default();
                out.u64s(&[object.get(), value.len() as u64]).name(name).raw(value)
            }
            Intent::Clone { object, offset, len, block_size, blocks } => {
                out.u64s(&[object.get(), *offset, *len, *block_size, blocks.len() as u64]);
                blocks.iter().fold(&mut out, |out, bp| out.pointer(bp))
            }
        };
        out.0.resize(out.0.len().next_multiple_of(8), 0);
        out.0
    }
}

impl<'a> Rename<'a> {
    fn parse(kind: u64, r: &mut Reader<'a>) -> Result<Rename<'a>> {
        let (from, to) = (object(r)?, object(r)?);
        let how = match kind {
            EXCHANGE => Renamed::Exchanged,
            WHITEOUT => Renamed::Whiteout(Born::parse(r)?),
            _ => Renamed::Replaced,
        };
        Ok(Rename { from: (from, name(r)?), to: (to, name(r)?), how })
    }

    fn write<'o>(&self, out: &'o mut RecordWriter) -> &'o mut RecordWriter {
        out.u64s(&[self.from.0.get(), self.to.0.get()]);
        if let Renamed::Whiteout(born) = &self.how {
            born.write(out);
        }
        out.name(self.from.1).name(self.to.1)
    }
}

fn parse_write<'a>(kind: u64, r: &mut Reader<'a>, endian: Endian) -> Result<Intent<'a>> {
    let (object, offset, len, _) = (object(r)?, r.u64()?, r.u64()?, r.u64()?);
    let bp = blkptr(r.take(BlkPtr::SIZE)?, endian)?;
    offset.checked_add(len).ok_or_else(|| Error::corrupt("a log record about bytes behind all bytes"))?;
    if kind == EXTEND {
        return Ok(Intent::Extend { object, offset, len });
    }
    let data = match r.rest().is_empty() || len == 0 {
        true => WrittenData::Block(bp),
        false => WrittenData::Here(r.take(usize::try_from(len).unwrap_or(usize::MAX))?),
    };
    Ok(Intent::Write { object, offset, len, data })
}

fn parse_clone<'a>(r: &mut Reader<'a>, endian: Endian) -> Result<Intent<'a>> {
    let (object, offset, len, block_size, count) = (object(r)?, r.u64()?, r.u64()?, r.u64()?, r.u64()?);
    let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(BlkPtr::SIZE));
    let bytes = r.take(bytes.unwrap_or(usize::MAX))?;
    let blocks = bytes.chunks_exact(BlkPtr::SIZE).map(|bytes| blkptr(bytes, endian)).collect::<Result<_>>()?;
    Ok(Intent::Clone { object, offset, len, block_size, blocks })
}
