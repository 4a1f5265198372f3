//! The disk that wears out while a pool is in use: it rots, fails, lies, crawls, and is pulled, as it is told.
//!
//! What it does next is drawn from a seed; but the threads of a pool ask in any order, so that the same seed wears out a
//! disk in the same way only as far as they do the same.

use std::time::Duration;

use base::{Error, Kind, Mutex, MutexGuard, Result};
use device::Device;

use crate::rng::Rng;
use crate::sparse::{SECTOR, SparseDevice};

/// How long a crawling one may take.
const CRAWL: Duration = Duration::from_millis(2);

/// In which way a device is worn out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wear {
    /// It does what it is asked.
    None,
    /// It is not there.
    Pulled,
    /// Some reads, writes and flushes are errors; of such a write, some sectors are on it.
    Failing,
    /// Some writes are lost, are on it in part, or are elsewhere on it; some reads are of another place. It does not say.
    Lying,
    /// It is slow now and then.
    Crawling,
}

/// A device that wears out.
pub struct RoughDevice {
    bytes: SparseDevice,
    state: Mutex<State>,
}

struct State {
    wear: Wear,
    rng: Rng,
}

impl RoughDevice {
    /// A device that works, and holds zeros.
    pub fn new(name: impl Into<String>, size: u64, seed: u64) -> RoughDevice {
        let state = Mutex::new(State { wear: Wear::None, rng: Rng::new(seed) });
        RoughDevice { bytes: SparseDevice::new(name, size), state }
    }

    /// From now on it is worn out like that.
    pub fn wear(&self, wear: Wear) {
        self.state().wear = wear;
    }

    /// Up to `sectors` sectors, somewhere among what was written, hold something else from now on.
    pub fn rot(&self, sectors: u64) {
        let (used, mut state) = (self.bytes.used(), self.state());
        let rng = &mut state.rng;
        if used.is_empty() {
            return;
        }
        for _ in 0..=rng.below(sectors) {
            let page = rng.pick(&used).clone();
            let at = page.start + rng.below((page.end - page.start) / SECTOR as u64) * SECTOR as u64;
            let mut bytes = [0; SECTOR];
            self.bytes.read_at(at, &mut bytes).expect("it is within the device");
            match rng.below(3) {
                0 => {
                    let bit = rng.below(SECTOR as u64 * 8);
                    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
                1 => bytes = [0; SECTOR],
                _ => bytes.iter_mut().for_each(|byte| *byte = rng.number() as u8),
            }
            self.bytes.write_at(at, &bytes).expect("it is within the device");
        }
    }

    /// What is on it.
    pub fn copy(&self) -> SparseDevice {
        self.bytes.copy()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What it does with something it is asked for, how it is worn out, one time in `one_in`, or not.
    fn begin(&self, one_in: u64, offset: u64) -> Result<Wear> {
        let mut state = self.state();
        let is_worse = state.rng.below(one_in) == 0;
        let wear = match state.wear {
            Wear::Pulled => return Err(self.error(Kind::Missing, "the device has gone", offset)),
            wear if is_worse => wear,
            _ => Wear::None,
        };
        drop(state);
        if wear == Wear::Crawling {
            std::thread::sleep(CRAWL);
        }
        Ok(wear)
    }

    fn error(&self, kind: Kind, what: &'static str, offset: u64) -> Error {
        Error::new(kind, what).at_vdev(self.path()).at_offset(offset)
    }

    /// Any place where so many bytes fit.
    fn elsewhere(&self, len: usize) -> u64 {
        let places = (self.size() - len as u64) / SECTOR as u64 + 1;
        self.state().rng.below(places) * SECTOR as u64
    }
}

impl std::fmt::Debug for RoughDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RoughDevice({})", self.path())
    }
}

impl Device for RoughDevice {
    fn path(&self) -> &str {
        self.bytes.path()
    }

    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.begin(8, offset)? {
            Wear::Failing => Err(self.error(Kind::Io, "the device reports an error", offset)),
            Wear::Lying if buf.len() as u64 <= self.size() => self.bytes.read_at(self.elsewhere(buf.len()), buf),
            _ => self.bytes.read_at(offset, buf),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        match self.begin(4, offset)? {
            Wear::Failing => {
                self.bytes.write_torn(offset, buf, &mut self.state().rng)?;
                Err(self.error(Kind::Io, "the device reports an error", offset))
            }
            Wear::Lying if buf.len() as u64 <= self.size() => {
                let choice = self.state().rng.below(3);
                match choice {
                    0 => Ok(()),
                    1 => self.bytes.write_torn(offset, buf, &mut self.state().rng),
                    _ => self.bytes.write_at(self.elsewhere(buf.len()), buf),
                }
            }
            _ => self.bytes.write_at(offset, buf),
        }
    }

    fn flush(&self) -> Result<()> {
        match self.begin(8, 0)? {
            Wear::Failing => Err(self.error(Kind::Io, "the device reports an error", 0)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 64 << 10;

    /// What is read after many writes, and how many of these were errors.
    fn after(wear: Wear) -> (Vec<u8>, usize) {
        let device = RoughDevice::new("d", LEN as u64, 3);
        device.wear(wear);
        let chunks = (0..LEN as u64).step_by(1024);
        let errors = chunks.filter(|&at| device.write_at(at, &[7; 1024]).is_err()).count();
        let mut bytes = vec![0; LEN];
        device.copy().read_at(0, &mut bytes).unwrap();
        (bytes, errors)
    }

    #[test]
    fn wears_out_as_it_is_told() {
        let is_whole = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 7);
        for (wear, whole, fails) in [
            (Wear::None, true, false),
            (Wear::Crawling, true, false),
            (Wear::Failing, false, true),
            (Wear::Lying, false, false),
        ] {
            let (bytes, errors) = after(wear);
            assert_eq!((is_whole(&bytes), errors > 0), (whole, fails), "{wear:?}");
        }
        assert_eq!(after(Wear::Pulled).1, LEN / 1024);
    }

    #[test]
    fn rots_only_where_something_is() {
        let device = RoughDevice::new("d", LEN as u64, 3);
        device.rot(8);
        assert!(device.copy().used().is_empty());
        device.write_at(0, &[7; 512]).unwrap();
        device.rot(64);
        let mut bytes = vec![0; LEN];
        device.copy().read_at(0, &mut bytes).unwrap();
        assert!(bytes[512..16 << 10].iter().any(|&byte| byte != 0) && bytes[16 << 10..].iter().all(|&byte| byte == 0));
    }
}
