//! Properties whose values are refused: what needs a feature that the pool lacks, and what is not done.

use std::sync::Arc;

use device::{Device, FileDevice, OpenMode};
use format::ids::ObjectId;
use testkit::seal::{Atlas, Forge};

use super::World;
use super::snapshots::Fresh;

/// Values, each with the feature that it needs.
const NEED_FEATURES: [(&str, &str); 8] = [
    ("compression=zstd", "zstd_compress"),
    ("compression=lz4", "lz4_compress"),
    ("checksum=sha512", "sha512"),
    ("checksum=skein", "skein"),
    ("checksum=edonr", "edonr"),
    ("checksum=blake3", "blake3"),
    ("dnodesize=auto", "large_dnode"),
    ("recordsize=1M", "large_blocks"),
];

#[test]
fn values_wait_for_their_feature() {
    let world = World::new("features", &[]);
    std::fs::File::create(world.dir.join("a")).unwrap().set_len(128 << 20).unwrap();
    let words = |value: &str, who: &str| match value {
        "recordsize=1M" => "'recordsize' must be power of 2 from 512B to 128K\n".to_owned(),
        _ => format!("{who} must be upgraded to set this property or value\n"),
    };
    // grub2 has large blocks and lz4
    let grub =
        |feature| if matches!(feature, "large_blocks" | "lz4_compress") { "-d" } else { "-o compatibility=grub2" };
    for (value, feature) in NEED_FEATURES {
        let why = format!("cannot create 'fresh': {}", words(value, "pool and or dataset"));
        for lacking in ["-d", grub(feature), &format!("-o feature@{feature}=disabled")] {
            for dry in ["", "-n "] {
                world.check(&format!("create {dry}{lacking} -O mountpoint=none -O {value} fresh DIR/a"), 1, &why);
            }
        }
    }
    world.check("list", 0, "no pools available\n");
    world.check("labelclear DIR/a", 1, "failed to read label from DIR/a\n");
    world.check("create -d -O mountpoint=none fresh DIR/a", 0, "");
    for (value, feature) in NEED_FEATURES {
        let why = format!("cannot set property for 'fresh': {}", words(value, "pool and or dataset"));
        assert_eq!(world.zfs(&format!("set atime=off {value} fresh")), (why, 1));
        let why = format!("cannot create 'fresh/a/b': {}", words(value, "pool"));
        assert_eq!(world.zfs(&format!("create -p -o {value} fresh/a/b")), (why, 1));
        assert_eq!(world.zfs("list -Ho name"), ("fresh\n".into(), 0));
        world.check(&format!("set feature@{feature}=enabled fresh"), 0, "");
        assert_eq!(world.zfs(&format!("set {value} fresh")), (String::new(), 0));
    }
    assert_eq!(world.zfs("get -Ho value atime fresh"), ("on\n".into(), 0), "all of a line is refused, or nothing");
    assert_eq!(world.zfs("create fresh/b"), (String::new(), 0));
    world.check("export fresh", 0, "");
}

#[test]
fn what_keeps_file_systems_unmounted() {
    let world = World::new("unmounted", &[]);
    std::fs::File::create(world.dir.join("a")).unwrap().set_len(128 << 20).unwrap();
    world.check("create -R DIR/mnt -O canmount=off fresh DIR/a", 0, "");
    for (property, why) in [
        ("canmount=off", "'canmount' property is set to 'off'"),
        ("zoned=on", "dataset is exported to a local zone"),
        ("mountpoint=none", "no mountpoint set"),
    ] {
        assert_eq!(world.zfs(&format!("create -o {property} fresh/x")), (String::new(), 0));
        assert_eq!(world.zfs("mount fresh/x"), (format!("cannot mount 'fresh/x': {why}\n"), 1));
        assert_eq!(world.zfs("destroy fresh/x"), (String::new(), 0));
    }
    assert!(!world.dir.join("mnt/fresh/x").exists());
    world.check("export fresh", 0, "");
}

#[test]
fn unmounting_all_goes_from_pool_to_pool() {
    let world = World::new("below", &[]);
    for name in ["a", "b"] {
        std::fs::File::create(world.dir.join(name)).unwrap().set_len(128 << 20).unwrap();
    }
    world.check("create -R DIR/mnt one DIR/a", 0, "");
    assert_eq!(world.zfs("create one/x"), (String::new(), 0));
    world.check("create -R DIR/mnt -O mountpoint=/one/x/y two DIR/b", 0, "");
    assert!(world.zfs("mount").0.contains("two "), "the file system of one pool is below that of another");
    assert_eq!(world.zfs("unmount -a"), (String::new(), 0));
    assert_eq!(world.zfs("mount"), (String::new(), 0));
    world.check("export one", 0, "");
    world.check("export two", 0, "");
}

/// What is unmounted by hand may be mounted at the same folder again, by whatever means.
#[test]
fn the_folder_of_what_is_unmounted_stays() {
    let world = World::new("folder", &[]);
    std::fs::File::create(world.dir.join("a")).unwrap().set_len(128 << 20).unwrap();
    world.check("create -R DIR/mnt one DIR/a", 0, "");
    let does = |line: &str| assert_eq!(world.zfs(line), (String::new(), 0), "{line}");
    let is_there = |path: &str| world.dir.join("mnt").join(path).exists();
    for line in ["create one/x", "create one/z", "create -o mountpoint=/chosen one/y", "unmount one/x"] {
        does(line);
    }
    assert!(is_there("one/x"));
    does("mount one/x");
    // what is below a file system goes with it, wherever it is mounted
    does("create -o mountpoint=/elsewhere one/z/below");
    for name in ["x", "y", "z"] {
        does(&format!("unmount one/{name}"));
    }
    assert!(!world.zfs("mount").0.contains("one/z"));
    does("destroy one/z/below");
    does("destroy one/x");
    does("destroy one/y");
    assert!(!is_there("one/x") && is_there("chosen") && is_there("one/z"));
    world.check("export one", 0, "");
    world.check("import -d DIR -R DIR/mnt -o readonly=on one", 0, "");
    assert!(world.zfs("mount").0.contains("one/z "), "{}", world.zfs("mount").0);
    world.check("export one", 0, "");
}

#[test]
fn a_file_system_of_an_old_version_stays_one() {
    let world = World::new("old", &[]);
    let disk = world.dir.join("a");
    std::fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    world.check("create -R DIR/mnt -O canmount=off fresh DIR/a", 0, "");
    assert_eq!(world.zfs("create -o canmount=noauto fresh/old"), (String::new(), 0));
    let (id, _) = world.zfs("get -Hpo value objsetid fresh/old");
    world.check("export fresh", 0, "");
    {
        let device: [Arc<dyn Device>; 1] =
            [Arc::new(FileDevice::open(disk.to_str().unwrap(), OpenMode::ReadWrite).unwrap())];
        let atlas = Atlas::of(&device).unwrap();
        let mut forge = Forge::new(&atlas);
        let master_node = ObjectId::new(1);
        forge.set_entry(id.trim().parse().unwrap(), master_node, b"VERSION", 8, &4u64.to_be_bytes()).unwrap();
        forge.seal(&device).unwrap();
    }
    world.check("import -R DIR/mnt -d DIR fresh", 0, "");
    assert_eq!(world.zfs("get -Ho value version fresh/old"), ("4\n".into(), 0));
    assert_eq!(world.zfs("set version=4 fresh/old"), (String::new(), 0));
    assert_eq!(world.zfs("set version=5 fresh/old"), (String::new(), 0));
    assert_eq!(world.zfs("get -Ho value version fresh/old"), ("5\n".into(), 0));
    let words = "cannot set property for 'fresh/old': Can not downgrade; already at version 5\n".to_owned();
    assert_eq!(world.zfs("set version=4 fresh/old"), (words, 1));
    world.check("export fresh", 0, "");
}

#[test]
fn what_is_not_done_is_refused() {
    let world = World::new("refused", &[]);
    std::fs::File::create(world.dir.join("a")).unwrap().set_len(128 << 20).unwrap();
    world.check("create -O mountpoint=none fresh DIR/a", 0, "");
    let no = |what: &str| format!("{what} is not supported by this version");
    for (value, why) in [
        ("sharenfs=on", no("'sharenfs': sharing over NFS")),
        ("sharesmb=on", no("'sharesmb': sharing over SMB")),
        ("context=a:b:c:s0", no("'context': mounting with SELinux contexts")),
        ("longname=on", no("'longname': names of more than 255 bytes")),
        ("zoned_uid=7", "invalid property 'zoned_uid'".into()),
        ("version=4", "Can not downgrade; already at version 5".into()),
    ] {
        assert_eq!(world.zfs(&format!("set {value} fresh")), (format!("cannot set property for 'fresh': {why}\n"), 1));
    }
    // nothing is left of what cannot be made
    let why = no("'sharenfs': sharing over NFS");
    assert_eq!(world.zfs("create -o sharenfs=on fresh/no"), (format!("cannot create 'fresh/no': {why}\n"), 1));
    assert_eq!(world.zfs("list -Ho name"), ("fresh\n".into(), 0));
    assert_eq!(world.zfs("create -o version=4 fresh/old"), (String::new(), 0));
    assert_eq!(world.zfs("get -Ho value version fresh/old"), ("4\n".into(), 0));
    assert_eq!(world.zfs("destroy fresh/old"), (String::new(), 0));
    // and what says what is so is taken
    let good = "sharenfs=off sharesmb=off context=none volmode=none snapdev=hidden version=5 defaultuserquota=1G";
    assert_eq!(world.zfs(&format!("set {good} fresh")), (String::new(), 0));
    assert_eq!(world.zfs("get -Hpo value defaultuserquota fresh"), ("1073741824\n".into(), 0));
    assert_eq!(world.zfs("set defaultuserquota=none fresh"), (String::new(), 0));
    assert_eq!(world.zfs("get -Hpo value defaultuserquota fresh"), ("0\n".into(), 0));
    world.check("export fresh", 0, "");
}

/// What is new is not there without them.
#[test]
fn limits_of_users_are_given_to_what_is_new() {
    let world = World::new("limits", &[]);
    std::fs::File::create(world.dir.join("a")).unwrap().set_len(128 << 20).unwrap();
    world.check("create -O mountpoint=none fresh DIR/a", 0, "");
    let limited = "-o userquota@7=1G -o projectobjquota@8=9";
    let limits = "get -Hpo value userquota@7,projectobjquota@8";
    assert_eq!(world.zfs(&format!("create {limited} fresh/limited")), (String::new(), 0));
    assert_eq!(world.zfs(&format!("{limits} fresh/limited")), ("1073741824\n9\n".into(), 0));
    assert_eq!(world.zfs("snapshot fresh/limited@one"), (String::new(), 0));
    assert_eq!(world.zfs(&format!("clone {limited} -o groupquota@9=2M fresh/limited@one fresh/clone")).1, 0);
    assert_eq!(world.zfs("get -Hpo value groupquota@9 fresh/clone"), ("2097152\n".into(), 0));
    let refused = "cannot create 'fresh/no': 'userquota@nobody-at-all' has an invalid user/group name\n";
    assert_eq!(world.zfs("create -o userquota@nobody-at-all=1 fresh/no"), (refused.into(), 1));
    let refused = "cannot create 'fresh/no': 'userused@7' is readonly\n";
    assert_eq!(world.zfs("create -o userused@7=1 fresh/no"), (refused.into(), 1));
    assert_eq!(world.zfs("destroy -R fresh/limited"), (String::new(), 0));
    world.check("export fresh", 0, "");
}

/// The type of ACLs changes in place, whatever is mounted below or in use.
#[test]
fn the_type_of_acls_changes_in_place() {
    let fresh = Fresh::new("anew");
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    fresh.does("create fresh/a/b/c");
    fresh.does(&format!("create -o mountpoint={}/b/other fresh/other", point.display()));
    fresh.does("mount -o noatime,remount fresh/a/b");
    std::fs::write(point.join("b/c/file"), "contents").unwrap();
    let mounted = || std::fs::read_to_string("/proc/self/mountinfo").unwrap().matches(point.to_str().unwrap()).count();
    let before = mounted();
    assert!(before >= 3);
    let file = std::fs::File::open(point.join("b/c/file")).unwrap();
    fresh.does("set acltype=posix fresh/a");
    assert_eq!(mounted(), before);
    assert_eq!(std::fs::read_to_string(point.join("b/c/file")).unwrap(), "contents");
    fresh.says("get -Ho value,source atime fresh/a/b", "off\ttemporary\n");
    fresh.says("get -Ho value,source acltype fresh/a/b", "posix\tinherited from fresh/a\n");
    fresh.does("inherit acltype fresh/a");
    fresh.does("set acltype=off fresh/a");
    assert_eq!(mounted(), before);
    drop(file);
}
