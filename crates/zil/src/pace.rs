//! How long a commit waits for others.
//!
//! ```text
//!   a flush is short beside writing and what threads do between two commits (an SSD):
//!     half of them | write ......... | flush | write ......... | flush |
//!     the others             | flush | write ......... | flush | write
//!   a flush is long (a disk):
//!     all of them  | write | flush ............................ | write | flush ....................
//! ```
//!
//! Expected are as many as came lately. A thread that is alone is expected alone, and never waits. Nobody waits longer
//! than until the flush that is on its way has ended, and then for a part of what a flush takes.

/// After a flush, others are waited for as long as it takes divided by this.
const WAIT_PART: u64 = 4;
/// Averages move by this part of the difference.
const AVERAGE_PART: u64 = 8;

/// What is known of commits before.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// How many commit at about the same time.
    active: usize,
    /// What it takes on average to build and write a batch, to flush it, and for all that were told to come back.
    write_ns: u64,
    flush_ns: u64,
    return_ns: u64,
    /// When the last flush ended, and how many were told and have not come back.
    flushed_at_ns: u64,
    away: usize,
}

/// What the thread that gathers is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Write.
    Go,
    /// Wait for another commit, or the end of the flush.
    Wait,
    /// As `Wait`, but not longer than so many nanoseconds.
    WaitNs(u64),
}

impl Pace {
    /// Somebody has come to commit.
    pub(crate) fn came(&mut self, now_ns: impl FnOnce() -> u64) {
        if self.away > 0 {
            self.away -= 1;
            if self.away == 0 {
                average(&mut self.return_ns, now_ns().saturating_sub(self.flushed_at_ns));
            }
        }
    }

    /// A batch was written.
    pub(crate) fn wrote(&mut self, took_ns: u64) {
        average(&mut self.write_ns, took_ns);
    }

    /// So many are told that their batches are done, after a flush if `is_timed`.
    pub(crate) fn flushed(&mut self, now_ns: u64, took_ns: u64, told: usize, is_timed: bool) {
        if is_timed {
            average(&mut self.flush_ns, took_ns);
        }
        (self.flushed_at_ns, self.away) = (now_ns, told);
    }

    /// Whether the next batch is to be written while one is being flushed.
    fn overlaps(&self) -> bool {
        self.write_ns.saturating_add(self.return_ns) > self.flush_ns
    }

    /// How many are expected in a batch.
    pub(crate) fn expected(&self) -> usize {
        if self.overlaps() { self.active.div_ceil(2) } else { self.active }
    }

    /// For a thread that gathers since `since_ns`: `asked` wait to be in its batch, others are in batches on their way.
    pub(crate) fn verdict(
        &mut self,
        asked: usize,
        in_batches: usize,
        is_flushing: bool,
        since_ns: u64,
        now_ns: impl FnOnce() -> u64,
    ) -> Verdict {
        let verdict = match (asked >= self.expected(), is_flushing) {
            (true, is_flushing) if self.overlaps() || !is_flushing => Verdict::Go,
            (_, true) => Verdict::Wait,
            (_, false) => {
                let until_ns = since_ns.max(self.flushed_at_ns).saturating_add(self.flush_ns / WAIT_PART);
                match until_ns.saturating_sub(now_ns()) {
                    0 => Verdict::Go,
                    ns => Verdict::WaitNs(ns),
                }
            }
        };
        if verdict == Verdict::Go {
            let seen = asked + in_batches;
            self.active = seen.max(self.active - self.active.saturating_sub(seen).div_ceil(AVERAGE_PART as usize));
        }
        verdict
    }
}

fn average(mean: &mut u64, value: u64) {
    *mean = if *mean == 0 { value } else { *mean - *mean / AVERAGE_PART + value / AVERAGE_PART };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(write_ns: u64, flush_ns: u64, return_ns: u64) -> Pace {
        Pace { active: 1, write_ns, flush_ns, return_ns, flushed_at_ns: 1000, away: 0 }
    }

    #[test]
    fn who_is_alone_never_waits() {
        for mut pace in [Pace::default(), pace(10, 800, 10), pace(800, 10, 10)] {
            for _ in 0..20 {
                assert_eq!(pace.verdict(1, 0, false, 1000, || panic!("nobody needs the time")), Verdict::Go);
            }
            assert_eq!(pace.active, 1);
        }
    }

    #[test]
    fn beside_a_long_flush_all_are_gathered() {
        let mut pace = pace(10, 800, 10);
        assert_eq!(pace.verdict(15, 1, true, 1000, || 0), Verdict::Wait, "even if all are there");
        assert_eq!(pace.verdict(15, 1, false, 1000, || 0), Verdict::Go);
        assert_eq!(pace.active, 16);
        assert_eq!(pace.verdict(3, 0, false, 1100, || 1150), Verdict::WaitNs(150));
        assert_eq!(pace.verdict(3, 0, false, 900, || 1150), Verdict::WaitNs(50));
        assert_eq!(pace.verdict(3, 0, false, 1100, || 1300), Verdict::Go);
        assert_eq!(pace.active, 14);
        (0..40).for_each(|_| assert_eq!(pace.verdict(1, 0, false, 0, || 5000), Verdict::Go));
        assert_eq!(pace.active, 1, "those who have gone are forgotten");
    }

    #[test]
    fn beside_a_short_flush_halves_take_turns() {
        let mut pace = pace(300, 100, 200);
        pace.active = 16;
        assert_eq!(pace.verdict(7, 8, true, 1000, || 0), Verdict::Wait);
        assert_eq!(pace.verdict(8, 8, true, 1000, || 0), Verdict::Go);
        pace.active = 2;
        assert_eq!(pace.verdict(1, 1, true, 1000, || 0), Verdict::Go);
    }

    #[test]
    fn the_way_back_is_measured() {
        let mut pace = Pace::default();
        pace.flushed(100, 50, 2, true);
        pace.came(|| panic!("not all are back"));
        pace.came(|| 140);
        pace.came(|| panic!("nobody was away"));
        assert_eq!((pace.return_ns, pace.flush_ns), (40, 50));
        pace.flushed(200, 90, 1, true);
        assert_eq!(pace.flush_ns, 50 - 50 / 8 + 90 / 8);
    }
}
