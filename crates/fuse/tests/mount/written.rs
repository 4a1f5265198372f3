//! What is written to files: by every call that writes, by several at once, to files without a name.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use format::ids::ObjectId;
use fuse::WriteBackCache;

use crate::harness::{Mounted, checked, errno, is_kept, mounted, require, unmount, writable};
use crate::memory::{Memory, MemorySource, ROOT, SIZE_MAX, fill};

fn open(m: &Mounted, name: &str) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(m.path(name)).unwrap()
}

fn filled(seed: u64, offset: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    fill(seed, offset, &mut data);
    data
}

/// The bytes that the tree has, and not those that the kernel keeps.
fn from_tree(m: &Mounted, name: &str) -> Vec<u8> {
    m.mount.invalidate(ObjectId::new(fs::metadata(m.path(name)).unwrap().ino())).unwrap();
    fs::read(m.path(name)).unwrap()
}

fn fallocate(file: &File, mode: i32, offset: i64, len: i64) -> std::io::Result<()> {
    // SAFETY: a system call on an open descriptor.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } as isize).map(|_| ())
}

#[test]
fn large_writes() {
    require!(root);
    for writeback in [false, true] {
        let m = mounted(MemorySource::new(Memory::writable()), |options| {
            options.write_back = if writeback { WriteBackCache::On } else { WriteBackCache::Off }
        });
        let mut file = open(&m, "file");
        let len = 64 << 20;
        for offset in (0..len).step_by(4 << 20) {
            file.write_all(&filled(1, offset, 4 << 20)).unwrap();
        }
        file.sync_all().unwrap();
        let calls = &m.live().calls;
        assert_eq!(calls.write_bytes_max.load(Ordering::SeqCst), 1 << 20);
        let writes = calls.write.load(Ordering::SeqCst);
        assert!(writes < 100, "{writes} writes for 64 MiB, writeback {writeback}");
        assert_eq!(fs::metadata(m.path("file")).unwrap().len(), len);
        assert!(from_tree(&m, "file") == filled(1, 0, len as usize));
    }
}

/// With its write-back cache, the kernel does not send what was written before it asks where data is.
#[test]
fn what_the_kernel_keeps_is_no_hole() {
    require!(root);
    let m = mounted(MemorySource::new(Memory::writable()), |options| options.write_back = WriteBackCache::On);
    let file = open(&m, "file");
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"kept", 8192).unwrap();
    // SAFETY: a system call on an open descriptor.
    let data = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) };
    assert!((0..=8192).contains(&data), "{data}");
}

#[test]
fn without_the_page_cache_each_read_is_a_request() {
    require!(fuse);
    for page_cache in [true, false] {
        let m = mounted(MemorySource::new(Memory::writable()), |options| options.page_cache = page_cache);
        let file = open(&m, "file");
        file.write_all_at(&filled(1, 0, 100_000), 0).unwrap();
        let asked = || m.live().calls.read.load(Ordering::SeqCst);
        let look = || {
            let mut buf = vec![0; 5000];
            file.read_exact_at(&mut buf, 3000).unwrap();
            assert!(buf == filled(1, 3000, 5000));
        };
        assert_eq!(is_kept(&asked, &look), page_cache);
        drop(file);
        assert!(fs::read(m.path("file")).unwrap() == filled(1, 0, 100_000));
        assert!(m.live().read().orphans.is_empty());
    }
}

/// Random writes of all kinds, beside the same in a vector.
#[test]
fn like_a_vector() {
    require!(fuse);
    for page_cache in [true, false] {
        random_writes(&mounted(MemorySource::new(Memory::writable()), |options| options.page_cache = page_cache));
    }
}

fn random_writes(m: &Mounted) {
    let file = open(m, "file");
    let mut expect: Vec<u8> = Vec::new();
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for step in 0..1000 {
        let (offset, len) = (next(300_000) as usize, 1 + next(40_000) as usize);
        match next(8) {
            0 => {
                file.set_len(offset as u64).unwrap();
                expect.resize(offset, 0);
            }
            1 => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                fallocate(&file, mode, offset as i64, len as i64).unwrap();
                let end = expect.len().min(offset + len);
                expect[offset.min(end)..end].fill(0);
            }
            2 => {
                fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, offset as i64, len as i64).unwrap();
                expect.resize(expect.len().max(offset + len), 0);
                expect[offset..offset + len].fill(0);
            }
            3 => {
                let mut buf = vec![0; len];
                let read = file.read_at(&mut buf, offset as u64).unwrap();
                assert!(buf[..read] == expect[offset.min(expect.len())..expect.len().min(offset + len)], "{step}");
            }
            _ => {
                let data = filled(step, 0, len);
                file.write_all_at(&data, offset as u64).unwrap();
                expect.resize(expect.len().max(offset + len), 0);
                expect[offset..offset + len].copy_from_slice(&data);
            }
        }
        assert_eq!(file.metadata().unwrap().len(), expect.len() as u64, "{step}");
    }
    assert!(fs::read(m.path("file")).unwrap() == expect, "what the kernel has");
    assert!(from_tree(m, "file") == expect, "what the tree has");
}

#[test]
fn two_append() {
    require!(fuse);
    let m = writable();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let m = &m;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(m.path("log")).unwrap();
                for i in 0..500 {
                    file.write_all(format!("writer {writer} line {i:05}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let log = String::from_utf8(from_tree(&m, "log")).unwrap();
    for writer in 0..2 {
        let prefix = format!("writer {writer} line ");
        let lines = log.lines().filter_map(|line| line.strip_prefix(&prefix)).map(|i| i.parse::<i32>().unwrap());
        assert!(lines.eq(0..500i32), "each writer's lines are there, in order");
    }
    assert_eq!(log.lines().count(), 1000);
}

#[test]
fn four_writers() {
    require!(fuse);
    let m = writable();
    let shared = open(&m, "shared");
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            let (m, shared) = (&m, &shared);
            scope.spawn(move || {
                let own = open(m, &format!("own{writer}"));
                for i in 0..200 {
                    let (at, data) = (i * 10_000, filled(writer, i, 10_000));
                    own.write_all_at(&data, at).unwrap();
                    shared.write_all_at(&data, (i * 4 + writer) * 10_000).unwrap();
                    fs::write(m.path(&format!("small {writer} {i}")), &data[..100]).unwrap();
                }
            });
        }
    });
    let shared = from_tree(&m, "shared");
    for writer in 0..4 {
        let own = from_tree(&m, &format!("own{writer}"));
        for i in 0..200 {
            let expect = filled(writer, i, 10_000);
            assert!(own[i as usize * 10_000..][..10_000] == expect);
            assert!(shared[(i * 4 + writer) as usize * 10_000..][..10_000] == expect);
            assert!(fs::read(m.path(&format!("small {writer} {i}"))).unwrap() == expect[..100]);
        }
    }
}

#[test]
fn sizes_and_holes() {
    require!(fuse);
    let m = writable();
    let mut file = open(&m, "file");
    file.write_all(&filled(1, 0, 100_000)).unwrap();
    file.set_len(1 << 30).unwrap();
    let seek = |offset, whence| {
        // SAFETY: a system call on an open descriptor.
        checked(unsafe { libc::lseek(file.as_raw_fd(), offset, whence) } as isize)
    };
    assert_eq!(seek(0, libc::SEEK_HOLE).unwrap(), 102_400);
    assert_eq!(errno(seek(200_000, libc::SEEK_DATA)), libc::ENXIO);
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | keep, 4096, 8192).unwrap();
    assert_eq!((seek(0, libc::SEEK_HOLE).unwrap(), seek(4096, libc::SEEK_DATA).unwrap()), (4096, 12_288));
    let mut buf = vec![1; 16384];
    file.read_exact_at(&mut buf, 0).unwrap();
    let expect = filled(1, 0, 16384);
    assert!(buf[..4096] == expect[..4096] && buf[12_288..] == expect[12_288..]);
    assert!(buf[4096..12_288].iter().all(|&byte| byte == 0));
    fallocate(&file, keep, 0, 1 << 31).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 30);
    fallocate(&file, 0, 0, 1 << 31).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 31);
    assert_eq!(errno(fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096)), libc::EOPNOTSUPP);
    file.set_len(10).unwrap();
    file.set_len(20).unwrap();
    assert_eq!(fs::read(m.path("file")).unwrap(), [&expect[..10], &[0; 10]].concat());
    File::create(m.path("file")).unwrap();
    assert_eq!(fs::metadata(m.path("file")).unwrap().len(), 0, "O_TRUNC");

    // a write that does not fit is cut, and the next one told
    file.set_len(SIZE_MAX).unwrap();
    assert_eq!(file.write_at(&[1; 4096], SIZE_MAX - 10).unwrap(), 10);
    assert_eq!(errno(file.write_at(&[1; 4096], SIZE_MAX)), libc::ENOSPC);
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), SIZE_MAX);
}

#[test]
fn mapped() {
    require!(fuse);
    for page_cache in [true, false] {
        write_mapped(&mounted(MemorySource::new(Memory::writable()), |options| options.page_cache = page_cache));
    }
}

fn write_mapped(m: &Mounted) {
    let file = open(m, "file");
    let len = 3 << 20;
    file.set_len(len as u64).unwrap();
    let expect = filled(5, 0, len);
    let (fd, by_write, read_write) = (file.as_raw_fd(), b"by write", libc::PROT_READ | libc::PROT_WRITE);
    let mut status = 0;
    // A fault in a mapping locks the memory of its process until it is answered, and threads of this process answer:
    // if one of them needed memory, all would wait for ever.
    // SAFETY: the child only makes system calls, and uses memory that is there; the mapping is the file's own, of `len`
    // bytes.
    unsafe {
        let write = || {
            let map = libc::mmap(std::ptr::null_mut(), len, read_write, libc::MAP_SHARED, fd, 0);
            if map == libc::MAP_FAILED {
                return if *libc::__errno_location() == libc::ENODEV { libc::ENODEV } else { 1 };
            }
            let bytes = std::slice::from_raw_parts_mut(map.cast::<u8>(), len);
            bytes.copy_from_slice(&expect);
            if libc::msync(map, len, libc::MS_SYNC) != 0 {
                return 2;
            }
            // and what write(2) writes is seen in the mapping
            if libc::pwrite(fd, by_write.as_ptr().cast(), by_write.len(), 5000) != by_write.len() as isize {
                return 3;
            }
            if bytes[5000..5008] != *by_write {
                return 4;
            }
            bytes[len - 1] = 77;
            if libc::munmap(map, len) != 0 { 5 } else { 0 }
        };
        match libc::fork() {
            0 => libc::_exit(write()),
            child => assert_eq!(libc::waitpid(child, &mut status, 0), child),
        }
    }
    assert!(libc::WIFEXITED(status), "{status}");
    match libc::WEXITSTATUS(status) {
        // before Linux 6.6 not without the page cache
        libc::ENODEV => return,
        code => assert_eq!(code, 0, "what of it failed"),
    }
    drop(file);
    let data = from_tree(m, "file");
    assert_eq!((&data[5000..5008], data[len - 1]), (&by_write[..], 77));
    assert!(data[..5000] == expect[..5000] && data[5008..len - 1] == expect[5008..len - 1]);
}

/// Objects that the tree has, once it has `expect`.
fn wait_for_objects(m: &Mounted, expect: usize) {
    let start = Instant::now();
    while m.live().read().nodes.len() != expect && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let state = m.live().read();
    assert_eq!((state.nodes.len(), state.orphans.len()), (expect, 0));
}

#[test]
fn without_a_name() {
    require!(fuse);
    let m = writable();
    let mut file = open(&m, "file");
    let object = ObjectId::new(file.metadata().unwrap().ino());
    file.write_all(&filled(3, 0, 1 << 20)).unwrap();
    fs::remove_file(m.path("file")).unwrap();
    fs::write(m.path("file"), "another").unwrap();
    file.write_all(b"more").unwrap();
    file.set_len((1 << 20) + 2).unwrap();
    m.mount.invalidate(object).unwrap();
    let mut data = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut data).unwrap();
    assert!(data[..1 << 20] == filled(3, 0, 1 << 20) && &data[1 << 20..] == b"mo");
    let stat = file.metadata().unwrap();
    assert_eq!((stat.nlink(), stat.len(), stat.ino()), (0, (1 << 20) + 2, object.get()));
    assert!(m.live().read().orphans.contains(&object));
    drop(file);
    wait_for_objects(&m, 2);

    // the number goes to another file, whose contents are its own
    fs::write(m.path("next"), "new").unwrap();
    assert_eq!(fs::metadata(m.path("next")).unwrap().ino(), object.get());
    assert_eq!(from_tree(&m, "next"), b"new");

    // a directory, and a file that a rename replaced
    fs::create_dir(m.path("dir")).unwrap();
    let dir = File::open(m.path("dir")).unwrap();
    let mut replaced = File::open(m.path("next")).unwrap();
    fs::remove_dir(m.path("dir")).unwrap();
    fs::rename(m.path("file"), m.path("next")).unwrap();
    assert_eq!((dir.metadata().unwrap().nlink(), replaced.metadata().unwrap().nlink()), (0, 0));
    let mut text = String::new();
    replaced.read_to_string(&mut text).unwrap();
    assert_eq!(text, "new");
    assert_eq!(m.live().read().orphans.len(), 2);
    drop((dir, replaced));
    wait_for_objects(&m, 2);

    // those that are in use when the mount ends
    let file = File::open(m.path("next")).unwrap();
    fs::remove_file(m.path("next")).unwrap();
    m.mount.unmount(fuse::Unmount::Force).unwrap();
    m.mount.wait();
    drop(file);
    wait_for_objects(&m, 1);
    assert_eq!(m.source.syncs.load(Ordering::SeqCst), 1);
}

#[test]
fn never_named() {
    require!(fuse);
    let m = writable();
    let unnamed = || {
        let options = &mut OpenOptions::new();
        let options = std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true).write(true), libc::O_TMPFILE);
        match options.open(m.path("")) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => None,
            opened => Some(opened.unwrap()),
        }
    };
    let Some(mut file) = unnamed() else {
        eprintln!("SKIPPED {}:{}: this kernel does not ask for files without a name", file!(), line!());
        return;
    };
    file.write_all(b"nobody sees it").unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), fs::read_dir(m.path("")).unwrap().count()), (0, 0));
    drop(file);
    wait_for_objects(&m, 1);

    // one that is whole gets its name
    let mut file = unnamed().unwrap();
    file.write_all(b"all at once").unwrap();
    let (here, there) = (format!("/proc/self/fd/{}\0", file.as_raw_fd()), format!("{}\0", m.path("name").display()));
    // SAFETY: both are strings that end with a NUL.
    let linked = unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            here.as_ptr().cast(),
            libc::AT_FDCWD,
            there.as_ptr().cast(),
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    assert_eq!(linked, 0, "{}", std::io::Error::last_os_error());
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    drop(file);
    assert_eq!(from_tree(&m, "name"), b"all at once");
}

#[test]
fn synced() {
    require!(fuse);
    for page_cache in [true, false] {
        synced_in(&mounted(MemorySource::new(Memory::writable()), |options| options.page_cache = page_cache));
    }
}

fn synced_in(m: &Mounted) {
    let syncs = || m.live().calls.sync.load(Ordering::SeqCst);
    let mut file = open(m, "file");
    file.write_all(b"x").unwrap();
    assert_eq!(syncs(), 0);
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    File::open(m.path("")).unwrap().sync_all().unwrap();
    assert_eq!(syncs(), 3);
    drop(file);
    // the kernel asks for a sync after each write, or leaves it to us
    for (count, flags) in [(4, libc::O_SYNC), (5, libc::O_DSYNC)] {
        let options = &mut OpenOptions::new();
        let options = std::os::unix::fs::OpenOptionsExt::custom_flags(options.write(true), flags);
        options.open(m.path("file")).unwrap().write_all(b"y").unwrap();
        assert_eq!(syncs(), count, "flags {flags:o}");
    }
    unmount(&m.mount);
    assert!(m.mount.has_ended());
    assert_eq!(m.source.syncs.load(Ordering::SeqCst), 1, "umount");
}

#[test]
fn copied() {
    require!(fuse);
    let mut old = Memory::new();
    let seed = old.file(ROOT, "old", 20 << 20).get();
    let m = mounted(MemorySource::new(Memory::writable()).with_snapshot("monday", old), |_| {});
    for (name, source) in [("one", ".zfs/snapshot/monday/old"), ("two", "one")] {
        let (from, to) = (File::open(m.path(source)).unwrap(), open(&m, name));
        let mut left = 20 << 20;
        while left > 0 {
            let (from, to, none) = (from.as_raw_fd(), to.as_raw_fd(), std::ptr::null_mut());
            // SAFETY: a system call on open descriptors, which moves their own positions.
            let copied = checked(unsafe { libc::copy_file_range(from, none, to, none, left, 0) }).unwrap();
            assert!(copied <= 16 << 20, "a signal has to get through in between");
            left -= copied;
        }
        assert!(from_tree(&m, name) == filled(seed, 0, 20 << 20), "{source}");
    }
    let calls = &m.live().calls;
    assert!(calls.copy.load(Ordering::SeqCst) > 0 && calls.write.load(Ordering::SeqCst) == 0, "in one go");
}
