//! What `zfs list`, `get`, `userspace` and `holds` ask the pool process.
//!
//! Roots are opened by name; below each, file systems, volumes, snapshots and bookmarks are visited as
//! deep as was asked for. A dataset that is reached twice is told once.

use std::collections::HashSet;
use std::mem::take;
use std::sync::Arc;

use base::{Error, Kind, Result};
use dsl::accounting::Accounts;
use dsl::property::DatasetKind;
use dsl::{DEPTH_MAX, PropertyValue, Subject};
use format::ids::DirId;
use pool::Pool;
use protocol::datasets::{
    DatasetRow, DatasetType, Failure, FoundDatasets, Owner, OwnerUsage, Response, Select, SnapshotHolds, Types,
};

use super::host::Host;
use super::parts::{self, Parts, bytes_of_failure, bytes_of_holds, bytes_of_row};
use super::values::Values;

/// The datasets that were asked for: all but the last of them go to `part`.
pub(super) fn datasets(
    host: &dyn Host,
    select: &Select,
    part: &mut dyn FnMut(Response) -> Result<()>,
) -> Result<FoundDatasets> {
    let values = Values::new(host, select.received)?;
    let snapshots = match select.ask_listsnapshots {
        true => lists_snapshots(host)?,
        false => select.types.snapshots,
    };
    let mut walk = DatasetWalk {
        pool: host.pool(),
        values,
        select,
        snapshots,
        found: FoundDatasets::default(),
        parts: Parts::new(host, part),
        seen: HashSet::new(),
        entered: HashSet::new(),
    };
    if select.roots.is_empty() {
        let root = walk.pool.dsl().root_subject()?;
        walk.visit(&root, 0)?;
    }
    for name in &select.roots {
        walk.entered.clear();
        match open(host, name, select.root_types) {
            Ok(subject) => walk.visit(&subject, 0)?,
            Err(failure) => walk.fail(failure)?,
        }
    }
    Ok(walk.found)
}

/// What users, groups or projects use.
pub(super) fn space(host: &dyn Host, name: &str, owner: Owner) -> Result<Vec<OwnerUsage>> {
    let pool = host.pool();
    let dsl = pool.dsl();
    let dataset = dsl.find(name)?;
    let accounts = Accounts::open(dsl.raw_objset(&dataset)?)?;
    let all = accounts.all(owner)?.into_iter().map(|((domain, id), usage)| OwnerUsage {
        domain,
        id,
        used_bytes: usage.used_bytes,
        quota_bytes: usage.quota_bytes,
        objects_used: usage.objects_used,
        objects_quota: usage.objects_quota,
    });
    Ok(all.collect())
}

/// Holds on snapshots, by name of these: all but the last of them go to `part`.
pub(super) fn holds(
    host: &dyn Host,
    snapshots: &[String],
    recursive: bool,
    part: &mut dyn FnMut(Response) -> Result<()>,
) -> Result<(Vec<SnapshotHolds>, Vec<Failure>)> {
    let pool = host.pool();
    let dsl = pool.dsl();
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    let mut parts = Parts::new(host, part);
    for name in snapshots {
        parts.send_if_due(|| Response::Holds(take(&mut found), take(&mut failures)))?;
        let Some((fs, short)) = name.split_once('@') else {
            failures.push(Failure { about: name.clone(), line: format!("'{name}' is not a snapshot") });
            continue;
        };
        let root = match open(host, if recursive { fs } else { name }, Types::DATASETS) {
            Ok(root) => root,
            Err(failure) => {
                parts.add(bytes_of_failure(&failure));
                failures.push(failure);
                continue;
            }
        };
        let mut names = vec![name.clone()];
        if recursive {
            let below = dsl.walk_from((**root.dir()).clone())?;
            names = below.iter().map(|dir| format!("{}@{short}", dir.name)).collect();
            names.sort();
        }
        for name in names {
            match dsl.find(&name) {
                Ok(snapshot) => {
                    let holds = SnapshotHolds { holds: dsl.holds(&snapshot)?, snapshot: name };
                    parts.add(bytes_of_holds(&holds));
                    found.push(holds);
                }
                Err(e) if recursive && e.kind() == Kind::NotFound => {}
                Err(e) => failures.push(cannot_open(&name, &e)),
            }
            parts.send_if_due(|| Response::Holds(take(&mut found), take(&mut failures)))?;
        }
    }
    Ok((found, failures))
}

/// The dataset of that name, if it is of one of those types.
pub(super) fn open(host: &dyn Host, name: &str, types: Types) -> Result<Subject, Failure> {
    // ZFS's own: what they say is no business of others
    if name.split(['/', '@']).any(|part| part.starts_with('$')) {
        return Err(cannot_open(name, &Error::new(Kind::NotFound, "dataset does not exist")));
    }
    let subject = host.pool().dsl().subject(name).map_err(|e| cannot_open(name, &e))?;
    if types.has(type_of(subject.kind())) {
        return Ok(subject);
    }
    let line = format!("cannot open '{name}': operation not applicable to datasets of this type");
    Err(Failure { about: name.to_owned(), line })
}

fn cannot_open(name: &str, error: &Error) -> Failure {
    let why = match error.kind() {
        Kind::NotFound if name.contains('#') && error.what().starts_with("bookmark") => "no such pool or dataset",
        Kind::NotFound => "dataset does not exist",
        Kind::Io | Kind::Corrupt => "I/O error",
        Kind::Checksum => "insufficient replicas",
        _ => error.what(),
    };
    if error.kind() != Kind::NotFound {
        tracing::warn!(dataset = name, "{error}");
    }
    Failure { about: name.to_owned(), line: format!("cannot open '{name}': {why}") }
}

pub(super) fn type_of(kind: DatasetKind) -> DatasetType {
    match kind {
        DatasetKind::FileSystem => DatasetType::FileSystem,
        DatasetKind::Volume => DatasetType::Volume,
        DatasetKind::Snapshot => DatasetType::Snapshot,
        DatasetKind::Bookmark => DatasetType::Bookmark,
    }
}

fn lists_snapshots(host: &dyn Host) -> Result<bool> {
    let props = host.pool().stored_props()?;
    let value = props.iter().find(|(name, _)| name == "listsnapshots").map(|(_, value)| value);
    Ok(matches!(value, Some(PropertyValue::Number(1..))))
}

struct DatasetWalk<'a> {
    pool: Arc<Pool>,
    values: Values<'a>,
    select: &'a Select,
    /// Whether snapshots below are wanted.
    snapshots: bool,
    found: FoundDatasets,
    parts: Parts<'a>,
    /// Names of all that was taken down.
    seen: HashSet<String>,
    /// Directories below the present root that were entered: each is once, or the tree is damaged.
    entered: HashSet<DirId>,
}

impl DatasetWalk<'_> {
    /// Takes down a dataset and what is below it; errors are left for later requests to see. Errors: of telling what was
    /// found so far.
    fn visit(&mut self, subject: &Subject, depth: u32) -> Result<()> {
        let types = self.select.types;
        let kind = type_of(subject.kind());
        if types.has(kind) || kind == DatasetType::Snapshot && self.snapshots {
            self.take(subject)?;
        }
        let is_head = matches!(kind, DatasetType::FileSystem | DatasetType::Volume);
        if !is_head || self.select.depth.is_some_and(|most| depth >= most) {
            return Ok(());
        }
        if depth as usize > DEPTH_MAX || !self.entered.insert(subject.dir().id) {
            let error = Error::corrupt("dataset tree is no tree").in_dataset(subject.name());
            return self.fail(cannot_open(subject.name(), &error));
        }
        let pool = self.pool.clone();
        let dsl = pool.dsl();
        let heads_wanted = types.file_systems || types.volumes;
        let is_last = self.select.depth.is_some_and(|most| depth + 1 >= most);
        if kind == DatasetType::FileSystem && (heads_wanted || !is_last) {
            let below = dsl.subjects_below(subject);
            self.visit_all(subject, below, depth + 1)?;
        }
        if self.snapshots {
            let snapshots = dsl.subjects_of_snapshots(subject);
            self.visit_all(subject, snapshots, depth + 1)?;
        }
        if types.bookmarks {
            let bookmarks = dsl.subjects_of_bookmarks(subject).map(|all| all.into_iter().map(Ok).collect());
            self.visit_all(subject, bookmarks, depth + 1)?;
        }
        Ok(())
    }

    fn visit_all(&mut self, above: &Subject, subjects: Result<Vec<Result<Subject>>>, depth: u32) -> Result<()> {
        let subjects = subjects.unwrap_or_else(|error| vec![Err(error)]);
        for subject in subjects {
            match subject {
                Ok(subject) => self.visit(&subject, depth)?,
                Err(error) => {
                    let about = error.place().dataset.clone().unwrap_or_else(|| above.name().to_owned());
                    self.fail(cannot_open(&about, &error))?;
                }
            }
        }
        Ok(())
    }

    fn fail(&mut self, failure: Failure) -> Result<()> {
        self.parts.add(bytes_of_failure(&failure));
        self.found.failures.push(failure);
        self.parts.send_if_due(|| parts::take(&mut self.found))
    }

    fn take(&mut self, subject: &Subject) -> Result<()> {
        if !self.seen.insert(subject.name().to_owned()) {
            return Ok(());
        }
        let cells = self.select.properties.iter().map(|wanted| self.values.cell(subject, wanted)).collect();
        let user = if self.select.user_properties { self.values.all_user(subject) } else { Vec::new() };
        let row = DatasetRow {
            name: subject.name().to_owned(),
            kind: type_of(subject.kind()),
            createtxg: subject.creation_txg(),
            cells,
            user,
        };
        self.parts.add(bytes_of_row(&row));
        self.found.rows.push(row);
        self.parts.send_if_due(|| parts::take(&mut self.found))
    }
}
