//! Limits of how many file systems and snapshots there are, versions of file systems: what is told of them.

use super::World;
use super::snapshots::Fresh;

/// The counts of a file system, as numbers or `none`.
fn counts(fresh: &Fresh, name: &str) -> String {
    let (text, _) = fresh.world.zfs(&format!("get -Ho value filesystem_count,snapshot_count {name}"));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn counting_begins_with_a_limit() {
    let fresh = Fresh::new("counts");
    fresh.does("snapshot -r fresh@one");
    assert_eq!(counts(&fresh, "fresh/a"), "none none");
    fresh.world.check("get -Ho value feature@filesystem_limits fresh", 0, "enabled\n");
    fresh.does("set filesystem_limit=none fresh/a");
    assert_eq!(counts(&fresh, "fresh/a"), "none none");
    fresh.does("set snapshot_limit=2 fresh/a");
    fresh.world.check("get -Ho value feature@filesystem_limits fresh", 0, "active\n");
    fresh.says("get -Ho value,source snapshot_limit fresh/a", "2\tlocal\n");
    assert_eq!([counts(&fresh, "fresh/a"), counts(&fresh, "fresh/a/b")], ["1 2", "0 1"]);
    assert_eq!([counts(&fresh, "fresh"), counts(&fresh, "fresh/c")], ["none none", "none none"]);

    // an administrator may change the limit, and is not stopped by it
    fresh.does("snapshot -r fresh/a@two");
    fresh.does("create -o filesystem_limit=0 fresh/a/b/d");
    fresh.does("clone fresh/a@one fresh/a/clone");
    assert_eq!([counts(&fresh, "fresh/a"), counts(&fresh, "fresh/a/b")], ["3 4", "1 2"]);
    assert_eq!(counts(&fresh, "fresh/a/b/d"), "0 0");
    // what was not counted is, where it is moved to
    fresh.does("create fresh/c/below");
    fresh.does("snapshot fresh/c/below@x");
    fresh.does("rename fresh/c fresh/a/c");
    assert_eq!([counts(&fresh, "fresh/a"), counts(&fresh, "fresh/a/c")], ["5 6", "1 2"]);
    fresh.does("rename fresh/a/b fresh/b");
    assert_eq!([counts(&fresh, "fresh/a"), counts(&fresh, "fresh/b")], ["3 4", "1 2"]);
    fresh.does("promote fresh/a/clone");
    assert_eq!([counts(&fresh, "fresh/a"), counts(&fresh, "fresh/a/clone")], ["3 4", "0 1"]);
    fresh.does("destroy -r fresh/a/c");
    fresh.does("destroy fresh/a@two");
    assert_eq!(counts(&fresh, "fresh/a"), "1 1");
    fresh.does("set snapshot_limit=none fresh/a");
    fresh.says("get -Ho value,source snapshot_limit fresh/a", "none\tlocal\n");
    fresh.judge();

    let world = World::new("uncounted", &[]);
    std::fs::File::create(world.dir.join("a")).unwrap().set_len(128 << 20).unwrap();
    world.check("create -d -O mountpoint=none fresh DIR/a", 0, "");
    let old = "cannot set property for 'fresh': pool and or dataset must be upgraded to set this property or value\n";
    assert_eq!(world.zfs("set filesystem_limit=2 fresh"), (old.to_owned(), 1));
    assert_eq!(world.zfs("set filesystem_limit=none fresh"), (String::new(), 0));
}

#[test]
fn versions_of_file_systems() {
    let fresh = Fresh::new("versions");
    let running = "This system is currently running ZFS filesystem version 5.\n\n";
    fresh.says("upgrade", &format!("{running}All filesystems are formatted with the current version.\n"));
    fresh.says("upgrade -a", "0 filesystems upgraded\n4 filesystems already at this version\n");
    fresh.says("upgrade -r fresh/a", "0 filesystems upgraded\n2 filesystems already at this version\n");
    fresh.says("upgrade fresh/a", "0 filesystems upgraded\n1 filesystems already at this version\n");
    let newer = "fresh/a: can not be downgraded; it is already at version 5\n0 filesystems upgraded\n";
    fresh.fails("upgrade -V 4 fresh/a", newer);
    fresh.fails("upgrade fresh/none", "0 filesystems upgraded\ncannot open 'fresh/none': dataset does not exist\n");
    for (line, why) in [("upgrade -r", ""), ("upgrade -V 6 fresh", "invalid version 6\n"), ("upgrade -va", "")] {
        let (text, code) = fresh.world.zfs(line);
        assert!(code == 2 && text.starts_with(why) && text.contains("usage:\n\tupgrade [-v]\n"), "{line}: {text}");
    }
    let (versions, _) = fresh.world.zfs("upgrade -v");
    assert!(versions.contains("\n 1   Initial ZFS filesystem version\n 2   Enhanced"), "{versions}");

    let world = World::new("oldfs", &["fuse-v9"]);
    let pool = "fuse_v9";
    world.check("import -o readonly=on -N -d DIR/fuse-v9 fuse_v9", 0, "");
    let (text, code) = world.zfs("upgrade");
    assert_eq!(code, 0);
    let (head, rows) = text.split_once("VER  FILESYSTEM\n---  ------------\n").unwrap();
    assert!(head.starts_with(running) && head.ends_with("accessible by older software versions.\n\n\n"), "{text}");
    assert!(rows.lines().next().unwrap().ends_with(&format!("   {pool}")), "{text}");
    let (text, code) = world.zfs(&format!("upgrade {pool}"));
    let old = "fuse_v9: can not be upgraded; the pool version needs to first be upgraded\nto version 24\n\n\
               0 filesystems upgraded\n";
    assert_eq!((text.as_str(), code), (old, 1));
    world.check("export fuse_v9", 0, "");

    world.check("import -f -N -d DIR/fuse-v9 fuse_v9", 0, "");
    let (text, code) = world.zfs(&format!("upgrade {pool}"));
    assert_eq!((text.as_str(), code), (old, 1));
    world.check("set version=15 fuse_v9", 0, "");
    world.check("get -Ho value version fuse_v9", 0, "15\n");
    let down = "cannot set property for 'fuse_v9': the pool is of version 15, and cannot become one of version 14\n";
    world.check("set version=14 fuse_v9", 1, down);
    let done = "This system supports ZFS pool feature flags.\n\n\
                Successfully upgraded 'fuse_v9' from version 15 to version 28.\n\n";
    world.check("upgrade -V 28 fuse_v9", 0, done);
    let (text, code) = world.zfs(&format!("upgrade {pool}"));
    assert_eq!((text.as_str(), code), ("1 filesystems upgraded\n", 0));
    assert_eq!(world.zfs(&format!("get -Ho value version {pool}")), ("5\n".into(), 0));
    world.check("export fuse_v9", 0, "");
}
