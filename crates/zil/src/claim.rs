//! What a crash has left: claiming a log, before anything else is allocated.
//!
//! ```text
//!   last group on disk ─▶ header ─▶ block ── block ── block ── tail
//!                                   └ in the space maps        └ allocated later: nobody knows of them yet
//! ```
//!
//! A log without records is of no use, and goes. Of any other the younger blocks, and the blocks of data that
//! writes lead to, are to be allocated where they are, and its header tells from then on where it ends. Blocks that
//! clones have taken get one pointer more each, as what they were taken from may go before the log is replayed; these
//! pointers go with the log. All of that is as OpenZFS does it, so that either replays what the other has claimed.

use std::collections::HashSet;
use std::ops::ControlFlow;

use base::{Bookmark, Error, Kind, Result};
use format::blkptr::{BlkPtr, Dva};
use format::ids::{DatasetId, Txg};
use zio::{SetKeys, Zio};

use crate::walk::SEQ_WORD;
use crate::{LogVisitor, Record, WalkEnd, ZilHeader, walk};

/// A block of a group so far behind the last one on disk is none of the pool's.
const GROUPS_MAX: u64 = 1 << 32;

/// What to do with a log that nobody has claimed.
#[derive(Debug)]
pub struct Claim {
    /// The header that it is to have.
    pub header: ZilHeader,
    /// Blocks to be allocated.
    pub blocks: Vec<BlkPtr>,
    /// Blocks to be freed.
    pub useless: Vec<BlkPtr>,
    /// Blocks that get one pointer more, each as often as it is here.
    pub clones: Vec<BlkPtr>,
    /// The latest group that a block was allocated in. The first group after the import has to be a later one,
    /// or the block would come from the future.
    pub newest_txg: Txg,
}

impl Claim {
    /// Looks at the log of a set as it is in group `synced_txg`, the last one on disk. `None` if there is none, or
    /// it has been claimed. Errors: `Io`, `Missing`, if a device keeps it from telling where the log ends; but if
    /// what is on devices that are gone `is_given_up`, it ends where they are needed, also if it has been claimed.
    pub fn find(
        zio: &Zio,
        objset: DatasetId,
        header: &ZilHeader,
        synced_txg: Txg,
        is_given_up: bool,
    ) -> Result<Option<Claim>> {
        if header.first.is_hole() || header.is_claimed() && !is_given_up {
            return Ok(None);
        }
        let mut finder = Finder {
            zio,
            synced_txg,
            blocks: Vec::new(),
            data: Vec::new(),
            seen: HashSet::new(),
            last_seqs: [0; 2],
            has_records: false,
            clones: Vec::new(),
            has_unfit: false,
            error: None,
        };
        let end = walk(zio, &SetKeys::Plain, objset, header, &mut finder);
        if let WalkEnd::Unreadable(error) = end {
            finder.stop_at(error);
        }
        if header.is_claimed() && finder.error.is_none() {
            return Ok(None);
        }
        if is_given_up {
            finder.error = None;
        }
        let claim = finder.finish()?;
        let replay_seq = if claim.header == ZilHeader::EMPTY { 0 } else { header.replay_seq };
        // of one that was claimed before, they are counted
        let clones = if header.is_claimed() { Vec::new() } else { claim.clones };
        Ok(Some(Claim { header: ZilHeader { replay_seq, ..claim.header }, clones, ..claim }))
    }

    /// Gives up what a log has in a pool that returns to the state of group `txg`: blocks of later groups are nobody's.
    pub fn forget(zio: &Zio, objset: DatasetId, header: &ZilHeader, txg: Txg) -> Claim {
        let mut old = OldBlocks { txg, blocks: Vec::new() };
        // wherever it ends, no block of that state is behind
        walk(zio, &SetKeys::Plain, objset, header, &mut old);
        let (blocks, clones) = (Vec::new(), Vec::new());
        Claim { header: ZilHeader::EMPTY, blocks, useless: old.blocks, clones, newest_txg: Txg::ZERO }
    }
}

/// The blocks of a log that are of groups up to `txg`.
struct OldBlocks {
    txg: Txg,
    blocks: Vec<BlkPtr>,
}

impl LogVisitor for OldBlocks {
    fn block(&mut self, bp: &BlkPtr, _: Bookmark) -> ControlFlow<()> {
        if bp.physical_birth() > self.txg || bp.is_gang() {
            return ControlFlow::Break(());
        }
        self.blocks.push(*bp);
        ControlFlow::Continue(())
    }

    fn record(&mut self, _: &Record<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

struct Finder<'a> {
    zio: &'a Zio,
    synced_txg: Txg,
    blocks: Vec<BlkPtr>,
    data: Vec<BlkPtr>,
    seen: HashSet<Dva>,
    /// Of the last block and the last record.
    last_seqs: [u64; 2],
    has_records: bool,
    clones: Vec<BlkPtr>,
    /// Records that tell of clones of blocks whose pointers cannot be counted here.
    has_unfit: bool,
    /// That of a device.
    error: Option<Error>,
}

impl Finder<'_> {
    /// That something is not there, or is not of this log, is how logs end. That a device does not tell is not.
    fn stop_at(&mut self, error: Error) {
        if matches!(error.kind(), Kind::Io | Kind::Missing) {
            self.error = Some(error);
        }
    }

    fn is_new(&self, bp: &BlkPtr) -> bool {
        bp.physical_birth() > self.synced_txg
    }

    fn finish(self) -> Result<Claim> {
        if self.has_unfit {
            let what = "the intent log tells of clones of blocks that are ganged, encrypted or of a removed device, which this version \
                        cannot claim: import the pool read-only, or let OpenZFS import and export it";
            return Err(Error::new(Kind::ReadOnly, what));
        }
        if let Some(error) = self.error {
            let what = "an intent log record could not be read";
            return Err(Error::new(error.kind(), what).with_source(error));
        }
        let newest_txg = self.blocks.iter().chain(&self.data).map(BlkPtr::physical_birth).max().unwrap_or(Txg::ZERO);
        let (new, old): (Vec<BlkPtr>, Vec<BlkPtr>) = self.blocks.iter().partition(|bp| self.is_new(bp));
        if !self.has_records {
            let (blocks, clones) = (Vec::new(), Vec::new());
            return Ok(Claim { header: ZilHeader::EMPTY, blocks, useless: old, clones, newest_txg });
        }
        let header = ZilHeader {
            claim_txg: self.synced_txg.next(),
            replay_seq: 0,
            first: self.blocks[0],
            claim_block_seq: self.last_seqs[0],
            flags: ZilHeader::FLAG_REPLAY_NEEDED | ZilHeader::FLAG_CLAIM_RECORD_SEQ_VALID,
            claim_record_seq: self.last_seqs[1],
        };
        Ok(Claim { header, blocks: [new, self.data].concat(), useless: Vec::new(), clones: self.clones, newest_txg })
    }
}

impl LogVisitor for Finder<'_> {
    fn block(&mut self, bp: &BlkPtr, _: Bookmark) -> ControlFlow<()> {
        if bp.physical_birth() > self.synced_txg.plus(GROUPS_MAX) || bp.is_gang() {
            return ControlFlow::Break(());
        }
        self.seen.insert(bp.dvas()[0]);
        self.blocks.push(*bp);
        self.last_seqs[0] = bp.checksum()[SEQ_WORD];
        ControlFlow::Continue(())
    }

    fn record(&mut self, record: &Record<'_>) -> ControlFlow<()> {
        if let Some(write) = record.block_since(self.synced_txg.next()) {
            // the record may be on disk without the data: then it was not promised to anybody
            let bookmark = Bookmark { objset: 0, object: write.object.get(), level: 0, blkid: 0 };
            if let Err(error) = self.zio.read_physical(&write.bp, bookmark) {
                self.stop_at(error);
                return ControlFlow::Break(());
            }
            if self.seen.insert(write.bp.dvas()[0]) {
                self.data.push(write.bp);
            }
        }
        let clones = record.clones().unwrap_or_else(|_| {
            self.has_unfit = true;
            Vec::new()
        });
        // a block that is not in the last group on disk is nobody's: here the log is damaged
        if clones.iter().any(|bp| self.is_new(bp)) {
            return ControlFlow::Break(());
        }
        self.has_unfit |= clones.iter().any(|bp| !self.zio.can_clone(bp));
        self.clones.extend(clones);
        self.last_seqs[1] = record.seq;
        self.has_records = true;
        ControlFlow::Continue(())
    }
}
