//! Sequential resilvers: all that is in use on a mirror or draid is given to a new leaf, metaslab by metaslab, and verified
//! afterwards, by a scrub.
//!
//! ```text
//!   attach -s, replace -s ─▶ entry in the table of the top-level vdev ─▶ in use before this group, in the order of places
//!   ─▶ copied (vdev::Tree::rebuild) ─▶ entry: how far ─▶ ... ─▶ the new side lacks nothing ─▶ scrub
//! ```
//!
//! A block that is born in a group that is not on disk yet is not copied: it is written to all sides by itself, and might be
//! so at this moment. It is a job, which goes on after an import, here or with OpenZFS. If something could not be read or
//! written, the new side goes on lacking everything, and a resilver of the usual kind follows.

use std::ops::Range;

use base::{Error, Kind, Result, tunables};
use dmu::zap::{Zap, ZapValue};
use dsl::write::feature;
use format::feature::DEVICE_REBUILD;
use format::ids::{Guid, ObjectId, Txg, VdevNumber};
use format::nvlist::{NvList, Value};
use format::rebuild::{RebuildPhys, VDEV_REBUILD};
use format::scan::ScanState;
use vdev::{LeafVdev, TxgRanges, Vdev, VdevKind};

use crate::live::error_scrub;
use crate::live::scan::{Lacked, RebuildStage};
use crate::live::{LivePool, SyncContext};
use crate::{FeatureState, metaslabs};

/// Bytes that are copied at once.
const BATCH_BYTES: u64 = 8 << 20;

impl LivePool {
    /// Whether a leaf can come beside the one given, and get everything sequentially or, if that is not asked for,
    /// otherwise. Errors: `Exists` if leaves are given what they lack the other way; `Unsupported`.
    pub(in crate::live) fn check_rebuild(&self, top: &Vdev, is_sequential: bool, replaces: bool) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(Kind::Unsupported, what.to_owned()));
        let is_resilvering = !self.scan().lock().covers.is_empty() || self.needs_resilver();
        match is_sequential {
            false if self.scan().rebuilds().is_under_way(None) => {
                Err(Error::new(Kind::Exists, "currently sequentially resilvering"))
            }
            true if self.view().features().state(DEVICE_REBUILD) == FeatureState::Disabled => {
                refuse("device_rebuild feature must be enabled in order to use sequential reconstruction")
            }
            true if is_resilvering => Err(Error::new(Kind::Exists, "currently resilvering")),
            true if top.is_log() => refuse("a log has nothing to be reconstructed"),
            true if !self.tree().is_rebuildable(top) && replaces => {
                refuse("only mirror and dRAID vdevs support sequential reconstruction")
            }
            _ => Ok(()),
        }
    }

    /// Errors: `Busy` while known errors are scrubbed, `Exists` while leaves are given everything sequentially.
    pub(in crate::live) fn check_may_scrub(&self) -> Result<()> {
        match self.scan().rebuilds().is_under_way(None) {
            true => Err(Error::new(Kind::Exists, "currently resilvering")),
            false if self.error_scrub().is_running() => Err(error_scrub::busy()),
            false => Ok(()),
        }
    }

    /// Takes up what is on disk.
    pub(in crate::live) fn load_rebuilds(&self) -> Result<()> {
        let now_ns = self.env().ticks_ns();
        for (number, spec) in self.tree().tops().filter_map(|top| Some((top.number(), top.top_spec()?))) {
            if spec.zap.is_none() {
                continue;
            }
            let words = Zap::open(self.mos().object(spec.zap)?)?.lookup(VDEV_REBUILD.as_bytes())?;
            let phys = words.and_then(|words| RebuildPhys::parse(&words.u64s()));
            if let Some(phys) = phys.filter(|phys| phys.state == ScanState::Running) {
                self.scan().rebuilds().lock().by_top.insert(number, RebuildStage::new(phys, now_ns));
            }
        }
        Ok(())
    }

    /// Whether a step would do something.
    pub(in crate::live) fn has_rebuild_work(&self) -> bool {
        self.scan().rebuilds().have_work() && (!self.is_scan_held() || self.has_rebuild_in_vain())
    }

    /// Whether there is a sequential resilver that nobody needs any more.
    fn has_rebuild_in_vain(&self) -> bool {
        let tops: Vec<VdevNumber> = self.scan().rebuilds().lock().by_top.keys().copied().collect();
        tops.into_iter().filter_map(|number| self.tree().top(number).ok()).any(|top| self.lacked_of(top).is_empty())
    }

    /// What those leaves lack on a top-level vdev that are to get it by a sequential resilver.
    fn lacked_of(&self, top: &Vdev) -> Lacked {
        let leaves = self.tree().leaves_of(top.id());
        let is_its =
            |leaf: &LeafVdev<'_>| leaf.state().rebuild_txg() != Txg::ZERO && leaf.state().health().is_readable();
        let leaves = leaves.into_iter().filter(is_its);
        leaves
            .map(|leaf| (leaf.guid(), leaf.state().dtl().missing()))
            .filter(|(_, lacked)| !lacked.is_empty())
            .collect()
    }
}

impl SyncContext<'_> {
    /// Begins to give a leaf that has just come all that it lacks. If that is being done for another one, it begins anew.
    pub(in crate::live) fn begin_rebuild(&self, leaf: LeafVdev<'_>) -> Result<()> {
        let (pool, change, txg) = (self.pool, &self.change, self.change.tx.txg());
        let top = pool.tree().top_of(leaf.vdev());
        leaf.state().set_rebuild_txg(txg);
        let is_reset = pool.scan().rebuilds().is_under_way(Some(top.number()));
        if pool.scan().is_scrubbing() {
            self.end_scan(ScanState::Canceled)?;
        }
        let phys = RebuildPhys {
            state: ScanState::Running,
            offset: 0,
            min_txg: Txg::INITIAL,
            max_txg: txg,
            start_s: change.env.now_s(),
            end_s: 0,
            time_ms: 0,
            found_bytes: 0,
            read_bytes: 0,
            written_bytes: 0,
            to_find_bytes: 0,
            errors: 0,
        };
        let stage = RebuildStage::new(phys, change.env.ticks_ns());
        self.write_rebuild(top, &phys)?;
        pool.scan().rebuilds().lock().by_top.insert(top.number(), stage);
        match is_reset {
            true => self.tell_rebuild(top, "reset", None),
            false => {
                feature::count(change, DEVICE_REBUILD, 1)?;
                self.tell_rebuild(top, "started", Some("resilver_start"));
            }
        }
        Ok(())
    }

    fn tell_rebuild(&self, top: &Vdev, what: &str, event: Option<&str>) {
        self.log_event("rebuild", &format!("vdev_id={} vdev_guid={} {what}", top.number(), top.guid()));
        let mut more = NvList::new();
        more.set("resilver_type", Value::Str("sequential".to_owned()));
        event.into_iter().for_each(|event| self.pool.notify_with(event, Some(top), more.clone()));
    }

    fn write_rebuild(&self, top: &Vdev, phys: &RebuildPhys) -> Result<()> {
        let zap = top.top_spec().map_or(ObjectId::NONE, |spec| spec.zap);
        let value = ZapValue::new(8, &phys.words());
        if zap.is_none() { Ok(()) } else { self.change.set(zap, VDEV_REBUILD, &value) }
    }

    /// Goes on with all sequential resilvers for a while.
    pub(in crate::live) fn step_rebuilds(&self) -> Result<()> {
        let pool = self.pool;
        let numbers: Vec<VdevNumber> = pool.scan().rebuilds().lock().by_top.keys().copied().collect();
        for number in numbers {
            let top = pool.tree().top(number)?;
            let Some(mut stage) = pool.scan().rebuilds().lock().by_top.get(&number).cloned() else { continue };
            let end = self.step_rebuild(top, &mut stage);
            let ms = self.change.env.ticks_ns().saturating_sub(stage.pass_start_ns) / 1_000_000;
            stage.phys.time_ms = stage.spent_ms.saturating_add(ms);
            if let Ok(Some(state)) = end {
                self.end_rebuild(top, stage, state)?;
                continue;
            }
            self.write_rebuild(top, &stage.on_disk())?;
            pool.scan().rebuilds().lock().by_top.insert(number, stage);
            end?;
        }
        Ok(())
    }

    /// Copies for a while. How it has ended, if it has.
    fn step_rebuild(&self, top: &Vdev, stage: &mut RebuildStage) -> Result<Option<ScanState>> {
        let (pool, txg) = (self.pool, self.change.tx.txg());
        let lacked = pool.lacked_of(top);
        // a new leaf may lack what is born in the next groups, too, until these are on disk
        let is_new = |lacked: &TxgRanges| lacked.iter().any(|range| (txg.next()..Txg::MAX).contains(&range.end));
        if lacked.values().any(is_new) {
            return Ok(None);
        }
        if lacked.is_empty() || !pool.tree().is_rebuildable(top) {
            return Ok(Some(ScanState::Canceled));
        }
        if pool.is_scan_held() {
            return Ok(None);
        }
        if stage.covers.is_none() {
            self.cover(top, stage);
        }
        stage.covers.iter_mut().for_each(|covers| covers.retain(|guid, _| lacked.contains_key(guid)));
        if stage.covers.as_ref().is_none_or(Lacked::is_empty) {
            return Ok(Some(ScanState::Canceled));
        }
        let start_ns = self.change.env.ticks_ns();
        let [min_ms, max_ms] =
            [tunables::ZFS_RESILVER_MIN_TIME_MS, tunables::ZFS_TXG_TIMEOUT].map(|name| pool.env().tunable(name));
        loop {
            let ranges = self.next_in_use(top, stage)?;
            let Some(last) = ranges.last() else { return Ok(Some(ScanState::Finished)) };
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            match pool.tree().rebuild(top.number(), &ranges) {
                Ok(rebuilt) => {
                    stage.phys.read_bytes += bytes;
                    stage.phys.written_bytes += rebuilt.bytes;
                    stage.phys.errors += rebuilt.errors;
                    stage.has_unfilled |= rebuilt.unwritten > 0;
                }
                // it may be back later; until then all stands still that needs it
                Err(error) if error.kind() == Kind::Missing && !pool.tree().health(top.id()).is_readable() => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(pool = pool.name(), vdev = top.name(), "sequential resilver: {error}");
                    stage.phys.errors += 1;
                    return Ok(Some(ScanState::Finished));
                }
            }
            stage.phys.offset = last.end;
            stage.phys.found_bytes += bytes;
            let covers = stage.covers.iter().flat_map(|covers| covers.keys());
            let is_unfilled =
                |guid: &Guid| pool.tree().leaf(*guid).is_none_or(|leaf| leaf.state().dtl().has_unfilled());
            stage.has_unfilled |= covers.into_iter().any(is_unfilled);
            let ms = self.change.env.ticks_ns().saturating_sub(start_ns) / 1_000_000;
            if ms > max_ms.saturating_mul(1000) || ms > min_ms && pool.txgs().is_wanted() {
                return Ok(None);
            }
        }
    }

    /// Decides what it is to give to leaves; it begins anew if what was done so far is not enough.
    fn cover(&self, top: &Vdev, stage: &mut RebuildStage) {
        let (pool, txg) = (self.pool, self.change.tx.txg());
        for leaf in pool.lacked_of(top).keys().filter_map(|guid| pool.tree().leaf(*guid)) {
            let dtl = leaf.state().dtl();
            // one that may lack all that comes is written to by now
            if dtl.contains(Txg::MAX.previous()) {
                dtl.remove(txg.next()..Txg::MAX);
            }
            dtl.begin_resilver();
        }
        let covers = pool.lacked_of(top);
        let bounds: Vec<Range<Txg>> = covers.values().filter_map(TxgRanges::bounds).collect();
        let first = bounds.iter().map(|range| range.start).min().unwrap_or(Txg::INITIAL);
        let end = bounds.iter().map(|range| range.end).max().unwrap_or(txg);
        let phys = &mut stage.phys;
        if first < phys.min_txg || end > phys.max_txg || phys.errors > 0 {
            let (state, start_s) = (phys.state, phys.start_s);
            *phys = RebuildPhys { state, start_s, ..RebuildPhys::parse(&[1]).expect("it runs") };
            stage.spent_ms = 0;
        }
        (phys.min_txg, phys.max_txg) = (first, end);
        let left = pool.cache().zio().allocator().map_or(0, |allocator| {
            let shift = top.top_spec().map_or(0, |spec| spec.metaslab_shift);
            allocator.allocated_from(top.number(), (phys.offset >> shift) as usize)
        });
        phys.to_find_bytes = phys.found_bytes.saturating_add(left);
        stage.covers = Some(covers);
    }

    /// The next ranges that are in use, some [`BATCH_BYTES`] of them; none if there are no more.
    fn next_in_use(&self, top: &Vdev, stage: &RebuildStage) -> Result<Vec<Range<u64>>> {
        let (pool, before) = (self.pool, self.change.tx.txg().previous());
        let shift = top.top_spec().map_or(0, |spec| spec.metaslab_shift);
        // of a draid, whole stripes
        let unit = match top.kind() {
            VdevKind::Draid(shape) => (shape.ndata + shape.nparity) << top.top_spec().map_or(0, |spec| spec.ashift),
            _ => 1 << 16,
        };
        let segment_bytes = pool.env().tunable(tunables::ZFS_REBUILD_MAX_SEGMENT).clamp(1 << 16, 16 << 20);
        let segment_bytes = (segment_bytes / unit * unit).max(unit);
        let allocator = pool.cache().zio().allocator()?;
        let (mut ranges, mut left) = (Vec::new(), BATCH_BYTES);
        for metaslab in stage.phys.offset >> shift..metaslabs::count(top) {
            let in_use = allocator.condensed(top.number(), metaslab, before)?;
            for part in in_use.iter().filter(|part| part.end > stage.phys.offset) {
                let start = part.start.max(stage.phys.offset);
                for at in (start..part.end).step_by(segment_bytes as usize) {
                    let range = at..part.end.min(at + segment_bytes);
                    left = left.saturating_sub(range.end - range.start);
                    ranges.push(range);
                    if left == 0 {
                        return Ok(ranges);
                    }
                }
            }
        }
        Ok(ranges)
    }

    /// It has come to its end.
    fn end_rebuild(&self, top: &Vdev, mut stage: RebuildStage, state: ScanState) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        // what leaves were given lasts before that is relied upon
        let lasts = pool.tree().flush().is_ok();
        let phys = &mut stage.phys;
        (phys.state, phys.end_s) = (state, change.env.now_s());
        phys.to_find_bytes = phys.to_find_bytes.max(phys.found_bytes);
        let is_whole = state == ScanState::Finished && lasts && phys.errors == 0 && !stage.has_unfilled;
        for (guid, lacked) in stage.covers.iter().flatten().filter(|_| is_whole) {
            let Some(leaf) = pool.tree().leaf(*guid) else { continue };
            let dtl = leaf.state().dtl();
            // one that lacks more by now, or something that it could not take, may not have got everything
            if dtl.missing() == *lacked && !dtl.has_unfilled() {
                dtl.end_resilver(phys.min_txg..phys.max_txg.next());
            }
        }
        let leaves = pool.tree().leaves_of(top.id());
        leaves.iter().for_each(|leaf| leaf.state().set_rebuild_txg(Txg::ZERO));
        self.write_rebuild(top, phys)?;
        feature::count(change, DEVICE_REBUILD, -1)?;
        pool.scan().rebuilds().lock().by_top.remove(&top.number());
        let what = if state == ScanState::Finished { "complete" } else { "canceled" };
        self.tell_rebuild(top, what, Some("resilver_finish"));
        self.write_config()?;
        let is_scrubbed = pool.env().tunable(tunables::ZFS_REBUILD_SCRUB_ENABLED) != 0;
        let is_idle = !pool.scan().rebuilds().is_under_way(None) && pool.scan().may_begin() && !pool.needs_resilver();
        if state == ScanState::Finished && is_scrubbed && is_idle && !pool.error_scrub().is_running() {
            self.begin_scan(false, (Txg::ZERO, change.tx.txg()))?;
        }
        Ok(())
    }
}
