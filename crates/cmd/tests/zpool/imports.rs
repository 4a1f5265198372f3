//! Devices that an import finds twice, or by several names.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::World;

impl World {
    /// Whether the process of a pool has a file in this folder open.
    fn has_open(&self, pool: &str, file: &str) -> bool {
        let files = Path::new("/proc").join(self.process_of(pool)).join("fd").read_dir().unwrap();
        files.flatten().any(|fd| fd.path().read_link().is_ok_and(|link| link == self.dir.join(file)))
    }
}

#[test]
fn of_a_disk_and_its_copies_one_is_used() {
    let world = World::new("copied", &[]);
    world.disks(&["a", "b"]);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    world.check("export tank", 0, "");
    fs::copy(world.dir.join("a"), world.dir.join("0")).unwrap();
    let copy = fs::read(world.dir.join("0")).unwrap();
    let whole = "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\n";
    // its label is as new, but tells of another path
    world.check("import -d DIR tank", 0, "");
    assert_eq!(world.tree("tank"), whole);
    assert!(world.has_open("tank", "a") && !world.has_open("tank", "0"));
    // the label stays as it is while groups are written
    world.check("sync -f tank", 0, "");
    fs::copy(world.dir.join("a"), world.dir.join("1")).unwrap();
    (0..5).for_each(|_| world.check("sync -f tank", 0, ""));
    world.kill("tank");
    fs::rename(world.dir.join("a"), world.dir.join("z")).unwrap();
    fs::rename(world.dir.join("1"), world.dir.join("a")).unwrap();
    let older = fs::read(world.dir.join("a")).unwrap();
    world.check("import -d DIR tank", 0, "");
    assert_eq!(world.tree("tank"), whole.replace("DIR/a", "DIR/z"));
    assert!(world.has_open("tank", "z") && !world.has_open("tank", "a") && !world.has_open("tank", "0"));
    world.check("set comment=changed tank", 0, "");
    world.check("export tank", 0, "");
    assert!(fs::read(world.dir.join("0")).unwrap() == copy, "nothing was written to the copy");
    assert!(fs::read(world.dir.join("a")).unwrap() == older, "nothing was written to the older copy");
}

#[test]
fn a_device_with_several_names_is_found_once() {
    let world = World::new("named", &[]);
    world.disks(&["a", "b"]);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    world.check("export tank", 0, "");
    fs::create_dir(world.dir.join("by-id")).unwrap();
    symlink("../a", world.dir.join("by-id/one")).unwrap();
    fs::hard_link(world.dir.join("b"), world.dir.join("by-id/two")).unwrap();
    // by the names that the pool knows, if it is among them
    world.check("import -d DIR/by-id -d DIR tank", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\n");
    world.check("export tank", 0, "");
    world.check("import -d DIR/by-id tank", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nmirror-0 ONLINE\nDIR/by-id/one ONLINE\nDIR/by-id/two ONLINE\n");
    world.check("export tank", 0, "");
}
