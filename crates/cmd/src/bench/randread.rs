//! `cenote bench randread`: what random reads give, of a disk, an SSD, or both side by side.
//!
//! ```text
//!   size ──▶ each target ──▶ 1, 2, 4, 8 ... threads, until more give no more ──▶ a row of the table
//! ```
//!
//! The threads of a size take places from one order, in which none comes twice before all have come. Nothing is
//! written, and no lock is taken: a device may be in use meanwhile.

mod climb;
mod show;
mod target;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use base::{AlignedBuf, Env, Result};

use super::measure::{MeasureTime, Measured, measure};
use super::options::BenchOptions;
use super::random::RandomOrder;
use crate::output;
use climb::{Climb, SizeRow};
use target::{ReadTarget, SIZES};

/// More threads must be faster by this factor; if they are not two times in a row, more are not tried.
const GAIN: f64 = 1.05;

/// Measure random reads: of a disk or file, or of two side by side
///
/// Block sizes go from 512 bytes to 1 MiB, each read at places that are multiples of it, past the page cache where that
/// can be done. Each size is read by one thread, then by 2, 4, 8 and so on until more threads give no more; shown are
/// one thread and the best number of them. KB are of 1024 bytes.
///
/// It only reads, also from devices of pools that are in use. Of a file all blocks should have been written.
#[derive(clap::Args)]
pub struct RandreadArgs {
    /// Threads that are tried at most
    #[arg(short = 'j', long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    #[command(flatten)]
    options: BenchOptions,
    /// A disk or file, such as the disk of a pool
    #[arg(value_name = "DEVICE|FILE")]
    path: PathBuf,
    /// Another, such as an SSD that may become its cache device
    #[arg(value_name = "DEVICE|FILE")]
    other: Option<PathBuf>,
}

/// Runs the command. Errors: for the user.
pub fn run(args: &RandreadArgs) -> std::result::Result<(), String> {
    let paths = std::iter::once(&args.path).chain(&args.other);
    let targets: Vec<ReadTarget> = paths.map(|path| ReadTarget::open(path)).collect::<std::result::Result<_, _>>()?;
    let is_interrupted = output::interruption();
    let pace = args.options.pace(&is_interrupted);
    args.options.say(show::heading(&targets));
    let mut rows = Vec::new();
    for size in SIZES.map(|power| 1 << power) {
        let Some(row) = measure_size(&targets, size, args.threads, pace)? else { break };
        args.options.say(show::row(&row));
        rows.push(row);
    }
    args.options.say("\n");
    show::notes(&targets, &rows).iter().for_each(|note| args.options.say(format_args!("{note}\n")));
    args.options.finish(
        show::json(&targets, &rows, is_interrupted.load(Ordering::Relaxed)),
        &show::chart(&targets, &rows),
        &is_interrupted,
    )
}

/// Measures one size; `None`: interrupted.
fn measure_size(
    targets: &[ReadTarget],
    size: u64,
    threads_max: u32,
    pace: MeasureTime,
) -> std::result::Result<Option<SizeRow>, String> {
    let mut climbs = Vec::new();
    for target in targets {
        if !target.can_read(size) {
            climbs.push(None);
            continue;
        }
        match climb_target(target, size, threads_max, pace)? {
            Some(climb) => climbs.push(Some(climb)),
            None => return Ok(None),
        }
    }
    Ok(Some(SizeRow { size, climbs }))
}

/// Measures one size of a device with 1, 2, 4 and so on threads. `None`: interrupted. Errors, for the user: of the device.
pub fn climb_device(
    path: &Path,
    size: u64,
    threads_max: u32,
    pace: MeasureTime,
) -> std::result::Result<Option<Vec<Measured>>, String> {
    let target = ReadTarget::open(path)?;
    if !target.can_read(size) {
        return Err(format!("{}: reads of {size} bytes are not possible", path.display()));
    }
    Ok(climb_target(&target, size, threads_max, pace)?.map(|climb| climb.tried))
}

/// The same of a target that can be read so.
fn climb_target(
    target: &ReadTarget,
    size: u64,
    threads_max: u32,
    pace: MeasureTime,
) -> std::result::Result<Option<Climb>, String> {
    let order = RandomOrder::new(target.size() / size, Env::real().random());
    let climbed = climb(threads_max, |threads| measure_reads(target, &order, size, threads, pace));
    let climbed = climbed.map_err(|e| format!("{}: {e}", target.path()))?;
    Ok(climbed.map(|tried| Climb { tried, has_repeated: order.has_repeated() }))
}

/// Measures one size with so many threads.
fn measure_reads(
    target: &ReadTarget,
    order: &RandomOrder,
    size: u64,
    threads: u32,
    pace: MeasureTime,
) -> Result<Option<Measured>> {
    let bufs = (0..threads).map(|_| AlignedBuf::zeroed(size as usize)).collect();
    measure(size, bufs, pace, |buf, _| target.read(order.take() * size, buf))
}

/// Measures with 1, 2, 4, 8 and so on until that gains nothing any more; `None`: interrupted.
fn climb(threads_max: u32, mut measure: impl FnMut(u32) -> Result<Option<Measured>>) -> Result<Option<Vec<Measured>>> {
    let (mut tried, mut best, mut misses) = (Vec::new(), 0.0, 0);
    for threads in (0..).map(|power| 1 << power).take_while(|threads| *threads <= threads_max) {
        let Some(measured) = measure(threads)? else { return Ok(None) };
        let rate = measured.rate();
        tried.push(measured);
        misses = if rate > best * GAIN { 0 } else { misses + 1 };
        best = rate.max(best);
        if misses == 2 {
            break;
        }
    }
    Ok(Some(tried))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicBool;

    use super::super::options::tests::quick;
    use super::*;

    /// A file of so many bytes, none of them a hole.
    pub fn file(path: &Path, len: usize) {
        File::create(path).unwrap().write_all_at(&vec![7; len], 0).unwrap();
    }

    #[test]
    fn more_threads_are_tried_while_they_gain() {
        let tried = |threads_max, rates: &[u64]| -> Vec<(u32, u64)> {
            let mut rates = rates.iter();
            let climbed = climb(threads_max, |threads| {
                let count = *rates.next().expect("enough was tried before");
                Ok(Some(Measured { size: 512, threads, count, seconds: 1.0, percentiles_ns: [1; 3] }))
            });
            climbed.unwrap().unwrap().iter().map(|measured| (measured.threads, measured.count)).collect()
        };
        assert_eq!(tried(128, &[100, 200, 204, 203]), [(1, 100), (2, 200), (4, 204), (8, 203)]);
        assert_eq!(tried(128, &[100, 80, 300, 310, 310]).len(), 5, "one that is slow is not the end");
        assert_eq!(tried(6, &[100, 200, 400]), [(1, 100), (2, 200), (4, 400)]);
        assert_eq!(tried(1, &[100]), [(1, 100)]);
        assert!(climb(128, |_| Ok(None)).unwrap().is_none());
    }

    #[test]
    fn two_files_are_read_side_by_side_and_stay_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let [disk, ssd, svg] = ["disk", "ssd", "chart.svg"].map(|name| dir.path().join(name));
        file(&disk, 1 << 20);
        file(&ssd, 100_000);
        let args = |path: &Path| RandreadArgs {
            threads: 2,
            options: quick(Some(svg.clone())),
            path: path.to_owned(),
            other: Some(ssd.clone()),
        };
        run(&args(&disk)).unwrap();
        let drawn = std::fs::read_to_string(&svg).unwrap();
        assert!(["disk, 1", "disk, best", "ssd, 1", "ssd, best"].iter().all(|name| drawn.contains(name)), "{drawn}");
        assert_eq!(std::fs::read(&disk).unwrap(), vec![7; 1 << 20]);
        assert!(run(&args(&dir.path().join("none"))).unwrap_err().contains("none"));

        let targets = [ReadTarget::open(&disk).unwrap(), ReadTarget::open(&ssd).unwrap()];
        let is_interrupted = AtomicBool::new(false);
        let pace = quick(None).pace(&is_interrupted);
        let row = measure_size(&targets, 1 << 20, 4, pace).unwrap().unwrap();
        assert!(row.climbs[1].is_none(), "it is not as large");
        let climb = row.climbs[0].as_ref().unwrap();
        assert!(climb.has_repeated && climb.tried.iter().map(|measured| measured.count).sum::<u64>() >= 7);
        is_interrupted.store(true, Ordering::Relaxed);
        assert!(measure_size(&targets, 4096, 4, pace).unwrap().is_none());
    }
}
