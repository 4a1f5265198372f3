//! The worst day: labels, the newest state, or a whole vdev are gone. docs/RECOVERY.md is the table of it.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Env, Kind};
use device::{Device, FileDevice, OpenMode};
use format::blkptr::BlkPtr;
use format::ids::Txg;
use pool::{Candidate, LivePool, NewVdevShape, OpenOptions, Pool, PoolState, Rewind};
use testkit::workload::{candidate, options};

use super::{Expected, Lifted, check_files, file_systems, write_files, zpl_of};
use crate::live::{make_fs, new_pool};

/// Bytes of a label, and of the space before the first block.
const LABEL: u64 = 256 << 10;
const FRONT: u64 = 4 << 20;

fn devices(paths: &[PathBuf]) -> Vec<Arc<dyn Device>> {
    let open = |path: &PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap())
    };
    paths.iter().map(open).collect()
}

fn spoil(path: &Path, at: u64, len: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&vec![0xa5; len as usize], at).unwrap();
}

/// Spoils all copies of a block of a pool whose top-level vdevs are these files.
fn spoil_block(paths: &[PathBuf], bp: &BlkPtr) {
    for dva in bp.copies() {
        spoil(&paths[dva.vdev().index()], FRONT + dva.offset(), bp.psize());
    }
}

/// A pool of so many disks, with files of two groups: what the older one has.
fn pool_of(disks: usize, dir: &Path) -> (Vec<PathBuf>, Expected) {
    let (mut new, devices) = new_pool(dir, NewVdevShape::Single, disks);
    let vdev = new.vdevs.remove(0);
    new.vdevs = vdev.leaves.iter().map(|leaf| pool::NewVdev { leaves: vec![leaf.clone()], ..vdev.clone() }).collect();
    let pool = LivePool::create(&Env::real(), &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
    let expected = write_files(&pool, "live", 1);
    for _ in 0..4 {
        pool.record_history("a group more").unwrap();
    }
    pool.close(PoolState::Exported).unwrap();
    let paths = new.vdevs.iter().map(|vdev| PathBuf::from(&vdev.leaves[0].path)).collect();
    (paths, expected)
}

fn open(candidate: &Candidate, rewind: Rewind) -> base::Result<Pool> {
    Pool::open(&Env::real(), candidate, &OpenOptions { rewind, ..options() })
}

/// Goes back to the state of a group, writes, and finds that again when the pool is imported the next time.
fn go_on_from(dir: &Path, paths: &[PathBuf], found: Candidate, txg: Txg, expected: &Expected) {
    let newest = found.uberblocks()[0].txg;
    let rewound = OpenOptions { rewind: Rewind::Exactly(txg), ..options() };
    let pool = LivePool::import(&Env::real(), &found, &rewound, (7, "here".into())).unwrap();
    assert!(pool.view().uberblock().txg > newest);
    check_files(&pool, expected);
    let more = write_files(&pool, "live", 2);
    pool.close(PoolState::Exported).unwrap();
    drop((pool, found));
    crate::live::judge(dir);
    let pool = LivePool::import(&Env::real(), &candidate(&devices(paths)).unwrap(), &options(), (7, "here".into()));
    check_files(&pool.unwrap(), &more);
}

#[test]
fn one_label_is_enough() {
    for kept in 0..4 {
        let lifted = Lifted::of("mirror");
        for path in &lifted.paths {
            let len = path.metadata().unwrap().len() / LABEL * LABEL;
            for (label, at) in [0, LABEL, len - 2 * LABEL, len - LABEL].into_iter().enumerate() {
                if label != kept {
                    spoil(path, at, LABEL);
                }
            }
        }
        let pool = lifted.import();
        let name = file_systems(&pool).remove(0);
        let expected = write_files(&pool, &name, 1);
        check_files(&pool, &expected);
        lifted.judge(pool);
        // all are there again: each alone would do
        for path in &lifted.paths {
            spoil(path, [LABEL, 0][usize::from(kept == 0)], LABEL);
        }
        let pool = lifted.import();
        check_files(&pool, &expected);
        lifted.judge(pool);
    }
}

#[test]
fn the_newest_state_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, expected) = pool_of(1, dir.path());
    let newest = {
        let found = candidate(&devices(&paths)).unwrap();
        let pool = open(&found, Rewind::Newest).unwrap();
        spoil_block(&paths, &pool.uberblock().rootbp);
        pool.uberblock().txg
    };
    let found = candidate(&devices(&paths)).unwrap();
    assert!(matches!(open(&found, Rewind::Newest).err().unwrap().kind(), Kind::Checksum | Kind::Corrupt));
    let states = pool::preview(&Env::real(), &found, &options());
    assert_eq!((states[0].txg, states[0].found.is_err()), (newest, true));
    let whole: Vec<Txg> = states
        .iter()
        .filter(|state| state.found.as_ref().is_ok_and(|found| found.is_whole()))
        .map(|state| state.txg)
        .collect();
    assert!(!whole.is_empty(), "{states:?}");
    assert_eq!(pool::newest_whole(&Env::real(), &found, &options(), false), Some(whole[0]));
    let older = open(&found, Rewind::AtMost(newest.previous())).unwrap();
    assert!(older.uberblock().txg < newest);
    drop(older);
    go_on_from(dir.path(), &paths, found, whole[0], &expected);
}

#[test]
fn an_older_state_tells_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, _) = pool_of(1, dir.path());
    let found = candidate(&devices(&paths)).unwrap();
    let pool = LivePool::import(&Env::real(), &found, &options(), (7, "here".into())).unwrap();
    pool.snapshot(&["live@kept".to_owned()], &[]).unwrap();
    pool.close(PoolState::Exported).unwrap();
    drop((pool, found));
    let states = pool::preview(&Env::real(), &candidate(&devices(&paths)).unwrap(), &options());
    let newest = states[0].found.as_ref().unwrap();
    let lacked: Vec<Vec<&str>> =
        states.iter().map(|state| state.found.as_ref().unwrap().lacks(newest).collect()).collect();
    assert!(lacked[0].is_empty() && lacked.last().unwrap() == &["live@kept"], "{lacked:?}");
}

/// The states that were given up are still there, with higher numbers of groups, and blocks that are used again.
#[test]
fn what_is_written_after_going_far_back_is_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, expected) = pool_of(1, dir.path());
    let found = candidate(&devices(&paths)).unwrap();
    let states: Vec<Txg> = found.uberblocks().iter().map(|uberblock| uberblock.txg).collect();
    let back = states[4];
    // that far only if it is asked for
    for txg in &states[..4] {
        let state = open(&found, Rewind::Exactly(*txg)).unwrap();
        spoil_block(&paths, &state.uberblock().rootbp);
    }
    assert_eq!(pool::newest_whole(&Env::real(), &found, &options(), false), None);
    assert_eq!(pool::newest_whole(&Env::real(), &found, &options(), true), Some(back));
    go_on_from(dir.path(), &paths, found, back, &expected);
}

#[test]
fn metadata_of_the_newest_state_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, expected) = pool_of(1, dir.path());
    let newest = {
        let pool =
            LivePool::import(&Env::real(), &candidate(&devices(&paths)).unwrap(), &options(), (7, "here".into()))
                .unwrap();
        write_files(&pool, "live", 9);
        let view = pool.view();
        let head = view.dsl().find("live").unwrap().phys.bp;
        let newest = view.uberblock().txg;
        drop((view, pool));
        // as after a power cut, just behind that group
        spoil_block(&paths, &head);
        newest
    };
    let found = candidate(&devices(&paths)).unwrap();
    let whole = pool::newest_whole(&Env::real(), &found, &options(), true).unwrap();
    assert!(whole < newest, "{whole} {newest}");
    let state = open(&found, Rewind::Exactly(whole)).unwrap();
    assert!(pool::findings(&state).unwrap().is_whole());
    drop(state);
    let rewound = OpenOptions { rewind: Rewind::Exactly(whole), ..options() };
    let pool = LivePool::import(&Env::real(), &found, &rewound, (7, "here".into())).unwrap();
    check_files(&pool, &expected);
    pool.close(PoolState::Exported).unwrap();
    drop((pool, found));
    crate::live::judge(dir.path());
}

#[test]
fn a_top_level_vdev_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, expected) = pool_of(2, dir.path());
    let left = [paths[0].clone()];
    let found = candidate(&devices(&left)).unwrap();
    let error = open(&found, Rewind::Newest).err().unwrap();
    assert_eq!(error.kind(), Kind::Missing, "{error}");
    let patient = Env::real().with_tunables(|name| (name == "zfs_max_missing_tvds").then_some(1));
    let error = LivePool::import(&patient, &found, &options(), (7, "here".into())).err().unwrap();
    assert_eq!(error.kind(), Kind::ReadOnly, "{error}");
    let pool = Pool::open(&patient, &found, &options()).unwrap();
    let dataset = pool.dsl().find("live").unwrap();
    let zpl = zpl::Zpl::open(pool.dsl().objset(&dataset, dmu::Mode::Plain).unwrap()).unwrap();
    let (mut read, mut gone) = (0, 0);
    for (_, path, bytes) in &expected {
        // metadata has a copy on either vdev
        let file = zpl.open_file(zpl.resolve(path).unwrap()).unwrap();
        let mut got = vec![0; bytes.len()];
        match file.read(0, &mut got) {
            Ok(_) => {
                assert!(got == *bytes, "{}", path.escape_ascii());
                read += 1;
            }
            Err(error) => {
                assert!(matches!(error.kind(), Kind::Missing | Kind::Io), "{error}");
                gone += 1;
            }
        }
    }
    assert!(read > 0 && gone > 0, "{read} files were read, {gone} not");
    drop((zpl, pool, found));
    // when it is back, so is all
    let pool =
        LivePool::import(&Env::real(), &candidate(&devices(&paths)).unwrap(), &options(), (7, "here".into())).unwrap();
    check_files(&pool, &expected);
    assert!(zpl_of(&pool, "live").is_ok());
    pool.close(PoolState::Exported).unwrap();
}
