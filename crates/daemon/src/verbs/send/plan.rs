//! Which streams are sent, in which order, and what the list of a package says.
//!
//! ```text
//!   package list { tosnap, fromsnap?, not_recursive?, fss {
//!     0x<guid> { name, parentfromsnap, origin?, props {}, snaps { name: guid }, snapprops { name: {} },
//!                snapholds { name: { tag: time } } } } }
//! ```
//!
//! Source: the behaviour of OpenZFS's libzfs.

use std::collections::HashSet;
use std::sync::Arc;

use base::{Error, Result};
use dsl::property::{DatasetKind, Setting};
use dsl::send::{SavedPart, SendFlags, SendFrom, SendRedaction, SendRequest};
use dsl::{Dataset, DatasetBookmark, Dir, Dsl, Property, PropertySource, PropertyValue, Subject};
use format::ids::{DatasetId, Guid, ObjectId, Txg};
use format::nvlist::{NvList, Value};
use format::stream::StreamFeatures;
use pool::Pool;
use protocol::datasets::Failure;
use protocol::streams::{SendOrder, StreamNote};

pub(super) type PlanOutcome<T> = Result<Result<T, Failure>>;

/// What is to be sent.
#[derive(Default)]
pub(super) struct SendPlan {
    /// Name, features and list of the package around the streams.
    pub(super) package: Option<(String, StreamFeatures, Option<NvList>)>,
    pub(super) streams: Vec<PlannedStream>,
    /// What is wrong, and does not keep the rest from being sent.
    pub(super) failures: Vec<Failure>,
}

impl SendPlan {
    /// Of what is to be sent, something that was destroyed since that was planned.
    pub(super) fn gone(&self, pool: &Pool) -> Option<Failure> {
        // a head goes by another guid than the snapshot that it is sent from
        let created = |one: &Dataset| one.phys.creation_txg;
        let is_there =
            |one: &Dataset| pool.dsl().dataset(one.id, &one.name).is_ok_and(|now| created(&now) == created(one));
        let gone = self.streams.iter().find(|stream| !is_there(&stream.snapshot))?;
        Some(missing(&gone.snapshot.name))
    }
}

/// One stream.
pub(super) struct PlannedStream {
    pub(super) snapshot: Dataset,
    from: Option<SendFrom>,
    /// What it begins from, as it is told.
    pub(super) from_name: Option<String>,
    flags: SendFlags,
    pub(super) resume: Option<(ObjectId, u64)>,
    pub(super) saved: Option<SavedPart>,
    pub(super) redaction: SendRedaction,
}

/// What an incremental stream begins from, and what is redacted of that.
pub(super) struct StreamSource {
    from: SendFrom,
    bookmark: Option<DatasetBookmark>,
    snapshots: Option<Vec<Guid>>,
}

impl StreamSource {
    fn of_snapshot(dsl: &Dsl, one: &Dataset, is_clone: bool) -> Result<StreamSource> {
        let from = SendFrom { guid: one.phys.guid, txg: one.phys.creation_txg, is_clone };
        Ok(StreamSource { from, bookmark: None, snapshots: dsl.redacted_for(one)? })
    }

    fn of_bookmark(one: DatasetBookmark, is_clone: bool) -> StreamSource {
        let from = SendFrom { guid: one.guid, txg: one.creation_txg, is_clone };
        StreamSource { from, bookmark: Some(one).filter(|one| one.redaction_object.is_some()), snapshots: None }
    }
}

impl PlannedStream {
    /// All of a snapshot.
    pub(super) fn whole(snapshot: Dataset, flags: SendFlags) -> PlannedStream {
        let redaction = SendRedaction::default();
        PlannedStream { snapshot, from: None, from_name: None, flags, resume: None, saved: None, redaction }
    }

    /// Lets it begin from something.
    pub(super) fn begin_from(&mut self, source: StreamSource, name: Option<String>) {
        (self.from, self.from_name) = (Some(source.from), name);
        (self.redaction.from, self.redaction.from_snapshots) = (source.bookmark, source.snapshots);
    }

    pub(super) fn request(&self) -> SendRequest<'_> {
        let PlannedStream { snapshot, from, flags, resume, saved, redaction, .. } = self;
        let (saved, redaction) = (saved.clone(), redaction.clone());
        SendRequest { snapshot, from: *from, flags: *flags, resume: *resume, saved, redaction }
    }

    /// Redaction lists that may not be destroyed meanwhile.
    pub(super) fn lists(&self) -> Vec<ObjectId> {
        let bookmarks = [&self.redaction.by, &self.redaction.from].into_iter().flatten();
        bookmarks.map(|bookmark| bookmark.redaction_object).collect()
    }
}

/// Plans what is asked for; in its place, why it cannot be.
pub(super) fn plan(
    pool: &Arc<Pool>,
    order: &SendOrder,
    note: &mut dyn FnMut(StreamNote) -> Result<()>,
) -> PlanOutcome<SendPlan> {
    let to = match subject(pool, &order.to) {
        Ok(to) => to,
        Err(failed) => return Ok(Err(failed)),
    };
    let Some(snapshot) = to.dataset().cloned() else { return Ok(Err(missing(&order.to))) };
    let holds = if order.holds { StreamFeatures::HOLDS } else { StreamFeatures::default() };
    if order.replicate || order.all {
        return plan_many(pool, order, (&to, &snapshot), holds, note);
    }
    let (from, from_name) = match &order.from {
        None => (None, None),
        Some(name) => match find_from(pool, &snapshot, to.dir(), name)? {
            Ok(from) => (Some(from), Some(name.clone())),
            Err(failed) => return Ok(Err(failed)),
        },
    };
    let by = match order.redact.as_deref().map(|book| redaction_bookmark(pool, &snapshot, book)) {
        None => None,
        Some(Ok(by)) => Some(by),
        Some(Err(failed)) => return Ok(Err(failed)),
    };
    let mut plan = SendPlan::default();
    if order.properties || order.backup || order.holds {
        let mut gather = Gather::new(pool, order, None);
        gather.dataset(&fs_of(pool, &to)?, Guid::NONE)?;
        plan.package = Some((order.to.clone(), holds, Some(gather.list(&order.to))));
    }
    let mut stream = PlannedStream::whole(snapshot, flags(order));
    if let Some(from) = from {
        stream.begin_from(from, from_name);
    }
    stream.redaction.by = by;
    plan.streams.push(stream);
    Ok(Ok(plan))
}

/// The redaction bookmark of a snapshot that is to be sent.
fn redaction_bookmark(pool: &Pool, snapshot: &Dataset, book: &str) -> Result<DatasetBookmark, Failure> {
    let own = book.split_once('#').map_or(book, |(_, own)| own);
    let name = format!("{}#{own}", snapshot.file_system());
    let cannot = |why: &str| failure(&snapshot.name, format!("warning: cannot send '{}': {why}", snapshot.name));
    let found =
        pool.dsl().bookmark(&name).map_err(|_| failure(&name, format!("cannot open '{name}': no such bookmark")));
    match found? {
        found if found.redaction_object.is_none() => Err(cannot("not a redaction bookmark")),
        found if found.guid != snapshot.phys.guid => Err(cannot("the redaction bookmark is of another snapshot")),
        found => Ok(found),
    }
}

fn flags(order: &SendOrder) -> SendFlags {
    SendFlags { large_blocks: order.large_blocks, embedded: order.embedded, compressed: order.compressed }
}

pub(super) fn failure(about: &str, line: String) -> Failure {
    Failure { about: about.to_owned(), line }
}

pub(super) fn missing(name: &str) -> Failure {
    failure(name, format!("cannot open '{name}': dataset does not exist"))
}

fn subject(pool: &Pool, name: &str) -> Result<Subject, Failure> {
    pool.dsl().subject(name).map_err(|_| missing(name))
}

/// The file system or volume of a snapshot.
fn fs_of(pool: &Pool, snapshot: &Subject) -> Result<Subject> {
    pool.dsl().subject(&snapshot.dir().name)
}

/// The snapshot or bookmark of that name, if a stream of `to` can begin from it.
pub(super) fn find_from(pool: &Pool, to: &Dataset, dir: &Dir, name: &str) -> PlanOutcome<StreamSource> {
    let dsl = pool.dsl();
    let cross = || {
        let why = "not an earlier snapshot from the same fs";
        failure(&to.name, format!("warning: cannot send '{}': {why}", to.name))
    };
    let Some(at) = name.find(['@', '#']) else { return Ok(Err(missing(name))) };
    let Ok(from_dir) = dsl.find_dir(&name[..at]) else { return Ok(Err(missing(name))) };
    let is_clone = from_dir.id != dir.id;
    let source = if name.as_bytes()[at] == b'@' {
        let Ok(found) = dsl.find(name) else { return Ok(Err(missing(name))) };
        StreamSource::of_snapshot(dsl, &found, is_clone)?
    } else {
        let Ok(found) = dsl.bookmark(name) else {
            return Ok(Err(failure(name, format!("cannot open '{name}': no such pool or dataset"))));
        };
        StreamSource::of_bookmark(found, is_clone)
    };
    let txg = source.from.txg;
    // what was left out of a snapshot may be sent later
    let is_same = source.bookmark.is_some() && source.from.guid == to.phys.guid;
    if txg >= to.phys.creation_txg && !is_same {
        return Ok(Err(cross()));
    }
    // up the origins, to the dataset that it is of
    let (mut at, mut latest) = (dir.clone(), Txg::MAX);
    let mut seen = HashSet::new();
    while at.id != from_dir.id {
        if at.phys.origin.is_none() || !seen.insert(at.id) {
            return Ok(Err(cross()));
        }
        let origin_name = dsl.name_of(at.phys.origin)?;
        let origin = dsl.dataset(at.phys.origin, &origin_name)?;
        latest = origin.phys.creation_txg;
        at = dsl.dir(origin.phys.dir, origin.file_system())?;
    }
    if txg > latest {
        return Ok(Err(cross()));
    }
    Ok(Ok(source))
}

/// Plans `-I` and `-R`.
fn plan_many(
    pool: &Arc<Pool>,
    order: &SendOrder,
    (to, snapshot): (&Subject, &Dataset),
    features: StreamFeatures,
    note: &mut dyn FnMut(StreamNote) -> Result<()>,
) -> PlanOutcome<SendPlan> {
    let fs = fs_of(pool, to)?;
    let origin = match fs.dir().phys.origin {
        DatasetId::NONE => None,
        origin => Some(pool.dsl().name_of(origin)?),
    };
    let from_origin = order.from.is_some() && order.from == origin;
    let from = order.from.as_deref().filter(|_| !from_origin);
    let from = from.map(|name| name.split_once('@').unwrap_or((name, "")));
    if from.is_some_and(|(of, _)| of != fs.name()) {
        return Ok(Err(failure(&order.to, "incremental source must be in same filesystem".to_owned())));
    }
    let from = from.map(|(_, own)| own);
    if let Some(own) = from
        && pool.dsl().find(&format!("{}@{own}", fs.name())).is_err()
    {
        return Ok(Err(missing(&format!("{}@{own}", fs.name()))));
    }
    let own = snapshot.name.split_once('@').map_or("", |(_, own)| own);
    let mut gather = Gather::new(pool, order, from);
    gather.dataset(&fs, Guid::NONE)?;
    for line in gather.lines.drain(..) {
        note(StreamNote::Line(line))?;
    }
    if let Some(line) = gather.refused.take() {
        let what = format!("warning: cannot send '{}': backup failed", order.to);
        return Ok(Err(failure(&order.to, format!("{line}\n{what}"))));
    }
    let with_list = order.replicate || order.properties || order.holds;
    let list = with_list.then(|| gather.list(&order.to));
    let mut plan = SendPlan { package: Some((order.to.clone(), features, list)), ..SendPlan::default() };
    let found = if order.replicate { gather.in_order()? } else { vec![fs.clone()] };
    let all_between = order.all || order.replicate && order.from.is_none();
    for one in &found {
        let range = StreamRange { from, to: own, all: all_between, replicate: order.replicate, from_origin };
        plan_dataset(pool, order, one, &range, &gather.origins, &mut plan)?;
    }
    Ok(Ok(plan))
}

/// Which snapshots of each dataset are sent.
struct StreamRange<'a> {
    from: Option<&'a str>,
    to: &'a str,
    all: bool,
    replicate: bool,
    from_origin: bool,
}

/// Plans the streams of one dataset.
fn plan_dataset(
    pool: &Pool,
    order: &SendOrder,
    fs: &Subject,
    range: &StreamRange<'_>,
    origins: &HashSet<Guid>,
    plan: &mut SendPlan,
) -> Result<()> {
    let dsl = pool.dsl();
    let Some(head) = fs.dataset() else { return Ok(()) };
    let snapshots = dsl.snapshots(head)?;
    let own = |one: &Dataset| one.name.split_once('@').map_or("", |(_, own)| own).to_owned();
    let name = fs.name();
    let Some(last) = snapshots.iter().position(|one| own(one) == range.to) else {
        let line = format!("WARNING: could not send {name}@{}: does not exist", range.to);
        plan.failures.push(failure(name, line));
        return Ok(());
    };
    let first = range.from.and_then(|from| snapshots.iter().position(|one| own(one) == from));
    let is_earlier = first.is_none_or(|first| first < last);
    if !is_earlier || range.from.is_some() && first.is_none() && !range.replicate {
        let why = if is_earlier { "does not exist" } else { "is not earlier than it" };
        let from = range.from.unwrap_or_default();
        let line = format!("WARNING: could not send {name}@{}:\nincremental source ({name}@{from}) {why}", range.to);
        plan.failures.push(failure(name, line));
        return Ok(());
    }
    let mut previous = first.map(|first| snapshots[first].clone());
    for (at, one) in snapshots.iter().enumerate().take(last + 1) {
        let is_behind = first.is_none_or(|first| at > first);
        let is_wanted = range.all || at == last || range.replicate && origins.contains(&one.phys.guid);
        if !is_behind || !is_wanted {
            continue;
        }
        let of = |from: &Dataset, is_clone| StreamSource::of_snapshot(dsl, from, is_clone);
        let origin = fs.dir().phys.origin;
        let (from, from_name) = match &previous {
            Some(previous) => (Some(of(previous, false)?), Some(own(previous))),
            None if origin.is_some() && (range.replicate || range.from_origin) => {
                let origin = dsl.dataset(origin, &dsl.name_of(origin)?)?;
                // the empty snapshot that all others are clones of
                let is_clone = !origin.name.contains('$');
                (is_clone.then(|| of(&origin, true)).transpose()?, None)
            }
            None => (None, None),
        };
        let mut stream = PlannedStream::whole(one.clone(), flags(order));
        if let Some(from) = from {
            stream.begin_from(from, from_name);
        }
        plan.streams.push(stream);
        previous = Some(one.clone());
    }
    Ok(())
}

/// Gathers what the list of a package says.
struct Gather<'a> {
    pool: &'a Arc<Pool>,
    order: &'a SendOrder,
    from: Option<&'a str>,
    to: &'a str,
    fss: Vec<(Subject, NvList)>,
    /// Guids of snapshots that clones begin from.
    origins: HashSet<Guid>,
    /// What there is to say.
    lines: Vec<String>,
    refused: Option<String>,
}

impl<'a> Gather<'a> {
    fn new(pool: &'a Arc<Pool>, order: &'a SendOrder, from: Option<&'a str>) -> Gather<'a> {
        let to = order.to.split_once('@').map_or("", |(_, own)| own);
        let (fss, lines) = (Vec::new(), Vec::new());
        Gather { pool, order, from, to, fss, origins: HashSet::new(), lines, refused: None }
    }

    /// Takes down a dataset, and with `replicate` all below it; `above` is the guid of the parent's snapshot that streams
    /// begin from.
    fn dataset(&mut self, fs: &Subject, above: Guid) -> Result<()> {
        let dsl = self.pool.dsl();
        if self.order.exclude.iter().any(|name| name == fs.name()) {
            return Ok(());
        }
        let Some(head) = fs.dataset() else { return Ok(()) };
        let snapshots = dsl.snapshots(head)?;
        let own = |one: &Dataset| one.name.split_once('@').map_or("", |(_, own)| own).to_owned();
        let Some(last) = snapshots.iter().find(|one| own(one) == self.to) else {
            return self.without_snapshot(fs);
        };
        let mut list = NvList::new();
        list.set("name", Value::Str(fs.name().to_owned()));
        list.set("parentfromsnap", Value::U64(above.get()));
        if fs.dir().phys.origin.is_some() {
            let origin = dsl.dataset(fs.dir().phys.origin, &dsl.name_of(fs.dir().phys.origin)?)?;
            if !origin.name.contains('$') {
                list.set("origin", Value::U64(origin.phys.guid.get()));
                self.origins.insert(origin.phys.guid);
            }
        }
        if self.order.properties || self.order.backup || self.order.replicate {
            list.set("props", Value::List(self.properties(fs)?));
        }
        let mut from_guid = Guid::NONE;
        let (mut snaps, mut props, mut holds) = (NvList::new(), NvList::new(), NvList::new());
        let many = self.order.all || self.order.replicate;
        let last_txg = last.phys.creation_txg;
        for one in snapshots.iter().filter(|one| one.phys.creation_txg <= last_txg) {
            let name = own(one);
            if !many && name != self.to {
                continue;
            }
            snaps.set(&name, Value::U64(one.phys.guid.get()));
            if Some(name.as_str()) == self.from || from_guid.is_none() && name == self.to {
                from_guid = one.phys.guid;
            }
            props.set(&name, Value::List(self.properties(&dsl.subject(&one.name)?)?));
            if self.order.holds {
                let mut held = NvList::new();
                dsl.holds(one)?.iter().for_each(|(tag, time)| held.set(tag, Value::U64(*time)));
                holds.set(&name, Value::List(held));
            }
        }
        list.set("snaps", Value::List(snaps));
        list.set("snapprops", Value::List(props));
        if self.order.holds {
            list.set("snapholds", Value::List(holds));
        }
        self.fss.push((fs.clone(), list));
        if self.order.replicate {
            for below in dsl.subjects_below(fs)? {
                self.dataset(&below?, from_guid)?;
            }
        }
        Ok(())
    }

    /// A dataset lacks the snapshot.
    fn without_snapshot(&mut self, fs: &Subject) -> Result<()> {
        let (name, to) = (fs.name(), self.to);
        let top = self.fss.first().and_then(|(fs, _)| fs.dataset().map(|head| head.id));
        let sent = top.and_then(|_| self.pool.dsl().find(&self.order.to).ok());
        let is_later = sent.is_some_and(|sent| fs.creation_txg() > sent.phys.creation_txg);
        if is_later {
            if self.order.verbosity > 0 {
                self.lines.push(format!("skipping dataset {name}: snapshot {to} does not exist"));
            }
        } else if self.order.skip_missing {
            let line = format!("WARNING: skipping dataset {name} and its children: snapshot {to} does not exist");
            self.lines.push(line);
        } else {
            let how = if self.order.replicate { " recursively" } else { "" };
            let line = format!("cannot send {}{how}: snapshot {name}@{to} does not exist", self.order.to);
            self.refused.get_or_insert(line);
        }
        Ok(())
    }

    /// The properties that were set on a dataset, or received by it; with `backup` those received.
    fn properties(&self, of: &Subject) -> Result<NvList> {
        let mut list = NvList::new();
        let is_own = |source: &PropertySource| matches!(source, PropertySource::Local | PropertySource::Received);
        let mut set = |name: &str, value: PropertyValue| match value {
            PropertyValue::Number(number) => list.set(name, Value::U64(number)),
            PropertyValue::Text(text) => list.set(name, Value::Str(text)),
        };
        let is_snapshot = of.kind() == DatasetKind::Snapshot;
        for property in Property::all().filter(|property| property.info().setting != Setting::ReadOnly) {
            // the size of a volume is among its contents: a receiver that sets it has changed what it received
            if is_snapshot || property == Property::Volsize {
                continue;
            }
            if self.order.backup {
                if let Some(value) = of.levels().received(property.name()) {
                    set(property.name(), value);
                }
            } else if let Some(sourced) = self.pool.dsl().property(of, property, 0)?
                && is_own(&sourced.source)
            {
                set(property.name(), sourced.value);
            }
        }
        for (name, sourced) in of.levels().user_properties() {
            match self.order.backup {
                true => of.levels().received(&name).into_iter().for_each(|value| set(&name, value)),
                false if is_own(&sourced.source) => set(&name, sourced.value),
                false => {}
            }
        }
        Ok(list)
    }

    /// The list of the package.
    fn list(&self, to: &str) -> NvList {
        let mut list = NvList::new();
        if let Some(from) = self.from {
            list.set("fromsnap", Value::Str(from.to_owned()));
        }
        list.set("tosnap", Value::Str(to.split_once('@').map_or("", |(_, own)| own).to_owned()));
        if !self.order.replicate {
            list.set("not_recursive", Value::Flag);
        }
        let mut fss = NvList::new();
        for (fs, one) in &self.fss {
            let guid = fs.dataset().map_or(Guid::NONE, |head| head.phys.guid);
            fss.set(&format!("{guid:#x}"), Value::List(one.clone()));
        }
        list.set("fss", Value::List(fss));
        list
    }

    /// The datasets, each behind its parent and behind what it is a clone of.
    fn in_order(&self) -> Result<Vec<Subject>> {
        let guids_of = |list: &NvList| -> Vec<Guid> {
            let snaps = list.opt_list("snaps");
            snaps.map_or_else(Vec::new, |snaps| snaps.iter().filter_map(|(name, _)| snaps.opt_guid(name)).collect())
        };
        let all: HashSet<Guid> = self.fss.iter().flat_map(|(_, list)| guids_of(list)).collect();
        let (mut sent, mut order): (HashSet<Guid>, Vec<Subject>) = (HashSet::new(), Vec::new());
        let mut rest: Vec<&(Subject, NvList)> = self.fss.iter().collect();
        while !rest.is_empty() {
            let before = rest.len();
            rest.retain(|(fs, list)| {
                let waits = list.opt_guid("origin").is_some_and(|guid| all.contains(&guid) && !sent.contains(&guid));
                let above = list.opt_guid("parentfromsnap").filter(|guid| guid.is_some());
                let waits = waits || above.is_some_and(|guid| all.contains(&guid) && !sent.contains(&guid));
                if !waits {
                    sent.extend(guids_of(list));
                    order.push(fs.clone());
                }
                waits
            });
            if rest.len() == before {
                return Err(Error::corrupt("datasets are clones of each other in a circle"));
            }
        }
        Ok(order)
    }
}
