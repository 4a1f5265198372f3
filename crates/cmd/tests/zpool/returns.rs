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
fn a_new_device_takes_the_place_of_a_lost_one() {
    let world = World::new("autoreplace", &[]);
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b", "s"]);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b spare DIR/s", 0, "");
    world.check("set autoreplace=on tank", 0, "");
    world.check("get -H -o value autoreplace tank", 0, "on\n");
    let there = world.dir.join("b");
    let guid = world.zpool("get -H -o value guid tank DIR/b").stdout;
    fs::remove_file(&there).unwrap();
    world.check("reopen -n tank", 0, "");
    let spared = "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a ONLINE\nspare-1 DEGRADED\nDIR/b UNAVAIL\nDIR/s ONLINE\n\
                  spares\nDIR/s INUSE\n";
    world.becomes("tank", spared);
    // what has something on it is not taken
    fs::write(&there, [&[0; 1080][..], &[0x53, 0xef], &[0; 126 << 20]].concat()).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(7));
    assert_eq!(world.tree("tank"), spared);
    // over an import, too
    world.check("export tank", 0, "");
    world.check("import -d DIR tank", 0, "");
    fs::remove_file(&there).unwrap();
    fs::File::create(&there).unwrap().set_len(128 << 20).unwrap();
    let healthy = "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\nspares\nDIR/s AVAIL\n";
    world.becomes("tank", healthy);
    assert_ne!(world.zpool("get -H -o value guid tank DIR/b").stdout, guid, "it is another one");
    let history = world.zpool("history -i tank").stdout;
    assert!(String::from_utf8_lossy(&history).contains("vdev attach"), "{}", String::from_utf8_lossy(&history));
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
