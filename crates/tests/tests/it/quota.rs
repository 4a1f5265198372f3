//! Writing up to a quota: how soon it is refused, how much more is there then, how many groups it takes.

use std::sync::Arc;
use std::time::Instant;

use base::{Env, Kind};
use daemon::FileRoom;
use pool::{LivePool, NewVdevShape, PoolState};
use testkit::rng::Rng;
use zpl::{New, NewKind, Zpl, ZplOptions};

use crate::live::{judge, make_fs, new_pool};

const QUOTA: u64 = 10_000_000;

/// Writes `step` random bytes again and again, `gap` apart, until the quota refuses: bytes written, bytes used, groups.
fn fill(record_bytes: u64, step: usize, gap: u64) -> (u64, u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let (new, devices) = new_pool(dir.path(), NewVdevShape::Mirror, 2);
    let env = Env::real();
    let pool = LivePool::create(&env, &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
    pool.start();
    let properties = [("quota", QUOTA.to_string()), ("compression", "off".into())].map(|(n, v)| (n.to_owned(), v));
    pool.create_dataset("live/q", properties.into(), |set, tx, _| make_fs(set, tx, 8)).unwrap();
    let id = pool.view().dsl().find("live/q").unwrap().id;
    let options =
        ZplOptions { record_bytes, room: Arc::new(FileRoom(pool.open_head(id).unwrap())), ..ZplOptions::default() };
    let zpl = Zpl::open_writable(pool.head(id).unwrap(), pool.txgs().clone(), env, options, None).unwrap();
    let new_file = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let file = zpl.open_file(zpl.create(zpl.root(), b"file", &new_file).unwrap().ino).unwrap();
    let mut rng = Rng::new(1);
    let bytes: Vec<u8> = (0..step).map(|_| rng.number() as u8).collect();
    let (before, began) = (pool.txgs().open_txg(), Instant::now());
    let mut written = 0;
    for turn in 0.. {
        match file.write(turn * (step as u64 + gap), &bytes[..]) {
            Ok(len) => written += len as u64,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Quota);
                break;
            }
        }
    }
    let groups = pool.txgs().open_txg().since(before);
    println!("{record_bytes}-byte records: {written} bytes in {groups} groups, {:?}", began.elapsed());
    pool.sync().unwrap();
    let view = pool.view();
    let used = view.dsl().subject("live/q").unwrap().dir().phys.used_bytes;
    drop((view, zpl, file));
    pool.close(PoolState::Exported).unwrap();
    drop((pool, devices));
    judge(dir.path());
    (written, used, groups)
}

#[test]
fn a_quota_is_reached_in_few_groups() {
    let (written, used, groups) = fill(128 << 10, 128 << 10, 0);
    assert!(groups <= 8, "{groups} groups");
    assert!(written > QUOTA / 10 * 9 && used <= QUOTA + (512 << 10), "{written} bytes, of which {used} are used");
}

/// What is written in large steps comes as far as what is written in small ones.
#[test]
fn a_large_write_takes_what_is_left_of_a_quota() {
    let (written, used, groups) = fill(128 << 10, 4_000_000, 0);
    assert!(groups <= 16, "{groups} groups");
    assert!(written > QUOTA / 10 * 9 && used <= QUOTA + (512 << 10), "{written} bytes, of which {used} are used");
}

/// Each block is alone below its pointers, and they take more than it does.
#[test]
fn pointers_do_not_exceed_a_quota_by_much() {
    let (_, used, groups) = fill(4 << 10, 4 << 10, 64 << 20);
    assert!(used <= QUOTA + (512 << 10), "{used} bytes are used after {groups} groups");
}
