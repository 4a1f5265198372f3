//! What to measure, and how results are told.

use std::fmt::Display;
use std::time::Instant;

use base::{Error, Kind, Result};

pub(crate) const USAGE: &str =
    "usage: engine-bench -d DIR [-s MiB] [-T seq,rand,tap,l2arc,objects,files,sync,dedup,ddt] [-c off,lzjb,lz4,gzip-1,...]
                    [-r RATIOS] [-a ARC-MiB] [-v VDEV] [-n PEER]
                    [-l LOG] [-z SYNC-SIZES] [-j THREADS] [-t SECONDS] [-C CACHE] [-b BLOCK-SIZES]
-d  folder for the vdev file; -v names a ready file or block device instead, which is overwritten
-a  RAM for the cache while reading, and while ddt writes with a table of ten times that; while others write the engine has
    its own limit
-l  a ready file or block device that becomes the log device of sync; -C  one that becomes the cache device of l2arc
-t  seconds for each size and number of threads of rand, tap, l2arc and sync; -b  bytes of the blocks of l2arc";

/// What to measure, and on what.
pub(crate) struct Options {
    /// Folder of the vdev file.
    pub(crate) dir: String,
    /// MiB of the file that is written and read.
    pub(crate) mib: u64,
    pub(crate) tests: String,
    pub(crate) compressions: String,
    pub(crate) ratios: String,
    /// MiB of cache for reading.
    pub(crate) arc_mib: u64,
    /// A ready vdev instead of one in `dir`.
    pub(crate) vdev: Option<String>,
    /// A ready log device.
    pub(crate) log: Option<String>,
    /// A ready cache device.
    pub(crate) cache: Option<String>,
    /// Bytes of the blocks that do not fit in the cache.
    pub(crate) blocks: String,
    /// Bytes of synchronous writes.
    pub(crate) sizes: String,
    /// How many write at once.
    pub(crate) threads: String,
    /// How long each size is measured.
    pub(crate) seconds: f64,
    /// Its name in the results.
    pub(crate) peer: String,
}

/// Reads a command line.
pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Option<Options> {
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

impl Options {
    /// Prints a result; `params` is the inside of a JSON object.
    pub(crate) fn emit(&self, test: &str, params: &str, value: f64, unit: impl Display) {
        let peer = &self.peer;
        println!(
            "{{\"peer\":\"{peer}\",\"test\":\"{test}\",\"params\":{{{params}}},\"value\":{value:.6},\"unit\":\"{unit}\"}}"
        );
    }
}

/// Numbers with commas between them, none of them 0.
pub(crate) fn parse_numbers(text: &str) -> Result<Vec<u64>> {
    let invalid = || Error::new(Kind::Invalid, format!("no list of numbers: {text}"));
    text.split(',').map(|word| word.parse().ok().filter(|n| *n > 0).ok_or_else(invalid)).collect()
}

/// Seconds that `work` takes.
pub(crate) fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}
