//! Streams between the datasets of one pool: sent, received, cut short and resumed, beside the model of a [`Workload`].

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{Error, Result};
use dsl::Dataset;
use dsl::receive::StreamReader;
use dsl::resume::ResumeState;
use dsl::send::{SendFlags, SendFrom, SendRedaction, SendRequest};
use dsl::write::{NewReceive, StreamRedaction};
use format::ids::{Guid, ObjectId, Txg};
use format::nvlist::NvList;
use format::stream::StreamFeatures;
use pool::{LivePool, Receiving};

use crate::model::DatasetContents;
use crate::rng::Rng;
use crate::workload::{NAME, Workload};

/// Datasets of a pool.
const DATASETS_MAX: usize = 8;
/// Snapshots of a pool.
const SNAPSHOTS_MAX: usize = 24;
/// Groups that a receive may take.
const GROUPS_MAX: u64 = 200;

/// How a stream is received.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiveFlags {
    /// Gives up what is newer than what the stream begins from.
    pub force: bool,
    /// What came of a stream that ends early is kept.
    pub resumable: bool,
}

/// The stream of a snapshot, since another one. Errors: those of reading.
pub fn send(pool: &LivePool, snapshot: &str, since: Option<&str>, flags: SendFlags) -> Result<Vec<u8>> {
    let view = pool.view();
    let snapshot = view.dsl().find(snapshot)?;
    let since = since.map(|name| view.dsl().find(name)).transpose()?;
    send_part(pool, &snapshot, since.as_ref(), flags, None)
}

fn send_part(
    pool: &LivePool,
    snapshot: &Dataset,
    since: Option<&Dataset>,
    flags: SendFlags,
    resume: Option<(ObjectId, u64)>,
) -> Result<Vec<u8>> {
    let from = since.map(|one| SendFrom {
        guid: one.phys.guid,
        txg: one.phys.creation_txg,
        is_clone: one.phys.dir != snapshot.phys.dir,
    });
    let mut stream = Vec::new();
    let redaction = SendRedaction::default();
    let request = SendRequest { snapshot, from, flags, resume, saved: None, redaction };
    pool.view().dsl().send(&request, &mut stream, &AtomicU64::new(0))?;
    Ok(stream)
}

fn redaction_of(list: &[u8]) -> Result<StreamRedaction> {
    Ok(if list.is_empty() { StreamRedaction::default() } else { StreamRedaction::of(&NvList::unpack(list)?) })
}

/// A receive of a stream up to its last record, and whether that came. Errors: those of beginning it.
pub fn begin(pool: &LivePool, target: &str, stream: &[u8], flags: ReceiveFlags) -> Result<(Receiving, Result<()>)> {
    let mut from = stream;
    let mut reader = StreamReader::new(&mut from);
    let (begin, to_guid, list) = reader.begin()?.ok_or_else(|| Error::corrupt("no stream"))?;
    let resume = match begin.features.has(StreamFeatures::RESUMING) {
        true => {
            let list = NvList::unpack(&list)?;
            Some((ObjectId::new(list.u64("resume_object")?), list.u64("resume_offset")?))
        }
        false => None,
    };
    let (fs, own) = target.split_once('@').ok_or_else(|| Error::corrupt("no snapshot is named"))?;
    let new = NewReceive {
        target: fs.to_owned(),
        snapshot: own.to_owned(),
        to_guid,
        force: flags.force,
        resumable: flags.resumable,
        origin: None,
        resume,
        redaction: redaction_of(&list)?,
        begin,
    };
    let receiving = pool.begin_receive(&new)?;
    let came = receiving.apply_all(&mut reader);
    Ok((receiving, came))
}

/// Receives a stream as the snapshot of that name. Errors: why it cannot be, or does not come to its end.
pub fn receive(pool: &LivePool, target: &str, stream: &[u8], flags: ReceiveFlags) -> Result<()> {
    let (receiving, came) = begin(pool, target, stream, flags)?;
    came?;
    receiving.finish()
}

/// What came of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// There was nothing to receive.
    Nothing,
    /// The stream ended early.
    Part,
    /// All of it.
    Whole,
}

/// A stream that a snapshot's contents go by.
struct Transfer {
    /// The snapshot whose contents it has.
    source: String,
    stream: Vec<u8>,
    /// The snapshot that it becomes.
    target: String,
    flags: ReceiveFlags,
}

/// Receives a snapshot at random, as a new dataset or into one that is there, or a part of it. Returns the group.
pub fn step(load: &mut Workload, rng: &mut Rng) -> Result<(Txg, Came)> {
    let snapshots: Vec<String> = load.model.sets.iter().filter(is_of_files).map(|(name, _)| name.clone()).collect();
    let transfer = match snapshots.is_empty() {
        true => None,
        false if rng.below(2) == 0 => whole(load, rng, &snapshots)?,
        false => since_another(load, rng, &snapshots)?,
    };
    let Some(mut transfer) = transfer else { return Ok((load.sync()?, Came::Nothing)) };
    let len = transfer.stream.len() as u64;
    transfer.flags.resumable = rng.below(2) == 0;
    if rng.below(3) == 0 {
        transfer.stream.truncate(rng.below(len) as usize);
    }
    make(load, &transfer)
}

fn is_of_files((name, contents): &(&String, &DatasetContents)) -> bool {
    name.contains('@') && matches!(contents, DatasetContents::Files(_))
}

fn whole(load: &Workload, rng: &mut Rng, snapshots: &[String]) -> Result<Option<Transfer>> {
    let target = format!("{NAME}/{}", rng.below(1000));
    let is_full = load.names().len() >= DATASETS_MAX || load.model.sets.len() >= SNAPSHOTS_MAX + DATASETS_MAX;
    if is_full || load.has_dataset(&target) {
        return Ok(None);
    }
    let source = rng.pick(snapshots).clone();
    let flags = SendFlags { embedded: rng.below(2) == 0, compressed: rng.below(2) == 0, ..SendFlags::default() };
    let stream = send(&load.pool, &source, None, flags)?;
    let target = format!("{target}@{}", rng.below(1000));
    Ok(Some(Transfer { source, stream, target, flags: ReceiveFlags::default() }))
}

/// A stream from one snapshot to a later one of its dataset, for a dataset that has the first: perhaps the same one.
fn since_another(load: &Workload, rng: &mut Rng, snapshots: &[String]) -> Result<Option<Transfer>> {
    let view = load.pool.view();
    let dsl = view.dsl();
    let source = rng.pick(snapshots).clone();
    let to = dsl.find(&source)?;
    let fs = dsl.find(to.file_system())?;
    let before: Vec<Dataset> =
        dsl.snapshots(&fs)?.into_iter().filter(|one| one.phys.creation_txg < to.phys.creation_txg).collect();
    if before.is_empty() {
        return Ok(None);
    }
    let since = rng.pick(&before);
    let mut targets = Vec::new();
    for name in load.names() {
        let all = dsl.snapshots(&dsl.find(&name)?)?;
        let Some(at) = all.iter().position(|one| one.phys.guid == since.phys.guid) else { continue };
        if all[at + 1..].iter().all(|one| one.phys.num_children < 2) && dsl.find_dir(&format!("{name}/%recv")).is_err()
        {
            targets.push(name);
        }
    }
    if targets.is_empty() {
        return Ok(None);
    }
    let stream = send(&load.pool, &source, Some(&since.name), SendFlags::default())?;
    let target = format!("{}@{}", rng.pick(&targets), 1000 + rng.below(1000));
    if load.model.sets.contains_key(&target) {
        return Ok(None);
    }
    Ok(Some(Transfer { source, stream, target, flags: ReceiveFlags { force: true, ..ReceiveFlags::default() } }))
}

/// What the model says when a transfer has come: the head and its snapshot are what was sent, and what was newer than
/// `since` is gone.
fn arrive(load: &mut Workload, target: &str, contents: DatasetContents) -> Result<()> {
    let view = load.pool.view();
    let dsl = view.dsl();
    let fs = target.split('@').next().unwrap_or_default();
    if let Ok(head) = dsl.find(fs)
        && let Ok(received) = dsl.find(&format!("{fs}/%recv"))
    {
        let since = received.phys.prev_snap_txg;
        for newer in dsl.snapshots(&head)?.into_iter().filter(|one| one.phys.creation_txg > since) {
            load.model.sets.remove(&newer.name);
        }
    }
    load.model.sets.insert(fs.to_owned(), contents.clone());
    load.model.sets.insert(target.to_owned(), contents);
    Ok(())
}

/// Makes a transfer. Until its last group, the pool holds what it held.
fn make(load: &mut Workload, transfer: &Transfer) -> Result<(Txg, Came)> {
    let fs = transfer.target.split('@').next().unwrap_or_default().to_owned();
    if load.model.sets.contains_key(&fs) {
        load.close(&fs)?;
    }
    let pool = load.pool.clone();
    expect_groups(load);
    let (receiving, came) = match begin(&pool, &transfer.target, &transfer.stream, transfer.flags) {
        Ok(begun) => begun,
        // it ends in the first record
        Err(_) if transfer.stream.len() < 312 => return Ok((forget_later(load), Came::Nothing)),
        Err(error) => return Err(error),
    };
    if came.is_err() {
        drop(receiving);
        return Ok((forget_later(load), Came::Part));
    }
    let contents = load.model.sets[&transfer.source].clone();
    Ok((finish(load, receiving, &transfer.target, contents)?, Came::Whole))
}

fn finish(load: &mut Workload, receiving: Receiving, target: &str, contents: DatasetContents) -> Result<Txg> {
    let pool = load.pool.clone();
    arrive(load, target, contents)?;
    // all that came goes to disk with the open group, and with the next one it is what it becomes
    let last = pool.txgs().open_txg().next();
    load.groups.extend(last.until(last.plus(GROUPS_MAX)).map(|txg| (txg, load.model.clone())));
    receiving.finish()?;
    Ok(forget_later(load))
}

/// Notes that the groups of a receive hold what the pool holds now.
fn expect_groups(load: &mut Workload) {
    let open = load.pool.txgs().open_txg();
    load.groups.extend(open.until(open.plus(GROUPS_MAX)).map(|txg| (txg, load.model.clone())));
}

/// What was noted of groups that have not come.
fn forget_later(load: &mut Workload) -> Txg {
    let txg = load.pool.view().uberblock().txg;
    load.groups.retain(|noted, _| *noted <= txg);
    txg
}

/// Goes on with each receive that was interrupted, as far as what is sent is there still; destroys what is left of others.
/// Returns how many came to their end. Errors: what keeps one from that.
pub fn resume_all(load: &mut Workload) -> Result<usize> {
    let pool = load.pool.clone();
    expect_groups(load);
    pool.destroy_leftovers()?;
    let mut resumed = 0;
    for (name, token) in interrupted(&pool)? {
        expect_groups(load);
        let state = ResumeState::parse(&token)?;
        let Some((to, since)) = sources(&pool, &state)? else {
            pool.abort_receive(&name)?;
            continue;
        };
        if load.model.sets.contains_key(&name) {
            load.close(&name)?;
        }
        let flags = SendFlags { large_blocks: false, embedded: state.embedded, compressed: state.compressed };
        let stream = send_part(&pool, &to, since.as_ref(), flags, Some((state.object, state.offset)))?;
        let target = format!("{name}@{}", 3000 + resumed);
        let (receiving, came) = begin(&pool, &target, &stream, ReceiveFlags { force: true, resumable: true })
            .map_err(|e| e.in_dataset(&name))?;
        came?;
        let contents = load.model.sets[&to.name].clone();
        finish(load, receiving, &target, contents)?;
        resumed += 1;
    }
    forget_later(load);
    Ok(resumed)
}

/// The datasets into which a receive was interrupted that can be resumed, with its token.
fn interrupted(pool: &Arc<LivePool>) -> Result<Vec<(String, String)>> {
    let view = pool.view();
    let dsl = view.dsl();
    let mut found = Vec::new();
    for dir in dsl.walk()?.into_iter().filter(|dir| !dir.name.contains('%')) {
        let head = dsl.head(&dir)?;
        if let Some(token) = dsl.resume_token(&dir, &head)? {
            found.push((dir.name, token));
        }
    }
    Ok(found)
}

/// What is sent, and since when; `None` if either is gone.
fn sources(pool: &Arc<LivePool>, state: &ResumeState) -> Result<Option<(Dataset, Option<Dataset>)>> {
    let view = pool.view();
    let dsl = view.dsl();
    // of a snapshot that was received, there are several with its guid
    for dir in dsl.walk()? {
        let all = dsl.snapshots(&dsl.head(&dir)?)?;
        let of = |guid: Guid| all.iter().find(|one| one.phys.guid == guid).cloned();
        match (of(state.to_guid), state.from_guid) {
            (Some(to), Guid::NONE) => return Ok(Some((to, None))),
            (Some(to), guid) => {
                if let Some(since) = of(guid) {
                    return Ok(Some((to, Some(since))));
                }
            }
            (None, _) => {}
        }
    }
    Ok(None)
}
