//! The intent log of a pool: what was committed is there after a power cut, and what was not is no worse than
//! forgotten; and no block is lost or used twice on the way.
//!
//! ```text
//!   write n, told to the log ─▶ commit, or group ─▶ cut ─▶ import: claim ─▶ replay ─▶ writes 0..=n, n at least the
//!                                                          └──── cut ──────┘           last one that was committed
//! ```

mod devices;
mod stress;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use base::{Bookmark, Env, Mutex, Result};
use device::Device;
use dmu::{Mode, Objset, OpenBlock, ReadRequest, Tx};
use format::blkptr::BlkPtr;
use format::ids::ObjectId;
use pool::check::{CheckOptions, Observer, Verify};
use pool::{LivePool, NewLeaf, NewPool, NewVdev, NewVdevShape, Pool, PoolState};
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{FEATURES, candidate, options};
use vdev::spec::Bias;
use zil::{Intent, Itx, ItxBody, Log, LoggedContents, Scope, WrittenData};
use zpl::{NewFs, create_fs};

/// Distance between writes.
const SLOT: u64 = 192 << 10;
const OBJECT: ObjectId = ObjectId::new(100);
/// Bytes of its blocks.
const BLOCK: u64 = 16 << 10;
const WRITES: u64 = 60;

/// The object's contents as the log fetches them.
struct Whole(Arc<Objset>);

impl LoggedContents for Whole {
    fn read(&self, object: ObjectId, generation: u64, offset: u64, buf: &mut [u8]) -> Result<bool> {
        assert_eq!(generation, 7);
        self.0.object(object)?.read(offset, buf).map(|_| true)
    }

    fn open_block(&self, tx: &Tx<'_>, object: ObjectId, generation: u64, offset: u64) -> Result<Option<OpenBlock>> {
        assert_eq!(generation, 7);
        self.0.object(object)?.open_block(tx, offset)
    }
}

/// A pool with a file system beside whose files an object is written to.
struct Bed {
    pool: Arc<LivePool>,
    set: Arc<Objset>,
    log: Arc<Log>,
    _contents: Arc<Whole>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Single,
    Mirror,
    Raidz,
    LogVdev,
}

impl Layout {
    const ALL: [Layout; 4] = [Layout::Single, Layout::Mirror, Layout::Raidz, Layout::LogVdev];

    fn new_pool(self, devices: &[Arc<dyn Device>]) -> NewPool {
        let leaf = |device: &Arc<dyn Device>| NewLeaf { path: device.path().into(), is_file: true };
        let vdev = |shape, bias, devices: &[Arc<dyn Device>]| NewVdev {
            shape,
            bias,
            leaves: devices.iter().map(leaf).collect(),
        };
        let vdevs = match self {
            Layout::Single => vec![vdev(NewVdevShape::Single, None, &devices[..1])],
            Layout::Mirror => vec![vdev(NewVdevShape::Mirror, None, &devices[..2])],
            Layout::Raidz => vec![vdev(NewVdevShape::Raidz(1), None, devices)],
            Layout::LogVdev => {
                vec![
                    vdev(NewVdevShape::Single, None, &devices[..1]),
                    vdev(NewVdevShape::Single, Some(Bias::Log), &devices[1..2]),
                ]
            }
        };
        NewPool {
            name: "live".into(),
            vdevs,
            spares: Vec::new(),
            caches: Vec::new(),
            ashift: Some(12),
            features: FEATURES.map(str::to_owned).to_vec(),
            properties: Vec::new(),
            fs_properties: vec![("compression".into(), "off".into())],
            temporary_name: None,
            history: "zpool create live".into(),
            host: (7, "here".into()),
        }
    }
}

fn blank() -> Vec<SparseDevice> {
    (0..3).map(|number| SparseDevice::new(format!("disk{number}"), 128 << 20)).collect()
}

fn shared(devices: Vec<SparseDevice>) -> Vec<Arc<dyn Device>> {
    devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>).collect()
}

fn recorded(recording: &Arc<Recording>) -> Vec<Arc<dyn Device>> {
    recording.devices().into_iter().map(|device| device as Arc<dyn Device>).collect()
}

/// What write `n` writes.
fn bytes(n: u64) -> Vec<u8> {
    let len = [100, 3000, 9000, 70_000, 180_000][(n * 7 % 5) as usize];
    (0..len).map(|i: u64| (i * (n + 3) / 7 + n) as u8 | 1).collect()
}

impl Bed {
    fn create(env: &Env, layout: Layout, devices: &[Arc<dyn Device>]) -> Bed {
        let by_path: HashMap<PathBuf, Arc<dyn Device>> =
            devices.iter().map(|device| (device.path().into(), device.clone())).collect();
        let pool = LivePool::create(env, &layout.new_pool(devices), &by_path, |set, tx, _| {
            let dnode = format::dnode::Dnode::new(format::object_type::ObjectType::SA, BLOCK, 17, 1, 1);
            create_fs(set, tx, &NewFs { now: (1000, 0), salt: 5, ..NewFs::default() })?;
            set.allocate_at(tx, OBJECT, dnode).map(drop)
        });
        Bed::over(pool.unwrap())
    }

    fn import(env: &Env, devices: &[Arc<dyn Device>]) -> Result<Bed> {
        let pool = LivePool::import(env, &candidate(devices)?, &options(), (7, "here".into()))?;
        Ok(Bed::over(pool))
    }

    fn over(pool: Arc<LivePool>) -> Bed {
        let id = pool.view().dsl().find("live").unwrap().id;
        let (set, log) = (pool.head(id).unwrap(), pool.log(id).unwrap());
        let contents = Arc::new(Whole(set.clone()));
        let weak: Weak<Whole> = Arc::downgrade(&contents);
        log.set_contents(weak);
        Bed { pool, set, log, _contents: contents }
    }

    /// Makes write `n` in the open group, and tells the log.
    fn write(&self, n: u64) -> Result<()> {
        let tx = self.pool.txgs().begin()?;
        let bytes = bytes(n);
        self.set.object(OBJECT)?.write(&tx, n * SLOT, &bytes)?;
        let len = bytes.len() as u64;
        let data = n.is_multiple_of(3).then_some(bytes);
        let body = ItxBody::Write { object: OBJECT, generation: 7, offset: n * SLOT, len, data };
        let scope = if n.is_multiple_of(4) { Scope::Object(OBJECT) } else { Scope::Names };
        self.log.push(&tx, Itx { scope, body });
        Ok(())
    }

    /// Replays the log. Returns the numbers of the writes, each once, in their order.
    fn replay(&self) -> Result<Vec<u64>> {
        let mut replayed: Vec<u64> = Vec::new();
        let done = self.log.replay(&mut |record| {
            let Intent::Write { object, offset, data, .. } = record.intent()? else {
                panic!("{record:?} was never told")
            };
            let (at, data) = match data {
                WrittenData::Here(data) => (offset, data.to_vec()),
                WrittenData::Block(bp) => (offset - offset % BLOCK, self.read_block(bp)?),
            };
            let tx = self.pool.txgs().begin()?;
            self.set.object(object)?.write(&tx, at, &data)?;
            let body = ItxBody::Record { kind: 9, bytes: Vec::new() };
            self.log.push(&tx, Itx { scope: Scope::Names, body });
            drop(tx);
            let n = offset / SLOT;
            if replayed.last() != Some(&n) {
                replayed.push(n);
                if n.is_multiple_of(5) {
                    self.pool.sync()?;
                }
            }
            Ok(())
        })?;
        assert!(done.damage.is_none(), "{:?}", done.damage);
        Ok(replayed)
    }

    /// A block that the log leads to.
    fn read_block(&self, bp: BlkPtr) -> Result<Vec<u8>> {
        let bookmark = Bookmark { objset: self.set.id().get(), object: OBJECT.get(), level: 0, blkid: 0 };
        let request = ReadRequest { bp, bookmark, mode: Mode::Plain };
        Ok(self.set.cache().zio().read(request)?.to_vec())
    }

    /// How many writes are there, whole, before the first that is not.
    fn writes(&self) -> u64 {
        (0..WRITES).take_while(|n| self.has(*n)).count() as u64
    }

    /// Whether write `n` is there, whole.
    fn has(&self, n: u64) -> bool {
        let expect = bytes(n);
        let mut got = vec![0; expect.len()];
        self.set.object(OBJECT).unwrap().read(n * SLOT, &mut got).unwrap();
        got == expect
    }
}

/// Counts what is wrong.
struct Wrong(Vec<String>);

impl Observer for Wrong {
    fn damaged(&mut self, damaged: &pool::check::Damaged) {
        self.0.push(format!("{:?} is damaged", damaged.bookmark));
    }
    fn lost(&mut self, error: &base::Error) {
        self.0.push(format!("{error:#?}"));
    }
    fn unallocated(&mut self, bookmark: base::Bookmark, missing: &pool::check::Leak) {
        self.0.push(format!("{bookmark:?} has {missing:?}, which is free or another's"));
    }
}

/// Every block is where the space maps say, and nothing else is.
fn check(devices: &[Arc<dyn Device>]) {
    let pool = Pool::open(&Env::fixed(2000), &candidate(devices).unwrap(), &options()).unwrap();
    let mut wrong = Wrong(Vec::new());
    let report = pool.check(CheckOptions { verify: Verify::All, space: true }, &mut wrong).unwrap();
    assert!(report.leaks.is_empty() && report.unallocated_blocks == 0, "{:?} {:?}", report.leaks, wrong.0);
    assert!(wrong.0.is_empty(), "{:?}", wrong.0);
    assert_eq!(report.found_bytes, report.allocated_bytes);
}

/// Writes, commits and groups at random. Returns how many writes had been promised after so many events.
fn load(bed: &Bed, rng: &mut Rng, events: &dyn Fn() -> usize) -> Vec<(usize, u64)> {
    let mut promised = Vec::new();
    for n in 0..WRITES {
        bed.write(n).unwrap();
        match rng.below(8) {
            0 => bed.pool.sync().unwrap(),
            1..=3 => bed.log.commit(ObjectId::NONE).unwrap(),
            4 => bed.log.commit(OBJECT).unwrap(),
            _ => continue,
        }
        promised.push((events(), n + 1));
    }
    promised
}

#[test]
fn what_was_committed_outlives_a_power_cut() {
    for (number, layout) in Layout::ALL.into_iter().enumerate() {
        let mut rng = Rng::new(11 + number as u64);
        let recording = Recording::new(blank());
        let bed = Bed::create(&Env::fixed(1000), layout, &recorded(&recording));
        let first = recording.len();
        let promised = load(&bed, &mut rng, &|| recording.len());
        let blocks = |name: &str| bed.log.stats().all().iter().find(|(of, _)| *of == name).unwrap().1;
        let (slog, normal) = (blocks("zil_itx_metaslab_slog_count"), blocks("zil_itx_metaslab_normal_count"));
        assert!(if layout == Layout::LogVdev { slog > 9 && normal == 0 } else { normal > 9 && slog == 0 });
        let mut replayed = 0;
        for round in 0..25 {
            let at = first + rng.below((recording.len() - first) as u64 + 1) as usize;
            let loss = *rng.pick(&Loss::ALL);
            let what = format!("{layout:?} cut {round} at {at}, {loss:?}");
            let least = promised.iter().filter(|(event, _)| *event <= at).map(|(_, n)| *n).max().unwrap_or(0);
            let left = recording.cut(at, &mut rng, loss);
            check(&shared(left.iter().map(SparseDevice::copy).collect()));
            replayed += judge_cut(left, least, &mut rng, &what);
        }
        assert!(replayed > 20, "{layout:?}: only {replayed} writes were replayed");
    }
}

/// Imports and replays what a cut has left, with the power cut once more on the way. Returns how many writes
/// were replayed.
fn judge_cut(left: Vec<SparseDevice>, least: u64, rng: &mut Rng, what: &str) -> usize {
    let again = Recording::new(left);
    let bed = Bed::import(&Env::fixed(2000), &recorded(&again)).unwrap();
    let synced = bed.writes();
    let replayed = bed.replay().unwrap();
    let all = bed.writes();
    assert!(all >= least, "{what}: {all} of {least} writes that were promised, {synced} without the log");
    assert!(replayed.is_sorted(), "{what}: {replayed:?}");
    assert!(replayed.iter().all(|n| *n >= synced || *n + 1 >= synced), "{what}: {replayed:?} after {synced}");
    let at = rng.below(again.len() as u64 + 1) as usize;
    let loss = *rng.pick(&Loss::ALL);
    let devices = shared(again.cut(at, rng, loss));
    let twice = Bed::import(&Env::fixed(3000), &devices).unwrap();
    twice.replay().unwrap();
    let found = twice.writes();
    assert!(found >= least, "{what}, again at {at}, {loss:?}: {found} of {least} writes that were promised");
    // what was claimed, replayed and freed is nobody's any more
    for n in found..WRITES.min(found + 5) {
        twice.write(n).unwrap();
        twice.log.commit(ObjectId::NONE).unwrap();
    }
    check(&devices);
    twice.pool.close(PoolState::Exported).unwrap();
    drop(twice);
    check(&devices);
    let exported = Pool::open(&Env::fixed(4000), &candidate(&devices).unwrap(), &options()).unwrap();
    let set = exported.dsl().objset(&exported.dsl().find("live").unwrap(), dmu::Mode::Plain).unwrap();
    assert_eq!(set.phys().log_header, [0; 192], "{what}: an exported pool has no log");
    replayed.len()
}

/// What is written again and again fills no pool by its log: groups find room, and the log of the last one is replayed.
#[test]
fn a_log_leaves_groups_their_room() {
    for layout in [Layout::Single, Layout::Raidz, Layout::LogVdev] {
        let disks: Vec<Arc<SparseDevice>> = blank().into_iter().map(Arc::new).collect();
        let bed = Bed::create(&Env::fixed(1000), layout, &devices::same(&disks));
        let numbers = [2, 7, 12, 22, 27, 52];
        for round in 0..400 {
            for n in numbers {
                bed.write(n).unwrap();
                bed.log.commit(ObjectId::NONE).unwrap_or_else(|error| panic!("{layout:?}, round {round}: {error:#?}"));
            }
        }
        let logged = bed.log.stats().all().into_iter().find(|(name, _)| *name == "zil_itx_count").unwrap().1;
        assert!(logged > 500, "{layout:?}: {logged} entries are in the log");
        let left = shared(devices::copies(&disks));
        let again = Bed::import(&Env::fixed(2000), &left).unwrap();
        again.replay().unwrap();
        assert!(numbers.iter().all(|n| again.has(*n)), "{layout:?}: all that was committed is there");
        again.pool.close(PoolState::Exported).unwrap();
        check(&left);
    }
}

/// A commit is one write and one flush of the device that the log is on.
#[test]
fn a_commit_is_one_write_and_one_flush() {
    let recording = Recording::new(blank());
    let bed = Bed::create(&Env::fixed(1000), Layout::LogVdev, &recorded(&recording));
    let small = |n: u64| {
        let tx = bed.pool.txgs().begin().unwrap();
        bed.set.object(OBJECT).unwrap().write(&tx, n * 100, &[7; 100]).unwrap();
        let body = ItxBody::Write { object: OBJECT, generation: 7, offset: n * 100, len: 100, data: None };
        bed.log.push(&tx, Itx { scope: Scope::Object(OBJECT), body });
    };
    small(0);
    bed.log.commit(OBJECT).unwrap();
    for n in 1..20 {
        small(n);
        let before = recording.len();
        bed.log.commit(OBJECT).unwrap();
        assert_eq!(recording.len() - before, 2, "write {n}");
        bed.log.commit(OBJECT).unwrap();
        assert_eq!(recording.len() - before, 2, "there is nothing more to commit");
    }
    let stats = bed.log.stats();
    assert_eq!(stats.zil_commit_writer_count.load(Ordering::Relaxed), 20);
    assert_eq!(stats.zil_commit_stall_count.load(Ordering::Relaxed), 1, "the first waits for its group");
}

/// Without room for a block, or without a device that takes it, commits wait for their groups.
#[test]
fn what_cannot_be_logged_waits_for_its_group() {
    let bed = Bed::create(&Env::fixed(1000), Layout::Single, &shared(blank()));
    bed.write(0).unwrap();
    bed.log.commit(ObjectId::NONE).unwrap();
    let tx = bed.pool.txgs().begin().unwrap();
    let txg = tx.txg();
    bed.set.object(OBJECT).unwrap().write(&tx, 1 << 30, &[1]).unwrap();
    bed.log.push(&tx, Itx { scope: Scope::Names, body: ItxBody::Unloggable });
    drop(tx);
    bed.log.commit(ObjectId::NONE).unwrap();
    assert!(bed.pool.txgs().synced_txg() >= txg);
    let tx = bed.pool.txgs().begin().unwrap();
    let txg = tx.txg();
    bed.set.object(OBJECT).unwrap().write(&tx, 1 << 30, &[2]).unwrap();
    bed.log.push(&tx, Itx { scope: Scope::Names, body: ItxBody::Record { kind: 1, bytes: vec![1; 200 << 10] } });
    drop(tx);
    bed.log.commit(ObjectId::NONE).unwrap();
    assert!(bed.pool.txgs().synced_txg() >= txg, "a record that is longer than any block");
    bed.write(1).unwrap();
    bed.log.close().unwrap();
    bed.write(2).unwrap();
    bed.log.commit(ObjectId::NONE).unwrap();
    assert_eq!(bed.writes(), 3);
}

/// Many who commit at once, with groups going to disk beside them.
#[test]
fn threads_commit_together() {
    let recording = Recording::new(blank());
    let devices = recorded(&recording);
    let bed = Bed::create(&Env::real(), Layout::Mirror, &devices);
    bed.pool.start();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let bed = &bed;
            scope.spawn(move || {
                for round in 0..WRITES / 8 {
                    bed.write(round * 8 + thread).unwrap();
                    bed.log.commit(if round % 2 == 0 { ObjectId::NONE } else { OBJECT }).unwrap();
                }
            });
        }
        scope.spawn(|| (0..20).for_each(|_| bed.pool.sync().unwrap()));
    });
    let mut rng = Rng::new(5);
    let left = recording.cut(recording.len(), &mut rng, Loss::Everything);
    drop(bed);
    let bed = Bed::import(&Env::fixed(2000), &shared(left)).unwrap();
    bed.replay().unwrap();
    assert_eq!(bed.writes(), WRITES / 8 * 8);
}

/// Many who commit at once, each write by one of them, and the power fails: batches that were written while others
/// were flushed are promised in their order.
#[test]
fn what_threads_committed_outlives_a_power_cut() {
    const THREADS: u64 = 6;
    for layout in [Layout::LogVdev, Layout::Mirror] {
        let recording = Recording::new(blank());
        let bed = Bed::create(&Env::real(), layout, &recorded(&recording));
        bed.pool.start();
        let first = recording.len();
        let promised = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (bed, recording, promised) = (&bed, &recording, &promised);
                scope.spawn(move || {
                    for n in (thread..WRITES).step_by(THREADS as usize) {
                        bed.write(n).unwrap();
                        bed.log.commit(if n % 5 == 0 { ObjectId::NONE } else { OBJECT }).unwrap();
                        promised.lock().push((recording.len(), n));
                    }
                });
            }
        });
        let (mut rng, promised) = (Rng::new(9), promised.into_inner());
        assert_eq!(promised.len() as u64, WRITES);
        let mut replayed = 0;
        for _ in 0..25 {
            let at = first + rng.below((recording.len() - first) as u64 + 1) as usize;
            let loss = *rng.pick(&Loss::ALL);
            let devices = shared(recording.cut(at, &mut rng, loss));
            let left = Bed::import(&Env::fixed(2000), &devices).unwrap();
            replayed += left.replay().unwrap().len();
            for (_, n) in promised.iter().filter(|(event, _)| *event <= at) {
                assert!(left.has(*n), "{layout:?}: write {n} was promised before {at}, {loss:?}");
            }
            left.pool.close(PoolState::Exported).unwrap();
            drop(left);
            check(&devices);
        }
        assert!(replayed > 10, "{layout:?}: only {replayed} writes were replayed");
    }
}

/// zdb, if it is there, finds the chain of a pool left mid-load, and no leak.
#[test]
fn zdb_sees_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Recording::new(blank());
    let bed = Bed::create(&Env::fixed(1000), Layout::LogVdev, &recorded(&recording));
    for n in 0..30 {
        bed.write(n).unwrap();
        if n == 20 { bed.pool.sync().unwrap() } else { bed.log.commit(ObjectId::NONE).unwrap() }
    }
    let left = recording.cut(recording.len(), &mut Rng::new(1), Loss::Nothing);
    left.iter().take(2).enumerate().for_each(|(i, disk)| disk.save(&dir.path().join(format!("disk{i}"))).unwrap());
    let zdb = |args: &[&str], what: &str| -> Option<String> {
        let output = Command::new("zdb").args(["-e", "-p"]).arg(dir.path()).args(args).arg(what).output().ok()?;
        let text = [output.stdout, output.stderr].map(|raw| String::from_utf8_lossy(&raw).into_owned()).concat();
        assert!(output.status.success(), "{text}");
        Some(text)
    };
    let Some(text) = zdb(&["-bcc"], "live") else { return };
    assert!(text.contains("No leaks"), "{text}");
    let text = zdb(&["-ivv"], "live/").unwrap_or_default();
    assert!(text.contains("ZIL header") && text.contains("TX_WRITE"), "{text}");
}
