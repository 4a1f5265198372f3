//! Ordinary users' pools: file systems below one another.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::world::{Done, World};

fn as_nobody(world: &World, line: &str) -> Done {
    let line = world.text(line);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(env!("CARGO_BIN_EXE_cenote"));
    command.args(line.split_whitespace()).current_dir("/").env("CENOTE_RUN", world.dir.join("in/run"));
    world.finish(command, &line)
}

/// With and without the line in `/etc/fuse.conf` that lets fusermount3 into the mount above.
#[test]
fn file_systems_of_a_user_lie_in_one_another() {
    let Some(world) = World::of("users::file_systems_of_a_user_lie_in_one_another") else { return };
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|done| done.status.success());
    let can_run = as_nobody(&world, "--version").code == Some(0);
    if !has("setpriv") || !has("fusermount3") || !can_run {
        eprintln!("SKIPPED {}: needs root, setpriv, fusermount3, and a build that user nobody may run", file!());
        return;
    }
    for folder in ["", "in"] {
        fs::set_permissions(world.dir.join(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let conf = world.dir.join("in/fuse.conf");
    fs::write(&conf, "#user_allow_other\n").unwrap();
    let bind = |what: &[&str]| Command::new("mount").args(what).status().unwrap();
    assert!(bind(&["--bind", conf.to_str().unwrap(), "/etc/fuse.conf"]).success());
    let home = world.dir.join("in/home");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
    fs::File::create(home.join("img")).unwrap().set_len(128 << 20).unwrap();
    std::os::unix::fs::chown(home.join("img"), Some(65534), Some(65534)).unwrap();
    std::os::unix::fs::chown(world.dir.join("in"), Some(65534), Some(65534)).unwrap();

    let made = as_nobody(&world, "zpool create -o cachefile=none -m DIR/in/home/m ev DIR/in/home/img");
    assert_eq!((made.code, &*made.err), (Some(0), ""));
    // the reason of who refused it, and what would help
    let below = as_nobody(&world, "zfs create ev/x");
    assert_eq!(below.code, Some(1));
    for word in ["Insufficient privileges", "fusermount3: failed to access mountpoint", "user_allow_other"] {
        assert!(below.err.contains(word), "'{word}' in: {}", below.err);
    }
    assert_eq!(as_nobody(&world, "zpool export ev").code, Some(0));

    fs::write(&conf, "user_allow_other\n").unwrap();
    let imported = as_nobody(&world, "zpool import -o cachefile=none -d DIR/in/home/img ev");
    assert_eq!((imported.code, &*imported.err), (Some(0), ""));
    let made = as_nobody(&world, "zfs create ev/x/y -p");
    assert_eq!((made.code, &*made.err), (Some(0), ""));
    for path in ["DIR/in/home/m", "DIR/in/home/m/x", "DIR/in/home/m/x/y"] {
        let flags = world.mounted_at(path).unwrap_or_else(|| panic!("nothing is mounted at {path}"));
        assert!(flags.contains("nosuid") && flags.contains("nodev"), "{path}: {flags}");
    }
    assert_eq!(as_nobody(&world, "zpool export ev").code, Some(0));
    assert!(bind_off());
}

/// The folder for sockets of a user without a session is in `/tmp`, where anybody may have made it before.
#[test]
fn a_folder_that_another_user_made_is_not_used() {
    let Some(world) = World::of("users::a_folder_that_another_user_made_is_not_used") else { return };
    if as_nobody(&world, "--version").code != Some(0) {
        eprintln!("SKIPPED {}: needs root, setpriv, and a build that user nobody may run", file!());
        return;
    }
    const UID: u32 = 54_321;
    let folder = std::path::PathBuf::from(format!("/tmp/cenote-{UID}"));
    // of this mount namespace only; the program may have been built below /tmp
    let mount = |args: [&str; 4]| assert!(Command::new("mount").args(args).status().unwrap().success(), "{args:?}");
    const PROGRAM: &str = "/mnt/cenote";
    mount(["-t", "tmpfs", "tmp", "/mnt"]);
    fs::File::create(PROGRAM).unwrap();
    mount(["-o", "bind", env!("CARGO_BIN_EXE_cenote"), PROGRAM]);
    mount(["-t", "tmpfs", "tmp", "/tmp"]);
    let run = |line: &str| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={UID}"), "--regid=54321", "--clear-groups"]);
        command.arg(PROGRAM).args(line.split(' ')).current_dir("/");
        command.env_remove("CENOTE_RUN").env_remove("XDG_RUNTIME_DIR");
        let done = command.output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    fs::create_dir(&folder).unwrap();
    for (owner, mode, why) in [
        (Some(1), 0o700, "ermission denied"),
        (Some(1), 0o777, "it belongs to another user; CENOTE_RUN names another folder"),
        (Some(UID), 0o770, "other users have access to it"),
        (Some(UID), 0o700, ""),
    ] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&folder, owner, owner).unwrap();
        let (code, said) = run("zpool list");
        let is_told = match why {
            "" => code == Some(0) && !said.contains("cannot use"),
            why => code == Some(1) && said.contains("cannot use /tmp/cenote-54321: ") && said.contains(why),
        };
        assert!(is_told, "{owner:?} {mode:o}: {code:?} {said}");
    }
    fs::remove_dir(&folder).unwrap();
    fs::create_dir("/tmp/real").unwrap();
    std::os::unix::fs::chown("/tmp/real", Some(UID), Some(UID)).unwrap();
    std::os::unix::fs::symlink("/tmp/real", &folder).unwrap();
    let (code, said) = run("zpool list");
    assert!(code == Some(1) && said.contains("cannot use /tmp/cenote-54321: "), "{code:?} {said}");
    assert!(Command::new("umount").arg("/tmp").status().unwrap().success());
}

fn bind_off() -> bool {
    Command::new("umount").arg("/etc/fuse.conf").status().is_ok_and(|status| status.success())
}
