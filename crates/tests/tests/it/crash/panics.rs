//! A panic at every place of a group's way to disk, and an error of every call of a device: after each, the pool opens
//! in a state that was promised, and is whole.
//!
//! A place is a call of a device (a read, a write, a flush) or one of the engine's failpoints ([`Env::failpoint`]). A
//! run of a workload passes some thousands of them; each is run again and fails at one place. What a panic leaves is
//! what had been written until then, as the process ends there. The long form is `./x panic`.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, Kind, Mutex, Result};
use format::ids::{ObjectId, Txg};

use super::*;

/// Places at which a run fails, of each kind and layout, if nobody asks for all.
const PLACES_QUICK: u64 = 24;
/// Every so many places, the pool is also changed further.
const PLACES_A_SEQUEL: u64 = 8;
const LAYOUTS: [PoolLayout; 3] = [PoolLayout::Single, PoolLayout::Mirror, PoolLayout::Logged];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Panic,
    Error,
}

/// What ends a run.
struct Blown;

/// Counts the places that are passed, and fails at one.
struct Fuse {
    recording: Arc<Recording>,
    how: How,
    at: u64,
    passed: AtomicU64,
    /// Writes and flushes that had been done when it panicked.
    done: Mutex<Option<usize>>,
}

impl Fuse {
    fn pass(&self) -> bool {
        let is_here = self.passed.fetch_add(1, Ordering::Relaxed) == self.at;
        if is_here && self.how == How::Panic {
            *self.done.lock() = Some(self.recording.len());
            // past the hook, which would print each of them
            resume_unwind(Box::new(Blown));
        }
        is_here
    }
}

/// A device whose calls are places.
struct Fragile {
    inner: Arc<dyn Device>,
    fuse: Arc<Fuse>,
}

impl Fragile {
    fn pass(&self) -> Result<()> {
        match self.fuse.pass() {
            true => Err(Error::new(Kind::Io, "the device reports an error").at_vdev(self.path())),
            false => Ok(()),
        }
    }
}

impl fmt::Debug for Fragile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Device for Fragile {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.pass().and_then(|()| self.inner.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.pass().and_then(|()| self.inner.write_at(offset, buf))
    }

    fn flush(&self) -> Result<()> {
        self.pass().and_then(|()| self.inner.flush())
    }
}

/// A pool that a run begins with.
struct Start {
    layout: PoolLayout,
    seed: u64,
    devices: Vec<SparseDevice>,
    model: Model,
    txg: Txg,
}

impl Start {
    fn new(layout: PoolLayout, seed: u64) -> Start {
        let recording = Recording::new(blank(layout));
        let mut load = Workload::create(&Env::fixed(1000), layout, &devices(&recording), seed).unwrap();
        load.create_fs("live/home", &[("compression", "lz4")]).unwrap();
        (0..8).for_each(|_| load.step().unwrap());
        let txg = load.sync().unwrap();
        let left = recording.cut(recording.len(), &mut Rng::new(seed), Loss::Nothing);
        Start { layout, seed, devices: left, model: load.model.clone(), txg }
    }

    /// Changes the pool until it fails at a place, and looks at what is left. How many places were passed.
    fn run(&self, how: How, at: u64) -> std::result::Result<u64, String> {
        let recording = Recording::new(self.devices.iter().map(SparseDevice::copy).collect());
        let fuse = Fuse { recording: recording.clone(), how, at, passed: AtomicU64::new(0), done: Mutex::default() };
        let fuse = Arc::new(fuse);
        let fragile = |inner| Arc::new(Fragile { inner, fuse: fuse.clone() }) as Arc<dyn Device>;
        let disks: Vec<Arc<dyn Device>> = devices(&recording).into_iter().map(fragile).collect();
        let of_engine = fuse.clone();
        let env = Env::fixed(2000).with_failpoints(move |_| how == How::Panic && of_engine.pass());

        let (mut load, mut acknowledged) = (None, self.txg);
        let ended = catch_unwind(AssertUnwindSafe(|| self.change(&env, &disks, &mut load, &mut acknowledged)));
        match ended {
            Ok(Err(error)) if how == How::Panic => return Err(format!("nothing failed, but {error:#?}")),
            Ok(_) => {}
            Err(payload) if payload.is::<Blown>() => {}
            Err(payload) => resume_unwind(payload),
        }
        // what an import writes changes nothing that the model knows
        let mut groups: BTreeMap<Txg, Model> =
            self.txg.until(self.txg.plus(8)).map(|txg| (txg, self.model.clone())).collect();
        groups.extend(load.map(|load| load.groups).unwrap_or_default());
        let done = fuse.done.lock().unwrap_or(recording.len());
        let left = recording.cut(done, &mut Rng::new(at), Loss::Nothing);
        let copies = shared(left.iter().map(SparseDevice::copy).collect());
        let txg = judge(&copies, &groups, acknowledged, how == How::Error)?;
        if how == How::Panic && at.is_multiple_of(PLACES_A_SEQUEL) {
            go_on(left, None, &groups[&txg], at).map_err(|what| format!("going on: {what}"))?;
        }
        Ok(fuse.passed.load(Ordering::Relaxed))
    }

    /// What is done to the pool. The newest group that was brought to disk is noted in `acknowledged`.
    fn change(
        &self,
        env: &Env,
        disks: &[Arc<dyn Device>],
        load: &mut Option<Workload>,
        acknowledged: &mut Txg,
    ) -> Result<()> {
        let load = load.insert(Workload::import(env, disks, &self.model, self.seed)?);
        for group in 0..3 {
            (0..4).try_for_each(|_| load.step())?;
            // which file systems there are, the history decides
            let files = load.model.sets.iter().find(|(_, contents)| matches!(contents, DatasetContents::Files(_)));
            if let Some(name) = files.map(|(name, _)| name.clone()) {
                load.sync_file(&name, ObjectId::NONE)?;
            }
            (0..2).try_for_each(|_| load.step())?;
            *acknowledged = if group == 1 { load.step_datasets() } else { load.sync() }?;
        }
        Ok(())
    }
}

fn fail_everywhere(how: How) {
    let first = number_from("CENOTE_PANIC_SEED").unwrap_or(1);
    let rounds = number_from("CENOTE_PANIC_ROUNDS");
    let (mut count, mut wrong) = (0, Vec::new());
    for seed in first..first + rounds.unwrap_or(1) {
        for layout in LAYOUTS {
            let start = Start::new(layout, seed);
            let places = start.run(how, u64::MAX).unwrap();
            let step = rounds.map_or(places.div_ceil(PLACES_QUICK), |_| 1);
            // each seed begins elsewhere
            for at in (seed % step..places).step_by(step as usize) {
                count += 1;
                if let Err(what) = guarded(|| start.run(how, at)) {
                    wrong.push(format!("{:?}, seed {}, {how:?} at {at}: {what}", start.layout, start.seed));
                }
                assert!(wrong.len() < FAILURES_MAX, "{}", wrong.join("\n"));
            }
            println!("{layout:?}, seed {seed}: {places} places");
        }
    }
    println!("{how:?}: {count} runs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_panic_anywhere_is_a_power_cut() {
    fail_everywhere(How::Panic);
}

#[test]
fn an_error_of_any_call_loses_nothing() {
    fail_everywhere(How::Error);
}
