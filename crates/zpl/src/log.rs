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

use base::{Data, Result, UserOp};
use dmu::Object;
use format::ids::ObjectId;
use format::sa::Attr;
use zil::{
    Born, Create, Intent, Itx, ItxBody, Made, MemoryLog, OperationDetails, Scope, SettledBy, SyncMode, Unsettled,
};

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

    /// Whether nothing was lost with the process before, though it was not on disk.
    pub fn has_lost_nothing(&self) -> bool {
        self.memory_log().is_some_and(|memory| memory.is_whole(self.objset().id()))
    }

    /// Whether what is changed now outlives the process, as the log in memory has it.
    pub fn outlives_process(&self) -> bool {
        self.memory_log().is_some_and(|memory| memory.covers(self.objset().id()))
    }

    fn memory_log(&self) -> Option<&Arc<MemoryLog>> {
        self.live().ok()?.log()?.memory()
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

/// An object, as the log knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedObject {
    pub(crate) id: ObjectId,
    generation: u64,
    pub(crate) has_name: bool,
}

impl LoggedObject {
    /// The object with these attributes.
    pub(crate) fn of(id: ObjectId, attrs: &Attributes<'_>) -> Result<LoggedObject> {
        Ok(LoggedObject { id, generation: attrs.u64(Attr::Gen)?, has_name: attrs.u64(Attr::Links)? > 0 })
    }
}

impl Op<'_> {
    /// Tells the log, and, with details, the log in memory.
    fn log(&self, entry: Itx, details: Option<OperationDetails<'_>>) {
        if let Some(log) = self.live().log() {
            let is_names = entry.scope == Scope::Names;
            self.settled_by(if is_names { SettledBy::AnyCommit } else { SettledBy::ItsCommit });
            log.push_with(self.tx(), entry, details);
        }
    }

    /// Tells of a change of an object. Only the log in memory is told of those without a name.
    fn log_of(&self, object: LoggedObject, body: ItxBody, details: Option<OperationDetails<'_>>) {
        let entry = Itx { scope: Scope::Object(object.id), body };
        if object.has_name {
            return self.log(entry, details);
        }
        self.settled_by(SettledBy::Group);
        if let Some(log) = self.live().log() {
            log.keep(self.tx(), &entry, details);
        }
    }

    fn details(&self, generation: u64) -> OperationDetails<'_> {
        OperationDetails { generation, ..OperationDetails::of_names(self.now()) }
    }

    /// Tells of names that changed.
    pub(crate) fn log_names(&self, intent: &Intent<'_>) {
        let made = match intent {
            Intent::Create(create) => create.born.object,
            _ => ObjectId::NONE,
        };
        let entry = Itx { scope: Scope::Names, body: record(intent) };
        self.log(entry, Some(OperationDetails { made, ..self.details(0) }));
    }

    /// Tells of names that changed in a way that no record can tell, or, with `kept`, only one of the log in memory.
    pub(crate) fn names_unlogged(&self, kept: Option<&Intent<'_>>) {
        let details = kept.map(|intent| OperationDetails { intent: Some(intent), ..self.details(0) });
        self.log(Itx { scope: Scope::Names, body: ItxBody::Unloggable }, details);
    }

    /// Tells of an object that was made or changed without a name, which no record can tell.
    pub(crate) fn nameless_unlogged(&self, id: ObjectId) {
        self.log_of(LoggedObject { id, generation: 0, has_name: false }, ItxBody::Unloggable, None);
    }

    /// Tells of a change of an object.
    pub(crate) fn log_object(&self, object: &Object, intent: &Intent<'_>) -> Result<()> {
        self.log_change(object, || record(intent), Some)
    }

    /// Tells of a change of an object that no record can tell, or, with `kept`, only one of the log in memory.
    pub(crate) fn object_unlogged(&self, object: &Object, kept: Option<&Intent<'_>>) -> Result<()> {
        let with = |details| kept.map(|intent| OperationDetails { intent: Some(intent), ..details });
        self.log_change(object, || ItxBody::Unloggable, with)
    }

    /// Tells of blocks that an object shares with others from now on. The log in memory keeps no blocks, so it has a gap.
    pub(crate) fn log_clone(&self, object: &Object, intent: Option<&Intent<'_>>) -> Result<()> {
        self.log_change(object, || intent.map_or(ItxBody::Unloggable, record), |_| None)
    }

    fn log_change<'a>(
        &'a self,
        object: &Object,
        body: impl FnOnce() -> ItxBody,
        details: impl FnOnce(OperationDetails<'a>) -> Option<OperationDetails<'a>>,
    ) -> Result<()> {
        if self.live().log().is_some() {
            let logged = self.as_logged(object)?;
            self.log_of(logged, body(), details(self.details(logged.generation)));
        }
        Ok(())
    }

    /// Tells of bytes that were written to an object.
    pub(crate) fn log_write(&self, object: LoggedObject, offset: u64, data: Data<'_>) {
        let LoggedObject { id, generation, .. } = object;
        if !data.is_empty() {
            let body = ItxBody::Write { object: id, generation, offset, len: data.len() as u64, data: None };
            self.log_of(object, body, Some(OperationDetails { data, ..self.details(generation) }));
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
            self.names_unlogged(None);
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
            self.names_unlogged(None);
            return Ok(());
        }
        self.log_names(&Intent::Create(Create { made, dir, born, name, extra: None, acl: None, domains: Vec::new() }));
        Ok(())
    }

    /// An object, as the log knows it.
    pub(crate) fn as_logged(&self, object: &Object) -> Result<LoggedObject> {
        let node: FileNode = self.zpl().node_of(object.fresh()?)?;
        LoggedObject::of(object.id(), &self.zpl().attributes(&node)?)
    }
}

fn record(intent: &Intent<'_>) -> ItxBody {
    ItxBody::Record { kind: intent.kind(), bytes: intent.bytes() }
}
