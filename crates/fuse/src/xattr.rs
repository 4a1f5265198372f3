//! Extended attributes: which of them are there, and for whom.

use base::{Error, Kind, Result};

use crate::find::Place;
use crate::reply::Reply;
use crate::session::Session;
use crate::tree::{Source, Tree};
use zpl::XattrMode;

/// Namespaces with rules of their own.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
const TRUSTED_PREFIX: &[u8] = b"trusted.";
const USER_PREFIX: &[u8] = b"user.";

impl<S: Source> Session<S> {
    pub(crate) fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.check_name(name)?;
        match self.place(node)? {
            Place::Object(branch, object) => branch.tree.xattr(object, name),
            Place::Control | Place::Shares | Place::Snapshots => {
                Err(Error::new(Kind::NoAttribute, "no such attribute"))
            }
        }
    }

    /// Names as listxattr(2) returns them, each with a NUL after it.
    pub(crate) fn xattr_list(&self, node: u64, privileged: bool) -> Result<Vec<u8>> {
        let Place::Object(branch, object) = self.place(node)? else { return Ok(Vec::new()) };
        let has_user = self.remountable.has_xattrs();
        let mut list = Vec::new();
        for name in branch.tree.xattr_names(object)? {
            let shown = !name.is_empty()
                && !name.contains(&0)
                && (self.options.posix_acl || !name.starts_with(ACL_PREFIX))
                && (privileged || !name.starts_with(TRUSTED_PREFIX))
                && (has_user || !name.starts_with(USER_PREFIX));
            if shown {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }

    /// `flags` are those of setxattr(2).
    pub(crate) fn set_xattr(&self, node: u64, name: &[u8], value: &[u8], flags: i32, drop_set_gid: bool) -> Result<()> {
        let mode = match flags {
            0 if drop_set_gid => XattrMode::AnyDropSetGid,
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Error::new(Kind::Invalid, "no such kind of setxattr")),
        };
        let object = self.changeable(node)?;
        self.check_name(name)?;
        self.live.tree.set_xattr(object, name, value, mode)?;
        self.attributes_changed(node);
        Ok(())
    }

    pub(crate) fn remove_xattr(&self, node: u64, name: &[u8]) -> Result<()> {
        let object = self.changeable(node)?;
        self.check_name(name)?;
        match self.live.tree.remove_xattr(object, name) {
            // every file has an ACL, if only that of its mode: to remove it is no failure
            Err(error) if error.kind() == Kind::NoAttribute && name.starts_with(ACL_PREFIX) => Ok(()),
            removed => removed,
        }
    }

    /// As in OpenZFS, `xattr=off` is about users' attributes only: capabilities hold, and so do ACLs.
    fn check_name(&self, name: &[u8]) -> Result<()> {
        if name.starts_with(ACL_PREFIX) && !self.options.posix_acl {
            return Err(Error::new(Kind::Unsupported, "acltype is not posix"));
        }
        if name.starts_with(USER_PREFIX) && !self.remountable.has_xattrs() {
            return Err(Error::new(Kind::Unsupported, "xattr is off"));
        }
        Ok(())
    }

    /// The reply to a request for an attribute or for their names: a size, or the bytes if they fit.
    pub(crate) fn reply_xattr(
        &self,
        request: &'static str,
        node: u64,
        size: u32,
        value: Result<Vec<u8>>,
        reply: Reply,
    ) {
        match value {
            Ok(value) if size == 0 => reply.count(u32::try_from(value.len()).unwrap_or(u32::MAX)),
            Ok(value) if value.len() > size as usize => reply.error(libc::ERANGE),
            Ok(value) => reply.bytes(&value),
            // longer than Linux lets any program have
            Err(error) if error.kind() == Kind::TooBig => reply.error(libc::E2BIG),
            Err(error) => reply.error(self.fail(request, node, error)),
        }
    }
}
