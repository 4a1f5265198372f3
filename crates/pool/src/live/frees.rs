//! Blocks of what was destroyed wait to be freed: whether there are any.
//!
//! What they are is in the MOS: in the queue of destroyed heads, the list of what is left of destroyed snapshots, and
//! the list of frees that were put off.

use std::sync::atomic::{AtomicU8, Ordering};

/// Nothing waits; something does; something does that could not be read, until something else comes or the pool is
/// imported again.
const NONE: u8 = 0;
const SOME: u8 = 1;
const STALLED: u8 = 2;

/// The frees that wait.
#[derive(Default)]
pub(super) struct Frees(AtomicU8);

impl Frees {
    /// There may be something to free.
    pub(super) fn wake(&self) {
        self.0.store(SOME, Ordering::Relaxed);
    }

    /// Some were freed; whether others are left.
    pub(super) fn went_on(&self, is_left: bool) {
        self.0.store(if is_left { SOME } else { NONE }, Ordering::Relaxed);
    }

    /// They cannot be found.
    pub(super) fn stall(&self) {
        self.0.store(STALLED, Ordering::Relaxed);
    }

    /// Whether some wait, and can be found.
    pub(super) fn are_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SOME
    }
}
