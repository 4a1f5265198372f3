//! `cenote trace`: traces of requests, recorded, replayed, shown, and in other formats.

mod input;
mod names;
mod record;
mod replay;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base::Shown;
use protocol::words::nicenum::{nicebytes, nicenum};
use serde_json::{Value, json};
use trace::{Footprint, TraceError, TraceFormat, TraceOp, TraceReader, TraceRequest, TraceWriter};

use crate::output;
use input::word;
pub use input::{format_of, open, said, tell_backwards};

/// Bytes of the blocks that are counted.
const BLOCK_BYTES: u64 = 4096;
/// Streams that are counted.
const STREAMS_MAX: usize = 1 << 16;

/// Record, replay, show and convert traces of requests
///
/// Files may be compressed by zstd; - is standard input. Formats: arc (of the ARC paper), lines (a key a line), u32 (keys),
/// blktrace (as blkparse reads it), msr (MSR Cambridge), vscsi1, vscsi2 and vscsi-csv (CloudPhysics), alibaba, tencent,
/// oracleGeneral (libCacheSim), cenote (what record writes). They are found by how a file begins, but for u32.
#[derive(clap::Parser)]
#[command(name = "cenote trace", no_binary_name = true)]
enum TraceArgs {
    Record(record::RecordTraceArgs),
    Replay(replay::ReplayTraceArgs),
    /// Show what a trace has
    Show(ShowTraceArgs),
    /// Write a trace in another format, to standard output
    Convert(ConvertTraceArgs),
}

#[derive(clap::Args)]
struct ShowTraceArgs {
    /// The trace
    file: PathBuf,
    /// Its format
    #[arg(long, value_parser = format_of)]
    format: Option<TraceFormat>,
    /// Print so many requests, not what all have in common
    #[arg(short = 'n', long)]
    requests: Option<u64>,
    /// Print the names of files, as far as the trace has them: dataset, object, name
    #[arg(long, conflicts_with_all = ["requests", "json"])]
    names: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ConvertTraceArgs {
    /// The trace
    file: PathBuf,
    /// Its format
    #[arg(long, value_parser = format_of)]
    format: Option<TraceFormat>,
    /// The other format: alibaba, tencent, msr, vscsi-csv, arc, lines or cenote
    #[arg(long, value_parser = format_of)]
    to: TraceFormat,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    output::run_command("trace", args, |args| match args {
        TraceArgs::Record(args) => record::run(&args),
        TraceArgs::Replay(args) => replay::run(&args),
        TraceArgs::Show(args) => show(&args),
        TraceArgs::Convert(args) => convert(&args),
    })
}

fn show(args: &ShowTraceArgs) -> Result<(), String> {
    let mut reader = open(&args.file, args.format)?;
    if let Some(most) = args.requests {
        return list(&args.file, reader.by_ref().take(usize::try_from(most).unwrap_or(usize::MAX)));
    }
    if args.names {
        return list_names(&args.file, &mut reader);
    }
    let mut sum = TraceSum::default();
    let block_bytes = if reader.format().has_keys() { 0 } else { BLOCK_BYTES };
    let outcome = reader.by_ref().try_for_each(|request| request.map(|request| sum.add(&request, block_bytes)));
    sum.names = reader.names().count();
    match args.json {
        true => println!("{}", sum.json(reader.format())),
        false => print!("{}", sum.text(reader.format())),
    }
    tell_backwards("trace", &args.file, &reader);
    outcome.map_err(|error| said(&args.file, &error))
}

/// The names of files, one a line. What an attacker calls a file does nothing to the terminal.
fn list_names(file: &Path, reader: &mut TraceReader) -> Result<(), String> {
    let outcome = reader.by_ref().try_for_each(|request| request.map(drop));
    let mut out = output::stdout();
    let written = |error: std::io::Error| format!("writing output: {error}");
    writeln!(out, "STREAM OBJECT NAME").map_err(written)?;
    for (stream, object, name) in reader.names().iter() {
        writeln!(out, "{stream} {object} {}", Shown(name)).map_err(written)?;
    }
    out.flush().map_err(written)?;
    outcome.map_err(|error| said(file, &error))
}

/// Requests, one a line.
fn list(file: &Path, requests: impl Iterator<Item = Result<TraceRequest, TraceError>>) -> Result<(), String> {
    let mut out = output::stdout();
    let written = |error: std::io::Error| format!("writing output: {error}");
    writeln!(out, "SECONDS OP STREAM OBJECT OFFSET BYTES").map_err(written)?;
    for request in requests {
        let request = request.map_err(|error| said(file, &error))?;
        let seconds = request.time_ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.6}", ns as f64 / 1e9));
        let TraceRequest { op, stream, object, offset, bytes, .. } = request;
        writeln!(out, "{seconds} {} {stream} {object} {offset} {bytes}", word(op)).map_err(written)?;
    }
    out.flush().map_err(written)
}

fn convert(args: &ConvertTraceArgs) -> Result<(), String> {
    let mut reader = open(&args.file, args.format)?;
    let writer = TraceWriter::new(reader.format(), args.to, output::stdout());
    let mut writer = writer.map_err(|error| said(&args.file, &error))?;
    for request in reader.by_ref() {
        let written = request.and_then(|request| writer.write(&request));
        written.map_err(|error| said(&args.file, &error))?;
    }
    let left_out = writer.finish().map_err(|error| said(&args.file, &error))?;
    tell_backwards("trace", &args.file, &reader);
    if left_out > 0 {
        output::complain("trace", format_args!("{left_out} requests that neither read nor write were left out"));
    }
    Ok(())
}

/// What the requests of a trace have in common.
#[derive(Default)]
struct TraceSum {
    /// By operation: requests and their bytes.
    counts: [[u64; 2]; TraceOp::ALL.len()],
    streams: HashSet<(u64, u64)>,
    /// The end of the last request of a trace with times.
    elapsed_ns: Option<u64>,
    offset_max: u64,
    touched: Footprint,
    /// Names of files.
    names: usize,
}

impl TraceSum {
    fn add(&mut self, request: &TraceRequest, block_bytes: u64) {
        let [count, bytes] = &mut self.counts[request.op as usize];
        (*count, *bytes) = (*count + 1, bytes.saturating_add(request.bytes));
        if self.streams.len() < STREAMS_MAX {
            self.streams.insert((request.stream, request.object));
        }
        self.elapsed_ns = request.time_ns.or(self.elapsed_ns);
        self.offset_max = self.offset_max.max(request.offset);
        if request.op.has_bytes() {
            request.blocks(block_bytes).for_each(|(block, bytes)| self.touched.add(block, bytes));
        }
    }

    fn text(&self, format: TraceFormat) -> String {
        let mut text = format!("format     {}\n", format.name());
        for op in TraceOp::ALL {
            let [count, bytes] = self.counts[op as usize];
            text += &format!("{:10} {}, {}\n", format!("{}s", word(op)), nicenum(count), nicebytes(bytes));
        }
        let more = if self.streams.len() < STREAMS_MAX { "" } else { " or more" };
        text += &format!("streams    {}{more}\n", self.streams.len());
        let time = self.elapsed_ns.map_or_else(|| "none".to_owned(), |ns| format!("{:.3} s", ns as f64 / 1e9));
        let (blocks, bytes) = (nicenum(self.touched.blocks()), nicebytes(self.touched.bytes()));
        text += &format!("time       {time}\ntouched    {blocks} blocks, {bytes}\nlast       {}\n", self.offset_max);
        if self.names > 0 {
            text += &format!("names      {}, which --names prints\n", self.names);
        }
        text
    }

    fn json(&self, format: TraceFormat) -> Value {
        let count =
            |op: TraceOp| json!({ "requests": self.counts[op as usize][0], "bytes": self.counts[op as usize][1] });
        json!({
            "format": format.name(),
            "reads": count(TraceOp::Read),
            "writes": count(TraceOp::Write),
            "syncs": count(TraceOp::Sync),
            "others": count(TraceOp::Other),
            "streams": self.streams.len(),
            "elapsed_ns": self.elapsed_ns,
            "touched_blocks": self.touched.blocks(),
            "touched_bytes": self.touched.bytes(),
            "offset_max": self.offset_max,
            "names": self.names,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_summed() {
        let text = "1,R,0,8192,1000000\n2,W,4096,512,3500000\n1,R,0,4096,3000000\n";
        let reader = TraceReader::new(Box::new(std::io::Cursor::new(text)), None).unwrap();
        let mut sum = TraceSum::default();
        reader.for_each(|request| sum.add(&request.unwrap(), BLOCK_BYTES));
        let value = sum.json(TraceFormat::Alibaba);
        assert_eq!(value["reads"], json!({ "requests": 2, "bytes": 12_288 }));
        assert_eq!((&value["streams"], &value["elapsed_ns"]), (&json!(2), &json!(2_500_000_000u64)));
        assert_eq!((&value["touched_blocks"], &value["offset_max"]), (&json!(3), &json!(4096)));
        let text = sum.text(TraceFormat::Alibaba);
        assert!(
            text.contains("format     alibaba\nreads      2, 12K\n") && text.contains("time       2.500 s"),
            "{text}"
        );
    }

    #[test]
    fn fuzzed_traces() {
        for first in 0..=13u8 {
            for rest in ["1,R,0,8192,1000000\n2,W,4096,512,3500000\n", "1 1 0 0\n", "", "\u{0}\u{0}\u{0}\u{0}"] {
                crate::fuzzing::traces(&[&[first], rest.as_bytes()].concat());
            }
        }
    }
}
