//! Times of last accesses, on their way to the tree.
//!
//! ```text
//!   read, readdir, readlink ──▶ noted ── a second later, each object once ──▶ tree
//!                                 └──── getattr, setattr, the end: at once ────▶
//! ```
//!
//! To change a time is a transaction, and that waits if more is written than the devices take. A read does not wait
//! for it. Nobody sees an earlier time: who asks for an object's attributes has its time written first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use base::{Condvar, Kind, Mutex, MutexGuard};
use zpl::is_atime_due;

use crate::node::Branch;
use crate::session::Session;
use crate::tree::{Source, Tree};

/// Until a time is written.
const DELAY: Duration = Duration::from_secs(1);

/// The times of one mount.
#[derive(Default)]
pub(crate) struct Accesses {
    state: Mutex<State>,
    written: Condvar,
}

#[derive(Default)]
struct State {
    /// Objects, and when they were used: seconds since 1970, and nanoseconds.
    noted: BTreeMap<u64, (i64, u32)>,
    /// Objects whose times are being written.
    writing: BTreeSet<u64>,
    has_thread: bool,
}

impl Accesses {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl<S: Source> Session<S> {
    /// Somebody used what an object holds: its time of the last access moves, if it shall move.
    pub(crate) fn accessed(&self, branch: &Branch<S::Tree>, object: u64, is_directory: bool) {
        if !self.writable || !self.remountable.moves_atime(is_directory) || !branch.is_live() {
            return;
        }
        let (now_s, now_ns) = self.env.now();
        let mut state = self.accesses.lock();
        state.noted.insert(object, (now_s.cast_signed(), now_ns));
        if state.has_thread {
            return;
        }
        let me = self.me.clone();
        // held while the thread starts, so that no second one does
        state.has_thread = self.env.spawn("atime", move || write_from_time_to_time(&me));
        let alone = !state.has_thread;
        drop(state);
        if alone {
            self.write_accesses();
        }
    }

    /// Writes all times that are noted; when this returns nobody is at it.
    pub(crate) fn write_accesses(&self) {
        loop {
            let next = {
                let state = self.accesses.lock();
                state.noted.keys().chain(&state.writing).next().copied()
            };
            match next {
                Some(object) => self.write_access(object),
                None => return,
            }
        }
    }

    /// Writes an object's time, if it is noted; when this returns nobody else is about to.
    pub(crate) fn write_access(&self, object: u64) {
        let mut state = self.accesses.lock();
        while state.writing.contains(&object) {
            state = self.accesses.written.wait(state);
        }
        let Some(at) = state.noted.remove(&object) else { return };
        state.writing.insert(object);
        drop(state);
        let _writing = Writing { accesses: &self.accesses, object };
        let tree = &self.live.tree;
        let now_s = self.env.now_s().cast_signed();
        let touch = || match self.remountable.is_relatime() && !is_atime_due(&tree.stat(object)?, now_s) {
            true => Ok(()),
            false => tree.touch_atime(object, at),
        };
        // that there is no room for a time is no reason to keep a file from being read
        match touch() {
            Err(error) if error.kind() != Kind::NotFound => drop(self.fail("atime", self.live.ino(object), error)),
            _ => {}
        }
    }
}

/// An object's time is being written until this is dropped.
struct Writing<'a> {
    accesses: &'a Accesses,
    object: u64,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.accesses.lock().writing.remove(&self.object);
        self.accesses.written.notify_all();
    }
}

/// The thread: ends when there is nothing to write, or the mount is gone.
fn write_from_time_to_time<S: Source>(session: &Weak<Session<S>>) {
    loop {
        std::thread::sleep(DELAY);
        let Some(session) = session.upgrade() else { return };
        session.write_accesses();
        let mut state = session.accesses.lock();
        if state.noted.is_empty() {
            state.has_thread = false;
            return;
        }
    }
}
