//! Power cuts: pools are changed while every write and flush is recorded; then the power is cut at any moment, and
//! what is left must be a whole pool in a state that it had, not older than what had been acknowledged.
//!
//! ```text
//!   changes at random ─▶ pool ─▶ recording: w w w f w f w w ...
//!        └▶ model, as of each group              │ cut here, lose some of what was not flushed, perhaps a device
//!                                                ▼
//!                      open ─▶ group G, acknowledged or later ─▶ equals the model of G ─▶ full check
//!                                                └▶ now and then: goes on from there, and is cut again
//! ```
//!
//! All is a function of the seed. More cuts: `CENOTE_CRASH_CUTS=10000 CENOTE_CRASH_SEED=7 cargo test --release -p
//! tests --test it crash -- --nocapture`; the seed is that of the first workload, the cuts are shared by all layouts.

mod bad_places;
mod cuts;
mod expansion;
mod faults;
mod full;
mod growth;
mod panics;
mod promises;
mod rebuild;
mod receives;
mod removal;
mod suspended;
mod threads;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use base::Env;
use device::{Device, FileDevice, OpenMode};
use format::feature::FAST_DEDUP;
use format::ids::Txg;
use pool::check::{CheckOptions, Observer, Verify};
use pool::{OpenOptions, Pool, Rewind};
use testkit::model::{DatasetContents, Model};
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::snapshots;
use testkit::sparse::SparseDevice;
use testkit::streams;
use testkit::workload::{PoolLayout, Workload, candidate, options};

pub(crate) use rebuild::is_busy;

/// More than twice what a workload ever keeps: half of so small a pool is left free.
const DEVICE_BYTES: u64 = 80 << 20;
/// Groups that a workload writes, if it is cut a few times, or often.
const GROUPS: [usize; 2] = [12, 24];
/// Cuts of each workload.
const CUTS: usize = 250;
/// Cuts of each layout if nobody asks for more.
const CUTS_QUICK: usize = 20;
/// Every so many cuts, the pool is also changed further.
const CUTS_A_SEQUEL: usize = 20;
/// Every so many cuts, older states are looked at, too.
const CUTS_A_REWIND: usize = 10;
/// Every so many cuts, zdb looks at what is left, if it is there.
const CUTS_A_ZDB: usize = 40;
/// Failures that are told before a test gives up.
const FAILURES_MAX: usize = 5;

/// What was done to a pool.
struct History {
    recording: Arc<Recording>,
    /// Number of writes and flushes, and the group that was acknowledged then.
    acknowledged: Vec<(usize, Txg)>,
    /// What the pool held as of each group.
    groups: BTreeMap<Txg, Model>,
}

/// Devices of a recording, as a pool wants them.
fn devices(recording: &Arc<Recording>) -> Vec<Arc<dyn Device>> {
    recording.devices().into_iter().map(|device| device as Arc<dyn Device>).collect()
}

pub(super) fn blank(layout: PoolLayout) -> Vec<SparseDevice> {
    (0..layout.devices()).map(|number| SparseDevice::new(format!("disk{number}"), DEVICE_BYTES)).collect()
}

/// Makes a pool and changes it.
fn record(layout: PoolLayout, seed: u64, groups: usize) -> History {
    let recording = Recording::new(blank(layout));
    let mut rng = Rng::new(seed);
    let mut load = Workload::create(&Env::fixed(1000), layout, &devices(&recording), rng.number()).unwrap();
    let has_snapshots = rng.below(2) == 0;
    let mut acknowledged = vec![(recording.len(), load.pool.view().uberblock().txg)];
    let mut note = |txg| acknowledged.push((recording.len(), txg));
    note(load.create_dataset("live/zstd", &[("compression", "zstd"), ("checksum", "sha256")]).unwrap());
    note(load.create_fs("live/home", &[("compression", "lz4")]).unwrap());
    note(load.create_fs("live/twins", &[("dedup", "on"), ("recordsize", "4k")]).unwrap());
    note(load.create_dataset("live/verified", &[("dedup", "edonr,verify")]).unwrap());
    note(load.create_dataset("live/off", &[("compression", "off"), ("copies", "2")]).unwrap());
    for _ in 0..groups {
        let steps = *rng.pick(&[0, 1, 5, 20, 100, 200]);
        (0..steps).for_each(|_| load.step().unwrap());
        let choice = rng.below(4);
        note(
            match choice {
                0 if has_snapshots => snapshots::step(&mut load, &mut rng),
                0 => load.step_datasets(),
                _ => load.sync(),
            }
            .unwrap(),
        );
    }
    History { recording, acknowledged, groups: load.groups }
}

/// Counts what is wrong, and keeps the first of it.
#[derive(Default)]
struct Wrong {
    first: Option<String>,
}

impl Observer for Wrong {
    fn damaged(&mut self, damaged: &pool::check::Damaged) {
        let what = || format!("{:?}: {:#?}", damaged.bookmark, damaged.copies);
        self.first.get_or_insert_with(what);
    }

    fn lost(&mut self, error: &base::Error) {
        self.first.get_or_insert_with(|| format!("{error:#?}"));
    }

    fn unallocated(&mut self, bookmark: base::Bookmark, missing: &pool::check::Leak) {
        self.first.get_or_insert_with(|| format!("{bookmark:?} has {missing:?}, which is free or another's"));
    }
}

/// Walks through the whole pool. `damage` may be there if a device has failed to write: in copies, never in all.
pub(crate) fn check(pool: &Pool, may_have_damage: bool) -> Result<(), String> {
    let mut wrong = Wrong::default();
    let report =
        pool.check(CheckOptions { verify: Verify::All, space: true }, &mut wrong).map_err(|e| format!("{e:#?}"))?;
    let is_whole = report.leaks.is_empty()
        && report.unallocated_blocks == 0
        && report.lost_parts == 0
        && report.lost_blocks.is_empty()
        && (report.damaged_blocks == 0 || may_have_damage)
        && report.found_bytes == report.allocated_bytes;
    if is_whole {
        return Ok(());
    }
    let counts = (report.unallocated_blocks, report.lost_parts, report.lost_blocks, report.damaged_blocks);
    let bytes = (report.found_bytes, report.allocated_bytes);
    Err(format!("check: leaks {:?}, counts {counts:?}, bytes {bytes:?}, first {:?}", report.leaks, wrong.first))
}

/// Opens a pool, and says what is wrong with it if it is not in the state of a group from `oldest` on.
fn judge(devices: &[Arc<dyn Device>], groups: &BTreeMap<Txg, Model>, oldest: Txg, damage: bool) -> Result<Txg, String> {
    let txg = judge_state(devices, groups, Rewind::Newest, damage)?;
    match txg < oldest {
        true => Err(format!("group {txg}, although {oldest} was acknowledged")),
        false => Ok(txg),
    }
}

/// Opens a state of a pool, which must be that of its group, and whole. Returns the group.
fn judge_state(
    devices: &[Arc<dyn Device>],
    groups: &BTreeMap<Txg, Model>,
    rewind: Rewind,
    damage: bool,
) -> Result<Txg, String> {
    let text = |error: base::Error| format!("{rewind:?} cannot be opened: {error:#?}");
    let how = OpenOptions { rewind, ..options() };
    let pool = Pool::open(&Env::fixed(2000), &candidate(devices).map_err(text)?, &how).map_err(text)?;
    let txg = pool.uberblock().txg;
    let model = groups.get(&txg).ok_or_else(|| format!("group {txg}, which nobody wrote"))?;
    if let Some(what) = model.difference(&pool) {
        return Err(format!("group {txg}: {what}"));
    }
    check(&pool, damage).map_err(|what| format!("group {txg}: {what}"))?;
    Ok(txg)
}

/// The two groups before `txg` can be gone back to, as what they held has not been used again.
fn judge_rewind(devices: &[Arc<dyn Device>], groups: &BTreeMap<Txg, Model>, txg: Txg) -> Result<(), String> {
    let first = *groups.keys().next().expect("the pool was made in one");
    for before in txg.minus(2).until(txg).filter(|before| *before >= first) {
        judge_state(devices, groups, Rewind::AtMost(before), false).map_err(|what| format!("going back: {what}"))?;
    }
    Ok(())
}

fn shared(devices: Vec<SparseDevice>) -> Vec<Arc<dyn Device>> {
    devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>).collect()
}

impl History {
    /// The newest group that had been acknowledged at that moment.
    fn oldest(&self, at: usize) -> Txg {
        self.acknowledged.iter().filter(|(event, _)| *event <= at).map(|(_, txg)| *txg).max().unwrap_or(Txg::ZERO)
    }

    /// Moments to cut at, in order: around flushes, and any.
    fn moments(&self, count: usize, rng: &mut Rng) -> Vec<usize> {
        let (first, end) = (self.acknowledged[0].0, self.recording.len() + 1);
        let flushes = self.recording.flushes();
        let moment = |number: usize| match number % 2 {
            0 => (*rng.pick(&flushes) + rng.below(2) as usize).max(first),
            _ => first + rng.below((end - first) as u64) as usize,
        };
        let mut moments: Vec<usize> = (0..count).map(moment).collect();
        moments.sort_unstable();
        moments
    }
}

/// What a cut was, for messages.
#[derive(Debug)]
#[allow(dead_code, reason = "it is printed")]
struct Cut {
    layout: PoolLayout,
    seed: u64,
    at: usize,
    loss: Loss,
    lost_device: Option<usize>,
}

/// Counts of cuts.
#[derive(Default)]
struct Tally {
    by_loss: BTreeMap<Loss, usize>,
    without_device: usize,
    sequels: usize,
    /// Receives that were gone on with.
    resumed: usize,
    failures: Vec<String>,
}

/// The number of a device that is lost, now and then, where the layout bears that.
fn lost_device(layout: PoolLayout, rng: &mut Rng) -> Option<usize> {
    let may_go = layout.expendable();
    (!may_go.is_empty() && rng.below(3) == 0).then(|| may_go.start + rng.below(may_go.len() as u64) as usize)
}

/// Records a workload and cuts it at many moments.
fn cut_workload(layout: PoolLayout, seed: u64, cuts: usize, tally: &mut Tally) {
    let history = record(layout, seed, GROUPS[usize::from(cuts > CUTS_QUICK)]);
    cut_history(&history, (layout, seed), (cuts, CUTS_A_SEQUEL), tally);
}

/// Cuts a history at many moments; every so many of these go on from there.
fn cut_history(
    history: &History,
    (layout, seed): (PoolLayout, u64),
    (cuts, a_sequel): (usize, usize),
    tally: &mut Tally,
) {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut player = history.recording.play();
    for (number, at) in history.moments(cuts, &mut rng).into_iter().enumerate() {
        player.advance(at);
        let loss = *rng.pick(&Loss::ALL);
        let lost_device = lost_device(layout, &mut rng);
        let mut left = player.cut(&mut rng, loss);
        *tally.by_loss.entry(loss).or_default() += 1;
        tally.without_device += usize::from(lost_device.is_some());
        let lost = lost_device.map(|lost| left.remove(lost));
        let sequel = (number % a_sequel == 0).then(|| rng.number());
        tally.sequels += usize::from(sequel.is_some());
        let outcome = guarded(|| {
            let copies = left.iter().map(SparseDevice::copy).collect();
            let copies = shared(copies);
            let txg = judge(&copies, &history.groups, history.oldest(at), false)?;
            if number % CUTS_A_REWIND == 0 {
                judge_rewind(&copies, &history.groups, txg)?;
            }
            if number % CUTS_A_ZDB == 0 {
                judge_by_zdb(&left)?;
            }
            match sequel {
                Some(seed) => {
                    go_on(left, lost, &history.groups[&txg], seed).map_err(|what| format!("going on: {what}"))
                }
                None => Ok(0),
            }
        });
        tally.resumed += outcome.as_ref().unwrap_or(&0);
        if let Err(what) = outcome {
            tally.failures.push(format!("{:?}: {what}", Cut { layout, seed, at, loss, lost_device }));
            if tally.failures.len() >= FAILURES_MAX {
                return;
            }
        }
    }
}

/// What `f` says is wrong; a panic is wrong, too.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        Err(format!("panic: {:?}", text.or_else(|| payload.downcast_ref::<&str>().map(|&s| s.to_owned()))))
    })
}

/// What zdb says of the pool, if it is there. That of OpenZFS 2.1 knows nothing of cloned blocks and of flat dedup
/// tables, and is not asked about pools with such.
pub(crate) fn judge_by_zdb(devices: &[SparseDevice]) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    for device in devices {
        device.save(&dir.path().join(device.path())).map_err(|e| e.to_string())?;
    }
    let open = |disk: &SparseDevice| -> base::Result<Arc<dyn Device>> {
        let path = dir.path().join(disk.path());
        Ok(Arc::new(FileDevice::open(path.to_str().expect("a name of ours"), OpenMode::ReadOnly)?))
    };
    let files: base::Result<Vec<Arc<dyn Device>>> = devices.iter().map(open).collect();
    let view = files.and_then(|files| Pool::open(&Env::fixed(0), &candidate(&files)?, &options()));
    let view = view.map_err(|e| e.to_string())?;
    let is_new = view.clones().map_err(|e| e.to_string())?.saved_bytes > 0 || view.features().uses(FAST_DEDUP) > 0;
    if is_new && !std::env::var("JUDGE").is_ok_and(|judge| judge == "2.4") {
        return Ok(());
    }
    let output = Command::new("zdb").args(["-e", "-p"]).arg(dir.path()).args(["-bcc", "live"]).output();
    let Ok(output) = output else { return Ok(()) };
    let text = [output.stdout, output.stderr].map(|raw| String::from_utf8_lossy(&raw).into_owned()).concat();
    match output.status.success() && text.contains("No leaks") {
        true => Ok(()),
        false => Err(format!("zdb: {text}")),
    }
}

/// Changes a pool that lived through a cut further, and cuts that, too. Without the device that was lost; in the
/// end that comes back, as it was. Returns how many receives were gone on with.
fn go_on(base: Vec<SparseDevice>, lost: Option<SparseDevice>, model: &Model, seed: u64) -> Result<usize, String> {
    let text = |error: base::Error| format!("{error:#?}");
    let recording = Recording::new(base);
    let (mut rng, disks) = (Rng::new(seed), devices(&recording));
    let mut load = Workload::import(&Env::fixed(3000), &disks, model, rng.number()).map_err(text)?;
    let before = *load.groups.keys().next().expect("the group that was opened");
    let mut acknowledged = vec![(0, before), (recording.len(), load.pool.view().uberblock().txg)];
    let resumed = streams::resume_all(&mut load).map_err(text)?;
    acknowledged.push((recording.len(), load.pool.view().uberblock().txg));
    for _ in 0..4 {
        (0..=rng.below(20)).try_for_each(|_| load.step()).map_err(text)?;
        let txg = if rng.below(4) == 0 { load.step_datasets() } else { load.sync() }.map_err(text)?;
        acknowledged.push((recording.len(), txg));
    }
    let history = History { recording: recording.clone(), acknowledged, groups: load.groups };
    judge(&disks, &history.groups, history.oldest(recording.len()), false)?;
    let mut player = recording.play();
    for at in history.moments(3, &mut rng) {
        player.advance(at);
        let loss = *rng.pick(&Loss::ALL);
        judge(&shared(player.cut(&mut rng, loss)), &history.groups, history.oldest(at), false)
            .map_err(|what| format!("second cut at {at}, losing {loss:?}: {what}"))?;
    }
    let Some(lost) = lost else { return Ok(resumed) };
    let all: Vec<Arc<dyn Device>> = shared(vec![lost]).into_iter().chain(disks).collect();
    judge(&all, &history.groups, history.oldest(recording.len()), true)
        .map(|_| resumed)
        .map_err(|what| format!("with the lost device again: {what}"))
}

/// A pool is made where another one was: it is there as a whole, or cannot be opened.
fn cut_while_made(layout: PoolLayout, seed: u64) -> Result<(), String> {
    let old = Env::fixed(500);
    // other numbers than those that the new pool gets
    (0..1000).for_each(|_| _ = old.random());
    let before = Recording::new(blank(layout));
    let disks = devices(&before);
    let mut load = Workload::create(&old, layout, &disks, seed).map_err(|e| e.to_string())?;
    (0..20).try_for_each(|_| load.step()).and_then(|()| load.sync()).map_err(|e| e.to_string())?;
    let mut player = before.play();
    player.advance(before.len());
    let mut rng = Rng::new(seed);
    let recording = Recording::new(player.cut(&mut rng, Loss::Nothing));
    let load = Workload::create(&Env::fixed(1000), layout, &devices(&recording), seed).map_err(|e| e.to_string())?;
    let guid = load.pool.view().guid();
    let mut player = recording.play();
    for at in 0..=recording.len() {
        player.advance(at);
        let loss = *rng.pick(&Loss::ALL);
        let left = shared(player.cut(&mut rng, loss));
        let judged = guarded(|| {
            let new = candidate(&left).ok().filter(|candidate| candidate.guid == guid);
            let is_open = new.is_some_and(|new| Pool::open(&Env::fixed(2000), &new, &options()).is_ok());
            match is_open || at == recording.len() {
                true => judge(&left, &load.groups, Txg::ZERO, false).map(drop),
                false => Ok(()),
            }
        });
        judged.map_err(|what| format!("{layout:?}, seed {seed}, cut at {at}, losing {loss:?}: {what}"))?;
    }
    Ok(())
}

#[test]
fn cuts_while_pools_are_made() {
    let first = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let rounds = number_from("CENOTE_CRASH_CUTS").map_or(1, |cuts| cuts.div_ceil(1000));
    for seed in first..first + rounds {
        PoolLayout::ALL.into_iter().try_for_each(|layout| cut_while_made(layout, seed)).unwrap();
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// As many cuts of pools of that layout as are wanted.
fn cut(layout: PoolLayout) {
    let wanted = number_from("CENOTE_CRASH_CUTS").map(|cuts| cuts as usize / PoolLayout::ALL.len());
    let mut left = wanted.unwrap_or(CUTS_QUICK).max(1);
    let mut seed = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let (mut tally, began) = (Tally::default(), Instant::now());
    while left > 0 && tally.failures.len() < FAILURES_MAX {
        let cuts = left.min(CUTS);
        cut_workload(layout, seed, cuts, &mut tally);
        (left, seed) = (left - cuts, seed + 1);
    }
    let cuts: usize = tally.by_loss.values().sum();
    let ms = began.elapsed().as_millis() as f64 / cuts.max(1) as f64;
    let Tally { by_loss, without_device, sequels, resumed: _, failures } = tally;
    println!(
        "{layout:?}: {cuts} cuts at {ms:.1} ms {by_loss:?}, {without_device} without a device, {sequels} gone on from"
    );
    assert!(failures.is_empty(), "{} cuts went wrong:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn cuts_of_a_single_device() {
    cut(PoolLayout::Single);
}

#[test]
fn cuts_of_a_mirror() {
    cut(PoolLayout::Mirror);
}

#[test]
fn cuts_of_raidz1() {
    cut(PoolLayout::Raidz1);
}

#[test]
fn cuts_of_an_uneven_stripe() {
    cut(PoolLayout::Uneven);
}

#[test]
fn cuts_of_raidz2() {
    cut(PoolLayout::Raidz2);
}

#[test]
fn cuts_of_a_pool_with_log_device() {
    cut(PoolLayout::Logged);
}

#[test]
fn cuts_of_a_pool_with_a_mirror_of_log_devices() {
    cut(PoolLayout::LogMirror);
}

#[test]
fn cuts_of_a_pool_with_special_device() {
    cut(PoolLayout::Special);
}

#[test]
fn cuts_of_a_pool_with_fast_dedup() {
    cut(PoolLayout::FastDedup);
}
