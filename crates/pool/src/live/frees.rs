//! Blocks of what was destroyed wait to be freed: whether there are any.
//!
//! What they are is in the MOS: in the queue of destroyed heads, the list of what is left of destroyed snapshots, and
//! the list of frees that were put off. That has some of the MOS's own after almost every group, which wait for the next
//! one; those of others, for which a group had no room, let the next one come.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Nothing waits; something does; something does that could not be read, until something else comes or the pool is
/// imported again.
const NONE: u8 = 0;
const SOME: u8 = 1;
const STALLED: u8 = 2;

/// The frees that wait.
#[derive(Default)]
pub(super) struct Frees {
    /// Of what was destroyed.
    destroyed: AtomicU8,
    /// Put off, as a group had no room for them.
    put_off: AtomicBool,
}

impl Frees {
    /// There may be something to free.
    pub(super) fn wake(&self) {
        self.destroyed.store(SOME, Ordering::Relaxed);
    }

    /// Some of what was destroyed was freed; whether more is left.
    pub(super) fn went_on(&self, is_left: bool) {
        self.destroyed.store(if is_left { SOME } else { NONE }, Ordering::Relaxed);
    }

    /// Whether frees are put off for which there was no room.
    pub(super) fn put_off(&self, are_left: bool) {
        self.put_off.store(are_left, Ordering::Relaxed);
    }

    /// Whether some were put off as there was no room for them.
    pub(super) fn are_put_off(&self) -> bool {
        self.put_off.load(Ordering::Relaxed)
    }

    /// They cannot be found.
    pub(super) fn stall(&self) {
        self.destroyed.store(STALLED, Ordering::Relaxed);
    }

    /// Whether some wait, and can be found.
    pub(super) fn are_waiting(&self) -> bool {
        self.destroyed.load(Ordering::Relaxed) == SOME || self.are_put_off()
    }
}
