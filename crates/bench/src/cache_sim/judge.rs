//! What is foretold in miniature, beside what whole caches do, at all its sizes.
//!
//! In RAM, the whole cache is the policy as `policies` has it; with a device, it is the same simulation as the foretelling,
//! of all blocks.

use arc::miniature::{AccessKind, BlockAccess, Foretold, HitShare, Miniature, MiniaturePlan};
use arc::policy::Contents;
use base::Env;
use l2arc::Tunables;

use crate::hits_percent;
use crate::policies;
use crate::traces::Trace;

/// The head of the table.
pub(crate) const HEAD: &str =
    "| trace | cache | MiB | whole | foretold | 95 % between | error |\n|---|---|--:|--:|--:|--:|--:|";
/// The part of what a trace touches that the cache in RAM has.
const RAM_PART: u64 = 16;
const MIB: f64 = (1 << 20) as f64;

/// Rows of a table for a trace, and its errors.
pub(crate) fn judge(trace: &Trace, rate: u64) {
    let ram = (trace.footprint / RAM_PART).max(trace.largest);
    let began = std::time::Instant::now();
    let plan = MiniaturePlan::around(ram);
    let foretold = foretell(trace, rate, Miniature::split(plan, tunables()));
    let took = began.elapsed();
    let around = MiniaturePlan::around(ram);
    // caches in RAM are judged by other code
    let plan = MiniaturePlan { blocks_max: usize::MAX, rams: Vec::new(), ..around };
    let whole = foretell(trace, rate, Miniature::new(plan, tunables()));
    let (mut errors, mut held) = (Vec::new(), 0);
    let mut row = |kind: &str, bytes: u64, truth: f64, hits: HitShare| {
        let error = hits.value - truth;
        println!(
            "| {} | {kind} | {:.1} | {truth:.4} | {:.4} | {:.4} to {:.4} | {error:+.4} |",
            trace.name,
            bytes as f64 / MIB,
            hits.value,
            hits.low,
            hits.high,
        );
        errors.push(error.abs());
        held += u32::from(hits.low - 0.0001 <= truth && truth <= hits.high + 0.0001);
    };
    for one in &foretold.rams {
        let truth =
            policies::new("cenote", one.bytes).map_or(0.0, |mut whole| hits_percent(&mut *whole, &trace.requests));
        row("RAM", one.bytes, truth / 100.0, one.hits);
    }
    for (one, truth) in foretold.devices.iter().zip(&whole.devices) {
        row("device", one.bytes, truth.hits.value, one.hits);
    }
    let written = foretold.devices.iter().zip(&whole.devices).filter(|(_, truth)| truth.written > 0);
    let off = written.map(|(one, truth)| (one.written as f64 / truth.written as f64 - 1.0).abs()).fold(0.0, f64::max);
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    println!(
        "| {} | all | | | sample {} blocks, {:.4} | {held} of {} held | mean {mean:.4}, worst {worst:.4} |",
        trace.name,
        foretold.drawn_blocks,
        foretold.drawn_part,
        errors.len()
    );
    println!("| {} | writes | | | in {:.1} s | | worst {:.1} % |", trace.name, took.as_secs_f64(), off * 100.0);
}

fn tunables() -> Tunables {
    Tunables::of(&Env::fixed(0))
}

fn foretell(trace: &Trace, rate: u64, mut miniature: Miniature) -> Foretold {
    for (number, request) in trace.requests.iter().enumerate() {
        let time_ns = request.time_ns.unwrap_or(number as u64 * (1_000_000_000 / rate));
        let (block, bytes, kind) = (request.key, request.bytes, AccessKind::Demand);
        miniature.access(&BlockAccess { time_ns, block, bytes, contents: Contents::Data, kind });
    }
    miniature.foretold()
}
