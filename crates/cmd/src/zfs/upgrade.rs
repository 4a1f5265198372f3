//! `zfs upgrade`: versions of file systems.

use std::ffi::OsString;
use std::fmt::Write;

use base::Shown;
use dsl::Property;
use dsl::property::needs;
use protocol::datasets::{CellValue, ChangeRequest, DatasetRow, Select, Types, WantedProperty};

use super::client::{self, Pools};
use super::command::{Outcome, Stopped, ZfsCommand, lines, parse, usage};
use super::list::SearchReach;
use super::request::{ask, history_line};
use crate::getopt::Opt;
use crate::output::{FAILED, USAGE};

/// The version of new file systems.
const CURRENT: u64 = 5;

const VERSIONS: &str = "The following filesystem versions are supported:\n\n\
    VER  DESCRIPTION\n\
    ---  --------------------------------------------------------\n \
    1   Initial ZFS filesystem version\n \
    2   Enhanced directory entries\n \
    3   Case insensitive and filesystem user identifier (FUID)\n \
    4   userquota, groupquota properties\n \
    5   System attributes\n\
    \nFor more information on a particular version, including supported releases,\n\
    see the ZFS Administration Guide.\n\n";
const OLDER: &str = "The following filesystems are out of date, and can be upgraded.  After being\n\
    upgraded, these filesystems (and any 'zfs send' streams generated from\n\
    subsequent snapshots) will no longer be accessible by older software versions.\n\n";
const NEWER: &str = "The following filesystems are formatted using a newer software version and\n\
    cannot be accessed on the current system.\n\n";

/// What is said of a version that the pool is too old for.
const POOL_FIRST: &str = "must be upgraded to set this property or value\n";

/// Runs the command.
pub(super) fn run(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "rvV:a", &[])?;
    let has = |flag| parsed.opts.contains(&Opt::Flag(flag));
    let (recursive, shows_versions, all) = (has('r'), has('v'), has('a'));
    let mut version = None;
    for opt in &parsed.opts {
        if let Opt::Value('V', text) = opt {
            version = Some(parse_version(command, text)?);
        }
    }
    let roots = parsed.operands;
    let is_named = all || !roots.is_empty();
    let is_wrong = !is_named && (recursive || version.is_some())
        || shows_versions && (recursive || version.is_some() || is_named)
        || all && !roots.is_empty();
    if is_wrong {
        return Err(Outcome { err: usage(command), code: USAGE, ..Outcome::default() });
    }
    if shows_versions {
        return Ok(Outcome { out: VERSIONS.to_owned(), ..Outcome::default() });
    }
    let found = file_systems(pools, roots, recursive || !is_named || all)?;
    let mut outcome = match is_named {
        true => set(pools, &found.versions, version.unwrap_or(CURRENT), &history_line("upgrade", args))?,
        false => Outcome { out: list(&found.versions, found.failures.is_empty()), ..Outcome::default() },
    };
    if !found.failures.is_empty() {
        outcome.err.insert_str(0, &found.failures);
        outcome.code = FAILED;
    }
    Ok(outcome)
}

fn parse_version(command: &ZfsCommand, text: &str) -> Result<u64, Stopped> {
    let number = if text == "current" { Some(CURRENT) } else { text.parse().ok() };
    let invalid = || Outcome::misused(command, format_args!("invalid version {text}"));
    number.filter(|number| (1..=CURRENT).contains(number)).ok_or_else(invalid)
}

/// File systems with their versions, by name, and lines about those that there are not.
struct FoundVersions {
    versions: Vec<(String, u64)>,
    failures: String,
}

fn file_systems(pools: &dyn Pools, roots: Vec<String>, recursive: bool) -> Result<FoundVersions, Stopped> {
    let types = Types::FILE_SYSTEMS;
    let reach = SearchReach::new(types, recursive, None, &roots);
    let select = Select {
        roots,
        root_types: reach.root_types,
        depth: reach.depth,
        types,
        ask_listsnapshots: false,
        properties: vec![WantedProperty::Native(Property::Version.name().to_owned())],
        user_properties: false,
        received: false,
    };
    let mut found = client::datasets(pools, &select)?;
    found.rows.sort_by(|a, b| a.name.cmp(&b.name));
    let versions = found.rows.iter().filter_map(|row| Some((row.name.clone(), version_of(row)?))).collect();
    Ok(FoundVersions { versions, failures: lines(&found.failures) })
}

fn version_of(row: &DatasetRow) -> Option<u64> {
    match row.cells.first()?.as_ref()?.value {
        CellValue::Number(version) => Some(version),
        CellValue::Text(_) => None,
    }
}

/// The file systems that are not of the current version; `are_all`: no others are there.
fn list(versions: &[(String, u64)], are_all: bool) -> String {
    let mut out = format!("This system is currently running ZFS filesystem version {CURRENT}.\n\n");
    let mut add = |head: &str, is_meant: &dyn Fn(u64) -> bool| {
        let meant: Vec<_> = versions.iter().filter(|(_, version)| is_meant(*version)).collect();
        if meant.is_empty() {
            return false;
        }
        // the head ends with a line of its own
        write!(out, "{head}\nVER  FILESYSTEM\n---  ------------\n").expect("writing to a string does not fail");
        for (name, version) in meant {
            writeln!(out, "{version:2}   {}", Shown(name)).expect("writing to a string does not fail");
        }
        true
    };
    let has_older = add(OLDER, &|version| version < CURRENT);
    let has_newer = add(NEWER, &|version| version > CURRENT);
    if !has_older && !has_newer && are_all {
        out += "All filesystems are formatted with the current version.\n";
    }
    out
}

/// Brings file systems to a version.
fn set(pools: &dyn Pools, versions: &[(String, u64)], wanted: u64, history: &str) -> Result<Outcome, Stopped> {
    let mut outcome = Outcome::default();
    let (mut same, mut upgraded) = (0, 0);
    let mut told: Vec<&str> = Vec::new();
    for (name, version) in versions {
        let shown = Shown(name);
        if *version < wanted {
            let pool = client::pool_of(name);
            let properties = vec![(Property::Version.name().to_owned(), wanted.to_string())];
            let change = ChangeRequest::Set { dataset: name.clone(), properties, no_mount: true };
            // once for each pool
            let line = (!told.contains(&pool)).then(|| history.to_owned());
            told.push(pool);
            let done = ask(pools, pool, change, line)?;
            outcome.out += &done.out;
            if done.code == 0 {
                upgraded += 1;
                outcome.err += &done.err;
                continue;
            }
            outcome.code = FAILED;
            match done.err.ends_with(POOL_FIRST) {
                true => {
                    let needed = needs::pool_version_for_files(wanted);
                    let why = "can not be upgraded; the pool version needs to first be upgraded";
                    outcome.out += &format!("{shown}: {why}\nto version {needed}\n\n");
                }
                false => outcome.err += &done.err,
            }
        } else if *version > wanted {
            outcome.out += &format!("{shown}: can not be downgraded; it is already at version {version}\n");
            outcome.code = FAILED;
        } else {
            same += 1;
        }
    }
    outcome.out += &format!("{upgraded} filesystems upgraded\n");
    if same > 0 {
        outcome.out += &format!("{same} filesystems already at this version\n");
    }
    Ok(outcome)
}
