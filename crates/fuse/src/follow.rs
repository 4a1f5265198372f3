//! How the one thread that takes requests alone spares itself and the task that asks being woken on idle cores.
//!
//! ```text
//!   on two cores     asks ──wake──▶ idle core ──▶ answers ──wake──▶ idle core ──▶ goes on
//!   it looks         asks ───────────────────────▶ answers ──wake──▶ idle core ──▶ goes on
//!   it follows       asks, sleeps ──switch──▶ answers, sleeps ──switch──▶ goes on
//! ```
//!
//! To wake a thread on a core that idles takes far longer than to switch from one to another: in a virtual
//! machine whose cores halt at once 25 to 50 µs against 5, and elsewhere the deeper a core sleeps. While one task
//! asks and one thread answers, there is nothing for a second core to do.
//!
//! So the thread runs on the core where the task does ([`Follower`]). That is of use if the scheduler leaves the
//! task there, when it is woken: it does on a machine that has other work, but where another core idles it may
//! move the task to that one. Then the thread runs where it likes, and looks for the next request for a moment before it
//! sleeps ([`export::Looks`]), which spares the first of the two.
//!
//! Above is [`serve`](crate::serve). Invariant: a thread is tied to a core only while it is alone in taking
//! requests ([`export::Turns`]), so that what several tasks ask for is done on all cores.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Requests of a task in a row after which it is followed.
const FOLLOW_AFTER: u32 = 16;
/// Requests after which it is looked again where it runs.
const CHECK_EVERY: u32 = 64;
/// Requests for which no task is followed, after one that did not stay.
const APART: u32 = 4096;

/// Where a thread runs; that thread's alone.
#[derive(Default)]
pub(crate) struct Follower {
    /// Where it could run when it began; `None` if that is not known, and so not changed.
    all: Option<CpuSet>,
    tied_to: Option<usize>,
    /// The task that asked last, and how often in a row.
    pid: u32,
    row: u32,
    apart: u32,
}

impl Follower {
    /// Of the thread that calls it.
    pub(crate) fn new() -> Follower {
        Follower { all: sched_getaffinity(Pid::from_raw(0)).ok(), ..Follower::default() }
    }

    /// Of a thread that this one starts: that begins where this one runs, and is to leave.
    pub(crate) fn of_new_thread(&self) -> Follower {
        Follower { all: self.all, tied_to: self.tied_to, ..Follower::default() }
    }

    /// Is it where the task is?
    pub(crate) fn is_tied(&self) -> bool {
        self.tied_to.is_some()
    }

    /// Takes note of a request of a task, which waits for its answer, and goes where that is, if it stays there.
    pub(crate) fn follow(&mut self, pid: u32) {
        // 0: the kernel forgets something, or it is one of another container
        if pid == 0 {
            return;
        }
        if pid != self.pid {
            self.leave();
            self.pid = pid;
        }
        self.apart = self.apart.saturating_sub(1);
        self.row = self.row.wrapping_add(1);
        let is_due = match self.is_tied() {
            true => self.row % CHECK_EVERY == 2 * FOLLOW_AFTER,
            false => self.apart == 0 && self.row % CHECK_EVERY == FOLLOW_AFTER,
        };
        if is_due {
            self.check(core_of(pid));
        }
    }

    /// The task ran on this core last.
    fn check(&mut self, core: Option<usize>) {
        if self.is_tied() {
            if core != self.tied_to {
                self.leave();
                self.apart = APART;
            }
            return;
        }
        let mut only = CpuSet::new();
        if let (Some(all), Some(core)) = (self.all, core)
            && all.is_set(core).unwrap_or(false)
            && only.set(core).is_ok()
        {
            self.tie(&only, Some(core));
        }
    }

    /// Lets it run everywhere again.
    pub(crate) fn leave(&mut self) {
        self.row = 0;
        if let (Some(all), Some(_)) = (self.all, self.tied_to) {
            self.tie(&all, None);
        }
    }

    fn tie(&mut self, cores: &CpuSet, tied_to: Option<usize>) {
        match sched_setaffinity(Pid::from_raw(0), cores) {
            Ok(()) => self.tied_to = tied_to,
            // cores come and go: not here, then
            Err(error) => tracing::debug!("a thread's cores stay as they are: {error}"),
        }
    }
}

/// The core where a task ran last.
fn core_of(pid: u32) -> Option<usize> {
    core_in(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 39 of such a file; the second one is a name in parentheses, which may hold anything.
fn core_in(stat: &[u8]) -> Option<usize> {
    let name_end = stat.iter().rposition(|&b| b == b')')?;
    let core = stat.get(name_end + 1..)?.split(|&b| b == b' ').nth(39 - 2)?;
    std::str::from_utf8(core).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_of_a_task() {
        let fields: Vec<String> = (4..60).map(|n| n.to_string()).collect();
        assert_eq!(core_in(format!("77 (a) b (c) S {}\n", fields.join(" ")).as_bytes()), Some(39));
        for bad in ["", "77 (x", "77 (x) S 4 5", "77 (x) "] {
            assert_eq!(core_in(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn a_thread_follows_who_stays() {
        // what is changed is this thread's alone
        std::thread::spawn(|| {
            let cores = || sched_getaffinity(Pid::from_raw(0)).unwrap();
            let all = cores();
            let mut follower = Follower::new();
            let me = nix::unistd::gettid().as_raw().cast_unsigned();
            let ask = |follower: &mut Follower, pid, times| (0..times).for_each(|_| follower.follow(pid));
            ask(&mut follower, me, FOLLOW_AFTER - 1);
            ask(&mut follower, 0, 100);
            assert!(!follower.is_tied() && cores() == all);
            ask(&mut follower, me, 1);
            let tied_to = follower.tied_to.unwrap();
            let is_only = |core| (0..CpuSet::count()).all(|n| cores().is_set(n).unwrap() == (n == core));
            assert!(is_only(tied_to));
            // this one cannot but stay
            ask(&mut follower, me, 10 * CHECK_EVERY);
            assert!(follower.is_tied());
            // another task, of which nothing is known, as it is not there
            ask(&mut follower, u32::MAX, 10 * CHECK_EVERY);
            assert!(!follower.is_tied() && cores() == all);
            ask(&mut follower, me, FOLLOW_AFTER);
            assert!(follower.is_tied());
            follower.leave();
            assert!(!follower.is_tied() && cores() == all);
            ask(&mut follower, me, FOLLOW_AFTER);
            // it went elsewhere
            follower.check(Some(tied_to + 1));
            assert!(!follower.is_tied() && cores() == all);
            ask(&mut follower, me, APART - 1);
            assert!(!follower.is_tied());
            ask(&mut follower, me, CHECK_EVERY);
            assert!(follower.is_tied());
            let mut other = follower.of_new_thread();
            let started = std::thread::spawn(move || {
                other.leave();
                sched_getaffinity(Pid::from_raw(0)).unwrap()
            });
            assert!(started.join().unwrap() == all);
        })
        .join()
        .unwrap();
    }
}
