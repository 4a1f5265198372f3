//! Disks of every kind of vdev are pulled, and come back as other devices at the same paths.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use testkit::loops::LoopDevice;

use super::suspended::{noise, wait_for, write};
use super::{World, can_mount};

/// A disk that can be pulled: a loop device over a file, and a link in the world's folder that leads to it.
struct PulledDisk {
    /// The file, and the link.
    bytes: PathBuf,
    link: PathBuf,
    /// The last one is what is at the link.
    devices: Vec<LoopDevice>,
}

impl PulledDisk {
    /// `None` where there are no loop devices.
    fn new(world: &World, name: &str) -> Option<PulledDisk> {
        let bytes = world.dir.join("bytes").join(name);
        fs::create_dir_all(bytes.parent().unwrap()).unwrap();
        File::create(&bytes).unwrap().set_len(128 << 20).unwrap();
        let mut disk = PulledDisk { bytes, link: world.dir.join(name), devices: Vec::new() };
        disk.plug_in().then_some(disk)
    }

    /// Another device with the same bytes is at the link.
    fn plug_in(&mut self) -> bool {
        let Some(device) = LoopDevice::over(&self.bytes, &[]) else { return false };
        drop(fs::remove_file(&self.link));
        std::os::unix::fs::symlink(device.path(), &self.link).unwrap();
        self.devices.push(device);
        true
    }

    /// The device has no bytes any more, as the kernel has it of one that was pulled.
    fn pull(&self) {
        self.devices.last().unwrap().resize(4096);
    }

    /// The same device is there again.
    fn push_in(&self) {
        self.devices.last().unwrap().resize(0);
    }

    /// It comes back as another device.
    fn back(&mut self) {
        assert!(self.plug_in());
    }
}

/// Lets nothing wait for the pool any more when a test fails.
struct ExportOnPanic<'a>(&'a World);

impl Drop for ExportOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(self.0.zpool("export -af"));
        }
    }
}

/// Disks of a world, and the world, which is dropped first.
struct Shelf<const N: usize> {
    world: World,
    disks: [PulledDisk; N],
}

impl<const N: usize> Shelf<N> {
    /// `None` where there are no loop devices.
    fn new(name: &str, disks: [&str; N]) -> Option<Shelf<N>> {
        let world = World::new(name, &[]);
        world.tune("zfs_txg_timeout", 1);
        let disks: Option<Vec<PulledDisk>> = disks.iter().map(|disk| PulledDisk::new(&world, disk)).collect();
        if disks.is_none() {
            eprintln!("SKIPPED {name}: there are no loop devices here");
        }
        let disks = disks?.try_into().ok()?;
        Some(Shelf { world, disks })
    }

    /// Makes the pool, with a file system that is mounted nowhere.
    fn create(&self, vdevs: &str) {
        self.world.check(&format!("create -f -O mountpoint=none tank {vdevs}"), 0, "");
        self.makes("first");
    }

    fn makes(&self, name: &str) {
        assert_eq!(self.world.zfs(&format!("create tank/{name}")), (String::new(), 0));
        self.world.check("sync tank", 0, "");
    }

    /// Makes a dataset while the pool is being suspended, and lets it go on when `mend` has done its part.
    fn outlasts(&mut self, name: &str, mend: impl FnOnce(&World, &mut [PulledDisk; N])) {
        let Shelf { world, disks } = self;
        let world = &*world;
        std::thread::scope(|scope| {
            let _ends = ExportOnPanic(world);
            let change = scope.spawn(|| world.zfs(&format!("create tank/{name}")));
            wait_for("the suspension", || world.told("zpool list -Ho health tank").0 == "SUSPENDED\n");
            mend(world, disks);
            world.check("clear tank", 0, "");
            let told = change.join().unwrap();
            // the group before it may have met the disks first
            let refusal = format!("cannot create 'tank/{name}': pool I/O is currently suspended\n");
            let told = if told == (refusal, 1) { world.zfs(&format!("create tank/{name}")) } else { told };
            assert_eq!(told, (String::new(), 0));
        });
    }

    /// All datasets are there, nothing is damaged, and the pool leaves.
    fn is_whole(&self, datasets: &str) {
        let world = &self.world;
        assert_eq!(world.zfs("list -Hro name tank"), (datasets.replace(' ', "\n") + "\n", 0));
        world.check("scrub -w tank", 0, "");
        assert!(world.scan("tank").contains("repaired 0B") && world.scan("tank").contains("with 0 errors"));
        let status = world.text("status tank");
        assert!(status.contains("errors: No known data errors"), "{status}");
        world.check("export tank", 0, "");
    }
}

const MIRROR: &str = "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\n";
const LACKS_B: &str = "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a ONLINE\nDIR/b REMOVED\n";

#[test]
fn a_side_of_a_mirror() {
    let Some(mut shelf) = Shelf::new("pulledside", ["a", "b"]) else { return };
    shelf.create("mirror DIR/a DIR/b");
    shelf.disks[1].pull();
    shelf.makes("second");
    shelf.world.becomes("tank", LACKS_B);
    let status = shelf.world.text("status -x");
    assert!(status.contains("state: DEGRADED") && !status.contains("FAULTED"), "{status}");
    // by itself
    shelf.disks[1].back();
    shelf.world.becomes("tank", MIRROR);
    // as the same device
    shelf.disks[1].pull();
    shelf.makes("third");
    shelf.world.becomes("tank", LACKS_B);
    shelf.disks[1].push_in();
    shelf.world.becomes("tank", MIRROR);
    // by each command that says so
    for (command, name) in
        [("online tank DIR/b", "x"), ("clear tank", "y"), ("clear tank DIR/b", "z"), ("reopen tank", "zz")]
    {
        shelf.disks[1].pull();
        shelf.makes(name);
        shelf.world.becomes("tank", LACKS_B);
        shelf.disks[1].back();
        shelf.world.check(command, 0, "");
        assert_eq!(shelf.world.tree("tank"), MIRROR, "{command}");
        shelf.world.check("wait -t resilver tank", 0, "");
    }
    shelf.is_whole("tank tank/first tank/second tank/third tank/x tank/y tank/z tank/zz");
}

#[test]
fn both_sides_of_a_mirror_one_after_the_other() {
    let Some(mut shelf) = Shelf::new("pulledsides", ["a", "b"]) else { return };
    shelf.create("mirror DIR/a DIR/b");
    shelf.disks[1].pull();
    shelf.makes("second");
    shelf.world.becomes("tank", LACKS_B);
    shelf.disks[0].pull();
    shelf.outlasts("third", |world, disks| {
        // the side that lacks something is of no use alone
        disks[1].back();
        world.check("clear tank", 1, "cannot clear errors for tank: I/O error\n");
        world.check("list -Ho health tank", 0, "SUSPENDED\n");
        disks[0].back();
    });
    shelf.world.becomes("tank", MIRROR);
    shelf.world.check("wait -t resilver tank", 0, "");
    shelf.is_whole("tank tank/first tank/second tank/third");
}

#[test]
fn disks_of_a_stripe() {
    let Some(mut shelf) = Shelf::new("pulledstripe", ["a", "b"]) else { return };
    shelf.create("DIR/a DIR/b");
    shelf.disks[1].pull();
    shelf.outlasts("second", |world, disks| {
        world.check("clear tank", 1, "cannot clear errors for tank: I/O error\n");
        disks[1].back();
    });
    shelf.disks.iter().for_each(PulledDisk::pull);
    shelf.outlasts("third", |world, disks| {
        disks[0].back();
        world.check("clear tank DIR/a", 1, "cannot clear errors for DIR/a: I/O error\n");
        disks[1].push_in();
    });
    assert_eq!(shelf.world.tree("tank"), "tank ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\n");
    shelf.is_whole("tank tank/first tank/second tank/third");
}

/// One disk of three may be away, and two are pulled then.
fn disks_of(world: &str, vdev: &str, name: &str) {
    let Some(mut shelf) = Shelf::new(world, ["a", "b", "c"]) else { return };
    shelf.create(&format!("{vdev} DIR/a DIR/b DIR/c"));
    let healthy = format!("tank ONLINE\n{name} ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\nDIR/c ONLINE\n");
    shelf.disks[2].pull();
    shelf.makes("second");
    let lacks = format!("tank DEGRADED\n{name} DEGRADED\nDIR/a ONLINE\nDIR/b ONLINE\nDIR/c REMOVED\n");
    shelf.world.becomes("tank", &lacks);
    shelf.disks[2].back();
    shelf.world.becomes("tank", &healthy);
    shelf.world.check("wait -t resilver tank", 0, "");
    shelf.disks[0].pull();
    shelf.disks[1].pull();
    shelf.outlasts("third", |_, disks| disks[..2].iter_mut().for_each(PulledDisk::back));
    shelf.world.becomes("tank", &healthy);
    shelf.world.check("wait -t resilver tank", 0, "");
    shelf.is_whole("tank tank/first tank/second tank/third");
}

#[test]
fn disks_of_raidz() {
    disks_of("pulledraidz", "raidz1", "raidz1-0");
}

#[test]
fn disks_of_draid() {
    disks_of("pulleddraid", "draid1:1d", "draid1:1d:3c:0s-0");
}

#[test]
fn a_disk_that_is_alone() {
    let Some(mut shelf) = Shelf::new("pulledalone", ["a"]) else { return };
    shelf.create("DIR/a");
    let refused =
        |line: &str, verb: &str| (line.to_owned(), format!("cannot {verb}: pool I/O is currently suspended\n"));
    let lines = [
        refused("online tank DIR/a", "online DIR/a"),
        refused("reopen tank", "reopen 'tank'"),
        refused("export tank", "export 'tank'"),
    ];
    for name in ["second", "third"] {
        shelf.disks[0].pull();
        shelf.outlasts(name, |world, disks| {
            // what no command can do while there is no disk ends, and changes nothing
            for (line, told) in &lines {
                world.check(line, 1, told);
            }
            world.check("clear tank", 1, "cannot clear errors for tank: I/O error\n");
            if name == "second" { disks[0].back() } else { disks[0].push_in() }
        });
        assert_eq!(shelf.world.tree("tank"), "tank ONLINE\nDIR/a ONLINE\n");
    }
    shelf.is_whole("tank tank/first tank/second tank/third");
}

#[test]
fn a_pool_leaves_without_its_disk() {
    let Some(mut shelf) = Shelf::new("pulledaway", ["a"]) else { return };
    shelf.create("DIR/a");
    shelf.disks[0].pull();
    let world = &shelf.world;
    std::thread::scope(|scope| {
        let _ends = ExportOnPanic(world);
        let change = scope.spawn(|| world.zfs("create tank/lost"));
        wait_for("the suspension", || world.told("zpool list -Ho health tank").0 == "SUSPENDED\n");
        world.check("export -f tank", 0, "");
        assert_ne!(change.join().unwrap().1, 0);
    });
    world.check("list", 0, "no pools available\n");
    shelf.disks[0].back();
    shelf.world.check("import -d DIR tank", 0, "");
    shelf.is_whole("tank tank/first");
}

#[test]
fn disks_of_metadata() {
    for class in ["special", "dedup"] {
        let Some(mut shelf) = Shelf::new(&format!("pulled{class}"), ["a", "s"]) else { return };
        shelf.create(&format!("DIR/a {class} DIR/s"));
        shelf.disks.iter().for_each(PulledDisk::pull);
        shelf.outlasts("second", |_, disks| disks.iter_mut().for_each(PulledDisk::back));
        // tables of a pool that has no duplicates are not written
        if class == "special" {
            shelf.disks[1].pull();
            shelf.outlasts("third", |_, disks| disks[1].back());
        } else {
            shelf.makes("third");
        }
        shelf.world.becomes("tank", &format!("tank ONLINE\nDIR/a ONLINE\n{class}\nDIR/s ONLINE\n"));
        shelf.is_whole("tank tank/first tank/second tank/third");
    }
}

#[test]
fn a_spare_in_use() {
    let Some(mut shelf) = Shelf::new("pulledspare", ["a", "b", "s"]) else { return };
    shelf.create("mirror DIR/a DIR/b spare DIR/s");
    shelf.disks[1].pull();
    shelf.makes("second");
    let spared = |state: &str| {
        let above = if state == "ONLINE" { "DEGRADED" } else { "UNAVAIL" };
        format!(
            "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a ONLINE\nspare-1 {above}\nDIR/b REMOVED\nDIR/s {state}\n\
             spares\nDIR/s INUSE\n"
        )
    };
    shelf.world.becomes("tank", &spared("ONLINE"));
    shelf.world.check("wait -t replace tank", 0, "");
    shelf.disks[2].pull();
    shelf.makes("third");
    shelf.world.becomes("tank", &spared("REMOVED"));
    shelf.disks[2].back();
    shelf.world.becomes("tank", &spared("ONLINE"));
    shelf.disks[1].back();
    shelf.world.becomes("tank", &format!("{MIRROR}spares\nDIR/s AVAIL\n"));
    shelf.is_whole("tank tank/first tank/second tank/third");
}

/// Writes a file, each time with more in it.
fn writes(file: &Path, bytes: &mut Vec<u8>) {
    bytes.extend(noise(1 << 20, bytes.len() as u64));
    write(file, bytes).unwrap();
}

#[test]
fn a_log_and_a_cache() {
    if !can_mount("pulledlog") {
        return;
    }
    let Some(mut shelf) = Shelf::new("pulledlog", ["a", "l", "c"]) else { return };
    shelf.world.tune("l2arc_noprefetch", 0);
    shelf.world.check("create -f -R DIR/mnt tank DIR/a log DIR/l cache DIR/c", 0, "");
    let tree = |pool: &str, log: &str, cache: &str| {
        format!("tank {pool}\nDIR/a ONLINE\nlogs\nDIR/l {log}\ncache\nDIR/c {cache}\n")
    };
    let (file, mut bytes) = (shelf.world.dir.join("mnt/tank/file"), Vec::new());
    writes(&file, &mut bytes);
    assert_eq!(shelf.world.tree("tank"), tree("ONLINE", "ONLINE", "ONLINE"));
    shelf.disks[1].pull();
    writes(&file, &mut bytes);
    shelf.world.becomes("tank", &tree("DEGRADED", "REMOVED", "ONLINE"));
    writes(&file, &mut bytes);
    shelf.disks[1].back();
    shelf.world.becomes("tank", &tree("ONLINE", "ONLINE", "ONLINE"));
    writes(&file, &mut bytes);
    shelf.disks[2].pull();
    wait_for("the cache to be missed", || {
        writes(&file, &mut bytes);
        shelf.world.tree("tank") == tree("ONLINE", "ONLINE", "REMOVED")
    });
    // what is not back is not said to be
    shelf.world.zpool("online tank DIR/c");
    assert_ne!(shelf.world.tree("tank"), tree("ONLINE", "ONLINE", "ONLINE"));
    shelf.disks[2].back();
    shelf.world.becomes("tank", &tree("ONLINE", "ONLINE", "ONLINE"));
    assert!(fs::read(&file).unwrap() == bytes);
    shelf.is_whole("tank");
}
