//! Measuring a real device, past the page cache: a write, then fdatasync(2), which is what a pool's log does.
//!
//! `O_DSYNC` would let the kernel use writes with forced unit access instead, where the device has them: other commands
//! than those of the log, and often other times.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use base::{AlignedBuf, Env};
use device::{Device, FileDevice};

use super::course::{FILL_WRITE_BYTES, SlogBench, SlogLoad};
use crate::bench::measure::{MeasureTime, Measured, measure};
use crate::bench::random::{RandomOrder, noise};

/// Bytes at the beginning of a device that are written to.
pub(super) const AREA_BYTES: u64 = 512 << 20;
/// Bytes of which each write takes others.
const SPARE_BYTES: usize = 1 << 20;
/// What is written begins in memory at multiples of this.
const STEP: usize = 4096;

/// A device that may be overwritten, and what was written of it.
pub(super) struct LiveDevice<'a> {
    device: FileDevice,
    is_file: bool,
    area_bytes: u64,
    /// All writes so far were below.
    written: u64,
    bytes: AlignedBuf,
    env: Env,
    is_interrupted: &'a AtomicBool,
}

impl<'a> LiveDevice<'a> {
    pub(super) fn new(device: FileDevice, is_file: bool, is_interrupted: &'a AtomicBool) -> LiveDevice<'a> {
        let env = Env::real();
        let area_bytes = device.size().min(AREA_BYTES) / FILL_WRITE_BYTES * FILL_WRITE_BYTES;
        let bytes = noise(FILL_WRITE_BYTES as usize + SPARE_BYTES, env.random());
        LiveDevice { device, is_file, area_bytes, written: 0, bytes, env, is_interrupted }
    }

    pub(super) fn size(&self) -> u64 {
        self.device.size()
    }

    /// Whether it is read and written past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.device.is_direct()
    }

    /// Makes zeros of what was written: of a file, as a hole, if it can have holes. Errors: of the device.
    pub(super) fn make_blank(&mut self) -> Result<(), String> {
        let failed =
            |e: base::Error| format!("{}: it is not zeros again where it was written to: {e}", self.device.path());
        if self.is_file && self.device.discard(0, self.written, false).is_ok() {
            return Ok(());
        }
        let zeros = AlignedBuf::zeroed(FILL_WRITE_BYTES as usize);
        for at in (0..self.written).step_by(zeros.len()) {
            let len = (self.written - at).min(zeros.len() as u64) as usize;
            self.device.write_at(at, &zeros[..len]).map_err(failed)?;
        }
        self.device.flush().map_err(failed)
    }

    /// Writes over a file before it is measured, so that no write has to find room for it first. Errors: of the device.
    pub(super) fn fill_holes(&mut self) -> Result<(), String> {
        self.written = self.area_bytes;
        self.burst_at(0, self.area_bytes)?;
        self.device.flush().map_err(|e| e.to_string())
    }

    /// From now on, anything may be written to the beginning of the device.
    pub(super) fn begin(&mut self) {
        self.written = self.area_bytes;
    }

    /// Writes a block of a log, of so many bytes. `at` is where the log goes on, and then where it does behind
    /// the block: next to it, as the places of a log that is alone on its device are. Errors: of the device.
    pub(super) fn log_block(&self, at: u64, bytes: usize) -> base::Result<u64> {
        let bytes = bytes.next_multiple_of(STEP).min(FILL_WRITE_BYTES as usize);
        let at = if at + bytes as u64 > self.area_bytes { 0 } else { at };
        self.device.write_at(at, self.part(at / STEP as u64, bytes))?;
        Ok(at + bytes as u64)
    }

    /// Makes blocks of a log last. Errors: of the device.
    pub(super) fn flush_log(&self) -> base::Result<()> {
        self.device.flush()
    }

    fn burst_at(&self, from: u64, bytes: u64) -> Result<(), String> {
        for at in (from..from + bytes).step_by(FILL_WRITE_BYTES as usize) {
            let write = self.device.write_at(at % self.area_bytes, self.part(at, FILL_WRITE_BYTES as usize));
            write.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Bytes that differ from write to write.
    fn part(&self, n: u64, len: usize) -> &[u8] {
        let from = (n as usize).wrapping_mul(31 * STEP) % SPARE_BYTES / STEP * STEP;
        &self.bytes[from..from + len]
    }
}

impl SlogBench for LiveDevice<'_> {
    fn load(&mut self, load: SlogLoad, queue: u32, seconds: f64) -> Result<Measured, String> {
        let size = load.bytes();
        if !matches!(load, SlogLoad::Reads(_)) {
            self.written = self.area_bytes;
        }
        let pace = MeasureTime { seconds, is_interrupted: self.is_interrupted };
        let next = AtomicU64::new(0);
        let order = RandomOrder::new((self.device.size() / size).max(1), self.env.random());
        let hands: Vec<AlignedBuf> = (0..queue).map(|_| AlignedBuf::zeroed(size as usize)).collect();
        let measured = measure(size, hands, pace, |buf, _| {
            let n = next.fetch_add(1, Ordering::Relaxed);
            match load {
                SlogLoad::Reads(_) => self.device.read_at(order.take() * size, buf),
                SlogLoad::Syncs(_) | SlogLoad::Writes(_) => {
                    self.device.write_at(n * size % self.area_bytes, self.part(n, size as usize))?;
                    if matches!(load, SlogLoad::Syncs(_)) { self.device.flush() } else { Ok(()) }
                }
            }
        });
        measured.map_err(|e| e.to_string())?.ok_or_else(|| "interrupted".to_owned())
    }

    fn burst(&mut self, bytes: u64) -> Result<f64, String> {
        let bytes = bytes.min(self.area_bytes);
        self.written = self.area_bytes;
        self.burst_at(0, bytes)?;
        let began = Instant::now();
        self.device.flush().map_err(|e| e.to_string())?;
        let flush_s = began.elapsed().as_secs_f64();
        if self.is_interrupted.load(Ordering::Relaxed) {
            return Err("interrupted".to_owned());
        }
        Ok(flush_s)
    }
}

/// Whether a device's beginning and end, and places drawn in what will be written, are zeros. Errors: of the device.
pub(super) fn is_blank(device: &FileDevice) -> base::Result<bool> {
    const LOOK_BYTES: u64 = 4096;
    const LOOKS: u64 = 64;
    let size = device.size();
    let area = size.min(AREA_BYTES);
    let order = RandomOrder::new((area / LOOK_BYTES).max(1), Env::real().random());
    let ends = (0..16).flat_map(|n| [n * LOOK_BYTES, size.saturating_sub((n + 1) * LOOK_BYTES)]);
    let mut buf = AlignedBuf::zeroed(LOOK_BYTES as usize);
    for at in ends.chain((0..LOOKS).map(|_| order.take() * LOOK_BYTES)) {
        let len = LOOK_BYTES.min(size.saturating_sub(at)) as usize;
        device.read_at(at, &mut buf[..len])?;
        if buf[..len].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a path is a regular file.
pub(super) fn is_regular(path: &Path) -> std::io::Result<bool> {
    Ok(std::fs::metadata(path)?.is_file())
}
