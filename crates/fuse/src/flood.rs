//! A damaged pool under a busy reader must not fill the disk of the log: a limit on messages.

use std::sync::{Mutex, PoisonError};

/// Messages that pass in one window.
const BURST: u32 = 20;
/// Length of a window in seconds.
const WINDOW_S: u64 = 10;

/// Lets some messages through and counts the others.
#[derive(Default)]
pub(crate) struct Flood(Mutex<Window>);

#[derive(Default)]
struct Window {
    began_s: u64,
    passed: u32,
    held_back: u64,
}

impl Flood {
    /// May a message pass at this time? If so, how many were held back since the last one that
    /// could.
    pub(crate) fn pass(&self, now_s: u64) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // a clock that was set back begins a new window, too
        if now_s.wrapping_sub(window.began_s) >= WINDOW_S {
            window.began_s = now_s;
            window.passed = 0;
        }
        if window.passed >= BURST {
            window.held_back += 1;
            return None;
        }
        window.passed += 1;
        Some(std::mem::take(&mut window.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut() {
        let flood = Flood::default();
        let passed = |now_s| (0..1000).filter_map(|_| flood.pass(now_s)).collect::<Vec<_>>();
        assert_eq!(passed(1_000_000), [0; BURST as usize]);
        assert_eq!(passed(1_000_000 + WINDOW_S - 1), []);
        let next = passed(1_000_000 + WINDOW_S);
        assert_eq!(next.len(), BURST as usize);
        assert_eq!(next[0], 1000 - u64::from(BURST) + 1000);
        assert_eq!(passed(5).len(), BURST as usize);
    }
}
