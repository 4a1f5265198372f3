//! The worker of a cache: makes room before readers need it, follows the tunables, and gives memory back when
//! it becomes short.
//!
//! It knows the blocks, not the pool: the devices of a closed pool do not wait for it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Env, tunables};

use crate::bell::Bell;
use crate::budget::Budget;
use crate::pressure::{Gauge, judge};
use crate::store::Store;

/// Nanoseconds between looks at memory.
const LOOK_NS: u64 = 200_000_000;
/// The same while there is nothing to give back: the bell rings when that changes.
const REST_NS: u64 = 60_000_000_000;

/// Looks in a row that find nothing changed, after which memory that is free goes back to the system: it may be wanted
/// again at once before.
const CALM_LOOKS: u32 = 50;
/// Bytes of memory that are no change.
const CALM_BYTES: u64 = 4 << 20;

/// Keeps a cache within its budget, for as long as it is there.
pub struct ArcWorker {
    store: Weak<Store>,
    bell: Arc<Bell>,
    env: Env,
    gauge: Gauge,
    /// When memory was looked at last, and how long tasks had waited for it by then.
    looked_ns: u64,
    stalled_us: u64,
    calm: Calm,
}

/// For how many looks memory has been as it was.
#[derive(Default)]
struct Calm {
    looks: u32,
    /// What the cache takes and what is free, in units of [`CALM_BYTES`].
    seen: [u64; 2],
}

impl Calm {
    /// Whether it is now that memory goes back: so many bytes are in use, and free.
    fn look(&mut self, bytes: [u64; 2]) -> bool {
        let seen = bytes.map(|bytes| bytes / CALM_BYTES);
        self.looks = if seen == self.seen { self.looks.saturating_add(1) } else { 0 };
        self.seen = seen;
        self.looks == CALM_LOOKS
    }

    fn is_over(&self) -> bool {
        self.looks > CALM_LOOKS
    }
}

impl ArcWorker {
    pub(crate) fn new(store: &Arc<Store>, env: &Env, gauge: Gauge) -> ArcWorker {
        let stalled_us = gauge.stalled_us().unwrap_or(0);
        let (store, bell) = (Arc::downgrade(store), store.bell.clone());
        ArcWorker { store, bell, env: env.clone(), gauge, looked_ns: env.ticks_ns(), stalled_us, calm: Calm::default() }
    }

    /// Works until the cache is gone; on a thread of its own.
    pub fn run(mut self) {
        loop {
            let may_rest = self.store.upgrade().is_some_and(|store| store.may_rest());
            let rests = may_rest && self.calm.is_over();
            self.bell.wait(Duration::from_nanos(if rests { REST_NS } else { LOOK_NS }));
            if !self.step() {
                return;
            }
        }
    }

    /// Makes room, and looks at memory when it is time to. False if there is no cache any more.
    pub fn step(&mut self) -> bool {
        let Some(store) = self.store.upgrade() else { return false };
        let elapsed_ns = self.env.ticks_ns().saturating_sub(self.looked_ns);
        if elapsed_ns >= LOOK_NS {
            self.looked_ns += elapsed_ns;
            self.look(&store, elapsed_ns / 1000);
            store.nodes.shrink();
            let is_calm = self.calm.look([store.size(), base::free_bytes()]);
            if is_calm {
                base::give_memory_back();
                base::give_program_back();
            }
            if store.nodes.take_gone() || is_calm {
                base::give_small_memory_back();
            }
        }
        store.make_room();
        true
    }

    /// Sets the budget by what memory there is now; so much time has passed since the last look.
    pub fn look_now(&mut self, elapsed_us: u64) {
        if let Some(store) = self.store.upgrade() {
            self.look(&store, elapsed_us);
            store.make_room();
        }
    }

    fn look(&mut self, store: &Store, elapsed_us: u64) {
        store.ahead.follow(&self.env);
        store.set_budget(Budget::of_system(&self.env, &self.gauge));
        let stalled_us = self.gauge.stalled_us().unwrap_or(self.stalled_us);
        let waited_us = stalled_us.saturating_sub(std::mem::replace(&mut self.stalled_us, stalled_us));
        let Some(memory) =
            self.gauge.memory(Some(self.env.tunable(tunables::ZFS_ARC_SYS_FREE)).filter(|bytes| *bytes > 0))
        else {
            return;
        };
        store.set_memory(memory);
        let (size, before) = (store.size(), store.c());
        store.set_c(judge(memory, waited_us, elapsed_us, size, before));
        if store.c() < before {
            store.count_shrink();
            tracing::debug!(c = store.c(), before, free = memory.free(), "memory is short");
            store.nodes.shrink();
            store.make_room();
            base::give_memory_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_once_nothing_changes() {
        let mut calm = Calm::default();
        let given = |calm: &mut Calm, looks: u32, bytes| (0..looks).filter(|_| calm.look(bytes)).count();
        let [busy, quiet] = [[90 * CALM_BYTES, 5 * CALM_BYTES], [90 * CALM_BYTES, 60 * CALM_BYTES]];
        assert_eq!((given(&mut calm, CALM_LOOKS, busy), calm.is_over()), (0, false));
        assert_eq!((given(&mut calm, CALM_LOOKS + 9, quiet), calm.is_over()), (1, true));
        assert_eq!(given(&mut calm, 1000, [quiet[0] + 5, quiet[1] + 5]), 0, "a group that ends is no change");
        assert_eq!((given(&mut calm, CALM_LOOKS, [0, 0]), calm.is_over()), (0, false), "what has gone is one");
    }
}
