//! `cenote trace replay`: the requests of a trace again, in their order and at their pace, elsewhere.
//!
//! ```text
//!   trace ─▶ plan: files, their ends, what is read of them ─▶ place: made and filled
//!   trace ─▶ play: each request when it is due ─▶ threads ─▶ place: read, write, sync ─▶ times
//! ```

mod place;
mod plan;
mod play;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use protocol::words::nicenum::{nicebytes, nicenum, nicetime};
use serde_json::{Value, json};
use trace::{TraceFormat, TraceOp};

use super::input::{format_of, open, said, word};
use crate::bench::measure::percentile;
use crate::output;
use place::ReplayPlace;
use plan::ReplayPlan;
use play::{ReplayPace, ReplaySums, play};

/// Do the requests of a trace again, in their order and at their pace
///
/// Each begins when it did in the trace, whether those before have ended or not, unless --threads are under way already. A
/// folder gets a new file for each file or volume of the trace, named by the numbers of its dataset and object; a blank
/// device or file has all of them one behind the other, and requests are whole sectors of 4 KiB there. What the trace reads
/// is written before it begins, with bytes that cannot be compressed. LATE is how much later than due requests began.
#[derive(clap::Args)]
pub struct ReplayTraceArgs {
    /// The trace, read twice
    file: PathBuf,
    /// Where to do it
    #[arg(long, value_name = "FOLDER|DEVICE")]
    at: PathBuf,
    /// So many times as fast
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Requests under way at once, at most
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Its format
    #[arg(long, value_parser = format_of)]
    format: Option<TraceFormat>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|speed| (0.001..=1e6).contains(speed));
    parsed.ok_or_else(|| "not a number from 0.001 to 1000000".to_owned())
}

/// Runs the command. Errors: for the user.
pub fn run(args: &ReplayTraceArgs) -> Result<(), String> {
    if args.file.as_os_str() == "-" {
        return Err("a trace that is replayed is read twice: standard input cannot be".to_owned());
    }
    let reader = open(&args.file, args.format)?;
    if reader.format().has_keys() {
        return Err(said(
            &args.file,
            &trace::TraceError::new("it has keys, and no places that could be read or written"),
        ));
    }
    let plan = ReplayPlan::of(reader).map_err(|error| said(&args.file, &error))?;
    let is_interrupted = output::interruption();
    let place = ReplayPlace::prepare(&args.at, &plan, &is_interrupted)?;
    let pace = ReplayPace { speed: args.speed, threads: args.threads as usize, is_interrupted: &is_interrupted };
    let replayed = play(open(&args.file, args.format)?, &place, pace).map_err(|error| said(&args.file, &error))?;
    match args.json {
        true => println!("{}", json_of(&replayed)),
        false => print!("{}", text_of(&replayed)),
    }
    match (replayed.first_error, is_interrupted.load(Ordering::SeqCst)) {
        (Some(error), _) => Err(format!("{} requests failed; the first: {error}", replayed.failed)),
        (None, true) => Err("interrupted".to_owned()),
        (None, false) => Ok(()),
    }
}

/// Times as people read them.
const SHOWN: [(&str, usize); 3] = [("p50", 500), ("p99", 990), ("p99.9", 999)];

fn text_of(replayed: &ReplaySums) -> String {
    let mut text =
        format!("{:6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "OP", "COUNT", "BYTES", "p50", "p99", "p99.9", "MAX");
    let row = |name: &str, count: String, bytes: String, sorted_ns: &[u64]| {
        let times = SHOWN.map(|(_, per_mille)| nicetime(percentile(sorted_ns, per_mille)));
        let most = nicetime(sorted_ns.last().copied().unwrap_or(0));
        let [p50, p99, p999] = times;
        format!("{name:6} {count:>8} {bytes:>8} {p50:>8} {p99:>8} {p999:>8} {most:>8}\n")
    };
    for op in [TraceOp::Read, TraceOp::Write, TraceOp::Sync] {
        let sum = &replayed.ops[op as usize];
        text += &row(word(op), nicenum(sum.count), nicebytes(sum.bytes), &sum.sorted_ns);
    }
    text += &row("LATE", String::new(), String::new(), &replayed.late_ns);
    let [took, due] = [replayed.elapsed_ns, replayed.due_ns].map(nicetime);
    text += &format!("{took}, where {due} were due\n");
    if replayed.passed > 0 {
        text += &format!("{} requests that neither read, write nor sync were passed over\n", nicenum(replayed.passed));
    }
    text
}

fn json_of(replayed: &ReplaySums) -> Value {
    let times = |sorted_ns: &[u64]| {
        let mut all = json!({ "max_ns": sorted_ns.last().copied().unwrap_or(0) });
        for (name, per_mille) in SHOWN {
            all[format!("{name}_ns")] = percentile(sorted_ns, per_mille).into();
        }
        all
    };
    let mut all = json!({
        "late": times(&replayed.late_ns),
        "elapsed_ns": replayed.elapsed_ns,
        "due_ns": replayed.due_ns,
        "failed": replayed.failed,
        "passed_over": replayed.passed,
    });
    for op in [TraceOp::Read, TraceOp::Write, TraceOp::Sync] {
        let sum = &replayed.ops[op as usize];
        let counts = json!({ "count": sum.count, "bytes": sum.bytes, "times": times(&sum.sorted_ns) });
        all[format!("{}s", word(op))] = counts;
    }
    all
}
