//! Power cuts of pools whose files are synced: what an fsync promised is there when the log has been replayed, in
//! order, and nothing is there that never was.
//!
//! ```text
//!   step ─ step ─ fsync ─ step ─ step ─ fsync ─ group        each step leaves a state of each file system
//!                   │                     │ cut here
//!                   └ promised            └ begun: some of it may be there
//! ```
//!
//! After replay, the names are those of one state, not before the last promise; and each file is as it was in one
//! state, not before the last promise for it. Where the cut was within an fsync, a file may be written in part; and
//! so where the group ended within a step, as some steps are two transactions (a copy empties its file first).
//!
//! 20,000 cuts: `CENOTE_CRASH_CUTS=20000 cargo test --release -p tests --test it crash::promises -- --nocapture`.

mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use base::Env;
use device::Device;
use format::ids::{ObjectId, Txg};
use pool::{LivePool, Pool, PoolState};
use testkit::files::{FileModel, Files};
use testkit::model::DatasetContents;
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::workload::{PoolLayout, Workload, candidate, options};
use zpl::Zpl;

use super::{Cut, FAILURES_MAX, History, blank, check, devices, guarded, judge, lost_device, number_from, shared};

/// Changes of a workload.
const STEPS: usize = 400;
/// Cuts of each layout if nobody asks for more, and of each workload.
const CUTS_QUICK: usize = 30;
const CUTS: usize = 200;
/// Every so many cuts, what is there without the log is looked at, too.
const CUTS_A_JUDGEMENT: usize = 8;
/// Layouts with one thread, and those with several: they share the cuts that are wanted.
const KINDS: usize = 8;
const FILE_SYSTEMS: [&str; 3] = ["live/a", "live/b", "live/c"];
/// The one with `logbias=throughput`.
const THROUGHPUT: &str = "live/b";

/// An fsync of a file, or with number 0 of everything in a file system.
struct Promise {
    ino: ObjectId,
    /// How many steps had been made.
    step: usize,
    /// Writes and flushes before it began, and when it returned.
    began: usize,
    ended: usize,
}

/// What was done to a file system, and promised of it.
struct Told {
    /// The states before each step, and the last one.
    states: Vec<Files>,
    /// Of each step the groups that were open before it, and after it.
    txgs: Vec<(Txg, Txg)>,
    promises: Vec<Promise>,
}

/// What was done.
struct Story {
    history: History,
    told: BTreeMap<&'static str, Told>,
}

/// Makes the pool and its file systems: in one of them all writes are led to.
fn begin(env: &Env, layout: PoolLayout, seed: u64) -> (Workload, History) {
    let recording = Recording::new(blank(layout));
    let mut load = Workload::create(env, layout, &devices(&recording), seed).unwrap();
    let made = FILE_SYSTEMS.map(|name| {
        let bias = if name == THROUGHPUT { "throughput" } else { "latency" };
        load.create_fs(name, &[("compression", "lz4"), ("logbias", bias)]).unwrap()
    });
    let acknowledged = made.into_iter().map(|txg| (recording.len(), txg)).skip(FILE_SYSTEMS.len() - 1).collect();
    (load, History { recording, acknowledged, groups: BTreeMap::new() })
}

fn record(layout: PoolLayout, seed: u64) -> Story {
    let mut rng = Rng::new(seed);
    let (mut load, mut history) = begin(&Env::fixed(1000), layout, rng.number());
    let mut told: BTreeMap<&str, Told> = FILE_SYSTEMS.map(|name| (name, Told::new(&load, name))).into();
    for step in 1..=STEPS {
        let before = load.pool.txgs().open_txg();
        load.step().unwrap();
        told.iter_mut().for_each(|(name, told)| told.step(&load, name, before));
        match rng.below(40) {
            0 => {
                let txg = load.sync().unwrap();
                history.acknowledged.push((history.recording.len(), txg));
            }
            1..10 => {
                let name = *rng.pick(&FILE_SYSTEMS);
                told.get_mut(name).unwrap().promise(&mut load, name, step, &history.recording, &mut rng);
            }
            _ => {}
        }
    }
    history.groups = load.groups;
    Story { history, told }
}

/// The files of a file system as the model has them.
fn files_of<'a>(load: &'a Workload, name: &str) -> &'a Files {
    match &load.model.sets[name] {
        DatasetContents::Files(files) => files,
        DatasetContents::Objects(_) => panic!("{name} has files"),
    }
}

impl Told {
    fn new(load: &Workload, name: &str) -> Told {
        Told { states: vec![files_of(load, name).clone()], txgs: Vec::new(), promises: Vec::new() }
    }

    /// Notes that a step was made, since when group `before` was open.
    fn step(&mut self, load: &Workload, name: &str, before: Txg) {
        self.states.push(files_of(load, name).clone());
        self.txgs.push((before, load.pool.txgs().open_txg()));
    }

    /// Syncs some file after `step`.
    fn promise(&mut self, load: &mut Workload, name: &str, step: usize, recording: &Recording, rng: &mut Rng) {
        let inos: Vec<ObjectId> = files_of(load, name).nodes.keys().copied().collect();
        let ino = *rng.pick(&inos);
        let began = recording.len();
        load.sync_file(name, ino).unwrap();
        self.promises.push(Promise { ino, step, began, ended: recording.len() });
    }

    /// How many steps group `txg` holds at least, and at most.
    fn steps(&self, txg: Txg) -> (usize, usize) {
        (self.txgs.partition_point(|(_, after)| *after <= txg), self.txgs.partition_point(|(before, _)| *before <= txg))
    }

    /// Whether a file system that was replayed on top of a group, after a cut at `at`, may be as it is.
    fn judge(&self, txg: Txg, at: usize, found: &Files) -> Result<(), String> {
        let (base, most) = self.steps(txg);
        let kept = |ino: Option<ObjectId>| {
            let counts = |promise: &&Promise| {
                promise.ended <= at && ino.is_none_or(|ino| promise.ino == ino || promise.ino.is_none())
            };
            self.promises.iter().filter(counts).map(|promise| promise.step).fold(base, usize::max)
        };
        let begun = self.promises.iter().find(|promise| promise.began <= at && at < promise.ended);
        let oldest = kept(None);
        let newest = begun.map_or(oldest, |promise| promise.step.max(oldest)).max(most);
        let names = |files: &Files| -> BTreeMap<ObjectId, _> {
            let of = |node: &FileModel| (node.kind, node.links, node.entries.clone());
            files.nodes.iter().map(|(&ino, node)| (ino, of(node))).collect()
        };
        let of_found = names(found);
        if !(oldest..=newest).any(|step| names(&self.states[step]) == of_found) {
            let wanted = names(&self.states[oldest]);
            let differ: BTreeSet<ObjectId> = wanted.keys().chain(of_found.keys()).copied().collect();
            let first = differ.into_iter().find(|ino| wanted.get(ino) != of_found.get(ino));
            let first = first.map(|ino| (ino, of_found.get(&ino), wanted.get(&ino)));
            return Err(format!("names are those of no step {oldest} to {newest}; first, found, wanted: {first:?}"));
        }
        for (&ino, node) in &found.nodes {
            let from = kept(Some(ino));
            let states: Vec<&FileModel> = self.states[from..=newest]
                .iter()
                .filter_map(|files| files.nodes.get(&ino))
                .map(|node| &**node)
                .collect();
            let is_begun = begun.is_some_and(|promise| promise.ino == ino || promise.ino.is_none()) || base < most;
            let may_be = states.iter().any(|state| is_same(state, node)) || is_begun && is_mixture(&states, node);
            if !may_be {
                let sizes: Vec<(usize, u32)> = states.iter().map(|state| (state.bytes.len(), state.mode)).collect();
                let what = (node.bytes.len(), node.mode, node.xattrs.len());
                return Err(format!("file {ino} is as in no step {from} to {newest}: {what:?}, not {sizes:?}"));
            }
        }
        Ok(())
    }
}

/// Whether a file has the same contents and attributes.
fn is_same(one: &FileModel, other: &FileModel) -> bool {
    one.mode == other.mode && one.bytes == other.bytes && one.xattrs == other.xattrs
}

/// Whether each part of a file is as it was in one of these states.
fn is_mixture(states: &[&FileModel], found: &FileModel) -> bool {
    let byte_of = |state: &FileModel, at: usize| state.bytes.get(at).copied().unwrap_or(0);
    states.iter().any(|state| state.mode == found.mode)
        && states.iter().any(|state| state.xattrs == found.xattrs)
        && states.iter().any(|state| state.bytes.len() >= found.bytes.len())
        && found.bytes.iter().enumerate().all(|(at, byte)| states.iter().any(|state| byte_of(state, at) == *byte))
}

/// Opens what a cut has left, replays the logs, and says what is wrong. How many records were replayed.
fn replay(story: &Story, at: usize, left: &[Arc<dyn Device>], txg: Txg) -> Result<u64, String> {
    let text = |error: base::Error| format!("{error:#?}");
    let env = Env::fixed(2500);
    let found = candidate(left).map_err(text)?;
    let pool = LivePool::import(&env, &found, &options(), (7, "here".into())).map_err(text)?;
    let (mut records, mut all) = (0, Vec::new());
    for name in FILE_SYSTEMS {
        let id = pool.view().dsl().find(name).map_err(text)?.id;
        let (head, log) = (pool.head(id).map_err(text)?, pool.log(id).map_err(text)?);
        let zpl = Zpl::open_writable(head, pool.txgs().clone(), env.clone(), Default::default(), Some(log));
        let zpl = zpl.map_err(text)?;
        let replayed = zpl.replay_log().map_err(text)?.ok_or("no log")?;
        records += replayed.records;
        zpl.clean_unlinked().map_err(text)?;
        let files = Files::read(&zpl).map_err(text)?;
        story.told[name].judge(txg, at, &files).map_err(|what| {
            format!("{name}, {} records replayed on group {txg}: {what}; {:?}", replayed.records, replayed.damage)
        })?;
        all.push((name, files));
    }
    pool.close(PoolState::Exported).map_err(text)?;
    check(&pool.view(), false)?;
    for (name, files) in all {
        let dataset = pool.view().dsl().find(name).map_err(text)?;
        let set = pool.view().dsl().objset(&dataset, dmu::Mode::Plain).map_err(text)?;
        if let Some(what) = files.compare(&Zpl::open(set).map_err(text)?).map_err(text)? {
            return Err(format!("{name} after export: {what}"));
        }
    }
    Ok(records)
}

/// Counts of cuts, of those that left a log, and of records.
#[derive(Default)]
struct Counts {
    cuts: usize,
    replays: usize,
    records: u64,
    failures: Vec<String>,
}

/// Cuts a story, and looks what is left. Whether enough is wrong.
fn cut_story(layout: PoolLayout, seed: u64, story: &Story, cuts: usize, counts: &mut Counts) -> bool {
    let (mut rng, mut player) = (Rng::new(seed ^ 0xf5), story.history.recording.play());
    for at in story.history.moments(cuts, &mut rng) {
        player.advance(at);
        let (loss, lost_device) = (*rng.pick(&Loss::ALL), lost_device(layout, &mut rng));
        let mut left = player.cut(&mut rng, loss);
        lost_device.into_iter().for_each(|lost| drop(left.remove(lost)));
        let devices = shared(left);
        let history = &story.history;
        let oldest = history.oldest(at);
        let outcome = guarded(|| {
            // what a cut leaves without looking at logs is judged elsewhere, too
            let txg = match !history.groups.is_empty() && counts.cuts.is_multiple_of(CUTS_A_JUDGEMENT) {
                true => judge(&devices, &history.groups, oldest, false)?,
                false => newest(&devices, oldest)?,
            };
            replay(story, at, &devices, txg)
        });
        counts.cuts += 1;
        match outcome {
            Ok(records) => {
                counts.replays += usize::from(records > 0);
                counts.records += records;
            }
            Err(what) => {
                counts.failures.push(format!("{:?}: {what}", Cut { layout, seed, at, loss, lost_device }));
                if counts.failures.len() >= FAILURES_MAX {
                    return true;
                }
            }
        }
    }
    false
}

/// The group that a pool is opened with.
fn newest(devices: &[Arc<dyn Device>], oldest: Txg) -> Result<Txg, String> {
    let open = || Pool::open(&Env::fixed(2000), &candidate(devices)?, &options());
    let txg = open().map_err(|error: base::Error| format!("{error:#?}"))?.uberblock().txg;
    if txg < oldest { Err(format!("group {txg}, although {oldest} was acknowledged")) } else { Ok(txg) }
}

/// Cuts as many of the stories that `record` tells of that layout as are wanted of one of `kinds`.
fn cut(layout: PoolLayout, kinds: usize, record: fn(PoolLayout, u64) -> Story) {
    let wanted = number_from("CENOTE_CRASH_CUTS").map(|cuts| (cuts as usize).div_ceil(kinds));
    let mut left = wanted.unwrap_or(CUTS_QUICK).max(1);
    let mut seed = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let (mut counts, began) = (Counts::default(), Instant::now());
    while left > 0 && !cut_story(layout, seed, &record(layout, seed), left.min(CUTS), &mut counts) {
        (left, seed) = (left.saturating_sub(CUTS), seed + 1);
    }
    let Counts { cuts, replays, records, failures } = counts;
    let ms = began.elapsed().as_millis() as f64 / cuts.max(1) as f64;
    println!("{layout:?}: {cuts} cuts at {ms:.1} ms, {replays} with a log, {records} records replayed");
    assert!(failures.is_empty(), "{} promises were broken:\n{}", failures.len(), failures.join("\n"));
    assert!(wanted.is_some_and(|wanted| wanted < 20) || replays > 0, "no log was ever replayed");
}

#[test]
fn promises_of_a_single_device() {
    cut(PoolLayout::Single, KINDS, record);
}

#[test]
fn promises_of_a_mirror() {
    cut(PoolLayout::Mirror, KINDS, record);
}

#[test]
fn promises_of_raidz1() {
    cut(PoolLayout::Raidz1, KINDS, record);
}

#[test]
fn promises_of_a_pool_with_log_device() {
    cut(PoolLayout::Logged, KINDS, record);
}

#[test]
fn promises_of_a_pool_with_a_mirror_of_log_devices() {
    cut(PoolLayout::LogMirror, KINDS, record);
}
