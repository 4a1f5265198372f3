//! Volumes as a user meets them: made, sized, snapshotted, cloned, destroyed. Then zdb judges the pool, if it is there.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use super::snapshots::Fresh;
use super::{World, can_mount};

/// What `zfs get` shows of a volume: size, and what is reserved.
fn sizes(world: &World, name: &str) -> (u64, u64) {
    let (text, _) = world.zfs(&format!("get -Hpo value volsize,refreservation {name}"));
    let numbers: Vec<u64> = text.lines().map(|line| line.parse().unwrap_or(0)).collect();
    (numbers[0], numbers[1])
}

#[test]
fn a_volume_has_the_size_and_the_reservation_that_it_is_given() {
    let fresh = Fresh::new("volumes");
    let world = &fresh.world;
    fresh.does("create -V 60M fresh/v");
    // 60 MiB, and twice the 7 + 4 + 1 blocks of 128 KiB that lead to 3,840 of them
    assert_eq!(sizes(world, "fresh/v"), (60 << 20, (60 << 20) + (12 << 18)));
    fresh.does("create -s -V 1T fresh/sparse");
    assert_eq!(sizes(world, "fresh/sparse"), (1 << 40, 0));
    // up to a whole block
    fresh.does("create -p -o volblocksize=64k -V 1000000 fresh/deep/er");
    assert_eq!(sizes(world, "fresh/deep/er").0, 1 << 20);
    fresh.says("get -Ho value type,volblocksize,mounted fresh/deep/er", "volume\n64K\n-\n");

    fresh.does("set volsize=80M fresh/v");
    assert_eq!(sizes(world, "fresh/v"), (80 << 20, (80 << 20) + (13 << 18)));
    fresh.does("set volsize=50M fresh/v");
    assert_eq!(sizes(world, "fresh/v"), (50 << 20, (50 << 20) + (12 << 18)));
    // what is no longer what the size asks for stays
    fresh.does("set refreservation=20M fresh/v");
    fresh.does("set volsize=60M fresh/v");
    assert_eq!(sizes(world, "fresh/v"), (60 << 20, 20 << 20));
    fresh.does("set refreservation=auto fresh/v");
    assert_eq!(sizes(world, "fresh/v"), (60 << 20, (60 << 20) + (12 << 18)));
    // all of it or nothing
    fresh.fails("set volsize=10G fresh/v", "cannot set property for 'fresh/v': size is greater than available space\n");
    assert_eq!(sizes(world, "fresh/v"), (60 << 20, (60 << 20) + (12 << 18)));
    let (text, _) = world.zfs("list -Hrt volume -o name fresh");
    assert_eq!(text, "fresh/deep/er\nfresh/sparse\nfresh/v\n");
    fresh.judge();
}

#[test]
fn what_no_volume_can_be() {
    let fresh = Fresh::new("novolume");
    let says = |line: &str, why: &str| fresh.fails(&format!("create {line}"), why);
    says("-V 0 fresh/v", "cannot create 'fresh/v': volume size cannot be zero\n");
    says("-V 1z fresh/v", "bad volume size '1z': numeric value is too large\n");
    says("-V lots fresh/v", "bad volume size 'lots': bad numeric value 'lots'\n");
    says("-b 1x -V 1M fresh/v", "bad volume block size '1x': invalid numeric suffix 'x'\n");
    says("-V 1M -o volsize=2M fresh/v", "property 'volsize' specified multiple times\n");
    let size = "cannot create 'fresh/v': 'volblocksize' must be power of 2 from 512B to 16M\n";
    says("-V 1M -b 5000 fresh/v", size);
    says("-V 10G fresh/v", "cannot create 'fresh/v': out of space\n");
    says("-V 1M -o atime=off fresh/v", "cannot create 'fresh/v': 'atime' does not apply to datasets of this type\n");
    fresh.does("create -V 1M fresh/v");
    says("fresh/v/below", "cannot create 'fresh/v/below': parent is not a filesystem\n");
    fresh.fails("rename fresh/c fresh/v/c", "cannot rename 'fresh/c': parent is not a filesystem\n");
    let multiple = "cannot set property for 'fresh/v': 'volsize' must be a multiple of volume block size (16K)\n";
    fresh.fails("set volsize=10000 fresh/v", multiple);
    fresh.fails("set volsize=0 fresh/v", "cannot set property for 'fresh/v': 'volsize' cannot be zero\n");
    fresh.fails("set volblocksize=4K fresh/v", "cannot set property for 'fresh/v': 'volblocksize' is readonly\n");
    let dry = "create\tfresh/w\nproperty\tvolsize\t1048576\nproperty\trefreservation\t3145728\n";
    fresh.says("create -nP -V 1M fresh/w", dry);
    // it is said, and made all the same
    let small = "Warning: volblocksize (4096) is less than the default minimum block size (16384).\n\
                 To reduce wasted space a volblocksize of 16384 is recommended.\n";
    fresh.says("create -V 1M -b 4k fresh/small", small);
    fresh.judge();
}

#[test]
fn volumes_have_snapshots_and_clones() {
    let fresh = Fresh::new("volclones");
    fresh.does("create -V 20M fresh/v");
    fresh.does("snapshot fresh/v@one");
    fresh.does("set volsize=30M fresh/v");
    fresh.says("get -Hpo value volsize fresh/v@one", &format!("{}\n", 20 << 20));
    fresh.does("clone -o refreservation=auto fresh/v@one fresh/copy");
    assert_eq!(sizes(&fresh.world, "fresh/copy"), (20 << 20, (20 << 20) + (10 << 18)));
    fresh.does("promote fresh/copy");
    fresh.says("get -Ho value origin fresh/v", "fresh/copy@one\n");
    fresh.does("rename fresh/v fresh/a/moved");
    fresh.does("set volsize=10M fresh/copy");
    fresh.does("rollback fresh/copy@one");
    assert_eq!(sizes(&fresh.world, "fresh/copy"), (20 << 20, (20 << 20) + (10 << 18)), "what is reserved follows");
    fresh.does("snapshot -r fresh@all");
    fresh.fails(
        "destroy fresh/a/moved",
        "cannot destroy 'fresh/a/moved': volume has children\nuse '-r' to destroy the following datasets:\n\
         fresh/a/moved@all\n",
    );
    fresh.does("destroy -r fresh/a/moved");
    fresh.judge();
}

#[test]
fn what_raidz_pads_is_reserved() {
    let world = World::new("volraidz", &[]);
    for name in ["a", "b", "c", "d", "e"] {
        std::fs::File::create(world.dir.join(name)).unwrap().set_len(128 << 20).unwrap();
    }
    let disks = "DIR/a DIR/b DIR/c DIR/d DIR/e";
    world.check(&format!("create -o ashift=12 -O mountpoint=none z raidz {disks}"), 0, "");
    assert_eq!(world.zfs("create -V 64M z/v"), (String::new(), 0));
    // 16 KiB take 6 sectors of 4 KiB, and 128 KiB take 40; 4,096 blocks, and 7 + 4 + 1 that lead to them
    let data = (4096 * (24 << 10) / ((160 << 10) >> 9)) * 256;
    assert_eq!(sizes(&world, "z/v"), (64 << 20, data + (12 << 18)));
    let (text, _) = world.zfs("create -s -V 64M -b 8k z/w");
    assert!(text.starts_with("Warning: volblocksize (8192) is less than"), "{text}");
    world.check("destroy z", 0, "");
}

/// What is in a file from an offset on.
fn bytes_at(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

#[test]
fn volumes_are_files() {
    if !can_mount(file!()) {
        return;
    }
    let fresh = Fresh::new("volfiles");
    fresh.fails("create -s -V 8E fresh/a/w", "cannot create 'fresh/a/w': volume size is too large\n");
    fresh.does("create -s -V 20M fresh/a/v");
    let folder = fresh.world.dir.join("run/zvol/fresh");
    let path = folder.join("a/v");
    assert_eq!(fs::metadata(&path).unwrap().len(), 20 << 20);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&[7; 100_000], 50_000).unwrap();
    file.write_all_at(&[8; 512], (20 << 20) - 512).unwrap();
    file.sync_all().unwrap();
    assert_eq!(bytes_at(&file, 49_999, 100_002), [&[0][..], &[7; 100_000], &[0]].concat());
    // it neither grows nor shrinks
    assert_eq!(file.write_at(&[1; 1024], (20 << 20) - 512).unwrap(), 512);
    assert_eq!(file.write_at(&[1], 20 << 20).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    file.set_len(0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20 << 20);

    // nobody's disk is destroyed, and it goes back while it is used
    fresh.does("snapshot fresh/a/v@one");
    fresh.fails("destroy -r fresh/a/v", "cannot destroy 'fresh/a/v': dataset is busy\n");
    fresh.does("snapshot fresh/a/v@one");
    file.write_all_at(&[9; 4096], 50_000).unwrap();
    fresh.does("rollback fresh/a/v@one");
    assert_eq!(bytes_at(&file, 50_000, 4096), [7; 4096]);
    fresh.does("rename fresh/a/v fresh/a/w");
    assert!(!path.exists() && folder.join("a/w").exists());
    file.write_all_at(&[6; 4096], 50_000).unwrap();

    // snapshots are there if they are asked for, and volumes are not if they are not
    assert!(!folder.join("a/w@one").exists());
    fresh.does("set snapdev=visible fresh/a");
    let snapshot = File::open(folder.join("a/w@one")).unwrap();
    assert_eq!(bytes_at(&snapshot, 50_000, 4096), [7; 4096]);
    let held =
        "cannot destroy snapshot fresh/a/w@one: it's being held. Run 'zfs holds -r fresh/a/w@one' to see holders.\n";
    fresh.fails("destroy fresh/a/w@one", held);
    assert_eq!(bytes_at(&snapshot, 50_000, 4096), [7; 4096]);
    drop(snapshot);
    let names = |folder: &Path| -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&folder.join("a")), ["w", "w@one"]);
    fresh.does("set volmode=none fresh/a/w");
    assert!(names(&folder).is_empty() && !folder.join("a/w").exists());
    fresh.does("inherit volmode fresh/a/w");
    fresh.does("set readonly=on fresh/a/w");
    assert_eq!(file.write_at(&[1], 0).unwrap_err().raw_os_error(), Some(libc::EROFS));
    let read_only = "cannot set property for 'fresh/a/w': dataset is read-only\n";
    fresh.fails("set volsize=10M fresh/a/w", read_only);
    fresh.does("inherit readonly fresh/a/w");
    fresh.does("set volsize=30M fresh/a/w");
    assert_eq!(file.metadata().unwrap().len(), 30 << 20);
    assert_eq!(bytes_at(&file, 20 << 20, 4096), [0; 4096]);
    drop(file);
    fresh.does("destroy -r fresh/a/w");
    fresh.judge();
}

#[test]
fn what_was_synced_to_a_volume_outlives_a_kill() {
    if !can_mount(file!()) {
        return;
    }
    let fresh = Fresh::new("volkill");
    fresh.does("create -V 20M -b 32k fresh/v");
    fresh.does("create -s -V 20M fresh/never");
    fresh.does("set sync=always fresh/never");
    let folder = fresh.world.dir.join("run/zvol/fresh");
    for name in ["v", "never"] {
        let file = File::options().read(true).write(true).open(folder.join(name)).unwrap();
        file.write_all_at(&[1; 200_000], 0).unwrap();
        file.write_all_at(&[2; 300], 8000).unwrap();
        let punched =
            Command::new("fallocate").args(["-p", "-o", "16384", "-l", "20000"]).arg(folder.join(name)).status();
        assert!(punched.unwrap().success());
        file.write_all_at(&[3; 10], 20_000).unwrap();
        if name == "v" {
            // the first commit waits for the group; the second is in the log alone
            file.sync_all().unwrap();
            file.write_all_at(&[4; 50_000], 100_000).unwrap();
            file.sync_all().unwrap();
            // the same by each write
            let mut options = File::options();
            let each = options.write(true).custom_flags(libc::O_DSYNC).open(folder.join(name)).unwrap();
            each.write_all_at(&[5; 4096], 160_000).unwrap();
        }
    }
    fresh.world.kill("fresh");
    fresh.world.check("import -N -d DIR fresh", 0, "");
    for (name, later) in [("v", 4), ("never", 1)] {
        let file = File::open(folder.join(name)).unwrap();
        let mut expect = vec![1; 200_000];
        expect[8000..8300].fill(2);
        expect[16384..36384].fill(0);
        expect[20_000..20_010].fill(3);
        expect[100_000..150_000].fill(later);
        expect[160_000..164_096].fill(if name == "v" { 5 } else { 1 });
        assert!(bytes_at(&file, 0, 200_000) == expect, "{name}");
        assert_eq!(file.metadata().unwrap().size(), 20 << 20);
    }
    fresh.judge();
}
