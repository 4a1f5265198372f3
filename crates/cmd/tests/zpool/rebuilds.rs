//! Sequential resilvers, and those that wait for others, as a user sees them.

use std::fs;
use std::path::Path;

use super::World;
use super::suspended::{noise, wait_for, write};

impl World {
    /// A pool that can be mounted, with a file of so many MiB.
    fn with_file(&self, shape: &str, mib: usize) -> Option<Vec<u8>> {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED rebuild: nothing can be mounted here");
            return None;
        }
        self.disks(&["a", "b", "c", "d"]);
        self.check(&format!("create -O compression=off -R DIR/mnt tank {shape}"), 0, "");
        let bytes = noise(mib << 20, 3);
        write(&self.dir.join("mnt/tank/file"), &bytes).unwrap();
        Some(bytes)
    }

    fn is_scrubbed(&self) {
        self.check("wait -t scrub tank", 0, "");
        let status = self.text("status tank");
        assert!(status.contains("  scan: scrub repaired 0B in "), "{status}");
        assert!(status.contains("errors: No known data errors"), "{status}");
        self.check("status -x tank", 0, "pool 'tank' is healthy\n");
    }

    /// The file is on these disks alone.
    fn is_on(&self, disks: &[&str], bytes: &[u8]) {
        self.check("export tank", 0, "");
        self.judge_by_zdb("tank");
        let others = ["a", "b", "c", "d"].into_iter().filter(|name| !disks.contains(name));
        others.for_each(|name| drop(fs::remove_file(self.dir.join(name))));
        self.check("import -d DIR -R DIR/mnt tank", 0, "");
        assert!(fs::read(self.dir.join("mnt/tank/file")).unwrap() == bytes);
        self.check("scrub -w tank", 0, "");
        assert!(self.scan("tank").starts_with("  scan: scrub repaired 0B in "), "{}", self.scan("tank"));
        self.check("export tank", 0, "");
    }
}

#[test]
fn a_disk_becomes_a_mirror_sequentially() {
    let world = World::new("rebuild", &[]);
    let Some(bytes) = world.with_file("DIR/a", 20) else { return };
    world.check("attach -s -w tank DIR/a DIR/b", 0, "");
    let lines = world.text("status tank");
    let scan = lines.lines().find(|line| line.starts_with("  scan: resilvered (mirror-0) ")).expect("it is told");
    assert!(scan.contains(" with 0 errors on "), "{lines}");
    world.is_scrubbed();
    let history = world.text("history -i tank");
    for event in ["rebuild vdev_id=0 vdev_guid=", " started", " complete"] {
        assert!(history.contains(event), "{event}: {history}");
    }
    let events = world.text("events -v");
    assert_eq!(events.matches("resilver_type = \"sequential\"").count(), 2, "{events}");
    world.check("get -H -o value feature@device_rebuild tank", 0, "enabled\n");
    world.check("detach tank DIR/a", 0, "");
    world.is_on(&["b"], &bytes);
}

#[test]
fn a_sequential_resilver_goes_on_after_all() {
    let world = World::new("rebuildcut", &[]);
    world.tune("zfs_txg_timeout", 1);
    let Some(bytes) = world.with_file("mirror DIR/a DIR/b", 40) else { return };
    // it begins, and stands still
    world.tune("zfs_scan_suspend_progress", 1);
    world.check("replace -s tank DIR/a DIR/c", 0, "");
    let running = "tank ONLINE\nmirror-0 ONLINE\nreplacing-0 ONLINE\nDIR/a ONLINE\nDIR/c ONLINE\nDIR/b ONLINE\n";
    assert_eq!(world.tree("tank"), running);
    let status = world.text("status tank");
    assert!(status.contains("  scan: resilver (mirror-0) in progress since "), "{status}");
    world.check("get -H -o value feature@device_rebuild tank", 0, "active\n");
    world.check("scrub tank", 1, "cannot scrub tank: currently resilvering\n");
    let busy = "cannot attach DIR/d to DIR/b: currently sequentially resilvering\n";
    world.check("attach tank DIR/b DIR/d", 1, busy);
    world.kill("tank");
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    assert_eq!(world.tree("tank"), running);
    // what is written meanwhile is on all sides
    let more = noise(5 << 20, 4);
    write(&world.dir.join("mnt/tank/more"), &more).unwrap();
    world.check("export tank", 0, "");
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    // another one begins, and the first begins anew
    world.check("attach -s tank DIR/b DIR/d", 0, "");
    world.tune("zfs_scan_suspend_progress", 0);
    world.check("wait -t resilver,replace tank", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nmirror-0 ONLINE\nDIR/c ONLINE\nDIR/b ONLINE\nDIR/d ONLINE\n");
    world.is_scrubbed();
    assert!(world.text("history -i tank").contains(" reset\n"));
    world.check("detach tank DIR/b", 0, "");
    world.check("detach tank DIR/d", 0, "");
    assert!(fs::read(world.dir.join("mnt/tank/more")).unwrap() == more);
    world.is_on(&["c"], &bytes);
}

#[test]
fn a_sequential_resilver_is_given_up() {
    let world = World::new("rebuildgone", &[]);
    world.tune("zfs_txg_timeout", 1);
    let Some(bytes) = world.with_file("mirror DIR/a DIR/b", 4) else { return };
    world.tune("zfs_scan_suspend_progress", 1);
    world.check("attach -s tank DIR/a DIR/c", 0, "");
    world.check("detach tank DIR/c", 0, "");
    // also while scans are held
    wait_for("the end of it", || world.scan("tank").starts_with("  scan: resilver (mirror-0) canceled"));
    world.tune("zfs_scan_suspend_progress", 0);
    world.check("get -H -o value feature@device_rebuild tank", 0, "enabled\n");
    world.check("status -x tank", 0, "pool 'tank' is healthy\n");
    // a side that lacks something is no source: the others are read
    world.check("offline tank DIR/b", 0, "");
    write(&world.dir.join("mnt/tank/other"), &noise(3 << 20, 8)).unwrap();
    world.tune("zfs_scan_suspend_progress", 1);
    world.check("attach -s tank DIR/a DIR/c", 0, "");
    world.check("online tank DIR/b", 0, "");
    world.tune("zfs_scan_suspend_progress", 0);
    world.check("wait -t resilver tank", 0, "");
    wait_for("all sides", || world.text("status -x tank") == "pool 'tank' is healthy\n");
    world.check("scrub -w tank", 0, "");
    assert!(world.scan("tank").starts_with("  scan: scrub repaired 0B in "), "{}", world.scan("tank"));
    world.is_on(&["c"], &bytes);
}

/// The new side is at fault, and no data is lost; it gets everything when it can.
#[test]
fn a_new_side_that_takes_nothing() {
    let world = World::new("rebuildfails", &[]);
    world.tune("zfs_txg_timeout", 1);
    // it is not faulted
    world.tune("cenote_zed", 0);
    let Some(bytes) = world.with_file("DIR/a", 8) else { return };
    world.tune("zfs_scan_suspend_progress", 1);
    world.check("attach -s tank DIR/a DIR/b", 0, "");
    let (_, code) = world.told("zinject -q -d DIR/b -e io -T write tank");
    assert_eq!(code, 0);
    world.tune("zfs_scan_suspend_progress", 0);
    wait_for("the end of it", || world.text("history -i tank").contains(" complete\n"));
    wait_for("no more is tried", || world.text("status tank").contains("  scan: resilvered "));
    let status: serde_json::Value = serde_json::from_str(&world.text("status -j --json-int tank")).unwrap();
    let rebuild = &status["pools"]["tank"]["scan_stats"]["rebuild_stats"]["mirror-0"];
    assert_eq!((&rebuild["state"], &rebuild["errors"]), (&"COMPLETE".into(), &0.into()), "{status:#}");
    assert_eq!(world.told("zinject -c all").1, 0);
    // writes that have failed already count when their group ends
    world.check("sync tank", 0, "");
    world.check("clear tank", 0, "");
    wait_for("all sides", || world.text("status -x tank") == "pool 'tank' is healthy\n");
    world.check("scrub -w tank", 0, "");
    assert!(world.scan("tank").starts_with("  scan: scrub repaired 0B in "), "{}", world.scan("tank"));
    world.check("detach tank DIR/a", 0, "");
    world.is_on(&["b"], &bytes);
}

#[test]
fn mirrors_with_a_side_away_are_removed() {
    let world = World::new("removeaway", &[]);
    let Some(bytes) = world.with_file("mirror DIR/a DIR/b", 8) else { return };
    for disk in ["c", "d"] {
        fs::File::options().write(true).open(world.dir.join(disk)).unwrap().set_len(1 << 30).unwrap();
    }
    world.check("add tank mirror DIR/c DIR/d", 0, "");
    world.check("offline -f tank DIR/a", 0, "");
    write(&world.dir.join("mnt/tank/other"), &noise(3 << 20, 8)).unwrap();
    world.check("sync tank", 0, "");
    world.check("remove -w tank mirror-0", 0, "");
    assert!(world.text("list -v -H tank").contains("\tindirect-0\t-\t-\t-\t-\t-\t-\t-\t-\tONLINE"));
    assert!(fs::read(world.dir.join("mnt/tank/file")).unwrap() == bytes);
    assert!(fs::read(world.dir.join("mnt/tank/other")).unwrap() == noise(3 << 20, 8));
    world.check("scrub -w tank", 0, "");
    world.is_scrubbed();
    world.check("export tank", 0, "");
}

#[test]
fn where_nothing_is_reconstructed_sequentially() {
    let world = World::new("norebuild", &[]);
    world.disks(&["a", "b", "c", "d", "e"]);
    world.check("create -O mountpoint=none wide raidz DIR/a DIR/b DIR/c", 0, "");
    let why = "only mirror and dRAID vdevs support sequential reconstruction";
    world.check("replace -s wide DIR/a DIR/d", 1, &format!("cannot replace DIR/a with DIR/d: {why}\n"));
    world.check("destroy wide", 0, "");
    world.check("create -d -O mountpoint=none old DIR/a", 0, "");
    let why = "device_rebuild feature must be enabled in order to use sequential reconstruction";
    world.check("attach -s old DIR/a DIR/e", 1, &format!("cannot attach DIR/e to DIR/a: {why}\n"));
    assert_eq!(world.tree("old"), "old ONLINE\nDIR/a ONLINE\n");
}

#[test]
fn who_comes_late_waits_for_the_next_resilver() {
    let world = World::new("deferred", &[]);
    world.tune("zfs_txg_timeout", 1);
    // where it is otherwise, one that has just begun begins anew
    world.tune("zfs_resilver_defer_percent", 0);
    let Some(bytes) = world.with_file("mirror DIR/a DIR/b", 8) else { return };
    world.tune("zfs_scan_suspend_progress", 1);
    world.check("attach tank DIR/a DIR/c", 0, "");
    wait_for("a resilver", || world.text("status tank").contains("  scan: resilver in progress since "));
    world.check("attach tank DIR/a DIR/d", 0, "");
    wait_for("its turn", || world.text("get -H -o value feature@resilver_defer tank") == "active\n");
    // the first goes on, and another follows
    world.tune("zfs_scan_suspend_progress", 0);
    wait_for("all sides", || world.text("status -x tank") == "pool 'tank' is healthy\n");
    // it is told with the group
    wait_for("the feature is not used", || world.text("get -H -o value feature@resilver_defer tank") == "enabled\n");
    let history = world.text("history -i tank");
    assert_eq!(history.matches("scan setup func=2").count(), 2, "{history}");
    assert_eq!(history.matches("starting deferred resilver").count(), 1, "{history}");
    world.check("scrub -w tank", 0, "");
    assert!(world.scan("tank").starts_with("  scan: scrub repaired 0B in "), "{}", world.scan("tank"));
    for side in ["a", "b", "c"] {
        world.check(&format!("detach tank DIR/{side}"), 0, "");
    }
    world.is_on(&["d"], &bytes);
}
