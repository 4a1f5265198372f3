//! A limit on messages of one kind: a damaged pool under a busy reader, or a guest that is refused each write, must not
//! fill the disk of the log.
//!
//! ```text
//!   messages   ||||||||||||||||||||||||||||||||||||||||||||||||||||||||
//!   windows    [ 10 s ][ 20 s        ][ 40 s                     ][ ..     each twice the last one, if that was full
//!   passed     |||      |||            |||                         |||
//! ```
//!
//! One that is slow enough for the windows has a limit, too: that of a day.

use crate::locks::Mutex;

/// Messages that pass in one window, unless told otherwise.
const BURST: u32 = 20;
/// Length of the first window in seconds, and of the longest one.
const WINDOW_S: u64 = 10;
const WINDOW_MAX_S: u64 = 3600;
/// Windows whose messages may pass in a day, and its seconds.
const DAY_WINDOWS: u32 = 25;
const DAY_S: u64 = 24 * 3600;

/// Lets some messages through and counts the others.
pub struct LogLimit(Mutex<LogWindow>);

struct LogWindow {
    burst: u32,
    began_s: u64,
    length_s: u64,
    passed: u32,
    day_began_s: u64,
    day_passed: u32,
    held_back: u64,
}

/// Whether a message may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFate {
    /// As many were held back since the last one that could.
    Pass(u64),
    /// The first one that is held back in this window, which ends in so many seconds.
    HoldFirst(u64),
    /// Another one that is held back.
    Hold,
}

impl Default for LogLimit {
    fn default() -> LogLimit {
        LogLimit::of(BURST)
    }
}

impl LogLimit {
    /// So many pass in a window.
    pub fn of(burst: u32) -> LogLimit {
        LogLimit(Mutex::new(LogWindow {
            burst,
            began_s: 0,
            length_s: WINDOW_S,
            passed: 0,
            day_began_s: 0,
            day_passed: 0,
            held_back: 0,
        }))
    }

    /// May a message pass at this time?
    pub fn fate(&self, now_s: u64) -> MessageFate {
        let mut window = self.0.lock();
        // a clock that was set back begins a new window, too
        let age_s = now_s.wrapping_sub(window.began_s);
        if age_s >= window.length_s {
            let goes_on = window.passed >= window.burst && age_s < 2 * window.length_s;
            window.length_s = if goes_on { (2 * window.length_s).min(WINDOW_MAX_S) } else { WINDOW_S };
            (window.began_s, window.passed) = (now_s, 0);
        }
        if now_s.wrapping_sub(window.day_began_s) >= DAY_S {
            (window.day_began_s, window.day_passed) = (now_s, 0);
        }
        let day_is_full = window.day_passed >= window.burst.saturating_mul(DAY_WINDOWS);
        if window.passed < window.burst && !day_is_full {
            window.passed += 1;
            window.day_passed += 1;
            return MessageFate::Pass(std::mem::take(&mut window.held_back));
        }
        window.held_back += 1;
        let end_s = match day_is_full {
            true => window.day_began_s.wrapping_add(DAY_S),
            false => window.began_s.wrapping_add(window.length_s),
        };
        match window.held_back {
            1 => MessageFate::HoldFirst(end_s.wrapping_sub(now_s)),
            _ => MessageFate::Hold,
        }
    }

    /// The same. If it may, how many were held back since the last one that could.
    pub fn pass(&self, now_s: u64) -> Option<u64> {
        match self.fate(now_s) {
            MessageFate::Pass(held_back) => Some(held_back),
            MessageFate::HoldFirst(_) | MessageFate::Hold => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut() {
        let flood = LogLimit::default();
        let passed = |now_s| (0..1000).filter_map(|_| flood.pass(now_s)).collect::<Vec<_>>();
        assert_eq!(passed(1_000_000), [0; BURST as usize]);
        assert_eq!(passed(1_000_000 + WINDOW_S - 1), [0; 0]);
        let next = passed(1_000_000 + WINDOW_S);
        assert_eq!(next.len(), BURST as usize);
        assert_eq!(next[0], 1000 - u64::from(BURST) + 1000);
        assert_eq!(passed(1_000_000 + 2 * WINDOW_S), [0; 0], "the second window is longer");
        assert_eq!(passed(5).len(), BURST as usize, "the clock was set back");
    }

    #[test]
    fn one_that_goes_on_for_a_month_fills_no_disk() {
        let flood = LogLimit::default();
        let month = 30 * 24 * 3600u64;
        let (mut passed, mut told) = (0, 0);
        for now_s in (0..month).flat_map(|now_s| [now_s; 30]) {
            if let Some(held_back) = flood.pass(now_s) {
                (passed, told) = (passed + 1, told + held_back);
            }
        }
        assert!((1000..20_000).contains(&passed), "{passed} lines");
        assert_eq!(flood.fate(2 * month), MessageFate::Pass(month * 30 - passed - told), "each is counted once");
        let rest: Vec<_> = (0..30).map(|_| flood.fate(2 * month + 3)).collect();
        assert_eq!(rest.iter().filter(|fate| **fate == MessageFate::HoldFirst(WINDOW_S - 3)).count(), 1);
        assert_eq!(rest[29], MessageFate::Hold);
        assert_eq!(flood.pass(2 * month + WINDOW_S), Some(11), "windows are short again");
    }

    /// A client that takes care to stay below the limit of each window.
    #[test]
    fn one_that_is_slow_fills_no_disk() {
        let drops = LogLimit::default();
        let month = 30 * 24 * 3600u64;
        let passed = (0..month).filter(|now_s| drops.pass(*now_s).is_some()).count();
        assert!((1000..20_000).contains(&passed), "{passed} lines");
        let calm = LogLimit::default();
        assert!((0..month).step_by(600).all(|now_s| calm.pass(now_s) == Some(0)), "one that is no flood");
    }
}
