//! What opens something on the host counts where it was set on the host.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::World;
use super::iscsi::Initiator;
use super::snapshots::Fresh;

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn target_of(fresh: &Fresh, volume: &str) -> String {
    let shown = String::from_utf8(fresh.world.cenote(&format!("volumes {volume}")).stdout).unwrap();
    let line = shown.lines().find(|line| line.contains("\tiscsi\t")).unwrap_or_else(|| panic!("{shown}"));
    line.rsplit('/').nth(1).unwrap().to_owned()
}

/// What a stream says of a secret neither takes away the one that is set above, nor opens a file.
#[test]
fn a_stream_takes_no_password_off() {
    let fresh = Fresh::new("chap_received");
    let (address, secret) = (free(), fresh.world.dir.join("secret"));
    std::fs::write(&secret, "initiator iqn.a aaaaaaaaaaaaaaaa\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let pipe = fresh.world.dir.join("pipe");
    std::fs::copy(&secret, &pipe).unwrap();
    fresh.does("create -s -V 8M fresh/v");
    let streams = ["none", pipe.to_str().unwrap()].map(|value| {
        fresh.does(&format!("set org.cenote:iscsi_chap={value} fresh/v"));
        fresh.does("snapshot fresh/v@s");
        let stream = fresh.world.cenote("zfs send -p fresh/v@s").stdout;
        fresh.does("destroy fresh/v@s");
        stream
    });
    fresh.does("destroy fresh/v");
    std::fs::remove_file(&pipe).unwrap();
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().unwrap().success());
    let set = [format!("iscsi_chap={}", secret.display()), "iscsi_initiators=iqn.a".into(), "iscsi=on".into()];
    set.iter().for_each(|value| fresh.does(&format!("set org.cenote:{value} fresh")));
    fresh.does(&format!("set org.cenote:iscsi_listen={address} fresh"));
    for (name, stream) in ["fresh/none", "fresh/pipe"].iter().zip(&streams) {
        fresh.world.receives(name, stream);
        let target = target_of(&fresh, name);
        assert_eq!(Initiator::log_in(address, "iqn.a", &target).err(), Some((2, 1)), "{name}: without the secret");
        assert_eq!(fresh.world.cenote(&format!("volumes {name}")).stderr, b"", "{name}");
    }
    // a stream can close
    fresh.does("create -s -V 8M fresh/w");
    fresh.does("set org.cenote:iscsi=off fresh/w");
    fresh.does("snapshot fresh/w@s");
    fresh.world.receives("fresh/closed", &fresh.world.cenote("zfs send -p fresh/w@s").stdout);
    let shown = String::from_utf8(fresh.world.cenote("volumes fresh/closed").stdout).unwrap();
    assert!(!shown.contains("\tiscsi\t"), "{shown}");
    // who sets it here is told what is wrong with the file, and waits for nobody
    let (text, code) = fresh.world.zfs(&format!("set org.cenote:iscsi_chap={} fresh", pipe.display()));
    assert!(code == 1 && text.contains("no regular file"), "{text}");
    let (text, code) = fresh.world.zfs("set org.cenote:received=yes fresh");
    assert!(code == 1 && text.contains("must be one of 'follow | ignore'"), "{text}");
    fresh.judge();
}

/// Each property of a stranger's pool counts when it has been set here, and only that one, on that dataset.
#[test]
fn a_strangers_doors_open_one_by_one() {
    let fresh = Fresh::new("doors");
    let (theirs, ours) = (free(), free());
    for volume in ["fresh/v", "fresh/a/w"] {
        fresh.does(&format!("create -s -V 8M {volume}"));
        fresh.does(&format!("set org.cenote:iscsi=on {volume}"));
        let told = format!(
            "Warning: '{volume}' is open to every user of this machine by iSCSI at addresses of loopback, and\n\
             to nobody at others, unless 'org.cenote:iscsi_chap' is set.\n"
        );
        fresh.says(&format!("set org.cenote:iscsi_initiators=any {volume}"), &told);
    }
    fresh.does(&format!("set org.cenote:iscsi_listen={theirs} fresh"));
    drop(TcpStream::connect(theirs).unwrap());
    fresh.world.check("export fresh", 0, "");
    let forget = || std::fs::remove_dir_all(fresh.world.dir.join("run/state")).unwrap();
    forget();
    fresh.world.check("import -N -d DIR fresh", 0, "");
    let opened = |address: SocketAddr| TcpStream::connect(address).is_ok();
    assert!(!opened(theirs), "what they say opens nothing");
    fresh.does(&format!("set org.cenote:iscsi_listen={ours} fresh"));
    assert!(!opened(ours) && !opened(theirs), "no volume was given out here");
    fresh.does("set org.cenote:iscsi=on fresh/v");
    assert!(opened(ours) && !opened(theirs));
    let log_in = || Initiator::log_in(ours, "iqn.a", &target_of(&fresh, "fresh/v")).err();
    assert_eq!(log_in(), Some((2, 2)), "they said who may use it");
    fresh.does("set org.cenote:iscsi_initiators=iqn.a fresh/v");
    assert_eq!(log_in(), None);
    let other = String::from_utf8(fresh.world.cenote("volumes fresh/a/w").stdout).unwrap();
    assert!(!other.contains("\tiscsi\t"), "{other}");
    // what was set here lasts, under its name or another one
    fresh.does("rename fresh/v fresh/u");
    fresh.world.check("export fresh", 0, "");
    fresh.world.check("import -N -d DIR fresh", 0, "");
    assert_eq!(Initiator::log_in(ours, "iqn.a", &target_of(&fresh, "fresh/u")).err(), None);
    // a mark is of one value, one dataset and one host
    let (mark, _) = fresh.world.zfs("get -H -o value org.cenote:iscsi_mark fresh/u");
    assert_eq!(mark.trim().len(), 64);
    fresh.does(&format!("set org.cenote:iscsi_mark={} fresh/a/w", mark.trim()));
    let other = String::from_utf8(fresh.world.cenote("volumes fresh/a/w").stdout).unwrap();
    assert!(!other.contains("\tiscsi\t"), "{other}");
    fresh.does("inherit org.cenote:iscsi fresh/u");
    fresh.says("get -H -o value org.cenote:iscsi_mark fresh/u", "-\n");
    fresh.does("set org.cenote:iscsi=on fresh/u");
    fresh.world.check("export fresh", 0, "");
    forget();
    fresh.world.check("import -N -d DIR fresh", 0, "");
    assert!(!opened(ours));
    fresh.world.check("export fresh", 0, "");
    // one that is taken in is as one that was made here
    fresh.world.check("import --adopt -N -d DIR fresh", 0, "");
    assert!(opened(ours));
    fresh.judge();
}

/// A pool that gets another guid, and one that is split from another, are the host's own still.
#[test]
fn own_pools_stay_own() {
    let fresh = Fresh::new("own");
    let address = free();
    fresh.does("create -s -V 8M fresh/v");
    for value in ["iscsi=on", "iscsi_initiators=iqn.a"] {
        fresh.does(&format!("set org.cenote:{value} fresh/v"));
    }
    fresh.does(&format!("set org.cenote:iscsi_listen={address} fresh"));
    fresh.world.check("reguid fresh", 0, "");
    fresh.world.check("export fresh", 0, "");
    fresh.world.check("import -N -d DIR fresh", 0, "");
    drop(TcpStream::connect(address).unwrap());
    std::fs::File::create(fresh.world.dir.join("b")).unwrap().set_len(256 << 20).unwrap();
    fresh.world.check("attach -w fresh DIR/a DIR/b", 0, "");
    fresh.world.check("split fresh half", 0, "");
    fresh.world.check("export fresh", 0, "");
    fresh.world.check("import -N -d DIR half", 0, "");
    drop(TcpStream::connect(address).unwrap());
    fresh.world.check("export half", 0, "");
}

/// Where a stream wants to be mounted, and its set-id bits, count if that is said here.
#[test]
fn a_stream_mounts_over_nothing() {
    if !super::can_mount("a_stream_mounts_over_nothing") {
        return;
    }
    let fresh = Fresh::new("received_mounts");
    let (top, place) = (fresh.world.dir.join("top"), fresh.world.dir.join("place"));
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("own"), "mine").unwrap();
    fresh.does("create fresh/s");
    for value in
        [format!("mountpoint={}", fresh.world.dir.join("sent").display()), "setuid=on".into(), "overlay=on".into()]
    {
        fresh.does(&format!("set {value} fresh/s"));
    }
    fresh.does("unmount fresh/s");
    fresh.does(&format!("set -u mountpoint={} fresh/s", place.display()));
    fresh.does("snapshot fresh/s@s");
    let send = |flags: &str| fresh.world.cenote(&format!("zfs send {flags} fresh/s@s")).stdout;
    fresh.does(&format!("set mountpoint={} fresh", top.display()));
    let mount = |at: &Path| {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        mounts.lines().rfind(|line| line.contains(&format!(" {} ", at.display()))).map(str::to_owned)
    };
    let receive = |name: &str, stream: &[u8]| fresh.world.zfs_with(&format!("receive {name}"), stream);
    for (name, flags) in [("with", "-p"), ("without", "")] {
        let (text, code) = receive(&format!("fresh/{name}"), &send(flags));
        assert_eq!((code, text.contains("does not count")), (0, name == "with"), "{text}");
        assert_eq!(mount(&place), None, "over what is there");
        assert!(mount(&top.join(name)).unwrap().contains("nosuid,nodev"));
        let told = format!("{}\n", top.join(name).display()).replace(fresh.world.dir.to_str().unwrap(), "DIR");
        fresh.says(&format!("get -H -o value mountpoint fresh/{name}"), &told);
    }
    let (received, _) = fresh.world.zfs("get -H -o received mountpoint fresh/with");
    assert_eq!(received, "DIR/place\n");
    // a clone has what the stream brought
    fresh.does("snapshot fresh/without@t");
    fresh.does("clone fresh/without@t fresh/clone");
    assert!(mount(&top.join("clone")).unwrap().contains("nosuid"));
    fresh.does("set setuid=on fresh/clone");
    assert!(!mount(&top.join("clone")).unwrap().contains("nosuid"), "it was said here");
    fresh.does("create fresh/home");
    assert!(!mount(&top.join("home")).unwrap().contains("nosuid"));
    // one that comes in the place of what is mounted, in whole or in part, brings no rights either
    let replace = |name: &str, send: &str| {
        assert!(!mount(&top.join(name)).unwrap().contains("nosuid"), "{name}");
        let stream = fresh.world.cenote(&format!("zfs send {send}")).stdout;
        let received = fresh.world.zfs_with(&format!("receive -F fresh/{name}"), &stream);
        assert_eq!(received, (String::new(), 0), "{name}");
        assert!(mount(&top.join(name)).unwrap().contains("nosuid,nodev"), "{name}");
    };
    replace("home", "fresh/s@s");
    // what was made here, and goes on as somebody else has it
    fresh.does("create fresh/part");
    fresh.does("snapshot fresh/part@one");
    fresh.world.receives("fresh/theirs", &fresh.world.cenote("zfs send fresh/part@one").stdout);
    fresh.does("snapshot fresh/theirs@two");
    replace("part", "-i @one fresh/theirs@two");
    // as OpenZFS has it, if that is said here
    std::fs::remove_file(place.join("own")).unwrap();
    fresh.does("set org.cenote:received=follow fresh");
    assert_eq!(receive("fresh/followed", &send("-p")), (String::new(), 0));
    assert!(!mount(&place).unwrap().contains("nosuid"));
    fresh.judge();
}

/// A pool that an older version had here, which kept no list, is not on it. Its import says so, also at boot, where file
/// systems are mounted later.
#[test]
fn a_boot_tells_of_pools_that_are_not_on_the_list() {
    let fresh = Fresh::new("boot");
    let boot = |told: &str| {
        fresh.world.check("set cachefile=DIR/cache fresh", 0, "");
        fresh.world.kill("fresh");
        fresh.world.check("import -a -N -c DIR/cache", 0, told);
    };
    boot("");
    std::fs::remove_dir_all(fresh.world.dir.join("run/state")).unwrap();
    let told = "pool 'fresh' is taken for a stranger's, as it is not on the list of this host's own pools, which older \
                versions did not keep: its set-id bits, devices, and properties that give something out do not count; if it \
                is yours, export it, and 'zpool import --adopt fresh' takes it in\n";
    boot(told);
    // again and again
    boot(told);
    fresh.world.check("export fresh", 0, "");
    fresh.world.check("import --adopt -N -d DIR fresh", 0, "");
    boot("");
}

/// What a pool is known by is more once it is upgraded.
#[test]
fn an_old_pool_stays_own_when_it_is_upgraded() {
    let world = World::new("oldown", &["fuse-v9"]);
    let boot = || {
        world.check("set cachefile=DIR/cache fuse_v9", 0, "");
        world.kill("fuse_v9");
        world.check("import -a -N -c DIR/cache", 0, "");
    };
    world.check("import --adopt -N -d DIR/fuse-v9 fuse_v9", 0, "");
    boot();
    assert!(world.zpool("upgrade fuse_v9").status.success());
    world.check("get -H -o value version fuse_v9", 0, "-\n");
    boot();
    world.check("export fuse_v9", 0, "");
}
