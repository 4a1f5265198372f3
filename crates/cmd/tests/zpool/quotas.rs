//! Quotas, and the end of a pool, as programs that write files meet them.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::World;
use super::snapshots::Fresh;
use super::suspended::{noise, wait_for};

const MIB: usize = 1 << 20;
/// What is written beyond a limit at most: a record, and what leads to it.
const BEYOND: u64 = 512 << 10;

/// A large write takes what there is, and the next one is told why there is no more. What the first one wrote.
fn write_to_the_end(file: &mut File, len: usize, why: ErrorKind) -> usize {
    let bytes = noise(len, 1);
    let written = file.write(&bytes).unwrap();
    assert!(written < len && file.metadata().unwrap().len() == written as u64, "{written} bytes of {len}");
    assert_eq!(file.write(&bytes).unwrap_err().kind(), why);
    written
}

/// Where `fresh/a` is mounted.
fn mounted(fresh: &Fresh) -> std::path::PathBuf {
    // on a machine with little memory the kernel would keep what is written also in so small a pool
    mounted_with(fresh, "org.cenote:writeback=off")
}

/// The same with these properties.
fn mounted_with(fresh: &Fresh, properties: &str) -> std::path::PathBuf {
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set {properties} fresh/a"));
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    point
}

#[test]
fn a_write_takes_what_is_left_of_a_quota() {
    let fresh = Fresh::new("left");
    let point = mounted(&fresh);
    for limit in ["quota", "refquota"] {
        fresh.does(&format!("set {limit}=10M fresh/a"));
        let mut file = File::create(point.join("large")).unwrap();
        let written = write_to_the_end(&mut file, 32 * MIB, ErrorKind::QuotaExceeded);
        let used: u64 = fresh.world.zfs("get -Hpo value used fresh/a").0.trim().parse().unwrap();
        let limit_bytes = 10 * MIB as u64;
        assert!((limit_bytes..=limit_bytes + BEYOND).contains(&used), "{limit}: {written} bytes, {used} used");
        // what takes more than it frees is refused, too, and what is asked to be kept free is not there
        let kind = |done: std::io::Result<()>| done.unwrap_err().kind();
        assert_eq!(kind(fs::hard_link(point.join("large"), point.join("link"))), ErrorKind::QuotaExceeded);
        assert_eq!(kind(fs::rename(point.join("large"), point.join("other"))), ErrorKind::QuotaExceeded);
        assert_eq!(kind(fs::create_dir(point.join("dir"))), ErrorKind::QuotaExceeded);
        for flags in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
            assert_eq!(fallocate(&file, flags, 0, 100 << 10), Err(Errno::NOSPC), "{limit} {flags:?}");
        }
        drop(file);
        fs::remove_file(point.join("large")).unwrap();
        fresh.does(&format!("set {limit}=none fresh/a"));
    }
    fresh.judge();
}

#[test]
fn what_is_asked_for_is_compared_with_what_is_left() {
    let fresh = Fresh::new("asked");
    let point = mounted(&fresh);
    fresh.does("set refquota=10M fresh/a");
    let file = File::create(point.join("large")).unwrap();
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 10 << 20), Err(Errno::NOSPC));
    // a tenth more is to be there
    assert_eq!(fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 19 << 19), Err(Errno::NOSPC));
    fallocate(&file, FallocateFlags::empty(), 0, 8 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8 << 20);
    drop(file);
    // limits of users are not asked
    fresh.does("set refquota=none userquota@7=1M fresh/a");
    std::os::unix::fs::chown(point.join("large"), Some(7), None).unwrap();
    let mut file = File::create(point.join("large")).unwrap();
    file.write_all(&vec![1; 2 * MIB]).unwrap();
    fresh.world.check("sync fresh", 0, "");
    assert_eq!(file.write(&[1; 4096]).unwrap_err().kind(), ErrorKind::QuotaExceeded);
    fallocate(&file, FallocateFlags::empty(), 0, 3 << 20).unwrap();
    assert_eq!(fs::metadata(point.join("large")).unwrap().size(), 3 << 20);
    fresh.world.tune("zfs_fallocate_reserve_percent", 0);
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 4096), Err(Errno::OPNOTSUPP));
    drop(file);
    fresh.judge();
}

#[test]
fn a_write_takes_what_is_left_of_a_pool() {
    let fresh = Fresh::new("lastroom");
    let point = mounted(&fresh);
    let available = || fresh.world.zfs("get -Hpo value available fresh/a").0.trim().parse::<u64>().unwrap();
    let before = available();
    let mut file = File::create(point.join("large")).unwrap();
    let written = write_to_the_end(&mut file, 400 * MIB, ErrorKind::StorageFull) as u64;
    assert!(written > before - before / 10 && written <= before + BEYOND, "{written} bytes of {before}");
    assert_eq!(available(), 0);
    assert_eq!(fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4096), Err(Errno::NOSPC));
    drop(file);
    fs::remove_file(point.join("large")).unwrap();
    fresh.judge();
}

/// What the kernel keeps of writes to send it later: what does not fit is told by fsync(2), and nothing is lost in
/// silence.
#[test]
fn pages_that_do_not_fit_are_an_error() {
    let fresh = Fresh::new("cached");
    let point = mounted_with(&fresh, "org.cenote:writeback=on refquota=10M");
    let bytes = noise(19 * MIB / 2, 1);
    let mut fits = File::create(point.join("fits")).unwrap();
    fits.write_all(&bytes).unwrap();
    fits.sync_all().unwrap();
    fresh.world.check("sync fresh", 0, "");
    // one request has it all, and there is room for a part of it
    let mut large = File::create(point.join("large")).unwrap();
    large.write_all(&bytes[..MIB]).unwrap();
    large.sync_all().unwrap_err();
    drop((fits, large));
    fresh.does("unmount fresh/a");
    fresh.does("mount fresh/a");
    assert!(fs::read(point.join("fits")).unwrap() == bytes, "what was synced is there");
    fresh.judge();
}

/// While room is scarce the kernel keeps no write for later: a program hears of a limit when it writes, or with its next write.
#[test]
fn a_limit_is_told_while_a_program_writes() {
    let fresh = Fresh::new("limited");
    let point = mounted_with(&fresh, "org.cenote:writeback=on compression=off");
    let open =
        |name| File::options().create(true).truncate(false).read(true).write(true).open(point.join(name)).unwrap();
    let files = ["first", "second"].map(open);
    files.iter().for_each(|file| file.write_all_at(b"before", 0).unwrap());
    fresh.does("set refquota=8M fresh/a");
    let piece = noise(MIB / 4, 3);
    for (file, name) in files.iter().zip(["first", "second"]) {
        let mut at = 0;
        let error = loop {
            match file.write_all_at(&piece, at) {
                Ok(()) => at += piece.len() as u64,
                Err(error) => break error,
            }
            assert!(at < 64 << 20, "{name}");
        };
        assert_eq!(error.raw_os_error(), Some(libc::EDQUOT), "{name}");
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EDQUOT), "{name}: by fsync, too");
        // the kernel takes it for as long as it is
        fresh.does(&format!("snapshot fresh/a@{name}"));
        let kept = point.join(".zfs/snapshot").join(name).join(name);
        wait_for("the size that is there", || file.metadata().unwrap().len() == fs::metadata(&kept).unwrap().len());
        file.set_len(0).unwrap();
        fresh.does(&format!("destroy fresh/a@{name}"));
        fresh.world.check("sync fresh", 0, "");
    }
    fresh.does("set refquota=none fresh/a");
    files[0].write_all_at(&piece, 0).unwrap();
    files[0].sync_all().unwrap();
    drop(files);
    assert!(fs::read(point.join("first")).unwrap() == piece);
    fresh.judge();
}

/// How much room a file takes is known when its group is on disk, and shows then.
#[test]
fn what_files_take_shows_when_they_are_on_disk() {
    let fresh = Fresh::new("taken");
    fresh.world.tune("zfs_txg_timeout", 600);
    let point = mounted(&fresh);
    let files: Vec<_> = (0..20).map(|number| point.join(number.to_string())).collect();
    for file in &files {
        fs::write(file, vec![7; MIB]).unwrap();
    }
    let taken = || files.iter().map(|file| fs::metadata(file).unwrap().blocks()).collect::<Vec<_>>();
    assert!(taken().iter().all(|blocks| *blocks < 100), "{:?}", taken());
    fresh.world.check("sync fresh", 0, "");
    assert!(taken().iter().all(|blocks| *blocks >= 2048), "{:?}", taken());
    fs::write(&files[3], "short").unwrap();
    assert!(taken()[3] >= 2048, "{:?}", taken());
    fresh.world.check("sync fresh", 0, "");
    assert!(taken()[3] <= 300, "{:?}", taken());
    fresh.judge();
}

/// A limit that was taken off is a value of its own, and goes along with `send -p`.
#[test]
fn limits_that_were_taken_off_are_sent() {
    const LIMITS: [&str; 6] =
        ["quota", "refquota", "reservation", "refreservation", "filesystem_limit", "snapshot_limit"];
    let world = World::with_pool("no-limits");
    assert_eq!(world.zfs("create fresh/from"), (String::new(), 0));
    for limit in LIMITS {
        assert_eq!(world.zfs(&format!("set {limit}=none fresh/from")), (String::new(), 0));
    }
    assert_eq!(world.zfs("snapshot fresh/from@one"), (String::new(), 0));
    let stream = world.cenote("zfs send -p fresh/from@one").stdout;
    world.receives("-u fresh/to", &stream);
    for limit in LIMITS {
        let expect = (format!("{limit}\tnone\treceived\n"), 0);
        assert_eq!(world.zfs(&format!("get -Ho property,value,source {limit} fresh/to")), expect);
    }
    // what is received later takes their place, and goes back to them
    assert_eq!(world.zfs("set quota=64M fresh/from"), (String::new(), 0));
    assert_eq!(world.zfs("snapshot fresh/from@two"), (String::new(), 0));
    world.receives("-u fresh/to", &world.cenote("zfs send -p -i @one fresh/from@two").stdout);
    assert_eq!(world.zfs("get -Ho value,source quota fresh/to").0, "64M\treceived\n");
    assert_eq!(world.zfs("set quota=none fresh/from"), (String::new(), 0));
    assert_eq!(world.zfs("snapshot fresh/from@three"), (String::new(), 0));
    world.receives("-u fresh/to", &world.cenote("zfs send -p -i @two fresh/from@three").stdout);
    assert_eq!(world.zfs("get -Ho value,source quota fresh/to").0, "none\treceived\n");
    world.judged();
}
