//! `cenote bench`: how fast things are, measured the way a pool would use them.
//!
//! - [`sync`]: synchronous writes, of a file system or of a device that may become a log
//! - [`randread`]: random reads of one device, or of two side by side
//! - [`measure`]: how any of them measures; [`options`]: what any can be told; [`random`]: places and bytes

pub mod measure;
pub mod options;
pub mod random;
pub mod randread;
pub mod sync;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::output;

/// Measure file systems and devices
#[derive(clap::Parser)]
#[command(name = "cenote bench", no_binary_name = true)]
enum BenchArgs {
    Sync(sync::SyncArgs),
    Randread(randread::RandreadArgs),
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    output::run_command("bench", args, |args| match args {
        BenchArgs::Sync(args) => sync::run(&args),
        BenchArgs::Randread(args) => randread::run(&args),
    })
}
