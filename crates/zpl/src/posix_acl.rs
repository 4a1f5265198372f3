//! POSIX access control lists, in the form in which Linux hands them over and OpenZFS stores them.
//!
//! ```text
//!   version 2 u32 | tag u16, permissions u16, id u32 | ...
//! ```
//!
//! The entries are in the order of their tags: owner, users, group, groups, mask, others. The permissions of
//! owner, of the mask (or the group, if there is none) and of others are also those of the file's mode, and
//! change with it.
//!
//! Source: the manual page acl(5), and linux/posix_acl_xattr.h.

use base::{Endian, Error, Kind, Reader, Result};

/// The name of the list of rights to a file.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The name of the list that new files in a directory get.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PosixAclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A list that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PosixAcl(Vec<PosixAclEntry>);

impl PosixAcl {
    /// Reads a list; `None` if it is empty, which stands for none at all. Errors: `Invalid`, `Unsupported`
    /// for another version.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<PosixAcl>> {
        let invalid = || Error::new(Kind::Invalid, "an access control list that makes no sense");
        let mut r = Reader::new(bytes, Endian::Little);
        if r.u32().map_err(|_| invalid())? != VERSION {
            return Err(Error::new(Kind::Unsupported, "an access control list of an unknown version"));
        }
        if !r.rest().len().is_multiple_of(8) {
            return Err(invalid());
        }
        let mut entries = Vec::new();
        while !r.rest().is_empty() {
            entries.push(PosixAclEntry { tag: r.u16()?, permissions: r.u16()?, id: r.u32()? });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = PosixAcl(entries);
        if acl.is_valid() { Ok(Some(acl)) } else { Err(invalid()) }
    }

    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let is_known = |tag| [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].contains(&tag);
        let named = count(USER) + count(GROUP);
        self.0.iter().all(|entry| is_known(entry.tag) && entry.permissions <= 7)
            && self.0.is_sorted_by_key(|entry| entry.tag)
            && (count(USER_OBJ), count(GROUP_OBJ), count(OTHER)) == (1, 1, 1)
            && count(MASK) <= 1
            && (named == 0 || count(MASK) == 1)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.permissions.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    /// The nine permission bits of the mode that goes with it.
    pub(crate) fn mode(&self) -> u32 {
        let of = |tag| self.0.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.permissions));
        let group = of(MASK).or(of(GROUP_OBJ)).unwrap_or(0);
        of(USER_OBJ).unwrap_or(0) << 6 | group << 3 | of(OTHER).unwrap_or(0)
    }

    /// Whether the mode says the same.
    pub(crate) fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// The list after the mode was set.
    pub(crate) fn with_mode(&self, mode: u32) -> PosixAcl {
        let group = if self.0.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OBJ };
        let set = |entry: &PosixAclEntry| PosixAclEntry {
            permissions: match entry.tag {
                USER_OBJ => (mode >> 6 & 7) as u16,
                OTHER => (mode & 7) as u16,
                tag if tag == group => (mode >> 3 & 7) as u16,
                _ => entry.permissions,
            },
            ..*entry
        };
        PosixAcl(self.0.iter().map(set).collect())
    }

    /// What a file of that mode gets in a directory of which this is the default list: its mode, and its
    /// list unless the mode says the same.
    pub(crate) fn inherited(&self, mode: u32) -> (u32, Option<PosixAcl>) {
        let allowed = mode & self.mode() & 0o777;
        let acl = self.with_mode(allowed);
        (mode & !0o777 | allowed, (!acl.is_mode()).then_some(acl))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A list of tags, permissions and ids.
    pub(crate) fn packed(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        PosixAcl(entries.iter().map(|&(tag, permissions, id)| PosixAclEntry { tag, permissions, id }).collect()).bytes()
    }

    const NONE: u32 = u32::MAX;

    #[test]
    fn modes_and_lists_agree() {
        let bytes = packed(&[(1, 7, NONE), (2, 6, 501), (4, 5, NONE), (0x10, 4, NONE), (0x20, 1, NONE)]);
        let acl = PosixAcl::parse(&bytes).unwrap().unwrap();
        assert_eq!((acl.bytes(), acl.mode(), acl.is_mode()), (bytes, 0o741, false));
        let after = acl.with_mode(0o620);
        assert_eq!(after.bytes(), packed(&[(1, 6, NONE), (2, 6, 501), (4, 5, NONE), (0x10, 2, NONE), (0x20, 0, NONE)]));
        let (mode, inherited) = acl.inherited(0o1666);
        assert_eq!((mode, inherited.unwrap().mode()), (0o1640, 0o640));
        let plain = PosixAcl::parse(&packed(&[(1, 7, NONE), (4, 5, NONE), (0x20, 5, NONE)])).unwrap().unwrap();
        assert_eq!(plain.inherited(0o666), (0o644, None));
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(PosixAcl::parse(&packed(&[])).unwrap(), None);
        let bad: [&[(u16, u16, u32)]; 6] = [
            &[(1, 7, 0)],
            &[(1, 7, 0), (4, 8, 0), (0x20, 0, 0)],
            &[(1, 7, 0), (2, 7, 1), (4, 7, 0), (0x20, 0, 0)],
            &[(4, 7, 0), (1, 7, 0), (0x20, 0, 0)],
            &[(1, 7, 0), (4, 7, 0), (0x20, 0, 0), (0x40, 0, 0)],
            &[(1, 7, 0), (1, 7, 0), (4, 7, 0), (0x20, 0, 0)],
        ];
        assert!(bad.iter().all(|entries| PosixAcl::parse(&packed(entries)).is_err()));
        assert!(PosixAcl::parse(&[2, 0, 0, 0, 1]).is_err() && PosixAcl::parse(&[3, 0, 0, 0]).is_err());
    }
}
