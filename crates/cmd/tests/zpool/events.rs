//! What is told of a pool, and scripts that are run for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::World;

#[test]
fn events_are_told_and_scripts_are_run() {
    let world = World::new("events", &[]);
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b", "s"]);
    let told = put_scripts(&world);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b spare DIR/s", 0, "");
    world.check("scrub -w tank", 0, "");
    // what they have missed is for scripts later
    world.tune("cenote_zed", 0);
    world.check("scrub -w tank", 0, "");
    world.tune("cenote_zed", 1);
    let began = Instant::now();
    while fs::read_to_string(&told).unwrap_or_default().matches("scrub_finish tank").count() < 2 {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
    world.check("offline -f tank DIR/b", 0, "");
    let spared = "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a ONLINE\nspare-1 DEGRADED\nDIR/b FAULTED\nDIR/s ONLINE\n\
                  spares\nDIR/s INUSE\n";
    world.becomes("tank", spared);
    world.check("wait -t replace tank", 0, "");
    let classes = || -> Vec<String> {
        let text = world.text("events -H tank");
        text.lines().map(|line| line.rsplit('\t').next().unwrap().to_owned()).collect()
    };
    let all = classes();
    for class in [
        "sysevent.fs.zfs.pool_create",
        "sysevent.fs.zfs.history_event",
        "sysevent.fs.zfs.config_sync",
        "sysevent.fs.zfs.scrub_start",
        "sysevent.fs.zfs.scrub_finish",
        "resource.fs.zfs.statechange",
        "sysevent.fs.zfs.vdev_spare",
        "sysevent.fs.zfs.resilver_start",
        "sysevent.fs.zfs.resilver_finish",
    ] {
        assert!(all.iter().any(|known| known == class), "{class}: {all:?}");
    }
    let verbose = world.text("events -v");
    assert!(verbose.starts_with("TIME                           CLASS\n"), "{verbose}");
    let change = verbose.split("\n\n").find(|event| event.contains("class = \"resource.fs.zfs.statechange\"")).unwrap();
    for line in [
        "pool = \"tank\"",
        "vdev_state = \"FAULTED\" (0x5)",
        "vdev_path = \"DIR/b\"",
        "vdev_laststate = \"ONLINE\" (0x7)",
    ] {
        assert!(change.contains(line), "{line}: {change}");
    }
    world.check("clear tank DIR/b", 0, "");
    assert!(world.text("history tank").contains(" zpool clear tank "), "{}", world.text("history tank"));
    let home = "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\nspares\nDIR/s AVAIL\n";
    world.becomes("tank", home);
    assert!(classes().iter().any(|class| class == "sysevent.fs.zfs.vdev_clear"));

    let cleared = world.text("events -c");
    assert!(cleared.starts_with("cleared ") && cleared != "cleared 0 events\n", "{cleared}");
    world.check("events -x", 2, "invalid option 'x'\nusage:\n\tevents [-vHf [pool] | -c]\n");
    world.check("events -cv", 2, "invalid options combined with -c\nusage:\n\tevents [-vHf [pool] | -c]\n");
    world.check("events nope", 1, "cannot open 'nope': no such pool\n");
    check_events_of_ended(&world);
    check_scripts(&world, &told);
}

/// Of a pool that is exported, and imported without a device.
fn check_events_of_ended(world: &World) {
    world.check("export tank", 0, "");
    let exported = world.text("events -H");
    assert!(exported.ends_with("\tsysevent.fs.zfs.pool_export\n"), "{exported}");
    world.check("events tank", 1, "cannot open 'tank': no such pool\n");
    fs::remove_file(world.dir.join("b")).unwrap();
    world.check("import -N -d DIR tank", 0, "");
    world.check("sync tank", 0, "");
    let began = Instant::now();
    let failed = "ereport.fs.zfs.vdev.open_failed";
    while !world.text("events -H tank").contains(failed) {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", world.text("events"));
    }
    assert!(world.text("events -H tank").contains("sysevent.fs.zfs.pool_import"));
    // of both processes, each once
    let all = world.text("events -H");
    assert_eq!(all.matches("pool_export").count(), 1, "{all}");
    assert!(all.starts_with(exported.as_str()), "{all}");
    world.text("events -c");
    assert!(!world.text("events -H").contains("pool_export"));
}

/// What leaves are like when a pool is imported is told with the import, and what they become at once, too.
#[test]
fn leaves_that_are_bad_from_the_beginning_are_told() {
    let world = World::new("badleaves", &[]);
    world.disks(&["a", "b", "c", "d"]);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b DIR/c DIR/d", 0, "");
    world.check("offline -f tank DIR/d", 0, "");
    let told = |path: &str, state: &str| {
        let verbose = world.text("events -v tank");
        let of_leaf = format!("vdev_path = \"DIR/{path}\"");
        let state = format!("vdev_state = \"{state}\" ");
        let is_it = |event: &&str| [".fs.zfs.statechange\"", &of_leaf, &state].iter().all(|what| event.contains(what));
        verbose.split("\n\n").filter(is_it).count()
    };
    let becomes_told = |path: &str, state: &str| {
        let began = Instant::now();
        while told(path, state) == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "{}", world.text("events -v tank"));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    // the group of the command may be the first that is made
    becomes_told("d", "FAULTED");
    world.check("export tank", 0, "");
    fs::remove_file(world.dir.join("c")).unwrap();
    world.text("events -c");
    world.check("import -d DIR tank", 0, "");
    let all = ["a", "b", "c", "d"].map(|path| [told(path, "FAULTED"), told(path, "UNAVAIL")]);
    assert_eq!(all, [[0, 0], [0, 0], [0, 1], [1, 0]], "{}", world.text("events -v tank"));
    world.check("offline -f tank DIR/b", 0, "");
    becomes_told("b", "FAULTED");
    world.check("export tank", 0, "");
}

/// Scripts that write down what they are told, and one that asks the pool.
fn put_scripts(world: &World) -> PathBuf {
    let zed = world.dir.join("zed.d");
    fs::create_dir(&zed).unwrap();
    let told = world.dir.join("told");
    let script = "#!/bin/sh\necho \"$ZEVENT_SUBCLASS $ZEVENT_POOL $ZEVENT_VDEV_STATE_STR $ZEVENT_VDEV_PATH\" >> ";
    for name in ["statechange-note.sh", "scrub_finish-note.sh"] {
        fs::write(zed.join(name), format!("{script}{}\n", told.display())).unwrap();
        fs::set_permissions(zed.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    // a script that asks the pool
    let ask = format!("#!/bin/sh\n\"$ZPOOL\" list -H -o name > {}/listed\n", world.dir.display());
    fs::write(zed.join("vdev_spare-ask.sh"), ask).unwrap();
    fs::set_permissions(zed.join("vdev_spare-ask.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    told
}

fn check_scripts(world: &World, told: &Path) {
    let began = Instant::now();
    let dir = world.dir.display().to_string();
    loop {
        let lines = fs::read_to_string(told).unwrap_or_default().replace(&dir, "DIR");
        let has = |line: &str| lines.lines().any(|known| known.trim_end() == line);
        if lines.matches("scrub_finish tank").count() == 2
            && has("statechange tank FAULTED DIR/b")
            && has("statechange tank ONLINE DIR/b")
            && fs::read_to_string(world.dir.join("listed")).is_ok_and(|text| text == "tank\n")
        {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{lines}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
