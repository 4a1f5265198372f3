//! `cenote lab`: the studies that administrators ask for before they buy, by one command, and one report of them.
//!
//! ```text
//!   studies ─▶ settings: a pool or a device ─▶ cells: a figure, measured three times ─▶ journal ─▶ report
//!                  │ bed: makes and destroys it       │ loads: what is done there
//!                  └ devices: real ones, or emulated
//! ```
//!
//! - [`plan`], [`recipe`]: settings, how they are made, and cells; [`studies`]: each study's, and its chapter; [`seeds`]: figures of the
//!   papers that asked first; [`told`]: what was measured of a study; [`counters`]: of caches
//! - [`devices`], [`emulator`], [`place`], [`bed`], [`peer`], [`initiator`]: where cells are measured; [`loads`], [`tree`], [`fio`]: what is done there
//! - [`journal`]: which cells are finished, so that a lab that was killed goes on; [`figure`], [`report`]: how they are shown

mod bed;
mod counters;
mod devices;
mod emulator;
mod figure;
mod fio;
mod initiator;
mod journal;
mod loads;
mod machine;
mod peer;
mod place;
mod plan;
mod recipe;
mod report;
mod runner;
mod seeds;
mod studies;
#[cfg(test)]
mod tests;
mod told;
mod tree;
mod zfs_fuse;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::output;
use devices::LabDevices;
use journal::{LabIdentity, LabJournal};
use machine::Machine;
use place::LabPlace;
use plan::LabScale;
use runner::LabRun;
use studies::Study;

/// Run the studies, and write a report of them
///
/// Pools are made of the devices, one after the other, and measured; each figure at least three times. The report is
/// report.html (one file, no script, no network), report.json and cells.csv in the folder. A lab that was interrupted or
/// killed goes on where it was, when it is called again with the same words.
///
/// Devices have to be blank. A device that is mounted, in a pool, or has any data on it is refused. With --emulate,
/// disks and SSDs are emulated in memory, and the times are those of such devices.
#[derive(clap::Parser)]
#[command(name = "cenote lab", no_binary_name = true)]
struct LabArgs {
    /// The studies; all of them if none is named
    #[arg(value_name = "STUDY", value_enum)]
    studies: Vec<Study>,
    /// A blank disk; may be given several times
    #[arg(long, value_name = "DEVICE", conflicts_with = "emulate")]
    disk: Vec<PathBuf>,
    /// A blank SSD; may be given several times
    #[arg(long, value_name = "DEVICE", conflicts_with = "emulate")]
    ssd: Vec<PathBuf>,
    /// Emulate disks and SSDs
    #[arg(long)]
    emulate: bool,
    /// The folder of the journal and the report
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Few cells and little data: all studies in about four minutes
    #[arg(long)]
    short: bool,
    /// The files of the study `practice`; made ones if not given
    #[arg(long, value_name = "FOLDER")]
    tree: Option<PathBuf>,
    /// How often each figure is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=100))]
    runs: u32,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    output::run_command("lab", args, |args| lab(&args))
}

fn lab(args: &LabArgs) -> Result<(), String> {
    if !args.emulate && args.disk.is_empty() && args.ssd.is_empty() {
        return Err("there are no devices: give --disk and --ssd, or --emulate".to_owned());
    }
    let is_interrupted = output::interruption();
    let studies = if args.studies.is_empty() { Study::ALL.to_vec() } else { args.studies.clone() };
    let place = LabPlace::make(&args.out)?;
    let identity =
        LabIdentity::new(args.emulate, [&args.disk, &args.ssd], (args.short, args.runs), args.tree.as_deref())?;
    let mut journal = LabJournal::open(&place.journal(), &identity)?;
    place.clear()?;
    let mut devices = match args.emulate {
        true => LabDevices::emulated(&place)?,
        false => LabDevices::real(&place, [&args.disk, &args.ssd], journal.is_new())?,
    };
    journal.begin(&identity)?;
    let scale = LabScale::new(args.short, args.runs, args.tree.clone());
    let machine = Machine::here();
    let run = LabRun { place: &place, devices: &devices, scale: &scale, is_interrupted: &is_interrupted };
    let done = run.all(&studies, &mut journal);
    // in any case, the devices are let go before they go
    let cleared = place.clear();
    let blank = devices.end();
    done?;
    cleared.and(blank)?;
    let chapters = studies.iter().map(|study| study.chapter(&scale, journal.results(), &devices)).collect();
    report::write(&place, &report::LabReport::new(machine, &identity, chapters), journal.results())?;
    println!("{}", place.report().display());
    Ok(())
}
