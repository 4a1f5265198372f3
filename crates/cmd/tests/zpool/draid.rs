//! Pools with dRAID vdevs: made, added to, and held together by their distributed spares.

use std::fs;
use std::path::Path;

use super::World;
use super::suspended::{noise, wait_for, write};

/// The vdevs of a pool, and how they are, with that word for each of the disks `a` to `g`.
fn tree(pool: [&str; 2], disks: [&str; 7], spares: [&str; 2]) -> String {
    let disk = |(name, state): (char, &str)| match state {
        "SPARED" => format!("spare-{} DEGRADED\nDIR/{name} FAULTED\ndraid2-0-0 ONLINE\n", name as u8 - b'a'),
        state => format!("DIR/{name} {state}\n"),
    };
    let disks: String = ('a'..='g').zip(disks).map(disk).collect();
    let [state, draid] = pool;
    let [first, second] = spares;
    format!("tank {state}\ndraid2:3d:7c:2s-0 {draid}\n{disks}spares\ndraid2-0-0 {first}\ndraid2-0-1 {second}\n")
}

#[test]
fn a_distributed_spare_steps_in() {
    let world = World::new("draid", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED draid: nothing can be mounted here");
        return;
    }
    world.tune("zfs_txg_timeout", 1);
    let disks = ["a", "b", "c", "d", "e", "f", "g"];
    world.disks(&disks);
    let all: String = disks.iter().map(|disk| format!(" DIR/{disk}")).collect();
    world.check(&format!("create -O compression=off -R DIR/mnt tank draid2:3d:7c:2s{all}"), 0, "");
    let whole = tree(["ONLINE", "ONLINE"], ["ONLINE"; 7], ["AVAIL", "AVAIL"]);
    assert_eq!(world.tree("tank"), whole);
    world.check("get -H -o value feature@draid tank", 0, "active\n");
    let file = world.dir.join("mnt/tank/file");
    let bytes = noise(9 << 20, 1);
    write(&file, &bytes).unwrap();
    for n in 0..50 {
        write(&world.dir.join(format!("mnt/tank/small{n}")), &noise(700 * n as usize, n)).unwrap();
    }
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    assert_eq!(world.tree("tank"), whole);

    world.check("offline -f tank DIR/c", 0, "");
    let mut states = ["ONLINE"; 7];
    states[2] = "SPARED";
    let spared = tree(["DEGRADED", "DEGRADED"], states, ["INUSE", "AVAIL"]);
    world.becomes("tank", &spared);
    world.check("sync tank", 0, "");
    world.check("wait -t replace tank", 0, "");
    write(&world.dir.join("mnt/tank/later"), &bytes).unwrap();
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
    // what the lost disk had is on the spare: two more may go
    for disk in ["a", "e"] {
        fs::rename(world.dir.join(disk), world.dir.join(format!("{disk}.away"))).unwrap();
    }
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    assert!(fs::read(&file).unwrap() == bytes && fs::read(world.dir.join("mnt/tank/later")).unwrap() == bytes);
    for n in 0..50 {
        assert!(fs::read(world.dir.join(format!("mnt/tank/small{n}"))).unwrap() == noise(700 * n as usize, n));
    }
    world.check("export tank", 0, "");
    for disk in ["a", "e"] {
        fs::rename(world.dir.join(format!("{disk}.away")), world.dir.join(disk)).unwrap();
    }
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    world.becomes("tank", &spared);

    // a new disk takes the place of the lost one, and the spare goes
    world.disks(&["new"]);
    world.check("replace -w tank DIR/c DIR/new", 0, "");
    world.becomes("tank", &whole.replace("DIR/c ", "DIR/new "));
    world.check("scrub -w tank", 0, "");
    assert!(world.scan("tank").contains("repaired 0B"), "{}", world.scan("tank"));
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
}

#[test]
fn a_draid_is_added() {
    let world = World::new("draid-add", &[]);
    world.disks(&["a", "b", "c", "d", "e", "f"]);
    world.check("create -O mountpoint=none tank draid:1d:3c:1s DIR/a DIR/b DIR/c", 0, "");
    let mismatch = "invalid vdev specification\nuse '-f' to override the following errors:\n\
                    mismatched replication level: pool and new vdev with different redundancy, draid and draid vdevs, 1 vs. 2\n";
    world.check("add tank draid2 DIR/d DIR/e DIR/f", 1, mismatch);
    world.check("add tank draid:1d:1s DIR/d DIR/e DIR/f", 0, "");
    let expect = "tank ONLINE\ndraid1:1d:3c:1s-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\nDIR/c ONLINE\n\
                  draid1:1d:3c:1s-1 ONLINE\nDIR/d ONLINE\nDIR/e ONLINE\nDIR/f ONLINE\n\
                  spares\ndraid1-0-0 AVAIL\ndraid1-1-0 AVAIL\n";
    assert_eq!(world.tree("tank"), expect);
    let refused = "cannot replace DIR/a with draid1-1-0: a distributed spare is for devices of its own dRAID vdev\n";
    world.check("replace tank DIR/a draid1-1-0", 1, refused);
    world.check("replace -w tank DIR/e draid1-1-0", 0, "");
    // it stands in for this one already, and cannot for another
    world.check("replace tank DIR/e draid1-1-0", 0, "");
    world.check("replace tank DIR/f draid1-1-0", 1, "cannot replace DIR/f with draid1-1-0: draid1-1-0 is busy\n");
    world.check("detach tank draid1-1-0", 0, "");
    assert_eq!(world.tree("tank"), expect);
    // sequentially, with a scrub behind it
    world.check("replace -s -w tank DIR/e draid1-1-0", 0, "");
    world.check("wait -t scrub tank", 0, "");
    assert!(world.scan("tank").contains("scrub repaired 0B"), "{}", world.scan("tank"));
    // it is told with the group
    wait_for("the history", || {
        let history = world.text("history -i tank");
        history.contains("rebuild vdev_id=1 ") && history.contains(" complete")
    });
    world.check("detach tank draid1-1-0", 0, "");
    assert_eq!(world.tree("tank"), expect);
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
    world.check(
        "create -d -O mountpoint=none -f none draid DIR/a DIR/b DIR/c",
        1,
        "cannot create 'none': draid vdevs need feature@draid\n",
    );
}
