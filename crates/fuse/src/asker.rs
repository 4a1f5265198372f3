//! The task that asks for something: its user, its groups and its capabilities, as `/proc` tells them.
//!
//! ```text
//!   status            groups, effective capabilities
//!   ns/user           its user namespace, if this process may look there
//!   uid_map gid_map   else: the same as ours, which only root of our namespace can give to another one
//! ```
//!
//! What cannot be read gives no right. The task waits for our answer, so none of it changes meanwhile.

use std::fs;
use std::os::unix::fs::MetadataExt;

use zpl::Stat;

use crate::wire::InHeader;

/// Bits of a set of capabilities.
pub(crate) const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_FSETID: u32 = 4;
const CAP_FOWNER: u32 = 3;
pub(crate) const CAP_LINUX_IMMUTABLE: u32 = 9;

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

    /// This process.
    pub(crate) fn own() -> Asker {
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        Asker { uid, gid, pid: std::process::id() }
    }

    pub(crate) fn is_root(self) -> bool {
        self.uid == 0
    }

    pub(crate) fn pid(self) -> u32 {
        self.pid
    }

    pub(crate) fn keeps_set_ids(self) -> bool {
        self.has(CAP_FSETID)
    }

    /// Has it a capability, in our user namespace?
    pub(crate) fn has(self, capability: u32) -> bool {
        self.is_effective(capability) && self.is_in_our_namespace()
    }

    /// May it do what an owner may?
    pub(crate) fn is_owner(self, stat: &Stat) -> bool {
        let has_user = || self.is_in_our_namespace() || self.maps("uid_map", stat.uid);
        self.uid == stat.uid || self.is_effective(CAP_FOWNER) && has_user()
    }

    /// May it have set-group-id on a file?
    pub(crate) fn may_give_group(self, stat: &Stat) -> bool {
        let has_owners = || self.maps("uid_map", stat.uid) && self.maps("gid_map", stat.gid);
        self.is_in_group(stat.gid) || self.is_effective(CAP_FSETID) && (self.is_in_our_namespace() || has_owners())
    }

    /// May it write a file, as far as the mode tells?
    pub(crate) fn may_write(self, stat: &Stat) -> bool {
        let may_group = || stat.mode & libc::S_IWGRP != 0 && self.is_in_group(stat.gid);
        self.uid == 0 || self.uid == stat.uid || stat.mode & libc::S_IWOTH != 0 || may_group()
    }

    /// Is its user namespace that of this process?
    pub(crate) fn is_in_our_namespace(self) -> bool {
        let identity = |of: &str| fs::metadata(format!("/proc/{of}/ns/user")).map(|at| (at.dev(), at.ino())).ok();
        let task = self.pid.to_string();
        match (identity(&task), identity("self")) {
            (Some(its), Some(ours)) => its == ours,
            // a process without CAP_SYS_PTRACE may not look at those of others
            _ => ["uid_map", "gid_map"].iter().all(|map| {
                let ours = read("self", map);
                !ours.trim().is_empty() && read(&task, map) == ours
            }),
        }
    }

    /// Has its user namespace all users under their own numbers, as that of the machine has?
    pub(crate) fn has_all_users(self) -> bool {
        read(&self.pid.to_string(), "uid_map").split_whitespace().eq(["0", "0", "4294967295"])
    }

    fn is_in_group(self, gid: u32) -> bool {
        let is_gid = |word: &str| word.parse() == Ok(gid);
        self.gid == gid || self.status("Groups:").is_some_and(|groups| groups.split_whitespace().any(is_gid))
    }

    fn is_effective(self, capability: u32) -> bool {
        let set = self.status("CapEff:").and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.is_some_and(|set| set >> capability & 1 == 1)
    }

    /// Has its user namespace, which is another one than ours, a name for a user or group of ours?
    fn maps(self, map: &str, id: u32) -> bool {
        read(&self.pid.to_string(), map).lines().any(|line| is_in_extent(line, id))
    }

    fn status(self, field: &str) -> Option<String> {
        let status = read(&self.pid.to_string(), "status");
        status.lines().find_map(|line| line.strip_prefix(field)).map(str::to_owned)
    }
}

/// Does a line of uid_map or gid_map have a number of ours: the first in the namespace, the first of ours, how many?
fn is_in_extent(line: &str, id: u32) -> bool {
    let words: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
    match words.as_deref() {
        Some([_, first, count]) => u64::from(id).checked_sub(*first).is_some_and(|at| at < *count),
        _ => false,
    }
}

fn read(task: &str, name: &str) -> String {
    fs::read_to_string(format!("/proc/{task}/{name}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_of_a_user_namespace() {
        let line = "         0       1000         10";
        assert_eq!([999, 1000, 1009, 1010, 0].map(|id| is_in_extent(line, id)), [false, true, true, false, false]);
        assert!(is_in_extent("0 0 4294967295", 7) && !is_in_extent("0 0", 0) && !is_in_extent("", 0));
    }

    #[test]
    fn a_task_that_is_not_there_has_no_rights() {
        let asker = Asker { uid: 1000, gid: 1000, pid: u32::MAX };
        assert!(!asker.is_in_our_namespace() && !asker.keeps_set_ids() && !asker.is_in_group(0));
        let ours = Asker { pid: std::process::id(), ..asker };
        assert!(ours.is_in_our_namespace());
    }
}
