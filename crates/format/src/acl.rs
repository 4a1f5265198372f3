//! NFSv4 access control lists as file systems store them, and their compact text.
//!
//! ```text
//!  version 0, 12 bytes:  a_who u32 | mask u32 | flags u16 | type u16
//!
//!  version 1:            type u16 | flags u16 | mask u32          of owner@, group@ and everyone@
//!                        ... and a_who u64                        of users and groups
//!                        ... and 32 bytes of two GUIDs            of the object types 5 to 8
//! ```
//!
//! The text is that of `ls -V` and `getfacl`: the user or group, the permissions `rwxpdDaARWcCos`, the inheritance
//! flags `fdinSFI`, and the type.
//!
//! Source: the published ZFS on-disk specification, chapter 6, RFC 7530, and the behaviour of OpenZFS.

use std::fmt;

use base::{Endian, Error, Reader, Result};

use crate::znode::{ACL_AT, Znode, ZnodeAcl, split_fuid};

const OWNER: u16 = 0x1000;
const GROUP: u16 = 0x2000;
const EVERYONE: u16 = 0x4000;
const IDENTIFIER_GROUP: u16 = 0x0040;
/// It does not count for the directory itself.
const INHERIT_ONLY: u16 = 0x8;
/// Files or directories that are made get it.
const INHERITED: u16 = 0x1 | 0x2;
const OWNING_GROUP: u16 = GROUP | IDENTIFIER_GROUP;
const WHO_MASK: u16 = OWNER | GROUP | EVERYONE | IDENTIFIER_GROUP;
/// The types that carry GUIDs.
const OBJECT_TYPES: std::ops::RangeInclusive<u16> = 5..=8;

/// An access control list, in the order in which it is evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Acl {
    /// Its entries.
    pub entries: Vec<Ace>,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ace {
    /// 0 allow, 1 deny, 2 audit, 3 alarm; others are seen only by SMB servers.
    pub kind: u16,
    /// Inheritance and audit flags, and the bits that say for which kind of owner it is.
    pub flags: u16,
    /// The permissions that are allowed or denied.
    pub mask: u32,
    /// Whom it is about.
    pub who: Who,
}

/// Whom an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The owner of the file.
    Owner,
    /// The group of the file.
    OwningGroup,
    /// Everyone, the owner included.
    Everyone,
    /// A user: see [`split_fuid`].
    User(u64),
    /// A group: see [`split_fuid`].
    Group(u64),
}

impl Acl {
    /// Reads all entries in `bytes`; `version` is that of the ACL, 0 or 1.
    pub fn parse(version: u16, bytes: &[u8]) -> Result<Acl> {
        let mut r = Reader::new(bytes, Endian::Little);
        let mut entries = Vec::new();
        while !r.rest().is_empty() {
            entries.push(match version {
                0 => Ace::parse_v0(&mut r)?,
                1 => Ace::parse_v1(&mut r)?,
                _ => return Err(Error::corrupt(format!("ACL of version {version}"))),
            });
        }
        Ok(Acl { entries })
    }

    /// The list that says no more than the permission bits of `mode`. New files have it, and the flag
    /// [`FLAG_ACL_TRIVIAL`](crate::znode::FLAG_ACL_TRIVIAL).
    ///
    /// ```text
    /// owner@     allow   what only the owner and everyone else have, but not the group
    /// owner@     deny    what group or everyone have, but not the owner
    /// group@     deny    what everyone has, but not the group
    /// owner@, group@, everyone@ allow
    /// ```
    ///
    /// The first three are there only if they say something.
    pub fn trivial(mode: u32, is_directory: bool) -> Acl {
        let write = WRITE | if is_directory { DELETE_CHILD } else { 0 };
        let mask_of = |bits: u32| {
            [READ, write, EXECUTE]
                .iter()
                .zip([4, 2, 1])
                .fold(0, |mask, (permission, bit)| if bits & bit != 0 { mask | permission } else { mask })
        };
        let (owner, group, everyone) = (mode >> 6 & 7, mode >> 3 & 7, mode & 7);
        let ace = |kind, who, mask| {
            let flags = match who {
                Who::Owner => OWNER,
                Who::OwningGroup => OWNING_GROUP,
                _ => EVERYONE,
            };
            Ace { kind, flags, mask, who }
        };
        let exceptions = [
            ace(ALLOW, Who::Owner, mask_of(owner & !group & everyone)),
            ace(DENY, Who::Owner, mask_of(!owner & (group | everyone))),
            ace(DENY, Who::OwningGroup, mask_of(!group & everyone)),
        ];
        let rule = [
            ace(ALLOW, Who::Owner, mask_of(owner) | ALWAYS | OWNER_ALWAYS),
            ace(ALLOW, Who::OwningGroup, mask_of(group) | ALWAYS),
            ace(ALLOW, Who::Everyone, mask_of(everyone) | ALWAYS),
        ];
        Acl { entries: exceptions.into_iter().filter(|ace| ace.mask != 0).chain(rule).collect() }
    }

    /// The entries as [`Acl::parse`] reads them with version 1, the one that is written. Panics on entries of
    /// object types, whose GUIDs are not kept.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for ace in &self.entries {
            assert!(!OBJECT_TYPES.contains(&ace.kind), "an ACL entry of type {} is written", ace.kind);
            out.extend_from_slice(&ace.kind.to_le_bytes());
            out.extend_from_slice(&ace.flags.to_le_bytes());
            out.extend_from_slice(&ace.mask.to_le_bytes());
            match ace.who {
                Who::User(fuid) | Who::Group(fuid) => out.extend_from_slice(&fuid.to_le_bytes()),
                _ if ace.kind > DENY => out.extend_from_slice(&u64::MAX.to_le_bytes()),
                _ => {}
            }
        }
        out
    }

    /// The entries as [`Acl::parse`] reads them with version 0; of users and groups only the lower half of their ids.
    pub fn old_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for ace in &self.entries {
            let who = match ace.who {
                Who::User(fuid) | Who::Group(fuid) => split_fuid(fuid).0,
                _ => u32::MAX,
            };
            out.extend_from_slice(&who.to_le_bytes());
            out.extend_from_slice(&ace.mask.to_le_bytes());
            out.extend_from_slice(&ace.flags.to_le_bytes());
            out.extend_from_slice(&ace.kind.to_le_bytes());
        }
        out
    }

    /// Puts it into the bonus buffer of a file with a fixed znode, in place of the ACL that is there: in form `version`, 0 or
    /// 1. False, and nothing is changed, if it is too long.
    pub fn put_into_znode(&self, bonus: &mut [u8], version: u16) -> bool {
        let bytes = if version == 0 { self.old_bytes() } else { self.bytes() };
        if bytes.len() > ZnodeAcl::EMBEDDED_SIZE || bonus.len() < Znode::SIZE {
            return false;
        }
        let size = if version == 0 { self.entries.len() } else { bytes.len() };
        let place = &mut bonus[ACL_AT..Znode::SIZE];
        place.fill(0);
        place[8..12].copy_from_slice(&(size as u32).to_le_bytes());
        place[12..14].copy_from_slice(&version.to_le_bytes());
        place[14..16].copy_from_slice(&(self.entries.len() as u16).to_le_bytes());
        place[16..16 + bytes.len()].copy_from_slice(&bytes);
        true
    }

    /// The permission bits that `stat` tells of a file with this list that `owner` and `group` have, and whether nobody is
    /// denied to execute it. The first entry about a permission counts, and of permissions without one nobody has any.
    pub fn mode(&self, owner: u64, group: u64) -> (u32, bool) {
        let (mut seen, mut mode, mut is_denied) = (0, 0, false);
        for ace in self.entries.iter().filter(|ace| ace.kind <= DENY && ace.flags & INHERIT_ONLY == 0) {
            let classes: &[u32] = match ace.who {
                Who::Owner => &[6],
                Who::User(id) if id == owner => &[6],
                Who::OwningGroup => &[3],
                Who::Group(id) if id == group => &[3],
                Who::Everyone => &[6, 3, 0],
                Who::User(_) | Who::Group(_) => {
                    is_denied |= ace.kind == DENY && ace.mask & EXECUTE != 0;
                    continue;
                }
            };
            let bits = [(READ, 4), (WRITE_DATA, 2), (EXECUTE, 1)]
                .iter()
                .fold(0, |bits, (permission, bit)| if ace.mask & permission != 0 { bits | bit } else { bits });
            for class in classes {
                let new = bits << class & !seen;
                seen |= new;
                mode |= if ace.kind == ALLOW { new } else { 0 };
            }
        }
        (mode, !is_denied && mode & 0o111 == 0o111)
    }

    /// The text, one entry a line; `domain` names the domain of a number that is not 0.
    pub fn text(&self, domain: &dyn Fn(u32) -> Option<String>) -> String {
        self.entries.iter().map(|ace| ace.text(domain) + "\n").collect()
    }
}

impl Ace {
    /// An entry; `fuid` tells which user or group, if the flags do not say that it is about another one.
    pub fn new(kind: u16, flags: u16, mask: u32, fuid: u64) -> Ace {
        Ace { kind, flags, mask, who: is_special(flags).unwrap_or_else(|| named(flags, fuid)) }
    }

    /// Is it inherited by what is made in its directory?
    pub fn is_inherited(&self) -> bool {
        self.flags & INHERITED != 0
    }

    fn parse_v0(r: &mut Reader<'_>) -> Result<Ace> {
        let (who, mask, flags, kind) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
        Ok(Ace::new(kind, flags, mask, who.into()))
    }

    fn parse_v1(r: &mut Reader<'_>) -> Result<Ace> {
        let (kind, flags, mask) = (r.u16()?, r.u16()?, r.u32()?);
        let special = is_special(flags).filter(|_| kind <= 1);
        let who = match special {
            Some(who) => who,
            None => {
                let fuid = r.u64()?;
                if OBJECT_TYPES.contains(&kind) {
                    r.take(32)?;
                }
                is_special(flags).unwrap_or_else(|| named(flags, fuid))
            }
        };
        Ok(Ace { kind, flags, mask, who })
    }

    fn text(&self, domain: &dyn Fn(u32) -> Option<String>) -> String {
        let id = |fuid| match split_fuid(fuid) {
            (id, 0) => id.to_string(),
            (id, number) => format!("{}-{id}", domain(number).unwrap_or_else(|| format!("domain{number}"))),
        };
        let who = match self.who {
            Who::Owner => "owner@".to_owned(),
            Who::OwningGroup => "group@".to_owned(),
            Who::Everyone => "everyone@".to_owned(),
            Who::User(fuid) => format!("user:{}", id(fuid)),
            Who::Group(fuid) => format!("group:{}", id(fuid)),
        };
        let letters = |bits: u32, letters: &[(char, u32)]| -> String {
            letters.iter().map(|&(letter, bit)| if bits & bit != 0 { letter } else { '-' }).collect()
        };
        let kind = match self.kind {
            0 => "allow".to_owned(),
            1 => "deny".to_owned(),
            2 => "audit".to_owned(),
            3 => "alarm".to_owned(),
            other => format!("type{other}"),
        };
        format!("{who}:{}:{}:{kind}", letters(self.mask, &PERMISSIONS), letters(self.flags.into(), &FLAGS))
    }
}

impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&|_| None))
    }
}

/// read, write, execute, append, delete, delete child, read and write attributes, read and write named
/// attributes, read and write the ACL, change the owner, synchronize.
const PERMISSIONS: [(char, u32); 14] = [
    ('r', 0x1),
    ('w', 0x2),
    ('x', 0x20),
    ('p', 0x4),
    ('d', 0x1_0000),
    ('D', 0x40),
    ('a', 0x80),
    ('A', 0x100),
    ('R', 0x8),
    ('W', 0x10),
    ('c', 0x2_0000),
    ('C', 0x4_0000),
    ('o', 0x8_0000),
    ('s', 0x10_0000),
];

const ALLOW: u16 = 0;
const DENY: u16 = 1;
const READ: u32 = 0x1;
const WRITE: u32 = WRITE_DATA | 0x4;
const WRITE_DATA: u32 = 0x2;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
/// Whatever the mode, all may read the ACL and both kinds of attributes, and synchronize ...
const ALWAYS: u32 = 0x2_0000 | 0x80 | 0x8 | 0x10_0000;
/// ... and the owner may write them, and change the owner.
const OWNER_ALWAYS: u32 = 0x4_0000 | 0x100 | 0x10 | 0x8_0000;

/// To files, to directories, only to inherit, not further, audit success, audit failure, was inherited.
const FLAGS: [(char, u32); 7] = [('f', 0x1), ('d', 0x2), ('i', 0x8), ('n', 0x4), ('S', 0x10), ('F', 0x20), ('I', 0x80)];

fn is_special(flags: u16) -> Option<Who> {
    match flags & WHO_MASK {
        OWNER => Some(Who::Owner),
        OWNING_GROUP => Some(Who::OwningGroup),
        EVERYONE => Some(Who::Everyone),
        _ => None,
    }
}

fn named(flags: u16, fuid: u64) -> Who {
    if flags & IDENTIFIER_GROUP != 0 { Who::Group(fuid) } else { Who::User(fuid) }
}

/// Reads and prints `bytes` as a list of either version; for tests with hostile bytes.
pub fn fuzz(bytes: &[u8]) {
    for version in [0, 1] {
        if let Ok(acl) = Acl::parse(version, bytes) {
            let _ = acl.to_string();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v1(kind: u16, flags: u16, mask: u32, rest: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &flags.to_le_bytes(), &mask.to_le_bytes(), rest].concat()
    }

    #[test]
    fn both_versions() {
        let bytes = [
            v1(0, OWNER, 0x1e_01bf, &[]),
            v1(1, 0x3, 0x2, &(5u64 << 32 | 501).to_le_bytes()),
            v1(6, IDENTIFIER_GROUP | 0x80, 0x1, &[&20u64.to_le_bytes()[..], &[9; 32]].concat()),
            v1(0, OWNING_GROUP, 0x1, &[]),
            v1(2, EVERYONE | 0x30, 0, &[0; 8]),
        ]
        .concat();
        let acl = Acl::parse(1, &bytes).unwrap();
        assert_eq!(acl.entries[1].who, Who::User(5 << 32 | 501));
        let domain = |number| (number == 5).then(|| "S-1-5-21".to_owned());
        assert_eq!(
            acl.text(&domain),
            "owner@:rwxp--aARWcCos:-------:allow\n\
             user:S-1-5-21-501:-w------------:fd-----:deny\n\
             group:20:r-------------:------I:type6\n\
             group@:r-------------:-------:allow\n\
             everyone@:--------------:----SF-:audit\n"
        );
        assert!(acl.to_string().contains("user:domain5-501:"));
        assert!(Acl::parse(1, &bytes[..bytes.len() - 1]).is_err());

        let old =
            [&70u32.to_le_bytes()[..], &4u32.to_le_bytes(), &[8, 0, 1, 0], &[0; 4], &[1, 0, 0, 0], &[0, 0x40, 0, 0]];
        assert_eq!(
            Acl::parse(0, &old.concat()).unwrap().to_string(),
            "user:70:---p----------:--i----:deny\neveryone@:r-------------:-------:allow\n"
        );
        assert!(Acl::parse(2, &[0; 8]).is_err());
        assert_eq!(Acl::parse(7, &[]).unwrap(), Acl::default());
    }

    #[test]
    fn what_a_mode_says() {
        let text = |mode, is_directory| Acl::trivial(mode, is_directory).to_string();
        assert_eq!(
            text(0o100644, false),
            "owner@:rw-p--aARWcCos:-------:allow\n\
             group@:r-----a-R-c--s:-------:allow\n\
             everyone@:r-----a-R-c--s:-------:allow\n"
        );
        assert_eq!(
            text(0o705, true),
            "owner@:r-x-----------:-------:allow\n\
             group@:r-x-----------:-------:deny\n\
             owner@:rwxp-DaARWcCos:-------:allow\n\
             group@:------a-R-c--s:-------:allow\n\
             everyone@:r-x---a-R-c--s:-------:allow\n"
        );
        assert!(text(0o070, false).starts_with("owner@:rwxp----------:-------:deny\nowner@:------aARWcCos:"));
        for mode in 0..0o1000 {
            let acl = Acl::trivial(mode, mode % 2 == 0);
            assert_eq!(Acl::parse(1, &acl.bytes()).unwrap(), acl, "{mode:o}");
        }
        let named = |flags, who| Ace { kind: 2, flags, mask: 7, who };
        let acl = Acl {
            entries: vec![named(IDENTIFIER_GROUP, Who::Group(9)), named(OWNER, Who::Owner), named(3, Who::User(5))],
        };
        assert_eq!(Acl::parse(1, &acl.bytes()).unwrap(), acl);
    }

    #[test]
    fn what_mode_a_list_says() {
        for mode in 0..0o1000 {
            let acl = Acl::trivial(mode, mode % 2 == 0);
            assert_eq!(acl.mode(5, 6), (mode, mode & 0o111 == 0o111), "{mode:o}");
        }
        let deny = |flags, mask, id| Ace::new(DENY, flags, mask, id);
        let all = Acl::trivial(0o777, false).entries;
        let with = |ace: Ace| Acl { entries: [vec![ace], all.clone()].concat() };
        assert_eq!(with(deny(0, 0x20, 9)).mode(5, 6), (0o777, false), "another user");
        assert_eq!(with(deny(0, 0x22, 5)).mode(5, 6), (0o477, false), "the owner by its number");
        assert_eq!(with(deny(IDENTIFIER_GROUP, 0x1, 6)).mode(5, 6), (0o737, true), "the group by its number");
        assert_eq!(with(deny(EVERYONE | INHERIT_ONLY, 0x1, 0)).mode(5, 6), (0o777, true));
        assert_eq!(with(deny(EVERYONE, 0x1, 0)).mode(5, 6), (0o333, true));
        assert_eq!(Acl::default().mode(5, 6), (0, false));
    }

    #[test]
    fn any_bytes_at_all() {
        let noise: Vec<u8> = (0..400u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        (0..noise.len()).for_each(|len| fuzz(&noise[..len]));
    }
}
