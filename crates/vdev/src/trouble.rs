//! Leaves that fail, go away and come back while the pool is in use.
//!
//! ```text
//!   errors are counted ──▶ whoever watches them: degraded, or faulted if the others have everything
//!   device gone        ──▶ unavailable                    not written to: what it misses is noted
//!   device there again ──▶ healthy, but distrusted for what it missed
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Error, MutexGuard, Result};
use device::Device;

use crate::dtl::TxgRanges;
use crate::health::Health;
use crate::tree::{Place, Tree, Vdev, VdevId};

impl Tree {
    /// The leaf is used again, with `device` if that is another one than before. What it has missed it lacks
    /// still. False if there is no such leaf, or it has never had a device.
    pub fn reopen(&self, guid: u64, device: Option<Arc<dyn Device>>) -> bool {
        let Some(leaf) = self.leaf(guid) else { return false };
        device.into_iter().for_each(|device| leaf.set_device(device));
        if leaf.device().is_some() {
            leaf.set_health(Health::HEALTHY);
        }
        leaf.device().is_some()
    }

    /// Notes that the leaf lacks what was written in `txgs`.
    pub fn miss(&self, guid: u64, txgs: std::ops::Range<u64>) {
        self.leaf(guid).into_iter().for_each(|leaf| leaf.miss(txgs.clone()));
    }

    /// Sets the error counts of a vdev and all below it to 0.
    pub fn clear_errors(&self, id: VdevId) {
        let vdev = self.vdev(id);
        let stats = vdev.stats();
        for count in [&stats.read_errors, &stats.write_errors, &stats.checksum_errors] {
            count.store(0, Ordering::Relaxed);
        }
        vdev.children().iter().for_each(|&child| self.clear_errors(child));
    }

    /// The leaves below a vdev, or itself.
    pub fn leaves_of(&self, id: VdevId) -> Vec<&Vdev> {
        let vdev = self.vdev(id);
        match vdev.is_leaf() {
            true => vec![vdev],
            false => vdev.children().iter().flat_map(|&child| self.leaves_of(child)).collect(),
        }
    }

    /// The top-level vdev that a vdev below the root is, or is below.
    pub fn top_of<'a>(&'a self, vdev: &'a Vdev) -> &'a Vdev {
        let mut top = vdev;
        while let Some(parent) = top.parent().map(|id| self.vdev(id)).filter(|parent| parent.parent().is_some()) {
            top = parent;
        }
        top
    }

    /// Whether everything that was ever written to the leaf's top-level vdev can be read from other leaves.
    pub fn can_do_without(&self, guid: u64) -> bool {
        let Some(leaf) = self.leaf(guid) else { return true };
        let top = self.top_of(leaf);
        let missing: Vec<(VdevId, TxgRanges)> =
            self.leaves_of(top.id()).iter().map(|leaf| (leaf.id(), leaf.missing())).collect();
        let starts = missing.iter().flat_map(|(_, txgs)| txgs.iter().map(|range| range.start));
        // who lacks what changes only where a range begins or ends, and most are lacked where one begins
        starts.chain([u64::MAX]).all(|txg| {
            let lacks = |vdev: &Vdev| missing.iter().any(|(id, txgs)| *id == vdev.id() && txgs.contains(txg));
            self.survives(top, &|vdev| vdev.id() == leaf.id() || lacks(vdev))
        })
    }

    /// Whether what is on `vdev` can be read without the leaves that are lost, and those that cannot be used.
    pub(crate) fn survives(&self, vdev: &Vdev, is_lost: &dyn Fn(&Vdev) -> bool) -> bool {
        let lost = || vdev.children().iter().filter(|&&child| !self.survives(self.vdev(child), is_lost)).count();
        match vdev.place() {
            Place::Device => vdev.is_usable() && !is_lost(vdev),
            Place::Copies => lost() < vdev.children().len(),
            Place::Raidz(geometry) => lost() <= geometry.nparity,
            Place::Draid(layout) => lost() <= layout.nparity(),
            Place::DraidSpare { .. } => vdev.is_usable(),
            Place::Indirect(_) | Place::None => true,
        }
    }

    /// For whoever writes everything again that a flush may have lost: the next flush may succeed. If that
    /// is all of group `txg`, what leaves have missed of it so far does not count.
    pub fn begin_again(&self, txg: Option<u64>) {
        *self.unflushable() = None;
        let Some(txg) = txg else { return };
        for leaf in self.iter().filter(|vdev| vdev.is_leaf() && vdev.is_missing(txg)) {
            let mut txgs = leaf.missing();
            txgs.remove(txg..txg.saturating_add(1));
            self.set_missing(leaf.guid(), txgs);
        }
    }

    /// The outcome of an earlier flush, if that still stands.
    pub(crate) fn check_flushable(&self) -> Result<()> {
        self.unflushable().as_ref().map_or(Ok(()), |error| Err(copy_of(error)))
    }

    /// What was written since the last flush may be lost.
    pub(crate) fn has_lost(&self, error: &Error) {
        *self.unflushable() = Some(copy_of(error));
    }

    fn unflushable(&self) -> MutexGuard<'_, Option<Error>> {
        self.unflushable.lock()
    }
}

fn copy_of(error: &Error) -> Error {
    let copy = Error::new(error.kind(), error.what().to_owned());
    error.place().vdev.iter().fold(copy, |copy, vdev| copy.at_vdev(vdev.clone()))
}
