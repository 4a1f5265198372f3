//! `zfs destroy`, on the pool process's side.
//!
//! ```text
//!   a dataset's dependents     file systems below, each behind its own; snapshots, each behind its clones
//!   with -r                    all of them but clones; with -R also clones, and what grows from these
//! ```
//!
//! Snapshots that follow each other in that order go together.

use std::collections::HashSet;

use base::{Error, Kind, Result};
use dsl::property::DatasetKind;
use dsl::{DEPTH_MAX, Dataset, Property, PropertySource, Sourced, Subject};
use fuse::MountOptions;
use protocol::datasets::{DatasetType, DestroyChange, DestroySnapshots, Failure, Types};
use protocol::words::nicenum::nicebytes;

use super::around::{ChangeOutput, failure, unmount, words};
use super::host::{DatasetChange, Folders, Host, SnapshotChange};
use super::query::{open, type_of};
use crate::mount_plan::plan;

/// How to destroy, and what to say of it.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub force: bool,
    pub dry_run: bool,
    pub verbose: bool,
    pub parsable: bool,
    /// Go on with others where one cannot go.
    pub goes_on: bool,
}

/// Destroys a file system or volume, and what it says is to go with it.
pub(super) fn destroy(host: &dyn Host, destroy: &DestroyChange) -> Result<ChangeOutput> {
    let name = &destroy.dataset;
    let only = |line: String| Ok((String::new(), vec![failure(name, line)]));
    let subject = match open(host, name, Types { snapshots: false, ..Types::DATASETS }) {
        Ok(subject) => subject,
        Err(failure) => return Ok((String::new(), vec![failure])),
    };
    let is_root = !name.contains('/');
    if is_root && !destroy.recursive {
        return only(format!(
            "cannot destroy '{name}': operation does not apply to pools\n\
             use 'zfs destroy -r {name}' to destroy all datasets in the pool\n\
             use 'zpool destroy {name}' to destroy the pool itself"
        ));
    }
    let mut dependents = Vec::new();
    gather_dependents(host, &subject, true, &mut dependents)?;
    let is_below =
        |one: &&Subject| one.name().strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(['/', '@']));
    let kind = if type_of(subject.kind()) == DatasetType::Volume { "volume" } else { "filesystem" };
    let names = |which: &dyn Fn(&&Subject) -> bool| {
        dependents.iter().filter(which).map(Subject::name).collect::<Vec<_>>().join("\n")
    };
    if !destroy.recursive && dependents.iter().any(|one| is_below(&one)) {
        return only(format!(
            "cannot destroy '{name}': {kind} has children\nuse '-r' to destroy the following datasets:\n{}",
            names(&is_below)
        ));
    }
    let is_clone = |one: &&Subject| !is_below(one);
    if !destroy.clones && dependents.iter().any(|one| is_clone(&one)) {
        return only(format!(
            "cannot destroy '{name}': {kind} has dependent clones\nuse '-R' to destroy the following datasets:\n{}",
            names(&is_clone)
        ));
    }
    dependents.push(subject);
    let manner = Manner {
        force: destroy.force,
        dry_run: destroy.dry_run,
        verbose: destroy.verbose,
        parsable: destroy.parsable,
        goes_on: destroy.recursive,
    };
    destroy_all(host, &dependents, manner)
}

/// Destroys datasets and snapshots, in that order.
pub(super) fn destroy_all(host: &dyn Host, all: &[Subject], manner: Manner) -> Result<ChangeOutput> {
    let (mut out, mut failures) = (String::new(), Vec::new());
    let mut batch: Vec<String> = Vec::new();
    for one in all {
        out += &destroy_line(one.name(), manner);
        if manner.dry_run || !one.name().contains(['/', '@']) {
            continue;
        }
        if one.kind() == DatasetKind::Snapshot {
            batch.push(one.name().to_owned());
            continue;
        }
        let mut failed = destroy_snapshots(host, &std::mem::take(&mut batch), false);
        if failed.is_empty() {
            failed.extend(destroy_one(host, one, manner.force)?);
        }
        failures.extend(failed);
        // others may still go, as OpenZFS has it
        if !failures.is_empty() && !manner.goes_on {
            return Ok((out, failures));
        }
    }
    failures.extend(destroy_snapshots(host, &batch, false));
    Ok((out, failures))
}

fn destroy_line(name: &str, manner: Manner) -> String {
    match manner.verbose {
        false => String::new(),
        true if manner.parsable => format!("destroy\t{name}\n"),
        true => format!("{} destroy {name}\n", if manner.dry_run { "would" } else { "will" }),
    }
}

fn destroy_one(host: &dyn Host, one: &Subject, force: bool) -> Result<Option<Failure>> {
    let name = one.name();
    let folder = folder_left(host, one)?;
    if let Some(failure) = unmount(host, name, force) {
        return Ok(Some(failure));
    }
    Ok(match host.change(&DatasetChange::Destroy { name: name.to_owned() }) {
        Ok(()) => {
            folder.iter().for_each(|folder| host.remove_folder(folder));
            None
        }
        Err(e) => Some(failure(name, format!("cannot destroy '{name}': {}", words(&e)))),
    })
}

/// Where a file system is mounted, or was before it was unmounted by hand, if nobody has chosen just this place.
fn folder_left(host: &dyn Host, one: &Subject) -> Result<Option<MountOptions>> {
    let pool = host.pool();
    let is_chosen = |sourced: Sourced| matches!(sourced.source, PropertySource::Local | PropertySource::Received);
    if one.kind() != DatasetKind::FileSystem || pool.dsl().property(one, Property::Mountpoint, 0)?.is_none_or(is_chosen)
    {
        return Ok(None);
    }
    Ok(plan(&pool, host.bounds(), one)?.ok().map(|planned| planned.options))
}

/// Destroys snapshots, all or none: what is wrong if none.
pub(super) fn destroy_snapshots(host: &dyn Host, names: &[String], defer: bool) -> Vec<Failure> {
    if names.is_empty() {
        return Vec::new();
    }
    let line = |(name, e): (String, Error)| {
        let why = match e.kind() {
            Kind::Busy => format!("it's being held. Run 'zfs holds -r {name}' to see holders."),
            Kind::Exists => "snapshot is cloned".to_owned(),
            _ => words(&e),
        };
        failure(&name, format!("cannot destroy snapshot {name}: {why}"))
    };
    for name in names {
        // one that is mounted keeps nothing from going on; most are not
        let _ = host.unmount(name, true, Folders::Remove);
    }
    match host.change_snapshots(&SnapshotChange::Destroy { names: names.to_vec(), defer }) {
        Ok(refused) => refused.into_iter().map(line).collect(),
        Err(e) => vec![failure(&names[0], format!("cannot destroy snapshots: {}", words(&e)))],
    }
}

/// Destroys the snapshots that a request names.
pub(super) fn destroy_named(host: &dyn Host, destroy: &DestroySnapshots) -> Result<ChangeOutput> {
    let top = match open(host, &destroy.dataset, Types { snapshots: false, ..Types::DATASETS }) {
        Ok(top) => top,
        Err(failure) => return Ok((String::new(), vec![failure])),
    };
    let manner = Manner {
        force: destroy.force,
        dry_run: destroy.dry_run,
        verbose: destroy.verbose,
        parsable: destroy.parsable,
        goes_on: true,
    };
    let pool = host.pool();
    let mut of = vec![top];
    if destroy.recursive {
        below(host, &of[0].clone(), 0, &mut of)?;
    }
    let (mut out, mut failures) = (String::new(), Vec::new());
    let (mut names, mut reclaimed, mut clones) = (Vec::new(), 0u64, Vec::new());
    for head in &of {
        let all = pool.dsl().subjects_of_snapshots(head)?.into_iter().collect::<Result<Vec<Subject>>>()?;
        let picked = pick(&all, &destroy.spec);
        for (one, _) in all.iter().zip(&picked).filter(|(_, is_picked)| **is_picked) {
            let before = clones.len();
            gather_dependents(host, one, true, &mut clones)?;
            if clones.len() > before && !destroy.clones && !destroy.defer {
                let dependents: Vec<&str> = clones[before..].iter().map(Subject::name).collect();
                let line = format!(
                    "cannot destroy '{}': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\n{}",
                    one.name(),
                    dependents.join("\n")
                );
                failures.push(failure(one.name(), line));
            }
            names.push(one.name().to_owned());
            out += &destroy_line(one.name(), manner);
        }
        if destroy.verbose {
            reclaimed = reclaimed.wrapping_add(reclaimable(host, &all, &picked)?);
        }
    }
    if !failures.is_empty() {
        return Ok((out, failures));
    }
    if names.is_empty() {
        let line = "could not find any snapshots to destroy; check snapshot names.".to_owned();
        return Ok((out, vec![failure(&destroy.dataset, line)]));
    }
    if destroy.verbose {
        out += &match destroy.parsable {
            true => format!("reclaim\t{reclaimed}\n"),
            false => {
                format!("{} reclaim {}\n", if destroy.dry_run { "would" } else { "will" }, nicebytes(reclaimed))
            }
        };
    }
    if destroy.dry_run {
        return Ok((out, failures));
    }
    if destroy.clones {
        let (more, failed) = destroy_all(host, &clones, manner)?;
        out += &more;
        if !failed.is_empty() {
            return Ok((out, failed));
        }
    }
    failures.extend(destroy_snapshots(host, &names, destroy.defer));
    Ok((out, failures))
}

/// All file systems and volumes below one.
fn below(host: &dyn Host, subject: &Subject, depth: usize, into: &mut Vec<Subject>) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(Error::corrupt("dataset tree is no tree").in_dataset(subject.name()));
    }
    if subject.kind() == DatasetKind::FileSystem {
        for one in host.pool().dsl().subjects_below(subject)? {
            let one = one?;
            into.push(one.clone());
            below(host, &one, depth + 1, into)?;
        }
    }
    Ok(())
}

/// Which of a dataset's snapshots, oldest first, a list of names stands for: `a,b%c,%d,e%`.
fn pick(all: &[Subject], spec: &str) -> Vec<bool> {
    let mut picked = vec![false; all.len()];
    let place = |name: &str| all.iter().position(|one| one.name().split_once('@').is_some_and(|(_, own)| own == name));
    for part in spec.split(',') {
        let Some((first, last)) = part.split_once('%') else {
            place(part).into_iter().for_each(|at| picked[at] = true);
            continue;
        };
        let first = if first.is_empty() { Some(0) } else { place(first) };
        let last = if last.is_empty() { all.len().checked_sub(1) } else { place(last) };
        if let (Some(first), Some(last)) = (first, last) {
            picked.iter_mut().take(last + 1).skip(first).for_each(|one| *one = true);
        }
    }
    picked
}

/// Bytes that come back with the picked ones of a dataset's snapshots.
fn reclaimable(host: &dyn Host, all: &[Subject], picked: &[bool]) -> Result<u64> {
    let pool = host.pool();
    let snapshots: Vec<&Dataset> = all.iter().filter_map(Subject::dataset).collect();
    let (mut sum, mut first) = (0u64, None);
    for (at, is_picked) in picked.iter().chain([&false]).enumerate() {
        match (is_picked, first) {
            (true, None) => first = Some(at),
            (false, Some(from)) => {
                sum = sum.wrapping_add(pool.dsl().freed_by_range(snapshots[from], snapshots[at - 1])?);
                first = None;
            }
            _ => {}
        }
    }
    Ok(sum)
}

/// What depends on a dataset, each behind what depends on that itself; clones only with `clones`. A dataset may be a
/// clone of one that is below it: it does not depend on itself.
pub(super) fn gather_dependents(
    host: &dyn Host,
    subject: &Subject,
    clones: bool,
    into: &mut Vec<Subject>,
) -> Result<()> {
    let mut seen = HashSet::from([subject.name().to_owned()]);
    let visits = |subject: &Subject| -> Result<Vec<DependentStep>> {
        Ok(dependents_of(host, subject, clones)?.into_iter().rev().map(DependentStep::Visit).collect())
    };
    // clones of clones may be deeper than a stack of calls
    let mut stack = visits(subject)?;
    while let Some(next) = stack.pop() {
        match next {
            DependentStep::Add(subject) => into.push(subject),
            DependentStep::Visit(subject) if seen.insert(subject.name().to_owned()) => {
                let below = visits(&subject)?;
                stack.push(DependentStep::Add(subject));
                stack.extend(below);
            }
            DependentStep::Visit(_) => {}
        }
    }
    Ok(())
}

/// What is to be done with a dependent.
enum DependentStep {
    Visit(Subject),
    Add(Subject),
}

/// What depends on a dataset directly, in order.
fn dependents_of(host: &dyn Host, subject: &Subject, clones: bool) -> Result<Vec<Subject>> {
    let pool = host.pool();
    let mut all = Vec::new();
    match (subject.kind(), subject.dataset()) {
        (DatasetKind::Snapshot, Some(snapshot)) if clones => {
            for name in pool.dsl().clones(snapshot)? {
                all.push(pool.dsl().subject(&name)?);
            }
        }
        (DatasetKind::Snapshot, _) => {}
        (kind, _) => {
            if kind == DatasetKind::FileSystem {
                all.extend(pool.dsl().subjects_below(subject)?.into_iter().collect::<Result<Vec<_>>>()?);
            }
            all.extend(pool.dsl().subjects_of_snapshots(subject)?.into_iter().collect::<Result<Vec<_>>>()?);
        }
    }
    Ok(all)
}
