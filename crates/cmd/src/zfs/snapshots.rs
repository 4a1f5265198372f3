//! `zfs snapshot`, `rollback`, `clone`, `promote`, `hold`, `release`, `bookmark`, and `destroy` and `rename` of snapshots:
//! their command lines.

use std::ffi::OsString;

use protocol::client::DOES_NOT_ANSWER;
use protocol::datasets::{ChangeRequest, DestroySnapshots, SnapshotRequest, Types};

use super::client::{self, Pools};
use super::command::{Outcome, Stopped, ZfsCommand, parse, usage};
use super::request::{ask, history_line, pool_for, properties};
use crate::getopt::{Opt, Parsed};
use crate::output::{FAILED, USAGE};

/// File systems and volumes.
const HEADS: Types = Types { snapshots: false, ..Types::DATASETS };

fn has(parsed: &Parsed, flag: char) -> bool {
    parsed.opts.contains(&Opt::Flag(flag))
}

/// The values behind `-o`.
fn given(parsed: &Parsed) -> Result<Vec<(String, String)>, Stopped> {
    properties(parsed.opts.iter().filter_map(|opt| match opt {
        Opt::Value('o', text) => Some(text.as_str()),
        _ => None,
    }))
}

/// Something that was named cannot be opened, which some commands take for misuse.
fn misused_by(command: &ZfsCommand, line: &str) -> Outcome {
    if line.trim_end().ends_with(DOES_NOT_ANSWER) {
        return Outcome::failed(line.to_owned());
    }
    Outcome { err: format!("{line}{}", usage(command)), code: USAGE, ..Outcome::default() }
}

/// `zfs snapshot`.
pub(super) fn snapshot(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "ro:", &[])?;
    let properties = given(&parsed)?;
    let names = &parsed.operands;
    if names.is_empty() {
        return Err(Outcome::misused(command, "missing snapshot argument"));
    }
    let heads = names.iter().map_while(|name| name.split_once('@')).map(|(fs, _)| fs.to_owned());
    let heads: Vec<String> = heads.collect();
    if let Some(line) = cannot_open(pools, &heads)? {
        return Err(misused_by(command, &line));
    }
    if heads.len() < names.len() {
        return Err(misused_by(command, ""));
    }
    let is_many = names.len() > 1 || has(&parsed, 'r');
    let refused = |line: String| {
        let tail = if is_many { "no snapshots were created\n" } else { "" };
        Ok(Outcome::failed(format!("{line}\n{tail}")))
    };
    for name in names {
        if let Err(why) = client::check_new_name(name, Types::SNAPSHOTS) {
            return refused(format!("cannot create snapshot '{name}': {why}"));
        }
    }
    let pool = client::pool_of(&names[0]).to_owned();
    if names.iter().any(|name| client::pool_of(name) != pool) {
        return refused("cannot create snapshots : datasets must be within same pool".to_owned());
    }
    let request = SnapshotRequest::Take { names: names.clone(), recursive: has(&parsed, 'r'), properties };
    ask(pools, &pool, ChangeRequest::Snapshots(request), Some(history_line("snapshot", args)))
}

/// Why the first dataset cannot be opened that cannot, as a line; `None` if all can be.
fn cannot_open(pools: &dyn Pools, names: &[String]) -> Result<Option<String>, Stopped> {
    let mut roots = Vec::new();
    let mut misnamed = None;
    for name in names {
        match client::check_name(name, HEADS) {
            Ok(()) => roots.push(name.clone()),
            Err(why) => {
                misnamed = Some(format!("cannot open '{name}': {why}\n"));
                break;
            }
        }
    }
    // without any, all would be asked for
    if roots.is_empty() {
        return Ok(misnamed);
    }
    let select =
        protocol::datasets::Select { roots, root_types: HEADS, depth: Some(0), types: HEADS, ..Default::default() };
    let first = client::datasets(pools, &select)?.failures.into_iter().next();
    Ok(first.map(|failure| failure.line + "\n").or(misnamed))
}

/// `zfs destroy` of what has `@` or `#` in its name.
pub(super) fn destroy(
    pools: &dyn Pools,
    name: &str,
    has: &dyn Fn(char) -> bool,
    history: String,
) -> Result<Outcome, Stopped> {
    let Some((dataset, spec)) = name.split_once('@') else {
        for (flag, what) in [('n', "dryrun"), ('d', "defer destroy"), ('r', "recursive"), ('R', "recursive")] {
            if has(flag) {
                // as OpenZFS has it, which returns -1 then
                let err = format!("{what} is not supported with bookmark\n");
                return Ok(Outcome { err, code: u8::MAX, ..Outcome::default() });
            }
        }
        let absent = || Ok(Outcome::failed(format!("bookmark '{name}' does not exist.\n")));
        let pool = client::pool_of(name);
        if !pools.has(pool)? {
            return absent();
        }
        let request = SnapshotRequest::DestroyBookmark { name: name.to_owned() };
        return ask(pools, pool, ChangeRequest::Snapshots(request), Some(history));
    };
    let pool = match pool_for(pools, dataset, HEADS)? {
        Ok(pool) => pool,
        Err(line) => return Ok(Outcome::failed(line)),
    };
    let request = DestroySnapshots {
        dataset: dataset.to_owned(),
        spec: spec.to_owned(),
        recursive: has('r') || has('R'),
        clones: has('R'),
        defer: has('d'),
        force: has('f'),
        dry_run: has('n'),
        verbose: has('v') || has('p'),
        parsable: has('p'),
    };
    ask(pools, &pool, ChangeRequest::Snapshots(SnapshotRequest::Destroy(request)), Some(history))
}

/// `zfs rename` of a snapshot.
pub(super) fn rename(
    pools: &dyn Pools,
    (from, to): (&str, &str),
    recursive: bool,
    history: String,
) -> Result<Outcome, Stopped> {
    let pool = match pool_for(pools, from, Types::SNAPSHOTS)? {
        Ok(pool) => pool,
        Err(line) => return Ok(Outcome::failed(line)),
    };
    let (fs, _) = from.split_once('@').unwrap_or((from, ""));
    let refused = |why: &str| Ok(Outcome::failed(format!("cannot rename to '{to}': {why}\n")));
    // a name that begins with '@' is one of the same dataset's
    let full = if to.starts_with('@') || !to.contains('@') {
        format!("{fs}@{}", to.trim_start_matches('@'))
    } else {
        to.to_owned()
    };
    if let Err(why) = client::check_new_name(&full, Types::SNAPSHOTS) {
        return refused(&why);
    }
    if full.split_once('@').is_none_or(|(of, _)| of != fs) {
        return refused("snapshots must be part of same dataset");
    }
    let request = SnapshotRequest::Rename { from: from.to_owned(), to: full, recursive };
    ask(pools, &pool, ChangeRequest::Snapshots(request), Some(history))
}

/// `zfs rollback`.
pub(super) fn rollback(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "rRf", &[])?;
    let name = match &parsed.operands[..] {
        [] => return Err(Outcome::misused(command, "missing dataset argument")),
        [name] => name,
        _ => return Err(Outcome::misused(command, "too many arguments")),
    };
    let pool = match pool_for(pools, name, Types::SNAPSHOTS)? {
        Ok(pool) => pool,
        Err(line) => return Ok(Outcome::failed(line)),
    };
    let request = SnapshotRequest::Rollback {
        snapshot: name.clone(),
        later: has(&parsed, 'r') || has(&parsed, 'R'),
        clones: has(&parsed, 'R'),
        force: has(&parsed, 'f'),
    };
    ask(pools, &pool, ChangeRequest::Snapshots(request), Some(history_line("rollback", args)))
}

/// `zfs clone`.
pub(super) fn clone(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "o:pu", &[])?;
    let properties = given(&parsed)?;
    let (snapshot, target) = match &parsed.operands[..] {
        [] => return Err(Outcome::misused(command, "missing source dataset argument")),
        [_] => return Err(Outcome::misused(command, "missing target dataset argument")),
        [snapshot, target] => (snapshot, target),
        _ => return Err(Outcome::misused(command, "too many arguments")),
    };
    let pool = match pool_for(pools, snapshot, Types::SNAPSHOTS)? {
        Ok(pool) => pool,
        Err(line) => return Ok(Outcome::failed(line)),
    };
    let failed = |why: &str| Ok(Outcome::failed(format!("cannot create '{target}': {why}\n")));
    if let Err(why) = client::check_new_name(target, HEADS) {
        return failed(&why);
    }
    if client::pool_of(target) != pool {
        return failed("source and target pools differ");
    }
    let request = SnapshotRequest::Clone {
        snapshot: snapshot.clone(),
        target: target.clone(),
        parents: has(&parsed, 'p'),
        mount: !has(&parsed, 'u'),
        properties,
    };
    ask(pools, &pool, ChangeRequest::Snapshots(request), Some(history_line("clone", args)))
}

/// `zfs promote`.
pub(super) fn promote(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "", &[])?;
    let name = match &parsed.operands[..] {
        [] => return Err(Outcome::misused(command, "missing clone filesystem argument")),
        [name] => name,
        _ => return Err(Outcome::misused(command, "too many arguments")),
    };
    let pool = match pool_for(pools, name, HEADS)? {
        Ok(pool) => pool,
        Err(line) => return Ok(Outcome::failed(line)),
    };
    let request = SnapshotRequest::Promote { dataset: name.clone() };
    ask(pools, &pool, ChangeRequest::Snapshots(request), Some(history_line("promote", args)))
}

/// `zfs hold` and `zfs release`.
pub(super) fn hold(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let release = command.name == "release";
    let parsed = parse(command, args, "r", &[])?;
    let Some((tag, names)) = parsed.operands.split_first().filter(|(_, names)| !names.is_empty()) else {
        return Err(misused_by(command, ""));
    };
    if !release && tag.starts_with('.') {
        return Err(Outcome::misused(command, "tag may not start with '.'"));
    }
    let mut outcome = Outcome::default();
    let mut told: Vec<String> = Vec::new();
    for name in names {
        let fs = name.split_once('@').map(|(fs, _)| fs);
        let pool = match fs.map(|fs| pool_for(pools, fs, HEADS)).transpose()? {
            Some(Ok(pool)) => pool,
            Some(Err(line)) => {
                outcome.join(Outcome { err: line, code: FAILED, ..Outcome::default() });
                continue;
            }
            None => {
                outcome.join(Outcome::failed(format!("'{name}' is not a snapshot\n")));
                continue;
            }
        };
        let history = (!told.contains(&pool)).then(|| history_line(command.name, args));
        let request = SnapshotRequest::Hold {
            tag: tag.clone(),
            snapshots: vec![name.clone()],
            recursive: has(&parsed, 'r'),
            release,
        };
        let one = ask(pools, &pool, ChangeRequest::Snapshots(request), history)?;
        if one.code == 0 {
            told.push(pool);
        }
        outcome.join(one);
    }
    Ok(outcome)
}

/// `zfs bookmark`.
pub(super) fn bookmark(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "r", &[])?;
    let misused = |why: String| Err(Outcome::misused(command, why));
    let (source, bookmark) = match &parsed.operands[..] {
        [] => return misused("missing source argument".to_owned()),
        [_] => return misused("missing bookmark argument".to_owned()),
        [source, bookmark, ..] => (source, bookmark),
    };
    let Some(at) = source.find(['@', '#']) else {
        return misused(format!("invalid source name '{source}': must contain a '@' or '#'"));
    };
    let Some(hash) = bookmark.find('#') else {
        return misused(format!("invalid bookmark name '{bookmark}': must contain a '#'"));
    };
    let (source, bookmark) = match (at, hash) {
        (0, 0) => return misused("either source or bookmark must be specified as full dataset paths".to_owned()),
        (0, _) => (format!("{}{source}", &bookmark[..hash]), bookmark.clone()),
        (_, 0) => (source.clone(), format!("{}{bookmark}", &source[..at])),
        _ => (source.clone(), bookmark.clone()),
    };
    let recursive = has(&parsed, 'r');
    if recursive && !source.contains('@') {
        return misused("recursive bookmarks (-r) can only be created from a snapshot source".to_owned());
    }
    let types = if source.contains('@') { Types::SNAPSHOTS } else { Types::BOOKMARKS };
    let pool = match pool_for(pools, &source, types)? {
        Ok(pool) => pool,
        Err(line) => return Err(misused_by(command, &line)),
    };
    if client::pool_of(&bookmark) != pool {
        let why = "bookmark is in a different pool";
        return Ok(Outcome::failed(format!("cannot create bookmark '{bookmark}': {why}\n")));
    }
    let request = SnapshotRequest::Bookmark { source, bookmark, recursive };
    ask(pools, &pool, ChangeRequest::Snapshots(request), Some(history_line("bookmark", args)))
}

/// `zfs redact`.
pub(super) fn redact(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let operands: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let [snapshot, bookmark, later @ ..] = &operands[..] else {
        return Err(Outcome::misused(command, "too few arguments"));
    };
    if later.is_empty() {
        return Err(Outcome::misused(command, "too few arguments"));
    }
    let failed = |line: String| Ok(Outcome::failed(format!("{line}\n")));
    if let Err(error) = pools.has(client::pool_of(snapshot)) {
        return failed(format!("cannot open '{snapshot}': {}", error.what()));
    }
    let Ok(pool) = pool_for(pools, snapshot, Types::SNAPSHOTS)? else {
        return failed(format!("provided snapshot {snapshot} does not exist"));
    };
    if later.iter().any(|name| client::pool_of(name) != pool) {
        return failed("potentially invalid redaction snapshot; full dataset names required".to_owned());
    }
    let (snapshot, bookmark, later) = (snapshot.clone(), bookmark.clone(), later.to_vec());
    let request = SnapshotRequest::Redact { snapshot, bookmark, later };
    ask(pools, &pool, ChangeRequest::Snapshots(request), Some(history_line("redact", args)))
}
