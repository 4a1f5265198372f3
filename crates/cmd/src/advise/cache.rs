//! `cenote advise cache`: what a cache of another size in RAM, or a cache device, would serve.
//!
//! ```text
//!   trace ─▶ requests ─▶ blocks ─▶ arc::miniature: twelve sizes of each ─▶ show: table, JSON
//!   pool in use, live ─────▶ blocks ─┘                                 └▶ verdict: words
//! ```

mod answer;
mod live;
mod show;
#[cfg(test)]
mod tests;
mod verdict;

use std::path::{Path, PathBuf};
use std::time::Duration;

use arc::miniature::{AccessKind, BlockAccess, Foretold, Miniature, MiniaturePlan};
use arc::policy::Contents;
use base::Env;
use l2arc::Tunables;
use trace::{Footprint, TraceFormat, TraceOp, TraceReader, TraceRequest};

use super::sizes::{block_size, bytes};
use crate::taps::watch_time;
use crate::traces::{format_of, open, said, tell_backwards};
use answer::CacheAnswer;

/// The part of what a trace touches that the cache has, if nobody says.
const RAM_PART: u64 = 16;
const SECOND_NS: u64 = 1_000_000_000;

/// Say what a larger cache in RAM, or a cache device, would serve of the reads of a pool in use, or in a trace
///
/// The cache's own policy and the feeder of its cache devices run in miniature, at twelve sizes of each, on blocks that
/// are drawn by hash; LRU is what a plain LRU cache would serve. BETWEEN holds the truth 19 times of 20. DISK READS are
/// those a second that are left for the disks. WRITES are what goes to the device in a day, as the tunables of this
/// machine say, INDEX the memory that knowing its blocks takes. A trace knows only what reached the place where it was
/// recorded: what a page cache served above it is not in it. A pool is watched for the time of --for, or until interrupted,
/// and says how much of it a page cache may hide; watch it over a time that is typical, as a working day.
#[derive(clap::Parser)]
#[command(name = "cenote advise cache", no_binary_name = true)]
pub struct CacheArgs {
    /// The pool, which is in use
    #[arg(required_unless_present = "trace", conflicts_with = "trace")]
    pool: Option<String>,
    /// How long it is watched, as 90, 10m or 2h; without it, until interrupted
    #[arg(long = "for", value_name = "TIME", value_parser = watch_time, conflicts_with = "trace")]
    time: Option<Duration>,
    /// A trace instead, as `cenote trace show` knows it; - is standard input
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Its format
    #[arg(long, value_parser = format_of, requires = "trace")]
    format: Option<TraceFormat>,
    /// The cache in RAM, to which devices are added; without it the pool's, or a sixteenth of what the trace touches
    #[arg(long, value_parser = bytes)]
    ram: Option<u64>,
    /// Blocks that requests are cut into: the volblocksize or recordsize of the pool
    #[arg(long, default_value = "4K", value_parser = block_size)]
    block: u64,
    /// Requests a second, if the trace has no times
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: u64,
    /// Blocks of the sample at most
    #[arg(long, default_value_t = arc::miniature::SAMPLE_BLOCKS as u64, value_parser = clap::value_parser!(u64).range(1024..=1 << 24))]
    blocks: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &CacheArgs) -> Result<(), String> {
    let answer = match (&args.pool, &args.trace) {
        (Some(pool), _) => live::watch(pool, args.time, (args.ram, args.blocks))?,
        (None, Some(trace)) => of_trace(trace, args)?,
        (None, None) => return Err("neither a pool nor a trace".to_owned()),
    };
    match args.json {
        true => println!("{}", answer.json()),
        false => print!("{}", answer.text()),
    }
    Ok(())
}

fn of_trace(trace: &Path, args: &CacheArgs) -> Result<CacheAnswer, String> {
    let ram = match args.ram {
        Some(ram) => ram,
        None if trace.as_os_str() == "-" => return Err("--ram is needed for what is read only once".to_owned()),
        None => (touched(trace, args)? / RAM_PART).max(args.block),
    };
    let mut reader = open(trace, args.format)?;
    let plan = MiniaturePlan { blocks_max: args.blocks as usize, ..MiniaturePlan::around(ram) };
    let has_times = !matches!(reader.format(), TraceFormat::Arc | TraceFormat::Lines | TraceFormat::U32);
    let foretold = foretell(trace, &mut reader, args, plan)?;
    tell_backwards("advise", trace, &reader);
    Ok(CacheAnswer { ram, foretold, assumed_rate: (!has_times).then_some(args.rate), live: None })
}

fn block_bytes(reader: &TraceReader, args: &CacheArgs) -> u64 {
    if reader.format().has_keys() { 0 } else { args.block }
}

/// Bytes of all blocks of the trace.
fn touched(trace: &Path, args: &CacheArgs) -> Result<u64, String> {
    let reader = open(trace, args.format)?;
    let (mut footprint, block) = (Footprint::default(), block_bytes(&reader, args));
    for request in reader {
        let request = request.map_err(|error| said(trace, &error))?;
        if request.op.has_bytes() {
            request.blocks(block).for_each(|(block, bytes)| footprint.add(block, bytes));
        }
    }
    Ok(footprint.bytes())
}

/// What the sizes of a plan would do with all requests of a trace.
fn foretell(file: &Path, reader: &mut TraceReader, args: &CacheArgs, plan: MiniaturePlan) -> Result<Foretold, String> {
    let mut miniature = Miniature::split(plan, Tunables::of(&Env::real()));
    let block = block_bytes(reader, args);
    for (number, request) in reader.by_ref().enumerate() {
        let request = request.map_err(|error| said(file, &error))?;
        let untimed = || (number as u128 * u128::from(SECOND_NS) / u128::from(args.rate)) as u64;
        take(&mut miniature, &request, request.time_ns.unwrap_or_else(untimed), block);
    }
    Ok(miniature.foretold())
}

/// The accesses to blocks that a request comes to.
fn take(miniature: &mut Miniature, request: &TraceRequest, time_ns: u64, block_bytes: u64) {
    let kind = match request.op {
        TraceOp::Read => AccessKind::Demand,
        TraceOp::Write => AccessKind::Written,
        TraceOp::Sync | TraceOp::Other => return,
    };
    for (block, bytes) in request.blocks(block_bytes) {
        miniature.access(&BlockAccess { time_ns, block, bytes, contents: Contents::Data, kind });
    }
}
