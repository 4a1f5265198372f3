//! A full check of a pool: every block once, the sum of every copy, and whether the blocks found are
//! what the space maps say is allocated.
//!
//! ```text
//!   dead blocks ─┐            ┌─▶ tally    counts by type, level, size
//!                ├─▶ Checker ─┼─▶ claims   takes the block's bytes out of what is allocated
//!   every block ─┘    │ refs  └─▶ batches ─▶ zio::verify_batch, while the walk goes on
//!                     └ of a block that several pointers refer to, only the last one claims
//! ```
//!
//! What is wrong does not end a check: it is handed to an [`Observer`], and counted in the [`CheckReport`].
//! Memory is bounded by the space maps, the tables of shared blocks, and a few batches.

mod claims;
mod dead;
mod refs;
mod segments;
mod tally;

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::mpsc;

use base::{Bookmark, Endian, Error, Kind, Result, ResultExt};
use dmu::traverse::{Descend, Visit, Visitor};
use dsl::traverse::LOG_LEVEL;
use format::blkptr::BlkPtr;
use format::ids::{ObjectId, Txg, VdevNumber};
use vdev::MapEntry;

use crate::status::Progress;
use crate::{Pool, mos};
use claims::Claims;
pub use claims::{ClassSpace, Leak, Removed, SpaceClass};
use refs::{Reference, Refs};
pub use tally::{BlockKind, SpaceSums, Tally};

/// Bytes of blocks that are verified at once.
const BATCH_BYTES: u64 = 16 << 20;
/// Blocks that are verified at once.
const BATCH_BLOCKS: usize = 4096;
/// Batches under way.
const BATCHES_MAX: usize = 3;
/// How deep gang blocks may nest.
const GANG_DEPTH_MAX: usize = 16;
/// Bytes of a gang header.
const GANG_HEADER_SIZE: u64 = 512;

/// Which blocks are read and verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Those that the walk needs.
    Nothing,
    /// Those that lead to others, and other metadata.
    Metadata,
    /// All.
    All,
}

/// What to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Which blocks to verify.
    pub verify: Verify,
    /// Whether to compare what is found with the space maps.
    pub space: bool,
}

/// Is told while the check goes on.
pub trait Observer {
    /// A block that was found.
    fn block(&mut self, _visit: &Visit<'_>, _kind: BlockKind) {}

    /// A block that has wrong or unreadable copies.
    fn damaged(&mut self, _damaged: &Damaged) {}

    /// What is below a block that cannot be read, or makes no sense.
    fn lost(&mut self, _error: &Error) {}

    /// A block whose bytes are not allocated, or are another block's.
    fn unallocated(&mut self, _bookmark: Bookmark, _missing: &Leak) {}

    /// So many bytes of blocks have been found since the last call.
    fn progress(&mut self, _bytes: u64) {}
}

/// A block with copies that are not right.
#[derive(Debug)]
pub struct Damaged {
    /// The pointer to it.
    pub bp: BlkPtr,
    /// Where it belongs.
    pub bookmark: Bookmark,
    /// The state of each copy.
    pub copies: Vec<Result<()>>,
}

/// What a check found.
#[derive(Debug)]
pub struct CheckReport {
    /// Counts of blocks.
    pub tally: Tally,
    /// Space of the classes, in the order of [`SpaceClass`].
    pub classes: [ClassSpace; 5],
    /// Bytes that dedup saves.
    pub dedup_bytes: u64,
    /// Deduplicated blocks with several pointers.
    pub dedup_blocks: u64,
    /// Bytes that clones save.
    pub clone_bytes: u64,
    /// Pointers to cloned blocks beyond the first.
    pub clone_blocks: u64,
    /// Bytes that are allocated by the space maps.
    pub allocated_bytes: u64,
    /// Bytes of the blocks found, each counted once, and of what is known to belong to no block.
    pub found_bytes: u64,
    /// Bytes that are allocated but belong to nothing.
    pub leaks: Vec<Leak>,
    /// Blocks whose bytes were not allocated.
    pub unallocated_blocks: u64,
    /// Blocks of which no copy is right, by the kind of error.
    pub lost_blocks: Vec<(Kind, u64)>,
    /// Blocks with wrong copies, and at least one right one.
    pub damaged_blocks: u64,
    /// Parts of the pool that could not be walked through.
    pub lost_parts: u64,
    /// Removed vdevs.
    pub removed: Vec<Removed>,
}

impl Damaged {
    /// The error of a copy, if no copy is right.
    pub fn lost(&self) -> Option<&Error> {
        let errors: Option<Vec<&Error>> = self.copies.iter().map(|copy| copy.as_ref().err()).collect();
        errors.and_then(|errors| errors.first().copied())
    }
}

impl Pool {
    /// Walks the whole pool. Errors: only those that keep it from beginning, such as space maps that
    /// contradict themselves.
    pub fn check(&self, options: CheckOptions, observer: &mut dyn Observer) -> Result<CheckReport> {
        self.check_all(options, observer).in_pool(self.name())
    }

    /// Visits every block that the pool refers to, as [`Dsl::traverse`](dsl::Dsl::traverse) does.
    pub fn traverse(&self, visitor: &mut dyn Visitor) -> ControlFlow<()> {
        let uberblock = self.uberblock();
        let txg = if uberblock.checkpoint_txg != Txg::ZERO { uberblock.checkpoint_txg } else { uberblock.txg };
        self.dsl().traverse(txg, visitor)
    }

    fn check_all(&self, options: CheckOptions, observer: &mut dyn Observer) -> Result<CheckReport> {
        let claims = Claims::read(self, options.space)?;
        let refs = if options.space { Refs::read(self)? } else { Refs::default() };
        let removed = Claims::removed(self)?;
        let mut checker = Checker {
            pool: self,
            options,
            observer,
            report: CheckReport {
                tally: Tally::default(),
                classes: claims.classes(),
                dedup_bytes: refs.dedup_bytes,
                dedup_blocks: refs.dedup_blocks,
                clone_bytes: 0,
                clone_blocks: 0,
                allocated_bytes: claims.allocated(),
                found_bytes: 0,
                leaks: Vec::new(),
                unallocated_blocks: 0,
                lost_blocks: Vec::new(),
                damaged_blocks: 0,
                lost_parts: 0,
                removed,
            },
            claims,
            refs,
            batches: Batches::default(),
            entered: HashSet::new(),
        };
        checker.run()?;
        Ok(checker.finish())
    }
}

struct Checker<'a> {
    pool: &'a Pool,
    options: CheckOptions,
    observer: &'a mut dyn Observer,
    report: CheckReport,
    claims: Claims,
    refs: Refs,
    batches: Batches,
    /// Blocks with others below them that have been visited: vdev, offset, birth.
    entered: HashSet<(VdevNumber, u64, Txg)>,
}

impl Checker<'_> {
    fn run(&mut self) -> Result<()> {
        let nowhere = Bookmark::default();
        for bp in std::mem::take(&mut self.refs.ditto) {
            self.count(&Visit { bp: &bp, bookmark: nowhere, dnode: None, since_txg: Txg::ZERO }, BlockKind::DedupDitto);
        }
        let pool = self.pool;
        let mut lost = Vec::new();
        let mut count = |bp: &BlkPtr| {
            self.count(&Visit { bp, bookmark: nowhere, dnode: None, since_txg: Txg::ZERO }, BlockKind::DeferredFree);
        };
        dead::for_each(pool, &mut count, &mut |e| lost.push(e))?;
        lost.into_iter().for_each(|e| self.lost(e));
        if self.options.space {
            self.claim_removal()?;
        }
        let _ = pool.traverse(self);
        Ok(())
    }

    fn finish(mut self) -> CheckReport {
        self.send_batch();
        while let Some(damaged) = self.batches.wait(0) {
            damaged.into_iter().for_each(|damaged| self.damaged(damaged));
        }
        let CheckReport { dedup_bytes, clone_bytes, .. } = self.report;
        let asize = self.report.tally.total().asize;
        self.report.found_bytes = asize
            .saturating_sub(dedup_bytes)
            .saturating_sub(clone_bytes)
            .saturating_add(self.claims.removing())
            .saturating_add(self.claims.checkpoint());
        if self.options.space {
            self.report.leaks = self.claims.leaks();
        }
        self.report
    }

    /// While a vdev is being removed, what has been copied is allocated twice.
    fn claim_removal(&mut self) -> Result<()> {
        let removal = self.pool.status()?.removal.filter(|removal| removal.progress == Progress::Running);
        let Some(removal) = removal else { return Ok(()) };
        let Some((table, copied_to)) = mapping_in_progress(self.pool, removal.vdev)? else { return Ok(()) };
        if let Err(missing) = self.claims.claim_removal(removal.vdev, table, copied_to) {
            self.unallocated(Bookmark::default(), &missing);
        }
        Ok(())
    }

    /// Counts a block, and claims its bytes.
    fn count(&mut self, visit: &Visit<'_>, kind: BlockKind) {
        let (pool, bp) = (self.pool, visit.bp);
        self.observer.block(visit, kind);
        self.report.tally.count(bp, kind, &|vdev, offset| Claims::slab_number(pool, vdev, offset));
        self.observer.progress(bp.asize());
        if !self.options.space || bp.is_embedded() {
            return;
        }
        match self.refs.found(bp) {
            Reference::Shared => {}
            Reference::Cloned => {
                self.report.clone_bytes = self.report.clone_bytes.saturating_add(bp.asize());
                self.report.clone_blocks += 1;
            }
            Reference::Unlisted => {
                self.report.dedup_bytes = self.report.dedup_bytes.saturating_add(bp.asize());
            }
            Reference::Last => self.claim(bp, visit.bookmark, 0),
        }
    }

    /// Claims all copies of a block; of a gang block, the headers and all members.
    fn claim(&mut self, bp: &BlkPtr, bookmark: Bookmark, depth: usize) {
        for dva in bp.copies() {
            let size = if dva.is_gang() {
                self.pool.tree().asize(dva.vdev(), GANG_HEADER_SIZE).unwrap_or(GANG_HEADER_SIZE)
            } else {
                dva.asize()
            };
            if let Err(missing) = self.claims.claim_dva(dva, size) {
                self.unallocated(bookmark, &missing);
            }
        }
        // the headers of all copies have the same members
        let Some(gang) = bp.copies().find(|dva| dva.is_gang()) else { return };
        let zio = self.pool.cache().zio();
        let mut members = zio.gang_members(bp, gang);
        if members.is_err() {
            let others = bp.copies().filter(|dva| dva.is_gang()).skip(1);
            members = others.map(|dva| zio.gang_members(bp, dva)).find(Result::is_ok).unwrap_or(members);
        }
        match members {
            Ok(_) if depth == GANG_DEPTH_MAX => {
                self.lost(Error::corrupt("gang blocks nest too deep").at_block(bookmark));
            }
            Ok(members) => members.iter().for_each(|member| self.claim(member, bookmark, depth + 1)),
            Err(e) => self.lost(e.at_block(bookmark)),
        }
    }

    /// Whether what is below a block has not been visited. In a damaged pool a block may be in several
    /// places, and by that the number of ways through the pool beyond all bounds.
    fn enters(&mut self, visit: &Visit<'_>) -> bool {
        let Bookmark { object, level, .. } = visit.bookmark;
        if level == 0 && object != 0 || level == LOG_LEVEL || visit.bp.is_embedded() {
            return true;
        }
        let [first, ..] = visit.bp.dvas();
        self.entered.insert((first.vdev(), first.offset(), visit.bp.physical_birth()))
    }

    /// Puts a block into the next batch to be verified.
    fn verify(&mut self, bp: &BlkPtr, bookmark: Bookmark) {
        if self.batches.add(bp, bookmark) {
            self.send_batch();
            while let Some(damaged) = self.batches.wait(BATCHES_MAX) {
                damaged.into_iter().for_each(|damaged| self.damaged(damaged));
            }
        }
    }

    fn send_batch(&mut self) {
        self.batches.send(self.pool);
    }

    fn damaged(&mut self, damaged: Damaged) {
        match damaged.lost() {
            Some(error) => {
                let kind = error.kind();
                match self.report.lost_blocks.iter_mut().find(|(k, _)| *k == kind) {
                    Some((_, n)) => *n += 1,
                    None => self.report.lost_blocks.push((kind, 1)),
                }
            }
            None => self.report.damaged_blocks += 1,
        }
        self.observer.damaged(&damaged);
    }

    fn unallocated(&mut self, bookmark: Bookmark, missing: &Leak) {
        self.report.unallocated_blocks += 1;
        self.observer.unallocated(bookmark, missing);
    }
}

impl Visitor for Checker<'_> {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        let bp = visit.bp;
        self.count(visit, BlockKind::of(bp));
        let is_metadata = bp.level() > 0 || bp.object_type().is_metadata();
        let wanted = match self.options.verify {
            Verify::Nothing => false,
            Verify::Metadata => is_metadata,
            Verify::All => true,
        };
        // what a log promises may not be there: that is how it ends
        if wanted && !bp.is_embedded() && visit.bookmark.level != LOG_LEVEL {
            self.verify(bp, visit.bookmark);
        }
        if !self.enters(visit) {
            self.lost(Error::corrupt("block that leads to others is in two places").at_block(visit.bookmark));
            return ControlFlow::Continue(Descend::Past);
        }
        ControlFlow::Continue(Descend::Below)
    }

    fn lost(&mut self, error: Error) {
        self.report.lost_parts += 1;
        self.observer.lost(&error);
    }
}

/// The table of a vdev that is being removed, as far as it has got, and where that is.
fn mapping_in_progress(pool: &Pool, vdev: VdevNumber) -> Result<Option<(Vec<MapEntry>, u64)>> {
    let tops = pool.config().list("vdev_tree")?.opt_lists("children").unwrap_or_default();
    let top = tops.get(vdev.index());
    match top.and_then(|top| top.opt_u64("com.delphix:indirect_object")).map(ObjectId::new) {
        None | Some(ObjectId::NONE) => Ok(None),
        Some(object) => {
            let offset_max = Endian::Little.u64(pool.mos().object(object)?.bonus()).unwrap_or(0);
            Ok(Some((mos::indirect_mapping(pool.mos(), object)?, offset_max)))
        }
    }
}

/// Blocks on their way through verification.
#[derive(Default)]
struct Batches {
    next: Vec<(BlkPtr, Bookmark)>,
    bytes: u64,
    /// What will come of the batches that are under way, the oldest first.
    under_way: VecDeque<mpsc::Receiver<Vec<Damaged>>>,
}

impl Batches {
    /// Adds a block; true if the batch is full.
    fn add(&mut self, bp: &BlkPtr, bookmark: Bookmark) -> bool {
        self.next.push((*bp, bookmark));
        self.bytes += bp.psize() * bp.copies().count() as u64;
        self.bytes >= BATCH_BYTES || self.next.len() >= BATCH_BLOCKS
    }

    /// Has the batch verified in the background.
    fn send(&mut self, pool: &Pool) {
        let blocks = std::mem::take(&mut self.next);
        self.bytes = 0;
        let (sender, receiver) = mpsc::channel();
        self.under_way.push_back(receiver);
        let zio = pool.cache().zio().clone();
        zio.env().clone().background(move || {
            let results = zio.verify_batch(&blocks);
            let all = blocks.into_iter().zip(results);
            let bad = all.filter(|(_, copies)| copies.iter().any(Result::is_err));
            let damaged = bad.map(|((bp, bookmark), copies)| Damaged { bp, bookmark, copies });
            // nobody listens any more if the check broke off
            let _ = sender.send(damaged.collect());
        });
    }

    /// What the oldest batch found, if more than `others` are under way.
    fn wait(&mut self, others: usize) -> Option<Vec<Damaged>> {
        if self.under_way.len() <= others {
            return None;
        }
        let oldest = self.under_way.pop_front()?;
        Some(oldest.recv().expect("verifying a batch panicked"))
    }
}
