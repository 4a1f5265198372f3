//! Requests that wait for a suspended pool.
//!
//! They wait outside of the request threads, of which there are few: whoever only reads is served meanwhile.
//!
//! ```text
//!   request ──▶ work ──▶ Suspended ──▶ parked ── one thread: wait, work, answer, the next
//!                 └────▶ answer                                    └─ suspended again: wait
//! ```
//!
//! Work that failed so has changed nothing, or what it does again when it is done anew.

use std::collections::VecDeque;

use base::{Kind, Mutex, MutexGuard, Result};

use crate::session::Session;
use crate::tree::Source;

/// A request with its answer.
type Job<S> = Box<dyn FnOnce(&Session<S>) + Send>;

/// The requests of a mount that wait, in the order in which they came.
pub(crate) struct Parked<S: Source>(Mutex<State<S>>);

struct State<S: Source> {
    jobs: VecDeque<Job<S>>,
    has_thread: bool,
}

impl<S: Source> Default for Parked<S> {
    fn default() -> Parked<S> {
        Parked(Mutex::new(State { jobs: VecDeque::new(), has_thread: false }))
    }
}

impl<S: Source> Parked<S> {
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.0.lock()
    }
}

impl<S: Source> Session<S> {
    /// Does what a request asks for and answers it, as soon as the pool can be changed.
    pub(crate) fn change<T: 'static>(
        &self,
        work: impl Fn(&Session<S>) -> Result<T> + Send + 'static,
        answer: impl FnOnce(&Session<S>, Result<T>) + Send + 'static,
    ) {
        match work(self) {
            Err(error) if error.kind() == Kind::Suspended => self.park(work, answer),
            done => answer(self, done),
        }
    }

    /// The same when it is known that the pool is suspended.
    pub(crate) fn park<T: 'static>(
        &self,
        work: impl Fn(&Session<S>) -> Result<T> + Send + 'static,
        answer: impl FnOnce(&Session<S>, Result<T>) + Send + 'static,
    ) {
        let job = move |session: &Session<S>| {
            let done = loop {
                if let Err(error) = session.source.wait_resumed() {
                    break Err(error);
                }
                match work(session) {
                    Err(error) if error.kind() == Kind::Suspended => {}
                    done => break done,
                }
            };
            answer(session, done);
        };
        let mut parked = self.parked.lock();
        parked.jobs.push_back(Box::new(job));
        if parked.has_thread {
            return;
        }
        let me = self.me.clone();
        // held while the thread starts, so that no second one does
        parked.has_thread = self.env.spawn("parked", move || {
            if let Some(session) = me.upgrade() {
                session.serve_parked();
            }
        });
        let alone = !parked.has_thread;
        drop(parked);
        if alone {
            self.serve_parked();
        }
    }

    fn serve_parked(&self) {
        loop {
            let job = {
                let mut parked = self.parked.lock();
                let job = parked.jobs.pop_front();
                parked.has_thread &= job.is_some();
                job
            };
            match job {
                Some(job) => job(self),
                None => return,
            }
        }
    }
}
