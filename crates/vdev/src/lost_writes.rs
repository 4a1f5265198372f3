//! A flush that failed: what was written last may be lost, and no later flush brings it back.

use base::{Error, Mutex, Result};

/// Why what was written last may not be there.
#[derive(Debug, Default)]
pub(crate) struct LostWrites(Mutex<Option<Error>>);

impl LostWrites {
    /// What was written since the last flush may be lost.
    pub(crate) fn note(&self, error: &Error) {
        *self.0.lock() = Some(copy_of(error));
    }

    /// All that may have been lost is written again.
    pub(crate) fn forget(&self) {
        *self.0.lock() = None;
    }

    /// The outcome of an earlier flush, if that still stands.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.lock().as_ref().map_or(Ok(()), |error| Err(copy_of(error)))
    }
}

fn copy_of(error: &Error) -> Error {
    let copy = Error::new(error.kind(), error.what().to_owned());
    error.place().vdev.iter().fold(copy, |copy, vdev| copy.at_vdev(vdev.clone()))
}
