//! A pool in which OpenZFS 2.4 cloned blocks is changed: its clone tables follow, and no block leaks or is lost.

mod between;

use std::collections::HashMap;
use std::sync::Arc;

use base::Env;
use device::{Device, FileDevice, OpenMode};
use dmu::CloneSource;
use dmu::traverse::Visit;
use format::blkptr::BlkPtr;
use format::ids::ObjectId;
use pool::check::{BlockKind, CheckOptions, Observer, Verify};
use pool::{Clones, LivePool, Pool, PoolState};
use testkit::corpus;
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload, candidate, options};
use zil::{Intent, Itx, ItxBody, Scope};
use zpl::{FileKind, New, NewKind, Zpl, ZplOptions};

use crate::dedup::{check_view, empty, names_in, sparse};

/// Pointers to each block of data: its place, and bytes of it.
#[derive(Default)]
struct Pointers {
    found: HashMap<[u64; 2], (u64, u64)>,
    tree: Option<Arc<vdev::Tree>>,
}

impl Observer for Pointers {
    fn block(&mut self, visit: &Visit<'_>, _kind: BlockKind) {
        let (bp, tree) = (visit.bp, self.tree.as_ref().unwrap());
        if bp.level() > 0 || bp.object_type().is_metadata() || bp.is_dedup() || bp.copies().count() == 0 {
            return;
        }
        let bytes: u64 = bp.copies().map(|dva| tree.deflate(dva.vdev(), dva.asize()).unwrap()).sum();
        self.found.entry(bp.dvas()[0].words()).or_insert((bytes, 0)).1 += 1;
    }
}

/// The tables are what a walk through the pool finds, and all that is allocated is some block's.
fn check(view: &Pool) -> Clones {
    let mut pointers = Pointers { tree: Some(view.tree().clone()), ..Pointers::default() };
    let report = view.check(CheckOptions { verify: Verify::All, space: true }, &mut pointers).unwrap();
    assert_eq!((report.leaks, report.unallocated_blocks, report.lost_parts), (Vec::new(), 0, 0));
    assert_eq!((report.found_bytes, report.lost_blocks), (report.allocated_bytes, Vec::new()));
    let cloned = pointers.found.values().filter(|(_, count)| *count > 1);
    let (mut used_bytes, mut saved_bytes) = (0, 0);
    cloned
        .for_each(|(bytes, count)| (used_bytes, saved_bytes) = (used_bytes + bytes, saved_bytes + bytes * (count - 1)));
    let clones = view.clones().unwrap();
    assert_eq!(clones, Clones { used_bytes, saved_bytes });
    clones
}

fn import(device: Arc<dyn Device>) -> Arc<LivePool> {
    LivePool::import(&Env::real(), &candidate(&[device]).unwrap(), &options(), (7, "here".into())).unwrap()
}

fn file_systems(pool: &LivePool) -> Vec<Zpl> {
    let view = pool.view();
    let dirs = view.dsl().walk().unwrap();
    let is_set = |name: &&str| pool.head(view.dsl().find(name).unwrap().id).is_ok();
    let names: Vec<&str> = dirs.iter().map(|dir| dir.name.as_str()).filter(is_set).collect();
    let open = |name: &&str| {
        let id = view.dsl().find(name).unwrap().id;
        let head = pool.head(id).unwrap();
        Zpl::open_writable(head, pool.txgs().clone(), Env::real(), Default::default(), None).ok()
    };
    names.iter().filter_map(open).collect()
}

fn sync(pool: &LivePool) {
    (0..3).for_each(|_| pool.sync().unwrap());
}

#[test]
fn clone_tables_follow_what_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    corpus::case("cloned").extract(dir.path()).unwrap();
    let path = dir.path().join("vda.img");
    let pool = import(Arc::new(FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap()));
    let begin = check(&pool.view());
    assert!(begin.used_bytes > 0 && begin.saved_bytes > 0, "{begin:?}");
    // parts of files are written over, and cut off; one file after the other goes
    let (mut seen, mut number) = (std::collections::BTreeSet::new(), 0);
    for zpl in file_systems(&pool) {
        for (_, ino) in names_in(&zpl, zpl.root()) {
            let stat = zpl.stat(ino).unwrap();
            if stat.kind == FileKind::File && stat.size > 1000 {
                number += 1;
                let file = zpl.open_file(ino).unwrap();
                match number % 2 {
                    0 => drop(file.write(500, b"other bytes").unwrap()),
                    _ => file.allocate(zpl::Allocate::PunchHole, 0, stat.size / 2).unwrap(),
                }
                sync(&pool);
                seen.insert(check(&pool.view()).saved_bytes);
            }
        }
    }
    for zpl in file_systems(&pool) {
        empty(&zpl, zpl.root());
        sync(&pool);
        seen.insert(check(&pool.view()).saved_bytes);
    }
    assert!(seen.len() > 2, "{seen:?}");
    // the rest is in a snapshot
    drop(pool.destroy_snapshots(&["t_cloned/a@s".to_owned()], false).unwrap());
    for _ in 0..10 {
        sync(&pool);
        check(&pool.view());
    }
    assert_eq!(pool.view().clones().unwrap(), Clones::default());
    let directory = pool::object_directory(pool.view().mos()).unwrap().entries().unwrap();
    assert!(!directory.iter().any(|entry| entry.name.to_string().contains(":brt:")), "the tables are gone");
    pool.close(PoolState::Exported).unwrap();
}

/// Whenever the power is cut, the tables are what the pool has.
#[test]
fn a_power_cut_while_clones_are_freed() {
    let recording = Recording::new(vec![sparse("cloned")]);
    let pool = import(recording.devices()[0].clone());
    let begin = recording.len();
    let all = check(&pool.view());
    for zpl in file_systems(&pool) {
        for (name, ino) in names_in(&zpl, zpl.root()) {
            if zpl.stat(ino).unwrap().kind == FileKind::File {
                zpl.unlink(zpl.root(), &name).unwrap().into_iter().for_each(|ino| zpl.reclaim(ino).unwrap());
                pool.sync().unwrap();
            }
        }
    }
    let (end, mut rng) = (recording.len(), Rng::new(11));
    drop(pool);
    let mut left = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let at = begin + rng.below((end - begin) as u64) as usize;
        let device: Arc<dyn Device> = Arc::new(recording.cut(at, &mut rng, Loss::Some).remove(0));
        let found = candidate(std::slice::from_ref(&device)).unwrap();
        left.insert(check(&Pool::open(&Env::real(), &found, &options()).unwrap()).saved_bytes);
        let pool = import(device);
        file_systems(&pool).iter().for_each(|zpl| empty(zpl, zpl.root()));
        sync(&pool);
        check(&pool.view());
    }
    assert!(left.len() > 1 && left.iter().all(|saved| *saved <= all.saved_bytes), "{left:?}");
}

/// A pool whose writes are recorded, a file system of it, its file `first` of 20 blocks and its empty file `second`. Its
/// log has begun, as that takes a group.
fn recorded(properties: &[(&str, &str)]) -> (Arc<Recording>, Workload, Zpl, [ObjectId; 2]) {
    let recording = Recording::new(vec![SparseDevice::new("disk0", 64 << 20)]);
    let disks: Vec<Arc<dyn Device>> = recording.devices().into_iter().map(|disk| disk as Arc<dyn Device>).collect();
    let mut load = Workload::create(&Env::fixed(1000), PoolLayout::Single, &disks, 1).unwrap();
    let (zpl, first) = with_a_file(&mut load, properties);
    let second = create(&zpl, "second");
    zpl.sync().unwrap();
    (recording, load, zpl, [first, second])
}

/// A pool whose log tells of a file `second` that took all blocks of `first`, as a power cut leaves it.
fn with_a_logged_copy(properties: &[(&str, &str)]) -> SparseDevice {
    let (recording, load, zpl, [first, second]) = recorded(properties);
    let txgs = load.pool.txgs().clone();
    let before = txgs.synced_txg();
    assert_eq!(copy(&zpl, (first, 0), (second, 0), 20), 20 * BLOCK);
    // a hole, and what was taken is taken again
    zpl.open_file(second).unwrap().allocate(zpl::Allocate::PunchHole, 3 * BLOCK, BLOCK).unwrap();
    assert_eq!(copy(&zpl, (second, 0), (second, 20), 6), 6 * BLOCK);
    zpl.sync_object(second).unwrap();
    assert_eq!(txgs.synced_txg(), before, "no group was waited for");
    let device = recording.cut(recording.len(), &mut Rng::new(1), Loss::Everything).remove(0);
    // what has changed in memory is in no log before its group is on disk
    zpl.open_file(first).unwrap().write(0, &block(77)[..]).unwrap();
    assert_eq!(copy(&zpl, (first, 0), (second, 26), 1), BLOCK);
    device
}

fn is_the_copy(zpl: &Zpl) -> bool {
    let ino = |name: &str| names_in(zpl, zpl.root()).into_iter().find(|(n, _)| n == name.as_bytes()).unwrap().1;
    let mut expect: Vec<u8> = (0..20).chain(0..6).flat_map(block).collect();
    [3, 23].iter().for_each(|blkid| expect[blkid * BLOCK as usize..(blkid + 1) * BLOCK as usize].fill(0));
    holds(zpl, ino("second"), &expect) && has(zpl, ino("first"), 0..20)
}

/// Opens a file system with its log, and does again what that tells.
fn replay(pool: &LivePool) -> base::Result<Zpl> {
    replay_with(pool, BLOCK)
}

/// The same, with a `recordsize`.
fn replay_with(pool: &LivePool, record_bytes: u64) -> base::Result<Zpl> {
    let id = pool.view().dsl().find("live/a").unwrap().id;
    let options = ZplOptions { record_bytes, shares: Some(pool.root_holder()), ..ZplOptions::default() };
    let (head, log) = (pool.head(id)?, pool.log(id)?);
    let zpl = Zpl::open_writable(head, pool.txgs().clone(), Env::fixed(9000), options, Some(log))?;
    zpl.replay_log()?;
    Ok(zpl)
}

#[test]
fn a_log_that_tells_of_clones() {
    let left = with_a_logged_copy(&[]);
    let pool = import(Arc::new(left.copy()));
    // claimed, and with it what the log takes: 20 blocks, of which one is let go later, and 5 blocks and that hole
    let claimed = check(&pool.view()).saved_bytes;
    assert_eq!(claimed, 25 * BLOCK);
    // it is not counted twice
    pool.close(PoolState::Active).unwrap();
    drop(pool);
    let again = Arc::new(left.copy());
    let pool = import(again.clone());
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    let pool = import(again);
    assert_eq!(check(&pool.view()).saved_bytes, claimed);
    let zpl = replay(&pool).unwrap();
    assert!(is_the_copy(&zpl));
    sync(&pool);
    assert!(is_the_copy(&zpl));
    assert_eq!(check(&pool.view()).saved_bytes, 24 * BLOCK, "the log is gone, and the file has what is left");
    for name in ["first", "second"] {
        zpl.unlink(zpl.root(), name.as_bytes()).unwrap().into_iter().for_each(|ino| zpl.reclaim(ino).unwrap());
    }
    (0..5).for_each(|_| sync(&pool));
    assert_eq!(check(&pool.view()), Clones::default());
    // one that is never replayed
    let pool = import(Arc::new(left.copy()));
    assert!(check(&pool.view()).saved_bytes > 0);
    pool.destroy_dataset("live/a").unwrap();
    (0..10).for_each(|_| sync(&pool));
    assert_eq!(check(&pool.view()), Clones::default());
}

/// The table of dedup counts what a log takes of its blocks.
#[test]
fn a_log_that_tells_of_clones_of_deduplicated_blocks() {
    let left = with_a_logged_copy(&[("dedup", "on")]);
    // the file has 20, the log 25
    let again = Arc::new(left.copy());
    for _ in 0..2 {
        let pool = import(again.clone());
        assert_eq!(check_view(&pool.view()), 45);
        pool.close(PoolState::Exported).unwrap();
    }
    let pool = import(again);
    let zpl = replay(&pool).unwrap();
    sync(&pool);
    assert!(is_the_copy(&zpl));
    assert_eq!(check_view(&pool.view()), 44);
    for name in ["first", "second"] {
        zpl.unlink(zpl.root(), name.as_bytes()).unwrap().into_iter().for_each(|ino| zpl.reclaim(ino).unwrap());
    }
    (0..5).for_each(|_| sync(&pool));
    assert_eq!(check_view(&pool.view()), 0);
    // one that is never replayed
    let pool = import(Arc::new(left));
    pool.destroy_dataset("live/a").unwrap();
    (0..10).for_each(|_| sync(&pool));
    assert_eq!(check_view(&pool.view()), 0);
    assert_eq!(pool.view().clones().unwrap(), Clones::default());
}

#[test]
fn a_power_cut_while_clones_are_replayed() {
    let recording = Recording::new(vec![with_a_logged_copy(&[])]);
    let pool = import(recording.devices()[0].clone());
    let begin = recording.len();
    drop(replay(&pool).unwrap());
    sync(&pool);
    let (end, mut rng) = (recording.len(), Rng::new(12));
    drop(pool);
    for round in 0..20 {
        // the first ones before the log was claimed
        let at = if round < 3 { begin * round / 2 } else { begin + rng.below((end - begin) as u64 + 1) as usize };
        let pool = import(Arc::new(recording.cut(at, &mut rng, Loss::Some).remove(0)));
        check(&pool.view());
        let zpl = replay(&pool).unwrap();
        sync(&pool);
        assert!(is_the_copy(&zpl), "cut at {at} of {begin}..{end}");
        check(&pool.view());
    }
}

/// What is written before them gets larger blocks when it is replayed.
#[test]
fn a_log_of_clones_from_before_records_became_larger() {
    let (recording, load, zpl, [first, second]) = recorded(&[]);
    let before = load.pool.txgs().synced_txg();
    // not so many bytes that the log has whole blocks
    let old = [block(70), vec![7; 100]].concat();
    zpl.open_file(second).unwrap().write(0, &old[..]).unwrap();
    assert_eq!(copy(&zpl, (first, 5), (second, 0), 1), BLOCK);
    zpl.sync_object(second).unwrap();
    assert_eq!(load.pool.txgs().synced_txg(), before, "no group was waited for");
    let expect = [block(5), vec![7; 100]].concat();
    for record_bytes in [BLOCK, 8 * BLOCK, BLOCK / 4] {
        let left = recording.cut(recording.len(), &mut Rng::new(1), Loss::Everything).remove(0);
        let pool = import(Arc::new(left));
        let zpl = replay_with(&pool, record_bytes).unwrap();
        assert!(holds(&zpl, second, &expect), "records of {record_bytes}");
        (0..3).for_each(|_| sync(&pool));
        assert!(holds(&zpl, second, &expect) && has(&zpl, first, 0..20), "records of {record_bytes}");
        let shared = if record_bytes == BLOCK { BLOCK } else { 0 };
        assert_eq!(check(&pool.view()).saved_bytes, shared, "records of {record_bytes}");
    }
}

/// Records of clones that cannot be.
#[test]
fn a_log_that_tells_of_impossible_clones() {
    let (recording, load, zpl, [first, _]) = recorded(&[]);
    let pool = load.pool.clone();
    let (log, txgs) = (pool.log(pool.view().dsl().find("live/a").unwrap().id).unwrap(), pool.txgs().clone());
    let left_by = |blocks: Vec<BlkPtr>, block_size: u64| {
        let len = blocks.len() as u64 * block_size;
        let clone = Intent::Clone { object: first, offset: 0, len, block_size, blocks };
        let body = ItxBody::Record { kind: clone.kind(), bytes: clone.bytes() };
        log.push(&txgs.begin().unwrap(), Itx { scope: Scope::Names, body });
        zpl.sync().unwrap();
        recording.cut(recording.len(), &mut Rng::new(1), Loss::Everything).remove(0)
    };
    // of another size than the file's: claimed, but not done
    let CloneSource::Block(source) = zpl.objset().object(first).unwrap().clone_source(0).unwrap() else { panic!() };
    let live = import(Arc::new(left_by(vec![source; 2], BLOCK / 2)));
    check(&live.view());
    let error = replay(&live).err().expect("it was replayed");
    assert!(error.to_string().contains("of type 24 cannot be replayed"), "{error}");
    // no data
    let left: Arc<dyn Device> = Arc::new(left_by(vec![pool.view().uberblock().rootbp], BLOCK));
    let found = candidate(&[left]).unwrap();
    let error = LivePool::import(&Env::real(), &found, &options(), (7, "here".into())).err().expect("it was imported");
    assert_eq!(error.kind(), base::Kind::ReadOnly, "{error}");
    assert!(error.to_string().contains("clones of"), "{error}");
}

/// Contents of block `tag`, which no other tag has.
fn block(tag: u64) -> Vec<u8> {
    let mut rng = Rng::new(tag);
    (0..BLOCK / 8).flat_map(|_| rng.number().to_le_bytes()).collect()
}

const BLOCK: u64 = 16 << 10;

/// A file system whose copies share blocks, and one file of 20 blocks.
fn with_a_file(load: &mut Workload, properties: &[(&str, &str)]) -> (Zpl, ObjectId) {
    load.create_fs("live/a", properties).unwrap();
    let pool = load.pool.clone();
    let id = pool.view().dsl().find("live/a").unwrap().id;
    let options = ZplOptions { record_bytes: BLOCK, shares: Some(pool.root_holder()), ..ZplOptions::default() };
    let (head, log) = (pool.head(id).unwrap(), pool.log(id).unwrap());
    let zpl = Zpl::open_writable(head, pool.txgs().clone(), Env::fixed(5000), options, Some(log)).unwrap();
    let ino = create(&zpl, "first");
    let bytes: Vec<u8> = (0..20).flat_map(block).collect();
    zpl.open_file(ino).unwrap().write(0, &bytes[..]).unwrap();
    pool.sync().unwrap();
    (zpl, ino)
}

fn create(zpl: &Zpl, name: &str) -> ObjectId {
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
    zpl.create(zpl.root(), name.as_bytes(), &new).unwrap().ino
}

/// Copies blocks; what was copied.
fn copy(zpl: &Zpl, from: (ObjectId, u64), to: (ObjectId, u64), blocks: u64) -> u64 {
    let (source, target) = (zpl.open_file(from.0).unwrap(), zpl.open_file(to.0).unwrap());
    target.copy_from(to.1 * BLOCK, &source, from.1 * BLOCK, blocks * BLOCK).unwrap()
}

fn has(zpl: &Zpl, ino: ObjectId, tags: impl IntoIterator<Item = u64>) -> bool {
    holds(zpl, ino, &tags.into_iter().flat_map(block).collect::<Vec<u8>>())
}

/// Whether a file has these contents.
fn holds(zpl: &Zpl, ino: ObjectId, expect: &[u8]) -> bool {
    let mut found = vec![0; expect.len() + 1];
    let len = zpl.open_file(ino).unwrap().read(0, &mut found).unwrap();
    found[..len] == *expect
}

fn disks(layout: PoolLayout) -> Vec<Arc<dyn Device>> {
    let disk = |number| Arc::new(SparseDevice::new(format!("disk{number}"), 64 << 20)) as Arc<dyn Device>;
    (0..layout.devices()).map(disk).collect()
}

#[test]
fn copies_share_blocks() {
    for layout in [PoolLayout::Single, PoolLayout::Mirror, PoolLayout::Raidz1, PoolLayout::Special] {
        let mut load = Workload::create(&Env::fixed(1000), layout, &disks(layout), 1).unwrap();
        let (zpl, first) = with_a_file(&mut load, &[]);
        let pool = load.pool.clone();
        let shared = || check(&pool.view()).saved_bytes;
        assert_eq!(shared(), 0);
        // all of it, read before and after it is on disk
        let second = create(&zpl, "second");
        assert_eq!(copy(&zpl, (first, 0), (second, 0), 99), 20 * BLOCK);
        assert!(has(&zpl, second, 0..20));
        sync(&pool);
        assert!(has(&zpl, second, 0..20));
        let one_copy = shared();
        assert!(one_copy > 19 * BLOCK, "{layout:?}: {one_copy}");
        // copies of copies, within a file, in one group, and what is written over at once
        let third = create(&zpl, "third");
        assert_eq!(copy(&zpl, (second, 5), (third, 0), 4), 4 * BLOCK);
        assert_eq!(copy(&zpl, (third, 1), (third, 4), 2), 2 * BLOCK);
        assert_eq!(copy(&zpl, (first, 0), (third, 1), 1), BLOCK);
        zpl.open_file(third).unwrap().write(2 * BLOCK + 7, b"x").unwrap();
        zpl.open_file(first).unwrap().write(0, &block(99)[..]).unwrap();
        assert!(has(&zpl, first, [99].into_iter().chain(1..20)));
        sync(&pool);
        shared();
        let mut expect: Vec<u8> = [5, 0, 7, 8, 6, 7].into_iter().flat_map(block).collect();
        expect[2 * BLOCK as usize + 7] = b'x';
        let mut found = vec![0; expect.len()];
        zpl.open_file(third).unwrap().read(0, &mut found).unwrap();
        assert!(found == expect, "{layout:?}");
        // what is changed in memory, and little, is copied; what does not fit, too
        zpl.open_file(third).unwrap().write(0, &block(50)[..]).unwrap();
        let before = shared();
        assert_eq!(copy(&zpl, (third, 0), (second, 0), 1), BLOCK);
        let source = zpl.open_file(first).unwrap();
        assert_eq!(zpl.open_file(second).unwrap().copy_from(3, &source, 0, 100).unwrap(), 100);
        sync(&pool);
        assert!(shared() < before, "{layout:?}: blocks were written over");
        // a snapshot has what is freed
        assert!(pool.snapshot(&["live/a@s".to_owned()], &[]).unwrap().is_empty());
        for name in ["first", "second", "third"] {
            zpl.unlink(zpl.root(), name.as_bytes()).unwrap().into_iter().for_each(|ino| zpl.reclaim(ino).unwrap());
            sync(&pool);
            assert!(shared() > 0);
        }
        assert!(pool.destroy_snapshots(&["live/a@s".to_owned()], false).unwrap().is_empty());
        (0..10).for_each(|_| pool.sync().unwrap());
        assert_eq!(shared(), 0);
        let directory = pool::object_directory(pool.view().mos()).unwrap().entries().unwrap();
        assert!(!directory.iter().any(|entry| entry.name.to_string().contains(":brt:")), "the tables are gone");
    }
}

/// A group that takes a block and frees it: it is not free while the other file has it.
#[test]
fn what_is_taken_and_freed_in_one_group() {
    let mut load = Workload::create(&Env::fixed(1000), PoolLayout::Single, &disks(PoolLayout::Single), 1).unwrap();
    let (zpl, first) = with_a_file(&mut load, &[]);
    let pool = load.pool.clone();
    let second = create(&zpl, "second");
    copy(&zpl, (first, 0), (second, 0), 20);
    zpl.unlink(zpl.root(), b"first").unwrap().into_iter().for_each(|ino| zpl.reclaim(ino).unwrap());
    sync(&pool);
    assert_eq!(check(&pool.view()).saved_bytes, 0);
    assert!(has(&zpl, second, 0..20));
    // and the other way round: nothing is left of the copy
    let third = create(&zpl, "third");
    copy(&zpl, (second, 0), (third, 0), 20);
    zpl.unlink(zpl.root(), b"third").unwrap().into_iter().for_each(|ino| zpl.reclaim(ino).unwrap());
    sync(&pool);
    assert_eq!(check(&pool.view()).saved_bytes, 0);
    assert!(has(&zpl, second, 0..20));
}

/// The random histories of other tests share blocks, too.
#[test]
fn histories_share_blocks() {
    let mut load = Workload::create(&Env::fixed(1000), PoolLayout::Mirror, &disks(PoolLayout::Mirror), 3).unwrap();
    load.create_fs("live/files", &[]).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60 {
        (0..10).for_each(|_| load.step().unwrap());
        load.sync().unwrap();
        seen.insert(check(&load.pool.view()).saved_bytes);
    }
    assert!(seen.len() > 2, "{seen:?}");
}
