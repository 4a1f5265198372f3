//! `cenote cp`, `ls`, `stat` and `cat` of directories that say what no directory says.

use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::stat::{Mode, SFlag, mknod};

use super::world::{World, object_of};

/// Two files under one name, of which the first leads to something outside, and the second is to be written there.
#[test]
fn a_name_is_taken_once() {
    let Some(mut world) = World::of("copies::a_name_is_taken_once") else { return };
    let disk = world.disk();
    world.create();
    let evil = world.dir.join("in/ev/evil");
    // which of two names is found first, hashes tell: so each attack is made both ways round
    for (folder, order) in [("1", ["x", "y"]), ("2", ["y", "x"])] {
        let at = evil.join(folder);
        for name in ["file", "dir", "disk"] {
            fs::create_dir_all(at.join(name)).unwrap();
        }
        let [first, second] = order;
        symlink(world.dir.join("outside/file"), at.join("file").join(first)).unwrap();
        fs::write(at.join("file").join(second), "EVIL").unwrap();
        symlink(world.dir.join("outside/folder"), at.join("dir").join(first)).unwrap();
        fs::create_dir(at.join("dir").join(second)).unwrap();
        fs::write(at.join("dir").join(second).join("file"), "EVIL").unwrap();
        fs::write(at.join("disk").join(second), vec![b'E'; 4096]).unwrap();
        if let Some(disk) = &disk {
            let rdev = nix::sys::stat::stat(disk.as_str()).unwrap().st_rdev;
            mknod(&at.join("disk").join(first), SFlag::S_IFBLK, Mode::from_bits_truncate(0o600), rdev).unwrap();
        } else {
            fs::write(at.join("disk").join(first), "x").unwrap();
        }
    }
    world.forge(|forge, pool, _| {
        for (folder, old) in [("1", "y"), ("2", "x")] {
            for name in ["file", "dir", "disk"] {
                let (set, dir) = object_of(pool, &format!("/evil/{folder}/{name}"));
                let new = if old == "y" { "x" } else { "y" };
                forge.rename_entry(set, dir, old.as_bytes(), new.as_bytes()).unwrap();
            }
        }
    });
    for (to, options) in [("a", ""), ("b", "--dev --suid")] {
        fs::create_dir(world.dir.join("in").join(to)).unwrap();
        let copied = world.run(&format!("cp -r {options} -d DIR/img ev:/evil DIR/in/{to}"));
        assert_eq!(copied.code, Some(1), "{}", copied.err);
        assert_eq!(copied.err.matches("is there twice").count(), 6, "{}", copied.err);
        world.check();
    }
    // and again over what is there: nothing of it is written to
    let copied = world.run("cp -r --dev -d DIR/img ev:/evil DIR/in/b");
    assert!(copied.code == Some(1) && copied.err.contains("File exists"), "{}", copied.err);
    let listed = world.run("ls -r -d DIR/img ev:/evil");
    assert!(
        listed.code == Some(1) && listed.err.matches("is there twice").count() == 6,
        "{} {}",
        listed.out,
        listed.err
    );
    assert_eq!(world.run("stat -r -j --sha256 -d DIR/img ev:/evil").code, Some(1));
    world.check();
}

/// Names that lead elsewhere.
#[test]
fn impossible_names_are_damage() {
    let Some(world) = World::of("copies::impossible_names_are_damage") else { return };
    world.create();
    let evil = world.dir.join("in/ev/evil");
    fs::create_dir_all(evil.join("up")).unwrap();
    for (name, folder) in [("aaaaaaaa", "up"), ("bbbbbbbb", ""), ("cccccccc", ""), ("dddddddd", "")] {
        fs::write(evil.join(folder).join(name), "EVIL").unwrap();
    }
    fs::write(evil.join("good"), "good").unwrap();
    let names: [(&str, &str, &[u8]); 4] = [
        ("/evil/up", "aaaaaaaa", b".."),
        ("/evil", "bbbbbbbb", b"../../../outside/new"),
        ("/evil", "cccccccc", b"."),
        ("/evil", "dddddddd", b"\x1b[2J/x"),
    ];
    world.forge(|forge, pool, _| {
        for (path, old, new) in names {
            let (set, dir) = object_of(pool, path);
            forge.rename_entry(set, dir, old.as_bytes(), new).unwrap();
        }
    });
    fs::create_dir(world.dir.join("in/copy")).unwrap();
    let copied = world.run("cp -r -d DIR/img ev:/evil DIR/in/copy");
    assert_eq!(copied.code, Some(1));
    assert_eq!(fs::read(world.dir.join("in/copy/evil/good")).unwrap(), b"good");
    let listed = world.run("ls -r -d DIR/img ev:/evil");
    for done in [copied, listed] {
        assert!(done.err.contains("impossible name") && !done.err.contains('\x1b'), "{}", done.err);
    }
    let imported = world.run("zpool import -f -d DIR/img -R DIR/in ev");
    assert_eq!(imported.code, Some(0), "{}", imported.err);
    let names: Vec<_> = evil.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    world.check();
}

/// Values that move the cursor are shown to people as they are written down, and to scripts as they are.
#[test]
fn nothing_moves_the_cursor() {
    let Some(world) = World::of("copies::nothing_moves_the_cursor") else { return };
    world.create();
    let value = "x\x1b[2Jy\x07";
    world.done(&format!("zfs set a:b={value} ev"));
    let shown = "x\\033[2Jy\\007";
    for line in ["zfs get a:b ev", "zfs list -o name,a:b", "zpool history ev", "zpool history -il ev"] {
        let out = world.done(line);
        assert!(out.contains(shown) && !out.contains('\x1b'), "{line}: {out:?}");
    }
    assert_eq!(world.done("zfs get -Ho value a:b ev"), format!("{value}\n"));
    let wrong = world.run(&format!("zfs get a:b ev/{value}"));
    assert!(!wrong.err.contains('\x1b') && wrong.code == Some(1), "{}", wrong.err);
    world.done("zpool export ev");
    for line in ["zdb -e -p DIR/img -h ev", "zdb -e -p DIR/img -dddd ev", "inspect mos -d DIR/img ev"] {
        let done = world.run(line);
        assert!(!(done.out + &done.err).contains('\x1b'), "{line}");
    }
    world.check();
}
