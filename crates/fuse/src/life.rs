//! How far a mount has come: from its first request to its last.

use std::time::Duration;

use base::{Condvar, Mutex};

/// How far a mount has come. It only ever goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MountStage {
    #[default]
    Serving,
    /// The last request is answered.
    Unused,
    /// And the request threads are gone, and all is on disk.
    Ended,
}

/// The stage of a mount, which can be waited for.
#[derive(Default)]
pub(crate) struct Life {
    stage: Mutex<MountStage>,
    changed: Condvar,
}

impl Life {
    /// Comes to a stage.
    pub(crate) fn reach(&self, stage: MountStage) {
        *self.stage.lock() = stage;
        self.changed.notify_all();
    }

    /// The stage now.
    pub(crate) fn stage(&self) -> MountStage {
        *self.stage.lock()
    }

    /// Waits until it has come to a stage.
    pub(crate) fn wait(&self, wanted: MountStage) {
        drop(self.changed.wait_while(self.stage.lock(), |stage| *stage < wanted));
    }

    /// The same for at most `limit`; returns how far it has come then.
    pub(crate) fn wait_a_while(&self, wanted: MountStage, limit: Duration) -> MountStage {
        *self.changed.wait_timeout_while(self.stage.lock(), limit, |stage| *stage < wanted)
    }
}
