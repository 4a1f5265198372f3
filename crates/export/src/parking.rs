//! Requests that wait for a suspended pool.
//!
//! They wait outside of the threads that take requests, of which there are few: requests that only read are answered
//! meanwhile.
//!
//! ```text
//!   request ──▶ work ──▶ Suspended ──▶ parked ── one thread: wait, work, answer, the next
//!                 └────▶ answer                                    └─ suspended again: wait
//! ```
//!
//! Work that failed so has changed nothing, or what it does again when it is done anew.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use base::{Env, Kind, Mutex, Result};

use crate::gate::Gate;

/// Waits until the pool can be changed. Errors: `Suspended` if requests are not to wait.
type WaitResumed = dyn Fn() -> Result<()> + Send + Sync;

/// A request with its answer. `true`: it is done within the passage of another one.
type ParkedRequest = Box<dyn FnOnce(bool) + Send>;

/// The requests of an export that wait, in the order in which they came.
pub struct Parking {
    env: Env,
    gate: Arc<Gate>,
    wait_resumed: Box<WaitResumed>,
    requests: Mutex<ParkedRequests>,
    /// Itself, for its thread.
    this: Weak<Parking>,
}

#[derive(Default)]
struct ParkedRequests {
    waiting: VecDeque<ParkedRequest>,
    has_thread: bool,
}

impl Parking {
    /// No request waits yet. `wait_resumed` returns when the pool can be changed again; it fails if requests are not to
    /// wait, and they are answered with its error. A request that has waited passes `gate`.
    pub fn new(
        env: Env,
        gate: Arc<Gate>,
        wait_resumed: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Arc<Parking> {
        Arc::new_cyclic(|this| Parking {
            env,
            gate,
            wait_resumed: Box::new(wait_resumed),
            requests: Mutex::default(),
            this: this.clone(),
        })
    }

    /// Does what a request asks of `part` and answers it, as soon as the pool can be changed.
    pub fn change<P: Send + Sync + 'static, T: 'static>(
        &self,
        part: &Arc<P>,
        work: impl Fn(&P) -> Result<T> + Send + 'static,
        answer: impl FnOnce(&P, Result<T>) + Send + 'static,
    ) {
        match work(part) {
            Err(error) if error.kind() == Kind::Suspended => self.park(part, work, answer),
            done => answer(part, done),
        }
    }

    /// The same when it is known that the pool is suspended.
    pub fn park<P: Send + Sync + 'static, T: 'static>(
        &self,
        part: &Arc<P>,
        work: impl Fn(&P) -> Result<T> + Send + 'static,
        answer: impl FnOnce(&P, Result<T>) + Send + 'static,
    ) {
        let (part, parking) = (part.clone(), self.this.clone());
        let request = move |is_inside: bool| {
            // the export ends, and with it the wait
            let Some(parking) = parking.upgrade() else { return };
            loop {
                let resumed = (parking.wait_resumed)();
                let _passage = (!is_inside).then(|| parking.gate.pass());
                match resumed.map(|()| work(&part)) {
                    Err(error) => return answer(&part, Err(error)),
                    Ok(Err(error)) if error.kind() == Kind::Suspended => {}
                    Ok(done) => return answer(&part, done),
                }
            }
        };
        let mut requests = self.requests.lock();
        requests.waiting.push_back(Box::new(request));
        if requests.has_thread {
            return;
        }
        let this = self.this.clone();
        // held while the thread starts, so that no second one does
        requests.has_thread = self.env.spawn("parked", move || {
            if let Some(parking) = this.upgrade() {
                parking.serve(false);
            }
        });
        let has_thread = requests.has_thread;
        drop(requests);
        if !has_thread {
            self.serve(true);
        }
    }

    fn serve(&self, is_inside: bool) {
        loop {
            let request = {
                let mut requests = self.requests.lock();
                let request = requests.waiting.pop_front();
                requests.has_thread &= request.is_some();
                request
            };
            match request {
                Some(request) => request(is_inside),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use base::{Condvar, Error};

    use super::*;

    /// A pool that can be suspended.
    #[derive(Default)]
    struct Pool {
        is_suspended: Mutex<bool>,
        changed: Condvar,
    }

    impl Pool {
        fn change(&self) -> Result<u32> {
            match *self.is_suspended.lock() {
                true => Err(Error::new(Kind::Suspended, "suspended")),
                false => Ok(7),
            }
        }

        fn set(&self, is_suspended: bool) {
            *self.is_suspended.lock() = is_suspended;
            self.changed.notify_all();
        }
    }

    fn parking(pool: &Arc<Pool>) -> Arc<Parking> {
        let pool = pool.clone();
        Parking::new(Env::real(), Arc::default(), move || {
            drop(pool.changed.wait_while(pool.is_suspended.lock(), |is_suspended| *is_suspended));
            Ok(())
        })
    }

    #[test]
    fn requests_wait_in_their_order_and_keep_no_thread() {
        let pool = Arc::new(Pool::default());
        let parking = parking(&pool);
        let (answers, answered) = mpsc::channel();
        let ask = |number: u32| {
            let answers = answers.clone();
            parking.change(&pool, Pool::change, move |_, done| answers.send((number, done.unwrap())).unwrap());
        };
        ask(0);
        assert_eq!(answered.try_recv(), Ok((0, 7)));
        pool.set(true);
        (1..4).for_each(ask);
        assert!(answered.try_recv().is_err());
        pool.set(false);
        assert_eq!((1..4).map(|_| answered.recv().unwrap().0).collect::<Vec<_>>(), [1, 2, 3]);
        // its thread has ended: another one is started
        pool.set(true);
        ask(4);
        pool.set(false);
        assert_eq!(answered.recv(), Ok((4, 7)));
    }

    #[test]
    fn requests_that_are_not_to_wait_fail() {
        let pool = Arc::new(Pool::default());
        pool.set(true);
        let parking = Parking::new(Env::real(), Arc::default(), || Err(Error::new(Kind::Suspended, "not to wait")));
        let (answers, answered) = mpsc::channel();
        parking.change(&pool, Pool::change, move |_, done| answers.send(done.unwrap_err().to_string()).unwrap());
        assert!(answered.recv().unwrap().contains("not to wait"));
    }
}
