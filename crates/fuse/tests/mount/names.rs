//! Names: made, moved, exchanged, removed; what is refused, and with which errno.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use format::ids::ObjectId;

use crate::harness::{c_path, checked, errno, mounted, mounted_tree, require, writable};
use crate::memory::{Memory, MemorySource, ROOT};

pub fn mknod(path: &Path, mode: u32, rdev: u64) -> std::io::Result<()> {
    // SAFETY: the path is a C string that lives as long as the call.
    checked(unsafe { libc::mknod(c_path(path).as_ptr(), mode, rdev) } as isize).map(|_| ())
}

pub fn renameat2(from: &Path, to: &Path, flags: u32) -> std::io::Result<()> {
    let (from, to) = (c_path(from), c_path(to));
    // SAFETY: as above.
    let result = unsafe {
        libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)
    };
    checked(result as isize).map(|_| ())
}

fn names(path: impl AsRef<Path>) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_kind() {
    require!(root);
    let m = writable();
    assert_eq!(names(m.path("")), [""; 0]);
    fs::write(m.path("file"), "text").unwrap();
    fs::create_dir(m.path("dir")).unwrap();
    symlink("to/nowhere", m.path("link")).unwrap();
    mknod(&m.path("fifo"), libc::S_IFIFO | 0o640, 0).unwrap();
    mknod(&m.path("socket"), libc::S_IFSOCK | 0o600, 0).unwrap();
    mknod(&m.path("plain"), libc::S_IFREG | 0o600, 0).unwrap();
    mknod(&m.path("null"), libc::S_IFCHR | 0o666, libc::makedev(1, 3)).unwrap();
    mknod(&m.path("disk"), libc::S_IFBLK | 0o660, libc::makedev(259, 70_000)).unwrap();
    let stat = |name: &str| fs::symlink_metadata(m.path(name)).unwrap();
    assert!(stat("file").is_file() && stat("dir").is_dir() && stat("link").is_symlink() && stat("plain").is_file());
    assert!(stat("fifo").file_type().is_fifo() && stat("socket").file_type().is_socket());
    assert!(stat("null").file_type().is_char_device() && stat("disk").file_type().is_block_device());
    assert_eq!((stat("null").rdev(), stat("disk").rdev()), (libc::makedev(1, 3), libc::makedev(259, 70_000)));
    assert_eq!(fs::read_link(m.path("link")).unwrap(), Path::new("to/nowhere"));
    assert_eq!(fs::write(m.path("null"), "gone").ok(), Some(()), "it is the device");
    assert_eq!(names(m.path("")), ["dir", "disk", "fifo", "file", "link", "null", "plain", "socket"]);
    assert_eq!((stat("").nlink(), stat("").size(), stat("dir").nlink()), (3, 10, 2));
    assert_eq!(stat("file").size(), 4);

    // a hard link is the same file
    fs::hard_link(m.path("file"), m.path("dir/again")).unwrap();
    fs::write(m.path("dir/again"), "longer text").unwrap();
    assert_eq!((stat("file").nlink(), stat("file").size()), (2, 11));
    assert_eq!(stat("file").ino(), stat("dir/again").ino());
    fs::remove_file(m.path("file")).unwrap();
    assert_eq!((stat("dir/again").nlink(), fs::read(m.path("dir/again")).unwrap().len()), (1, 11));
    assert_eq!(names(m.path("")), ["dir", "disk", "fifo", "link", "null", "plain", "socket"]);
}

#[test]
fn refusals() {
    require!(fuse);
    let m = writable();
    fs::write(m.path("file"), "").unwrap();
    fs::create_dir_all(m.path("dir/sub")).unwrap();
    let p = |name: &str| m.path(name);
    for (expect, error) in [
        (libc::EEXIST, errno(fs::create_dir(p("file")))),
        (libc::EEXIST, errno(File::create_new(p("file")))),
        (libc::EEXIST, errno(fs::hard_link(p("file"), p("dir")))),
        (libc::EEXIST, errno(symlink("x", p("file")))),
        (libc::ENOTEMPTY, errno(fs::remove_dir(p("dir")))),
        (libc::ENOTEMPTY, errno(fs::rename(p("dir/sub"), p("dir")))),
        (libc::ENOTDIR, errno(fs::remove_dir(p("file")))),
        (libc::ENOTDIR, errno(fs::create_dir(p("file/below")))),
        (libc::ENOTDIR, errno(fs::rename(p("dir"), p("file")))),
        (libc::EISDIR, errno(fs::remove_file(p("dir")))),
        (libc::EISDIR, errno(fs::rename(p("file"), p("dir/sub")))),
        (libc::EISDIR, errno(fs::write(p("dir"), ""))),
        (libc::EINVAL, errno(fs::rename(p("dir"), p("dir/sub/x")))),
        (libc::ENOENT, errno(fs::remove_file(p("none")))),
        (libc::ENOENT, errno(fs::rename(p("none"), p("x")))),
        (libc::ENOENT, errno(fs::write(p("none/x"), ""))),
        (libc::EPERM, errno(fs::hard_link(p("dir"), p("x")))),
        (libc::ENAMETOOLONG, errno(fs::write(p(&"x".repeat(256)), ""))),
        (libc::EXDEV, errno(fs::rename(p("file"), std::env::temp_dir().join("x")))),
    ] {
        assert_eq!(error, expect);
    }
    // a directory that is gone takes no names
    let sub = File::open(p("dir/sub")).unwrap();
    fs::remove_dir(p("dir/sub")).unwrap();
    // SAFETY: the path is a C string, the descriptor open.
    let made = checked(unsafe { libc::mkdirat(sub.as_raw_fd(), c"x".as_ptr(), 0o755) } as isize);
    assert_eq!(errno(made), libc::ENOENT);
    assert_eq!(names(p("")), ["dir", "file"]);
}

#[test]
fn renames() {
    require!(fuse);
    let m = writable();
    let p = |name: &str| m.path(name);
    for name in ["a", "b"] {
        fs::write(p(name), name).unwrap();
    }
    fs::create_dir(p("dir")).unwrap();
    fs::create_dir(p("empty")).unwrap();
    fs::write(p("dir/in"), "in").unwrap();
    let read = |name: &str| fs::read_to_string(p(name)).unwrap();

    assert_eq!(errno(renameat2(&p("a"), &p("b"), libc::RENAME_NOREPLACE)), libc::EEXIST);
    renameat2(&p("a"), &p("c"), libc::RENAME_NOREPLACE).unwrap();
    assert_eq!((errno(fs::metadata(p("a"))), read("c").as_str()), (libc::ENOENT, "a"));
    renameat2(&p("b"), &p("c"), libc::RENAME_EXCHANGE).unwrap();
    assert_eq!((read("b").as_str(), read("c").as_str()), ("a", "b"));
    assert_eq!(errno(renameat2(&p("b"), &p("none"), libc::RENAME_EXCHANGE)), libc::ENOENT);
    let both = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
    assert_eq!(errno(renameat2(&p("b"), &p("c"), both)), libc::EEXIST);
    assert_eq!(errno(renameat2(&p("b"), &p("c"), libc::RENAME_WHITEOUT | libc::RENAME_EXCHANGE)), libc::EINVAL);
    // a directory and a file, in different directories
    renameat2(&p("empty"), &p("dir/in"), libc::RENAME_EXCHANGE).unwrap();
    assert_eq!((read("empty").as_str(), fs::metadata(p("dir/in")).unwrap().is_dir()), ("in", true));
    assert_eq!((fs::metadata(p("")).unwrap().nlink(), fs::metadata(p("dir")).unwrap().nlink()), (3, 3));

    fs::rename(p("b"), p("c")).unwrap();
    assert_eq!((names(p("")), read("c")), (["c", "dir", "empty"].map(str::to_owned).to_vec(), "a".to_owned()));
    fs::hard_link(p("c"), p("same")).unwrap();
    fs::rename(p("c"), p("same")).unwrap();
    assert_eq!(names(p("")), ["c", "dir", "empty", "same"], "two names of one file both stay");
    fs::create_dir(p("new")).unwrap();
    fs::rename(p("dir"), p("new")).unwrap();
    assert_eq!(names(p("new")), ["in"]);
    fs::rename(p("new/in"), p("up")).unwrap();
    assert_eq!(fs::canonicalize(p("up/..")).unwrap(), m.mount.point());
}

#[test]
fn a_tree_comes_and_goes() {
    require!(fuse);
    let m = writable();
    for dir in 0..4 {
        fs::create_dir(m.path(&format!("d{dir}"))).unwrap();
    }
    std::thread::scope(|scope| {
        for dir in 0..4 {
            let m = &m;
            scope.spawn(move || {
                for i in 0..1500 {
                    fs::write(m.path(&format!("d{dir}/a file of number {i}")), format!("{i}")).unwrap();
                }
            });
        }
    });
    for dir in 0..4 {
        assert_eq!(names(m.path(&format!("d{dir}"))).len(), 1500);
    }
    assert_eq!(fs::read(m.path("d3/a file of number 1499")).unwrap(), b"1499");
    // reads on in the listing while names go
    fs::remove_dir_all(m.path("d0")).unwrap();
    fs::remove_dir_all(m.path("d1")).unwrap();
    assert_eq!(names(m.path("")), ["d2", "d3"]);
    let start = std::time::Instant::now();
    while m.live().read().nodes.len() != 3003 && start.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(m.live().read().nodes.len(), 3003, "all that was removed was given back");
}

#[test]
fn dot_zfs_does_not_change() {
    require!(fuse);
    let mut old = Memory::new();
    old.file(ROOT, "old", 10);
    let m = mounted(MemorySource::new(Memory::writable()).with_snapshot("monday", old), |_| {});
    let p = |name: &str| m.path(name);
    fs::write(p("file"), "").unwrap();
    let snapshot = ".zfs/snapshot/monday";
    for (expect, error) in [
        (libc::EROFS, errno(fs::write(p(&format!("{snapshot}/old")), ""))),
        (libc::EROFS, errno(fs::write(p(&format!("{snapshot}/new")), ""))),
        (libc::EROFS, errno(fs::remove_file(p(&format!("{snapshot}/old"))))),
        (libc::EXDEV, errno(fs::rename(p(&format!("{snapshot}/old")), p("x")))),
        (libc::EXDEV, errno(fs::rename(p("file"), p(&format!("{snapshot}/x"))))),
        (libc::EXDEV, errno(fs::hard_link(p(&format!("{snapshot}/old")), p("x")))),
        (libc::EACCES, errno(fs::write(p(".zfs/x"), ""))),
        (libc::EPERM, errno(fs::create_dir(p(".zfs/snapshot/x")))),
        (libc::EACCES, errno(fs::remove_dir(p(".zfs")))),
        (libc::EACCES, errno(fs::rename(p(".zfs"), p("x")))),
        (libc::EEXIST, errno(fs::create_dir(p(".zfs")))),
    ] {
        assert_eq!(error, expect);
    }
    assert_eq!(names(p("")), ["file"]);
}

#[test]
fn names_with_aliases() {
    require!(fuse);
    let m = mounted_tree(Memory::writable().ignoring_case());
    let p = |name: &str| m.path(name);
    for name in ["File", "FILE"] {
        assert_eq!(errno(fs::metadata(p(name))), libc::ENOENT);
    }
    fs::write(p("file"), "text").unwrap();
    // the kernel must not believe what it was told of those before
    assert_eq!(fs::read(p("File")).unwrap(), b"text");
    assert_eq!(errno(File::create_new(p("FILE"))), libc::EEXIST);
    fs::remove_file(p("FILE")).unwrap();
    assert_eq!(errno(fs::metadata(p("file"))), libc::ENOENT);
    assert_eq!(errno(fs::metadata(p("File"))), libc::ENOENT);
}

#[test]
fn somebody_else_changes_it() {
    require!(fuse);
    let m = writable();
    let p = |name: &str| m.path(name);
    assert_eq!(errno(fs::metadata(p("new"))), libc::ENOENT);
    fs::write(p("old"), "text").unwrap();
    let object = ObjectId::new(fs::metadata(p("old")).unwrap().ino());
    fuse::FileTree::rename(m.live(), (ROOT, b"old"), (ROOT, b"new"), fuse::RenameMode::Replace).unwrap();
    let file = fuse::FileTree::open_file(m.live(), object).unwrap();
    fuse::TreeFile::write(&file, 0, b"longer text".into()).unwrap();
    for name in ["old", "new"] {
        m.mount.invalidate_name(ROOT, name.as_bytes()).unwrap();
    }
    m.mount.invalidate(object).unwrap();
    m.mount.invalidate(ROOT).unwrap();
    assert_eq!(errno(fs::metadata(p("old"))), libc::ENOENT);
    assert_eq!(fs::read(p("new")).unwrap(), b"longer text");
    assert_eq!(names(p("")), ["new"]);
}
