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

use base::{Error, Kind, Result};
use dsl::property::{DatasetKind, needs, rules};
use dsl::write::NESTING_MAX;
use dsl::{DEPTH_MAX, Property, PropertySource, Subject};
use protocol::datasets::{
    Change, CreateChange, DatasetType, DestroyChange, Failure, MountRequest, Mounted, RenameChange, Types,
};

use super::host::{DatasetChange, Host};
use super::limits;
use super::mount::{is_at_or_below_name, is_legacy, mount_one};
use super::query::{open, type_of};
use crate::mount_plan::{Refusal, path_order, plan, plan_below, with_property};

/// What a change says: on standard output, and what went wrong.
pub(super) type Said = (String, Vec<Failure>);

/// Makes a change, and records `history` if all went well and there is such a line.
pub(super) fn change(host: &dyn Host, change: &Change, history: Option<&str>) -> Result<Said> {
    let (out, failures) = match change {
        Change::Create(create) => self::create(host, create)?,
        Change::Destroy(destroy) => self::destroy(host, destroy)?,
        Change::Set { dataset, properties, no_mount } => (String::new(), set(host, dataset, properties, *no_mount)?),
        Change::Inherit { dataset, property, received, recursive } => {
            (String::new(), inherit(host, dataset, property, *received, *recursive)?)
        }
        Change::Rename(rename) => (String::new(), self::rename(host, rename)?),
    };
    let is_dry = match change {
        Change::Create(create) => create.dry_run,
        Change::Destroy(destroy) => destroy.dry_run,
        _ => false,
    };
    if let Some(line) = history.filter(|_| failures.is_empty() && !is_dry) {
        host.record(line)?;
    }
    Ok((out, failures))
}

fn create(host: &dyn Host, create: &CreateChange) -> Result<Said> {
    let name = &create.dataset;
    let failed = |why: &str| Ok((String::new(), vec![failure(name, format!("cannot create '{name}': {why}"))]));
    if !name.contains('/') {
        return failed("missing dataset name");
    }
    if name.matches('/').count() >= NESTING_MAX {
        return failed("maximum name nesting depth exceeded");
    }
    let ancestors: Vec<&str> = name.match_indices('/').map(|(at, _)| &name[..at]).collect();
    let missing: Vec<&str> = ancestors.into_iter().filter(|above| !exists(host, above)).collect();
    if exists(host, name) {
        return if create.parents { Ok(Said::default()) } else { failed("dataset already exists") };
    }
    if !missing.is_empty() && !create.parents {
        return failed("parent does not exist");
    }
    let enabled = host.pool().features().enabled();
    let checked = rules::check_all(&create.properties, DatasetKind::FileSystem);
    if let Err(e) = checked.and_then(|given| needs::check(&given, enabled, true)) {
        return match create.dry_run {
            true => Ok((String::new(), vec![failure(name, format!("cannot verify '{name}': {}", e.what()))])),
            false => failed(e.what()),
        };
    }
    let out = create_text(create);
    if create.dry_run {
        return Ok((out, Vec::new()));
    }
    let mut failures = Vec::new();
    for above in missing {
        if let Err(e) = host.change(&DatasetChange::Create { name: above.to_owned(), properties: Vec::new() }) {
            failures.push(failure(name, format!("cannot create '{above}': {}", words(&e))));
            return Ok((out, failures));
        }
        failures.extend(mount_new(host, above)?);
    }
    let change = DatasetChange::Create { name: name.clone(), properties: create.properties.clone() };
    if let Err(e) = host.change(&change) {
        failures.push(failure(name, format!("cannot create '{name}': {}", words(&e))));
    } else if create.mount {
        failures.extend(mount_new(host, name)?);
    }
    Ok((out, failures))
}

/// What `-v`, `-n` and `-P` show.
fn create_text(create: &CreateChange) -> String {
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
    for (property, value) in &create.properties {
        let line =
            if is_plain { format!("property\t{property}\t{value}\n") } else { format!("\t{property}={value}\n") };
        text += &line;
    }
    text
}

fn mount_new(host: &dyn Host, name: &str) -> Result<Vec<Failure>> {
    let pool = host.pool();
    let Ok(plan) = plan(&pool, host.bounds(), &pool.dsl().subject(name)?)? else { return Ok(Vec::new()) };
    let failed = mount_one(host, plan, &MountRequest::default()).err();
    let note = || failure(name, "filesystem successfully created, but not mounted".to_owned());
    Ok(failed.map_or(Vec::new(), |failed| vec![failed, note()]))
}

fn destroy(host: &dyn Host, destroy: &DestroyChange) -> Result<Said> {
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
    gather_dependents(host, &subject, 0, &mut dependents)?;
    if !dependents.is_empty() && !destroy.recursive {
        let kind = if type_of(subject.kind()) == DatasetType::Volume { "volume" } else { "filesystem" };
        let names: Vec<&str> = dependents.iter().map(Subject::name).collect();
        return only(format!(
            "cannot destroy '{name}': {kind} has children\nuse '-r' to destroy the following datasets:\n{}",
            names.join("\n")
        ));
    }
    if let Some(snapshot) = dependents.iter().find(|subject| subject.kind() == DatasetKind::Snapshot) {
        let why = "this version of Cenote cannot destroy snapshots";
        return only(format!("cannot destroy '{}': {why}", snapshot.name()));
    }
    dependents.push(subject);
    let (mut out, mut failures) = (String::new(), Vec::new());
    for one in dependents.iter().map(Subject::name) {
        if destroy.verbose {
            let word = if destroy.dry_run { "would" } else { "will" };
            out += &if destroy.parsable { format!("destroy\t{one}\n") } else { format!("{word} destroy {one}\n") };
        }
        if destroy.dry_run || !one.contains('/') {
            continue;
        }
        let failed = unmount(host, one, destroy.force).or_else(|| {
            let failed = host.change(&DatasetChange::Destroy { name: one.to_owned() }).err();
            failed.map(|e| failure(one, format!("cannot destroy '{one}': {}", words(&e))))
        });
        failures.extend(failed);
        // others may still go, as OpenZFS has it
        if !failures.is_empty() && !destroy.recursive {
            break;
        }
    }
    Ok((out, failures))
}

/// All below a dataset, each behind what is below it.
fn gather_dependents(host: &dyn Host, subject: &Subject, depth: usize, into: &mut Vec<Subject>) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(Error::corrupt("dataset tree is no tree").in_dataset(subject.name()));
    }
    let pool = host.pool();
    if subject.kind() == DatasetKind::FileSystem {
        for below in pool.dsl().subjects_below(subject)? {
            let below = below?;
            gather_dependents(host, &below, depth + 1, into)?;
            into.push(below);
        }
    }
    for snapshot in pool.dsl().subjects_of_snapshots(subject)? {
        into.push(snapshot?);
    }
    Ok(())
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
    for (property, value) in properties {
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
        let change = || host.change(&set_one(name, property, value)).map_err(|e| failed(&e));
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
        gather_dependents(host, &subject, 0, &mut subjects)?;
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
                mount_again(host, affected[..at].iter().map(|mounted| mounted.dataset.as_str()))?;
                return Ok(vec![failed]);
            }
        }
    }
    if let Err(failures) = change() {
        if effect == Effect::Place {
            mount_again(host, affected.iter().rev().map(|mounted| mounted.dataset.as_str()))?;
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

fn rename(host: &dyn Host, rename: &RenameChange) -> Result<Vec<Failure>> {
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
        let parents = CreateChange { dataset: above.to_owned(), parents: true, mount: true, ..CreateChange::default() };
        let (_, failures) = create(host, &parents)?;
        if !failures.is_empty() {
            return Ok(failures);
        }
    }
    if !exists(host, above) {
        return Ok(vec![failure(to, format!("cannot create '{to}': parent does not exist"))]);
    }
    let mut mounted: Vec<Mounted> = Vec::new();
    if !rename.no_unmount {
        // what mount(8) mounted stays where it is
        let moves = |one: &Mounted| is_at_or_below_name(&one.dataset, from) && !is_legacy(host, &one.dataset);
        mounted = host.mounts().into_iter().filter(moves).collect();
        mounted.sort_by_cached_key(|mounted| std::cmp::Reverse(path_order(&mounted.path)));
    }
    for (at, one) in mounted.iter().enumerate() {
        if let Some(failed) = unmount(host, &one.dataset, rename.force) {
            mount_again(host, mounted[..at].iter().map(|mounted| mounted.dataset.as_str()))?;
            return Ok(vec![failed]);
        }
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

/// Mounts those of the file systems that are mounted by themselves.
fn mount_again<'a>(host: &dyn Host, names: impl IntoIterator<Item = &'a str>) -> Result<Vec<Failure>> {
    mount_again_with(host, names, Vec::new())
}

/// The same, with options that hold for as long as they are mounted.
fn mount_again_with<'a>(
    host: &dyn Host,
    names: impl IntoIterator<Item = &'a str>,
    options: Vec<String>,
) -> Result<Vec<Failure>> {
    let pool = host.pool();
    let mut failures = Vec::new();
    // the kernel hears of it only now, so this one is the property's
    let options = options.into_iter().filter(|option| !option.ends_with("acl")).collect();
    let request = MountRequest { options, ..MountRequest::default() };
    for name in names {
        let subject = pool.dsl().subject(name)?;
        match plan(&pool, host.bounds(), &subject)? {
            Ok(plan) => failures.extend(mount_one(host, plan, &request).err()),
            Err(Refusal::NotByItself) => {
                let plan = super::mount::planned(host, &subject)?;
                failures.extend(mount_one(host, plan, &request).err());
            }
            Err(_) => {}
        }
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
        let wanted = host.options_of(name).map(|now| with_property(&now, &plan.options, property));
        match wanted.map_or(Ok(false), |wanted| host.remount(&wanted)) {
            Ok(true) => {}
            Ok(false) if is_legacy(host, name) => {
                let line = format!("cannot remount '{name}': use umount(8) and mount(8)");
                failures.push(failure(name, line));
            }
            Ok(false) => match unmount(host, name, false) {
                Some(failed) => failures.push(failed),
                None => {
                    let kept = mounted.map_or_else(Vec::new, |mounted| mounted.options);
                    failures.extend(mount_again_with(host, [*name], kept)?);
                }
            },
            Err(e) => failures.push(failure(name, format!("cannot remount '{name}': {}", words(&e)))),
        }
    }
    if let Some(first) = failures.first().cloned() {
        failures.push(failure(&first.about, "property may be set but unable to remount filesystem".to_owned()));
    }
    Ok(failures)
}

/// Unmounts a file system, if it is mounted; what is wrong if it cannot be.
fn unmount(host: &dyn Host, name: &str, force: bool) -> Option<Failure> {
    let mounted = host.mounts().into_iter().find(|mounted| mounted.dataset == name)?;
    let error = host.unmount(name, force).err()?;
    let why = if error.kind() == Kind::Busy { "pool or dataset is busy".to_owned() } else { error.to_string() };
    Some(failure(name, format!("cannot unmount '{}': {why}", mounted.path)))
}

fn exists(host: &dyn Host, name: &str) -> bool {
    host.pool().dsl().subject(name).is_ok()
}

fn failure(about: &str, line: String) -> Failure {
    Failure { about: about.to_owned(), line }
}

/// Why a change was refused, in the words for the user.
fn words(error: &Error) -> String {
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
