//! `zfs receive` on the pool process's side: one stream, or all streams of a package.
//!
//! ```text
//!   descriptor ─▶ BEGIN ─┬─ one snapshot ─▶ its name here, what it is a clone of ─▶ begin, apply, finish ─▶ mount
//!                        └─ package: list, END ─▶ the same for each, with the properties that the list has
//! ```

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read};

use base::{Error, Kind, Result};
use dsl::receive::StreamReader;
use dsl::write::{NewReceive, SNAPSHOT_EXISTS, StreamRedaction};
use dsl::{Property, PropertyValue, Subject};
use format::ids::{DatasetId, Guid, ObjectId};
use format::nvlist::NvList;
use format::stream::{StreamBegin, StreamFeatures};
use fuse::MountOptions;
use pool::{Pool, Receiving};
use protocol::datasets::{Failure, Response};
use protocol::streams::{ReceiveOrder, StreamNote};
use protocol::words::nicenum::nicebytes;

use super::around::{exists, failure, lost_mounts, make_with_parents, mounted_below, unmount, words};
use super::host::{Host, SnapshotChange};
use super::input::{CommandInput, Teller};
use super::mount::mount_in_order;
use super::nearest::nearest_snapshot;
use super::received::{self, CommandProperties, PropertiesBefore};
use super::replicate::Following;
use crate::mount_plan::{PlannedMount, plan_below};

/// Bytes that are read of a stream at once.
const READ_BYTES: usize = 1 << 20;
/// What can be received.
const KNOWN: StreamFeatures = StreamFeatures::SA_SPILL
    .with(StreamFeatures::DEDUP)
    .with(StreamFeatures::DEDUPPROPS)
    .with(StreamFeatures::EMBED_DATA)
    .with(StreamFeatures::LZ4)
    .with(StreamFeatures::LARGE_BLOCKS)
    .with(StreamFeatures::RESUMING)
    .with(StreamFeatures::REDACTED)
    .with(StreamFeatures::COMPRESSED)
    .with(StreamFeatures::LARGE_DNODE)
    .with(StreamFeatures::ZSTD)
    .with(StreamFeatures::HOLDS)
    .with(StreamFeatures::SWITCH_TO_LARGE_BLOCKS)
    .with(StreamFeatures::LONGNAME)
    .with(StreamFeatures::LARGE_MICROZAP);
/// What the list of a package says of one of its snapshots.
#[derive(Default)]
struct ListedSnapshot {
    properties: Option<NvList>,
    of_snapshot: Option<NvList>,
    holds: Option<NvList>,
}

/// What a stream could give rights on this host by: whether it counts is found anew when one has come.
const RIGHTS: [Property; 2] = [Property::Setuid, Property::Devices];

struct StreamReceiver<'a> {
    host: &'a dyn Host,
    order: &'a ReceiveOrder,
    note: &'a Teller<'a>,
    notes: Vec<String>,
    /// The list of the package, and the dataset that it begins with.
    package: Option<(NvList, String)>,
    /// What has been made, to be mounted in the end.
    made: Vec<String>,
    /// Datasets that have the properties of the package.
    changed: HashSet<String>,
}

/// Receives what comes from a descriptor.
pub(super) fn receive(
    host: &dyn Host,
    order: &ReceiveOrder,
    from: File,
    note: &mut dyn FnMut(StreamNote) -> Result<()>,
) -> Result<Response> {
    let note = Teller::new(note);
    let mut from = BufReader::with_capacity(READ_BYTES, CommandInput::new(from, host, &note));
    let (notes, made, changed) = (Vec::new(), Vec::new(), HashSet::new());
    let mut receiver = StreamReceiver { host, order, note: &note, notes, package: None, made, changed };
    let before = mounted_below(host, order.target.split('@').next().unwrap_or_default());
    let mut failures: Vec<Failure> = receiver.all(&mut from).err().into_iter().collect();
    if !order.dry_run {
        let _turn = host.turn();
        failures.extend(receiver.mount(&before, failures.is_empty())?);
    }
    if !order.dry_run && !order.history.is_empty() && failures.is_empty() {
        host.record(&order.history)?;
    }
    Ok(Response::Done { failures, notes: receiver.notes })
}

/// Destroys what an interrupted receive has left.
pub(super) fn abort(host: &dyn Host, dataset: &str, history: &str) -> Result<Response> {
    let failures = match host.abort_receive(dataset) {
        Ok(()) => Vec::new(),
        Err(e) if e.kind() == Kind::NotFound => vec![failure(dataset, e.what().to_owned())],
        Err(e) => vec![failure(dataset, format!("cannot destroy '{dataset}/%recv': {}", words(&e)))],
    };
    if failures.is_empty() {
        host.record(history)?;
    }
    Ok(Response::Done { failures, notes: Vec::new() })
}

impl<'h> StreamReceiver<'h> {
    /// Receives all streams.
    fn all(&mut self, from: &mut dyn Read) -> Result<(), Failure> {
        let absent = |name: &str, kind: &str| {
            Err(failure(name, format!("cannot receive: specified {kind} ({name}) does not exist")))
        };
        if (self.order.append_path || self.order.append_name) && !exists(self.host, &self.order.target) {
            return absent(&self.order.target, "fs");
        }
        if let Some(origin) = self.order.origin.as_ref().filter(|origin| !exists(self.host, origin)) {
            return absent(origin, "origin fs");
        }
        let mut reader = StreamReader::new(from);
        let unread = || failure(&self.order.target, "cannot receive: failed to read from stream".to_owned());
        let first = reader.begin().map_err(|e| match e.kind() {
            Kind::Io => unread(),
            _ => self.cannot("cannot receive", &e),
        })?;
        let Some((begin, to_guid, list)) = first else { return Err(unread()) };
        if !begin.is_package {
            return self.one(&mut reader, (begin, to_guid, list));
        }
        let bad = |e: &Error| failure("", format!("cannot receive: {}", e.what()));
        reader.end_of_list().map_err(|e| bad(&e))?;
        let list = if list.is_empty() { NvList::new() } else { NvList::unpack(&list).map_err(|e| bad(&e))? };
        let top = begin.name.split('@').next().unwrap_or_default().to_owned();
        let is_empty = list.is_empty();
        self.package = Some((list, top));
        if self.order.target.contains('@') && (self.is_recursive() || is_empty) {
            let why = "cannot specify snapshot name for multi-snapshot stream";
            return Err(failure(&self.order.target, format!("cannot receive: {why}")));
        }
        self.follow(self.order.force)?;
        let received = self.streams(&mut reader);
        // what came may be what was missing; what came in part is kept
        let mut left = self.follow(self.order.force && received.is_ok())?;
        let last = received.err().or_else(|| left.pop());
        self.notes.extend(left.into_iter().map(|failure| failure.line));
        last.map_or(Ok(()), Err)
    }

    /// Mounts what came, if it came whole with all that is in the first dataset of a package, and what was mounted before.
    /// What of the former could not be.
    fn mount(&mut self, before: &[DatasetId], is_whole: bool) -> Result<Vec<Failure>> {
        let lost = lost_mounts(self.host, before)?;
        let pool = self.host.pool();
        let package = self.package.as_ref().filter(|(list, _)| is_whole && !list.is_empty());
        let tops = package.map_or_else(|| self.made.clone(), |(_, top)| vec![self.target_of(top, top)]);
        if !self.order.no_mount {
            self.tell_mountpoints(&pool);
        }
        let mut plans: HashMap<String, PlannedMount> = HashMap::new();
        for top in tops.iter().filter(|_| !self.order.no_mount) {
            let Ok(subject) = pool.dsl().subject(top) else { continue };
            let below = plan_below(&pool, self.host.bounds(), &subject, &mut |_, _| {})?;
            let below = below.into_iter().filter(|plan| self.host.options_of(&plan.dataset).is_none());
            plans.extend(below.map(|plan| (plan.dataset.clone(), plan)));
        }
        let came: HashSet<String> = plans.keys().cloned().collect();
        for plan in lost {
            plans.entry(plan.dataset.clone()).or_insert(plan);
        }
        let failed = mount_in_order(self.host, plans.into_values().collect());
        let (failed, lost): (Vec<_>, Vec<_>) = failed.into_iter().partition(|failed| came.contains(&failed.about));
        self.notes.extend(lost.into_iter().map(|failed| failed.line));
        Ok(failed)
    }

    /// Tells of mountpoints that came with a stream, and do not count.
    fn tell_mountpoints(&mut self, pool: &Pool) {
        let bounds = self.host.bounds();
        for name in &self.made {
            let Ok(subject) = pool.dsl().subject(name) else { continue };
            let Ok(Some(sourced)) = bounds.mountpoint(pool, &subject) else { continue };
            let (now, received) = (sourced.value, subject.levels().received(Property::Mountpoint.name()));
            if let Some(PropertyValue::Text(received)) = received.filter(|received| *received != now)
                && bounds.passes_over_mountpoint(&subject)
            {
                self.notes.push(format!(
                    "{name}: mountpoint '{received}' came with the stream, and does not count: \
                     'zfs set mountpoint={received} {name}' follows it, org.cenote:received=follow all of them"
                ));
            }
        }
    }

    /// Receives the streams of a package.
    fn streams(&mut self, reader: &mut StreamReader<'_>) -> Result<(), Failure> {
        let bad = |why: &str| Err(failure("", format!("cannot receive: {why}")));
        loop {
            match reader.begin() {
                Ok(None) => return Ok(()),
                Ok(Some((begin, ..))) if begin.is_package => return bad("invalid stream (a package within a package)"),
                Ok(Some(stream)) => self.one(reader, stream)?,
                Err(e) => return bad(e.what()),
            }
        }
    }

    /// Renames as the sender has, and with `destroys` destroys what it has not; what could not be. Of a package that is of
    /// a whole tree, and not from its beginning.
    fn follow(&self, destroys: bool) -> Result<Vec<Failure>, Failure> {
        let from = |list: &NvList| list.opt_str("fromsnap").is_some() && self.is_recursive() && !self.order.dry_run;
        let Some((list, top)) = self.package.as_ref().filter(|(list, _)| from(list)) else { return Ok(Vec::new()) };
        let _turn = self.host.turn();
        let how = Following { destroys, force_unmount: self.order.force_unmount };
        super::replicate::follow(self.host, &self.target_of(top, top), list, how)
            .map_err(|e| self.cannot("cannot receive", &e))
    }

    fn cannot(&self, what: &str, error: &Error) -> Failure {
        let why = match error.kind() {
            Kind::Checksum if error.what().contains("stream") => "checksum mismatch".to_owned(),
            Kind::Io if error.what().contains("stream") => "incomplete stream".to_owned(),
            Kind::NoSpace => "out of space".to_owned(),
            Kind::Quota => format!("destination {} space quota exceeded.", self.order.target),
            Kind::Corrupt => error.what().to_owned(),
            Kind::Exists | Kind::Busy | Kind::Permission => error.what().to_owned(),
            _ => words(error),
        };
        failure(&self.order.target, format!("{what}: {why}"))
    }

    /// The name here of a dataset of the sender; `top` is that which the stream or package begins with.
    fn target_of(&self, name: &str, top: &str) -> String {
        let target = self.order.target.split('@').next().unwrap_or_default();
        let rest = if self.order.append_name {
            top.rsplit_once('/').map_or_else(|| format!("/{name}"), |(above, _)| name[above.len()..].to_owned())
        } else if self.order.append_path {
            name.split_once('/').map_or_else(String::new, |(_, rest)| format!("/{rest}"))
        } else {
            name.strip_prefix(top).unwrap_or_default().to_owned()
        };
        format!("{target}{rest}")
    }

    /// Receives one stream, or leaves it out.
    fn one(&mut self, reader: &mut StreamReader<'_>, stream: (StreamBegin, Guid, Vec<u8>)) -> Result<(), Failure> {
        let (begin, to_guid, list) = stream;
        let is_clone = begin.flags & StreamBegin::FLAG_CLONE != 0 || self.order.origin.is_some();
        let what = match begin.from_guid {
            _ if begin.features.has(StreamFeatures::RESUMING) => "cannot receive resume stream",
            Guid::NONE => "cannot receive new filesystem stream",
            _ if is_clone => "cannot receive new filesystem stream",
            _ => "cannot receive incremental stream",
        };
        let refused = |why: String| Err(failure(&begin.name, format!("{what}: {why}")));
        let beyond = begin.features.names_beyond(KNOWN);
        if !beyond.is_empty() {
            return refused(format!("stream has unsupported feature: {}", beyond.join(", ")));
        }
        let Some((fs, own)) = begin.name.split_once('@') else { return refused("invalid name".to_owned()) };
        let top = self.package.as_ref().map_or(fs, |(_, top)| top.as_str()).to_owned();
        if fs != top && !fs.starts_with(&format!("{top}/")) {
            return refused("a stream of the package is of another dataset".to_owned());
        }
        let target = self.target_of(fs, &top);
        let is_new = is_clone || begin.from_guid.is_none();
        let needed = if is_new { target.rsplit_once('/').map_or("", |(above, _)| above) } else { &target };
        if !exists(self.host, needed) {
            // it has its place below what came before it
            self.follow(self.order.force)?;
        }
        let own = self.order.target.split_once('@').map_or(own, |(_, own)| own).to_owned();
        if self.order.corrective {
            return self.heal(reader, &format!("{target}@{own}"), (&begin, to_guid));
        }
        let origin = self.origin_of(&begin, &target, what)?;
        self.check_overwritten(&target, &begin, is_clone, what)?;
        let list = if list.is_empty() { Ok(NvList::new()) } else { NvList::unpack(&list) };
        let list = list.map_err(|e| self.cannot(what, &e))?;
        let resume = self.resume_of(&begin, &list).map_err(|e| self.cannot(what, &e))?;
        let new = NewReceive {
            target: target.clone(),
            snapshot: own.clone(),
            to_guid,
            force: self.order.force,
            resumable: self.order.resumable,
            origin,
            resume,
            redaction: StreamRedaction::of(&list),
            begin,
        };
        self.receive(reader, &new, what)
    }

    /// Mends a snapshot that is there with the stream's data.
    fn heal(
        &mut self,
        reader: &mut StreamReader<'_>,
        name: &str,
        (begin, to_guid): (&StreamBegin, Guid),
    ) -> Result<(), Failure> {
        const WHAT: &str = "cannot receive";
        const NOT_HEALED: &str = "corrective receive was not able to reconstruct the data needed for healing.";
        let refused = |why: &str| Err(failure(name, format!("{WHAT}: {why}")));
        let ReceiveOrder { append_path, append_name, force, resumable, no_mount, skip_holds, .. } = *self.order;
        let is_changed = self.order.origin.is_some() || !self.order.set.is_empty() || !self.order.exclude.is_empty();
        if append_path || append_name || force || resumable || no_mount || skip_holds || is_changed {
            return refused("corrective recv can not be used when combined with this flag");
        }
        let Ok(snapshot) = self.host.pool().dsl().find(name) else {
            return refused("corrective recv must specify an existing snapshot to heal");
        };
        if snapshot.phys.guid != to_guid {
            return refused("local snapshot doesn't match the snapshot in the provided stream");
        }
        let kind = if begin.from_guid.is_none() { "full" } else { "incremental" };
        if self.order.dry_run || self.order.verbose {
            let verb = if self.order.dry_run { "would receive" } else { "receiving" };
            let line = format!("{verb} corrective {kind} stream of {} into {name}", begin.name);
            self.note.tell(StreamNote::Line(line)).map_err(|e| failure("", e.to_string()))?;
        }
        if self.order.dry_run {
            return self.skip(reader, WHAT);
        }
        if begin.flags & StreamBegin::FLAG_CLONE != 0 {
            return refused("invalid backup stream");
        }
        let began_ns = self.host.now_ns();
        let healed = self.host.heal_snapshot(name, to_guid, reader).map_err(|error| match error.kind() {
            Kind::Checksum => failure(name, format!("{WHAT}: {NOT_HEALED}")),
            Kind::Io if error.what().contains("stream") => failure(name, format!("{WHAT}: {NOT_HEALED}")),
            _ => self.cannot(WHAT, &error),
        })?;
        self.say(format!("healed {} blocks of {name}", healed.healed))?;
        if healed.left > 0 {
            return refused(NOT_HEALED);
        }
        self.say_rate(reader.bytes(), began_ns)
    }

    /// The snapshot here that a clone begins from.
    fn origin_of(&mut self, begin: &StreamBegin, target: &str, what: &str) -> Result<Option<String>, Failure> {
        if let Some(origin) = &self.order.origin {
            self.say(format!("using provided clone origin {origin}"))?;
            return Ok(Some(origin.clone()));
        }
        if begin.flags & StreamBegin::FLAG_CLONE == 0 || begin.features.has(StreamFeatures::RESUMING) {
            return Ok(None);
        }
        let pool = self.host.pool();
        let found = nearest_snapshot(pool.dsl(), target, begin.from_guid).map_err(|e| self.cannot(what, &e))?;
        let Some(origin) = found.map(|found| found.name) else {
            let why = format!("local origin for clone {} does not exist", begin.name);
            return Err(failure(&begin.name, format!("{what}: {why}")));
        };
        self.say(format!("found clone origin {origin}"))?;
        Ok(Some(origin))
    }

    fn check_overwritten(&self, target: &str, begin: &StreamBegin, is_clone: bool, what: &str) -> Result<(), Failure> {
        let pool = self.host.pool();
        let is_new = begin.from_guid.is_none() || is_clone;
        let Ok(subject) = pool.dsl().subject(target) else { return Ok(()) };
        if !is_new || begin.features.has(StreamFeatures::RESUMING) || subject.is_inconsistent() {
            return Ok(());
        }
        let refused = |why: String| Err(failure(target, format!("{what}: {why}")));
        if !self.order.force {
            return refused(format!("destination '{target}' exists\nmust specify -F to overwrite it"));
        }
        let first = subject.dataset().and_then(|head| pool.dsl().snapshots(head).ok()?.into_iter().next());
        match first {
            Some(first) => {
                let name = first.name;
                refused(format!("destination has snapshots (eg. {name})\nmust destroy them to overwrite it"))
            }
            None => Ok(()),
        }
    }

    fn resume_of(&self, begin: &StreamBegin, list: &NvList) -> Result<Option<(ObjectId, u64)>> {
        if !begin.features.has(StreamFeatures::RESUMING) {
            return Ok(None);
        }
        Ok(Some((ObjectId::new(list.u64("resume_object")?), list.u64("resume_offset")?)))
    }

    fn say(&mut self, line: String) -> Result<(), Failure> {
        if !self.order.verbose {
            return Ok(());
        }
        self.note.tell(StreamNote::Line(line)).map_err(|e| failure("", e.to_string()))
    }

    /// Reads a stream to its end, and does nothing with it.
    fn skip(&self, reader: &mut StreamReader<'_>, what: &str) -> Result<(), Failure> {
        loop {
            let part = reader.record().map_err(|e| self.cannot(what, &e))?;
            if matches!(part.record.fields, format::stream::RecordFields::End { .. }) {
                return Ok(());
            }
        }
    }

    fn receive(&mut self, reader: &mut StreamReader<'_>, new: &NewReceive, what: &str) -> Result<(), Failure> {
        let kind = if new.begin.from_guid.is_none() { "full" } else { "incremental" };
        let name = format!("{}@{}", new.target, new.snapshot);
        let verb = if self.order.dry_run { "would receive" } else { "receiving" };
        if self.order.dry_run || self.order.verbose {
            let line = format!("{verb} {kind} stream of {} into {name}", new.begin.name);
            self.note.tell(StreamNote::Line(line)).map_err(|e| failure("", e.to_string()))?;
        }
        if let Some(property) = received::misplaced(self.order, new).filter(|_| !self.is_recursive()) {
            let why = format!("property '{property}' does not apply to datasets of this type");
            return Err(failure(&new.target, format!("{what}: {why}")));
        }
        if let Some(why) = received::refused(self.order, new, self.is_recursive()) {
            return Err(failure(&new.target, format!("{what}: {why}")));
        }
        if self.order.dry_run {
            return self.skip(reader, what);
        }
        let began_ns = self.host.now_ns();
        let is_new = !exists(self.host, &new.target);
        // one that came in part, and was new then, is mounted as if all of it came now
        let is_partial = |subject: Subject| new.resume.is_some() && subject.is_inconsistent();
        let is_made = is_new || self.host.pool().dsl().subject(&new.target).is_ok_and(is_partial);
        let was_redacted = !is_new && is_redacted(self.host, &new.target).map_err(|e| self.cannot(what, &e))?;
        let Some(receiving) = self.begin(new, what)? else {
            self.say(format!("snap {name} already exists; ignoring"))?;
            self.skip(reader, what)?;
            return self.say_rate(0, began_ns);
        };
        let failed = |receiver: &StreamReceiver<'_>, e: Error| receiver.cannot(what, &e);
        let listed = self.listed(new.to_guid);
        // what a stream that does not come to its end says does not count
        let before = PropertiesBefore::of(self.host, &new.target).map_err(|e| failed(self, e))?;
        let command = self.command_properties(new, &before);
        let notes = command.set(listed.properties.as_ref());
        let applied = receiving.apply_all(reader).map_err(|e| self.interrupted(new, what, &e));
        let turn = self.host.turn();
        let rights = RIGHTS.map(|property| property.name().to_owned());
        let finished = applied.and_then(|()| {
            take_rights(self.host, &new.target).map_err(|e| failed(self, e))?;
            self.host.finish_receive(receiving).map_err(|e| failed(self, e))
        });
        if let Err(failure) = finished {
            if !is_new {
                before.restore(self.host, &new.target, listed.properties.is_some(), command.names());
                super::change::options_changed(self.host, &new.target, rights.into_iter())
                    .map_err(|e| failed(self, e))?;
            }
            return Err(failure);
        }
        self.notes.extend(notes.into_iter().chain(command.reserve()));
        self.changed.insert(new.target.clone());
        self.after(new, &listed);
        let came = listed.properties.iter().flat_map(|list| list.iter().map(|(name, _)| name.to_owned()));
        let changed = came.chain(command.names()).chain(rights).filter(|_| !is_new);
        let failures = super::change::options_changed(self.host, &new.target, changed).map_err(|e| failed(self, e))?;
        self.notes.extend(failures.into_iter().map(|failure| failure.line));
        let is_redacted = new.begin.features.has(StreamFeatures::REDACTED);
        if is_made && !is_redacted {
            self.made.push(new.target.clone());
        }
        if !is_new && is_redacted && !was_redacted {
            // it is not whole any more
            unmount(self.host, &new.target, true).map_or(Ok(()), Err)?;
        }
        // the command may be slow to read
        drop(turn);
        self.say_rate(reader.bytes(), began_ns)
    }

    /// Begins to receive; `None` if the snapshot is there already.
    fn begin(&self, new: &NewReceive, what: &str) -> Result<Option<Receiving>, Failure> {
        if self.order.append_path
            && let Some((above, _)) = new.target.rsplit_once('/')
            && !exists(self.host, above)
        {
            let _turn = self.host.turn();
            let failures = make_with_parents(self.host, above, &new.target).map_err(|e| self.cannot(what, &e))?;
            failures.into_iter().next().map_or(Ok(()), Err)?;
        }
        let error = match self.host.begin_receive(new) {
            Ok(receiving) => return Ok(Some(receiving)),
            Err(error) if error.what() == SNAPSHOT_EXISTS => error,
            Err(error) => return Err(self.cannot(what, &error)),
        };
        let pool = self.host.pool();
        let snapshots = pool.dsl().find(&new.target).and_then(|head| pool.dsl().snapshots(&head));
        let is_there = snapshots.is_ok_and(|all| all.iter().any(|one| one.phys.guid == new.to_guid));
        let name = format!("{}@{}", new.target, new.snapshot);
        let refused = || failure(&name, format!("cannot restore to {name}: {}", error.what()));
        if is_there { Ok(None) } else { Err(refused()) }
    }

    /// Says how much came, and how fast.
    fn say_rate(&mut self, bytes: u64, began_ns: u64) -> Result<(), Failure> {
        let seconds = (self.host.now_ns() - began_ns).max(1) as f64 / 1e9;
        let rate = nicebytes((bytes as f64 / seconds) as u64);
        self.say(format!("received {} stream in {seconds:.2} seconds ({rate}/sec)", nicebytes(bytes)))
    }

    /// Whether a whole tree comes.
    fn is_recursive(&self) -> bool {
        self.package.as_ref().is_some_and(|(list, _)| !list.is_empty() && !list.has("not_recursive"))
    }

    /// What the command line says of the properties of what a stream makes.
    fn command_properties<'a>(&self, new: &'a NewReceive, before: &'a PropertiesBefore) -> CommandProperties<'a>
    where
        'h: 'a,
    {
        let is_top = self.package.as_ref().is_none_or(|(_, top)| new.begin.name.split('@').next() == Some(top));
        let is_later = self.changed.contains(&new.target);
        CommandProperties::new((self.host, self.order), new, (is_top, is_later), before)
    }

    /// The stream did not come to its end.
    fn interrupted(&self, new: &NewReceive, what: &str, error: &Error) -> Failure {
        let mut failed = self.cannot(what, error);
        if new.resumable {
            if matches!(error.kind(), Kind::Checksum | Kind::Io) {
                failed.line = format!("{what}: checksum mismatch or incomplete stream");
            }
            failed.line += ".\nPartially received snapshot is saved.\nA resuming stream can be generated on the sending \
                            system by running:\n    zfs send -t ";
            // the state is on disk when the receive has been given up; the client asks for it then
            failed.line += &format!("$(zfs get -H -o value receive_resume_token {})", new.target);
        }
        failed
    }

    /// What the list of the package says of a snapshot.
    fn listed(&self, guid: Guid) -> ListedSnapshot {
        let fss = self.package.as_ref().and_then(|(list, _)| list.opt_list("fss"));
        let Some(fss) = fss else { return ListedSnapshot::default() };
        for (name, _) in fss.iter() {
            let Some(fs) = fss.opt_list(name) else { continue };
            let Some(snaps) = fs.opt_list("snaps") else { continue };
            let found = snaps.iter().find(|(name, _)| snaps.opt_guid(name) == Some(guid));
            let Some((own, _)) = found else { continue };
            let of = |field: &str| fs.opt_list(field)?.opt_list(own).cloned();
            let properties = fs.opt_list("props").cloned();
            return ListedSnapshot { properties, of_snapshot: of("snapprops"), holds: of("snapholds") };
        }
        ListedSnapshot::default()
    }

    /// Properties and holds of the new snapshot.
    fn after(&mut self, new: &NewReceive, listed: &ListedSnapshot) {
        let name = format!("{}@{}", new.target, new.snapshot);
        if let Some(list) = &listed.of_snapshot {
            self.notes.extend(received::receive_of_snapshot(self.host, &name, list));
        }
        if let Some(holds) = listed.holds.as_ref().filter(|holds| !self.order.skip_holds && !holds.is_empty()) {
            let tags = holds.iter().map(|(tag, _)| (name.clone(), tag.to_owned())).collect();
            let refused = self.host.change_snapshots(&SnapshotChange::Hold(tags));
            for (_, error) in refused.unwrap_or_else(|error| vec![(name.clone(), error)]) {
                self.notes.push(format!("cannot hold snapshot '{name}': {}", error.what()));
            }
        }
    }
}

/// Whether some of a dataset was redacted by its sender.
fn is_redacted(host: &dyn Host, dataset: &str) -> Result<bool> {
    let pool = host.pool();
    let head = pool.dsl().find(dataset)?;
    Ok(pool.dsl().redacted_for(&head)?.is_some())
}

/// In a mount that is there, set-id bits and devices do not count from now on. Errors: those of the mount.
fn take_rights(host: &dyn Host, target: &str) -> Result<()> {
    let Some(options) = host.options_of(target) else { return Ok(()) };
    let wanted = MountOptions { setuid: false, devices: false, ..options.clone() };
    if wanted != options && !host.remount(&wanted)? {
        return Err(Error::new(Kind::Busy, "its mount cannot be told that set-id bits do not count: unmount it first"));
    }
    Ok(())
}
