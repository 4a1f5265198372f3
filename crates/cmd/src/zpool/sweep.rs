//! `zpool initialize` and `zpool trim`: what is free on devices is written to once, or they are told that nobody needs it.

use std::ffi::OsString;

use dsl::property::rules::parse_number;
use format::ids::Guid;
use pool::{SweepAction, SweepKind};
use protocol::pool_report::{PoolReport, VdevReport};
use protocol::wire::{PoolReply, Request};

use super::command::{CommandResult, Stop, history_line};
use super::leaves::{connect, find, report_of};
use super::names::NameStyle;
use super::pools;
use super::scan;
use crate::getopt::{self, Long, Opt};

const INITIALIZE_LONG: [Long; 5] = [
    Long { name: "cancel", takes_value: false, code: 'c' },
    Long { name: "suspend", takes_value: false, code: 's' },
    Long { name: "uninit", takes_value: false, code: 'u' },
    Long { name: "wait", takes_value: false, code: 'w' },
    Long { name: "all", takes_value: false, code: 'a' },
];
const TRIM_LONG: [Long; 6] = [
    Long { name: "cancel", takes_value: false, code: 'c' },
    Long { name: "secure", takes_value: false, code: 'd' },
    Long { name: "rate", takes_value: true, code: 'r' },
    Long { name: "suspend", takes_value: false, code: 's' },
    Long { name: "wait", takes_value: false, code: 'w' },
    Long { name: "all", takes_value: false, code: 'a' },
];
const START: SweepAction = SweepAction::Start { rate: 0, secure: false };

/// What a command line asks for.
struct SweepOptions {
    kind: SweepKind,
    action: SweepAction,
    wait: bool,
    operands: Vec<String>,
    history: String,
}

/// `zpool initialize`.
pub fn initialize(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "acsuw", &INITIALIZE_LONG);
    let (mut action, mut wait, mut all) = (START, false, false);
    for opt in &parsed.opts {
        let (letter, wanted) = match opt {
            Opt::Flag('a') => {
                all = true;
                continue;
            }
            Opt::Flag('w') => {
                wait = true;
                continue;
            }
            Opt::Flag('c') => ('c', SweepAction::Cancel),
            Opt::Flag('s') => ('s', SweepAction::Suspend),
            Opt::Flag('u') => ('u', SweepAction::Forget),
            other => return Err(Stop::bad_option(other)),
        };
        if action != START && action != wanted {
            return Err(Stop::usage(format!("-{letter} cannot be combined with other options")));
        }
        action = wanted;
    }
    if all && !parsed.operands.is_empty() {
        return Err(Stop::usage("-a cannot be combined with individual pools or vdevs"));
    }
    if parsed.operands.is_empty() && !all {
        return Err(Stop::usage("missing pool name argument"));
    }
    if wait && action != START {
        return Err(Stop::usage("-w cannot be used with -c, -sor -u"));
    }
    let history = history_line("initialize", args);
    run(&SweepOptions { kind: SweepKind::Initialize, action, wait, operands: parsed.operands, history })
}

/// `zpool trim`.
pub fn trim(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "acdr:sw", &TRIM_LONG);
    let (mut action, mut wait, mut all) = (START, false, false);
    let (mut rate, mut secure) = (0, false);
    for opt in &parsed.opts {
        let (letter, wanted) = match opt {
            Opt::Flag('a') => {
                all = true;
                continue;
            }
            Opt::Flag('w') => {
                wait = true;
                continue;
            }
            Opt::Flag('d') | Opt::Value('r', _) if action != START => {
                let letter = if *opt == Opt::Flag('d') { 'd' } else { 'r' };
                return Err(Stop::usage(format!("-{letter} cannot be combined with the -c or -s options")));
            }
            Opt::Flag('d') => {
                secure = true;
                continue;
            }
            Opt::Value('r', text) => {
                let number = parse_number(text);
                rate = number.map_err(|e| Stop::usage(format!("invalid value for rate: {}", e.what())))?;
                continue;
            }
            Opt::Flag('c') => ('c', SweepAction::Cancel),
            Opt::Flag('s') => ('s', SweepAction::Suspend),
            other => return Err(Stop::bad_option(other)),
        };
        if action != START && action != wanted {
            return Err(Stop::usage(format!("-{letter} cannot be combined with other options")));
        }
        action = wanted;
    }
    if parsed.operands.is_empty() && !all {
        return Err(Stop::usage("missing pool name argument"));
    }
    if wait && action != START {
        return Err(Stop::usage("-w cannot be used with -c or -s options"));
    }
    if all && !parsed.operands.is_empty() {
        return Err(Stop::usage("-a cannot be combined with individual zpools or vdevs"));
    }
    if action == START {
        action = SweepAction::Start { rate, secure };
    }
    let history = history_line("trim", args);
    run(&SweepOptions { kind: SweepKind::Trim, action, wait, operands: parsed.operands, history })
}

fn run(asked: &SweepOptions) -> CommandResult {
    let (names, devices) = match asked.operands.split_first() {
        None => (pools::imported()?.into_iter().map(|hello| hello.pool).collect(), &[][..]),
        Some((name, devices)) => (vec![name.clone()], devices),
    };
    let mut asked_of = Vec::new();
    for name in &names {
        asked_of.push(run_in(asked, name, devices)?);
    }
    let is_well = asked_of.iter().all(Option::is_some);
    if asked.wait && is_well {
        for (name, vdevs) in names.iter().zip(asked_of.into_iter().flatten()) {
            scan::wait_for_sweep(name, asked.kind, &vdevs)?;
        }
    }
    Ok(is_well)
}

/// Returns the devices that were asked, if nothing was wrong.
fn run_in(asked: &SweepOptions, name: &str, devices: &[String]) -> Result<Option<Vec<Guid>>, Stop> {
    let verb = if asked.kind == SweepKind::Trim { "trim" } else { "initialize" };
    let Some(report) = report_of(name)? else { return Ok(None) };
    let mut is_well = true;
    let mut vdevs: Vec<(Guid, String)> = Vec::new();
    for device in devices {
        match find(&report, device) {
            Ok(guid) => vdevs.push((guid, device.clone())),
            Err(why) => {
                eprintln!("cannot {verb} '{device}': {why}");
                is_well = false;
            }
        }
    }
    if !is_well {
        return Ok(None);
    }
    if devices.is_empty() {
        vdevs = all_leaves(&report);
    }
    let guids: Vec<Guid> = vdevs.iter().map(|(guid, _)| *guid).collect();
    let (kind, action, history) = (asked.kind, asked.action, asked.history.clone());
    let request = Request::Sweep { kind, action, vdevs: guids.clone(), history };
    let reply = connect(name)?.ask(&request).map_err(|e| Stop::Failed(format!("operation failed: {}", e.what())))?;
    let PoolReply::RefusedVdevs(refused) = reply else {
        return Err(Stop::Failed(format!("cannot {verb} '{name}': its process answers another question")));
    };
    // that some devices cannot is to be expected, if all were asked
    let is_secure = matches!(asked.action, SweepAction::Start { secure: true, .. });
    let may_fail = |why: &str| asked.kind == SweepKind::Trim && devices.is_empty() && !is_secure && why == NOT_TRIMMED;
    let (expected, others): (Vec<_>, Vec<_>) = refused.iter().partition(|(_, why)| may_fail(why));
    for (guid, why) in others {
        let name = vdevs.iter().find(|(known, _)| known == guid).map_or("", |(_, name)| name);
        eprintln!("cannot {verb} '{name}': {why}");
        is_well = false;
    }
    if !expected.is_empty() && expected.len() == vdevs.len() {
        eprintln!("cannot trim: no devices in pool support trim operations");
        is_well = false;
    }
    Ok(is_well.then_some(guids))
}

const NOT_TRIMMED: &str = "trim operations are not supported by this device";

/// Guids and names of all devices that are no spares.
fn all_leaves(report: &PoolReport) -> Vec<(Guid, String)> {
    let style = NameStyle { whole_paths: true, ..NameStyle::default() };
    let is_leaf = |vdev: &&VdevReport| vdev.children.is_empty() && !vdev.is_hole() && !vdev.is_indirect();
    let leaves = report.root.all().into_iter().skip(1).filter(is_leaf);
    leaves.map(|leaf| (leaf.guid, style.name(leaf, &report.name))).collect()
}
