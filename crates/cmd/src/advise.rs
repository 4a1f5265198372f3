//! `cenote advise`: answers before one buys.
//!
//! - [`layout`]: what pools some disks can be, and what each is worth
//! - [`compression`]: what compressions would make of files, by blocks drawn at random ([`sample`]), with how far off that
//!   may be ([`ratio`])
//! - [`slog`]: whether a device is worth being a pool's log
//! - [`cache`]: what a cache of another size, or a cache device, would serve
//! - [`sizes`]: sizes in words and figures

mod cache;
mod compression;
mod layout;
mod ratio;
mod sample;
pub mod sizes;
pub mod slog;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::output;

/// Say what would pay, and what would not
#[derive(clap::Parser)]
#[command(name = "cenote advise", no_binary_name = true)]
enum AdviseArgs {
    Layout(layout::LayoutArgs),
    Compression(compression::CompressionArgs),
    Slog(slog::SlogArgs),
    Cache(cache::CacheArgs),
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    let outcome = match output::parse_args(args) {
        Ok(AdviseArgs::Layout(args)) => layout::run(&args),
        Ok(AdviseArgs::Compression(args)) => compression::run(&args),
        Ok(AdviseArgs::Slog(args)) => slog::run(&args),
        Ok(AdviseArgs::Cache(args)) => cache::run(&args),
        Err(code) => return code,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            output::complain("advise", why);
            output::FAILED.into()
        }
    }
}
