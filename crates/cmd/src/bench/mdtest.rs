//! `cenote bench mdtest`: processes make, look at and remove names together, as mdtest of the IO500 does, in its output's form.

use std::path::PathBuf;

use protocol::words::time;

use super::name_task::NameOrder;
use super::phase::LoadPhase;
use super::tasks::{LoadProcesses, TaskOrder};
use super::told_table::{Spread, free_line};

/// Have processes make, look at and remove files and folders together: the options and the output of mdtest
///
/// The processes are of this host, or in turn of the hosts that --via reaches. Without -C, -T and -r all of that is done;
/// without -F and -D, with files and folders. What is looked at has to be what was made.
#[derive(clap::Args)]
pub struct MdtestArgs {
    /// Files and folders of each process
    #[arg(short = 'n', default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    items: u64,
    /// A folder of its own for each process
    #[arg(short)]
    unique: bool,
    /// Only files
    #[arg(short = 'F')]
    files: bool,
    /// Only folders
    #[arg(short = 'D')]
    folders: bool,
    /// Only make them, and leave them there
    #[arg(short = 'C')]
    create: bool,
    /// Only look at them
    #[arg(short = 'T')]
    stat: bool,
    /// Only remove them
    #[arg(short)]
    remove: bool,
    /// How often all is done
    #[arg(short = 'i', default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    iterations: u64,
    /// Each process looks at what the one so many behind it made
    #[arg(short = 'N', default_value_t = 0)]
    stride: u64,
    /// Processes
    #[arg(long = "tasks", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4096))]
    tasks: u64,
    /// What reaches a host, as 'ssh HOST'; as often as there are hosts
    #[arg(long, value_name = "CMD")]
    via: Vec<String>,
    /// The folder
    #[arg(short = 'd', value_name = "FOLDER")]
    root: PathBuf,
}

impl MdtestArgs {
    /// What is done, in its order, and how it is called.
    fn phases(&self) -> Vec<(&'static str, LoadPhase)> {
        let does = |one: bool| one || !(self.create || self.stat || self.remove);
        let with_folders = self.folders || !self.files;
        let with_files = self.files || !self.folders;
        let all = [
            (does(self.create), true, "Tree creation", LoadPhase::MakeTree),
            (does(self.create), with_folders, "Directory creation", LoadPhase::CreateFolders),
            (does(self.stat), with_folders, "Directory stat", LoadPhase::StatFolders),
            (does(self.remove), with_folders, "Directory removal", LoadPhase::RemoveFolders),
            (does(self.create), with_files, "File creation", LoadPhase::CreateFiles),
            (does(self.stat), with_files, "File stat", LoadPhase::StatFiles),
            (does(self.stat), with_files, "File read", LoadPhase::ReadFiles),
            (does(self.remove), with_files, "File removal", LoadPhase::RemoveNames),
            (does(self.remove), true, "Tree removal", LoadPhase::RemoveTree),
        ];
        all.into_iter().filter(|(does, has, ..)| *does && *has).map(|(_, _, name, phase)| (name, phase)).collect()
    }
}

/// Runs the command.
pub fn run(args: &MdtestArgs) -> Result<(), String> {
    let order = |rank: u64| {
        let looks_at = (rank + args.stride) % args.tasks;
        TaskOrder::Names(NameOrder { root: args.root.clone(), unique: args.unique, items: args.items, rank, looks_at })
    };
    let mut tasks = LoadProcesses::start(args.tasks, &args.via, order)?;
    let command = std::env::args().collect::<Vec<String>>().join(" ");
    let root = args.root.display().to_string();
    println!(
        "-- started at {} --\n\ncenote bench mdtest, in the form of mdtest-4.0.0, was launched with {} total task(s) on {} node(s)\n\
         Command line used: {command}\nPath                : {root}\nFS                  : {}\n\n{} tasks, {} files/directories",
        time::local(time::now(), c"%m/%d/%Y %H:%M:%S"),
        args.tasks,
        tasks.hosts,
        free_line(&root),
        args.tasks,
        args.items * args.tasks,
    );
    let phases = args.phases();
    let mut rates: Vec<Spread> = phases.iter().map(|(name, _)| Spread::new(name)).collect();
    for _ in 0..args.iterations {
        for ((name, phase), rate) in phases.iter().zip(&mut rates) {
            let time = tasks.phase(*phase).map_err(|why| format!("{name}: {why}"))?;
            let count: u64 = time.told.iter().map(|told| told.count).sum();
            rate.add(count as f64 / time.seconds, time.seconds);
        }
    }
    println!("\nSUMMARY rate: (of {} iterations)", args.iterations);
    println!("   Operation                     Max            Min           Mean        Std Dev");
    println!("   ---------                     ---            ---           ----        -------");
    for rate in &rates {
        let (most, least, mean, spread) = (rate.most(), rate.least(), rate.mean(), rate.deviation());
        println!("   {:22} {most:14.3} {least:14.3} {mean:14.3} {spread:14.3}", rate.name);
    }
    println!("-- finished at {} --", time::local(time::now(), c"%m/%d/%Y %H:%M:%S"));
    Ok(())
}
