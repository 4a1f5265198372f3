//! What is known of the expansion of a raidz in memory, besides what the tree of vdevs knows.

use base::Mutex;

/// See the top of the file.
#[derive(Default)]
pub(super) struct ExpansionState(Mutex<ExpansionNow>);

#[derive(Default)]
struct ExpansionNow {
    copied_bytes: u64,
    /// Something failed, and may work by now only if somebody says so.
    is_stalled: bool,
    /// The task that ends it waits for its group.
    is_ending: bool,
}

impl ExpansionState {
    /// Another one begins.
    pub(super) fn begin(&self) {
        *self.0.lock() = ExpansionNow::default();
    }

    /// Whether nothing keeps it from a step.
    pub(super) fn may_step(&self) -> bool {
        let now = self.0.lock();
        !now.is_stalled && !now.is_ending
    }

    pub(super) fn stall(&self) {
        self.0.lock().is_stalled = true;
    }

    pub(super) fn wake(&self) {
        self.0.lock().is_stalled = false;
    }

    pub(super) fn set_ending(&self, is_ending: bool) {
        self.0.lock().is_ending = is_ending;
    }

    /// Bytes that have been copied so far.
    pub(super) fn copied_bytes(&self) -> u64 {
        self.0.lock().copied_bytes
    }

    /// More bytes have been copied; all of them.
    pub(super) fn add_copied(&self, bytes: u64) -> u64 {
        let mut now = self.0.lock();
        now.copied_bytes = now.copied_bytes.saturating_add(bytes);
        now.copied_bytes
    }
}
