//! Attributes that change: modes, owners, times, attributes by name; and what the mount shows of itself.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use format::ids::ObjectId;
use zpl::FileKind;

use crate::harness::{
    c_path, checked, errno, get_xattr, list_xattr, mount_line, mounted, remove_xattr, require, set_xattr, wait_until,
    writable,
};
use crate::memory::{Body, Memory, MemorySource, ROOT};

/// utimensat(2): access and modification, seconds and nanoseconds.
fn set_times(path: &Path, atime: (i64, i64), mtime: (i64, i64)) {
    let times = [atime, mtime].map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    // SAFETY: the path is a C string, and there are two times.
    let result = unsafe { libc::utimensat(libc::AT_FDCWD, c_path(path).as_ptr(), times.as_ptr(), 0) };
    checked(result as isize).unwrap();
}

#[test]
fn modes_owners_times() {
    require!(root);
    let m = writable();
    let path = m.path("file");
    fs::write(&path, "x").unwrap();
    let stat = || fs::metadata(&path).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o7751)).unwrap();
    assert_eq!(stat().mode(), libc::S_IFREG | 0o7751);
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    chown(&path, Some(1000), None).unwrap();
    chown(&path, None, Some(4_000_000_000)).unwrap();
    assert_eq!((stat().mode() & 0o7777, stat().uid(), stat().gid()), (0o640, 1000, 4_000_000_000));

    set_times(&path, (8_000_000_000, 123_456_789), (-1_000_000_000, 999_999_999));
    assert_eq!((stat().atime(), stat().atime_nsec()), (8_000_000_000, 123_456_789));
    assert_eq!((stat().mtime(), stat().mtime_nsec()), (-1_000_000_000, 999_999_999));
    set_times(&path, (0, libc::UTIME_OMIT), (-1, 0));
    assert_eq!((stat().atime(), stat().mtime(), stat().mtime_nsec()), (8_000_000_000, -1, 0));
    set_times(&path, (0, libc::UTIME_NOW), (0, libc::UTIME_NOW));
    let is_now = |secs: i64| (SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64 - secs).abs() < 10;
    assert!(is_now(stat().atime()) && is_now(stat().mtime()) && is_now(stat().ctime()));

    // a write moves the times, and the kernel does not show what it knew before
    set_times(&path, (1, 0), (1, 0));
    assert_eq!(stat().mtime(), 1);
    fs::write(&path, "longer").unwrap();
    assert!(is_now(stat().mtime()) && stat().len() == 6);
}

#[test]
fn attributes_by_name() {
    require!(root);
    let m = writable();
    let path = m.path("file");
    fs::write(&path, "x").unwrap();
    let large = vec![7; 65536];
    set_xattr(&path, "user.a", b"1", libc::XATTR_CREATE).unwrap();
    assert_eq!(errno(set_xattr(&path, "user.a", b"2", libc::XATTR_CREATE)), libc::EEXIST);
    assert_eq!(errno(set_xattr(&path, "user.b", b"2", libc::XATTR_REPLACE)), libc::ENODATA);
    set_xattr(&path, "user.a", b"3", libc::XATTR_REPLACE).unwrap();
    set_xattr(&path, "user.b", &large, 0).unwrap();
    set_xattr(&path, "user.empty", b"", 0).unwrap();
    set_xattr(&path, "trusted.t", b"t", 0).unwrap();
    assert_eq!(get_xattr(&path, "user.a", 10).unwrap().1, b"3");
    assert_eq!(get_xattr(&path, "user.b", 65536).unwrap().1, large);
    assert_eq!(list_xattr(&path, 100).unwrap().1, b"user.a\0user.b\0user.empty\0trusted.t\0");
    remove_xattr(&path, "user.a").unwrap();
    assert_eq!(errno(remove_xattr(&path, "user.a")), libc::ENODATA);
    assert_eq!(errno(get_xattr(&path, "user.a", 10)), libc::ENODATA);
    let acl = crate::memory::acl::acl(&[]);
    assert_eq!(errno(set_xattr(&path, "system.posix_acl_access", &acl, 0)), libc::EOPNOTSUPP);

    let m = mounted(MemorySource::new(Memory::writable()), |options| options.xattrs = false);
    fs::write(m.path("file"), "x").unwrap();
    assert_eq!(errno(set_xattr(&m.path("file"), "user.a", b"1", 0)), libc::EOPNOTSUPP);
    assert_eq!(errno(remove_xattr(&m.path("file"), "user.a")), libc::EOPNOTSUPP);
}

/// A tree whose files were read last before they were changed last: relatime is due.
fn old_tree() -> MemorySource {
    let mut tree = Memory::writable();
    tree.file(ROOT, "file", 10);
    tree.dir(ROOT, "dir");
    tree.add(ROOT, "link", FileKind::Symlink, Body::Link(b"file".to_vec()));
    MemorySource::new(tree)
}

#[test]
fn access_times() {
    require!(fuse);
    for (atime, relatime, expect) in [(true, true, [1, 2, 3, 4]), (true, false, [1, 2, 3, 4]), (false, false, [0; 4])] {
        let m = mounted(old_tree(), |options| (options.atime, options.relatime) = (atime, relatime));
        // who asks sees it at once
        let touches = || {
            ["file", "dir", "link"].iter().for_each(|name| assert!(m.path(name).symlink_metadata().is_ok()));
            m.live().calls.touch_atime.load(Ordering::SeqCst)
        };
        let read = |flags| {
            // from the tree, as the kernel keeps pages
            m.mount.invalidate(ObjectId::new(128)).unwrap();
            let mut file = File::options().read(true).custom_flags(flags).open(m.path("file")).unwrap();
            file.read_to_end(&mut Vec::new()).unwrap();
        };
        read(libc::O_NOATIME);
        assert_eq!(touches(), 0);
        read(0);
        assert_eq!(touches(), expect[0]);
        assert_eq!(fs::metadata(m.path("file")).unwrap().atime() > 1_700_000_000, atime, "seen at once");
        fs::read_dir(m.path("dir")).unwrap().for_each(drop);
        assert_eq!(touches(), expect[1]);
        fs::read_link(m.path("link")).unwrap();
        assert_eq!(touches(), expect[2]);
        // relatime: not again until it is written
        if !relatime {
            read(0);
            assert_eq!(touches(), expect[3]);
            // and otherwise it is there soon
            read(0);
            wait_until(|| !atime || m.live().calls.touch_atime.load(Ordering::SeqCst) > expect[3]);
            continue;
        }
        read(0);
        assert_eq!(touches(), expect[2]);
        std::thread::sleep(Duration::from_millis(5));
        fs::write(m.path("file"), "other").unwrap();
        read(0);
        assert_eq!(touches(), expect[3]);
    }
}

#[test]
fn shown_as_zfs_and_writable() {
    require!(root);
    let m = mounted(MemorySource::new(Memory::writable()), |options| {
        (options.exec, options.setuid, options.devices, options.atime) = (false, false, false, false);
    });
    let line = mount_line(m.mount.point()).unwrap();
    assert!(line.contains(" - fuse.zfs tank/home rw,"), "{line}");
    assert!(line.contains(" rw,nosuid,nodev,noexec,noatime"), "{line}");
    let files = || nix::sys::statvfs::statvfs(&m.path("")).unwrap().files();
    let before = files();
    fs::write(m.path("file"), "").unwrap();
    assert_eq!(files(), before + 1, "statfs is asked each time");

    // property readonly, of a tree that could be written
    let m = mounted(MemorySource::new(Memory::writable()), |options| options.read_only = true);
    assert!(mount_line(m.mount.point()).unwrap().contains(" - fuse.zfs tank/home ro,"));
    assert_eq!(errno(fs::write(m.path("file"), "")), libc::EROFS);
}

#[test]
fn remounted_while_it_is_used() {
    require!(root);
    let m = mounted(MemorySource::new(Memory::writable()), |options| options.read_only = true);
    let line = || mount_line(m.mount.point()).unwrap();
    let mut options = fuse::MountOptions::new("tank/home", m.mount.point());
    // somebody stands in it all the time
    let _inside = fs::File::open(m.path("")).unwrap();
    m.mount.remount(&options).unwrap();
    assert!(line().contains(" rw,relatime ") && line().contains(" - fuse.zfs tank/home rw,"), "{}", line());
    fs::write(m.path("file"), "12345").unwrap();
    (options.exec, options.setuid, options.devices, options.atime) = (false, false, false, false);
    m.mount.remount(&options).unwrap();
    assert!(line().contains(" rw,nosuid,nodev,noexec,noatime "), "{}", line());
    // a `.zfs` comes, is listed, and goes, whatever the kernel has kept
    let is_listed = || fs::read_dir(m.path("")).unwrap().any(|entry| entry.unwrap().file_name() == ".zfs");
    for (snapdir, is_there, listed) in [
        (fuse::SnapDir::Disabled, false, false),
        (fuse::SnapDir::Visible, true, true),
        (fuse::SnapDir::Hidden, true, false),
        (fuse::SnapDir::Disabled, false, false),
        (fuse::SnapDir::Hidden, true, false),
    ] {
        options.snapdir = snapdir;
        m.mount.remount(&options).unwrap();
        assert_eq!((m.path(".zfs").exists(), is_listed()), (is_there, listed), "{snapdir:?}");
    }
    options.read_only = true;
    let writer = fs::File::options().write(true).open(m.path("file")).unwrap();
    assert_eq!(m.mount.remount(&options).unwrap_err().kind(), base::Kind::Busy);
    drop(writer);
    // a process that another test starts has it for a moment, too
    wait_until(|| m.mount.remount(&options).is_ok());
    assert_eq!(errno(fs::write(m.path("file"), "")), libc::EROFS);
    // what the kernel lets pass meets the same answer
    let remount = nix::mount::MsFlags::MS_REMOUNT;
    nix::mount::mount(None::<&str>, m.mount.point(), None::<&str>, remount, None::<&str>).unwrap();
    assert_eq!(errno(fs::write(m.path("file"), "")), libc::EROFS);
    assert_eq!(fs::read(m.path("file")).unwrap(), b"12345");
}

#[test]
fn room_is_told_anew() {
    require!(fuse);
    let m = writable();
    fs::write(m.path("file"), "x").unwrap();
    let object = ObjectId::new(fs::metadata(m.path("file")).unwrap().ino());
    let blocks = || fs::metadata(m.path("file")).unwrap().blocks();
    let before = blocks();
    // as when a transaction group reaches the disk: nobody tells the kernel
    m.live().change_stat(object, |stat| stat.blocks += 100);
    let start = std::time::Instant::now();
    while blocks() == before && start.elapsed().as_secs() < 10 {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(blocks(), before + 100);
    // long after the last change it may be kept
    for object in [object, ROOT] {
        m.live().change_stat(object, |stat| stat.ctime = (1_700_000_000, 0));
    }
    std::thread::sleep(Duration::from_millis(1100));
    blocks();
    let asked = m.live().calls.total();
    std::thread::sleep(Duration::from_millis(1100));
    blocks();
    assert_eq!(m.live().calls.total(), asked);
}

#[test]
fn locks_are_the_kernels() {
    require!(fuse);
    let m = writable();
    let (one, two) = (File::create(m.path("file")).unwrap(), File::open(m.path("file")).unwrap());
    one.lock().unwrap();
    assert!(two.try_lock().is_err());
    one.unlock().unwrap();
    two.try_lock().unwrap();
    let lock = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 10, l_len: 10, l_pid: 0 };
    // SAFETY: fcntl reads the structure, and nothing else.
    let set =
        |file: &File| checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } as isize);
    let three = File::options().write(true).open(m.path("file")).unwrap();
    set(&one).unwrap();
    assert_eq!(errno(set(&three)), libc::EAGAIN);
    drop(one);
    wait_until(|| set(&three).is_ok());
}
