//! `cenote bench sync`: what synchronous writes cost, of a file system, or of a device that may become a log.
//!
//! ```text
//!   folder    file for each thread: write, fsync, write, fsync ...        1 B to 1 MiB
//!   device    part for each thread: write past caches, flush ...          512 B to 8 MiB; what is in it is lost
//!                  │ target                     │ measure                     │ show, and verdict
//! ```
//!
//! Every size is measured for the same time with one thread, and then with many. The data do not compress.

mod measure;
mod show;
mod target;
mod verdict;

use std::path::PathBuf;

use measure::{Measured, measure};
use target::Target;

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
pub struct Args {
    /// Overwrite a device
    #[arg(short, long)]
    force: bool,
    /// Seconds for each size and number of threads
    #[arg(short = 't', long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Threads that write at the same time, after one alone
    #[arg(short = 'j', long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Measure a regular file as if it were a device
    #[arg(long)]
    as_device: bool,
    /// What the device is to make faster: a folder in the pool without a log, or one of its disks
    #[arg(long, value_name = "PATH|DEVICE")]
    against: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw writes a second over sizes into a file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// A folder, or a device
    #[arg(value_name = "PATH|DEVICE")]
    path: PathBuf,
}

fn seconds(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    parsed.ok_or_else(|| "not a number of seconds from 0.01 to 3600".to_owned())
}

/// All that was measured of one target.
struct Survey {
    path: String,
    /// `folder` or `device`.
    kind: &'static str,
    rows: Vec<Measured>,
}

/// Runs the command. Errors: for the user.
pub fn run(args: &Args) -> Result<(), String> {
    let paths = std::iter::once(&args.path).chain(&args.against);
    // all that can be refused is, before anything is written
    let targets: Vec<Target> =
        paths.map(|path| Target::open(path, args.as_device, args.force)).collect::<Result<_, _>>()?;
    let mut surveys = Vec::new();
    for target in &targets {
        if !args.json {
            print!("{}", show::heading(target, args.threads));
        }
        surveys.push(survey(args, target)?);
    }
    let verdict = match surveys.as_slice() {
        [one, other] => Some(verdict::judge(one, other)),
        _ => None,
    };
    if args.json {
        println!("{}", show::json(&surveys, verdict.as_ref()));
    } else {
        surveys.iter().filter_map(verdict::warning).for_each(|line| println!("\n{line}"));
        verdict.iter().for_each(|verdict| println!("\n{verdict}"));
    }
    match &args.svg {
        Some(path) => std::fs::write(path, show::chart(&surveys).svg()).map_err(|e| format!("{}: {e}", path.display())),
        None => Ok(()),
    }
}

/// Measures all sizes, and prints each as soon as it is known.
fn survey(args: &Args, target: &Target) -> Result<Survey, String> {
    let failed = |e: base::Error| format!("{}: {e}", target.path());
    target.prepare().map_err(failed)?;
    let mut rows = Vec::new();
    for size in target.sizes() {
        let before = rows.len();
        for threads in if args.threads == 1 { vec![1] } else { vec![1, args.threads] } {
            rows.push(measure(target, size, threads, args.seconds).map_err(failed)?);
        }
        if !args.json {
            print!("{}", show::row(&rows[before..]));
        }
    }
    Ok(Survey { path: target.path().to_owned(), kind: target.kind(), rows })
}
