//! Whether there is room for what the kernel keeps of writes: an error of a write that it keeps can only be told later.
//!
//! The kernel keeps at most a hundredth of the machine's memory of one mount: it limits each file system in user space so
//! (`max_ratio` of its `bdi`). While less room than that is left, writes are not kept: see
//! [`write_back`](crate::write_back).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Env, Result};

/// What the kernel may keep of one mount is this part of memory.
const MEMORY_PART: u64 = 100;
/// What is written between two looks, and what is on its way.
const SLACK_BYTES: u64 = 64 << 20;
/// So much is written between two looks.
const LOOK_BYTES: u64 = 16 << 20;

/// With less room than this, writes are not kept.
pub(crate) fn scarce_below() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit)) / MEMORY_PART + SLACK_BYTES
}

/// The room of one mount.
pub(crate) struct RoomWatch {
    env: Env,
    room: Box<dyn Fn() -> Result<u64> + Send + Sync>,
    scarce_below: u64,
    is_scarce: AtomicBool,
    /// Writes are to wait, however much room there is.
    is_calm: AtomicBool,
    /// Bytes that were written since the last look.
    written: AtomicU64,
    /// When that was, in seconds since 1970.
    looked_s: AtomicU64,
}

impl RoomWatch {
    /// `room` tells how many bytes may still be written.
    pub(crate) fn new(env: Env, room: impl Fn() -> Result<u64> + Send + Sync + 'static) -> RoomWatch {
        RoomWatch {
            env,
            room: Box::new(room),
            scarce_below: scarce_below(),
            is_scarce: AtomicBool::new(false),
            is_calm: AtomicBool::new(false),
            written: AtomicU64::new(0),
            looked_s: AtomicU64::new(0),
        }
    }

    /// Is there so little room that what the kernel keeps might not fit?
    pub(crate) fn is_scarce(&self) -> bool {
        self.is_scarce.load(Ordering::Relaxed)
    }

    /// Is the kernel to ask before each write?
    pub(crate) fn must_ask(&self) -> bool {
        self.is_scarce() || self.is_calm()
    }

    /// Are writes to wait?
    pub(crate) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }

    /// Writes are to wait from now on, or no more.
    pub(crate) fn set_calm(&self, is_calm: bool) {
        self.is_calm.store(is_calm, Ordering::SeqCst);
    }

    /// Bytes are being written, or a file is opened for that. Has room become scarce?
    pub(crate) fn writes(&self, bytes: u64) -> bool {
        let now_s = self.env.now_s();
        let is_due = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes >= LOOK_BYTES
            || self.looked_s.load(Ordering::Relaxed) != now_s;
        if !is_due {
            return false;
        }
        self.written.store(0, Ordering::Relaxed);
        self.looked_s.store(now_s, Ordering::Relaxed);
        // nobody knows how much there is of a pool that cannot be read
        let is_scarce = (self.room)().is_ok_and(|room| room < self.scarce_below);
        !self.is_scarce.swap(is_scarce, Ordering::Relaxed) && is_scarce
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn room_is_looked_at_now_and_then() {
        let room = Arc::new(AtomicU64::new(u64::MAX));
        let told = room.clone();
        let watch = RoomWatch::new(Env::fixed(100), move || Ok(told.load(Ordering::Relaxed)));
        assert!(!watch.writes(1) && !watch.is_scarce());
        room.store(scarce_below() - 1, Ordering::Relaxed);
        assert!(!watch.writes(1) && !watch.is_scarce(), "the clock stands still, and it is little");
        assert!(watch.writes(LOOK_BYTES) && watch.is_scarce());
        assert!(!watch.writes(LOOK_BYTES), "it was told before");
        room.store(scarce_below(), Ordering::Relaxed);
        assert!(!watch.writes(LOOK_BYTES) && !watch.is_scarce());
    }
}
