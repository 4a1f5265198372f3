//! Scrubs: every block of every dataset and snapshot, of the MOS and of logs is read from all sides of mirrors, with all
//! parity, in all copies; what is wrong is mended, labels too, and what cannot be is written to the error log.
//!
//! A scrub is a job: [`super::scan`] says what its state is, and [`format::scan`] how it is kept on disk, where OpenZFS
//! goes on with it and the other way round. Each step works in a group that is being synced: what it finds is still in
//! use then.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use base::{Bookmark, Error, Kind, Result, tunables};
use device::JoinLimits;
use dmu::traverse::{Descend, Range, Visit, Visitor};
use dmu::zap::Zap;
use dmu::zap::ZapValue;
use dsl::scan::position_of;
use format::blkptr::{BlkPtr, Dva};
use format::dnode::SLOT_SIZE;
use format::dsl::DatasetPhys;
use format::ids::{DatasetId, ObjectId, Txg, VdevNumber};
use format::object_type::ObjectType;
use format::scan::{ScanPhys, ScanState};
use vdev::{TxgRanges, VdevKind};

use super::scan::{BLOCK_BYTES, RUNS_MAX, ScanBatch, ScanInMemory, ScanPass, ScanResults, ScanRuns, ScanStage};
use super::txg_time_log::ScrubRange;
use super::{LivePool, SyncContext};
use crate::mos::DIRECTORY;
use crate::status::ScanStatus;

/// Entry of the object directory.
const SCAN: &str = "scan";
/// Entry of the object directory: up to which group the last scrub went that was finished.
const LAST_SCRUBBED: &str = "last_scrubbed_txg";
/// Blocks are found up to so many at least, however little memory there is.
const BLOCKS_MIN: u64 = 65_536;
/// Objects from there on are those of space accounting: a scan does not stop in them.
const ACCOUNTING_MIN: u64 = u64::MAX - 2;
const SPILL: u64 = u64::MAX - 1;
/// Bytes of a block of dnodes: every object set has these.
const DNODES_BYTES: u64 = 16 << 10;

/// How long a step may take.
struct StepTime<'a> {
    pool: &'a LivePool,
    start_ns: u64,
    min_ms: u64,
    max_ms: u64,
}

impl StepTime<'_> {
    fn of(pool: &LivePool) -> StepTime<'_> {
        let env = pool.env();
        StepTime {
            pool,
            start_ns: env.ticks_ns(),
            min_ms: match pool.scan().is_scrubbing() {
                true => env.tunable(tunables::ZFS_SCRUB_MIN_TIME_MS),
                false => env.tunable(tunables::ZFS_RESILVER_MIN_TIME_MS),
            },
            max_ms: env.tunable(tunables::ZFS_TXG_TIMEOUT).saturating_mul(1000),
        }
    }

    fn is_over(&self) -> bool {
        let ms = self.pool.env().ticks_ns().saturating_sub(self.start_ns) / 1_000_000;
        ms > self.max_ms || ms > self.min_ms && self.pool.txgs().is_wanted()
    }
}

impl LivePool {
    /// Begins a scrub, or lets one that is paused go on. Errors: `Busy` if there is one already, `Exists` if a resilver
    /// runs; those of writing.
    pub fn scrub(&self, range: ScrubRange) -> Result<()> {
        self.run(move |context| {
            let pool = context.pool;
            let phys = pool.scan().lock().now.as_ref().map(|stage| stage.phys);
            match phys {
                Some(phys) if phys.is_paused() => {
                    context.set_paused(false);
                    Ok(())
                }
                Some(ScanPhys { state: ScanState::Running, is_resilver, .. }) => {
                    let (kind, what) =
                        if is_resilver { (Kind::Exists, "resilvering") } else { (Kind::Busy, "scrubbing") };
                    Err(Error::new(kind, format!("currently {what}")))
                }
                _ => {
                    pool.check_may_scrub()?;
                    context.begin_scan(false, context.groups_of(range)?)
                }
            }
        })
    }

    /// Halts a scrub. Errors: `NotFound` if none runs, `Busy` if it is paused already; those of writing.
    pub fn pause_scrub(&self) -> Result<()> {
        self.run(|context| {
            let scan = context.pool.scan();
            if !scan.is_scrubbing() {
                return Err(no_scrub());
            }
            if scan.lock().now.as_ref().is_some_and(|stage| stage.phys.is_paused()) {
                return Err(Error::new(Kind::Busy, "scrub is paused"));
            }
            context.set_paused(true);
            Ok(())
        })
    }

    /// Ends a scrub before its time. Errors: `NotFound` if none runs; those of writing.
    pub fn cancel_scrub(&self) -> Result<()> {
        self.run(|context| {
            if !context.pool.scan().is_scrubbing() {
                return Err(no_scrub());
            }
            context.end_scan(ScanState::Canceled)
        })
    }

    /// The scrub or resilver that is under way, or the last one, and what was done of it since the pool was imported.
    pub fn scan_status(&self) -> Option<(ScanStatus, ScanPass)> {
        let state = self.scan().lock();
        state.now.as_ref().map(|stage| (ScanStatus::of(&stage.phys), state.pass))
    }

    /// Takes up the scan that is on disk.
    pub(super) fn load_scan(&self) -> Result<()> {
        self.load_error_scrub()?;
        let directory = crate::object_directory(self.mos())?;
        let words = directory.lookup(SCAN.as_bytes())?.map(|value| value.u64s()).unwrap_or_default();
        let phys = match ScanPhys::parse(&words) {
            Ok(Some(phys)) => phys,
            Ok(None) => return Ok(()),
            Err(error) => {
                // it is forgotten with the next scrub
                tracing::warn!(pool = self.name(), "{error}");
                return Ok(());
            }
        };
        let mut queue = BTreeMap::new();
        if phys.state == ScanState::Running && phys.queue.is_some() {
            for entry in Zap::open(self.mos().object(phys.queue)?)?.entries()? {
                let id = u64::from_str_radix(&entry.name.to_string(), 16);
                let id = id.map_err(|_| Error::corrupt(format!("'{}' in the queue of a scan", entry.name)))?;
                queue.insert(DatasetId::new(id), Txg::new(entry.value.first_u64().unwrap_or(0)));
            }
        }
        self.scan().load(Some(ScanStage { phys, queue }), self.env().now_s());
        Ok(())
    }

    /// Whether a step of the scan would do something.
    pub(super) fn has_scan_work(&self) -> bool {
        self.scan().has_to_be_noted() || self.scan().has_work() && (!self.is_scan_held() || self.has_late_leaves())
    }

    /// Whether the administrator has scans stand still.
    pub(super) fn is_scan_held(&self) -> bool {
        self.env().tunable(tunables::ZFS_SCAN_SUSPEND_PROGRESS) != 0
    }

    fn allocated_bytes(&self) -> u64 {
        let tops = self.tree().tops().filter(|top| !top.is_log());
        let allocator = self.cache().zio().allocator();
        allocator.map_or(0, |allocator| {
            tops.filter_map(|top| allocator.top_space(top.number())).map(|space| space.allocated).sum()
        })
    }
}

impl SyncContext<'_> {
    /// Up to which group the last scrub went that was finished.
    pub(super) fn last_scrubbed(&self) -> Result<Txg> {
        Ok(Txg::new(self.change.number(DIRECTORY, LAST_SCRUBBED)?.unwrap_or(0)))
    }

    fn set_paused(&self, is_paused: bool) {
        self.notify_of_scan(false, if is_paused { "paused" } else { "resume" });
        let now_s = self.pool.env().now_s();
        let mut state = self.pool.scan().lock();
        let pass = &mut state.pass;
        if is_paused {
            pass.paused_s = now_s;
        } else {
            pass.spent_paused_s += now_s.saturating_sub(pass.paused_s);
            pass.paused_s = 0;
        }
        let ScanInMemory { now, saved, is_dirty, is_stalled, .. } = &mut *state;
        (*is_dirty, *is_stalled) = (true, false);
        for stage in [now, saved].into_iter().flatten() {
            match is_paused {
                true => stage.phys.flags |= ScanPhys::FLAG_PAUSED,
                false => stage.phys.flags &= !ScanPhys::FLAG_PAUSED,
            }
        }
    }

    /// Begins to scan blocks that were born after the first of those groups, and up to the last.
    pub(super) fn begin_scan(&self, is_resilver: bool, (min_txg, max_txg): (Txg, Txg)) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        let before = pool.scan().lock().now.as_ref().map_or(ObjectId::NONE, |stage| stage.phys.queue);
        self.forget_error_scrub()?;
        // that of a resilver that begins anew
        change.free_object(before)?;
        let now_s = change.env.now_s();
        let phys = ScanPhys {
            is_resilver,
            state: ScanState::Running,
            queue: change.create_table(ObjectType::SCAN_QUEUE)?,
            min_txg,
            max_txg,
            dataset_min_txg: min_txg,
            dataset_max_txg: max_txg,
            start_s: now_s,
            end_s: 0,
            to_examine_bytes: pool.allocated_bytes(),
            examined_bytes: 0,
            skipped_bytes: 0,
            processed_bytes: 0,
            errors: 0,
            dedup: [0; 5],
            next: ScanPhys::START,
            flags: 0,
        };
        pool.scan().load(Some(ScanStage { phys, queue: BTreeMap::new() }), now_s);
        pool.scan().lock().is_dirty = true;
        pool.tree().leaves().for_each(|leaf| leaf.state().stats().healed_bytes.store(0, Ordering::Relaxed));
        let function = if is_resilver { 2 } else { 1 };
        self.log_event("scan setup", &format!("func={function} mintxg={min_txg} maxtxg={max_txg}"));
        self.notify_of_scan(is_resilver, "start");
        Ok(())
    }

    /// Ends the scan.
    pub(super) fn end_scan(&self, end: ScanState) -> Result<()> {
        // what could not be read to be moved may have been mended
        self.pool.expansion().wake();
        // what the last step found is for the log of the scrub
        self.log_lost()?;
        let scan = self.pool.scan();
        scan.lock().forget_blocks();
        let Some(phys) = scan.lock().now.as_ref().map(|stage| stage.phys) else { return Ok(()) };
        // before it is said to be done, because that is what `zpool wait` waits for
        if phys.is_resilver {
            self.end_resilver((phys.min_txg, phys.max_txg))?;
        }
        scan.lock().end(end, self.change.env.now_s());
        self.change.free_object(phys.queue)?;
        match (phys.is_resilver, end) {
            (true, _) => {}
            (false, ScanState::Finished) => {
                self.change.set(DIRECTORY, LAST_SCRUBBED, &ZapValue::one(phys.max_txg.get()))?;
                self.mend_labels()?;
                self.rotate_error_logs()?;
            }
            (false, _) => self.rotate_error_logs()?,
        }
        let name = if end == ScanState::Finished { "scan done" } else { "scan cancelled" };
        self.log_event(name, &format!("errors={}", phys.errors));
        let is_whole = end == ScanState::Finished || phys.is_resilver;
        self.notify_of_scan(phys.is_resilver, if is_whole { "finish" } else { "abort" });
        Ok(())
    }

    /// Scans for a while.
    pub(super) fn step_scan(&self) -> Result<()> {
        let budget = StepTime::of(self.pool);
        let mut outcome = Ok(());
        self.look_at_leaves()?;
        if self.pool.scan().lock().is_in_vain() {
            self.end_scan(ScanState::Canceled)?;
        }
        while !self.pool.is_scan_held() && self.pool.scan().can_go_on() && !budget.is_over() {
            outcome = self.go_on(&budget);
            if outcome.is_err() {
                break;
            }
        }
        let saved = {
            let mut state = self.pool.scan().lock();
            std::mem::take(&mut state.is_dirty).then(|| state.saved.clone()).flatten()
        };
        saved.map_or(Ok(()), |stage| self.write_stage(&stage))?;
        outcome
    }

    /// Walks, issues, or ends.
    fn go_on(&self, budget: &StepTime<'_>) -> Result<()> {
        let scan = self.pool.scan();
        let (is_issuing, is_walked, waiting) = {
            let state = scan.lock();
            (state.is_issuing, state.is_walked, state.waiting())
        };
        match (waiting, is_walked) {
            (1.., _) if is_issuing || is_walked => self.issue(budget),
            (0, true) => self.end_scan(ScanState::Finished),
            _ => self.walk(budget),
        }
    }

    /// Verifies what was found, in the order of places: while some blocks are verified, and written to leaves that lack
    /// them, the next ones are read.
    fn issue(&self, budget: &StepTime<'_>) -> Result<()> {
        let (pool, env) = (self.pool, self.pool.env());
        self.look_at_leaves()?;
        let mut batch = self.take_batch().map(|batch| batch.read(pool));
        while let Some(now) = batch.take() {
            self.look_at_leaves()?;
            let next = if budget.is_over() { None } else { self.take_batch() };
            let (results, read) = env.both(|| now.verify(pool), || next.map(|next| next.read(pool)));
            self.note_results(results);
            batch = read;
            if pool.scan().lock().is_stalled {
                let mut state = pool.scan().lock();
                batch
                    .into_iter()
                    .flat_map(ScanBatch::into_blocks)
                    .for_each(|(bp, bookmark)| state.put_back(&bp, bookmark));
                return Ok(());
            }
        }
        let mut state = pool.scan().lock();
        if state.waiting() == 0 {
            state.is_issuing = false;
            // all walked is as if it had not begun, on disk
            if !state.is_walked {
                state.save();
                state.saved_s = env.now_s();
            }
        }
        Ok(())
    }

    /// The next blocks that are to be verified; `None` if there are no more.
    fn take_batch(&self) -> Option<ScanRuns> {
        let pool = self.pool;
        let leaves = pool.tree().leaves().count().max(1);
        let at_once = pool.env().tunable(tunables::ZFS_VDEV_SCRUB_MAX_ACTIVE).clamp(1, 1000) as usize * leaves;
        let mut state = pool.scan().lock();
        let runs = state.take(at_once.min(RUNS_MAX), JoinLimits::of(pool.env()));
        let covered = Vec::from_iter(state.covers.keys().copied());
        (!runs.is_empty()).then_some(ScanRuns { runs, covered })
    }

    /// Notes what came of a batch.
    fn note_results(&self, ScanResults { covered, blocks }: ScanResults) {
        let pool = self.pool;
        let has_unfilled = pool.has_covered(vdev::Dtl::has_unfilled);
        let mut state = pool.scan().lock();
        state.has_unfilled |= has_unfilled;
        state.pass.issued_bytes += blocks.iter().map(|((bp, _), _)| bytes_of(bp)).sum::<u64>();
        for ((bp, bookmark), result) in blocks {
            if let Err(error) = &result {
                tracing::warn!(pool = pool.name(), "scan: {error}");
                pool.note_unfilled(covered.iter().copied(), bp.physical_birth());
            }
            if !result.as_ref().is_err_and(|error| error.kind() == Kind::Missing) {
                state.verified(&bp, result.is_ok());
            }
            match result {
                Ok(healed) => state.healed(healed),
                // a device is gone that cannot be done without: until it is back
                Err(error) if error.kind() == Kind::Missing => state.put_back(&bp, bookmark),
                Err(_) => state.failed(),
            }
        }
    }

    /// Finds blocks, from where the walk is.
    fn walk(&self, budget: &StepTime<'_>) -> Result<()> {
        let pool = self.pool;
        let fact = pool.env().tunable(tunables::ZFS_SCAN_MEM_LIM_FACT).max(1);
        let blocks_max = (pool.memory_bytes() / fact / BLOCK_BYTES).max(BLOCKS_MIN);
        let Some(mut stage) = pool.scan().lock().now.clone() else { return Ok(()) };
        let dsl = self.dsl()?;
        let range = |stage: &ScanStage| {
            let Bookmark { object, blkid, .. } = stage.phys.next;
            let from = position_of(ObjectId::new(object), blkid, DNODES_BYTES / SLOT_SIZE as u64);
            Range { since_txg: stage.phys.dataset_min_txg, from }
        };
        let mut walker = BlockFinder {
            context: self,
            budget,
            blocks_max,
            covered: stage.phys.is_resilver.then(|| pool.covered_tops()),
            removed: pool
                .tree()
                .tops()
                .filter(|top| top.kind() == VdevKind::Indirect)
                .map(|top| top.number())
                .collect(),
            max_txg: Txg::ZERO,
            stopped: None,
            first: true,
            last: None,
        };
        let place = stage.phys.dataset();
        if place == DatasetId::MOS {
            walker.max_txg = stage.phys.dataset_max_txg;
            let flow = dsl.scan_mos(range(&stage), &mut walker);
            if flow.is_continue() {
                stage.queue.extend(dsl.scan_roots()?);
                self.enter_next(&dsl, &mut stage)?;
            }
        } else {
            let phys = if place == ScanPhys::DESTROYED { None } else { dsl.dataset_phys(place)? };
            let mut flow = ControlFlow::Continue(());
            if let Some(phys) = &phys
                && stage.phys.dataset_min_txg < stage.phys.max_txg
            {
                walker.max_txg = stage.phys.dataset_max_txg;
                let txg = self.change.tx.txg();
                flow = dsl.scan_dataset(place, phys, (range(&stage), txg), &mut walker);
            }
            if flow.is_continue() {
                self.leave_dataset(&dsl, &mut stage, phys.as_ref())?;
                self.enter_next(&dsl, &mut stage)?;
            }
        }
        if let Some(stopped) = walker.stopped {
            stage.phys.next = stopped;
        }
        let mut state = pool.scan().lock();
        let is_full = state.waiting() as u64 >= blocks_max;
        if let Some(now) = &mut state.now {
            let phys = now.phys;
            *now = stage;
            (now.phys.examined_bytes, now.phys.skipped_bytes) = (phys.examined_bytes, phys.skipped_bytes);
            now.phys.errors = phys.errors;
        }
        let is_walked = state.now.as_ref().is_some_and(|now| now.phys.next == ScanPhys::START);
        let saved_s = pool.env().tunable(tunables::ZFS_SCAN_CHECKPOINT_INTVAL);
        let is_late = pool.env().now_s().saturating_sub(state.saved_s) >= saved_s;
        state.is_walked = is_walked;
        state.is_issuing |= is_full || is_late && state.waiting() > 0;
        Ok(())
    }

    /// A dataset has been visited to its end.
    fn leave_dataset(&self, dsl: &dsl::Dsl, stage: &mut ScanStage, phys: Option<&DatasetPhys>) -> Result<()> {
        let Some(phys) = phys else { return Ok(()) };
        if let Some(snapshot) = first_snapshot(dsl, phys, stage.phys.dataset_min_txg)?
            && !phys.is_snapshot()
            && phys.prev_snap_txg >= stage.phys.max_txg
        {
            // it was made meanwhile, and may have blocks that the head has not any more
            stage.queue.insert(snapshot, stage.phys.dataset_min_txg);
            return Ok(());
        }
        if stage.phys.flags & ScanPhys::FLAG_AGAIN != 0 {
            stage.phys.flags &= !ScanPhys::FLAG_AGAIN;
            stage.queue.insert(stage.phys.dataset(), stage.phys.dataset_max_txg);
            return Ok(());
        }
        stage.queue.extend(dsl.scan_followers(phys)?);
        Ok(())
    }

    /// Begins with the next dataset of the queue; if there is none, all has been walked: the place is none.
    fn enter_next(&self, dsl: &dsl::Dsl, stage: &mut ScanStage) -> Result<()> {
        stage.phys.next = ScanPhys::START;
        while let Some((id, since)) = stage.queue.pop_first() {
            // one that was destroyed where nobody told the scan
            let Some(mut phys) = dsl.dataset_phys(id)? else { continue };
            let since = if since.is_zero() { phys.prev_snap_txg } else { since };
            let mut id = id;
            // snapshots that were made since it was put into the queue come before it
            if let Some(first) = first_snapshot(dsl, &phys, since)? {
                let Some(snapshot) = dsl.dataset_phys(first)? else { continue };
                (id, phys) = (first, snapshot);
            }
            if !self.pool.scan().lock().enter(id, since) {
                continue;
            }
            let scan = &mut stage.phys;
            scan.dataset_min_txg = scan.min_txg.max(since);
            scan.dataset_max_txg = if phys.is_snapshot() { scan.max_txg.min(phys.creation_txg) } else { scan.max_txg };
            scan.enter(id);
            return Ok(());
        }
        Ok(())
    }

    /// Writes down how far the scan is.
    fn write_stage(&self, stage: &ScanStage) -> Result<()> {
        let change = &self.change;
        if stage.phys.state == ScanState::Running && stage.phys.queue.is_some() {
            let on_disk: BTreeMap<u64, u64> = change.by_number(stage.phys.queue)?.into_iter().collect();
            for id in on_disk.keys().filter(|id| !stage.queue.contains_key(&DatasetId::new(**id))) {
                change.remove(stage.phys.queue, &format!("{id:x}"))?;
            }
            for (id, txg) in stage.queue.iter().filter(|(id, txg)| on_disk.get(&id.get()) != Some(&txg.get())) {
                change.set(stage.phys.queue, &format!("{id:x}"), &ZapValue::one(txg.get()))?;
            }
        }
        let mut phys = stage.phys;
        if phys.state == ScanState::Running && self.pool.scan().lock().has_unfilled {
            // an error on disk is what lets it begin anew, here and with OpenZFS
            phys.errors = phys.errors.max(1);
        }
        change.set(DIRECTORY, SCAN, &ZapValue::new(8, &phys.words()))
    }
}

/// Takes the blocks that a walk shows.
struct BlockFinder<'a> {
    context: &'a SyncContext<'a>,
    budget: &'a StepTime<'a>,
    blocks_max: u64,
    /// What leaves lack of top-level vdevs, if this is a resilver.
    covered: Option<Vec<(VdevNumber, TxgRanges)>>,
    /// Numbers of the removed vdevs.
    removed: Vec<VdevNumber>,
    /// Younger blocks are not scrubbed.
    max_txg: Txg,
    /// The block that is next, if the walk was stopped.
    stopped: Option<Bookmark>,
    /// No data block was shown yet: a step comes further by one at least.
    first: bool,
    /// The block that was shown last.
    last: Option<(BlkPtr, Bookmark)>,
}

impl BlockFinder<'_> {
    /// Whether a leaf may lack the block, or all are to be verified.
    fn is_wanted(&self, bp: &BlkPtr) -> bool {
        let Some(covered) = &self.covered else { return true };
        let birth = bp.physical_birth();
        let is_lacked =
            |top: VdevNumber| covered.iter().any(|(number, lacked)| *number == top && lacked.contains(birth));
        // members of a gang may be anywhere, and what was on a removed vdev came to others later than it was born
        let is_anywhere = |dva: &Dva| dva.is_gang() || self.removed.contains(&dva.vdev());
        bp.copies().any(|dva| is_anywhere(dva) || is_lacked(dva.vdev()))
    }
}

impl Visitor for BlockFinder<'_> {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        let Bookmark { object, level, blkid, .. } = visit.bookmark;
        let may_stop = level == 0 && object != 0 && object < ACCOUNTING_MIN && blkid != SPILL;
        let mut state = self.context.pool.scan().lock();
        let is_full = state.waiting() as u64 >= self.blocks_max;
        if may_stop && !std::mem::take(&mut self.first) && (is_full || self.budget.is_over()) {
            self.stopped = Some(visit.bookmark);
            return ControlFlow::Break(());
        }
        self.last = Some((*visit.bp, visit.bookmark));
        let birth = visit.bp.physical_birth();
        let min_txg = state.now.as_ref().map_or(Txg::ZERO, |stage| stage.phys.min_txg);
        if !visit.bp.is_embedded() && birth > min_txg && birth <= self.max_txg {
            match self.is_wanted(visit.bp) {
                true => state.found(visit.bp, visit.bookmark, bytes_of(visit.bp)),
                false => state.passed_over(bytes_of(visit.bp)),
            }
        }
        ControlFlow::Continue(Descend::Below)
    }

    /// The block that leads there was shown before: verifying it tells whether it can be read, now or at all.
    fn lost(&mut self, error: Error) {
        tracing::warn!(pool = self.context.pool.name(), "scan: {error}");
        let mut state = self.context.pool.scan().lock();
        match (error.kind(), &self.last) {
            (Kind::Checksum | Kind::Io | Kind::Missing, Some((bp, bookmark))) => state.could_not_read(bp, *bookmark),
            _ => state.failed(),
        }
    }
}

/// The oldest of the snapshots before a dataset that were made after group `since`.
fn first_snapshot(dsl: &dsl::Dsl, phys: &DatasetPhys, since: Txg) -> Result<Option<DatasetId>> {
    let mut first = None;
    let (mut prev, mut txg) = (phys.prev_snap, phys.prev_snap_txg);
    // each is older than the one before
    while prev.is_some() && txg > since {
        let Some(snapshot) = dsl.dataset_phys(prev)?.filter(|snapshot| snapshot.prev_snap_txg < txg) else { break };
        first = Some(prev);
        (prev, txg) = (snapshot.prev_snap, snapshot.prev_snap_txg);
    }
    Ok(first)
}

/// Bytes that a block takes on all vdevs.
fn bytes_of(bp: &BlkPtr) -> u64 {
    bp.copies().fold(0, |sum, dva| sum.saturating_add(dva.asize()))
}

fn no_scrub() -> Error {
    Error::new(Kind::NotFound, "there is no active scrub")
}
