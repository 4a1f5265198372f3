//! cache-sim: hit ratios of the cache's policy and of textbook ones, on traces.
//!
//! ```text
//!   traces   generated ones, and files in the formats that public traces come in
//!      └──▶ policies   LRU, ARC, 2Q, S3-FIFO as their papers have them, and `arc::policy`
//!              └──▶ table: hits in percent of the requests, at several sizes of the cache
//! ```
//!
//! A trace is replayed for each size and policy alone; nothing is read or written but the trace.

mod policies;
mod queue;
mod traces;

use std::process::ExitCode;

use policies::{NAMES, Simulated};
use traces::{Access, Trace};

const USAGE: &str = "usage: cache-sim [-s PERCENT,...] [-p POLICY,...] [TRACE...]
TRACE is loop, zipf, zipf+scan, shift or mixed, which are generated (all of them if there is none), or
FORMAT:FILE with FORMAT
  lines      a key a line, then perhaps its bytes
  arc        first block and number of blocks in a line, as the ARC paper's traces
  u32        32-bit little-endian keys
  vscsi-csv  version,time,op,bytes,block
a FILE of - is standard input.
-s  sizes of the cache, in percent of what the trace touches (0.5,1,2,5,10,20,50)
-p  policies: lru, arc, 2q, s3-fifo, cenote, cenote-N for N shards (all, with 32 shards)";

fn main() -> ExitCode {
    let Some((sizes, names, traces)) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    println!("| trace | requests | cache | {} |\n|---|--:|--:|{}", names.join(" | "), "--:|".repeat(names.len()));
    for name in traces {
        match traces::open(&name) {
            Ok(trace) => measure(&trace, &sizes, &names),
            Err(error) => {
                eprintln!("cache-sim: {name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

type SimPlan = (Vec<f64>, Vec<String>, Vec<String>);

fn parse(mut args: impl Iterator<Item = String>) -> Option<SimPlan> {
    let mut sizes = vec![0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0];
    let mut names: Vec<String> = NAMES.map(str::to_owned).into();
    let mut files = Vec::new();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-s" => sizes = args.next()?.split(',').map(|word| word.parse().ok()).collect::<Option<_>>()?,
            "-p" => names = args.next()?.split(',').map(str::to_owned).collect(),
            _ if arg.starts_with('-') => return None,
            _ => files.push(arg),
        }
    }
    if files.is_empty() {
        files = traces::GENERATED.map(str::to_owned).into();
    }
    let known = names.iter().all(|name| policies::new(name, 1).is_some());
    known.then_some((sizes, names, files))
}

/// A row of the table for each size.
fn measure(trace: &Trace, sizes: &[f64], names: &[String]) {
    for percent in sizes {
        let bytes = (trace.footprint as f64 * percent / 100.0) as u64;
        if bytes < trace.largest {
            continue;
        }
        let ratios: Vec<String> = names
            .iter()
            .filter_map(|name| policies::new(name, bytes))
            .map(|mut policy| format!("{:.2}", hits_percent(&mut *policy, &trace.requests)))
            .collect();
        println!("| {} | {} | {percent} % | {} |", trace.name, trace.requests.len(), ratios.join(" | "));
    }
}

fn hits_percent(policy: &mut dyn Simulated, requests: &[Access]) -> f64 {
    let hits = requests.iter().filter(|request| policy.request(request.key, request.bytes)).count();
    100.0 * hits as f64 / requests.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The measure of the policy: on no generated trace and at no size it is a point below ARC.
    #[test]
    fn never_a_point_below_arc() {
        for name in traces::GENERATED {
            let trace = traces::generate(name, 60_000).expect("a known name");
            for percent in [2, 10, 30] {
                let bytes = (trace.footprint * percent / 100).max(trace.largest);
                let [ours, theirs] = ["cenote", "arc"]
                    .map(|policy| hits_percent(&mut *policies::new(policy, bytes).expect("known"), &trace.requests));
                assert!(ours > theirs - 1.0, "{name} at {percent} %: {ours:.2}, ARC {theirs:.2}");
            }
        }
    }
}
