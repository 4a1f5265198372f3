//! How far a scrub of the error log is, in memory.

use base::Mutex;
use format::scan::{ErrorScrubPhys, ScanState};

use crate::errlog::ErrlogEntry;

/// How far the scrub of the error log is.
#[derive(Default)]
pub(super) struct ErrorScrubState(Mutex<ErrorScrubNow>);

#[derive(Default)]
struct ErrorScrubNow {
    phys: Option<ErrorScrubPhys>,
    /// Entries that are yet to be examined; `None`: they are not read yet.
    left: Option<Vec<ErrlogEntry>>,
    is_stalled: bool,
}

impl ErrorScrubState {
    /// Whether one is under way, paused or not.
    pub(super) fn is_running(&self) -> bool {
        self.0.lock().phys.is_some_and(|phys| phys.state == ScanState::Running)
    }

    /// Whether it can go on.
    pub(super) fn has_work(&self) -> bool {
        let now = self.0.lock();
        !now.is_stalled && now.phys.is_some_and(|phys| phys.state == ScanState::Running && !phys.is_paused)
    }

    /// Something cannot be read.
    pub(super) fn stall(&self) {
        self.0.lock().is_stalled = true;
    }

    /// It may be there by now.
    pub(super) fn wake(&self) {
        self.0.lock().is_stalled = false;
    }

    /// Its state on disk; `None`: there was none.
    pub(super) fn phys(&self) -> Option<ErrorScrubPhys> {
        self.0.lock().phys
    }

    /// Another state, and what is left to do.
    pub(super) fn replace(&self, phys: Option<ErrorScrubPhys>, left: Option<Vec<ErrlogEntry>>) {
        *self.0.lock() = ErrorScrubNow { phys, left, is_stalled: false };
    }

    /// What is left to do, for the caller to do; `None`: it is not read yet.
    pub(super) fn take_left(&self) -> Option<Vec<ErrlogEntry>> {
        self.0.lock().left.take()
    }
}
