//! Devices that are added to a pool in use, attached, detached and removed, as a user does it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use testkit::loops::LoopDevice;

use super::World;
use super::suspended::{Small, noise, write};

impl World {
    /// Empty files for devices.
    pub fn disks(&self, names: &[&str]) {
        names.iter().for_each(|name| File::create(self.dir.join(name)).unwrap().set_len(128 << 20).unwrap());
    }

    /// Names and states in `zpool status`, a line each.
    pub fn tree(&self, pool: &str) -> String {
        let text = String::from_utf8(self.zpool(&format!("status {pool}")).stdout).unwrap();
        let rows = text.lines().skip_while(|line| !line.trim_start().starts_with("NAME")).skip(1);
        let row = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ") + "\n";
        let rows: String = rows.take_while(|line| !line.is_empty()).map(row).collect();
        rows.replace(self.dir.to_str().unwrap(), "DIR")
    }
}

#[test]
fn devices_come_and_go() {
    let world = World::new("vdevs", &[]);
    world.disks(&["a", "b", "c", "d", "e"]);
    world.check("create -O mountpoint=none fresh DIR/a", 0, "");
    world.check("add fresh", 2, &format!("missing vdev specification\nusage:\n{ADD}"));
    world.check("add -o atime=on fresh DIR/b", 2, &format!("usage:\n{ADD}"));
    let layout = "would update 'fresh' to the following configuration:\n\n\tfresh\n\t  DIR/a\n\
                  \tlogs\n\t  mirror\n\t    DIR/b\n\t    DIR/c\n\tcache\n\t  DIR/d\n";
    world.check("add -n fresh log mirror DIR/b DIR/c cache DIR/d", 0, layout);
    let uneven = "invalid vdev specification\nuse '-f' to override the following errors:\n\
                  mismatched replication level: pool uses file and new vdev is mirror\n";
    for option in ["", "--allow-in-use ", "--allow-ashift-mismatch "] {
        world.check(&format!("add -n {option}fresh mirror DIR/b DIR/c"), 1, uneven);
    }
    for option in ["in-use", "replication-mismatch", "ashift-mismatch"] {
        let why = "'-f' option is not allowed with '--allow-replication-mismatch', '--allow-ashift-mismatch', or \
                   '--allow-in-use'";
        world.check(&format!("add -f --allow-{option} fresh DIR/b"), 2, &format!("{why}\nusage:\n{ADD}"));
    }
    let layout = "would update 'fresh' to the following configuration:\n\n\tfresh\n\t  DIR/a\n\t  mirror\n\t    DIR/b\n\t    DIR/c\n";
    world.check("add -n --allow-replication-mismatch fresh mirror DIR/b DIR/c", 0, layout);
    let twice = "cannot add to 'fresh': one or more vdevs refer to the same device\n";
    world.check("add fresh log DIR/b DIR/b", 1, twice);
    world.check("add fresh log DIR/b", 0, "");
    let taken = "invalid vdev specification\nuse '-f' to override the following errors:\n\
                 DIR/b is part of active pool 'fresh'\n";
    world.check("add fresh cache DIR/b", 1, taken);
    world.check("attach fresh DIR/b DIR/c", 0, "");
    world.check("add fresh cache DIR/d spare DIR/e", 0, "");
    let full = "fresh ONLINE\nDIR/a ONLINE\nlogs\nmirror-1 ONLINE\nDIR/b ONLINE\nDIR/c ONLINE\ncache\nDIR/d ONLINE\n\
                spares\nDIR/e AVAIL\n";
    assert_eq!(world.tree("fresh"), full);
    for command in ["list -v fresh", "iostat -v fresh"] {
        let text = String::from_utf8(world.zpool(command).stdout).unwrap();
        assert!(["logs", "mirror-1", "cache"].iter().all(|name| text.contains(name)), "{command}: {text}");
    }
    for device in ["DIR/c", "DIR/d"] {
        world.check(&format!("offline fresh {device}"), 0, "");
        assert_eq!(world.tree("fresh").matches(&format!("{device} OFFLINE")).count(), 1);
        world.check(&format!("online fresh {device}"), 0, "");
        assert_eq!(world.tree("fresh"), full);
    }
    let alone = "cannot detach DIR/a: only applicable to mirror and replacing vdevs\n";
    world.check("detach fresh DIR/a", 1, alone);
    world.check("detach fresh DIR/b", 0, "");
    world.check("remove fresh DIR/a", 1, "cannot remove DIR/a: out of space\n");
    world.check("remove fresh DIR/x", 1, "cannot remove DIR/x: no such device in pool\n");
    world.check("remove fresh DIR/c DIR/d DIR/e", 0, "");
    assert_eq!(world.tree("fresh"), "fresh ONLINE\nDIR/a ONLINE\n");
    // they are nobody's
    world.check("create -O mountpoint=none other mirror DIR/c DIR/d", 0, "");
    world.check("add fresh DIR/b", 0, "");
    let list = String::from_utf8(world.zpool("list -Hpo size fresh").stdout).unwrap();
    assert!(list.trim().parse::<u64>().unwrap() > 200 << 20, "{list}");
    world.check("export -a", 0, "");
    world.check("import -d DIR fresh", 0, "");
    assert_eq!(world.tree("fresh"), "fresh ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\n");
    let history = String::from_utf8(world.zpool("history fresh").stdout).unwrap();
    for command in ["add fresh log", "attach fresh", "detach fresh", "remove fresh"] {
        let lines = history.lines().filter(|line| line.contains(&format!("zpool {command}")));
        assert_eq!(lines.count(), 1, "{command}: {history}");
    }
}

#[test]
fn sectors_of_another_size_are_asked_for() {
    let world = World::new("sectors", &[]);
    let larger = |what: &str| {
        format!("cannot {what}: The new device cannot have a higher alignment requirement than the top-level vdev.\n")
    };
    world.disks(&["a", "b", "c", "d", "e", "f"]);
    world.check("create -o ashift=12 -O mountpoint=none fresh DIR/a", 0, "");
    let why = "cannot add to 'fresh': adding devices with different physical sector sizes is not allowed\n";
    world.check("add -o ashift=9 fresh DIR/b", 1, why);
    // logs and what is set aside are asked for, too, but do not count themselves
    for class in ["log", "special", "dedup"] {
        world.check(&format!("add -o ashift=9 fresh {class} DIR/c"), 1, why);
    }
    world.check("add --allow-ashift-mismatch -o ashift=9 fresh log DIR/c", 0, "");
    world.check("add fresh DIR/b", 0, "");
    world.check("attach -o ashift=13 fresh DIR/a DIR/f", 1, &larger("attach DIR/f to DIR/a"));
    world.check("replace -o ashift=13 fresh DIR/b DIR/f", 1, &larger("replace DIR/b with DIR/f"));
    world.check("attach -o ashift=9 fresh DIR/a DIR/f", 0, "");
    world.check("detach fresh DIR/f", 0, "");
    world.check("add --allow-ashift-mismatch -o ashift=9 fresh DIR/d", 0, "");
    // there is nothing left to keep
    world.check("add -o ashift=13 fresh DIR/e", 0, "");
    let ashifts = String::from_utf8(world.zpool("get -Hpo value ashift fresh all-vdevs").stdout).unwrap();
    assert!(["9", "12", "13"].iter().all(|ashift| ashifts.lines().any(|line| line == *ashift)), "{ashifts}");
    world.check("destroy fresh", 0, "");
}

/// A disk of 4096-byte sectors over a file, and a link to it; `None` where there are no such.
fn disk_of_large_sectors(world: &World, file: &str, link: &str) -> Option<LoopDevice> {
    let disk = LoopDevice::over(&world.dir.join(file), &["--sector-size", "4096"])?;
    std::os::unix::fs::symlink(disk.path(), world.dir.join(link)).unwrap();
    Some(disk)
}

/// The blocks of a pool of ashift 9 cannot be written alone to a disk of 4096-byte sectors.
#[test]
fn disks_of_larger_sectors_are_not_used() {
    let world = World::new("large-sectors", &[]);
    world.disks(&["a", "b", "c", "d"]);
    world.check("create -o ashift=9 -O mountpoint=none alone DIR/a", 0, "");
    world.check("create -o ashift=9 -O mountpoint=none pair mirror DIR/b DIR/c", 0, "");
    world.check("export -a", 0, "");
    let Some(first) = disk_of_large_sectors(&world, "a", "disk-a") else {
        return eprintln!("SKIPPED large sectors: there are no loop devices here");
    };
    let [second, third] =
        [("c", "disk-c"), ("d", "disk-d")].map(|(file, link)| disk_of_large_sectors(&world, file, link).unwrap());
    let (said, code) = world.told("zpool import -d DIR/disk-a alone");
    assert!(
        code == 1
            && said.starts_with("cannot import 'alone': one or more devices is currently unavailable\n")
            && said.contains("devices have larger sectors than their vdev was made for"),
        "{said}"
    );
    let (said, code) = world.told("zpool import -d DIR/disk-a");
    assert!(code == 0 && said.contains("larger sectors") && said.contains("unsupported minimum blocksize"), "{said}");
    world.check("import -d DIR/b -d DIR/disk-c pair", 0, "");
    let tree = world.tree("pair");
    assert!(tree.starts_with("pair DEGRADED\n") && tree.contains("DIR/disk-c UNAVAIL\n"), "{tree}");
    let (status, _) = world.told("zpool status pair");
    for part in ["larger sectors than their vdev was made for", "unsupported minimum blocksize"] {
        assert!(status.contains(part), "{status}");
    }
    world.told("zpool online pair DIR/disk-c");
    assert_eq!(world.tree("pair"), tree, "it is not used by a command either");
    let why = "cannot attach DIR/disk-d to DIR/b: The new device cannot have a higher alignment requirement than the \
         top-level vdev.\n";
    world.check("attach -o ashift=9 pair DIR/b DIR/disk-d", 1, why);
    // of a new pool, an ashift that is too small is no demand
    world.check("create -o ashift=9 -O mountpoint=none fresh DIR/disk-d", 0, "");
    assert_eq!(world.told("zpool get -Hpo value ashift fresh DIR/disk-d").0, "12\n");
    world.check("export -a", 0, "");
    drop([first, second, third]);
    world.check("import -d DIR/a alone", 0, "");
    world.check("import -d DIR/b -d DIR/c pair", 0, "");
    assert_eq!(world.tree("pair"), "pair ONLINE\nmirror-0 ONLINE\nDIR/b ONLINE\nDIR/c ONLINE\n");
}

#[test]
fn devices_with_something_in_them_are_refused() {
    let world = World::new("signatures", &[]);
    let made = |name: &str, offset: usize, mark: &[u8]| {
        world.disks(&[name]);
        std::os::unix::fs::FileExt::write_all_at(
            &File::options().write(true).open(world.dir.join(name)).unwrap(),
            mark,
            offset as u64,
        )
        .unwrap();
    };
    world.disks(&["a"]);
    made("luks", 0, b"LUKS\xba\xbe\0\x02");
    made("lvm", 512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001");
    made("gpt", 512, b"EFI PART");
    world.check("create -O mountpoint=none fresh DIR/a", 0, "");
    for (name, what) in [
        ("luks", "filesystem of type 'crypto_LUKS'"),
        ("lvm", "filesystem of type 'LVM2_member'"),
        ("gpt", "partition table of type 'gpt'"),
    ] {
        let why = format!(
            "invalid vdev specification\nuse '-f' to override the following errors:\nDIR/{name} contains a {what}\n"
        );
        for command in [
            "create other",
            "add fresh",
            "add fresh spare",
            "add fresh cache",
            "attach fresh DIR/a",
            "replace fresh DIR/a",
        ] {
            world.check(&format!("{command} DIR/{name}"), 1, &why);
        }
    }
    // the header of a partition table that is damaged is no partition table
    for command in ["attach -fw fresh DIR/a", "add -f fresh spare", "add -f fresh cache", "add -f fresh log"] {
        made("damaged", 512, b"EFI PART");
        world.check(&format!("{command} DIR/damaged"), 0, "");
        let leave = if command.starts_with("attach") { "detach" } else { "remove" };
        world.check(&format!("{leave} fresh DIR/damaged"), 0, "");
    }
    made("damaged", 512, b"EFI PART");
    world.check("add -f fresh DIR/gpt", 0, "");
    world.check("replace -fw fresh DIR/gpt DIR/damaged", 0, "");
    world.check("attach -f fresh DIR/a DIR/luks", 0, "");
    world.check("add -f fresh spare DIR/lvm", 0, "");
    world.check("destroy fresh", 0, "");
    // of a pool that has gone nothing stands in the way
    world.check("create -O mountpoint=none again DIR/a DIR/luks", 0, "");
    world.check("destroy again", 0, "");
}

#[test]
fn a_pool_without_its_log_device() {
    let world = World::new("nolog", &[]);
    world.disks(&["a", "b", "c"]);
    world.check("create -O mountpoint=none logged DIR/a log DIR/b", 0, "");
    world.check("offline logged DIR/b", 0, "");
    assert_eq!(world.tree("logged"), "logged DEGRADED\nDIR/a ONLINE\nlogs\nDIR/b OFFLINE\n");
    world.check("online logged DIR/b", 0, "");
    assert_eq!(world.tree("logged"), "logged ONLINE\nDIR/a ONLINE\nlogs\nDIR/b ONLINE\n");
    world.check("export logged", 0, "");
    std::fs::remove_file(world.dir.join("b")).unwrap();
    let refused = "The devices below are missing or corrupted, use '-m' to import the pool anyway:\n\
                   \t    DIR/b [log]\n\n\
                   cannot import 'logged': one or more devices is currently unavailable\n";
    world.check("import -d DIR logged", 1, refused);
    world.check("import -m -d DIR logged", 0, "");
    assert_eq!(world.tree("logged"), "logged DEGRADED\nDIR/a ONLINE\nlogs\nDIR/b UNAVAIL\n");
    world.check("clear logged", 0, "");
    world.check("remove logged DIR/b", 0, "");
    world.check("add logged log DIR/c", 0, "");
    world.check("export logged", 0, "");
    world.check("import -d DIR logged", 0, "");
    assert_eq!(world.tree("logged"), "logged ONLINE\nDIR/a ONLINE\nlogs\nDIR/c ONLINE\n");
}

/// Files are written and fsynced while the log device has no room on the disk that it is a file on.
#[test]
fn a_log_device_that_fails_under_a_mount() {
    let world = World::new("badlog", &[]);
    let place = world.dir.join("small");
    let Some(_small) = Small::mount_sized(&place, "3m").filter(|_| Path::new("/dev/fuse").exists()) else {
        eprintln!("SKIPPED badlog: nothing can be mounted here");
        return;
    };
    world.disks(&["a", "small/log"]);
    world.check("create -R DIR/mnt fsynced DIR/a log DIR/small/log", 0, "");
    let mnt = world.dir.join("mnt/fsynced");
    let bytes = |n: u64| noise(40 << 10, n);
    (0..100).for_each(|n| write(&mnt.join(format!("file{n}")), &bytes(n)).unwrap());
    let tree = String::from_utf8(world.zpool("status -p fsynced").stdout).unwrap();
    let log = tree.lines().find(|line| line.contains("small/log")).unwrap();
    assert!(log.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap() > 0, "its writes fail: {tree}");
    assert_ne!(world.zpool("list -Ho health fsynced").stdout, b"SUSPENDED\n");
    // what was acknowledged lasts through a power cut
    world.kill("fsynced");
    world.check("import -d DIR -d DIR/small -R DIR/mnt fsynced", 0, "");
    (0..100).for_each(|n| assert!(std::fs::read(mnt.join(format!("file{n}"))).unwrap() == bytes(n), "file{n}"));
    world.check("remove fsynced DIR/small/log", 0, "");
    write(&mnt.join("last"), &bytes(1000)).unwrap();
    assert_eq!(world.tree("fsynced"), "fsynced ONLINE\nDIR/a ONLINE\n");
    world.check("export fsynced", 0, "");
}

const ADD: &str = "\tadd [-fgLnP] [-o property=value]\n\t    [--allow-in-use] [--allow-replication-mismatch] \
                   [--allow-ashift-mismatch] <pool> <vdev> ...\n";

/// Disks and mirrors are emptied and taken off; what was on them is where it was.
#[test]
fn top_level_vdevs_are_removed() {
    let world = World::new("removal", &[]);
    // large enough that the pool has room without one of them
    let disk = |name: &str| File::create(world.dir.join(name)).unwrap().set_len(512 << 20).unwrap();
    ["a", "b", "c", "d", "e", "f"].into_iter().for_each(disk);
    world.check("create -f -O mountpoint=none tank DIR/a mirror DIR/b DIR/c", 0, "");
    world.check("remove -s tank", 1, "cannot cancel removal: operation is not in progress\n");
    let estimate = String::from_utf8(world.zpool("remove -np tank mirror-1").stdout).unwrap();
    assert!(estimate.starts_with("mirror-1 ") && !estimate.ends_with(" 0\n"), "{estimate}");
    let side = "cannot remove DIR/b: operation not supported on this type of pool\n";
    world.check("remove tank DIR/b", 1, side);
    world.check("remove -w tank mirror-1", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nDIR/a ONLINE\n");
    let status = String::from_utf8(world.zpool("status tank").stdout).unwrap();
    assert!(status.contains("remove: Removal of vdev 1 copied "), "{status}");
    assert!(status.contains(" memory used for removed device mappings\n"), "{status}");
    world.check("remove -w tank DIR/a", 1, "cannot remove DIR/a: out of space\n");
    // its devices are nobody's
    world.check("add -f tank DIR/b", 0, "");
    world.check("remove -w tank DIR/a", 0, "");
    world.check("export tank", 0, "");
    world.check("import -d DIR tank", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nDIR/b ONLINE\n");
    world.check("scrub -w tank", 0, "");
    let parity = "cannot add to 'tank': invalid config; a pool with removing/removed vdevs does not support adding raidz or \
                  dRAID vdevs\n";
    world.check("add -f tank raidz DIR/d DIR/e DIR/f", 1, parity);
    world.check("create -f -O mountpoint=none mixed DIR/a raidz DIR/d DIR/e DIR/f", 0, "");
    let mixed = "cannot remove DIR/a: invalid config; all top-level vdevs must have the same sector size and not be \
                 raidz.\n";
    world.check("remove mixed DIR/a", 1, mixed);
    world.check("checkpoint tank", 0, "");
    world.check("remove tank DIR/b", 1, "cannot remove DIR/b: checkpoint exists\n");
}

#[test]
fn a_copy_of_the_program_may_be_called_as_its_command() {
    let world = World::new("copied", &[]);
    world.disks(&["a"]);
    let copy = world.dir.join("zpool");
    // by another process: what a test beside this one starts would have the copy open for writing, and it could not be run
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_cenote")).arg(&copy).status().unwrap();
    assert!(copied.success());
    let run = |words: &[&str]| {
        let ended = world.command(copy.to_str().unwrap()).args(words).output().unwrap();
        assert!(ended.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ended.stderr));
    };
    run(&["create", "-O", "mountpoint=none", "fresh", world.dir.join("a").to_str().unwrap()]);
    run(&["export", "fresh"]);
    run(&["import", "-d", world.dir.to_str().unwrap(), "fresh"]);
    assert_eq!(world.tree("fresh"), "fresh ONLINE\nDIR/a ONLINE\n");
    run(&["destroy", "fresh"]);
}

/// What OpenZFS has and Cenote has not is refused by its name.
#[test]
fn power_of_slots_is_refused_by_name() {
    let world = World::with_pool("power");
    for flag in ["--power", "--pow"] {
        let (said, code) = world.told(&format!("zpool status {flag} fresh"));
        assert!(code != 0 && said.contains("--power is not supported"), "{code} {said}");
    }
}

/// What is measured is shown line by line, also to a pipe.
#[test]
fn a_bench_in_a_pipe_shows_lines_as_they_come() {
    let world = World::new("piped", &[]);
    let file = world.dir.join("file");
    std::fs::write(&file, noise(1 << 20, 1)).unwrap();
    let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
    command.args(["bench", "randread", "-j", "1"]).arg(&file).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // many more sizes follow
    assert!(lines.any(|line| line.trim_start().starts_with("512B ")), "there is no row");
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}
