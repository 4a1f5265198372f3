//! How many errors are too many, as properties of vdevs; what comes of them.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::World;
use super::suspended::{noise, wait_for, write};

#[test]
fn devices_are_judged_by_their_own_rates() {
    let world = World::new("rates", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED rates: nothing can be mounted here");
        return;
    }
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b", "s"]);
    world.check("create -O compression=off -O recordsize=4K -R DIR/mnt tank mirror DIR/a DIR/b spare DIR/s", 0, "");
    world.check(
        "get -H -o value,source checksum_n,io_t,slow_io_n tank DIR/a",
        0,
        "-\tdefault\n-\tdefault\n-\tdefault\n",
    );
    world.check("set checksum_n=500 tank mirror-0", 0, "");
    world.check("set checksum_n=100000 tank DIR/b", 0, "");
    world.check("set org.me:note=old tank DIR/b", 0, "");
    let refused = "cannot set property for 'tank': bad numeric value 'many'\n";
    world.check("set io_n=many tank DIR/b", 1, refused);
    world.check("set io_n=1 tank DIR/x", 1, "cannot set property for 'tank': no such device in pool\n");
    world.check("set state=online tank DIR/a", 1, "cannot set property for 'tank': 'state' is readonly\n");
    world.check("set io_n=1 tank DIR/s", 1, "cannot set property for 'tank': no such device in pool\n");
    let file = world.dir.join("mnt/tank/file");
    let bytes = noise(8 << 20, 1);
    write(&file, &bytes).unwrap();
    world.check("export tank", 0, "");
    let disk = std::fs::OpenOptions::new().write(true).open(world.dir.join("b")).unwrap();
    let sum = |world: &World| world.text("get -Hp -o value checksum_errors tank DIR/b").trim().parse::<u64>().unwrap();
    // most of what is behind the labels
    let spoil = || disk.write_all_at(&noise(100 << 20, 2), 8 << 20).unwrap();
    spoil();
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    let shown = "DIR/b\tchecksum_n\t100000\tlocal\nDIR/b\torg.me:note\told\tlocal\nDIR/b\tparent\tmirror-0\t-\n";
    world.check("get -H checksum_n,org.me:note,parent tank DIR/b", 0, shown);
    world.check("scrub -w tank", 0, "");
    assert!((1000..100_000).contains(&sum(&world)), "{}", sum(&world));
    world.check("sync tank", 0, "");
    let healthy = "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\nspares\nDIR/s AVAIL\n";
    assert_eq!(world.tree("tank"), healthy);
    // what is set for the mirror counts when nothing is set for its side
    world.check("set checksum_n=none tank DIR/b", 0, "");
    let spared = "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a ONLINE\nspare-1 DEGRADED\nDIR/b DEGRADED\nDIR/s ONLINE\n\
                  spares\nDIR/s INUSE\n";
    world.becomes("tank", spared);
    assert!(std::fs::read(&file).unwrap() == bytes);
    world.check("wait -t replace tank", 0, "");
    world.check("clear tank", 0, "");
    world.becomes("tank", healthy);
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
}

/// `slow_io_events`: they are counted all the same.
#[test]
fn slow_requests_are_told_as_events_or_not() {
    let world = World::new("slowevents", &[]);
    world.tune("zfs_txg_timeout", 1);
    world.tune("zio_slow_io_ms", 5);
    world.disks(&["a"]);
    world.check("create -O mountpoint=none tank DIR/a", 0, "");
    let slow = |world: &World| world.text("get -Hp -o value slow_ios tank DIR/a").trim().parse::<u64>().unwrap();
    world.check("get -H -o value,source slow_io_events tank DIR/a", 0, "on\tdefault\n");
    world.check("set slow_io_events=off tank DIR/a", 0, "");
    world.check("get -H -o value,source slow_io_events tank DIR/a", 0, "off\tlocal\n");
    // a busy machine may have been slow before
    world.text("events -c");
    assert!(world.cenote("zinject -d DIR/a -D 20:1 -T read tank").status.success());
    world.check("scrub -w tank", 0, "");
    world.check("sync -f tank", 0, "");
    assert!(slow(&world) > 0);
    assert!(!world.text("events -H tank").contains("ereport.fs.zfs.delay"));
    world.check("set slow_io_events=on tank DIR/a", 0, "");
    world.check("scrub -w tank", 0, "");
    wait_for("events", || world.text("events -H tank").contains("ereport.fs.zfs.delay"));
    world.check("export tank", 0, "");
}

/// A disk that is much slower than the others of its raidz is not read for a while.
#[test]
fn slow_disks_sit_out() {
    let world = World::new("sitout", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED sitout: nothing can be mounted here");
        return;
    }
    for (name, value) in [("zfs_txg_timeout", 1), ("vdev_raidz_outlier_check_interval_ms", 20)] {
        world.tune(name, value);
    }
    world.disks(&["a", "b", "c", "d"]);
    world.check(
        "create -O compression=off -O primarycache=metadata -R DIR/mnt tank raidz DIR/a DIR/b DIR/c DIR/d",
        0,
        "",
    );
    let file = world.dir.join("mnt/tank/file");
    let bytes = noise(16 << 20, 1);
    write(&file, &bytes).unwrap();
    world.check("get -H -o value sit_out,autosit tank DIR/d", 0, "off\n-\n");
    world.check("get -H -o value sit_out,autosit tank raidz1-0", 0, "-\noff\n");
    let refused = "cannot set property for 'tank': operation not supported on this type of vdev\n";
    world.check("set sit_out=on tank raidz1-0", 1, refused);
    world.check("set autosit=on tank DIR/a", 1, refused);
    world.check(
        "set autosit=maybe tank raidz1-0",
        1,
        "cannot set property for 'tank': 'autosit' must be one of 'on | off'\n",
    );
    world.check("set sit_out=on tank DIR/a", 0, "");
    world.check("get -H -o value sit_out tank DIR/a", 0, "on\n");
    let many = "cannot set property for 'tank': too many disks already sitting out\n";
    world.check("set sit_out=on tank DIR/b", 1, many);
    world.check("set sit_out=off tank DIR/a", 0, "");
    world.check("set autosit=on tank raidz1-0", 0, "");
    world.check("export tank", 0, "");
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    world.check("get -H -o value,source autosit tank raidz1-0", 0, "on\tlocal\n");
    assert_eq!(world.told("zinject -d DIR/d -D 60:1 -T read tank").1, 0);
    wait_for("it to sit out", || {
        assert!(std::fs::read(&file).unwrap() == bytes);
        world.text("get -H -o value sit_out tank DIR/d") == "on\n"
    });
    assert!(world.text("events tank").contains("ereport.fs.zfs.sitout"));
    assert!(std::fs::read(&file).unwrap() == bytes);
    world.check("get -H -o value sit_out tank DIR/a DIR/b DIR/c", 0, "off\noff\noff\n");
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
}
