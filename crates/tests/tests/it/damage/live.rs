//! Pools in use on disks that rot, fail, lie, crawl, are pulled, come back and are replaced: as many at a time as the
//! layout bears. What was written is right all the time, and in the end, without as many disks, too.
//!
//! ```text
//!   round:  some disks are worn out ─▶ changes, groups, a crash now and then ─▶ they work again, or others take their
//!           places ─▶ resilver, scrub ─▶ all is healthy, nothing is lost, equal to the model
//!   end:    export ─▶ zdb ─▶ without as many disks as may be lost: equal to the model
//! ```
//!
//! `CENOTE_DAMAGE_SECONDS` sets for how long pools are worn out, `CENOTE_DAMAGE_SEED` where to start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Env, Error, Kind};
use device::Device;
use format::ids::Guid;
use pool::{AttachAs, NewLeaf, OfflineReason, Pool, PoolState, Progress, ScanFunction};
use testkit::rng::Rng;
use testkit::rough::{RoughDevice, Wear};
use testkit::snapshots;
use testkit::sparse::SparseDevice;
use testkit::workload::{CHECKSUMS, NAME, PoolLayout, Workload, candidate, options};
use vdev::{Aux, VdevKind, VdevState};

use crate::crash;

const LAYOUTS: [PoolLayout; 6] = [
    PoolLayout::Mirror,
    PoolLayout::Raidz1,
    PoolLayout::Mirror3,
    PoolLayout::Raidz2,
    PoolLayout::Draid,
    PoolLayout::Raidz3,
];
/// Checksums by which damage is noticed.
const NOTICING: &[&str] = CHECKSUMS.split_at(3).0;
const DEVICE_BYTES: u64 = 128 << 20;
/// Rounds of a pool.
const ROUNDS: u64 = 6;
/// Groups after which all that was begun has ended.
const GROUPS_MAX: usize = 20_000;

/// What becomes of a disk in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    /// It is worn out, and works again at the end of the round.
    Worn(Wear),
    /// Up to so many of its sectors rot.
    Rot(u64),
    /// It is taken offline and brought back.
    Offline,
}

impl Trouble {
    /// Whether nothing may be left of a label.
    fn may_hit_labels(self) -> bool {
        matches!(self, Trouble::Rot(_) | Trouble::Worn(Wear::Failing | Wear::Lying))
    }
}

const TROUBLES: [Trouble; 7] = [
    Trouble::Worn(Wear::Pulled),
    Trouble::Worn(Wear::Failing),
    Trouble::Worn(Wear::Lying),
    Trouble::Worn(Wear::Crawling),
    Trouble::Rot(4),
    Trouble::Rot(2000),
    Trouble::Offline,
];

/// What was done to pools.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    pools: u64,
    rounds: u64,
    troubles: [u64; TROUBLES.len()],
    replaced: u64,
    crashes: u64,
    /// Bytes that resilvers and scrubs wrote.
    repaired_bytes: u64,
}

/// A pool, and its disks.
struct Bench {
    layout: PoolLayout,
    env: Env,
    rng: Rng,
    disks: Vec<Arc<RoughDevice>>,
    /// Disks that were made so far.
    made: u64,
    load: Workload,
    counts: Counts,
}

fn text(error: Error) -> String {
    format!("{error:#?}")
}

fn shared(disks: &[Arc<RoughDevice>]) -> Vec<Arc<dyn Device>> {
    disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect()
}

fn disk(number: u64) -> Arc<RoughDevice> {
    Arc::new(RoughDevice::new(format!("disk{number}"), DEVICE_BYTES, number))
}

impl Bench {
    fn new(layout: PoolLayout, seed: u64) -> Result<Bench, String> {
        let (env, mut rng, made) = (Env::fixed(1000), Rng::new(seed), layout.devices() as u64);
        let disks: Vec<_> = (0..made).map(disk).collect();
        let mut load = Workload::create(&env, layout, &shared(&disks), rng.number()).map_err(text)?;
        load.checksums = NOTICING;
        load.create_fs("live/home", &[("compression", "lz4")]).map_err(text)?;
        load.create_dataset("live/twice", &[("compression", "off"), ("copies", "2")]).map_err(text)?;
        Ok(Bench { layout, env, rng, disks, made, load, counts: Counts { pools: 1, ..Counts::default() } })
    }

    /// Opens the device at a path.
    fn open(&self, path: &str) -> base::Result<Arc<dyn Device>> {
        let disk = self.disks.iter().find(|disk| disk.path() == path);
        let disk = disk.ok_or_else(|| Error::new(Kind::NotFound, "no such disk").at_vdev(path))?;
        // a disk that was pulled is nowhere
        disk.read_at(0, &mut [0; 512]).or_else(|e| if e.kind() == Kind::Missing { Err(e) } else { Ok(()) })?;
        Ok(disk.clone())
    }

    /// The leaf on a disk.
    fn leaf(&self, disk: &RoughDevice) -> Option<(Guid, VdevState)> {
        let tree = self.load.pool.tree();
        let leaf = tree.leaves().find(|leaf| leaf.name() == disk.path())?;
        Some((leaf.guid(), leaf.state().health().state))
    }

    /// Changes the pool, and brings it to disk.
    fn change(&mut self) -> Result<(), String> {
        let steps = *self.rng.pick(&[1, 5, 20, 60]);
        (0..steps).try_for_each(|_| self.load.step()).map_err(text)?;
        let txg = match self.rng.below(4) {
            0 => snapshots::step(&mut self.load, &mut self.rng),
            1 => self.load.step_datasets(),
            _ => self.load.sync(),
        };
        let txg = txg.map_err(text)?;
        self.load.pool.diagnose();
        // older ones are not gone back to
        let newest = self.load.groups.range(..=txg).next_back().map_or(txg, |(txg, _)| *txg);
        self.load.groups = self.load.groups.split_off(&newest);
        Ok(())
    }

    /// All that is on disk is right.
    fn compare(&mut self) -> Result<(), String> {
        self.load.sync().map_err(text)?;
        self.load.model.difference(&self.load.pool.view()).map_or(Ok(()), Err)
    }

    /// The process ends, and the pool is imported again.
    fn crash(&mut self) -> Result<(), String> {
        self.counts.crashes += 1;
        let disks = shared(&self.disks);
        let groups = std::mem::take(&mut self.load.groups);
        self.load.pool.abandon();
        let txg = Pool::open(&self.env, &candidate(&disks).map_err(text)?, &options()).map_err(text)?.uberblock().txg;
        // groups in which only the pool itself changes something are not noted
        let (_, model) = groups.range(..=txg).next_back().ok_or_else(|| format!("group {txg}, which is too old"))?;
        self.load = Workload::import(&self.env, &disks, model, self.rng.number()).map_err(text)?;
        self.load.checksums = NOTICING;
        Ok(())
    }

    fn trouble(&mut self, victim: usize, trouble: Trouble) -> Result<(), String> {
        let place = TROUBLES.iter().position(|one| *one == trouble).expect("it is one of them");
        self.counts.troubles[place] += 1;
        let disk = self.disks[victim].clone();
        match trouble {
            Trouble::Worn(wear) => disk.wear(wear),
            Trouble::Rot(sectors) => disk.rot(sectors),
            Trouble::Offline => {
                let (guid, _) = self.leaf(&disk).ok_or("a disk without a leaf")?;
                self.load.pool.take_off(guid, OfflineReason::Offline, false).map_err(text)?;
            }
        }
        Ok(())
    }

    /// A disk works again, or another one takes its place.
    fn mend(&mut self, victim: usize, trouble: Trouble) -> Result<(), String> {
        let old = self.disks[victim].clone();
        // one that is to be replaced need not work
        let is_replaced = self.rng.below(3) == 0;
        if !is_replaced || self.rng.below(2) == 0 {
            old.wear(Wear::None);
        }
        let (guid, state) = self.leaf(&old).ok_or("a disk without a leaf")?;
        if is_replaced {
            return self.replace(guid);
        }
        // what it did before is forgotten
        self.load.pool.clear(Some(guid), &|path| self.open(path)).map_err(text)?;
        if state != VdevState::Healthy {
            let health = self.load.pool.online(guid, false, &|path| self.open(path)).map_err(text)?;
            return match health.is_readable() {
                true => Ok(()),
                // nothing is left of its labels
                false if trouble.may_hit_labels() && health.aux == Aux::CorruptData => self.replace(guid),
                false => Err(format!("{} is not back: {health:?}", old.path())),
            };
        }
        Ok(())
    }

    /// A new disk takes the place of a leaf's.
    fn replace(&mut self, guid: Guid) -> Result<(), String> {
        self.counts.replaced += 1;
        let new = disk(self.made);
        self.made += 1;
        self.disks.push(new.clone());
        let leaf = NewLeaf { path: new.path().into(), is_file: true };
        self.load.pool.attach(guid, &leaf, AttachAs::Replacement, None, new).map_err(text)
    }

    fn is_busy(&self) -> bool {
        let pool = &self.load.pool;
        pool.tree().iter().any(|vdev| vdev.kind() == VdevKind::Replacing)
            || pool.tree().leaves().any(|leaf| !leaf.state().dtl().is_empty())
            || pool.scan_status().is_some_and(|(status, _)| status.progress == Progress::Running)
    }

    /// Goes on until nothing is under way.
    fn finish(&mut self) -> Result<(), String> {
        for group in 0..GROUPS_MAX {
            if !self.is_busy() {
                return Ok(());
            }
            match group % 8 {
                0 => self.change()?,
                _ => self.load.sync().map(drop).map_err(text)?,
            }
            self.load.pool.diagnose();
        }
        Err(format!("it does not come to its end: {:?}, {}", self.load.pool.scan_status(), self.state()))
    }

    /// What each leaf is like.
    fn state(&self) -> String {
        let leaves = self.load.pool.tree().leaves().map(|leaf| {
            let (state, errors) = (leaf.state(), leaf.stats().errors());
            format!("{}: {:?}, errors {errors:?}, lacks {:?}", leaf.name(), state.health(), state.dtl())
        });
        leaves.collect::<Vec<_>>().join("; ")
    }

    /// Scrubs the pool: nothing is lost. Returns the bytes that were mended.
    fn scrub(&mut self) -> Result<u64, String> {
        self.load.pool.scrub(false).map_err(text)?;
        self.finish()?;
        let (status, _) = self.load.pool.scan_status().ok_or("no scrub")?;
        match (status.function, status.progress, status.errors) {
            (ScanFunction::Scrub, Progress::Finished, 0) => Ok(status.processed_bytes),
            _ => Err(format!("the scrub did not end well: {status:?}")),
        }
    }

    fn round(&mut self) -> Result<(), String> {
        self.counts.rounds += 1;
        let count = 1 + self.rng.below(self.layout.losses() as u64) as usize;
        let mut victims: Vec<(usize, Trouble)> = Vec::new();
        while victims.len() < count {
            let victim = self.rng.below(self.disks.len() as u64) as usize;
            if victims.iter().all(|(other, _)| *other != victim) {
                victims.push((victim, *self.rng.pick(&TROUBLES)));
            }
        }
        let told = format!("{victims:?}");
        self.wear_and_mend(victims).map_err(|what| format!("{told}: {what}"))
    }

    fn wear_and_mend(&mut self, victims: Vec<(usize, Trouble)>) -> Result<(), String> {
        victims.iter().try_for_each(|&(victim, trouble)| self.trouble(victim, trouble))?;
        for _ in 0..1 + self.rng.below(4) {
            self.change()?;
            match self.rng.below(8) {
                0 => self.crash()?,
                1..4 => self.compare()?,
                _ => {}
            }
        }
        victims.into_iter().try_for_each(|(victim, trouble)| self.mend(victim, trouble))?;
        self.finish().map_err(|what| format!("resilver: {what}"))?;
        // those that were replaced are gone
        let tree = self.load.pool.tree().clone();
        self.disks.retain(|disk| tree.leaves().any(|leaf| leaf.name() == disk.path()));
        self.disks.iter().for_each(|disk| disk.wear(Wear::None));
        self.load.pool.clear(None, &|path| self.open(path)).map_err(text)?;
        self.counts.repaired_bytes += self.scrub()?;
        let again = self.scrub()?;
        if again != 0 {
            return Err(format!("a second scrub mended {again} bytes"));
        }
        self.judge()
    }

    /// Everything is there, on healthy disks.
    fn judge(&mut self) -> Result<(), String> {
        self.compare()?;
        let (pool, tree) = (&self.load.pool, self.load.pool.tree());
        if tree.health(tree.root().id()) != vdev::Health::HEALTHY || self.disks.len() != self.layout.devices() {
            return Err(format!("not healthy again: {:?}, on {:?}", tree.health(tree.root().id()), self.disks));
        }
        match pool.view().error_count().map_err(text)? {
            0 => crash::check(&pool.view(), false),
            errors => Err(format!("{errors} in the error log")),
        }
    }

    /// The pool is whole, also for zdb, and without as many disks as may be lost.
    fn end(mut self) -> Result<Counts, String> {
        self.load.pool.close(PoolState::Exported).map_err(text)?;
        let copies: Vec<SparseDevice> = self.disks.iter().map(|disk| disk.copy()).collect();
        crash::judge_by_zdb(&copies)?;
        let (mut left, model) = (shared(&self.disks), self.load.model.clone());
        (0..self.layout.losses()).for_each(|_| drop(left.swap_remove(self.rng.below(left.len() as u64) as usize)));
        let open = || Pool::open(&self.env, &candidate(&left)?, &options());
        let pool = open().map_err(|e| format!("without the lost disks: {e:#?}"))?;
        model.difference(&pool).map_or(Ok(self.counts), |what| Err(format!("on {left:?} only: {what}")))
    }
}

/// Wears out the disks of one pool.
fn wear_out(layout: PoolLayout, seed: u64, rounds: u64) -> Result<Counts, String> {
    let mut bench = Bench::new(layout, seed)?;
    for round in 0..rounds {
        bench.round().map_err(|what| format!("round {round}: {what}"))?;
    }
    bench.end()
}

impl Counts {
    fn add(&mut self, more: &Counts) {
        self.pools += more.pools;
        self.rounds += more.rounds;
        self.troubles.iter_mut().zip(more.troubles).for_each(|(sum, more)| *sum += more);
        self.replaced += more.replaced;
        self.crashes += more.crashes;
        self.repaired_bytes += more.repaired_bytes;
    }
}

#[test]
fn disks_that_wear_out_lose_nothing() {
    let seconds = super::setting("CENOTE_DAMAGE_SECONDS", 0);
    let first = super::setting("CENOTE_DAMAGE_SEED", 1);
    let (began, mut sum) = (Instant::now(), Counts::default());
    for seed in first.. {
        let layout = LAYOUTS[(seed % LAYOUTS.len() as u64) as usize];
        let rounds = if seconds == 0 { 2 } else { ROUNDS };
        let worn = crash::guarded(|| wear_out(layout, seed, rounds));
        let counts = worn.unwrap_or_else(|what| panic!("{NAME}, {layout:?}, CENOTE_DAMAGE_SEED={seed}: {what}"));
        sum.add(&counts);
        let is_over = if seconds == 0 {
            sum.pools == LAYOUTS.len() as u64
        } else {
            began.elapsed() >= Duration::from_secs(seconds)
        };
        if is_over {
            break;
        }
    }
    println!("{TROUBLES:?}: {sum:?} in {} s", began.elapsed().as_secs());
}
