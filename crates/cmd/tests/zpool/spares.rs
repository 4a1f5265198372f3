//! Spares that step in by themselves, go home, stay for good, and are shared by pools.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::World;
use super::suspended::{noise, write};

impl World {
    /// Waits until the vdevs of a pool are so.
    pub(crate) fn becomes(&self, pool: &str, expect: &str) {
        let began = Instant::now();
        loop {
            let tree = self.tree(pool);
            if tree == expect {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{tree}\nis not\n{expect}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What zdb says of an exported pool in the folder; nothing if there is no zdb.
    pub(crate) fn judge_by_zdb(&self, pool: &str) {
        let zdb = Command::new("zdb").args(["-e", "-p"]).arg(&self.dir).args(["-bcc", pool]).output();
        let Ok(output) = zdb else { return };
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("No leaks") && !text.contains("checksum error"), "{text}");
    }
}

#[test]
fn a_spare_steps_in_and_goes_home() {
    let world = World::new("spares", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED spares: nothing can be mounted here");
        return;
    }
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b", "s", "t"]);
    world.check("create -O compression=off -R DIR/mnt tank mirror DIR/a DIR/b spare DIR/s", 0, "");
    let file = world.dir.join("mnt/tank/file");
    write(&file, &noise(4 << 20, 1)).unwrap();
    // offline is no fault
    world.check("offline tank DIR/a", 0, "");
    world.check("sync tank", 0, "");
    world.check("online tank DIR/a", 0, "");
    world.check("offline -f tank DIR/b", 0, "");
    let with_spare = "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a ONLINE\nspare-1 DEGRADED\nDIR/b FAULTED\nDIR/s ONLINE\n\
                      spares\nDIR/s INUSE\n";
    world.becomes("tank", with_spare);
    world.check("sync tank", 0, "");
    world.check("wait -t replace tank", 0, "");
    assert!(world.text("history -i tank").contains("spare in vdev=DIR/s for vdev=DIR/b"));
    world.check("remove tank DIR/s", 1, "cannot remove DIR/s: pool is busy\n");
    let bytes = noise(3 << 20, 2);
    write(&file, &bytes).unwrap();
    // over an export, too: zdb reads a pool with a spare in use
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    assert_eq!(world.tree("tank"), with_spare);
    world.check("clear tank DIR/b", 0, "");
    let home = "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\nspares\nDIR/s AVAIL\n";
    world.becomes("tank", home);

    check_taken_off(&world, with_spare, home);

    // a device that is gone is replaced by a new one: then the spare goes
    world.check("export tank", 0, "");
    fs::remove_file(world.dir.join("b")).unwrap();
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    let in_place = "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a ONLINE\nspare-1 DEGRADED\nDIR/b UNAVAIL\nDIR/s ONLINE\n\
                    spares\nDIR/s INUSE\n";
    world.becomes("tank", in_place);
    world.check("replace -w tank DIR/b DIR/t", 0, "");
    world.becomes("tank", "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/t ONLINE\nspares\nDIR/s AVAIL\n");

    // by hand, for a device that works; it stays for good when that is detached
    world.check("replace -w tank DIR/a DIR/s", 0, "");
    let refused = String::from_utf8(world.zpool("replace tank DIR/t DIR/s").stderr).unwrap();
    assert!(refused.ends_with("s is busy\n"), "{refused}");
    world.becomes(
        "tank",
        "tank ONLINE\nmirror-0 ONLINE\nspare-0 ONLINE\nDIR/a ONLINE\nDIR/s ONLINE\nDIR/t ONLINE\nspares\nDIR/s INUSE\n",
    );
    world.check("detach tank DIR/a", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nmirror-0 ONLINE\nDIR/s ONLINE\nDIR/t ONLINE\n");
    assert!(fs::read(&file).unwrap() == bytes);
    world.check("scrub -w tank", 0, "");
    assert!(world.scan("tank").contains("repaired 0B"), "{}", world.scan("tank"));
    world.check("export tank", 0, "");
    fs::remove_file(world.dir.join("a")).unwrap();
    world.judge_by_zdb("tank");
}

/// A spare that somebody takes off does not come again for that device, until this has been used again.
fn check_taken_off(world: &World, with_spare: &str, home: &str) {
    world.check("offline -f tank DIR/b", 0, "");
    world.becomes("tank", with_spare);
    world.check("wait -t resilver tank", 0, "");
    world.check("detach tank DIR/s", 0, "");
    let without = "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a ONLINE\nDIR/b FAULTED\nspares\nDIR/s AVAIL\n";
    for _ in 0..3 {
        world.check("sync -f tank", 0, "");
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(world.tree("tank"), without);
    }
    world.check("clear tank DIR/b", 0, "");
    world.becomes("tank", home);
    world.check("offline -f tank DIR/b", 0, "");
    world.becomes("tank", with_spare);
    world.check("clear tank DIR/b", 0, "");
    world.becomes("tank", home);
}

#[test]
fn a_spare_of_two_pools_helps_one() {
    let world = World::new("shared", &[]);
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b", "c", "d", "s"]);
    world.check("create -O mountpoint=none one mirror DIR/a DIR/b spare DIR/s", 0, "");
    world.check("create -O mountpoint=none two mirror DIR/c DIR/d spare DIR/s", 0, "");
    let whole = "one ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\nspares\nDIR/s ";
    assert_eq!(world.tree("one"), format!("{whole}AVAIL\n"));
    world.check("offline -f two DIR/c", 0, "");
    let two = "two DEGRADED\nmirror-0 DEGRADED\nspare-0 DEGRADED\nDIR/c FAULTED\nDIR/s ONLINE\nDIR/d ONLINE\n\
               spares\nDIR/s INUSE\n";
    world.becomes("two", two);
    // told without a group of this pool
    world.becomes("one", &format!("{whole}INUSE\n"));
    world.check("offline -f one DIR/a", 0, "");
    world.check("sync one", 0, "");
    std::thread::sleep(Duration::from_secs(3));
    let without = "one DEGRADED\nmirror-0 DEGRADED\nDIR/a FAULTED\nDIR/b ONLINE\nspares\nDIR/s INUSE\n";
    assert_eq!(world.tree("one"), without);
    assert_eq!(world.tree("two"), two);
    // by hand it goes home, and can be used by the other one
    world.check("offline two DIR/c", 0, "");
    world.check("wait -t replace two", 0, "");
    world.check("online two DIR/c", 0, "");
    world.becomes("two", "two ONLINE\nmirror-0 ONLINE\nDIR/c ONLINE\nDIR/d ONLINE\nspares\nDIR/s AVAIL\n");
    world.check("replace -w one DIR/a DIR/s", 0, "");
    world.check("detach one DIR/s", 0, "");
    world.becomes("one", "one DEGRADED\nmirror-0 DEGRADED\nDIR/a FAULTED\nDIR/b ONLINE\nspares\nDIR/s AVAIL\n");
}
