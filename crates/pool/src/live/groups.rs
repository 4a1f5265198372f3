//! The transaction groups of a pool, and the thread that syncs them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use base::{Env, Mutex, MutexGuard};
use dmu::{Throttle, Txgs};
use format::ids::Txg;

use super::group_times::{DeviceTotals, GroupRecord, GroupTimes};

/// The groups of a pool.
pub(super) struct Groups {
    txgs: Arc<Txgs>,
    /// Bytes of memory that there are, when the pool was imported.
    memory: u64,
    /// Is held while a group is synced.
    syncing: Mutex<()>,
    has_thread: AtomicBool,
    /// Is closed when the thread has ended.
    thread: Mutex<Option<mpsc::Receiver<()>>>,
    times: Mutex<GroupTimes>,
}

impl Groups {
    /// Groups after `synced`, with so many bytes of memory in the machine.
    pub(super) fn new(env: &Env, memory: u64, synced: Txg) -> Groups {
        Groups {
            txgs: Arc::new(Txgs::new(synced, Throttle::of(env, memory))),
            memory,
            syncing: Mutex::default(),
            has_thread: AtomicBool::new(false),
            thread: Mutex::default(),
            times: Mutex::new(GroupTimes::begin(env)),
        }
    }

    pub(super) fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory
    }

    /// Starts the thread that does `work`; false if there are no threads.
    pub(super) fn start(&self, env: &Env, work: impl FnOnce() + Send + 'static) -> bool {
        self.has_thread.store(true, Ordering::Relaxed);
        let (running, ended) = mpsc::channel::<()>();
        let started = env.spawn("txg_sync", move || {
            // in this order: a thread that waits for the end of this one wants the devices closed
            work();
            drop(running);
        });
        self.has_thread.store(started, Ordering::Relaxed);
        *self.thread.lock() = started.then_some(ended);
        started
    }

    pub(super) fn has_thread(&self) -> bool {
        self.has_thread.load(Ordering::Relaxed)
    }

    /// Groups are synced one after the other.
    pub(super) fn sync_alone(&self) -> MutexGuard<'_, ()> {
        self.syncing.lock()
    }

    /// Closes the open group, which is on its way then; devices have done so much before.
    pub(super) fn close(&self, env: &Env, before: DeviceTotals) -> Txg {
        let since_ns = env.ticks_ns();
        let txg = self.txgs.close();
        self.times.lock().closed(env, txg, since_ns, (self.txgs.dirty_bytes(), before));
        txg
    }

    /// The group that was closed last is on disk; devices have done so much by now.
    pub(super) fn note_synced(&self, env: &Env, now: DeviceTotals) {
        self.times.lock().synced(env, now);
    }

    /// How long a group has been on its way to disk; `None` if none is.
    pub(super) fn syncing_ns(&self, env: &Env) -> Option<u64> {
        self.times.lock().syncing_ns(env)
    }

    /// See [`GroupTimes::all`].
    pub(super) fn times(&self, env: &Env) -> Vec<GroupRecord> {
        let open = self.txgs.open_txg();
        self.times.lock().all(env, open)
    }

    /// Takes up tunables that have been changed.
    pub(super) fn renew_throttle(&self, env: &Env) {
        self.txgs.set_throttle(Throttle::of(env, self.memory));
    }

    /// Ends the thread, and waits until it has ended.
    pub(super) fn end(&self) {
        self.txgs.stop("it is closed");
        if let Some(thread) = self.thread.lock().take() {
            // an error tells that it has ended
            let _ = thread.recv();
        }
    }
}
