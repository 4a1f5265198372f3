//! Traces: generated ones, and those that others have recorded, read by `trace`.

use std::collections::HashMap;
use std::path::Path;

use trace::{TraceError, TraceFormat, TraceReader};

/// Bytes of a block where a trace does not tell.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// The generated ones.
pub(crate) const GENERATED: [&str; 5] = ["loop", "zipf", "zipf+scan", "shift", "mixed"];
/// Requests of a generated trace.
const REQUESTS: usize = 1_000_000;

/// One access.
pub(crate) struct Access {
    pub(crate) key: u64,
    pub(crate) bytes: u64,
    /// Nanoseconds since the first one, if the trace has times.
    pub(crate) time_ns: Option<u64>,
}

/// A list of accesses.
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) requests: Vec<Access>,
    /// Bytes of all its keys.
    pub(crate) footprint: u64,
    /// Bytes of the largest.
    pub(crate) largest: u64,
}

impl Trace {
    /// A key keeps the size that it first has.
    fn new(name: &str, mut requests: Vec<Access>) -> Trace {
        let mut sizes = HashMap::new();
        for request in &mut requests {
            request.bytes = *sizes.entry(request.key).or_insert(request.bytes.max(1));
        }
        let (footprint, largest) = (sizes.values().sum(), sizes.values().max().copied().unwrap_or(0));
        Trace { name: name.to_owned(), requests, footprint, largest }
    }
}

/// A generated trace by its name, or a file: `FORMAT:FILE`, or `FILE` in a format that can be found. Requests are cut into
/// blocks of so many bytes; 0: into none.
pub(crate) fn open(what: &str, block_bytes: u64) -> Result<Trace, TraceError> {
    if let Some(trace) = generate(what, REQUESTS) {
        return Ok(trace);
    }
    let named = what.split_once(':').and_then(|(name, path)| Some((TraceFormat::named(name)?, path)));
    let (format, path) = named.map_or((None, what), |(format, path)| (Some(format), path));
    let reader = TraceReader::open(Path::new(path), format)?;
    let block_bytes = if reader.format().has_keys() { 0 } else { block_bytes };
    let mut requests = Vec::new();
    for request in reader {
        let request = request?;
        if request.op.has_bytes() {
            let time_ns = request.time_ns;
            requests.extend(request.blocks(block_bytes).map(|(key, bytes)| Access { key, bytes, time_ns }));
        }
    }
    Ok(Trace::new(path.rsplit('/').next().unwrap_or(path), requests))
}

fn one(key: u64, bytes: Option<u64>) -> Access {
    Access { key, bytes: bytes.unwrap_or(BLOCK_BYTES), time_ns: None }
}

/// A generated trace of about so many requests: the same one each time.
pub(crate) fn generate(name: &str, requests: usize) -> Option<Trace> {
    let mut chance = Chance(1);
    let keys = requests / 20;
    let zipf = Zipf::new(keys, 0.9);
    let mut list = Vec::with_capacity(requests);
    match name {
        // all keys in turn
        "loop" => list.extend((0..requests).map(|i| one((i % keys) as u64, None))),
        "zipf" => list.extend((0..requests).map(|_| one(zipf.draw(&mut chance), None))),
        // the same, and now and then a file as large as all of them, never read again
        "zipf+scan" => {
            let mut fresh = 1 << 40;
            while list.len() < requests {
                list.extend((0..4 * keys).map(|_| one(zipf.draw(&mut chance), None)));
                for _ in 0..keys {
                    list.push(one(fresh, None));
                    list.push(one(zipf.draw(&mut chance), None));
                    fresh += 1;
                }
            }
        }
        // what is hot moves on
        "shift" => list.extend((0..requests).map(|i| {
            let moved = (i / (requests / 50) * keys / 100) as u64;
            one((zipf.draw(&mut chance) + moved) % (2 * keys as u64), None)
        })),
        // blocks of 512 B to 1 MiB
        "mixed" => list.extend((0..requests).map(|_| {
            let key = zipf.draw(&mut chance);
            one(key, Some(512 << (Chance(key).next() % 12)))
        })),
        _ => return None,
    }
    Some(Trace::new(name, list))
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// Keys of which the n-th is asked for as often as 1/n^exponent.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let add = |n: usize| {
            sum += (n as f64).powf(-exponent);
            sum
        };
        Zipf { sums: (1..=keys.max(1)).map(add).collect() }
    }

    /// A key, its rank scrambled away: neighbours are not hot together.
    fn draw(&self, chance: &mut Chance) -> u64 {
        let all = self.sums.last().copied().unwrap_or(1.0);
        let at = chance.next() as f64 / u64::MAX as f64 * all;
        let rank = self.sums.partition_point(|sum| *sum < at).min(self.sums.len() - 1);
        (rank * 7919 % self.sums.len()) as u64
    }
}
