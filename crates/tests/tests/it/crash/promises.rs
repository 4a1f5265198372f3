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
//! state, not before the last promise for it. Where the cut was within an fsync, a file may be written in part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Env;
use device::Device;
use pool::{LivePool, PoolState};
use testkit::files::{FileModel, Files};
use testkit::model::{Contents, Model};
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::workload::{Layout, Workload, candidate, options};
use zpl::Zpl;

use super::{Cut, FAILURES_MAX, History, blank, check, devices, guarded, judge, number_from, shared};

/// Changes of a workload.
const STEPS: usize = 400;
/// Cuts of each layout if nobody asks for more, and of each workload.
const CUTS_QUICK: usize = 30;
const CUTS: usize = 200;
const FILE_SYSTEMS: [&str; 2] = ["live/a", "live/b"];

/// An fsync of a file of a file system, or with number 0 of everything in it.
struct Promise {
    name: &'static str,
    ino: u64,
    /// How many steps had been made.
    step: usize,
    /// Writes and flushes before it began, and when it returned.
    began: usize,
    ended: usize,
}

/// What was done, and promised.
struct Story {
    history: History,
    /// The states before each step, and the last one.
    states: Vec<Model>,
    /// How many steps a group may hold at most.
    steps: BTreeMap<u64, usize>,
    promises: Vec<Promise>,
}

fn record(layout: Layout, seed: u64) -> Story {
    let recording = Recording::new(blank(layout));
    let mut rng = Rng::new(seed);
    let mut load = Workload::create(&Env::fixed(1000), layout, &devices(&recording), rng.number()).unwrap();
    let made = FILE_SYSTEMS.map(|name| load.create_fs(name, &[("compression", "lz4")]).unwrap());
    let acknowledged = vec![(recording.len(), made[1])];
    let first = load.groups.keys().map(|txg| (*txg, 0)).collect();
    let mut story = Story {
        history: History { recording: recording.clone(), acknowledged, groups: BTreeMap::new() },
        states: vec![load.model.clone()],
        steps: first,
        promises: Vec::new(),
    };
    while story.states.len() <= STEPS {
        load.step().unwrap();
        story.states.push(load.model.clone());
        let step = story.states.len() - 1;
        let syncs = rng.below(40);
        if syncs < 10 {
            story.steps.extend(load.note_groups().map(|txg| (txg, step)));
        }
        match syncs {
            0 => {
                let txg = load.sync().unwrap();
                story.history.acknowledged.push((recording.len(), txg));
            }
            1..10 => {
                let name = *rng.pick(&FILE_SYSTEMS);
                let Contents::Files(files) = &load.model.sets[name] else { panic!("{name} has files") };
                let inos: Vec<u64> = files.nodes.keys().copied().collect();
                let ino = *rng.pick(&inos);
                let began = recording.len();
                load.sync_file(name, ino).unwrap();
                story.promises.push(Promise { name, ino, step, began, ended: recording.len() });
            }
            _ => {}
        }
    }
    story.history.groups = load.groups;
    story
}

impl Story {
    /// What a file system was after that many steps.
    fn files(&self, name: &str, step: usize) -> &Files {
        match &self.states[step].sets[name] {
            Contents::Files(files) => files,
            Contents::Objects(_) => panic!("{name} has files"),
        }
    }

    /// Whether a file system that was replayed on top of a group, after a cut at `at`, may be as it is.
    fn judge_files(&self, name: &str, txg: u64, at: usize, found: &Files) -> Result<(), String> {
        let base = self.steps[&txg];
        let of_it = || self.promises.iter().filter(|promise| promise.name == name);
        let kept = |ino: Option<u64>| {
            let counts = |promise: &&Promise| {
                promise.ended <= at && ino.is_none_or(|ino| promise.ino == ino || promise.ino == 0)
            };
            of_it().filter(counts).map(|promise| promise.step).fold(base, usize::max)
        };
        let begun = of_it().find(|promise| promise.began <= at && at < promise.ended);
        let oldest = kept(None);
        let newest = begun.map_or(oldest, |promise| promise.step.max(oldest));
        let names = |files: &Files| -> BTreeMap<u64, _> {
            let of = |node: &FileModel| (node.kind, node.links, node.entries.clone());
            files.nodes.iter().map(|(&ino, node)| (ino, of(node))).collect()
        };
        let of_found = names(found);
        if !(oldest..=newest).any(|step| names(self.files(name, step)) == of_found) {
            let wanted = names(self.files(name, oldest));
            let differ: BTreeSet<u64> = wanted.keys().chain(of_found.keys()).copied().collect();
            let first = differ.into_iter().find(|ino| wanted.get(ino) != of_found.get(ino));
            let first = first.map(|ino| (ino, of_found.get(&ino), wanted.get(&ino)));
            return Err(format!("names are those of no step {oldest} to {newest}; first, found, wanted: {first:?}"));
        }
        for (&ino, node) in &found.nodes {
            let from = kept(Some(ino));
            let states: Vec<&FileModel> =
                (from..=newest).filter_map(|step| self.files(name, step).nodes.get(&ino)).map(|node| &**node).collect();
            let is_begun = begun.is_some_and(|promise| promise.ino == ino || promise.ino == 0);
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
fn replay(story: &Story, at: usize, left: &[Arc<dyn Device>], txg: u64) -> Result<u64, String> {
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
        story.judge_files(name, txg, at, &files).map_err(|what| {
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

/// Cuts workloads of that layout.
fn cut(layout: Layout) {
    let wanted = number_from("CENOTE_CRASH_CUTS").map(|cuts| cuts as usize / Layout::ALL.len() / 4);
    let mut left = wanted.unwrap_or(CUTS_QUICK).max(1);
    let mut seed = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let (mut failures, mut counts) = (Vec::new(), [0; 3]);
    while left > 0 && failures.len() < FAILURES_MAX {
        let story = record(layout, seed);
        let (mut rng, mut player) = (Rng::new(seed ^ 0xf5), story.history.recording.play());
        for at in story.history.moments(left.min(CUTS), &mut rng) {
            player.advance(at);
            let loss = *rng.pick(&Loss::ALL);
            let devices = shared(player.cut(&mut rng, loss));
            let outcome = guarded(|| {
                let txg = judge(&devices, &story.history.groups, story.history.oldest(at), false)?;
                replay(&story, at, &devices, txg)
            });
            counts[0] += 1;
            match outcome {
                Ok(records) => {
                    counts[1] += usize::from(records > 0);
                    counts[2] += records as usize;
                }
                Err(what) => {
                    failures.push(format!("{:?}: {what}", Cut { layout, seed, at, loss, lost_device: None }));
                    if failures.len() >= FAILURES_MAX {
                        break;
                    }
                }
            }
        }
        (left, seed) = (left.saturating_sub(CUTS), seed + 1);
    }
    let [cuts, replays, records] = counts;
    println!("{layout:?}: {cuts} cuts, {replays} with a log, {records} records replayed");
    assert!(failures.is_empty(), "{} promises were broken:\n{}", failures.len(), failures.join("\n"));
    assert!(wanted.is_some_and(|wanted| wanted < 20) || replays > 0, "no log was ever replayed");
}

#[test]
fn promises_of_a_single_device() {
    cut(Layout::Single);
}

#[test]
fn promises_of_a_mirror() {
    cut(Layout::Mirror);
}

#[test]
fn promises_of_raidz1() {
    cut(Layout::Raidz1);
}

#[test]
fn promises_of_a_pool_with_log_device() {
    cut(Layout::Logged);
}
