//! `fuzz-pools SECONDS [SEED]`: runs cases of [`tests::pools`] on all cores; `fuzz-pools case NUMBER` runs one.
//!
//! ```text
//!   supervisor ─┬─▶ worker: cases one after the other ─▶ lines: what was found
//!               └─▶ worker   └ ends when a case takes too much time or memory, and is started again behind it
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use testkit::rng::Rng;
use tests::pools::{self, BasePool};

/// Bytes that a case may take.
const MEMORY_MAX: i64 = 192 << 20;
/// Seconds of the processor that a case may take.
const CPU_MAX_S: u64 = 20;
/// Seconds that it may take if others have the processor.
const WALL_MAX_S: u64 = 300;
/// A long run tells so often how far it is.
const COUNT_EVERY: Duration = Duration::from_secs(600);
/// How a worker ends that had to.
const EXIT_TIME: i32 = 3;
const EXIT_MEMORY: i32 = 4;
/// Most lines of a finding that are shown.
const LINES_MAX: usize = 16;

/// Counts what is in use, and ends the process when that is too much.
struct Counting;

static IN_USE: AtomicI64 = AtomicI64::new(0);
/// What may be in use; set for each case.
static LIMIT: AtomicI64 = AtomicI64::new(i64::MAX);
static IS_ENDING: AtomicBool = AtomicBool::new(false);

fn took(bytes: i64) {
    let now = IN_USE.fetch_add(bytes, Relaxed) + bytes;
    if bytes > 0 && now > LIMIT.load(Relaxed) && !IS_ENDING.swap(true, Relaxed) {
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        let what = format!("{bytes} more bytes than may be in use were wanted\n{}", places_in(&trace));
        give_up("memory", &what, EXIT_MEMORY);
    }
}

// SAFETY: all is done by `System`; beside it only numbers change.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size() as i64);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size() as i64);
        // SAFETY: as of the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        took(-(layout.size() as i64));
        // SAFETY: as of the caller.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        took(new_size as i64 - layout.size() as i64);
        // SAFETY: as of the caller.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The case that is run, how many were run since that was told, and when it began: processor time and real time,
/// nanoseconds.
static CASE: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
static CPU_BEGAN: AtomicU64 = AtomicU64::new(0);
static WALL_BEGAN: AtomicU64 = AtomicU64::new(0);

fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    let usage = || {
        eprintln!("usage: fuzz-pools [SECONDS [SEED]] | fuzz-pools case NUMBER");
        ExitCode::from(2)
    };
    match args.first().map(String::as_str) {
        Some("case") => number(1, 0).map_or_else(|_| usage(), one_case),
        Some("worker") => {
            let numbers: Vec<u64> = (1..5).filter_map(|at| number(at, 0).ok()).collect();
            worker(numbers[0], numbers[1], numbers[2], numbers[3]);
            ExitCode::SUCCESS
        }
        _ => match (number(0, 60), number(1, 1)) {
            (Ok(seconds), Ok(seed)) => supervise(seconds, seed),
            _ => usage(),
        },
    }
}

fn case_number(seed: u64, index: u64) -> u64 {
    Rng::new(seed.wrapping_mul(0x1000_0000_01b3) ^ index).number() >> 16
}

// --- one worker --------------------------------------------------------------------------------

/// One line: number of the case, key, story and what is known, apart by tabs.
fn tell(number: u64, key: &str, what: &str, story: &str) {
    let line = |text: &str| text.replace('\t', " ").replace('\n', "\x1f");
    println!("found\t{number}\t{}\t{}\t{}", line(key), line(story), line(what));
}

/// The case cannot go on, and with it the process.
fn give_up(key: &str, what: &str, status: i32) -> ! {
    println!("done\t{}\t0", DONE.load(Relaxed));
    tell(CASE.load(Relaxed), key, what, "");
    std::process::exit(status);
}

/// The lines of a trace that tell places of this project.
fn places_in(trace: &str) -> String {
    let places = trace.lines().filter(|line| line.contains("crates/")).take(LINES_MAX);
    places.map(|line| format!("        {}", line.trim())).collect::<Vec<_>>().join("\n")
}

fn begin(number: u64) {
    CASE.store(number, Relaxed);
    CPU_BEGAN.store(now_ns(ClockId::ProcessCPUTime), Relaxed);
    WALL_BEGAN.store(now_ns(ClockId::Monotonic), Relaxed);
    LIMIT.store(IN_USE.load(Relaxed) + MEMORY_MAX, Relaxed);
}

/// Ends the process when a case takes too long.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let seconds = |clock, began: &AtomicU64| now_ns(clock).saturating_sub(began.load(Relaxed)) / 1_000_000_000;
            let cpu = seconds(ClockId::ProcessCPUTime, &CPU_BEGAN);
            if cpu > CPU_MAX_S || seconds(ClockId::Monotonic, &WALL_BEGAN) > WALL_MAX_S {
                give_up("time", &format!("after {cpu} s of the processor's time"), EXIT_TIME);
            }
        }
    });
}

fn one_case(number: u64) -> ExitCode {
    let bases = pools::bases(false);
    begin(number);
    watch();
    let outcome = pools::run(&bases, number);
    println!("{}", outcome.story);
    for finding in &outcome.findings {
        println!("{}: {}", finding.key, finding.what);
    }
    if outcome.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn worker(seconds: u64, seed: u64, first: u64, stride: u64) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let bases: Vec<BasePool> = pools::bases(false);
    begin(0);
    watch();
    let (mut writable, mut told) = (0u64, Instant::now());
    for index in (first..).step_by(stride as usize) {
        let number = case_number(seed, index);
        // so that it can be told of which case this process died
        println!("case\t{index}\t{number}");
        begin(number);
        let outcome = pools::run(&bases, number);
        let done = DONE.fetch_add(1, Relaxed) + 1;
        writable += u64::from(outcome.was_writable);
        for finding in &outcome.findings {
            tell(number, &finding.key, &finding.what, &outcome.story);
        }
        let is_over = Instant::now() > deadline;
        if is_over || told.elapsed() > Duration::from_secs(1) {
            println!("done\t{done}\t{writable}");
            DONE.store(0, Relaxed);
            (writable, told) = (0, Instant::now());
        }
        if is_over {
            return;
        }
    }
}

// --- all of them -------------------------------------------------------------------------------

/// What workers say.
enum Said {
    Done { cases: u64, writable: u64 },
    Found { number: u64, key: String, story: String, what: String },
}

/// What was found under one key.
struct Found {
    number: u64,
    after_s: u64,
    count: u64,
}

fn supervise(seconds: u64, seed: u64) -> ExitCode {
    let jobs = std::env::var("FUZZ_JOBS").ok().and_then(|jobs| jobs.parse().ok());
    let jobs: u64 = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64));
    let began = Instant::now();
    let (say, said) = mpsc::channel();
    println!("{seconds} s, seed {seed}, {jobs} workers");
    for job in 0..jobs {
        let say = say.clone();
        std::thread::spawn(move || keep_going(began, seconds, seed, (job, jobs), &say));
    }
    drop(say);
    let (mut cases, mut writable, mut found) = (0, 0, BTreeMap::<String, Found>::new());
    let mut told = Instant::now();
    for said in said {
        match said {
            Said::Done { cases: more, writable: more_writable } => {
                cases += more;
                writable += more_writable;
                if told.elapsed() > COUNT_EVERY {
                    told = Instant::now();
                    println!("{cases} cases after {} s; {writable} could be written to", began.elapsed().as_secs());
                }
            }
            Said::Found { number, key, story, what } => {
                let after_s = began.elapsed().as_secs();
                let known = found.entry(key.clone()).or_insert(Found { number, after_s, count: 0 });
                known.count += 1;
                if known.count == 1 {
                    println!(
                        "\nFOUND after {after_s} s: {key}\n    reproduce: ./x fuzz-pools case {number}\n    {story}"
                    );
                    what.split('\x1f').take(LINES_MAX).for_each(|line| println!("    {line}"));
                }
            }
        }
    }
    let elapsed = began.elapsed().as_secs_f64();
    let rate = cases as f64 / elapsed;
    println!("\n{cases} cases in {elapsed:.0} s, {rate:.0} a second; {writable} of them could be written to");
    for (key, Found { number, after_s, count }) in &found {
        println!("{count:>8} x {key} (first after {after_s} s: case {number})");
    }
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs workers, one after the other, until the time is over.
fn keep_going(began: Instant, seconds: u64, seed: u64, (job, jobs): (u64, u64), say: &mpsc::Sender<Said>) {
    let (mut first, mut last) = (job, 0);
    loop {
        let left = seconds.saturating_sub(began.elapsed().as_secs());
        if left == 0 {
            return;
        }
        let args = [left, seed, first, jobs].map(|number| number.to_string());
        let program = std::env::current_exe().expect("it runs");
        let mut worker = Command::new(program)
            .arg("worker")
            .args(args)
            .stdout(Stdio::piped())
            .env("RUST_BACKTRACE", "1")
            .spawn()
            .expect("a worker can be started");
        let output = BufReader::new(worker.stdout.take().expect("it is a pipe"));
        for line in output.lines().map_while(Result::ok) {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |at: usize| fields.get(at).and_then(|text| text.parse().ok()).unwrap_or(0);
            let text = |at: usize| fields.get(at).copied().unwrap_or_default().to_owned();
            let said = match fields[0] {
                "case" => {
                    (first, last) = (number(1) + jobs, number(2));
                    continue;
                }
                "done" => Said::Done { cases: number(1), writable: number(2) },
                "found" => Said::Found { number: number(1), key: text(2), story: text(3), what: text(4) },
                _ => continue,
            };
            if say.send(said).is_err() {
                break;
            }
        }
        let status = worker.wait().expect("it was started");
        if let Some(signal) = status.signal() {
            let (key, what) = (format!("killed by signal {signal}"), String::new());
            let _ = say.send(Said::Found { number: last, key, story: String::new(), what });
        }
    }
}
