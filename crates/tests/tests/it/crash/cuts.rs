//! Histories of pools in which something long is done while they are changed, and cuts all over them, each gone on from.

use std::sync::Arc;

use base::{Env, Error};
use device::Device;
use format::ids::Txg;
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload};

use super::{History, devices, guarded, is_busy, judge, judge_by_zdb, shared};

/// Groups before the work begins, and after it has ended.
const GROUPS_AROUND: usize = 4;
/// Every so many cuts zdb looks at what is left, if it is there.
const CUTS_A_ZDB: usize = 20;

/// A pool that is changed, on devices that are recorded: one more than it has.
pub(super) struct ChangingPool {
    recording: Arc<Recording>,
    rng: Rng,
    pub(super) load: Workload,
    /// The device that the pool has not.
    pub(super) spare: Arc<dyn Device>,
    acknowledged: Vec<(usize, Txg)>,
}

impl ChangingPool {
    /// A new pool, with changes before the work begins.
    pub(super) fn new(env: &Env, layout: PoolLayout, device_bytes: u64, seed: u64) -> ChangingPool {
        let blank = (0..=layout.devices()).map(|number| SparseDevice::new(format!("disk{number}"), device_bytes));
        let recording = Recording::new(blank.collect());
        let mut disks = devices(&recording);
        let spare = disks.pop().expect("there is one more");
        let mut rng = Rng::new(seed);
        let load = Workload::create(env, layout, &disks, rng.number()).unwrap();
        let acknowledged = vec![(recording.len(), load.pool.view().uberblock().txg)];
        let mut changing = ChangingPool { recording, rng, load, spare, acknowledged };
        let txg = changing.load.create_fs("live/home", &[("compression", "off")]).unwrap();
        changing.acknowledged.push((changing.recording.len(), txg));
        (0..GROUPS_AROUND).for_each(|_| changing.step());
        changing
    }

    fn step(&mut self) {
        (0..*self.rng.pick(&[1, 20, 100, 200])).for_each(|_| self.load.step().unwrap());
        let txg = if self.rng.below(4) == 0 { self.load.step_datasets() } else { self.load.sync() };
        self.acknowledged.push((self.recording.len(), txg.unwrap()));
    }

    /// Changes it until nothing is under way.
    pub(super) fn change_until_idle(&mut self) {
        for _ in 0..1000 {
            if !is_busy(&self.load.pool) {
                return;
            }
            self.step();
            self.load.pool.diagnose();
        }
        panic!("it does not come to its end");
    }

    /// Changes it a little further, and gives what was done.
    pub(super) fn into_history(mut self) -> History {
        (0..GROUPS_AROUND).for_each(|_| self.step());
        History { recording: self.recording, acknowledged: self.acknowledged, groups: self.load.groups }
    }
}

/// What a cut has left of a pool, which is whole, and in the state of a group.
pub(super) struct PowerCut<'a> {
    history: &'a History,
    left: Vec<SparseDevice>,
    pub(super) disks: Vec<Arc<dyn Device>>,
    pub(super) oldest: Txg,
    pub(super) txg: Txg,
    is_for_zdb: bool,
}

impl PowerCut<'_> {
    /// Lets zdb look, if it is its turn.
    pub(super) fn judge_by_zdb(&self) -> Result<(), String> {
        if self.is_for_zdb { judge_by_zdb(&self.left) } else { Ok(()) }
    }

    /// Goes on until nothing is under way, and a little further: no scrub has anything to mend.
    pub(super) fn go_on_until_idle(&self, env: &Env, seed: u64) -> Result<(), String> {
        let text = |error: Error| format!("going on: {error:#?}");
        let mut rng = Rng::new(seed);
        let model = &self.history.groups[&self.txg];
        let mut load = Workload::import(env, &self.disks, model, rng.number()).map_err(text)?;
        for rounds in 0..=500 {
            (0..=rng.below(8)).try_for_each(|_| load.step()).map_err(text)?;
            let oldest = load.sync().map_err(text)?;
            load.pool.diagnose();
            if rounds > 2 && !is_busy(&load.pool) {
                let scan = load.pool.view().status().map_err(text)?.scan;
                return match scan.is_none_or(|scan| scan.processed_bytes == 0) {
                    true => judge(&self.disks, &load.groups, oldest, false).map(drop),
                    false => Err("a scrub had to mend what was copied".into()),
                };
            }
        }
        Err(format!("it does not end: {:?}", load.pool.view().status()))
    }
}

/// Cuts a history at so many moments, and at its end. What is left has to be a state that was not passed yet; `look` sees
/// to the rest.
pub(super) fn each_cut(
    history: &History,
    (seed, cuts): (u64, usize),
    told: &str,
    look: &dyn Fn(&PowerCut<'_>, &mut Rng) -> Result<(), String>,
) {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let (mut player, end) = (history.recording.play(), history.recording.len());
    for (number, at) in history.moments(cuts, &mut rng).into_iter().chain([end]).enumerate() {
        player.advance(at);
        let loss = *rng.pick(&Loss::ALL);
        let left = player.cut(&mut rng, loss);
        let outcome = guarded(|| {
            let (disks, oldest) = (shared(left.iter().map(SparseDevice::copy).collect()), history.oldest(at));
            let txg = judge(&disks, &history.groups, oldest, false)?;
            let is_for_zdb = number % CUTS_A_ZDB == 0 || at == end;
            look(&PowerCut { history, left, disks, oldest, txg, is_for_zdb }, &mut rng)
        });
        outcome.unwrap_or_else(|what| panic!("{told}, seed {seed}, cut at {at}, losing {loss:?}: {what}"));
    }
}
