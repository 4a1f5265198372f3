//! A pool keeps a state of its own, returns to it, or gives it up.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use base::{Env, Kind};
use device::{Device, FileDevice, OpenMode};
use pool::{AttachAs, LivePool, NewLeaf, NewVdevShape, OpenOptions, Pool, PoolState, Rewind};
use testkit::workload::{candidate, options};

use crate::heal::{FILE_BYTES, contents, file_of, import_disks, make, open, read};
use crate::live::judge;

const FEATURE: &str = "com.delphix:zpool_checkpoint";
const RAIDZ_EXPANSION: &str = "org.openzfs:raidz_expansion";

fn devices(dir: &Path, leaves: usize) -> Vec<Arc<dyn Device>> {
    let open = |i| FileDevice::open(dir.join(format!("disk{i}")).to_str().unwrap(), OpenMode::ReadWrite).unwrap();
    (0..leaves).map(|i| Arc::new(open(i)) as Arc<dyn Device>).collect()
}

fn rewinding() -> OpenOptions {
    OpenOptions { rewind: Rewind::Checkpoint, ..options() }
}

/// Overwrites the file often enough that all that is free is used again and again.
fn churn(pool: &LivePool) {
    let zpl = open(pool);
    for round in 0..8u8 {
        file_of(&zpl).write(0, &vec![round; FILE_BYTES]).unwrap();
        pool.sync().unwrap();
    }
}

fn zdb(dir: &Path, args: &[&str]) {
    let Ok(output) = Command::new("zdb").args(["-e", "-p"]).arg(dir).args(args).arg("live").output() else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("No leaks") && !text.contains("checksum error"), "{text}");
}

#[test]
fn a_pool_returns_to_its_checkpoint() {
    for (shape, leaves) in [(NewVdevShape::Single, 1), (NewVdevShape::Mirror, 2), (NewVdevShape::Raidz(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), shape, leaves, "1", &[FEATURE]);
        let pool = import_disks(dir.path(), leaves);
        assert_eq!(pool.discard_checkpoint().unwrap_err().kind(), Kind::NotFound);
        pool.checkpoint().unwrap();
        assert_eq!(pool.checkpoint().unwrap_err().what(), "checkpoint exists");
        let usable = pool.view().usable_bytes().unwrap();
        churn(&pool);
        let kept = pool.view().status().unwrap().checkpoint.expect("it is there");
        assert!(kept.created_s.is_some() && kept.bytes >= FILE_BYTES as u64, "{kept:?}");
        assert!(pool.view().usable_bytes().unwrap() <= usable - FILE_BYTES as u64, "what it has nobody else can use");
        let guid = pool.tree().leaves().next().unwrap().guid();
        let new = NewLeaf { path: dir.path().join("disk9").display().to_string(), is_file: true };
        let device = devices(dir.path(), 1).remove(0);
        assert_eq!(pool.attach(guid, &new, AttachAs::Side, None, device).unwrap_err().what(), "checkpoint exists");
        assert_eq!(pool.detach(guid).unwrap_err().what(), "checkpoint exists");
        assert_eq!(pool.remove(guid).unwrap_err().what(), "checkpoint exists");
        assert_eq!(pool.change_guid(None).unwrap_err().what(), "checkpoint exists");
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        judge(dir.path());
        zdb(dir.path(), &["-kbcc"]);

        // over an export, it stays
        let pool = import_disks(dir.path(), leaves);
        churn(&pool);
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        judge(dir.path());
        // it can be looked at
        let disks = devices(dir.path(), leaves);
        let looked = Pool::open(&Env::real(), &candidate(&disks).unwrap(), &rewinding()).unwrap();
        assert_eq!(looked.status().unwrap().checkpoint, None);
        drop(looked);
        let import = || LivePool::import(&Env::real(), &candidate(&disks).unwrap(), &rewinding(), (7, "here".into()));
        let pool = import().unwrap();
        assert!(read(&open(&pool)).unwrap() == contents(), "{shape:?}");
        assert_eq!(pool.view().status().unwrap().checkpoint, None);
        churn(&pool);
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        judge(dir.path());
        assert_eq!(import().err().unwrap().what(), "checkpoint does not exist");
    }
}

#[test]
fn a_checkpoint_is_given_up() {
    // as the pools of 2.3 and later have it, with a longer uberblock
    for features in [&[FEATURE][..], &[FEATURE, RAIDZ_EXPANSION]] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), NewVdevShape::Mirror, 2, "1", features);
        let mut pool = import_disks(dir.path(), 2);
        pool.checkpoint().unwrap();
        churn(&pool);
        pool.discard_checkpoint().unwrap();
        // it goes on after a crash, and after an export
        for is_exported in [false, true] {
            assert_eq!(pool.checkpoint().err().map_or("", |e| if e.kind() == Kind::Exists { "" } else { "wrong" }), "");
            if is_exported {
                pool.close(PoolState::Exported).unwrap();
            }
            drop(pool);
            pool = import_disks(dir.path(), 2);
        }
        for _ in 0..100 {
            pool.sync().unwrap();
        }
        let status = pool.view().status().unwrap();
        if let Some(kept) = status.checkpoint {
            // the state may have been kept anew
            assert!(kept.created_s.is_some(), "{kept:?}");
            pool.discard_checkpoint().unwrap();
            (0..10).for_each(|_| pool.sync().unwrap());
        }
        assert_eq!(pool.view().status().unwrap().checkpoint, None);
        assert_eq!(pool.view().features().uses(FEATURE), 0);
        assert_eq!(pool.discard_checkpoint().unwrap_err().kind(), Kind::NotFound);
        assert!(read(&open(&pool)).unwrap() == vec![7; FILE_BYTES]);
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        judge(dir.path());
    }
}

#[test]
fn a_pool_without_the_feature_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Single, 1, "1", &[]);
    let pool = import_disks(dir.path(), 1);
    assert_eq!(pool.checkpoint().unwrap_err().kind(), Kind::Unsupported);
}
