//! Devices that came back and lack what was written meanwhile: that is said wherever somebody may look, as the pool
//! is lost with the devices that have it.

use std::fs;
use std::path::Path;

use super::World;
use super::suspended::{noise, write};

fn said(world: &World, line: &str) -> String {
    let output = world.zpool(line);
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    text.replace(world.dir.to_str().unwrap(), "DIR")
}

/// What is said of a pool in which DIR/b is stale.
fn check_stale(world: &World) {
    let status = said(world, "status -x tank");
    let head = "  pool: tank\n state: ONLINE\n\
                status: One or more devices is currently being resilvered.  The pool will\n\
                \tcontinue to function, possibly in a degraded state.\n\
                action: Wait for the resilver to complete.\n  scan: resilver in progress since ";
    assert!(status.starts_with(head), "{status}");
    let stale: Vec<&str> = status.lines().filter(|line| line.ends_with("(resilvering)")).collect();
    assert!(matches!(stale[..], [line] if line.contains("b ")), "{status}");
    assert!(world.tree("tank").starts_with("tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\n"), "{status}");
    assert_ne!(said(world, "status -x"), "all pools are healthy\n");
    assert!(said(world, "status -e tank").contains("(resilvering)"));
    world.check("list -Ho health tank", 0, "ONLINE\n");
    world.check("get -Ho value health tank", 0, "ONLINE\n");
    let json = said(world, "status -j tank");
    assert!(json.contains("\"state\":\"ONLINE\"") && json.contains("\"function\":\"RESILVER\""), "{json}");
    for line in ["offline tank DIR/a", "detach tank DIR/a"] {
        let (verb, _) = line.split_once(' ').unwrap();
        world.check(line, 1, &format!("cannot {verb} DIR/a: no valid replicas\n"));
    }
}

/// Lets the resilver go on, and waits until DIR/b has everything.
fn resilver(world: &World) {
    world.tune("zfs_scan_suspend_progress", 0);
    world.check("wait -t resilver tank", 0, "");
    let status = said(world, "status tank");
    assert!(status.contains("  scan: resilvered ") && status.contains(" with 0 errors on "), "{status}");
    world.check("status -x tank", 0, "pool 'tank' is healthy\n");
}

fn export(world: &World) {
    let warning = "warning: 'tank' needs all its devices: what was written while they were away is not on\n\tDIR/b\n";
    world.check("export tank", 0, warning);
}

/// Imports the pool, whatever is noted while that is done.
fn import(world: &World) {
    let output = world.zpool("import -d DIR -R DIR/mnt tank");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_side_that_was_offline() {
    let world = World::new("stale", &[]);
    world.disks(&["a", "b"]);
    world.tune("zfs_scan_suspend_progress", 1);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    world.check("offline tank DIR/b", 0, "");
    world.check("set comment=changed tank", 0, "");
    world.check("online tank DIR/b", 0, "");
    check_stale(&world);
    export(&world);
    import(&world);
    check_stale(&world);
    export(&world);
    import(&world);
    resilver(&world);
    world.check("offline tank DIR/a", 0, "");
}

/// What nobody could have without the side that is away: that is said, and nobody is told to destroy the pool.
#[test]
fn the_stale_side_alone() {
    let world = World::new("alone", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED alone: nothing can be mounted here");
        return;
    }
    world.disks(&["a", "b"]);
    world.tune("zfs_scan_suspend_progress", 1);
    world.check("create -O compression=off -R DIR/mnt tank mirror DIR/a DIR/b", 0, "");
    world.check("offline tank DIR/b", 0, "");
    write(&world.dir.join("mnt/tank/file"), &noise(20 << 20, 1)).unwrap();
    // so much that not all of it is written again with later groups
    for n in 0..20 {
        assert_eq!(world.zfs(&format!("create -o mountpoint=none tank/{n}")), (String::new(), 0));
    }
    world.check("sync tank", 0, "");
    world.check("online tank DIR/b", 0, "");
    check_stale(&world);
    export(&world);
    fs::rename(world.dir.join("a"), world.dir.join("away")).unwrap();
    fs::create_dir(world.dir.join("alone")).unwrap();
    fs::rename(world.dir.join("b"), world.dir.join("alone/b")).unwrap();
    let refused = said(&world, "import -N -d DIR/alone -R DIR/mnt tank");
    let truth =
        "a part of the pool without which it cannot be opened is not on the devices that are there; missing: DIR/a";
    assert!(refused.contains("one or more devices is currently unavailable\n\t"), "{refused}");
    assert!(refused.contains(truth) && !refused.contains("Destroy"), "{refused}");
    let seen = said(&world, "import -d DIR/alone");
    let truth = " state: UNAVAIL\nstatus: One or more devices are missing from the system.\n\
                 action: The pool cannot be imported. Attach the missing\n\tdevices and try again.\n";
    assert!(seen.contains(truth), "{seen}");
    // both again
    fs::rename(world.dir.join("away"), world.dir.join("a")).unwrap();
    fs::rename(world.dir.join("alone/b"), world.dir.join("b")).unwrap();
    import(&world);
    // until it was known what that side lacks, it may have been asked for it
    world.check("clear tank", 0, "");
    check_stale(&world);
    resilver(&world);
    world.check("detach tank DIR/a", 0, "");
    assert!(fs::read(world.dir.join("mnt/tank/file")).unwrap() == noise(20 << 20, 1));
    world.check("list -Ho health tank", 0, "ONLINE\n");
    world.check("export tank", 0, "");
}

#[test]
fn a_side_that_was_not_there_at_import() {
    let world = World::new("absent", &[]);
    world.disks(&["a", "b"]);
    world.tune("zfs_scan_suspend_progress", 1);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    world.check("export tank", 0, "");
    fs::rename(world.dir.join("b"), world.dir.join("away")).unwrap();
    fs::create_dir(world.dir.join("there")).unwrap();
    fs::rename(world.dir.join("a"), world.dir.join("there/a")).unwrap();
    world.check("import -d DIR/there tank", 0, "");
    world.check("set comment=changed tank", 0, "");
    world.check("export tank", 0, "");
    fs::rename(world.dir.join("away"), world.dir.join("b")).unwrap();
    fs::rename(world.dir.join("there/a"), world.dir.join("a")).unwrap();
    import(&world);
    check_stale(&world);
    resilver(&world);
}
