//! engine-bench: measures the engine without FUSE, sockets or any other process.
//!
//! It is the counterpart of `bench/peers/libzpool-bench.c`, which measures OpenZFS's engine: the same
//! tests, sizes, data and vdev files, and the same JSON lines, so that `bench/engine` can set the two side
//! by side. What only one of them measures (`rewrite`, `object-stat`, `file-*` here) stands alone.
//!
//! ```text
//!   main   options, JSON lines     data   the bytes that are written
//!      └─ seq, rand, objects, sync ▶ bed   a pool on one vdev: made, emptied from caches, opened again
//! ```
//!
//! Writing is measured until all of it is durable. Cold is after export, with the vdev's pages dropped.
//! What stays different: Cenote reads and writes a vdev file past the page cache, libzpool through it, with
//! an fsync at the end (of a block device, both go past it); and pools that are written to have a cache of
//! their own size here, so that `-a` counts for reading only.

mod bed;
mod data;
mod objects;
mod rand;
mod seq;
mod sync;

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Instant;

use base::{Error, Kind, Result};

use bed::Bed;

const USAGE: &str =
    "usage: engine-bench -d DIR [-s MiB] [-T seq,rand,l2arc,objects,files,sync] [-c off,lzjb,lz4,gzip-1,...]
                    [-r RATIOS] [-a ARC-MiB] [-v VDEV] [-n PEER]
                    [-l LOG] [-z SYNC-SIZES] [-j THREADS] [-t SECONDS] [-C CACHE] [-b BLOCK-SIZES]
-d  folder for the vdev file; -v names a ready file or block device instead, which is overwritten
-a  RAM for the cache while reading; while writing the engine has its own limit
-l  a ready file or block device that becomes the log device of sync; -C  one that becomes the cache device of l2arc
-t  seconds for each size and number of threads of rand, l2arc and sync; -b  bytes of the blocks of l2arc";

/// What to measure, and on what.
pub(crate) struct Options {
    /// Folder of the vdev file.
    dir: String,
    /// MiB of the file that is written and read.
    mib: u64,
    tests: String,
    compressions: String,
    ratios: String,
    /// MiB of cache for reading.
    arc_mib: u64,
    /// A ready vdev instead of one in `dir`.
    vdev: Option<String>,
    /// A ready log device.
    log: Option<String>,
    /// A ready cache device.
    cache: Option<String>,
    /// Bytes of the blocks that do not fit in the cache.
    blocks: String,
    /// Bytes of synchronous writes.
    sizes: String,
    /// How many write at once.
    threads: String,
    /// How long each size is measured.
    seconds: f64,
    /// Its name in the results.
    peer: String,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engine-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        dir: String::new(),
        mib: 1024,
        tests: "seq,objects,files".into(),
        compressions: "off,lzjb,lz4,gzip-1,gzip-6,zle,zstd".into(),
        ratios: "1,2".into(),
        arc_mib: 4096,
        vdev: None,
        log: None,
        cache: None,
        blocks: "16384".into(),
        sizes: "4096".into(),
        threads: "1,16".into(),
        seconds: 3.0,
        peer: "cenote".into(),
    };
    while let Some(name) = args.next() {
        let value = args.next()?;
        match name.as_str() {
            "-d" => options.dir = value,
            "-s" => options.mib = value.parse().ok()?,
            "-T" => options.tests = value,
            "-c" => options.compressions = value,
            "-r" => options.ratios = value,
            "-a" => options.arc_mib = value.parse().ok()?,
            "-v" => options.vdev = Some(value),
            "-C" => options.cache = Some(value),
            "-b" => options.blocks = value,
            "-l" => options.log = Some(value),
            "-z" => options.sizes = value,
            "-j" => options.threads = value,
            "-t" => options.seconds = value.parse().ok()?,
            "-n" => options.peer = value,
            _ => return None,
        }
    }
    (!options.dir.is_empty() && options.mib > 0).then_some(options)
}

fn run(options: &Options) -> Result<()> {
    let bed = Bed::new(options)?;
    for test in options.tests.split(',') {
        match test {
            "seq" => seq::run(options, &bed)?,
            "rand" => rand::run_rand(options, &bed)?,
            "l2arc" => rand::run_l2arc(options, &bed)?,
            "objects" => objects::run_objects(options, &bed)?,
            "sync" => sync::run(options, &bed)?,
            "files" => objects::run_files(options, &bed)?,
            _ => return Err(Error::new(Kind::Invalid, format!("no such test: {test}"))),
        }
    }
    bed.remove(options)
}

impl Options {
    /// Prints a result; `params` is the inside of a JSON object.
    fn emit(&self, test: &str, params: &str, value: f64, unit: impl Display) {
        let peer = &self.peer;
        println!(
            "{{\"peer\":\"{peer}\",\"test\":\"{test}\",\"params\":{{{params}}},\"value\":{value:.6},\"unit\":\"{unit}\"}}"
        );
    }
}

/// Numbers with commas between them, none of them 0.
fn parse_numbers(text: &str) -> Result<Vec<u64>> {
    let invalid = || Error::new(Kind::Invalid, format!("no list of numbers: {text}"));
    text.split(',').map(|word| word.parse().ok().filter(|n| *n > 0).ok_or_else(invalid)).collect()
}

/// Seconds that `work` takes.
fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}
