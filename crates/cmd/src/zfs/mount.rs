//! `zfs mount` and `zfs unmount`.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};

use protocol::datasets::{DatasetRequest, Failure, MountRequest, Response, Types, UnmountRequest, UnmountWhat};

use super::client::Pools;
use super::command::{JSON, Outcome, Stopped, ZfsCommand, lines, parse};
use super::{client, json};
use crate::getopt::Opt;
use crate::output::FAILED;
use crate::patience::{metadata, real_path};

/// `zfs mount`.
pub(super) fn mount(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, ":ajRlvo:Of", &JSON[..1])?;
    let has = |flag| parsed.opts.contains(&Opt::Flag(flag));
    let mut options = Vec::new();
    for opt in &parsed.opts {
        match opt {
            Opt::Value('o', list) if list.is_empty() => {
                return Err(Outcome::misused(command, "empty mount options (-o) specified"));
            }
            Opt::Value('o', list) => options.extend(list.split(',').map(str::to_owned)),
            _ => {}
        }
    }
    let operands = &parsed.operands;
    if has('j') && !operands.is_empty() {
        return Err(Outcome::misused(command, "too many arguments"));
    }
    if has('a') && !operands.is_empty() || operands.len() > 1 {
        return Err(Outcome::misused(command, "too many arguments"));
    }
    let request = |dataset: Option<String>| MountRequest {
        dataset,
        recursive: has('R'),
        options: options.clone(),
        overlay: has('O'),
        force: has('f'),
        load_keys: has('l'),
    };
    match operands.first() {
        Some(name) if has('v') && has('R') => with_progress(pools, &request(Some(name.clone()))),
        None if has('v') && has('a') => with_progress(pools, &request(None)),
        None if has('a') => all(pools, &DatasetRequest::Mount(request(None))),
        None if has('R') => Err(Outcome::misused(command, "no dataset provided")),
        None if !options.is_empty() => {
            Err(Outcome::misused(command, "missing filesystem argument (specify -a for all)"))
        }
        None => show(pools, has('j')),
        Some(name) => one(pools, name, DatasetRequest::Mount(request(Some(name.clone())))),
    }
}

/// `zfs unmount`.
pub(super) fn unmount(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "afu", &[])?;
    let has = |flag| parsed.opts.contains(&Opt::Flag(flag));
    let request = |what| DatasetRequest::Unmount(UnmountRequest { what, force: has('f') });
    match &parsed.operands[..] {
        [] if has('a') => unmount_all(pools, &request(UnmountWhat::All)),
        [] => Err(Outcome::misused(command, "missing filesystem argument")),
        [path] if !has('a') && path.starts_with('/') => match mounted_at(pools, path)? {
            Ok(dataset) => one(pools, &dataset, request(UnmountWhat::Dataset(dataset.clone()))),
            Err(line) => Ok(Outcome::failed(format!("{line}\n"))),
        },
        [name] if !has('a') => one(pools, name, request(UnmountWhat::Dataset(name.clone()))),
        _ => Err(Outcome::misused(command, "too many arguments")),
    }
}

/// The file system mounted at just that path; in its place, a line that says why none.
fn mounted_at(pools: &dyn Pools, path: &str) -> Result<Result<String, String>, Stopped> {
    let mounted = match client::mounted_at(pools, path.as_ref())? {
        Ok(mounted) => mounted,
        Err(line) if !pools.silent()?.is_empty() => return Ok(Err(line)),
        Err(_) => {
            return Ok(Err(match metadata(path) {
                Ok(_) => format!("cannot unmount '{path}': not a ZFS filesystem"),
                Err(e) => format!("cannot open '{path}': {}", client::why(&e)),
            }));
        }
    };
    let is_the_mountpoint = real_path(path).is_ok_and(|real| real.as_os_str() == mounted.path.as_str());
    Ok(if is_the_mountpoint { Ok(mounted.dataset) } else { Err(format!("cannot unmount '{path}': not a mountpoint")) })
}

/// Lists what is mounted.
fn show(pools: &dyn Pools, as_json: bool) -> Result<Outcome, Stopped> {
    let mounts = client::mounts(pools)?;
    let out = match as_json {
        true => json::mounts(&mounts),
        false => mounts.iter().map(|mounted| format!("{:<30}  {}\n", mounted.dataset, mounted.path)).collect(),
    };
    Ok(Outcome { out, ..failed(&client::silent(pools)?) })
}

fn all(pools: &dyn Pools, request: &DatasetRequest) -> Result<Outcome, Stopped> {
    let mut outcome = Outcome::default();
    for pool in pools.names()? {
        outcome.join(done(pools, &pool, request)?);
    }
    outcome.join(failed(&client::silent(pools)?));
    Ok(outcome)
}

/// Unmounts what all pools have mounted. A file system can be below or on that of another pool, and goes first:
/// what is busy is tried again as long as others go.
fn unmount_all(pools: &dyn Pools, request: &DatasetRequest) -> Result<Outcome, Stopped> {
    let mut mounted = client::mounts(pools)?.len();
    loop {
        let outcome = all(pools, request)?;
        let left = client::mounts(pools)?.len();
        if outcome.code == 0 || left >= mounted {
            return Ok(outcome);
        }
        mounted = left;
    }
}

/// Mounts what is mounted by itself, one after the other, and says how far that is: to a terminal all the time.
fn with_progress(pools: &dyn Pools, request: &MountRequest) -> Result<Outcome, Stopped> {
    let mut outcome = Outcome::default();
    let mut names = Vec::new();
    let is_meant = |pool: &String| request.dataset.as_ref().is_none_or(|name| client::pool_of(name) == pool);
    match &request.dataset {
        Some(name) => drop(pools.has(client::pool_of(name))?),
        None => outcome.join(failed(&client::silent(pools)?)),
    }
    for pool in pools.names()?.into_iter().filter(is_meant) {
        let Response::Mountable { names: more, failures } =
            pools.ask(&pool, &DatasetRequest::Mountable(request.clone()))?
        else {
            return Err(client::unexpected(&pool).into());
        };
        names.extend(more);
        outcome.join(failed(&failures));
    }
    let is_terminal = std::io::stdout().is_terminal();
    for (name, count) in names.iter().zip(1..) {
        let one = MountRequest { dataset: Some(name.clone()), recursive: false, ..request.clone() };
        outcome.join(done(pools, client::pool_of(name), &DatasetRequest::Mount(one))?);
        let text = format!("Mounting ZFS filesystems: ({count}/{})", names.len());
        match count == names.len() {
            true => outcome.out = format!("{}{text}\n", if is_terminal { "\r" } else { "" }),
            false if is_terminal => {
                print!("\r{text}");
                std::io::stdout().flush().map_err(base::Error::from)?;
            }
            false => {}
        }
    }
    Ok(outcome)
}

fn one(pools: &dyn Pools, name: &str, request: DatasetRequest) -> Result<Outcome, Stopped> {
    if let Err(why) = client::check_name(name, Types::FILE_SYSTEMS) {
        return Ok(Outcome::failed(format!("cannot open '{name}': {why}\n")));
    }
    let pool = client::pool_of(name);
    if let Some(why) = client::why_not_there(pools, name) {
        return Ok(Outcome::failed(format!("cannot open '{name}': {why}\n")));
    }
    done(pools, pool, &request)
}

fn done(pools: &dyn Pools, pool: &str, request: &DatasetRequest) -> Result<Outcome, Stopped> {
    let Response::Done { failures, notes } = pools.ask(pool, request)? else {
        return Err(client::unexpected(pool).into());
    };
    let mut outcome = failed(&failures);
    notes.iter().for_each(|note| outcome.err += &format!("{note}\n"));
    Ok(outcome)
}

fn failed(failures: &[Failure]) -> Outcome {
    Outcome { err: lines(failures), code: if failures.is_empty() { 0 } else { FAILED }, ..Outcome::default() }
}
