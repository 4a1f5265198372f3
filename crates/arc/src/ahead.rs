//! What reading ahead of readers has done, with the names of OpenZFS's zfetchstats.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Env, tunables};

/// Counters of all readers that share a cache, and whether they are led at all.
#[derive(Debug, Default)]
pub struct Ahead {
    is_disabled: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
    strides: AtomicU64,
    no_room: AtomicU64,
    issued: AtomicU64,
    active: AtomicU64,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Ahead {
    /// Whether readers are led; the tunable `zfs_prefetch_disable` says if not.
    pub fn is_enabled(&self) -> bool {
        !self.is_disabled.load(Ordering::Relaxed)
    }

    pub(crate) fn follow(&self, env: &Env) {
        self.is_disabled.store(env.tunable(tunables::ZFS_PREFETCH_DISABLE) != 0, Ordering::Relaxed);
    }

    /// A read came as a stream expected it.
    pub fn hit(&self, is_by_steps: bool) {
        add(&self.hits);
        if is_by_steps {
            add(&self.strides);
        }
    }

    /// A read that no stream expected.
    pub fn miss(&self) {
        add(&self.misses);
    }

    /// A stream was forgotten for another one of its object.
    pub fn no_room(&self) {
        add(&self.no_room);
    }

    /// Does a task that reads ahead.
    pub fn issue<T>(&self, task: impl FnOnce() -> T) -> T {
        add(&self.issued);
        add(&self.active);
        let done = task();
        self.active.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Names and values of all counters.
    pub fn values(&self) -> [(&'static str, u64); 6] {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("hits", value(&self.hits)),
            ("misses", value(&self.misses)),
            ("stride", value(&self.strides)),
            ("max_streams", value(&self.no_room)),
            ("io_issued", value(&self.issued)),
            ("io_active", value(&self.active)),
        ]
    }
}
