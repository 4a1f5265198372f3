//! `cenote advise slog`: whether a device is worth being a pool's log.
//!
//! ```text
//!   guard: may it be overwritten?    says: what does it say of itself?    demand: what does the pool log?
//!             └──▶ rehearsal: what would the pool's synchronous writes take with it?
//!             └──▶ course: what is measured, by live ──▶ class: what kind of device is it? ──▶ verdict
//! ```

mod class;
mod course;
mod demand;
pub mod guard;
mod live;
mod rehearsal;
pub mod says;
mod show;
#[cfg(test)]
mod tests;
mod verdict;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use base::{Env, tunables};
use protocol::words::nicenum::nicebytes;

use super::sizes::bytes;
use crate::bench::measure::MeasureTime;
use crate::output;
use class::classify;
use course::{COURSE_S, FillLimit, measure_all};
pub use demand::{LOG_BYTES_MIN, LogDemand};
use guard::Overwrite;
use live::LiveDevice;
use says::Identity;

/// Bytes that fill a cache, unless something else is said; and how long that may take then.
const FILL_BYTES: u64 = 8 << 30;
const FILL_S: f64 = 40.0;
/// SPA_MINDEVSIZE.
const DEVICE_BYTES_MIN: u64 = 64 << 20;

/// Measure whether a device is worth being the log of a pool
///
/// Writes of 4 to 128 KiB, past the page cache and with a flush each, as a log makes them; bursts; and writes until the
/// cache is full. What is measured is compared with what the device says of its cache, and judged. A device that is
/// mounted, in a pool, has a partition table, a file system or any other data is refused, unless its serial number is
/// typed. The first 512 MiB of a blank device are written to, and are zeros again afterwards; the rest is only read.
/// Files can be measured, too: those of `cenote emulate` are devices to try it with.
#[derive(clap::Parser)]
#[command(name = "cenote advise slog", no_binary_name = true)]
pub struct SlogArgs {
    /// A blank disk, partition or file
    device: PathBuf,
    /// The pool that the log is for: what it logs, and how fast it is now
    #[arg(long = "for", value_name = "POOL")]
    pool: Option<String>,
    /// Bytes to write until the cache counts as full, however long that takes; 8G in 40 seconds without
    #[arg(long, value_parser = bytes)]
    fill: Option<u64>,
    /// Bytes that may be written in the life of the device, as its data sheet says
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    endurance: Option<u64>,
    /// Overwrite what is on the device; only together with --serial
    #[arg(short, long)]
    force: bool,
    /// The serial number of the device that is to be overwritten
    #[arg(long, value_name = "NUMBER")]
    serial: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command. Errors: for the user.
pub fn run(args: &SlogArgs) -> Result<(), String> {
    let path = &args.device;
    let identity = Identity::of(path);
    let overwrite = Overwrite { force: args.force, serial: args.serial.as_deref() };
    let (device, is_file) = guard::open(path, &identity, overwrite)?;
    let is_interrupted = output::interruption();
    let pace = MeasureTime { seconds: 1.0, is_interrupted: &is_interrupted };
    let mut demand = args.pool.as_deref().map(|pool| LogDemand::of(pool, pace)).transpose()?;
    let mut live = LiveDevice::new(device, is_file, &is_interrupted);
    if live.size() < DEVICE_BYTES_MIN {
        return Err(format!(
            "{}: smaller than {}, the least that a log needs",
            path.display(),
            nicebytes(DEVICE_BYTES_MIN)
        ));
    }
    let say = |text: &str| {
        if !args.json {
            print!("{text}");
        }
    };
    say(&beforehand(args));
    let began = Instant::now();
    let fills_holes = is_file && !identity.is_emulated;
    let measures = measured(args, &mut live, fills_holes, demand.as_mut(), &is_interrupted);
    let blank = live.make_blank();
    let measures = measures.map_err(|why| format!("{}: {why}", path.display()))?;
    blank?;
    let class = classify(&measures, &identity.says);
    let rated_bytes = args.endurance.or(identity.says.rated_bytes);
    let group_s = Env::real().tunable(tunables::ZFS_TXG_TIMEOUT);
    let verdict = verdict::judge(class, &measures, rated_bytes, demand.as_ref(), group_s);
    let report = show::SlogReport {
        device: path,
        size: live.size(),
        is_direct: live.is_direct(),
        identity: &identity,
        rated_bytes,
        measures: &measures,
        class,
        demand: demand.as_ref(),
        verdict: &verdict,
        seconds: began.elapsed().as_secs_f64(),
    };
    match args.json {
        true => println!("{}", report.json()),
        false => print!("{}", report.text()),
    }
    Ok(())
}

/// Measures; `fills_holes`: a file gets all of its blocks first.
fn measured(
    args: &SlogArgs,
    live: &mut LiveDevice<'_>,
    fills_holes: bool,
    demand: Option<&mut LogDemand>,
    is_interrupted: &AtomicBool,
) -> Result<course::SlogMeasures, String> {
    if fills_holes {
        live.fill_holes()?;
    }
    let limit = match args.fill {
        Some(bytes) => FillLimit { bytes, seconds: None },
        None => FillLimit { bytes: FILL_BYTES, seconds: Some(FILL_S) },
    };
    let mut say = |what: &str| {
        if !args.json && !is_interrupted.load(Ordering::Relaxed) {
            println!("  {what}");
        }
    };
    if let Some(demand) = demand.filter(|demand| demand.folder.is_some()) {
        say("a rehearsal of the pool's synchronous writes");
        rehearsal::rehearse(demand, live, MeasureTime { seconds: demand::POOL_S, is_interrupted })?;
    }
    measure_all(live, limit, &mut say)
}

/// How long it will take.
fn beforehand(args: &SlogArgs) -> String {
    let path = args.device.display();
    let fill = match args.fill {
        Some(bytes) => format!("as long as it takes to write {}", nicebytes(bytes)),
        None => format!("at most {FILL_S:.0} seconds to write up to {}", nicebytes(FILL_BYTES)),
    };
    let rehearsed = if args.pool.is_some() { demand::POOL_S * demand::COMMIT_LOADS.len() as f64 } else { 0.0 };
    format!(
        "{path}: this takes {:.0} seconds, and then, unless it is a disk, {fill}, less behind a cliff.\n\
         It is left with zeros where it was written to.\n",
        COURSE_S + rehearsed
    )
}
