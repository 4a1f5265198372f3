//! What is asked of a device, why, and how long it takes.
//!
//! ```text
//!   handed over ─── waits for a place in flight ──▶ issued ─── the device works ──▶ seen to be done
//!       │◀────────────── queue ───────────────────▶│◀──────────────── disk ───────────────▶│
//!       │◀────────────────────────────────────── total ───────────────────────────────────▶│
//! ```
//!
//! The numbers are those of `zpool iostat`, and so are the buckets: the binary logarithm of
//! nanoseconds, and of bytes. Three things to know when reading them:
//!
//! - The end is when the caller's thread sees it. Of a batch it looks whenever half of what is in
//!   flight is done, so a request that was faster than its neighbours seems as slow as the slower
//!   ones of its half.
//! - What goes through the page cache ends when the cache has it, not the disk.
//! - A request that failed counts nowhere but in the gauges.
//!
//! What is in flight is known here, so here it is decided that requests nobody waits for stay back where somebody
//! waits for others: a disk does one after the other, and hardly ever the urgent first.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::Env;

/// Buckets of a histogram of times: up to 2^37 ns, which is 137 s; the last has all above, too.
pub const TIME_BUCKETS: usize = 37;
/// Buckets of a histogram of sizes: up to 16 MiB; the last has all above, too.
pub const SIZE_BUCKETS: usize = 25;

/// Requests in flight that nobody waits for, and their bytes, while somebody waits for others of the device: about what
/// a disk does in the time of a seek or two.
const PATIENT_MAX: u64 = 16;
const PATIENT_BYTES_MAX: u64 = 1 << 20;
/// After a request that somebody waited for there may be another one: for so many times as long as it took, and so
/// long at most.
const HURRY_TIMES: u64 = 10;
const HURRY_NS_MAX: u64 = 100_000_000;

const NS_PER_MS: u64 = 1_000_000;
/// What is slow: zio_slow_io_ms.
pub const SLOW_MS: u64 = 30_000;

/// Why something is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody waits for the bytes.
    SyncRead,
    /// Somebody waits until they are written.
    SyncWrite,
    /// Read ahead.
    AsyncRead,
    /// Written with a transaction group.
    AsyncWrite,
    /// Read by a scrub or a resilver.
    Scrub,
    /// Discarded.
    Trim,
    /// Read by a sequential resilver or an expansion.
    Rebuild,
}

impl Purpose {
    /// All there are, in the order of their numbers.
    pub const ALL: [Purpose; 7] = {
        use Purpose::*;
        [SyncRead, SyncWrite, AsyncRead, AsyncWrite, Scrub, Trim, Rebuild]
    };
    /// Those for which nobody waits, and that a disk does as any other.
    const PATIENT: [Purpose; 4] = [Purpose::AsyncRead, Purpose::AsyncWrite, Purpose::Scrub, Purpose::Rebuild];

    /// Its name, as OpenZFS has it.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::SyncRead => "sync_read",
            Purpose::SyncWrite => "sync_write",
            Purpose::AsyncRead => "async_read",
            Purpose::AsyncWrite => "async_write",
            Purpose::Scrub => "scrub",
            Purpose::Trim => "trim",
            Purpose::Rebuild => "rebuild",
        }
    }

    fn is_write(self) -> bool {
        matches!(self, Purpose::SyncWrite | Purpose::AsyncWrite | Purpose::Trim)
    }

    /// Whether somebody waits for it.
    fn is_urgent(self) -> bool {
        matches!(self, Purpose::SyncRead | Purpose::SyncWrite)
    }

    /// Whether it reads, and nobody waits for it.
    fn is_patient_read(self) -> bool {
        !self.is_urgent() && !self.is_write()
    }
}

/// Counters of one device. Adding to them is cheap, and reading them gives no common instant.
#[derive(Debug, Default)]
pub struct Meter {
    queues: [IoQueue; Purpose::ALL.len()],
    /// Of reads, and of writes.
    total: [Histogram<TIME_BUCKETS>; 2],
    disk: [Histogram<TIME_BUCKETS>; 2],
    /// Bytes of the requests in flight that nobody waits for.
    patient_bytes: AtomicU64,
    /// Until when a reader that waits may come again.
    hurry_until_ns: AtomicU64,
    /// Requests that the device took very long for.
    slow: AtomicU64,
    /// How long that is, in milliseconds, more than the usual; it wraps.
    slow_ms_more: AtomicU64,
    under_way: UnderWay,
}

/// Requests of which it is kept how long they are under way.
const KEPT_MAX: usize = 64;

/// Since when the device has requests, of as many as there are places for.
#[derive(Debug)]
struct UnderWay {
    /// By [`Env::ticks_ns`]; 0: nothing.
    since_ns: [AtomicU64; KEPT_MAX],
    next: AtomicUsize,
}

impl Default for UnderWay {
    fn default() -> Self {
        UnderWay { since_ns: [const { AtomicU64::new(0) }; KEPT_MAX], next: AtomicUsize::new(0) }
    }
}

impl UnderWay {
    /// The place where it is noted, if the next one is free.
    fn begin(&self, now_ns: u64) -> Option<usize> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % KEPT_MAX;
        let noted = self.since_ns[place].compare_exchange(0, now_ns.max(1), Ordering::Relaxed, Ordering::Relaxed);
        noted.ok().map(|_| place)
    }

    fn end(&self, place: usize) {
        self.since_ns[place].store(0, Ordering::Relaxed);
    }
}

/// What of one purpose there is.
#[derive(Debug, Default)]
struct IoQueue {
    pending: AtomicU64,
    active: AtomicU64,
    waits: Histogram<TIME_BUCKETS>,
    sizes: Histogram<SIZE_BUCKETS>,
    /// Of requests that several were put together to.
    joined_sizes: Histogram<SIZE_BUCKETS>,
}

#[derive(Debug)]
struct Histogram<const BUCKETS: usize>([AtomicU64; BUCKETS]);

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Histogram([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    fn add(&self, value: u64) {
        let bucket = value.checked_ilog2().unwrap_or(0) as usize;
        self.0[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.0[bucket].load(Ordering::Relaxed))
    }
}

impl Meter {
    /// A request of `bytes` has been handed over; `env` has the clock.
    pub fn ticket<'a>(&'a self, env: &'a Env, purpose: Purpose, bytes: usize) -> Ticket<'a> {
        let ticket = Ticket {
            meter: self,
            env,
            purpose,
            bytes: bytes as u64,
            begun_ns: env.ticks_ns(),
            issued_ns: None,
            is_joined: false,
            stands_back: false,
            place: None,
        };
        ticket.queue().pending.fetch_add(1, Ordering::Relaxed);
        ticket
    }

    /// Whether somebody waits for the device, or did a moment ago.
    fn is_in_hurry(&self, now_ns: u64) -> bool {
        let waits = |purpose: Purpose| self.in_progress(purpose).iter().sum::<u64>() > 0;
        now_ns < self.hurry_until_ns.load(Ordering::Relaxed) || waits(Purpose::SyncRead) || waits(Purpose::SyncWrite)
    }

    /// How many requests of that purpose wait, and how many are in flight, at this moment.
    pub fn in_progress(&self, purpose: Purpose) -> [u64; 2] {
        let queue = &self.queues[purpose as usize];
        [&queue.pending, &queue.active].map(|gauge| gauge.load(Ordering::Relaxed))
    }

    /// How long requests of that purpose have waited.
    pub fn waits(&self, purpose: Purpose) -> [u64; TIME_BUCKETS] {
        self.queues[purpose as usize].waits.read()
    }

    /// How big they were, those that were made by themselves.
    pub fn sizes(&self, purpose: Purpose) -> [u64; SIZE_BUCKETS] {
        self.queues[purpose as usize].sizes.read()
    }

    /// How big those were that several requests had been put together to.
    pub fn joined_sizes(&self, purpose: Purpose) -> [u64; SIZE_BUCKETS] {
        self.queues[purpose as usize].joined_sizes.read()
    }

    /// How many requests took the device very long since this was last set to 0: 30 seconds, or what was set.
    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    /// From now on requests are slow that take the device so many milliseconds.
    pub fn set_slow_ms(&self, slow_ms: u64) {
        self.slow_ms_more.store(slow_ms.wrapping_sub(SLOW_MS), Ordering::Relaxed);
    }

    fn slow_ns(&self) -> u64 {
        self.slow_ms_more.load(Ordering::Relaxed).wrapping_add(SLOW_MS).saturating_mul(NS_PER_MS)
    }

    /// How long the device has had the oldest request that is under way, in nanoseconds; `None` if there is none.
    pub fn oldest_ns(&self, env: &Env) -> Option<u64> {
        let since_ns = self.under_way.since_ns.iter().map(|since_ns| since_ns.load(Ordering::Relaxed));
        since_ns.filter(|since_ns| *since_ns != 0).min().map(|since_ns| env.ticks_ns().saturating_sub(since_ns))
    }

    /// Sets the count of slow requests to 0.
    pub fn clear_slow(&self) {
        self.slow.store(0, Ordering::Relaxed);
    }

    /// How long reads and writes took in all.
    pub fn totals(&self) -> [[u64; TIME_BUCKETS]; 2] {
        self.total.each_ref().map(Histogram::read)
    }

    /// How long the device took for reads and writes.
    pub fn disks(&self) -> [[u64; TIME_BUCKETS]; 2] {
        self.disk.each_ref().map(Histogram::read)
    }
}

/// A request on its way. Dropped before it is done, it has failed.
#[derive(Debug)]
pub struct Ticket<'a> {
    meter: &'a Meter,
    env: &'a Env,
    purpose: Purpose,
    bytes: u64,
    begun_ns: u64,
    issued_ns: Option<u64>,
    /// Several requests were put together to this one.
    is_joined: bool,
    /// It is a part of another request, and counts nowhere, unless that fails and this is issued after all.
    stands_back: bool,
    /// Where it is noted that the device has it.
    place: Option<usize>,
}

impl<'a> Ticket<'a> {
    pub(crate) fn env(&self) -> &'a Env {
        self.env
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Whether the request can be made together with its neighbours.
    pub(crate) fn may_be_joined(&self) -> bool {
        self.purpose.is_patient_read() && self.issued_ns.is_none()
    }

    /// A ticket for a request of `bytes` that this one and others are put together to.
    pub(crate) fn of_joined(&self, bytes: u64) -> Ticket<'a> {
        self.queue().pending.fetch_add(1, Ordering::Relaxed);
        Ticket { bytes, is_joined: true, ..*self }
    }

    /// Another request is made for this one, too.
    pub(crate) fn stand_back(&mut self) {
        if !std::mem::replace(&mut self.stands_back, true) {
            self.queue().pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn queue(&self) -> &IoQueue {
        &self.meter.queues[self.purpose as usize]
    }

    /// Whether the operating system should have it now, or when others are done. There is always one that should.
    pub(crate) fn should_go(&self) -> bool {
        if self.purpose.is_urgent() || self.issued_ns.is_some() {
            return true;
        }
        let count: u64 = Purpose::PATIENT.map(|of| self.meter.in_progress(of)[1]).iter().sum();
        let bytes = self.meter.patient_bytes.load(Ordering::Relaxed);
        let is_room = count < PATIENT_MAX && bytes + self.bytes <= PATIENT_BYTES_MAX;
        count == 0 || is_room || !self.meter.is_in_hurry(self.env.ticks_ns())
    }

    /// The operating system has it. Only the first call counts.
    pub fn issued(&mut self) {
        if self.issued_ns.is_none() {
            let now_ns = self.env.ticks_ns();
            self.issued_ns = Some(now_ns);
            self.place = self.meter.under_way.begin(now_ns);
            if !self.purpose.is_urgent() {
                self.meter.patient_bytes.fetch_add(self.bytes, Ordering::Relaxed);
            }
            if !std::mem::take(&mut self.stands_back) {
                self.queue().pending.fetch_sub(1, Ordering::Relaxed);
            }
            self.queue().active.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It has succeeded.
    pub fn done(self) {
        let (now_ns, side) = (self.env.ticks_ns(), usize::from(self.purpose.is_write()));
        let issued_ns = self.issued_ns.unwrap_or(now_ns);
        if self.purpose.is_urgent() {
            let hurry_ns = now_ns.saturating_sub(self.begun_ns).saturating_mul(HURRY_TIMES).min(HURRY_NS_MAX);
            self.meter.hurry_until_ns.store(now_ns.saturating_add(hurry_ns), Ordering::Relaxed);
        }
        let sizes = if self.is_joined { &self.queue().joined_sizes } else { &self.queue().sizes };
        sizes.add(self.bytes);
        self.queue().waits.add(issued_ns.saturating_sub(self.begun_ns));
        let disk_ns = now_ns.saturating_sub(issued_ns);
        if disk_ns >= self.meter.slow_ns() {
            self.meter.slow.fetch_add(1, Ordering::Relaxed);
        }
        self.meter.disk[side].add(disk_ns);
        self.meter.total[side].add(now_ns.saturating_sub(self.begun_ns));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.stands_back {
            return;
        }
        self.place.into_iter().for_each(|place| self.meter.under_way.end(place));
        let gauge = if self.issued_ns.is_some() { &self.queue().active } else { &self.queue().pending };
        gauge.fetch_sub(1, Ordering::Relaxed);
        if self.issued_ns.is_some() && !self.purpose.is_urgent() {
            self.meter.patient_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{FaultyDevice, MemDevice, Read, Write, read_batch, write_batch};

    fn sum(histogram: &[u64]) -> u64 {
        histogram.iter().sum()
    }

    #[test]
    fn buckets() {
        let histogram = Histogram::<SIZE_BUCKETS>::default();
        for value in [0, 1, 2, 3, 512, 1023, 16 << 20, u64::MAX] {
            histogram.add(value);
        }
        let counts = histogram.read();
        assert_eq!((counts[0], counts[1], counts[9], counts[24], sum(&counts)), (2, 2, 2, 2, 8));
    }

    #[test]
    fn tickets() {
        let (meter, env) = (Meter::default(), Env::fixed(0));
        let mut first = meter.ticket(&env, Purpose::AsyncWrite, 4096);
        let second = meter.ticket(&env, Purpose::AsyncWrite, 512);
        assert_eq!(meter.in_progress(Purpose::AsyncWrite), [2, 0]);
        first.issued();
        first.issued();
        assert_eq!(meter.in_progress(Purpose::AsyncWrite), [1, 1]);
        first.done();
        drop(second);
        assert!(Purpose::ALL.iter().all(|&purpose| meter.in_progress(purpose) == [0, 0]));
        let sizes = meter.sizes(Purpose::AsyncWrite);
        assert_eq!((sizes[12], sum(&sizes), sum(&meter.sizes(Purpose::SyncWrite))), (1, 1, 0));
        assert_eq!((sum(&meter.totals()[0]), sum(&meter.totals()[1]), sum(&meter.disks()[1])), (0, 1, 1));
    }

    #[test]
    fn slow_requests_are_counted() {
        let (meter, now_ns) = (Meter::default(), Arc::new(AtomicU64::new(0)));
        let env = {
            let now_ns = now_ns.clone();
            Env::fixed(0).with_ticks(move || now_ns.load(Ordering::Relaxed))
        };
        for (time_ms, slow) in [(29_999, 0), (30_000, 1), (90_000, 2)] {
            let mut ticket = meter.ticket(&env, Purpose::SyncRead, 512);
            ticket.issued();
            now_ns.fetch_add(time_ms * NS_PER_MS, Ordering::Relaxed);
            ticket.done();
            assert_eq!(meter.slow(), slow);
        }
        meter.clear_slow();
        meter.set_slow_ms(5);
        let mut ticket = meter.ticket(&env, Purpose::SyncRead, 512);
        ticket.issued();
        now_ns.fetch_add(5 * NS_PER_MS, Ordering::Relaxed);
        ticket.done();
        assert_eq!(meter.slow(), 1);
    }

    #[test]
    fn who_is_waited_for_goes_first() {
        let (meter, now_ns) = (Meter::default(), Arc::new(AtomicU64::new(0)));
        let env = {
            let now_ns = now_ns.clone();
            Env::fixed(0).with_ticks(move || now_ns.load(Ordering::Relaxed))
        };
        let issued = |purpose, bytes| {
            let mut ticket = meter.ticket(&env, purpose, bytes);
            ticket.issued();
            ticket
        };
        let patient = |bytes| meter.ticket(&env, Purpose::AsyncWrite, bytes);
        // nobody waits
        let large = [0; 20].map(|_| issued(Purpose::AsyncRead, 1 << 20));
        assert!(patient(4096).should_go());
        let urgent = issued(Purpose::SyncRead, 4096);
        assert!(!patient(4096).should_go() && large[0].should_go() && urgent.should_go());
        assert!(meter.ticket(&env, Purpose::SyncWrite, 4096).should_go());
        drop(large);
        assert!(patient(4 << 20).should_go(), "one always goes");
        let first = issued(Purpose::AsyncWrite, 512 << 10);
        assert!(patient(512 << 10).should_go() && !patient(513 << 10).should_go());
        let small = [0; 15].map(|_| issued(Purpose::AsyncWrite, 512));
        assert!(!patient(512).should_go());
        drop((first, small));
        // and for a moment after that
        let _first = issued(Purpose::AsyncWrite, 1 << 20);
        let later = |ns| now_ns.fetch_add(ns, Ordering::Relaxed);
        later(1000);
        urgent.done();
        later(9_999);
        assert!(!patient(512).should_go());
        later(1);
        assert!(patient(512).should_go());
        // that is never long
        let slow = issued(Purpose::SyncRead, 4096);
        later(HURRY_NS_MAX);
        slow.done();
        later(HURRY_NS_MAX);
        assert!(patient(512).should_go());
    }

    /// Batches tell the meter of each request, whichever way it goes, and of no request that failed.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no rings")]
    fn batches() {
        let path = std::env::temp_dir().join(format!("cenote-meter-{}", std::process::id()));
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = crate::FileDevice::open(path.to_str().unwrap(), crate::OpenMode::ReadWrite).unwrap();
        std::fs::remove_file(&path).unwrap();
        let memory = MemDevice::new("memory", vec![0; 1 << 20]);
        let faulty = FaultyDevice::new(Arc::new(MemDevice::new("faulty", vec![0; 1 << 20])), 0);
        faulty.vanish(true);
        let env = Env::real();
        let meters: [Meter; 3] = Default::default();
        for count in [1, 300] {
            let mut bufs = vec![[0; 1024]; 3 * count];
            let reads = bufs.iter_mut().enumerate().map(|(i, buf)| {
                let device: &dyn crate::Device = [&file as &dyn crate::Device, &memory, &faulty][i % 3];
                let ticket = meters[i % 3].ticket(&env, Purpose::SyncRead, buf.len());
                Read::new(device, i as u64 * 1024, buf).metered(Some(ticket))
            });
            let mut reads: Vec<Read<'_>> = reads.collect();
            read_batch(&mut reads);
            assert!(reads.iter().enumerate().all(|(i, read)| read.result.is_ok() == (i % 3 < 2)));
        }
        let buf = [0; 8192];
        let ticket = meters[0].ticket(&env, Purpose::AsyncWrite, buf.len());
        write_batch(&mut [Write::new(&file, 0, &buf).metered(Some(ticket))]);
        // more than should be in flight, just after somebody has waited
        let ticket = || meters[0].ticket(&env, Purpose::AsyncWrite, buf.len());
        let mut writes: Vec<Write<'_>> =
            (0..100).map(|i| Write::new(&file, i * 8192, &buf).metered(Some(ticket()))).collect();
        write_batch(&mut writes);
        assert!(writes.iter().all(|write| write.result.is_ok()));
        for (meter, reads, writes) in [(&meters[0], 301, 101), (&meters[1], 301, 0), (&meters[2], 0, 0)] {
            assert!(Purpose::ALL.iter().all(|&purpose| meter.in_progress(purpose) == [0, 0]));
            assert_eq!(meter.sizes(Purpose::SyncRead)[10], reads);
            assert_eq!(meter.sizes(Purpose::AsyncWrite)[13], writes);
            assert_eq!(meter.totals().map(|times| sum(&times)), [reads, writes]);
            assert_eq!(sum(&meter.waits(Purpose::SyncRead)), reads);
        }
        // a system call takes more than a few nanoseconds
        assert_eq!(sum(&meters[0].disks()[0][..4]), 0);
    }
}
