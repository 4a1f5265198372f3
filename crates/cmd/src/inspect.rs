//! `cenote inspect`: what is on the devices, structure by structure.
//!
//! ```text
//!   labels  uberblocks           devices: by device, whether or not a pool can be opened
//!   config  datasets             pools
//!   mos  objects                 objects, as zdb prints them
//!   log                          records of intent logs
//!   block                        bytes at an address
//! ```
//!
//! Everything is shown as it is found, with what is wrong with it; an unreadable part does not hide
//! the others.

mod args;
mod block;
mod devices;
mod json;
mod log;
mod objects;
mod pools;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use base::Result;

use crate::offline::Opener;
use crate::output::{self, complain};
use args::{DeviceArgs, LogArgs, ObjectArgs, PoolsArgs};

/// Show what is on the devices of pools that are not imported
#[derive(clap::Parser)]
#[command(name = "cenote inspect", no_binary_name = true)]
struct InspectArgs {
    #[command(subcommand)]
    what: InspectCommand,
}

#[derive(clap::Subcommand)]
enum InspectCommand {
    /// The four labels of each device
    Labels(DeviceArgs),
    /// The uberblocks in the rings of each device, and which is in force
    Uberblocks(DeviceArgs),
    /// The configuration of pools, from their labels and from the MOS
    Config(PoolsArgs),
    /// Datasets and snapshots with their records
    Datasets(PoolsArgs),
    /// Objects of the pool itself
    Mos(ObjectArgs),
    /// Objects of a dataset
    Objects(ObjectArgs),
    /// Intent logs, record by record
    #[command(alias = "zil", long_flag = "zil")]
    Log(LogArgs),
    /// Bytes at an address
    Block(block::BlockArgs),
}

/// Runs the command; `args` are those behind its name.
pub fn run(args: &[OsString]) -> ExitCode {
    let args = match output::parse_args::<InspectArgs>(args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    let mut out: Box<dyn Write> = match &args.what {
        // as they are on disk
        InspectCommand::Block(_) => Box::new(output::stdout()),
        _ => Box::new(output::for_people()),
    };
    let result = show(&args.what, &mut *out);
    let flushed = output::written("inspect", out.flush());
    match result {
        Ok(true) if flushed => ExitCode::SUCCESS,
        Ok(_) => output::FAILED.into(),
        Err(e) => {
            complain("inspect", e);
            output::FAILED.into()
        }
    }
}

/// Whether everything could be shown.
fn show(what: &InspectCommand, out: &mut dyn Write) -> Result<bool> {
    match what {
        InspectCommand::Labels(args) => devices::labels(args, &mut Opener::new(&args.pool), out),
        InspectCommand::Uberblocks(args) => devices::uberblocks(args, &mut Opener::new(&args.pool), out),
        InspectCommand::Config(args) => pools::config(args, &mut Opener::new(&args.pool), out),
        InspectCommand::Datasets(args) => pools::datasets(args, &mut Opener::new(&args.pool), out),
        InspectCommand::Mos(args) => objects::print(args, true, &mut Opener::new(&args.pool), out),
        InspectCommand::Objects(args) => {
            objects::print(args, false, &mut Opener::new(&args.pool).with_keys(&args.keys), out)
        }
        InspectCommand::Log(args) => log::print(args, &mut Opener::new(&args.pool).with_keys(&args.keys), out),
        InspectCommand::Block(args) => block::print(args, &mut Opener::new(&args.pool), out),
    }
}
