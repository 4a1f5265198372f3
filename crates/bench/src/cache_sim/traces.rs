//! Traces: generated ones, and the formats that public ones come in.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read, Result};

/// Bytes of a block where a trace does not tell.
const BLOCK_BYTES: u64 = 4096;

/// The generated ones.
pub(crate) const GENERATED: [&str; 5] = ["loop", "zipf", "zipf+scan", "shift", "mixed"];
/// Requests of a generated trace.
const REQUESTS: usize = 1_000_000;

/// One access.
pub(crate) struct Access {
    pub(crate) key: u64,
    pub(crate) bytes: u64,
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

/// A generated trace by its name, or `FORMAT:FILE`.
pub(crate) fn open(what: &str) -> Result<Trace> {
    if let Some(trace) = generate(what, REQUESTS) {
        return Ok(trace);
    }
    let invalid = |what: &str| Error::new(ErrorKind::InvalidInput, what.to_owned());
    let (format, path) = what.split_once(':').ok_or_else(|| invalid("neither a generated trace nor FORMAT:FILE"))?;
    let mut bytes = Vec::new();
    match path {
        "-" => std::io::stdin().read_to_end(&mut bytes)?,
        _ => std::fs::File::open(path)?.read_to_end(&mut bytes)?,
    };
    let name = path.rsplit('/').next().unwrap_or(path);
    let text = || String::from_utf8_lossy(&bytes);
    let requests = match format {
        "lines" => text().lines().filter_map(|line| numbers(line).map(|n| one(n[0], n.get(1)))).collect(),
        "arc" => text().lines().filter_map(numbers).flat_map(|n| run(&n)).collect(),
        "u32" => bytes.as_chunks::<4>().0.iter().map(|word| one(u32::from_le_bytes(*word).into(), None)).collect(),
        "vscsi-csv" => text().lines().filter_map(command).collect(),
        _ => return Err(invalid("unknown format")),
    };
    Ok(Trace::new(name, requests))
}

/// The numbers that a line begins with; `None` if there are none.
fn numbers(line: &str) -> Option<Vec<u64>> {
    let found: Vec<u64> = line.split([' ', '\t', ',']).map_while(|word| word.parse().ok()).collect();
    (!found.is_empty()).then_some(found)
}

/// A line `version,time,op,bytes,block`.
fn command(line: &str) -> Option<Access> {
    let mut words = line.split(',').skip(3).map(|word| word.parse().ok());
    let (bytes, block): (Option<u64>, Option<u64>) = (words.next()?, words.next()?);
    Some(Access { key: block?, bytes: bytes? })
}

fn one(key: u64, bytes: Option<&u64>) -> Access {
    Access { key, bytes: bytes.copied().unwrap_or(BLOCK_BYTES) }
}

fn run(line: &[u64]) -> Vec<Access> {
    let count = line.get(1).copied().unwrap_or(1).min(1 << 20);
    (0..count).map(|i| one(line[0].wrapping_add(i), None)).collect()
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
            one(key, Some(&(512 << (Chance(key).next() % 12))))
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
