//! An open head: a dataset whose objects may be changed, and what belongs to it while it is open.

use std::sync::Arc;

use base::Result;
use dmu::{Objset, ObjsetPolicy};
use dsl::Level;
use dsl::accounting::{Counted, Owner};
use format::ids::{DatasetId, Txg};
use format::objset::ObjsetType;
use zil::Log;

/// What a head holds, by which it can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// Files.
    Files,
    /// The blocks of a volume.
    Volume,
}

/// What quotas, reservations and the pool leave to a head.
pub(super) trait HeadRoom: Send + Sync {
    /// May about `bytes` more be written? `frees`: by what frees more. Errors: `NoSpace`, `Quota`; `Suspended`.
    fn admit(&self, bytes: u64, frees: bool) -> Result<()>;

    /// How many of `bytes` more may be written, by portions? Errors: as of [`HeadRoom::admit`].
    fn admit_some(&self, bytes: u64, portion: u64) -> Result<u64>;

    /// Whether a user, group or project has a limit.
    fn has_owner_limits(&self) -> Result<bool>;

    /// May more be charged to a user, group or project? Errors: `Quota`.
    fn admit_owner(&self, owner: Owner, counted: Counted, key: u64) -> Result<()>;
}

/// An open head. Clones are the same. When its root is replaced ([`LivePool::replace_root`](super::LivePool)), there is
/// another one, and this one may not be used any more.
#[derive(Clone)]
pub struct Head {
    objset: Arc<Objset>,
    log: Arc<Log>,
    room: Arc<dyn HeadRoom>,
}

impl Head {
    pub(super) fn new(objset: Arc<Objset>, log: Arc<Log>, room: Arc<dyn HeadRoom>) -> Head {
        Head { objset, log, room }
    }

    /// The dataset's object.
    pub fn id(&self) -> DatasetId {
        self.objset.id()
    }

    /// What it holds.
    pub fn kind(&self) -> HeadKind {
        match self.objset.kind() {
            ObjsetType::Zvol => HeadKind::Volume,
            _ => HeadKind::Files,
        }
    }

    /// Its objects.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// Its intent log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// May about `bytes` more be written? `frees`: by what frees more. Errors: `NoSpace`, `Quota`; `Suspended`.
    pub fn admit(&self, bytes: u64, frees: bool) -> Result<()> {
        self.room.admit(bytes, frees)
    }

    /// How many of about `bytes` more may be written: as many as there is room for, but `portion` as long as there is any.
    /// Errors: as of [`Head::admit`] if there is none.
    pub fn admit_some(&self, bytes: u64, portion: u64) -> Result<u64> {
        self.room.admit_some(bytes, portion)
    }

    /// Whether a user, group or project has a limit. Errors: those of reading the pool.
    pub fn has_owner_limits(&self) -> Result<bool> {
        self.room.has_owner_limits()
    }

    /// May more be charged to a user, group or project? Errors: `Quota`; those of reading the pool.
    pub fn admit_owner(&self, owner: Owner, counted: Counted, key: u64) -> Result<()> {
        self.room.admit_owner(owner, counted, key)
    }

    /// Whether there is something to be written in a group.
    pub(super) fn is_dirty(&self, txg: Txg) -> bool {
        self.objset.is_dirty(txg) || self.objset.is_recounting(Some(txg)) || self.log.is_dirty(txg)
    }

    /// Is written and read as properties say from now on. Errors: `ReadOnly`.
    pub(super) fn set_policy(&self, policy: ObjsetPolicy, levels: &Level) -> Result<()> {
        self.objset.set_policy(policy)?;
        dsl::write::set_reads(&self.objset, levels);
        self.log.set_throughput(dsl::write::log_throughput(levels));
        Ok(())
    }
}
