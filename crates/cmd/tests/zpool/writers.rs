//! One writer at a time: pools of other hosts, of other processes here, and files by other names. And who may ask.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{FileDevice, OpenMode};
use pool::FoundDevice;

use testkit::loops::LoopDevice;

use super::World;

impl World {
    /// `zpool` on a host with that id, whose processes meet in the folder `run`.
    fn on_host(&self, hostid: &str, run: &str, line: &str) -> Output {
        let parameters = self.dir.join("parameters");
        std::fs::create_dir_all(&parameters).unwrap();
        let tunables = [
            ("zfs_multihost_interval", 100),
            ("zfs_multihost_fail_intervals", 0),
            ("zfs_multihost_import_intervals", 25),
        ];
        tunables.iter().for_each(|(name, value)| std::fs::write(parameters.join(name), value.to_string()).unwrap());
        let line = line.replace("DIR", self.dir.to_str().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.arg("zpool").args(line.split_whitespace()).env("CENOTE_RUN", self.dir.join(run));
        command
            .env("ZFS_HOSTID", hostid)
            .env("CENOTE_PARAMETERS", parameters)
            .env("TZ", "UTC")
            .env_remove("CENOTE_LOG");
        command.output().expect("the program starts")
    }
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn a_pool_of_another_host_is_not_imported() {
    let world = World::new("multihost", &[]);
    world.disks(&["a"]);
    world.check("create -O mountpoint=none shared DIR/a", 0, "");
    let no_id = "cannot set property for 'shared': requires a non-zero system hostid\n";
    world.check("set multihost=on shared", 1, no_id);
    world.check("export shared", 0, "");
    assert_eq!(text(&world.on_host("0x11", "run", "import -N -d DIR shared")), "");
    assert_eq!(text(&world.on_host("0x11", "run", "set multihost=on shared")), "");
    assert_eq!(text(&world.on_host("0x11", "run", "get -H -o value multihost shared")), "on\n");
    world.kill("shared");
    // the other host lives on, as far as the disk tells
    let path = world.dir.join("a");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let device = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadOnly).unwrap();
            let found = FoundDevice::examine("a", std::sync::Arc::new(device)).unwrap().remove(0);
            let newest = found.uberblocks.iter().max_by_key(|uberblock| uberblock.rank()).unwrap().clone();
            let ashift = found.config.list("vdev_tree").unwrap().u64("ashift").unwrap() as u32;
            let device = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
            for seq in (1..=0xffff).cycle().take_while(|_| !ends.load(Ordering::Relaxed)) {
                let beat = newest.with_seq(seq);
                (0..4).for_each(|label| vdev::label::write_heartbeat(&device, label, &beat, ashift).unwrap());
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let host = nix::sys::utsname::uname().unwrap().nodename().to_string_lossy().into_owned();
        let refused = format!(
            "cannot import 'shared': pool is imported on host '{host}' (hostid=11).\n\
             Export the pool on the other system, then run 'zpool import'.\n"
        );
        let forced = world.on_host("0x22", "run", "import -f -d DIR shared");
        let read_only = world.on_host("0x22", "run", "import -f -o readonly=on -d DIR shared");
        let nameless = world.on_host("0", "run", "import -f -d DIR shared");
        let listed = world.on_host("0x22", "run", "import -d DIR");
        ends.store(true, Ordering::Relaxed);
        assert_eq!((text(&forced), forced.status.code()), (refused.clone(), Some(1)));
        assert_eq!(text(&read_only), refused, "nor read, while it changes");
        assert!(text(&nameless).contains("the multihost property on and the\nsystem's hostid is not set"));
        let listed = text(&listed);
        for line in [
            " state: UNAVAIL\nstatus: The pool is currently imported by another system.\n".to_owned(),
            format!("action: The pool must be exported from {host} (hostid=11)\n\tbefore it can be safely imported.\n"),
        ] {
            assert!(listed.contains(&line), "{listed}");
        }
    });
    assert_eq!(text(&world.on_host("0x22", "run", "import -f -N -d DIR shared")), "");
    assert_eq!(text(&world.on_host("0x22", "run", "export shared")), "");
}

#[test]
fn properties_that_an_import_sets() {
    let world = World::new("props", &[]);
    world.disks(&["a"]);
    world.check("create -O mountpoint=none tank DIR/a", 0, "");
    world.check("export tank", 0, "");
    world.check("import -o comment=mine -o failmode=continue -o delegation=off -d DIR tank", 0, "");
    world.check("get -H -o value comment,failmode,delegation tank", 0, "mine\ncontinue\noff\n");
    world.check("export tank", 0, "");
    let refused = "cannot import pool 'tank': property 'comment' cannot be set in a pool that is read-only\n";
    world.check("import -o comment=other -o readonly=on -d DIR tank", 1, refused);
    world.check("import -d DIR tank", 0, "");
    world.check("get -H -o value comment tank", 0, "mine\n");
    world.check("set dedupditto=100 tank", 0, "Note: property 'dedupditto' no longer has any effect\n");
    world.check("remove -n tank DIR/a", 1, "cannot remove DIR/a: out of space\n");
    world.check("nonsense", 2, "unrecognized command 'nonsense'\n");
    let checked = Command::new(env!("CARGO_BIN_EXE_cenote"))
        .args(["zdb", "-C", "tank"])
        .env("CENOTE_RUN", world.dir.join("run"))
        .output()
        .unwrap();
    assert!(checked.status.success() && text(&checked).contains("tank"), "{}", text(&checked));
}

#[test]
fn destroyed_pools_of_one_name() {
    let world = World::new("destroyed", &[]);
    world.disks(&["a", "b"]);
    for disk in ["a", "b"] {
        world.check(&format!("create -O mountpoint=none twin DIR/{disk}"), 0, "");
        world.check("destroy twin", 0, "");
    }
    let both = "cannot import 'twin': more than one matching pool\nimport by numeric ID instead\n";
    world.check("import -D -d DIR twin", 1, both);
    world.check("import -d DIR twin", 1, "cannot import 'twin': no such pool available\n");
}

#[test]
fn nothing_is_logged_to_the_terminal() {
    let world = World::new("quiet", &[]);
    world.disks(&["a", "cache"]);
    world.check("create -O mountpoint=none quiet DIR/a cache DIR/cache", 0, "");
    world.check("export quiet", 0, "");
    std::fs::remove_file(world.dir.join("cache")).unwrap();
    world.check("import -d DIR quiet", 0, "");
    let log = std::fs::read_to_string(world.dir.join("run/quiet.log")).unwrap();
    assert!(log.contains("WARN"), "it is in the log: {log}");
}

/// The other name of a file: a loop device, where this machine has such.
#[test]
fn a_loop_device_over_a_file_in_use() {
    let world = World::new("loops", &[]);
    world.disks(&["a"]);
    let Some(disk) = LoopDevice::over(&world.dir.join("a"), &[]) else { return };
    let import = |run: &str, from: &str| world.on_host("0", run, &format!("import -f -N -d {from} one"));
    world.check("create -O mountpoint=none one DIR/a", 0, "");
    let by_disk = import("elsewhere", disk.name());
    world.check("export one", 0, "");
    let free = import("elsewhere", disk.name());
    let by_file = import("run", "DIR");
    let exported = world.on_host("0", "elsewhere", "export one");
    drop(disk);
    let busy = "cannot import 'one': one or more devices are already in use\n";
    assert!(text(&by_disk).starts_with(busy), "{}", text(&by_disk));
    assert_eq!((text(&free), text(&exported)), (String::new(), String::new()));
    assert!(text(&by_file).starts_with(busy), "{}", text(&by_file));
}

#[test]
fn connections_that_do_nothing() {
    let world = World::new("idle", &[]);
    world.disks(&["a"]);
    world.check("create -O mountpoint=none idle DIR/a", 0, "");
    let socket = world.dir.join("run/idle.sock");
    let half = |_| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        std::io::Write::write_all(&mut stream, &[9, 0]).unwrap();
        stream
    };
    let _held: Vec<UnixStream> = (0..200).map(half).collect();
    world.check("list -H -o name", 0, "idle\n");
    // one that says nothing, and has a lock as pools have
    std::fs::File::create(world.dir.join("run/mute.lock")).unwrap();
    let (mute, ends) = (UnixListener::bind(world.dir.join("run/mute.sock")).unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                drop(mute.accept().unwrap());
            }
        });
        world.check("list -H -o name", 1, "idle\ncannot open 'mute': the pool's process does not answer\n");
        world.check("status mute", 1, "cannot open 'mute': the pool's process does not answer\n");
        ends.store(true, Ordering::Relaxed);
        drop(UnixStream::connect(world.dir.join("run/mute.sock")).unwrap());
    });
    std::fs::remove_file(world.dir.join("run/mute.sock")).unwrap();
}

#[test]
fn everybody_may_ask() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let world = World::new("everybody", &[]);
    world.disks(&["a"]);
    world.check("create -O mountpoint=none open DIR/a", 0, "");
    std::fs::set_permissions(&world.dir, PermissionsExt::from_mode(0o755)).unwrap();
    let program = world.dir.join("cenote");
    // a program that another test starts meanwhile would have a copy of ours open for writing
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_cenote")).arg(&program).status().unwrap().success());
    let as_nobody = |line: &str| {
        let mut command = Command::new(&program);
        command.args(line.split_whitespace()).env("CENOTE_RUN", world.dir.join("run")).uid(65534).gid(65534);
        let output = command.output().unwrap();
        (text(&output), output.status.code())
    };
    for (line, answer) in [
        ("zpool list -H -o name", "open\n"),
        ("zpool get -H -o value readonly open", "off\n"),
        ("zfs list -H -o name", "open\n"),
        ("zfs get -H -o value mountpoint open", "none\n"),
    ] {
        assert_eq!(as_nobody(line), (answer.to_owned(), Some(0)), "{line}");
    }
    assert!(as_nobody("zpool status open").0.contains("state: ONLINE"));
    for line in
        ["zpool set comment=x open", "zpool export open", "zpool sync open", "zfs create open/x", "zpool destroy open"]
    {
        let (told, code) = as_nobody(line);
        assert!(told.contains("permission denied") && code == Some(1), "{line}: {told}");
    }
    world.check("get -H -o value comment open", 0, "-\n");
}

#[test]
fn what_was_done_is_in_the_history() {
    let world = World::new("events", &[]);
    world.disks(&["a", "b"]);
    let zfs = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.arg("zfs").args(line.split_whitespace()).env("CENOTE_RUN", world.dir.join("run"));
        assert!(command.status().unwrap().success(), "{line}");
    };
    world.check("create -O mountpoint=none told DIR/a log DIR/b", 0, "");
    zfs("create -o compression=lz4 told/x");
    zfs("set atime=off told/x");
    zfs("inherit atime told/x");
    zfs("rename told/x told/y");
    zfs("destroy told/y");
    world.check("set failmode=continue told", 0, "");
    world.check("remove told DIR/b", 0, "");
    world.check("reguid -g 77 told", 0, "");
    world.check("export told", 0, "");
    world.check("import -d DIR told", 0, "");
    let history = text(&world.zpool("history -i told"));
    let events = history.lines().filter_map(|line| line.split_once("] ").map(|(_, event)| event));
    // objects have numbers
    let words =
        |event: &str| event.split_whitespace().filter(|word| !word.starts_with('(')).collect::<Vec<_>>().join(" ");
    let events: Vec<String> =
        events.map(words).map(|event| event.replace(world.dir.to_str().unwrap(), "DIR")).collect();
    let begin = |event: &String| event.starts_with("create pool version 5000; software version cenote-");
    assert!(events.first().is_some_and(begin), "{history}");
    assert!(events.last().is_some_and(|event| event.starts_with("import pool version 5000;")), "{history}");
    let done = [
        "create told/x",
        "set told/x compression=lz4",
        "set told/x atime=off",
        "inherit told/x atime=",
        "rename told/x -> told/y",
        "destroy told/y",
        "set failmode=1",
        "vdev remove told vdev DIR/b",
        "guid change",
    ];
    let mut rest = events.iter();
    for event in done {
        assert!(rest.any(|told| told.starts_with(event)), "'{event}' is not there, or too early: {history}");
    }
    let short = text(&world.zpool("history told"));
    assert!(!short.contains("[txg:") && short.contains("zpool reguid"), "{short}");
}
