//! Faults that are asked for: what goes wrong, and that nothing does afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Env, Kind};
use device::ALWAYS;
use format::ids::{DatasetId, ObjectId};
use pool::inject::{InjectedEffect, InjectedRequests, Injection, InjectionTarget};
use pool::{LivePool, NewVdevShape, PoolState};
use vdev::{LabelRegion, VdevState};

use crate::heal::{contents, file_of, import_disks, import_with, make, open, read, sums};
use crate::live::judge;

fn on_file(pool: &LivePool, blocks: (u64, u64), copies: u8, effect: InjectedEffect) -> Injection {
    let objset = pool.view().dsl().find("live").unwrap().id;
    let object = file_of(&open(pool)).object().id();
    let target = InjectionTarget::Blocks { objset, object, level: 0, blocks, copies };
    Injection { target, effect, requests: InjectedRequests::Reads, per_million: ALWAYS }
}

/// No copy and no parity makes up for blocks that are to be wrong, whatever holds them; other blocks are right.
#[test]
fn blocks_go_wrong_wherever_they_are() {
    let shapes = [
        (NewVdevShape::Single, 1),
        (NewVdevShape::Mirror, 3),
        (NewVdevShape::Raidz(1), 4),
        (NewVdevShape::Raidz(2), 5),
        (NewVdevShape::Raidz(3), 6),
    ];
    for (shape, leaves) in shapes {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), shape, leaves, "1", &[]);
        let pool = import_disks(dir.path(), leaves);
        let zpl = open(&pool);
        assert!(read(&zpl).unwrap() == contents());
        for (effect, kind) in [(InjectedEffect::Checksum, Kind::Checksum), (InjectedEffect::Io, Kind::Io)] {
            let active = pool.inject(on_file(&pool, (2, 3), u8::MAX, effect)).unwrap();
            assert!(read(&zpl).unwrap() == contents(), "{shape:?}: what is in memory is right");
            pool.forget_cached().unwrap();
            assert_eq!(read(&zpl).unwrap_err().kind(), kind, "{shape:?}");
            let block = contents().len() as u64 / 24;
            let mut got = vec![0; 2 * block as usize];
            file_of(&zpl).read(0, &mut got).unwrap();
            assert!(got == contents()[..got.len()], "{shape:?}: two blocks before are right");
            let [matched, injected] = active.counts();
            assert!(matched == injected && injected > 0);
            active.end(pool.tree());
            assert!(read(&zpl).unwrap() == contents(), "{shape:?}: all is right again");
        }
        let (errors, healed) = sums(&pool);
        assert!(errors > 0 && healed == 0, "{shape:?}: {errors} errors, {healed} bytes mended");
        drop(zpl);
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        judge(dir.path());
    }
}

#[test]
fn one_copy_of_two_goes_wrong() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Single, 1, "2", &[]);
    let pool = import_disks(dir.path(), 1);
    let zpl = open(&pool);
    let first = pool.inject(on_file(&pool, (0, u64::MAX), 0b01, InjectedEffect::Checksum)).unwrap();
    pool.forget_cached().unwrap();
    assert!(read(&zpl).unwrap() == contents());
    assert!(first.counts()[1] > 0);
    let second = pool.inject(on_file(&pool, (0, u64::MAX), 0b10, InjectedEffect::Checksum)).unwrap();
    pool.forget_cached().unwrap();
    assert_eq!(read(&zpl).unwrap_err().kind(), Kind::Checksum);
    [first, second].iter().for_each(|fault| fault.end(pool.tree()));
    let none = on_file(&pool, (5000, 6000), u8::MAX, InjectedEffect::Io);
    assert_eq!(pool.inject(none).unwrap_err().kind(), Kind::NotFound);
    let mut mos = on_file(&pool, (0, 0), u8::MAX, InjectedEffect::Io);
    if let InjectionTarget::Blocks { objset, object, .. } = &mut mos.target {
        (*objset, *object) = (DatasetId::MOS, ObjectId::new(99_999));
    }
    assert_eq!(pool.inject(mos).unwrap_err().kind(), Kind::NotFound);
}

/// A side whose requests fail is left out, and has everything again afterwards; labels only fail where they are asked to.
#[test]
fn devices_go_wrong() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let pool = import_disks(dir.path(), 2);
    let guid = pool.tree().leaves().nth(1).unwrap().guid();
    let leaf = || pool.tree().leaf(guid).unwrap();
    let fault = |label, effect, requests| {
        let target = InjectionTarget::Leaf { guid, label };
        pool.inject(Injection { target, effect, requests, per_million: ALWAYS }).unwrap()
    };
    let zpl = open(&pool);
    let labels = fault(Some(LabelRegion::Uberblocks), InjectedEffect::Io, InjectedRequests::Writes);
    file_of(&zpl).write(0, &contents()).unwrap();
    pool.sync().unwrap();
    assert!(labels.counts()[1] > 0, "uberblocks were written");
    labels.end(pool.tree());
    let before = leaf().stats().errors()[1];
    let data = fault(None, InjectedEffect::Io, InjectedRequests::Writes);
    file_of(&zpl).write(0, &contents()).unwrap();
    pool.sync().unwrap();
    assert!(data.counts()[1] > 0 && leaf().stats().errors()[1] > before);
    data.end(pool.tree());
    pool.set_errors_exceeded(guid, true).unwrap();
    assert_eq!(leaf().state().health().state, VdevState::Faulted);
    let gone = fault(None, InjectedEffect::Gone, InjectedRequests::All);
    let no_new = &|_: &str| Err(base::Error::new(Kind::NotFound, "there is no other"));
    assert_ne!(pool.online(guid, false, no_new).unwrap().state, VdevState::Healthy, "it cannot be opened");
    gone.end(pool.tree());
    assert_eq!(pool.online(guid, false, no_new).unwrap().state, VdevState::Healthy);
    while pool.tree().leaves().any(|leaf| !leaf.state().dtl().is_empty()) {
        pool.sync().unwrap();
    }
    drop(zpl);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge(dir.path());
    // it has everything: the other one can go
    let alone = crate::heal::import_paths([dir.path().join("disk1")].into_iter());
    assert!(read(&open(&alone)).unwrap() == contents());
}

/// A device that does not answer is told while it does not.
#[test]
fn what_hangs_is_told() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Single, 1, "1", &[]);
    let env = Env::real().with_tunables(|name| (name == "zfs_deadman_ziotime_ms").then_some(20));
    let pool = import_with(&env, dir.path(), 1);
    let guid = pool.tree().leaves().next().unwrap().guid();
    let target = InjectionTarget::Leaf { guid, label: None };
    let effect = InjectedEffect::Slow { ms: 200, lanes: 1 };
    let requests = InjectedRequests::Reads;
    let slow = pool.inject(Injection { target, effect, requests, per_million: ALWAYS }).unwrap();
    assert_eq!(pool.tell_of_hangs(), 0);
    let zpl = open(&pool);
    let is_read = AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(read(&zpl).unwrap() == contents());
            is_read.store(true, Ordering::Relaxed);
        });
        let mut told = 0;
        while !is_read.load(Ordering::Relaxed) {
            told += pool.tell_of_hangs();
            std::thread::sleep(Duration::from_millis(5));
        }
        told
    });
    slow.end(pool.tree());
    assert!(told > 0);
    assert_eq!(pool.tell_of_hangs(), 0);
    let events = pool.events().since(0, Duration::ZERO).events;
    let of_deadman = events.iter().filter(|event| event.opt_str("class") == Some("ereport.fs.zfs.deadman"));
    let about: Vec<_> = of_deadman.map(|event| event.opt_u64("vdev_guid")).collect();
    assert!(!about.is_empty() && about.iter().all(|leaf| *leaf == Some(guid.get())), "{about:?}");
    drop(zpl);
    pool.close(PoolState::Exported).unwrap();
}
