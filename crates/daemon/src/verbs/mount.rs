//! `zfs mount` and `zfs unmount`, on the pool process's side.
//!
//! What goes wrong with one file system is a line in the answer and does not keep the others from
//! being mounted. `-a` passes over what is not mounted by itself; a request for one file system is told
//! why not.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use base::{Error, Kind, Result};
use dsl::Subject;
use dsl::property::DatasetKind;
use fuse::{NO_MOUNTPOINT, SnapDir};
use protocol::datasets::{Failure, MountAt, MountRequest, Mounted, Response, Types, UnmountRequest, UnmountWhat};

use super::host::{Folders, Host};
use super::mount_options::{apply, has};
use super::query::open;
use crate::mount_plan::{
    PlannedMount, Refusal, contents_refusal, mountpoint_text, options, path_order, plan, plan_below,
};

/// Mounts what is asked for.
pub(super) fn mount(host: &dyn Host, request: &MountRequest) -> Result<Response> {
    if has(&request.options, "remount") {
        return remount(host, request);
    }
    let Some(name) = request.dataset.as_ref().filter(|_| !request.recursive) else {
        let (plans, mut failures) = planned_below(host, request)?;
        failures.extend(mount_asked(host, plans, request));
        return Ok(mounted(failures));
    };
    let subject = match open(host, name, Types::FILE_SYSTEMS) {
        Ok(subject) => subject,
        Err(failure) => return Ok(mounted(vec![failure])),
    };
    let plan = match plan(&host.pool(), host.bounds(), &subject)? {
        Ok(plan) => plan,
        Err(Refusal::NotByItself) => planned(host, &subject)?,
        Err(Refusal::Redacted) if request.force => planned(host, &subject)?,
        Err(Refusal::Encrypted) if request.load_keys => return Ok(mounted(vec![no_keys(name)])),
        Err(refusal) => return Ok(mounted(vec![refused(name, refusal)])),
    };
    if host.options_of(name).is_some() {
        let line = format!("cannot mount '{name}': filesystem already mounted");
        return Ok(mounted(vec![Failure { about: name.clone(), line }]));
    }
    Ok(mounted(mount_asked(host, vec![plan], request)))
}

/// Mounts file systems with the options of a request; why some could not be.
fn mount_asked(host: &dyn Host, plans: Vec<PlannedMount>, request: &MountRequest) -> Vec<Failure> {
    let (mut ready, mut failures) = (Vec::new(), Vec::new());
    for plan in plans {
        match with_options(plan, request) {
            Ok(plan) => ready.push(plan),
            Err(failure) => failures.push(failure),
        }
    }
    failures.extend(mount_in_order(host, ready));
    failures
}

/// What [`mount`] would mount.
pub(super) fn mountable(host: &dyn Host, request: &MountRequest) -> Result<Response> {
    let (plans, failures) = planned_below(host, request)?;
    Ok(Response::Mountable { names: plans.into_iter().map(|plan| plan.dataset).collect(), failures })
}

/// What is mounted by itself, and is not yet: of the pool, or of what is named and below it; and failures, among them to
/// load keys, if these are wanted.
fn planned_below(host: &dyn Host, request: &MountRequest) -> Result<(Vec<PlannedMount>, Vec<Failure>)> {
    let pool = host.pool();
    let top = match &request.dataset {
        None => pool.dsl().root_subject()?,
        Some(name) => match open(host, name, Types::FILE_SYSTEMS) {
            Ok(subject) => subject,
            Err(failure) => return Ok((Vec::new(), vec![failure])),
        },
    };
    let mut failures = Vec::new();
    let mut refuse = |subject: &Subject, refusal| {
        if request.load_keys && refusal == Refusal::Encrypted {
            failures.push(no_keys(subject.name()));
        }
    };
    let mut plans = plan_below(&pool, host.bounds(), &top, &mut refuse)?;
    plans.retain(|plan| host.options_of(&plan.dataset).is_none());
    Ok((plans, failures))
}

/// Gives what is mounted other options.
fn remount(host: &dyn Host, request: &MountRequest) -> Result<Response> {
    let is_meant = |mounted: &Mounted| match &request.dataset {
        Some(name) if request.recursive => is_at_or_below_name(&mounted.dataset, name),
        Some(name) => mounted.dataset == *name,
        None => true,
    };
    let mut failures = Vec::new();
    let meant: Vec<Mounted> = host.mounts().into_iter().filter(is_meant).collect();
    if let Some(name) = request.dataset.as_ref().filter(|_| meant.is_empty()) {
        let line = format!("cannot remount '{name}': not currently mounted");
        failures.push(Failure { about: name.clone(), line });
    }
    for mounted in meant {
        failures.extend(remount_one(host, &mounted.dataset, &request.options, false));
    }
    Ok(mounted(failures))
}

fn remount_one(host: &dyn Host, name: &str, words: &[String], sloppy: bool) -> Option<Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Some(Failure { about: name.to_owned(), line: format!("cannot remount '{name}': {why}") })
    };
    let Some(mut options) = host.options_of(name) else { return failed(&"not currently mounted") };
    if let Err(why) = apply(&mut options, words, sloppy) {
        return failed(&why);
    }
    match host.remount(&options) {
        Ok(true) => None,
        Ok(false) => failed(&"one of the options can only be given when it is mounted"),
        Err(error) => failed(&error),
    }
}

/// Mounts a file system or snapshot where mount(8) says; or else why not.
pub(super) fn mount_at(host: &dyn Host, request: &MountAt) -> Result<Response> {
    let MountAt { dataset: name, point, options: words, .. } = request;
    let failed = |line: String| Ok(mounted(vec![Failure { about: name.clone(), line }]));
    let types = Types { snapshots: true, ..Types::FILE_SYSTEMS };
    let Ok(subject) = open(host, name, types) else {
        return failed(format!("filesystem '{name}' cannot be mounted, unable to open the dataset"));
    };
    let (is_remount, is_of_zfs) = (has(words, "remount"), has(words, "zfsutil"));
    let mut plan = planned(host, &subject)?;
    let is_snapshot = subject.kind() == DatasetKind::Snapshot;
    let is_legacy = is_snapshot || plan.options.mountpoint.as_os_str() == "legacy";
    let see = "See zfs(8) for more information.";
    if is_of_zfs && is_legacy {
        return failed(format!(
            "filesystem '{name}' cannot be mounted using 'zfs mount'.\n\
             Use 'zfs set mountpoint={point}' or 'mount -t zfs {name} {point}'.\n{see}"
        ));
    }
    if !is_of_zfs && !is_legacy && !is_remount && !request.fake {
        return failed(format!(
            "filesystem '{name}' cannot be mounted using 'mount'.\n\
             Use 'zfs set mountpoint=legacy' or 'zfs mount {name}'.\n{see}"
        ));
    }
    if let Some(refusal) = contents_refusal(&host.pool(), &subject)? {
        return Ok(mounted(vec![refused(name, refusal)]));
    }
    plan.options.mountpoint = point.into();
    // the administrator names the place
    plan.options.beneath = None;
    plan.options.overlay = true;
    if let Err(why) = apply(&mut plan.options, words, request.sloppy) {
        return failed(format!("filesystem '{name}' cannot be mounted: {why}"));
    }
    if is_snapshot {
        plan.options.read_only = true;
        plan.options.snapdir = SnapDir::Disabled;
    }
    if request.fake {
        return Ok(mounted(Vec::new()));
    }
    if is_remount {
        let failures = remount_one(host, name, words, request.sloppy).into_iter().collect();
        return Ok(mounted(failures));
    }
    if !is_snapshot && host.options_of(name).is_some() {
        return failed(format!("filesystem '{name}' is already mounted"));
    }
    Ok(mounted(mount_planned(host, plan).err().into_iter().collect()))
}

/// The answer to a request to mount.
fn mounted(failures: Vec<Failure>) -> Response {
    Response::Done { failures, notes: Vec::new() }
}

/// Unmounts what is asked for; the answer are the failures.
pub(super) fn unmount(host: &dyn Host, request: &UnmountRequest) -> Result<Vec<Failure>> {
    let mut mounts = host.mounts();
    // what covers another one, or is below it, goes first
    mounts.reverse();
    mounts.sort_by_cached_key(|mounted| std::cmp::Reverse(path_order(&mounted.path)));
    let chosen: Vec<Mounted> = match &request.what {
        UnmountWhat::All => mounts.into_iter().filter(|mounted| is_managed(host, &mounted.dataset)).collect(),
        UnmountWhat::Dataset(name) => {
            let subject = match open(host, name, Types::FILE_SYSTEMS) {
                Ok(subject) => subject,
                Err(failure) => return Ok(vec![failure]),
            };
            let failed = |line| Ok(vec![Failure { about: name.clone(), line }]);
            if matches!(plan(&host.pool(), host.bounds(), &subject)?, Err(Refusal::Legacy)) {
                let how = "use umount(8) to unmount this filesystem";
                return failed(format!("cannot unmount '{name}': legacy mountpoint\n{how}"));
            }
            if mounts.iter().all(|mounted| mounted.dataset != *name) {
                return failed(format!("cannot unmount '{name}': not currently mounted"));
            }
            // those below it go along, wherever they are mounted
            mounts.into_iter().filter(|mounted| is_at_or_below_name(&mounted.dataset, name)).collect()
        }
    };
    Ok(unmount_all(host, chosen, request.force))
}

/// Unmounts file systems; why some could not be.
fn unmount_all(host: &dyn Host, mut mounted: Vec<Mounted>, force: bool) -> Vec<Failure> {
    loop {
        let (mut left, mut failures) = (Vec::new(), Vec::new());
        let before = mounted.len();
        for one in mounted {
            if let Err(error) = host.unmount(&one.dataset, force, Folders::Keep) {
                failures.push(stays_mounted(&one, &error));
                left.push(one);
            }
        }
        // what has gone may have hidden what is left
        if left.is_empty() || left.len() == before {
            return failures;
        }
        mounted = left;
    }
}

/// Says why something could not be unmounted.
pub(super) fn stays_mounted(mounted: &Mounted, error: &Error) -> Failure {
    let why = if error.kind() == Kind::Busy { "pool or dataset is busy".to_owned() } else { error.to_string() };
    let line = format!("cannot unmount '{}': {why}", mounted.path);
    Failure { about: mounted.dataset.clone(), line }
}

/// Mounts a file system with the options of a request.
pub(super) fn mount_one(host: &dyn Host, plan: PlannedMount, request: &MountRequest) -> Result<(), Failure> {
    with_options(plan, request).and_then(|plan| mount_planned(host, plan))
}

fn with_options(mut plan: PlannedMount, request: &MountRequest) -> Result<PlannedMount, Failure> {
    if let Err(why) = apply(&mut plan.options, &request.options, false) {
        let line = format!("cannot mount '{}': {why}", plan.dataset);
        return Err(Failure { about: plan.dataset, line });
    }
    plan.options.overlay |= request.overlay;
    Ok(plan)
}

/// Mounts file systems, each before those in it. What is mounted in one of them already would be hidden: it goes, and
/// comes back as it was. What could not be mounted.
pub(super) fn mount_in_order(host: &dyn Host, mut plans: Vec<PlannedMount>) -> Vec<Failure> {
    let places: HashSet<PathBuf> = plans.iter().map(|plan| plan.options.mountpoint.clone()).collect();
    let is_hidden = |one: &Mounted| Path::new(&one.path).ancestors().skip(1).any(|above| places.contains(above));
    for Mounted { dataset, .. } in deepest_first(host, is_hidden) {
        let Some(options) = host.options_of(&dataset) else { continue };
        // what is in use stays where it is
        if host.unmount(&dataset, false, Folders::Remove).is_ok() {
            plans.push(PlannedMount { dataset, options });
        }
    }
    plans.sort_by_cached_key(|plan| path_order(&plan.options.mountpoint.to_string_lossy()));
    plans.into_iter().filter_map(|plan| mount_planned(host, plan).err()).collect()
}

/// Some of what is mounted, in the order in which it can be unmounted.
pub(super) fn deepest_first(host: &dyn Host, is_meant: impl Fn(&Mounted) -> bool) -> Vec<Mounted> {
    let mut mounted: Vec<Mounted> = host.mounts().into_iter().filter(is_meant).collect();
    mounted.sort_by_cached_key(|mounted| std::cmp::Reverse(path_order(&mounted.path)));
    mounted
}

/// Mounts a file system; or else why not.
pub(super) fn mount_planned(host: &dyn Host, plan: PlannedMount) -> Result<(), Failure> {
    host.mount(&plan).map_err(|error| Failure { line: why_not_mounted(&plan, &error), about: plan.dataset })
}

fn why_not_mounted(plan: &PlannedMount, error: &Error) -> String {
    let (name, point) = (&plan.dataset, plan.options.mountpoint.display());
    if let Some(source) = std::error::Error::source(error).filter(|_| error.what() == NO_MOUNTPOINT) {
        return format!("cannot mount '{point}': {NO_MOUNTPOINT}: {}", protocol::words::of_system(source));
    }
    match error.kind() {
        Kind::Exists => format!("cannot mount '{point}': directory is not empty"),
        Kind::Busy => format!("cannot mount '{name}': mountpoint or dataset is busy"),
        Kind::Permission => format!("cannot mount '{name}': Insufficient privileges: {error}"),
        _ => format!("cannot mount '{name}': {error}"),
    }
}

/// A plan for one that is mounted only when asked for.
pub(super) fn planned(host: &dyn Host, subject: &Subject) -> Result<PlannedMount> {
    let pool = host.pool();
    let sourced = host.bounds().mountpoint(&pool, subject)?;
    let mountpoint = sourced.map_or_else(|| "none".to_owned(), |s| mountpoint_text(subject.name(), &s, host.altroot()));
    Ok(PlannedMount {
        dataset: subject.name().to_owned(),
        options: options(&pool, host.bounds(), subject, &mountpoint)?,
    })
}

fn refused(name: &str, refusal: Refusal) -> Failure {
    let why = match refusal {
        Refusal::Zoned => "dataset is exported to a local zone",
        Refusal::Legacy => return Failure { about: name.to_owned(), line: legacy(name) },
        Refusal::NoMountpoint => "no mountpoint set",
        Refusal::CanmountOff => "'canmount' property is set to 'off'",
        Refusal::NotByItself => "'canmount' property is set to 'noauto'",
        Refusal::Encrypted => "encryption key not loaded",
        Refusal::Partial => {
            "Contains partially-completed state from \"zfs receive -s\", which can be resumed with \"zfs send -t\""
        }
        Refusal::Redacted => "Dataset is not complete, was created by receiving a redacted zfs send stream.",
    };
    Failure { about: name.to_owned(), line: format!("cannot mount '{name}': {why}") }
}

/// What is said of one that mount(8) mounts. It finds out how by a link of that name, which may not be there.
fn legacy(name: &str) -> String {
    let line = format!("cannot mount '{name}': legacy mountpoint\nuse mount(8) to mount this filesystem");
    let real = |path: &str| std::fs::canonicalize(path).ok();
    match real(HELPER_OF_MOUNT).is_some_and(|there| Some(there) == real("/proc/self/exe")) {
        true => line,
        false => format!("{line}, once {HELPER_OF_MOUNT} is a link to cenote"),
    }
}

/// What mount(8) runs for file systems of type `zfs`.
const HELPER_OF_MOUNT: &str = "/sbin/mount.zfs";

fn no_keys(name: &str) -> Failure {
    let why = "this version of Cenote cannot load encryption keys";
    Failure { about: name.to_owned(), line: format!("cannot mount '{name}': {why}") }
}

/// Whether a file system is mounted by mount(8) alone.
pub(super) fn is_legacy(host: &dyn Host, name: &str) -> bool {
    let refusal = open(host, name, Types::FILE_SYSTEMS).ok().map(|subject| plan(&host.pool(), host.bounds(), &subject));
    matches!(refusal, Some(Ok(Err(Refusal::Legacy))))
}

/// Whether a mounted file system was mounted by itself, and so goes with `unmount -a`.
fn is_managed(host: &dyn Host, name: &str) -> bool {
    let refusal = open(host, name, Types::FILE_SYSTEMS).ok().map(|subject| plan(&host.pool(), host.bounds(), &subject));
    !matches!(refusal, Some(Ok(Err(Refusal::Legacy | Refusal::NotByItself))))
}

/// Whether a dataset is `top` or below it, by their names.
pub fn is_at_or_below_name(name: &str, top: &str) -> bool {
    name.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
}

pub(super) fn is_at_or_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || top.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below() {
        assert!(is_at_or_below("/mnt/a", "/mnt") && is_at_or_below("/mnt", "/mnt") && is_at_or_below("/a", "/"));
        assert!(!is_at_or_below("/mnt-a", "/mnt") && !is_at_or_below("/", "/mnt"));
    }
}
