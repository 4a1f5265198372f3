//! `cenote bench ior`: processes write and read data together, as ior of the IO500 does; its own parsers take what is printed.

use std::time::{SystemTime, UNIX_EPOCH};

use protocol::words::time;

use super::io_task::IoOrder;
use super::phase::{LoadPhase, PhaseTold};
use super::tasks::{LoadProcesses, PhaseTime, TaskOrder};
use super::told_table::{Spread, binary_bytes, free_line, machine};
use crate::advise::sizes;

const MIB: f64 = 1_048_576.0;

/// Have processes write and read data together: the options and the output of ior
///
/// Every process writes its part, of a file of its own or of one that all share, and reads it, or another one's, back. The
/// processes are of this host, or in turn of the hosts that --via reaches. Bytes belong to their place in their file, so
/// that -W and -R find those that are anywhere else; --ratio says how well they compress.
#[derive(clap::Args)]
pub struct IorArgs {
    /// A file for each process
    #[arg(short = 'F')]
    file_per_process: bool,
    /// Bytes of a transfer
    #[arg(short, default_value = "256k", value_parser = sizes::bytes)]
    transfer: u64,
    /// Bytes of a block: what a process writes without a gap
    #[arg(short, default_value = "1m", value_parser = sizes::bytes)]
    block: u64,
    /// Blocks of each process
    #[arg(short, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    segments: u64,
    /// Each process reads what the next one wrote
    #[arg(short = 'C')]
    reorder: bool,
    /// fsync(2) when all is written
    #[arg(short = 'e')]
    fsync: bool,
    /// Only write, unless -r is there as well
    #[arg(short)]
    write: bool,
    /// Only read, unless -w is there as well
    #[arg(short)]
    read: bool,
    /// Read after writing whether all is right
    #[arg(short = 'W')]
    check_write: bool,
    /// Read once more whether all is right
    #[arg(short = 'R')]
    check_read: bool,
    /// Transfers in random order
    #[arg(short = 'z')]
    random: bool,
    /// Keep the files
    #[arg(short)]
    keep: bool,
    /// How often all is done
    #[arg(short = 'i', default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    repetitions: u64,
    /// Processes
    #[arg(short = 'N', default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4096))]
    tasks: u64,
    /// How many times smaller the data can become
    #[arg(long, default_value_t = 1.0, value_parser = ratio)]
    ratio: f64,
    /// The number that the data are made from; the same one finds right what a run before kept by -k
    #[arg(short = 'G', default_value_t = 1)]
    seed: u64,
    /// What reaches a host, as 'ssh HOST'; as often as there are hosts
    #[arg(long, value_name = "CMD")]
    via: Vec<String>,
    /// The file; with -F, the beginning of the files' names
    #[arg(short = 'o', value_name = "FILE")]
    path: String,
}

/// How many times smaller data become. Errors: the words are no such number.
fn ratio(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|ratio| (1.0..=100.0).contains(ratio));
    parsed.ok_or_else(|| "not a number from 1 to 100".to_owned())
}

impl IorArgs {
    fn order(&self, rank: u64) -> IoOrder {
        // the next one is of another host, if there are several
        let reads_rank = if self.reorder { (rank + 1) % self.tasks } else { rank };
        IoOrder {
            path: self.path.clone(),
            file_per_process: self.file_per_process,
            transfer: self.transfer,
            block: self.block,
            segments: self.segments,
            random: self.random,
            fsync: self.fsync,
            rank,
            tasks: self.tasks,
            reads_rank,
            seed: self.seed,
            ratio: self.ratio,
        }
    }

    fn all_bytes(&self) -> Option<u64> {
        self.block.checked_mul(self.segments)?.checked_mul(self.tasks).filter(|bytes| *bytes < 1 << 62)
    }

    /// The phases of a repetition.
    fn phases(&self) -> Vec<(&'static str, LoadPhase)> {
        let neither = !self.write && !self.read && !self.check_write && !self.check_read;
        let mut phases = Vec::new();
        if self.write || neither {
            phases.push(("write", LoadPhase::Write));
        }
        if self.check_write {
            phases.push(("check of write", LoadPhase::Read { verify: true }));
        }
        if self.read || neither {
            phases.push(("read", LoadPhase::Read { verify: false }));
        }
        if self.check_read {
            phases.push(("check of read", LoadPhase::Read { verify: true }));
        }
        phases
    }
}

/// Runs the command.
pub fn run(args: &IorArgs) -> Result<(), String> {
    if !args.block.is_multiple_of(args.transfer) {
        return Err("the block of -b has to be a multiple of the transfer of -t".to_owned());
    }
    if args.transfer > 1 << 30 {
        return Err("a transfer of -t is 1 GiB at most".to_owned());
    }
    let bytes = args.all_bytes().ok_or("that is more than a file system can have")?;
    let mut tasks = LoadProcesses::start(args.tasks, &args.via, |rank| TaskOrder::Io(args.order(rank)))?;
    print!("{}", head(args, tasks.hosts as u64, bytes));
    let mut rates = [Spread::new("write"), Spread::new("read")];
    let mut wrong = Vec::new();
    let mut outcome = Ok(());
    'repetitions: for repetition in 0..args.repetitions {
        for (name, phase) in args.phases() {
            let time = match tasks.phase(phase) {
                Ok(time) => time,
                Err(why) => {
                    outcome = Err(format!("{name}: {why}"));
                    break 'repetitions;
                }
            };
            if let Some(rate) = rates.iter_mut().find(|rate| rate.name == name) {
                rate.add(bytes as f64 / MIB / time.seconds, time.seconds);
                print!("{}", line(args, name, bytes, &time, repetition));
            }
            let found: u64 = time.told.iter().map(|told| told.wrong).sum();
            if found > 0 {
                let first = time.told.iter().find(|told| told.wrong > 0).map_or("", |told| &told.first_wrong);
                println!("WARNING: incorrect data on {name} ({found} transfers, the first at {first})");
                wrong.push(format!("{name}: {found} transfers with wrong data, the first at {first}"));
            }
        }
    }
    // what a run leaves that failed would be in the way of the next one
    if !args.keep && (args.write || !args.read) {
        outcome = outcome.and(tasks.phase(LoadPhase::RemoveFiles).map(drop));
    }
    outcome?;
    print!("{}", foot(args, &rates, bytes, tasks.hosts as u64));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

fn head(args: &IorArgs, nodes: u64, bytes: u64) -> String {
    let now = time::ctime(now_s());
    let command = std::env::args().collect::<Vec<String>>().join(" ");
    let (access, kind) = match args.file_per_process {
        true => ("file-per-process", "independent"),
        false => ("single-shared-file", "independent"),
    };
    let ordering = if args.random { "random" } else { "sequential" };
    let inter = if args.reorder { "constant task offset" } else { "no tasks offsets" };
    let rows = [
        ("api", "POSIX".to_owned()),
        ("apiVersion", String::new()),
        ("test filename", args.path.clone()),
        ("access", access.to_owned()),
        ("type", kind.to_owned()),
        ("segments", args.segments.to_string()),
        ("ordering in a file", ordering.to_owned()),
        ("ordering inter file", inter.to_owned()),
        ("nodes", nodes.to_string()),
        ("tasks", args.tasks.to_string()),
        ("clients per node", args.tasks.div_ceil(nodes).to_string()),
        ("repetitions", args.repetitions.to_string()),
        ("xfersize", binary_bytes(args.transfer)),
        ("blocksize", binary_bytes(args.block)),
        ("aggregate filesize", binary_bytes(bytes)),
    ];
    let options: String = rows.iter().map(|(name, value)| format!("{name:20}: {value}\n")).collect();
    format!(
        "cenote bench ior, in the form of IOR-4.0.0: processes that write and read together\n\
         Began               : {now}\nCommand line        : {command}\nMachine             : {}\n\
         TestID              : 0\nStartTime           : {now}\nPath                : {}\nFS                  : {}\n\n\
         Options: \n{options}\nResults: \n\n\
         access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   \
         iter\n\
         ------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   \
         ----\n",
        machine(),
        args.path,
        free_line(&args.path),
    )
}

/// The line of a phase. Times of parts are those of the slowest process.
fn line(args: &IorArgs, name: &str, bytes: u64, time: &PhaseTime, repetition: u64) -> String {
    let most = |part: fn(&PhaseTold) -> f64| time.told.iter().map(part).fold(0.0, f64::max);
    let (open, work, close) = (most(|told| told.open_s), most(|told| told.work_s), most(|told| told.close_s));
    let count: u64 = time.told.iter().map(|told| told.count).sum();
    let latency = work * args.tasks as f64 / count.max(1) as f64;
    format!(
        "{name:9} {:<10.2} {:<10.2} {latency:<11.6} {:<10.2} {:<10.2} {open:<10.6} {work:<10.6} {close:<10.6} {:<10.6} \
         {repetition:<4}\n",
        bytes as f64 / MIB / time.seconds,
        count as f64 / work.max(1e-9),
        args.block as f64 / 1024.0,
        args.transfer as f64 / 1024.0,
        time.seconds,
    )
}

fn foot(args: &IorArgs, rates: &[Spread], bytes: u64, nodes: u64) -> String {
    let mut text = String::new();
    for rate in rates.iter().filter(|rate| !rate.is_empty()) {
        let (name, most) = (rate.name, rate.most());
        let name = name[..1].to_uppercase() + &name[1..];
        text += &format!("Max {name}: {most:.2} MiB/sec ({:.2} MB/sec)\n", most * MIB / 1e6);
    }
    text += "\nSummary of all tests:\n\
             Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) \
             Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize \
             aggs(MiB)   API RefNum\n";
    for rate in rates.iter().filter(|rate| !rate.is_empty()) {
        let transfers = MIB / args.transfer as f64;
        let (most, least, mean, spread) = (rate.most(), rate.least(), rate.mean(), rate.deviation());
        text += &format!(
            "{:9} {most:12.2} {least:10.2} {mean:10.2} {spread:10.2} {:10.2} {:10.2} {:10.2} {:10.2} {:10.5} {:>12} {:>14} \
             {:5} {:6} {:3} {:4} {:3} {:5} {:8} {:9} {:4} {:6} {:8} {:8} {:9.1} {:5} {:6}\n",
            rate.name,
            most * transfers,
            least * transfers,
            mean * transfers,
            spread * transfers,
            rate.mean_seconds(),
            "NA",
            "NA",
            0,
            args.tasks,
            args.tasks.div_ceil(nodes),
            args.repetitions,
            u8::from(args.file_per_process),
            u8::from(args.reorder),
            u8::from(args.reorder),
            0,
            args.seed,
            args.segments,
            args.block,
            args.transfer,
            bytes as f64 / MIB,
            "POSIX",
            0,
        );
    }
    text + &format!("Finished            : {}\n", time::ctime(now_s()))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
