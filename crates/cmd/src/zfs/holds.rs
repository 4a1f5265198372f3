//! `zfs holds`.

use std::ffi::OsString;

use base::Shown;
use protocol::datasets::{DatasetRequest, Response, Types};
use protocol::words::time;

use super::client;
use super::client::Pools;
use super::command::{Outcome, Stopped, ZfsCommand, lines, parse};
use crate::getopt::Opt;
use crate::output::FAILED;

/// Runs the command.
pub(super) fn run(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "rHp", &[])?;
    let has = |flag| parsed.opts.contains(&Opt::Flag(flag));
    let (recursive, scripted, literal) = (has('r'), has('H'), has('p'));
    if parsed.operands.is_empty() {
        return Err(Outcome { err: super::command::usage(command), code: crate::output::USAGE, ..Outcome::default() });
    }
    let (mut snapshots, mut failures) = (Vec::new(), Vec::new());
    for name in &parsed.operands {
        let failure = |line: String| protocol::datasets::Failure { about: name.clone(), line };
        if !name.contains('@') {
            failures.push(failure(format!("'{name}' is not a snapshot")));
        } else if let Err(why) = client::check_name(name, Types::SNAPSHOTS) {
            failures.push(failure(format!("cannot open '{name}': {why}")));
        } else if let Some(why) = client::why_not_there(pools, name) {
            failures.push(failure(format!("cannot open '{name}': {why}")));
        } else {
            let pool = client::pool_of(name);
            match pools.ask(pool, &DatasetRequest::Holds { snapshots: vec![name.clone()], recursive })? {
                Response::Holds(found, failed) => {
                    snapshots.extend(found);
                    failures.extend(failed);
                }
                _ => return Err(client::unexpected(pool).into()),
            }
        }
    }
    let text = |time_s: u64| {
        if literal { time_s.to_string() } else { time::local(time_s, c"%a %b %e %H:%M %Y") }
    };
    let rows = snapshots.iter().flat_map(|snapshot| {
        snapshot.holds.iter().map(|(tag, time_s)| [snapshot.snapshot.clone(), tag.clone(), text(*time_s)])
    });
    let rows: Vec<[String; 3]> = rows.collect();
    let code = if failures.is_empty() { 0 } else { FAILED };
    let mut err = lines(&failures);
    if snapshots.is_empty() {
        err.push_str("no datasets available\n");
    }
    // snapshots without holds make the column wider, too
    let width = snapshots.iter().map(|snapshot| snapshot.snapshot.chars().count()).max().unwrap_or(0);
    Ok(Outcome { out: table(&rows, width, scripted), err, code })
}

fn table(rows: &[[String; 3]], name: usize, scripted: bool) -> String {
    if scripted {
        return rows.iter().map(|row| format!("{}\n", row.join("\t"))).collect();
    }
    let tag = rows.iter().map(|row| row[1].chars().count()).max().unwrap_or(0);
    let headers = ["NAME", "TAG", "TIMESTAMP"].map(str::to_owned);
    let lines = std::iter::once(&headers).chain(rows);
    lines.map(|[a, b, c]| format!("{a:<name$}  {:<tag$}  {c}\n", Shown(b).to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table() {
        let rows = [["t/a@s", "backup", "Sat Nov 21 21:42 2026"].map(str::to_owned)];
        assert_eq!(table(&rows, 5, false), "NAME   TAG     TIMESTAMP\nt/a@s  backup  Sat Nov 21 21:42 2026\n");
        assert_eq!(table(&rows, 5, true), "t/a@s\tbackup\tSat Nov 21 21:42 2026\n");
        assert_eq!(table(&[], 6, false), "NAME    TAG  TIMESTAMP\n");
    }
}
