//! Pools that are filled to the last byte: writes are refused, nothing is lost, the pool is not suspended, and what
//! is removed makes room again.

use std::sync::Arc;

use base::{Env, Kind, Result};
use daemon::FileRoom;
use device::Device;
use pool::LivePool;
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload};
use zpl::{New, NewFs, NewKind, Zpl, ZplOptions, create_fs};

use super::{blank, check, shared};

const FILE: New<'_> = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };

/// Writes files of `len` bytes until there is no room, syncing now and then. Their names.
fn fill(pool: &LivePool, zpl: &Zpl, round: usize, len: usize) -> Vec<String> {
    let (mut names, mut rng) = (Vec::new(), Rng::new(round as u64));
    let bytes: Vec<u8> = (0..len).map(|_| rng.number() as u8).collect();
    // full is what is full also when everything is on disk
    for tries in 0.. {
        let before = names.len();
        loop {
            let name = format!("{round}-{}", names.len());
            let made = zpl.create(zpl.root(), name.as_bytes(), &FILE).and_then(|stat| {
                names.push(name);
                zpl.open_file(stat.ino)?.write(0, &bytes)
            });
            match made {
                Ok(written) if written == len => {}
                Ok(_) => break,
                Err(e) if e.kind() == Kind::NoSpace => break,
                Err(e) => panic!("round {round}, file {}: {e:#?}", names.len()),
            }
            if names.len() % 16 == 0 {
                pool.sync().unwrap();
            }
        }
        pool.sync().unwrap();
        if names.len() <= before + 1 || tries > 20 {
            break;
        }
    }
    names
}

fn open_full(pool: &Arc<LivePool>, record_bytes: u64) -> Zpl {
    let id = pool.view().dsl().find("live/full").unwrap().id;
    let room = Arc::new(FileRoom(pool.open_head(id).unwrap()));
    let options = ZplOptions { room, record_bytes, ..ZplOptions::default() };
    Zpl::open_writable(pool.head(id).unwrap(), pool.txgs().clone(), Env::fixed(1000), options, None).unwrap()
}

/// Fills disks with files of `len` bytes in records of `record_bytes`, empties them, and so on.
fn fill_and_empty(layout: PoolLayout, disks: Vec<SparseDevice>, len: usize, (record_bytes, copies): (u64, &str)) {
    let disks: Vec<Arc<dyn Device>> = shared(disks);
    let mut load = Workload::create(&Env::fixed(1000), layout, &disks, 1).unwrap();
    load.create_fs("live/full", &[("compression", "off"), ("copies", copies)]).unwrap();
    let pool = load.pool.clone();
    let zpl = open_full(&pool, record_bytes);
    let mut counts = Vec::new();
    for round in 0..3 {
        let names = fill(&pool, &zpl, round, len);
        check(&pool.view(), false).unwrap();
        // every other one first, so that what is free lies in pieces
        let (even, odd) = (names.iter().step_by(2), names.iter().skip(1).step_by(2));
        for name in even.chain(odd) {
            let gone = zpl.unlink(zpl.root(), name.as_bytes()).unwrap().expect("it had one name");
            zpl.reclaim(gone).unwrap();
        }
        (0..4).for_each(|_| pool.sync().unwrap());
        pool.record_history("what was freed may be used again some groups later").unwrap();
        pool.record_history("and again").unwrap();
        pool.record_history("and again").unwrap();
        check(&pool.view(), false).unwrap();
        counts.push(names.len());
    }
    let most = counts.iter().max().unwrap();
    assert!(counts.iter().all(|count| count * 10 >= most * 8), "{layout:?}: less fits in each time: {counts:?}");
    println!("{layout:?}, {len} bytes: {counts:?}");
}

/// Datasets, snapshots and properties fill no pool to where nothing can be written any more: they are refused before, and
/// what there is can be destroyed.
#[test]
fn changes_of_datasets_leave_room_to_destroy() {
    let disks = shared(vec![SparseDevice::new("disk0".to_owned(), 64 << 20)]);
    let mut load = Workload::create(&Env::fixed(1000), PoolLayout::Single, &disks, 1).unwrap();
    load.create_fs("live/full", &[("compression", "off")]).unwrap();
    let pool = load.pool.clone();
    let zpl = open_full(&pool, 128 << 10);
    let create = |name: &str| {
        let new = NewFs { now: (1000, 0), salt: 5, ..NewFs::default() };
        // what else would be asked of the parent, which is no real file system
        let own = [("utf8only", "off"), ("normalization", "none"), ("casesensitivity", "sensitive")];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        pool.create_dataset(name, own, move |set, tx, _| create_fs(set, tx, &new))
    };
    let until_refused = |change: &dyn Fn(usize) -> Result<()>| -> usize {
        let refused = (0..2000).find_map(|n| change(n).err().map(|error| (n, error)));
        let (done, error) = refused.expect("the pool is full at some time");
        assert_eq!(error.kind(), Kind::NoSpace, "{done} done: {error:#?}");
        done
    };
    create("live/early").unwrap();
    let files = fill(&pool, &zpl, 0, 300_000);
    let made = until_refused(&|n| create(&format!("live/d{n}")));
    let value = "x".repeat(8000);
    let set = until_refused(&|n| pool.set_property("live/early", &format!("cenote.test:{n}"), &value));
    assert!(files.len() > 50 && made < 10 && set > 10, "{} files, {made} datasets, {set} properties", files.len());
    let snapshot = pool.snapshot(&["live@none".to_owned()], &[]);
    assert_eq!(snapshot.unwrap_err().kind(), Kind::NoSpace);
    check(&pool.view(), false).unwrap();
    pool.destroy_dataset("live/early").unwrap();
    for name in &files {
        let gone = zpl.unlink(zpl.root(), name.as_bytes()).unwrap().expect("it had one name");
        zpl.reclaim(gone).unwrap();
    }
    (0..4).for_each(|_| pool.record_history("what was freed may be used again some groups later").unwrap());
    create("live/again").unwrap();
    check(&pool.view(), false).unwrap();
}

#[test]
fn full_pools_refuse_and_recover() {
    for (layout, len) in [(PoolLayout::Single, 300_000), (PoolLayout::Raidz1, 100_000), (PoolLayout::Special, 3_000)] {
        fill_and_empty(layout, blank(layout), len, (128 << 10, "1"));
    }
}

/// Each byte takes 48: more than is reckoned with elsewhere. So much may be changed in a group that it matters.
#[test]
fn small_records_on_large_sectors() {
    let disks = vec![SparseDevice::new("disk0".to_owned(), 512 << 20)];
    fill_and_empty(PoolLayout::Coarse, disks, 1_200_000, (512, "3"));
}
