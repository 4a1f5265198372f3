//! Devices that are pulled, and come back.

use std::fs;

use super::World;

#[test]
fn what_is_pulled_and_comes_back_is_seen() {
    let world = World::new("returns", &[]);
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b", "s"]);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b spare DIR/s", 0, "");
    let healthy = "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\nspares\nDIR/s AVAIL\n";
    world.check("reopen tank", 0, "");
    assert_eq!(world.tree("tank"), healthy);
    world.check("reopen -x tank", 2, "invalid option 'x'\nusage:\n\treopen [-n] <pool>\n");
    let [there, away] = ["b", "b.away"].map(|name| world.dir.join(name));
    fs::rename(&there, &away).unwrap();
    world.check("reopen -n tank", 0, "");
    let spared = "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a ONLINE\nspare-1 DEGRADED\nDIR/b UNAVAIL\nDIR/s ONLINE\n\
                  spares\nDIR/s INUSE\n";
    world.becomes("tank", spared);
    world.check("wait -t replace tank", 0, "");
    world.check("set comment=meanwhile tank", 0, "");
    // a device that is empty is not it
    fs::File::create(&there).unwrap().set_len(128 << 20).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(7));
    assert_eq!(world.tree("tank"), spared);
    // nobody says that it is back
    fs::rename(&away, &there).unwrap();
    world.becomes("tank", healthy);
    world.check("resilver tank", 0, "");
    world.check("resilver nope", 1, "cannot open 'nope': no such pool\n");
    world.check("resilver", 2, "missing pool name argument\nusage:\n\tresilver <pool> ...\n");
    world.check("scrub -w tank", 0, "");
    assert!(world.scan("tank").contains("repaired 0B"), "{}", world.scan("tank"));
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
}

#[test]
fn a_resilver_needs_its_feature_to_be_restarted() {
    let world = World::new("restart", &[]);
    world.disks(&["a"]);
    world.check("create -d -O mountpoint=none tank DIR/a", 0, "");
    let refused = "cannot restart resilver of tank: this action requires the resilver_defer feature\n";
    world.check("resilver tank", 1, refused);
}
