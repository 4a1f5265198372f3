//! POSIX ACLs in the form of the kernel's attributes: a version, and entries of tag, rights and id.

pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

pub const USER_OBJ: u16 = 1;
pub const USER: u16 = 2;
pub const GROUP_OBJ: u16 = 4;
pub const MASK: u16 = 0x10;
pub const OTHER: u16 = 0x20;

/// An ACL of entries (tag, rights, id).
pub fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// How far the mode's bits of a tag are to the left; `None` if it has none in this ACL.
fn shift(acl: &[u8], tag: u16) -> Option<u32> {
    let has_mask = acl[4..].chunks(8).any(|entry| entry[0] == MASK as u8);
    match tag {
        USER_OBJ => Some(6),
        MASK => Some(3),
        GROUP_OBJ if !has_mask => Some(3),
        OTHER => Some(0),
        _ => None,
    }
}

/// Changes entries that stand for bits of a mode: `change` takes and returns three bits.
fn for_mode(acl: &mut [u8], mut change: impl FnMut(u32, u32) -> u32) {
    let whole = acl.to_vec();
    for entry in acl[4..].chunks_mut(8) {
        if let Some(shift) = shift(&whole, entry[0].into()) {
            entry[2] = change(shift, entry[2].into()) as u8;
        }
    }
}

/// The permission bits that an ACL stands for.
pub fn mode_of(acl: &[u8]) -> u32 {
    let mut mode = 0;
    for_mode(&mut acl.to_vec(), |shift, rights| {
        mode |= rights << shift;
        rights
    });
    mode
}

/// The ACL after a chmod.
pub fn with_mode(acl: &[u8], mode: u32) -> Vec<u8> {
    let mut acl = acl.to_vec();
    for_mode(&mut acl, |shift, _| mode >> shift & 7);
    acl
}
