//! Mounts that mount(8) makes: legacy file systems, snapshots, fstab(5), and `-o remount`.

use std::fs;
use std::path::Path;
use std::process::Command;

use format::ids::ObjectId;
use format::znode::Znode;
use testkit::seal::AtlasPlace;

use super::world::{Done, World};

/// Object of any file system's master node, and how far before its name the value of an entry of a table lies.
const MASTER_NODE: ObjectId = ObjectId::new(1);
const NAME_OF_ENTRY: usize = 14;
/// What mount(8) runs.
const HELPER: &str = "/sbin/mount.zfs";

/// A world with file systems `ev/old` (legacy) and `ev/new`, where mount(8) finds this program. `None` where it cannot.
fn world(test: &str) -> Option<World> {
    let world = World::of(test)?;
    let links = world.dir.join("in/sbin");
    fs::create_dir_all(&links).unwrap();
    for name in ["mount.zfs", "mount.fuse.zfs"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cenote"), links.join(name)).unwrap();
    }
    // all that is in /sbin stays there, below this
    let layers = format!("lowerdir={}:/sbin", links.display());
    let overlaid = Command::new("mount").args(["-t", "overlay", "-o", &layers, "sbin", "/sbin"]).status();
    if !overlaid.is_ok_and(|status| status.success()) || !Path::new(HELPER).exists() {
        eprintln!("SKIPPED {test}: {HELPER} cannot be made");
        return None;
    }
    world.create();
    world.done("zfs create -o mountpoint=legacy ev/old");
    world.done("zfs create ev/new");
    for name in ["at", "other"] {
        fs::create_dir(world.dir.join("in").join(name)).unwrap();
    }
    Some(world)
}

fn system(world: &World, line: &str) -> Done {
    let line = world.text(line);
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env("CENOTE_RUN", world.dir.join("run"));
    world.finish(command, &line)
}

fn well(world: &World, line: &str) {
    let done = system(world, line);
    assert_eq!((done.code, &*done.err), (Some(0), ""), "{line}");
}

fn refused(world: &World, line: &str, words: &str) {
    let done = system(world, line);
    assert!(done.code != Some(0) && done.err.contains(words), "{line}: {:?} {}", done.code, done.err);
}

fn end(world: &World) {
    well(world, "umount /sbin");
    world.check();
}

/// Whether a mount has an option.
fn has(world: &World, point: &str, word: &str) -> bool {
    world.mounted_at(point).unwrap().split(',').any(|option| option == word)
}

#[test]
fn legacy_file_systems_are_mounted_by_mount() {
    let Some(world) = world("legacy::legacy_file_systems_are_mounted_by_mount") else { return };
    let said = world.run("zfs mount ev/old");
    assert_eq!(said.err, "cannot mount 'ev/old': legacy mountpoint\nuse mount(8) to mount this filesystem\n");
    refused(&world, "mount -t zfs ev/new DIR/in/at", "Use 'zfs set mountpoint=legacy' or 'zfs mount ev/new'.");
    refused(&world, "mount -t zfs ev/none DIR/in/at", "unable to open the dataset");
    refused(&world, "mount -t zfs no/pool DIR/in/at", "pool 'no' is not imported");
    refused(&world, "mount -t zfs -o zfsutil ev/old DIR/in/at", "cannot be mounted using 'zfs mount'");
    refused(&world, "mount -t zfs -o lazytime ev/old DIR/in/at", "mount option 'lazytime' is not supported");
    refused(&world, "mount -t zfs -o fast ev/old DIR/in/at", "invalid mount option 'fast'");
    well(&world, "mount -f -t zfs ev/old DIR/in/at");
    assert_eq!(world.mounted_at("DIR/in/at"), None);

    // exactly there, with just these options, whatever -R says
    well(&world, "mount -t zfs -o noexec,noatime ev/old DIR/in/at");
    assert!(
        has(&world, "DIR/in/at", "noexec") && has(&world, "DIR/in/at", "noatime") && has(&world, "DIR/in/at", "rw")
    );
    let file = world.dir.join("in/at/file");
    fs::write(&file, "kept").unwrap();
    refused(&world, "mount -t zfs ev/old DIR/in/other", "already mounted");
    assert_eq!(world.done("zfs get -Ho value,source exec ev/old"), "off\ttemporary\n");
    let said = world.run("zfs unmount ev/old");
    assert_eq!(said.err, "cannot unmount 'ev/old': legacy mountpoint\nuse umount(8) to unmount this filesystem\n");
    world.done("zfs unmount -a");
    world.done("zfs rename ev/old ev/older");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    world.done("zfs rename ev/older ev/old");
    well(&world, "umount DIR/in/at");
    assert!(!file.exists());
    // as from fstab(5), by the folder alone
    fs::write(world.dir.join("fstab"), world.text("ev/old DIR/in/at zfs defaults,nofail,x-a.b=c 0 0\n")).unwrap();
    for _ in 0..2 {
        well(&world, "mount -a -T DIR/fstab");
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }
    // goes with the pool
    world.done("zpool export ev");
    assert_eq!(world.mounted_at("DIR/in/at"), None);
    end(&world);
}

#[test]
fn options_of_mounts_change() {
    let Some(world) = world("legacy::options_of_mounts_change") else { return };
    well(&world, "mount -t zfs ev/old DIR/in/at");
    for point in ["DIR/in/at", "DIR/in/ev/new"] {
        let file = world.dir.join(&point[4..]).join("file");
        well(&world, &format!("mount -o remount,ro,nodiratime {point}"));
        assert!(has(&world, point, "ro") && has(&world, point, "nodiratime"), "{:?}", world.mounted_at(point));
        assert!(fs::write(&file, "").is_err());
        well(&world, &format!("mount -o remount,rw,sync {point}"));
        assert!(has(&world, point, "rw"), "{:?}", world.mounted_at(point));
        fs::write(&file, "written").unwrap();
    }
    world.done("zfs mount -o remount,noexec ev/new");
    assert!(has(&world, "DIR/in/ev/new", "noexec"));
    assert_eq!(world.done("zfs get -Ho value,source exec ev/new"), "off\ttemporary\n");
    let done = world.run("zfs mount -o remount,mand ev/new");
    assert!(done.code == Some(1) && done.err.contains("is not supported"), "{}", done.err);
    world.done("zfs unmount ev/new");
    let done = world.run("zfs mount -o remount,ro ev/new");
    assert_eq!(done.err, "cannot remount 'ev/new': not currently mounted\n");
    assert_eq!(world.done("zfs mount -v -a"), "Mounting ZFS filesystems: (1/1)\n");
    assert_eq!(world.done("zfs mount -vlR ev"), "");
    // an ACL can be had without the property, for as long as it is mounted so
    let list = [(1u16, 7u16), (4, 5), (32, 5)].iter().flat_map(|(tag, rights)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes()[..], &u32::MAX.to_le_bytes()[..]].concat()
    });
    let list: Vec<u8> = 2u32.to_le_bytes().into_iter().chain(list).collect();
    let set = || {
        let (path, none) = (world.dir.join("in/ev/new"), rustix::fs::XattrFlags::empty());
        rustix::fs::setxattr(path, "system.posix_acl_access", &list, none)
    };
    for options in ["remount,posixacl", "posixacl"] {
        assert_eq!(set(), Err(rustix::io::Errno::OPNOTSUPP));
        if options == "posixacl" {
            world.done("zfs unmount ev/new");
        }
        world.done(&format!("zfs mount -o {options} ev/new"));
        assert_eq!(set(), Ok(()));
        world.done("zfs unmount ev/new");
        world.done("zfs mount ev/new");
    }
    end(&world);
}

/// File systems of old versions can only be read: that is said once, and is no failure.
#[test]
fn old_file_systems_are_mounted() {
    let Some(world) = World::of("legacy::old_file_systems_are_mounted") else { return };
    world.create();
    for name in ["a", "b", "c"] {
        world.done(&format!("zfs create ev/{name}"));
    }
    world.forge(|forge, pool, atlas| {
        for name in ["ev/a", "ev/b"] {
            let set = pool.dsl().find(name).unwrap().id;
            let table = forge.contents_mut(atlas.block(set, MASTER_NODE, 0, 0).unwrap());
            let value = |table: &[u8], name: &[u8]| {
                table.windows(name.len()).position(|bytes| bytes == name).unwrap() - NAME_OF_ENTRY
            };
            let (version, root) = (value(table, b"VERSION\0"), value(table, b"ROOT\0"));
            table[version..][..8].copy_from_slice(&4u64.to_le_bytes());
            let root = ObjectId::new(u64::from_le_bytes(*table[root..].first_chunk().unwrap()));
            // what versions before 5 know of a file, times of no matter: generation, mode, size, parent, links
            let mut znode = [0; Znode::SIZE];
            for (at, word) in [1, 0o40_755, 2, root.get(), 2].into_iter().enumerate() {
                znode[64 + 8 * at..][..8].copy_from_slice(&word.to_le_bytes());
            }
            forge.put(atlas.bonus_place(set, root).unwrap(), &znode);
            let dnode = atlas.dnode_place(set, root).unwrap();
            forge.put(AtlasPlace { at: dnode.at + 4, ..dnode }, &[17]);
            forge.put(AtlasPlace { at: dnode.at + 10, ..dnode }, &(Znode::SIZE as u16).to_le_bytes());
        }
    });
    world.done("zpool import -f -d DIR/img -R DIR/in ev");
    for name in ["a", "b", "c"] {
        assert!(has(&world, &format!("DIR/in/ev/{name}"), "rw"));
    }
    world.done("zfs upgrade ev/a");
    assert_eq!(world.done("zfs get -Ho value version ev/a ev/b"), "5\n4\n");
    assert!(has(&world, "DIR/in/ev/a", "rw"));
    world.done("zfs unmount ev/a");
    world.done("zfs mount -o ro ev/a");
    world.check();
}

/// Snapshots of a pool of OpenZFS, which can be mounted more than once, and beside their file system.
#[test]
fn snapshots_are_mounted_by_mount() {
    let test = "legacy::snapshots_are_mounted_by_mount";
    let Some(world) = World::of(test) else { return };
    let case = testkit::corpus::case("snapshots");
    case.extract(&world.dir.join("img")).unwrap();
    world.done(&format!("zpool import -f -o readonly=on -N -d DIR/img -R DIR/in {}", case.pool));
    let all = world.done("zfs list -Ht snapshot -o name,referenced -s name");
    let snapshot = all.lines().next().unwrap().split('\t').next().unwrap();
    let helper = world.dir.join("in/mount.zfs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cenote"), &helper).unwrap();
    for name in ["at", "other"] {
        fs::create_dir(world.dir.join("in").join(name)).unwrap();
        well(&world, &format!("DIR/in/mount.zfs {snapshot} DIR/in/{name} -o rw,noexec"));
        let point = format!("DIR/in/{name}");
        assert!(has(&world, &point, "ro") && has(&world, &point, "noexec"), "{:?}", world.mounted_at(&point));
    }
    let names = |path: &str| {
        let mut names: Vec<_> = fs::read_dir(world.dir.join(path)).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert!(!names("in/at").is_empty());
    assert_eq!(names("in/at"), names("in/other"));
    let (of, short) = snapshot.split_once('@').unwrap();
    world.done(&format!("zfs mount {of}"));
    assert_eq!(names("in/at"), names(&format!("in/{of}/.zfs/snapshot/{short}")));
    assert!(!world.done("zfs mount").contains('@'));
    well(&world, "umount DIR/in/other");
    world.done(&format!("zpool export {}", case.pool));
    assert_eq!(world.mounted_at("DIR/in/at"), None);
}
