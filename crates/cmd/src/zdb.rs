//! `cenote zdb`: looks into a pool in the manner of zdb, and verifies every block of it.
//!
//! - `args`: the command line, in zdb's flags.
//! - `blocks`: `-b` and `-c`, the full check.
//! - `label`: `-l`; `config`: `-C` and `-u`; `dataset`, `object`: `-d`; `dedup`: `-D` and `-S`.
//! - `text`: how block pointers and name-value lists are written.
//!
//! Output goes the way of zdb 2.1, of dedup tables that of 2.4, as far as scripts and readers go by it. Exit codes are
//! zdb's: 1 if it could not begin, 2 for leaks, 3 for blocks that cannot be read.

mod args;
mod blocks;
mod config;
mod dataset;
mod dedup;
mod label;
mod object;
pub mod text;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use base::{Env, Error, Kind, Result};
use pool::{Candidate, OpenOptions, Pool, Rewind};

pub use self::args::ZdbArgs;
pub use self::dataset::accounting_or_object;
pub use self::object::ObjectPrinter;
use crate::output;
use protocol::client;
use protocol::wire::{PoolReply, Request};

/// Exit code: the pool could not be opened, or the command line makes no sense.
const FAILED: u8 = 1;

/// Runs the command; `args` are those behind its name.
pub fn run(args: &[OsString]) -> ExitCode {
    let args = match ZdbArgs::parse(args) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(what) => {
            eprint!("zdb: {what}\n{}", args::USAGE);
            return FAILED.into();
        }
    };
    let mut out = output::for_people();
    let result = look(&args, &mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    match result {
        Ok(code) => code.into(),
        Err(e) => {
            // what was found comes before what was not
            let _ = out.flush();
            eprintln!("zdb: {e}");
            FAILED.into()
        }
    }
}

fn look(args: &ZdbArgs, out: &mut dyn Write) -> Result<u8> {
    if args.labels > 0 {
        return label::print(args, out);
    }
    let target = args.operands.first().map(String::as_str).unwrap_or_default();
    let pool = open(args, target)?;
    let dataset = target.strip_suffix('/').unwrap_or(target);
    if dataset != target || dataset.contains(['/', '@']) {
        let name = format!("{}{}", pool.name(), &dataset[pool_part(dataset).len()..]);
        return dataset::print_one(args, &pool, &name, &args.operands[1..], out);
    }
    if args.simulated > 0 {
        dedup::print_simulated(&pool, out)?;
        return Ok(0);
    }
    if args.config > 0 {
        config::print_config(&pool, out)?;
    }
    if args.uberblock > 0 {
        config::print_uberblock(args, &pool, out)?;
    }
    if args.dedup > 0 {
        dedup::print(args, &pool, out)?;
    }
    if args.datasets > 0 {
        dataset::print_all(args, &pool, &args.operands[1..], out)?;
    }
    let mut code = 0;
    if args.blocks > 0 || args.checksums > 0 {
        code = blocks::print(args, &pool, out)?;
    }
    if code == 0 {
        config::print_checkpoint(args, &pool, out)?;
    }
    Ok(code)
}

fn open(args: &ZdbArgs, target: &str) -> Result<Arc<Pool>> {
    let env = Env::real();
    let name = pool_part(target);
    let search = if args.search.is_empty() { known_places(name) } else { args.search.clone() };
    let found = pool::discover(&env, &search)?;
    let candidate = Candidate::pick(&Candidate::all(&found), name).map_err(|e| match e.kind() {
        Kind::NotFound => Error::new(Kind::NotFound, format!("can't open '{target}': No such file or directory")),
        _ => e,
    })?;
    let rewind = match args.txg_max {
        Some(txg) => Rewind::AtMost(txg),
        None if args.rewind => Rewind::Recover,
        None => Rewind::Newest,
    };
    Pool::open(&env, &candidate, &OpenOptions { rewind, ..OpenOptions::default() }).map(Arc::new)
}

/// The devices of a pool that is imported, as its process tells; else where disks are.
fn known_places(pool: &str) -> Vec<PathBuf> {
    let told = client::connect(pool).ok().flatten().and_then(|mut process| process.ask(&Request::Report).ok());
    let paths: Vec<PathBuf> = match told {
        Some(PoolReply::Report(report)) => {
            report.root.all().into_iter().filter_map(|vdev| vdev.path.as_ref()).map(PathBuf::from).collect()
        }
        _ => Vec::new(),
    };
    let there: Vec<PathBuf> = paths.into_iter().filter(|path| path.exists()).collect();
    if there.is_empty() { vec![PathBuf::from("/dev")] } else { there }
}

/// The pool in the name of a dataset.
fn pool_part(target: &str) -> &str {
    target.split(['/', '@']).next().unwrap_or_default()
}
