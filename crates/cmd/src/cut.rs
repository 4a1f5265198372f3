//! `cenote cut`: snapshots of many pools at one moment.
//!
//! ```text
//!   cenote cut ─┬─ party ── the process of a pool here            (protocol::cut)
//!               ├─ party ── the process of another one
//!               └─ party ── CMD cenote cut-hold ── the processes of pools there
//! ```
//!
//! - [`party`]: what takes steps, here or there; [`dance`]: the steps that all take together; [`mod@hold`]: a host's helper.

mod dance;
mod hold;
mod party;

use std::collections::HashSet;
use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use base::Env;
use dsl::NameKinds;
use protocol::cut::{CutOrder, HeldPool};

pub use hold::run as hold;

use self::party::Party;
use crate::output;

/// Take snapshots of many pools at one moment
///
/// Writes to all the pools wait, all snapshots are taken, writes go on: no snapshot has anything that a program wrote after
/// it had written something that another one lacks. Either all are taken or none. Mounts wait, and volumes that are served as disks.
/// A program that stores into mapped memory without msync(2) is not seen, nor is what a client of a volume keeps.
///
/// Pools behind --via are of another host: CMD is what reaches it, as 'ssh HOST', and 'cenote' is run there. If a pool or host
/// does not answer within the limit, writes go on everywhere, no snapshot stays, and the exit code is 1; so it is if this
/// command is killed, or a connection breaks.
#[derive(clap::Parser)]
#[command(name = "cenote cut", no_binary_name = true)]
struct CutArgs {
    /// Also of all datasets below
    #[arg(short)]
    recursive: bool,
    /// Seconds that writes may wait
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    limit: f64,
    /// A command of the shell to run before anything else; if it fails, nothing is done
    #[arg(long, value_name = "CMD")]
    before: Option<String>,
    /// A command of the shell to run at the end, whatever came of it: CENOTE_CUT is 'taken' or 'failed'
    #[arg(long, value_name = "CMD")]
    after: Option<String>,
    /// The name of the snapshots, behind '@'
    name: String,
    /// Pools, or datasets of them; those behind '--via CMD' are of the host that CMD reaches
    #[arg(required = true, allow_hyphen_values = true, trailing_var_arg = true, value_name = "[--via CMD] POOL")]
    pools: Vec<String>,
}

/// Seconds that writes may wait. Errors: the words are no such number.
fn seconds(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|seconds| (0.05..=60.0).contains(seconds));
    parsed.ok_or_else(|| "not a number of seconds from 0.05 to 60".to_owned())
}

/// The pools of a host.
#[derive(Debug, Default, PartialEq, Eq)]
struct HostPools {
    /// What reaches it; `None`: it is this one.
    via: Option<String>,
    /// Names of datasets.
    datasets: Vec<String>,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    output::run_command("cut", args, |args: CutArgs| {
        let hosts = hosts(&args.pools)?;
        let orders = orders(&args, &hosts)?;
        run_hook(args.before.as_deref(), "before", None)?;
        let limit = Duration::from_secs_f64(args.limit);
        let cut = || {
            let mut parties = Vec::new();
            for (host, order) in hosts.iter().zip(orders) {
                match &host.via {
                    None => parties.extend(party::here(order)),
                    Some(via) => parties.push(Party::there(via, order)?),
                }
            }
            dance::dance(parties, limit)
        };
        let outcome = cut();
        let after = run_hook(args.after.as_deref(), "after", Some(if outcome.is_ok() { "taken" } else { "failed" }));
        let held = outcome?;
        show(&args.name, &held);
        after
    })
}

fn show(name: &str, held: &[HeldPool]) {
    let longest = held.iter().map(|pool| pool.held_us).max().unwrap_or(0);
    for HeldPool { pool, held_us, snapshots } in held {
        let many = if *snapshots == 1 { "" } else { "s" };
        println!("{pool}: {snapshots} snapshot{many} @{name}, writes waited {:.1} ms", *held_us as f64 / 1000.0);
    }
    println!("{} pools at one moment, writes waited {:.1} ms at most", held.len(), longest as f64 / 1000.0);
}

/// Which pools are where. Errors: one is named twice, or no name of a pool; `--via` without a command, or without pools.
fn hosts(words: &[String]) -> Result<Vec<HostPools>, String> {
    let mut hosts = vec![HostPools::default()];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let via = match word.strip_prefix("--via") {
            Some("") => Some(words.next().ok_or("--via needs a command")?.clone()),
            Some(rest) if rest.starts_with('=') => Some(rest[1..].to_owned()),
            _ => None,
        };
        match via {
            Some(via) if via.trim().is_empty() => return Err("--via needs a command".to_owned()),
            Some(via) => hosts.push(HostPools { via: Some(via), datasets: Vec::new() }),
            None if word.starts_with('-') => {
                return Err(format!("options stand before the name, and '{word}' behind it"));
            }
            None => hosts.last_mut().ok_or("no host")?.datasets.push(word.clone()),
        }
    }
    if let Some(HostPools { via: Some(via), .. }) = hosts[1..].iter().find(|host| host.datasets.is_empty()) {
        return Err(format!("--via '{via}' has no pools behind it"));
    }
    hosts.retain(|host| !host.datasets.is_empty());
    let mut seen = HashSet::new();
    for host in &hosts {
        for dataset in &host.datasets {
            check_name(dataset, NameKinds { heads: true, snapshots: false, bookmarks: false })?;
            let pool = party::pool_of(dataset);
            if !seen.insert((&host.via, pool)) {
                return Err(format!("pool '{pool}' is named twice"));
            }
        }
    }
    Ok(hosts)
}

fn check_name(name: &str, kinds: NameKinds) -> Result<(), String> {
    dsl::check_name(name, kinds).map_err(|e| format!("'{name}': {}", e.what()))
}

/// What each host is asked. Errors: the name cannot be one of snapshots.
fn orders(args: &CutArgs, hosts: &[HostPools]) -> Result<Vec<CutOrder>, String> {
    let id = new_id();
    let limit_ms = Duration::from_secs_f64(args.limit).as_millis() as u64;
    let of_host = |host: &HostPools| {
        let names: Vec<String> = host.datasets.iter().map(|dataset| format!("{dataset}@{}", args.name)).collect();
        for name in &names {
            check_name(name, NameKinds { heads: false, snapshots: true, bookmarks: false })?;
        }
        let history = format!("cenote cut {}{}", if args.recursive { "-r " } else { "" }, names.join(" "));
        Ok(CutOrder { names, recursive: args.recursive, id: id.clone(), limit_ms, history })
    };
    hosts.iter().map(of_host).collect()
}

/// What no other cut is known by.
fn new_id() -> String {
    let env = Env::real();
    format!("{}-{:016x}", env.now_s(), env.random())
}

/// Runs a command of the user. Errors: it fails.
fn run_hook(command: Option<&str>, when: &str, outcome: Option<&str>) -> Result<(), String> {
    let Some(command) = command else { return Ok(()) };
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    if let Some(outcome) = outcome {
        shell.env("CENOTE_CUT", outcome);
    }
    match shell.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the command to be run {when} it failed: {status}")),
        Err(e) => Err(format!("the command to be run {when} it cannot be run: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(|word| word.replace('_', " ")).collect()
    }

    #[test]
    fn pools_are_where_via_says() {
        let host = |via: Option<&str>, datasets: &[&str]| HostPools {
            via: via.map(str::to_owned),
            datasets: datasets.iter().map(|name| (*name).to_owned()).collect(),
        };
        let found = hosts(&words("a b/c --via ssh_x a --via=ssh_y d e")).unwrap();
        let expect = [host(None, &["a", "b/c"]), host(Some("ssh x"), &["a"]), host(Some("ssh y"), &["d", "e"])];
        assert_eq!(found, expect);
        assert_eq!(hosts(&words("--via ssh_x a")).unwrap(), [host(Some("ssh x"), &["a"])]);
        for (text, why) in [
            ("a b a", "pool 'a' is named twice"),
            ("a a/b", "pool 'a' is named twice"),
            ("a --via ssh_x b b", "pool 'b' is named twice"),
            ("a --via", "--via needs a command"),
            ("a --via ssh_x", "--via 'ssh x' has no pools behind it"),
        ] {
            assert_eq!(hosts(&words(text)).unwrap_err(), why, "{text}");
        }
        assert!(hosts(&words("a@b")).is_err() && hosts(&words("-r a")).is_err());
    }

    #[test]
    fn hooks_that_fail_are_told() {
        run_hook(None, "before", None).unwrap();
        run_hook(Some("test $CENOTE_CUT = taken"), "after", Some("taken")).unwrap();
        assert!(run_hook(Some("exit 3"), "before", None).unwrap_err().contains("before it failed: exit status: 3"));
    }
}
