//! `zpool add`, `remove`, `attach`, `replace` and `detach`: which devices a pool has.
//!
//! ```text
//!   words ──▶ create::spec ──▶ may they be used? do they fit the pool? ──▶ request to the pool's process
//!                                                                     └──▶ the tree as it would be (-n)
//! ```

use std::ffi::OsString;

use base::{Error, Kind};
use format::ids::Guid;
use pool::{NewDevices, NewLeaf, NewVdev, NewVdevShape};
use protocol::pool_report::{PoolReport, PropertyValue, VdevReport};
use protocol::wire::{PoolReply, Request};
use protocol::words::nicenum::{nicebytes, nicenum};
use vdev::draid::DraidShape;
use vdev::spec::Bias;

use super::command::{CommandResult, Stop, history_line};
use super::create::in_use;
use super::create::spec::NewPoolSpec;
use super::create::{DEVICE_BYTES_MIN, Forced, check_devices, replication};
use super::leaves::{NO_SUCH_DEVICE, connect, find, find_any, report_of, words};
use super::names::{NameStyle, type_name};
use super::{pools, scan};
use crate::getopt::{self, Long, Opt};

/// All is forced, or what is named.
const FORCED_TWICE: &str = "'-f' option is not allowed with '--allow-replication-mismatch', '--allow-ashift-mismatch', \
                            or '--allow-in-use'";

/// `zpool add`.
pub fn add(args: &[OsString]) -> CommandResult {
    const LONG: [Long; 3] = [
        Long { name: "allow-in-use", takes_value: false, code: 'u' },
        Long { name: "allow-replication-mismatch", takes_value: false, code: 'r' },
        Long { name: "allow-ashift-mismatch", takes_value: false, code: 'a' },
    ];
    let parsed = getopt::parse(args, "fgLno:P", &LONG);
    let (mut forced, mut dry_run, mut ashift, mut style) = (Forced::default(), false, None, NameStyle::from_env());
    let mut force = false;
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('f') => force = true,
            Opt::Flag('u') => forced.in_use = true,
            Opt::Flag('r') => forced.uneven = true,
            Opt::Flag('a') => forced.ashift = true,
            Opt::Flag('g') => style.guids = true,
            Opt::Flag('L') => style.real_paths = true,
            Opt::Flag('n') => dry_run = true,
            Opt::Flag('P') => style.whole_paths = true,
            Opt::Value('o', text) => ashift = Some(ashift_of(text)?),
            other => return Err(Stop::bad_option(other)),
        }
    }
    let (name, vdevs) = match &parsed.operands[..] {
        [] => return Err(Stop::usage("missing pool name argument")),
        [_] => return Err(Stop::usage("missing vdev specification")),
        _ if force && forced.is_any() => return Err(Stop::usage(FORCED_TWICE)),
        [name, vdevs @ ..] => (name, vdevs),
    };
    let forced = if force { Forced::all(true) } else { forced };
    let Some(report) = report_of(name)? else { return Ok(false) };
    let spec = NewPoolSpec::parse_more(vdevs).map_err(Stop::Failed)?;
    let uneven = || replication::mismatches(&tops_of(&report), &spec.vdevs, &replication::size);
    check_devices(&spec, &pools::imported()?, forced, &uneven).map_err(Stop::Failed)?;
    if dry_run {
        print!("{}", would_be(&report, &spec, style));
        return Ok(true);
    }
    let failed = |why: &str| Stop::Failed(format!("cannot add to '{name}': {why}"));
    if in_use::has_twins(&spec) {
        return Err(failed("one or more vdevs refer to the same device"));
    }
    if spec.leaves().any(|leaf| replication::size(&leaf.path).unwrap_or(0) < DEVICE_BYTES_MIN) {
        return Err(failed(&format!("device is less than the minimum size ({})", nicebytes(DEVICE_BYTES_MIN))));
    }
    let ashift = ashift.or_else(|| stored_ashift(&report)).filter(|&ashift| ashift != 0);
    let one_ashift = !forced.ashift;
    let devices = NewDevices { vdevs: spec.vdevs, spares: spec.spares, caches: spec.caches, ashift, one_ashift };
    let answer = connect(name)?.ask(&Request::Add { devices, history: history_line("add", args) });
    answer.map(|_| true).map_err(|e| match e.kind() {
        Kind::Busy => failed("one or more vdevs refer to the same device"),
        _ => failed(e.what()),
    })
}

/// `zpool remove`.
pub fn remove(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "npsw", &[]);
    let (mut dry_run, mut parsable, mut stop, mut waits) = (false, false, false, false);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('n') => dry_run = true,
            Opt::Flag('p') => parsable = true,
            Opt::Flag('s') => stop = true,
            Opt::Flag('w') => waits = true,
            other => return Err(Stop::bad_option(other)),
        }
    }
    let (name, devices) = match &parsed.operands[..] {
        [] => return Err(Stop::usage("missing pool name argument")),
        [name] if stop => (name, &[][..]),
        [_] => return Err(Stop::usage("missing device")),
        [name, devices @ ..] => (name, devices),
    };
    let Some(report) = report_of(name)? else { return Ok(false) };
    if stop && dry_run {
        eprintln!("stop request ignored");
        return Ok(true);
    }
    if stop {
        if waits {
            return Err(Stop::usage("invalid option combination: -w cannot be used with -s"));
        }
        let answer = connect(name)?.ask(&Request::CancelRemoval { history: history_line("remove", args) });
        return answer.map(|_| true).map_err(|e| Stop::Failed(format!("cannot cancel removal: {}", e.what())));
    }
    let mut history = history_line("remove", args);
    let mut done = true;
    for device in devices {
        let outcome = match find_any(&report, device) {
            None => Err(NO_SUCH_DEVICE.to_owned()),
            Some(vdev) if dry_run => {
                let answer = connect(name)?.ask(&Request::MayRemove { vdev: vdev.guid });
                answer.map_err(|e| refusal(&e).to_owned()).map(|reply| {
                    let PoolReply::TableBytes(bytes) = reply else { return };
                    match parsable {
                        true => println!("{device} {bytes}"),
                        false => println!("Memory that will be used after removing {device}: {}", nicenum(bytes)),
                    }
                })
            }
            Some(vdev) => {
                let answer = connect(name)?.ask(&Request::Remove { vdev: vdev.guid, history: history.clone() });
                answer.map(|_| history.clear()).map_err(|e| refusal(&e).to_owned())
            }
        };
        if let Err(why) = outcome {
            eprintln!("cannot remove {device}: {why}");
            done = false;
        }
    }
    if done && waits && !dry_run {
        return scan::wait_for_activity(name, "remove");
    }
    Ok(done)
}

/// `zpool attach`.
pub fn attach(args: &[OsString]) -> CommandResult {
    let BesideOptions { force, wait, sequentially, ashift, operands } = BesideOptions::parse(args)?;
    let (name, old, new) = match &operands[..] {
        [] => return Err(Stop::usage("missing pool name argument")),
        [_] => return Err(Stop::usage("missing <device> specification")),
        [_, _] => return Err(Stop::usage("missing <new_device> specification")),
        [name, old, new] => (name, old, new),
        _ => return Err(Stop::usage("too many arguments")),
    };
    let Some(report) = report_of(name)? else { return Ok(false) };
    let failed = |why: &str| Stop::Failed(format!("cannot attach {new} to {old}: {why}"));
    let (vdev, leaf) = devices_of(&report, old, new, force, &failed)?;
    let is_old = |known: &&VdevReport| known.guid == vdev;
    let activity = match report.root.all().into_iter().find(is_old).map(|known| known.kind.as_str()) {
        Some("disk" | "file") | None => "resilver",
        Some("raidz") => "raidz_expand",
        Some(_) => return Err(failed("can only attach to mirrors and top-level disks")),
    };
    let ashift = ashift.or_else(|| stored_ashift(&report)).filter(|&ashift| ashift != 0);
    let history = history_line("attach", args);
    let request = Request::Attach { vdev, new: leaf, replaces: false, sequentially, ashift, history };
    put_beside(name, new, &request, &failed)?;
    if wait { scan::wait_for_activity(name, activity) } else { Ok(true) }
}

/// `zpool replace`.
pub fn replace(args: &[OsString]) -> CommandResult {
    let BesideOptions { force, wait, sequentially, ashift, operands } = BesideOptions::parse(args)?;
    let (name, old, new) = match &operands[..] {
        [] => return Err(Stop::usage("missing pool name argument")),
        [_] => return Err(Stop::usage("missing <device> specification")),
        // another device is where the old one was
        [name, old] => (name, old, old),
        [name, old, new] => (name, old, new),
        _ => return Err(Stop::usage("too many arguments")),
    };
    let Some(report) = report_of(name)? else { return Ok(false) };
    let failed = |why: &str| Stop::Failed(format!("cannot replace {old} with {new}: {why}"));
    let path_of = |vdev: &VdevReport| vdev.path.clone().unwrap_or_default();
    let new = match find_any(&report, old).filter(|_| old == new) {
        Some(vdev) => &path_of(vdev),
        None => new,
    };
    let (vdev, leaf) = match spare_called(&report, new) {
        Some(spare) => (find(&report, old).map_err(&failed)?, spare),
        None => devices_of(&report, old, new, force, &failed)?,
    };
    let ashift = ashift.or_else(|| stored_ashift(&report)).filter(|&ashift| ashift != 0);
    let history = history_line("replace", args);
    let request = Request::Attach { vdev, new: leaf, replaces: true, sequentially, ashift, history };
    put_beside(name, new, &request, &failed)?;
    if wait { scan::wait_for_activity(name, "replace") } else { Ok(true) }
}

/// Options and operands of `attach` and `replace`.
struct BesideOptions {
    force: bool,
    wait: bool,
    sequentially: bool,
    ashift: Option<u32>,
    operands: Vec<String>,
}

impl BesideOptions {
    fn parse(args: &[OsString]) -> Result<BesideOptions, Stop> {
        let parsed = getopt::parse(args, "fo:sw", &[]);
        let mut options =
            BesideOptions { force: false, wait: false, sequentially: false, ashift: None, operands: parsed.operands };
        for opt in &parsed.opts {
            match opt {
                Opt::Flag('f') => options.force = true,
                Opt::Flag('s') => options.sequentially = true,
                Opt::Flag('w') => options.wait = true,
                Opt::Value('o', text) => options.ashift = Some(ashift_of(text)?),
                other => return Err(Stop::bad_option(other)),
            }
        }
        Ok(options)
    }
}

/// The spare of a pool that somebody calls so.
fn spare_called(report: &PoolReport, word: &str) -> Option<NewLeaf> {
    let called = find_any(report, word)?;
    let spare = report.spares.iter().find(|spare| spare.guid == called.guid)?;
    Some(NewLeaf { path: spare.path.clone()?, is_file: spare.kind == "file" })
}

/// The guid of a device of a pool, and a new one that may be used.
fn devices_of(
    report: &PoolReport,
    old: &str,
    new: &str,
    force: bool,
    failed: &dyn Fn(&str) -> Stop,
) -> Result<(Guid, NewLeaf), Stop> {
    let spec = NewPoolSpec::parse_more(&[new.to_owned()]).map_err(Stop::Failed)?;
    check_devices(&spec, &pools::imported()?, Forced::all(force), &Vec::new).map_err(Stop::Failed)?;
    let vdev = find(report, old).map_err(failed)?;
    let leaf = spec.leaves().next().cloned();
    Ok((vdev, leaf.ok_or_else(|| failed("new device must be a single disk"))?))
}

fn put_beside(pool: &str, new: &str, request: &Request, failed: &dyn Fn(&str) -> Stop) -> Result<(), Stop> {
    connect(pool)?.ask(request).map(drop).map_err(|e| match e.kind() {
        Kind::Busy if e.what().contains("log") => failed(e.what()),
        Kind::Busy => failed(&format!("{new} is busy")),
        _ => failed(refusal(&e)),
    })
}

/// `zpool detach`.
pub fn detach(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "", &[]);
    if let Some(opt) = parsed.opts.first() {
        return Err(Stop::bad_option(opt));
    }
    let (name, device) = match &parsed.operands[..] {
        [] => return Err(Stop::usage("missing pool name argument")),
        [_] => return Err(Stop::usage("missing <device> specification")),
        [name, device, ..] => (name, device),
    };
    let Some(report) = report_of(name)? else { return Ok(false) };
    let failed = |why: &str| Stop::Failed(format!("cannot detach {device}: {why}"));
    let vdev = find(&report, device).map_err(failed)?;
    let request = Request::Detach { vdev, history: history_line("detach", args) };
    connect(name)?.ask(&request).map(|_| true).map_err(|e| failed(refusal(&e)))
}

/// As the pool's process says it.
const OUT_OF_SPACE: &str = "out of space";

/// Why something was refused, in the words for the user.
fn refusal(error: &Error) -> &str {
    match error.kind() {
        Kind::Busy | Kind::Unsupported => error.what(),
        _ if error.what() == OUT_OF_SPACE => OUT_OF_SPACE,
        _ => words(error),
    }
}

/// The value of `-o ashift=`, the only property that devices have here.
fn ashift_of(text: &str) -> Result<u32, Stop> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Stop::usage("missing '=' for -o option"));
    };
    if name != "ashift" {
        return Err(Stop::usage(""));
    }
    let number: u32 = value.parse().map_err(|_| Stop::Failed("ashift must be a number.".to_owned()))?;
    match number {
        0 | 9..=16 => Ok(number),
        _ => {
            let why = "only values between 9 and 16 are allowed.";
            Err(Stop::Failed(format!("invalid 'ashift={number}' property: {why}")))
        }
    }
}

/// Property `ashift`, if it was set: that of new top-level vdevs.
fn stored_ashift(report: &PoolReport) -> Option<u32> {
    match report.stored.iter().find(|(name, _)| name == "ashift")? {
        (_, PropertyValue::Number(ashift)) => u32::try_from(*ashift).ok(),
        (_, PropertyValue::Text(_)) => None,
    }
}

/// The vdevs of a pool, as if they were to be made.
fn tops_of(report: &PoolReport) -> Vec<NewVdev> {
    let wished = |vdev: &VdevReport| {
        let leaf = |leaf: &&VdevReport| Some(NewLeaf { path: leaf.path.clone()?, is_file: leaf.kind == "file" });
        let shape = match vdev.kind.as_str() {
            "mirror" => NewVdevShape::Mirror,
            "raidz" => NewVdevShape::Raidz(vdev.nparity as usize),
            "draid" => {
                let (ndata, nspares) = vdev.draid?;
                NewVdevShape::Draid(DraidShape::new(vdev.children.len() as u64, ndata, vdev.nparity, nspares))
            }
            "disk" | "file" => NewVdevShape::Single,
            _ => return None,
        };
        let bias = if vdev.is_log { Some(Bias::Log) } else { None };
        Some(NewVdev { shape, bias, leaves: vdev.all().iter().filter_map(leaf).collect() })
    };
    report.root.children.iter().filter_map(wished).collect()
}

/// What `-n` prints.
fn would_be(report: &PoolReport, spec: &NewPoolSpec, style: NameStyle) -> String {
    let pool = &report.name;
    let mut text = format!("would update '{pool}' to the following configuration:\n\n");
    let new: Vec<VdevReport> = spec.vdevs.iter().map(new_vdev).collect();
    for (class, title) in [("", pool.as_str()), ("dedup", "dedup"), ("special", "special"), ("log", "logs")] {
        let is_in = |vdev: &&VdevReport| vdev.kind != "hole" && class_of(vdev) == class;
        let old: Vec<&VdevReport> = report.root.children.iter().filter(is_in).collect();
        let new: Vec<&VdevReport> = new.iter().filter(is_in).collect();
        if !old.is_empty() || !new.is_empty() {
            text += &format!("\t{title}\n");
        }
        let with_ids = |vdev: &VdevReport| style.name(vdev, pool);
        let plain = |vdev: &VdevReport| if vdev.path.is_some() { style.name(vdev, pool) } else { type_name(vdev) };
        old.iter().for_each(|vdev| lines(vdev, if class.is_empty() { &with_ids } else { &plain }, 2, &mut text));
        let unborn = NameStyle { guids: false, ..style };
        let plain = |vdev: &VdevReport| if vdev.path.is_some() { unborn.name(vdev, pool) } else { type_name(vdev) };
        new.iter().for_each(|vdev| lines(vdev, &plain, 2, &mut text));
    }
    for (title, old, new) in [("cache", &report.caches, &spec.caches), ("spares", &report.spares, &spec.spares)] {
        let new: Vec<VdevReport> = new.iter().map(new_leaf).collect();
        if !old.is_empty() || !new.is_empty() {
            text += &format!("\t{title}\n");
        }
        let unborn = NameStyle { guids: false, ..style };
        old.iter().for_each(|leaf| text += &format!("\t  {}\n", style.name(leaf, pool)));
        new.iter().for_each(|leaf| text += &format!("\t  {}\n", unborn.name(leaf, pool)));
    }
    text
}

fn lines(vdev: &VdevReport, name: &dyn Fn(&VdevReport) -> String, indent: usize, text: &mut String) {
    *text += &format!("\t{:indent$}{}\n", "", name(vdev));
    vdev.children.iter().for_each(|child| lines(child, name, indent + 2, text));
}

fn class_of(vdev: &VdevReport) -> &str {
    if vdev.is_log { "log" } else { vdev.bias.as_deref().unwrap_or_default() }
}

fn new_leaf(leaf: &NewLeaf) -> VdevReport {
    let kind = if leaf.is_file { "file" } else { "disk" };
    VdevReport { kind: kind.to_owned(), path: Some(leaf.path.clone()), ..VdevReport::default() }
}

fn new_vdev(vdev: &NewVdev) -> VdevReport {
    let mut report = match (vdev.shape, &vdev.leaves[..]) {
        (NewVdevShape::Single, [leaf]) => new_leaf(leaf),
        (shape, leaves) => {
            let (kind, nparity, draid) = match shape {
                NewVdevShape::Single | NewVdevShape::Mirror => ("mirror", 0, None),
                NewVdevShape::Raidz(parity) => ("raidz", parity as u64, None),
                NewVdevShape::Draid(shape) => ("draid", shape.nparity, Some((shape.ndata, shape.nspares))),
            };
            let children = leaves.iter().map(new_leaf).collect();
            VdevReport { kind: kind.to_owned(), nparity, draid, children, ..VdevReport::default() }
        }
    };
    report.is_log = vdev.bias == Some(Bias::Log);
    report.bias = match vdev.bias {
        Some(Bias::Special) => Some("special".to_owned()),
        Some(Bias::Dedup) => Some("dedup".to_owned()),
        None | Some(Bias::Log) => None,
    };
    report
}
