//! The errors of a leaf in the last minutes: whether there were too many.
//!
//! The counts and the time are those by which OpenZFS's daemon diagnoses (io_n, io_t, checksum_n, checksum_t in
//! vdevprops(7)).

use std::collections::VecDeque;

/// Errors that are too many, in so many seconds.
const ERRORS_MAX: u64 = 10;
const WINDOW_S: u64 = 600;

/// What is known of the recent errors of a leaf.
#[derive(Debug, Default)]
pub(crate) struct ErrorWindow {
    /// Its counts when it was looked at last: reads and writes, checksums.
    counts: [u64; 2],
    /// When how many came.
    recent: [VecDeque<(u64, u64)>; 2],
}

impl ErrorWindow {
    /// Whether there were too many errors of each kind up to `now_s`, given how many there ever were.
    pub(crate) fn look(&mut self, counts: [u64; 2], now_s: u64) -> [bool; 2] {
        std::array::from_fn(|kind| {
            // counts are set back when they are cleared
            let new = counts[kind].checked_sub(self.counts[kind]).unwrap_or(counts[kind]);
            self.counts[kind] = counts[kind];
            let recent = &mut self.recent[kind];
            if new > 0 {
                recent.push_back((now_s, new));
            }
            while recent.front().is_some_and(|(time_s, _)| time_s.saturating_add(WINDOW_S) < now_s) {
                recent.pop_front();
            }
            recent.iter().map(|(_, count)| count).sum::<u64>() >= ERRORS_MAX
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_errors_in_ten_minutes() {
        let mut window = ErrorWindow::default();
        assert_eq!(window.look([9, 0], 1000), [false; 2]);
        assert_eq!(window.look([9, 0], 1010), [false; 2]);
        assert_eq!(window.look([10, 3], 1600), [true, false]);
        assert_eq!(window.look([18, 12], 1601), [false, true], "the first nine are long ago");
        // cleared, and again
        assert_eq!(window.look([1, 0], 9000), [false; 2]);
        assert_eq!(window.look([11, 0], 9001), [true, false]);
    }
}
