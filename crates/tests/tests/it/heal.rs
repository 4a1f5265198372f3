//! Damaged blocks are mended from what is right elsewhere; what is right nowhere is in the error log.

use std::collections::HashMap;
use std::fs::OpenOptions as FileOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Bookmark, Env};
use device::{Device, FileDevice, OpenMode};
use dmu::traverse::Visit;
use dsl::receive::StreamReader;
use dsl::send::SendFlags;
use format::blkptr::BlkPtr;
use format::ids::{DatasetId, ObjectId};
use pool::check::{BlockKind, CheckOptions, Observer, Verify};
use pool::{DamagedObject, HealedSnapshot, LivePool, NewVdevShape, Pool, PoolState};
use testkit::corpus;
use testkit::workload::{candidate, options};
use zpl::{File, New, NewKind, Zpl};

use crate::live::{is_newer_judge, judge, make_fs, new_pool, reopen};

/// Bytes of a device in front of what addresses count from, and behind.
pub(crate) const FRONT: u64 = 4 << 20;
pub(crate) const BACK: u64 = 512 << 10;
pub(crate) const DEVICE_BYTES: u64 = 256 << 20;
pub(crate) const FILE_BYTES: usize = 3 << 20;

pub(crate) fn contents() -> Vec<u8> {
    let mut x = 77u64;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as u8
    };
    (0..FILE_BYTES).map(|_| next()).collect()
}

/// A pool with a file, exported.
pub(crate) fn make(dir: &Path, shape: NewVdevShape, leaves: usize, copies: &str, features: &[&str]) {
    let (mut new, devices) = new_pool(dir, shape, leaves);
    new.fs_properties = vec![("copies".into(), copies.into())];
    new.features.extend(features.iter().map(|guid| (*guid).to_owned()));
    let pool = LivePool::create(&Env::real(), &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
    let zpl = open(&pool);
    let new_file = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let ino = zpl.create(zpl.root(), b"file", &new_file).unwrap().ino;
    zpl.open_file(ino).unwrap().write(0, &contents()).unwrap();
    pool.close(PoolState::Exported).unwrap();
}

pub(crate) fn import_paths(paths: impl Iterator<Item = PathBuf>) -> Arc<LivePool> {
    import_in(&Env::real(), paths)
}

fn import_in(env: &Env, paths: impl Iterator<Item = PathBuf>) -> Arc<LivePool> {
    let open = |path: PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap())
    };
    let devices: Vec<Arc<dyn Device>> = paths.map(open).collect();
    LivePool::import(env, &candidate(&devices).unwrap(), &options(), (7, "here".into())).unwrap()
}

pub(crate) fn import_disks(dir: &Path, leaves: usize) -> Arc<LivePool> {
    import_paths((0..leaves).map(|i| dir.join(format!("disk{i}"))))
}

pub(crate) fn import_with(env: &Env, dir: &Path, leaves: usize) -> Arc<LivePool> {
    import_in(env, (0..leaves).map(|i| dir.join(format!("disk{i}"))))
}

pub(crate) fn open(pool: &LivePool) -> Zpl {
    let id = pool.view().dsl().find("live").unwrap().id;
    Zpl::open_writable(pool.head(id).unwrap(), pool.txgs().clone(), Env::real(), Default::default(), None).unwrap()
}

pub(crate) fn file_of(zpl: &Zpl) -> File {
    zpl.open_file(zpl.resolve(b"/file").unwrap()).unwrap()
}

pub(crate) fn read(zpl: &Zpl) -> base::Result<Vec<u8>> {
    let mut got = vec![0; FILE_BYTES];
    file_of(zpl).read(0, &mut got).map(|_| got)
}

pub(crate) fn spoil(path: &Path, at: u64, len: usize) {
    let file = FileOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&vec![0xa5; len], at).unwrap();
}

/// Checksum errors of all leaves, and bytes that were mended.
pub(crate) fn sums(pool: &LivePool) -> (u64, u64) {
    let leaves = pool.tree().iter().filter(|vdev| vdev.is_leaf()).map(|leaf| leaf.stats());
    leaves.fold((0, 0), |(errors, healed), stats| {
        let count = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        (errors + count(&stats.checksum_errors), healed + count(&stats.healed_bytes))
    })
}

#[test]
fn what_was_read_in_another_way_is_mended() {
    for (shape, leaves) in [(NewVdevShape::Mirror, 2), (NewVdevShape::Raidz(1), 3), (NewVdevShape::Raidz(2), 5)] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), shape, leaves, "1", &[]);
        // all that the pool has on a device, but its labels
        spoil(&dir.path().join("disk0"), FRONT, (DEVICE_BYTES - FRONT - BACK) as usize);
        let pool = import_disks(dir.path(), leaves);
        let zpl = open(&pool);
        assert!(read(&zpl).unwrap() == contents());
        drop(zpl);
        pool.close(PoolState::Exported).unwrap();
        let (errors, healed) = sums(&pool);
        assert!(errors > 5 && healed > FILE_BYTES as u64 / 8, "{shape:?}: {errors} errors, {healed} bytes mended");
        drop(pool);
        let pool = import_disks(dir.path(), leaves);
        let zpl = open(&pool);
        assert!(read(&zpl).unwrap() == contents());
        assert_eq!(sums(&pool), (0, 0), "{shape:?}: nothing is left to be mended");
        assert_eq!(pool.view().error_count().unwrap(), 0);
        pool.close(PoolState::Exported).unwrap();
        drop((zpl, pool));
        judge(dir.path());
        // what was mended is right: the others can go
        let alone = import_disks(dir.path(), leaves);
        assert!(read(&open(&alone)).unwrap() == contents());
    }
}

#[test]
fn one_copy_is_mended_from_another() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Single, 1, "2", &[]);
    let pool = import_disks(dir.path(), 1);
    let bp = file_of(&open(&pool)).object().data_pointer(3).unwrap();
    assert_eq!(bp.copies().count(), 2);
    let disk = dir.path().join("disk0");
    spoil(&disk, FRONT + bp.dvas()[0].offset(), 4096);
    assert!(read(&open(&pool)).unwrap() == contents());
    pool.sync().unwrap();
    assert_eq!(sums(&pool), (1, bp.psize()));
    // now the other one can go
    spoil(&disk, FRONT + bp.dvas()[1].offset(), 4096);
    pool.close(PoolState::Exported).unwrap();
    let pool = import_disks(dir.path(), 1);
    assert!(read(&open(&pool)).unwrap() == contents());
    assert_eq!(sums(&pool), (0, 0));
}

/// The gang blocks of file systems that a walk finds.
#[derive(Default)]
struct Gangs(HashMap<Bookmark, BlkPtr>);

impl Observer for Gangs {
    fn block(&mut self, visit: &Visit<'_>, _kind: BlockKind) {
        let is_data = visit.bookmark.objset != 0 && visit.bookmark.object != 0 && visit.bookmark.level == 0;
        if is_data && visit.bp.is_gang() && visit.bp.copies().count() > 1 {
            self.0.insert(visit.bookmark, *visit.bp);
        }
    }
}

#[test]
fn the_header_of_a_gang_block_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let paths = corpus::case("gang").extract(dir.path()).unwrap();
    let pool = import_paths(paths.iter().cloned());
    let mut gangs = Gangs::default();
    pool.view().check(CheckOptions { verify: Verify::Nothing, space: false }, &mut gangs).unwrap();
    let (place, bp) = gangs.0.into_iter().next().expect("gang blocks have several headers");
    let dva = bp.dvas()[0];
    spoil(&paths[dva.vdev().index()], FRONT + dva.offset(), 512);
    let dataset = pool.view().dsl().dataset(DatasetId::new(place.objset), "any").unwrap();
    let read = |pool: &LivePool| {
        let set = pool.view().dsl().objset(&dataset, dmu::Mode::Plain).unwrap();
        set.object(ObjectId::new(place.object)).unwrap().block(place.blkid).unwrap();
    };
    read(&pool);
    pool.sync().unwrap();
    let (errors, healed) = sums(&pool);
    assert!(errors == 1 && healed >= 512, "{errors} errors, {healed} bytes mended");
    pool.close(PoolState::Exported).unwrap();
    let pool = import_paths(paths.into_iter());
    read(&pool);
    assert_eq!(sums(&pool), (0, 0));
}

#[test]
fn what_is_lost_is_in_the_error_log() {
    for features in [&[][..], &["com.delphix:head_errlog"]] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), NewVdevShape::Mirror, 2, "1", features);
        let pool = import_disks(dir.path(), 2);
        let file = file_of(&open(&pool));
        let (bp, ino) = (file.object().data_pointer(3).unwrap(), file.object().id());
        for disk in ["disk0", "disk1"] {
            spoil(&dir.path().join(disk), FRONT + bp.dvas()[0].offset(), 4096);
        }
        assert!(read(&open(&pool)).is_err());
        let dataset = pool.view().dsl().find("live").unwrap().id;
        let expect = [DamagedObject { dataset, object: ino }];
        // at once, in the next group, and from then on
        let is_told = |view: &Pool| {
            assert_eq!(view.error_count().unwrap(), 1, "{features:?}");
            assert_eq!(view.damaged_objects().unwrap(), expect, "{features:?}");
        };
        is_told(&pool.view());
        pool.sync().unwrap();
        is_told(&pool.view());
        assert!(read(&open(&pool)).is_err());
        pool.close(PoolState::Exported).unwrap();
        drop((file, pool));
        is_told(&reopen(dir.path()));
        // a pool that is open for reading remembers what it has seen
        spoil(&dir.path().join("disk0"), FRONT + bp.dvas()[0].offset() + bp.psize(), 4096);
        spoil(&dir.path().join("disk1"), FRONT + bp.dvas()[0].offset() + bp.psize(), 4096);
        let pool = reopen(dir.path());
        let found = pool.dsl().find("live").unwrap();
        let zpl = Zpl::open(pool.dsl().objset(&found, dmu::Mode::Plain).unwrap()).unwrap();
        let mut block = vec![0; 128 << 10];
        let file = zpl.open_file(ino).unwrap();
        let failed = (0..FILE_BYTES as u64).step_by(block.len()).filter(|&at| file.read(at, &mut block).is_err());
        assert_eq!(failed.count(), 2);
        assert_eq!(pool.error_count().unwrap(), 2);
        assert_eq!(pool.damaged_objects().unwrap(), expect);
    }
}

/// Heals the snapshot with a stream. Errors: as of [`LivePool::heal_snapshot`].
fn heal_from(pool: &LivePool, name: &str, stream: &[u8]) -> base::Result<HealedSnapshot> {
    let mut from = stream;
    let mut reader = StreamReader::new(&mut from);
    let (_, to_guid, _) = reader.begin()?.expect("a stream begins");
    pool.heal_snapshot(name, to_guid, &mut reader)
}

#[test]
fn a_snapshot_is_healed_from_its_stream() {
    let packed = SendFlags { compressed: true, ..SendFlags::default() };
    for (shape, leaves, features, flags) in [
        (NewVdevShape::Single, 1, &[][..], SendFlags::default()),
        (NewVdevShape::Mirror, 2, &["com.delphix:head_errlog"][..], packed),
        (NewVdevShape::Raidz(1), 3, &[][..], packed),
    ] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), shape, leaves, "1", features);
        let pool = import_disks(dir.path(), leaves);
        pool.snapshot(&["live@one".to_owned()], &[]).unwrap();
        let stream = testkit::streams::send(&pool, "live@one", None, flags).unwrap();
        let other = {
            let zpl = open(&pool);
            file_of(&zpl).write(3 * (128 << 10), &vec![7; 1 << 20]).unwrap();
            drop(zpl);
            pool.snapshot(&["live@two".to_owned()], &[]).unwrap();
            testkit::streams::send(&pool, "live@two", None, flags).unwrap()
        };
        let snapshot = pool.view().dsl().find("live@one").unwrap();
        let block = |blkid| {
            let zpl = Zpl::open(pool.view().dsl().objset(&snapshot, dmu::Mode::Plain).unwrap()).unwrap();
            file_of(&zpl).object().data_pointer(blkid).unwrap()
        };
        let damaged = [block(3), block(4), block(20)];
        // nothing is damaged yet
        assert_eq!(heal_from(&pool, "live@one", &stream).unwrap(), HealedSnapshot::default());
        pool.close(PoolState::Exported).unwrap();
        for (bp, disk) in damaged.iter().flat_map(|bp| (0..leaves).map(move |disk| (bp, disk))) {
            // of raidz, each column; what is beside belongs to no block that is looked at
            let (at, len) = match shape {
                NewVdevShape::Raidz(_) => (bp.dvas()[0].offset() / leaves as u64 / 4096 * 4096 + 4096, 16 << 10),
                _ => (bp.dvas()[0].offset(), 4096),
            };
            spoil(&dir.path().join(format!("disk{disk}")), FRONT + at, len);
        }
        let pool = import_disks(dir.path(), leaves);
        // a stream of another snapshot heals nothing, and neither does one whose guid lies
        assert!(heal_from(&pool, "live@one", &other).is_err());
        let guid = |stream: &[u8]| StreamReader::new(&mut &*stream).begin().unwrap().unwrap().1;
        let mut lies = other.clone();
        let (own, wanted) = (guid(&other).get().to_le_bytes(), guid(&stream).get().to_le_bytes());
        let at = lies[..312].windows(8).position(|bytes| bytes == own).expect("the guid is in BEGIN");
        lies[at..at + 8].copy_from_slice(&wanted);
        assert!(heal_from(&pool, "live@one", &lies).is_err(), "its sums are wrong then");
        // what is found damaged is in the log, and in no log when it is mended
        let found = |pool: &LivePool| {
            let zpl = Zpl::open(pool.view().dsl().objset(&snapshot, dmu::Mode::Plain).unwrap()).unwrap();
            read(&zpl)
        };
        assert!(found(&pool).is_err());
        pool.sync().unwrap();
        assert!(pool.view().error_count().unwrap() > 0, "{shape:?}");
        let healed = heal_from(&pool, "live@one", &stream).unwrap();
        assert!(healed.healed >= 3 && healed.left == 0, "{shape:?}: {healed:?}");
        assert_eq!(pool.view().error_count().unwrap(), 0, "{shape:?}");
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        if features.is_empty() || is_newer_judge() {
            judge(dir.path());
        }
        let pool = import_disks(dir.path(), leaves);
        assert!(found(&pool).unwrap() == contents());
        assert_eq!((sums(&pool), pool.view().error_count().unwrap()), ((0, 0), 0), "{shape:?}: all sides are right");
    }
}

/// A file of which no copy of a block of pointers is right can be neither written to nor freed. The pool goes on.
#[test]
fn a_file_that_cannot_be_freed_suspends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let pool = import_disks(dir.path(), 2);
    let zpl = open(&pool);
    let ino = zpl.resolve(b"/file").unwrap();
    let bp = zpl.objset().object(ino).unwrap().pointer_on_disk(1, 0).unwrap();
    pool.close(PoolState::Exported).unwrap();
    drop((zpl, pool));
    for disk in ["disk0", "disk1"] {
        bp.copies().for_each(|dva| spoil(&dir.path().join(disk), FRONT + dva.offset(), 512));
    }

    let pool = import_disks(dir.path(), 2);
    let zpl = open(&pool);
    let is_lost = |result: base::Result<()>| assert_eq!(result.unwrap_err().kind(), base::Kind::Checksum);
    for at in [0, 128 << 10, FILE_BYTES as u64] {
        is_lost(file_of(&zpl).write(at, &[7; 128 << 10]).map(drop));
    }
    pool.sync().unwrap();
    assert_eq!(zpl.unlink(zpl.root(), b"file").unwrap(), Some(ino));
    is_lost(zpl.reclaim(ino));
    pool.sync().unwrap();
    pool.close(PoolState::Exported).unwrap();
    drop((zpl, pool));

    let pool = import_disks(dir.path(), 2);
    let zpl = open(&pool);
    assert_eq!(zpl.clean_unlinked().unwrap(), 1, "it waits for a better day");
    let new_file = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let other = zpl.create(zpl.root(), b"other", &new_file).unwrap().ino;
    zpl.open_file(other).unwrap().write(0, &contents()).unwrap();
    pool.sync().unwrap();
    assert!(pool.suspended().is_none());
    pool.close(PoolState::Exported).unwrap();
}
