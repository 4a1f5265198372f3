//! `zpool scrub` and `zpool wait`: long work of pools, begun, halted, ended and waited for.

use std::ffi::OsString;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use base::{Error, Kind};
use format::ids::Guid;
use pool::{ScrubRange, SweepKind};
use protocol::client;
use protocol::pool_report::{Activity, ErrorScrub, PoolReport, Progress, VdevReport};
use protocol::wire::{PoolReply, Request, ScrubAction};
use protocol::words::nicenum::nicenum;
use protocol::words::time;

use super::command::{CommandResult, Stop, history_line};
use super::pools;
use super::pools::Timestamp;
use crate::getopt::{self, Opt};

/// How often a pool is looked at that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What can be waited for, in OpenZFS's order.
const ACTIVITIES: [&str; 9] =
    ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];
const SCRUB: usize = 6;

/// `zpool scrub`.
pub fn scrub(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "aspweCS:E:", &[]);
    let (mut all, mut waits) = (false, false);
    let mut actions: Vec<char> = Vec::new();
    let (mut from_s, mut to_s) = (None, None);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('a') => all = true,
            Opt::Flag('w') => waits = true,
            Opt::Flag(flag @ ('s' | 'p' | 'e' | 'C')) if !actions.contains(flag) => actions.push(*flag),
            Opt::Flag('s' | 'p' | 'e' | 'C') => {}
            Opt::Value('S', date) => from_s = Some(seconds_of(date)?),
            Opt::Value('E', date) => to_s = Some(seconds_of(date)?),
            other => return Err(Stop::bad_option(other)),
        }
    }
    let is_asked = |flag: &char| actions.contains(flag);
    for (one, other) in [('s', 'p'), ('p', 'C'), ('s', 'C'), ('e', 'C')] {
        if is_asked(&one) && is_asked(&other) {
            return Err(Stop::usage(format!("invalid option combination :-{one} and -{other} are mutually exclusive")));
        }
    }
    let is_dated = from_s.is_some() || to_s.is_some();
    if is_dated && !actions.is_empty() {
        return Err(Stop::usage("invalid option combination: start/end date is available only with normal scrub"));
    }
    if from_s.zip(to_s).is_some_and(|(from_s, to_s)| from_s > to_s) {
        return Err(Stop::usage("invalid arguments: end date has to be later than start date"));
    }
    let action = match () {
        () if is_asked(&'s') => ScrubAction::Stop,
        () if is_asked(&'p') => ScrubAction::Pause,
        () if is_asked(&'C') => ScrubAction::Start(ScrubRange::SinceLast),
        () if is_asked(&'e') => ScrubAction::Errors,
        () if is_dated => ScrubAction::Start(ScrubRange::Born { from_s, to_s }),
        () => ScrubAction::Start(ScrubRange::All),
    };
    if waits && matches!(action, ScrubAction::Stop | ScrubAction::Pause) {
        return Err(Stop::usage("invalid option combination: -w cannot be used with -p or -s"));
    }
    if parsed.operands.is_empty() && !all {
        return Err(Stop::usage("missing pool name argument"));
    }
    let mut failed = false;
    let names = if all { Vec::new() } else { parsed.operands };
    let mut begun = Vec::new();
    for pool in pools::open(&names, &mut failed)? {
        match ask_scrub(&pool.name, action, args) {
            Ok(()) => begun.push(pool.name),
            Err(why) => {
                eprintln!("{why}");
                failed = true;
            }
        }
    }
    if waits {
        begun.iter().try_for_each(|name| wait_for(name, &[SCRUB], &mut |_| ()))?;
    }
    Ok(!failed)
}

fn seconds_of(date: &str) -> Result<u64, Stop> {
    time::of_date(date).ok_or_else(|| Stop::usage("Failed to parse the date."))
}

fn ask_scrub(name: &str, action: ScrubAction, args: &[OsString]) -> Result<(), String> {
    let what = match action {
        ScrubAction::Start(_) | ScrubAction::Errors => "scrub",
        ScrubAction::Pause => "pause scrubbing",
        ScrubAction::Stop => "cancel scrubbing",
    };
    let failed = |error: &Error| {
        let why = match (error.kind(), action) {
            (Kind::NotFound, _) => "there is no active scrub",
            (Kind::Busy, ScrubAction::Pause) => "scrub is paused; use 'zpool scrub' to resume scrub",
            (Kind::Busy, _) => "currently scrubbing; use 'zpool scrub -s' to cancel scrub",
            (Kind::Exists, _) => "currently resilvering",
            _ => error.what(),
        };
        format!("cannot {what} {name}: {why}")
    };
    let mut connection =
        client::connect(name).map_err(|e| failed(&e))?.ok_or_else(|| format!("cannot open '{name}': no such pool"))?;
    connection
        .ask(&Request::Scrub { action, history: history_line("scrub", args) })
        .map(drop)
        .map_err(|error| failed(&error))
}

/// `zpool resilver`.
pub fn resilver(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "", &[]);
    if let Some(opt) = parsed.opts.first() {
        return Err(Stop::bad_option(opt));
    }
    if parsed.operands.is_empty() {
        return Err(Stop::usage("missing pool name argument"));
    }
    let mut failed = false;
    for mut pool in pools::open(&parsed.operands, &mut failed)? {
        let name = pool.name.clone();
        if let Err(Stop::Failed(why) | Stop::Usage(why)) =
            pool.ask(&Request::Resilver { history: history_line("resilver", args) })
        {
            let why = why.rsplit(": ").next().unwrap_or(&why).to_owned();
            eprintln!("cannot restart resilver of {name}: {why}");
            failed = true;
        }
    }
    Ok(!failed)
}

/// `zpool wait`.
pub fn wait(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "HpT:t:", &[]);
    let (mut scripted, mut exact, mut timestamp) = (false, false, Timestamp::None);
    let mut wanted: Vec<usize> = (0..ACTIVITIES.len()).collect();
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('H') => scripted = true,
            Opt::Flag('p') => exact = true,
            Opt::Value('T', form) => timestamp = Timestamp::parse(form)?,
            Opt::Value('t', list) => wanted = activities(list)?,
            other => return Err(Stop::bad_option(other)),
        }
    }
    let (names, repeat) = pools::Repeat::parse(parsed.operands)?;
    let [name] = &names[..] else {
        return Err(Stop::usage(if names.is_empty() { "missing 'pool' argument" } else { "too many arguments" }));
    };
    let mut table = WaitTable { wanted: wanted.clone(), scripted, exact, has_heading: false };
    let mut next = Instant::now();
    let interval = repeat.interval();
    let mut look = |report: &PoolReport| {
        if let Some(interval) = interval
            && Instant::now() >= next
        {
            next += interval;
            print!("{}", timestamp.line());
            table.print(report);
        }
    };
    wait_for(name, &wanted, &mut look)?;
    Ok(true)
}

/// Waits until an activity of a pool is over.
pub fn wait_for_activity(pool: &str, activity: &str) -> CommandResult {
    wait_for(pool, &activities(activity)?, &mut |_| ())?;
    Ok(true)
}

fn activities(list: &str) -> Result<Vec<usize>, Stop> {
    let mut wanted = Vec::new();
    for name in list.split(',') {
        match ACTIVITIES.iter().position(|activity| *activity == name) {
            Some(at) => wanted.push(at),
            None => return Err(Stop::usage(format!("invalid activity '{name}'"))),
        }
    }
    wanted.sort_unstable();
    wanted.dedup();
    Ok(wanted)
}

/// Waits until some devices of a pool are not being initialized or trimmed any more.
pub fn wait_for_sweep(pool: &str, kind: SweepKind, vdevs: &[Guid]) -> Result<(), Stop> {
    let is_swept = |vdev: &VdevReport| {
        let sweep = if kind == SweepKind::Trim { vdev.trim } else { vdev.initialize };
        vdevs.contains(&vdev.guid) && sweep.is_some_and(|(activity, ..)| activity == Activity::Active)
    };
    wait_until(pool, &|report| !report.root.all().into_iter().any(is_swept), &mut |_| ())
}

/// Waits until none of those activities is under way in a pool. `look` is shown how it is meanwhile.
fn wait_for(name: &str, wanted: &[usize], look: &mut dyn FnMut(&PoolReport)) -> Result<(), Stop> {
    wait_until(name, &|report| wanted.iter().all(|&activity| remaining(report, activity).is_none()), look)
}

/// Waits until a pool is so, or there is no such pool any more. `look` is shown how it is meanwhile.
fn wait_until(name: &str, is_so: &dyn Fn(&PoolReport) -> bool, look: &mut dyn FnMut(&PoolReport)) -> Result<(), Stop> {
    let failed = |why: &str| Stop::Failed(format!("cannot open '{name}': {why}"));
    let mut is_first = true;
    loop {
        let connection = client::connect(name).map_err(|e| failed(e.what()))?;
        let Some(mut connection) = connection else {
            return if is_first { Err(failed("no such pool")) } else { Ok(()) };
        };
        is_first = false;
        // a connection is kept as long as it works: a pool may be exported meanwhile
        while let Ok(PoolReply::Report(report)) = connection.ask(&Request::Report) {
            look(&report);
            if is_so(&report) {
                return Ok(());
            }
            thread::sleep(LOOK_EVERY);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Bytes that sequential resilvers have yet to read; `None` if none is under way.
fn rebuilding(report: &PoolReport) -> Option<u64> {
    let rebuilds = report.root.children.iter().filter_map(|top| top.rebuild.as_ref());
    let left = rebuilds
        .filter(|rebuild| rebuild.progress == Progress::Running)
        .map(|rebuild| rebuild.estimate_bytes.saturating_sub(rebuild.issued_bytes));
    left.reduce(u64::saturating_add)
}

/// Bytes that an activity has yet to do; `None` if it is not under way.
fn remaining(report: &PoolReport, activity: usize) -> Option<u64> {
    let scan = |is_resilver: bool| {
        let scan = report.scan.as_ref().filter(|scan| scan.is_resilver == is_resilver && !scan.is_paused)?;
        let to_issue = scan.to_examine_bytes.saturating_sub(scan.skipped_bytes);
        (scan.progress == Progress::Running).then(|| to_issue.saturating_sub(scan.issued_bytes))
    };
    match ACTIVITIES[activity] {
        "discard" => report.checkpoint.as_ref().filter(|kept| kept.created_s.is_none()).map(|kept| kept.bytes),
        "free" => (report.freeing_bytes > 0).then_some(report.freeing_bytes),
        "remove" => {
            let removal = report.removal.as_ref().filter(|removal| removal.progress == Progress::Running)?;
            Some(removal.to_copy_bytes.saturating_sub(removal.copied_bytes))
        }
        "resilver" => scan(true).or_else(|| rebuilding(report)).or_else(|| report.is_resilver_due.then_some(0)),
        // the old device leaves some time after the resilver
        "replace" => {
            let is_replacing = |vdev: &&VdevReport| match vdev.kind.as_str() {
                "replacing" => true,
                // a spare that has everything may stay for ever
                "spare" => vdev.children.len() > 2 || vdev.children.last().is_some_and(|spare| spare.awaits_resilver),
                _ => false,
            };
            let is_replacing = report.root.all().iter().any(is_replacing);
            is_replacing.then(|| scan(true).or_else(|| rebuilding(report)).unwrap_or(0))
        }
        // that of the error log counts blocks, whose bytes nobody knows
        "scrub" => scan(false).or_else(|| {
            let runs = |scrub: &&ErrorScrub| scrub.progress == Progress::Running && !scrub.is_paused;
            report.error_scrub.as_ref().filter(runs).map(|_| 0)
        }),
        "raidz_expand" => {
            let expansion = report.expansion.as_ref().filter(|expansion| expansion.progress == Progress::Running)?;
            Some(expansion.to_copy_bytes.saturating_sub(expansion.copied_bytes))
        }
        "initialize" => swept(report, |vdev| vdev.initialize),
        "trim" => swept(report, |vdev| vdev.trim),
        _ => None,
    }
}

/// Bytes of the devices on which something is under way, as far as it has not come.
fn swept(report: &PoolReport, of: impl Fn(&VdevReport) -> Option<(Activity, u64, u64)>) -> Option<u64> {
    let left = |vdev: &VdevReport| match of(vdev) {
        Some((Activity::Active, _, bytes)) => Some(vdev.device_bytes.saturating_sub(bytes)),
        _ => None,
    };
    report.root.all().into_iter().filter_map(left).reduce(u64::saturating_add)
}

/// The lines of `zpool wait` with an interval.
struct WaitTable {
    wanted: Vec<usize>,
    scripted: bool,
    exact: bool,
    has_heading: bool,
}

impl WaitTable {
    fn print(&mut self, report: &PoolReport) {
        print!("{}", self.lines(report));
        // a pipe wants to see it now
        let _ = std::io::stdout().flush();
    }

    fn lines(&mut self, report: &PoolReport) -> String {
        let width = |activity: usize| ACTIVITIES[activity].len().max(6) + 2;
        let mut text = String::new();
        if !self.scripted && !std::mem::replace(&mut self.has_heading, true) {
            for &activity in &self.wanted {
                text += &format!("{:>1$}", ACTIVITIES[activity].to_uppercase(), width(activity));
            }
            text.push('\n');
        }
        for (index, &activity) in self.wanted.iter().enumerate() {
            let bytes = remaining(report, activity).unwrap_or(0);
            let number = if self.exact { bytes.to_string() } else { nicenum(bytes) };
            match (self.scripted, index) {
                (true, 0) => text += &number,
                (true, _) => text += &format!("\t{number}"),
                (false, _) => text += &format!(" {number:>0$}", width(activity) - 1),
            }
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pool_report::ScanReport;

    #[test]
    fn what_is_left() {
        let scan = ScanReport { to_examine_bytes: 5 << 20, issued_bytes: 1 << 20, ..ScanReport::default() };
        let mut report = PoolReport { scan: Some(scan), freeing_bytes: 100, ..PoolReport::default() };
        assert_eq!(remaining(&report, SCRUB), Some(4 << 20));
        assert_eq!((remaining(&report, 1), remaining(&report, 5), remaining(&report, 0)), (Some(100), None, None));
        let mut rows = WaitTable { wanted: vec![1, SCRUB], scripted: false, exact: false, has_heading: false };
        assert_eq!(rows.lines(&report), "    FREE   SCRUB\n     100      4M\n");
        assert_eq!(rows.lines(&report), "     100      4M\n");
        let mut rows = WaitTable { wanted: vec![1, SCRUB], scripted: true, exact: true, has_heading: false };
        assert_eq!(rows.lines(&report), "100\t4194304\n");
        report.scan.as_mut().unwrap().is_paused = true;
        assert_eq!(remaining(&report, SCRUB), None, "nobody waits for one that is paused");
        let resilver = activities("resilver").unwrap()[0];
        assert_eq!(remaining(&report, resilver), None);
        report.is_resilver_due = true;
        assert_eq!(remaining(&report, resilver), Some(0), "it is about to begin");
    }

    #[test]
    fn activities_by_name() {
        assert_eq!(activities("scrub,free,scrub"), Ok(vec![1, SCRUB]));
        assert!(activities("scrub,").is_err());
    }
}
