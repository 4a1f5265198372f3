//! Writing with dedup: the same block is there once, and the tables tell how many pointers there are to it.

use std::sync::Arc;

use base::{Env, Kind};
use daemon::FileRoom;
use device::Device;
use format::ids::ObjectId;
use pool::{LivePool, Pool, PoolState};
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload};
use zpl::{New, NewKind, Zpl, ZplOptions};

use super::{candidate, check, check_view, import_device, options};
use crate::crash::judge_by_zdb;

/// Bytes of a block of the files.
const BLOCK: u64 = 16 << 10;
const DEVICE_BYTES: u64 = 512 << 20;

/// A pool in memory.
pub(super) struct Made {
    pub(super) recording: Arc<Recording>,
    devices: Vec<Arc<dyn Device>>,
    pub(super) load: Workload,
}

impl Made {
    pub(super) fn new(layout: PoolLayout) -> Made {
        let disks = (0..layout.devices()).map(|number| SparseDevice::new(format!("disk{number}"), DEVICE_BYTES));
        let recording = Recording::new(disks.collect());
        let devices: Vec<Arc<dyn Device>> =
            recording.devices().into_iter().map(|disk| disk as Arc<dyn Device>).collect();
        let load = Workload::create(&Env::fixed(1000), layout, &devices, 1).unwrap();
        Made { recording, devices, load }
    }

    /// A file system with dedup as asked for.
    pub(super) fn fs(&mut self, name: &str, properties: &[(&str, &str)]) -> Zpl {
        self.load.create_fs(name, properties).unwrap();
        open(&self.load.pool, name)
    }

    /// Exports the pool: where it was recorded, and its devices.
    pub(super) fn export(self) -> (Arc<Recording>, Vec<Arc<dyn Device>>) {
        self.load.pool.close(PoolState::Exported).unwrap();
        (self.recording, self.devices)
    }

    /// Exports the pool; zdb agrees, if it is there.
    pub(super) fn judge(self) {
        self.load.pool.close(PoolState::Exported).unwrap();
        let mut rng = Rng::new(1);
        judge_by_zdb(&self.recording.cut(self.recording.len(), &mut rng, Loss::Nothing)).unwrap();
    }
}

pub(super) fn open(pool: &Arc<LivePool>, name: &str) -> Zpl {
    open_with(pool, name, BLOCK)
}

fn open_with(pool: &Arc<LivePool>, name: &str, record_bytes: u64) -> Zpl {
    let id = pool.view().dsl().find(name).unwrap().id;
    let (objset, log) = (pool.head(id).unwrap(), pool.log(id).unwrap());
    let options = ZplOptions { record_bytes, shares: Some(pool.root_holder()), ..ZplOptions::default() };
    Zpl::open_writable(objset, pool.txgs().clone(), Env::fixed(5000), options, Some(log)).unwrap()
}

/// Contents of block `tag`, which no other tag has.
fn block(tag: u64) -> Vec<u8> {
    let mut rng = Rng::new(tag);
    (0..BLOCK / 8).flat_map(|_| rng.number().to_le_bytes()).collect()
}

fn new() -> New<'static> {
    New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 }
}

/// A file of the blocks with these tags.
pub(super) fn put(zpl: &Zpl, name: &str, tags: impl IntoIterator<Item = u64>) -> ObjectId {
    let ino = zpl.create(zpl.root(), name.as_bytes(), &new()).unwrap().ino;
    write(zpl, ino, 0, tags);
    ino
}

fn write(zpl: &Zpl, ino: ObjectId, at: u64, tags: impl IntoIterator<Item = u64>) {
    let bytes: Vec<u8> = tags.into_iter().flat_map(block).collect();
    zpl.open_file(ino).unwrap().write(at * BLOCK, &bytes[..]).unwrap();
}

/// Whether the blocks of a file have these tags.
pub(super) fn has(zpl: &Zpl, ino: ObjectId, tags: impl IntoIterator<Item = u64>) -> bool {
    let expect: Vec<u8> = tags.into_iter().flat_map(block).collect();
    let mut found = vec![0; expect.len()];
    zpl.open_file(ino).unwrap().read(0, &mut found).unwrap();
    found == expect
}

pub(super) fn remove(zpl: &Zpl, name: &str) {
    zpl.unlink(zpl.root(), name.as_bytes()).unwrap().into_iter().for_each(|ino| zpl.reclaim(ino).unwrap());
}

/// Blocks, and pointers to them, of all tables.
pub(super) fn counts(view: &Pool) -> (u64, u64) {
    let total = view.dedup().unwrap().total();
    (total.blocks, total.ref_blocks)
}

#[test]
fn the_same_block_is_there_once() {
    for (layout, dedup) in [
        (PoolLayout::Single, "on"),
        (PoolLayout::Special, "verify"),
        (PoolLayout::Raidz1, "sha512"),
        (PoolLayout::Mirror, "skein,verify"),
        (PoolLayout::Single, "edonr,verify"),
    ] {
        let mut made = Made::new(layout);
        let pool = made.load.pool.clone();
        let first = made.fs("live/first", &[("dedup", dedup)]);
        // twins in one group, one of them in the same file
        let a = put(&first, "a", (0..20).chain([3]));
        assert_eq!(check(&pool), 21, "{dedup}");
        assert_eq!(counts(&pool.view()), (20, 21), "{dedup}");
        // in another group, and in another file system
        let second = made.fs("live/second", &[("dedup", dedup), ("compression", "off")]);
        let b = put(&second, "b", 10..30);
        check(&pool);
        assert_eq!(counts(&pool.view()), (30, 41), "{dedup}");
        assert!(has(&first, a, (0..20).chain([3])) && has(&second, b, 10..30));
        // the same contents once more take nothing; others take the place of one that others have
        write(&second, b, 0, [10, 11]);
        write(&second, b, 2, [100]);
        check(&pool);
        assert_eq!(counts(&pool.view()), (31, 41), "{dedup}");
        // another number of copies is another block
        let third = made.fs("live/third", &[("dedup", dedup), ("copies", "2")]);
        put(&third, "c", 0..2);
        put(&third, "d", 0..2);
        check(&pool);
        assert_eq!(counts(&pool.view()), (33, 45), "{dedup}");
        // what is not to be deduplicated is not
        pool.set_property("live/third", "dedup", "off").unwrap();
        put(&third, "e", 0..2);
        check(&pool);
        assert_eq!(counts(&pool.view()), (33, 45), "{dedup}");
        // pointers go, the blocks with the last of them
        remove(&first, "a");
        check(&pool);
        assert_eq!(counts(&pool.view()), (22, 24), "{dedup}");
        assert!(has(&second, b, [10, 11, 100].into_iter().chain(13..30)));
        drop((first, third));
        pool.destroy_dataset("live/third").unwrap();
        check(&pool);
        remove(&second, "b");
        assert_eq!(check(&pool), 0);
        put(&second, "f", [1, 1, 2]);
        assert_eq!(check(&pool), 3);
        drop((second, pool));
        made.judge();
    }
}

/// Copies of deduplicated files take nothing, and are counted in the tables: what the others refer to stays, whatever goes
/// first, also in the group of the copy.
#[test]
fn copies_share_deduplicated_blocks() {
    let mut made = Made::new(PoolLayout::Mirror);
    let pool = made.load.pool.clone();
    let zpl = made.fs("live/first", &[("dedup", "on"), ("compression", "off")]);
    let copied = |from: &str, to: &str, blocks: u64| {
        let source = zpl.open_file(zpl.lookup(zpl.root(), from.as_bytes()).unwrap()).unwrap();
        let target = zpl.create(zpl.root(), to.as_bytes(), &new()).unwrap().ino;
        assert_eq!(zpl.open_file(target).unwrap().copy_from(0, &source, 0, blocks * BLOCK).unwrap(), blocks * BLOCK);
        target
    };
    put(&zpl, "a", 0..20);
    check(&pool);
    let b = copied("a", "b", 20);
    assert_eq!(check(&pool), 40);
    assert_eq!(counts(&pool.view()), (20, 40));
    // the source goes in the group of a copy; what is copied once more goes before it is on disk
    let c = copied("b", "c", 10);
    copied("b", "d", 20);
    remove(&zpl, "a");
    remove(&zpl, "d");
    assert_eq!(check(&pool), 30);
    assert_eq!(counts(&pool.view()), (20, 30));
    // a copy is written over, and cut, in its own group
    let e = copied("c", "e", 10);
    write(&zpl, e, 3, [100]);
    assert_eq!(check(&pool), 40);
    assert!(has(&zpl, b, 0..20) && has(&zpl, c, 0..10) && has(&zpl, e, (0..3).chain([100]).chain(4..10)));
    // without dedup for what is written, what is copied is counted still
    pool.set_property("live/first", "dedup", "off").unwrap();
    let f = copied("b", "f", 20);
    assert_eq!(check(&pool), 60);
    ["b", "c", "e"].iter().for_each(|name| remove(&zpl, name));
    assert_eq!(check(&pool), 20);
    assert!(has(&zpl, f, 0..20));
    remove(&zpl, "f");
    assert_eq!(check(&pool), 0);
    drop((zpl, pool));
    made.judge();
}

/// Blocks that a log leads to become entries, or give way to those that are there; the log can be replayed all the
/// while.
#[test]
fn through_the_log() {
    let mut made = Made::new(PoolLayout::Single);
    let pool = made.load.pool.clone();
    let zpl = made.fs("live/first", &[("dedup", "on"), ("logbias", "throughput")]);
    put(&zpl, "old", 0..8);
    // the log begins with a group
    zpl.sync().unwrap();
    // new ones, and ones that are there
    let ino = put(&zpl, "new", 4..12);
    zpl.sync_object(ino).unwrap();
    let told = made.recording.len();
    check(&pool);
    assert_eq!(counts(&pool.view()), (12, 16));
    assert!(has(&zpl, ino, 4..12));
    drop(zpl);
    // power goes before the group is on disk
    let device: Arc<dyn Device> = Arc::new(made.recording.cut(told, &mut Rng::new(5), Loss::Everything).remove(0));
    let again = import_device(device);
    let zpl = open(&again, "live/first");
    assert!(zpl.replay_log().unwrap().unwrap().records > 0);
    let found = zpl.lookup(zpl.root(), b"new").unwrap();
    assert!(has(&zpl, found, 4..12));
    assert_eq!(check(&again), 16);
    assert_eq!(counts(&again.view()), (12, 16));
    drop((zpl, pool));
    made.judge();
}

/// A block that cannot be read is nobody's twin if bytes are compared.
#[test]
fn a_damaged_block_has_no_twins() {
    for (dedup, expect) in [("on", (4, 8)), ("verify", (4, 4))] {
        let mut made = Made::new(PoolLayout::Single);
        let pool = made.load.pool.clone();
        let zpl = made.fs("live/first", &[("dedup", dedup), ("compression", "off")]);
        put(&zpl, "a", 0..4);
        pool.sync().unwrap();
        for device in &made.devices {
            let mut bytes = base::AlignedBuf::zeroed(DEVICE_BYTES as usize);
            device.read_at(0, &mut bytes).unwrap();
            for tag in 0..4 {
                let contents = block(tag);
                let at = (0..bytes.len()).step_by(4096).find(|&at| bytes[at..].starts_with(&contents));
                let at = at.expect("the block is on disk");
                device.write_at(at as u64, &base::AlignedBuf::zeroed(BLOCK as usize)).unwrap();
            }
        }
        let b = put(&zpl, "b", 0..4);
        pool.sync().unwrap();
        assert_eq!(counts(&pool.view()), expect, "{dedup}");
        // what is compared is safe
        pool.close(PoolState::Exported).unwrap();
        drop((zpl, pool));
        let disk = made.recording.cut(made.recording.len(), &mut Rng::new(1), Loss::Nothing).remove(0);
        let again = import_device(Arc::new(disk));
        let zpl = open(&again, "live/first");
        match dedup {
            "verify" => assert!(has(&zpl, b, 0..4)),
            _ => assert!(zpl.open_file(b).unwrap().read(0, &mut [0; 512]).is_err()),
        }
    }
}

/// Whenever the power is cut, the tables are what the pool has.
#[test]
fn a_power_cut_between_writes() {
    let mut made = Made::new(PoolLayout::Mirror);
    let pool = made.load.pool.clone();
    let zpl = made.fs("live/first", &[("dedup", "on")]);
    let begin = made.recording.len();
    let mut rng = Rng::new(3);
    let mut files: Vec<String> = Vec::new();
    for number in 0..30 {
        match rng.below(4) {
            0 if !files.is_empty() => {
                let name = files.swap_remove(rng.below(files.len() as u64) as usize);
                remove(&zpl, &name);
            }
            1 => pool.sync().unwrap(),
            _ => {
                files.push(format!("file{number}"));
                let tags: Vec<u64> = (0..1 + rng.below(12)).map(|_| rng.below(16)).collect();
                put(&zpl, &files[files.len() - 1], tags);
            }
        }
    }
    check(&pool);
    let end = made.recording.len();
    let mut found = std::collections::BTreeSet::new();
    for _ in 0..30 {
        let at = begin + rng.below((end - begin) as u64) as usize;
        let left = made.recording.cut(at, &mut rng, Loss::Some);
        let disks: Vec<Arc<dyn Device>> = left.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Device>).collect();
        let view = Pool::open(&Env::fixed(6000), &candidate(&disks).unwrap(), &options()).unwrap();
        found.insert(check_view(&view));
    }
    assert!(found.len() > 3, "{found:?}");
    drop((zpl, pool));
    made.judge();
}

#[test]
fn a_table_that_is_full_takes_no_more() {
    [PoolLayout::Single, PoolLayout::FastDedup].into_iter().for_each(fill_table);
}

fn fill_table(layout: PoolLayout) {
    let mut made = Made::new(layout);
    let pool = made.load.pool.clone();
    let zpl = made.fs("live/first", &[("dedup", "on")]);
    put(&zpl, "a", 0..4);
    check(&pool);
    let quota = |bytes| {
        pool.set_pool_properties(vec![("dedup_table_quota".into(), dsl::PropertyValue::Number(bytes))]).unwrap();
    };
    quota(1 << 10);
    let b = put(&zpl, "b", 2..8);
    check(&pool);
    assert_eq!(counts(&pool.view()), (4, 6), "those that are there have twins, others have not");
    assert!(has(&zpl, b, 2..8));
    // none, and a limit by itself where there are vdevs for tables
    for (bytes, tags) in [(0, 10), (u64::MAX, 11)] {
        quota(bytes);
        let before = counts(&pool.view()).0;
        put(&zpl, &format!("of {bytes}"), [tags]);
        check(&pool);
        assert_eq!(counts(&pool.view()).0, before + 1);
    }
    drop((zpl, pool));
    made.judge();
}

/// A group has room for so many entries: the next ones go on by themselves, until nothing is left.
#[test]
fn many_blocks_are_freed_without_anything_else_to_write() {
    const SMALL: usize = 512;
    let mut made = Made::new(PoolLayout::Single);
    let pool = made.load.pool.clone();
    drop(made.fs("live/many", &[("dedup", "on"), ("compression", "off")]));
    let many = open_with(&pool, "live/many", SMALL as u64);
    let ino = many.create(many.root(), b"many", &new()).unwrap().ino;
    let file = many.open_file(ino).unwrap();
    let bytes: Vec<u8> = (0..45_000_u64).flat_map(|n| n.to_le_bytes().repeat(SMALL / 8)).collect();
    for (part, at) in bytes.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
        file.write(at, part).unwrap();
    }
    pool.sync().unwrap();
    assert_eq!(counts(&pool.view()), (45_000, 45_000));
    drop((file, many));
    pool.destroy_dataset("live/many").unwrap();
    let (mut groups, mut txg) = (0, pool.view().uberblock().txg);
    loop {
        pool.sync().unwrap();
        let now = pool.view().uberblock().txg;
        if now == txg {
            break;
        }
        (groups, txg) = (groups + 1, now);
        assert!(groups < 50, "it does not come to an end");
    }
    assert_eq!((check_view(&pool.view()), pool.put_off_bytes()), (0, 0), "after {groups} groups");
    drop(pool);
    made.judge();
}

/// What the frees of very many blocks take has room on a small pool, too: their groups are smaller there.
#[test]
fn frees_of_many_small_blocks_find_room() {
    const SMALL: usize = 512;
    let disks: Vec<Arc<dyn Device>> = vec![Arc::new(SparseDevice::new("disk0".to_owned(), 768 << 20))];
    let mut load = Workload::create(&Env::real(), PoolLayout::Single, &disks, 1).unwrap();
    load.create_fs("live/full", &[("dedup", "on"), ("compression", "off")]).unwrap();
    let pool = load.pool.clone();
    pool.start();
    let zpl = open_full(&pool, "live/full", SMALL as u64);
    let block = |n: u64| n.to_le_bytes().repeat(SMALL / 8);
    let free_before = pool.view().usable_bytes().unwrap() - used_bytes(&pool);
    let (mut names, mut next) = (Vec::new(), 0);
    loop {
        let name = format!("many{}", names.len());
        let made = zpl.create(zpl.root(), name.as_bytes(), &new()).and_then(|made| {
            names.push(name);
            let bytes: Vec<u8> = (next..next + 2048).flat_map(block).collect();
            zpl.open_file(made.ino)?.write(0, &bytes[..])
        });
        match made {
            Ok(_) => next += 2048,
            Err(error) if error.kind() == Kind::NoSpace => break,
            Err(error) => panic!("{} files: {error:#?}", names.len()),
        }
    }
    pool.sync().unwrap();
    assert!(next > 50_000, "{next} blocks");
    // half of it by name, with the writer's own groups, the rest as a job
    names.iter().step_by(2).for_each(|name| remove(&zpl, name));
    drop(zpl);
    pool.destroy_dataset("live/full").unwrap();
    let mut groups = 0;
    while pool.put_off_bytes() > 0 || counts(&pool.view()).0 > 0 {
        pool.sync().unwrap();
        assert_eq!(pool.txgs().suspended(), None, "after {groups} groups");
        groups += 1;
        assert!(groups < 10_000, "it does not come to an end");
    }
    (0..4).for_each(|_| pool.record_history("what was freed may be used again some groups later").unwrap());
    assert!(pool.view().usable_bytes().unwrap() - used_bytes(&pool) > free_before / 10 * 9);
    assert_eq!(check_view(&pool.view()), 0);
    pool.close(PoolState::Exported).unwrap();
}

fn used_bytes(pool: &LivePool) -> u64 {
    pool.view().dsl().root().unwrap().phys.used_bytes
}

/// A file system that has as much room as the pool leaves it.
fn open_full(pool: &Arc<LivePool>, name: &str, record_bytes: u64) -> Zpl {
    let id = pool.view().dsl().find(name).unwrap().id;
    let room = Arc::new(FileRoom(pool.open_head(id).unwrap()));
    let options = ZplOptions { record_bytes, room, ..ZplOptions::default() };
    Zpl::open_writable(pool.head(id).unwrap(), pool.txgs().clone(), Env::real(), options, None).unwrap()
}
