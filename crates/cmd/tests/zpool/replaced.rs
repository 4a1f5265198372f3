//! Devices that were away, and devices that are replaced, as a user sees it.

use std::fs;
use std::path::Path;

use super::World;
use super::suspended::{noise, write};

#[test]
fn a_mirror_outlives_its_disks() {
    let world = World::new("replace", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED replace: nothing can be mounted here");
        return;
    }
    world.disks(&["a", "b", "c", "d"]);
    world.check("create -O compression=off -R DIR/mnt tank mirror DIR/a DIR/b", 0, "");
    let file = world.dir.join("mnt/tank/file");
    write(&file, &noise(4 << 20, 1)).unwrap();
    world.check("offline -t tank DIR/b", 0, "");
    let bytes = noise(3 << 20, 2);
    write(&file, &bytes).unwrap();
    world.check("online tank DIR/b", 0, "");
    world.check("wait -t resilver tank", 0, "");
    let scan = world.scan("tank");
    assert!(scan.starts_with("  scan: resilvered ") && scan.ends_with(" with 0 errors"), "{scan}");
    world.check("status -x tank", 0, "pool 'tank' is healthy\n");

    let usage =
        "missing <device> specification\nusage:\n\treplace [-fsw] [-o property=value] <pool> <device> [new-device]\n";
    world.check("replace tank", 2, usage);
    let none = "cannot replace DIR/x with DIR/c: no such device in pool\n";
    world.check("replace tank DIR/x DIR/c", 1, none);
    world.check("replace -w tank DIR/a DIR/c", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nmirror-0 ONLINE\nDIR/c ONLINE\nDIR/b ONLINE\n");
    // what was replaced is nobody's, and can be used again
    world.check("attach -w tank DIR/b DIR/a", 0, "");
    world.check("detach tank DIR/b", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nmirror-0 ONLINE\nDIR/c ONLINE\nDIR/a ONLINE\n");
    // another disk is where one was
    world.check("offline tank DIR/c", 0, "");
    fs::remove_file(world.dir.join("c")).unwrap();
    world.disks(&["c"]);
    world.check("replace -w tank DIR/c", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nmirror-0 ONLINE\nDIR/c ONLINE\nDIR/a ONLINE\n");
    world.check("scrub -w tank", 0, "");
    let scan = world.scan("tank");
    assert!(scan.starts_with("  scan: scrub repaired 0B in ") && scan.ends_with(" with 0 errors"), "{scan}");
    let history = world.text("history -i tank");
    for event in ["vdev attach", "replace vdev=DIR/c for vdev=DIR/a", "attach vdev=DIR/a to vdev=DIR/b", "vdev detach"]
    {
        assert!(history.contains(event), "{event}: {history}");
    }
    world.check("export tank", 0, "");
    fs::remove_file(world.dir.join("a")).unwrap();
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    assert!(fs::read(&file).unwrap() == bytes);
    world.check("export tank", 0, "");
}

/// What wrote over it was another program; the pool has it open all the while.
#[test]
fn an_overwritten_disk_takes_its_own_place() {
    let world = World::new("overwritten", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED overwritten: nothing can be mounted here");
        return;
    }
    world.disks(&["a", "b", "c", "single"]);
    let bytes_of_disk = fs::metadata(world.dir.join("a")).unwrap().len() as usize;
    world.check("create -O compression=off -R DIR/mnt tank raidz DIR/a DIR/b DIR/c", 0, "");
    let (file, bytes) = (world.dir.join("mnt/tank/file"), noise(5 << 20, 3));
    write(&file, &bytes).unwrap();
    let its_own = "invalid vdev specification\nthe following errors must be manually repaired:\n\
                   DIR/b is part of active pool 'tank'\n";
    world.check("replace -f tank DIR/b", 1, its_own);
    let overwrite = |disk: &str| fs::write(world.dir.join(disk), vec![0; bytes_of_disk]).unwrap();
    overwrite("b");
    world.check("replace -w tank DIR/b DIR/b", 0, "");
    overwrite("c");
    world.check("offline tank DIR/c", 0, "");
    world.check("replace -w tank DIR/c", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nraidz1-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\nDIR/c ONLINE\n");
    world.check("scrub -w tank", 0, "");
    let scan = world.scan("tank");
    assert!(scan.starts_with("  scan: scrub repaired 0B in ") && scan.ends_with(" with 0 errors"), "{scan}");
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
    fs::remove_file(world.dir.join("a")).unwrap();
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    assert!(fs::read(&file).unwrap() == bytes);
    world.check("export tank", 0, "");

    world.check("create -O mountpoint=none alone DIR/single", 0, "");
    overwrite("single");
    world.check("replace alone DIR/single", 1, "cannot replace DIR/single with DIR/single: no valid replicas\n");
    world.check("destroy alone", 0, "");
}
