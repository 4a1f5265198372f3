//! What the engine may not reach for itself: the clock, threads.
//!
//! Library code gets an [`Env`] handed down. A test makes one with a fixed clock and a single
//! worker, and the same calls give the same results in the same order.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rayon::prelude::*;

/// The environment of a pool; clones share it.
#[derive(Clone)]
pub struct Env {
    workers: Option<Arc<rayon::ThreadPool>>,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Env {
    /// The real clock, and as many workers as the machine has cores.
    pub fn real() -> Env {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let workers = (cores > 1)
            .then(|| rayon::ThreadPoolBuilder::new().num_threads(cores).thread_name(|i| format!("zio-{i}")).build())
            .and_then(|pool| pool.ok())
            .map(Arc::new);
        Env { workers, now: Arc::new(clock_s) }
    }

    /// No threads, and a clock that stands still at `now_s` (seconds since 1970).
    pub fn fixed(now_s: u64) -> Env {
        Env { workers: None, now: Arc::new(move || now_s) }
    }

    /// Seconds since 1970.
    pub fn now_s(&self) -> u64 {
        (self.now)()
    }

    /// Applies `f` to every item, on all workers at once if there are several items; results are in
    /// the order of the items.
    pub fn map<T: Send, R: Send>(&self, items: Vec<T>, f: impl Fn(T) -> R + Send + Sync) -> Vec<R> {
        match &self.workers {
            Some(pool) if items.len() > 1 => pool.install(|| items.into_par_iter().with_max_len(1).map(f).collect()),
            _ => items.into_iter().map(f).collect(),
        }
    }
}

fn clock_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("workers", &self.workers.as_ref().map_or(1, |p| p.current_num_threads())).finish()
    }
}
