//! What is known of work with devices that is done by a thread of its own: of spares, and of devices that come back. How
//! they are opened, whether work is under way, and what was of no use.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Error, Kind, Mutex, Result};
use device::Device;
use format::ids::Guid;

/// Seconds after which a leaf is helped again for which there was no spare.
const TRY_AGAIN_S: u64 = 60;

/// Opens the device at a path.
type WatchOpener = Box<dyn Fn(&str) -> Result<Arc<dyn Device>> + Send + Sync>;

/// See the top of the file.
#[derive(Default)]
pub(super) struct DeviceWatch {
    open: OnceLock<WatchOpener>,
    is_busy: AtomicBool,
    in_vain: Mutex<(SpareNeed, u64)>,
    /// Leaves whose spares somebody has taken off.
    declined: Mutex<BTreeSet<Guid>>,
    looked_s: AtomicU64,
}

/// Leaves that need a spare, and spares that are free, by their guids.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct SpareNeed {
    pub(super) leaves: Vec<Guid>,
    pub(super) spares: Vec<Guid>,
}

impl DeviceWatch {
    /// From now on spares are used; once only.
    pub(super) fn begin(&self, open: WatchOpener) {
        drop(self.open.set(open));
    }

    pub(super) fn has_begun(&self) -> bool {
        self.open.get().is_some()
    }

    /// Opens the device at a path. Errors: `Missing` if nobody has said how; those of opening.
    pub(super) fn open(&self, path: &str) -> Result<Arc<dyn Device>> {
        let open = self.open.get().ok_or_else(|| Error::new(Kind::Missing, "nobody opens it"))?;
        open(path)
    }

    /// Whether it is time to look again, so many seconds after the last time; if it is, this is that time.
    pub(super) fn is_due(&self, now_s: u64, every_s: u64) -> bool {
        let is_due = self.has_begun() && self.looked_s.load(Ordering::Relaxed).saturating_add(every_s) <= now_s;
        if is_due {
            self.looked_s.store(now_s, Ordering::Relaxed);
        }
        is_due
    }

    /// Work begins. False if some is under way.
    pub(super) fn begin_work(&self) -> bool {
        !self.is_busy.swap(true, Ordering::Relaxed)
    }

    pub(super) fn end_work(&self) {
        self.is_busy.store(false, Ordering::Relaxed);
    }

    /// This is what could not be helped.
    pub(super) fn note_in_vain(&self, need: SpareNeed, now_s: u64) {
        *self.in_vain.lock() = (need, now_s);
    }

    /// The leaf is to have no spare until it has been used again.
    pub(super) fn decline(&self, leaf: Guid) {
        self.declined.lock().insert(leaf);
    }

    /// The leaf may have one, after all.
    pub(super) fn may_have_one(&self, leaf: Guid) {
        self.declined.lock().remove(&leaf);
    }

    /// Leaves that are to have none, of those that are still as they were.
    pub(super) fn declined(&self, is_still: &dyn Fn(Guid) -> bool) -> BTreeSet<Guid> {
        let mut declined = self.declined.lock();
        declined.retain(|leaf| is_still(*leaf));
        declined.clone()
    }

    /// Whether it is worth trying to help.
    pub(super) fn may_help(&self, need: &SpareNeed, now_s: u64) -> bool {
        let before = self.in_vain.lock();
        let is_new = before.0 != *need || before.1.saturating_add(TRY_AGAIN_S) <= now_s;
        !need.leaves.is_empty() && !need.spares.is_empty() && is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_vain_is_tried_again_later() {
        let watch = DeviceWatch::default();
        let need = SpareNeed { leaves: vec![Guid::new(1)], spares: vec![Guid::new(7)] };
        assert!(watch.may_help(&need, 100) && !watch.may_help(&SpareNeed { leaves: Vec::new(), ..need.clone() }, 100));
        watch.note_in_vain(need.clone(), 100);
        assert!(!watch.may_help(&need, 159) && watch.may_help(&need, 160));
        assert!(watch.may_help(&SpareNeed { spares: vec![Guid::new(7), Guid::new(8)], ..need }, 101));
        assert!(watch.begin_work() && !watch.begin_work());
        watch.end_work();
        assert!(watch.begin_work() && !watch.has_begun() && watch.open("x").is_err());
    }
}
