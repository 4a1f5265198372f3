//! Records about attributes and access control lists.
//!
//! ```text
//!   11  attributes   object | which u64 | mode | owner | group | size | last access: seconds, nanoseconds
//!                    | last modification, likewise | [more attributes] | domains of the owners
//!
//!       more         words of the mask u32 | mask: which, u32 each | their values, the same bits u64
//!                    | birth time: seconds, nanoseconds | 32 bytes of a virus scanner, or project number u64, 0 ...
//!
//!   12  old ACL      object | number of entries | entries
//!   13  ACL          object | list
//!
//!       list         number of entries | of domains | of owners | bytes of the entries | flags
//!                    | entries, up to a multiple of 8 bytes | owners u64 each | domains
//!       entry        a_who u32 | mask u32 | flags u16 | type u16 | GUIDs (32), of types 5 to 8
//! ```
//!
//! Which attributes: the bits that Linux has for them; FreeBSD has others, so its records of this type make
//! no sense on Linux, nor here.

use base::{Endian, Error, Reader, Result};
use format::ids::ObjectId;

use super::fields::{RecordWriter, domains, object};

const MODE: u64 = 1 << 0;
const UID: u64 = 1 << 1;
const GID: u64 = 1 << 2;
const SIZE: u64 = 1 << 3;
const ATIME: u64 = 1 << 4;
const MTIME: u64 = 1 << 5;
const EXTRA: u64 = 1 << 31;
/// Words that a mask has at most: there are 3.
const MASK_WORDS_MAX: u32 = 16;
/// Words of a mask that is written.
const MASK_WORDS: usize = 3;
/// The types of entries that carry GUIDs.
const OBJECT_TYPES: std::ops::RangeInclusive<u16> = 5..=8;

/// Attributes that were set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedSetAttr<'a> {
    /// Of which object.
    pub object: ObjectId,
    /// Permissions; the type bits, if any, mean nothing.
    pub mode: Option<u64>,
    /// Owner; the upper half may say which domain.
    pub uid: Option<u64>,
    /// Group, likewise.
    pub gid: Option<u64>,
    /// Bytes of the file.
    pub size: Option<u64>,
    /// Last access: seconds since 1970, nanoseconds.
    pub atime: Option<[u64; 2]>,
    /// Last modification, likewise.
    pub mtime: Option<[u64; 2]>,
    /// More attributes.
    pub extra: Option<Extra>,
    /// Names of the domains that its owners are of.
    pub domains: Vec<&'a [u8]>,
}

/// Attributes that only some systems have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Which are set: bits of [`Extra`].
    pub which: u32,
    /// The values of those that are flags.
    pub values: u64,
    /// Time of birth: seconds since 1970, nanoseconds.
    pub crtime: [u64; 2],
    /// What a virus scanner left.
    pub stamp: [u8; 32],
    /// The project, in the byte order of the record.
    pub project: u64,
}

impl Extra {
    /// The time of birth.
    pub const CRTIME: u32 = 0x1;
    /// DOS attribute.
    pub const ARCHIVE: u32 = 0x2;
    /// DOS attribute.
    pub const SYSTEM: u32 = 0x4;
    /// DOS attribute.
    pub const READONLY: u32 = 0x8;
    /// DOS attribute.
    pub const HIDDEN: u32 = 0x10;
    /// Cannot be unlinked.
    pub const NOUNLINK: u32 = 0x20;
    /// Cannot be changed.
    pub const IMMUTABLE: u32 = 0x40;
    /// Can only be appended to.
    pub const APPENDONLY: u32 = 0x80;
    /// Is not to be dumped.
    pub const NODUMP: u32 = 0x100;
    /// Changed since a virus scanner looked at it.
    pub const AV_MODIFIED: u32 = 0x800;
    /// The stamp of a virus scanner.
    pub const STAMP: u32 = 0x1000;
    /// New files of the directory get its project.
    pub const PROJINHERIT: u32 = 0x2_0000;
    /// The project.
    pub const PROJECT: u32 = 0x4_0000;

    pub(super) fn parse(r: &mut Reader<'_>, endian: Endian) -> Result<Extra> {
        let words = r.u32()?;
        if words == 0 || words > MASK_WORDS_MAX {
            return Err(Error::corrupt(format!("log record with a mask of {words} words")));
        }
        let which = r.u32()?;
        // the others mean nothing yet
        r.take(4 * (words as usize - 1))?;
        let (values, crtime) = (r.u64()?, [r.u64()?, r.u64()?]);
        let mut stamp = [0; 32];
        stamp.copy_from_slice(r.take(32)?);
        let project = endian.u64(&stamp).unwrap_or_default();
        match which & Extra::PROJECT {
            0 => Ok(Extra { which, values, crtime, stamp, project: 0 }),
            _ => Ok(Extra { which, values, crtime, stamp: [0; 32], project }),
        }
    }

    pub(super) fn write(&self, out: &mut RecordWriter) {
        let mut mask = [0; MASK_WORDS];
        mask[0] = self.which;
        out.raw(&(MASK_WORDS as u32).to_le_bytes());
        let out = mask.iter().fold(out, |out, word: &u32| out.raw(&word.to_le_bytes()));
        out.u64s(&[self.values, self.crtime[0], self.crtime[1]]);
        match self.which & Extra::PROJECT {
            0 => out.raw(&self.stamp),
            _ => out.u64s(&[self.project, 0, 0, 0]),
        };
    }
}

impl<'a> LoggedSetAttr<'a> {
    pub(super) fn parse(r: &mut Reader<'a>, endian: Endian) -> Result<LoggedSetAttr<'a>> {
        let (object, which) = (object(r)?, r.u64()?);
        let (mode, uid, gid, size) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let (atime, mtime) = ([r.u64()?, r.u64()?], [r.u64()?, r.u64()?]);
        let has = |bit: u64| which & bit != 0;
        let extra = if has(EXTRA) { Some(Extra::parse(r, endian)?) } else { None };
        let (uid, gid) = (has(UID).then_some(uid), has(GID).then_some(gid));
        let domains = domains(r, domain_count(uid.unwrap_or(0), gid.unwrap_or(0)))?;
        Ok(LoggedSetAttr {
            object,
            mode: has(MODE).then_some(mode),
            uid,
            gid,
            size: has(SIZE).then_some(size),
            atime: has(ATIME).then_some(atime),
            mtime: has(MTIME).then_some(mtime),
            extra,
            domains,
        })
    }

    pub(super) fn write<'o>(&self, out: &'o mut RecordWriter) -> &'o mut RecordWriter {
        let bit = |bit: u64, is_set: bool| if is_set { bit } else { 0 };
        let which = bit(MODE, self.mode.is_some())
            | bit(UID, self.uid.is_some())
            | bit(GID, self.gid.is_some())
            | bit(SIZE, self.size.is_some())
            | bit(ATIME, self.atime.is_some())
            | bit(MTIME, self.mtime.is_some())
            | bit(EXTRA, self.extra.is_some());
        out.u64s(&[self.object.get(), which]);
        out.u64s(&[self.mode, self.uid, self.gid, self.size].map(Option::unwrap_or_default));
        out.u64s(&self.atime.unwrap_or_default()).u64s(&self.mtime.unwrap_or_default());
        self.extra.iter().for_each(|extra| extra.write(out));
        self.domains.iter().fold(out, |out, domain| out.name(domain))
    }
}

/// How many domains a record has for these owners.
pub(super) fn domain_count(uid: u64, gid: u64) -> u64 {
    let (of_uid, of_gid) = (uid >> 32, gid >> 32);
    u64::from(of_uid != 0) + u64::from(of_gid != 0 && of_gid != of_uid)
}

/// An access control list, as programs have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedAcl {
    /// Its flags.
    pub flags: u64,
    /// Its entries.
    pub entries: Vec<AclEntry>,
    /// Owners of domains that entries name, in their order.
    pub owners: Vec<u64>,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// A user or group; nothing for the owner, the file's group and everyone.
    pub who: u32,
    /// Permissions.
    pub mask: u32,
    /// Flags.
    pub flags: u16,
    /// 0 allow, 1 deny, ...
    pub kind: u16,
    /// GUIDs, of types that have them.
    pub guids: Option<[u8; 32]>,
}

/// The fixed part of a list.
pub(super) struct AclHead {
    domains: u64,
    owners: u64,
    bytes: u64,
    flags: u64,
}

impl AclHead {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<AclHead> {
        let _entries = r.u64()?;
        Ok(AclHead { domains: r.u64()?, owners: r.u64()?, bytes: r.u64()?, flags: r.u64()? })
    }

    /// What follows the head: the list, and names of domains.
    pub(super) fn rest<'a>(&self, r: &mut Reader<'a>) -> Result<(LoggedAcl, Vec<&'a [u8]>)> {
        let end = (r.rest().len() as u64).checked_sub(self.bytes);
        let end = end.ok_or_else(|| Error::corrupt("an ACL in a log record does not end"))?;
        let mut entries = Vec::new();
        while r.rest().len() as u64 > end {
            entries.push(AclEntry::parse(r)?);
        }
        if (r.rest().len() as u64) < end {
            return Err(Error::corrupt("an ACL in a log record ends within an entry"));
        }
        r.take((self.bytes.wrapping_neg() % 8) as usize)?;
        // each takes 8 bytes
        let count = self.owners.min(r.rest().len() as u64 / 8 + 1);
        let owners = (0..count).map(|_| r.u64()).collect::<Result<_>>()?;
        Ok((LoggedAcl { flags: self.flags, entries, owners }, domains(r, self.domains)?))
    }
}

impl AclEntry {
    fn parse(r: &mut Reader<'_>) -> Result<AclEntry> {
        let (who, mask, flags, kind) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
        let guids = if OBJECT_TYPES.contains(&kind) { r.take(32)?.first_chunk().copied() } else { None };
        Ok(AclEntry { who, mask, flags, kind, guids })
    }

    fn write(&self, out: &mut RecordWriter) {
        out.raw(&self.who.to_le_bytes()).raw(&self.mask.to_le_bytes());
        out.raw(&self.flags.to_le_bytes()).raw(&self.kind.to_le_bytes());
        out.raw(self.guids.as_ref().map_or(&[], |guids| guids));
    }
}

impl LoggedAcl {
    pub(super) fn parse<'a>(r: &mut Reader<'a>) -> Result<(LoggedAcl, Vec<&'a [u8]>)> {
        AclHead::parse(r)?.rest(r)
    }

    pub(super) fn parse_v0(r: &mut Reader<'_>) -> Result<LoggedAcl> {
        let count = r.u64()?.min(r.rest().len() as u64 / 12 + 1);
        let entries = (0..count).map(|_| AclEntry::parse(r)).collect::<Result<_>>()?;
        Ok(LoggedAcl { flags: 0, entries, owners: Vec::new() })
    }

    /// The list, with other attributes behind its head.
    pub(super) fn write<'o>(
        &self,
        domains: &[&[u8]],
        extra: Option<&Extra>,
        out: &'o mut RecordWriter,
    ) -> &'o mut RecordWriter {
        let mut entries = RecordWriter(Vec::new());
        self.entries.iter().for_each(|entry| entry.write(&mut entries));
        let counts = [self.entries.len(), domains.len(), self.owners.len(), entries.0.len()];
        out.u64s(&counts.map(|count| count as u64)).u64s(&[self.flags]);
        extra.iter().for_each(|extra| extra.write(out));
        entries.0.resize(entries.0.len().next_multiple_of(8), 0);
        out.raw(&entries.0).u64s(&self.owners);
        domains.iter().fold(out, |out, domain| out.name(domain))
    }
}
