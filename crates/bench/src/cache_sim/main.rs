//! cache-sim: hit ratios of the cache's policy and of textbook ones, on traces.
//!
//! ```text
//!   traces   generated ones, and those that others have recorded
//!      └──▶ policies   LRU, ARC, 2Q, S3-FIFO as their papers have them, and `arc::policy`
//!              └──▶ table: hits in percent of the requests, at several sizes of the cache
//! ```
//!
//! With `-f` what is foretold in miniature stands beside what whole caches do (`judge`).
//! A trace is replayed for each size and policy alone; nothing is read or written but the trace.

mod judge;
mod policies;
mod queue;
mod traces;

use std::process::ExitCode;

use policies::{NAMES, Simulated};
use traces::{Access, Trace};

const USAGE: &str = "usage: cache-sim [-s PERCENT,...] [-p POLICY,...] [-b BYTES] [TRACE...]
       cache-sim -f [-r RATE] [-b BYTES] [TRACE...]
TRACE is loop, zipf, zipf+scan, shift or mixed, which are generated (all of them if there is none), or a file as
'cenote trace show' knows them: FILE, or FORMAT:FILE; - is standard input.
-s  sizes of the cache, in percent of what the trace touches (0.5,1,2,5,10,20,50)
-p  policies: lru, arc, 2q, s3-fifo, cenote, cenote-N for N shards (all, with 32 shards)
-b  blocks that requests are cut into (4096); 0: each request is about one object at its place
-f  judge what 'cenote advise cache' foretells, at its 24 sizes, by the whole caches
-r  requests a second of traces without times (1000)";

fn main() -> ExitCode {
    let Some(plan) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let SimPlan { sizes, names, traces, block_bytes, judges, rate } = plan;
    if judges {
        println!("{}", judge::HEAD);
    } else {
        println!("| trace | requests | cache | {} |\n|---|--:|--:|{}", names.join(" | "), "--:|".repeat(names.len()));
    }
    for name in traces {
        match traces::open(&name, block_bytes) {
            Ok(trace) if judges => judge::judge(&trace, rate),
            Ok(trace) => measure(&trace, &sizes, &names),
            Err(error) => {
                eprintln!("cache-sim: {name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// What is asked for.
struct SimPlan {
    sizes: Vec<f64>,
    names: Vec<String>,
    traces: Vec<String>,
    block_bytes: u64,
    judges: bool,
    rate: u64,
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<SimPlan> {
    let mut plan = SimPlan {
        sizes: vec![0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0],
        names: NAMES.map(str::to_owned).into(),
        traces: Vec::new(),
        block_bytes: traces::BLOCK_BYTES,
        judges: false,
        rate: 1000,
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-s" => plan.sizes = args.next()?.split(',').map(|word| word.parse().ok()).collect::<Option<_>>()?,
            "-p" => plan.names = args.next()?.split(',').map(str::to_owned).collect(),
            "-b" => plan.block_bytes = args.next()?.parse().ok()?,
            "-r" => plan.rate = args.next()?.parse().ok().filter(|rate| *rate > 0)?,
            "-f" => plan.judges = true,
            "-" => plan.traces.push(arg),
            _ if arg.starts_with('-') => return None,
            _ => plan.traces.push(arg),
        }
    }
    if plan.traces.is_empty() {
        plan.traces = traces::GENERATED.map(str::to_owned).into();
    }
    let known = plan.names.iter().all(|name| policies::new(name, 1).is_some());
    known.then_some(plan)
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
