//! When set-id bits and capabilities go: what was written by somebody else must not run with their rights.
//!
//! With `HANDLE_KILLPRIV_V2` the kernel leaves them to us. How it says that the asker may not keep set-id bits, as it
//! lacks `CAP_FSETID`, depends on the request:
//!
//! ```text
//!   WRITE, CREATE, SETATTR of size or owner   a flag
//!   before a WRITE into pages that it keeps,  a SETATTR that changes nothing, as FUSE has no word for ATTR_KILL_SUID;
//!     FALLOCATE, COPY_FILE_RANGE              it takes the reply's mode for what it keeps
//!   chown(2) that changes no owner            the same, without a look at whose file it is
//!   FALLOCATE, COPY_FILE_RANGE themselves     nothing: /proc tells
//! ```
//!
//! So a SETATTR of nothing is obeyed if the asker could write the file, as far as its mode tells, or may change its
//! mode, as chown(2) asks; the request that follows does it in any case. Root's, after a capability was removed, comes
//! from a write, and root keeps set-id bits.
//!
//! The bit of set-group-id without the group's right to execute was once a sign for mandatory locks. Linux has it go as
//! well if the asker is not in the group.
//!
//! Tasks have capabilities in a user namespace, and anybody can make one where he has all. Only those in the namespace of
//! this process count, and `CAP_FOWNER` for the files of users that the asker's namespace has. An exec goes by the mode that the kernel keeps: a request whose reply holds no mode has it
//! forgotten, before the reply.

use base::{Kind, Result};
use zpl::{FileKind, ObjectId, SetAttr, Stat};

use crate::asker::Asker;
use crate::tree::FileTree;

/// What lets a program do more than its user may.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// Takes a file's capabilities away.
pub(crate) fn drop_capability(tree: &impl FileTree, object: ObjectId) -> Result<()> {
    match tree.xattr(object, CAPABILITY) {
        Ok(_) => tree.remove_xattr(object, CAPABILITY),
        Err(error) if error.kind() == Kind::NoAttribute => Ok(()),
        Err(error) => Err(error),
    }
}

/// The bits of a file's mode that a write or a new owner takes away: of set-group-id without the group's right to
/// execute, only from an asker outside of the group.
fn set_id_bits(stat: &Stat, asker: Asker) -> u32 {
    let keeps_group = || stat.mode & libc::S_IXGRP == 0 && asker.may_give_group(stat);
    let group = if stat.mode & libc::S_ISGID != 0 && !keeps_group() { libc::S_ISGID } else { 0 };
    stat.mode & libc::S_ISUID | group
}

/// Does `stat` have set-id bits that a change may take away?
pub(crate) fn has_set_ids(stat: &Stat) -> bool {
    stat.kind != FileKind::Directory && stat.mode & (libc::S_ISUID | libc::S_ISGID) != 0
}

/// The change by an asker that takes them away.
pub(crate) fn without_set_ids(stat: &Stat, asker: Asker) -> SetAttr {
    SetAttr { mode: Some(stat.mode & !set_id_bits(stat, asker)), ..SetAttr::default() }
}
