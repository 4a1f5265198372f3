//! What changes of datasets have in common: how they go around mounts, and what they say.

use base::{Error, Kind, Result};
use dsl::property::DatasetKind;
use format::ids::DatasetId;
use protocol::datasets::{Failure, MountRequest, Mounted};

use super::host::{DatasetChange, Folders, Host};
use super::limits::Limit;
use super::mount::{
    deepest_first, is_at_or_below, is_at_or_below_name, is_legacy, mount_one, mount_planned, stays_mounted,
};
use crate::mount_plan::{PlannedMount, Refusal, plan};

/// What a change says: on standard output, and what went wrong.
pub(super) type ChangeOutput = (String, Vec<Failure>);

/// Makes a file system and those above it, as far as they are not there, for `about` to be made below.
pub(super) fn make_with_parents(host: &dyn Host, name: &str, about: &str) -> Result<Vec<Failure>> {
    let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
    let mut failures = Vec::new();
    for one in ends.map(|end| &name[..end]).filter(|one| !exists(host, one)) {
        if let Err(e) = host.change(&DatasetChange::Create { name: one.to_owned(), properties: Vec::new() }) {
            failures.push(failure(about, format!("cannot create '{one}': {}", words(&e))));
            return Ok(failures);
        }
        failures.extend(mount_new(host, one)?);
    }
    Ok(failures)
}

pub(super) fn mount_new(host: &dyn Host, name: &str) -> Result<Vec<Failure>> {
    let pool = host.pool();
    let subject = pool.dsl().subject(name)?;
    if subject.kind() != DatasetKind::FileSystem {
        return Ok(Vec::new());
    }
    let Ok(plan) = plan(&pool, host.bounds(), &subject)? else { return Ok(Vec::new()) };
    let failed = mount_one(host, plan, &MountRequest::default()).err();
    let note = || failure(name, "filesystem successfully created, but not mounted".to_owned());
    Ok(failed.map_or(Vec::new(), |failed| vec![failed, note()]))
}

/// Mounts those of the file systems that are mounted by themselves.
pub(super) fn mount_again<'a>(host: &dyn Host, names: impl IntoIterator<Item = &'a str>) -> Result<Vec<Failure>> {
    mount_again_with(host, names, Vec::new())
}

/// The same, with options that hold for as long as they are mounted.
pub(super) fn mount_again_with<'a>(
    host: &dyn Host,
    names: impl IntoIterator<Item = &'a str>,
    options: Vec<String>,
) -> Result<Vec<Failure>> {
    let mut failures = Vec::new();
    // the kernel hears of it only now, so this one is the property's
    let options = options.into_iter().filter(|option| !option.ends_with("acl")).collect();
    let request = MountRequest { options, ..MountRequest::default() };
    for name in names {
        if let Some(plan) = plan_again(host, name)? {
            failures.extend(mount_one(host, plan, &request).err());
        }
    }
    Ok(failures)
}

/// A plan for what was mounted before, perhaps by hand.
fn plan_again(host: &dyn Host, name: &str) -> Result<Option<PlannedMount>> {
    let pool = host.pool();
    let subject = pool.dsl().subject(name)?;
    match plan(&pool, host.bounds(), &subject)? {
        Ok(plan) => Ok(Some(plan)),
        Err(Refusal::NotByItself) => super::mount::planned(host, &subject).map(Some),
        Err(_) => Ok(None),
    }
}

/// What is mounted of a dataset and those below it.
pub(super) fn mounted_below(host: &dyn Host, top: &str) -> Vec<DatasetId> {
    let pool = host.pool();
    let mounted = host.mounts().into_iter().filter(|mounted| is_at_or_below_name(&mounted.dataset, top));
    mounted.filter_map(|mounted| pool.dsl().find(&mounted.dataset).ok()).map(|found| found.id).collect()
}

/// What was mounted before and is not any more, be it that the folder that it was mounted on is not there any more, as
/// another root is above it.
pub(super) fn lost_mounts(host: &dyn Host, before: &[DatasetId]) -> Result<Vec<PlannedMount>> {
    let pool = host.pool();
    let names = before.iter().filter_map(|id| pool.dsl().name_of(*id).ok());
    // what is only hidden is mounted
    let is_lost = |name: &String| !host.is_at_its_place(name) && host.options_of(name).is_none();
    let lost = names.filter(|name| !name.contains('@') && is_lost(name));
    lost.filter_map(|name| plan_again(host, &name).transpose()).collect()
}

/// Unmounts a file system, does `work`, and mounts it again, by what its properties say then; what is mounted below it
/// goes along, and comes back as it was. What goes wrong; nothing is done if it cannot be unmounted.
pub(super) fn without_mount(
    host: &dyn Host,
    top: &Mounted,
    work: impl FnOnce() -> Option<Failure>,
) -> Result<Vec<Failure>> {
    let is_below = |one: &Mounted| one.dataset != top.dataset && is_at_or_below(&one.path, &top.path);
    let mut gone: Vec<PlannedMount> = Vec::new();
    let mut failed = None;
    for Mounted { dataset, .. } in deepest_first(host, is_below) {
        let Some(options) = host.options_of(&dataset) else { continue };
        failed = unmount(host, &dataset, false);
        if failed.is_some() {
            break;
        }
        gone.push(PlannedMount { dataset, options });
    }
    let mut failures: Vec<Failure> = Vec::new();
    match failed.or_else(|| unmount(host, &top.dataset, false)) {
        Some(failed) => failures.push(failed),
        None => {
            failures.extend(work());
            failures.extend(mount_again_with(host, [top.dataset.as_str()], top.options.clone())?);
        }
    }
    failures.extend(gone.into_iter().rev().filter_map(|plan| mount_planned(host, plan).err()));
    Ok(failures)
}

/// Unmounts a file system, if it is mounted; what is wrong if it cannot be.
pub(super) fn unmount(host: &dyn Host, name: &str, force: bool) -> Option<Failure> {
    host.options_of(name)?;
    let error = host.unmount(name, force, Folders::Remove).err()?;
    host.mounts().iter().find(|mounted| mounted.dataset == name).map(|mounted| stays_mounted(mounted, &error))
}

/// Unmounts a file system and what is below it, so that it can be renamed; what mount(8) mounted stays where it is. What
/// was unmounted, the deepest path first, and what is wrong if not all could be.
pub(super) fn unmount_to_rename(host: &dyn Host, name: &str, force: bool) -> (Vec<Mounted>, Option<Failure>) {
    let moves = |one: &Mounted| is_at_or_below_name(&one.dataset, name) && !is_legacy(host, &one.dataset);
    let mut mounted = deepest_first(host, moves);
    for at in 0..mounted.len() {
        if let Some(failed) = unmount(host, &mounted[at].dataset, force) {
            mounted.truncate(at);
            return (mounted, Some(failed));
        }
    }
    (mounted, None)
}

/// Gives limits to a dataset. Errors: as of [`Host::change`].
pub(super) fn put_limits(host: &dyn Host, name: &str, limits: Vec<Limit>) -> Result<()> {
    limits.into_iter().try_for_each(|limit| host.change(&DatasetChange::SetLimit { name: name.to_owned(), limit }))
}

pub(super) fn exists(host: &dyn Host, name: &str) -> bool {
    host.pool().dsl().subject(name).is_ok()
}

pub(super) fn failure(about: &str, line: String) -> Failure {
    Failure { about: about.to_owned(), line }
}

/// Why a change was refused, in the words for the user.
pub(super) fn words(error: &Error) -> String {
    match error.kind() {
        Kind::Exists => "dataset already exists".to_owned(),
        Kind::Busy => "dataset is busy".to_owned(),
        Kind::Io | Kind::Corrupt | Kind::Missing => "I/O error".to_owned(),
        Kind::Checksum => "insufficient replicas".to_owned(),
        Kind::Permission => "permission denied".to_owned(),
        Kind::Suspended => "pool I/O is currently suspended".to_owned(),
        Kind::NoSpace | Kind::Quota if error.what().is_empty() => "out of space".to_owned(),
        _ => error.what().to_owned(),
    }
}
