//! Beginning and ending receives.
//!
//! ```text
//!   new dataset      tank/new: inconsistent ── stream ──▶ snapshot with the sender's guid
//!   one that is      tank/fs/%recv, a clone of the snapshot that the stream begins from
//!   there              ── stream ──▶ it and the head exchange roots, sizes, dead lists ─▶ snapshot of the head
//! ```
//!
//! What is received is inconsistent until its end, and nothing shows it. With the state of a resumable receive it may be
//! kept, in the form of OpenZFS, which can go on with it.

mod fits;
mod new_receive;

use base::{Error, Kind, Result, ResultExt, tunables};
use dmu::zap::ZapValue;
use format::dsl::DatasetPhys;
use format::feature::{LARGE_BLOCKS, LARGE_MICROZAP, LONGNAME, REDACTED_DATASETS};
use format::ids::{DatasetId, DirId, ObjectId, Txg};
use format::objset::ObjsetType;
use format::stream::{StreamBegin, StreamFeatures};

use new_receive::refused;
pub use new_receive::{NewReceive, StreamRedaction};

use super::bookmark::Bookmarks;
use super::deadlist::Deadlist;
use super::rollback::sizes;
use super::snapshot::Planned;
use super::space::{Delta, UsedColumn};
use super::{Change, SnapshotFate, counts, create, destroy_snapshot, feature, livelist, room, snapshot, space};
use crate::name::{NameKinds, check_new_name, split_snapshot};
use crate::property::DatasetKind;
use crate::props::HAS_RECEIVED;
use crate::resume::RECEIVE_CHILD;
use crate::{Dataset, Dsl};

/// Features of datasets that streams tell of.
const FEATURES: [(StreamFeatures, &str); 3] = [
    (StreamFeatures::LARGE_BLOCKS, LARGE_BLOCKS),
    (StreamFeatures::LONGNAME, LONGNAME),
    (StreamFeatures::LARGE_MICROZAP, LARGE_MICROZAP),
];
const RESUME: [&str; 11] = [
    "com.delphix:resume_fromguid",
    "com.delphix:resume_toguid",
    "com.delphix:resume_toname",
    "com.delphix:resume_object",
    "com.delphix:resume_offset",
    "com.delphix:resume_bytes",
    "com.delphix:resume_largeblockok",
    "com.delphix:resume_embedok",
    "com.delphix:resume_compressok",
    "com.datto:resume_rawok",
    "com.delphix:resume_redact_book_snaps",
];

/// Bytes that one operation may change at most with OpenZFS, whose last one may exceed a refquota: DMU_MAX_ACCESS.
const OPERATION_BYTES_MAX: u64 = 64 << 20;

/// A receive that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunReceive {
    /// The head that takes what comes.
    pub dataset: DatasetId,
    /// Its full name.
    pub name: String,
    /// The head that gets it in the end; the same if it is new.
    pub head: DatasetId,
    /// Its object set is to be made.
    pub is_empty: bool,
}

/// How far a receive has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivePoint {
    /// The object that came last.
    pub object: ObjectId,
    /// What of it.
    pub offset: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// Why a stream of a snapshot that is there by name is refused.
pub const SNAPSHOT_EXISTS: &str = "destination already exists";

/// Begins a receive. Errors, worded as `zfs receive` words them: `NotFound`, `Exists`, `Busy`, `Invalid`, `Permission`
/// if the target has been changed since, those of [`check_new_name`], `Encrypted`, `Unsupported` if the pool lacks a
/// feature of the stream, or one by which it can be resumed.
pub fn begin_receive(change: &Change<'_>, dsl: &Dsl, new: &NewReceive) -> Result<BegunReceive> {
    fits::check_stream(change, new)?;
    if new.resumable {
        fits::check_resumable(change)?;
    }
    crate::name::check_component(&new.snapshot)?;
    let begun = match dsl.find_dir(&new.target) {
        Err(e) if e.kind() == Kind::NotFound => begin_new(change, dsl, new)?,
        dir => {
            let dir = dir?;
            dsl.refuse_encrypted(&dir)?;
            let head = dsl.head(&dir)?;
            let origin = origin_in(change, dsl, new, &head)?;
            note_received(change, dir.id)?;
            let child = create::create_dir(change, Some((dir.id, RECEIVE_CHILD)))?;
            let dataset = create::create_head(change, child, origin)?;
            let name = format!("{}/{RECEIVE_CHILD}", new.target);
            BegunReceive { dataset, name, head: head.id, is_empty: change.dataset(dataset)?.bp.is_hole() }
        }
    };
    let is_folded = new.begin.flags & StreamBegin::FLAG_CASE_INSENSITIVE != 0;
    change.update_dataset(begun.dataset, |phys| {
        phys.flags |= DatasetPhys::FLAG_INCONSISTENT;
        if is_folded {
            phys.flags |= DatasetPhys::FLAG_CASE_INSENSITIVE;
        }
    })?;
    put_redaction(change, begun.dataset, new)?;
    for (feature, guid) in FEATURES {
        if new.begin.features.has(feature) {
            feature::use_in(change, begun.dataset, guid)?;
        }
    }
    if new.resumable {
        put_resume_state(change, begun.dataset, new)?;
    }
    Ok(begun)
}

/// Makes a dataset that was begun redacted as the stream is, whatever it was made from.
fn put_redaction(change: &Change<'_>, id: DatasetId, new: &NewReceive) -> Result<()> {
    if feature::used_by(change, id)?.iter().any(|(guid, _)| guid == REDACTED_DATASETS) {
        change.remove(id.object(), REDACTED_DATASETS)?;
        feature::count(change, REDACTED_DATASETS, -1)?;
    }
    let Some(guids) = new.redacted_for() else { return Ok(()) };
    feature::zapify(change, id.object())?;
    change.set(id.object(), REDACTED_DATASETS, &ZapValue::of_guids(guids))?;
    feature::count(change, REDACTED_DATASETS, 1).map(drop)
}

fn begin_new(change: &Change<'_>, dsl: &Dsl, new: &NewReceive) -> Result<BegunReceive> {
    check_new_name(&new.target, NameKinds::HEADS)?;
    let Some((above, own)) = new.target.rsplit_once('/') else {
        return refused(Kind::NotFound, format!("destination '{}' does not exist", new.target));
    };
    let is_clone = new.begin.flags & StreamBegin::FLAG_CLONE != 0;
    if new.begin.from_guid.is_some() && !is_clone && new.origin.is_none() {
        return refused(Kind::NotFound, format!("destination '{}' does not exist", new.target));
    }
    if is_clone && new.origin.is_none() {
        return refused(Kind::NotFound, "local origin for clone does not exist");
    }
    let parent = dsl.subject(above)?;
    dsl.refuse_encrypted(parent.dir())?;
    if parent.kind() != DatasetKind::FileSystem {
        return refused(Kind::Invalid, format!("parent of '{}' is not a filesystem", new.target));
    }
    let origin = match &new.origin {
        None => create::common_origin(change)?,
        Some(name) => {
            let origin = dsl.find(name)?;
            if !origin.is_snapshot() {
                return refused(Kind::Invalid, "invalid backup stream");
            }
            if new.begin.from_guid.is_some() && origin.phys.guid != new.begin.from_guid {
                return refused(Kind::NotFound, "local origin for clone does not exist");
            }
            if new.begin.from_guid.is_none() && new.begin.flags & StreamBegin::FLAG_FREE_RECORDS == 0 {
                return refused(Kind::Invalid, "the stream does not tell what is free: it cannot be a clone");
            }
            dsl.refuse_encrypted(&dsl.find_dir(origin.file_system())?)?;
            fits::check_from(change, dsl, &origin, new)?;
            origin.id
        }
    };
    let dir = create::create_dir(change, Some((parent.dir().id, own)))?;
    note_received(change, dir)?;
    let dataset = create::create_head(change, dir, origin)?;
    if new.origin.is_some() {
        livelist::create(change, dir)?;
    }
    counts::count_new(change, parent.dir().id, dir)?;
    let is_empty = change.dataset(dataset)?.bp.is_hole();
    Ok(BegunReceive { dataset, name: new.target.clone(), head: dataset, is_empty })
}

/// Notes that a stream has brought a dataset, also where no properties come: what its files say may be anybody's.
pub(super) fn note_received(change: &Change<'_>, dir: DirId) -> Result<()> {
    change.set(change.dir(dir)?.props_zap, HAS_RECEIVED, &ZapValue::one(0))
}

/// The snapshot that a stream into a head that is there begins from.
fn origin_in(change: &Change<'_>, dsl: &Dsl, new: &NewReceive, head: &Dataset) -> Result<DatasetId> {
    let fs = &new.target;
    if new.begin.flags & StreamBegin::FLAG_CLONE != 0 || new.origin.is_some() {
        return refused(Kind::Exists, format!("destination '{fs}' exists\nmust not exist to receive a clone"));
    }
    let receives = change.number(change.dir(head.phys.dir)?.child_zap, RECEIVE_CHILD)?.is_some();
    if receives || head.phys.flags & DatasetPhys::FLAG_INCONSISTENT != 0 {
        let partial = || format!("destination {fs} contains partially-complete state from \"zfs receive -s\".");
        let token = dsl.resume_token(&dsl.find_dir(fs)?, head)?;
        return refused(Kind::Busy, token.map_or_else(|| "dataset is busy".to_owned(), |_| partial()));
    }
    if snapshot::find_named(change, &head.phys, &new.snapshot)?.is_some() {
        return refused(Kind::Exists, SNAPSHOT_EXISTS);
    }
    if new.kind() == ObjsetType::Zvol && change.entries_of(change.dir(head.phys.dir)?.child_zap)? > 0 {
        return refused(Kind::Exists, format!("destination has children: {fs}"));
    }
    Deadlist::open(change, head.phys.deadlist)?.check_parts()?;
    if new.begin.from_guid.is_none() {
        if !new.force {
            return refused(Kind::Exists, format!("destination '{fs}' exists\nmust specify -F to overwrite it"));
        }
        return create::common_origin(change);
    }
    let no_source =
        || refused(Kind::NotFound, format!("most recent snapshot of {fs} does not\nmatch incremental source"));
    let mut at = head.phys.prev_snap;
    let mut txg = Txg::MAX;
    while at.is_some() {
        let snapshot = change.dataset(at)?;
        if snapshot.dir != head.phys.dir || snapshot.prev_snap_txg >= txg {
            return no_source();
        }
        if snapshot.guid == new.begin.from_guid {
            break;
        }
        (at, txg) = (snapshot.prev_snap, snapshot.prev_snap_txg);
    }
    if at.is_none() {
        return no_source();
    }
    let from = Dataset { id: at, name: dsl.name_of(at)?, phys: change.dataset(at)? };
    fits::check_from(change, dsl, &from, new)?;
    if new.force {
        return Ok(at);
    }
    if is_modified_since(dsl, head, &from)? {
        return refused(Kind::Permission, format!("destination {fs} has been modified\nsince most recent snapshot"));
    }
    Ok(head.phys.prev_snap)
}

fn put_resume_state(change: &Change<'_>, id: DatasetId, new: &NewReceive) -> Result<()> {
    feature::zapify(change, id.object())?;
    let begin = &new.begin;
    if begin.from_guid.is_some() {
        change.set(id.object(), "com.delphix:resume_fromguid", &ZapValue::one(begin.from_guid.get()))?;
    }
    change.set(id.object(), "com.delphix:resume_toguid", &ZapValue::one(new.to_guid.get()))?;
    change.set(id.object(), "com.delphix:resume_toname", &ZapValue::of_text(&begin.name))?;
    save_receive_point(change, id, ReceivePoint { object: ObjectId::new(1), ..ReceivePoint::default() })?;
    for (feature, name) in [
        (StreamFeatures::LARGE_BLOCKS, "com.delphix:resume_largeblockok"),
        (StreamFeatures::EMBED_DATA, "com.delphix:resume_embedok"),
        (StreamFeatures::COMPRESSED, "com.delphix:resume_compressok"),
    ] {
        if begin.features.has(feature) {
            change.set(id.object(), name, &ZapValue::one(1))?;
        }
    }
    match &new.redaction.from_snapshots {
        Some(guids) => change.set(id.object(), "com.delphix:resume_redact_book_snaps", &ZapValue::of_guids(guids)),
        None => Ok(()),
    }
}

/// Notes how far a receive has come, if it is one that can be resumed.
pub fn save_receive_point(change: &Change<'_>, id: DatasetId, point: ReceivePoint) -> Result<()> {
    if !feature::is_zapified(change, id.object())? {
        return Ok(());
    }
    change.set(id.object(), "com.delphix:resume_object", &ZapValue::one(point.object.get()))?;
    change.set(id.object(), "com.delphix:resume_offset", &ZapValue::one(point.offset))?;
    change.set(id.object(), "com.delphix:resume_bytes", &ZapValue::one(point.bytes))
}

/// Goes on with a receive that was interrupted. Errors: `Invalid` if the stream is not the rest of what came, or cuts
/// large blocks where they came whole; `Unsupported` as from [`begin_receive`].
pub fn resume_receive(change: &Change<'_>, dsl: &Dsl, new: &NewReceive) -> Result<BegunReceive> {
    fits::check_stream(change, new)?;
    let dir = dsl.find_dir(&new.target)?;
    let head = dsl.head(&dir)?;
    let below = format!("{}/{RECEIVE_CHILD}", new.target);
    let (dataset, name) = match dsl.find_dir(&below) {
        Ok(child) => (dsl.head(&child)?, below),
        Err(_) => (head.clone(), new.target.clone()),
    };
    let mismatch = || refused(Kind::Invalid, "the stream does not go on where the interrupted receive ended");
    let number = |field: &str| {
        Ok::<u64, Error>(dsl.dataset_field(&dataset, field)?.and_then(|value| value.first_u64()).unwrap_or(0))
    };
    let object = ObjectId::new(number("com.delphix:resume_object")?);
    if dataset.phys.flags & DatasetPhys::FLAG_INCONSISTENT == 0
        || number("com.delphix:resume_toguid")? != new.to_guid.get()
        || number("com.delphix:resume_fromguid")? != new.begin.from_guid.get()
        || new.resume != Some((object, number("com.delphix:resume_offset")?))
    {
        return mismatch();
    }
    let is_same = match (&dsl.redacted_for(&dataset)?, new.redacted_for()) {
        (None, None) => true,
        (Some(here), Some(sent)) => here.len() == sent.len() && here.iter().all(|guid| sent.contains(guid)),
        _ => false,
    };
    if !is_same {
        let what = "invalid backup stream: what came before was redacted for other snapshots";
        return refused(Kind::Invalid, what);
    }
    fits::check_large_blocks(change, dataset.id, new)?;
    if dataset.id != head.id && new.begin.from_guid.is_none() && !new.force {
        let what = format!("destination '{}' exists\nmust specify -F to overwrite it", new.target);
        return refused(Kind::Exists, what);
    }
    let is_empty = dataset.phys.bp.is_hole();
    Ok(BegunReceive { dataset: dataset.id, name, head: head.id, is_empty })
}

/// How far an interrupted receive came.
pub fn receive_point(change: &Change<'_>, id: DatasetId) -> Result<ReceivePoint> {
    let number = |name: &str| Ok::<u64, Error>(change.number(id.object(), name)?.unwrap_or(0));
    Ok(ReceivePoint {
        object: ObjectId::new(number("com.delphix:resume_object")?),
        offset: number("com.delphix:resume_offset")?,
        bytes: number("com.delphix:resume_bytes")?,
    })
}

/// Gives a head that was there what was received for it: afterwards the dataset of the receive has what the head had
/// before, and is to be destroyed. With `force`, snapshots behind the one that the stream began from are destroyed,
/// whose objects are returned with those of the datasets behind them. What is open of either is of the old root.
///
/// Errors: `Busy` if one of them is held, `Exists` if it has clones, `Permission` if the head has other snapshots
/// now, `Quota`; then nothing is changed.
pub fn take_over(
    change: &Change<'_>,
    dsl: &Dsl,
    begun: &BegunReceive,
    new: &NewReceive,
    usable_bytes: u64,
) -> Result<Vec<SnapshotFate>> {
    let (received, head) = (change.dataset(begun.dataset)?, change.dataset(begun.head)?);
    // it may have got another name since
    let own = Dataset { id: begun.head, name: dsl.name_of(begun.head)?, phys: head };
    snapshot::plan(change, dsl, &format!("{}@{}", own.name, new.snapshot), usable_bytes)?;
    let (refquota, _) = dsl.own_limits(&dsl.dir(own.phys.dir, &own.name)?)?;
    // an operation may exceed the limit a little, where it was sent from, too
    let slack = OPERATION_BYTES_MAX.saturating_mul(change.env.tunable(tunables::SPA_ASIZE_INFLATION));
    if refquota != 0 && received.referenced_bytes > refquota.saturating_add(slack) {
        return Err(Error::new(Kind::Quota, format!("destination {} space quota exceeded.", own.name)));
    }
    let modified = || {
        let what = format!("destination {} has been modified\nsince most recent snapshot", own.name);
        Error::new(Kind::Permission, what)
    };
    let mut fates = Vec::new();
    if new.force {
        let since = received.prev_snap_txg;
        let later = dsl.snapshots(&own)?.into_iter().filter(|one| one.phys.creation_txg > since);
        let names: Vec<String> = later.map(|one| one.name).collect();
        match destroy_snapshot::destroy_snapshots(change, dsl, &names, false)? {
            Ok(done) => fates = done,
            Err(mut refused) => {
                let (name, error) = refused.swap_remove(0);
                return Err(Error::new(error.kind(), format!("{name}: {}", error.what())));
            }
        }
    } else if is_modified_since(
        dsl,
        &own,
        &Dataset { id: own.phys.prev_snap, name: own.name.clone(), phys: change.dataset(own.phys.prev_snap)? },
    )? {
        return Err(modified());
    }
    let head = change.dataset(begun.head)?;
    if head.prev_snap != received.prev_snap {
        return Err(modified());
    }
    exchange(change, begun, &received, &head).in_dataset(&own.name)?;
    Ok(fates)
}

/// A head and what was received for it exchange what they hold.
fn exchange(change: &Change<'_>, begun: &BegunReceive, received: &DatasetPhys, head: &DatasetPhys) -> Result<()> {
    let (new, old) = (Deadlist::open(change, received.deadlist)?, Deadlist::open(change, head.deadlist)?);
    let origin_txg = match change.dir(head.dir)?.origin {
        DatasetId::NONE => Txg::ZERO,
        origin => change.dataset(origin)?.creation_txg,
    };
    let previous = change.dataset(head.prev_snap)?;
    let unique = new.totals_born(previous.prev_snap_txg, Txg::MAX)?.used;
    let (after, before) = (sizes(received).plus(new.totals()?), sizes(head).plus(old.totals()?));
    let in_snapshots = |list: &Deadlist<'_>| Ok::<i64, Error>(list.totals_born(origin_txg, Txg::MAX)?.used as i64);
    let moved = in_snapshots(&new)? - in_snapshots(&old)?;
    let reserved = room::refreservation_of(change, head.dir)?;
    let unused = reserved.min(head.unique_bytes) as i64 - reserved.min(received.unique_bytes) as i64;
    let delta = Delta::between(before, after);
    space::charge(change, head.dir, UsedColumn::Head, delta)?;
    space::charge(change, received.dir, UsedColumn::Head, delta.negative())?;
    space::move_space(change, head.dir, moved, UsedColumn::Head, UsedColumn::Snapshots)?;
    space::charge(change, head.dir, UsedColumn::Refreservation, Delta::used(unused))?;
    change.update_dataset(head.prev_snap, |phys| phys.unique_bytes = unique)?;
    let put = |id: DatasetId, from: &DatasetPhys| {
        change.update_dataset(id, |phys| {
            phys.bp = from.bp;
            phys.deadlist = from.deadlist;
            phys.referenced_bytes = from.referenced_bytes;
            phys.compressed_bytes = from.compressed_bytes;
            phys.uncompressed_bytes = from.uncompressed_bytes;
            phys.unique_bytes = from.unique_bytes;
        })
    };
    put(begun.head, received)?;
    put(begun.dataset, head)?;
    exchange_features(change, begun.dataset, begun.head)?;
    Bookmarks::open(change, begun.head)?.next_changed(head.prev_snap_txg, &new)?;
    livelist::drop_of(change, head.dir)?;
    livelist::drop_of(change, received.dir)
}

fn exchange_features(change: &Change<'_>, one: DatasetId, other: DatasetId) -> Result<()> {
    let (of_one, of_other) = (feature::used_by(change, one)?, feature::used_by(change, other)?);
    feature::drop_all(change, one)?;
    feature::drop_all(change, other)?;
    for (to, features) in [(one, of_other), (other, of_one)] {
        for (guid, value) in features {
            feature::zapify(change, to.object())?;
            change.set(to.object(), &guid, &value)?;
            feature::count(change, &guid, 1)?;
        }
    }
    Ok(())
}

/// Ends a receive of a new dataset with its snapshot, which is returned. `None` if the head has a snapshot of this
/// group: the next one can have another. Errors: those of taking snapshots.
pub fn end_receive(
    change: &Change<'_>,
    dsl: &Dsl,
    begun: &BegunReceive,
    new: &NewReceive,
    usable_bytes: u64,
) -> Result<Option<DatasetId>> {
    let before = change.dataset(begun.head)?.flags;
    change.update_dataset(begun.head, |phys| phys.flags &= !DatasetPhys::FLAG_INCONSISTENT)?;
    let name = format!("{}@{}", dsl.name_of(begun.head)?, new.snapshot);
    split_snapshot(&name)?;
    match snapshot::plan(change, dsl, &name, usable_bytes) {
        Ok(planned) if planned.head.phys.prev_snap_txg < change.tx.txg() => {
            take_received(change, &planned, new).map(Some)
        }
        planned => {
            change.update_dataset(begun.head, |phys| phys.flags = before)?;
            planned.map(|_: Planned| None)
        }
    }
}

/// Ends a receive in the group of [`take_over`], which has found that nothing is in the way of the snapshot
/// that is taken and returned here. Errors: those of reading; what this group has done is to be given up then.
pub fn end_take_over(change: &Change<'_>, dsl: &Dsl, begun: &BegunReceive, new: &NewReceive) -> Result<DatasetId> {
    let name = dsl.name_of(begun.head)?;
    let head = dsl.dataset(begun.head, &name)?;
    take_received(change, &Planned::new(format!("{name}@{}", new.snapshot), head), new)
}

fn take_received(change: &Change<'_>, planned: &Planned, new: &NewReceive) -> Result<DatasetId> {
    let id = snapshot::take(change, planned, &[])?;
    change.update_dataset(id, |phys| {
        phys.guid = new.to_guid;
        phys.creation_time_s = new.begin.creation_time_s;
    })?;
    let head = planned.head.id;
    if feature::is_zapified(change, head.object())? {
        for name in RESUME {
            change.remove(head.object(), name)?;
        }
    }
    Ok(id)
}

/// Whether a head has changed since a snapshot of it: its log, and what is unmounted, do not count.
fn is_modified_since(dsl: &Dsl, head: &Dataset, snapshot: &Dataset) -> Result<bool> {
    if head.phys.bp.reference_birth() <= snapshot.phys.creation_txg {
        return Ok(false);
    }
    let (now, then) = (dsl.raw_objset(head)?.phys(), dsl.raw_objset(snapshot)?.phys());
    Ok(now.meta_dnode.blkptrs != then.meta_dnode.blkptrs)
}
