//! A log that is open: what operations tell it, and commits.
//!
//! ```text
//!   operation ─▶ push ─▶ pending ─┐
//!   fsync ─────▶ commit ─▶ turn ──┴▶ drafts ─▶ tail, next blocks ─▶ write ─▶ turn ─▶ flush ─▶ all that are in it
//!                                      │ nothing can be logged
//!                                      └▶ wait for the group
//!   sync of a group   ─▶ sync ─▶ header, blocks that may go
//! ```
//!
//! One commit at a time writes, for all that ask meanwhile, and one flushes ([`CommitTurns`]). Whatever keeps a batch from
//! getting into the log, it waits for the group that has all that was taken up to it: so nothing that was
//! acknowledged depends on what failed.
//!
//! The first commit starts a chain: as no block leads to the first one, it waits for the group whose header
//! does. All later ones take one write and one flush.
//!
//! Locks: a thread that pushes is in a transaction; nobody here begins one while holding a lock, and the thread that
//! syncs groups waits for nobody here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::{AlignedBuf, Endian, Mutex, MutexGuard, RecordPlace, Result};
use codec::checksum::{Checksum, Sum, embedded};
use dmu::{Objset, Tx, Txgs};
use format::blkptr::BlkPtr;
use format::ids::{DatasetId, ObjectId, Txg};
use zio::{Class, PlacedBlock, Zio};

use crate::ZilHeader;
use crate::chain::{Chain, Tail, Update};
use crate::draft::{BLOCK_SIZE_MAX, Draft, Drafts, RECORD_SIZE_MAX, size_of};
use crate::entry::{Itx, ItxBody, LoggedContents, PendingItx, PendingItxs};
use crate::in_place::{InPlace, Rule};
use crate::memory_log::{MemoryLog, OperationDetails, ToldOperation};
use crate::record::HEAD_SIZE;
use crate::stats::{Stats, add};
use crate::turns::{Call, CommitTurns, Sent, WriterState, Writing};
use crate::unsettled::Unsettled;
use crate::walk::{LINK_SIZE, SEQ_WORD};

/// A commit of more bytes than this waits for its group, which has to write them anyway.
const COMMIT_BYTES_MAX: usize = 32 << 20;

/// Brings all that has happened so far to disk with its group.
type Sync = Box<dyn Fn() -> Result<()> + Send + std::marker::Sync>;

/// The log of one object set.
pub struct Log {
    objset: Arc<Objset>,
    txgs: Arc<Txgs>,
    sync: Sync,
    contents: Mutex<Option<Weak<dyn LoggedContents>>>,
    pending: Mutex<PendingItxs>,
    chain: Mutex<Chain>,
    turns: CommitTurns,
    /// The record that is being replayed; 0 if none is.
    replaying: AtomicU64,
    /// Throughput counts, not latency.
    throughput: AtomicBool,
    /// Where changes are noted that a crash would take back, if anybody wants to know.
    unsettled: OnceLock<Arc<Unsettled>>,
    /// What the next process does again, if there is to be one.
    memory: OnceLock<Arc<MemoryLog>>,
    /// The record of it that is being done again.
    redone: Mutex<Option<RecordPlace>>,
    stats: Stats,
}

impl Log {
    /// The log of a set that is being changed. `sync` brings all that has happened so far to disk. Errors:
    /// `Corrupt` if the header makes no sense.
    pub fn open(
        objset: Arc<Objset>,
        txgs: Arc<Txgs>,
        sync: impl Fn() -> Result<()> + Send + std::marker::Sync + 'static,
    ) -> Result<Arc<Log>> {
        let header = ZilHeader::parse(&objset.phys().log_header)?;
        let mut chain = Chain::new(header);
        if objset.pool_version()? < VERSION_OF_CHAINS {
            // what is to last waits for its group
            chain.disable();
        }
        let turns = CommitTurns::new(objset.cache().zio().env().clone(), txgs.clone());
        Ok(Arc::new(Log {
            objset,
            txgs,
            sync: Box::new(sync),
            contents: Mutex::default(),
            pending: Mutex::default(),
            chain: Mutex::new(chain),
            turns,
            replaying: AtomicU64::new(0),
            throughput: AtomicBool::new(false),
            unsettled: OnceLock::new(),
            memory: OnceLock::new(),
            redone: Mutex::default(),
            stats: Stats::default(),
        }))
    }

    /// Tells where the data of writes are to be had, before the first of them is pushed.
    pub fn set_contents(&self, contents: Weak<dyn LoggedContents>) {
        *self.contents.lock() = Some(contents);
    }

    /// Whether all vdevs are to be used as well as they can, and those for logs be spared: `logbias=throughput`.
    pub fn set_throughput(&self, throughput: bool) {
        self.throughput.store(throughput, Ordering::Relaxed);
    }

    /// Has changes noted there that a crash would take back, from now on and for good.
    pub fn keep_unsettled(&self, unsettled: Arc<Unsettled>) {
        // the first one stays
        let _ = self.unsettled.set(unsettled);
    }

    /// Where such changes are noted.
    pub fn unsettled(&self) -> Option<&Unsettled> {
        self.unsettled.get().map(|unsettled| &**unsettled)
    }

    /// Has operations told to the log in memory, too, from now on and for good.
    pub fn keep_memory(&self, memory: Arc<MemoryLog>) {
        let _ = self.memory.set(memory);
    }

    /// The log in memory, if there is one.
    pub fn memory(&self) -> Option<&Arc<MemoryLog>> {
        self.memory.get()
    }

    /// Tells of an operation, in its transaction. While a record is replayed, only that is noted. The log in memory has a gap
    /// then.
    pub fn push(&self, tx: &Tx<'_>, entry: Itx) {
        self.push_with(tx, entry, None);
    }

    /// The same, with what the log in memory needs.
    pub fn push_with(&self, tx: &Tx<'_>, mut entry: Itx, details: Option<OperationDetails<'_>>) {
        let seq = self.replaying.load(Ordering::Relaxed);
        if seq != 0 {
            return self.chain.lock().note_replayed(tx.txg(), seq);
        }
        if let ItxBody::Record { bytes, .. } = &entry.body
            && HEAD_SIZE + bytes.len() > RECORD_SIZE_MAX
        {
            entry.body = ItxBody::Unloggable;
        }
        let Some(memory) = self.memory.get() else { return self.pending.lock().push(tx.txg(), entry, None) };
        if let Some(place) = *self.redone.lock() {
            memory.redone(&place, tx.txg());
            return self.pending.lock().push(tx.txg(), entry, Some(place));
        }
        let Some(mut told) = ToldOperation::of(self.dataset(), tx.txg(), &entry, details) else {
            memory.gap(self.dataset(), tx.txg());
            return self.pending.lock().push(tx.txg(), entry, None);
        };
        let place = {
            // together: records are in the order of entries
            let mut pending = self.pending.lock();
            let place = memory.reserve(&mut told);
            pending.push(tx.txg(), entry, place);
            place
        };
        self.write_kept(memory, place, &told);
    }

    /// Tells only the log in memory, of an object without a name. Without details it has a gap.
    pub fn keep(&self, tx: &Tx<'_>, entry: &Itx, details: Option<OperationDetails<'_>>) {
        let Some(memory) = self.memory.get().filter(|_| self.replaying.load(Ordering::Relaxed) == 0) else { return };
        if let Some(place) = *self.redone.lock() {
            return memory.redone(&place, tx.txg());
        }
        match ToldOperation::of(self.dataset(), tx.txg(), entry, details) {
            Some(mut told) => self.write_kept(memory, memory.reserve(&mut told), &told),
            None => memory.gap(self.dataset(), tx.txg()),
        }
    }

    /// Waits for a group if the log in memory is nearly full, as what it has no room for would be lost with the process. Not to
    /// be called within a transaction. Errors: `Suspended`.
    pub fn admit(&self) -> Result<()> {
        match self.memory.get().is_some_and(|memory| memory.is_nearly_full()) {
            true => self.txgs.wait_synced(),
            false => Ok(()),
        }
    }

    fn write_kept(&self, memory: &MemoryLog, place: Option<RecordPlace>, told: &ToldOperation<'_>) {
        let Some(place) = place else { return };
        memory.complete(&place, told);
        if memory.is_due() {
            // what is on disk need not be kept
            self.txgs.hasten();
        }
    }

    fn dataset(&self) -> DatasetId {
        self.objset.id()
    }

    /// An object was removed: nobody needs what was told only of it.
    pub fn removed(&self, object: ObjectId) {
        self.pending.lock().forget(object);
    }

    /// Returns when all that was told before of `object`, or with 0 of everything, lasts. Not to be called
    /// within a transaction. Errors: `Suspended` and whatever else keeps groups from getting to disk.
    pub fn commit(&self, object: ObjectId) -> Result<()> {
        let unsettled = self.unsettled().map(|unsettled| (unsettled, unsettled.begin()));
        self.commit_pending(object)?;
        if let Some((unsettled, began)) = unsettled {
            unsettled.committed(object, began);
        }
        Ok(())
    }

    fn commit_pending(&self, object: ObjectId) -> Result<()> {
        add(&self.stats.zil_commit_count, 1);
        let Some(seat) = self.turns.ask(object, || self.pending.lock().has_any(object)) else { return Ok(()) };
        let env = self.zio().env();
        let begun_ns = env.ticks_ns();
        let outcome = loop {
            match seat.wait() {
                Call::Write => self.write_batch(),
                Call::Flush => self.flush_batches(),
                Call::Done(outcome) => break outcome,
            }
        };
        self.stats.count_commit(env.ticks_ns().saturating_sub(begun_ns));
        if outcome.is_err() {
            add(&self.stats.zil_commit_error_count, 1);
        }
        outcome
    }

    /// Writes a batch.
    fn write_batch(&self) {
        let mut turn = self.turns.write();
        self.zio().env().failpoint("log write");
        match self.write_turn(&mut turn) {
            Ok(Some(sent)) => turn.sent(sent),
            Ok(None) => turn.done(Ok(())),
            Err(error) => turn.done(Err(error)),
        }
    }

    /// Writes for all that have asked. `None` if all lasts, as its groups are on disk.
    fn write_turn(&self, turn: &mut Writing<'_>) -> Result<Option<Sent>> {
        self.wait_for(turn.owed_txg)?;
        let mut items = self.pending.lock().take(&turn.objects);
        // without any, those that asked may wait for a batch before this one
        let Some(last) = items.last() else { return Ok(Some(Sent::default())) };
        turn.writer.taken_txg = turn.writer.taken_txg.max(last.txg);
        let silent = items.iter().rev().find(|item| item.body == ItxBody::Unloggable);
        if let Some(txg) = silent.map(|item| item.txg) {
            self.wait_for(txg)?;
        }
        let synced = self.txgs.synced_txg();
        items.retain(|item| item.txg > synced);
        if items.is_empty() {
            return Ok(Some(Sent::default()));
        }
        add(&self.stats.zil_commit_writer_count, 1);
        if let Some(sent) = self.write(&mut turn.writer, items) {
            return Ok(Some(sent));
        }
        add(&self.stats.zil_commit_stall_count, 1);
        self.wait_for(turn.writer.taken_txg)?;
        Ok(None)
    }

    /// Flushes what is written.
    fn flush_batches(&self) {
        let turn = self.turns.flush();
        self.zio().env().failpoint("log flush");
        let flushed = self.zio().flush_log_blocks(&turn.tops(), self.txgs.synced_txg().next());
        let mut chain = self.chain.lock();
        chain.written(turn.blocks());
        if flushed.is_err() {
            // before others are told: they may begin to write
            chain.end();
            turn.failed();
        }
        drop(chain);
        let outcome = match turn.owed_txg() {
            None => Ok(()),
            Some(txg) => {
                add(&self.stats.zil_commit_stall_count, 1);
                self.wait_for(txg)
            }
        };
        turn.done(outcome);
    }

    /// Waits until a group is on disk.
    fn wait_for(&self, txg: Txg) -> Result<()> {
        while self.txgs.synced_txg() < txg {
            self.sync_pool()?;
        }
        Ok(())
    }

    /// Writes entries. `None` if they are not in the log, and their groups must be waited for.
    fn write(&self, writer: &mut WriterState, items: Vec<PendingItx>) -> Option<Sent> {
        let bytes: usize = items.iter().map(size_of).fold(0, usize::saturating_add);
        let tail = self.chain.lock().tail();
        match tail {
            Tail::At(bp, txg) if txg <= self.txgs.synced_txg() && bytes <= COMMIT_BYTES_MAX => {
                self.write_from(writer, bp, items).ok().flatten()
            }
            Tail::Nowhere => {
                self.start(bytes.saturating_add(LINK_SIZE).min(BLOCK_SIZE_MAX));
                None
            }
            _ => None,
        }
    }

    /// Starts a chain, which may fail.
    fn start(&self, size: usize) {
        let env = self.zio().env();
        let name = [env.random(), env.random(), self.objset.id().get(), 1];
        let Ok(tx) = self.txgs.begin_for_log() else { return };
        let left = tx.left_by_logs();
        let Ok(bp) = self.zio().allocate_log_block(tx.txg(), self.class(), size as u64, name, left) else { return };
        if !self.chain.lock().start(tx.txg(), bp) {
            self.give_back(tx.txg(), &[bp]);
        }
    }

    /// Where log blocks are allocated.
    fn class(&self) -> Class {
        if self.throughput.load(Ordering::Relaxed) { Class::Normal } else { Class::Log }
    }

    /// Which writes are not told with their bytes.
    fn rule(&self, tail: &BlkPtr) -> Rule {
        match self.class() {
            Class::Log if self.zio().is_on_log_vdev(tail) => Rule::Never,
            Class::Log => Rule::Large,
            _ => Rule::Always,
        }
    }

    fn write_from(&self, writer: &mut WriterState, tail: BlkPtr, items: Vec<PendingItx>) -> Result<Option<Sent>> {
        let contents = self.contents.lock().as_ref().and_then(Weak::upgrade);
        let contents = contents.as_deref();
        let tx = self.txgs.begin_for_log()?;
        let (mut in_place, items) =
            InPlace::place((&self.objset, &self.stats), &tx, self.rule(&tail), contents, items)?;
        let tops = in_place.tops();
        let extended = self.draft(writer, &tail, &items, contents).map(|blocks| match blocks.is_empty() {
            true => None,
            false => self.extend(&tx, tail, &blocks, writer.next_size()).map(|(bps, numbers)| (bps, numbers, blocks)),
        });
        let (pointers, numbers, mut blocks) = match extended {
            Ok(Some(extended)) => extended,
            other => {
                in_place.give_back(&self.objset, &tx);
                return other.map(|_| None);
            }
        };
        let is_written = match in_place.is_empty() {
            true => {
                drop(tx);
                self.write_blocks(&pointers, &mut blocks, Vec::new())
            }
            false => {
                let written = self.write_blocks(&pointers, &mut blocks, in_place.take_placed());
                if written.is_ok() {
                    in_place.keep(&self.objset, &tx)
                } else {
                    in_place.give_back(&self.objset, &tx)
                }
                written
            }
        };
        if let Err(error) = is_written {
            let mut chain = self.chain.lock();
            chain.written(numbers.into_iter());
            chain.end();
            return Err(error);
        }
        let own = pointers[..blocks.len()].iter().map(|bp| bp.dvas()[0].vdev());
        Ok(Some(Sent { tops: tops.into_iter().chain(own).collect(), blocks: numbers }))
    }

    /// Drafts blocks for entries, the first in the size of the tail. None if nothing is to be told.
    fn draft(
        &self,
        writer: &mut WriterState,
        tail: &BlkPtr,
        items: &[PendingItx],
        contents: Option<&dyn LoggedContents>,
    ) -> Result<Vec<Draft>> {
        let size = (tail.psize() as usize, self.zio().log_block_unit() as usize);
        let mut drafts = Drafts::new(size, writer.seq, items, contents, &self.stats);
        for item in items {
            drafts.put(item)?;
        }
        if drafts.seq == writer.seq {
            return Ok(Vec::new());
        }
        if let Some(memory) = self.memory.get() {
            memory.logged(&drafts.kept);
        }
        writer.seq = drafts.seq;
        writer.wrote(drafts.used());
        Ok(drafts.blocks)
    }

    /// Allocates what comes behind the tail: a block for each draft but the first, and a new tail of about
    /// `next` bytes. Returns the pointers to all, the old tail's first, and the numbers of those that are to
    /// be written; `None` if the chain has ended.
    fn extend(&self, tx: &Tx<'_>, tail: BlkPtr, blocks: &[Draft], next: usize) -> Option<(Vec<BlkPtr>, Vec<u64>)> {
        let txg = tx.txg();
        let left = tx.left_by_logs();
        let sizes = blocks[1..].iter().map(|block| block.bytes.len()).chain([next]);
        let mut pointers = vec![tail];
        for size in sizes {
            let mut name = pointers[pointers.len() - 1].checksum();
            name[SEQ_WORD] += 1;
            match self.zio().allocate_log_block(txg, self.class(), size as u64, name, left) {
                Ok(bp) => pointers.push(bp),
                Err(_) => {
                    self.chain.lock().end();
                    self.give_back(txg, &pointers[1..]);
                    return None;
                }
            }
        }
        let mut chain = self.chain.lock();
        let mut numbers = Vec::with_capacity(blocks.len());
        for (block, next) in blocks.iter().zip(&pointers[1..]) {
            let Some(number) = chain.write(block.last_txg, txg, *next) else {
                // only the first is refused, as nobody else has the chain meanwhile
                drop(chain);
                self.give_back(txg, &pointers[1..]);
                return None;
            };
            numbers.push(number);
        }
        Some((pointers, numbers))
    }

    /// Joins blocks, seals them, and writes them, and the data that they lead to.
    fn write_blocks(&self, pointers: &[BlkPtr], blocks: &mut [Draft], data: Vec<PlacedBlock>) -> Result<()> {
        let zio = self.zio();
        let mut writes = Vec::with_capacity(blocks.len());
        for (block, pair) in blocks.iter_mut().zip(pointers.windows(2)) {
            let len = zio.log_block_len(&pair[0], block.used);
            seal(&mut block.bytes[..len], block.used, &pair[0].checksum(), &pair[1])?;
            let sums = match zio.is_on_log_vdev(&pair[0]) {
                true => [
                    &self.stats.zil_itx_metaslab_slog_count,
                    &self.stats.zil_itx_metaslab_slog_bytes,
                    &self.stats.zil_itx_metaslab_slog_write,
                    &self.stats.zil_itx_metaslab_slog_alloc,
                ],
                false => [
                    &self.stats.zil_itx_metaslab_normal_count,
                    &self.stats.zil_itx_metaslab_normal_bytes,
                    &self.stats.zil_itx_metaslab_normal_write,
                    &self.stats.zil_itx_metaslab_normal_alloc,
                ],
            };
            for (sum, n) in sums.into_iter().zip([1, block.used as u64, len as u64, pair[0].psize()]) {
                add(sum, n);
            }
            self.stats.count_block(pair[0].psize());
            let bytes = std::mem::replace(&mut block.bytes, AlignedBuf::zeroed(0));
            writes.push((pair[0], bytes.into(), len));
        }
        zio.write_log_blocks(writes, data)
    }

    /// Frees what was allocated a moment ago, in the same group.
    fn give_back(&self, txg: Txg, blocks: &[BlkPtr]) {
        for bp in blocks {
            // that it could not be freed only costs its room
            let _ = self.zio().free_log_block(txg, bp);
        }
    }

    pub(crate) fn chain(&self) -> MutexGuard<'_, Chain> {
        self.chain.lock()
    }

    /// What is pushed from now on is of the record with that number, which is replayed; 0: nothing is replayed.
    pub(crate) fn set_replaying(&self, seq: u64) {
        self.replaying.store(seq, Ordering::Relaxed);
    }

    /// When the operation was done that its record with that sequence number tells of, while the log of a process that died is
    /// replayed, if that is known.
    pub fn time_of(&self, seq: u64) -> Option<[u64; 2]> {
        self.memory()?.time_of(self.dataset(), seq)
    }

    /// What is pushed from now on is of that record of the log in memory, which is done again.
    pub(crate) fn set_redone(&self, place: Option<RecordPlace>) {
        *self.redone.lock() = place;
    }

    pub(crate) fn zio(&self) -> &Arc<Zio> {
        self.objset.cache().zio()
    }

    pub(crate) fn objset(&self) -> &Objset {
        &self.objset
    }

    /// Brings all that has happened so far to disk with its group.
    pub(crate) fn sync_pool(&self) -> Result<()> {
        (self.sync)()
    }

    /// What it has done.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

/// For the sync of groups, and for opening and closing sets.
impl Log {
    /// Whether group `txg` changes the head of the log.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.chain.lock().is_dirty(txg)
    }

    /// In `txg`, which is being synced, a log was claimed: it has that header from now on.
    pub fn claim(&self, txg: Txg, header: ZilHeader) {
        self.chain.lock().claim(txg, header);
    }

    /// For the sync of `txg`: the head as it is to be, and what is to be freed.
    pub fn sync(&self, txg: Txg) -> Update {
        self.chain.lock().sync(txg)
    }

    /// Group `txg` is on disk.
    pub fn synced(&self, txg: Txg) {
        self.pending.lock().synced(txg);
        if let Some(memory) = self.memory.get() {
            memory.synced(txg);
        }
        if let Some(unsettled) = self.unsettled() {
            unsettled.synced(txg);
        }
    }

    /// Nothing is logged from now on, until [`Log::reopen`]; commits wait for their groups. When it returns, the
    /// log is gone from the disk, or has yet to be replayed. Errors: `Suspended` and the like.
    pub fn close(&self) -> Result<()> {
        self.chain.lock().close();
        while self.has_blocks() {
            self.sync_pool()?;
        }
        Ok(())
    }

    /// Lets the blocks that it has go with their groups; what is logged next goes into new ones. Of a log that has yet
    /// to be replayed nothing changes.
    pub fn retire(&self) {
        self.chain.lock().end();
        while self.chain.lock().is_writing() && self.sync_pool().is_ok() {}
    }

    /// Whether it has yet to be replayed.
    pub fn is_old(&self) -> bool {
        self.chain.lock().old().is_some()
    }

    /// Something may be logged again.
    pub fn reopen(&self) {
        self.chain.lock().reopen();
    }

    /// Whether it has blocks that are written to.
    fn has_blocks(&self) -> bool {
        let chain = self.chain.lock();
        !chain.is_empty() && chain.old().is_none()
    }
}

/// Before that version of pools log blocks have their links at the end, which is not written here.
const VERSION_OF_CHAINS: u64 = 23;

/// Writes the link at the beginning of a block, and its sum.
fn seal(block: &mut [u8], used: usize, name: &Sum, next: &BlkPtr) -> Result<()> {
    block[..8].fill(0);
    block[8..8 + BlkPtr::SIZE].copy_from_slice(next.raw());
    block[8 + BlkPtr::SIZE..16 + BlkPtr::SIZE].copy_from_slice(&(used as u64).to_le_bytes());
    embedded::seal(Checksum::Zilog2, Endian::Little, name, block).map(drop)
}
