//! Devices of a mounted pool fail and come back; and devices that are taken off and brought back.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::World;

/// A file system in memory that has little room at first; unmounted when dropped.
pub struct Small<'a>(&'a Path);

impl Small<'_> {
    /// `None` where nothing can be mounted.
    fn mount(path: &Path) -> Option<Small<'_>> {
        Small::mount_sized(path, "40m")
    }

    /// The same, with room for that much.
    pub fn mount_sized<'a>(path: &'a Path, size: &str) -> Option<Small<'a>> {
        fs::create_dir_all(path).unwrap();
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(path).status();
        done.is_ok_and(|status| status.success()).then_some(Small(path))
    }

    fn grow(&self) {
        let done = Command::new("mount").args(["-o", "remount,size=300m"]).arg(self.0).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").args(["-l"]).arg(self.0).status());
    }
}

/// Bytes that cannot be compressed.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn said(world: &World, line: &str) -> String {
    let output = world.zpool(line);
    [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat()
}

/// Writes a file, and returns when it is on disk.
pub fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "waited too long for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_pool_waits_for_its_device() {
    let world = World::new("suspend", &[]);
    let place = world.dir.join("small");
    let Some(small) = Small::mount(&place).filter(|_| Path::new("/dev/fuse").exists()) else {
        eprintln!("SKIPPED suspend: nothing can be mounted here");
        return;
    };
    File::create(place.join("disk")).unwrap().set_len(256 << 20).unwrap();
    let create = "create -O compression=off -O xattr=sa -R DIR/mnt tank DIR/small/disk";
    world.check(create, 0, "");
    let mnt = world.dir.join("mnt/tank");
    let before = noise(4 << 20, 1);
    // the kernel lets nobody list a directory in which somebody waits to make something
    fs::create_dir(mnt.join("sub")).unwrap();
    write(&mnt.join("before"), &before).unwrap();
    // more than the device has room for: many wait, more than there are threads for requests
    let files: Vec<Vec<u8>> = (0..24).map(|number| noise(3 << 20, 100 + number)).collect();
    let sub = mnt.join("sub");
    let writers: Vec<_> = files
        .iter()
        .enumerate()
        .map(|(number, bytes)| {
            let (path, bytes) = (sub.join(format!("file{number}")), bytes.clone());
            thread::spawn(move || write(&path, &bytes))
        })
        .collect();
    wait_for("the suspension", || said(&world, "list -Ho health tank") == "SUSPENDED\n");
    let (dir, late) = (sub.join("dir"), sub.join("late"));
    let makers = [thread::spawn(move || fs::create_dir(dir)), thread::spawn(move || write(&late, b"late"))];
    thread::sleep(Duration::from_millis(500));
    assert!(makers.iter().all(|maker| !maker.is_finished()), "nothing can be changed");
    let waits = || world.counters("tank/dmu_tx").get("dmu_tx_suspended").is_some_and(|count| count != "0");
    wait_for("a count of what waits", waits);

    // whoever only looks is served
    let mut read = Vec::new();
    File::open(mnt.join("before")).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == before && fs::read_dir(&mnt).unwrap().count() > 1);
    world.check("get -Ho value health tank", 0, "SUSPENDED\n");
    let status = said(&world, "status -x");
    let head = "  pool: tank\n state: SUSPENDED\n\
                status: One or more devices are faulted in response to IO failures.\n\
                action: Make sure the affected devices are connected, then run 'zpool clear'.\n   \
                see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-HC\nconfig:\n";
    assert!(status.starts_with(head), "{status}");
    let again = said(&world, "clear tank");
    assert_eq!(again, "cannot clear errors for tank: I/O error\n");
    world.check("list -Ho health tank", 0, "SUSPENDED\n");
    world.check("export tank", 1, "cannot export 'tank': pool I/O is currently suspended\n");

    small.grow();
    world.check("clear tank", 0, "");
    makers.into_iter().for_each(|maker| maker.join().unwrap().unwrap());
    writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    world.check("list -Ho health tank", 0, "ONLINE\n");
    world.check("status -x tank", 0, "pool 'tank' is healthy\n");
    // what was acknowledged lasts through a power cut, and what was made if its directory was synced
    File::open(&sub).unwrap().sync_all().unwrap();
    world.kill("tank");
    world.check("import -d DIR/small -R DIR/mnt tank", 0, "");
    for (number, bytes) in files.iter().enumerate() {
        assert!(fs::read(sub.join(format!("file{number}"))).unwrap() == *bytes, "file{number}");
    }
    assert!(fs::read(mnt.join("before")).unwrap() == before);
    assert!(fs::read(sub.join("late")).unwrap() == b"late");
    assert!(sub.join("dir").is_dir());
    world.check("export tank", 0, "");
}

#[test]
fn a_suspended_pool_is_exported_by_force() {
    let world = World::new("force", &[]);
    let place = world.dir.join("small");
    let Some(_small) = Small::mount(&place).filter(|_| Path::new("/dev/fuse").exists()) else {
        eprintln!("SKIPPED force: nothing can be mounted here");
        return;
    };
    File::create(place.join("disk")).unwrap().set_len(256 << 20).unwrap();
    world.check("create -o failmode=continue -O compression=off -R DIR/mnt tank DIR/small/disk", 0, "");
    let mnt = world.dir.join("mnt/tank");
    write(&mnt.join("before"), b"before").unwrap();
    let error = write(&mnt.join("lost"), &noise(60 << 20, 1)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "EIO");
    wait_for("the suspension", || said(&world, "list -Ho health tank") == "SUSPENDED\n");
    assert!(said(&world, "status tank").contains("msg/ZFS-8000-JQ\n"));
    world.check("export -f tank", 0, "");
    world.check("list", 0, "no pools available\n");
    world.check("import -d DIR/small -o readonly=on -R DIR/mnt tank", 0, "");
    assert!(fs::read(mnt.join("before")).unwrap() == b"before");
}

/// A suspended pool is told as it is, not as it was when it was asked last: much may have been written since.
#[test]
fn a_suspended_pool_is_listed_as_it_is() {
    let world = World::new("listed", &[]);
    let place = world.dir.join("small");
    let Some(_small) = Small::mount(&place).filter(|_| Path::new("/dev/fuse").exists()) else {
        return eprintln!("SKIPPED listed: nothing can be mounted here");
    };
    File::create(place.join("disk")).unwrap().set_len(256 << 20).unwrap();
    world.check("create -o failmode=continue -O compression=off -R DIR/mnt tank DIR/small/disk", 0, "");
    let size = said(&world, "list -Hpo size tank");
    world.check("set comment=changed tank", 0, "");
    let mnt = world.dir.join("mnt/tank");
    write(&mnt.join("before"), &noise(20 << 20, 1)).unwrap();
    let error = write(&mnt.join("lost"), &noise(60 << 20, 2)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "EIO");
    for line in ["list -Hpo health,comment,size,alloc,free tank", "get -Hpo value health,comment,size,alloc,free tank"]
    {
        let said = said(&world, line);
        let words: Vec<&str> = said.split_whitespace().collect();
        let [health, comment, all, alloc, free] = words[..] else { panic!("{line}: {said}") };
        assert_eq!((health, comment, all), ("SUSPENDED", "changed", size.trim()), "{said}");
        let [all, alloc, free] = [all, alloc, free].map(|word| word.parse::<u64>().unwrap());
        assert!(alloc >= 20 << 20 && all - alloc == free, "{line}: {said}");
    }
    // each vdev, too
    let rows = said(&world, "list -Hpv tank");
    let allocated: Vec<u64> = rows
        .lines()
        .map(|row| row.split('\t').filter(|cell| !cell.is_empty()).nth(2))
        .map(|cell| cell.unwrap().parse().unwrap())
        .collect();
    assert!(allocated.len() == 2 && allocated.iter().all(|bytes| *bytes >= 20 << 20), "{rows}");
    world.check("export -f tank", 0, "");
}

/// Imports the pool, whatever is noted while that is done.
fn import(world: &World) {
    let output = world.zpool("import -d DIR tank");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn devices_go_and_come_back() {
    let world = World::new("leaves", &[]);
    let disks = ["a", "b"].map(|name| world.dir.join(name));
    disks.iter().for_each(|disk| File::create(disk).unwrap().set_len(128 << 20).unwrap());
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    world.check("clear", 2, "missing pool name\nusage:\n\tclear <pool> [device]\n");
    world.check("clear nope", 1, "cannot open 'nope': no such pool\n");
    world.check("clear tank", 0, "");
    world.check("clear tank DIR/a", 0, "");
    world.check("clear tank mirror-0", 0, "");
    world.check("clear tank DIR/c", 1, "cannot clear errors for DIR/c: no such device in pool\n");
    world.check("offline tank", 2, "missing device name\nusage:\n\toffline [-f] [-t] <pool> <device> ...\n");
    world.check("offline tank DIR/c", 1, "cannot offline DIR/c: no such device in pool\n");
    world.check("offline tank DIR/a", 0, "");
    world.check("list -Ho health tank", 0, "DEGRADED\n");
    world.check("offline tank DIR/b", 1, "cannot offline DIR/b: no valid replicas\n");
    let status = said(&world, "status tank");
    assert!(status.contains("status: One or more devices has been taken offline by the administrator.\n"), "{status}");
    world.check("set comment=changed tank", 0, "");
    world.tune("zfs_scan_suspend_progress", 1);
    world.check("online tank DIR/a", 0, "");
    world.check("list -Ho health tank", 0, "ONLINE\n");
    assert!(said(&world, "status tank").contains("ONLINE       0     0     0  (resilvering)\n"));
    world.check("offline tank DIR/b", 1, "cannot offline DIR/b: no valid replicas\n");
    world.check("offline -t tank DIR/a", 0, "");
    world.check("export tank", 0, "");
    // that was for a time only; reads that come before it is known what it lacks are noted
    import(&world);
    world.check("list -Ho health tank", 0, "ONLINE\n");
    world.check("offline -f tank DIR/a", 0, "");
    world.check("export tank", 0, "");
    import(&world);
    // there is nobody to be resilvered
    world.check("wait -t resilver tank", 0, "");
    let status = said(&world, "status tank");
    let words = "status: One or more devices are faulted in response to persistent errors.\n";
    assert!(status.contains(words) && status.contains("external device fault"), "{status}");
    world.check("clear tank", 0, "");
    // it lacks what was written meanwhile
    world.check("list -Ho health tank", 0, "ONLINE\n");
    world.tune("zfs_scan_suspend_progress", 0);
    world.check("wait -t resilver tank", 0, "");
    world.check("list -Ho health tank", 0, "ONLINE\n");
    world.check("destroy tank", 0, "");
}

/// A pool with a file in memory that its disk has no room for: it is suspended when the file is written. `test` gets
/// the world, the file, its bytes, and the path of what takes the room.
fn without_room(name: &str, test: impl FnOnce(&World, &Path, &[u8], &Path)) {
    let world = World::new(name, &[]);
    let place = world.dir.join("small");
    let Some(_small) = Small::mount_sized(&place, "80m").filter(|_| Path::new("/dev/fuse").exists()) else {
        return eprintln!("SKIPPED {name}: nothing can be mounted here");
    };
    world.tune("zfs_txg_timeout", 3600);
    File::create(place.join("disk")).unwrap().set_len(256 << 20).unwrap();
    world.check("create -O compression=off -R DIR/mnt tank DIR/small/disk", 0, "");
    world.check("sync tank", 0, "");
    let (file, bytes) = (world.dir.join("mnt/tank/file"), noise(16 << 20, 1));
    fs::write(&file, &bytes).unwrap();
    let filler = place.join("filler");
    std::io::copy(&mut std::io::repeat(1), &mut File::create(&filler).unwrap()).unwrap_err();
    test(&world, &file, &bytes, &filler);
}

/// What is unmounted for an export is written first: the devices fail then, and the export is told so.
#[test]
fn an_export_ends_when_the_pool_is_suspended_meanwhile() {
    without_room("suspendedexport", |world, file, bytes, filler| {
        for _ in 0..2 {
            world.check("export tank", 1, "cannot export 'tank': pool I/O is currently suspended\n");
            world.check("list -Ho health tank", 0, "SUSPENDED\n");
        }
        world.check("destroy tank", 1, "cannot destroy 'tank': pool I/O is currently suspended\n");
        fs::remove_file(filler).unwrap();
        world.check("clear tank", 0, "");
        world.check("export tank", 0, "");
        world.check("import -d DIR/small -R DIR/mnt tank", 0, "");
        assert!(fs::read(file).unwrap() == *bytes);
        world.check("export tank", 0, "");
    });
}

/// By force, the same ends with the pool being gone, and what could not be written.
#[test]
fn a_forced_export_ends_when_the_pool_is_suspended_meanwhile() {
    without_room("suspendedforce", |world, file, _, filler| {
        world.check("export -f tank", 0, "");
        world.check("list", 0, "no pools available\n");
        fs::remove_file(filler).unwrap();
        world.check("import -f -d DIR/small -R DIR/mnt tank", 0, "");
        assert!(!file.exists());
        world.check("export tank", 0, "");
    });
}
