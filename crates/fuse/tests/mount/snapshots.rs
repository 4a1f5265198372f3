//! `.zfs/snapshot`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::ids::ObjectId;
use fuse::{SnapDir, Snapshot};

use crate::harness::{errno, mounted, require, unmount};
use crate::memory::{Memory, MemorySource, ROOT};

fn tree(names: &[&str]) -> Memory {
    let mut tree = Memory::new();
    for name in names {
        let dir = tree.dir(ROOT, name);
        tree.file(dir, "file", name.len() as u64);
    }
    tree
}

fn source() -> MemorySource {
    let source = MemorySource::new(tree(&["now", "both"]));
    source.with_snapshot("monday", tree(&["then", "both"])).with_snapshot("empty", tree(&[]))
}

fn names(path: impl AsRef<Path>) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn hidden_but_there() {
    require!(fuse);
    let m = mounted(source(), |_| {});
    assert_eq!(names(m.path("")), ["both", "now"]);
    assert_eq!(names(m.path(".zfs")), ["shares", "snapshot"]);
    assert_eq!(names(m.path(".zfs/shares")), [""; 0]);
    assert!(fs::write(m.path(".zfs/shares/a"), "").is_err());
    assert_eq!(names(m.path(".zfs/snapshot")), ["empty", "monday"]);
    assert_eq!(m.source.opens.load(Ordering::SeqCst), 0, "a listing opens none");
    assert_eq!(names(m.path(".zfs/snapshot/monday")), ["both", "then"]);
    assert_eq!(names(m.path(".zfs/snapshot/empty")), [""; 0]);
    assert_eq!(fs::read(m.path(".zfs/snapshot/monday/then/file")).unwrap().len(), 4);
    assert_eq!(m.source.opens.load(Ordering::SeqCst), 2);
    assert_eq!(m.source.lists.load(Ordering::SeqCst), 1);
    for absent in [".zfs/shares2", ".zfs/snapshot/tuesday", ".zfs/snapshot/monday/.zfs", "both/.zfs"] {
        assert_eq!(errno(fs::metadata(m.path(absent))), libc::ENOENT, "{absent}");
    }
    let ino = |path: &str| fs::metadata(m.path(path)).unwrap().ino();
    assert_eq!(ino(".zfs"), 0xffff_ffff_ffff);
    assert_eq!(ino(".zfs/snapshot"), 0xffff_ffff_fffd);
    assert_eq!(ino(".zfs/shares"), 0xffff_ffff_fffe);
    assert_eq!(ino(".zfs/shares/.."), ino(".zfs"));
    assert_eq!(ino(".zfs/.."), ROOT.get());
    assert_eq!(ino(".zfs/snapshot/monday"), 0xffff_ffff_fffc - 1000);
    assert_eq!(ino(".zfs/snapshot/empty"), 0xffff_ffff_fffc - 1001);
    // the same object, and still not a hard link of it
    assert_eq!(ino(".zfs/snapshot/monday/both/file"), 1 << 48 | ino("both/file"));
    assert_eq!(ino(".zfs/snapshot/monday/both/.."), ino(".zfs/snapshot/monday"));
    assert_eq!(fs::canonicalize(m.path(".zfs/snapshot/monday/../../..")).unwrap(), m.mount.point());
}

#[test]
fn visible_or_not_there_at_all() {
    require!(fuse);
    let m = mounted(source(), |options| options.snapdir = SnapDir::Visible);
    assert_eq!(names(m.path("")), [".zfs", "both", "now"]);
    assert_eq!(names(m.path("both")), ["file"]);
    assert_eq!(names(m.path(".zfs/snapshot/monday")), ["both", "then"], "snapshots have none");
    assert_eq!(fs::metadata(m.path("")).unwrap().nlink(), 2);

    let m = mounted(MemorySource::new(Memory::new()), |options| options.snapdir = SnapDir::Visible);
    assert_eq!(names(m.path("")), [".zfs"], "in an empty directory, too");
    assert_eq!(names(m.path(".zfs/snapshot")), [""; 0]);

    let m = mounted(source(), |options| options.snapdir = SnapDir::Disabled);
    assert_eq!(names(m.path("")), ["both", "now"]);
    assert_eq!(errno(fs::metadata(m.path(".zfs"))), libc::ENOENT);
}

#[test]
fn a_thousand_of_them() {
    require!(fuse);
    let mut source = MemorySource::new(Memory::new());
    for i in 0..1000 {
        source = source.with_snapshot(&format!("daily-{i:04}"), tree(&[&"x".repeat(1 + i % 7)]));
    }
    let m = mounted(source, |_| {});
    let listed = names(m.path(".zfs/snapshot"));
    assert_eq!(listed.len(), 1000);
    let opens = || m.source.opens.load(Ordering::SeqCst);
    for (i, name) in listed.iter().enumerate() {
        let path = format!(".zfs/snapshot/{name}/{}/file", "x".repeat(1 + i % 7));
        assert_eq!(fs::read(m.path(&path)).unwrap().len(), 1 + i % 7);
    }
    assert_eq!(opens(), 1000, "each was opened once");
    // one that was closed meanwhile is opened again, under the same numbers
    let stat = fs::metadata(m.path(".zfs/snapshot/daily-0003/xxxx")).unwrap();
    assert_eq!(stat.ino() >> 48, 4);
    assert_eq!(names(m.path(".zfs/snapshot/daily-0003/xxxx")), ["file"]);
    assert_eq!(opens(), 1001);
}

#[test]
fn they_come_and_go() {
    require!(fuse);
    let m = mounted(source(), |_| {});
    let all = ".zfs/snapshot";
    assert_eq!(names(m.path(all)), ["empty", "monday"]);
    assert_eq!(errno(fs::metadata(m.path(".zfs/snapshot/tuesday"))), libc::ENOENT);
    let ino = fs::metadata(m.path(".zfs/snapshot/empty")).unwrap().ino();
    assert_eq!(names(m.path(".zfs/snapshot/monday")), ["both", "then"]);

    let snapshot = |name: &str, dataset| {
        let dataset = ObjectId::new(dataset);
        Snapshot { name: name.to_owned(), dataset, created_s: 1_650_000_001 }
    };
    {
        let mut snapshots = m.source.snapshots.write();
        snapshots.retain(|(snapshot, _)| snapshot.name != "monday");
        snapshots.push((snapshot("tuesday", 1010), Arc::new(tree(&["later"]))));
    }
    m.source.version.fetch_add(1, Ordering::SeqCst);
    m.mount.snapshots_changed().unwrap();
    assert_eq!(names(m.path(all)), ["empty", "tuesday"]);
    assert_eq!(names(m.path(".zfs/snapshot/tuesday")), ["later"]);
    assert_eq!(errno(fs::metadata(m.path(".zfs/snapshot/monday"))), libc::ENOENT);
    assert_eq!(fs::metadata(m.path(".zfs/snapshot/empty")).unwrap().ino(), ino);

    // the name is another's
    {
        let mut snapshots = m.source.snapshots.write();
        snapshots.retain(|(snapshot, _)| snapshot.name != "tuesday");
        snapshots.push((snapshot("tuesday", 1011), Arc::new(tree(&["another"]))));
    }
    m.source.version.fetch_add(1, Ordering::SeqCst);
    m.mount.snapshots_changed().unwrap();
    assert_eq!(names(m.path(".zfs/snapshot/tuesday")), ["another"]);
}

/// It would hide the one that comes back.
#[test]
fn nothing_else_is_called_so() {
    require!(root);
    let m = mounted(MemorySource::new(Memory::writable()), |options| options.snapdir = SnapDir::Disabled);
    fs::write(m.path("file"), "").unwrap();
    fs::create_dir(m.path("dir")).unwrap();
    assert_eq!(errno(fs::metadata(m.path(".zfs"))), libc::ENOENT);
    assert_eq!(errno(fs::create_dir(m.path(".zfs"))), libc::EEXIST);
    assert_eq!(errno(fs::rename(m.path("file"), m.path(".zfs"))), libc::EEXIST);
    assert_eq!(errno(fs::hard_link(m.path("file"), m.path(".zfs"))), libc::EEXIST);
    assert_eq!(errno(std::os::unix::fs::symlink("to", m.path(".zfs"))), libc::EEXIST);
    fs::create_dir(m.path("dir/.zfs")).unwrap();
    unmount(&m.mount);
}
