//! Sequential resilvers of top-level vdevs: how far they are, and which leaves they give everything.

use std::collections::BTreeMap;

use base::{Mutex, MutexGuard};
use format::ids::{Guid, VdevNumber};
use format::rebuild::RebuildPhys;
use format::scan::ScanState;
use vdev::TxgRanges;

/// What leaves lack, by their guids.
pub type Lacked = BTreeMap<Guid, TxgRanges>;

/// The sequential resilver of a top-level vdev.
#[derive(Clone, Debug)]
pub struct RebuildStage {
    pub phys: RebuildPhys,
    /// Something could not be written: after an import, when nobody knows what that was, it is to begin anew.
    pub has_unfilled: bool,
    /// What leaves lacked when it began: it gives them that. `None` before.
    pub covers: Option<Lacked>,
    /// Ticks when this pass began, and milliseconds of those before.
    pub pass_start_ns: u64,
    pub spent_ms: u64,
}

/// See the top of the file.
#[derive(Default)]
pub struct Rebuilds(Mutex<RebuildsInMemory>);

/// See [`Rebuilds`].
#[derive(Default)]
pub struct RebuildsInMemory {
    /// Those that are under way, by number of the vdev.
    pub by_top: BTreeMap<VdevNumber, RebuildStage>,
    /// Something cannot be read, or the pool is being closed.
    pub is_stalled: bool,
}

impl Rebuilds {
    pub fn lock(&self) -> MutexGuard<'_, RebuildsInMemory> {
        self.0.lock()
    }

    /// Whether one is under way, of that vdev or of any.
    pub fn is_under_way(&self, top: Option<VdevNumber>) -> bool {
        let all = self.lock();
        top.map_or(!all.by_top.is_empty(), |top| all.by_top.contains_key(&top))
    }

    /// Whether a step would do something.
    pub fn have_work(&self) -> bool {
        let all = self.lock();
        !all.is_stalled && !all.by_top.is_empty()
    }

    pub fn stall(&self) {
        self.lock().is_stalled = true;
    }

    pub fn wake(&self) {
        self.lock().is_stalled = false;
    }
}

impl RebuildStage {
    /// One that goes on, or begins.
    pub fn new(phys: RebuildPhys, now_ns: u64) -> RebuildStage {
        debug_assert_eq!(phys.state, ScanState::Running);
        RebuildStage { phys, has_unfilled: false, covers: None, pass_start_ns: now_ns, spent_ms: phys.time_ms }
    }

    /// What is on disk of it while it is under way: an error there lets it begin anew, here and with OpenZFS.
    pub fn on_disk(&self) -> RebuildPhys {
        RebuildPhys { errors: self.phys.errors.max(u64::from(self.has_unfilled)), ..self.phys }
    }
}
