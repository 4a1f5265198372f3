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
