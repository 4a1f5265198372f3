//! What the engine may not reach for itself: the clock, chance, threads, and what an administrator has tuned.
//!
//! Library code gets an [`Env`] handed down. A test makes one with a fixed clock and a single
//! worker, and the same calls give the same results in the same order.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

use crate::error::Result;
use crate::locks::Mutex;
use crate::mix::{MIX_STRIDE, mixed};
use crate::or_abort;
use crate::tap::Tap;
use crate::tunables::{self, Tunable};
use crate::user_request::UserRequest;

/// Work for a background thread.
type BackgroundTask = Box<dyn FnOnce() + Send>;

/// Whether what is about to be done at a place of that name fails.
type Failpoints = dyn Fn(&'static str) -> bool + Send + Sync;

/// What a thread works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Somebody waits.
    Asked,
    /// Somebody may ask for it later.
    Ahead,
    /// A scrub or a resilver.
    Scan,
    /// A sequential resilver, or an expansion.
    Rebuild,
}

/// What was set for a tunable.
type TunableLookup = dyn Fn(&str) -> Option<u64> + Send + Sync;

/// The environment of a pool; clones share it.
#[derive(Clone)]
pub struct Env {
    workers: Option<Arc<rayon::ThreadPool>>,
    background: Option<mpsc::Sender<BackgroundTask>>,
    now: Arc<dyn Fn() -> (u64, u32) + Send + Sync>,
    ticks: Arc<dyn Fn() -> u64 + Send + Sync>,
    random: Arc<dyn Fn() -> u64 + Send + Sync>,
    tunables: Arc<TunableLookup>,
    failpoints: Option<Arc<Failpoints>>,
    /// What tunables are unless they are set, where that is not one number for all machines.
    defaults: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    /// What users ask for, while a command wants to know.
    requests: Arc<Tap<UserRequest>>,
    /// Until when requests of users are timed, by the clock that nobody sets; 0 if they are not.
    timed_until_ns: Arc<AtomicU64>,
}

impl Env {
    /// The real clock, and as many workers as the machine has cores.
    pub fn real() -> Env {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Env {
            workers: (cores > 1).then(|| thread_pool(cores, "zio")).flatten(),
            background: background_threads(BACKGROUND_THREADS),
            now: Arc::new(clock),
            ticks: Arc::new(ticks_since(Instant::now())),
            random: Arc::new(random_of_system),
            tunables: Arc::new(tunable_of_system),
            failpoints: None,
            defaults: Arc::default(),
            requests: Arc::new(Tap::new(REQUESTS_BYTES_MAX)),
            timed_until_ns: Arc::default(),
        }
    }

    /// No threads, a clock that stands still at `now_s` (seconds since 1970), and always the same chance.
    pub fn fixed(now_s: u64) -> Env {
        let drawn = AtomicU64::new(0);
        let random = move || mixed((drawn.fetch_add(1, Ordering::Relaxed) + 1).wrapping_mul(MIX_STRIDE));
        Env {
            workers: None,
            background: None,
            now: Arc::new(move || (now_s, 0)),
            ticks: Arc::new(|| 0),
            random: Arc::new(random),
            tunables: Arc::new(|_| None),
            failpoints: None,
            defaults: Arc::default(),
            requests: Arc::new(Tap::new(REQUESTS_BYTES_MAX)),
            timed_until_ns: Arc::default(),
        }
    }

    /// The same, with other tunables.
    pub fn with_tunables(self, tunables: impl Fn(&str) -> Option<u64> + Send + Sync + 'static) -> Env {
        Env { tunables: Arc::new(tunables), ..self }
    }

    /// The same, with another time of day: seconds since 1970.
    pub fn with_time(self, now_s: impl Fn() -> u64 + Send + Sync + 'static) -> Env {
        Env { now: Arc::new(move || (now_s(), 0)), ..self }
    }

    /// The same, with another clock: nanoseconds since some instant.
    pub fn with_ticks(self, ticks: impl Fn() -> u64 + Send + Sync + 'static) -> Env {
        Env { ticks: Arc::new(ticks), ..self }
    }

    /// The same, for tests: at each place that has a name, `fails` is asked whether it fails.
    pub fn with_failpoints(self, fails: impl Fn(&'static str) -> bool + Send + Sync + 'static) -> Env {
        Env { failpoints: Some(Arc::new(fails)), ..self }
    }

    /// A place where a test may want a panic.
    pub fn failpoint(&self, place: &'static str) {
        assert!(!self.fails(place), "failpoint: {place}");
    }

    fn fails(&self, place: &'static str) -> bool {
        self.failpoints.as_ref().is_some_and(|fails| fails(place))
    }

    /// The number that was set for a tunable, or else its default. It may be another one at any time.
    ///
    /// It is the content of the file of that name in the folder `CENOTE_PARAMETERS`, or else in
    /// `/etc/cenote/parameters`: where OpenZFS has `/sys/module/zfs/parameters`.
    pub fn tunable(&self, tunable: Tunable) -> u64 {
        (self.tunables)(tunable.name).unwrap_or(tunable.default)
    }

    /// The same, where the default is that of this machine.
    pub fn tunable_or(&self, tunable: Tunable, default: u64) -> u64 {
        self.defaults.lock().insert(tunable.name, default);
        (self.tunables)(tunable.name).unwrap_or(default)
    }

    /// All tunables by name, and what they are.
    pub fn tunables(&self) -> Vec<(&'static str, u64)> {
        let defaults = self.defaults.lock();
        let default = |tunable: Tunable| defaults.get(tunable.name).copied().unwrap_or(tunable.default);
        let value = |tunable: Tunable| (self.tunables)(tunable.name).unwrap_or_else(|| default(tunable));
        tunables::ALL.iter().map(|tunable| (tunable.name, value(*tunable))).collect()
    }

    /// Seconds since 1970.
    pub fn now_s(&self) -> u64 {
        (self.now)().0
    }

    /// Seconds since 1970, and nanoseconds below 10^9.
    pub fn now(&self) -> (u64, u32) {
        (self.now)()
    }

    /// Nanoseconds since this was made, by a clock that nobody sets.
    pub fn ticks_ns(&self) -> u64 {
        (self.ticks)()
    }

    /// The tap of what users of the pool ask for.
    pub fn requests(&self) -> &Arc<Tap<UserRequest>> {
        &self.requests
    }

    /// Opens a tap, and has it closed when nothing was taken from it for long. The number of the session. Errors: as of
    /// [`Tap::open`].
    pub fn open_tap<T: Send + 'static>(&self, tap: &Arc<Tap<T>>) -> Result<u64> {
        let session = tap.open(self.ticks_ns())?;
        let (tap, env) = (tap.clone(), self.clone());
        self.spawn("tap", move || {
            while tap.is_open_for(session) {
                env.pause(TAP_LOOK);
                tap.close_if_idle(env.ticks_ns());
            }
        });
        Ok(session)
    }

    /// Notes a request of a user, if a command wants to know; `request` is given the time.
    #[inline]
    pub fn note_request(&self, request: impl FnOnce(u64) -> UserRequest) {
        if self.requests.is_open() {
            self.requests.note(request(self.ticks_ns()), |_| {});
        }
    }

    /// Has requests of users be timed for [`TIMES_ASKED_NS`] from now on.
    pub fn ask_for_times(&self) {
        self.timed_until_ns.store(self.ticks_ns().saturating_add(TIMES_ASKED_NS), Ordering::Relaxed);
    }

    /// Whether somebody has asked for the times of requests a moment ago.
    #[inline]
    pub fn are_times_asked_for(&self) -> bool {
        let until_ns = self.timed_until_ns.load(Ordering::Relaxed);
        until_ns > 0 && self.is_before(until_ns)
    }

    fn is_before(&self, until_ns: u64) -> bool {
        let is_before = self.ticks_ns() < until_ns;
        if !is_before {
            _ = self.timed_until_ns.compare_exchange(until_ns, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_before
    }

    /// Lets that much time pass; none where the clock stands still.
    pub fn pause(&self, time: Duration) {
        if self.background.is_some() {
            std::thread::sleep(time);
        }
    }

    /// A random number, from which nothing follows for others.
    pub fn random(&self) -> u64 {
        (self.random)()
    }

    /// Runs `task` some time soon on a thread of its own, or at once if there are none. On a thread of its own, its
    /// panic ends the process.
    pub fn background(&self, task: impl FnOnce() + Send + 'static) {
        match &self.background {
            Some(threads) => {
                let env = self.clone();
                let task = move || {
                    env.failpoint("background");
                    task();
                };
                drop(threads.send(Box::new(task)));
            }
            None => task(),
        }
    }

    /// Does work of that kind on this thread.
    pub fn doing<T>(kind: WorkKind, work: impl FnOnce() -> T) -> T {
        let before = WORK.replace(kind);
        let outcome = work();
        WORK.set(before);
        outcome
    }

    /// What the caller does: a task of [`Env::background`], what [`Env::doing`] says, or what somebody waits for.
    pub fn work() -> WorkKind {
        WORK.get()
    }

    /// Runs `task`, which may last as long as the pool is open, on a thread of its own of that name. Its panic
    /// ends the process.
    /// False if there are no threads; then it is not run, and the caller does without.
    pub fn spawn(&self, name: &str, task: impl FnOnce() + Send + 'static) -> bool {
        let task = move || or_abort(task);
        !self.fails("thread start")
            && self.background.is_some()
            && std::thread::Builder::new().name(name.to_owned()).spawn(task).is_ok()
    }

    /// Does both, at the same time if there are threads. It is no work for workers, as one of these that waits takes up
    /// another task, which may want what the caller holds.
    pub fn both<A, B: Send>(&self, one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
        let other = Mutex::new(Some(other));
        let do_other = || other.lock().take().map(|other| other());
        let (one, done) = std::thread::scope(|scope| {
            let start = || std::thread::Builder::new().name("beside".into()).spawn_scoped(scope, do_other).ok();
            let thread = self.background.as_ref().and_then(|_| start());
            (one(), thread.and_then(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))))
        });
        (one, done.or_else(do_other).expect("done once"))
    }

    /// Applies `f` to every item, which takes one core about `work_ns` nanoseconds in all; results are in the order of
    /// the items. All workers are at it if there are several items, and it is worth waking them.
    pub fn map<T: Send, R: Send>(&self, items: Vec<T>, work_ns: u64, f: impl Fn(T) -> R + Send + Sync) -> Vec<R> {
        let f = |item| {
            self.failpoint("worker");
            f(item)
        };
        match &self.workers {
            Some(pool) if items.len() > 1 && work_ns >= WORTH_WAKING_NS => {
                pool.install(|| items.into_par_iter().with_max_len(1).map(f).collect())
            }
            _ => items.into_iter().map(f).collect(),
        }
    }
}

thread_local! {
    static WORK: Cell<WorkKind> = const { Cell::new(WorkKind::Asked) };
}

/// Work of so many nanoseconds is over sooner on several cores: it costs 25 to 50 µs until another one is awake, and
/// workers look for more work for a while before they sleep, on cores that others may want.
const WORTH_WAKING_NS: u64 = 100_000;

/// Nanoseconds for which requests of users are timed after somebody has asked for that.
const TIMES_ASKED_NS: u64 = 15_000_000_000;

/// How often an open tap is looked at.
const TAP_LOOK: Duration = Duration::from_secs(1);

/// Bytes of memory that noting requests of users takes at most.
const REQUESTS_BYTES_MAX: usize = 8 << 20;

/// For [`Env::map`]: work that waits, for devices or locks.
pub const WORK_THAT_WAITS: u64 = u64::MAX;

/// Threads for work that waits for devices more than it computes.
const BACKGROUND_THREADS: usize = 4;

/// Threads that end when the last sender is dropped; `None` where the system gives no threads.
///
/// They are no workers of rayon, because such a one that waits for a batch of [`Env::map`] would take
/// up another task meanwhile, on the same stack; and that task may wait for what the first one holds.
fn background_threads(count: usize) -> Option<mpsc::Sender<BackgroundTask>> {
    let (sender, receiver) = mpsc::channel::<BackgroundTask>();
    let receiver = Arc::new(Mutex::new(receiver));
    let mut started = 0;
    for i in 0..count {
        let receiver = receiver.clone();
        let next = move || receiver.lock().recv();
        let work = move || {
            WORK.set(WorkKind::Ahead);
            while let Ok(task) = next() {
                or_abort(task);
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

/// By the coarse clock, as the kernel stamps files: with a finer one, what it stamps later could seem to be earlier.
fn clock() -> (u64, u32) {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    u64::try_from(now.tv_sec).map_or((0, 0), |secs| (secs, now.tv_nsec as u32))
}

fn ticks_since(start: Instant) -> impl Fn() -> u64 {
    move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn random_of_system() -> u64 {
    let mut bytes = [0; 8];
    let got = getrandom(&mut bytes, GetRandomFlags::empty());
    assert_eq!(got, Ok(8), "the system has no random numbers");
    u64::from_ne_bytes(bytes)
}

fn tunable_of_system(name: &str) -> Option<u64> {
    let folder = std::env::var_os("CENOTE_PARAMETERS").unwrap_or_else(|| "/etc/cenote/parameters".into());
    let text = std::fs::read_to_string(std::path::Path::new(&folder).join(name)).ok()?;
    text.trim().parse().ok()
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("workers", &self.workers.as_ref().map_or(1, |p| p.current_num_threads())).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn tunables_are_as_they_were_set_or_as_by_default() {
        let env = Env::fixed(0).with_tunables(|name| (name == "zfs_txg_timeout").then_some(7));
        assert_eq!([env.tunable(tunables::ZFS_TXG_TIMEOUT), env.tunable(tunables::ZFS_DELAY_SCALE)], [7, 500_000]);
        let all = |name: &str| env.tunables().into_iter().find(|(of, _)| *of == name).map(|(_, value)| value);
        assert_eq!(all("zfs_dirty_data_max"), Some(0));
        assert_eq!(env.clone().tunable_or(tunables::ZFS_DIRTY_DATA_MAX, 9), 9);
        assert_eq!(["zfs_dirty_data_max", "zfs_txg_timeout", "zfs_delay_scale"].map(all), [9, 7, 500_000].map(Some));
        assert_eq!(env.tunables().len(), tunables::ALL.len());
    }

    #[test]
    fn a_tap_that_nothing_is_taken_from_is_closed() {
        // a clock that is fast: ten seconds are over at the first look
        let ticks = AtomicU64::new(0);
        let env = Env::real().with_ticks(move || ticks.fetch_add(11_000_000_000, Ordering::Relaxed));
        let tap = Arc::new(Tap::<u64>::new(1 << 10));
        env.open_tap(&tap).unwrap();
        let begun = Instant::now();
        while tap.is_open() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Tasks that each wait for a batch of workers, and for a lock that another of them holds meanwhile.
    #[test]
    fn background_tasks_do_not_run_inside_each_other() {
        let env = Env::real();
        let lock = Arc::new(Mutex::new(0));
        let (done, finished) = mpsc::channel();
        for _ in 0..200 {
            let (inner, lock, done) = (env.clone(), lock.clone(), done.clone());
            env.background(move || {
                let mut count = lock.lock();
                *count += inner.map((0..64).collect(), WORK_THAT_WAITS, |n: u64| n).len();
                done.send(()).unwrap();
            });
        }
        let wait = std::time::Duration::from_secs(60);
        (0..200).for_each(|_| finished.recv_timeout(wait).expect("no task waits for ever"));
        assert_eq!(*lock.lock(), 200 * 64);
    }

    #[test]
    fn both_are_done_once() {
        for env in [Env::fixed(0), Env::real()] {
            let here = std::thread::current().id();
            let (one, other) = env.both(|| std::thread::current().id(), || std::thread::current().id());
            assert_eq!((one == here, other == here), (true, env.background.is_none()));
        }
    }

    /// Others would wait for ever for what it was to do.
    #[test]
    #[cfg_attr(miri, ignore = "Miri starts no processes")]
    fn a_panic_of_a_thread_ends_the_process() {
        const WHICH: &str = "CENOTE_PANIC_IN";
        let (never, waits) = mpsc::channel::<()>();
        match std::env::var(WHICH).as_deref() {
            Ok("background") => Env::real().background(|| panic!("of a task")),
            Ok(_) => drop(Env::real().spawn("engine", || panic!("of a thread"))),
            Err(_) => {
                for which in ["background", "spawn"] {
                    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
                    child.args(["--exact", "env::tests::a_panic_of_a_thread_ends_the_process"]).env(WHICH, which);
                    let output = child.output().unwrap();
                    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{which}: {output:?}");
                }
                drop(never);
            }
        }
        let _ = waits.recv();
    }
}
