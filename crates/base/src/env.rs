//! What the engine may not reach for itself: the clock, threads.
//!
//! Library code gets an [`Env`] handed down. A test makes one with a fixed clock and a single
//! worker, and the same calls give the same results in the same order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{SystemTime, UNIX_EPOCH};

use rayon::prelude::*;

/// Work for a background thread.
type Task = Box<dyn FnOnce() + Send>;

/// The environment of a pool; clones share it.
#[derive(Clone)]
pub struct Env {
    workers: Option<Arc<rayon::ThreadPool>>,
    background: Option<mpsc::Sender<Task>>,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Env {
    /// The real clock, and as many workers as the machine has cores.
    pub fn real() -> Env {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Env {
            workers: (cores > 1).then(|| thread_pool(cores, "zio")).flatten(),
            background: background_threads(BACKGROUND_THREADS),
            now: Arc::new(clock_s),
        }
    }

    /// No threads, and a clock that stands still at `now_s` (seconds since 1970).
    pub fn fixed(now_s: u64) -> Env {
        Env { workers: None, background: None, now: Arc::new(move || now_s) }
    }

    /// Seconds since 1970.
    pub fn now_s(&self) -> u64 {
        (self.now)()
    }

    /// Runs `task` some time soon on a thread of its own, or at once if there are none.
    pub fn background(&self, task: impl FnOnce() + Send + 'static) {
        match &self.background {
            Some(threads) => drop(threads.send(Box::new(task))),
            None => task(),
        }
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

/// Threads for work that waits for devices more than it computes.
const BACKGROUND_THREADS: usize = 4;

/// Threads that end when the last sender is dropped; `None` where the system gives no threads.
///
/// They are no workers of rayon, because such a one that waits for a batch of [`Env::map`] would take
/// up another task meanwhile, on the same stack; and that task may wait for what the first one holds.
fn background_threads(count: usize) -> Option<mpsc::Sender<Task>> {
    let (sender, receiver) = mpsc::channel::<Task>();
    let receiver = Arc::new(Mutex::new(receiver));
    let mut started = 0;
    for i in 0..count {
        let receiver = receiver.clone();
        let next = move || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let work = move || {
            while let Ok(task) = next() {
                // The panic has been reported; the thread is there for the other tasks.
                let _ = catch_unwind(AssertUnwindSafe(task));
            }
        };
        started += usize::from(std::thread::Builder::new().name(format!("prefetch-{i}")).spawn(work).is_ok());
    }
    (started > 0).then_some(sender)
}

/// `None` where the system gives no threads: then everything runs on the caller's.
fn thread_pool(threads: usize, name: &'static str) -> Option<Arc<rayon::ThreadPool>> {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(move |i| format!("{name}-{i}"));
    builder.build().ok().map(Arc::new)
}

fn clock_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("workers", &self.workers.as_ref().map_or(1, |p| p.current_num_threads())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks that each wait for a batch of workers, and for a lock that another of them holds meanwhile.
    #[test]
    fn background_tasks_do_not_run_inside_each_other() {
        let env = Env::real();
        let lock = Arc::new(Mutex::new(0));
        let (done, finished) = mpsc::channel();
        for _ in 0..200 {
            let (inner, lock, done) = (env.clone(), lock.clone(), done.clone());
            env.background(move || {
                let mut count = lock.lock().unwrap();
                *count += inner.map((0..64).collect(), |n: u64| n).len();
                done.send(()).unwrap();
            });
        }
        let wait = std::time::Duration::from_secs(60);
        (0..200).for_each(|_| finished.recv_timeout(wait).expect("no task waits for ever"));
        assert_eq!(*lock.lock().unwrap(), 200 * 64);
    }
}
