//! Large files without a name are freed in the background, as `z_unlinked_drain` does it in OpenZFS: their
//! removal does not wait for so many groups.
//!
//! They stay in the queue on disk meanwhile. So nothing is lost if the file system is closed before they are gone: it
//! goes on when it is opened again.

use std::collections::VecDeque;

use base::Mutex;
use format::ids::ObjectId;

/// The files of one file system that wait for that.
#[derive(Default)]
pub(crate) struct Drain(Mutex<DrainQueue>);

#[derive(Default)]
struct DrainQueue {
    inos: VecDeque<ObjectId>,
    has_thread: bool,
}

impl Drain {
    /// Takes a file; `start` starts the thread if there is none. False if it cannot: then the file is the caller's.
    pub(crate) fn take(&self, ino: ObjectId, start: impl FnOnce() -> bool) -> bool {
        let mut waiting = self.0.lock();
        // held while the thread starts, so that no second one does
        waiting.has_thread = waiting.has_thread || start();
        if waiting.has_thread {
            waiting.inos.push_back(ino);
        }
        waiting.has_thread
    }

    /// The next file; without one the thread ends.
    pub(crate) fn next(&self) -> Option<ObjectId> {
        let mut waiting = self.0.lock();
        let next = waiting.inos.pop_front();
        waiting.has_thread = next.is_some();
        next
    }
}
