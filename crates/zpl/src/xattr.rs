//! Extended attributes, under the names that OpenZFS on Linux shows.
//!
//! They are in one of two places, or some in each: packed into a system attribute, or as files in a
//! directory of the file's own that no path leads to. Linux stores a name with its namespace
//! (`user.colour`, `system.posix_acl_access`); the other systems store user attributes without one, so
//! a name of no known namespace is shown behind `user.`; `freebsd:` marks those of FreeBSD's system
//! namespace, which Linux does not show.

use std::ops::ControlFlow;

use base::{Error, Kind, Result, ResultExt};
use dmu::zap::Zap;
use format::sa::Attr;
use format::xattr;

use crate::node::{Attributes, Node};
use crate::{FileKind, Zpl};

/// Most bytes of a value that are read; Linux hands out no more.
pub(crate) const VALUE_SIZE_MAX: u64 = 64 << 10;
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
    /// As the values of the properties `xattr` and `acltype` say.
    pub fn from_properties(xattr: u64, acltype: u64) -> Visible {
        const XATTR_OFF: u64 = 0;
        const ACLTYPE_POSIX: u64 = 1;
        Visible { user: xattr != XATTR_OFF, posix_acls: acltype == ACLTYPE_POSIX }
    }

    pub(crate) fn shows(self, name: &[u8]) -> bool {
        match name {
            _ if POSIX_ACLS.contains(&name) => self.posix_acls,
            _ if name.starts_with(b"user.") => self.user,
            _ => true,
        }
    }

    /// The name to show for one that is stored; `None` if it is not shown.
    fn shown(self, stored: &[u8]) -> Option<Vec<u8>> {
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

impl Zpl {
    /// The names of all extended attributes, packed ones first.
    pub fn xattr_names(&self, ino: u64) -> Result<Vec<Vec<u8>>> {
        self.placed(ino, self.list_xattrs(ino))
    }

    fn list_xattrs(&self, ino: u64) -> Result<Vec<Vec<u8>>> {
        let _held = self.shared(ino);
        let node = self.node(ino)?;
        let attrs = self.attributes(&node)?;
        let mut names: Vec<Vec<u8>> = Vec::new();
        if let Some(packed) = attrs.bytes(Attr::Dxattr)? {
            let pairs = xattr::unpack(&packed).at_block(node.object().bookmark(0, 0))?;
            names.extend(pairs.iter().filter_map(|(name, _)| self.visible.shown(name)));
        }
        if let Some(dir) = self.xattr_node(&attrs)? {
            Zap::open(dir.into_object())?.for_each_from(0, &mut |entry| {
                names.extend(self.visible.shown(entry.name.bytes()));
                ControlFlow::Continue(())
            })?;
        }
        Ok(names)
    }

    /// The value of an extended attribute. Errors: `NoAttribute`, `TooBig` if it is a file of more than
    /// 64 KiB, those of reading.
    pub fn xattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.placed(ino, self.find_xattr(ino, name))
    }

    fn find_xattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        let _held = self.shared(ino);
        let node = self.node(ino)?;
        let attrs = self.attributes(&node)?;
        for stored in self.visible.stored(name) {
            if let Some(value) = self.xattr_stored(&node, &attrs, stored)? {
                return Ok(value);
            }
        }
        Err(Error::new(Kind::NoAttribute, "no such extended attribute"))
    }

    /// Object number of the directory that holds a file's attributes, if it has one: through it,
    /// attributes of any size can be listed and opened.
    pub fn xattr_dir(&self, ino: u64) -> Result<Option<u64>> {
        let node = self.node(ino)?;
        Ok(self.attributes(&node)?.opt_u64(Attr::Xattr)?.filter(|&dir| dir != 0))
    }

    pub(crate) fn xattr_node(&self, attrs: &Attributes<'_>) -> Result<Option<Node>> {
        match attrs.opt_u64(Attr::Xattr)? {
            None | Some(0) => Ok(None),
            Some(dir) => self.directory(dir).map(Some),
        }
    }

    /// The value that is stored under a name. An attribute is locked with its file, and so are the hidden
    /// directory and what is in it.
    pub(crate) fn xattr_stored(&self, node: &Node, attrs: &Attributes<'_>, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(packed) = attrs.bytes(Attr::Dxattr)? {
            let pairs = xattr::unpack(&packed).at_block(node.object().bookmark(0, 0))?;
            if let Some((_, value)) = pairs.into_iter().find(|(stored, _)| **stored == *name) {
                return Ok(Some(value.into_owned()));
            }
        }
        let Some(dir) = self.xattr_node(attrs)? else { return Ok(None) };
        let Some(file) = self.entry(dir, name)? else { return Ok(None) };
        let file = self.node(file)?;
        let (kind, size) = (self.kind_of(&file)?, self.attributes(&file)?.u64(Attr::Size)?);
        if kind != FileKind::File {
            return Err(Error::new(Kind::Invalid, "an extended attribute that is no file"));
        }
        if size > VALUE_SIZE_MAX {
            return Err(Error::new(Kind::TooBig, format!("extended attribute of {size} bytes")));
        }
        file.object().read_whole(size, VALUE_SIZE_MAX).map(Some)
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
        assert_eq!(names(Visible::from_properties(2, 0)), 2 * 2 + 1);
        assert_eq!(names(Visible::from_properties(0, 1)), 1 + 1);
        assert_eq!(Visible::from_properties(0, 2).stored(b"user.a").count(), 0);
        assert_eq!(Visible::from_properties(0, 2).stored(b"system.posix_acl_access").count(), 0);
    }
}
