//! Trees that are broken: an error for what is broken, and the rest as if nothing were.

use std::fs;
use std::os::unix::fs::DirEntryExt;

use base::Kind;
use format::ids::ObjectId;
use zpl::FileKind;

use crate::harness::{errno, mounted_tree, require};
use crate::memory::{Body, Memory, ROOT};

#[test]
fn the_rest_is_there() {
    require!(fuse);
    let mut tree = Memory::new();
    tree.file(ROOT, "good", 10);
    tree.add(ROOT, "checksum", FileKind::File, Body::Broken(Kind::Checksum));
    tree.add(ROOT, "corrupt", FileKind::Directory, Body::Broken(Kind::Corrupt));
    tree.add(ROOT, "missing", FileKind::Symlink, Body::Broken(Kind::Missing));
    tree.link(ROOT, b"dangling", ObjectId::new(5555));
    let m = mounted_tree(tree);
    for _ in 0..2 {
        let mut names: Vec<_> =
            fs::read_dir(m.path("")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["checksum", "corrupt", "dangling", "good", "missing"]);
        assert_eq!(errno(fs::read(m.path("checksum"))), libc::EIO);
        assert_eq!(errno(fs::read_dir(m.path("corrupt"))), libc::EIO);
        assert_eq!(errno(fs::read_link(m.path("missing"))), libc::ENXIO);
        assert_eq!(errno(fs::metadata(m.path("dangling"))), libc::EIO);
        assert_eq!(fs::read(m.path("good")).unwrap().len(), 10);
    }
}

#[test]
fn impossible_entries() {
    require!(fuse);
    let mut tree = Memory::new();
    tree.file(ROOT, "good", 10);
    for name in [&b""[..], b"a/b", b"a\0b", &[b'x'; 2000], b"..", b"."] {
        tree.link(ROOT, name, ObjectId::new(128));
    }
    let numbers = [0, 1, 0xffff_ffff_ffff, 0xffff_ffff_fffd, 1 << 48, u64::MAX];
    for number in numbers {
        tree.link(ROOT, format!("n{number}").as_bytes(), ObjectId::new(number));
    }
    // a directory that contains itself, and one that contains the root
    let inner = tree.dir(ROOT, "inner");
    tree.link(inner, b"self", inner);
    tree.link(inner, b"root", ROOT);
    let m = mounted_tree(tree);
    for number in numbers {
        assert_eq!(errno(fs::metadata(m.path(&format!("n{number}")))), libc::EIO, "{number}");
    }
    let listed: Vec<_> = fs::read_dir(m.path("")).unwrap().map(|e| e.unwrap()).collect();
    let names: Vec<_> = listed.iter().map(|e| e.file_name().into_string().unwrap()).collect();
    assert!(names.contains(&"good".to_owned()) && names.contains(&"inner".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name.contains('/') || name.len() > 1024), "{names:?}");
    assert!(listed.iter().any(|e| e.ino() == 128));
    for inner in ["inner/self", "inner/root"] {
        let error = errno(fs::metadata(m.path(inner)));
        assert!([libc::ELOOP, libc::EIO].contains(&error), "{inner}: {error}");
    }
    assert_eq!(fs::read(m.path("good")).unwrap().len(), 10);
}
