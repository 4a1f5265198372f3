//! A cache device as a ring: where is written next, and what is lost by that. Pure.
//!
//! ```text
//!   start                 hand        evict                              end
//!     |==== this sweep ====|  nothing  |======== the sweep before ========|
//!                          └─ is written next
//! ```
//!
//! Room is made before it is written to, so that at no time the device has something else than what is thought to
//! be there. When the room at the end is too small the hand goes back to the start, and a new sweep begins.
//!
//! Invariant: `start <= hand <= end`, and once room was made, unless it is the first sweep, `hand <= evict <= end`.
//! Before that the evict hand may already be in the next sweep, where a header has left it.

use std::collections::VecDeque;

use format::l2arc::{DeviceHeader, LOG_BYTES, LogPtr};

/// What is in a part of the ring, and is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingSums {
    /// Blocks.
    pub(crate) count: u64,
    /// Bytes of their contents.
    pub(crate) lsize: u64,
    /// Bytes that they take here ...
    pub(crate) asize: u64,
    /// ... those that came from the frequent list, that were prefetched, that are metadata.
    pub(crate) frequent_asize: u64,
    pub(crate) prefetched_asize: u64,
    pub(crate) metadata_asize: u64,
}

impl RingSums {
    pub(crate) fn add(&mut self, other: &RingSums) {
        self.each(other, |a, b| a + b);
    }

    fn subtract(&mut self, other: &RingSums) {
        self.each(other, u64::saturating_sub);
    }

    fn each(&mut self, other: &RingSums, f: impl Fn(u64, u64) -> u64) {
        self.count = f(self.count, other.count);
        self.lsize = f(self.lsize, other.lsize);
        self.asize = f(self.asize, other.asize);
        self.frequent_asize = f(self.frequent_asize, other.frequent_asize);
        self.prefetched_asize = f(self.prefetched_asize, other.prefetched_asize);
        self.metadata_asize = f(self.metadata_asize, other.metadata_asize);
    }
}

/// Blocks that were written together.
#[derive(Debug)]
struct WrittenRun {
    start: u64,
    sweep: u8,
    sums: RingSums,
}

/// The ring of a device.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) hand: u64,
    pub(crate) evict: u64,
    pub(crate) sweep: u8,
    pub(crate) is_first: bool,
    /// Oldest first: by sweep, then by start.
    runs: VecDeque<WrittenRun>,
    /// Logs, oldest first.
    logs: VecDeque<LogPtr>,
    /// Of all runs.
    pub(crate) sums: RingSums,
}

impl Ring {
    /// An empty one.
    pub(crate) fn new(start: u64, end: u64) -> Ring {
        let (runs, logs, sums) = Default::default();
        Ring { start, end, hand: start, evict: start, sweep: 0, is_first: true, runs, logs, sums }
    }

    /// One as a header left it; nothing is known of what is in it.
    pub(crate) fn of_header(start: u64, end: u64, header: &DeviceHeader) -> Ring {
        let newest = header.newest[0];
        let hand = newest.at.saturating_add(newest.asize).clamp(start, end);
        let (evict, is_first) = (header.evict.clamp(start, end), header.is_first_sweep);
        Ring { hand, evict, sweep: 1, is_first, ..Ring::new(start, end) }
    }

    /// Bytes for blocks and logs.
    pub(crate) fn capacity(&self) -> u64 {
        self.end - self.start
    }

    /// Makes room for so many bytes, which are at most a quarter of the ring.
    pub(crate) fn make_room(&mut self, bytes: u64) {
        if self.hand + bytes > self.end {
            self.evict = self.end;
            self.forget_evicted();
            (self.hand, self.evict, self.is_first) = (self.start, self.start, false);
            self.sweep = self.sweep.wrapping_add(1);
        }
        if !self.is_first {
            self.evict = self.evict.max(self.hand + bytes);
        }
        self.forget_evicted();
    }

    /// Takes so many bytes of the room that was made; where they are.
    pub(crate) fn take(&mut self, bytes: u64) -> u64 {
        let at = self.hand;
        self.hand += bytes;
        at
    }

    /// Notes what was written from `start` on, in this sweep.
    pub(crate) fn wrote(&mut self, start: u64, sums: RingSums) {
        self.sums.add(&sums);
        self.runs.push_back(WrittenRun { start, sweep: self.sweep, sums });
    }

    /// Notes that a block is not looked for any more that was written at an offset, in that sweep.
    pub(crate) fn lost(&mut self, sweep: u8, offset: u64, sums: &RingSums) {
        let age = |run: &WrittenRun| run.sweep.wrapping_sub(sweep) as i8;
        let after = self.runs.partition_point(|run| (age(run), run.start) <= (0, offset));
        if let Some(run) = after.checked_sub(1).and_then(|at| self.runs.get_mut(at)).filter(|run| run.sweep == sweep) {
            run.sums.subtract(sums);
            self.sums.subtract(sums);
        }
    }

    /// Notes a log that was written.
    pub(crate) fn wrote_log(&mut self, log: LogPtr) {
        self.logs.push_back(log);
    }

    /// Notes what was found: a log older than all that are known, and the blocks that it tells of.
    pub(crate) fn found_log(&mut self, log: LogPtr, sums: RingSums) {
        self.sums.add(&sums);
        self.runs.push_front(WrittenRun { start: log.payload_start, sweep: self.sweep_at(log.payload_start), sums });
        self.logs.push_front(log);
    }

    /// The sweep in which was written what is at an offset now.
    pub(crate) fn sweep_at(&self, offset: u64) -> u8 {
        if offset < self.hand { self.sweep } else { self.sweep.wrapping_sub(1) }
    }

    /// How many logs there are, and their bytes.
    pub(crate) fn logs(&self) -> [u64; 2] {
        [self.logs.len() as u64, self.logs.iter().map(|log| log.asize).sum()]
    }

    fn forget_evicted(&mut self) {
        let is_over = |ring: &Ring, run: &WrittenRun| {
            let is_older = run.sweep != ring.sweep;
            is_older && run.start < ring.evict && !ring.is_first
        };
        while let Some(run) = self.runs.front().filter(|run| is_over(self, run)) {
            let sums = run.sums;
            self.sums.subtract(&sums);
            self.runs.pop_front();
        }
        while self.logs.front().is_some_and(|log| !self.holds(log)) {
            self.logs.pop_front();
        }
    }

    /// Whether a log and the blocks that it tells of can still be there: they are within the device, and nothing of
    /// them is where the hands are, or between them.
    pub(crate) fn holds(&self, log: &LogPtr) -> bool {
        let Some(last) = log.at.checked_add(log.asize).and_then(|end| end.checked_sub(1)) else { return false };
        let first = log.payload_start;
        let is_sound = log.asize > 0 && log.asize <= LOG_BYTES as u64 && first >= self.start && last < self.end;
        let touches = is_between(first, last, self.hand)
            || is_between(first, last, self.evict)
            || is_between(self.hand, self.evict, first)
            || is_between(self.hand, self.evict, last);
        is_sound && if self.is_first { last < self.hand && first <= last } else { !touches }
    }

    /// Whether a walk from newer logs to older ones goes beyond the oldest when it comes from `log` to `older`: the
    /// evict hand is between them.
    pub(crate) fn is_beyond(&self, log: &LogPtr, older: &LogPtr) -> bool {
        !self.is_first && is_between(older.payload_start, log.payload_start, self.evict)
    }
}

/// Whether `at` lies on the way from `from` to `to`, which may lead past the end.
fn is_between(from: u64, to: u64, at: u64) -> bool {
    match from <= to {
        true => from <= at && at <= to,
        false => at <= to || from <= at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(bytes: u64) -> RingSums {
        RingSums { count: 1, lsize: bytes, asize: bytes, ..RingSums::default() }
    }

    fn write(ring: &mut Ring, bytes: u64) -> u64 {
        ring.make_room(bytes);
        let at = ring.take(bytes);
        ring.wrote(at, sums(bytes));
        at
    }

    #[test]
    fn goes_round() {
        let mut ring = Ring::new(1000, 2000);
        let places: Vec<u64> = (0..6).map(|_| write(&mut ring, 200)).collect();
        assert_eq!(places, [1000, 1200, 1400, 1600, 1800, 1000]);
        assert_eq!((ring.sums.count, ring.is_first, ring.sweep, ring.hand, ring.evict), (5, false, 1, 1200, 1200));
        assert_eq!(write(&mut ring, 150), 1200);
        assert_eq!((ring.sums, ring.evict), (RingSums { count: 5, ..sums(950) }, 1350));
        assert_eq!([1000, 1350, 1999].map(|at| ring.sweep_at(at)), [1, 0, 0]);
        // what is left at the end is too small
        let places: Vec<u64> = (0..4).map(|_| write(&mut ring, 220)).collect();
        assert_eq!(places, [1350, 1570, 1000, 1220]);
        assert_eq!((ring.sums.count, ring.sums.asize, ring.sweep), (3, 660, 2));
    }

    #[test]
    fn logs_are_held_until_the_hands_come() {
        let mut ring = Ring::new(10_000, 20_000);
        for _ in 0..30 {
            ring.make_room(1000);
            let start = ring.take(900);
            ring.wrote(start, sums(900));
            let log = LogPtr { at: ring.take(100), asize: 100, payload_start: start, ..LogPtr::default() };
            ring.wrote_log(log);
            assert!(ring.logs.iter().all(|log| ring.holds(log)));
        }
        assert_eq!(ring.logs(), [10, 1000]);
        for bad in [
            LogPtr::default(),
            LogPtr { at: u64::MAX, asize: 512, payload_start: 10_000, ..LogPtr::default() },
            LogPtr { at: 19_950, asize: 100, payload_start: 12_000, ..LogPtr::default() },
            LogPtr { at: 11_000, asize: 100, payload_start: 9_000, ..LogPtr::default() },
        ] {
            assert!(!ring.holds(&bad), "{bad:?}");
        }
    }

    #[test]
    fn a_header_with_nonsense_is_harmless() {
        for (evict, at) in [(0, 0), (u64::MAX, u64::MAX), (1500, 1600), (5000, 0)] {
            for is_first_sweep in [false, true] {
                let newest = [LogPtr { at, asize: 512, ..LogPtr::default() }; 2];
                let header = DeviceHeader { evict, is_first_sweep, newest, ..DeviceHeader::default() };
                let mut ring = Ring::of_header(1000, 2000, &header);
                for _ in 0..20 {
                    let at = write(&mut ring, 200);
                    assert!((1000..=1800).contains(&at));
                }
            }
        }
    }
}
