//! Projects and flags of files in a mounted file system: `zfs project`, what chattr(1) sets, limits of projects.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use fuse::Project;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::suspended::{noise, write};
use super::{World, can_mount};

/// A world with pool `fresh` mounted at DIR/mnt/fresh. `None`, loudly, where nothing can be mounted.
fn mounted(name: &str) -> Option<World> {
    if !can_mount(name) {
        return None;
    }
    let world = World::new(name, &[]);
    File::create(world.dir.join("a")).unwrap().set_len(256 << 20).unwrap();
    world.check("create -o cachefile=none -O compression=off -R DIR/mnt fresh DIR/a", 0, "");
    Some(world)
}

fn done(world: &World, line: &str, expect: &str) {
    assert_eq!(world.zfs(line), (expect.to_owned(), 0), "{line}");
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// What a pool without leaks and with right sums gives.
fn check_blocks(world: &World) {
    world.check("export fresh", 0, "");
    let output = world.cenote("zdb -e -p DIR -bcc fresh");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("No leaks"), "{text}");
}

#[test]
fn projects_are_set_listed_and_handed_on() {
    let Some(world) = mounted("projects") else { return };
    let top = world.dir.join("mnt/fresh");
    fs::create_dir_all(top.join("tree/sub")).unwrap();
    for file in ["other", "tree/file", "tree/sub/deep"] {
        fs::write(top.join(file), file).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", top.join("tree/link")).unwrap();
    let t = "DIR/mnt/fresh/tree";
    let sorted = |line: &str| {
        let (text, code) = world.zfs(line);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        (lines.join("\n").replace(t, "T"), code)
    };
    done(&world, &format!("project -d {t}"), &format!("    0 - {t}\n"));
    assert_eq!(sorted(&format!("project {t}")).0, "    0 - T\n    0 - T/file\n    0 - T/sub");
    done(&world, &format!("project -p 0x10 -s {t}"), "");
    assert_eq!(sorted(&format!("project {t}")).0, "    0 - T/file\n    0 - T/sub\n   16 P T");
    let unlike = "project ID is not set properly (0/16)";
    let unset = "project inherit flag is not set";
    let expect = format!("T/file - {unlike}\nT/file - {unset}\nT/sub - {unlike}\nT/sub - {unset}");
    assert_eq!(sorted(&format!("project -c {t}")), (expect, 0));
    assert_eq!(sorted(&format!("project -c -0 -r {t}")).0.split('\0').filter(|name| !name.is_empty()).count(), 3);
    // of a tree: what the top has
    done(&world, &format!("project -r -s {t}"), "");
    done(&world, &format!("project -c -r {t}"), "");
    fs::write(top.join("tree/sub/new"), "new").unwrap();
    let all = sorted(&format!("project -r {t}")).0;
    assert_eq!(all, "   16 P T\n   16 P T/file\n   16 P T/sub\n   16 P T/sub/deep\n   16 P T/sub/new");
    let into = top.join("tree/other");
    assert_eq!(errno(fs::rename(top.join("other"), &into)), libc::EXDEV);
    assert_eq!(errno(fs::hard_link(top.join("other"), &into)), libc::EXDEV);
    fs::rename(top.join("tree/link"), top.join("tree/sub/link")).unwrap();
    done(&world, &format!("project -C -k {t}/sub"), "");
    done(&world, &format!("project -C {t}/sub/new"), "");
    let all = sorted(&format!("project -r {t}/sub")).0;
    assert_eq!(all, "    0 - T/sub/new\n   16 - T/sub\n   16 P T/sub/deep");
    world.check("sync fresh", 0, "");
    assert_eq!(world.zfs("get -Hpo value projectobjused@16 fresh"), ("4\n".into(), 0));
    check_blocks(&world);
}

#[test]
fn what_makes_no_sense_or_is_not_ones_own() {
    let Some(world) = mounted("projwords") else { return };
    let file = world.dir.join("mnt/fresh/file");
    fs::write(&file, "file").unwrap();
    for (line, why) in [
        ("", ""),
        ("-d -C x", "'-d' is useless together with '-C'\n"),
        ("-p 1 -C x", "'-p' is useless together with '-C'\n"),
        ("-k x", "'-k' is only valid together with '-C'\n"),
        ("-0 -p 1 x", "'-0' is only valid together with '-c'\n"),
        ("-c -s x", "cannot specify '-C' '-c' '-s' together\n"),
        ("-p 4294967295 x", "invalid project ID\n"),
        ("-p one x", "project ID must be less than 4294967295\n"),
        ("-s", "missing file or directory target(s)\n"),
    ] {
        let (text, code) = world.zfs(&format!("project {line}"));
        assert!(code == 2 && text.starts_with(&format!("{why}usage:\n\tproject [-d|-r]")), "{line}: {text}");
    }
    let said = |line: &str, why: &str| assert_eq!(world.zfs(line), (format!("{why}\n"), 255));
    said("project DIR/nothing", "failed to stat DIR/nothing: No such file or directory");
    let f = "DIR/mnt/fresh/file";
    said(&format!("project -r {f}"), &format!("'-r' option on non-dir target {f}"));
    said("project /dev/null", "only support project quota on regular file or directory");

    // as an ordinary user: one's own files only
    fs::set_permissions(&world.dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let as_nobody = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(["zfs", "project", "-p", "99"]).arg(&file).uid(65534).gid(65534);
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    assert!(as_nobody().ends_with(": Operation not permitted\n"), "{}", as_nobody());
    std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
    assert_eq!(as_nobody(), "");
    assert_eq!(Project::of(&File::open(&file).unwrap()).unwrap(), Project { id: 99, is_handed_on: false });
    world.check("export fresh", 0, "");
}

#[test]
fn limits_of_projects_hold() {
    let Some(world) = mounted("projquota") else { return };
    let top = world.dir.join("mnt/fresh");
    fs::create_dir(top.join("tree")).unwrap();
    done(&world, "project -p 7 -s DIR/mnt/fresh/tree", "");
    let fill = |name: &str, bytes| write(&top.join(name), &noise(bytes, 7));
    let sync = || world.check("sync fresh", 0, "");
    let used_up = |name: &str| assert_eq!(errno(fill(name, 1000)), libc::EDQUOT, "{name}");

    for (own, all) in [("projectquota@7", "defaultprojectquota"), ("projectobjquota@7", "defaultprojectobjquota")] {
        for property in [own, all] {
            let limit = if property.contains("obj") { "3" } else { "1M" };
            done(&world, &format!("set {property}={limit} fresh"), "");
            fill("tree/b", 1000).unwrap();
            fill("tree/a", 1 << 20).unwrap();
            sync();
            used_up("tree/c");
            // a limit of bytes is one of those that are there, too
            if !property.contains("obj") {
                let mut file = File::options().append(true).open(top.join("tree/b")).unwrap();
                assert_eq!(errno(file.write_all(b"more")), libc::EDQUOT);
            }
            // what is made elsewhere is not limited, but comes in no other way
            fill("c", 1000).unwrap();
            assert_eq!(
                errno(Project { id: 7, is_handed_on: false }.give(&File::open(top.join("c")).unwrap())),
                libc::EDQUOT
            );
            let space = nix::sys::statvfs::statvfs(&top.join("tree")).unwrap();
            match limit {
                "3" => assert_eq!((space.files(), space.files_free()), (3, 0)),
                _ => assert_eq!((space.blocks() * space.block_size(), space.blocks_free()), (1 << 20, 0)),
            }
            done(&world, &format!("set {property}=none fresh"), "");
            fill("tree/c", 1000).unwrap();
            ["tree/a", "tree/b", "tree/c", "c"].iter().for_each(|name| fs::remove_file(top.join(name)).unwrap());
            sync();
        }
    }
    // one's own limit comes before that of all
    done(&world, "set defaultprojectobjquota=1 projectobjquota@7=9 fresh", "");
    fill("tree/a", 1000).unwrap();
    sync();
    fill("tree/b", 1000).unwrap();
    check_blocks(&world);
}

#[test]
fn flags_hold_and_outlive_a_crash() {
    let Some(world) = mounted("flags") else { return };
    let top = world.dir.join("mnt/fresh");
    let (name, log) = (top.join("fixed"), top.join("log"));
    fs::write(&name, "as it was").unwrap();
    fs::write(&log, "one\n").unwrap();
    fs::create_dir(top.join("tree")).unwrap();
    let open = |path: &Path| File::open(path).unwrap();
    let set = |path: &Path, flags: IFlags| ioctl_setflags(open(path), flags).map_err(std::io::Error::from);
    set(&name, IFlags::IMMUTABLE | IFlags::NODUMP).unwrap();
    set(&log, IFlags::APPEND).unwrap();
    assert_eq!(errno(set(&log, IFlags::COMPRESSED)), libc::EOPNOTSUPP);
    assert_eq!(ioctl_getflags(open(&name)).unwrap(), IFlags::IMMUTABLE | IFlags::NODUMP);
    let check = || {
        assert_eq!(errno(fs::write(&name, "changed")), libc::EPERM);
        assert_eq!(errno(fs::remove_file(&name)), libc::EPERM);
        assert_eq!(errno(fs::rename(&name, top.join("moved"))), libc::EPERM);
        assert_eq!(errno(fs::hard_link(&name, top.join("linked"))), libc::EPERM);
        assert_eq!(errno(std::os::unix::fs::chown(&name, Some(1), None)), libc::EPERM);
        assert_eq!(errno(fs::write(&log, "changed")), libc::EPERM);
        File::options().append(true).open(&log).unwrap().write_all(b"more\n").unwrap();
        assert_eq!(fs::read_to_string(&name).unwrap(), "as it was");
    };
    check();
    done(&world, "project -p 31 -s DIR/mnt/fresh/tree", "");
    fs::write(top.join("tree/new"), "new").unwrap();
    open(&top.join("tree/new")).sync_all().unwrap();
    world.kill("fresh");
    world.check("import -d DIR -o cachefile=none -R DIR/mnt fresh", 0, "");
    check();
    done(&world, "project -r DIR/mnt/fresh/tree", "   31 P DIR/mnt/fresh/tree\n   31 P DIR/mnt/fresh/tree/new\n");
    set(&name, IFlags::empty()).unwrap();
    fs::remove_file(&name).unwrap();
    check_blocks(&world);
}

#[test]
fn without_the_feature_there_are_no_projects() {
    let Some(world) = mounted("noprojects") else { return };
    world.check("destroy fresh", 0, "");
    world.check("create -o cachefile=none -o feature@project_quota=disabled -R DIR/mnt fresh DIR/a", 0, "");
    let why = "failed to set xattr for DIR/mnt/fresh: Operation not supported\n";
    assert_eq!(world.zfs("project -p 3 DIR/mnt/fresh"), (why.into(), 255));
    assert_eq!(world.zfs("project -s DIR/mnt/fresh"), (why.into(), 255));
    done(&world, "project DIR/mnt/fresh", "    0 - DIR/mnt/fresh\n");
    let (text, code) = world.zfs("set projectquota@3=1M fresh");
    assert!(code == 1 && text.starts_with("cannot set property for 'fresh': "), "{text}");
    world.check("export fresh", 0, "");
}
