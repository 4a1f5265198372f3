//! `zfs create`, `destroy`, `set`, `inherit` and `rename`, on the pool process's side.
//!
//! What a change does to mounts happens around it:
//!
//! ```text
//!   create     change, mount
//!   destroy    for each dataset, those below first: unmount, change
//!   set        unmount what will be elsewhere, change, mount it there; or give it its new options
//!   rename     unmount, change, mount
//! ```
//!
//! A file system that is in use cannot be unmounted; then nothing is changed. The command line goes to the
//! history of the pool once all of it is done.

use base::{Error, Result};
use dsl::property::{DatasetKind, needs, rules};
use dsl::{NameKinds, Property, PropertySource, Subject};
use protocol::datasets::{
    ChangeRequest, CreateChange, Failure, MountRequest, Mounted, RenameChange, SnapshotRequest, Types,
};

use super::around::{
    ChangeOutput, exists, failure, make_with_parents, mount_again, mount_new, put_limits, unmount, unmount_to_rename,
    without_mount, words,
};
use super::destroy::{self, gather_dependents};
use super::host::{DatasetChange, Host};
use super::limits;
use super::mount::{is_at_or_below_name, is_legacy, mount_one};
use super::query::open;
use super::{snapshots, volumes};
use crate::mount_plan::{path_order, plan_below, with_property};

/// Makes a change, and records `history` if all went well and there is such a line.
pub(super) fn change(host: &dyn Host, change: &ChangeRequest, history: Option<&str>) -> Result<ChangeOutput> {
    let (out, failures) = match change {
        ChangeRequest::Create(create) => self::create(host, create)?,
        ChangeRequest::Destroy(destroy) => destroy::destroy(host, destroy)?,
        ChangeRequest::Set { dataset, properties, no_mount } => {
            (String::new(), set(host, dataset, properties, *no_mount)?)
        }
        ChangeRequest::Inherit { dataset, property, received, recursive } => {
            (String::new(), inherit(host, dataset, property, *received, *recursive)?)
        }
        ChangeRequest::Rename(rename) => (String::new(), self::rename(host, rename)?),
        ChangeRequest::Snapshots(request) => snapshots::change(host, request)?,
    };
    let is_dry = match change {
        ChangeRequest::Create(create) => create.dry_run,
        ChangeRequest::Destroy(destroy) => destroy.dry_run,
        ChangeRequest::Snapshots(SnapshotRequest::Destroy(destroy)) => destroy.dry_run,
        _ => false,
    };
    if let Some(line) = history.filter(|_| failures.is_empty() && !is_dry) {
        host.record(line)?;
    }
    Ok((out, failures))
}

fn create(host: &dyn Host, create: &CreateChange) -> Result<ChangeOutput> {
    let name = &create.dataset;
    let failed = |why: &str| Ok((String::new(), vec![failure(name, format!("cannot create '{name}': {why}"))]));
    // ancestors are made for no name that cannot be
    if let Err(e) = dsl::check_new_name(name, NameKinds::HEADS) {
        return failed(e.what());
    }
    let ancestors: Vec<&str> = name.match_indices('/').map(|(at, _)| &name[..at]).collect();
    let missing: Vec<&str> = ancestors.into_iter().filter(|above| !exists(host, above)).collect();
    if exists(host, name) {
        let wanted = if create.volume.is_some() { DatasetKind::Volume } else { DatasetKind::FileSystem };
        let is_same = host.pool().dsl().subject(name)?.kind() == wanted;
        return if create.parents && is_same { Ok(ChangeOutput::default()) } else { failed("dataset already exists") };
    }
    if !missing.is_empty() && !create.parents {
        return failed("parent does not exist");
    }
    let enabled = host.pool().features().enabled();
    let kind = if create.volume.is_some() { DatasetKind::Volume } else { DatasetKind::FileSystem };
    let (limits, given) = match limits::taken_out(&create.properties, kind) {
        Ok(split) => split,
        Err(e) => return failed(e.what()),
    };
    let checked = rules::check_all(&given, kind);
    if let Err(e) = checked.and_then(|given| needs::check(&given, enabled, true)) {
        return match create.dry_run {
            true => Ok((String::new(), vec![failure(name, format!("cannot verify '{name}': {}", e.what()))])),
            false => failed(e.what()),
        };
    }
    let properties = match create.volume {
        Some(space) => volumes::completed(&host.pool(), &given, space)?,
        None => given,
    };
    let out = create_text(create, &properties);
    if create.dry_run {
        return Ok((out, Vec::new()));
    }
    let mut failures = Vec::new();
    if let Some(above) = missing.last() {
        failures = make_with_parents(host, above, name)?;
        if !exists(host, above) {
            return Ok((out, failures));
        }
    }
    let name_and = name.clone();
    let change = match create.volume {
        Some(_) => {
            DatasetChange::CreateVolume { name: name_and, properties: volumes::reckoned(&host.pool(), properties)? }
        }
        None => DatasetChange::Create { name: name_and, properties },
    };
    let made = host.change(&change).and_then(|()| {
        // without its limits it would be another one
        put_limits(host, name, limits)
            .inspect_err(|_| drop(host.change(&DatasetChange::Destroy { name: name.clone() })))
    });
    if let Err(e) = made {
        failures.push(failure(name, format!("cannot create '{name}': {}", words(&e))));
    } else if create.mount {
        failures.extend(mount_new(host, name)?);
    }
    Ok((out, failures))
}

/// What `-v`, `-n` and `-P` show.
fn create_text(create: &CreateChange, properties: &[(String, String)]) -> String {
    let (name, is_plain) = (&create.dataset, create.parsable);
    if !create.verbose {
        return String::new();
    }
    let would = if create.dry_run { "would " } else { "" };
    let mut text = match (create.parents, is_plain) {
        (false, _) => String::new(),
        (true, true) => format!("create_ancestors\t{name}\n"),
        (true, false) => format!("{would}create ancestors of {name}\n"),
    };
    text += &if is_plain { format!("create\t{name}\n") } else { format!("{would}create {name}\n") };
    let limits = create.properties.iter().filter(|(property, _)| property.contains('@'));
    for (property, value) in properties.iter().chain(limits) {
        let line =
            if is_plain { format!("property\t{property}\t{value}\n") } else { format!("\t{property}={value}\n") };
        text += &line;
    }
    text
}

fn set(host: &dyn Host, name: &str, properties: &[(String, String)], no_mount: bool) -> Result<Vec<Failure>> {
    let subject = match open(host, name, Types::DATASETS) {
        Ok(subject) => subject,
        Err(failure) => return Ok(vec![failure]),
    };
    let failed = |e: &Error| vec![failure(name, format!("cannot set property for '{name}': {}", words(e)))];
    for (property, value) in properties {
        let checked = match limits::parse(property, value, subject.kind()) {
            Some(limit) => limit.map(drop),
            None => rules::check(property, value, subject.kind(), false)
                .and_then(|given| needs::check(&[given], host.pool().features().enabled(), false)),
        };
        if let Err(e) = checked {
            return Ok(failed(&e));
        }
    }
    let settings = match volumes::settings(&host.pool(), &subject, properties) {
        Ok(settings) => settings,
        Err(e) => return Ok(failed(&e)),
    };
    for (property, value) in &settings {
        if let Some(limit) = limits::parse(property, value, subject.kind()) {
            let change = |limit| host.change(&DatasetChange::SetLimit { name: name.to_owned(), limit });
            match limit.and_then(change) {
                Ok(()) => continue,
                Err(e) => return Ok(failed(&e)),
            }
        }
        let stays = match Property::find(property) {
            Some(Property::Canmount) => value != "off",
            Some(Property::Mountpoint) => no_mount,
            _ => false,
        };
        if stays {
            // neither mounted nor unmounted for that
            if let Err(e) = host.change(&set_one(name, property, value)) {
                return Ok(failed(&e));
            }
            continue;
        }
        let one = match Property::find(property) {
            Some(Property::Volsize) => {
                DatasetChange::Resize { name: name.to_owned(), size: rules::parse_number(value)? }
            }
            _ => set_one(name, property, value),
        };
        let change = || host.change(&one).map_err(|e| failed(&e));
        let failures = around(host, &subject, Property::find(property), change)?;
        if !failures.is_empty() {
            return Ok(failures);
        }
    }
    Ok(Vec::new())
}

fn set_one(name: &str, property: &str, value: &str) -> DatasetChange {
    DatasetChange::Set { name: name.to_owned(), property: property.to_owned(), value: value.to_owned() }
}

fn inherit(host: &dyn Host, name: &str, property: &str, received: bool, recursive: bool) -> Result<Vec<Failure>> {
    let subject = match open(host, name, Types::DATASETS) {
        Ok(subject) => subject,
        Err(failure) => return Ok(vec![failure]),
    };
    let mut subjects = vec![subject.clone()];
    if recursive {
        gather_dependents(host, &subject, false, &mut subjects)?;
    }
    for subject in subjects {
        let one = subject.name();
        let failed = |e: &Error| vec![failure(one, format!("cannot inherit {property} for '{one}': {}", words(e)))];
        match rules::check_inherit(property, subject.kind(), received) {
            Ok(_) => {}
            // below, what does not apply is passed over
            Err(_) if one != name => continue,
            Err(e) => return Ok(failed(&e)),
        }
        let inherit = DatasetChange::Inherit { name: one.to_owned(), property: property.to_owned(), received };
        let change = || host.change(&inherit).map_err(|e| failed(&e));
        let failures = around(host, &subject, Property::find(property), change)?;
        if !failures.is_empty() {
            return Ok(failures);
        }
    }
    Ok(Vec::new())
}

/// What a change of a property does to mounts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Nothing.
    None,
    /// They are elsewhere, or nowhere.
    Place,
    /// They have other options.
    Options,
}

fn effect(property: Option<Property>) -> Effect {
    match property {
        Some(Property::Mountpoint | Property::Canmount) => Effect::Place,
        Some(
            Property::Readonly
            | Property::Atime
            | Property::Relatime
            | Property::Exec
            | Property::Setuid
            | Property::Devices
            | Property::Xattr
            | Property::Acltype
            | Property::Snapdir
            | Property::Direct,
        ) => Effect::Options,
        _ => Effect::None,
    }
}

/// Changes a property of a dataset, and what is mounted along with it.
fn around(
    host: &dyn Host,
    subject: &Subject,
    property: Option<Property>,
    change: impl FnOnce() -> Result<(), Vec<Failure>>,
) -> Result<Vec<Failure>> {
    let (effect, name) = (effect(property), subject.name());
    let Some(property) = property.filter(|_| effect != Effect::None && subject.kind() == DatasetKind::FileSystem)
    else {
        return Ok(change().err().unwrap_or_default());
    };
    let affected = affected(host, subject, property)?;
    if effect == Effect::Place {
        for (at, mounted) in affected.iter().enumerate() {
            if let Some(failed) = unmount(host, &mounted.dataset, false) {
                let again = mount_again(host, affected[..at].iter().map(|mounted| mounted.dataset.as_str()))?;
                return Ok([vec![failed], again].concat());
            }
        }
    }
    if let Err(mut failures) = change() {
        if effect == Effect::Place {
            failures.extend(mount_again(host, affected.iter().rev().map(|mounted| mounted.dataset.as_str()))?);
        }
        return Ok(failures);
    }
    let names: Vec<&str> = affected.iter().rev().map(|mounted| mounted.dataset.as_str()).collect();
    if effect == Effect::Options {
        return remount(host, &names, property);
    }
    let mut failures = mount_again(host, names.iter().copied())?;
    if property == Property::Mountpoint {
        // what was not mounted has a place now, too
        let plans = plan_below(&host.pool(), host.bounds(), &host.pool().dsl().subject(name)?, &mut |_, _| {})?;
        for plan in plans {
            let is_mounted = host.mounts().iter().any(|mounted| mounted.dataset == plan.dataset);
            if !is_mounted && goes_by(host, name, &plan.dataset, property)? {
                failures.extend(mount_one(host, plan, &MountRequest::default()).err());
            }
        }
    }
    Ok(failures)
}

/// Gives what is mounted of a dataset, and of those that have properties from it, what these say now.
pub(super) fn options_changed(
    host: &dyn Host,
    name: &str,
    properties: impl Iterator<Item = String>,
) -> Result<Vec<Failure>> {
    let subject = host.pool().dsl().subject(name)?;
    let mut failures = Vec::new();
    for property in properties.filter_map(|property| Property::find(&property)) {
        if effect(Some(property)) == Effect::Options {
            let affected = affected(host, &subject, property)?;
            let names: Vec<&str> = affected.iter().rev().map(|mounted| mounted.dataset.as_str()).collect();
            failures.extend(remount(host, &names, property)?);
        }
    }
    Ok(failures)
}

/// What is mounted of a dataset and of those that have the property from it, the deepest path first. With `canmount`,
/// which nobody inherits, these are those that lie below its mountpoint by theirs.
fn affected(host: &dyn Host, subject: &Subject, property: Property) -> Result<Vec<Mounted>> {
    let property = if property == Property::Canmount { Property::Mountpoint } else { property };
    let mut affected = Vec::new();
    for mounted in host.mounts() {
        if goes_by(host, subject.name(), &mounted.dataset, property)? {
            affected.push(mounted);
        }
    }
    affected.sort_by_cached_key(|mounted| std::cmp::Reverse(path_order(&mounted.path)));
    Ok(affected)
}

/// Whether `dataset` is the one called `name`, or lies below it and has no value of its own, nor one from in between.
fn goes_by(host: &dyn Host, name: &str, dataset: &str, property: Property) -> Result<bool> {
    if dataset == name || !is_at_or_below_name(dataset, name) {
        return Ok(dataset == name);
    }
    let pool = host.pool();
    let source = pool.dsl().property(&pool.dsl().subject(dataset)?, property, 0)?.map(|sourced| sourced.source);
    Ok(match source {
        Some(PropertySource::Local | PropertySource::Received) => false,
        Some(PropertySource::Inherited(from)) => !is_at_or_below_name(&from, name) || from == name,
        _ => true,
    })
}

/// Renames a file system or volume, whose mounts go along; what went wrong.
pub(super) fn rename(host: &dyn Host, rename: &RenameChange) -> Result<Vec<Failure>> {
    let (from, to) = (&rename.from, &rename.to);
    let refused = |why: &str| Ok(vec![failure(from, format!("cannot rename to '{to}': {why}"))]);
    let subject = match open(host, from, Types { snapshots: false, ..Types::DATASETS }) {
        Ok(subject) => subject,
        Err(failure) => return Ok(vec![failure]),
    };
    if from == to {
        return Ok(Vec::new());
    }
    let Some((above, _)) = to.rsplit_once('/') else {
        return Ok(vec![failure(to, format!("cannot create '{to}': missing dataset name"))]);
    };
    if is_at_or_below_name(to, from) {
        return refused("New dataset name cannot be a descendant of current dataset name");
    }
    if rename.parents && !exists(host, above) {
        let failures = make_with_parents(host, above, to)?;
        if !exists(host, above) {
            return Ok(failures);
        }
    }
    if !exists(host, above) {
        return Ok(vec![failure(to, format!("cannot create '{to}': parent does not exist"))]);
    }
    let (mounted, failed) =
        if rename.no_unmount { Default::default() } else { unmount_to_rename(host, from, rename.force) };
    if let Some(failed) = failed {
        let again = mount_again(host, mounted.iter().rev().map(|mounted| mounted.dataset.as_str()))?;
        return Ok([vec![failed], again].concat());
    }
    let done = host.change(&DatasetChange::Rename { from: subject.name().to_owned(), to: to.clone() });
    let names: Vec<String> = mounted
        .iter()
        .rev()
        .map(|one| if done.is_ok() { format!("{to}{}", &one.dataset[from.len()..]) } else { one.dataset.clone() })
        .collect();
    let mut failures = mount_again(host, names.iter().map(String::as_str))?;
    if let Err(e) = done {
        failures.insert(0, failure(from, format!("cannot rename '{from}': {}", words(&e))));
    }
    Ok(failures)
}

/// Gives file systems what a property says now, in place if that can be, and else by mounting them anew. What is in use
/// then keeps the old, and what each was told when it was mounted it keeps, too.
fn remount(host: &dyn Host, names: &[&str], property: Property) -> Result<Vec<Failure>> {
    let mut failures = Vec::new();
    for name in names {
        let plan = super::mount::planned(host, &host.pool().dsl().subject(name)?)?;
        let mounted = host.mounts().into_iter().find(|mounted| mounted.dataset == *name);
        // others may have been given to the mount alone
        let now = host.options_of(name);
        let wanted = now.as_ref().map(|now| with_property(now, &plan.options, property));
        match wanted.filter(|wanted| now.as_ref() != Some(wanted)).map_or(Ok(true), |wanted| host.remount(&wanted)) {
            Ok(true) => {}
            Ok(false) if is_legacy(host, name) => {
                let line = format!("cannot remount '{name}': use umount(8) and mount(8)");
                failures.push(failure(name, line));
            }
            Ok(false) => {
                failures.extend(mounted.map_or(Ok(Vec::new()), |mounted| without_mount(host, &mounted, || None))?)
            }
            Err(e) => failures.push(failure(name, format!("cannot remount '{name}': {}", words(&e)))),
        }
    }
    // what keeps one of them keeps those above it, too
    let mut told = std::collections::HashSet::new();
    failures.retain(|failure| told.insert(failure.line.clone()));
    if let Some(first) = failures.first().cloned() {
        failures.push(failure(&first.about, "property may be set but unable to remount filesystem".to_owned()));
    }
    Ok(failures)
}
