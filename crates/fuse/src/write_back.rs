//! Files that are open for writing, and having the kernel send what programs wrote and stored in them.
//!
//! A store into a mapping is not told: the page is dirty in the kernel, and the tree does not know of it. The kernel sends
//! such pages when it likes to, when a program asks it to, and at the last when the mapping ends. A mapping keeps its file
//! open, and a page on its way to the tree does so, too: after RELEASE of the last file that is open for writing, the tree
//! has all. Until then, an answer that depends on contents, and a change that such a page would undo, come after the pages.
//! With the kernel's write-back cache any file that is open for writing has such pages. Without, only mappings make pages dirty,
//! and only a file that is open for both reading and writing has mappings to store into:
//!
//! ```text
//!   request ──▶ open to be stored into? ── no ────────────────────────────────▶ answer
//!                   └── yes ──▶ one thread: the kernel sends and drops its pages ──▶ answer
//!                                               └──▶ WRITE ──▶ threads of the mount
//! ```
//!
//! The thread is inside of no request while it waits, so a mount that is being frozen does not wait for it. It waits for
//! no lock of an inode either: a program that seeks to the end of a file holds that while it waits for an answer. A helper
//! that goes to files ([`visit`](crate::visit)) wants such locks, and so is waited for by a thread of its own.
//!
//! **While room is scarce**, a program that writes by way of the write-back cache would hear only at fsync(2) or close(2)
//! that there was none. Before each write(2) the kernel looks at the mode of the file: it is given attributes that hold for no
//! time, so it asks, and before the answer it has to send what it keeps of the file. If that failed, so does the write(2).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use base::{Env, Kind, Mutex};
use export::Gate;

use crate::legacy::{Legacy, NotedFact, STORED};
use crate::negotiated::Negotiated;
use crate::notifier::Notifier;
use crate::room::RoomWatch;
use crate::visits::Visits;
use crate::wire::opens_for_writing;

/// What comes after the pages of a node, from a byte on.
struct AfterPages {
    node: u64,
    from: u64,
    work: Box<dyn FnOnce() + Send>,
}

/// The files of one mount that programs may store into, and what waits for their pages.
pub(crate) struct WriteBack {
    env: Env,
    gate: Arc<Gate>,
    notifier: Arc<Notifier>,
    negotiated: Arc<Negotiated>,
    legacy: Legacy,
    visits: Visits,
    room: Arc<RoomWatch>,
    /// Nodes of which pages could not be written, and why: the next write(2) of each fails so.
    failed: Mutex<HashMap<u64, FailedPages>>,
    /// Nodes, and how often each is open to be stored into.
    writers: Mutex<HashMap<u64, StoredFile>>,
    /// Nodes that were so in the process before, nobody knows how often.
    inherited: HashSet<u64>,
    queue: Mutex<WriteBackQueue>,
    /// Writes that wait while there is calm.
    calmed: Mutex<Vec<CalmedWrite>>,
    /// Itself, for its thread.
    this: Weak<WriteBack>,
}

/// Pages of a file that could not be written.
struct FailedPages {
    why: Kind,
    /// A write(2) has failed for that.
    is_told: bool,
    /// The kernel is dropping them.
    is_dropping: bool,
    /// And others have failed meanwhile.
    fails_again: bool,
}

/// A file that is open to be stored into.
struct StoredFile {
    count: u64,
    /// That it is, for the process after this one.
    _noted: Option<NotedFact>,
}

/// A write to a node that the kernel asks about first, and what answers it.
struct CalmedWrite {
    node: u64,
    work: Box<dyn FnOnce(Option<Kind>) + Send>,
}

#[derive(Default)]
struct WriteBackQueue {
    waiting: VecDeque<AfterPages>,
    has_thread: bool,
}

impl WriteBack {
    pub(crate) fn new(
        env: Env,
        gate: Arc<Gate>,
        notifier: Arc<Notifier>,
        negotiated: Arc<Negotiated>,
        legacy: Legacy,
        (visits, room): (Visits, Arc<RoomWatch>),
    ) -> Arc<WriteBack> {
        let inherited: HashSet<u64> = legacy.inherited(STORED).map(|[node, _]| node).collect();
        // the kernel may have pages of them for as long as the mount is there
        inherited.iter().filter_map(|node| legacy.note(STORED, [*node, 0])).for_each(NotedFact::stays);
        Arc::new_cyclic(|this| WriteBack {
            env,
            gate,
            notifier,
            negotiated,
            legacy,
            visits,
            room,
            failed: Mutex::default(),
            writers: Mutex::default(),
            inherited,
            queue: Mutex::default(),
            calmed: Mutex::default(),
            this: this.clone(),
        })
    }

    /// Whether another process may go on with the mount when this one dies.
    pub(crate) fn outlives_process(&self) -> bool {
        self.legacy.file().is_some()
    }

    /// The visits to files of the mount.
    pub(crate) fn visits(&self) -> &Visits {
        &self.visits
    }

    /// The kernel is about to be told that a file is open with these flags.
    pub(crate) fn opened(&self, node: u64, flags: i32) {
        if self.makes_dirty(flags) {
            self.writes(0);
            let note = || StoredFile { count: 0, _noted: self.legacy.note(STORED, [node, 0]) };
            self.writers.lock().entry(node).or_insert_with(note).count += 1;
            if self.room.is_calm() {
                self.notifier.forget_attributes(node);
            }
        }
    }

    /// RELEASE of a file that was opened with these flags.
    pub(crate) fn closed(&self, node: u64, flags: i32) {
        if !self.makes_dirty(flags) {
            return;
        }
        let mut writers = self.writers.lock();
        if let Some(file) = writers.get_mut(&node) {
            file.count = file.count.saturating_sub(1);
            if file.count == 0 {
                writers.remove(&node);
                let mut failed = self.failed.lock();
                if failed.get(&node).is_some_and(|pages| !pages.is_dropping) {
                    failed.remove(&node);
                }
            }
        }
    }

    /// Can a file that was opened with these flags have pages in the kernel that the tree does not know of?
    fn makes_dirty(&self, flags: i32) -> bool {
        match self.negotiated.keeps_written() {
            true => opens_for_writing(flags),
            false => flags & libc::O_ACCMODE == libc::O_RDWR,
        }
    }

    /// Does `work`, which sets the time of a node's last modification, so that this time stays: the request of a page that
    /// was stored into before would change it. With its write-back cache the kernel takes care of that itself.
    pub(crate) fn before_times(&self, node: u64, work: impl FnOnce() + Send + 'static) {
        match self.negotiated.keeps_written() {
            true => work(),
            false => self.before(node, 0, work),
        }
    }

    /// Does `work` when the kernel has sent what programs stored in a node from byte `from` on: at once if no program can
    /// have done so. The caller is within a passage of the gate, and so is `work`.
    pub(crate) fn before(&self, node: u64, from: u64, work: impl FnOnce() + Send + 'static) {
        match self.writers.lock().contains_key(&node) || self.inherited.contains(&node) {
            true => self.enqueue(AfterPages { node, from, work: Box::new(work) }),
            false => work(),
        }
    }

    /// The kernel has sent pages of its write-back cache, or is about to have some.
    pub(crate) fn writes(&self, bytes: u64) {
        if self.negotiated.keeps_written() && self.room.writes(bytes) {
            // it asks before the next write(2) of each
            self.stored().into_iter().for_each(|node| self.notifier.forget_attributes(node));
        }
    }

    /// Does `work` before a program writes to a node that it has open for writing: while room is scarce, when the kernel has
    /// sent what it keeps of it. `work` is told why pages of it could not be written, once. The caller is within a passage of the
    /// gate, and so is `work`.
    pub(crate) fn before_write(&self, node: u64, work: impl FnOnce(Option<Kind>) + Send + 'static) {
        if self.room.is_calm() {
            let mut calmed = self.calmed.lock();
            // the thread that ends the calm looks afterwards what waits
            if self.room.is_calm() {
                calmed.push(CalmedWrite { node, work: Box::new(work) });
                return;
            }
        }
        let must_wait = || self.room.is_scarce() || self.failed.lock().get(&node).is_some_and(|pages| !pages.is_told);
        if !self.negotiated.keeps_written() || !must_wait() {
            return work(None);
        }
        let this = self.this.clone();
        self.before(node, 0, move || work(this.upgrade().and_then(|this| this.tell_failure(node))));
    }

    /// With its write-back cache, writes wait from now on that programs begin.
    pub(crate) fn calm(&self) {
        if !self.negotiated.keeps_written() {
            return;
        }
        self.room.set_calm(true);
        // when it was closed once, all answers have been given that let the kernel keep attributes
        self.gate.close();
        self.gate.open();
        self.stored().into_iter().for_each(|node| self.notifier.forget_attributes(node));
    }

    /// Has the kernel send what it keeps, while writes wait. Not from within a request.
    pub(crate) fn flush(&self) {
        let flushes = self.negotiated.keeps_written().then(|| self.visits.flush(&self.stored()));
        if !matches!(flushes, Some(Ok(()))) {
            self.send();
        }
    }

    /// Writes wait no more. Not from within a request, and while the gate is open.
    pub(crate) fn go_on(&self) {
        self.room.set_calm(false);
        let calmed = std::mem::take(&mut *self.calmed.lock());
        for CalmedWrite { node, work } in calmed {
            let _passage = self.gate.pass();
            self.before_write(node, work);
        }
    }

    /// Has the kernel send all that programs wrote and stored until now, and returns when the tree has it. Not from within a
    /// request.
    pub(crate) fn send(&self) {
        let mut stored = self.stored();
        stored.retain(|node| !self.inherited.contains(node) || self.notifier.knows(*node));
        if stored.is_empty() {
            return;
        }
        if self.negotiated.keeps_written() {
            match self.visits.send(&stored) {
                Ok(()) => return,
                Err(error) => tracing::warn!("the kernel may keep times of files that are being written: {error}"),
            }
        }
        for node in stored {
            self.invalidate(node, 0);
        }
    }

    /// Does `work` when the kernel has sent all that programs wrote and stored until now. The caller is within a passage of
    /// the gate, and so is `work`.
    pub(crate) fn after_all(&self, work: impl FnOnce() + Send + 'static) {
        if self.stored().is_empty() {
            return work();
        }
        let this = self.this.clone();
        // without a thread nothing can be waited for: an error is answered
        self.env.spawn("write-back", move || {
            let Some(this) = this.upgrade() else { return };
            this.send();
            let _passage = this.gate.pass();
            work();
        });
    }

    /// The nodes of which the kernel may have pages that the tree does not know of.
    pub(crate) fn stored(&self) -> Vec<u64> {
        self.writers.lock().keys().chain(&self.inherited).copied().collect()
    }

    /// The kernel's pages of a node could not be written, for this reason: it drops them, and asks for what is there. With its
    /// write-back cache it takes over how long the file is, and the next write(2) fails.
    pub(crate) fn drop_pages(&self, node: u64, why: Kind) {
        if !self.negotiated.keeps_written() {
            return self.enqueue(AfterPages { node, from: 0, work: Box::new(|| {}) });
        }
        {
            let mut failed = self.failed.lock();
            if let Some(pages) = failed.get_mut(&node).filter(|pages| pages.is_dropping) {
                pages.fails_again = true;
                return;
            }
            failed.insert(node, FailedPages { why, is_told: false, is_dropping: true, fails_again: false });
        }
        let this = self.this.clone();
        let drops = self.env.spawn("write-back", move || {
            let Some(this) = this.upgrade() else { return };
            loop {
                this.invalidate(node, 0);
                if let Err(error) = this.visits.correct(&[node]) {
                    tracing::warn!(node, "the kernel may take a file for longer than it is: {error}");
                }
                if !this.fails_again(node) {
                    return;
                }
            }
        });
        if !drops {
            self.fails_again(node);
        }
    }

    /// The kernel has dropped the pages of a node that could not be written. Have others failed since? If not, there is no more
    /// to be told than was not told yet.
    fn fails_again(&self, node: u64) -> bool {
        let is_open = self.writers.lock().contains_key(&node);
        let mut failed = self.failed.lock();
        let Some(pages) = failed.get_mut(&node) else { return false };
        pages.is_dropping = std::mem::take(&mut pages.fails_again);
        let goes_on = pages.is_dropping;
        if !goes_on && (pages.is_told || !is_open) {
            failed.remove(&node);
        }
        goes_on
    }

    /// Why pages of a node could not be written, once.
    fn tell_failure(&self, node: u64) -> Option<Kind> {
        let mut failed = self.failed.lock();
        let pages = failed.get_mut(&node).filter(|pages| !pages.is_told)?;
        pages.is_told = true;
        let why = pages.why;
        if !pages.is_dropping {
            failed.remove(&node);
        }
        Some(why)
    }

    /// Has the kernel send and drop what it has of a node from a byte on. Not from within a request.
    pub(crate) fn invalidate(&self, node: u64, from: u64) {
        if !self.visits.invalidate(node, from) {
            self.notifier.invalidate_from(node, from);
        }
    }

    fn enqueue(&self, after: AfterPages) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(after);
        if queue.has_thread {
            return;
        }
        let this = self.this.clone();
        // held while the thread starts, so that no second one does
        queue.has_thread = self.env.spawn("write-back", move || {
            if let Some(this) = this.upgrade() {
                this.serve();
            }
        });
        if !queue.has_thread {
            // without a thread nothing can be waited for: what is answered then is an error
            queue.waiting.clear();
        }
    }

    fn serve(&self) {
        loop {
            let after = {
                let mut queue = self.queue.lock();
                let after = queue.waiting.pop_front();
                queue.has_thread &= after.is_some();
                after
            };
            let Some(AfterPages { node, from, work }) = after else { return };
            self.invalidate(node, from);
            let _passage = self.gate.pass();
            work();
        }
    }
}
