//! What may not be written is not opened for writing, and what programs stored into mappings is seen by all who ask.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, IFlags, SeekFrom, Timespec, Timestamps, XattrFlags, ioctl_getflags, ioctl_setflags};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};

use super::caches::drop_caches;
use super::suspended::wait_for;
use super::{World, can_mount};

/// File systems of each way that contents take through the kernel: name and properties.
pub(super) const MODES: [(&str, &str); 5] = [
    ("default", "-o atime=on"),
    ("writeback", "-o org.cenote:writeback=on"),
    ("nocache", "-o org.cenote:pagecache=off"),
    ("direct", "-o direct=always"),
    ("metadata", "-o primarycache=metadata"),
];
const LEN: usize = 4 << 20;
const AT: usize = 2 << 20;

/// A world with pool `fresh` mounted at DIR/mnt/fresh, and a file system of each mode. `None`, loudly, where nothing can be
/// mounted.
pub(super) fn mounted(name: &str) -> Option<World> {
    if !can_mount(name) {
        return None;
    }
    let world = World::new(name, &[]);
    File::create(world.dir.join("a")).unwrap().set_len(512 << 20).unwrap();
    world.check("create -o cachefile=none -O compression=off -R DIR/mnt fresh DIR/a", 0, "");
    for (mode, properties) in MODES {
        does(&world, &format!("create {properties} fresh/{mode}"));
    }
    Some(world)
}

pub(super) fn does(world: &World, line: &str) {
    assert_eq!(world.zfs(line), (String::new(), 0), "{line}");
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().map(|error| error.raw_os_error().expect("of the kernel"))
}

fn set_flag(path: &Path, flag: IFlags, is_on: bool) {
    let file = File::open(path).unwrap();
    let mut flags = ioctl_getflags(&file).unwrap();
    flags.set(flag, is_on);
    ioctl_setflags(&file, flags).unwrap();
}

/// The error of each way to open a file for writing.
fn opens(path: &Path) -> Vec<Option<i32>> {
    let open = |options: &mut OpenOptions| errno(options.open(path));
    vec![
        open(OpenOptions::new().write(true)),
        open(OpenOptions::new().read(true).write(true)),
        open(OpenOptions::new().read(true).write(true).create(true)),
        open(OpenOptions::new().write(true).truncate(true)),
        open(OpenOptions::new().write(true).custom_flags(libc::O_DIRECT)),
        open(OpenOptions::new().append(true)),
        open(OpenOptions::new().append(true).read(true)),
    ]
}

/// A mapping of a file that its stores go to.
pub(super) struct Mapped(GuestMemoryMmap);

impl Mapped {
    /// `None` if the kernel gives no such mapping of the file.
    pub(super) fn new(file: &File, len: usize) -> Option<Mapped> {
        let file = FileOffset::new(file.try_clone().unwrap(), 0);
        let range = (GuestAddress(0), len, Some(file));
        GuestMemoryMmap::from_ranges_with_files([range]).ok().map(Mapped)
    }

    /// How many bytes are mapped.
    pub(super) fn len(&self) -> u64 {
        self.0.last_addr().0 + 1
    }

    pub(super) fn store(&self, at: usize, bytes: &[u8]) {
        self.0.write_slice(bytes, GuestAddress(at as u64)).unwrap();
    }

    /// The first bytes.
    pub(super) fn load(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_slice(&mut bytes, GuestAddress(0)).unwrap();
        bytes
    }
}

pub(super) fn place(world: &World, mode: &str, name: &str) -> PathBuf {
    world.dir.join("mnt/fresh").join(mode).join(name)
}

#[test]
fn what_may_not_be_written_is_not_opened_so() {
    let Some(world) = mounted("opens-refused") else { return };
    for (mode, _) in MODES {
        let of = |name: &str| place(&world, mode, name);
        for name in ["plain", "fixed", "log"] {
            fs::write(of(name), "0123456789").unwrap();
        }
        does(&world, &format!("snapshot fresh/{mode}@s"));
        set_flag(&of("fixed"), IFlags::IMMUTABLE, true);
        set_flag(&of("log"), IFlags::APPEND, true);
        assert_eq!(opens(&of(".zfs/snapshot/s/plain")), [Some(libc::EROFS); 7], "{mode}");
        assert_eq!(opens(&of("fixed")), [Some(libc::EPERM); 7], "{mode}");
        let (no, yes) = (Some(libc::EPERM), None);
        assert_eq!(opens(&of("log")), [no, no, no, no, no, yes, yes], "{mode}");
        assert_eq!(opens(&of("plain")), [yes; 7], "{mode}");
        fs::write(of("plain"), "0123456789").unwrap();
        append_only(mode, &of("log"));

        does(&world, &format!("set readonly=on fresh/{mode}"));
        assert_eq!(opens(&of("plain")), [Some(libc::EROFS); 7], "{mode}");
        does(&world, &format!("set readonly=off fresh/{mode}"));
        for name in ["plain", "fixed", ".zfs/snapshot/s/plain"] {
            assert_eq!(fs::read(of(name)).unwrap(), b"0123456789", "{mode} {name}");
        }
        for (name, flag) in [("fixed", IFlags::IMMUTABLE), ("log", IFlags::APPEND)] {
            set_flag(&of(name), flag, false);
            assert_eq!(opens(&of(name)), [None; 7], "{mode} {name}");
        }
    }
    world.check("destroy fresh", 0, "");
}

/// What is there already stays so in a file that can only be appended to.
fn append_only(mode: &str, log: &Path) {
    let mut file = OpenOptions::new().append(true).read(true).open(log).unwrap();
    file.write_all(b"more").unwrap();
    assert_eq!(fs::read(log).unwrap(), b"0123456789more", "{mode}");
    // a mapping may come to be where the kernel has no word against it; nothing of it stays
    if let Some(mapped) = Mapped::new(&file, 10) {
        assert!(matches!(mode, "nocache" | "direct"), "{mode}");
        mapped.store(0, b"FORGED");
        assert_eq!(errno(file.sync_all()), Some(libc::EPERM), "{mode}");
    }
    wait_for("the forged page is dropped", || fs::read(log).unwrap() == b"0123456789more");
    file.write_all(b"!").unwrap();
    assert_eq!(fs::read(log).unwrap(), b"0123456789more!", "{mode}");
    assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 15, "{mode}");
}

/// A mapping that was there before: its stores until then stay, later ones do not.
#[test]
fn pages_that_cannot_be_written_back_are_dropped() {
    let Some(world) = mounted("opens-dropped") else { return };
    for (mode, _) in MODES {
        let path = place(&world, mode, "file");
        fs::write(&path, "0123456789").unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let Some(mapped) = Mapped::new(&file, 10) else { continue };
        mapped.store(0, b"in time");
        set_flag(&path, IFlags::IMMUTABLE, true);
        assert_eq!(fs::read(&path).unwrap(), b"in time789", "{mode}");
        mapped.store(0, b"FORGED!");
        assert_eq!(errno(file.sync_all()), Some(libc::EPERM), "{mode}");
        wait_for("it is dropped", || fs::read(&path).unwrap() == b"in time789");
        assert_eq!(errno(file.sync_all()), None, "{mode}: the error is told once");
        // by write(2): at once, or with the pages
        let written = file.write_all_at(b"FORGED!", 0).and_then(|()| file.sync_all());
        assert_eq!(errno(written), Some(libc::EPERM), "{mode}");
        wait_for("it is dropped", || fs::read(&path).unwrap() == b"in time789");
        drop((mapped, file));
        set_flag(&path, IFlags::IMMUTABLE, false);
    }
    world.check("destroy fresh", 0, "");
}

/// The page of a store that came before goes to the file system afterwards, and changes none of it.
#[test]
fn times_and_capabilities_that_are_set_after_stores_stay() {
    const CAPABILITY: &str = "security.capability";
    let Some(world) = mounted("opens-times") else { return };
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let time = Timespec { tv_sec: 1_000_000, tv_nsec: 5 };
    for (mode, _) in MODES {
        let path = place(&world, mode, "file");
        fs::write(&path, "0123456789").unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let Some(mapped) = Mapped::new(&file, 10) else { continue };
        mapped.store(0, b"stored");
        rustix::fs::setxattr(&path, CAPABILITY, &capability, XattrFlags::empty()).unwrap();
        file.sync_all().unwrap();
        assert_eq!(rustix::fs::getxattr(&path, CAPABILITY, &mut [0; 100][..]), Ok(capability.len()), "{mode}");
        mapped.store(0, b"STORED");
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        for what in ["at once", "when all is sent"] {
            let stat = file.metadata().unwrap();
            assert_eq!((stat.mtime(), stat.mtime_nsec()), (time.tv_sec, time.tv_nsec), "{mode}, {what}");
            assert_eq!(fs::read(&path).unwrap(), b"STORED6789", "{mode}, {what}");
            file.sync_all().unwrap();
        }
    }
    world.check("destroy fresh", 0, "");
}

/// A snapshot has what programs could read before: by the command, and by a new folder.
#[test]
fn stores_are_in_snapshots() {
    let Some(world) = mounted("opens-snapshots") else { return };
    for (mode, _) in MODES {
        let path = place(&world, mode, "file");
        fs::write(&path, vec![b'-'; 40_000]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mapped = Mapped::new(&file, 40_000);
        let store = |at: usize| match &mapped {
            Some(mapped) => mapped.store(at, b"stored"),
            None => file.write_all_at(b"stored", at as u64).unwrap(),
        };
        store(20_000);
        does(&world, &format!("snapshot fresh/{mode}@command"));
        store(30_000);
        fs::create_dir(place(&world, mode, ".zfs/snapshot/folder")).unwrap();
        for (snapshot, stored) in [("command", &[20_000][..]), ("folder", &[20_000, 30_000])] {
            let mut expect = vec![b'-'; 40_000];
            for at in stored {
                expect[*at..*at + 6].copy_from_slice(b"stored");
            }
            let found = fs::read(place(&world, mode, &format!(".zfs/snapshot/{snapshot}/file"))).unwrap();
            assert!(found == expect, "{mode} {snapshot}");
        }
    }
    world.check("destroy fresh", 0, "");
}

/// Where copying moves the time of the source's last access, the kernel does not keep the old one.
#[test]
fn a_copy_reads_its_source() {
    let Some(world) = mounted("opens-copies") else { return };
    for (mode, _) in MODES {
        let [from, to] = ["from", "to"].map(|name| place(&world, mode, name));
        for path in [&from, &to] {
            fs::write(path, "0123456789").unwrap();
        }
        let before = fs::metadata(&from).unwrap();
        // times are by the coarse clock
        std::thread::sleep(Duration::from_millis(20));
        let copied = || {
            let (source, target) = (File::open(&from).unwrap(), OpenOptions::new().write(true).open(&to).unwrap());
            rustix::fs::copy_file_range(&source, None, &target, None, 10).unwrap()
        };
        assert_eq!(copied(), 10, "{mode}");
        let known = fs::metadata(&from).unwrap().accessed().unwrap();
        drop_caches(world.dir.join("mnt/fresh").join(mode).as_path());
        assert_eq!(fs::metadata(&from).unwrap().accessed().unwrap(), known, "{mode}");
        assert!(mode != "default" || known > before.accessed().unwrap(), "{mode}");
    }
    world.check("destroy fresh", 0, "");
}

#[test]
fn a_hole_is_where_zeros_are_read() {
    let Some(world) = mounted("opens-holes") else { return };
    for (mode, _) in MODES {
        let path = place(&world, mode, "file");
        let options = &mut OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(LEN as u64).unwrap();
        let mut expect = vec![0; LEN];
        let seek = |to: SeekFrom| rustix::fs::seek(File::open(&path).unwrap(), to).unwrap();
        let mapped = Mapped::new(&file, LEN);
        let store = |at: usize, expect: &mut Vec<u8>| {
            match &mapped {
                Some(mapped) => mapped.store(at, b"stored"),
                None => file.write_all_at(b"stored", at as u64).unwrap(),
            }
            expect[at..at + 6].copy_from_slice(b"stored");
        };
        for (round, at) in [AT, AT + (1 << 20), 0].into_iter().enumerate() {
            store(at, &mut expect);
            let from = at.saturating_sub(4096) as u64;
            assert_eq!(seek(SeekFrom::Data(from)), at as u64, "{mode} {round}");
            let hole = seek(SeekFrom::Hole(at as u64));
            assert!(hole > at as u64 && hole < LEN as u64, "{mode} {round}: {hole}");
            for (copy, to) in [("inside", path.with_extension("copy")), ("outside", world.dir.join("copy"))] {
                let copied = Command::new("cp").arg(&path).arg(&to).status().unwrap();
                assert!(copied.success() && fs::read(&to).unwrap() == expect, "{mode} {round} {copy}");
            }
            // and copy_file_range(2), without a look for holes before
            store(at + 8192, &mut expect);
            let to = path.with_extension("ranges");
            fs::copy(&path, &to).unwrap();
            assert!(fs::read(&to).unwrap() == expect, "{mode} {round}");
        }
        drop(mapped);
        assert_eq!(seek(SeekFrom::Data(1 << 20)), AT as u64, "{mode}");
    }
    world.check("destroy fresh", 0, "");
}

/// How much room a file takes shows as soon as its group is on disk, whatever the kernel was told before.
#[test]
fn the_room_of_a_file_shows_with_its_group() {
    let Some(world) = mounted("rooms") else { return };
    world.tune("zfs_txg_timeout", 1000);
    for (mode, _) in MODES.iter().filter(|(mode, _)| *mode != "writeback") {
        let path = world.dir.join("mnt/fresh").join(mode).join("file");
        fs::write(&path, super::suspended::noise(LEN, 1)).unwrap();
        let blocks = || fs::metadata(&path).unwrap().blocks();
        assert!(blocks() < LEN as u64 / 512, "{mode}: nothing is on disk");
        // a group comes to disk, for which nobody asks on behalf of files
        does(&world, &format!("snapshot fresh/{mode}@one"));
        let began = Instant::now();
        // the kernel was told for longer
        while blocks() < LEN as u64 / 512 {
            assert!(began.elapsed() < Duration::from_secs(10), "{mode}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
