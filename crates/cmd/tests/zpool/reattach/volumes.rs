//! Volumes and the death of the process that gives them out: it is followed by another one, and what was lost is told.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::Surviving;
use crate::suspended::{noise, wait_for};

fn file_of(pool: &Surviving, volume: &str) -> PathBuf {
    let path = pool.world.dir.join("run/zvol/tank").join(volume);
    wait_for("the file of the volume", || fs::metadata(&path).is_ok());
    path
}

/// Opened anew, as the mount of volumes ends with each process.
pub(super) fn open(pool: &Surviving, volume: &str) -> File {
    OpenOptions::new().read(true).write(true).open(file_of(pool, volume)).unwrap()
}

pub(super) fn errno(done: std::io::Result<()>) -> Option<i32> {
    done.err().and_then(|error| error.raw_os_error())
}

#[test]
fn what_volumes_lost_is_told_once() {
    let Some(pool) = Surviving::losing("reattach-volumes", "") else { return };
    assert_eq!(pool.world.zfs("create -V 16M tank/vol"), (String::new(), 0));
    assert_eq!(pool.world.zfs("create -V 16M tank/other"), (String::new(), 0));
    pool.world.check("sync tank", 0, "");
    let [first, second] = [noise(256 << 10, 1), noise(256 << 10, 2)];
    open(&pool, "vol").write_all_at(&first, 0).unwrap();
    // the next one dies as well before it could tell
    pool.kill();
    pool.kill();
    let told = open(&pool, "vol");
    assert_eq!(errno(told.sync_all()), Some(nix::libc::EIO), "it lost a write");
    assert_eq!(errno(told.sync_all()), None, "that is told once");
    assert_eq!(errno(open(&pool, "other").sync_all()), None, "it lost nothing");
    let (events, _) = pool.world.told("zpool events");
    assert!(events.contains("ereport.fs.cenote.changes_lost"), "{events}");
    // what was on disk is not lost: by a sync, by a group, by sync=always
    let written = |volume: &str, data: &[u8], sync: bool| {
        let file = open(&pool, volume);
        file.write_all_at(data, 1 << 20).unwrap();
        assert!(!sync || file.sync_all().is_ok());
    };
    let kept = |volume: &str, data: &[u8]| {
        let (file, mut found) = (open(&pool, volume), vec![0; data.len()]);
        assert_eq!(errno(file.sync_all()), None, "{volume}");
        file.read_exact_at(&mut found, 1 << 20).unwrap();
        assert!(found == data, "{volume}");
    };
    written("vol", &first, true);
    written("other", &second, false);
    pool.world.check("sync tank", 0, "");
    pool.kill();
    kept("vol", &first);
    kept("other", &second);
    assert_eq!(pool.world.zfs("set sync=always tank/vol"), (String::new(), 0));
    written("vol", &second, false);
    pool.kill();
    kept("vol", &second);
    pool.leaves();
}

#[test]
fn a_pool_of_volumes_alone_has_a_next_process() {
    let Some(pool) = Surviving::new("reattach-alone", "-O mountpoint=none") else { return };
    assert_eq!(pool.world.zfs("create -V 16M tank/vol"), (String::new(), 0));
    open(&pool, "vol").write_all_at(b"kept", 0).unwrap();
    pool.world.check("sync tank", 0, "");
    pool.kill();
    let mut found = [0; 4];
    open(&pool, "vol").read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"kept");
    pool.leaves();
}

#[test]
fn what_was_unmounted_stays_so_beside_volumes() {
    let Some(pool) = Surviving::new("reattach-unmounted", "") else { return };
    assert_eq!(pool.world.zfs("create tank/away"), (String::new(), 0));
    assert_eq!(pool.world.zfs("create -V 16M tank/vol"), (String::new(), 0));
    assert_eq!(pool.world.zfs("unmount tank/away"), (String::new(), 0));
    let is_mounted = || pool.world.zfs("get -Ho value mounted tank tank/away").0;
    assert_eq!(is_mounted(), "yes\nno\n");
    pool.kill();
    drop(open(&pool, "vol"));
    assert_eq!(is_mounted(), "yes\nno\n");
    assert_eq!(pool.world.zfs("unmount -a").1, 0);
    pool.kill();
    drop(open(&pool, "vol"));
    assert_eq!(is_mounted(), "no\nno\n");
    pool.leaves();
}
