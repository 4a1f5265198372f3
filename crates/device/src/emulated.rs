//! Devices that take as long as another kind of device would: hard disks by rotation and seeks, SSDs by their cache, their
//! flush, a cliff, a flush that does nothing.
//!
//! ```text
//!   EmulatedDevice ── kind, offset, length, now ──▶ DeviceModel ──▶ time at which it is done
//!        │  does the request on the device below        ├─ disk     arm, platter, write cache
//!        └─ waits until then                            └─ flash    link, lanes, cache, flush, cliff
//! ```
//!
//! A [`DeviceModel`] is pure: it reads no clock, and the same seed and requests give the same times. Requests are done in
//! the order in which they come: no model reorders reads of a queue.

mod disk;
mod flash;
mod jitter;
mod model;

use std::sync::Arc;
use std::time::Duration;

use base::{Env, Mutex, Result};

pub use model::{ALL_EMULATED, DeviceModel, DeviceSays, EmulatedKind};

use crate::{Device, DeviceOp};

/// The extended attribute of files that are emulated devices, with what the device says of itself: [`DeviceSays`] as text.
pub const SAYS_ATTRIBUTE: &str = "user.cenote.says";

/// A device whose requests take at least as long as a model says. A flush only takes its time: the device below is not
/// flushed.
pub struct EmulatedDevice {
    below: Arc<dyn Device>,
    model: Mutex<DeviceModel>,
    env: Env,
}

impl EmulatedDevice {
    /// `below` has the bytes, and `env` the clock.
    pub fn new(below: Arc<dyn Device>, kind: EmulatedKind, seed: u64, env: Env) -> EmulatedDevice {
        let model = DeviceModel::new(kind, below.size(), seed);
        EmulatedDevice { below, model: Mutex::new(model), env }
    }

    /// The device that has the bytes.
    pub fn below(&self) -> &dyn Device {
        &*self.below
    }

    /// Does one request by `work`, and returns when the model says that it is done. Errors: those of `work`.
    pub fn timed<T>(
        &self,
        op: DeviceOp,
        offset: u64,
        len: usize,
        work: impl FnOnce(&dyn Device) -> Result<T>,
    ) -> Result<T> {
        let done_ns = self.model.lock().submit(op, offset, len as u64, self.env.ticks_ns());
        let outcome = work(&*self.below);
        let left_ns = done_ns.saturating_sub(self.env.ticks_ns());
        if left_ns > 0 {
            self.env.pause(Duration::from_nanos(left_ns));
        }
        outcome
    }
}

impl std::fmt::Debug for EmulatedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmulatedDevice({:?})", self.below)
    }
}

impl Device for EmulatedDevice {
    fn path(&self) -> &str {
        self.below.path()
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.timed(DeviceOp::Read, offset, buf.len(), |below| below.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.timed(DeviceOp::Write, offset, buf.len(), |below| below.write_at(offset, buf))
    }

    fn flush(&self) -> Result<()> {
        self.timed(DeviceOp::Flush, 0, 0, |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::MemDevice;

    fn emulated(kind: EmulatedKind, env: Env) -> EmulatedDevice {
        EmulatedDevice::new(Arc::new(MemDevice::new("mem", vec![0; 8 << 20])), kind, 1, env)
    }

    #[test]
    fn bytes_are_those_of_the_device_below() {
        let device = emulated(EmulatedKind::Nvme, Env::fixed(0));
        device.write_at(4096, &[7; 4096]).unwrap();
        let mut read = [0; 4096];
        device.read_at(4096, &mut read).unwrap();
        assert!(read == [7; 4096] && device.size() == 8 << 20 && device.flush().is_ok());
        assert!(device.read_at(8 << 20, &mut read).is_err());
    }

    #[test]
    fn requests_last_as_long_as_the_model_says() {
        let ticks = Arc::new(AtomicU64::new(0));
        let now = ticks.clone();
        let began = Instant::now();
        let real = move || now.load(Ordering::SeqCst) + began.elapsed().as_nanos() as u64;
        let device = emulated(EmulatedKind::Hdd7200, Env::real().with_ticks(real));
        for n in 0..5 {
            device.write_at(n * 4096, &[1; 4096]).unwrap();
            device.flush().unwrap();
        }
        // the first may be lucky with the platter
        assert!(began.elapsed() >= Duration::from_millis(4 * 8), "{:?}", began.elapsed());
    }
}
