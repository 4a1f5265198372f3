//! Devices that become larger, and pools that grow with them.

use std::fs::{self, OpenOptions};
use std::path::Path;

use super::World;
use super::suspended::{noise, wait_for, write};

impl World {
    /// Makes devices larger.
    fn enlarge(&self, names: &[&str], mib: u64) {
        for name in names {
            OpenOptions::new().write(true).open(self.dir.join(name)).unwrap().set_len(mib << 20).unwrap();
        }
    }

    /// Size of a pool, and by how much it could grow.
    fn sizes(&self, pool: &str) -> String {
        self.text(&format!("list -Ho size,expandsize {pool}")).trim().replace('\t', " ")
    }

    fn grows_to(&self, pool: &str, sizes: &str) {
        wait_for(&format!("{pool} to be {sizes}, not {}", self.sizes(pool)), || self.sizes(pool) == sizes);
    }
}

#[test]
fn a_pool_grows_when_it_is_asked() {
    let world = World::new("growth", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED growth: nothing can be mounted here");
        return;
    }
    world.disks(&["a", "b", "c"]);
    world.check("create -O compression=off -R DIR/mnt tank mirror DIR/a DIR/b cache DIR/c", 0, "");
    let files = ["one", "two"].map(|name| world.dir.join("mnt/tank").join(name));
    let bytes = [noise(40 << 20, 1), noise(100 << 20, 2)];
    write(&files[0], &bytes[0]).unwrap();
    assert_eq!(world.sizes("tank"), "112M -");
    world.check("online -e tank DIR/a DIR/b", 0, "");
    assert_eq!(world.sizes("tank"), "112M -");
    world.enlarge(&["a"], 500);
    assert_eq!(world.sizes("tank"), "112M -", "the other side has no room for more");
    world.enlarge(&["b"], 300);
    assert_eq!(world.sizes("tank"), "112M 160M");
    world.check("online -e tank DIR/a", 0, "");
    world.check("online tank DIR/b", 0, "");
    assert_eq!(world.sizes("tank"), "112M 160M", "nobody has asked for the other side");
    world.check("online -e tank DIR/c", 1, "cannot expand DIR/c: cannot expand cache devices\n");
    world.check("online -e tank DIR/x", 1, "cannot expand DIR/x: no such device in pool\n");
    world.check("online -e tank DIR/b", 0, "");
    assert_eq!(world.sizes("tank"), "288M -");
    // more than there was room for before
    write(&files[1], &bytes[1]).unwrap();
    let history = world.text("history -i tank");
    assert!(history.contains("vdev online pool 'tank' size: 301989888(+184549376)"), "{history}");
    world.kill("tank");
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    assert_eq!(world.sizes("tank"), "288M -");
    assert!(files.iter().zip(&bytes).all(|(file, bytes)| fs::read(file).unwrap() == *bytes));
    world.check("scrub -w tank", 0, "");
    assert!(world.scan("tank").contains("repaired 0B"), "{}", world.scan("tank"));
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
    // an import alone is no reason to grow
    world.enlarge(&["b"], 400);
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    assert_eq!(world.sizes("tank"), "288M 96M");
    world.check("online -e tank DIR/b", 0, "");
    assert_eq!(world.sizes("tank"), "384M -");
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
    let labels = String::from_utf8(world.cenote("zdb -l DIR/b").stdout).unwrap();
    assert!(labels.contains("labels = 0 1 2 3"), "{labels}");
}

#[test]
fn a_pool_grows_with_its_devices_by_itself() {
    let world = World::new("autoexpand", &[]);
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b", "c", "l"]);
    world.check("create -o autoexpand=on -O mountpoint=none wide raidz DIR/a DIR/b DIR/c log DIR/l", 0, "");
    assert_eq!(world.sizes("wide"), "352M -");
    world.enlarge(&["a", "b"], 256);
    std::thread::sleep(std::time::Duration::from_secs(7));
    assert_eq!(world.sizes("wide"), "352M -");
    world.enlarge(&["c", "l"], 256);
    world.grows_to("wide", "736M -");
    let list = world.text("list -Hvo name,size wide");
    assert!(list.lines().any(|line| line.contains("DIR/l") && line.contains("240M")), "{list}");
    let events = world.text("events -H");
    assert!(events.matches("sysevent.fs.zfs.vdev_autoexpand").count() == 4, "{events}");
    world.check("get -H -o value autoexpand wide", 0, "on\n");
    world.check("export wide", 0, "");
    world.judge_by_zdb("wide");
    // as the devices of the pool are larger when it is imported
    world.enlarge(&["a", "b", "c"], 512);
    world.check("import -d DIR wide", 0, "");
    world.grows_to("wide", "1.47G -");
    world.check("destroy wide", 0, "");
}

#[test]
fn larger_devices_take_the_place_of_small_ones() {
    let world = World::new("larger", &[]);
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b", "c", "d"]);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    world.enlarge(&["c", "d"], 300);
    world.check("replace -w tank DIR/a DIR/c", 0, "");
    world.check("replace -w tank DIR/b DIR/d", 0, "");
    assert_eq!(world.sizes("tank"), "112M 160M", "it is for the user to say");
    world.check("online -e tank DIR/d", 0, "");
    assert_eq!(world.sizes("tank"), "288M -");
    world.check("set autoexpand=on tank", 0, "");
    world.enlarge(&["a", "b"], 400);
    for (old, new) in [("c", "a"), ("d", "b")] {
        assert_eq!(world.sizes("tank"), "288M -");
        world.check(&format!("replace -w tank DIR/{old} DIR/{new}"), 0, "");
    }
    world.grows_to("tank", "384M -");
    assert_eq!(world.tree("tank"), "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\n");
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
}
