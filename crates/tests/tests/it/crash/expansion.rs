//! Power cuts while a raidz is given one more device.

use std::sync::Arc;

use base::{Env, Error};
use device::Device;
use format::feature::RAIDZ_EXPANSION;
use format::ids::Txg;
use pool::{NewLeaf, Progress};
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload};

use super::{CUTS_QUICK, DEVICE_BYTES, History, devices, guarded, is_busy, judge, number_from, shared};

/// Groups before the expansion begins, and after it has ended.
const GROUPS_AROUND: usize = 4;

/// Makes a raidz, changes it, and gives it one more device while it is changed further.
fn record(layout: PoolLayout, seed: u64) -> (History, Arc<Recording>) {
    let width = layout.devices();
    let blank = (0..=width).map(|number| SparseDevice::new(format!("disk{number}"), DEVICE_BYTES));
    let recording = Recording::new(blank.collect());
    let disks = devices(&recording);
    let mut rng = Rng::new(seed);
    let mut load = Workload::create(&Env::fixed(1000), layout, &disks[..width], rng.number()).unwrap();
    load.note_groups();
    load.pool.enable_features(vec![RAIDZ_EXPANSION.to_owned()]).unwrap();
    let mut acknowledged = vec![(recording.len(), load.pool.view().uberblock().txg)];
    let mut note = |txg| acknowledged.push((recording.len(), txg));
    note(load.create_fs("live/home", &[("compression", "off")]).unwrap());
    let mut step = |load: &mut Workload, rng: &mut Rng| {
        (0..*rng.pick(&[1, 20, 100, 200])).for_each(|_| load.step().unwrap());
        let txg = if rng.below(4) == 0 { load.step_datasets() } else { load.sync() };
        note(txg.unwrap());
    };
    (0..GROUPS_AROUND).for_each(|_| step(&mut load, &mut rng));
    let guid = load.pool.tree().tops().next().expect("a raidz").guid();
    let before = load.pool.tree().tops().next().and_then(|top| top.top_spec()).map_or(0, |spec| spec.asize);
    let new = NewLeaf { path: format!("disk{width}"), is_file: true };
    load.note_groups();
    load.pool.widen(guid, &new, None, disks[width].clone()).unwrap();
    let mut rounds = 0;
    while is_busy(&load.pool) {
        step(&mut load, &mut rng);
        load.pool.diagnose();
        rounds += 1;
        assert!(rounds < 1000, "it comes to its end");
    }
    let view = load.pool.view();
    let status = view.status().unwrap();
    let done = status.expansion.expect("the pool says so");
    assert_eq!(done.progress, Progress::Finished);
    assert!(done.copied_bytes > 0);
    let scrub = status.scan.expect("it was scrubbed");
    assert_eq!((scrub.progress, scrub.errors, scrub.processed_bytes), (Progress::Finished, 0, 0));
    let after = load.pool.tree().tops().next().and_then(|top| top.top_spec()).map_or(0, |spec| spec.asize);
    assert!(after > before, "it has grown: {after} from {before}");
    (0..GROUPS_AROUND).for_each(|_| step(&mut load, &mut rng));
    (History { recording: recording.clone(), acknowledged, groups: load.groups }, recording)
}

/// Goes on from a cut until nothing is under way, and a little further.
fn go_on(disks: &[Arc<dyn Device>], history: &History, txg: Txg, seed: u64) -> Result<(), String> {
    let text = |error: Error| format!("going on: {error:#?}");
    let mut rng = Rng::new(seed);
    let mut load = Workload::import(&Env::fixed(3000), disks, &history.groups[&txg], rng.number()).map_err(text)?;
    for rounds in 0.. {
        (0..=rng.below(8)).try_for_each(|_| load.step()).map_err(text)?;
        let oldest = load.sync().map_err(text)?;
        load.pool.diagnose();
        if rounds > 2 && !is_busy(&load.pool) {
            let sound = load.pool.view().status().map_err(text)?.scan.is_none_or(|scan| scan.processed_bytes == 0);
            return match sound {
                true => judge(disks, &load.groups, oldest, false).map(drop),
                false => Err("a scrub had to mend what was moved".into()),
            };
        }
        if rounds > 500 {
            break;
        }
    }
    Err(format!("it does not end: {:?}", load.pool.view().status()))
}

fn cut_expansion(layout: PoolLayout, seed: u64, cuts: usize) {
    let (history, recording) = record(layout, seed);
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut player = recording.play();
    for at in history.moments(cuts, &mut rng).into_iter().chain([recording.len()]) {
        player.advance(at);
        let loss = *rng.pick(&Loss::ALL);
        let left = player.cut(&mut rng, loss);
        let outcome = guarded(|| {
            let copies = shared(left.iter().map(SparseDevice::copy).collect());
            let txg = judge(&copies, &history.groups, history.oldest(at), false)?;
            // whichever device is gone, all is there
            let gone = rng.below(copies.len() as u64) as usize;
            let others: Vec<Arc<dyn Device>> =
                copies.iter().enumerate().filter(|(number, _)| *number != gone).map(|(_, disk)| disk.clone()).collect();
            judge(&others, &history.groups, history.oldest(at), false)
                .map_err(|what| format!("without disk {gone}: {what}"))?;
            go_on(&copies, &history, txg, rng.number())
        });
        outcome.unwrap_or_else(|what| panic!("{layout:?}, seed {seed}, cut at {at}, losing {loss:?}: {what}"));
    }
}

#[test]
fn cuts_while_a_raidz_becomes_wider() {
    let seed = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let cuts = number_from("CENOTE_CRASH_CUTS").map_or(CUTS_QUICK, |cuts| cuts as usize / 16);
    for layout in [PoolLayout::Raidz1, PoolLayout::Raidz2] {
        cut_expansion(layout, seed, cuts);
    }
}
