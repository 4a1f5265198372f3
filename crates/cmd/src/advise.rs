//! `cenote advise`: answers before one buys.
//!
//! - [`layout`]: what pools some disks can be, and what each is worth
//! - [`compression`]: what compressions would make of files, by blocks drawn at random ([`sample`]), with how far off that
//!   may be ([`ratio`]); [`priority`]: draws by weight
//! - [`dedup`]: whether to turn dedup on
//! - [`recordsize`]: what records of other sizes would take, read and write
//! - [`slog`]: whether a device is worth being a pool's log
//! - [`cache`]: what a cache of another size, or a cache device, would serve
//! - [`special`]: what a special vdev would hold
//! - [`whole`]: all of that for a pool, the best first
//! - [`subject`]: pools, datasets and folders that are asked about; [`files`]: the files of a folder
//! - [`verdict`]: what advice comes to; [`sizes`]: sizes in words and figures

mod cache;
mod compression;
mod dedup;
mod files;
mod layout;
mod priority;
pub mod ratio;
mod recordsize;
mod sample;
pub mod sizes;
pub mod slog;
mod special;
mod subject;
mod verdict;
mod whole;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::output;

/// Say what would pay, and what would not; `cenote advise POOL` says all that it can of a pool
#[derive(clap::Parser)]
#[command(name = "cenote advise", no_binary_name = true)]
enum AdviseArgs {
    Layout(layout::LayoutArgs),
    Compression(compression::CompressionArgs),
    Dedup(dedup::DedupAdviceArgs),
    Recordsize(recordsize::RecordsizeArgs),
    Special(special::SpecialArgs),
    Slog(slog::SlogArgs),
    Cache(cache::CacheArgs),
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    match is_of_pool(args) {
        true => output::run_command("advise", args, |args| whole::run(&args)),
        false => output::run_command("advise", args, |args| run_one(&args)),
    }
}

/// Whether a pool stands where the name of an advice would be, or options that only the advice for a pool has.
fn is_of_pool(args: &[OsString]) -> bool {
    let Some(first) = args.first() else { return false };
    let command = AdviseArgs::command();
    let is_advice = command.get_subcommands().any(|advice| advice.get_name() == first) || first == "help";
    !is_advice && first != "-h" && first != "--help" && first != "-V"
}

fn run_one(args: &AdviseArgs) -> Result<(), String> {
    match args {
        AdviseArgs::Layout(args) => layout::run(args),
        AdviseArgs::Compression(args) => compression::run(args),
        AdviseArgs::Dedup(args) => dedup::run(args),
        AdviseArgs::Recordsize(args) => recordsize::run(args),
        AdviseArgs::Special(args) => special::run(args),
        AdviseArgs::Slog(args) => slog::run(args),
        AdviseArgs::Cache(args) => cache::run(args),
    }
}
