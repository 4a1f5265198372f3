//! Resilvers: leaves that are back, or new, are given what they lack.
//!
//! ```text
//!   dirty time logs of leaves that are used ─▶ groups that one of them lacks ─▶ a scan of blocks born in these
//!   a block that a leaf lacks ─▶ read from the others, written to it ─▶ all of them: its dirty time log is empty
//! ```
//!
//! A resilver is a scan as a scrub is ([`super::scrub`]), which ends one that is under way. It begins by itself, in the
//! first group in which a leaf lacks something. A leaf that was away meanwhile, or to which something could not be
//! written, goes on lacking it. All go on lacking everything if the walk could not read something that was right when it
//! was looked at again, as a device was away meanwhile. Then another resilver begins, but a few in a row only; after these,
//! and with what nobody has, one begins when a leaf lacks something else, or was made to work again.
//!
//! Which leaves a resilver gives everything is in their configuration, as OpenZFS has it: its last group. So it goes on
//! after an import where it was, if it is of all that leaves lack, and if no block failed so far; else it begins anew.
//! Leaves are written to without being read first: a block that one has got already is written again.
//!
//! A leaf that comes while a resilver is under way waits for the next one, which its configuration says (feature
//! `resilver_defer`); without that feature the resilver begins anew.

mod rebuild;

use base::{Error, Kind, Result, tunables};
use dsl::write::feature;
use format::feature::RESILVER_DEFER;
use format::ids::{Guid, Txg, VdevNumber};
use format::scan::ScanState;
use vdev::{Dtl, LeafVdev, TxgRanges};

use super::scan::Lacked;
use super::{LivePool, SyncContext};

/// Resilvers in a row that leave something out before no more begin by themselves.
const UNFINISHED_MAX: usize = 4;

impl LivePool {
    /// Whether a leaf lacks something that no resilver was begun for: one begins by itself.
    pub fn needs_resilver(&self) -> bool {
        let (is_stalled, is_under_way) = {
            let state = self.scan().lock();
            (state.is_stalled, !state.covers.is_empty())
        };
        // most leaves lack nothing
        if is_stalled || is_under_way || self.tree().leaves().all(|leaf| leaf.state().dtl().is_empty()) {
            return false;
        }
        let lacked = self.lacked();
        let state = self.scan().lock();
        lacked.iter().any(|(guid, lacked)| state.given_up.get(guid) != Some(lacked))
    }

    /// What those leaves lack that are used, and beside which there are others. Those of a vdev that is resilvered
    /// sequentially have to wait for the end of that.
    fn lacked(&self) -> Lacked {
        let tree = self.tree();
        let has_others = |leaf: &LeafVdev<'_>| {
            let top = tree.top_of(leaf.vdev());
            top.id() != leaf.id() && !self.scan().rebuilds().is_under_way(Some(top.number()))
        };
        let leaves = tree.leaves().filter(|leaf| leaf.state().health().is_readable() && has_others(leaf));
        leaves
            .map(|leaf| (leaf.guid(), leaf.state().dtl().missing()))
            .filter(|(_, lacked)| !lacked.is_empty())
            .collect()
    }

    /// What leaves lack that the resilver gives to them, by number of their top-level vdevs.
    pub(super) fn covered_tops(&self) -> Vec<(VdevNumber, TxgRanges)> {
        let covers = self.scan().lock().covers.clone();
        let leaves = covers.into_iter().filter_map(|(guid, lacked)| Some((self.tree().leaf(guid)?, lacked)));
        leaves.map(|(leaf, lacked)| (self.tree().top_of(leaf.vdev()).number(), lacked)).collect()
    }

    /// Leaves that lack something which the resilver under way does not give them, and which do not wait yet.
    fn late_leaves(&self) -> Vec<LeafVdev<'_>> {
        let covers = self.scan().lock().covers.clone();
        if covers.is_empty() {
            return Vec::new();
        }
        let late = self.lacked().into_keys().filter(|guid| !covers.contains_key(guid));
        let leaves = late.filter_map(|guid| self.tree().leaf(guid));
        leaves.filter(|leaf| !leaf.state().resilver_deferred()).collect()
    }

    /// Whether leaves have to wait, or the resilver to begin anew with them.
    pub(super) fn has_late_leaves(&self) -> bool {
        !self.late_leaves().is_empty()
    }

    /// Whether the resilver under way has done less than the part that lets others wait for it.
    fn is_early_resilver(&self) -> bool {
        let state = self.scan().lock();
        // what is to be on disk of it has been issued
        let Some(done) = state.saved.as_ref().map(|stage| stage.phys) else { return false };
        let whole = done.to_examine_bytes.saturating_sub(done.skipped_bytes);
        let percent = u128::from(self.env().tunable(tunables::ZFS_RESILVER_DEFER_PERCENT));
        let done_bytes = done.examined_bytes.saturating_sub(done.skipped_bytes);
        u128::from(done_bytes) * 100 < u128::from(whole) * percent
    }

    /// Whether that is so of a leaf that the resilver gives what it lacks.
    pub(super) fn has_covered(&self, is_so: impl Fn(&Dtl) -> bool) -> bool {
        let covers = Vec::from_iter(self.scan().lock().covers.keys().copied());
        covers.into_iter().filter_map(|guid| self.tree().leaf(guid)).any(|leaf| is_so(leaf.state().dtl()))
    }

    /// A leaf that is away does not get everything. Whether there is one.
    fn uncover_lost_leaves(&self) -> bool {
        let is_lost = |guid: Guid| self.tree().leaf(guid).is_none_or(|leaf| !leaf.state().health().is_readable());
        let lost: Vec<Guid> = self.scan().lock().covers.keys().copied().filter(|guid| is_lost(*guid)).collect();
        self.scan().lock().covers.retain(|guid, _| !lost.contains(guid));
        lost.iter()
            .filter_map(|guid| self.tree().leaf(*guid))
            .for_each(|leaf| leaf.state().set_resilver_txg(Txg::ZERO));
        !lost.is_empty()
    }

    /// Begins a resilver of all that leaves lack, with those that came back while one was under way. Errors:
    /// `Unsupported` if the pool lacks the feature for that; those of writing.
    pub fn restart_resilver(&self) -> Result<()> {
        if self.view().features().state(RESILVER_DEFER) == crate::FeatureState::Disabled {
            return Err(Error::new(Kind::Unsupported, "this action requires the resilver_defer feature"));
        }
        self.resilver_anew()
    }

    /// As [`LivePool::restart_resilver`], in any pool.
    pub(super) fn resilver_anew(&self) -> Result<()> {
        self.run(|context| {
            let pool = context.pool;
            {
                let mut state = pool.scan().lock();
                state.given_up.clear();
                state.is_stalled = false;
                state.covers.clear();
            }
            if pool.lacked().is_empty() { Ok(()) } else { context.begin_resilver() }
        })
    }

    /// A block could not be read: leaves that lack it go on lacking it.
    pub(super) fn note_unfilled(&self, guids: impl Iterator<Item = Guid>, birth_txg: Txg) {
        guids.filter_map(|guid| self.tree().leaf(guid)).for_each(|leaf| leaf.state().dtl().note_unfilled(birth_txg));
    }
}

impl SyncContext<'_> {
    /// Begins a resilver of all that leaves lack.
    pub(super) fn begin_resilver(&self) -> Result<()> {
        let (pool, txg) = (self.pool, self.change.tx.txg());
        // a new leaf may lack what is born in the next groups, too, until these are on disk: what is under way goes on
        let is_to_come = |lacked: &TxgRanges| lacked.iter().any(|range| (txg.plus(2)..Txg::MAX).contains(&range.end));
        let lacked = pool.lacked();
        if lacked.values().any(is_to_come) {
            return Ok(());
        }
        let lacking: Vec<LeafVdev<'_>> = lacked.keys().filter_map(|guid| pool.tree().leaf(*guid)).collect();
        let is_new = |leaf: &LeafVdev<'_>| leaf.state().resilver_txg().is_zero();
        let mut has_late = pool.scan().is_resilvering() && lacking.iter().any(is_new);
        for leaf in pool.tree().leaves() {
            has_late |= leaf.state().set_resilver_deferred(false);
        }
        if has_late {
            self.log_event("starting deferred resilver", "");
        }
        if pool.scan().is_scrubbing() {
            self.end_scan(ScanState::Canceled)?;
        }
        for leaf in lacking {
            let dtl = leaf.state().dtl();
            // one that may lack all that comes is written to by now
            if dtl.contains(Txg::MAX.previous()) {
                dtl.remove(txg.next()..Txg::MAX);
            }
            dtl.begin_resilver();
        }
        let covers = pool.lacked();
        let bounds: Vec<_> = covers.values().filter_map(TxgRanges::bounds).collect();
        let min_txg = bounds.iter().map(|range| range.start).min().unwrap_or(txg).previous();
        let end_txg = bounds.iter().map(|range| range.end).max().unwrap_or(txg);
        // the end of the last range, as OpenZFS has it: it takes from what leaves lack only what is before that
        let max_txg = end_txg.min(txg.next());
        self.begin_scan(true, (min_txg, max_txg))?;
        self.count_deferred()?;
        for leaf in pool.tree().leaves() {
            leaf.state().set_resilver_txg(if covers.contains_key(&leaf.guid()) { max_txg } else { Txg::ZERO });
        }
        pool.scan().lock().covers = covers;
        self.write_config()
    }

    /// Leaves that are away do not get everything; those that have come meanwhile have to wait.
    pub(super) fn look_at_leaves(&self) -> Result<()> {
        let is_changed = self.pool.uncover_lost_leaves();
        let is_changed = self.defer_late_leaves()? || is_changed;
        if is_changed { self.write_config() } else { Ok(()) }
    }

    /// Leaves that lack something which the resilver under way does not give them wait for the next one, or it begins anew
    /// with them, if the pool lacks the feature for that, or not much is done yet. Whether there are new ones that wait.
    fn defer_late_leaves(&self) -> Result<bool> {
        let pool = self.pool;
        let late = pool.late_leaves();
        if late.is_empty() {
            return Ok(false);
        }
        match feature::uses(&self.change, RESILVER_DEFER)? {
            Some(_) if !pool.is_early_resilver() => {
                late.iter().for_each(|leaf| {
                    leaf.state().set_resilver_deferred(true);
                });
                self.count_deferred().map(|()| true)
            }
            _ => self.begin_resilver().map(|()| false),
        }
    }

    /// The feature is in use as long as a leaf waits.
    fn count_deferred(&self) -> Result<()> {
        let waits = self.pool.tree().leaves().any(|leaf| leaf.state().resilver_deferred());
        let uses = feature::uses(&self.change, RESILVER_DEFER)?.unwrap_or(0);
        let wanted = u64::from(waits);
        let delta = if (uses > 0) == waits { 0 } else { wanted.cast_signed().saturating_sub_unsigned(uses) };
        feature::count(&self.change, RESILVER_DEFER, delta).map(drop)
    }

    /// Whether the resilver that is on disk gives leaves all that they lack, if it goes on where it was.
    fn may_go_on(&self, lacked: &Lacked) -> bool {
        let Some(phys) = self.pool.scan().lock().now.as_ref().map(|stage| stage.phys) else { return false };
        let is_given = |guid: Guid, lacked: &TxgRanges| {
            let leaf = self.pool.tree().leaf(guid);
            let is_its = leaf.is_some_and(|leaf| leaf.state().resilver_txg() == phys.max_txg);
            is_its
                && lacked.bounds().is_some_and(|txgs| txgs.start > phys.min_txg && txgs.end.previous() <= phys.max_txg)
        };
        phys.is_resilver
            && phys.state == ScanState::Running
            && phys.errors == 0
            && lacked.iter().all(|(guid, lacked)| is_given(*guid, lacked))
    }

    /// Begins a resilver if a leaf lacks something, or goes on with the one that is on disk; its first step is for a group
    /// to come.
    pub(super) fn resilver_after_import(&self) -> Result<()> {
        let lacked = self.pool.lacked();
        if lacked.is_empty() {
            return Ok(());
        }
        let waits = |guid: &Guid| self.pool.tree().leaf(*guid).is_some_and(|leaf| leaf.state().resilver_deferred());
        let given: Lacked = lacked.into_iter().filter(|(guid, _)| !waits(guid)).collect();
        match !given.is_empty() && self.may_go_on(&given) {
            true => self.pool.scan().lock().covers = given,
            false => self.begin_resilver()?,
        }
        self.pool.scan().stall();
        Ok(())
    }

    /// The resilver of groups behind `min_txg`, and up to `max_txg`, has come to its end.
    pub(super) fn end_resilver(&self, (min_txg, max_txg): (Txg, Txg)) -> Result<()> {
        let pool = self.pool;
        pool.uncover_lost_leaves();
        // what they were given lasts before that is relied upon
        let lasts = pool.tree().flush().is_ok() && !pool.has_covered(|dtl| dtl.has_lost_fill());
        let (covers, is_partial) = {
            let mut state = pool.scan().lock();
            let is_partial = std::mem::take(&mut state.is_partial) || !lasts;
            (std::mem::take(&mut state.covers), is_partial)
        };
        let mut is_unfinished = is_partial;
        for (guid, lacked) in &covers {
            let Some(leaf) = pool.tree().leaf(*guid) else { continue };
            let dtl = leaf.state().dtl();
            // one that lacks more by now may not have got everything
            let lacks_more = dtl.missing() != *lacked;
            is_unfinished |= lacks_more;
            if !lacks_more && !is_partial {
                dtl.end_resilver(min_txg.next()..max_txg.next());
            }
        }
        // those that have come meanwhile were not tried
        let given_up = pool.lacked().into_iter().filter(|(guid, _)| covers.contains_key(guid)).collect();
        self.count_deferred()?;
        let mut state = pool.scan().lock();
        state.unfinished = if is_unfinished { state.unfinished + 1 } else { 0 };
        let is_tried_again = is_unfinished && state.unfinished < UNFINISHED_MAX;
        state.given_up = if is_tried_again { Lacked::new() } else { given_up };
        drop(state);
        pool.tree().leaves().for_each(|leaf| leaf.state().set_resilver_txg(Txg::ZERO));
        self.write_config()
    }
}
