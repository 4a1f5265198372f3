//! Reads that wait for devices to come back.
//!
//! What brings a transaction group to disk cannot do without what it has to read, and cannot begin anew. So its reads do
//! not fail when devices do: they wait, and are made again.
//!
//! ```text
//!   read that waits ──▶ device fails ──▶ DeviceWait: "try again" or "give up"
//!   read that fails ──▶ device fails ──▶ error
//! ```

use std::sync::{Arc, OnceLock};

use base::{Error, Kind, Result};

/// What becomes of a read when a device fails that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// It fails, too.
    #[default]
    Fail,
    /// It waits, and is made again: for reads of what cannot be left out.
    Wait,
}

/// Waits until devices may have come back; false if that is in vain.
pub type DeviceWait = Arc<dyn Fn(&Error) -> bool + Send + Sync>;

/// How reads of a pool wait; until that is known, they all fail.
#[derive(Default)]
pub(crate) struct ReadWaits(OnceLock<DeviceWait>);

impl ReadWaits {
    /// A second call changes nothing.
    pub(crate) fn set(&self, wait: DeviceWait) {
        let _ = self.0.set(wait);
    }

    /// Waits, if `error` is that of a device, and the read one that waits. Whether the read is to be made again.
    pub(crate) fn is_worth_another(&self, error: &Error, on_failure: OnFailure) -> bool {
        let may_pass = on_failure == OnFailure::Wait && matches!(error.kind(), Kind::Io | Kind::Missing);
        may_pass && self.0.get().is_some_and(|wait| wait(error))
    }

    /// Reads, and does it again as `on_failure` says.
    pub(crate) fn read<T>(&self, on_failure: OnFailure, read: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match read() {
                Err(error) if self.is_worth_another(&error, on_failure) => {}
                outcome => return outcome,
            }
        }
    }
}
