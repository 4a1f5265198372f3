//! `zfs snapshot`, `rollback`, `clone`, `promote`, `hold`, `release`, `bookmark`, and `destroy` and `rename` of snapshots,
//! on the pool process's side.

use base::{Error, Kind, Result};
use dsl::property::rules;
use dsl::{Property, PropertyValue, Subject};
use protocol::datasets::{Failure, SnapshotRequest, Types};

use super::around::{
    ChangeOutput, exists, failure, lost_mounts, make_with_parents, mount_new, mounted_below, put_limits, without_mount,
    words,
};
use super::destroy::{Manner, destroy_all, destroy_named, gather_dependents};
use super::host::{DatasetChange, Host, SnapshotChange};
use super::mount::mount_in_order;
use super::query::open;
use super::{limits, volumes};

/// Later snapshots and bookmarks that a refused rollback names at most.
const NAMED_MAX: usize = 32;
/// File systems and volumes.
const HEADS: Types = Types { snapshots: false, ..Types::DATASETS };

/// Makes a change.
pub(super) fn change(host: &dyn Host, request: &SnapshotRequest) -> Result<ChangeOutput> {
    let failures = match request {
        SnapshotRequest::Take { names, recursive, properties } => take(host, names, *recursive, properties)?,
        SnapshotRequest::Destroy(destroy) => return destroy_named(host, destroy),
        SnapshotRequest::DestroyBookmark { name } => destroy_bookmark(host, name),
        SnapshotRequest::Hold { tag, snapshots, recursive, release } => {
            hold(host, tag, snapshots, *recursive, *release)?
        }
        SnapshotRequest::Bookmark { source, bookmark, recursive } => {
            self::bookmark(host, source, bookmark, *recursive)?
        }
        SnapshotRequest::Redact { snapshot, bookmark, later } => redact(host, snapshot, bookmark, later),
        SnapshotRequest::Rename { from, to, recursive } => rename(host, from, to, *recursive),
        SnapshotRequest::Rollback { snapshot, later, clones, force } => {
            rollback(host, snapshot, (*later, *clones), *force)?
        }
        SnapshotRequest::Clone { snapshot, target, parents, mount, properties } => {
            clone(host, snapshot, target, *parents, *mount, properties)?
        }
        SnapshotRequest::Promote { dataset } => promote(host, dataset)?,
    };
    Ok((String::new(), failures))
}

/// The names of a snapshot of a dataset and of those of all datasets below.
pub(super) fn names_below(host: &dyn Host, name: &str) -> Result<Vec<String>> {
    let (fs, own) = name.split_once('@').unwrap_or((name, ""));
    let pool = host.pool();
    let dirs = pool.dsl().walk_from(pool.dsl().find_dir(fs)?)?;
    let mut names = Vec::new();
    for dir in dirs {
        if !pool.dsl().subject(&dir.name)?.is_inconsistent() {
            names.push(format!("{}@{own}", dir.name));
        }
    }
    Ok(names)
}

fn take(host: &dyn Host, names: &[String], recursive: bool, properties: &[(String, String)]) -> Result<Vec<Failure>> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        let fs = name.split('@').next().unwrap_or_default();
        if let Err(failure) = open(host, fs, HEADS) {
            return Ok(vec![failure]);
        }
        all.extend(if recursive { names_below(host, name)? } else { vec![name.clone()] });
    }
    all.sort();
    all.dedup();
    let done = host.change_snapshots(&SnapshotChange::Take { names: all, properties: properties.to_vec() });
    let line = |(name, e): (String, Error)| failure(&name, format!("cannot create snapshot '{name}': {}", words(&e)));
    let mut failures: Vec<Failure> = match done {
        Ok(refused) => refused.into_iter().map(line).collect(),
        Err(e) => vec![failure(&names[0], format!("cannot create snapshots : {}", words(&e)))],
    };
    if !failures.is_empty() && (recursive || names.len() > 1) {
        failures.push(failure(&names[0], "no snapshots were created".to_owned()));
    }
    Ok(failures)
}

fn destroy_bookmark(host: &dyn Host, name: &str) -> Vec<Failure> {
    match host.change_snapshots(&SnapshotChange::DestroyBookmark { name: name.to_owned() }) {
        Ok(_) => Vec::new(),
        Err(e) if e.kind() == Kind::NotFound => {
            vec![failure(name, format!("bookmark '{name}' does not exist."))]
        }
        Err(e) => vec![failure(name, format!("cannot destroy bookmark: {}", words(&e)))],
    }
}

fn hold(host: &dyn Host, tag: &str, names: &[String], recursive: bool, release: bool) -> Result<Vec<Failure>> {
    let mut failures = Vec::new();
    for name in names {
        let fs = name.split('@').next().unwrap_or_default();
        if let Err(failed) = open(host, fs, HEADS) {
            failures.push(failed);
            continue;
        }
        let mut all = vec![name.clone()];
        if recursive {
            all = names_below(host, name)?;
            all.retain(|one| exists(host, one));
        }
        if release && recursive {
            let pool = host.pool();
            let has = |one: &String| {
                let holds = pool.dsl().find(one).and_then(|snapshot| pool.dsl().holds(&snapshot));
                holds.is_ok_and(|holds| holds.iter().any(|(held, _)| held == tag))
            };
            all.retain(has);
        }
        if all.is_empty() {
            all = vec![name.clone()];
        }
        let holds: Vec<(String, String)> = all.into_iter().map(|one| (one, tag.to_owned())).collect();
        let (change, verb) = match release {
            true => (SnapshotChange::Release(holds), "cannot release hold from snapshot"),
            false => (SnapshotChange::Hold(holds), "cannot hold snapshot"),
        };
        let line = |(name, e): (String, Error)| failure(&name, format!("{verb} '{name}': {}", hold_words(&e)));
        match host.change_snapshots(&change) {
            Ok(refused) => failures.extend(refused.into_iter().map(line)),
            Err(e) => failures.push(line((name.clone(), e))),
        }
    }
    Ok(failures)
}

fn hold_words(error: &Error) -> String {
    match error.kind() {
        Kind::Exists | Kind::NotFound => error.what().to_owned(),
        _ => words(error),
    }
}

fn bookmark(host: &dyn Host, source: &str, bookmark: &str, recursive: bool) -> Result<Vec<Failure>> {
    if let Err(failed) = open(host, source, Types { bookmarks: true, ..Types::SNAPSHOTS }) {
        return Ok(vec![failed]);
    }
    let own = bookmark.split_once('#').map_or("", |(_, own)| own);
    let pairs: Vec<(String, String)> = match recursive {
        false => vec![(source.to_owned(), bookmark.to_owned())],
        true => {
            let all = names_below(host, source)?.into_iter().filter(|one| exists(host, one));
            all.map(|one| {
                let new = format!("{}#{own}", one.split('@').next().unwrap_or_default());
                (one, new)
            })
            .collect()
        }
    };
    let mut failures = Vec::new();
    for (source, new) in pairs {
        let why = match host.change_snapshots(&SnapshotChange::Bookmark { new: new.clone(), source }) {
            Ok(_) => continue,
            Err(e) if e.kind() == Kind::Exists => "bookmark exists".to_owned(),
            Err(e) => words(&e),
        };
        failures.push(failure(&new, format!("cannot create bookmark '{new}': {why}")));
    }
    Ok(failures)
}

fn redact(host: &dyn Host, snapshot: &str, bookmark: &str, later: &[String]) -> Vec<Failure> {
    let refused = |line: String| vec![failure(snapshot, line)];
    let absent = |name: &&str| !host.pool().dsl().find(name).is_ok_and(|found| found.is_snapshot());
    let names = std::iter::once(snapshot).chain(later.iter().map(String::as_str));
    let absent: Vec<Failure> =
        names.filter(absent).map(|name| failure(name, format!("provided snapshot {name} does not exist"))).collect();
    if !absent.is_empty() {
        return absent;
    }
    if bookmark.contains('#') {
        return refused("redaction bookmark name must not contain '#'".to_owned());
    }
    let change =
        SnapshotChange::Redact { snapshot: snapshot.to_owned(), bookmark: bookmark.to_owned(), later: later.to_vec() };
    match host.change_snapshots(&change) {
        Ok(_) => Vec::new(),
        Err(e) if e.kind() == Kind::Exists => refused(e.what().to_owned()),
        Err(e) => refused(words(&e)),
    }
}

fn rename(host: &dyn Host, from: &str, to: &str, recursive: bool) -> Vec<Failure> {
    if let Err(failed) = open(host, from, Types::SNAPSHOTS) {
        return vec![failed];
    }
    let change = SnapshotChange::Rename { from: from.to_owned(), to: to.to_owned(), recursive };
    match host.change_snapshots(&change) {
        Ok(_) => Vec::new(),
        Err(e) if recursive && e.kind() == Kind::Exists => {
            let line = "a child dataset already has a snapshot with the new name";
            vec![failure(from, format!("cannot rename '{from}': {line}"))]
        }
        Err(e) => vec![failure(from, format!("cannot rename '{from}': {}", words(&e)))],
    }
}

/// Goes back to a snapshot; `(later, clones)` say whether later snapshots and bookmarks, and clones of those, are to be
/// destroyed for that.
fn rollback(host: &dyn Host, to: &str, (later, clones): (bool, bool), force: bool) -> Result<Vec<Failure>> {
    let fs = to.split('@').next().unwrap_or_default();
    let (target, head) = match (open(host, to, Types::SNAPSHOTS), open(host, fs, HEADS)) {
        (Ok(target), Ok(head)) => (target, head),
        (Err(failed), _) | (_, Err(failed)) => return Ok(vec![failed]),
    };
    let pool = host.pool();
    let after = |one: &Subject| one.creation_txg() > target.creation_txg();
    let snapshots = pool.dsl().subjects_of_snapshots(&head)?.into_iter().collect::<Result<Vec<Subject>>>()?;
    let snapshots: Vec<Subject> = snapshots.into_iter().filter(after).collect();
    let bookmarks: Vec<Subject> = pool.dsl().subjects_of_bookmarks(&head)?.into_iter().filter(after).collect();
    let names = |all: &mut dyn Iterator<Item = &Subject>| all.map(Subject::name).collect::<Vec<_>>().join("\n");
    let is_latest = snapshots.is_empty() && bookmarks.is_empty();
    if !later && !is_latest {
        let mut line = format!(
            "cannot rollback to '{to}': more recent snapshots or bookmarks exist\n\
             use '-r' to force deletion of the following snapshots and bookmarks:\n{}",
            names(&mut snapshots.iter().chain(&bookmarks).take(NAMED_MAX))
        );
        if snapshots.len() + bookmarks.len() >= NAMED_MAX {
            line += &format!("\nOutput limited to {NAMED_MAX} snapshots/bookmarks");
        }
        return Ok(vec![failure(to, line)]);
    }
    let mut doomed = Vec::new();
    for one in &snapshots {
        gather_dependents(host, one, true, &mut doomed)?;
        if !doomed.iter().any(|other| other.name() == one.name()) {
            doomed.push(one.clone());
        }
    }
    let is_dependent = |one: &&Subject| snapshots.iter().all(|snapshot| snapshot.name() != one.name());
    if !clones && doomed.iter().any(|one| is_dependent(&one)) {
        let line = format!(
            "cannot rollback to '{to}': clones of previous snapshots exist\n\
             use '-R' to force deletion of the following clones and dependents:\n{}",
            names(&mut doomed.iter().filter(is_dependent))
        );
        return Ok(vec![failure(to, line)]);
    }
    let manner = Manner { force, dry_run: false, verbose: false, parsable: false, goes_on: false };
    let (_, mut failures) = destroy_all(host, &doomed, manner)?;
    if failures.is_empty() {
        failures = bookmarks.iter().flat_map(|one| destroy_bookmark(host, one.name())).collect();
    }
    if !failures.is_empty() {
        return Ok(failures);
    }
    let change = SnapshotChange::Rollback { to: to.to_owned() };
    let failed = |e: &Error| {
        let why = if matches!(e.kind(), Kind::Exists) { e.what().to_owned() } else { words(e) };
        failure(fs, format!("cannot rollback '{fs}': {why}"))
    };
    let before = mounted_below(host, fs);
    let is_reckoned = volumes::is_reckoned(&pool, &head)?;
    match host.change_snapshots(&change) {
        Ok(_) if is_reckoned => Ok(volumes::reckon_again(host, fs)?),
        Ok(_) => Ok(mount_in_order(host, lost_mounts(host, &before)?)),
        // it is mounted in a way that cannot be frozen
        Err(e) => match host.mounts().into_iter().find(|mounted| mounted.dataset == fs) {
            Some(mounted) if e.kind() == Kind::Unsupported => {
                without_mount(host, &mounted, || host.change_snapshots(&change).err().map(|e| failed(&e)))
            }
            _ => Ok(vec![failed(&e)]),
        },
    }
}

fn clone(
    host: &dyn Host,
    snapshot: &str,
    target: &str,
    parents: bool,
    mount: bool,
    properties: &[(String, String)],
) -> Result<Vec<Failure>> {
    let source = match open(host, snapshot, Types::SNAPSHOTS) {
        Ok(source) => source,
        Err(failed) => return Ok(vec![failed]),
    };
    let failed = |why: &str| Ok(vec![failure(target, format!("cannot create '{target}': {why}"))]);
    let Some((above, _)) = target.rsplit_once('/') else { return failed("missing dataset name") };
    if exists(host, target) {
        return if parents { Ok(Vec::new()) } else { failed("dataset already exists") };
    }
    if !exists(host, above) {
        if !parents {
            return failed("parent does not exist");
        }
        let failures = make_with_parents(host, above, target)?;
        if !exists(host, above) {
            return Ok(failures);
        }
    }
    let (limits, properties) = match limits::taken_out(properties, source.head_kind()) {
        Ok(split) => split,
        Err(e) => return failed(e.what()),
    };
    let (versions, properties) = properties.into_iter().partition(|(name, _)| name == Property::Version.name());
    let version = match later_version(host, &source, versions) {
        Ok(version) => version,
        Err(e) => return failed(&words(&e)),
    };
    let properties = volumes::reckoned_for(&host.pool(), &source, properties)?;
    let (snapshot, name) = (snapshot.to_owned(), target.to_owned());
    if let Err(e) = host.change_snapshots(&SnapshotChange::Clone { snapshot, target: name.clone(), properties }) {
        return failed(&words(&e));
    }
    let renew = |value| {
        let property = Property::Version.name().to_owned();
        host.change(&DatasetChange::Set { name: name.clone(), property, value })
    };
    if let Err(e) = version.map_or(Ok(()), renew).and_then(|()| put_limits(host, &name, limits)) {
        host.change(&DatasetChange::Destroy { name })?;
        return failed(&words(&e));
    }
    if mount { mount_new(host, target) } else { Ok(Vec::new()) }
}

/// The version that a clone of a snapshot is to have by `given`, if it is a later one than that of the snapshot.
/// Errors: `Invalid` for an earlier one, and for what is none.
fn later_version(host: &dyn Host, source: &Subject, given: Vec<(String, String)>) -> Result<Option<String>> {
    let Some((name, value)) = given.into_iter().next() else { return Ok(None) };
    let number = match rules::check(&name, &value, source.head_kind(), true)?.value {
        PropertyValue::Number(number) => number,
        PropertyValue::Text(_) => return Ok(None),
    };
    let own = host.pool().dsl().property(source, Property::Version, 0)?.map(|sourced| sourced.value);
    match own {
        Some(PropertyValue::Number(own)) if number < own => {
            Err(Error::new(Kind::Invalid, format!("'version': the snapshot is of version {own} already")))
        }
        Some(PropertyValue::Number(own)) if number == own => Ok(None),
        _ => Ok(Some(value)),
    }
}

fn promote(host: &dyn Host, name: &str) -> Result<Vec<Failure>> {
    let subject = match open(host, name, HEADS) {
        Ok(subject) => subject,
        Err(failed) => return Ok(vec![failed]),
    };
    let failed = |why: &str| Ok(vec![failure(name, format!("cannot promote '{name}': {why}"))]);
    let origin = match host.pool().dsl().property(&subject, Property::Origin, 0)?.map(|sourced| sourced.value) {
        Some(PropertyValue::Text(origin)) => origin,
        _ => return failed("not a cloned filesystem"),
    };
    match host.change_snapshots(&SnapshotChange::Promote { name: name.to_owned() }) {
        Ok(conflicts) => {
            let line =
                |own: String| format!("cannot promote '{name}': conflicting snapshot '{own}' from parent '{origin}'");
            Ok(conflicts.into_iter().map(|(own, _)| failure(name, line(own))).collect())
        }
        Err(e) => failed(&words(&e)),
    }
}
