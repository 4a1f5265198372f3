//! Commits without a log: the turns that threads take, as a log's, over any device, to foretell what it would do.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Env, Result};
use dmu::{Throttle, Txgs};
use format::ids::{ObjectId, Txg, VdevNumber};

use crate::turns::{Call, CommitTurns, Sent};

/// What takes the log blocks.
pub trait RehearsedDevice {
    /// Writes a block of so many commits. Errors: of the device.
    fn write(&self, commits: usize) -> Result<()>;

    /// Makes all blocks that were written last. Errors: of the device.
    fn flush(&self) -> Result<()>;
}

/// The turns of commits of any number of threads, which gather, write and flush as those of a log do.
pub struct CommitRehearsal<D> {
    turns: CommitTurns,
    device: D,
}

impl<D: RehearsedDevice> CommitRehearsal<D> {
    /// Of a log that nobody has used.
    pub fn new(env: Env, throttle: Throttle, device: D) -> CommitRehearsal<D> {
        CommitRehearsal { turns: CommitTurns::new(env, Arc::new(Txgs::new(Txg::INITIAL, throttle))), device }
    }

    /// Commits one record, with those of others that come at about the same time. Errors: of the device, of this block or
    /// another.
    pub fn commit(&self) -> Result<()> {
        let Some(seat) = self.turns.ask(ObjectId::NONE, || true) else { return Ok(()) };
        loop {
            match seat.wait() {
                Call::Write => {
                    let turn = self.turns.write();
                    match self.device.write(turn.objects.len()) {
                        Ok(()) => turn.sent(Sent { tops: BTreeSet::from([VdevNumber::new(0)]), blocks: Vec::new() }),
                        failed => turn.done(failed),
                    }
                }
                Call::Flush => {
                    let turn = self.turns.flush();
                    let flushed = self.device.flush();
                    turn.done(flushed);
                }
                Call::Done(outcome) => return outcome,
            }
        }
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use base::{Error, Kind};

    use super::*;

    #[derive(Default)]
    struct CountedDevice {
        commits: AtomicUsize,
        blocks: AtomicUsize,
        flushes: AtomicUsize,
        fails_from: Option<usize>,
    }

    impl RehearsedDevice for CountedDevice {
        fn write(&self, commits: usize) -> Result<()> {
            self.commits.fetch_add(commits, Ordering::SeqCst);
            match self.fails_from.is_some_and(|from| self.blocks.fetch_add(1, Ordering::SeqCst) >= from) {
                true => Err(Error::new(Kind::Io, "gone")),
                false => Ok(()),
            }
        }

        fn flush(&self) -> Result<()> {
            self.flushes.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    fn rehearsal(device: CountedDevice) -> CommitRehearsal<CountedDevice> {
        let env = Env::real();
        let throttle = Throttle::of(&env, 1 << 30);
        CommitRehearsal::new(env, throttle, device)
    }

    #[test]
    fn each_commit_is_written_and_flushed() {
        let rehearsal = rehearsal(CountedDevice::default());
        std::thread::scope(|scope| {
            (0..8).for_each(|_| _ = scope.spawn(|| (0..50).for_each(|_| rehearsal.commit().unwrap())));
        });
        let device = rehearsal.device();
        assert_eq!(device.commits.load(Ordering::SeqCst), 400);
        assert!((50..=400).contains(&device.flushes.load(Ordering::SeqCst)));
    }

    #[test]
    fn a_device_that_fails_is_an_error() {
        let rehearsal = rehearsal(CountedDevice { fails_from: Some(2), ..CountedDevice::default() });
        let outcomes: Vec<bool> = (0..4).map(|_| rehearsal.commit().is_ok()).collect();
        assert_eq!(outcomes, [true, true, false, false]);
    }
}
