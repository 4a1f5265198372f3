//! Names of extended attributes: how they are stored, and which of them show.
//!
//! Linux stores a name with its namespace (`user.colour`, `system.posix_acl_access`); the other systems store user
//! attributes without one, so a name of no known namespace is shown behind `user.`; `freebsd:` marks those of FreeBSD's
//! system namespace, which Linux does not show.

/// The namespaces that are stored with the name.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
const POSIX_ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// No user attribute of another system begins like this.
const RESERVED: [&[u8]; 5] = [b"freebsd:", b"user.", b"trusted.", b"security.", b"system."];

/// Which extended attributes a file system shows. OpenZFS on Linux makes that depend on properties of
/// the dataset; what is hidden is still on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visible {
    /// Those of users: not if `xattr` is `off`.
    pub user: bool,
    /// POSIX ACLs: only if `acltype` is `posix`.
    pub posix_acls: bool,
}

impl Default for Visible {
    fn default() -> Visible {
        Visible { user: true, posix_acls: true }
    }
}

impl Visible {
    pub(crate) fn shows(self, name: &[u8]) -> bool {
        match name {
            _ if POSIX_ACLS.contains(&name) => self.posix_acls,
            _ if name.starts_with(b"user.") => self.user,
            _ => true,
        }
    }

    /// The name to show for one that is stored; `None` if it is not shown.
    pub(crate) fn shown(self, stored: &[u8]) -> Option<Vec<u8>> {
        let name = if is_linux(stored) { stored.to_vec() } else { [b"user.", stored].concat() };
        (!stored.starts_with(b"freebsd:") && self.shows(&name)).then_some(name)
    }

    /// The names that one that is shown may be stored under.
    pub(crate) fn stored(self, shown: &[u8]) -> impl Iterator<Item = &[u8]> {
        let bare = shown.strip_prefix(b"user.").filter(|bare| !bare.is_empty());
        let bare = bare.filter(|bare| !RESERVED.iter().any(|prefix| bare.starts_with(prefix)));
        let names = is_linux(shown).then_some(shown).into_iter().chain(bare);
        names.filter(move |_| self.shows(shown))
    }
}

/// Whether a name is stored with a namespace of Linux.
pub(crate) fn is_linux(name: &[u8]) -> bool {
    NAMESPACES.iter().any(|prefix| name.starts_with(prefix)) || POSIX_ACLS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expect: &[&str]) {
        let stored: Vec<&[u8]> = Visible::default().stored(name.as_bytes()).collect();
        assert_eq!(stored, expect.iter().map(|name| name.as_bytes()).collect::<Vec<_>>(), "{name}");
    }

    #[test]
    fn names_of_every_system() {
        check("user.colour", &["user.colour", "colour"]);
        check("user.freebsd:system:x", &["user.freebsd:system:x"]);
        check("security.selinux", &["security.selinux"]);
        check("system.posix_acl_access", &["system.posix_acl_access"]);
        check("system.nfs4_acl", &[]);
        check("colour", &[]);

        let shown = |stored: &[u8]| Visible::default().shown(stored);
        assert_eq!(shown(b"colour").unwrap(), b"user.colour");
        assert_eq!(shown(b"user.colour").unwrap(), b"user.colour");
        assert_eq!(shown(b"trusted.overlay.opaque").unwrap(), b"trusted.overlay.opaque");
        assert_eq!(shown(b"system.posix_acl_default").unwrap(), b"system.posix_acl_default");
        assert_eq!(shown(b"freebsd:system:x"), None);
    }

    #[test]
    fn properties_hide() {
        let names = |visible: Visible| {
            let stored: [&[u8]; 4] = [b"user.a", b"b", b"security.c", b"system.posix_acl_access"];
            stored
                .iter()
                .filter_map(|name| visible.shown(name))
                .map(|name| visible.stored(&name).count())
                .sum::<usize>()
        };
        assert_eq!(names(Visible::default()), 2 * 2 + 1 + 1);
        assert_eq!(names(Visible { user: true, posix_acls: false }), 2 * 2 + 1);
        assert_eq!(names(Visible { user: false, posix_acls: true }), 1 + 1);
        assert_eq!(Visible { user: false, posix_acls: false }.stored(b"user.a").count(), 0);
        assert_eq!(Visible { user: false, posix_acls: false }.stored(b"system.posix_acl_access").count(), 0);
    }
}
