//! Power cuts while devices that have become larger are taken into use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Env, Error, Kind, Result};
use device::Device;
use format::ids::{Guid, Txg};
use testkit::recording::Recording;
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload};

use super::cuts::each_cut;
use super::{CUTS_QUICK, History, devices, judge, number_from};

/// Bytes of devices before they grow, and then.
const SMALL_BYTES: u64 = 64 << 20;
const LARGE_BYTES: u64 = 160 << 20;
/// Groups before devices grow, between two of them, and after.
const GROUPS_AROUND: usize = 3;

/// A device that shows a part of another until it grows.
#[derive(Debug)]
struct Growing {
    whole: Arc<dyn Device>,
    size: AtomicU64,
}

impl Device for Growing {
    fn path(&self) -> &str {
        self.whole.path()
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn look_for_growth(&self) -> u64 {
        self.whole.size()
    }

    fn grow(&self) {
        self.size.store(self.whole.size(), Ordering::Relaxed);
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        assert!(offset + buf.len() as u64 <= self.size(), "nothing is read behind the end");
        self.whole.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        assert!(offset + buf.len() as u64 <= self.size(), "nothing is written behind the end");
        self.whole.write_at(offset, buf)
    }

    fn flush(&self) -> Result<()> {
        self.whole.flush()
    }
}

/// Makes a pool, changes it, and lets one leaf after the other grow while it is changed further.
fn record(layout: PoolLayout, seed: u64) -> History {
    let blank = (0..layout.devices()).map(|number| SparseDevice::new(format!("disk{number}"), LARGE_BYTES));
    let recording = Recording::new(blank.collect());
    let growing = |whole| Arc::new(Growing { whole, size: AtomicU64::new(SMALL_BYTES) }) as Arc<dyn Device>;
    let disks: Vec<Arc<dyn Device>> = devices(&recording).into_iter().map(growing).collect();
    let mut rng = Rng::new(seed);
    let mut load = Workload::create(&Env::fixed(1000), layout, &disks, rng.number()).unwrap();
    let mut acknowledged = vec![(recording.len(), load.pool.view().uberblock().txg)];
    let mut note = |txg| acknowledged.push((recording.len(), txg));
    note(load.create_fs("live/home", &[("compression", "off")]).unwrap());
    let mut step = |load: &mut Workload, rng: &mut Rng| {
        (0..*rng.pick(&[20, 100, 200])).for_each(|_| load.step().unwrap());
        note(load.sync().unwrap());
    };
    (0..GROUPS_AROUND).for_each(|_| step(&mut load, &mut rng));
    let bytes = |load: &Workload| load.pool.view().top_spaces().unwrap().iter().map(|top| top.size_bytes).sum::<u64>();
    let before = bytes(&load);
    let guids: Vec<Guid> = load.pool.tree().leaves().map(|leaf| leaf.guid()).collect();
    for guid in guids {
        assert!(bytes(&load) < 2 * before, "one side alone is not enough");
        load.note_groups();
        let health = load.pool.online(guid, true, &|_| Err(Error::new(Kind::NotFound, "it is there"))).unwrap();
        assert!(health.is_readable());
        step(&mut load, &mut rng);
    }
    assert!(bytes(&load) > 2 * before, "{} bytes, and {before} before", bytes(&load));
    (0..GROUPS_AROUND).for_each(|_| step(&mut load, &mut rng));
    History { recording: recording.clone(), acknowledged, groups: load.groups }
}

fn cut(layout: PoolLayout) {
    let seed = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let cuts = number_from("CENOTE_CRASH_CUTS").map_or(2 * CUTS_QUICK, |cuts| cuts as usize / 8);
    let history = record(layout, seed);
    each_cut(&history, (seed, cuts), &format!("{layout:?}"), &|cut, rng| {
        cut.judge_by_zdb()?;
        go_on(&cut.disks, &history, cut.txg, rng.number())
    });
}

/// Goes on from a cut, and lets all leaves grow that have not.
fn go_on(disks: &[Arc<dyn Device>], history: &History, txg: Txg, seed: u64) -> std::result::Result<(), String> {
    let text = |error: Error| format!("going on: {error:#?}");
    let mut rng = Rng::new(seed);
    let mut load = Workload::import(&Env::fixed(2000), disks, &history.groups[&txg], rng.number()).map_err(text)?;
    let guids: Vec<Guid> = load.pool.tree().leaves().map(|leaf| leaf.guid()).collect();
    for guid in guids {
        load.note_groups();
        load.pool.online(guid, true, &|_| Err(Error::new(Kind::NotFound, "it is there"))).map_err(text)?;
    }
    (0..=rng.below(50)).try_for_each(|_| load.step()).map_err(text)?;
    let oldest = load.sync().map_err(text)?;
    let bytes: u64 = load.pool.view().top_spaces().map_err(text)?.iter().map(|top| top.size_bytes).sum();
    if bytes < LARGE_BYTES - (32 << 20) {
        return Err(format!("it has only {bytes} bytes"));
    }
    judge(disks, &load.groups, oldest, false).map(drop).map_err(|what| format!("going on: {what}"))
}

#[test]
fn cuts_while_a_mirror_grows() {
    cut(PoolLayout::Mirror);
}

#[test]
fn cuts_while_a_raidz_grows() {
    cut(PoolLayout::Raidz1);
}
