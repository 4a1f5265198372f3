//! How the worker is called.

use std::time::Duration;

use base::{Condvar, Mutex};

/// Wakes the worker.
#[derive(Default)]
pub(crate) struct Bell {
    rings: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        let mut rings = self.rings.lock();
        if !std::mem::replace(&mut rings, true) {
            self.rung.notify_all();
        }
    }

    /// Waits until it rings, or for so long.
    pub(crate) fn wait(&self, most: Duration) {
        let rings = self.rings.lock();
        *self.rung.wait_timeout_while(rings, most, |rings| !*rings) = false;
    }
}
