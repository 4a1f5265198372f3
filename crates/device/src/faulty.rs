//! The device that lies, fails and vanishes: what tests put between a pool and its bytes.
//!
//! Every fault is a function of the seed, the byte's offset and the number of the read, write or
//! flush, so a test that fails once fails always.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Condvar, Error, Kind, Mutex, Result};

use crate::Device;

/// Wraps a device; faults are switched on while others read and write.
#[derive(Debug)]
pub struct FaultyDevice {
    inner: Arc<dyn Device>,
    seed: u64,
    faults: Mutex<Faults>,
    vanished: AtomicBool,
    stalled: Mutex<bool>,
    goes_on: Condvar,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
}

#[derive(Debug, Default)]
struct Faults {
    noise: Vec<Range<u64>>,
    zero: Vec<Range<u64>>,
    broken: Vec<Range<u64>>,
    failing_reads: Vec<u64>,
    unwritable: Vec<Range<u64>>,
    lost: Vec<Range<u64>>,
    failing_writes: Vec<u64>,
    failing_from: Option<u64>,
    failing_flushes: Vec<u64>,
}

impl FaultyDevice {
    /// A wrapper without any fault yet.
    pub fn new(inner: Arc<dyn Device>, seed: u64) -> FaultyDevice {
        let (faults, vanished, stalled, goes_on, reads, writes, flushes) = Default::default();
        FaultyDevice { inner, seed, faults, vanished, stalled, goes_on, reads, writes, flushes }
    }

    /// Bytes of `range` (offsets on the device) read as noise, none of them as what they are.
    pub fn noise(&self, range: Range<u64>) {
        self.faults(|f| f.noise.push(range));
    }

    /// Bytes of `range` read as zeros.
    pub fn zero(&self, range: Range<u64>) {
        self.faults(|f| f.zero.push(range));
    }

    /// A read that touches `range` is an I/O error.
    pub fn broken(&self, range: Range<u64>) {
        self.faults(|f| f.broken.push(range));
    }

    /// The read with number `n`, counted from 0 since the device was made, is an I/O error.
    pub fn fail_read(&self, n: u64) {
        self.faults(|f| f.failing_reads.push(n));
    }

    /// A write that touches `range` is an I/O error, and changes nothing.
    pub fn unwritable(&self, range: Range<u64>) {
        self.faults(|f| f.unwritable.push(range));
    }

    /// What is written to `range` is lost silently: its bytes stay as they are.
    pub fn lose_writes(&self, range: Range<u64>) {
        self.faults(|f| f.lost.push(range));
    }

    /// The write with number `n`, counted from 0 since the device was made, is an I/O error.
    pub fn fail_write(&self, n: u64) {
        self.faults(|f| f.failing_writes.push(n));
    }

    /// All writes from the one with number `n` on, likewise, are I/O errors.
    pub fn fail_writes_from(&self, n: u64) {
        self.faults(|f| f.failing_from = Some(n));
    }

    /// The flush with number `n`, counted from 0 since the device was made, is an I/O error.
    pub fn fail_flush(&self, n: u64) {
        self.faults(|f| f.failing_flushes.push(n));
    }

    /// From now on the device is gone, or is there again.
    pub fn vanish(&self, gone: bool) {
        self.vanished.store(gone, Ordering::Relaxed);
    }

    /// From now on nothing is answered, neither well nor with an error, until it goes on again.
    pub fn stall(&self, stalls: bool) {
        *self.stalled.lock() = stalls;
        self.goes_on.notify_all();
    }

    /// Takes away every fault.
    pub fn heal(&self) {
        self.vanish(false);
        self.stall(false);
        self.faults(|f| *f = Faults::default());
    }

    /// Reads so far, those that failed among them.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Writes so far, those that failed among them.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Flushes so far, those that failed among them.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Counts one more in `counter`, and fails if the device has gone.
    fn begin(&self, counter: &AtomicU64, offset: u64) -> Result<u64> {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        let stalled = self.stalled.lock();
        drop(self.goes_on.wait_while(stalled, |stalled| *stalled));
        if self.vanished.load(Ordering::Relaxed) {
            return Err(self.error(Kind::Missing, "the device has gone", offset));
        }
        Ok(number)
    }

    fn error(&self, kind: Kind, what: &'static str, offset: u64) -> Error {
        Error::new(kind, what).at_vdev(self.path()).at_offset(offset)
    }

    fn faults<R>(&self, f: impl FnOnce(&mut Faults) -> R) -> R {
        f(&mut self.faults.lock())
    }

    /// A byte that is never 0, so that noise always differs from what it covers.
    fn noise_at(&self, offset: u64) -> u8 {
        (base::split_mix(self.seed ^ offset) as u8).max(1)
    }
}

impl Device for FaultyDevice {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn look_for_growth(&self) -> u64 {
        self.inner.look_for_growth()
    }

    fn grow(&self) {
        self.inner.grow()
    }

    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let number = self.begin(&self.reads, offset)?;
        self.inner.read_at(offset, buf)?;
        let end = offset + buf.len() as u64;
        self.faults(|faults| {
            if touches(&faults.broken, offset..end) || faults.failing_reads.contains(&number) {
                return Err(self.error(Kind::Io, "the device reports an error", offset));
            }
            let clip = |r: &Range<u64>| r.start.max(offset)..r.end.min(end);
            for at in faults.noise.iter().flat_map(clip) {
                buf[(at - offset) as usize] ^= self.noise_at(at);
            }
            for at in faults.zero.iter().flat_map(clip) {
                buf[(at - offset) as usize] = 0;
            }
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let number = self.begin(&self.writes, offset)?;
        let end = offset.saturating_add(buf.len() as u64);
        let lost = self.faults(|faults| {
            let is_number_failing =
                faults.failing_writes.contains(&number) || faults.failing_from.is_some_and(|from| number >= from);
            if touches(&faults.unwritable, offset..end) || is_number_failing {
                return Err(self.error(Kind::Io, "the device reports an error", offset));
            }
            Ok(faults.lost.clone())
        })?;
        if !touches(&lost, offset..end) {
            return self.inner.write_at(offset, buf);
        }
        let mut stays = vec![0; buf.len()];
        self.inner.read_at(offset, &mut stays)?;
        for ((at, old), &new) in (offset..).zip(&mut stays).zip(buf) {
            if !lost.iter().any(|range| range.contains(&at)) {
                *old = new;
            }
        }
        self.inner.write_at(offset, &stays)
    }

    fn flush(&self) -> Result<()> {
        let number = self.begin(&self.flushes, 0)?;
        if self.faults(|faults| faults.failing_flushes.contains(&number)) {
            return Err(self.error(Kind::Io, "the device reports an error", 0));
        }
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64, secure: bool) -> Result<()> {
        self.begin(&self.writes, offset)?;
        self.inner.discard(offset, len, secure)
    }

    fn sector_bytes(&self) -> u64 {
        self.inner.sector_bytes()
    }

    fn logical_sector_bytes(&self) -> u64 {
        self.inner.logical_sector_bytes()
    }
}

fn touches(ranges: &[Range<u64>], wanted: Range<u64>) -> bool {
    ranges.iter().any(|range| range.start < wanted.end && wanted.start < range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    #[test]
    fn does_what_it_is_told() {
        let dev = FaultyDevice::new(Arc::new(MemDevice::new("m", vec![7; 1000])), 1);
        let read = |at, len| {
            let mut buf = vec![0; len];
            dev.read_at(at, &mut buf).map(|()| buf)
        };
        dev.fail_read(1);
        assert_eq!(read(0, 1000).unwrap(), [7; 1000]);
        assert_eq!(read(0, 1).unwrap_err().kind(), Kind::Io);
        dev.noise(100..110);
        dev.zero(200..201);
        dev.broken(300..301);
        let got = read(90, 200).unwrap();
        let wrong: Vec<usize> = (0..200).filter(|&i| got[i] != 7).collect();
        assert_eq!(wrong, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 110]);
        assert_eq!(got[..50], read(90, 50).unwrap(), "the same noise each time");
        assert!(read(290, 10).is_ok() && read(290, 11).is_err() && read(300, 1).is_err() && read(301, 1).is_ok());
        dev.vanish(true);
        assert_eq!(read(0, 1).unwrap_err().kind(), Kind::Missing);
        dev.heal();
        assert_eq!(read(0, 1000).unwrap(), [7; 1000]);
    }

    #[test]
    fn writes_and_flushes_too() {
        let inner = Arc::new(MemDevice::new("m", vec![7; 1000]));
        let dev = FaultyDevice::new(inner.clone(), 1);
        let kind = |result: Result<()>| result.unwrap_err().kind();
        dev.fail_write(1);
        dev.fail_flush(0);
        dev.write_at(0, &[1; 10]).unwrap();
        assert_eq!(kind(dev.write_at(0, &[2; 10])), Kind::Io);
        assert_eq!(kind(dev.flush()), Kind::Io);
        dev.flush().unwrap();
        dev.unwritable(100..101);
        dev.lose_writes(5..7);
        assert!(dev.write_at(90, &[2; 11]).is_err() && dev.write_at(90, &[3; 10]).is_ok());
        dev.write_at(4, &[4; 4]).unwrap();
        let bytes = inner.bytes().clone();
        assert_eq!(bytes[..12], [1, 1, 1, 1, 4, 1, 1, 4, 1, 1, 7, 7]);
        assert_eq!((&bytes[90..100], bytes[100]), (&[3; 10][..], 7));
        dev.vanish(true);
        assert_eq!((kind(dev.write_at(0, &[9])), kind(dev.flush())), (Kind::Missing, Kind::Missing));
        assert_eq!((dev.writes(), dev.flushes()), (6, 3));
    }
}
