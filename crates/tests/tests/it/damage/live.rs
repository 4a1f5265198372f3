//! Pools in use on disks that rot, fail, lie, crawl, are pulled, come back and are replaced: as many at a time as the
//! layout bears. What was written is right all the time, and in the end, without as many disks, too.
//!
//! ```text
//!   round:  some disks are worn out ─▶ changes, groups, a crash now and then ─▶ others take the places of some, and are
//!           worn out, too ─▶ changes, crashes ─▶ all work again ─▶ resilver, scrub ─▶ all is healthy, nothing is lost,
//!           equal to the model
//!   end:    export ─▶ zdb ─▶ without as many disks as may be lost: equal to the model
//! ```
//!
//! `CENOTE_DAMAGE_SECONDS` sets for how long pools are worn out, `CENOTE_DAMAGE_SEED` where to start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Env, Error, Kind, Mutex};
use device::Device;
use format::feature::RAIDZ_EXPANSION;
use format::ids::Guid;
use pool::{AttachAs, NewDevices, NewLeaf, OfflineReason, Pool, PoolState, Progress, ScanFunction, ScrubRange};
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
const NOTICING: &[&str] = CHECKSUMS.split_last().expect("there are some").1;
const DEVICE_BYTES: u64 = 512 << 20;
/// Disks that a raidz is given at most.
const DISKS_MORE_MAX: usize = 3;
/// Rounds of a pool.
const ROUNDS: u64 = 6;
/// Groups after which all that was begun has ended.
const GROUPS_MAX: usize = 20_000;
/// Groups after which it is looked again whether disks have to be replaced.
const SETTLE_EVERY: usize = 500;

/// What becomes of a disk in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It is worn out, and works again at the end of the round.
    Worn(Wear),
    /// Up to so many of its sectors rot.
    Rot(u64),
    /// It is taken offline and brought back.
    Offline,
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

impl Trouble {
    /// Whether bytes are wrong of which nobody is told.
    fn spoils(self) -> bool {
        matches!(self, Trouble::Rot(_) | Trouble::Worn(Wear::Lying))
    }
}

fn is_raidz(layout: PoolLayout) -> bool {
    matches!(layout, PoolLayout::Raidz1 | PoolLayout::Raidz2 | PoolLayout::Raidz3)
}

/// What was done to pools.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    pools: u64,
    with_spare: u64,
    rounds: u64,
    troubles: [u64; TROUBLES.len()],
    replaced: u64,
    /// Those of them that were given everything sequentially.
    rebuilt: u64,
    /// Groups in which a spare stood in.
    spared: u64,
    crashes: u64,
    /// Disks that a raidz was given beside those that it had.
    widened: u64,
    /// Bytes that scrubs wrote.
    repaired_bytes: u64,
}

/// The disks that there are.
#[derive(Clone, Default)]
struct Disks(Arc<Mutex<Vec<Arc<RoughDevice>>>>);

impl Disks {
    /// A new one.
    fn make(&self, number: u64) -> Arc<RoughDevice> {
        let disk = Arc::new(RoughDevice::new(format!("disk{number}"), DEVICE_BYTES, number));
        self.0.lock().push(disk.clone());
        disk
    }

    fn all(&self) -> Vec<Arc<RoughDevice>> {
        self.0.lock().clone()
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.all().into_iter().map(|disk| disk as Arc<dyn Device>).collect()
    }

    /// Opens the device at a path. Errors: `NotFound`, `Missing` if there is none, or it was pulled.
    fn open(&self, path: &str) -> base::Result<Arc<dyn Device>> {
        let disk = self.all().into_iter().find(|disk| disk.path() == path);
        let disk = disk.ok_or_else(|| Error::new(Kind::NotFound, "no such disk").at_vdev(path))?;
        disk.read_at(0, &mut [0; 512]).or_else(|e| if e.kind() == Kind::Missing { Err(e) } else { Ok(()) })?;
        Ok(disk)
    }
}

/// A pool, and its disks.
struct Bench {
    layout: PoolLayout,
    env: Env,
    rng: Rng,
    disks: Disks,
    /// Disks that were made so far.
    made: u64,
    /// Disks that its raidz was given since.
    more: usize,
    /// The disk that stands by for others.
    spare: Option<Arc<RoughDevice>>,
    load: Workload,
    counts: Counts,
}

fn text(error: Error) -> String {
    format!("{error:#?}")
}

impl Bench {
    fn new(layout: PoolLayout, seed: u64) -> Result<Bench, String> {
        let (env, mut rng, made) = (Env::fixed(1000), Rng::new(seed), layout.devices() as u64);
        let disks = Disks::default();
        (0..made).for_each(|number| drop(disks.make(number)));
        let mut load = Workload::create(&env, layout, &disks.devices(), rng.number()).map_err(text)?;
        load.checksums = NOTICING;
        load.create_fs("live/home", &[("compression", "lz4")]).map_err(text)?;
        load.create_dataset("live/twice", &[("compression", "off"), ("copies", "2")]).map_err(text)?;
        let counts = Counts { pools: 1, ..Counts::default() };
        let mut bench = Bench { layout, env, rng, disks, made, more: 0, spare: None, load, counts };
        if bench.rng.below(3) == 0 {
            bench.add_spare().map_err(text)?;
        }
        bench.let_spares_step_in();
        Ok(bench)
    }

    fn make_disk(&mut self) -> Arc<RoughDevice> {
        self.made += 1;
        self.disks.make(self.made - 1)
    }

    /// From now on a spare stands in for disks that fail, by itself.
    fn add_spare(&mut self) -> base::Result<()> {
        let disk = self.make_disk();
        self.spare = Some(disk.clone());
        self.counts.with_spare += 1;
        let leaf = NewLeaf { path: disk.path().into(), is_file: true };
        let new = NewDevices { spares: vec![leaf], ..NewDevices::default() };
        self.load.pool.add(&new, &[(disk.path().into(), disk as Arc<dyn Device>)].into())
    }

    fn let_spares_step_in(&self) {
        let disks = self.disks.clone();
        self.load.pool.let_spares_step_in(move |path| disks.open(path));
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
        // what comes next may do nothing, and a group come for another reason
        let noted = self.load.note_groups();
        let txg = match self.rng.below(4) {
            0 => snapshots::step(&mut self.load, &mut self.rng),
            1 => self.load.step_datasets(),
            _ => self.load.sync(),
        };
        let txg = txg.map_err(text)?;
        if txg >= noted.start {
            // it did something, of which those do not know
            self.load.groups.retain(|known, _| *known <= txg);
        }
        self.diagnose();
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
        let disks = self.disks.devices();
        let groups = std::mem::take(&mut self.load.groups);
        self.load.pool.abandon();
        let txg = Pool::open(&self.env, &candidate(&disks).map_err(text)?, &options()).map_err(text)?.uberblock().txg;
        // groups in which only the pool itself changes something are not noted
        let (_, model) = groups.range(..=txg).next_back().ok_or_else(|| format!("group {txg}, which is too old"))?;
        self.load = Workload::import(&self.env, &disks, model, self.rng.number()).map_err(text)?;
        self.load.checksums = NOTICING;
        self.let_spares_step_in();
        Ok(())
    }

    /// A few changes, with a look at what is there, or a crash, now and then.
    fn live_on(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.rng.below(4) {
            self.change()?;
            match self.rng.below(8) {
                0 => self.crash()?,
                1..4 => self.compare()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn trouble(&mut self, disk: &RoughDevice, trouble: Trouble) -> Result<(), String> {
        let place = TROUBLES.iter().position(|one| *one == trouble).expect("it is one of them");
        self.counts.troubles[place] += 1;
        match trouble {
            Trouble::Worn(wear) => disk.wear(wear),
            Trouble::Rot(sectors) => disk.rot(sectors),
            Trouble::Offline => {
                let (guid, state) = self.leaf(disk).ok_or("a disk without a leaf")?;
                if state != VdevState::Unavail {
                    self.load.pool.take_off(guid, OfflineReason::Offline, false).map_err(text)?;
                }
            }
        }
        Ok(())
    }

    /// A raidz gets one more disk, or not.
    fn widen_or_not(&mut self) -> Result<bool, String> {
        if !is_raidz(self.layout) || self.more == DISKS_MORE_MAX || self.rng.below(3) > 0 {
            return Ok(false);
        }
        let disk = self.make_disk();
        let leaf = NewLeaf { path: disk.path().into(), is_file: true };
        let pool = self.load.pool.clone();
        let guid = pool.tree().tops().next().ok_or("a pool without a vdev")?.guid();
        pool.enable_features(vec![RAIDZ_EXPANSION.to_owned()]).map_err(text)?;
        match pool.widen(guid, &leaf, None, disk.clone()) {
            Ok(()) => {
                self.more += 1;
                self.counts.widened += 1;
                Ok(true)
            }
            // there is a checkpoint
            Err(error) if error.kind() == Kind::Exists => {
                self.disks.0.lock().retain(|one| !Arc::ptr_eq(one, &disk));
                Ok(false)
            }
            Err(error) => Err(text(error)),
        }
    }

    /// A disk is replaced, or not. Returns the new one.
    fn replace_some(&mut self, old: &RoughDevice) -> Result<Option<Arc<RoughDevice>>, String> {
        if self.rng.below(3) > 0 {
            return Ok(None);
        }
        // it need not work
        if self.rng.below(2) == 0 {
            old.wear(Wear::None);
        }
        let (guid, _) = self.leaf(old).ok_or("a disk without a leaf")?;
        self.replace(guid).map(Some)
    }

    /// A new disk takes the place of a leaf's.
    fn replace(&mut self, guid: Guid) -> Result<Arc<RoughDevice>, String> {
        self.counts.replaced += 1;
        let new = self.make_disk();
        let leaf = NewLeaf { path: new.path().into(), is_file: true };
        let (pool, how) = (&self.load.pool, AttachAs::Replacement);
        if self.rng.below(3) == 0 && !is_raidz(self.layout) {
            match pool.attach_sequentially(guid, &leaf, how, None, new.clone()) {
                Ok(()) => {
                    self.counts.rebuilt += 1;
                    return Ok(new);
                }
                // others are given what they lack now, or not what such a vdev can do
                Err(error) if matches!(error.kind(), Kind::Exists | Kind::Unsupported) => {}
                Err(error) => return Err(text(error)),
            }
        }
        match pool.attach(guid, &leaf, how, None, new.clone()) {
            // some are sequentially
            Err(error) if error.kind() == Kind::Exists => Ok(new),
            result => result.map(|()| new).map_err(text),
        }
    }

    /// All disks work, what they did before is forgotten, and those that are away come back; or others take the places
    /// of those of which not even a label is left.
    fn settle(&mut self) -> Result<(), String> {
        self.disks.all().iter().for_each(|disk| disk.wear(Wear::None));
        let (pool, disks) = (self.load.pool.clone(), self.disks.clone());
        let open = move |path: &str| disks.open(path);
        pool.clear(None, &open).map_err(text)?;
        let guids: Vec<Guid> = pool.tree().leaves().map(|leaf| leaf.guid()).collect();
        for guid in guids {
            let Some(leaf) = pool.tree().leaf(guid) else { continue };
            if matches!(leaf.vdev().kind(), VdevKind::DraidSpare { .. }) {
                continue;
            }
            let name = leaf.name().to_owned();
            let health = pool.online(guid, false, &open).map_err(text)?;
            // another may have taken its place in the group with which that came
            if pool.tree().leaf(guid).is_none() {
                continue;
            }
            match health.is_readable() {
                true => {}
                false if matches!(health.aux, Aux::BadLabel | Aux::CorruptData) => self.replace_unlabelled(guid)?,
                false => return Err(format!("{name} is not back: {health:?}")),
            }
        }
        Ok(())
    }

    /// Nothing is left of the labels of a leaf's disk.
    fn replace_unlabelled(&mut self, guid: Guid) -> Result<(), String> {
        let pool = self.load.pool.clone();
        let tree = pool.tree();
        let above = tree.leaf(guid).and_then(|leaf| leaf.parent()).map(|id| tree.vdev(id));
        let Some(above) = above.filter(|above| above.kind() == VdevKind::Replacing) else {
            return self.replace(guid).map(drop);
        };
        // the old one goes, if the other has everything; a new one goes now, and another comes
        let last = *above.children().last().expect("two of them");
        match tree.vdev(last).guid() == guid {
            false => Ok(()),
            true => {
                let old = tree.vdev(above.children()[0]).guid();
                pool.detach(guid).map_err(text)?;
                self.replace(old).map(drop)
            }
        }
    }

    /// Goes on until nothing is under way.
    fn finish(&mut self) -> Result<(), String> {
        for group in 1..=GROUPS_MAX {
            if !crash::is_busy(&self.load.pool) {
                return Ok(());
            }
            // a disk without a label is not replaced while a spare of its draid is given everything sequentially
            if group % SETTLE_EVERY == 0 {
                self.settle()?;
            }
            match self.rng.below(64) {
                0 => self.crash()?,
                1..8 => self.change()?,
                _ => self.load.sync().map(drop).map_err(text)?,
            }
            self.diagnose();
        }
        Err(format!("it does not come to its end: {:?}, {}", self.load.pool.scan_status(), self.state()))
    }

    /// Draws the consequences of errors. Spares step in and go home, which a thread does where there are threads.
    fn diagnose(&mut self) {
        let pool = &self.load.pool;
        pool.diagnose();
        pool.use_spares();
        self.counts.spared += u64::from(pool.tree().iter().any(|vdev| vdev.kind() == VdevKind::Spare));
    }

    fn is_healthy(&self) -> bool {
        let tree = self.load.pool.tree();
        tree.health(tree.root().id()) == vdev::Health::HEALTHY
    }

    /// What each leaf is like.
    fn state(&self) -> String {
        let tree = self.load.pool.tree();
        let leaves = tree.leaves().map(|leaf| {
            let (state, errors) = (leaf.state(), leaf.stats().errors());
            let above = leaf.parent().map(|id| tree.vdev(id).kind());
            let lacked = state.dtl().missing();
            format!(
                "{} in {above:?}: {:?}, errors {errors:?}, lacks {:?}",
                leaf.name(),
                state.health(),
                lacked.bounds()
            )
        });
        leaves.collect::<Vec<_>>().join("; ")
    }

    /// Scrubs the pool: nothing is lost. Returns the bytes that were mended.
    fn scrub(&mut self) -> Result<u64, String> {
        self.load.pool.scrub(ScrubRange::All).map_err(text)?;
        self.finish()?;
        let (status, _) = self.load.pool.scan_status().ok_or("no scrub")?;
        match (status.function, status.progress, status.errors) {
            (ScanFunction::Scrub, Progress::Finished, 0) => Ok(status.processed_bytes),
            _ => Err(format!("the scrub did not end well: {status:?}, {}", self.state())),
        }
    }

    /// Some of the disks that are in use, and not in `but`.
    fn pick_disks(&mut self, count: usize, but: &[Arc<RoughDevice>]) -> Vec<Arc<RoughDevice>> {
        let is_other = |disk: &Arc<RoughDevice>| but.iter().chain(&self.spare).all(|one| !Arc::ptr_eq(one, disk));
        let mut disks: Vec<_> = self.disks.all().into_iter().filter(is_other).collect();
        while disks.len() > count {
            disks.swap_remove(self.rng.below(disks.len() as u64) as usize);
        }
        disks
    }

    fn round(&mut self) -> Result<(), String> {
        self.counts.rounds += 1;
        let losses = self.layout.losses();
        let count = 1 + self.rng.below(losses as u64) as usize;
        // what rots on one disk is on others when it has moved, and that disk is counted out no more
        let is_widened = self.widen_or_not()?;
        let fits = |trouble: &&Trouble| !is_widened || !trouble.spoils();
        let choice: Vec<Trouble> = TROUBLES.iter().filter(fits).copied().collect();
        let victims = self.pick_disks(count, &[]);
        let troubles: Vec<Trouble> = victims.iter().map(|_| *self.rng.pick(&choice)).collect();
        let told = format!("{victims:?} {troubles:?}{}", if is_widened { " while it becomes wider" } else { "" });
        self.wear_and_mend(&victims, &troubles, losses - count).map_err(|what| format!("{told}: {what}"))
    }

    /// Wears out disks, and while others take the places of some, those and `more` others.
    fn wear_and_mend(&mut self, victims: &[Arc<RoughDevice>], troubles: &[Trouble], more: usize) -> Result<(), String> {
        victims.iter().zip(troubles).try_for_each(|(disk, trouble)| self.trouble(disk, *trouble))?;
        self.live_on()?;
        let mut new = Vec::new();
        for disk in victims {
            new.extend(self.replace_some(disk)?);
        }
        let but = [victims, &new].concat();
        for disk in self.pick_disks(more, &but).iter().chain(&new) {
            disk.wear(*self.rng.pick(&[Wear::None, Wear::None, Wear::Pulled, Wear::Failing, Wear::Crawling]));
        }
        self.live_on().map_err(|what| format!("while it is mended: {what}"))?;
        self.settle()?;
        self.finish().map_err(|what| format!("resilver: {what}"))?;
        // those that were replaced are gone
        let (tree, spare) = (self.load.pool.tree().clone(), self.spare.clone());
        let is_used = |disk: &RoughDevice| tree.leaves().any(|leaf| leaf.name() == disk.path());
        let is_spare = |disk: &RoughDevice| spare.as_ref().is_some_and(|spare| spare.path() == disk.path());
        self.disks.0.lock().retain(|disk| is_used(disk) || is_spare(disk));
        self.counts.repaired_bytes += self.scrub()?;
        // what it found makes disks that lied degraded
        self.settle()?;
        let again = self.scrub()?;
        if again != 0 {
            return Err(format!("a second scrub mended {again} bytes"));
        }
        self.judge()
    }

    /// Everything is there, on healthy disks.
    fn judge(&mut self) -> Result<(), String> {
        self.compare()?;
        let pool = &self.load.pool;
        if !self.is_healthy() || pool.tree().leaves().count() != self.layout.devices() + self.more {
            return Err(format!("not healthy again: {}", self.state()));
        }
        match pool.view().error_count().map_err(text)? {
            0 => crash::check(&pool.view(), false),
            errors => Err(format!("{errors} in the error log")),
        }
    }

    /// The pool is whole, also for zdb, and without as many disks as may be lost.
    fn end(mut self) -> Result<Counts, String> {
        self.load.pool.close(PoolState::Exported).map_err(text)?;
        let copies: Vec<SparseDevice> = self.disks.all().iter().map(|disk| disk.copy()).collect();
        // that of OpenZFS 2.1 does not know of expansions
        if self.more == 0 || crate::live::is_newer_judge() {
            crash::judge_by_zdb(&copies)?;
        }
        let lost = self.pick_disks(self.layout.losses(), &[]);
        let is_left = |disk: &Arc<dyn Device>| lost.iter().all(|lost| lost.path() != disk.path());
        let left: Vec<Arc<dyn Device>> = self.disks.devices().into_iter().filter(is_left).collect();
        let open = || Pool::open(&self.env, &candidate(&left)?, &options());
        let pool = open().map_err(|e| format!("without {lost:?}: {e:#?}"))?;
        self.load.model.difference(&pool).map_or(Ok(self.counts), |what| Err(format!("without {lost:?}: {what}")))
    }
}

/// Wears out the disks of one pool.
fn wear_out(layout: PoolLayout, seed: u64, rounds: u64) -> Result<Counts, String> {
    let mut bench = Bench::new(layout, seed)?;
    for round in 0..rounds {
        let outcome = bench.round();
        outcome.map_err(|what| format!("round {round}: {what}; {}", bench.state()))?;
    }
    bench.end()
}

impl Counts {
    fn add(&mut self, more: &Counts) {
        self.pools += more.pools;
        self.with_spare += more.with_spare;
        self.rounds += more.rounds;
        self.troubles.iter_mut().zip(more.troubles).for_each(|(sum, more)| *sum += more);
        self.replaced += more.replaced;
        self.rebuilt += more.rebuilt;
        self.spared += more.spared;
        self.crashes += more.crashes;
        self.widened += more.widened;
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
