//! A tap: a bounded buffer into which a hot path notes what happens, as long as a command asks for that.
//!
//! ```text
//!   closed   one load; nothing is allocated
//!   open     hot path ── note ─▶ entries ── take, about once a second ─▶ command
//!                                   └─ full: made thinner, or else the entry is lost, and counted
//! ```
//!
//! The entries take half of the bytes that a tap may have; the other half is what was taken last and is on its way to
//! the command. A tap closes by itself when nothing was taken for [`IDLE`]: the command may have been killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Kind, Result};
use crate::locks::Mutex;

/// How long a tap stays open from which nothing is taken.
const IDLE: Duration = Duration::from_secs(10);

/// See the top of the file.
pub struct Tap<T> {
    is_open: AtomicBool,
    state: Mutex<TapState<T>>,
}

struct TapState<T> {
    /// The number of the session that has it open, or had it last.
    session: u64,
    entries: Vec<T>,
    entries_max: usize,
    /// Entries that were lost since the last take.
    lost: u64,
    taken_ns: u64,
}

/// What was taken from a tap.
#[derive(Debug)]
pub struct TapEntries<T> {
    /// In the order in which they were noted.
    pub entries: Vec<T>,
    /// How many more there were, for which there was no room.
    pub lost: u64,
}

impl<T> std::fmt::Debug for Tap<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Tap<T> {
    /// A closed one, which takes at most that much memory while it is open.
    pub const fn new(bytes_max: usize) -> Tap<T> {
        let entries_max = bytes_max / 2 / size_of::<T>();
        let state = TapState { session: 0, entries: Vec::new(), entries_max, lost: 0, taken_ns: 0 };
        Tap { is_open: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Opens it, and returns the number of the session. [`Tap::close_if_idle`] is to be called now and then. Errors: `Busy`
    /// while another session has it open.
    pub fn open(&self, now_ns: u64) -> Result<u64> {
        self.close_if_idle(now_ns);
        let mut state = self.state.lock();
        if self.is_open() {
            return Err(Error::new(Kind::Busy, "another command looks at that already"));
        }
        state.session += 1;
        (state.lost, state.taken_ns) = (0, now_ns);
        state.entries = Vec::with_capacity(state.entries_max);
        self.is_open.store(true, Ordering::Relaxed);
        Ok(state.session)
    }

    /// Whether that session has it open.
    pub(crate) fn is_open_for(&self, session: u64) -> bool {
        let state = self.state.lock();
        self.is_open() && state.session == session
    }

    /// Notes an entry. If there is no room, `thin` may make some.
    pub fn note(&self, entry: T, thin: impl FnOnce(&mut Vec<T>)) {
        let mut state = self.state.lock();
        if !self.is_open() {
            return;
        }
        // where that made no room, it does not until the next take either
        if state.entries.len() >= state.entries_max && state.lost == 0 {
            thin(&mut state.entries);
        }
        if state.entries.len() < state.entries_max {
            state.entries.push(entry);
        } else {
            state.lost += 1;
        }
    }

    /// All entries since the last time. Errors: `Missing` if the session has been closed.
    pub fn take(&self, session: u64, now_ns: u64) -> Result<TapEntries<T>> {
        let fresh = Vec::with_capacity(self.state.lock().entries_max);
        let mut state = self.state.lock();
        if !self.is_open() || state.session != session {
            return Err(Error::new(Kind::Missing, "nothing was asked for too long, so that no more was noted"));
        }
        state.taken_ns = now_ns;
        let lost = std::mem::take(&mut state.lost);
        Ok(TapEntries { entries: std::mem::replace(&mut state.entries, fresh), lost })
    }

    /// Closes it, if that session has it open.
    pub fn close(&self, session: u64) {
        let mut state = self.state.lock();
        if state.session == session {
            self.shut(&mut state);
        }
    }

    /// Closes it if nothing was taken for long.
    pub fn close_if_idle(&self, now_ns: u64) {
        let mut state = self.state.lock();
        if now_ns.saturating_sub(state.taken_ns) > IDLE.as_nanos() as u64 {
            self.shut(&mut state);
        }
    }

    fn shut(&self, state: &mut TapState<T>) {
        self.is_open.store(false, Ordering::Relaxed);
        state.entries = Vec::new();
    }
}

impl<T> Tap<T> {
    /// Whether entries are wanted.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_bounded_and_those_lost_are_counted() {
        let tap = Tap::<u64>::new(160);
        tap.note(1, |_| panic!("it is closed"));
        let session = tap.open(0).unwrap();
        (0..13).for_each(|n| tap.note(n, |_| {}));
        let taken = tap.take(session, 0).unwrap();
        assert_eq!((taken.entries, taken.lost), ((0..10).collect(), 3));
        (0..12).for_each(|n| tap.note(n, |entries| entries.retain(|entry| entry % 2 == 0)));
        let taken = tap.take(session, 0).unwrap();
        assert_eq!((taken.entries, taken.lost), (vec![0, 2, 4, 6, 8, 10, 11], 0));
        tap.close(session);
        assert!(!tap.is_open() && tap.state.lock().entries.capacity() == 0);
        assert_eq!(tap.take(session, 0).unwrap_err().kind(), Kind::Missing);
    }

    #[test]
    fn a_session_that_does_not_ask_ends() {
        let tap = Tap::<u64>::new(1 << 10);
        let first = tap.open(0).unwrap();
        assert_eq!(tap.open(9_000_000_000).unwrap_err().kind(), Kind::Busy);
        tap.take(first, 9_000_000_000).unwrap();
        let second = tap.open(19_500_000_000).unwrap();
        assert_eq!(tap.take(first, 0).unwrap_err().kind(), Kind::Missing);
        tap.close(first);
        assert!(tap.is_open_for(second) && !tap.is_open_for(first));
        tap.take(second, 19_500_000_000).unwrap();
    }
}
