//! Expansion of raidz vdevs: one more device, over which all that is on the vdev is dealt out anew.
//!
//! ```text
//!   begin    blank label ─▶ task: the device is a child, sectors are to be moved
//!   steps    a job: what is free is lent by the allocator ─▶ the rest is moved (vdev `reflow`) ─▶ flushed; how far that
//!            is says the uberblock, and a step goes no further than what the one on disk leads to allows
//!   finish   task, when the uberblock on disk says that all has moved: blocks are wider from a group soon on; the vdev
//!            grows, and is scrubbed
//! ```
//!
//! What is allocated while sectors move is written where it is on disk, and where it will be. A step that fails leaves
//! nothing behind but bytes in free places; while a device of the vdev lacks something, there is none.
//!
//! Source: the published description of raidz expansion, and the behaviour of OpenZFS.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use base::{Error, Kind, Result, tunables};
use device::Device;
use dmu::zap::ZapValue;
use dsl::write::feature;
use format::feature::RAIDZ_EXPANSION;
use format::ids::{Guid, ObjectId, Txg, VdevNumber};
use format::scan::ScanState;
use vdev::{Edit, LeafVdev, Reflow, Vdev, VdevKind, geometry, label};

use super::attach::{GROUPS_UNDER_WAY, LARGE_SECTORS};
use super::create::leaf_spec;
use super::vdevs::no_such_device;
use super::{LivePool, NewLeaf, SyncContext};
use crate::{FeatureState, metaslabs};

/// Bytes that are moved in one group at most.
const MOVED_BYTES_MAX: u64 = 256 << 20;
/// Milliseconds of a group after which a step ends that somebody waits for.
const STEP_MS_MIN: u64 = 500;
/// Entries in the table of a top-level vdev.
const STATE: &str = "org.openzfs:raidz_expand_state";
const START_TIME: &str = "org.openzfs:raidz_expand_start_time";
const END_TIME: &str = "org.openzfs:raidz_expand_end_time";
const BYTES_COPIED: &str = "org.openzfs:raidz_expand_bytes_copied";
/// Values of the first of them.
const RUNNING: u64 = 1;
const FINISHED: u64 = 2;
/// OpenZFS's words.
const IN_PROGRESS: &str = "raidz expansion in progress";

impl LivePool {
    /// Gives the raidz with `guid` one more child, a new device. Its sectors are what `ashift` says, or the device.
    ///
    /// Errors: `NotFound`; `Unsupported` if the pool lacks the feature, another expansion is under way, or devices of the
    /// vdev are not there, or are being replaced; `TooBig` if the device is too small; `Unsupported` also if its sectors
    /// are too large; those of writing; `Suspended`.
    pub fn widen(&self, guid: Guid, new: &NewLeaf, ashift: Option<u32>, device: Arc<dyn Device>) -> Result<()> {
        let _alone = self.change_vdevs_alone();
        self.suspension().check_running()?;
        self.refuse_with_checkpoint()?;
        self.refuse_with_removal()?;
        let top = self.tree().tops().find(|top| top.guid() == guid).ok_or_else(no_such_device)?;
        self.check_may_widen(top)?;
        let spec = top.top_spec().ok_or_else(no_such_device)?;
        let first = top.children().first().and_then(|child| self.tree().vdev(*child).as_leaf());
        let least = first.map_or(0, |leaf| self.tree().least_asize(leaf));
        if geometry::leaf_asize(device.size()).map_or(true, |asize| asize < least) {
            return Err(Error::new(Kind::TooBig, "device is too small"));
        }
        if self.asked_sector(new, ashift, &*device) > spec.ashift {
            return Err(Error::new(Kind::Unsupported, LARGE_SECTORS));
        }
        label::initialize(&*device)?;
        device.flush()?;
        let guid_of_new = Guid::random(self.env());
        let leaf = leaf_spec(new, 0, guid_of_new, ObjectId::NONE);
        let (number, about) = (top.number(), format!("attach vdev={} to vdev={}", new.path, top.name()));
        self.run(move |context| {
            context.widen(number, leaf, device)?;
            context.log_event("vdev attach", &about);
            context.write_config()
        })?;
        self.notify("vdev_attach", self.tree().leaf(guid_of_new).map(LeafVdev::vdev));
        self.take_up_rates()
    }

    fn check_may_widen(&self, top: &Vdev) -> Result<()> {
        let unsupported = |what: &str| Err(Error::new(Kind::Unsupported, what.to_owned()));
        let VdevKind::Raidz { .. } = top.kind() else {
            return unsupported("can only attach to mirrors and top-level disks");
        };
        if self.view().features().state(RAIDZ_EXPANSION) == FeatureState::Disabled {
            return unsupported("raidz_expansion feature must be enabled in order to attach a device to raidz");
        }
        if self.tree().expanding().is_some() {
            return unsupported(IN_PROGRESS);
        }
        let is_there = |leaf: LeafVdev<'_>| leaf.state().health().is_readable();
        let children = top.children().iter().map(|child| self.tree().vdev(*child));
        if !children.map(Vdev::as_leaf).all(|leaf| leaf.is_some_and(is_there)) {
            return unsupported("raidz vdev has devices that are offline or being replaced");
        }
        let spec = top.top_spec().ok_or_else(no_such_device)?;
        let width = top.children().len() + 1;
        // the lines that go through the boot area must not overwrite what they are copied from
        if Reflow::scratch_size(spec.ashift, 1) < (width as u64) << spec.ashift {
            return unsupported("raidz vdev has too many devices for its sectors");
        }
        Ok(())
    }

    /// Refuses what cannot be done while a raidz is being expanded. Errors: `Busy`.
    pub(super) fn refuse_with_expansion(&self) -> Result<()> {
        match self.tree().expanding() {
            Some(_) => Err(Error::new(Kind::Busy, IN_PROGRESS)),
            None => Ok(()),
        }
    }

    /// Whether a step of an expansion would do something.
    pub(super) fn has_expansion_work(&self) -> bool {
        let Some(top) = self.tree().expanding() else { return false };
        let limit = self.env().tunable(tunables::RAIDZ_EXPAND_MAX_REFLOW_BYTES);
        let may_go_on =
            limit == 0 || self.expansion().copied_bytes() < limit || self.tree().reflow().moved >= end_of(top);
        self.expansion().may_step() && may_go_on && self.tree().can_reflow()
    }

    /// Goes on with an expansion that was under way when the pool was open last; its first step is for a group to come.
    /// Errors: `Corrupt` if the uberblock says what cannot be.
    pub(super) fn take_up_expansion(&self) -> Result<()> {
        let Some(top) = self.tree().expanding() else {
            self.tree().set_reflow(Reflow::default());
            return Ok(());
        };
        let Reflow { moved, in_scratch } = self.tree().reflow();
        let ashift = top.top_spec().map_or(0, |spec| spec.ashift);
        let scratch = Reflow::scratch_size(ashift, top.children().len());
        let is_possible = match in_scratch {
            true => moved == scratch,
            false => moved == 0 || moved >= scratch && moved <= end_of(top) && moved.is_multiple_of(1 << ashift),
        };
        if !is_possible || scratch > end_of(top) {
            return Err(
                Error::corrupt("an expansion of a raidz that has come to an impossible place").at_vdev(top.name())
            );
        }
        let status = self.view().status()?.expansion;
        self.expansion().add_copied(status.map_or(0, |status| status.copied_bytes));
        Ok(())
    }

    /// Ends the expansion with the next group: all has moved.
    fn end_expansion_soon(&self) {
        self.expansion().set_ending(true);
        self.run_later(|context| {
            context.pool.expansion().set_ending(false);
            context.finish_widening().inspect_err(|_| context.pool.expansion().stall())
        });
    }
}

/// Where the metaslabs of a top-level vdev end.
fn end_of(top: &Vdev) -> u64 {
    metaslabs::count(top) << top.top_spec().map_or(0, |spec| spec.metaslab_shift)
}

impl SyncContext<'_> {
    fn widen(&self, number: VdevNumber, mut leaf: vdev::VdevSpec, device: Arc<dyn Device>) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        // one may have begun in this group
        pool.refuse_with_checkpoint()?;
        pool.check_may_widen(pool.tree().top(number)?)?;
        self.make_objects(&mut leaf)?;
        let devices = HashMap::from([(leaf.guid, device)]);
        pool.tree().set_reflow(Reflow::default());
        pool.tree().edit(Edit::Widen { number, leaf: Box::new(leaf) }, &devices)?;
        let top = pool.tree().top(number)?;
        let zap = top.top_spec().map_or(ObjectId::NONE, |spec| spec.zap);
        change.set(zap, STATE, &ZapValue::one(RUNNING))?;
        change.set(zap, START_TIME, &ZapValue::one(change.env.now_s()))?;
        change.remove(zap, END_TIME)?;
        change.remove(zap, BYTES_COPIED)?;
        feature::count(change, RAIDZ_EXPANSION, 1)?;
        self.name_for_read(RAIDZ_EXPANSION)?;
        pool.expansion().begin();
        self.log_width("started", top);
        Ok(())
    }

    fn log_width(&self, what: &str, top: &Vdev) {
        let about = format!("{} vdev {} new width {}", self.pool.name(), top.number(), top.children().len());
        self.log_event(&format!("raidz vdev expansion {what}"), &about);
    }

    /// Moves what is in use behind what has moved, as far as that is safe, and enough for a group.
    pub(super) fn step_expansion(&self) -> Result<()> {
        let (pool, tree) = (self.pool, self.pool.tree());
        let Some(top) = tree.expanding() else { return Ok(()) };
        let before = tree.reflow();
        if before.moved >= end_of(top) && !before.in_scratch {
            pool.end_expansion_soon();
            return Ok(());
        }
        // what is on its way to old places has to be there; if it cannot be written now, that is for a group to come
        if pool.cache().zio().finish_writes().is_err() {
            return Ok(());
        }
        let moved = match before.moved == 0 || before.in_scratch {
            // as OpenZFS counts
            true => tree.reflow_first().map(|()| 0),
            false => self.move_some(top, before.moved),
        };
        let moved = moved.and_then(|bytes| tree.flush().map(|()| bytes));
        match moved {
            Ok(bytes) if tree.can_reflow() => {
                let copied_bytes = pool.expansion().add_copied(bytes);
                let zap = top.top_spec().map_or(ObjectId::NONE, |spec| spec.zap);
                self.change.set(zap, BYTES_COPIED, &ZapValue::one(copied_bytes))
            }
            // nothing of what was moved counts
            outcome => {
                tree.set_reflow(before);
                outcome.map(drop)
            }
        }
    }

    /// How many bytes were moved.
    fn move_some(&self, top: &Vdev, start: u64) -> Result<u64> {
        let (pool, tree) = (self.pool, self.pool.tree());
        let allocator = pool.cache().zio().allocator()?;
        let shift = top.top_spec().map_or(0, |spec| spec.metaslab_shift);
        let limit = tree.reflow_limit().min(end_of(top));
        let start_ns = self.change.env.ticks_ns();
        let bytes_max = match self.change.env.tunable(tunables::RAIDZ_EXPAND_MAX_REFLOW_BYTES) {
            0 => MOVED_BYTES_MAX,
            stop => {
                let sector = 1 << top.top_spec().map_or(0, |spec| spec.ashift);
                let left = stop.saturating_sub(pool.expansion().copied_bytes()).min(MOVED_BYTES_MAX);
                left.next_multiple_of(sector).max(sector)
            }
        };
        let (mut at, mut bytes) = (start, 0);
        while at < limit && bytes < bytes_max {
            let ms = self.change.env.ticks_ns().saturating_sub(start_ns) / 1_000_000;
            if at > start && ms >= STEP_MS_MIN && pool.txgs().is_wanted() {
                break;
            }
            // of one metaslab
            let window = at..limit.min(((at >> shift) + 1) << shift);
            let free = allocator.lend_all(top.number(), window.clone())?;
            let (until, used) = first_used(&window, &free, bytes_max - bytes);
            let moved = tree.reflow_up_to(until, &used);
            allocator.give_back(top.number(), &free);
            bytes += moved?;
            at = until;
        }
        if at > start { Ok(bytes) } else { Err(Error::corrupt("sectors that cannot be moved").at_vdev(top.name())) }
    }

    fn finish_widening(&self) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        let Some(top) = pool.tree().expanding() else { return Ok(()) };
        let zap = top.top_spec().map_or(ObjectId::NONE, |spec| spec.zap);
        let (number, since) = (top.number(), change.tx.txg().plus(GROUPS_UNDER_WAY));
        pool.tree().edit(Edit::FinishWidening { number, since }, &HashMap::new())?;
        pool.tree().set_reflow(Reflow::default());
        change.set(zap, STATE, &ZapValue::one(FINISHED))?;
        change.set(zap, END_TIME, &ZapValue::one(change.env.now_s()))?;
        self.log_width("completed", pool.tree().top(number)?);
        self.grow_one(number)?;
        let is_scanned = pool.scan().lock().now.as_ref().is_some_and(|stage| stage.phys.state == ScanState::Running);
        let may_scrub = !is_scanned && pool.check_may_scrub().is_ok();
        if change.env.tunable(tunables::ZFS_SCRUB_AFTER_EXPAND) != 0 && may_scrub {
            self.begin_scan(false, (Txg::ZERO, change.tx.txg()))?;
        }
        self.write_config()
    }
}

/// What is in use of a window of which `free` is not, from its beginning on, until it is so many bytes; and where that
/// ends.
fn first_used(window: &Range<u64>, free: &[Range<u64>], bytes: u64) -> (u64, Vec<Range<u64>>) {
    let (mut at, mut left, mut used) = (window.start, bytes, Vec::new());
    let ends = free.iter().map(|part| (part.start, part.end)).chain([(window.end, window.end)]);
    for (start, end) in ends {
        if at < start {
            let len = (start - at).min(left);
            if len > 0 {
                used.push(at..at + len);
            }
            left -= len;
            if at + len < start {
                return (at + len, used);
            }
        }
        at = end;
    }
    (window.end, used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // lists of ranges
    fn what_is_free_is_left_out() {
        assert_eq!(first_used(&(10..50), &[], 100), (50, vec![10..50]));
        assert_eq!(first_used(&(10..50), &[10..20, 30..35], 100), (50, vec![20..30, 35..50]));
        assert_eq!(first_used(&(10..50), &[10..50], 100), (50, vec![]));
        assert_eq!(first_used(&(10..50), &[40..50], 100), (50, vec![10..40]));
        // enough is enough
        assert_eq!(first_used(&(10..50), &[20..30], 10), (30, vec![10..20]));
        assert_eq!(first_used(&(10..50), &[20..30], 15), (35, vec![10..20, 30..35]));
    }
}
