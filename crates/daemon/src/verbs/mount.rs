//! `zfs mount` and `zfs unmount`, on the pool process's side.
//!
//! What goes wrong with one file system is a line in the answer and does not keep the others from
//! being mounted. `-a` passes over what is not mounted by itself; who asks for one file system is told
//! why not.

use base::{Error, Kind, Result};
use dsl::Subject;
use fuse::{MountOptions, NO_MOUNTPOINT};
use protocol::datasets::{Failure, MountRequest, Mounted, Types, UnmountRequest, UnmountWhat};

use super::host::Host;
use super::query::open;
use crate::mount_plan::{PlannedMount, Refusal, mount_plan, mountpoint_text, options, path_order, plan, plan_below};

/// Mounts what is asked for; the answer are the failures.
pub(super) fn mount(host: &dyn Host, request: &MountRequest) -> Result<Vec<Failure>> {
    let (pool, bounds) = (host.pool(), host.bounds());
    let Some(name) = &request.dataset else {
        return Ok(mount_all(host, mount_plan(&pool, bounds)?, request));
    };
    let subject = match open(host, name, Types::FILE_SYSTEMS) {
        Ok(subject) => subject,
        Err(failure) => return Ok(vec![failure]),
    };
    if request.recursive {
        return Ok(mount_all(host, plan_below(&pool, bounds, &subject)?, request));
    }
    let plan = match plan(&pool, bounds, &subject)? {
        Ok(plan) => plan,
        Err(Refusal::NotByItself) => planned(host, &subject)?,
        Err(Refusal::Redacted) if request.force => planned(host, &subject)?,
        Err(refusal) => return Ok(vec![refused(name, refusal)]),
    };
    if is_mounted(host, name) {
        let line = format!("cannot mount '{name}': filesystem already mounted");
        return Ok(vec![Failure { about: name.clone(), line }]);
    }
    Ok(mount_one(host, plan, request).into_iter().collect())
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
            let Some(top) = mounts.iter().find(|mounted| mounted.dataset == *name).map(|m| m.path.clone()) else {
                return failed(format!("cannot unmount '{name}': not currently mounted"));
            };
            let goes_along =
                |mounted: &Mounted| is_at_or_below_name(&mounted.dataset, name) && is_at_or_below(&mounted.path, &top);
            mounts.into_iter().filter(goes_along).collect()
        }
    };
    let mut failures = Vec::new();
    for mounted in chosen {
        if let Err(error) = host.unmount(&mounted.dataset, request.force) {
            let why = if error.kind() == Kind::Busy { "pool or dataset is busy".to_owned() } else { error.to_string() };
            let line = format!("cannot unmount '{}': {why}", mounted.path);
            failures.push(Failure { about: mounted.dataset, line });
        }
    }
    Ok(failures)
}

fn mount_all(host: &dyn Host, plans: Vec<PlannedMount>, request: &MountRequest) -> Vec<Failure> {
    let fresh = plans.into_iter().filter(|plan| !is_mounted(host, &plan.dataset));
    fresh.filter_map(|plan| mount_one(host, plan, request)).collect()
}

pub(super) fn mount_one(host: &dyn Host, mut plan: PlannedMount, request: &MountRequest) -> Option<Failure> {
    let name = plan.dataset.clone();
    for option in &request.options {
        if !apply(&mut plan.options, option) {
            let line = format!("cannot mount '{name}': invalid mount option '{option}'");
            return Some(Failure { about: name, line });
        }
    }
    plan.options.overlay |= request.overlay;
    let error = host.mount(&plan).err()?;
    Some(Failure { line: why_not_mounted(&plan, &error), about: name })
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
    let sourced = pool.dsl().property(subject, dsl::Property::Mountpoint, 0)?;
    let mountpoint = sourced.map_or_else(|| "none".to_owned(), |s| mountpoint_text(subject.name(), &s, host.altroot()));
    Ok(PlannedMount {
        dataset: subject.name().to_owned(),
        options: options(&pool, host.bounds(), subject, &mountpoint)?,
    })
}

fn refused(name: &str, refusal: Refusal) -> Failure {
    let why = match refusal {
        Refusal::Zoned => "dataset is exported to a local zone",
        Refusal::Legacy => "legacy mountpoint\nmount(8) cannot mount filesystems of Cenote: set property mountpoint",
        Refusal::NoMountpoint => "no mountpoint set",
        Refusal::CanmountOff => "'canmount' property is set to 'off'",
        Refusal::NotByItself => "'canmount' property is set to 'noauto'",
        Refusal::Encrypted => "encryption key not loaded",
        Refusal::Partial => "it holds what an interrupted receive has left, which OpenZFS can resume",
        Refusal::Redacted => "Dataset is not complete, was created by receiving a redacted zfs send stream.",
    };
    Failure { about: name.to_owned(), line: format!("cannot mount '{name}': {why}") }
}

fn is_mounted(host: &dyn Host, name: &str) -> bool {
    host.mounts().iter().any(|mounted| mounted.dataset == name)
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

fn is_at_or_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || top.ends_with('/'))
}

/// Sets an option of `mount -o`; false if there is none of that name.
fn apply(options: &mut MountOptions, option: &str) -> bool {
    match option {
        "defaults" | "nomand" | "mand" | "zfsutil" => {}
        "ro" => options.read_only = true,
        // of a pool that is read-only, the mount is, too
        "rw" => options.read_only = false,
        "atime" => options.atime = true,
        "noatime" => options.atime = false,
        "relatime" => options.relatime = true,
        "norelatime" | "strictatime" => options.relatime = false,
        "exec" => options.exec = true,
        "noexec" => options.exec = false,
        "dev" | "devices" => options.devices = true,
        "nodev" | "nodevices" => options.devices = false,
        "suid" | "setuid" => options.setuid = true,
        "nosuid" | "nosetuid" => options.setuid = false,
        "xattr" | "saxattr" | "dirxattr" => options.xattrs = true,
        "noxattr" => options.xattrs = false,
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_mount() {
        let mut options = MountOptions::new("tank", "/tank");
        for option in ["noatime", "noexec", "nosuid", "nodev", "noxattr", "ro"] {
            assert!(apply(&mut options, option), "{option}");
        }
        assert!(!options.atime && !options.exec && !options.setuid && !options.devices && !options.xattrs);
        assert!(apply(&mut options, "exec") && options.exec);
        assert!(!apply(&mut options, "fast"));
    }

    #[test]
    fn what_is_below() {
        assert!(is_at_or_below("/mnt/a", "/mnt") && is_at_or_below("/mnt", "/mnt") && is_at_or_below("/a", "/"));
        assert!(!is_at_or_below("/mnt-a", "/mnt") && !is_at_or_below("/", "/mnt"));
    }
}
