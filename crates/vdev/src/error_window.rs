//! The errors of a leaf in the last minutes: whether there were too many.
//!
//! The counts and the time are those by which OpenZFS's daemon diagnoses (io_n, io_t, checksum_n, checksum_t, slow_io_n,
//! slow_io_t in vdevprops(7)).

use std::collections::VecDeque;

/// How many errors in how many seconds are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRate {
    /// So many.
    pub count: u64,
    /// In so many seconds.
    pub period_s: u64,
}

impl ErrorRate {
    /// Unless something else is set.
    pub const DEFAULT: ErrorRate = ErrorRate { count: 10, period_s: 600 };
}

/// The rates of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRates {
    /// Of reads and writes that fail.
    pub io: ErrorRate,
    /// Of reads that give wrong bytes.
    pub checksum: ErrorRate,
    /// Of requests that take very long; `None`: they are not looked at.
    pub slow_io: Option<ErrorRate>,
    /// Whether these are told as events (`slow_io_events`); if not, they are not looked at either.
    pub tells_slow_io: bool,
}

impl Default for ErrorRates {
    fn default() -> ErrorRates {
        ErrorRates { io: ErrorRate::DEFAULT, checksum: ErrorRate::DEFAULT, slow_io: None, tells_slow_io: true }
    }
}

/// Of what there were too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // see `ErrorRates`
pub struct TooMany {
    pub io: bool,
    pub checksum: bool,
    pub slow_io: bool,
}

/// What is known of the recent errors of a leaf.
#[derive(Debug, Default)]
pub(crate) struct ErrorWindow {
    /// Its counts when it was looked at last: reads and writes, checksums, slow requests.
    counts: [u64; 3],
    /// When that was, in seconds.
    looked_s: Option<u64>,
    /// When how many came.
    recent: [VecDeque<(u64, u64)>; 3],
}

impl ErrorWindow {
    /// Those that there were, by these counts, are no reason for anything any more.
    pub(crate) fn forget(&mut self, counts: [u64; 3]) {
        *self = ErrorWindow { counts, ..ErrorWindow::default() };
    }

    /// Whether there were too many errors of each kind up to `now_s`, given how many there ever were.
    pub(crate) fn look(&mut self, counts: [u64; 3], rates: &ErrorRates, now_s: u64) -> TooMany {
        let rates = [Some(rates.io), Some(rates.checksum), rates.slow_io.filter(|_| rates.tells_slow_io)];
        let unseen_s = now_s.saturating_sub(self.looked_s.replace(now_s).unwrap_or(now_s));
        let [io, checksum, slow_io] = std::array::from_fn(|kind| {
            // counts are set back when they are cleared
            let new = counts[kind].checked_sub(self.counts[kind]).unwrap_or(counts[kind]);
            self.counts[kind] = counts[kind];
            let recent = &mut self.recent[kind];
            let Some(rate) = rates[kind] else {
                recent.clear();
                return false;
            };
            // when they came is not known better than that: of a shorter time, a part
            let recently = match rate.period_s {
                period_s if period_s >= unseen_s => new,
                period_s => (u128::from(new) * u128::from(period_s)).div_ceil(unseen_s.into()) as u64,
            };
            if recently > 0 {
                recent.push_back((now_s, recently));
            }
            while recent.front().is_some_and(|(time_s, _)| time_s.saturating_add(rate.period_s) < now_s) {
                recent.pop_front();
            }
            let sum = recent.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
            sum >= rate.count.max(1)
        });
        TooMany { io, checksum, slow_io }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(window: &mut ErrorWindow, counts: [u64; 3], now_s: u64) -> [bool; 3] {
        let TooMany { io, checksum, slow_io } = window.look(counts, &ErrorRates::default(), now_s);
        [io, checksum, slow_io]
    }

    #[test]
    fn ten_errors_in_ten_minutes() {
        let mut window = ErrorWindow::default();
        assert_eq!(look(&mut window, [9, 0, 99], 1000), [false; 3]);
        assert_eq!(look(&mut window, [9, 0, 199], 1010), [false; 3]);
        assert_eq!(look(&mut window, [10, 3, 199], 1600), [true, false, false]);
        assert_eq!(look(&mut window, [18, 12, 199], 1601), [false, true, false], "the first nine are long ago");
        // cleared, and again
        assert_eq!(look(&mut window, [1, 0, 0], 9000), [false; 3]);
        assert_eq!(look(&mut window, [11, 0, 0], 9001), [true, false, false]);
        window.forget([15, 0, 0]);
        assert_eq!(look(&mut window, [24, 0, 0], 9002), [false; 3]);
        assert_eq!(look(&mut window, [25, 0, 0], 9003), [true, false, false]);
    }

    #[test]
    fn of_less_time_than_between_two_looks() {
        let rates = ErrorRates { io: ErrorRate { count: 10, period_s: 1 }, ..ErrorRates::default() };
        let mut window = ErrorWindow::default();
        assert!(!window.look([0; 3], &rates, 100).io);
        assert!(!window.look([45, 0, 0], &rates, 105).io, "fewer than ten a second");
        assert!(window.look([99, 0, 0], &rates, 110).io);
        assert!(window.look([109, 0, 0], &rates, 111).io);
    }

    #[test]
    fn rates_that_were_set() {
        let rate = |count, period_s| ErrorRate { count, period_s };
        let rates =
            ErrorRates { io: rate(2, 10), checksum: rate(0, 600), slow_io: Some(rate(3, 60)), tells_slow_io: true };
        let mut window = ErrorWindow::default();
        assert_eq!(window.look([1, 0, 2], &rates, 100), TooMany::default());
        assert_eq!(window.look([2, 1, 3], &rates, 111), TooMany { io: false, checksum: true, slow_io: true });
        assert_eq!(window.look([3, 1, 3], &rates, 111), TooMany { io: true, checksum: true, slow_io: true });
    }
}
