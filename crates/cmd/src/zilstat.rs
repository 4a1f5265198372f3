//! `cenote zilstat`: what goes through the intent logs of imported pools, by interval or by transaction group,
//! and how large a log device has to be for it.
//!
//! The columns are those of Richard Elling's zilstat. `N` is what was to be logged, `B` the blocks that it was
//! put into; `Max-Rate` is the highest rate of about a second within the line. Blocks are counted by their size.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Mutex;
use clap::ValueEnum;
use format::ids::Txg;
use protocol::log_report::{LogReport, LogSums};
use protocol::wire;
use protocol::words::nicenum::nicebytes;
use protocol::words::time;

use crate::output;
use crate::zpool::command::Stop;
use crate::zpool::pools;

/// How long a rate is measured.
const SLICE: Duration = Duration::from_secs(1);
/// How often it is looked for groups that have ended.
const LOOK: Duration = Duration::from_millis(250);
/// Lines between two headings.
const PAGE: u64 = 20;
/// Log devices have this size at least: SPA_MINDEVSIZE.
const DEVICE_BYTES_MIN: u64 = 64 << 20;

/// Show what goes through intent logs, and how large a log device has to be for it
///
/// N-Bytes is what was to be logged, B-Bytes the log blocks that it was put into, and ops how many these are, then
/// by size. The rates are averages over the line, Max-Rate is that of its busiest second.
#[derive(clap::Parser)]
#[command(name = "cenote zilstat", no_binary_name = true)]
struct ZilstatArgs {
    /// A line for each interval, or for each transaction group
    #[arg(short = 't', value_enum, default_value_t = By::Interval)]
    by: By,
    /// Only this pool
    #[arg(short)]
    pool: Option<String>,
    /// Seconds between two lines
    #[arg(default_value_t = 1.0, value_parser = time::interval)]
    interval: f64,
    /// How many lines; without it, until interrupted
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    Txg,
    Interval,
}

/// One line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LogRow {
    sums: LogSums,
    seconds: f64,
    /// The highest rates of `used_bytes` and of `block_bytes`.
    most: [f64; 2],
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    let args: ZilstatArgs = match output::parse_args(args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    let heaviest = Arc::new(Mutex::new(None));
    advise_when_interrupted(&heaviest);
    let outcome = match args.by {
        By::Interval => by_interval(&args, &heaviest),
        By::Txg => by_txg(&args, &heaviest),
    };
    match outcome {
        Ok(()) => {
            println!("\n{}", advice(*heaviest.lock()));
            ExitCode::SUCCESS
        }
        Err(Stop::Failed(why) | Stop::Usage(why)) => {
            output::complain("zilstat", why);
            output::FAILED.into()
        }
    }
}

/// A signal ends the command as the last line does.
fn advise_when_interrupted(heaviest: &Arc<Mutex<Option<u64>>>) {
    let heaviest = heaviest.clone();
    output::on_interrupt(move || {
        println!("\n{}", advice(*heaviest.lock()));
        std::process::exit(0);
    });
}

/// The reports of the pools that are meant.
fn look(args: &ZilstatArgs, heaviest: &Mutex<Option<u64>>) -> Result<Vec<LogReport>, Stop> {
    let names: Vec<String> = args.pool.iter().cloned().collect();
    let mut failed = false;
    let mut reports = Vec::new();
    for mut open in pools::open(&names, &mut failed)? {
        match open.ask(&wire::Request::Logs) {
            Ok(wire::PoolReply::Logs(report)) => reports.push(report),
            // it is read-only
            Ok(_) => {}
            Err(why) => return Err(why),
        }
    }
    if reports.is_empty() {
        return Err(Stop::Failed("no pool that is written to".to_owned()));
    }
    let mut heaviest = heaviest.lock();
    *heaviest = reports.iter().filter_map(LogReport::heaviest_group).chain(*heaviest).max();
    Ok(reports)
}

fn by_interval(args: &ZilstatArgs, heaviest: &Mutex<Option<u64>>) -> Result<(), Stop> {
    let all = || -> Result<LogSums, Stop> {
        Ok(look(args, heaviest)?.iter().fold(LogSums::default(), |sums, report| sums.plus(&report.sums)))
    };
    let length = Duration::from_secs_f64(args.interval);
    let mut before = all()?;
    for number in 0..args.count.unwrap_or(u64::MAX) {
        let (begin, mut row, mut last) = (Instant::now(), LogRow::default(), before);
        while begin.elapsed() < length {
            let slice = Instant::now();
            std::thread::sleep(SLICE.min(length.saturating_sub(begin.elapsed())));
            let now = all()?;
            row.note(&now.since(&last), slice.elapsed().as_secs_f64());
            last = now;
        }
        (row.sums, row.seconds) = (last.since(&before), begin.elapsed().as_secs_f64());
        before = last;
        show(number, "", &row);
    }
    Ok(())
}

fn by_txg(args: &ZilstatArgs, heaviest: &Mutex<Option<u64>>) -> Result<(), Stop> {
    let mut follower: Option<LogFollower> = None;
    let mut number = 0;
    while args.count.is_none_or(|count| number < count) {
        let mut reports = look(args, heaviest)?;
        let (Some(report), true) = (reports.pop(), reports.is_empty()) else {
            return Err(Stop::Failed("groups are those of one pool: name it with -p".to_owned()));
        };
        let rows = match &mut follower {
            Some(follower) => follower.follow(&report),
            None => {
                follower = Some(LogFollower::new(&report));
                Vec::new()
            }
        };
        for (txg, row) in rows {
            if args.count.is_none_or(|count| number < count) {
                show(number, &format!("{txg:>10} "), &row);
                number += 1;
            }
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Makes rows of the groups that have ended since it was asked last.
struct LogFollower {
    last_txg: Txg,
    /// Times and sums: of the latest slices, of a second at least.
    slices: Vec<(u64, LogSums)>,
}

impl LogFollower {
    fn new(report: &LogReport) -> LogFollower {
        let last_txg = report.groups.last().map_or(Txg::ZERO, |group| group.txg);
        LogFollower { last_txg, slices: vec![(report.now_ns, report.sums)] }
    }

    fn follow(&mut self, report: &LogReport) -> Vec<(Txg, LogRow)> {
        let slice_ns = SLICE.as_nanos() as u64;
        if self.slices.last().is_none_or(|(at_ns, _)| report.now_ns.saturating_sub(*at_ns) >= slice_ns) {
            self.slices.push((report.now_ns, report.sums));
        }
        let ended: Vec<(Txg, LogRow)> = report
            .groups
            .windows(2)
            .filter(|pair| pair[1].txg > self.last_txg)
            .map(|pair| {
                let (from, to) = (&pair[0], &pair[1]);
                let seconds = to.at_ns.saturating_sub(from.at_ns) as f64 / 1e9;
                let mut row = LogRow { sums: to.sums.since(&from.sums), seconds, most: [0.0; 2] };
                let sums = row.sums;
                row.note(&sums, seconds);
                for slice in self.slices.windows(2).filter(|slice| slice[0].0 >= from.at_ns && slice[1].0 <= to.at_ns) {
                    row.note(&slice[1].1.since(&slice[0].1), (slice[1].0 - slice[0].0) as f64 / 1e9);
                }
                (to.txg, row)
            })
            .collect();
        if let Some(last) = report.groups.last() {
            self.last_txg = self.last_txg.max(last.txg);
            // one before the end may belong to the next group
            let old = self.slices.iter().filter(|(at_ns, _)| *at_ns < last.at_ns).count();
            self.slices.drain(..old.saturating_sub(1));
        }
        ended
    }
}

impl LogRow {
    /// Takes note of the rate within a part of it.
    fn note(&mut self, part: &LogSums, seconds: f64) {
        if seconds > 0.0 {
            let rates = [part.used_bytes, part.block_bytes].map(|bytes| bytes as f64 / seconds);
            self.most = [self.most[0].max(rates[0]), self.most[1].max(rates[1])];
        }
    }

    fn text(&self) -> String {
        let per_s = |bytes: u64| if self.seconds > 0.0 { (bytes as f64 / self.seconds) as u64 } else { 0 };
        let LogSums { used_bytes, block_bytes, blocks, by_size, .. } = self.sums;
        let [used, buffers] = [(used_bytes, self.most[0]), (block_bytes, self.most[1])]
            .map(|(bytes, most)| format!("{bytes:>10} {:>10} {:>10}", per_s(bytes), most as u64));
        format!("{used} {buffers} {blocks:>6} {:>6} {:>6} {:>6}", by_size[0], by_size[1], by_size[2])
    }
}

fn show(number: u64, before: &str, row: &LogRow) {
    if number.is_multiple_of(PAGE) {
        let name = if before.is_empty() { String::new() } else { format!("{:>10} ", "txg") };
        println!("{name}{}", heading());
    }
    println!("{before}{}", row.text());
}

fn heading() -> String {
    let [used, buffers] = ["N", "B"].map(|of| {
        format!("{:>10} {:>10} {:>10}", format!("{of}-Bytes"), format!("{of}-Bytes/s"), format!("{of}-Max-Rate"))
    });
    format!("{used} {buffers} {:>6} {:>6} {:>6} {:>6}", "ops", "<=4kB", "4-32kB", ">=32kB")
}

/// How large a log device has to be: what is logged stays there until its group is on disk, while the next ones
/// are logged.
fn advice(heaviest: Option<u64>) -> String {
    match heaviest {
        None => "No transaction group has ended yet: nothing can be said of the size of a log device.".to_owned(),
        Some(0) => "Nothing was logged in the latest transaction groups: no log device is needed for that.".to_owned(),
        Some(bytes) => {
            let [most, from, to] = [bytes, bytes.saturating_mul(2), bytes.saturating_mul(3)].map(nicebytes);
            let least = match bytes.saturating_mul(3) < DEVICE_BYTES_MIN {
                true => format!(" (the smallest that can be used has {})", nicebytes(DEVICE_BYTES_MIN)),
                false => String::new(),
            };
            format!(
                "The heaviest transaction group had {most} for the log: a log device for this load needs {from} to {to}{least}."
            )
        }
    }
}
