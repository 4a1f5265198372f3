//! A rehearsal: the requests of synchronous writes go to the pool, and their log blocks to the device that may become its log.
//!
//! ```text
//!   each thread   write, and close ─▶ pool    log block and flush ─▶ device    fsync of another file ─▶ pool
//!                                        shared with those that come meanwhile
//! ```
//!
//! The pool has nothing to wait for: what is written is not made to last there, and in the file that is, nothing changes. So
//! what it takes is the work of both requests, as busy as the machine is, and the device; and as long as the pool needs to
//! put a record into its log, one after the other, the processor is kept busy here.

use std::path::Path;
use std::time::{Duration, Instant};

use base::{Condvar, Env, Error, Kind, Mutex};

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
    let blocks = SharedBlocks { live, state: Mutex::default(), changed: Condvar::new() };
    let measured = measure(load.bytes, pairs, pace, |pair, n| {
        pair.write(n, &bytes)?;
        blocks.commit(load.bytes)?;
        pair.sync()
    });
    let measured = measured.map_err(|e| format!("in a rehearsal: {e}"))?;
    measured.map(|measured| measured.rate()).ok_or_else(|| "interrupted".to_owned())
}

/// Log blocks, each of which has what came while the one before was written.
struct SharedBlocks<'a, 'b> {
    live: &'a LiveDevice<'b>,
    state: Mutex<BlockState>,
    changed: Condvar,
}

#[derive(Default)]
struct BlockState {
    /// The number of the block that what comes now will be in, and what is in it so far.
    open: u64,
    bytes: u64,
    /// Blocks before that are written.
    done: u64,
    /// Where the next one goes.
    at: u64,
    is_writing: bool,
    has_failed: bool,
}

impl SharedBlocks<'_, '_> {
    /// Waits until so many bytes are on the device. Errors: a block could not be written, this one or another.
    fn commit(&self, bytes: u64) -> base::Result<()> {
        let mut state = self.state.lock();
        let began = Instant::now();
        while began.elapsed() < ENGINE_TIME {
            std::hint::spin_loop();
        }
        let own = state.open;
        state.bytes += bytes;
        while state.done <= own && !state.has_failed {
            if state.is_writing {
                state = self.changed.wait(state);
                continue;
            }
            let (number, len) = (state.open, std::mem::take(&mut state.bytes) + LOG_HEAD_BYTES);
            (state.open, state.is_writing) = (number + 1, true);
            let at = state.at;
            drop(state);
            let written = self.live.log_block(at, len as usize);
            state = self.state.lock();
            (state.done, state.is_writing, state.has_failed) = (number + 1, false, written.is_err());
            self.changed.notify_all();
            state.at = written?;
        }
        match state.has_failed {
            true => Err(Error::new(Kind::Io, "another thread's block could not be written")),
            false => Ok(()),
        }
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
        let blocks = SharedBlocks { live: &live, state: Mutex::default(), changed: Condvar::new() };
        std::thread::scope(|scope| {
            (0..8).for_each(|_| _ = scope.spawn(|| (0..50).for_each(|_| blocks.commit(4096).unwrap())));
        });
        let state = blocks.state.into_inner();
        assert!(state.done == state.open && state.bytes == 0 && (50..=400).contains(&state.done), "{}", state.done);
        // blocks lie next to each other, each with its head
        assert_eq!(state.at, 400 * 4096 + state.done * LOG_HEAD_BYTES);
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
