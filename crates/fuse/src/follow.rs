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
//! sleeps ([`Looks`]), which spares the first of the two. What looking may cost: nobody looks while nobody asks,
//! nor where it did not pay the last few times, nor for a while after another program took the core.
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
/// How long a thread looks for the next request, in nanoseconds.
const LOOK_NS: u64 = 50_000;
/// Somebody else had the core if so long went by between two looks.
const GAP_NS: u64 = 300_000;
/// Requests without looking after it did not pay, and after somebody else wanted the core.
const PAUSE: u32 = 256;
const PAUSE_BUSY: u32 = 4096;
/// Looks in vain are twice as bad as those that found one are good; no more than that is saved up.
const CREDIT_MAX: u32 = 8;

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

/// Whether it pays for a thread to look for its next request before it sleeps.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    credit: u32,
    pause: u32,
    began_ns: u64,
    last_ns: u64,
}

impl Looks {
    /// May it look once more, at this time? The first time is after a look in vain.
    pub(crate) fn go_on(&mut self, is_first: bool, now_ns: u64) -> bool {
        if is_first {
            if self.pause > 0 {
                self.pause -= 1;
                return false;
            }
            (self.began_ns, self.last_ns) = (now_ns, now_ns);
            return true;
        }
        let last_ns = std::mem::replace(&mut self.last_ns, now_ns);
        if now_ns.saturating_sub(last_ns) > GAP_NS {
            (self.credit, self.pause) = (0, PAUSE_BUSY);
            return false;
        }
        if now_ns.saturating_sub(self.began_ns) < LOOK_NS {
            return true;
        }
        match self.credit.checked_sub(2) {
            Some(credit) => self.credit = credit,
            None => (self.credit, self.pause) = (0, PAUSE),
        }
        false
    }

    /// It found one.
    pub(crate) fn paid(&mut self) {
        self.credit = (self.credit + 1).min(CREDIT_MAX);
    }
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
        })
        .join()
        .unwrap();
    }

    #[test]
    fn looking_stops_where_it_does_not_pay() {
        let mut looks = Looks::default();
        let vain = |looks: &mut Looks, gap_ns: u64| {
            let mut rounds = 0;
            while looks.go_on(rounds == 0, rounds * gap_ns) {
                rounds += 1;
            }
            rounds
        };
        looks.paid();
        looks.paid();
        assert_eq!((vain(&mut looks, 1000), vain(&mut looks, 1000)), (50, 50));
        assert!((0..PAUSE).all(|_| vain(&mut looks, 1000) == 0), "twice in vain");
        assert_eq!(vain(&mut looks, GAP_NS + 1), 1);
        assert!((0..PAUSE_BUSY).all(|_| vain(&mut looks, 1000) == 0), "somebody else had the core");
    }
}
