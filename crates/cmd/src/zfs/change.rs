//! `zfs create`, `destroy`, `set`, `inherit` and `rename`: their command lines.
//!
//! What they do is done by the process of the pool (`changing`).

use std::ffi::OsString;

use dsl::Property;
use dsl::property::{is_user_property, rules};
use protocol::datasets::{ChangeRequest, CreateChange, DestroyChange, NewVolumeSpace, RenameChange, Types};

use super::client;
use super::client::Pools;
use super::command::{Outcome, Stopped, ZfsCommand, parse};
use super::request::{ask, history_line, pool_for, properties};
use crate::getopt::Opt;
use crate::output::FAILED;

/// `zfs create`.
pub(super) fn create(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, ":Pb:no:pusvV:", &[])?;
    let has = |flag| parsed.opts.contains(&Opt::Flag(flag));
    let is_volume = parsed.opts.iter().any(|opt| matches!(opt, Opt::Value('V', _)));
    let has_volume_flag = has('s') || parsed.opts.iter().any(|opt| matches!(opt, Opt::Value('b', _)));
    if has_volume_flag && !is_volume {
        return Err(Outcome::misused(command, "'-s' and '-b' can only be used when creating a volume"));
    }
    if has('u') && is_volume {
        return Err(Outcome::misused(command, "'-u' can only be used when creating a filesystem"));
    }
    let properties = create_properties(&parsed.opts)?;
    let kind = if is_volume { "volume" } else { "filesystem" };
    let name = match &parsed.operands[..] {
        [] => return Err(Outcome::misused(command, format_args!("missing {kind} argument"))),
        [name] => name,
        _ => return Err(Outcome::misused(command, "too many arguments")),
    };
    let failed = |why: &str| Ok(Outcome::failed(format!("cannot create '{name}': {why}\n")));
    let types = if is_volume { Types::VOLUMES } else { Types::FILE_SYSTEMS };
    if let Err(why) = client::check_new_name(name, types) {
        return failed(&why);
    }
    let pool = client::pool_of(name);
    let is_imported = match pools.has(pool) {
        Ok(is_imported) => is_imported,
        Err(error) => return failed(error.what()),
    };
    if !name.contains('/') {
        // the root file system of a pool that is there exists already
        return if has('p') && is_imported && !is_volume {
            Ok(Outcome::default())
        } else {
            failed("missing dataset name")
        };
    }
    if !is_imported {
        return failed(&format!("no such pool '{pool}'"));
    }
    let change = CreateChange {
        dataset: name.clone(),
        volume: is_volume.then(|| if has('s') { NewVolumeSpace::Sparse } else { NewVolumeSpace::Reserved }),
        parents: has('p'),
        properties,
        mount: !has('u') && !is_volume,
        dry_run: has('n'),
        verbose: has('v') || has('P'),
        parsable: has('P'),
    };
    ask(pools, pool, ChangeRequest::Create(change), Some(history_line("create", args)))
}

/// The properties that flags of `zfs create` give, in their order.
fn create_properties(opts: &[Opt]) -> Result<Vec<(String, String)>, Stopped> {
    let mut given: Vec<(String, String)> = Vec::new();
    for opt in opts {
        let (what, name, text) = match opt {
            Opt::Value('o', text) => {
                let one =
                    properties(given.iter().map(|(name, value)| format!("{name}={value}")).chain([text.clone()]))?;
                given.extend(one.into_iter().last());
                continue;
            }
            Opt::Value('V', text) => ("size", Property::Volsize.name(), text),
            Opt::Value('b', text) => ("block size", Property::Volblocksize.name(), text),
            _ => continue,
        };
        let bytes = rules::parse_number(text);
        let bytes = bytes.map_err(|e| Outcome::failed(format!("bad volume {what} '{text}': {}\n", e.what())))?;
        // the last one counts
        given.retain(|(before, _)| before != name);
        given.push((name.to_owned(), bytes.to_string()));
    }
    Ok(given)
}

/// `zfs destroy`.
pub(super) fn destroy(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "vpndfrR", &[])?;
    let has = |flag| parsed.opts.contains(&Opt::Flag(flag));
    let name = match &parsed.operands[..] {
        [] => return Err(Outcome::misused(command, "missing dataset argument")),
        [name] => name,
        _ => return Err(Outcome::misused(command, "too many arguments")),
    };
    if name.contains(['@', '#']) {
        return super::snapshots::destroy(pools, name, &has, history_line("destroy", args));
    }
    if has('d') {
        let why = "operation not applicable to datasets of this type";
        return Ok(Outcome::failed(format!("cannot open '{name}': {why}\n")));
    }
    let pool = match pool_for(pools, name, Types::DATASETS)? {
        Ok(pool) => pool,
        Err(line) => return Ok(Outcome::failed(line)),
    };
    let change = DestroyChange {
        dataset: name.clone(),
        recursive: has('r') || has('R'),
        clones: has('R'),
        force: has('f'),
        dry_run: has('n'),
        verbose: has('v') || has('p'),
        parsable: has('p'),
    };
    ask(pools, &pool, ChangeRequest::Destroy(change), Some(history_line("destroy", args)))
}

/// `zfs set`.
pub(super) fn set(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let misused = |why: &str| Err(Outcome::misused(command, why));
    let no_mount = words.first().is_some_and(|word| word == "-u");
    let words = &words[usize::from(no_mount)..];
    if let Some(flag) = words.first().and_then(|word| word.strip_prefix('-')) {
        let flag: String = flag.chars().take(1).collect();
        return misused(&format!("invalid option '{flag}'"));
    }
    let count = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
    let (settings, datasets) = words.split_at(count);
    match (settings, datasets) {
        ([], []) => return misused("missing arguments"),
        _ if datasets.iter().any(|word| word.contains('=')) => return misused("invalid argument order"),
        ([], _) => return misused("missing property=value argument(s)"),
        (_, []) => return misused("missing dataset name(s)"),
        _ => {}
    }
    let properties = properties(settings.iter().map(String::as_str))?;
    let change =
        |dataset: &str| ChangeRequest::Set { dataset: dataset.to_owned(), properties: properties.clone(), no_mount };
    each(pools, datasets, &change, &history_line("set", args))
}

/// `zfs inherit`.
pub(super) fn inherit(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "rS", &[])?;
    let has = |flag| parsed.opts.contains(&Opt::Flag(flag));
    let Some((name, datasets)) = parsed.operands.split_first() else {
        return Err(Outcome::misused(command, "missing property argument"));
    };
    if datasets.is_empty() {
        return Err(Outcome::misused(command, "missing dataset argument"));
    }
    let received = has('S');
    match Property::find(name) {
        Some(property) => {
            if let Some(why) = why_not_inherited(property, name, received) {
                return Ok(Outcome::failed(why));
            }
        }
        None if is_user_property(name) => {}
        None => return Err(Outcome::misused(command, format_args!("invalid property '{name}'"))),
    }
    let change = |dataset: &str| ChangeRequest::Inherit {
        dataset: dataset.to_owned(),
        property: name.clone(),
        received,
        recursive: has('r'),
    };
    each(pools, datasets, &change, &history_line("inherit", args))
}

fn why_not_inherited(property: Property, name: &str, received: bool) -> Option<String> {
    if property.is_read_only() {
        return Some(format!("{name} property is read-only\n"));
    }
    if property.is_inherited() || received {
        return None;
    }
    let mut why = format!("'{name}' property cannot be inherited\n");
    if matches!(name, "quota" | "reservation" | "refquota" | "refreservation") {
        why += &format!("use 'zfs set {name}=none' to clear\n");
        why += &format!("use 'zfs inherit -S {name}' to revert to received value\n");
    }
    Some(why)
}

/// `zfs rename`.
pub(super) fn rename(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "pruf", &[])?;
    let has = |flag| parsed.opts.contains(&Opt::Flag(flag));
    let misused = |why: &str| Err(Outcome::misused(command, why));
    let (from, to) = match &parsed.operands[..] {
        [] => return misused("missing source dataset argument"),
        [_] => return misused("missing target dataset argument"),
        [from, to] => (from, to),
        _ => return misused("too many arguments"),
    };
    if has('r') && has('p') {
        return misused("-p and -r options are mutually exclusive");
    }
    if has('u') && has('p') {
        return misused("-u and -p options are mutually exclusive");
    }
    if has('r') && !from.contains('@') {
        return misused("source dataset for recursive rename must be a snapshot");
    }
    if from.contains('@') && !has('p') && !has('u') {
        return super::snapshots::rename(pools, (from, to), has('r'), history_line("rename", args));
    }
    let pool = match pool_for(pools, from, Types { snapshots: false, ..Types::DATASETS })? {
        Ok(pool) => pool,
        Err(line) => return Ok(Outcome::failed(line)),
    };
    let refused = |why: &str| Ok(Outcome::failed(format!("cannot rename to '{to}': {why}\n")));
    if let Err(why) = client::check_moved_name(to, Types { snapshots: false, ..Types::DATASETS }) {
        return refused(&why);
    }
    if client::pool_of(to) != pool {
        return refused("datasets must be within same pool");
    }
    let change =
        RenameChange { from: from.clone(), to: to.clone(), parents: has('p'), force: has('f'), no_unmount: has('u') };
    ask(pools, &pool, ChangeRequest::Rename(change), Some(history_line("rename", args)))
}

/// Asks for a change of each dataset. Each pool gets the command into its history once.
fn each(
    pools: &dyn Pools,
    datasets: &[String],
    change: &dyn Fn(&str) -> ChangeRequest,
    history: &str,
) -> Result<Outcome, Stopped> {
    let mut outcome = Outcome::default();
    let mut told: Vec<String> = Vec::new();
    for name in datasets {
        let pool = match pool_for(pools, name, Types::DATASETS)? {
            Ok(pool) => pool,
            Err(line) => {
                (outcome.err, outcome.code) = (outcome.err + &line, FAILED);
                continue;
            }
        };
        let history = (!told.contains(&pool)).then(|| history.to_owned());
        let one = ask(pools, &pool, change(name), history)?;
        if one.code == 0 {
            told.push(pool);
        }
        outcome.err += &one.err;
        outcome.code = outcome.code.max(one.code);
    }
    Ok(outcome)
}
