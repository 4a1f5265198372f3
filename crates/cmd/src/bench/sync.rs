//! `cenote bench sync`: what synchronous writes cost, of a file system, or of a device that may become a log.
//!
//! ```text
//!   folder    file for each thread: write, fsync, write, fsync ...        1 B to 1 MiB
//!   device    part for each thread: write past caches, flush ...          512 B to 8 MiB; what is in it is lost
//!                  │ target                     │ measure                     │ show, and verdict
//! ```
//!
//! Every size is measured for the same time with one thread, and then with many. The data do not compress.

mod show;
mod survey;
mod target;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use base::Env;

use super::measure::{MeasureTime, Measured, measure};
use super::options::BenchOptions;
use super::random::noise;
use crate::output;
use survey::TargetSurvey;
use target::{ThreadTarget, WriteTarget};

pub use show::{columns, row};
pub use target::RequestPair;

/// Measure synchronous writes: of a file system, or of a device that may become a log
///
/// In a folder, files are written to, each write followed by fsync(2). Sizes go from 1 byte to 1 MiB.
///
/// A disk, or with --as-device a regular file, is written to as an intent log would: past the page cache, one
/// write and one flush after the other, from 512 bytes to 8 MiB. What is in it is lost, so that needs -f.
///
/// With --against, the same is measured there, and a verdict given: how much faster synchronous writes can
/// become with the one as log device for the other.
#[derive(clap::Args)]
pub struct SyncArgs {
    /// Overwrite a device
    #[arg(short, long)]
    force: bool,
    /// Threads that write at the same time, after one alone
    #[arg(short = 'j', long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Measure a regular file as if it were a device
    #[arg(long)]
    as_device: bool,
    /// What the device is to make faster: a folder in the pool without a log, or one of its disks
    #[arg(long, value_name = "PATH|DEVICE")]
    against: Option<PathBuf>,
    #[command(flatten)]
    options: BenchOptions,
    /// A folder, or a device
    #[arg(value_name = "PATH|DEVICE")]
    path: PathBuf,
}

/// Bytes of which each write takes others.
const SPARE_BYTES: usize = 1 << 20;
/// What is written begins at multiples of this, as direct access to devices demands.
const STEP: usize = 4096;

/// Runs the command. Errors: for the user.
pub fn run(args: &SyncArgs) -> Result<(), String> {
    let paths = std::iter::once(&args.path).chain(&args.against);
    // all that can be refused is, before anything is written
    let targets: Vec<WriteTarget> =
        paths.map(|path| WriteTarget::open(path, args.as_device, args.force)).collect::<Result<_, _>>()?;
    targets.iter().try_for_each(|target| target.check_room(args.threads))?;
    let is_interrupted = output::interruption();
    let pace = args.options.pace(&is_interrupted);
    let mut surveys = Vec::new();
    for target in &targets {
        args.options.say(show::heading(target, args.threads));
        surveys.push(survey(args, target, pace)?);
    }
    let verdict = match surveys.as_slice() {
        [one, other] if !is_interrupted.load(Ordering::Relaxed) => Some(verdict::judge(one, other)),
        _ => None,
    };
    surveys.iter().filter_map(verdict::warning).for_each(|line| args.options.say(format_args!("\n{line}\n")));
    verdict.iter().for_each(|verdict| args.options.say(format_args!("\n{verdict}\n")));
    args.options.finish(show::json(&surveys, verdict.as_ref()), &show::chart(&surveys), &is_interrupted)
}

/// Measures all sizes until interrupted, and prints each as soon as it is known.
fn survey(args: &SyncArgs, target: &WriteTarget, pace: MeasureTime) -> Result<TargetSurvey, String> {
    let failed = |e: base::Error| format!("{}: {e}", target.path());
    target.prepare().map_err(failed)?;
    let mut survey = TargetSurvey { path: target.path().to_owned(), kind: target.kind(), rows: Vec::new() };
    for size in target.sizes() {
        let before = survey.rows.len();
        for threads in if args.threads == 1 { vec![1] } else { vec![1, args.threads] } {
            match measure_writes(target, size, threads, pace).map_err(failed)? {
                Some(measured) => survey.rows.push(measured),
                None => return Ok(survey),
            }
        }
        args.options.say(show::row(&survey.rows[before..]));
    }
    Ok(survey)
}

/// Measures one size in a folder, where files are made for that. `None`: interrupted. Errors, for the user: of the folder.
pub fn measure_folder(folder: &Path, size: u64, threads: u32, pace: MeasureTime) -> Result<Option<Measured>, String> {
    let target = WriteTarget::open(folder, false, false)?;
    measure_writes(&target, size, threads, pace).map_err(|e| format!("{}: {e}", folder.display()))
}

/// The same of a device that may be overwritten.
pub fn measure_device(device: &Path, size: u64, threads: u32, pace: MeasureTime) -> Result<Option<Measured>, String> {
    let target = WriteTarget::open(device, true, true)?;
    measure_writes(&target, size, threads, pace).map_err(|e| format!("{}: {e}", device.display()))
}

/// Measures one size with so many threads.
fn measure_writes(target: &WriteTarget, size: u64, threads: u32, pace: MeasureTime) -> base::Result<Option<Measured>> {
    let lanes: Vec<(u32, ThreadTarget)> =
        (0..threads).map(|thread| Ok((thread, target.lane(thread, threads, size)?))).collect::<base::Result<_>>()?;
    let bytes = noise(size as usize + SPARE_BYTES, Env::real().random());
    measure(size, lanes, pace, |(thread, lane), n| {
        let from = (n as usize * 31 + *thread as usize * 17) * STEP % SPARE_BYTES;
        lane.put(n, &bytes[from..from + size as usize])
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::options::tests::quick;
    use super::*;

    #[test]
    fn a_folder_is_measured_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let target = WriteTarget::open(dir.path(), false, false).unwrap();
        let is_interrupted = AtomicBool::new(false);
        let measured = measure_writes(&target, 100, 3, quick(None).pace(&is_interrupted)).unwrap().unwrap();
        assert!(measured.count >= 3 && measured.percentiles_ns[0] > 0, "{measured:?}");
        is_interrupted.store(true, Ordering::Relaxed);
        assert!(measure_writes(&target, 100, 3, quick(None).pace(&is_interrupted)).unwrap().is_none());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
