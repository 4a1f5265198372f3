//! `zpool export`: the pool's process unmounts everything and ends.

use std::ffi::OsString;

use daemon::leftovers;
use protocol::client;
use protocol::pool_report::PoolReport;
use protocol::wire::{PoolReply, Request};

use super::command::{CommandResult, Stop, history_line};
use super::pools;
use crate::getopt::{self, Opt};

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "afF", &[]);
    let (mut all, mut force, mut stays_active) = (false, false, false);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('a') => all = true,
            Opt::Flag('f') => force = true,
            Opt::Flag('F') => (force, stays_active) = (true, true),
            other => return Err(Stop::bad_option(other)),
        }
    }
    if all && !parsed.operands.is_empty() {
        return Err(Stop::usage("too many arguments"));
    }
    if !all && parsed.operands.is_empty() {
        return Err(Stop::usage("missing pool argument"));
    }
    // a pool whose process was killed is not imported any more, but its mounts are still in the way
    let mut names = parsed.operands;
    if all {
        leftovers::clear_all().map_err(|e| Stop::Failed(e.to_string()))?;
    } else {
        let mut living = Vec::new();
        for name in names {
            let was_killed = leftovers::clear(&name).map_err(|e| Stop::Failed(e.to_string()))?;
            living.extend((!was_killed).then_some(name));
        }
        names = living;
        if names.is_empty() {
            return Ok(true);
        }
    }
    let history = history_line("export", args);
    let mut failed = false;
    for mut open in pools::open(&names, &mut failed)? {
        let name = open.name.clone();
        // a pool that cannot be asked is exported all the same
        open.report().iter().for_each(warn_of_stale);
        if let Err(why) = export(&name, (force, stays_active), &history) {
            eprintln!("{why}");
            failed = true;
        }
    }
    Ok(!failed)
}

/// Says which devices must not be all that is left of the pool when it is imported again.
fn warn_of_stale(report: &PoolReport) {
    let stale = report.root.all().into_iter().filter(|vdev| vdev.awaits_resilver);
    let names: Vec<&str> = stale.filter_map(|vdev| vdev.path.as_deref()).collect();
    if !names.is_empty() {
        eprintln!(
            "warning: '{}' needs all its devices: what was written while they were away is not on\n\t{}",
            report.name,
            names.join("\n\t")
        );
    }
}

fn export(name: &str, (force, stays_active): (bool, bool), history: &str) -> Result<(), String> {
    let failed = |e: base::Error| format!("cannot export '{name}': {}", e.what());
    let mut connection =
        client::connect(name).map_err(failed)?.ok_or_else(|| format!("cannot open '{name}': no such pool"))?;
    let request = Request::Export { force, stays_active, history: history.to_owned() };
    let mut asked = connection.ask(&request);
    if asked.as_ref().is_err_and(|e| e.what().contains(fuse::NO_HELPER)) {
        leftovers::unmount(name, force).map_err(failed)?;
        asked = connection.ask(&request);
    }
    match asked {
        Ok(PoolReply::Exported) => {
            connection.wait_for_end();
            Ok(())
        }
        Ok(_) => Err(format!("cannot export '{name}': its process answers another question")),
        // it says itself what cannot be unmounted
        Err(e) => Err(e.what().to_owned()),
    }
}
