//! `cenote where`: where the time of pools in use goes.
//!
//! ```text
//!   clocks of processors ─▶ samples ─▶ stacks: names ─▶ tally: by activity, thread, phase of groups ─▶ report, flame graph
//!   /proc ─▶ processes: time, memory                                                             └▶ report
//!   processes of pools ─▶ pool: devices, requests of FUSE, waits for locks, groups ──────────────┘
//! ```
//!
//! - [`activity`]: the table of what functions do.

mod activity;
mod pool;
mod processes;
mod report;
mod samples;
mod stacks;
mod tally;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::rundir::{self, RunDir};
use protocol::words::time;
use serde_json::{Value, json};

use crate::chart::FlameGraph;
use crate::output;
use crate::processors::busy_seconds;
use crate::taps::WatchEnd;
use crate::tools;
use pool::{ProfiledPool, now_ns};
use processes::ThreadKinds;
use report::PoolProfile;
use samples::CpuSampler;
use stacks::StackReader;
use tally::CpuTally;

pub use processes::cpu_seconds;

/// How often samples are taken up: the kernel's buffers hold several seconds.
const DRAIN_PERIOD: Duration = Duration::from_millis(100);
/// How long a sample waits to be told in which phase its group was.
const SETTLE_NS: u64 = 2_000_000_000;
/// Time that a command has to end when it is asked to.
const END_TIME: Duration = Duration::from_secs(5);
/// Pools that are watched.
const POOLS_MAX: usize = 64;

/// Show where the time of pools in use goes: processors, disks, locks, requests
///
/// Each second has a line for each pool: processors its process used, and the machine (100 % is one of them), its memory,
/// the cache, bytes from and to devices, requests of FUSE, time that threads waited for locks, and how much of the time a
/// group was on its way to disk. At the end come tables: time of processors by what was done, by thread and function, waits
/// for locks by place, requests by kind, devices. Sampling needs root, or CAP_PERFMON; all else needs the owner of the
/// pools. It ends with COMMAND, whose exit code is passed on, or after a time, or when it is interrupted.
#[derive(clap::Parser)]
#[command(name = "cenote where", no_binary_name = true)]
struct WhereArgs {
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = time::interval)]
    time: Option<f64>,
    /// Seconds between two lines
    #[arg(short, default_value_t = 1.0, value_parser = time::interval)]
    delay: f64,
    /// Write a flame graph, as SVG
    #[arg(long, value_name = "FILE")]
    flame: Option<PathBuf>,
    /// Print JSON at the end, and no lines
    #[arg(long)]
    json: bool,
    /// Only these pools
    pools: Vec<String>,
    /// Run a command meanwhile
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    match output::parse_args(args).map(|args: WhereArgs| profile(&args)) {
        Ok(Ok(code)) => code,
        Ok(Err(why)) => {
            output::complain("where", why);
            ExitCode::FAILURE
        }
        Err(code) => code,
    }
}

fn profile(args: &WhereArgs) -> Result<ExitCode, String> {
    let mut profiler = Profiler::begin(&args.pools, args.json);
    if profiler.pools.is_empty() && args.command.is_empty() {
        return Err(profiler.silent.map_or("no such pool is in use".to_owned(), |why| why.what().to_owned()));
    }
    let mut child = spawn(&args.command)?;
    // behind the command, which would not be told of signals that are blocked here
    let end = WatchEnd::after(args.time.map(Duration::from_secs_f64));
    let began = Instant::now();
    let delay = Duration::from_secs_f64(args.delay);
    let mut next_look = began + delay;
    let mut code = ExitCode::SUCCESS;
    if !args.json {
        println!("{}", report::HEADING);
    }
    loop {
        std::thread::sleep(DRAIN_PERIOD.min(delay));
        profiler.take_samples();
        if Instant::now() >= next_look {
            next_look += delay;
            profiler.look(began.elapsed().as_secs(), !args.json);
        }
        if let Some(status) =
            child.as_mut().map(|child| child.try_wait().map_err(|e| e.to_string())).transpose()?.flatten()
        {
            code = exit_code(status);
            break;
        }
        if end.has_come() {
            child.as_mut().map_or(Ok(()), |child| tools::end(child, END_TIME)).map_err(|e| e.to_string())?;
            break;
        }
    }
    profiler.look(began.elapsed().as_secs(), false);
    profiler.settle(u64::MAX);
    match args.json {
        true => println!("{}", profiler.json()),
        false => print!("{}", profiler.text()),
    }
    args.flame.as_ref().map_or(Ok(()), |file| write_flame(file, &profiler.tally)).map(|()| code)
}

fn spawn(command: &[OsString]) -> Result<Option<Child>, String> {
    let Some((program, args)) = command.split_first() else { return Ok(None) };
    let child = Command::new(program).args(args).spawn();
    child.map(Some).map_err(|e| format!("running {}: {e}", program.display()))
}

/// The command's own, and 128 and the signal that ended it, as shells have it.
fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(1);
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn write_flame(file: &PathBuf, tallies: &BTreeMap<String, CpuTally>) -> Result<(), String> {
    let several = tallies.len() > 1;
    let paths: Vec<(Vec<Arc<str>>, u64)> = tallies
        .iter()
        .flat_map(|(pool, tally)| {
            let stacks = tally.stacks().into_iter();
            stacks.map(move |(stack, count)| {
                let pool = several.then(|| Arc::from(pool.as_str()));
                (pool.into_iter().chain(stack.iter().cloned()).collect(), count)
            })
        })
        .collect();
    let stacks = paths.iter().map(|(path, count)| (path.as_slice(), *count)).collect();
    let title = format!("Time of processors: {}", tallies.keys().cloned().collect::<Vec<_>>().join(", "));
    std::fs::write(file, FlameGraph { title, stacks }.svg()).map_err(|e| format!("writing {}: {e}", file.display()))
}

/// A sample that waits to be told in which phase its group was.
struct WaitingSample {
    process: u32,
    at_ns: u64,
    thread: Arc<str>,
    functions: Vec<Arc<str>>,
}

/// Everything that is looked at.
struct Profiler {
    wanted: Vec<String>,
    sampler: Option<CpuSampler>,
    stacks: StackReader,
    kinds: ThreadKinds,
    /// By the stem of their sockets.
    pools: BTreeMap<String, ProfiledPool>,
    /// Why one that is wanted cannot be asked.
    silent: Option<base::Error>,
    waiting: VecDeque<WaitingSample>,
    /// By pool.
    tally: BTreeMap<String, CpuTally>,
    /// Pools that ended meanwhile.
    ended: Vec<pool::PoolWhole>,
    /// Lines as JSON, if that is wanted.
    seconds: Option<Vec<Value>>,
    lost: u64,
    machine: (Instant, f64),
}

impl Profiler {
    /// Begins with the pools that are in use.
    fn begin(wanted: &[String], as_json: bool) -> Profiler {
        let sampler = CpuSampler::begin();
        if let Err(e) = &sampler {
            output::complain("where", format!("processors are not sampled, which needs root or CAP_PERFMON: {e}"));
        }
        let mut profiler = Profiler {
            wanted: wanted.iter().map(|name| rundir::stem(name)).collect(),
            sampler: sampler.ok(),
            stacks: StackReader::default(),
            kinds: ThreadKinds::default(),
            pools: BTreeMap::new(),
            silent: None,
            waiting: VecDeque::new(),
            tally: BTreeMap::new(),
            ended: Vec::new(),
            seconds: as_json.then(Vec::new),
            lost: 0,
            machine: (Instant::now(), busy_seconds().unwrap_or(0.0)),
        };
        profiler.meet();
        profiler
    }

    /// Finds pools that have come, and looks at them first.
    fn meet(&mut self) {
        // without a folder there are no pools
        for dir in RunDir::all().unwrap_or_default() {
            let stems = dir.sockets().unwrap_or_default();
            let dir = Arc::new(dir);
            for stem in stems {
                let is_wanted = self.wanted.is_empty() || self.wanted.contains(&stem);
                if !is_wanted || self.pools.contains_key(&stem) || self.pools.len() >= POOLS_MAX {
                    continue;
                }
                let met = ProfiledPool::meet(dir.clone(), &stem)
                    .and_then(|met| met.map(|mut pool| pool.look().map(|_| pool)).transpose());
                match met {
                    Ok(Some(pool)) => drop(self.pools.insert(stem, pool)),
                    Ok(None) => {}
                    // it is tried again
                    Err(why) => self.silent = Some(why),
                }
            }
        }
    }

    fn take_samples(&mut self) {
        let processes: Vec<u32> = self.pools.values().map(|pool| pool.process).collect();
        let Some(sampler) = &mut self.sampler else { return };
        let (stacks, kinds, waiting) = (&mut self.stacks, &mut self.kinds, &mut self.waiting);
        self.lost += sampler.drain(&processes, |sample| {
            let thread = kinds.of(sample.process, sample.thread);
            let functions = stacks.names(&sample);
            waiting.push_back(WaitingSample { process: sample.process, at_ns: sample.at_ns, thread, functions });
        });
        self.settle(now_ns().saturating_sub(SETTLE_NS));
    }

    /// Counts samples that are older than `until_ns`.
    fn settle(&mut self, until_ns: u64) {
        while self.waiting.front().is_some_and(|sample| sample.at_ns < until_ns) {
            let Some(sample) = self.waiting.pop_front() else { break };
            let Some(pool) = self.pools.values().find(|pool| pool.process == sample.process) else { continue };
            let phase = pool.phase(sample.at_ns);
            self.tally.entry(pool.name.clone()).or_default().count(&sample.thread, &sample.functions, phase);
        }
    }

    /// Looks at all pools; with lines, if they are wanted.
    fn look(&mut self, second: u64, is_shown: bool) {
        let (before, busy) = std::mem::replace(&mut self.machine, (Instant::now(), busy_seconds().unwrap_or(0.0)));
        let machine = (self.machine.1 - busy).max(0.0) / (self.machine.0 - before).as_secs_f64().max(1e-6);
        let mut gone = Vec::new();
        for (stem, pool) in &mut self.pools {
            match pool.look() {
                Ok(row) => row.into_iter().for_each(|row| {
                    if is_shown {
                        println!("{}", report::second(second, &row, machine));
                    }
                    let line = json!({ "second": second, "machine": machine, "row": row });
                    self.seconds.iter_mut().for_each(|lines| lines.push(line.clone()));
                }),
                Err(_) => gone.push(stem.clone()),
            }
        }
        if !gone.is_empty() {
            self.settle(u64::MAX);
        }
        for pool in gone.into_iter().filter_map(|stem| self.pools.remove(&stem)) {
            self.ended.extend(pool.whole());
        }
        self.meet();
    }

    fn profiles(&self) -> Vec<PoolProfile<'_>> {
        let ended = self.ended.iter().cloned();
        let wholes = ended.chain(self.pools.values().filter_map(ProfiledPool::whole));
        let of = |whole: pool::PoolWhole| {
            let tally = self.sampler.as_ref().and_then(|_| self.tally.get(&whole.row.pool));
            PoolProfile { whole, tally }
        };
        wholes.map(of).collect()
    }

    fn text(&self) -> String {
        let text: String = self.profiles().iter().map(PoolProfile::text).collect();
        let lost = if self.lost == 0 { String::new() } else { format!("\n{} samples were lost\n", self.lost) };
        text + &lost
    }

    fn json(&self) -> Value {
        let pools: Vec<Value> = self.profiles().iter().map(PoolProfile::json).collect();
        json!({ "seconds": self.seconds, "pools": pools, "lost_samples": self.lost })
    }
}
