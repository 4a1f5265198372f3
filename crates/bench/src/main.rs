//! engine-bench: measures the engine without FUSE, sockets or any other process.
//!
//! It is the counterpart of `bench/peers/libzpool-bench.c`, which measures OpenZFS's engine: the same
//! tests, sizes, data and vdev files, and the same JSON lines, so that `bench/engine` can set the two side
//! by side. What only one of them measures (`rewrite`, `object-stat`, `file-*` here) stands alone.
//!
//! ```text
//!   main   options, JSON lines     data   the bytes that are written
//!      └─ seq, rand, objects, sync, dedup ▶ bed   a pool on one vdev: made, emptied from caches, opened again
//! ```
//!
//! Writing is measured until all of it is durable. Cold is after export, with the vdev's pages dropped.
//! What stays different: Cenote reads and writes a vdev file past the page cache, libzpool through it, with
//! an fsync at the end (of a block device, both go past it); and pools that are written to have a cache of
//! their own size here, so that `-a` counts for reading only.

mod bed;
mod data;
mod dedup;
mod objects;
mod options;
mod rand;
mod seq;
mod sync;
mod tap;

use std::process::ExitCode;

use base::{Error, Kind, Result};

use bed::Bed;
use options::{Options, USAGE, parse};

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

fn run(options: &Options) -> Result<()> {
    let bed = Bed::new(options)?;
    for test in options.tests.split(',') {
        match test {
            "seq" => seq::run(options, &bed)?,
            "rand" => rand::run_rand(options, &bed)?,
            "tap" => tap::run_tap(options, &bed)?,
            "l2arc" => rand::run_l2arc(options, &bed)?,
            "objects" => objects::run_objects(options, &bed)?,
            "sync" => sync::run(options, &bed)?,
            "dedup" => dedup::run(options, &bed)?,
            "ddt" => dedup::run_large(options, &bed)?,
            "files" => objects::run_files(options, &bed)?,
            _ => return Err(Error::new(Kind::Invalid, format!("no such test: {test}"))),
        }
    }
    bed.remove(options)
}
