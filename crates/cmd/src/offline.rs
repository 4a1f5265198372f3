//! Commands that read files out of a pool's devices directly: no pool process, no mount, no root.
//!
//! ```text
//!   ls  cat  cp  stat          one file each: arguments, and what is done with them
//!        │
//!   target                     POOL[/DS][@SNAP]:/PATH, and the opened pool behind it
//!   tree                       folders in byte order, everything once
//!   dedup                      what deduplication would save, of a whole pool
//! ```
//!
//! Each goes on after what it cannot read, says where that is, and ends with exit code 1.

mod cat;
mod cp;
mod dedup;
mod ls;
mod stat;
mod target;
pub(crate) mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::output;
pub use target::{Opener, PoolArgs, Target};

/// `cenote ls`.
pub fn ls(args: &[OsString]) -> ExitCode {
    run(args, ls::run)
}

/// `cenote cat`.
pub fn cat(args: &[OsString]) -> ExitCode {
    run(args, cat::run)
}

/// `cenote cp`.
pub fn cp(args: &[OsString]) -> ExitCode {
    run(args, cp::run)
}

/// `cenote stat`.
pub fn stat(args: &[OsString]) -> ExitCode {
    run(args, stat::run)
}

/// `cenote dedup`.
pub fn dedup(args: &[OsString]) -> ExitCode {
    run(args, dedup::run)
}

/// Reads the arguments and runs a command, which tells whether all went well.
fn run<A: Parser>(args: &[OsString], command: impl Fn(A) -> bool) -> ExitCode {
    match output::parse_args(args) {
        Err(code) => code,
        Ok(args) => match command(args) {
            true => ExitCode::SUCCESS,
            false => output::FAILED.into(),
        },
    }
}
