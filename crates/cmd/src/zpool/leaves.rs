//! `zpool clear`, `online` and `offline`: devices that failed, came back, or are not to be used.

use std::ffi::OsString;

use base::{Error, Kind};
use format::ids::Guid;
use protocol::client;
use protocol::pool_report::{PoolReport, VdevReport, VdevState};
use protocol::wire::{PoolReply, Request};

use super::command::{CommandResult, POWER, Stop, history_line};
use super::names::NameStyle;
use super::pools::{self, OpenPool};
use crate::getopt::{self, Opt};
use crate::patience::real_path;

pub(super) const NO_SUCH_DEVICE: &str = "no such device in pool";
const IS_SPARE: &str = "device is reserved as a hot spare";
const IS_CACHE: &str = "device is in use as a cache";

/// `zpool clear`.
pub fn clear(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "", &[POWER]);
    match parsed.opts.first() {
        None => {}
        Some(Opt::Flag('4')) => return Err(Stop::no_power()),
        Some(opt) => return Err(Stop::bad_option(opt)),
    }
    let (name, device) = match &parsed.operands[..] {
        [] => return Err(Stop::usage("missing pool name")),
        [name] => (name, None),
        [name, device] => (name, Some(device)),
        _ => return Err(Stop::usage("too many arguments")),
    };
    let Some(mut pool) = pools::open(std::slice::from_ref(name), &mut false)?.pop() else { return Ok(false) };
    let failed = |why: &str| {
        let about = device.unwrap_or(name);
        Stop::Failed(format!("cannot clear errors for {about}: {why}"))
    };
    let vdev = match device {
        Some(device) => Some(find_used(&pool.report()?, device).map_err(failed)?),
        None => None,
    };
    let mut connection = pool.into_connection();
    match connection.ask(&Request::Clear { vdev, history: history_line("clear", args) }) {
        Ok(PoolReply::HandedOver) => {
            // it only stood in for the process that serves the pool next
            connection.wait_for_end();
            Ok(true)
        }
        answer => answer.map(|_| true).map_err(|e| failed(words(&e))),
    }
}

/// `zpool reopen`.
pub fn reopen(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "n", &[]);
    let mut restart = true;
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('n') => restart = false,
            other => return Err(Stop::bad_option(other)),
        }
    }
    let mut failed = false;
    for mut pool in pools::open(&parsed.operands, &mut failed)? {
        if let Err(Stop::Failed(why) | Stop::Usage(why)) = pool.ask(&Request::Reopen { restart }) {
            let why = why.rsplit(": ").next().unwrap_or(&why).to_owned();
            eprintln!("cannot reopen '{}': {why}", pool.name);
            failed = true;
        }
    }
    Ok(!failed)
}

/// `zpool online`.
pub fn online(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "e", &[POWER]);
    let mut expand = false;
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('e') => expand = true,
            Opt::Flag('4') => return Err(Stop::no_power()),
            other => return Err(Stop::bad_option(other)),
        }
    }
    each_device(&parsed.operands, &mut |report, device| {
        let failed = |why: &str| format!("cannot {} {device}: {why}", if expand { "expand" } else { "online" });
        if expand && find(report, device) == Err(IS_CACHE) {
            return Err(failed("cannot expand cache devices"));
        }
        let vdev = find_used(report, device).map_err(failed)?;
        let before = report.root.all().into_iter().find(|known| known.guid == vdev).map(|known| known.state);
        let mut connection = client::connect(&report.name).map_err(|e| failed(words(&e)))?.ok_or("no such pool")?;
        let answer = connection.ask(&Request::Online { vdev, expand, history: history_line("online", args) });
        let PoolReply::Onlined(state) = answer.map_err(|e| failed(words(&e)))? else { return Ok(()) };
        if state != VdevState::Healthy {
            println!("warning: device '{device}' onlined, but remains in faulted state");
            match state {
                VdevState::Faulted => println!("use 'zpool clear' to restore a faulted device"),
                _ => println!("use 'zpool replace' to replace devices that are no longer present"),
            }
            if expand {
                let what = format!("failed to expand usable space on unhealthy device '{device}'");
                if matches!(before, Some(VdevState::Healthy | VdevState::Degraded)) {
                    return Err(format!("error: {what}"));
                }
                println!("warning: {what}");
            }
        }
        Ok(())
    })
}

/// `zpool offline`.
pub fn offline(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "ft", &[POWER]);
    let (mut fault, mut temporary) = (false, false);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('f') => fault = true,
            Opt::Flag('t') => temporary = true,
            Opt::Flag('4') => return Err(Stop::no_power()),
            other => return Err(Stop::bad_option(other)),
        }
    }
    each_device(&parsed.operands, &mut |report, device| {
        let failed = |why: &str| format!("cannot {} {device}: {why}", if fault { "fault" } else { "offline" });
        let vdev = find_used(report, device).map_err(failed)?;
        let mut connection = client::connect(&report.name).map_err(|e| failed(words(&e)))?.ok_or("no such pool")?;
        let request = Request::Offline { vdev, fault, temporary, history: history_line("offline", args) };
        connection.ask(&request).map(drop).map_err(|e| failed(words(&e)))
    })
}

/// Runs `f` for each device behind the name of the pool, and complains about those that fail.
fn each_device(operands: &[String], f: &mut dyn FnMut(&PoolReport, &str) -> Result<(), String>) -> CommandResult {
    let (name, devices) = match operands {
        [] => return Err(Stop::usage("missing pool name")),
        [_] => return Err(Stop::usage("missing device name")),
        [name, devices @ ..] => (name, devices),
    };
    let Some(report) = report_of(name)? else { return Ok(false) };
    let mut done = true;
    for device in devices {
        if let Err(why) = f(&report, device) {
            eprintln!("{why}");
            done = false;
        }
    }
    Ok(done)
}

/// What is known of a pool; `None` if it cannot be opened, as has been said then.
pub(super) fn report_of(name: &str) -> Result<Option<PoolReport>, Stop> {
    let mut failed = false;
    let mut open = pools::open(std::slice::from_ref(&name.to_owned()), &mut failed)?;
    open.first_mut().map(OpenPool::report).transpose()
}

pub(crate) fn connect(name: &str) -> Result<client::Connection, Stop> {
    let failed = |why: &str| Stop::Failed(format!("cannot open '{name}': {why}"));
    client::connect(name).map_err(|e| failed(e.what()))?.ok_or_else(|| failed("no such pool"))
}

/// Guid of the vdev that somebody calls so: by guid, path, the name that `zpool status` shows.
pub(crate) fn find(pool: &PoolReport, word: &str) -> Result<Guid, &'static str> {
    let is_it = called(pool, word);
    if let Some(vdev) = pool.root.all().into_iter().skip(1).find(|vdev| is_it(vdev)) {
        return Ok(vdev.guid);
    }
    match (pool.spares.iter().any(&is_it), pool.caches.iter().any(&is_it)) {
        (true, _) => Err(IS_SPARE),
        (_, true) => Err(IS_CACHE),
        _ => Err(NO_SUCH_DEVICE),
    }
}

/// As [`find`], cache devices too.
fn find_used(pool: &PoolReport, word: &str) -> Result<Guid, &'static str> {
    let is_it = called(pool, word);
    find(pool, word).or_else(|why| pool.caches.iter().find(|vdev| is_it(vdev)).map(|vdev| vdev.guid).ok_or(why))
}

/// The vdev that somebody calls so, spares and cache devices among them.
pub(super) fn find_any<'a>(pool: &'a PoolReport, word: &str) -> Option<&'a VdevReport> {
    let is_it = called(pool, word);
    let below = pool.root.all().into_iter().skip(1);
    below.chain(&pool.spares).chain(&pool.caches).find(|vdev| is_it(vdev))
}

/// Whether somebody calls a vdev so.
fn called<'a>(pool: &'a PoolReport, word: &'a str) -> impl Fn(&VdevReport) -> bool + use<'a> {
    let real = real_path(word).ok();
    let style = NameStyle::default();
    move |vdev: &VdevReport| {
        let path = vdev.path.as_deref();
        vdev.kind != "hole"
            && (vdev.guid.to_string() == word
                || path == Some(word)
                || style.name(vdev, &pool.name) == word
                || is_short_name(vdev, word)
                || path.is_some_and(|path| real.is_some() && real_path(path).ok() == real))
    }
}

/// Whether that is a raidz or draid by its number alone: `raidz-0`, `draid2-1`.
fn is_short_name(vdev: &VdevReport, word: &str) -> bool {
    let Some((kind, number)) = word.rsplit_once('-').filter(|_| matches!(vdev.kind.as_str(), "raidz" | "draid")) else {
        return false;
    };
    let parity = kind.strip_prefix(vdev.kind.as_str());
    number == vdev.id.to_string() && parity.is_some_and(|p| p.is_empty() || p == vdev.nparity.to_string())
}

/// Why something was refused, in the words for the user.
pub(super) fn words(error: &Error) -> &str {
    match error.kind() {
        Kind::Io => match error.what() {
            what @ "pool I/O is currently suspended" => what,
            _ => "I/O error",
        },
        Kind::NotFound => NO_SUCH_DEVICE,
        Kind::Busy => "no valid replicas",
        _ => error.what(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices() {
        let leaf = |guid, path: &str| VdevReport {
            kind: "disk".into(),
            guid,
            path: Some(path.into()),
            ..VdevReport::default()
        };
        let mirror = VdevReport {
            kind: "mirror".into(),
            guid: Guid::new(2),
            children: vec![leaf(Guid::new(3), "/dev/sdx"), leaf(Guid::new(4), "/img/a")],
            ..VdevReport::default()
        };
        let root =
            VdevReport { kind: "root".into(), guid: Guid::new(1), children: vec![mirror], ..VdevReport::default() };
        let pool = PoolReport {
            name: "tank".into(),
            root,
            spares: vec![leaf(Guid::new(5), "/dev/sdy")],
            ..PoolReport::default()
        };
        let draid = VdevReport { kind: "draid".into(), id: 3, nparity: 2, ..VdevReport::default() };
        let is_draid = |word: &str| is_short_name(&draid, word);
        assert!(is_draid("draid-3") && is_draid("draid2-3") && !is_draid("draid1-3") && !is_draid("raidz-3"));
        for (word, guid) in [("sdx", 3), ("/dev/sdx", 3), ("3", 3), ("/img/a", 4), ("mirror-0", 2)] {
            assert_eq!(find(&pool, word), Ok(Guid::new(guid)), "{word}");
        }
        for word in ["tank", "1", "sdz", "/img"] {
            assert_eq!(find(&pool, word), Err(NO_SUCH_DEVICE), "{word}");
        }
        assert_eq!(find(&pool, "sdy"), Err(IS_SPARE));
    }
}
