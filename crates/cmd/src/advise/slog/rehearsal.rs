//! A rehearsal: the requests of synchronous writes go to the pool, and their log blocks to the device that may become its log.
//!
//! ```text
//!   each thread   write, and close ─▶ pool    log block and flush ─▶ device    fsync of another file ─▶ pool
//!                                        in turns, as commits of a log take them (zil::CommitRehearsal)
//! ```
//!
//! The pool has nothing to wait for: what is written is not made to last there, and in the file that is, nothing changes. So
//! what it takes is the work of both requests, as busy as the machine is, and the device; and as long as the pool needs to
//! make a log block, the processor is kept busy here.

use std::path::Path;
use std::time::{Duration, Instant};

use base::{Env, Mutex};
use dmu::Throttle;
use zil::{CommitRehearsal, RehearsedDevice};

use super::demand::{CommitLoad, LogDemand};
use super::live::LiveDevice;
use crate::bench::measure::{MeasureTime, measure};
use crate::bench::random::noise;
use crate::bench::sync::RequestPair;

/// What a log block has beside what was written: its head, and those of the records.
pub(super) const LOG_HEAD_BYTES: u64 = 4 << 10;

/// What the pool itself does for a commit of one thread, beside its requests and the device: what `engine-bench -T sync` takes
/// longer than the device (docs/PERFORMANCE.md).
const ENGINE_TIME: Duration = Duration::from_micros(25);

/// Memory of a machine that commits wait for no group on, as none is full.
const THROTTLE_BYTES: u64 = 1 << 30;

/// Rehearses all loads of a pool that has a folder. Errors, for the user: of the device; interrupted.
pub(super) fn rehearse(demand: &mut LogDemand, live: &mut LiveDevice<'_>, pace: MeasureTime) -> Result<(), String> {
    let Some(folder) = &demand.folder else { return Ok(()) };
    live.begin();
    for found in &mut demand.loads {
        let pairs = pairs(folder, found.load.threads).map_err(|e| format!("{}: {e}", folder.display()))?;
        found.rehearsed_per_s = Some(rehearsed(found.load, pairs, live, pace)?);
    }
    Ok(())
}

fn pairs(folder: &Path, threads: u32) -> base::Result<Vec<RequestPair>> {
    (0..threads).map(|thread| RequestPair::new(folder, thread)).collect()
}

/// Writes a second.
fn rehearsed(
    load: CommitLoad,
    pairs: Vec<RequestPair>,
    live: &LiveDevice<'_>,
    pace: MeasureTime,
) -> Result<f64, String> {
    let bytes = noise(load.bytes as usize, Env::real().random());
    let log = rehearsal(live, load.bytes);
    let measured = measure(load.bytes, pairs, pace, |pair, n| {
        pair.write(n, &bytes)?;
        log.commit()?;
        pair.sync()
    });
    let measured = measured.map_err(|e| format!("in a rehearsal: {e}"))?;
    measured.map(|measured| measured.rate()).ok_or_else(|| "interrupted".to_owned())
}

fn rehearsal<'a, 'b>(live: &'a LiveDevice<'b>, bytes: u64) -> CommitRehearsal<RehearsedBlocks<'a, 'b>> {
    let env = Env::real();
    let throttle = Throttle::of(&env, THROTTLE_BYTES);
    CommitRehearsal::new(env, throttle, RehearsedBlocks { live, bytes, at: Mutex::default() })
}

/// The beginning of a device as a log, whose blocks lie one behind the other.
struct RehearsedBlocks<'a, 'b> {
    live: &'a LiveDevice<'b>,
    /// Bytes of a record.
    bytes: u64,
    /// Where the next block goes.
    at: Mutex<u64>,
}

impl RehearsedDevice for RehearsedBlocks<'_, '_> {
    fn write(&self, commits: usize) -> base::Result<()> {
        let began = Instant::now();
        while began.elapsed() < ENGINE_TIME {
            std::hint::spin_loop();
        }
        let mut at = self.at.lock();
        *at = self.live.log_block(*at, (commits as u64 * self.bytes + LOG_HEAD_BYTES) as usize)?;
        Ok(())
    }

    fn flush(&self) -> base::Result<()> {
        self.live.flush_log()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use device::{FileDevice, OpenMode};

    use super::*;

    #[test]
    fn blocks_are_shared_and_the_device_is_blank_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let device = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
        let is_interrupted = AtomicBool::new(false);
        let mut live = LiveDevice::new(device, true, &is_interrupted);
        live.begin();
        let log = rehearsal(&live, 4096);
        std::thread::scope(|scope| {
            (0..8).for_each(|_| _ = scope.spawn(|| (0..50).for_each(|_| log.commit().unwrap())));
        });
        // blocks lie next to each other, each with its head
        let heads = *log.device().at.lock() - 400 * 4096;
        assert!(heads.is_multiple_of(LOG_HEAD_BYTES) && (50..=400).contains(&(heads / LOG_HEAD_BYTES)), "{heads}");
        let folder = dir.path().join("pool");
        std::fs::create_dir(&folder).unwrap();
        let pace = MeasureTime { seconds: 0.01, is_interrupted: &is_interrupted };
        let load = CommitLoad { bytes: 4096, threads: 3 };
        assert!(rehearsed(load, pairs(&folder, 3).unwrap(), &live, pace).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        assert!(std::fs::read(&path).unwrap().iter().any(|byte| *byte != 0));
        live.make_blank().unwrap();
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    }
}
