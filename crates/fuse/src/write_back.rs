//! Files that are open for writing, and having the kernel send what programs stored in them.
//!
//! A store into a mapping is not told: the page is dirty in the kernel, and the tree does not know of it. The kernel sends
//! such pages when it likes to, when a program asks it to, and at the last when the mapping ends. A mapping keeps its file
//! open, and a page on its way to the tree does so, too: after RELEASE of the last file that is open for writing, the tree
//! has all. Until then, an answer that depends on contents, and a change that such a page would undo, come after the pages.
//! Without the kernel's write-back cache only mappings make pages dirty, and only a file that is open for both reading and
//! writing has mappings to store into:
//!
//! ```text
//!   request ──▶ open to be stored into? ── no ────────────────────────────────▶ answer
//!                   └── yes ──▶ one thread: the kernel sends and drops its pages ──▶ answer
//!                                               └──▶ WRITE ──▶ threads of the mount
//! ```
//!
//! The thread is inside of no request while it waits, so a mount that is being frozen does not wait for it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use base::{Env, Mutex};
use export::Gate;

use crate::legacy::{Legacy, NotedFact, STORED};
use crate::negotiated::Negotiated;
use crate::notifier::Notifier;
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
    /// Nodes, and how often each is open to be stored into.
    writers: Mutex<HashMap<u64, StoredFile>>,
    /// Nodes that were so in the process before, nobody knows how often.
    inherited: HashSet<u64>,
    queue: Mutex<WriteBackQueue>,
    /// Itself, for its thread.
    this: Weak<WriteBack>,
}

/// A file that is open to be stored into.
struct StoredFile {
    count: u64,
    /// That it is, for the process after this one.
    _noted: Option<NotedFact>,
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
            writers: Mutex::default(),
            inherited,
            queue: Mutex::default(),
            this: this.clone(),
        })
    }

    /// Whether another process may go on with the mount when this one dies.
    pub(crate) fn outlives_process(&self) -> bool {
        self.legacy.file().is_some()
    }

    /// The kernel is about to be told that a file is open with these flags.
    pub(crate) fn opened(&self, node: u64, flags: i32) {
        if self.makes_dirty(flags) {
            let note = || StoredFile { count: 0, _noted: self.legacy.note(STORED, [node, 0]) };
            self.writers.lock().entry(node).or_insert_with(note).count += 1;
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

    /// Has the kernel send all that programs stored until now, and returns when the tree has it. Not from within a request.
    pub(crate) fn send(&self) {
        for node in self.stored() {
            self.notifier.invalidate(node);
        }
    }

    /// Does `work` when the kernel has sent all that programs stored until now. The caller is within a passage of the gate,
    /// and so is `work`.
    pub(crate) fn after_all(&self, work: impl FnOnce() + Send + 'static) {
        let stored = self.stored();
        let Some((last, others)) = stored.split_last() else { return work() };
        for node in others {
            self.drop_pages(*node);
        }
        self.enqueue(AfterPages { node: *last, from: 0, work: Box::new(work) });
    }

    /// The nodes of which the kernel may have pages that the tree does not know of.
    fn stored(&self) -> Vec<u64> {
        self.writers.lock().keys().chain(&self.inherited).copied().collect()
    }

    /// The kernel's pages of a node could not be written: it drops them, and asks for what is there.
    pub(crate) fn drop_pages(&self, node: u64) {
        self.enqueue(AfterPages { node, from: 0, work: Box::new(|| {}) });
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
            self.notifier.invalidate_from(node, from);
            let _passage = self.gate.pass();
            work();
        }
    }
}
