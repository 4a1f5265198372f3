//! One more device for a raidz.

use std::fs;
use std::path::Path;

use super::World;
use super::suspended::{noise, wait_for, write};

impl World {
    /// The lines of `zpool status` about an expansion.
    fn expand_line(&self, pool: &str) -> String {
        let status = self.text(&format!("status {pool}"));
        status.lines().skip_while(|line| !line.starts_with("expand:")).take(3).collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn a_raidz_is_given_one_more_device() {
    let world = World::new("expansion", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED expansion: nothing can be mounted here");
        return;
    }
    world.disks(&["a", "b", "c", "d", "e", "f", "g"]);
    let create =
        "create -O compression=off -O recordsize=32k -R DIR/mnt wide raidz DIR/a DIR/b DIR/c mirror DIR/e DIR/f";
    world.check(&create.replace("create", "create -f"), 0, "");
    let without = "raidz_expansion feature must be enabled in order to attach a device to raidz";
    world.check("attach wide raidz1-0 DIR/d", 1, &format!("cannot attach DIR/d to raidz1-0: {without}\n"));
    world.check("set feature@raidz_expansion=enabled wide", 0, "");
    let only = "can only attach to mirrors and top-level disks";
    world.check("attach wide DIR/a DIR/d", 1, &format!("cannot attach DIR/d to DIR/a: {only}\n"));
    let file = world.dir.join("mnt/wide/file");
    let bytes = noise(60 << 20, 1);
    write(&file, &bytes).unwrap();
    world.text("sync wide");
    let before = world.text("list -Hvpo name,size wide");
    // it stops in the middle, is killed, and goes on where it was
    world.tune("raidz_expand_max_reflow_bytes", 4 << 20);
    world.check("attach wide raidz1-0 DIR/d", 0, "");
    wait_for("some of it to be moved", || world.expand_line("wide").contains("M / "));
    let line = world.expand_line("wide");
    assert!(line.starts_with("expand: expansion of raidz1-0 in progress since "), "{line}");
    let busy = "cannot attach DIR/g to raidz1-0: raidz expansion in progress\n";
    world.check("attach wide raidz1-0 DIR/g", 1, busy);
    world.check("checkpoint wide", 1, "cannot checkpoint 'wide': raidz expansion in progress\n");
    let later = noise(3 << 20, 2);
    write(&world.dir.join("mnt/wide/later"), &later).unwrap();
    world.kill("wide");
    world.check("import -d DIR -R DIR/mnt wide", 0, "");
    assert!(world.expand_line("wide").starts_with("expand: expansion of raidz1-0 in progress since "));
    world.tune("raidz_expand_max_reflow_bytes", 0);
    world.check("wait -t raidz_expand wide", 0, "");
    let line = world.expand_line("wide");
    assert!(line.starts_with("expand: expanded raidz1-0 copied "), "{line}");
    world.check("wait -t scrub wide", 0, "");
    assert!(world.scan("wide").contains("repaired 0B") && world.scan("wide").contains("with 0 errors"));
    let after = world.text("list -Hvpo name,size wide");
    let size = |text: &str| -> u64 {
        let line = text.lines().find(|line| line.contains("raidz1-0")).unwrap().to_owned();
        line.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
    };
    assert!(size(&after) >= size(&before) + (48 << 20), "{before}{after}");
    world.check("get -H -o value feature@raidz_expansion wide", 0, "active\n");
    let history = world.text("history -i wide");
    for line in [
        "raidz vdev expansion started wide vdev 0 new width 4",
        "raidz vdev expansion completed wide vdev 0 new width 4",
    ] {
        assert!(history.contains(line), "{history}");
    }
    // whatever is lost, all is there
    for lost in ["a", "d"] {
        world.check(&format!("offline wide DIR/{lost}"), 0, "");
        assert!(fs::read(&file).unwrap() == bytes);
        assert!(fs::read(world.dir.join("mnt/wide/later")).unwrap() == later);
        world.check(&format!("online wide DIR/{lost}"), 0, "");
        world.check("wait -t resilver wide", 0, "");
    }
    world.check("export wide", 0, "");
    world.check("import -d DIR -R DIR/mnt wide", 0, "");
    assert!(fs::read(&file).unwrap() == bytes);
    assert!(world.text("status wide").contains("DIR/d"));
    world.check("destroy wide", 0, "");
}
