//! To whom objects belong, and what of that a set counts ([`crate::sync`] does).

use format::dnode::Dnode;

/// Flag of a head: bytes are counted.
pub(crate) const BYTES_COUNTED: u64 = 1 << 0;
/// Flag of a head: objects are counted.
pub(crate) const OBJECTS_COUNTED: u64 = 1 << 1;
/// Flag of a head: projects are counted.
pub(crate) const PROJECTS_COUNTED: u64 = 1 << 2;

/// To whom an object belongs: user, group, and project if it can have one; as numbers of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owners {
    /// User.
    pub user: u64,
    /// Group.
    pub group: u64,
    /// Project; 0 is one, too.
    pub project: u64,
}

/// Tells to whom an object belongs; `None` if to nobody.
pub type OwnersOf = dyn Fn(&Dnode) -> Option<Owners> + Send + Sync;

/// What a set counts beside bytes by user and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountKinds {
    /// Objects.
    pub objects: bool,
    /// By project, too.
    pub projects: bool,
}

impl AccountKinds {
    /// As flags of a head.
    pub(crate) fn flags(self) -> u64 {
        let flag = |is_counted: bool, flag| if is_counted { flag } else { 0 };
        BYTES_COUNTED | flag(self.objects, OBJECTS_COUNTED) | flag(self.projects, PROJECTS_COUNTED)
    }
}

/// The flags of a new head whose bytes are counted by user and group.
pub(crate) fn flags_of_new() -> u64 {
    BYTES_COUNTED
}

/// The flags of a head whose objects are counted.
pub(crate) fn flags_of_objects(by_project: bool) -> u64 {
    OBJECTS_COUNTED | if by_project { PROJECTS_COUNTED } else { 0 }
}

/// Whether a head with these flags counts by project.
pub(crate) fn counts_projects(flags: u64) -> bool {
    flags & PROJECTS_COUNTED != 0
}
