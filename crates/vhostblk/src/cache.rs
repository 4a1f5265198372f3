//! The cache of a guest's disk: what was answered, and is on disk only after a flush.
//!
//! ```text
//!   change                   ─▶ in memory ─▶ mark: its group ─▶ answer        the mark is where what is in flight is,
//!   flush, or group on disk  ─▶ no mark, if nothing was changed meanwhile     and outlives this process
//! ```
//!
//! A guest whose machine goes on while the process of its pool was killed believes that what it was told to be written is
//! there, and that its next flush brings it to disk. If that is not so, its disk fails each request from then on, as one
//! that is broken does: a journal stops then, and nothing is written on top of what is missing. It works again when the
//! guest's driver has reset it, as when the machine starts anew: its monitor asks for new memory for what is in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Mutex, Result};
use format::ids::Txg;
use zvol::{SyncMode, Zvol};

use crate::disk::VhostDisk;
use crate::event::WakeEvent;
use crate::inflight::InflightRegion;

/// How long a mark may stay that is not true any more.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// The cache of a guest's disk.
pub(crate) struct GuestCache {
    /// A number that no other process has, nor another volume.
    life: u64,
    /// Whether what is written may be kept in memory until a flush.
    is_write_back: AtomicBool,
    /// Something is missing that it had.
    is_lost: AtomicBool,
    /// Is signalled when something begins to be marked: it is looked after then.
    looks: Arc<WakeEvent>,
    marked: Mutex<MarkedChanges>,
}

/// Changes that are not on disk.
#[derive(Default)]
struct MarkedChanges {
    region: Option<Arc<InflightRegion>>,
    /// The newest in which one is.
    group: Txg,
    changes: u64,
    /// So many of them have been flushed.
    flushed: u64,
}

impl GuestCache {
    /// Each change is on disk before it is answered. `looks` wakes what is to call [`GuestCache::look_after`].
    pub(crate) fn new(life: u64, looks: Arc<WakeEvent>) -> GuestCache {
        let [is_write_back, is_lost] = [false; 2].map(AtomicBool::new);
        GuestCache { life, is_write_back, is_lost, looks, marked: Mutex::default() }
    }

    pub(crate) fn set_write_back(&self, is_write_back: bool) {
        self.is_write_back.store(is_write_back, Ordering::SeqCst);
    }

    /// Whether something is missing.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    /// Goes on with what a monitor kept. Errors: those of opening the volume.
    pub(crate) fn go_on(&self, region: Arc<InflightRegion>, disk: &dyn VhostDisk) -> Result<()> {
        let (life, mut group) = region.marks();
        let is_other = life != self.life;
        let is_lost = is_other && group > Txg::ZERO;
        if is_lost {
            tracing::warn!(
                disk = disk.serial(),
                "what a guest had not flushed is lost: its disk fails until it is reset"
            );
        } else if is_other {
            // what was changed before may be in memory only
            group = if disk.volume()?.flush().is_ok() { Txg::ZERO } else { disk.open_group() };
            region.begin_marks(self.life, group);
        }
        let changes = u64::from(group > Txg::ZERO);
        *self.marked.lock() = MarkedChanges { region: Some(region), group, changes, flushed: 0 };
        self.is_lost.store(is_lost, Ordering::SeqCst);
        Ok(())
    }

    /// The guest's driver has reset the disk.
    pub(crate) fn forget(&self) {
        *self.marked.lock() = MarkedChanges::default();
        self.is_lost.store(false, Ordering::SeqCst);
    }

    /// Looks whether what is marked is on disk by now, as its group is. Says when to look again, if at all.
    pub(crate) fn look_after(&self, disk: &dyn VhostDisk) -> Option<Duration> {
        let mut marked = self.marked.lock();
        if marked.group == Txg::ZERO || self.is_lost() {
            return None;
        }
        let is_on_disk = disk.synced_group() >= marked.group;
        if is_on_disk {
            marked.flushed = marked.changes;
            marked.clear();
        }
        (!is_on_disk && marked.region.is_some()).then_some(LOOK_PAUSE)
    }

    /// Brings what is marked to disk, as the monitor leaves.
    pub(crate) fn settle(&self, disk: &dyn VhostDisk) {
        if self.look_after(disk).is_none() {
            return;
        }
        if let Err(error) = disk.volume().and_then(|volume| self.flush(&volume)) {
            tracing::warn!(disk = disk.serial(), "what a guest has written is not flushed: {error}");
        }
    }

    /// Brings what was changed to disk. Errors: those of [`Zvol::flush`].
    pub(crate) fn flush(&self, volume: &Zvol) -> Result<()> {
        let changes = self.marked.lock().changes;
        // nothing is brought to disk then
        let is_ignored = volume.sync() == SyncMode::Disabled;
        volume.flush()?;
        if !is_ignored {
            self.flushed(changes);
        }
        Ok(())
    }

    /// Whether a change of a volume with that `sync` is to be on disk before it is answered.
    pub(crate) fn is_write_through(&self, sync: SyncMode) -> bool {
        !self.is_write_back.load(Ordering::SeqCst)
            || sync == SyncMode::Always
            || self.marked.lock().region.as_ref().is_some_and(|region| !region.has_marks())
    }

    /// Something has been changed, which is in group `group` or before, and is to be answered.
    pub(crate) fn changed(&self, group: Txg) {
        let mut marked = self.marked.lock();
        let is_first = marked.group == Txg::ZERO;
        marked.changes += 1;
        // threads come here in any order
        marked.group = marked.group.max(group);
        marked.mark();
        if is_first {
            self.looks.signal();
        }
    }

    /// So much of what was changed is on disk.
    fn flushed(&self, changes: u64) {
        let mut marked = self.marked.lock();
        marked.flushed = marked.flushed.max(changes);
        if marked.flushed == marked.changes {
            marked.clear();
        }
    }
}

impl MarkedChanges {
    /// All of it is on disk.
    fn clear(&mut self) {
        self.group = Txg::ZERO;
        self.mark();
    }

    fn mark(&self) {
        self.region.iter().for_each(|region| region.mark(self.group));
    }
}
