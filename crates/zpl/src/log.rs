//! What the intent log is told of an operation, within its transaction.
//!
//! ```text
//!   names    create, link, remove, rename     in order for all: any fsync brings all that happened so far to disk
//!   object   write, truncate, attributes      in order for one object: an fsync of it does
//! ```
//!
//! What OpenZFS 2.1 could not replay, but for clones of blocks, which it cannot have, is told as something that cannot be logged, and a commit that needs it waits
//! for its group. So does what would show a file in a state that it never had: a file that inherits an ACL,
//! which is an extended attribute, is not there without it.
//!
//! A file without a name is not logged: it is gone after a crash. One that never had a name and gets one has
//! been written to in the same group or earlier ones, which are on disk when that name is promised.

use std::sync::Arc;

use base::{Result, UserOp};
use dmu::Object;
use format::ids::ObjectId;
use format::sa::Attr;
use zil::{Born, Create, Intent, Itx, ItxBody, Made, Scope, SettledBy, SyncMode, Unsettled};

use crate::change::NewKind;
use crate::nodes::{Attributes, FileNode};
use crate::op::Op;
use crate::zpl::Zpl;

impl Zpl {
    /// Brings all that was changed to disk. Errors: `ReadOnly`, `Suspended`.
    pub fn sync(&self) -> Result<()> {
        self.objset().note_request(UserOp::Sync, ObjectId::NONE, (0, 0));
        self.commit(ObjectId::NONE)
    }

    /// Brings what was changed in an object to disk, and all changes of names. Errors: `ReadOnly`, `Suspended`.
    pub fn sync_object(&self, ino: ObjectId) -> Result<()> {
        self.objset().note_request(UserOp::Sync, ino, (0, 0));
        self.commit(ino)
    }

    fn commit(&self, ino: ObjectId) -> Result<()> {
        let live = self.live()?;
        match (live.log(), live.options().sync) {
            (_, SyncMode::Disabled) => Ok(()),
            (Some(log), _) => log.commit(ino),
            (None, _) => live.txgs().wait_synced(),
        }
    }

    /// Has changes noted there that a crash would take back, from now on and for good. Errors: `ReadOnly`.
    pub fn keep_unsettled(&self, unsettled: &Arc<Unsettled>) -> Result<()> {
        if let Some(log) = self.live()?.log() {
            log.keep_unsettled(unsettled.clone());
        }
        Ok(())
    }

    /// With `sync=always`, brings the change of an object to disk that gave this result.
    pub(crate) fn settled<T>(&self, ino: ObjectId, result: Result<T>) -> Result<T> {
        let done = result?;
        match self.live() {
            Ok(live) if live.options().sync == SyncMode::Always && !live.is_replaying() => self.commit(ino)?,
            _ => {}
        }
        Ok(done)
    }
}

impl Op<'_> {
    fn log(&self, scope: Scope, body: impl FnOnce() -> ItxBody) {
        if let Some(log) = self.live().log() {
            self.settled_by(if scope == Scope::Names { SettledBy::AnyCommit } else { SettledBy::ItsCommit });
            log.push(self.tx(), Itx { scope, body: body() });
        }
    }

    /// Tells of names that changed.
    pub(crate) fn log_names(&self, intent: &Intent<'_>) {
        self.log(Scope::Names, || record(intent));
    }

    /// Tells of names that changed in a way that no record can tell.
    pub(crate) fn names_unlogged(&self) {
        self.log(Scope::Names, || ItxBody::Unloggable);
    }

    /// Tells of a change of an object, if it has a name.
    pub(crate) fn log_object(&self, object: &Object, intent: Option<&Intent<'_>>) -> Result<()> {
        if self.live().log().is_none() {
            return Ok(());
        }
        match self.named(object)? {
            Some(_) => self.log(Scope::Object(object.id()), || intent.map_or(ItxBody::Unloggable, record)),
            None => self.settled_by(SettledBy::Group),
        }
        Ok(())
    }

    /// Tells of bytes that were written to an object; without a generation, it has no name.
    pub(crate) fn log_write(&self, object: ObjectId, generation: Option<u64>, offset: u64, len: u64) {
        match generation {
            _ if len == 0 => {}
            Some(generation) => {
                self.log(Scope::Object(object), || ItxBody::Write { object, generation, offset, len, data: None });
            }
            None => self.settled_by(SettledBy::Group),
        }
    }

    /// What was told of an object is not needed any more, as it has lost its last name.
    pub(crate) fn log_removed(&self, ino: Option<ObjectId>) {
        if let (Some(log), Some(ino)) = (self.live().log(), ino) {
            log.removed(ino);
        }
    }

    /// Tells of a new file. One that inherits an ACL cannot be told of.
    pub(crate) fn log_create(&self, dir: ObjectId, name: &[u8], kind: NewKind<'_>, object: &Object) -> Result<()> {
        if self.live().log().is_none() {
            return Ok(());
        }
        let node = self.zpl().node_of(object.fresh()?)?;
        let attrs = self.zpl().attributes(&node)?;
        let has_xattrs =
            attrs.bytes(Attr::Dxattr)?.is_some() || attrs.opt_u64(Attr::Xattr)?.is_some_and(|dir| dir != 0);
        if has_xattrs {
            drop(attrs);
            self.names_unlogged();
            return Ok(());
        }
        let (crtime_s, crtime_ns) = attrs.time(Attr::Crtime)?;
        let born = Born {
            object: object.id(),
            slots: object.dnode().slots as u8,
            mode: attrs.u64(Attr::Mode)?,
            uid: attrs.u64(Attr::Uid)?,
            gid: attrs.u64(Attr::Gid)?,
            generation: attrs.u64(Attr::Gen)?,
            crtime: [crtime_s as u64, crtime_ns.into()],
            rdev: attrs.opt_u64(Attr::Rdev)?.unwrap_or(0),
        };
        drop(attrs);
        let made = match kind {
            NewKind::Directory => Made::Directory,
            NewKind::Symlink(target) => Made::Symlink(target),
            _ => Made::File,
        };
        // owners of domains come from directories that are shared with Windows only
        if (born.uid | born.gid) >> 32 != 0 {
            self.names_unlogged();
            return Ok(());
        }
        self.log_names(&Intent::Create(Create { made, dir, born, name, extra: None, acl: None, domains: Vec::new() }));
        Ok(())
    }

    /// The generation of an object that has a name.
    pub(crate) fn named(&self, object: &Object) -> Result<Option<u64>> {
        let node: FileNode = self.zpl().node_of(object.fresh()?)?;
        generation_of_named(&self.zpl().attributes(&node)?)
    }
}

/// The generation of an object that has a name, from its attributes.
pub(crate) fn generation_of_named(attrs: &Attributes<'_>) -> Result<Option<u64>> {
    Ok(if attrs.u64(Attr::Links)? > 0 { Some(attrs.u64(Attr::Gen)?) } else { None })
}

fn record(intent: &Intent<'_>) -> ItxBody {
    ItxBody::Record { kind: intent.kind(), bytes: intent.bytes() }
}
