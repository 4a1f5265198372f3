//! Blocks of what was destroyed wait to be freed: whether there are any.
//!
//! What they are is in the MOS: in the queue of destroyed heads, the list of what is left of destroyed snapshots, and
//! the list of frees that were put off. That has some of the MOS's own after almost every group, which wait for the next
//! one; those of others, for which a group had no room, let the next one come.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use base::Result;
use dmu::bpobj::Bpobj;

use super::LivePool;
use crate::object_directory;

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

    /// They cannot be found.
    pub(super) fn stall(&self) {
        self.destroyed.store(STALLED, Ordering::Relaxed);
    }

    /// Whether some wait, and can be found.
    pub(super) fn are_waiting(&self) -> bool {
        self.destroyed.load(Ordering::Relaxed) == SOME || self.put_off.load(Ordering::Relaxed)
    }
}

impl LivePool {
    /// Bytes of frees that were put off as a group had no room for them; 0 if they cannot be read.
    pub fn put_off_bytes(&self) -> u64 {
        let bytes = || -> Result<u64> {
            let view = self.view();
            let list = object_directory(view.mos())?.object_id("sync_bplist")?;
            list.map_or(Ok(0), |list| Ok(Bpobj::open(view.mos(), list)?.totals()?.used))
        };
        if self.frees().put_off.load(Ordering::Relaxed) { bytes().unwrap_or(0) } else { 0 }
    }
}
