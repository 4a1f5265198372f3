//! Flat dedup tables (feature fast_dedup): those of OpenZFS, with entries in their logs, and new ones.

use std::path::Path;
use std::sync::Arc;

use base::{Env, Kind};
use device::{Device, FileDevice, OpenMode};
use dmu::zap::Zap;
use format::feature::FAST_DEDUP;
use pool::{LivePool, Pool, PoolState, PoolTables, PruneAmount, object_directory, prefetch_tables};
use testkit::corpus;
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::workload::PoolLayout;
use zpl::FileKind;

use super::writes::{Made, counts, has, put, remove};
use super::{candidate, check, check_with, empty, names_in, open, options, sparse};
use crate::crash::judge_by_zdb;
use crate::live::judge_called;

const DAY_S: u64 = 86_400;
const NAME: &str = "t_fastdedup";
const SETS: [&str; 3] = ["sha256", "blake3", "skein-verify"];

fn import_with(env: &Env, device: Arc<dyn Device>) -> Arc<LivePool> {
    LivePool::import(env, &candidate(&[device]).unwrap(), &options(), (7, "here".into())).unwrap()
}

/// Logs are brought into tables by that many entries a group.
fn by(entries: u64) -> Env {
    Env::real().with_tunables(move |name| (name == "zfs_dedup_log_flush_entries_max").then_some(entries))
}

fn import_from(dir: &Path) -> Arc<LivePool> {
    let device = FileDevice::open(dir.join("vda.img").to_str().unwrap(), OpenMode::ReadWrite).unwrap();
    import_with(&Env::real(), Arc::new(device))
}

/// Exports a pool; zdb of OpenZFS 2.4 agrees, if `JUDGE` says that it is that one.
fn export(pool: Arc<LivePool>, dir: &Path) {
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    if is_new_judge() {
        judge_called(dir, NAME);
    }
}

/// Whether zdb is that of OpenZFS 2.4.
fn is_new_judge() -> bool {
    std::env::var("JUDGE").is_ok_and(|judge| judge == "2.4")
}

/// Names in the object directory that are those of dedup tables, and in directories of such.
fn names(view: &Pool) -> Vec<String> {
    let directory = object_directory(view.mos()).unwrap();
    let mut names = Vec::new();
    for row in directory.entries().unwrap() {
        let name = row.name.to_string();
        if !name.starts_with("DDT-") || name == "DDT-statistics" {
            continue;
        }
        if !name.contains("-zap-") {
            let folder = Zap::open(view.mos().object(row.value.first_object().unwrap()).unwrap()).unwrap();
            names.extend(folder.entries().unwrap().iter().map(|row| format!("{name}/{}", row.name)));
        }
        names.push(name);
    }
    names
}

fn uses(pool: &LivePool) -> u64 {
    pool.view().features().uses(FAST_DEDUP)
}

#[test]
fn logs_go_into_the_tables() {
    let before = {
        let device: Arc<dyn Device> = Arc::new(sparse("fastdedup"));
        let pool = Pool::open(&Env::real(), &candidate(&[device]).unwrap(), &options()).unwrap();
        assert!(names(&pool).iter().any(|name| name.contains("/DDT-log-")));
        (pool.dedup().unwrap(), pool.uberblock().txg.get())
    };
    for entries in [50_000, 40] {
        let pool = import_with(&by(entries), Arc::new(sparse("fastdedup")));
        let groups = pool.view().uberblock().txg.get() - before.1;
        assert_eq!(groups > 1, entries < 50_000, "{groups} groups");
        let after = pool.view().dedup().unwrap();
        assert!(after.histogram == before.0.histogram, "{:?} {:?}", after.total(), before.0.total());
        assert_eq!(after.entries, after.total().blocks);
        assert!(!names(&pool.view()).iter().any(|name| name.contains("log")), "{:?}", names(&pool.view()));
        assert_eq!(check(&pool), 661);
        assert_eq!(uses(&pool), 3);
    }
}

#[test]
fn tables_follow_what_is_written_and_freed() {
    let dir = tempfile::tempdir().unwrap();
    corpus::case("fastdedup").extract(dir.path()).unwrap();
    let pool = import_from(dir.path());
    let begin = check(&pool);
    // twins of what OpenZFS wrote
    for set in SETS {
        let name = format!("{NAME}/{set}");
        let zpl = open(&pool, &name);
        let (from, folder) = first_files(&zpl);
        let before = check(&pool);
        for (number, bytes) in from.iter().enumerate() {
            let new = zpl::New { kind: zpl::NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
            let ino = zpl.create(zpl.root(), format!("twin{number}").as_bytes(), &new).unwrap().ino;
            zpl.open_file(ino).unwrap().write(0, bytes).unwrap();
        }
        assert!(check(&pool) > before, "{set}");
        let refused = pool.snapshot(&[format!("{name}@kept")], &[]).unwrap();
        assert!(refused.is_empty());
        empty(&zpl, folder);
        check(&pool);
        drop(zpl);
        pool.destroy_snapshots(&[format!("{name}@kept")], false).unwrap();
        check(&pool);
    }
    let now = check(&pool);
    assert!(now < begin, "{now} of {begin} pointers are left");
    export(pool, dir.path());

    let pool = import_from(dir.path());
    pool.destroy_dataset(&format!("{NAME}/blake3")).unwrap();
    assert!(check(&pool) < now);
    assert_eq!(uses(&pool), 2);
    export(pool, dir.path());

    // the last pointers go, and all that was theirs
    let pool = import_from(dir.path());
    for set in ["sha256", "skein-verify"] {
        let zpl = open(&pool, &format!("{NAME}/{set}"));
        empty(&zpl, zpl.root());
    }
    assert_eq!((check(&pool), uses(&pool)), (0, 0));
    assert_eq!(names(&pool.view()), Vec::<String>::new());
    export(pool, dir.path());
}

/// What is in the files of the first folder that has some, and that folder.
fn first_files(zpl: &zpl::Zpl) -> (Vec<Vec<u8>>, format::ids::ObjectId) {
    for (_, folder) in names_in(zpl, zpl.root()) {
        if zpl.stat(folder).unwrap().kind != FileKind::Directory {
            continue;
        }
        let mut contents = Vec::new();
        for (_, ino) in names_in(zpl, folder) {
            let stat = zpl.stat(ino).unwrap();
            if stat.kind == FileKind::File && stat.size > 20_000 {
                let mut bytes = vec![0; stat.size as usize];
                zpl.open_file(ino).unwrap().read(0, &mut bytes).unwrap();
                contents.push(bytes);
            }
        }
        if !contents.is_empty() {
            return (contents, folder);
        }
    }
    panic!("there are no files in folders");
}

/// Whenever the power is cut while logs go into tables, and later, it goes on from there.
#[test]
fn a_power_cut_while_logs_go_into_tables() {
    let recording = Recording::new(vec![sparse("fastdedup")]);
    let begin = recording.len();
    let pool = import_with(&by(6), recording.devices()[0].clone());
    let flushed = recording.len();
    let zpl = open(&pool, &format!("{NAME}/skein-verify"));
    empty(&zpl, zpl.root());
    check(&pool);
    let end = recording.len();
    drop((zpl, pool));
    let (mut rng, mut partly) = (Rng::new(5), 0);
    for number in 0..24 {
        let range = if number % 3 == 0 { flushed..end } else { begin..flushed };
        let at = range.start + rng.below((range.end - range.start) as u64) as usize;
        let left = recording.cut(at, &mut rng, Loss::Some).remove(0);
        if number % 4 == 0 && is_new_judge() {
            let dir = tempfile::tempdir().unwrap();
            left.save(&dir.path().join("vda.img")).unwrap();
            judge_called(dir.path(), NAME);
        }
        let device: Arc<dyn Device> = Arc::new(left);
        let view = Pool::open(&Env::real(), &candidate(std::slice::from_ref(&device)).unwrap(), &options()).unwrap();
        let logs = names(&view).iter().filter(|name| name.contains("/DDT-log-")).count();
        let pointers = check_with(&view, logs > 0);
        partly += usize::from((1..6).contains(&logs));
        let pool = import_with(&by(9), device);
        assert_eq!(check(&pool), pointers);
        assert!(!names(&pool.view()).iter().any(|name| name.contains("log")));
        let zpl = open(&pool, &format!("{NAME}/sha256"));
        empty(&zpl, zpl.root());
        assert!(check(&pool) < pointers);
    }
    assert!(partly > 3, "{partly} cuts were between portions");
}

#[test]
fn a_new_pool_has_flat_tables() {
    let mut made = Made::new(PoolLayout::FastDedup);
    let pool = made.load.pool.clone();
    let first = made.fs("live/first", &[("dedup", "on")]);
    let second = made.fs("live/second", &[("dedup", "on"), ("copies", "2")]);
    assert_eq!((names(&pool.view()), uses(&pool)), (Vec::new(), 0));
    let a = put(&first, "a", (0..4).chain([3]));
    assert_eq!((check(&pool), counts(&pool.view())), (5, (4, 5)));
    assert_eq!(uses(&pool), 1);
    let expect = ["version", "flags", "DDT-sha256-zap-duplicate", "DDT-sha256-zap-unique"];
    let mut expect: Vec<String> = expect.iter().map(|name| format!("DDT-sha256/{name}")).collect();
    expect.push("DDT-sha256".to_owned());
    let mut found = names(&pool.view());
    found.sort();
    expect.sort();
    assert_eq!(found, expect);
    // a block of fewer copies is no twin; one of more is
    put(&second, "b", [2, 3, 10, 11]);
    check(&pool);
    assert_eq!(counts(&pool.view()), (6, 7));
    let c = put(&first, "c", [10, 0]);
    check(&pool);
    assert_eq!(counts(&pool.view()), (6, 9));
    // both at once
    put(&first, "d", [50]);
    put(&second, "e", [50]);
    check(&pool);
    assert_eq!(counts(&pool.view()).0, 7);
    ["b", "e"].iter().for_each(|name| remove(&second, name));
    remove(&first, "d");
    check(&pool);
    assert_eq!(counts(&pool.view()), (5, 7));
    assert!(has(&first, a, (0..4).chain([3])) && has(&first, c, [10, 0]));
    ["a", "c"].iter().for_each(|name| remove(&first, name));
    assert_eq!((check(&pool), uses(&pool)), (0, 0));
    assert_eq!(names(&pool.view()), Vec::<String>::new());
    put(&first, "f", [1, 1, 2]);
    assert_eq!((check(&pool), uses(&pool)), (3, 1));
    drop((first, second, pool));
    made.judge();
}

/// Tables stay as they are when the feature is enabled, until their last entry is gone; those of other checksums are new.
#[test]
fn old_tables_stay_as_they_are() {
    let mut made = Made::new(PoolLayout::Single);
    let pool = made.load.pool.clone();
    let first = made.fs("live/first", &[("dedup", "on")]);
    let second = made.fs("live/second", &[("dedup", "skein")]);
    put(&first, "a", 0..4);
    check(&pool);
    pool.enable_features(vec![FAST_DEDUP.to_owned()]).unwrap();
    put(&first, "b", 2..6);
    put(&second, "c", 2..6);
    check(&pool);
    assert_eq!((counts(&pool.view()), uses(&pool)), ((10, 12), 1));
    let is_flat = |checksum: &str| names(&pool.view()).contains(&format!("DDT-{checksum}"));
    assert!(!is_flat("sha256") && is_flat("skein"));
    ["a", "b"].iter().for_each(|name| remove(&first, name));
    check(&pool);
    assert_eq!(names(&pool.view()).iter().filter(|name| name.contains("sha256")).count(), 0);
    put(&first, "d", 0..4);
    check(&pool);
    assert!(is_flat("sha256"));
    assert_eq!((counts(&pool.view()), uses(&pool)), ((8, 8), 2));
    drop((first, second, pool));
    made.judge();
}

/// Entries are pruned from tables by their age; their blocks stay, and are freed as others are.
#[test]
fn old_entries_are_pruned() {
    let mut made = Made::new(PoolLayout::FastDedup);
    let first = made.fs("live/first", &[("dedup", "on")]);
    put(&first, "a", (0..10).chain([3]));
    made.load.pool.sync().unwrap();
    drop(first);
    let (recording, devices) = made.export();
    let now_s = 1000 + 10 * DAY_S;
    let import =
        || LivePool::import(&Env::fixed(now_s), &candidate(&devices).unwrap(), &options(), (7, "here".into())).unwrap();
    let pool = import();
    let first = super::writes::open(&pool, "live/first");
    let b = put(&first, "b", 20..24);
    pool.sync().unwrap();
    assert_eq!(pool.prune_dedup(PruneAmount::Seconds(now_s)).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(pool.prune_dedup(PruneAmount::Percent(101)).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(pool.prune_dedup(PruneAmount::Seconds(11 * DAY_S)).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(pool.prune_dedup(PruneAmount::Seconds(10 * DAY_S)).unwrap(), 0);
    assert_eq!(pool.prune_dedup(PruneAmount::Seconds(5 * DAY_S)).unwrap(), 9);
    let is_whole = || crate::crash::check(&pool.view(), false).unwrap();
    is_whole();
    assert_eq!(counts(&pool.view()), (5, 6));
    // nobody knows them any more
    let c = put(&first, "c", [0, 1, 20]);
    pool.sync().unwrap();
    assert_eq!(counts(&pool.view()), (7, 9));
    remove(&first, "a");
    (0..3).for_each(|_| pool.sync().unwrap());
    is_whole();
    assert_eq!(counts(&pool.view()), (6, 7));
    assert!(has(&first, b, 20..24) && has(&first, c, [0, 1, 20]));
    // of those with one pointer: 21, 22, 23, 0, 1
    assert_eq!(pool.prune_dedup(PruneAmount::Percent(60)).unwrap(), 3);
    assert_eq!(counts(&pool.view()), (3, 4));
    drop(first);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge_by_zdb(&recording.cut(recording.len(), &mut Rng::new(1), Loss::Nothing)).unwrap();

    let pool = import();
    let first = super::writes::open(&pool, "live/first");
    ["b", "c"].iter().for_each(|name| remove(&first, name));
    (0..3).for_each(|_| pool.sync().unwrap());
    crate::crash::check(&pool.view(), false).unwrap();
    assert_eq!((counts(&pool.view()), uses(&pool)), ((0, 0), 0));
}

/// A group that changes an entry does not prune it, and power may be cut at any time.
#[test]
fn pruning_beside_changes() {
    let mut made = Made::new(PoolLayout::FastDedup);
    let pool = made.load.pool.clone();
    let zpl = made.fs("live/first", &[("dedup", "on")]);
    let begin = made.recording.len();
    let (mut rng, mut gone) = (Rng::new(4), 0);
    for round in 0..40 {
        let tags: Vec<u64> = (0..8).map(|_| rng.below(60)).collect();
        put(&zpl, &format!("file{round}"), tags);
        if round % 3 == 2 {
            remove(&zpl, &format!("file{}", round - 1));
        }
        if rng.below(2) == 0 {
            gone += pool.prune_dedup(PruneAmount::Percent(40)).unwrap();
        }
    }
    assert!(gone > 20, "{gone} entries were pruned");
    pool.sync().unwrap();
    crate::crash::check(&pool.view(), false).unwrap();
    let end = made.recording.len();
    let mut rng = Rng::new(9);
    for _ in 0..20 {
        let at = begin + rng.below((end - begin) as u64) as usize;
        let left = made.recording.cut(at, &mut rng, Loss::Some);
        let disks: Vec<Arc<dyn Device>> = left.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Device>).collect();
        let view = Pool::open(&Env::fixed(6000), &candidate(&disks).unwrap(), &options()).unwrap();
        crate::crash::check(&view, false).unwrap();
    }
    for (name, _) in names_in(&zpl, zpl.root()) {
        remove(&zpl, std::str::from_utf8(&name).unwrap());
    }
    (0..3).for_each(|_| pool.sync().unwrap());
    crate::crash::check(&pool.view(), false).unwrap();
    assert_eq!(uses(&pool), 0);
    drop((zpl, pool));
    made.judge();
}

#[test]
fn tables_are_read_ahead() {
    for (case, which) in
        [("fastdedup", PoolTables::Dedup), ("dedup", PoolTables::Dedup), ("cloned", PoolTables::Clones)]
    {
        let device: Arc<dyn Device> = Arc::new(sparse(case));
        let pool = Arc::new(Pool::open(&Env::real(), &candidate(&[device]).unwrap(), &options()).unwrap());
        let misses = || pool.cache().stats().misses;
        let read = || prefetch_tables(&|| pool.clone(), which).unwrap();
        let before = misses();
        read();
        let after = misses();
        assert!(after > before, "{case}: nothing was read");
        read();
        assert_eq!(misses(), after, "{case}");
    }
}
