//! Receiving streams: what `zfs receive` asks for.
//!
//! ```text
//!   begin    a task: the dataset that takes what comes, inconsistent
//!   apply    records change its head, group by group; how far it is goes to disk with each
//!   finish   one group: the head of what was there gets another root, and its snapshot is taken
//! ```
//!
//! An end that does not come leaves what was there before, and if that was asked for, a part that can be resumed.

use std::sync::Arc;

use base::{Error, Kind, Result};
use dmu::Objset;
use dsl::receive::{Applier, ApplyHost, StreamReader, owners_by_place};
use dsl::resume::RECEIVE_CHILD;
use dsl::write::{BegunReceive, NewReceive, ReceivePoint, SnapshotFate, feature};
use format::blkptr::BlkPtr;
use format::feature::{PROJECT_QUOTA, USEROBJ_ACCOUNTING};
use format::ids::{DatasetId, Guid, Txg};
use format::objset::ObjsetType;
use format::stream::StreamFeatures;

use zio::OnFailure;

use super::head::Head;
use super::space_check::SpaceCheck;
use super::{LivePool, SyncContext};

/// A receive that has begun. What it brought is given up when it is dropped, unless it was finished.
pub struct Receiving {
    pool: Arc<LivePool>,
    new: NewReceive,
    begun: BegunReceive,
    head: Head,
    resume: Option<ReceivePoint>,
    is_done: bool,
}

impl LivePool {
    /// Begins to receive a stream, or goes on with one that was interrupted. Errors: as from
    /// [`dsl::write::begin_receive`]; `Busy` if it is received already, or what came is being sent.
    pub fn begin_receive(&self, new: &NewReceive) -> Result<Receiving> {
        let pool = self.weak().upgrade().ok_or_else(|| Error::new(Kind::Suspended, "the pool is closed"))?;
        self.remove_leftover(&format!("{}/{RECEIVE_CHILD}", new.target))?;
        self.check_space(SpaceCheck::Normal, 5)?;
        let is_resumed = new.begin.features.has(StreamFeatures::RESUMING);
        let wanted = new.clone();
        let (begun, resume) = self.run(move |context| {
            let (dsl, change) = (context.dsl()?, &context.change);
            let begun = match is_resumed {
                true => dsl::write::resume_receive(change, &dsl, &wanted)?,
                false => dsl::write::begin_receive(change, &dsl, &wanted)?,
            };
            if context.pool.receives().is_active(begun.dataset) {
                return Err(Error::new(Kind::Busy, "destination is being received"));
            }
            if is_resumed && context.pool.kept_snapshots().has(begun.dataset) {
                return Err(Error::new(Kind::Busy, "dataset is busy"));
            }
            let resume = if is_resumed { Some(dsl::write::receive_point(change, begun.dataset)?) } else { None };
            context.open_received(&begun, wanted.kind())?;
            context.pool.receives().begin(begun.dataset);
            let event = if is_resumed { "resume receive" } else { "receive" };
            context.log_dataset_event((&begun.name, begun.dataset), event, " ");
            Ok((begun, resume))
        })?;
        let head = self.heads().get(begun.dataset);
        let head = head.ok_or_else(|| Error::new(Kind::Busy, "the dataset that receives is gone"))?;
        Ok(Receiving { pool, new: new.clone(), begun, head, resume, is_done: false })
    }

    /// Destroys what an interrupted receive has left that can be resumed. Errors: `NotFound` if there is none; `Busy` if
    /// it goes on.
    pub fn abort_receive(&self, target: &str) -> Result<()> {
        let view = self.view();
        let dsl = view.dsl();
        let below = format!("{target}/{RECEIVE_CHILD}");
        let name = if dsl.find_dir(&below).is_ok() { below } else { target.to_owned() };
        let head = dsl.find(&name)?;
        let is_left =
            dsl.subject(&name)?.is_inconsistent() && dsl.dataset_field(&head, "com.delphix:resume_toguid")?.is_some();
        if !is_left {
            let what = format!("'{target}' does not have any resumable receive state to abort");
            return Err(Error::new(Kind::NotFound, what));
        }
        if self.receives().is_active(head.id) {
            return Err(Error::new(Kind::Busy, "dataset is busy"));
        }
        self.destroy_dataset(&name)
    }

    /// Destroys what receives have left that nobody can go on with: those of a process that was killed.
    pub fn destroy_leftovers(&self) -> Result<()> {
        let view = self.view();
        let dsl = view.dsl();
        for dir in dsl.walk()? {
            self.remove_leftover(&format!("{}/{RECEIVE_CHILD}", dir.name))?;
            if dsl.head(&dir)?.phys.flags & format::dsl::DatasetPhys::FLAG_INCONSISTENT != 0 {
                self.remove_leftover(&dir.name)?;
            }
        }
        Ok(())
    }

    /// Destroys a dataset if it is what a receive has left that cannot be resumed, and does not go on.
    fn remove_leftover(&self, name: &str) -> Result<()> {
        let view = self.view();
        let dsl = view.dsl();
        let Ok(head) = dsl.find(name) else { return Ok(()) };
        let is_left = head.phys.flags & format::dsl::DatasetPhys::FLAG_INCONSISTENT != 0
            && dsl.dataset_field(&head, "com.delphix:resume_toguid")?.is_none();
        if !is_left || self.receives().is_active(head.id) {
            return Ok(());
        }
        tracing::info!(name, "what a receive has left is destroyed");
        self.destroy_dataset(name)
    }
}

impl SyncContext<'_> {
    /// Opens the head that takes what comes, without a log; makes its object set if there is none.
    fn open_received(&self, begun: &BegunReceive, kind: ObjsetType) -> Result<()> {
        let (change, pool) = (&self.change, self.pool);
        if pool.heads().get(begun.dataset).is_some() {
            pool.heads().remove(begun.dataset);
        }
        let dsl = self.dsl()?;
        let subject = dsl.subject(&begun.name)?;
        let policy = dsl::write::write_policy(subject.levels(), pool.config().enabled);
        let root: BlkPtr = change.dataset(begun.dataset)?.bp;
        let objset = Objset::open_live(change.mos.cache().clone(), begun.dataset, root, kind, &begun.name, policy)?;
        if objset.kind() != kind {
            return Err(Error::new(Kind::Invalid, "the stream is of another type than the destination"));
        }
        if root.is_hole() && kind == ObjsetType::Zfs && feature::uses(change, USEROBJ_ACCOUNTING)?.is_some() {
            let by_project = feature::uses(change, PROJECT_QUOTA)?.is_some();
            objset.count_objects(by_project);
            feature::use_in(change, begun.dataset, USEROBJ_ACCOUNTING)?;
            if by_project {
                feature::use_in(change, begun.dataset, PROJECT_QUOTA)?;
            }
        }
        // also what has no objects yet is written
        objset.set_log_header([0; 192])?;
        if kind == ObjsetType::Zfs {
            objset.set_owners_of(owners_by_place())?;
        }
        let head = pool.add_head(objset.reading(OnFailure::Fail))?;
        pool.renew_policy(&head, subject.levels())
    }
}

impl Receiving {
    /// The file system or volume that is there already, and has to be frozen while the receive is finished.
    pub fn replaces(&self) -> bool {
        self.begun.head != self.begun.dataset
    }

    /// The name of what gets what comes: it may have been renamed meanwhile. Errors: of reading.
    pub fn target(&self) -> Result<String> {
        self.pool.view().dsl().name_of(self.begun.head)
    }

    /// Applies all records of the stream, whose BEGIN has been read. Errors: as from [`Applier::apply`] and
    /// [`StreamReader::record`].
    pub fn apply_all(&self, reader: &mut StreamReader<'_>) -> Result<()> {
        let sets = (self.head.objset().clone(), self.pool.txgs().clone());
        let begin = (&self.new.begin, self.new.to_guid, reader.endian());
        let mut applier = Applier::new(sets, self, begin, (self.pool.config().enabled, self.resume));
        loop {
            let part = reader.record()?;
            if !applier.apply(part, reader.bytes())? {
                return Ok(());
            }
        }
    }

    /// Ends the receive: the snapshot is there, and the head has what it has. What serves a head that is replaced
    /// ([`Receiving::replaces`]) has to be frozen. Errors: as from [`dsl::write::take_over`] and taking snapshots.
    pub fn finish(mut self) -> Result<()> {
        let pool = self.pool.clone();
        // all that came is on disk, and nothing more will
        pool.sync()?;
        let usable = pool.view().usable_bytes()?;
        let (begun, new) = (self.begun.clone(), self.new.clone());
        match self.replaces() {
            true => self.finish_replaced(begun, new, usable)?,
            false => pool.in_some_group(|pool, _| {
                let (begun, new) = (begun.clone(), new.clone());
                pool.run_last(move |context| context.end_receive(&begun, &new, usable))
            })?,
        }
        self.is_done = true;
        pool.receives().end(self.begun.dataset);
        Ok(())
    }

    /// In one group the head gets what came, and has its snapshot: if the latter cannot be, that group is not written.
    fn finish_replaced(&self, begun: BegunReceive, new: NewReceive, usable: u64) -> Result<()> {
        self.pool.replace_root(begun.head, move |context| {
            let kept: Vec<String> = context.kept_behind(&begun, &new)?;
            if let Some(name) = kept.first() {
                return Err(Error::new(Kind::Busy, format!("{name}: dataset is busy")));
            }
            context.pool.heads().remove(begun.dataset);
            let fates = dsl::write::take_over(&context.change, &context.dsl()?, &begun, &new, usable)?;
            for fate in fates {
                if let SnapshotFate::Destroyed { id, next } = fate {
                    context.pool.scan().destroyed(id, Some(next));
                }
            }
            context.pool.scan().exchanged(begun.dataset, begun.head);
            context.pool.frees().wake();
            // when the head is written without its log
            context.pool.end_in_group(move |context| context.end_replaced(&begun, &new));
            Ok(())
        })
    }
}

impl SyncContext<'_> {
    /// Snapshots that would be destroyed, and are being sent.
    fn kept_behind(&self, begun: &BegunReceive, new: &NewReceive) -> Result<Vec<String>> {
        let (dsl, kept) = (self.dsl()?, self.pool.kept_snapshots());
        let mut names = Vec::new();
        if let Some(origin) = dsl::write::gone_with_clone(&self.change, begun.dataset)?.filter(|id| kept.has(*id)) {
            names.push(dsl.name_of(origin)?);
        }
        if new.force {
            let since = self.change.dataset(begun.dataset)?.prev_snap_txg;
            let head = dsl.dataset(begun.head, &dsl.name_of(begun.head)?)?;
            let later = dsl.snapshots(&head)?.into_iter().filter(|one| one.phys.creation_txg > since);
            names.extend(later.filter(|one| kept.has(one.id)).map(|one| one.name));
        }
        Ok(names)
    }

    /// Takes the snapshot of a head that got another root, and destroys what had that.
    fn end_replaced(&self, begun: &BegunReceive, new: &NewReceive) -> Result<()> {
        let id = dsl::write::end_take_over(&self.change, &self.dsl()?, begun, new)?;
        self.note_received(begun, new, id)?;
        let dsl = self.dsl()?;
        let destroyed = dsl::write::destroy_dataset(&self.change, &dsl, &dsl.name_of(begun.dataset)?)?;
        self.pool.scan().destroyed(begun.dataset, None);
        self.finish_destroyed(destroyed)
    }

    fn end_receive(&self, begun: &BegunReceive, new: &NewReceive, usable: u64) -> Result<Option<()>> {
        let Some(id) = dsl::write::end_receive(&self.change, &self.dsl()?, begun, new, usable)? else {
            return Ok(None);
        };
        // it is opened with its properties when it is used
        self.pool.heads().remove(begun.head);
        self.note_received(begun, new, id).map(Some)
    }

    fn note_received(&self, begun: &BegunReceive, new: &NewReceive, snapshot: DatasetId) -> Result<()> {
        self.pool.scan().snapshotted(self.change.dataset(snapshot)?.next_snap, snapshot);
        let event = format!("snap={}", new.snapshot);
        self.log_dataset_event((&begun.name, begun.dataset), "finish receiving", &event);
        Ok(())
    }
}

impl ApplyHost for Receiving {
    fn sync(&self) -> Result<()> {
        self.pool.sync()
    }

    fn admit(&self, bytes: u64) -> Result<()> {
        self.head.admit(bytes, bytes == 0)
    }

    fn received_before(&self, guid: Guid) -> Result<Arc<Objset>> {
        let view = self.pool.view();
        let dsl = view.dsl();
        for dir in dsl.walk()? {
            let found = dsl.snapshots(&dsl.head(&dir)?)?.into_iter().find(|one| one.phys.guid == guid);
            if let Some(found) = found {
                return dsl.objset(&found, dmu::Mode::Plain);
            }
        }
        Err(Error::corrupt(format!("invalid stream: it refers to a snapshot that is not here, {guid:#x}")))
    }

    fn note(&self, txg: Txg, point: ReceivePoint) {
        if self.new.resumable {
            self.pool.receives().note(self.begun.dataset, txg, point);
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let (pool, id) = (&self.pool, self.begun.dataset);
        // what came so far goes to disk, with how far it is
        let mut outcome = pool.sync();
        pool.heads().remove(id);
        pool.receives().end(id);
        if !self.new.resumable {
            outcome = outcome.and_then(|()| pool.destroy_dataset(&self.begun.name));
        }
        if let Err(error) = outcome {
            tracing::error!(name = self.begun.name, "what was received in part is still there: {error}");
        }
    }
}
