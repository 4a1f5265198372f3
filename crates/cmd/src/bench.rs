//! `cenote bench`: how fast things are, measured the way a pool would use them.
//!
//! - [`sync`]: synchronous writes, of a file system or of a device that may become a log
//! - [`randread`]: random reads of one device, or of two side by side
//! - `ior`, `mdtest`: data and names of many processes, of several hosts: `tasks`; `io_task`, `name_task`: what each does;
//!   `placed`: bytes that tell their place; `told_table`: what is printed
//! - [`measure`]: how any of them measures; [`options`]: what any can be told; [`random`]: places and bytes

mod io_task;
mod ior;
mod mdtest;
pub mod measure;
mod name_task;
pub mod options;
mod phase;
pub mod placed;
pub mod random;
pub mod randread;
pub mod sync;
mod tasks;
mod told_table;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::output;

/// Measure file systems and devices
#[derive(clap::Parser)]
#[command(name = "cenote bench", no_binary_name = true)]
enum BenchArgs {
    Sync(sync::SyncArgs),
    Randread(randread::RandreadArgs),
    Ior(ior::IorArgs),
    Mdtest(mdtest::MdtestArgs),
    #[command(hide = true)]
    Task(tasks::TaskArgs),
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    output::run_command("bench", args, |args| match args {
        BenchArgs::Sync(args) => sync::run(&args),
        BenchArgs::Randread(args) => randread::run(&args),
        BenchArgs::Ior(args) => ior::run(&args),
        BenchArgs::Mdtest(args) => mdtest::run(&args),
        BenchArgs::Task(args) => tasks::run(&args),
    })
}
