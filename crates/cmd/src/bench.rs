//! `cenote bench`: how fast things are, measured the way a pool would use them.
//!
//! - [`sync`]: synchronous writes, of a file system or of a device that may become a log
//! - [`plot`]: what any of them draws with

mod plot;
mod sync;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::output;

/// Measure file systems and devices
#[derive(clap::Parser)]
#[command(name = "cenote bench", no_binary_name = true)]
enum Args {
    Sync(sync::Args),
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    let outcome = match output::parse_args(args) {
        Ok(Args::Sync(args)) => sync::run(&args),
        Err(code) => return code,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            output::complain("bench", why);
            output::FAILED.into()
        }
    }
}
