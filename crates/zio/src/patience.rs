//! Reads that wait for devices to come back.
//!
//! Who brings a transaction group to disk cannot do without what it has to read, and cannot begin anew. So
//! its reads do not fail when devices do: they wait, and are made again.
//!
//! ```text
//!   the patient thread ──▶ read ──▶ device fails ──▶ wait: "try again" or "give up"
//!   everybody else     ──▶ read ──▶ device fails ──▶ error
//! ```

use std::sync::Arc;
use std::thread::{self, ThreadId};

use base::{Error, Kind, Mutex, MutexGuard, Result};

/// Waits until devices may have come back; false if that is in vain.
pub type Wait = Arc<dyn Fn(&Error) -> bool + Send + Sync>;

/// Whose reads wait, and how.
#[derive(Default)]
pub(crate) struct Patience(Mutex<Option<(ThreadId, Wait)>>);

/// As long as this lives, reads of the thread that made it wait for devices.
pub struct Patient<'a>(&'a Patience);

impl Patience {
    /// Lets the reads of this thread wait.
    pub(crate) fn of_this_thread(&self, wait: Wait) -> Patient<'_> {
        *self.lock() = Some((thread::current().id(), wait));
        Patient(self)
    }

    /// Waits if this thread is a patient one, and `error` that of a device.
    pub(crate) fn is_worth_waiting(&self, error: &Error) -> bool {
        if !matches!(error.kind(), Kind::Io | Kind::Missing) {
            return false;
        }
        let patience = self.lock().clone();
        patience.is_some_and(|(whose, wait)| whose == thread::current().id() && wait(error))
    }

    /// Reads until no device fails, if this thread is a patient one.
    pub(crate) fn patiently<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match read() {
                Err(error) if self.is_worth_waiting(&error) => {}
                outcome => return outcome,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(ThreadId, Wait)>> {
        self.0.lock()
    }
}

impl Drop for Patient<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}
