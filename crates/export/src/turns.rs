//! Whose turn it is to take the next request.
//!
//! ```text
//!   one task asks      one thread takes its requests; the others wait at the gate
//!   several ask        the gate is open: all threads take requests
//!   one takes long     a thread stands by at the gate, sees it after a tick or two, and opens it
//! ```
//!
//! A program that waits for each answer before it asks again is the usual case, and what it waits for is mostly
//! threads being woken. If all threads slept in read(2), the kernel would wake another one for each request, on
//! another core. So only one is awake then.
//!
//! Invariant: a request that comes while all threads past the gate are at work
//! waits for two ticks at most.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::{Condvar, Mutex, MutexGuard};

/// How often the thread that stands by looks whether a request takes long.
const TICK: Duration = Duration::from_millis(2);
/// Ticks without a request after which it sleeps, too.
const TICKS_MAX: u32 = 10;
/// Requests without a sign of others after which the gate is closed.
const CALM: u32 = 128;

/// The gate of one export.
#[derive(Default)]
pub struct Turns {
    gate: Mutex<Seating>,
    /// Those at the gate shall look again.
    moved: Condvar,
    /// The thread that stands by shall look again.
    called: Condvar,
    is_open: AtomicBool,
    /// Set for good at the end.
    is_over: AtomicBool,
    /// Requests that are being done.
    at_work: AtomicUsize,
    /// Counts up when a request is taken and when it is done.
    serial: AtomicU64,
    calm: AtomicU32,
    last_pid: AtomicU32,
    /// The thread that stands by sleeps until it is called.
    sleeps: AtomicBool,
}

#[derive(Default)]
struct Seating {
    /// Threads past it.
    seated: usize,
    has_standby: bool,
}

/// A thread past the gate. If it ends, by a panic even, another may pass.
pub struct Seat<'a>(&'a Turns);

impl Turns {
    /// Waits until this thread may take requests.
    pub fn enter(&self) -> Seat<'_> {
        loop {
            if let Some(seat) = self.enter_while_busy(Duration::MAX) {
                return seat;
            }
        }
    }

    /// The same, but `None` if no request was taken or done for so long: this thread is not needed.
    pub fn enter_while_busy(&self, patience: Duration) -> Option<Seat<'_>> {
        let mut gate = self.lock();
        while !self.may_pass(&gate) {
            let (serial, began) = (self.serial.load(Ordering::SeqCst), Instant::now());
            if gate.has_standby {
                gate = self.moved.wait_timeout(gate, patience);
            } else {
                gate.has_standby = true;
                gate = self.stand_by(gate, patience);
                gate.has_standby = false;
                // for the next one to stand by
                self.moved.notify_one();
            }
            let is_idle = began.elapsed() >= patience && self.serial.load(Ordering::SeqCst) == serial;
            if is_idle && !self.may_pass(&gate) {
                return None;
            }
        }
        gate.seated += 1;
        Some(Seat(self))
    }

    /// Whether a request is being done.
    pub fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::SeqCst) > 0
    }

    fn may_pass(&self, gate: &Seating) -> bool {
        gate.seated == 0 || self.is_open.load(Ordering::SeqCst) || self.is_over.load(Ordering::SeqCst)
    }

    /// Waits to pass, and opens the gate when a request takes long. Not longer than so long after the last one.
    fn stand_by<'a>(&'a self, mut gate: MutexGuard<'a, Seating>, patience: Duration) -> MutexGuard<'a, Seating> {
        let (mut serial, mut ticks) = (self.serial.load(Ordering::SeqCst), 0);
        let mut since = Instant::now();
        while !self.may_pass(&gate) {
            if ticks < TICKS_MAX {
                gate = self.called.wait_timeout(gate, TICK);
            } else {
                self.sleeps.store(true, Ordering::SeqCst);
                // a thread that took one meanwhile may not have seen that
                if self.serial.load(Ordering::SeqCst) == serial {
                    gate = self.called.wait_timeout(gate, patience);
                }
                self.sleeps.store(false, Ordering::SeqCst);
                ticks = 0;
            }
            let now = self.serial.load(Ordering::SeqCst);
            if now != serial {
                (serial, ticks, since) = (now, 0, Instant::now());
            } else if self.at_work.load(Ordering::SeqCst) > 0 {
                self.calm.store(0, Ordering::Relaxed);
                self.is_open.store(true, Ordering::SeqCst);
                self.moved.notify_all();
            } else if since.elapsed() >= patience {
                break;
            } else {
                ticks += 1;
            }
        }
        gate
    }

    /// The connection is closed: nobody waits here any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// A request was taken: of a task, which is 0 where none waits for it, and whether it was there at once when
    /// it was looked for.
    pub fn taken(&self, pid: u32, is_read: bool, at_once: bool) {
        let others = self.at_work.fetch_add(1, Ordering::SeqCst);
        self.serial.fetch_add(1, Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) {
            // with the lock: it does not go to sleep just now
            let _gate = self.lock();
            self.called.notify_all();
        }
        let is_another = pid != 0 && self.last_pid.swap(pid, Ordering::Relaxed) != pid;
        let is_open = self.is_open.load(Ordering::Relaxed);
        // where all take requests, nobody sees one wait; and a task may have several reads ahead under way
        if others > 0 || is_another && (at_once || is_open) || is_read && at_once {
            self.open();
        } else if is_open && self.calm.fetch_add(1, Ordering::Relaxed) >= CALM {
            self.is_open.store(false, Ordering::SeqCst);
        }
    }

    /// The request was answered.
    pub fn done(&self) {
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        self.serial.fetch_add(1, Ordering::SeqCst);
    }

    fn open(&self) {
        self.calm.store(0, Ordering::Relaxed);
        if !self.is_open.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Has those at the gate look again.
    fn wake(&self) {
        let _gate = self.lock();
        self.moved.notify_all();
        self.called.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Seating> {
        self.gate.lock()
    }
}

impl Seat<'_> {
    /// Is this the only thread that takes requests?
    pub fn is_alone(&self) -> bool {
        !self.0.is_open.load(Ordering::Relaxed)
    }

    /// Shall it go on taking requests? Not if the gate is closed, and another thread does; at the end, it shall see it.
    pub fn stays(&self) -> bool {
        !self.is_alone() || self.0.is_over.load(Ordering::SeqCst) || self.0.lock().seated == 1
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.lock().seated -= 1;
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_opens_for_several_tasks_and_closes_again() {
        let turns = Turns::default();
        let seat = turns.enter();
        let one = |pid, at_once| {
            turns.taken(pid, false, at_once);
            turns.done();
            seat.is_alone()
        };
        assert!(one(1, false) && one(1, true) && one(2, false), "one after the other");
        assert!(one(0, true) && one(2, true), "what the kernel forgets is no task");
        assert!(!one(3, true), "two wait");
        assert!((0..2 * CALM).all(|n| !one(1 + n % 2, false)), "by turns");
        assert!((0..CALM).all(|_| !one(2, true)));
        assert!(one(2, true));
        turns.taken(3, false, false);
        turns.taken(3, false, false);
        assert!(!seat.is_alone(), "two at a time");
    }

    #[test]
    fn a_thread_that_stands_by_takes_over_from_one_that_takes_long() {
        let turns = Turns::default();
        let seat = turns.enter();
        turns.taken(1, false, false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| turns.enter().stays());
            assert!(other.join().unwrap());
        });
        turns.done();
        assert!(!seat.is_alone());
    }

    #[test]
    fn threads_leave_that_are_not_needed() {
        let turns = Turns::default();
        let patience = TICK * (TICKS_MAX + 20);
        let seat = turns.enter();
        let leave = || turns.enter_while_busy(patience).is_none();
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(leave)).collect();
            assert!(waiting.into_iter().all(|thread| thread.join().unwrap()));
        });
        // a request that takes long is one to stay for
        turns.taken(1, false, false);
        assert!(turns.is_at_work());
        std::thread::scope(|scope| assert!(!scope.spawn(leave).join().unwrap()));
        turns.done();
        assert!(!turns.is_at_work());
        drop(seat);
        assert!(turns.enter_while_busy(Duration::ZERO).is_some(), "nobody else is there");
    }

    #[test]
    fn nobody_waits_after_the_end() {
        let turns = Turns::default();
        let seat = turns.enter();
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| drop(turns.enter()))).collect();
            // long enough that some of them sleep
            std::thread::sleep(TICK * (TICKS_MAX + 5));
            turns.end();
            waiting.into_iter().for_each(|thread| thread.join().unwrap());
        });
        // while one is still at work, the others do not come back again and again
        assert!(turns.enter().stays() && seat.stays());
    }
}
