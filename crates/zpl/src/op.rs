//! An operation at work: its transaction, its time, and the locks that it takes.

use std::cell::RefCell;

use base::{NameFact, Result};
use dmu::sync::Owners;
use dmu::{Object, Tx};
use format::ids::ObjectId;
use zil::{SettledBy, SyncMode, UnsettledChange};

use crate::live::{LiveZpl, Room, admit_owners, admit_project};
use crate::locks::HeldLocks;
use crate::owners::owners;
use crate::zpl::Zpl;

/// An operation at work.
pub(crate) struct Op<'a> {
    zpl: &'a Zpl,
    live: &'a LiveZpl,
    tx: Tx<'a>,
    now: [u64; 2],
    /// What it changes, if that is noted.
    changes: Option<RefCell<OpChanges>>,
}

/// What an operation has changed so far.
#[derive(Default)]
struct OpChanges {
    objects: Vec<(ObjectId, Option<u64>)>,
    names: Vec<NameFact>,
    by: Option<SettledBy>,
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
        if let Some(changes) = &self.changes {
            changes.borrow_mut().objects.extend(inos.iter().map(|ino| (*ino, None)));
        }
        self.live.locks().alone(inos)
    }

    /// It makes an object.
    pub(crate) fn makes(&self, ino: ObjectId, generation: u64) {
        if let Some(changes) = &self.changes {
            changes.borrow_mut().objects.push((ino, Some(generation)));
        }
    }

    /// It gives a name to an object that was there before.
    pub(crate) fn gives_name(&self, directory: ObjectId, name: &[u8]) {
        if let Some(changes) = &self.changes {
            changes.borrow_mut().names.push(NameFact { directory: directory.get(), name: name.to_vec() });
        }
    }

    /// Says what brings its changes to disk. Without that they are not noted.
    pub(crate) fn settled_by(&self, by: SettledBy) {
        if let Some(changes) = &self.changes {
            changes.borrow_mut().by = Some(by);
        }
    }
}

impl Drop for Op<'_> {
    /// The transaction ends after this.
    fn drop(&mut self) {
        let Some(changes) = self.changes.take().map(RefCell::into_inner) else { return };
        let Some(unsettled) = self.live.log().and_then(|log| log.unsettled()) else { return };
        // it failed, or changed only what nobody counts on: a time of access, what objects without a name take
        let Some(by) = changes.by else { return };
        // it is in the log before it is answered: what a process that dies takes with it nobody was told
        if by != SettledBy::Group && self.live.options().sync == SyncMode::Always {
            return;
        }
        let change = |&(object, born)| UnsettledChange { object, born, by };
        unsettled.note(self.tx.txg(), &changes.objects.iter().map(change).collect::<Vec<UnsettledChange>>());
        if !changes.names.is_empty() {
            unsettled.note_names(self.tx.txg(), changes.names, by);
        }
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
        self.begin_admitted()
    }

    /// The same for one that gives names to objects that are there: a group comes to disk first where no more of them can be
    /// noted.
    pub(crate) fn begin_naming(&self, bytes: u64) -> Result<Op<'_>> {
        let live = self.live()?;
        if live.log().and_then(|log| log.unsettled()).is_some_and(|unsettled| unsettled.is_full_of_names()) {
            live.txgs().wait_synced()?;
        }
        self.begin(bytes, false)
    }

    /// Begins an operation that will write `len` bytes from `offset` on, or as many of them as there is room for, in whole
    /// records. How many that are.
    pub(crate) fn begin_some(&self, offset: u64, len: usize) -> Result<(Op<'_>, usize)> {
        let live = self.live()?;
        let options = live.options();
        let room = match live.is_replaying() {
            true => len,
            false => options.room.admit_some(len as u64, options.record_bytes)? as usize,
        };
        Ok((self.begin_admitted()?, cut_to_records(offset, len, room, options.record_bytes)))
    }

    fn begin_admitted(&self) -> Result<Op<'_>> {
        let live = self.live()?;
        if let Some(log) = live.log().filter(|_| !live.is_replaying()) {
            log.admit()?;
        }
        let tx = live.txgs().begin()?;
        let is_noted = live.log().is_some_and(|log| log.unsettled().is_some()) && !live.is_replaying();
        Ok(Op { zpl: self, live, tx, now: live.now(), changes: is_noted.then(RefCell::default) })
    }

    /// Refuses to let a file grow whose owners have used up what they may.
    pub(crate) fn check_owners(&self, object: &Object) -> Result<()> {
        self.check_limits(object, admit_owners)
    }

    /// Refuses to let a file grow whose project has used up what it may.
    pub(crate) fn check_project(&self, object: &Object) -> Result<()> {
        self.check_limits(object, admit_project)
    }

    fn check_limits(&self, object: &Object, admit: impl Fn(&dyn Room, &Owners, bool) -> Result<()>) -> Result<()> {
        let Some(room) = self.live()?.owner_limits() else { return Ok(()) };
        let owners = owners(object.fresh()?.dnode(), &self.registry());
        owners.map_or(Ok(()), |owners| admit(&*room, &owners, false))
    }
}

/// How many of `len` bytes are written where there is room for `room`: those up to the end of a record, if there is one.
fn cut_to_records(offset: u64, len: usize, room: usize, record_bytes: u64) -> usize {
    if room >= len {
        return len;
    }
    let behind = (offset.saturating_add(room as u64) % record_bytes) as usize;
    if behind < room { room - behind } else { room }
}
