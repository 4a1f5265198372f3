//! Pools whose raidz was expanded, or is being expanded, are written to: old blocks are as wide as it was, new ones as it
//! is. What OpenZFS has begun comes to its end here.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Device, FileDevice, OpenMode};
use format::feature::RAIDZ_EXPANSION;
use format::ids::Guid;
use pool::{AttachAs, LivePool, NewLeaf, NewVdevShape, OfflineReason, PoolState, Progress};

use super::{Lifted, check_files, file_systems, live_with, write_files};
use crate::heal::{DEVICE_BYTES, FILE_BYTES, contents, file_of, import_with, make, open, read};
use crate::replace::{finish, guid_at, put_beside};
use crate::scrub::{hasty, scrub};

/// Lets groups pass until nothing is being expanded.
fn finish_expansion(pool: &LivePool) {
    for _ in 0..10_000 {
        if pool.tree().expanding().is_none() {
            return;
        }
        pool.sync().unwrap();
        pool.diagnose();
    }
    panic!("it does not come to its end: {:?}", pool.tree().reflow());
}

#[test]
fn an_expansion_that_openzfs_began_is_ended() {
    let lifted = Lifted::newer("expanding");
    let pool = lifted.import();
    finish_expansion(&pool);
    let status = pool.view().status().unwrap().expansion.unwrap();
    assert!(status.progress == Progress::Finished && status.copied_bytes > 0, "{status:?}");
    lifted.judge(pool);
    live_with(&lifted);
}

/// While devices lack something nothing goes on; afterwards it does, and all is there without any one of them.
#[test]
fn devices_go_and_return_while_a_raidz_is_expanded() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    make(dir.path(), NewVdevShape::Raidz(1), 3, "1", &[]);
    // it stops in the middle
    let env = hasty().with_tunables(|name| (name == "raidz_expand_max_reflow_bytes").then_some(1 << 20));
    let pool = import_with(&env, dir.path(), 3);
    pool.enable_features(vec![RAIDZ_EXPANSION.to_owned()]).unwrap();
    let file = file_of(&open(&pool));
    let mut expect = contents();
    let mut write = |at: usize, text: &[u8]| {
        file.write(at as u64, text).unwrap();
        expect[at..at + text.len()].copy_from_slice(text);
    };
    let raidz = pool.tree().tops().next().unwrap().guid();
    let new_device = |name: &str, bytes: u64| -> (NewLeaf, Arc<dyn Device>) {
        std::fs::File::create(path(name)).unwrap().set_len(bytes).unwrap();
        let name = path(name).display().to_string();
        let device = FileDevice::open(&name, OpenMode::ReadWrite).unwrap();
        (NewLeaf { path: name, is_file: true }, Arc::new(device))
    };
    let widen = |guid: Guid, name: &str, bytes: u64| {
        let (leaf, device) = new_device(name, bytes);
        pool.widen(guid, &leaf, None, device)
    };
    assert_eq!(widen(raidz, "small", 64 << 20).unwrap_err().what(), "device is too small");
    let of_leaf = widen(guid_at(&pool, &path("disk0")), "disk3", DEVICE_BYTES).unwrap_err();
    assert_eq!(of_leaf.what(), "no such device in pool");
    pool.take_off(guid_at(&pool, &path("disk0")), OfflineReason::Offline, false).unwrap();
    let offline = widen(raidz, "disk3", DEVICE_BYTES).unwrap_err();
    assert_eq!(offline.what(), "raidz vdev has devices that are offline or being replaced");
    put_online(&pool, guid_at(&pool, &path("disk0")));
    widen(raidz, "disk3", DEVICE_BYTES).unwrap();
    assert_eq!(widen(raidz, "disk4", DEVICE_BYTES).unwrap_err().what(), "raidz expansion in progress");
    assert_eq!(pool.checkpoint().unwrap_err().what(), "raidz expansion in progress");
    // one goes, and nothing moves
    pool.sync().unwrap();
    pool.take_off(guid_at(&pool, &path("disk1")), OfflineReason::Offline, false).unwrap();
    pool.sync().unwrap();
    let before = pool.tree().reflow();
    (0..3).for_each(|i| {
        write(70_000 * i + 11, b"while one is away");
        pool.sync().unwrap();
    });
    assert_eq!(pool.tree().reflow(), before);
    put_online(&pool, guid_at(&pool, &path("disk1")));
    // another one is replaced, and nothing moves until it has everything
    pool.sync().unwrap();
    let (leaf, device) = new_device("new", DEVICE_BYTES);
    pool.attach(guid_at(&pool, &path("disk2")), &leaf, AttachAs::Replacement, None, device).unwrap();
    write(FILE_BYTES / 2, b"while one is replaced");
    finish(&pool);
    for _ in 0..20 {
        pool.sync().unwrap();
    }
    let paused = pool.tree().reflow();
    assert!(paused.moved > before.moved && pool.tree().expanding().is_some(), "{paused:?}");
    assert!(read(&open(&pool)).unwrap() == expect);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    let paths = ["disk0", "disk1", "new", "disk3"].map(path);
    let pool = crate::heal::import_paths(paths.iter().cloned());
    assert!(pool.tree().reflow().moved >= paused.moved);
    finish_expansion(&pool);
    let done = scrub(&pool);
    assert_eq!((done.errors, done.processed_bytes), (0, 0), "all was where it belongs");
    check_without_any(pool, &paths, &expect);
}

/// All is there, and without any one of the devices, too.
fn check_without_any(pool: Arc<LivePool>, paths: &[PathBuf], expect: &[u8]) {
    assert!(read(&open(&pool)).unwrap() == expect);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    for gone in paths {
        let pool = crate::heal::import_paths(paths.iter().filter(|path| *path != gone).cloned());
        assert!(read(&open(&pool)).unwrap() == expect, "without {}", gone.display());
        drop(pool);
    }
}

fn put_online(pool: &LivePool, guid: Guid) {
    let open = |path: &str| Ok(Arc::new(FileDevice::open(path, OpenMode::ReadWrite)?) as Arc<dyn Device>);
    pool.online(guid, false, &open).unwrap();
    finish(pool);
}

#[test]
fn an_expanded_raidz_is_used() {
    live_with(&Lifted::newer("expanded"));
}

/// A new device gets old blocks, too: without another one all is there.
#[test]
fn a_child_of_an_expanded_raidz_is_replaced() {
    let mut lifted = Lifted::newer("expanded");
    let pool = lifted.import_with(crate::scrub::hasty());
    let name = file_systems(&pool).remove(0);
    let expected = write_files(&pool, &name, 1);
    let size = std::fs::metadata(&lifted.paths[0]).unwrap().len();
    let path = lifted.path().join("new");
    put_beside(&pool, &lifted.paths[0], &path, size, AttachAs::Replacement).unwrap();
    finish(&pool);
    assert_eq!(scrub(&pool).errors, 0);
    let wrong = pool.tree().leaves().map(|leaf| leaf.stats().checksum_errors.load(Ordering::Relaxed)).sum::<u64>();
    assert_eq!(wrong, 0, "the new device has all that it should have");
    lifted.paths[0] = path;
    lifted.judge(pool);
    // one more may go now
    std::fs::remove_file(lifted.paths.remove(1)).unwrap();
    let pool = lifted.import();
    check_files(&pool, &expected);
    assert_eq!(scrub(&pool).errors, 0);
}
