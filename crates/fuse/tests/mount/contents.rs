//! Attributes, data, links, holes, attributes by name, sizes.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use zpl::FileKind;

use crate::harness::{errno, get_xattr, is_kept, list_xattr, mount_line, mounted, mounted_tree, require};
use crate::memory::{Body, Content, Memory, MemorySource, ROOT, fill};

/// A file that holds what [`fill`] says.
fn assert_filled(path: &Path, seed: u64, size: u64) {
    let data = fs::read(path).unwrap();
    assert_eq!(data.len() as u64, size);
    let mut expect = vec![0; data.len()];
    fill(seed, 0, &mut expect);
    assert!(data == expect, "{} differs", path.display());
}

#[test]
fn attributes() {
    require!(root);
    let mut tree = Memory::new();
    let file = tree.file(ROOT, "file", 5000);
    let node = tree.node(file);
    node.stat.mode = 0o4751;
    (node.stat.uid, node.stat.gid, node.stat.nlink) = (1000, 4_000_000_000, 3);
    (node.stat.blocks, node.stat.block_size) = (17, 131_072);
    node.stat.mtime = (-1_000_000_000, 999_999_999);
    node.stat.atime = (8_000_000_000, 123_456_789);
    let device = tree.add(ROOT, "device", FileKind::BlockDevice, Body::Special);
    tree.node(device).stat.rdev = libc::makedev(259, 70_000);
    tree.add(ROOT, "fifo", FileKind::Fifo, Body::Special);
    tree.add(ROOT, "socket", FileKind::Socket, Body::Special);
    tree.add(ROOT, "link", FileKind::Symlink, Body::Link(b"to/\xff/nowhere".to_vec()));
    let m = mounted_tree(tree);

    let stat = fs::metadata(m.path("file")).unwrap();
    assert_eq!((stat.ino(), stat.mode(), stat.nlink()), (file.get(), libc::S_IFREG | 0o4751, 3));
    assert_eq!((stat.uid(), stat.gid(), stat.size()), (1000, 4_000_000_000, 5000));
    assert_eq!((stat.blocks(), stat.blksize()), (17, 131_072));
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (-1_000_000_000, 999_999_999));
    assert_eq!((stat.atime(), stat.atime_nsec()), (8_000_000_000, 123_456_789));
    assert_eq!((stat.ctime(), stat.ctime_nsec()), (1_700_000_001, 3));
    // that asks for the birth time, too; this does not, and sees the same
    let born = |name| fs::symlink_metadata(m.path(name)).unwrap().created().unwrap();
    assert_eq!(born("file"), UNIX_EPOCH + Duration::new(1_500_000_000, 4));
    assert_eq!((born(""), born("device"), born("link")), (born("file"), born("file"), born("file")));
    let plain = nix::sys::stat::stat(&m.path("file")).unwrap();
    assert_eq!((plain.st_ino, plain.st_mode, plain.st_nlink as u64), (stat.ino(), stat.mode(), stat.nlink()));
    assert_eq!((plain.st_size as u64, plain.st_blocks as u64), (stat.size(), stat.blocks()));

    let kind = |name| fs::symlink_metadata(m.path(name)).unwrap().file_type();
    assert!(kind("device").is_block_device() && kind("fifo").is_fifo() && kind("socket").is_socket());
    let rdev = fs::symlink_metadata(m.path("device")).unwrap().rdev();
    assert_eq!((libc::major(rdev), libc::minor(rdev)), (259, 70_000));
    for _ in 0..2 {
        let target = fs::read_link(m.path("link")).unwrap();
        assert_eq!(target.as_os_str().as_encoded_bytes(), b"to/\xff/nowhere");
    }
    assert_eq!(m.live().calls.readlink.load(Ordering::SeqCst), 1, "the kernel keeps links");
    assert_eq!(fs::metadata(m.path("")).unwrap().ino(), ROOT.get());
    assert_eq!(fs::metadata(m.path("file/..").parent().unwrap()).unwrap().ino(), file.get());
    assert_eq!(errno(fs::metadata(m.path("nothing"))), libc::ENOENT);
    assert_eq!(errno(fs::metadata(m.path("file/below"))), libc::ENOTDIR);
}

#[test]
fn shown_as_zfs_and_read_only() {
    require!(root);
    let mut tree = Memory::new();
    tree.file(ROOT, "file", 1);
    let m = mounted(MemorySource::new(tree), |options| options.exec = false);
    let line = mount_line(m.mount.point()).unwrap();
    assert!(line.contains(" - fuse.zfs tank/home ro,"), "{line}");
    assert!(line.contains(" ro,noexec,relatime"), "{line}");
    assert!(line.contains("default_permissions,allow_other"), "{line}");
    assert_eq!(errno(fs::write(m.path("file"), "x")), libc::EROFS);
    assert_eq!(errno(fs::write(m.path("new"), "x")), libc::EROFS);
    assert_eq!(errno(fs::create_dir(m.path("dir"))), libc::EROFS);
    assert_eq!(errno(fs::remove_file(m.path("file"))), libc::EROFS);
    File::open(m.path("file")).unwrap().sync_all().unwrap();

    // root may mount it anew for writing, and then hears it from us
    nix::mount::mount(None::<&str>, m.mount.point(), None::<&str>, nix::mount::MsFlags::MS_REMOUNT, None::<&str>)
        .unwrap();
    assert_eq!(errno(fs::write(m.path("new"), "x")), libc::EROFS);
    assert_eq!(errno(fs::remove_file(m.path("file"))), libc::EROFS);
    assert_eq!(errno(fs::rename(m.path("file"), m.path("other"))), libc::EROFS);
}

#[test]
fn statfs() {
    require!(fuse);
    let m = mounted_tree(Memory::new());
    let f = nix::sys::statvfs::statvfs(&m.path("")).unwrap();
    assert_eq!((f.block_size(), f.fragment_size()), (128 << 10, 128 << 10));
    assert_eq!((f.blocks(), f.blocks_free(), f.blocks_available()), (320, 240, 240));
    let files_free = (30 << 20) / 512;
    assert_eq!((f.files(), f.files_free(), f.name_max()), (files_free + 1000, files_free, 255));
}

#[test]
fn attributes_by_name() {
    require!(root);
    let mut tree = Memory::new();
    let file = tree.file(ROOT, "file", 1);
    let large = vec![7u8; 65536];
    tree.node(file).xattrs = [
        (&b"user.empty"[..], &b""[..]),
        (b"user.bytes", b"a\0b"),
        (b"trusted.secret", b"s"),
        (b"security.label", b"l"),
        (b"system.posix_acl_access", b"not shown without acltype"),
        (b"user.large", &large),
    ]
    .map(|(name, value)| (name.to_vec(), value.to_vec()))
    .to_vec();
    let m = mounted_tree(tree);
    let path = m.path("file");

    let names = b"user.empty\0user.bytes\0trusted.secret\0security.label\0user.large\0";
    assert_eq!(list_xattr(&path, 0).unwrap().0, names.len());
    assert_eq!(list_xattr(&path, names.len()).unwrap().1, names);
    assert_eq!(errno(list_xattr(&path, names.len() - 1)), libc::ERANGE);
    let (_, for_users) = crate::harness::as_user(1000, 1000, || list_xattr(&path, 4096).unwrap());
    assert_eq!(for_users, b"user.empty\0user.bytes\0security.label\0user.large\0");

    assert_eq!(get_xattr(&path, "user.empty", 0).unwrap().0, 0);
    assert_eq!(get_xattr(&path, "user.empty", 10).unwrap(), (0, vec![]));
    assert_eq!(get_xattr(&path, "user.bytes", 0).unwrap().0, 3);
    assert_eq!(get_xattr(&path, "user.bytes", 3).unwrap().1, b"a\0b");
    assert_eq!(errno(get_xattr(&path, "user.bytes", 2)), libc::ERANGE);
    assert_eq!(get_xattr(&path, "user.large", 65536).unwrap().1, large);
    assert_eq!(errno(get_xattr(&path, "user.none", 10)), libc::ENODATA);
    assert_eq!(errno(get_xattr(&path, "system.posix_acl_access", 100)), libc::ENODATA);

    // property xattr=off is about users' attributes only, and may change while it is mounted
    let mut tree = Memory::new();
    let file = tree.file(ROOT, "file", 1);
    tree.node(file).xattrs =
        [&b"user.bytes"[..], b"security.label"].map(|name| (name.to_vec(), b"1".to_vec())).to_vec();
    let m = mounted(MemorySource::new(tree), |options| options.xattrs = false);
    let path = m.path("file");
    let mut options = fuse::MountOptions::new("tank/home", m.mount.point());
    for is_on in [false, true, false, true] {
        options.xattrs = is_on;
        m.mount.remount(&options).unwrap();
        let list: &[u8] = if is_on { b"user.bytes\0security.label\0" } else { b"security.label\0" };
        assert_eq!(list_xattr(&path, 100).unwrap().1, list);
        let bytes = get_xattr(&path, "user.bytes", 10);
        match is_on {
            true => assert_eq!(bytes.unwrap().1, b"1"),
            false => assert_eq!(errno(bytes), libc::EOPNOTSUPP),
        }
        assert_eq!(get_xattr(&path, "security.label", 10).unwrap().1, b"1");
    }
}

#[test]
fn holes() {
    require!(fuse);
    let (kib, tib) = (1u64 << 10, 1u64 << 40);
    let mut tree = Memory::new();
    let extents = vec![128 * kib..256 * kib, tib - 4096..tib];
    let content = Content { seed: 9, size: tib + 100, extents };
    tree.add(ROOT, "sparse", FileKind::File, Body::File(content));
    tree.add(ROOT, "hole", FileKind::File, Body::File(Content { seed: 1, size: 4096, extents: vec![] }));
    let m = mounted_tree(tree);
    let seek = |file: &File, offset: u64, whence| {
        // SAFETY: a system call on an open descriptor.
        match unsafe { libc::lseek(file.as_raw_fd(), offset as i64, whence) } {
            -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
            at => Ok(at as u64),
        }
    };
    let file = File::open(m.path("sparse")).unwrap();
    let seeks = [
        (0, libc::SEEK_DATA, Ok(128 * kib)),
        (0, libc::SEEK_HOLE, Ok(0)),
        (200 * kib, libc::SEEK_DATA, Ok(200 * kib)),
        (200 * kib, libc::SEEK_HOLE, Ok(256 * kib)),
        (256 * kib, libc::SEEK_DATA, Ok(tib - 4096)),
        (tib - 1, libc::SEEK_HOLE, Ok(tib)),
        (tib, libc::SEEK_DATA, Err(libc::ENXIO)),
        (tib, libc::SEEK_HOLE, Ok(tib)),
        (tib + 100, libc::SEEK_HOLE, Err(libc::ENXIO)),
        (tib + 100, libc::SEEK_DATA, Err(libc::ENXIO)),
    ];
    for (offset, whence, expect) in seeks {
        assert_eq!(seek(&file, offset, whence), expect, "from {offset}, {whence}");
    }
    let mut buf = [1; 8192];
    file.read_exact_at(&mut buf, tib - 8192).unwrap();
    let mut expect = [0; 8192];
    fill(9, tib - 4096, &mut expect[4096..]);
    assert!(buf == expect);
    assert_eq!(file.read_at(&mut buf, tib + 50).unwrap(), 50);
    assert_eq!(file.read_at(&mut buf, tib + 100).unwrap(), 0);
    let hole = File::open(m.path("hole")).unwrap();
    assert_eq!(seek(&hole, 0, libc::SEEK_DATA), Err(libc::ENXIO));
    assert_eq!(fs::read(m.path("hole")).unwrap(), [0; 4096]);
}

#[test]
fn reads_of_every_size() {
    require!(fuse);
    let mut tree = Memory::new();
    let sizes = [0, 1, 4095, 4096, 4097, 131_071, 131_073, (8 << 20) + 13];
    let files = sizes.map(|size| (tree.file(ROOT, &format!("f{size}"), size).get(), size));
    let m = mounted_tree(tree);
    for (seed, size) in files {
        assert_filled(&m.path(&format!("f{size}")), seed, size);
    }
    // small pieces, in and out of order
    let (seed, size) = files[7];
    let mut file = File::open(m.path(&format!("f{size}"))).unwrap();
    let mut buf = vec![0; 70_000];
    for step in 0..300 {
        let offset = step * 7_919_993 % size;
        file.seek(SeekFrom::Start(offset)).unwrap();
        let len = buf.len().min((size - offset) as usize);
        file.read_exact(&mut buf[..len]).unwrap();
        let mut expect = vec![0; len];
        fill(seed, offset, &mut expect);
        assert!(buf[..len] == expect, "at {offset}");
    }
}

#[test]
fn reads_are_large_and_kept() {
    require!(root);
    let mut tree = Memory::new();
    let size = 64 << 20;
    let seed = tree.file(ROOT, "file", size).get();
    let m = mounted_tree(tree);
    assert_filled(&m.path("file"), seed, size);
    let calls = &m.live().calls;
    let (reads, longest) = (calls.read.load(Ordering::SeqCst), calls.read_bytes_max.load(Ordering::SeqCst));
    assert_eq!(longest, 1 << 20, "the kernel asks for as much as it may");
    assert!(reads < 2 * size / longest, "{reads} reads for {size} bytes");
    let is_kept = is_kept(&|| calls.total(), &|| assert_filled(&m.path("file"), seed, size));
    assert!(is_kept, "the next time everything comes from the page cache");
    assert_eq!(calls.open.load(Ordering::SeqCst), 1);
}

#[test]
fn eight_readers() {
    require!(fuse);
    let mut tree = Memory::new();
    let size = 16 << 20;
    let seeds: Vec<_> = (0..4).map(|i| tree.file(ROOT, &format!("f{i}"), size).get()).collect();
    let m = mounted_tree(tree);
    std::thread::scope(|scope| {
        for reader in 0..8u64 {
            let (seed, m) = (seeds[reader as usize % 4], &m);
            scope.spawn(move || {
                let path = m.path(&format!("f{}", reader % 4));
                if reader < 4 {
                    return assert_filled(&path, seed, size);
                }
                let file = File::open(path).unwrap();
                let (mut buf, mut expect) = (vec![0; 33_333], vec![0; 33_333]);
                for step in 0..400 {
                    let offset = (step * 6_700_417 + reader) % (size - 33_333);
                    file.read_exact_at(&mut buf, offset).unwrap();
                    fill(seed, offset, &mut expect);
                    assert!(buf == expect, "at {offset}");
                }
            });
        }
    });
}
