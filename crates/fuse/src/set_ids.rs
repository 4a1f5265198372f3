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
//! So a SETATTR of nothing is obeyed if the asker could write the file, as far as its mode tells; the request that
//! follows does it in any case. An exec goes by the mode that the kernel keeps: a request whose reply holds no mode has it
//! forgotten, before the reply.

use base::{Kind, Result};
use zpl::{FileKind, ObjectId, SetAttr, Stat};

use crate::tree::FileTree;
use crate::wire::InHeader;

/// What lets a program do more than its user may.
const CAPABILITY: &[u8] = b"security.capability";
/// Bits of a set of capabilities.
const CAP_FSETID: u32 = 4;
pub(crate) const CAP_FOWNER: u32 = 3;
pub(crate) const CAP_LINUX_IMMUTABLE: u32 = 9;

/// Takes a file's capabilities away.
pub(crate) fn drop_capability(tree: &impl FileTree, object: ObjectId) -> Result<()> {
    match tree.xattr(object, CAPABILITY) {
        Ok(_) => tree.remove_xattr(object, CAPABILITY),
        Err(error) if error.kind() == Kind::NoAttribute => Ok(()),
        Err(error) => Err(error),
    }
}

/// The task that asks for something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Asker {
    pub(crate) fn of(header: &InHeader) -> Asker {
        Asker { uid: header.uid, gid: header.gid, pid: header.pid }
    }

    /// Is it that user?
    pub(crate) fn is(self, uid: u32) -> bool {
        self.uid == uid
    }

    pub(crate) fn keeps_set_ids(self) -> bool {
        self.has(CAP_FSETID)
    }

    /// Has it a capability? It waits for our answer, so that does not change. A task that cannot be seen has none.
    pub(crate) fn has(self, capability: u32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set >> capability & 1 == 1)
    }

    /// May it write a file, as far as the mode tells?
    pub(crate) fn may_write(self, stat: &Stat) -> bool {
        let group = self.gid == stat.gid && stat.mode & libc::S_IWGRP != 0;
        self.uid == 0 || self.uid == stat.uid || group || stat.mode & libc::S_IWOTH != 0
    }
}

/// The bits of a file's mode that a write or a new owner takes away: set-group-id without the group's
/// right to execute is no such thing, but an old sign for mandatory locks.
fn set_id_bits(mode: u32) -> u32 {
    let group = if mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
    mode & (libc::S_ISUID | group)
}

/// Does `stat` have set-id bits that count?
pub(crate) fn has_set_ids(stat: &Stat) -> bool {
    stat.kind != FileKind::Directory && set_id_bits(stat.mode) != 0
}

/// The change that takes them away.
pub(crate) fn without_set_ids(stat: &Stat) -> SetAttr {
    SetAttr { mode: Some(stat.mode & !set_id_bits(stat.mode)), ..SetAttr::default() }
}
