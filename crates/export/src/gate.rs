//! The gate that all requests of an export pass, so that it can be frozen.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Condvar, Mutex};

/// The bit of [`Gate::inside`] that says that it is closed.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Lets requests pass, or none while the export is frozen.
#[derive(Default)]
pub struct Gate {
    /// Requests that are being done, and [`CLOSED`].
    inside: AtomicUsize,
    /// Held while it is opened, and by what waits for a change of `inside`.
    turning: Mutex<()>,
    changed: Condvar,
}

/// A request that is being done: until this is dropped.
pub struct Passage<'a>(&'a Gate);

impl Gate {
    /// Passes, as soon as it is open. Not from within another passage.
    pub fn pass(&self) -> Passage<'_> {
        while self.inside.fetch_add(1, Ordering::SeqCst) & CLOSED != 0 {
            self.leave();
            let turning = self.turning.lock();
            drop(self.changed.wait_while(turning, |()| self.inside.load(Ordering::SeqCst) & CLOSED != 0));
        }
        Passage(self)
    }

    /// Lets nothing pass any more, and returns when all requests that have passed are done, or when another thread has
    /// opened it meanwhile.
    pub fn close(&self) {
        self.inside.fetch_or(CLOSED, Ordering::SeqCst);
        let turning = self.turning.lock();
        let waits = |inside: usize| inside & CLOSED != 0 && inside != CLOSED;
        drop(self.changed.wait_while(turning, |()| waits(self.inside.load(Ordering::SeqCst))));
    }

    /// Lets requests pass again.
    pub fn open(&self) {
        let _turning = self.turning.lock();
        self.inside.fetch_and(!CLOSED, Ordering::SeqCst);
        self.changed.notify_all();
    }

    fn leave(&self) {
        if self.inside.fetch_sub(1, Ordering::SeqCst) & CLOSED != 0 {
            // with the lock: what closes it has not looked yet, or waits already
            let _turning = self.turning.lock();
            self.changed.notify_all();
        }
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn nothing_is_inside_while_it_is_closed() {
        let (gate, ends, inside) = (Gate::default(), AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !ends.load(Ordering::SeqCst) {
                        let _passage = gate.pass();
                        inside.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..200 {
                gate.close();
                assert_eq!(inside.load(Ordering::SeqCst), 0);
                std::thread::yield_now();
                assert_eq!(inside.load(Ordering::SeqCst), 0);
                gate.open();
            }
            ends.store(true, Ordering::SeqCst);
        });
    }

    #[test]
    fn closing_ends_when_it_is_opened() {
        let gate = Gate::default();
        let passage = gate.pass();
        std::thread::scope(|scope| {
            scope.spawn(|| gate.close());
            while gate.inside.load(Ordering::SeqCst) & CLOSED == 0 {
                std::thread::yield_now();
            }
            gate.open();
        });
        drop((gate.pass(), passage));
    }

    #[test]
    fn closing_waits_for_what_has_passed() {
        let (gate, is_closed) = (Gate::default(), AtomicBool::new(false));
        let passage = gate.pass();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.close();
                is_closed.store(true, Ordering::SeqCst);
                gate.open();
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!is_closed.load(Ordering::SeqCst));
            drop(passage);
        });
        assert!(is_closed.load(Ordering::SeqCst));
        drop(gate.pass());
    }
}
