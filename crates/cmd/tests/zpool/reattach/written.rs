//! What the kernel's write-back cache keeps, and what it says of files, over the death of the process.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use super::Surviving;
use crate::suspended::wait_for;

/// With its write-back cache the kernel asks nobody how long a file is.
#[test]
fn a_size_that_was_lost_is_not_the_kernels() {
    let Some(pool) = Surviving::with("reattachsize", "tank", "-O org.cenote:writeback=on", 0) else { return };
    pool.world.tune("zfs_txg_timeout", 1000);
    for name in ["cut", "grown"] {
        fs::write(pool.at(name), "precious").unwrap();
    }
    pool.world.check("sync tank", 0, "");
    let [cut, grown] =
        ["cut", "grown"].map(|name| OpenOptions::new().read(true).write(true).open(pool.at(name)).unwrap());
    cut.set_len(3).unwrap();
    grown.set_len(1 << 20).unwrap();
    assert_eq!([&cut, &grown].map(|file| file.metadata().unwrap().len()), [3, 1 << 20]);
    pool.kill();
    for file in [&cut, &grown] {
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
        // it is told until the kernel has the size that is there
        wait_for("the end of errors", || file.sync_all().is_ok());
        assert_eq!(file.metadata().unwrap().len(), 8);
        let mut bytes = [0; 9];
        assert_eq!((file.read_at(&mut bytes, 0).unwrap(), &bytes[..8]), (8, &b"precious"[..]));
    }
    drop((cut, grown));
    pool.leaves();
}

/// The process that comes next is sent it.
#[test]
fn what_the_kernel_keeps_is_not_lost() {
    let Some(pool) = Surviving::named("reattachpages", "tank", "-O org.cenote:writeback=on") else { return };
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(pool.at("file")).unwrap();
    let mut expect = Vec::new();
    for round in 0..4_u8 {
        let piece = vec![round + 1; 5000];
        file.write_all_at(&piece, expect.len() as u64).unwrap();
        expect.extend(piece);
        pool.kill();
        if round % 2 == 1 {
            file.sync_all().unwrap();
        }
        assert!(fs::read(pool.at("file")).unwrap() == expect, "round {round}");
        let snapshot = format!("snapshot tank@{round}");
        assert_eq!(pool.world.zfs(&snapshot), (String::new(), 0));
        assert!(fs::read(pool.at(&format!(".zfs/snapshot/{round}/file"))).unwrap() == expect, "round {round}");
    }
    let (events, _) = pool.world.told("zpool events");
    assert!(!events.contains("changes_lost"), "{events}");
    drop(file);
    pool.leaves();
}
