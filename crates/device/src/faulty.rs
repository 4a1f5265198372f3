//! The device that lies, fails and vanishes: what tests put between a pool and its bytes.
//!
//! Every fault is a function of the seed, the byte's offset and the number of the read, so a test
//! that fails once fails always.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::{Error, Kind, Result};

use crate::Device;

/// Wraps a device; faults are switched on while others read.
#[derive(Debug)]
pub struct FaultyDevice {
    inner: Arc<dyn Device>,
    seed: u64,
    faults: Mutex<Faults>,
    vanished: AtomicBool,
    reads: AtomicU64,
}

#[derive(Debug, Default)]
struct Faults {
    noise: Vec<Range<u64>>,
    zero: Vec<Range<u64>>,
    broken: Vec<Range<u64>>,
    failing_reads: Vec<u64>,
}

impl FaultyDevice {
    /// A wrapper without any fault yet.
    pub fn new(inner: Arc<dyn Device>, seed: u64) -> FaultyDevice {
        let (faults, vanished, reads) = Default::default();
        FaultyDevice { inner, seed, faults, vanished, reads }
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

    /// From now on the device is gone, or is there again.
    pub fn vanish(&self, gone: bool) {
        self.vanished.store(gone, Ordering::Relaxed);
    }

    /// Takes away every fault.
    pub fn heal(&self) {
        self.vanish(false);
        self.faults(|f| *f = Faults::default());
    }

    /// Reads so far, those that failed among them.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn faults<R>(&self, f: impl FnOnce(&mut Faults) -> R) -> R {
        f(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A byte that is never 0, so that noise always differs from what it covers.
    fn noise_at(&self, offset: u64) -> u8 {
        let mut x = (self.seed ^ offset).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) as u8).max(1)
    }
}

impl Device for FaultyDevice {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        let error = |kind, what| Err(Error::new(kind, what).at_vdev(self.path()).at_offset(offset));
        if self.vanished.load(Ordering::Relaxed) {
            return error(Kind::Missing, "the device has gone");
        }
        self.inner.read_at(offset, buf)?;
        let end = offset + buf.len() as u64;
        self.faults(|faults| {
            let broken = faults.broken.iter().any(|r| r.start < end && offset < r.end);
            if broken || faults.failing_reads.contains(&number) {
                return error(Kind::Io, "the device reports an error");
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
}
