//! Power cuts while a raidz is given one more device.

use std::sync::Arc;

use base::Env;
use device::Device;
use format::feature::RAIDZ_EXPANSION;
use pool::{NewLeaf, Progress};
use testkit::workload::PoolLayout;

use super::cuts::{ChangingPool, each_cut};
use super::{CUTS_QUICK, DEVICE_BYTES, History, judge, number_from};

/// Makes a raidz, changes it, and gives it one more device while it is changed further.
fn record(layout: PoolLayout, seed: u64) -> History {
    let mut changing = ChangingPool::new(&Env::fixed(1000), layout, DEVICE_BYTES, seed);
    let (pool, device) = (changing.load.pool.clone(), changing.spare.clone());
    let asize = || pool.tree().tops().next().and_then(|top| top.top_spec()).map_or(0, |spec| spec.asize);
    changing.load.note_groups();
    pool.enable_features(vec![RAIDZ_EXPANSION.to_owned()]).unwrap();
    let (guid, before) = (pool.tree().tops().next().expect("a raidz").guid(), asize());
    changing.load.note_groups();
    pool.widen(guid, &NewLeaf { path: device.path().into(), is_file: true }, None, device).unwrap();
    changing.change_until_idle();
    let status = pool.view().status().unwrap();
    let done = status.expansion.expect("the pool says so");
    assert_eq!(done.progress, Progress::Finished);
    assert!(done.copied_bytes > 0);
    let scrub = status.scan.expect("it was scrubbed");
    assert_eq!((scrub.progress, scrub.errors, scrub.processed_bytes), (Progress::Finished, 0, 0));
    assert!(asize() > before, "it has grown: {} from {before}", asize());
    changing.into_history()
}

#[test]
fn cuts_while_a_raidz_becomes_wider() {
    let seed = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let cuts = number_from("CENOTE_CRASH_CUTS").map_or(CUTS_QUICK, |cuts| cuts as usize / 16);
    for layout in [PoolLayout::Raidz1, PoolLayout::Raidz2] {
        let history = record(layout, seed);
        each_cut(&history, (seed, cuts), &format!("{layout:?}"), &|cut, rng| {
            // whichever device is gone, all is there
            let gone = rng.below(cut.disks.len() as u64) as usize;
            let is_left = |(number, disk): (usize, &Arc<dyn Device>)| (number != gone).then(|| disk.clone());
            let others: Vec<Arc<dyn Device>> = cut.disks.iter().enumerate().filter_map(is_left).collect();
            judge(&others, &history.groups, cut.oldest, false)
                .map_err(|what| format!("without disk {gone}: {what}"))?;
            cut.go_on_until_idle(&Env::fixed(3000), rng.number())
        });
    }
}
