//! Replaying a log that was claimed.
//!
//! ```text
//!   record of a group that is not on disk ─▶ apply ─▶ transaction ─▶ push ─▶ its number, with the transaction's group
//!   ...                                                                       │
//!   all groups are on disk ─▶ blocks are freed, the header is empty           └▶ header of that group
//! ```
//!
//! Each record and the note that it was replayed reach the disk with the same group. So a crash at any moment
//! leaves a log of which the rest is replayed next time.

use std::collections::HashSet;
use std::ops::ControlFlow;

use base::{Bookmark, Error, Kind, Result, ResultExt};
use format::blkptr::{BlkPtr, Dva};
use format::ids::Txg;

use crate::memory_log::Apply;
use crate::{Log, LogVisitor, Record, WalkEnd, ZilHeader, walk};

/// What came of it.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Records that were replayed.
    pub records: u64,
    /// Operations that were done again, as the log in memory had them only.
    pub left: u64,
    /// Why the log, or the log in memory, could not be done again up to its end. What was behind is lost.
    pub damage: Option<Error>,
}

impl Replayed {
    /// With what came of doing again what the log in memory had.
    pub fn with_left(mut self, done: Result<u64>) -> Replayed {
        match done {
            Ok(left) => self.left = left,
            Err(error) => drop(self.damage.get_or_insert(error)),
        }
        self
    }
}

impl Log {
    /// Replays what the log of a crash has, in order: `apply` brings the file system to where the record says, and
    /// pushes entries for it as any operation does. Then the log is empty, and may be used.
    ///
    /// If `apply` fails, it is tried again when all before is on disk. Errors: those of `apply`; those of
    /// devices; `Suspended`; then the rest of the log waits to be replayed.
    pub fn replay(&self, apply: &mut dyn FnMut(&Record<'_>) -> Result<()>) -> Result<Replayed> {
        let header = self.chain().old();
        self.settle_kept(header.as_ref());
        let Some(header) = header else { return Ok(Replayed::default()) };
        if !header.is_claimed() {
            return Err(Error::new(Kind::Invalid, "the intent log has not been claimed"));
        }
        let found = ClaimedBlocks::new(&header);
        let mut frame = Frame { log: self, header, apply, found, replayed: Replayed::default(), error: None };
        let end = self.walk(&header, &mut frame);
        let Frame { found, mut replayed, error, .. } = frame;
        if let Some(error) = error {
            return Err(error).in_dataset(self.objset().name());
        }
        match end {
            WalkEnd::Unreadable(error) if matches!(error.kind(), Kind::Io | Kind::Missing) => {
                return Err(error).in_dataset(self.objset().name());
            }
            WalkEnd::Unreadable(error) => replayed.damage = Some(error),
            WalkEnd::Complete | WalkEnd::Broken => {}
        }
        self.sync_pool()?;
        self.chain().doom(found.blocks, found.data);
        self.sync_pool()?;
        Ok(replayed)
    }

    /// Does again what the log in memory has of this set and the log of a crash had not, after [`Log::replay`]: `apply` brings
    /// the file system to where an operation left it, and pushes entries for it. How many these were; they are on disk then.
    /// Errors: as of [`Log::replay`]; the rest is lost then.
    pub fn replay_left(&self, apply: &mut Apply<'_>) -> Result<u64> {
        let Some(memory) = self.memory() else { return Ok(0) };
        let (dataset, mut done) = (self.objset().id(), 0);
        let left = memory.left_of(dataset);
        for record in &left {
            self.set_redone(Some(record.place));
            let mut outcome = memory.apply(record, apply);
            if outcome.is_err() {
                outcome = self.sync_pool().and_then(|()| memory.apply(record, apply));
            }
            self.set_redone(None);
            memory.was_applied(record)?;
            if let Err(error) = outcome {
                memory.done_again(dataset, false)?;
                return Err(error).in_dataset(self.objset().name());
            }
            done += 1;
        }
        if done > 0 {
            self.sync_pool()?;
        }
        memory.done_again(dataset, true)?;
        Ok(done)
    }

    /// Visits what is on disk of it.
    fn walk(&self, header: &ZilHeader, visitor: &mut dyn LogVisitor) -> WalkEnd {
        walk(self.zio(), self.objset().cache().keys(), self.objset().id(), header, visitor)
    }

    /// What of the log in memory is in this one is not to be done again.
    fn settle_kept(&self, header: Option<&ZilHeader>) {
        let Some(memory) = self.memory().filter(|memory| !memory.left_of(self.objset().id()).is_empty()) else {
            return;
        };
        let mut last = LastRecord(0);
        if let Some(header) = header {
            self.walk(header, &mut last);
        }
        memory.settle_logged(self.objset().id(), last.0);
    }

    /// All blocks that it has on disk, which the caller frees in the group that destroys the set. Nobody may use
    /// the log any more.
    pub fn take_blocks(&self) -> Vec<BlkPtr> {
        let Some(header) = self.chain().old() else { return self.chain().take() };
        let mut found = ClaimedBlocks::new(&header);
        self.walk(&header, &mut found);
        [found.blocks, found.data].concat()
    }
}

/// The sequence number of the last record.
struct LastRecord(u64);

impl LogVisitor for LastRecord {
    fn block(&mut self, _: &BlkPtr, _: Bookmark) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn record(&mut self, record: &Record<'_>) -> ControlFlow<()> {
        self.0 = self.0.max(record.seq);
        ControlFlow::Continue(())
    }
}

/// What a claimed log has on disk: its blocks, those of data that it leads to, and those that it has a pointer to as they
/// were cloned.
struct ClaimedBlocks {
    claim_txg: Txg,
    blocks: Vec<BlkPtr>,
    data: Vec<BlkPtr>,
    seen: HashSet<Dva>,
}

impl ClaimedBlocks {
    fn new(header: &ZilHeader) -> ClaimedBlocks {
        ClaimedBlocks { claim_txg: header.claim_txg, blocks: Vec::new(), data: Vec::new(), seen: HashSet::new() }
    }
}

impl LogVisitor for ClaimedBlocks {
    fn block(&mut self, bp: &BlkPtr, _: Bookmark) -> ControlFlow<()> {
        self.blocks.push(*bp);
        ControlFlow::Continue(())
    }

    fn record(&mut self, record: &Record<'_>) -> ControlFlow<()> {
        if let Some(write) = record.block_since(self.claim_txg)
            && self.seen.insert(write.bp.dvas()[0])
        {
            self.data.push(write.bp);
        }
        self.data.extend(record.clones().unwrap_or_default());
        ControlFlow::Continue(())
    }
}

/// Goes through a log and applies its records.
struct Frame<'a> {
    log: &'a Log,
    header: ZilHeader,
    apply: &'a mut dyn FnMut(&Record<'_>) -> Result<()>,
    found: ClaimedBlocks,
    replayed: Replayed,
    error: Option<Error>,
}

impl Frame<'_> {
    fn replay(&mut self, record: &Record<'_>) -> Result<()> {
        self.log.set_replaying(record.seq);
        let mut outcome = (self.apply)(record);
        if outcome.is_err() {
            // what is on its way to disk may have stood in its way
            outcome = self.log.sync_pool().and_then(|()| (self.apply)(record));
        }
        self.log.set_replaying(0);
        outcome
    }
}

impl LogVisitor for Frame<'_> {
    fn block(&mut self, bp: &BlkPtr, bookmark: Bookmark) -> ControlFlow<()> {
        self.found.block(bp, bookmark)
    }

    fn record(&mut self, record: &Record<'_>) -> ControlFlow<()> {
        self.found.record(record)?;
        let is_needed = self.header.flags & ZilHeader::FLAG_REPLAY_NEEDED != 0;
        if !is_needed || record.txg < self.header.claim_txg || record.seq <= self.header.replay_seq {
            return ControlFlow::Continue(());
        }
        match self.replay(record) {
            Ok(()) => {
                self.replayed.records += 1;
                ControlFlow::Continue(())
            }
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}
