//! Requests of extended attributes: which of them are there, and for whom.

use std::sync::Arc;

use base::{Error, Kind, Result};
use export::Parking;
use zpl::{ObjectId, XattrMode};

use crate::faults::FaultLog;
use crate::negotiated::Negotiated;
use crate::opened::OpenFiles;
use crate::repeats::Repeats;
use crate::reply::Reply;
use crate::set_ids::CAPABILITY;
use crate::tree::{FileTree, Source};
use crate::trees::{NodePlace, Trees};
use crate::wire::{InHeader, RequestBody, SETXATTR_ACL_KILL_SGID};
use crate::write_back::WriteBack;

/// Namespaces with rules of their own.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
const TRUSTED_PREFIX: &[u8] = b"trusted.";
const USER_PREFIX: &[u8] = b"user.";

/// Answers the requests of extended attributes.
pub(crate) struct XattrRequests<S: Source> {
    pub(crate) trees: Arc<Trees<S>>,
    pub(crate) files: Arc<OpenFiles<S>>,
    pub(crate) faults: Arc<FaultLog<S>>,
    pub(crate) parking: Arc<Parking>,
    pub(crate) negotiated: Arc<Negotiated>,
    pub(crate) write_back: Arc<WriteBack>,
    pub(crate) repeats: Arc<Repeats>,
}

/// Stands for an attribute that is there, as an object.
const PRESENT: ObjectId = ObjectId::new(1);

impl<S: Source> XattrRequests<S> {
    /// GETXATTR.
    pub(crate) fn getxattr(&self, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let size = body.u32()?;
        body.skip(4)?;
        self.answer_bytes("getxattr", header.node, size, self.xattr(header.node, body.name()?), reply);
        Ok(())
    }

    /// LISTXATTR.
    pub(crate) fn listxattr(&self, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let list = self.xattr_list(header.node, header.uid == 0);
        self.answer_bytes("listxattr", header.node, body.u32()?, list, reply);
        Ok(())
    }

    /// SETXATTR.
    pub(crate) fn setxattr(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (node, size, flags) = (header.node, body.u32()?, body.u32()?.cast_signed());
        let mut more_flags = 0;
        if self.negotiated.has_setxattr_ext() {
            more_flags = body.u32()?;
            body.skip(4)?;
        }
        let drop_set_gid = more_flags & SETXATTR_ACL_KILL_SGID != 0;
        let (name, value) = (body.name()?.to_vec(), body.bytes(size as usize)?.to_vec());
        let (reply, before) = self.repeats.begin(reply, || self.presence(node, &name));
        // one that made it before sets it now
        let flags = if before == Some(ObjectId::NONE) { flags & !libc::XATTR_CREATE } else { flags };
        let (xattrs, is_capability) = (self.clone(), name == CAPABILITY);
        let answer = move || {
            let work = move |xattrs: &Self| xattrs.set_xattr(node, &name, &value, flags, drop_set_gid);
            let answer = move |xattrs: &Self, done| xattrs.faults.answer_done("setxattr", node, done, reply);
            xattrs.parking.change(&xattrs, work, answer);
        };
        match is_capability {
            // the request of a page that was stored into before would take it away
            true => self.write_back.before(node, 0, answer),
            false => answer(),
        }
        Ok(())
    }

    /// REMOVEXATTR.
    pub(crate) fn removexattr(
        self: &Arc<Self>,
        header: &InHeader,
        mut body: RequestBody<'_>,
        reply: Reply,
    ) -> Result<()> {
        let (node, pid, name) = (header.node, header.pid, body.name()?.to_vec());
        let (reply, before) = self.repeats.begin(reply, || self.presence(node, &name));
        let work = move |xattrs: &Self| match xattrs.remove_xattr(node, pid, &name) {
            Err(error) if error.kind() == Kind::NoAttribute && before == Some(PRESENT) => Ok(()),
            removed => removed,
        };
        self.parking
            .change(self, work, move |xattrs, done| xattrs.faults.answer_done("removexattr", node, done, reply));
        Ok(())
    }

    /// Whether an attribute is there.
    fn presence(&self, node: u64, name: &[u8]) -> ObjectId {
        if self.xattr(node, name).is_ok() { PRESENT } else { ObjectId::NONE }
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        if name.starts_with(ACL_PREFIX) && !self.trees.remountable().has_acls() {
            // the kernel may ask for the sake of permissions, and takes any other error for its own
            return Err(Error::new(Kind::NoAttribute, "acltype is not posix"));
        }
        self.check_name(name)?;
        match self.trees.place(node)? {
            NodePlace::Object(branch, object) => branch.tree.xattr(object, name),
            NodePlace::Control | NodePlace::Shares | NodePlace::Snapshots => {
                Err(Error::new(Kind::NoAttribute, "no such attribute"))
            }
        }
    }

    /// Names as listxattr(2) returns them, each with a NUL after it.
    fn xattr_list(&self, node: u64, privileged: bool) -> Result<Vec<u8>> {
        let NodePlace::Object(branch, object) = self.trees.place(node)? else { return Ok(Vec::new()) };
        let (has_user, has_acls) = (self.trees.remountable().has_xattrs(), self.trees.remountable().has_acls());
        let mut list = Vec::new();
        for name in branch.tree.xattr_names(object)? {
            let shown = !name.is_empty()
                && !name.contains(&0)
                && (has_acls || !name.starts_with(ACL_PREFIX))
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
    fn set_xattr(&self, node: u64, name: &[u8], value: &[u8], flags: i32, drop_set_gid: bool) -> Result<()> {
        let mode = match flags {
            0 if drop_set_gid => XattrMode::AnyDropSetGid,
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Error::new(Kind::Invalid, "no such kind of setxattr")),
        };
        let object = self.trees.changeable(node)?;
        self.check_name(name)?;
        self.trees.live().tree.set_xattr(object, name, value, mode)?;
        self.files.attributes_changed(node);
        Ok(())
    }

    fn remove_xattr(&self, node: u64, pid: u32, name: &[u8]) -> Result<()> {
        let object = self.trees.changeable(node)?;
        self.check_name(name)?;
        match self.trees.live().tree.remove_xattr(object, name) {
            // every file has an ACL, if only that of its mode: to remove it is no failure
            Err(error) if error.kind() == Kind::NoAttribute && name.starts_with(ACL_PREFIX) => Ok(()),
            removed => {
                if name == CAPABILITY {
                    self.files.capability_removed(node, pid);
                }
                removed
            }
        }
    }

    /// As in OpenZFS, `xattr=off` is about users' attributes only: capabilities hold, and so do ACLs.
    fn check_name(&self, name: &[u8]) -> Result<()> {
        if name.starts_with(ACL_PREFIX) && !self.trees.remountable().has_acls() {
            return Err(Error::new(Kind::Unsupported, "acltype is not posix"));
        }
        if name.starts_with(USER_PREFIX) && !self.trees.remountable().has_xattrs() {
            return Err(Error::new(Kind::Unsupported, "xattr is off"));
        }
        Ok(())
    }

    /// The reply to a request for an attribute or for their names: a size, or the bytes if they fit.
    fn answer_bytes(&self, request: &'static str, node: u64, size: u32, value: Result<Vec<u8>>, reply: Reply) {
        match value {
            Ok(value) if size == 0 => reply.count(u32::try_from(value.len()).unwrap_or(u32::MAX)),
            Ok(value) if value.len() > size as usize => reply.error(libc::ERANGE),
            // longer than Linux lets any program have
            Err(error) if error.kind() == Kind::TooBig => reply.error(libc::E2BIG),
            value => self.faults.answer(request, node, value, reply, |reply, value| reply.bytes(&value)),
        }
    }
}
