//! An open volume: reading and changing the blocks of a disk.
//!
//! ```text
//!   write    room ─▶ transaction: blocks, entry of the log        in steps, each of which is one transaction
//!   discard  whole blocks become holes, as OpenZFS has it; portions of very many go in several groups
//!   zero     the same, and what is left at both ends is overwritten with zeros
//!   flush    the log is committed                                 unless sync=disabled; of each change with sync=always
//! ```
//!
//! What overlaps while it is done may come in any order, as on any disk. Only a change of the size has the volume alone.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Data, Error, Kind, Piece, Result, ResultExt, RwLock, UserOp};
use dmu::zap::{Editor, Zap, ZapValue};
use dmu::{Object, Objset, Tx, Txgs};
use format::blkptr::BlkPtr;
use format::ids::ObjectId;
use format::objset::ObjsetType;
use format::volume;
use zil::{
    Intent, Itx, ItxBody, Log, OperationDetails, Record, Replayed, Scope, SettledBy, SyncMode, Unsettled,
    UnsettledChange,
};

use crate::create::check_size;
use crate::logged::LoggedBlocks;
use crate::replay::{Redo, redo};
use crate::used::VolumeCounters;

/// Bytes that are written in one transaction, at most.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes that a change without data takes, roughly.
const CHANGE_BYTES: u64 = 4 << 10;

/// May about so many bytes more be written? With `true` by what frees more. Errors: `NoSpace`, `Quota`, `Suspended`.
pub type Admit = dyn Fn(u64, bool) -> Result<()> + Send + Sync;

/// Whether something was lost that is to be told now.
type HasLost = dyn Fn() -> bool + Send + Sync;

/// A volume, or a snapshot of one.
pub struct Zvol {
    data: Object,
    block_size: u64,
    size: Arc<AtomicU64>,
    used: Arc<VolumeCounters>,
    /// What is needed to change it, if it may be changed.
    live: Option<LiveVolume>,
}

/// What is needed to change a volume.
struct LiveVolume {
    txgs: Arc<Txgs>,
    log: Arc<Log>,
    admit: Box<Admit>,
    sync: RwLock<SyncMode>,
    /// Property `readonly`.
    is_read_only: AtomicBool,
    /// Held alone by what changes the size.
    sizing: RwLock<()>,
    is_replaying: AtomicBool,
    /// As which object changes are noted that are not on disk, if they are.
    noted_as: OnceLock<ObjectId>,
    /// Whether changes were lost that programs were told are done: true once.
    has_lost: OnceLock<Box<HasLost>>,
    /// What the log reads.
    _logged: Arc<LoggedBlocks>,
}

impl Zvol {
    /// The volume in `objset`, to be read. Errors: `Invalid` if it is none, `Encrypted`, those of reading it.
    pub fn open(objset: &Arc<Objset>) -> Result<Zvol> {
        Zvol::read_objects(objset).in_dataset(objset.name())
    }

    fn read_objects(objset: &Arc<Objset>) -> Result<Zvol> {
        if objset.kind() != ObjsetType::Zvol {
            return Err(Error::new(Kind::Invalid, "dataset is not a volume"));
        }
        if objset.is_locked() {
            return Err(Error::new(Kind::Encrypted, "dataset is encrypted"));
        }
        let data = objset.object(volume::DATA)?;
        let size = Zap::open(objset.object(volume::PROPERTIES)?)?.require_u64(volume::SIZE)?;
        let block_size = data.dnode().block_size;
        if check_size(size, block_size).is_err() || i64::try_from(size).is_err() {
            return Err(Error::corrupt(format!("a volume of {size} bytes in blocks of {block_size}")));
        }
        let (size, used) = (Arc::new(AtomicU64::new(size)), Arc::default());
        Ok(Zvol { data, block_size, size, used, live: None })
    }

    /// The volume in `objset`, which is one that changes in memory, to be changed in the groups of `txgs`, which `log` is
    /// told of; `admit` is asked for room. [`Zvol::replay_log`] is to be called next. Errors: as of [`Zvol::open`].
    pub fn open_writable(objset: &Arc<Objset>, txgs: Arc<Txgs>, log: Arc<Log>, admit: Box<Admit>) -> Result<Zvol> {
        let volume = Zvol::open(objset)?;
        let logged = Arc::new(LoggedBlocks::new(volume.data.clone(), volume.size.clone()));
        let weak: std::sync::Weak<LoggedBlocks> = Arc::downgrade(&logged);
        log.set_contents(weak);
        let live = LiveVolume {
            txgs,
            log,
            admit,
            sync: RwLock::default(),
            is_read_only: AtomicBool::new(false),
            sizing: RwLock::default(),
            is_replaying: AtomicBool::new(false),
            noted_as: OnceLock::new(),
            has_lost: OnceLock::new(),
            _logged: logged,
        };
        Ok(Zvol { live: Some(live), ..volume })
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::SeqCst)
    }

    /// Bytes of its blocks.
    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    /// Whether it may be changed.
    pub fn is_writable(&self) -> bool {
        self.live.is_some()
    }

    /// How much it was used since it was opened.
    pub fn used(&self) -> &Arc<VolumeCounters> {
        &self.used
    }

    /// Its objects.
    pub fn objset(&self) -> &Arc<Objset> {
        self.data.objset()
    }

    /// When changes are brought to disk, from now on.
    pub fn set_sync(&self, sync: SyncMode) {
        if let Some(live) = &self.live {
            *live.sync.write() = sync;
        }
    }

    /// When changes are brought to disk.
    pub fn sync(&self) -> SyncMode {
        self.live.as_ref().map_or(SyncMode::default(), |live| *live.sync.read())
    }

    /// Has changes noted that a crash would take back, as those of an object, from now on and for good.
    pub fn keep_unsettled(&self, unsettled: Arc<Unsettled>, object: ObjectId) {
        if let Some(live) = &self.live {
            live.log.keep_unsettled(unsettled);
            let _ = live.noted_as.set(object);
        }
    }

    /// Whether nothing was lost with the process before, though it was not on disk.
    pub fn has_lost_nothing(&self) -> bool {
        let memory = self.live.as_ref().and_then(|live| live.log.memory());
        memory.is_some_and(|memory| memory.is_whole(self.objset().id()))
    }

    /// From now on, a flush fails when `has_lost` says so.
    pub fn tell_losses(&self, has_lost: impl Fn() -> bool + Send + Sync + 'static) {
        if let Some(live) = &self.live {
            let _ = live.has_lost.set(Box::new(has_lost));
        }
    }

    /// Whether it is to stay as it is, from now on: what property `readonly` says.
    pub fn set_read_only(&self, is_read_only: bool) {
        if let Some(live) = &self.live {
            live.is_read_only.store(is_read_only, Ordering::SeqCst);
        }
    }

    /// Whether programs may change it now.
    pub fn is_read_only(&self) -> bool {
        self.live.as_ref().is_none_or(|live| live.is_read_only.load(Ordering::SeqCst))
    }

    /// Bytes from `offset` on, in the blocks that hold them. With `direct` past the cache: see [`Object::direct`].
    /// Errors: `Invalid` behind the end; those of reading.
    pub fn read(&self, offset: u64, len: usize, direct: bool) -> Result<Vec<Piece>> {
        self.range(offset, len as u64)?;
        let _timed = self.objset().time_request(UserOp::Read);
        self.note(UserOp::Read, offset, len as u64);
        match direct {
            true => self.data.direct().read_pieces(offset, len),
            false => self.data.read_pieces(offset, len),
        }
    }

    /// The first of these bytes that is data; `None` if all are in a hole, or behind the end.
    pub fn next_data(&self, bytes: Range<u64>) -> Result<Option<u64>> {
        self.current()?.next_allocated(bytes.start..bytes.end.min(self.size()))
    }

    /// The first of these bytes that is in a hole, behind the end being one; where they end, if there is none.
    pub fn next_hole(&self, bytes: Range<u64>) -> Result<u64> {
        self.current()?.next_hole(bytes.start..bytes.end.min(self.size()))
    }

    /// Has the blocks of a range read soon.
    pub fn prefetch(&self, offset: u64, len: u64) -> Result<()> {
        let range = self.range(offset, len)?;
        self.data.prefetch((range.start / self.block_size..range.end.div_ceil(self.block_size)).collect());
        Ok(())
    }

    /// Writes `data` from byte `offset` on; with `lasts`, it is on disk when this returns. Errors: `NoSpace` behind the
    /// end, and where there is no room, `Quota`, `Suspended`; what of it has been written is not known then.
    pub fn write(&self, offset: u64, data: Data<'_>, lasts: bool) -> Result<()> {
        let live = self.changeable()?;
        let _timed = self.objset().time_request(UserOp::Write);
        {
            let _sizing = live.sizing.read();
            let range = self.range(offset, data.len() as u64).map_err(|_| no_room())?;
            self.note(UserOp::Write, offset, data.len() as u64);
            let mut at = range.start;
            while at < range.end {
                let end = (at - at % STEP_BYTES).saturating_add(STEP_BYTES).min(range.end);
                let part = data.part((at - offset) as usize..(end - offset) as usize);
                let tx = live.begin(part.len() as u64, false)?;
                self.data.write(&tx, at, part)?;
                live.tell_write(&tx, at, part);
                at = end;
            }
        }
        if lasts {
            self.note(UserOp::Sync, 0, 0);
        }
        live.settle(lasts)
    }

    /// Lets go of what is in a range, as far as whole blocks are; they read as zeros then. Errors: as of
    /// [`Zvol::write`].
    pub fn discard(&self, offset: u64, len: u64, lasts: bool) -> Result<()> {
        let live = self.changeable()?;
        {
            let _sizing = live.sizing.read();
            let range = self.range(offset, len).map_err(|_| no_room())?;
            let whole = range.start.next_multiple_of(self.block_size)..range.end - range.end % self.block_size;
            self.free(live, whole)?;
        }
        live.settle(lasts)
    }

    /// Has a range read as zeros, without writing more than has to be. Errors: as of [`Zvol::write`].
    pub fn zero(&self, offset: u64, len: u64, lasts: bool) -> Result<()> {
        let live = self.changeable()?;
        {
            let _sizing = live.sizing.read();
            let range = self.range(offset, len).map_err(|_| no_room())?;
            self.free(live, range)?;
        }
        live.settle(lasts)
    }

    /// Brings all that was changed to disk. Errors: `Suspended`; `Io`, once, if changes were lost with a process before.
    pub fn flush(&self) -> Result<()> {
        self.note(UserOp::Sync, 0, 0);
        let Some(live) = &self.live else { return Ok(()) };
        live.commit()?;
        match live.has_lost.get().is_some_and(|has_lost| has_lost()) {
            true => Err(Error::new(Kind::Io, "changes of it were lost when the pool's process died")),
            false => Ok(()),
        }
    }

    /// Gives the disk another size, and returns when that is on disk. What is behind the new end is gone. Errors:
    /// `Invalid` for a size that cannot be, `Suspended`.
    pub fn set_size(&self, size: u64) -> Result<()> {
        check_size(size, self.block_size)?;
        if i64::try_from(size).is_err() {
            return Err(Error::new(Kind::Invalid, "volume size is too large"));
        }
        let live = self.changeable()?;
        let _sizing = live.sizing.write();
        let table = self.objset().object(volume::PROPERTIES)?;
        let tx = live.begin(CHANGE_BYTES, true)?;
        Editor::new(&table.changing(&tx)).set(volume::SIZE.as_bytes(), &ZapValue::one(size))?;
        drop(tx);
        self.size.store(size, Ordering::SeqCst);
        live.txgs.wait_synced()?;
        let end = self.current()?.dnode().size_max();
        if end <= size {
            return Ok(());
        }
        // the log needs to know nothing of what is behind the end
        let first = self.free_most(live, size..end, false)?;
        let tx = live.begin(CHANGE_BYTES, true)?;
        self.data.free_range(&tx, size, first - size)
    }

    /// Does again what the intent log holds: for a volume that has just been opened, before anything else. The log is
    /// empty then. Errors: those of reading the log; of a record that cannot be done.
    pub fn replay_log(&self) -> Result<Replayed> {
        let live = self.live()?;
        live.is_replaying.store(true, Ordering::SeqCst);
        let replayed = live.log.replay(&mut |record| self.replay(live, record));
        let replayed = replayed
            .map(|replayed| replayed.with_left(live.log.replay_left(&mut |left| self.replay(live, &left.record))));
        live.is_replaying.store(false, Ordering::SeqCst);
        replayed.in_dataset(self.objset().name())
    }

    fn replay(&self, live: &LiveVolume, record: &Record<'_>) -> Result<()> {
        match redo(self.objset(), record)? {
            Redo::Write { at, data } => self.rewrite(at, &data),
            Redo::Free(range) => self.free(live, range),
            Redo::Clone { blkid, blocks } => self.clone_again(blkid, &blocks),
        }
    }

    /// Writes what a record says was written, whatever the size is now.
    fn rewrite(&self, at: u64, data: &[u8]) -> Result<()> {
        let live = self.live()?;
        let tx = live.begin(data.len() as u64, true)?;
        self.data.write(&tx, at, data)?;
        live.tell_write(&tx, at, data.into());
        Ok(())
    }

    /// Takes blocks that a record says were taken.
    fn clone_again(&self, blkid: u64, blocks: &[BlkPtr]) -> Result<()> {
        let live = self.live()?;
        let tx = live.begin(CHANGE_BYTES, true)?;
        for (blkid, bp) in (blkid..).zip(blocks) {
            match bp.is_hole() {
                true => self.data.free_range(&tx, blkid * self.block_size, self.block_size)?,
                false => self.data.put_clone(&tx, blkid, *bp)?,
            }
        }
        // another crash has to find it done
        live.log.push(&tx, Itx { scope: Scope::Object(volume::DATA), body: ItxBody::Unloggable });
        Ok(())
    }

    /// Frees a range and tells the log: the most of it group by group. Each part is told with it, lest a replay frees what
    /// somebody has written there since; only a record that is being replayed is done when all of it is.
    fn free(&self, live: &LiveVolume, range: Range<u64>) -> Result<()> {
        let replays = live.is_replaying();
        if range.is_empty() && !replays {
            return Ok(());
        }
        let end = self.free_most(live, range.clone(), !replays)?;
        let tx = live.begin(CHANGE_BYTES, true)?;
        self.data.free_range(&tx, range.start, end.saturating_sub(range.start))?;
        live.tell_free(&tx, range.start..if replays { range.end } else { end });
        Ok(())
    }

    /// Frees from the end of a range on, until one transaction may free what is left: up to the byte that is returned.
    /// `tells` the log or not.
    fn free_most(&self, live: &LiveVolume, range: Range<u64>, tells: bool) -> Result<u64> {
        let mut end = range.end;
        while range.start < end {
            let portion = self.current()?.last_portion(range.start..end, live.txgs.portion_blocks())?;
            live.txgs.admit_frees(portion.blocks)?;
            if portion.from <= range.start {
                break;
            }
            let tx = live.begin(CHANGE_BYTES, true)?;
            self.data.free_range(&tx, portion.from, end - portion.from)?;
            if tells {
                live.tell_free(&tx, portion.from..end);
            }
            end = portion.from;
        }
        Ok(end)
    }

    /// Counts a request, and tells of it if somebody wants to know.
    fn note(&self, op: UserOp, offset: u64, len: u64) {
        self.used.note(op, len);
        self.objset().note_request(op, volume::DATA, (offset, len));
    }

    /// The data with the dnode that they have now.
    fn current(&self) -> Result<Object> {
        if self.live.is_some() { self.data.fresh() } else { Ok(self.data.clone()) }
    }

    fn live(&self) -> Result<&LiveVolume> {
        self.live.as_ref().ok_or_else(|| Error::new(Kind::ReadOnly, "read-only volume"))
    }

    /// The same, if it is not to stay as it is.
    fn changeable(&self) -> Result<&LiveVolume> {
        if self.is_read_only() { Err(Error::new(Kind::ReadOnly, "dataset is read-only")) } else { self.live() }
    }

    /// The bytes from `offset` on. Errors: `Invalid` if not all are in the volume.
    fn range(&self, offset: u64, len: u64) -> Result<Range<u64>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.size());
        end.map(|end| offset..end).ok_or_else(|| Error::new(Kind::Invalid, "behind the end of the volume"))
    }
}

impl LiveVolume {
    fn is_replaying(&self) -> bool {
        self.is_replaying.load(Ordering::SeqCst)
    }

    fn begin(&self, bytes: u64, frees: bool) -> Result<Tx<'_>> {
        // what was promised had its room
        if !self.is_replaying() {
            (self.admit)(bytes, frees)?;
            self.log.admit()?;
        }
        self.txgs.begin()
    }

    fn tell_write(&self, tx: &Tx<'_>, offset: u64, data: Data<'_>) {
        let len = data.len() as u64;
        self.push(tx, ItxBody::Write { object: volume::DATA, generation: 0, offset, len, data: None }, data);
    }

    fn push(&self, tx: &Tx<'_>, body: ItxBody, data: Data<'_>) {
        let entry = Itx { scope: Scope::Object(volume::DATA), body };
        self.log.push_with(tx, entry, Some(OperationDetails { data, ..OperationDetails::of_names([0; 2]) }));
        self.note_unsettled(tx);
    }

    /// Notes a change whose entries have been pushed.
    fn note_unsettled(&self, tx: &Tx<'_>) {
        // what is done again is in the log until its group is on disk
        let unsettled = self.log.unsettled().filter(|_| !self.is_replaying());
        if let Some((unsettled, object)) = unsettled.zip(self.noted_as.get()) {
            let by = SettledBy::AnyCommit;
            unsettled.note(tx.txg(), &[UnsettledChange { object: *object, born: None, by }]);
        }
    }

    fn tell(&self, tx: &Tx<'_>, intent: &Intent<'_>) {
        self.push(tx, ItxBody::Record { kind: intent.kind(), bytes: intent.bytes() }, Data::from(&[]));
    }

    fn tell_free(&self, tx: &Tx<'_>, range: Range<u64>) {
        let len = range.end.saturating_sub(range.start);
        self.tell(tx, &Intent::Truncate { object: volume::DATA, offset: range.start, len });
    }

    fn settle(&self, lasts: bool) -> Result<()> {
        if lasts || *self.sync.read() == SyncMode::Always { self.commit() } else { Ok(()) }
    }

    fn commit(&self) -> Result<()> {
        if *self.sync.read() == SyncMode::Disabled { Ok(()) } else { self.log.commit(volume::DATA) }
    }
}

fn no_room() -> Error {
    Error::new(Kind::NoSpace, "behind the end of the volume")
}
