//! An operation at work: its transaction, its time, and the locks that it takes.

use base::Result;
use dmu::{Object, Tx};
use format::ids::ObjectId;

use crate::live::{LiveZpl, admit_owners};
use crate::locks::HeldLocks;
use crate::owners::owners;
use crate::zpl::Zpl;

/// An operation at work.
pub(crate) struct Op<'a> {
    zpl: &'a Zpl,
    live: &'a LiveZpl,
    tx: Tx<'a>,
    now: [u64; 2],
}

impl<'a> Op<'a> {
    /// The file system that it changes.
    pub(crate) fn zpl(&self) -> &'a Zpl {
        self.zpl
    }

    pub(crate) fn live(&self) -> &'a LiveZpl {
        self.live
    }

    /// Its transaction.
    pub(crate) fn tx(&self) -> &Tx<'a> {
        &self.tx
    }

    /// Seconds since 1970, nanoseconds.
    pub(crate) fn now(&self) -> [u64; 2] {
        self.now
    }

    /// Locks objects that will be changed.
    pub(crate) fn alone(&self, inos: &[ObjectId]) -> HeldLocks<'a> {
        self.live.locks().alone(inos)
    }
}

impl Zpl {
    /// Begins an operation that will write about so many bytes.
    pub(crate) fn begin(&self, bytes: u64, frees: bool) -> Result<Op<'_>> {
        let live = self.live()?;
        // what was promised had its room
        if !live.is_replaying() {
            live.options().room.admit(bytes, frees)?;
        }
        let tx = live.txgs().begin()?;
        Ok(Op { zpl: self, live, tx, now: live.now() })
    }

    /// Refuses to let a file grow whose owners have used up what they may.
    pub(crate) fn check_owners(&self, object: &Object) -> Result<()> {
        let Some(room) = self.live()?.owner_limits() else { return Ok(()) };
        let owners = owners(object.fresh()?.dnode(), &self.registry());
        owners.map_or(Ok(()), |owners| admit_owners(&*room, &owners, false))
    }
}
