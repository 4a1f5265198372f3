//! Commands under way: how many there may be, and which of them are aborted.
//!
//! ```text
//!   taken ──▶ at work ──▶ done, answered                 an aborted one is not answered
//!                └──▶ parked ──▶ at work again           or never again, if it was aborted meanwhile
//! ```
//!
//! What aborts a command waits until it is not at work: so nothing changes any more behind the answer to that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Condvar, Mutex};

/// Commands that an initiator may have under way on a connection.
const COMMANDS_MAX: u32 = 64;

/// Which numbers commands may have.
#[derive(Default)]
pub(crate) struct CommandWindow(Mutex<WindowState>);

#[derive(Default)]
struct WindowState {
    next: u32,
    under_way: u32,
}

impl CommandWindow {
    /// The next command is expected to have that number.
    pub(crate) fn new(next: u32) -> CommandWindow {
        CommandWindow(Mutex::new(WindowState { next, under_way: 0 }))
    }

    /// The next number that is expected, and the last that may come.
    pub(crate) fn bounds(&self) -> (u32, u32) {
        let state = self.0.lock();
        (state.next, state.next.wrapping_add(COMMANDS_MAX.saturating_sub(state.under_way)).wrapping_sub(1))
    }

    /// How far ahead of the next number this one is; `None` if it may not come.
    pub(crate) fn distance(&self, number: u32) -> Option<u32> {
        let state = self.0.lock();
        let ahead = number.wrapping_sub(state.next);
        (ahead < COMMANDS_MAX.saturating_sub(state.under_way)).then_some(ahead)
    }

    /// The command that was expected has come.
    pub(crate) fn advance(&self) {
        let mut state = self.0.lock();
        state.next = state.next.wrapping_add(1);
    }

    fn begin(&self) {
        self.0.lock().under_way += 1;
    }

    fn end(&self) {
        self.0.lock().under_way -= 1;
    }
}

/// What there is to know of a command under way.
#[derive(Clone, Copy, Debug, Default)]
struct TaskState {
    is_at_work: bool,
    is_aborted: bool,
    /// It takes room in the window.
    is_counted: bool,
}

/// The commands of a connection that are under way, by their tags.
#[derive(Default)]
pub(crate) struct Tasks {
    states: Mutex<HashMap<u32, TaskState>>,
    changed: Condvar,
    /// Nothing is done any more.
    is_closed: AtomicBool,
}

impl Tasks {
    /// A command has come, in a window unless it is in no order; false if there is one with that tag, or there are too
    /// many. The window has to advance behind this, as its end goes never back.
    pub(crate) fn begin(&self, tag: u32, window: Option<&CommandWindow>) -> bool {
        let mut states = self.states.lock();
        if states.contains_key(&tag) || states.len() >= 2 * COMMANDS_MAX as usize {
            return false;
        }
        states.insert(tag, TaskState { is_counted: window.is_some(), ..TaskState::default() });
        if let Some(window) = window {
            window.begin();
        }
        true
    }

    /// It is at work from now on; false if it was aborted.
    pub(crate) fn work(&self, tag: u32) -> bool {
        self.states.lock().get_mut(&tag).is_some_and(|state| {
            state.is_at_work = !state.is_aborted && !self.is_closed.load(Ordering::SeqCst);
            state.is_at_work
        })
    }

    /// It waits for the pool.
    pub(crate) fn rest(&self, tag: u32) {
        if let Some(state) = self.states.lock().get_mut(&tag) {
            state.is_at_work = false;
        }
        self.changed.notify_all();
    }

    /// It is done; false if nothing is to be answered.
    pub(crate) fn end(&self, tag: u32, window: &CommandWindow) -> bool {
        let ended = self.states.lock().remove(&tag);
        if ended.is_some_and(|state| state.is_counted) {
            window.end();
        }
        self.changed.notify_all();
        ended.is_some_and(|state| !state.is_aborted)
    }

    /// Whether a command was aborted.
    #[cfg(test)]
    pub(crate) fn is_aborted(&self, tag: u32) -> bool {
        self.states.lock().get(&tag).is_none_or(|state| state.is_aborted)
    }

    /// Does nothing any more, from when this returns.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.abort(None);
    }

    /// Aborts the command with that tag, or all, and waits until none of them is at work; false if there is none.
    pub(crate) fn abort(&self, tag: Option<u32>) -> bool {
        let mut states = self.states.lock();
        let is_meant = |one: &u32| tag.is_none_or(|tag| tag == *one);
        let mut found = false;
        for (_, state) in states.iter_mut().filter(|(one, _)| is_meant(one)) {
            (state.is_aborted, found) = (true, true);
        }
        let works = |states: &mut HashMap<u32, TaskState>| {
            states.iter().any(|(one, state)| is_meant(one) && state.is_at_work && state.is_aborted)
        };
        drop(self.changed.wait_while(states, works));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_closes_and_opens() {
        let (window, tasks) = (CommandWindow::new(u32::MAX), Tasks::default());
        assert_eq!(window.bounds(), (u32::MAX, COMMANDS_MAX - 2));
        assert_eq!(
            (window.distance(u32::MAX), window.distance(1), window.distance(u32::MAX - 1)),
            (Some(0), Some(2), None)
        );
        for tag in 0..COMMANDS_MAX {
            assert!(tasks.begin(tag, Some(&window)));
            window.advance();
        }
        assert_eq!(window.bounds(), (COMMANDS_MAX - 1, COMMANDS_MAX - 2));
        assert_eq!(window.distance(COMMANDS_MAX - 1), None);
        assert!(!tasks.begin(0, Some(&window)), "its tag is in use");
        assert!(tasks.end(0, &window) && !tasks.end(0, &window));
        assert_eq!(window.distance(COMMANDS_MAX - 1), Some(0));
    }

    #[test]
    fn what_is_aborted_is_over() {
        let (window, tasks) = (CommandWindow::new(0), Tasks::default());
        tasks.begin(1, Some(&window));
        tasks.begin(2, Some(&window));
        assert!(!tasks.abort(Some(3)));
        assert!(tasks.work(1));
        std::thread::scope(|scope| {
            let abort = scope.spawn(|| tasks.abort(None));
            while !tasks.is_aborted(2) {
                std::thread::yield_now();
            }
            assert!(!abort.is_finished(), "one is at work");
            tasks.rest(1);
            assert!(abort.join().unwrap());
        });
        assert!(!tasks.work(1) && !tasks.work(2));
        assert!(!tasks.end(1, &window));
        tasks.close();
        tasks.begin(4, None);
        assert!(!tasks.work(4));
    }
}
