//! Listings: large, stable, with attributes, kept by the kernel; names; file handles.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use zpl::FileKind;

use crate::harness::{errno, is_kept, mounted_tree, require};
use crate::memory::{Body, Memory, ROOT};

/// Names with their d_off, as the C library's directory streams return them; at most `limit` from a
/// position on.
fn stream(path: &Path, position: Option<i64>, limit: usize) -> Vec<(Vec<u8>, u64, i64)> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut entries = Vec::new();
    // SAFETY: the stream is open until closedir; readdir's result is used before the next call.
    unsafe {
        let dir = libc::opendir(path.as_ptr());
        assert!(!dir.is_null());
        if let Some(position) = position {
            libc::seekdir(dir, position);
        }
        while entries.len() < limit {
            let entry = libc::readdir64(dir);
            if entry.is_null() {
                break;
            }
            let name = std::ffi::CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes().to_vec();
            entries.push((name, (*entry).d_ino, libc::telldir(dir)));
        }
        libc::closedir(dir);
    }
    entries
}

#[test]
fn a_hundred_thousand_names() {
    require!(fuse);
    let mut tree = Memory::new();
    let dir = tree.dir(ROOT, "many");
    for i in 0..100_000 {
        tree.file(dir, &format!("a name of ordinary length {i:06}"), i);
    }
    let m = mounted_tree(tree);
    let path = m.path("many");

    let start = std::time::Instant::now();
    let first = stream(&path, None, usize::MAX);
    let cold = start.elapsed();
    assert_eq!(first.len(), 100_002);
    assert_eq!(first[0].0, b".");
    assert_eq!((first[0].1, first[1].1), (dir.get(), ROOT.get()));
    assert_eq!(first[1].0, b"..");
    let names: HashSet<_> = first.iter().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), first.len());

    // any position can be returned to
    for at in [0, 1, 2, 3, 777, 50_000, 99_999, 100_001] {
        let rest = stream(&path, Some(first[at].2), 5);
        assert_eq!(rest, first[at + 1..].iter().take(5).cloned().collect::<Vec<_>>(), "after entry {at}");
    }

    // and the kernel keeps the listing
    let start = std::time::Instant::now();
    let asked = || m.live().calls.readdir.load(Ordering::SeqCst);
    assert!(is_kept(&asked, &|| assert_eq!(stream(&path, None, usize::MAX), first)));
    eprintln!("100,000 names: {cold:?}, again {:?}", start.elapsed());
}

#[test]
fn a_long_listing_comes_with_attributes() {
    require!(fuse);
    let mut tree = Memory::new();
    let dir = tree.dir(ROOT, "dir");
    for i in 0..10_000 {
        tree.file(dir, &format!("f{i}"), i);
    }
    tree.dir(dir, "sub");
    tree.add(dir, "link", FileKind::Symlink, Body::Link(b"f0".to_vec()));
    let m = mounted_tree(tree);
    let list = || {
        for entry in fs::read_dir(m.path("dir")).unwrap() {
            let entry = entry.unwrap();
            let stat = entry.metadata().unwrap();
            assert_eq!(stat.ino(), entry.ino());
            assert_eq!(stat.file_type(), entry.file_type().unwrap());
            if let Some(size) = entry.file_name().to_str().unwrap().strip_prefix('f') {
                assert_eq!(stat.size(), size.parse::<u64>().unwrap());
            }
        }
    };
    list();
    let lookups = m.live().calls.lookup.load(Ordering::SeqCst);
    assert!(lookups < 1000, "{lookups} of 10,002 files were looked up one by one");
    let asked = m.live().calls.total();
    list();
    assert_eq!(m.live().calls.total(), asked, "the second time the kernel asks nothing at all");
}

#[test]
fn what_is_not_there_is_remembered() {
    require!(fuse);
    let m = mounted_tree(Memory::new());
    for _ in 0..3 {
        assert_eq!(errno(fs::metadata(m.path("nothing"))), libc::ENOENT);
    }
    assert_eq!(m.live().calls.lookup.load(Ordering::SeqCst), 1);
}

#[test]
fn odd_names() {
    require!(fuse);
    let mut tree = Memory::new();
    let long = "x".repeat(255);
    let names = [&b"\xff\xfe not UTF-8"[..], b"new\nline", b" ", b"-rf", long.as_bytes(), b"...", b".zfs2"];
    for name in names {
        let object = tree.file(ROOT, "unused", 3);
        match &mut tree.node(ROOT).body {
            Body::Dir(entries) => *entries.last_mut().unwrap() = (name.to_vec(), object),
            _ => unreachable!(),
        }
    }
    let m = mounted_tree(tree);
    let mut listed: Vec<_> = fs::read_dir(m.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    listed.sort();
    let mut expect = names.map(|name| std::ffi::OsStr::from_bytes(name).to_owned());
    expect.sort();
    assert_eq!(listed, expect);
    for name in expect {
        assert_eq!(fs::read(m.path("").join(name)).unwrap().len(), 3);
    }
    assert_eq!(errno(fs::metadata(m.path(&"x".repeat(256)))), libc::ENAMETOOLONG);
}

/// A file handle as name_to_handle_at(2) fills it.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

fn handle_of(path: &Path) -> Handle {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let (mut handle, mut mount) = (Handle { bytes: 128, kind: 0, data: [0; 128] }, 0i32);
    // SAFETY: the structure is laid out as the system call wants it, with room for `bytes`.
    let result = unsafe {
        libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), &raw mut handle, &raw mut mount, 0)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    handle
}

fn open_handle(mount: &fs::File, handle: &Handle) -> std::io::Result<fs::File> {
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: as above; a descriptor that is returned is nobody else's.
    unsafe {
        match libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw const *handle, libc::O_RDONLY) {
            -1 => Err(std::io::Error::last_os_error()),
            fd => Ok(fs::File::from_raw_fd(fd as i32)),
        }
    }
}

#[test]
fn file_handles_outlive_the_mount() {
    require!(root);
    let tree = || {
        let mut tree = Memory::new();
        let sub = tree.dir(ROOT, "sub");
        let deep = tree.dir(sub, "deep");
        tree.file(deep, "file", 1234);
        tree
    };
    let m = mounted_tree(tree());
    let names = ["sub/deep/file", "sub/deep", "sub", ""];
    let handles = names.map(|name| (name, handle_of(&m.path(name))));
    drop(m);

    let m = mounted_tree(tree());
    let top = fs::File::open(m.path("")).unwrap();
    for (name, handle) in &handles {
        let stat = open_handle(&top, handle).unwrap().metadata().unwrap();
        let expect = fs::metadata(m.path(name)).unwrap();
        assert_eq!((stat.ino(), stat.size(), stat.mode()), (expect.ino(), expect.size(), expect.mode()), "{name}");
    }
    assert_eq!(fs::metadata(m.path("")).unwrap().ino(), ROOT.get(), "still, after lookups of ..");

    let mut stale = handle_of(&m.path("sub"));
    stale.data[..8].copy_from_slice(&99_999u64.to_ne_bytes());
    assert_eq!(errno(open_handle(&top, &stale)), libc::ESTALE);
}
