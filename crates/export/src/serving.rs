//! The threads that serve one connection.
//!
//! ```text
//!   one request at a time   thread 1   takes one ─▶ does it ─▶ answers ─▶ looks for the next for a moment ─▶ ...
//!                           thread 2   stands by, for when one takes long
//!   several                 thread 1   takes one ─▶ does it ─▶ answers
//!                           thread 2                takes the next ─▶ does it ─▶ ...
//! ```
//!
//! There is one more when all are at work. Which of them takes the next one: [`Turns`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use base::{Env, Mutex};

use crate::looks::Looks;
use crate::turns::Turns;

/// Threads of one connection.
const THREADS_MAX: usize = 16;

/// A connection whose requests several threads take and do.
pub trait ServedConnection: Send + Sync + 'static {
    /// What is taken.
    type Request;

    /// Waits for the next request, one thread after the other; none when the client has left, or was cut off.
    fn take(&self) -> Option<Self::Request>;

    /// Whether something has come that is not taken yet, as far as that can be told without waiting.
    fn has_more(&self) -> bool;

    /// Does a request. Whether the connection goes on.
    fn act(self: &Arc<Self>, request: Self::Request) -> bool;
}

/// Threads of a connection, and those of them that wait for a request, or for their turn to.
struct ServingThreads {
    env: Env,
    name: &'static str,
    turns: Turns,
    all: AtomicUsize,
    idle: AtomicUsize,
}

/// Serves a connection on this thread, and on more of that name, until the client leaves and all that it asked for is
/// done.
pub fn serve<C: ServedConnection>(env: &Env, name: &'static str, connection: &Arc<C>) {
    let (all, idle) = (AtomicUsize::new(1), AtomicUsize::new(0));
    let threads = Arc::new(ServingThreads { env: env.clone(), name, turns: Turns::default(), all, idle });
    let (working, ended) = mpsc::channel::<()>();
    threads.work(connection, &working);
    drop(working);
    // nobody sends anything: it ends when the last thread has
    let _ = ended.recv();
}

impl ServingThreads {
    fn work<C: ServedConnection>(self: &Arc<Self>, connection: &Arc<C>, working: &mpsc::Sender<()>) {
        let mut looks = Looks::default();
        self.idle.fetch_add(1, Ordering::SeqCst);
        loop {
            let seat = self.turns.enter();
            while seat.stays() {
                // it is taken then, or waited for
                looks.find(&self.env, &seat, true, || connection.has_more().then_some(()));
                let taken = connection.take();
                let others = self.idle.fetch_sub(1, Ordering::SeqCst) - 1;
                let Some(request) = taken else { return self.turns.end() };
                // one thread at least stands by
                if others == 0 {
                    self.add(connection, working);
                }
                self.turns.taken(0, true, seat.is_alone() && connection.has_more());
                let goes_on = connection.act(request);
                self.turns.done();
                if !goes_on {
                    return self.turns.end();
                }
                self.idle.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    fn add<C: ServedConnection>(self: &Arc<Self>, connection: &Arc<C>, working: &mpsc::Sender<()>) {
        let (threads, connection, working) = (self.clone(), connection.clone(), working.clone());
        let is_one_more = self.all.fetch_add(1, Ordering::SeqCst) < THREADS_MAX
            && self.env.spawn(self.name, move || threads.work(&connection, &working));
        if !is_one_more {
            self.all.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Answers that are sent by a thread of their own: what has done the requests is not to wait for the client.
pub struct LateAnswers<T>(Mutex<WaitingAnswers<T>>);

struct WaitingAnswers<T> {
    waiting: VecDeque<T>,
    has_thread: bool,
}

impl<T> Default for LateAnswers<T> {
    fn default() -> LateAnswers<T> {
        LateAnswers(Mutex::new(WaitingAnswers { waiting: VecDeque::new(), has_thread: false }))
    }
}

impl<T> LateAnswers<T> {
    /// One more, behind all others. `send`, which takes answers from [`LateAnswers::next`] until there is none, runs on a
    /// thread of that name if none is at it. False, and no answer is left, if the system gives no more threads.
    #[must_use]
    pub fn push(&self, env: &Env, name: &'static str, answer: T, send: impl FnOnce() + Send + 'static) -> bool {
        let mut late = self.0.lock();
        late.waiting.push_back(answer);
        // held while the thread starts, so that no second one does
        late.has_thread = late.has_thread || env.spawn(name, send);
        if !late.has_thread {
            late.waiting.clear();
        }
        late.has_thread
    }

    /// The next to be sent; after the last one, the thread ends.
    pub fn next(&self) -> Option<T> {
        let mut late = self.0.lock();
        let next = late.waiting.pop_front();
        late.has_thread &= next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that asks for so many numbers; all threads are at work at once before the first is done.
    struct Counted {
        left: Mutex<u32>,
        at_work: Arc<std::sync::Barrier>,
        done: Mutex<Vec<u32>>,
        late: LateAnswers<u32>,
    }

    impl ServedConnection for Counted {
        type Request = u32;

        fn take(&self) -> Option<u32> {
            let mut left = self.left.lock();
            *left = left.checked_sub(1)?;
            Some(*left)
        }

        fn has_more(&self) -> bool {
            *self.left.lock() > 0
        }

        fn act(self: &Arc<Self>, request: u32) -> bool {
            self.at_work.wait();
            let this = self.clone();
            self.late.push(&Env::real(), "late", request, move || {
                while let Some(answer) = this.late.next() {
                    this.done.lock().push(answer);
                }
            })
        }
    }

    #[test]
    fn threads_work_side_by_side_and_all_is_answered() {
        let left = 3 * THREADS_MAX as u32;
        let at_work = Arc::new(std::sync::Barrier::new(THREADS_MAX));
        let client =
            Arc::new(Counted { left: Mutex::new(left), at_work, done: Mutex::default(), late: LateAnswers::default() });
        serve(&Env::real(), "serve", &client);
        while client.done.lock().len() < left as usize {
            std::thread::yield_now();
        }
        let mut done = client.done.lock().clone();
        done.sort_unstable();
        assert_eq!(done, (0..left).collect::<Vec<_>>());
    }
}
