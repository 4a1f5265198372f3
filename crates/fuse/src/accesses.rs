//! Times of last accesses, on their way to the tree.
//!
//! ```text
//!   read, readdir, readlink ──▶ noted ── a second later, each object once ──▶ tree
//!                                 └──── getattr, setattr, the end: at once ────▶
//! ```
//!
//! To change a time is a transaction, and that waits if more is written than the devices take. A read does not wait
//! for it. Nobody sees an earlier time: an object's time is written before its attributes are told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Condvar, Env, Kind, Mutex};
use export::Gate;
use zpl::{ObjectId, is_atime_due};

use crate::faults::FaultLog;
use crate::node::OpenTree;
use crate::tree::{FileTree, Source};
use crate::trees::Trees;

/// Until a time is written.
const DELAY: Duration = Duration::from_secs(1);

/// The times of one mount.
pub(crate) struct Accesses<S: Source> {
    trees: Arc<Trees<S>>,
    faults: Arc<FaultLog<S>>,
    env: Env,
    gate: Arc<Gate>,
    times: Mutex<AccessTimes>,
    written: Condvar,
    /// Itself, for its thread.
    this: Weak<Accesses<S>>,
}

#[derive(Default)]
struct AccessTimes {
    /// Objects, and when they were used: seconds since 1970, and nanoseconds.
    noted: BTreeMap<ObjectId, (i64, u32)>,
    /// Objects whose times are being written.
    writing: BTreeSet<ObjectId>,
    has_thread: bool,
}

impl<S: Source> Accesses<S> {
    pub(crate) fn new(trees: Arc<Trees<S>>, faults: Arc<FaultLog<S>>, gate: Arc<Gate>, env: Env) -> Arc<Accesses<S>> {
        Arc::new_cyclic(|this| Accesses {
            trees,
            faults,
            env,
            gate,
            times: Mutex::default(),
            written: Condvar::new(),
            this: this.clone(),
        })
    }

    /// A program used what an object holds: its time of the last access moves, if it shall move.
    pub(crate) fn note(&self, branch: &OpenTree<S::Tree>, object: ObjectId, is_directory: bool) {
        if !self.trees.is_writable() || !self.trees.remountable().moves_atime(is_directory) || !branch.is_live() {
            return;
        }
        let (now_s, now_ns) = self.env.now();
        let mut times = self.times.lock();
        times.noted.insert(object, (now_s.cast_signed(), now_ns));
        if times.has_thread {
            return;
        }
        let this = self.this.clone();
        // held while the thread starts, so that no second one does
        times.has_thread = self.env.spawn("atime", move || write_from_time_to_time(&this));
        let has_thread = times.has_thread;
        drop(times);
        if !has_thread {
            self.write_all();
        }
    }

    /// Writes all times that are noted; when this returns nobody is at it.
    pub(crate) fn write_all(&self) {
        loop {
            let next = {
                let times = self.times.lock();
                times.noted.keys().chain(&times.writing).next().copied()
            };
            match next {
                Some(object) => self.write_one(object),
                None => return,
            }
        }
    }

    /// Writes an object's time, if it is noted; when this returns nobody else is about to.
    pub(crate) fn write_one(&self, object: ObjectId) {
        let mut times = self.times.lock();
        while times.writing.contains(&object) {
            times = self.written.wait(times);
        }
        let Some(at) = times.noted.remove(&object) else { return };
        times.writing.insert(object);
        drop(times);
        let _writing = AccessWrite { accesses: self, object };
        let live = self.trees.live();
        let now_s = self.env.now_s().cast_signed();
        let is_relatime = self.trees.remountable().is_relatime();
        let touch = || match is_relatime && !is_atime_due(&live.tree.stat(object)?, now_s) {
            true => Ok(()),
            false => live.tree.touch_atime(object, at),
        };
        // that there is no room for a time is no reason to keep a file from being read
        match touch() {
            Err(error) if error.kind() != Kind::NotFound => {
                self.faults.fail("atime", live.ino(object), error);
            }
            _ => {}
        }
    }

    /// Drops what is noted: it is of a root that was replaced.
    pub(crate) fn clear(&self) {
        self.times.lock().noted.clear();
    }

    /// Is there nothing more to be written? Its thread ends then.
    fn ends(&self) -> bool {
        let mut times = self.times.lock();
        times.has_thread = !times.noted.is_empty();
        !times.has_thread
    }
}

/// An object's time is being written until this is dropped.
struct AccessWrite<'a, S: Source> {
    accesses: &'a Accesses<S>,
    object: ObjectId,
}

impl<S: Source> Drop for AccessWrite<'_, S> {
    fn drop(&mut self) {
        self.accesses.times.lock().writing.remove(&self.object);
        self.accesses.written.notify_all();
    }
}

/// The thread: ends when there is nothing to write, or the mount is gone.
fn write_from_time_to_time<S: Source>(accesses: &Weak<Accesses<S>>) {
    loop {
        std::thread::sleep(DELAY);
        let Some(accesses) = accesses.upgrade() else { return };
        let _passage = accesses.gate.pass();
        accesses.write_all();
        if accesses.ends() {
            return;
        }
    }
}
