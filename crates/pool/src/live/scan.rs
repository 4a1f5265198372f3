//! The state of a scrub or resilver: where it is, which blocks it has found, and what of that is on disk.
//!
//! ```text
//!   walk  MOS, datasets of the queue ─▶ blocks by place, as many as memory allows
//!   issue blocks in the order of their places ─▶ every side and parity read, verified, mended
//!   save  what is on disk says: all before this place has been verified
//! ```
//!
//! So what is saved is the place that the walk had reached when the last of its blocks was issued. A block that is freed
//! meanwhile is forgotten: its place may soon be another's.

mod batch;
mod rebuilds;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::{Bookmark, Mutex, MutexGuard};
use device::JoinLimits;
use format::blkptr::BlkPtr;
use format::ids::{DatasetId, ObjectId, Txg, VdevNumber};
use format::scan::{ScanPhys, ScanState};

pub(super) use batch::{RUNS_MAX, ScanBatch, ScanResults, ScanRuns};
use rebuilds::Rebuilds;
pub(super) use rebuilds::{Lacked, RebuildStage};

/// Bytes of memory that a block takes that waits to be issued.
pub(super) const BLOCK_BYTES: u64 = 256;

/// What has been done since the pool was imported, or the scrub begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanPass {
    /// When it began, seconds since 1970.
    pub start_s: u64,
    /// Bytes of blocks that were found, and of those that were verified.
    pub examined_bytes: u64,
    #[allow(missing_docs)] // see above
    pub issued_bytes: u64,
    /// Bytes of blocks that were found, and need nothing.
    pub skipped_bytes: u64,
    /// Since when it is paused; 0 if it is not.
    pub paused_s: u64,
    /// Seconds that it was paused before.
    pub spent_paused_s: u64,
}

/// Where a walk is: what is on disk of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScanStage {
    pub(super) phys: ScanPhys,
    /// Datasets that are yet to be visited, and the txg after which their blocks are born.
    pub(super) queue: BTreeMap<DatasetId, Txg>,
}

/// The scan of a pool.
#[derive(Default)]
pub(super) struct Scan {
    state: Mutex<ScanInMemory>,
    rebuilds: Rebuilds,
}

/// See [`Scan`].
#[derive(Default)]
pub(super) struct ScanInMemory {
    /// Where the walk is; `None` if there never was one.
    pub(super) now: Option<ScanStage>,
    /// What is to be on disk.
    pub(super) saved: Option<ScanStage>,
    pub(super) is_dirty: bool,
    /// By the place of their first copy.
    blocks: BTreeMap<(VdevNumber, u64), (BlkPtr, Bookmark)>,
    /// Places of those of them that the walk could not read, to find what they lead to.
    unread: BTreeSet<(VdevNumber, u64)>,
    /// One of these turned out to be right: what it leads to was not looked at.
    pub(super) is_partial: bool,
    /// Resilvers in a row that came to their end so, or with a leaf that had come to lack more.
    pub(super) unfinished: usize,
    /// Datasets that have been entered, and the txg after which their blocks were looked at.
    entered: BTreeMap<DatasetId, Txg>,
    /// The walk has come to its end.
    pub(super) is_walked: bool,
    /// A leaf could not be given something that it lacks: after an import, when nobody knows what that was, the resilver
    /// is to begin anew.
    pub(super) has_unfilled: bool,
    /// What was found is issued before the walk goes on.
    pub(super) is_issuing: bool,
    /// Something cannot be read, or the pool is being opened or closed.
    pub(super) is_stalled: bool,
    /// What leaves lacked when the resilver began that is under way: it gives them that.
    pub(super) covers: Lacked,
    /// What they lacked when the last one had ended.
    pub(super) given_up: Lacked,
    pub(super) pass: ScanPass,
    /// When a place was last saved.
    pub(super) saved_s: u64,
}

impl Scan {
    pub(super) fn lock(&self) -> MutexGuard<'_, ScanInMemory> {
        self.state.lock()
    }

    /// Sequential resilvers, which are no scans, and not under way beside others.
    pub(super) fn rebuilds(&self) -> &Rebuilds {
        &self.rebuilds
    }

    /// Whether no scan is under way.
    pub(super) fn may_begin(&self) -> bool {
        self.lock().now.as_ref().is_none_or(|stage| stage.phys.state != ScanState::Running)
    }

    /// Takes up what is on disk.
    pub(super) fn load(&self, stage: Option<ScanStage>, now_s: u64) {
        let is_paused = stage.as_ref().is_some_and(|stage| stage.phys.is_paused());
        let pass = ScanPass { start_s: now_s, paused_s: if is_paused { now_s } else { 0 }, ..ScanPass::default() };
        let mut state = self.lock();
        let (given_up, unfinished) = (std::mem::take(&mut state.given_up), state.unfinished);
        *state = ScanInMemory {
            now: stage.clone(),
            saved: stage,
            pass,
            saved_s: now_s,
            given_up,
            unfinished,
            ..ScanInMemory::default()
        };
    }

    /// Whether a step would do something.
    pub(super) fn has_work(&self) -> bool {
        let state = self.lock();
        !state.is_stalled && state.is_active()
    }

    /// Whether what is on disk of it is to be changed, even if nothing is scanned.
    pub(super) fn has_to_be_noted(&self) -> bool {
        let state = self.lock();
        state.is_dirty || !state.is_stalled && state.is_in_vain()
    }

    /// Whether there is something to walk or issue.
    pub(super) fn can_go_on(&self) -> bool {
        let state = self.lock();
        state.is_active() && !state.is_stalled
    }

    /// From now on nothing is done, until [`Scan::wake`].
    pub(super) fn stall(&self) {
        self.lock().is_stalled = true;
    }

    /// What could not be read may be there by now.
    pub(super) fn wake(&self) {
        self.lock().is_stalled = false;
    }

    /// Whether a scrub runs, paused or not.
    pub(super) fn is_scrubbing(&self) -> bool {
        let is_scrub = |stage: &ScanStage| stage.phys.state == ScanState::Running && !stage.phys.is_resilver;
        self.lock().now.as_ref().is_some_and(is_scrub)
    }

    /// Whether a resilver is under way.
    pub(super) fn is_resilvering(&self) -> bool {
        self.lock().is_resilvering()
    }

    /// A block was freed.
    pub(super) fn freed(&self, bp: &BlkPtr) {
        let mut state = self.lock();
        if !state.blocks.is_empty() {
            state.blocks.remove(&place_of(bp));
            state.unread.remove(&place_of(bp));
        }
    }

    /// Head `id` has a new snapshot, which has all that the head had.
    pub(super) fn snapshotted(&self, id: DatasetId, snapshot: DatasetId) {
        self.lock().change_places(|stage| {
            if stage.phys.dataset() == id && id.is_some() {
                stage.phys.set_dataset(snapshot);
            }
            if let Some(txg) = stage.queue.remove(&id) {
                stage.queue.insert(snapshot, txg);
            }
        });
    }

    /// Two heads have exchanged what they hold: the scan goes where that is.
    pub(super) fn exchanged(&self, one: DatasetId, other: DatasetId) {
        let with = |id: DatasetId| if id == one { other } else { one };
        let mut state = self.lock();
        state.change_places(|stage| {
            if [one, other].contains(&stage.phys.dataset()) {
                stage.phys.set_dataset(with(stage.phys.dataset()));
            }
            exchange(&mut stage.queue, one, other);
        });
        exchange(&mut state.entered, one, other);
    }

    /// The datasets that it is in, or has yet to visit.
    pub(super) fn places(&self) -> BTreeSet<DatasetId> {
        let state = self.lock();
        let running = [&state.now, &state.saved].into_iter().flatten();
        let running = running.filter(|stage| stage.phys.state == ScanState::Running);
        let ids = running.flat_map(|stage| stage.queue.keys().copied().chain([stage.phys.dataset()]));
        ids.filter(|&id| id.is_some() && id != ScanPhys::DESTROYED).collect()
    }

    /// Datasets were destroyed: what they shared with others is looked for in all heads.
    pub(super) fn replace_gone(&self, gone: &[DatasetId], heads: &[DatasetId]) {
        self.lock().change_places(|stage| {
            let mut since: Vec<Txg> = gone.iter().filter_map(|id| stage.queue.remove(id)).collect();
            if gone.contains(&stage.phys.dataset()) {
                since.push(stage.phys.dataset_min_txg);
                stage.phys.enter(ScanPhys::DESTROYED);
                stage.phys.flags &= !ScanPhys::FLAG_AGAIN;
            }
            // 0 would stand for the previous snapshot
            let Some(since) = since.into_iter().min().map(|since| since.max(Txg::ZERO.next())) else { return };
            for &head in heads {
                stage.queue.entry(head).and_modify(|txg| *txg = since.min(*txg)).or_insert(since);
            }
        });
    }

    /// A dataset was destroyed; `next_snap` is what followed it if it was a snapshot.
    pub(super) fn destroyed(&self, id: DatasetId, next_snap: Option<DatasetId>) {
        self.lock().change_places(|stage| {
            if stage.phys.dataset() == id && id.is_some() {
                match next_snap {
                    Some(next) => {
                        stage.phys.set_dataset(next);
                        stage.phys.flags |= ScanPhys::FLAG_AGAIN;
                    }
                    None => stage.phys.enter(ScanPhys::DESTROYED),
                }
            }
            if let Some(txg) = stage.queue.remove(&id)
                && let Some(next) = next_snap
            {
                stage.queue.insert(next, txg);
            }
        });
    }
}

impl ScanInMemory {
    /// Whether it runs, and is not paused.
    pub(super) fn is_active(&self) -> bool {
        // a resilver that was under way when the pool was imported begins anew
        let is_known = |stage: &ScanStage| !stage.phys.is_resilver || !self.covers.is_empty();
        self.now.as_ref().is_some_and(|stage| stage.phys.is_active() && is_known(stage))
    }

    fn is_resilvering(&self) -> bool {
        self.now.as_ref().is_some_and(|stage| stage.phys.state == ScanState::Running && stage.phys.is_resilver)
    }

    /// Whether a resilver is under way that gives no leaf anything: those that lacked something are gone.
    pub(super) fn is_in_vain(&self) -> bool {
        self.covers.is_empty() && self.is_resilvering()
    }

    fn change_places(&mut self, change: impl Fn(&mut ScanStage)) {
        for stage in [&mut self.now, &mut self.saved].into_iter().flatten() {
            if stage.phys.state == ScanState::Running {
                let before = stage.clone();
                change(stage);
                self.is_dirty |= *stage != before;
            }
        }
    }

    /// Enters a dataset to look at blocks that were born after a txg. False if these have been looked at: a dataset comes
    /// again only for what is younger, so that a scan ends where datasets lead to each other in a ring.
    pub(super) fn enter(&mut self, id: DatasetId, since_txg: Txg) -> bool {
        let is_new = self.entered.get(&id).is_none_or(|since| *since < since_txg);
        if is_new {
            self.entered.insert(id, since_txg);
        }
        is_new
    }

    /// What is on disk of a scan may say anything.
    fn count(&mut self, count: impl Fn(&mut ScanPhys)) {
        self.now.iter_mut().for_each(|stage| count(&mut stage.phys));
    }

    /// Notes a block that was found; how many wait by now.
    pub(super) fn found(&mut self, bp: &BlkPtr, bookmark: Bookmark, bytes: u64) {
        self.pass.examined_bytes += bytes;
        self.count(|phys| phys.examined_bytes = phys.examined_bytes.saturating_add(bytes));
        self.blocks.insert(place_of(bp), (*bp, bookmark));
    }

    /// Bytes of a block were mended.
    pub(super) fn healed(&mut self, bytes: u64) {
        self.count(|phys| phys.processed_bytes = phys.processed_bytes.saturating_add(bytes));
    }

    /// No copy of a block is right, or what should lead to others makes no sense.
    pub(super) fn failed(&mut self) {
        self.count(|phys| phys.errors = phys.errors.saturating_add(1));
    }

    /// A block could not be reached.
    pub(super) fn put_back(&mut self, bp: &BlkPtr, bookmark: Bookmark) {
        self.blocks.insert(place_of(bp), (*bp, bookmark));
        self.is_stalled = true;
    }

    /// A block was found that nothing is to be done with.
    pub(super) fn passed_over(&mut self, bytes: u64) {
        self.pass.examined_bytes += bytes;
        self.pass.skipped_bytes += bytes;
        self.count(|phys| {
            phys.examined_bytes = phys.examined_bytes.saturating_add(bytes);
            phys.skipped_bytes = phys.skipped_bytes.saturating_add(bytes);
        });
    }

    /// A block was found, but what it leads to cannot be read now.
    pub(super) fn could_not_read(&mut self, bp: &BlkPtr, bookmark: Bookmark) {
        self.blocks.entry(place_of(bp)).or_insert((*bp, bookmark));
        self.unread.insert(place_of(bp));
    }

    /// A block is right, or no copy of it is. A right one that could not be read before led to others, which were left
    /// out.
    pub(super) fn verified(&mut self, bp: &BlkPtr, is_right: bool) {
        if self.unread.remove(&place_of(bp)) && is_right {
            self.is_partial = true;
            self.failed();
        }
    }

    /// How many blocks wait to be issued.
    pub(super) fn waiting(&self) -> usize {
        self.blocks.len()
    }

    /// Takes the next blocks in the order of their places, in so many runs of neighbours at most.
    pub(super) fn take(&mut self, count: usize, limits: JoinLimits) -> Vec<Vec<(BlkPtr, Bookmark)>> {
        let mut runs: Vec<Vec<(BlkPtr, Bookmark)>> = Vec::new();
        let mut last: Option<(VdevNumber, Range<u64>)> = None;
        while let Some(entry) = self.blocks.first_entry() {
            let (top, offset) = *entry.key();
            let end = offset.saturating_add(entry.get().0.dvas()[0].asize());
            let is_full = runs.len() == count;
            match (&mut last, runs.last_mut()) {
                (Some((of, run)), Some(blocks)) if *of == top && limits.allow(run, offset..end) => {
                    run.end = run.end.max(end);
                    blocks.push(entry.remove());
                }
                _ if is_full => break,
                _ => {
                    last = Some((top, offset..end));
                    runs.push(vec![entry.remove()]);
                }
            }
        }
        runs
    }

    /// Nothing is waiting for being issued: what is on disk may say so.
    pub(super) fn save(&mut self) {
        if self.saved != self.now {
            self.saved = self.now.clone();
            self.is_dirty = true;
        }
    }

    /// The walk is over, at that time.
    pub(super) fn end(&mut self, end: ScanState, end_s: u64) {
        if let Some(ScanStage { phys, queue }) = &mut self.now {
            queue.clear();
            (phys.state, phys.end_s, phys.flags, phys.queue) = (end, end_s, 0, ObjectId::NONE);
        }
        self.save();
    }

    /// Forgets what was found.
    pub(super) fn forget_blocks(&mut self) {
        self.blocks.clear();
        self.unread.clear();
        (self.is_walked, self.is_issuing, self.is_stalled) = (false, false, false);
    }
}

/// Puts what a map has for each of two keys at the other one.
fn exchange(map: &mut BTreeMap<DatasetId, Txg>, one: DatasetId, other: DatasetId) {
    let (of_one, of_other) = (map.remove(&one), map.remove(&other));
    map.extend(of_one.map(|value| (other, value)));
    map.extend(of_other.map(|value| (one, value)));
}

fn place_of(bp: &BlkPtr) -> (VdevNumber, u64) {
    let dva = &bp.dvas()[0];
    (dva.vdev(), dva.offset())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> DatasetId {
        DatasetId::new(number)
    }

    #[test]
    fn counters_of_the_disk_do_not_overflow() {
        let mut words = [u64::MAX; ScanPhys::WORDS];
        (words[0], words[1]) = (1, 1);
        let phys = ScanPhys::parse(&words).unwrap().unwrap();
        let scan = Scan::default();
        scan.load(Some(ScanStage { phys, queue: BTreeMap::new() }), 7);
        let mut state = scan.lock();
        state.found(&BlkPtr::HOLE, ScanPhys::START, 512);
        state.healed(512);
        state.failed();
        let now = &state.now.as_ref().unwrap().phys;
        assert_eq!([now.examined_bytes, now.processed_bytes, now.errors], [u64::MAX; 3]);
    }

    #[test]
    fn it_goes_where_heads_exchange_what_they_hold() {
        let mut words = [0; ScanPhys::WORDS];
        (words[0], words[1]) = (1, 1);
        let phys = ScanPhys::parse(&words).unwrap().unwrap();
        let scan = Scan::default();
        scan.load(Some(ScanStage { phys, queue: BTreeMap::from([(id(7), Txg::new(70)), (id(9), Txg::new(90))]) }), 1);
        assert!(scan.lock().enter(id(8), Txg::new(50)));
        scan.exchanged(id(7), id(8));
        let state = scan.lock();
        for stage in [&state.now, &state.saved].into_iter().flatten() {
            assert_eq!(stage.queue, BTreeMap::from([(id(8), Txg::new(70)), (id(9), Txg::new(90))]));
        }
        assert_eq!((state.entered.clone(), state.is_dirty), (BTreeMap::from([(id(7), Txg::new(50))]), true));
        drop(state);
        for (next, after) in [(7, 8), (8, 7), (5, 5)] {
            scan.lock().now.as_mut().unwrap().phys.next.objset = next;
            scan.exchanged(id(8), id(7));
            assert_eq!(scan.lock().now.as_ref().unwrap().phys.next.objset, after);
        }
    }

    #[test]
    fn datasets_in_a_ring_are_left() {
        let mut state = ScanInMemory::default();
        // (id, txg that it leads on with)
        let ring = [(7, 10), (8, 20), (9, 15)];
        let (mut at, mut since, mut steps) = (0, 1, 0);
        while state.enter(id(ring[at].0), Txg::new(since)) {
            (since, at, steps) = (ring[at].1, (at + 1) % ring.len(), steps + 1);
        }
        assert_eq!(steps, 4);
        assert!(state.enter(id(7), Txg::new(16)) && !state.enter(id(7), Txg::new(16)));
    }
}
