//! Copies between file systems of a pool, and out of snapshots, share blocks.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use base::Env;
use format::ids::ObjectId;
use pool::LivePool;
use testkit::rng::Rng;
use testkit::workload::{PoolLayout, Workload};
use zpl::{Zpl, ZplOptions};

use super::{BLOCK, block, check, create, disks, has, holds, sync, with_a_file};

/// A file system whose copies share blocks, beside others.
fn open_fs(pool: &Arc<LivePool>, name: &str) -> Zpl {
    let id = pool.view().dsl().find(name).unwrap().id;
    let options = ZplOptions { record_bytes: BLOCK, shares: Some(pool.root_holder()), ..ZplOptions::default() };
    let (head, log) = (pool.head(id).unwrap(), pool.log(id).unwrap());
    Zpl::open_writable(head, pool.txgs().clone(), Env::fixed(5000), options, Some(log)).unwrap()
}

fn open_snapshot(pool: &LivePool, name: &str) -> base::Result<Zpl> {
    let view = pool.view();
    Zpl::open(view.dsl().objset(&view.dsl().find(name)?, dmu::Mode::Plain)?)
}

/// Copies blocks of a file to the same place of another file system's; what was copied.
fn copy_to(from: (&Zpl, ObjectId), to: (&Zpl, ObjectId), blocks: Range<u64>) -> base::Result<u64> {
    let (source, target) = (from.0.open_file(from.1)?, to.0.open_file(to.1)?);
    target.copy_from(blocks.start * BLOCK, &source, blocks.start * BLOCK, (blocks.end - blocks.start) * BLOCK)
}

fn snapshot(pool: &LivePool, name: &str) {
    assert!(pool.snapshot(&[name.to_owned()], &[]).unwrap().is_empty());
}

#[test]
fn file_systems_and_snapshots_share_blocks() {
    for layout in [PoolLayout::Single, PoolLayout::Mirror, PoolLayout::Special] {
        let mut load = Workload::create(&Env::fixed(1000), layout, &disks(layout), 1).unwrap();
        let (zpl, first) = with_a_file(&mut load, &[("checksum", "skein"), ("compression", "zstd")]);
        load.create_fs("live/b", &[]).unwrap();
        let pool = load.pool.clone();
        let other = open_fs(&pool, "live/b");
        let shared = || check(&pool.view()).saved_bytes;
        let uses = |name: &str, feature: &str| {
            let view = pool.view();
            view.dsl().dataset_field(&view.dsl().find(name).unwrap(), feature).unwrap().is_some()
        };
        assert!(uses("live/a", "org.illumos:skein") && !uses("live/b", "org.illumos:skein"));
        let second = create(&other, "second");
        assert_eq!(copy_to((&zpl, first), (&other, second), 0..99).unwrap(), 20 * BLOCK);
        assert!(has(&other, second, 0..20));
        sync(&pool);
        let whole = shared();
        assert!(whole > 19 * BLOCK, "{layout:?}: {whole}");
        assert!(uses("live/b", "org.illumos:skein"), "a file system has the features that its blocks need");
        // a snapshot has what was written over since
        snapshot(&pool, "live/a@s");
        zpl.open_file(first).unwrap().write(0, &block(99)[..]).unwrap();
        let before = open_snapshot(&pool, "live/a@s").unwrap();
        let third = create(&other, "third");
        assert_eq!(copy_to((&before, first), (&other, third), 0..20).unwrap(), 20 * BLOCK);
        sync(&pool);
        assert!(shared() > whole + 19 * BLOCK);
        // a file system has what its own snapshots have
        let back = create(&zpl, "back");
        assert_eq!(copy_to((&before, first), (&zpl, back), 0..20).unwrap(), 20 * BLOCK);
        sync(&pool);
        assert!(shared() > whole + 38 * BLOCK);
        // what was taken stays, whatever goes
        drop((before, zpl));
        assert!(pool.destroy_snapshots(&["live/a@s".to_owned()], false).unwrap().is_empty());
        load.close("live/a").unwrap();
        pool.destroy_dataset("live/a").unwrap();
        (0..10).for_each(|_| pool.sync().unwrap());
        assert!(shared() > 19 * BLOCK, "second and third share");
        assert!(has(&other, second, 0..20) && has(&other, third, 0..20));
        for name in ["second", "third"] {
            other
                .unlink(other.root(), name.as_bytes())
                .unwrap()
                .into_iter()
                .for_each(|ino| other.reclaim(ino).unwrap());
        }
        (0..10).for_each(|_| pool.sync().unwrap());
        assert_eq!(shared(), 0);
    }
}

/// Nothing is taken from a root that is not there any more, though it can be read still.
#[test]
fn roots_that_are_gone_share_nothing() {
    let mut load = Workload::create(&Env::fixed(1000), PoolLayout::Single, &disks(PoolLayout::Single), 1).unwrap();
    let (zpl, first) = with_a_file(&mut load, &[]);
    load.create_fs("live/b", &[]).unwrap();
    let pool = load.pool.clone();
    let other = open_fs(&pool, "live/b");
    let second = create(&other, "second");
    snapshot(&pool, "live/a@s");
    let gone = open_snapshot(&pool, "live/a@s").unwrap();
    assert!(pool.destroy_snapshots(&["live/a@s".to_owned()], false).unwrap().is_empty());
    copy_to((&gone, first), (&other, second), 0..20).unwrap();
    sync(&pool);
    assert_eq!(check(&pool.view()).saved_bytes, 0, "it was copied");
    // the head before a rollback
    snapshot(&pool, "live/a@t");
    zpl.open_file(first).unwrap().write(0, &block(99)[..]).unwrap();
    pool.sync().unwrap();
    load.close("live/a").unwrap();
    pool.rollback("live/a@t").unwrap();
    let third = create(&other, "third");
    let _ = copy_to((&zpl, first), (&other, third), 0..20);
    sync(&pool);
    assert_eq!(check(&pool.view()).saved_bytes, 0);
}

/// Snapshots come and go while blocks are taken from them: each is there whole, or is copied, or cannot be read.
#[test]
fn snapshots_go_while_blocks_are_taken() {
    const ROUNDS: u64 = 40;
    let mut load = Workload::create(&Env::fixed(1000), PoolLayout::Single, &disks(PoolLayout::Single), 1).unwrap();
    let (zpl, first) = with_a_file(&mut load, &[]);
    load.create_fs("live/b", &[]).unwrap();
    let pool = load.pool.clone();
    let other = open_fs(&pool, "live/b");
    let (mut shared, rng) = (BTreeSet::new(), &mut Rng::new(7));
    for round in 0..ROUNDS {
        let tags = 1000 * (round + 1)..1000 * (round + 1) + 20;
        let bytes: Vec<u8> = tags.clone().flat_map(block).collect();
        zpl.open_file(first).unwrap().write(0, &bytes[..]).unwrap();
        snapshot(&pool, "live/a@s");
        // of this round, only the snapshot has it then
        zpl.open_file(first).unwrap().write(0, &vec![round as u8; bytes.len()][..]).unwrap();
        pool.sync().unwrap();
        let source = open_snapshot(&pool, "live/a@s").unwrap();
        let target = create(&other, "target");
        let after = rng.below(20);
        let copied = std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let (pool, source, other) = (&pool, &source, &other);
            let taking = scope.spawn(move || {
                (0..20).try_fold(0, |sum, blkid| {
                    if blkid == after {
                        tell.send(()).unwrap();
                    }
                    Ok::<u64, base::Error>(sum + copy_to((source, first), (other, target), blkid..blkid + 1)?)
                })
            });
            told.recv().unwrap();
            assert!(pool.destroy_snapshots(&["live/a@s".to_owned()], false).unwrap().is_empty());
            taking.join().unwrap()
        });
        (0..4).for_each(|_| pool.sync().unwrap());
        if let Ok(copied) = copied {
            assert_eq!(copied, 20 * BLOCK);
            assert!(holds(&other, target, &bytes), "round {round}");
        }
        check(&pool.view());
        let copy = create(&other, "copy");
        copy_to((&other, target), (&other, copy), 0..20).unwrap();
        sync(&pool);
        shared.insert(check(&pool.view()).saved_bytes / BLOCK);
        for name in ["target", "copy"] {
            other
                .unlink(other.root(), name.as_bytes())
                .unwrap()
                .into_iter()
                .for_each(|ino| other.reclaim(ino).unwrap());
        }
        sync(&pool);
    }
    assert!(shared.iter().any(|blocks| *blocks > 0), "{shared:?}");
}
