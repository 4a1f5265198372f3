//! `zinject`: what it lets go wrong, and what is told of it.

use std::path::Path;

use super::World;
use super::suspended::{noise, wait_for, write};

fn zinject(world: &World, line: &str) -> (String, i32) {
    world.told(&format!("zinject {line}"))
}

#[test]
fn faults_are_added_told_and_ended() {
    let world = World::new("zinject", &[]);
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b", "c"]);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    world.check("create -O mountpoint=none other DIR/c", 0, "");
    let none = "No handlers registered.\nRun 'zinject -h' for usage information.\n";
    assert_eq!(zinject(&world, ""), (none.into(), 0));
    let of = |text: &str| text.to_owned();
    assert_eq!(zinject(&world, "-q -d DIR/b -e io -T write -f 50 tank"), (of("1\n"), 0));
    assert_eq!(zinject(&world, "-q -d DIR/c -D 10:3 other"), (of("2\n"), 0));
    let (told, code) = zinject(&world, "-b 0:1:0:0 tank");
    let expect = "Added handler 3 with the following properties:\n  pool: tank\n\
                  objset: 0\nobject: 1\n level: 0\n range: [0, 0]\n";
    assert_eq!((told.as_str(), code), (expect, 0));
    let (list, _) = zinject(&world, "");
    let rows: Vec<Vec<&str>> = list
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words: &Vec<&str>| words.first().is_some_and(|word| word.parse::<u64>().is_ok()))
        .collect();
    assert_eq!(rows.len(), 3, "{list}");
    assert_eq!((rows[0][0], rows[0][1], &rows[0][3..6]), ("1", "tank", &["write", "io", "50.0000%"][..]));
    assert_eq!((rows[1][0], rows[1][1], &rows[1][2..4]), ("2", "other", &["10", "3"][..]));
    assert_eq!((rows[2][0], rows[2][1], &rows[2][2..4]), ("3", "tank", &["0", "1"][..]));
    assert_eq!(zinject(&world, "-c 2"), (of("removed handler 2\n"), 0));
    assert_eq!(zinject(&world, "-c 2"), (of("failed to remove handler 2: no such handler\n"), 1));
    assert_eq!(zinject(&world, "-c all"), (of("removed all registered handlers\n"), 0));
    assert_eq!(zinject(&world, ""), (none.into(), 0));
    // side by side, each has a number of its own
    let mut numbers: Vec<String> = std::thread::scope(|scope| {
        let one = || scope.spawn(|| zinject(&world, "-q -d DIR/a -D 1:1 tank").0);
        let asked: Vec<_> = (0..6).map(|_| one()).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    numbers.sort();
    assert_eq!(numbers.concat(), "1\n2\n3\n4\n5\n6\n");
    assert_eq!(zinject(&world, "-c all").1, 0);

    assert_eq!(zinject(&world, "-d DIR/x tank"), (of("cannot find device 'DIR/x' in pool 'tank'\n"), 1));
    assert_eq!(zinject(&world, "-d DIR/a nope"), (of("cannot open 'nope': no such pool\n"), 1));
    assert_eq!(zinject(&world, "-t data /etc/passwd"), (of("'/etc/passwd': not a ZFS filesystem\n"), 1));
    for (line, why) in [
        ("-d DIR/a -e dtl tank", "error type 'dtl' is not supported here\n"),
        ("-p spa_sync tank", "panics in functions (-p) are not supported\n"),
        ("-d DIR/a", "device (-d) injection requires a single pool name\n"),
    ] {
        let (told, code) = zinject(&world, line);
        assert!(told.starts_with(why) && told.contains("usage:") && code == 2, "{line}: {told}");
    }
}

#[test]
fn a_device_whose_writes_fail_is_faulted() {
    let world = World::new("zinject-device", &[]);
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b"]);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    assert_eq!(zinject(&world, "-q -d DIR/b -e io -T write tank").1, 0);
    for number in 0..20 {
        assert_eq!(world.zfs(&format!("create tank/{number}")).1, 0);
    }
    world.becomes("tank", "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a ONLINE\nDIR/b FAULTED\n");
    assert_eq!(zinject(&world, "-c all").1, 0);
    world.check("clear tank", 0, "");
    world.check("wait -t resilver tank", 0, "");
    world.becomes("tank", "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\n");
    assert_eq!(zinject(&world, "-d DIR/a -A degrade tank").1, 0);
    world.becomes("tank", "tank DEGRADED\nmirror-0 DEGRADED\nDIR/a DEGRADED\nDIR/b ONLINE\n");
    world.check("clear tank", 0, "");
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
}

/// A pool without redundancy waits while its writes fail, says so where monitors look, and goes on afterwards.
#[test]
fn a_pool_whose_only_device_fails_is_suspended() {
    let world = World::new("zinject-alone", &[]);
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a"]);
    world.check("create -O mountpoint=none tank DIR/a", 0, "");
    let state = || std::fs::read_to_string(world.dir.join("run/spl/kstat/zfs/tank/state")).unwrap_or_default();
    let becomes = |word: &str| wait_for(word, || state() == format!("{word}\n"));
    becomes("ONLINE");
    assert_eq!(zinject(&world, "-q -d DIR/a -e io -T write tank").1, 0);
    assert_eq!(zinject(&world, "-q -d DIR/a -e nxio -T probe tank").1, 0);
    std::thread::scope(|scope| {
        let made = scope.spawn(|| world.zfs("create tank/late"));
        becomes("SUSPENDED");
        // it cannot be used again as long as it does not answer
        assert_eq!(world.zpool("clear tank").status.code(), Some(1));
        becomes("SUSPENDED");
        assert_eq!(zinject(&world, "-c all").1, 0);
        world.check("clear tank", 0, "");
        assert_eq!(made.join().unwrap(), (String::new(), 0));
    });
    becomes("ONLINE");
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
}

/// A file that cannot be read is found, told, and found whole again; a scrub of what is damaged stands still if asked to.
#[test]
fn blocks_of_a_file_go_wrong() {
    let world = World::new("zinject-file", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED zinject-file: nothing can be mounted here");
        return;
    }
    world.tune("zfs_txg_timeout", 1);
    world.disks(&["a", "b"]);
    world.check(
        "create -o feature@head_errlog=enabled -O recordsize=128k -O copies=2 -R DIR/mnt tank DIR/a DIR/b",
        0,
        "",
    );
    let file = world.dir.join("mnt/tank/file");
    let bytes = noise(1 << 20, 5);
    write(&file, &bytes).unwrap();
    write(&world.dir.join("mnt/tank/zeros"), &[0; 1 << 20]).unwrap();
    // in all places but one
    assert_eq!(zinject(&world, "-aq -t data -C 0 -e checksum DIR/mnt/tank/file"), ("1\n".into(), 0));
    assert!(std::fs::read(&file).unwrap() == bytes);
    world.check("scrub -w tank", 0, "");
    assert!(world.scan("tank").ends_with(" with 0 errors"), "{}", world.scan("tank"));
    // in all; holes are nowhere
    assert_eq!(zinject(&world, "-aq -t data -C 1,2 -e io DIR/mnt/tank/file"), ("2\n".into(), 0));
    assert_eq!(zinject(&world, "-aq -t data DIR/mnt/tank/zeros"), ("3\n".into(), 0));
    assert!(std::fs::read(&file).is_err());
    assert!(std::fs::read(world.dir.join("mnt/tank/zeros")).unwrap().iter().all(|byte| *byte == 0));
    world.check("sync", 0, "");
    let damaged = |is_so: bool| {
        let status = world.text("status -v tank");
        assert_eq!(status.contains("mnt/tank/file\n"), is_so, "{status}");
    };
    damaged(true);
    world.tune("zfs_scan_suspend_progress", 1);
    assert_eq!(zinject(&world, "-c all").1, 0);
    world.check("scrub -e tank", 0, "");
    world.check("sync", 0, "");
    let scan = || {
        let status = world.text("status tank");
        status.lines().find(|line| line.trim_start().starts_with("scrub: ")).unwrap_or_default().to_owned()
    };
    assert!(scan().contains("error scrub in progress"), "{}", world.text("status tank"));
    damaged(true);
    world.tune("zfs_scan_suspend_progress", 0);
    world.check("wait -t scrub tank", 0, "");
    damaged(false);
    assert!(std::fs::read(&file).unwrap() == bytes);
    world.check("scrub -w tank", 0, "");
    assert!(world.scan("tank").ends_with(" with 0 errors"), "{}", world.scan("tank"));
}

/// What is damaged goes by the name that it has now, not by that of the last group on disk.
#[test]
fn damaged_files_are_told_by_their_names_of_now() {
    let world = World::new("zinject-name", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED zinject-name: nothing can be mounted here");
        return;
    }
    world.tune("zfs_txg_timeout", 600);
    world.disks(&["a"]);
    world.check("create -R DIR/mnt tank DIR/a", 0, "");
    let path = |name: &str| world.dir.join("mnt/tank").join(name);
    write(&path("file"), &noise(1 << 20, 5)).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    world.check("sync", 0, "");
    assert_eq!(zinject(&world, "-aq -t data -e checksum DIR/mnt/tank/file").1, 0);
    assert!(std::fs::read(path("file")).is_err());
    let told = |name: &str| {
        let status = world.text("status -v tank");
        assert!(status.contains(&format!("mnt/tank/{name}\n")), "{name}: {status}");
    };
    told("file");
    for (from, to) in [("file", "folder/other"), ("folder", "moved")] {
        std::fs::rename(path(from), path(to)).unwrap();
        told(&to.replace("moved", "moved/other"));
    }
    std::fs::remove_file(path("moved/other")).unwrap();
    assert!(!world.text("status -v tank").contains("mnt/tank/"), "{}", world.text("status -v tank"));
}

/// Whatever keeps a snapshot from being read is told in one way, and an event tells which blocks are lost.
#[test]
fn what_cannot_be_read_is_not_sent() {
    let world = World::new("zinject-send", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED zinject-send: nothing can be mounted here");
        return;
    }
    world.disks(&["a"]);
    world.check("create -O recordsize=128k -R DIR/mnt tank DIR/a", 0, "");
    write(&world.dir.join("mnt/tank/file"), &noise(1 << 20, 5)).unwrap();
    assert_eq!(world.zfs("snapshot tank@s"), (String::new(), 0));
    world.check("sync tank", 0, "");
    let lost = || world.text("events -H").matches("ereport.fs.zfs.data").count();
    let mut before = lost();
    let unreadable = |command: &str| {
        let output = world.cenote(command);
        let told = String::from_utf8(output.stderr).unwrap();
        let expect = "warning: cannot send 'tank@s': Input/output error\n";
        assert_eq!((told.as_str(), output.status.code()), (expect, Some(1)), "{command}");
    };
    for fault in ["-t data -e checksum", "-t data -e io", "-t dnode -e checksum", "-t dnode -e io"] {
        assert_eq!(zinject(&world, &format!("-aq {fault} DIR/mnt/tank/file")).1, 0);
        unreadable("zfs send tank@s");
        unreadable("zfs send -cR tank@s");
        // the size is known without the data
        if fault.contains("dnode") {
            unreadable("zfs send -nv tank@s");
        } else {
            assert_eq!(world.cenote("zfs send -nv tank@s").status.code(), Some(0));
        }
        world.check("sync tank", 0, "");
        assert!(lost() > before, "{fault}: {}", world.text("events -H"));
        before = lost();
        assert_eq!(zinject(&world, "-c all").1, 0);
    }
    for error in ["io", "nxio"] {
        world.check("export tank", 0, "");
        world.check("import -d DIR -R DIR/mnt tank", 0, "");
        assert_eq!(zinject(&world, &format!("-q -d DIR/a -e {error} -T read tank")).1, 0);
        unreadable("zfs send tank@s");
        assert_eq!(zinject(&world, "-c all").1, 0);
        world.check("clear tank", 0, "");
    }
    // what is wrong with where it goes is told as the system does
    let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.args(["zfs", "send", "tank@s"]).stdout(full).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told, "warning: cannot send 'tank@s': No space left on device\n");
}
