//! Mountpoints that lead out of the folder that a pool is imported below.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use testkit::seal::MOS;

use super::world::World;

/// Imports the pool below `DIR/in`, and looks what happened.
fn import(world: &World, options: &str, expect: &str) {
    let imported = world.run(&format!("zpool import -f -d DIR/img {options} ev"));
    assert_eq!(imported.code, Some(0), "{}", imported.err);
    assert!(imported.err.contains(expect), "'{expect}' in: {}", imported.err);
    world.check();
}

/// `mountpoint=/../outside/folder`, which `zfs set` refuses.
#[test]
fn a_mountpoint_does_not_go_up() {
    let Some(world) = World::of("mounts::a_mountpoint_does_not_go_up") else { return };
    world.create();
    world.done("zfs create ev/kid");
    world.done("zfs set mountpoint=/harmless ev/kid");
    let refused = world.run("zfs set mountpoint=/../outside/folder ev/kid");
    assert!(refused.code == Some(1) && refused.err.contains("'..'"), "{}", refused.err);
    for value in ["/../outside/folder", "/../../victim", "/x/../../outside/new"] {
        world.forge(|forge, pool, _| {
            let props = pool.dsl().find_dir("ev/kid").unwrap().phys.props_zap;
            forge.set_entry(MOS, props, b"mountpoint", 1, format!("{value}\0").as_bytes()).unwrap();
        });
        import(&world, "-R DIR/in", "cannot mount");
        assert!(world.mounted_at("DIR/in/ev").is_some());
        let asked = world.run("zfs mount ev/kid");
        assert!(asked.code == Some(1) && asked.err.contains("'..'"), "{}", asked.err);
        world.check();
    }
}

/// A symbolic link in the parent's file system, in the place of the child's mountpoint, or above it.
#[test]
fn no_link_leads_out() {
    let Some(world) = World::of("mounts::no_link_leads_out") else { return };
    world.create();
    world.done("zfs create ev/kid");
    world.done("zfs create ev/kid/deep");
    world.done("zfs unmount ev/kid");
    let kid = world.dir.join("in/ev/kid");
    drop(fs::remove_dir(&kid));
    symlink(world.dir.join("outside/folder"), &kid).unwrap();
    world.done("zpool export ev");
    import(&world, "-R DIR/in", "symbolic link 'kid'");
    // nor one that looks as if it stayed inside
    fs::remove_file(&kid).unwrap();
    symlink("../../outside/folder", &kid).unwrap();
    assert_eq!(world.run("zfs mount ev/kid/deep").code, Some(1));
    world.check();
    // without another root, an administrator's link is followed, and none of the pool's own
    fs::create_dir(world.dir.join("in/real")).unwrap();
    symlink("real", world.dir.join("in/admin")).unwrap();
    world.done("zfs set canmount=noauto ev/kid");
    world.done("zfs set canmount=noauto ev/kid/deep");
    world.done(&world.text("zpool export ev"));
    world.done("zpool import -N -d DIR/img ev");
    world.done(&world.text("zfs set -u mountpoint=DIR/in/admin/ev ev"));
    world.done("zfs mount ev");
    assert!(world.mounted_at("DIR/in/real/ev").is_some());
    let asked = world.run("zfs mount ev/kid");
    assert!(asked.code == Some(1) && asked.err.contains("symbolic link 'kid'"), "{}", asked.err);
    world.check();
    world.done("zpool export ev");
    assert!(!world.dir.join("in/real/ev").exists(), "what was made is removed");
}

/// Children with names that no dataset can have.
#[test]
fn no_dataset_is_called_dot_dot() {
    let Some(world) = World::of("mounts::no_dataset_is_called_dot_dot") else { return };
    world.create();
    world.done("zfs create ev/kid");
    world.done("zfs create ev/kid/outside");
    world.done("zfs create ev/other");
    world.done("zfs set mountpoint=/other ev/other");
    for (old, new) in [("kid", ".."), ("..", "\x1b[2J"), ("\x1b[2J", "../outside"), ("../outside", "a\nb")] {
        world.forge(|forge, pool, _| {
            let children = pool.dsl().root().unwrap().phys.child_zap;
            forge.rename_entry(MOS, children, old.as_bytes(), new.as_bytes()).unwrap();
        });
        // nothing can be written to such a pool
        let refused = world.run("zpool import -f -d DIR/img -R DIR/in ev");
        assert!(refused.code == Some(1) && refused.out.contains("-o readonly=on"), "{} {}", refused.out, refused.err);
        for line in
            ["zpool import -f -o readonly=on -d DIR/img -R DIR/in ev", "zfs list -r", "zfs mount -a", "zfs mount"]
        {
            let done = world.run(line);
            let text = done.out + &done.err;
            assert!(!text.contains('\x1b') && !text.contains("a\nb"), "{line}: {text:?}");
            world.check();
        }
        assert!(world.mounted_at("DIR/in/ev").is_some() && world.mounted_at("DIR/in/other").is_some(), "{new:?}");
        assert_ne!(world.run(&format!("zfs mount ev/{new}")).code, Some(0));
        let listed = world.run("ls -R -d DIR/img ev");
        assert!(!(listed.out + &listed.err).contains('\x1b'));
        world.check();
    }
}

/// What a stranger's pool says of set-id bits and devices counts if it is asked for.
#[test]
fn set_id_bits_are_the_hosts_to_give() {
    let Some(world) = World::of("mounts::set_id_bits_are_the_hosts_to_give") else { return };
    world.create();
    let tool = world.dir.join("in/ev/tool");
    fs::write(&tool, "#!").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o6755)).unwrap();
    let own = world.mounted_at("DIR/in/ev").unwrap();
    assert!(!own.contains("nosuid") && !own.contains("nodev"), "a pool that was made here: {own}");
    world.done(&world.text("zfs set mountpoint=DIR/in/ev ev").replace(&world.text("DIR/in"), ""));
    for (hostid, options, suid, dev) in [
        ("0", "-R DIR/in", false, false),
        ("0", "-R DIR/in -o suid", true, false),
        ("0", "-R DIR/in -o ro,dev,suid", true, true),
        ("7", "-R DIR/in", false, false),
        ("7", "-R DIR/in", false, false),
    ] {
        world.done("zpool export ev");
        let imported = world.run_as(&format!("zpool import -f -d DIR/img {options} ev"), hostid);
        assert_eq!((imported.code, &*imported.err), (Some(0), ""));
        let flags = world.mounted_at("DIR/in/ev").unwrap();
        assert_eq!((!flags.contains("nosuid"), !flags.contains("nodev")), (suid, dev), "{hostid} {options}: {flags}");
        // what is set later is for later, too; what is asked of one mount is given
        world.done("zfs set setuid=on ev");
        assert_eq!(!world.mounted_at("DIR/in/ev").unwrap().contains("nosuid"), suid);
        world.done("zfs unmount ev");
        world.done("zfs mount -o suid,dev ev");
        assert!(!world.mounted_at("DIR/in/ev").unwrap().contains("nosuid"));
    }
    // without another root, it is the host's own that has made it, or taken it in, if no other had it meanwhile
    world.done(&world.text("zfs set mountpoint=DIR/in/ev ev"));
    for (hostid, options, is_own) in [
        ("7", "", false),
        ("7", "--adopt", true),
        ("7", "", true),
        ("8", "", false),
        ("8", "", false),
        ("8", "--adopt", true),
        ("8", "", true),
        ("0", "", false),
        ("0", "--adopt", true),
        ("0", "", true),
    ] {
        world.done("zpool export ev");
        let imported = world.run_as(&format!("zpool import -f {options} -d DIR/img ev"), hostid);
        assert_eq!((imported.code, imported.err.is_empty()), (Some(0), is_own), "{hostid} {options}: {}", imported.err);
        assert!(is_own || imported.err.lines().count() == 1 && imported.err.contains("'zpool import --adopt ev'"));
        let flags = world.mounted_at("DIR/in/ev").unwrap();
        assert_eq!(!flags.contains("nosuid"), is_own, "{hostid} {options}: {flags}");
    }
    // another one that says it is this host
    world.done("zpool export ev");
    for line in ["zpool import -N -d DIR/img ev", "zpool export ev"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        let line = world.text(line);
        command.args(line.split_whitespace()).current_dir("/").env("CENOTE_RUN", world.dir.join("enemy"));
        command.env("ZFS_HOSTID", "0");
        assert_eq!(world.finish(command, &line).code, Some(0));
    }
    let imported = world.run_as("zpool import -d DIR/img ev", "0");
    assert!(imported.code == Some(0) && imported.err.contains("another host had it meanwhile"), "{}", imported.err);
    assert!(world.mounted_at("DIR/in/ev").unwrap().contains("nosuid"));
    world.check();
}

/// An image of somebody that knows what everybody may know of this host and its pool: the id, the name and the guid.
#[test]
fn a_forged_host_id_is_no_key() {
    let Some(world) = World::of("mounts::a_forged_host_id_is_no_key") else { return };
    world.create();
    let guid = world.done("zpool get -H -o value guid ev");
    // nor is it told what a pool is known by
    assert!(world.run("zfs get -H -o value guid ev/$ORIGIN@$ORIGIN").err.contains("invalid character"));
    world.done("zpool export ev");
    world.done("zpool import -d DIR/img ev -N");
    world.done("zpool export ev");
    let enemy = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        let line = world.text(line);
        command.args(line.split_whitespace()).current_dir("/").env("CENOTE_RUN", world.dir.join("enemy"));
        let done = world.finish(
            {
                command.env("ZFS_HOSTID", "7");
                command
            },
            &line,
        );
        assert_eq!((done.code, &*done.err), (Some(0), ""), "{line}");
    };
    fs::create_dir(world.dir.join("theirs")).unwrap();
    fs::File::create(world.dir.join("theirs/0")).unwrap().set_len(128 << 20).unwrap();
    enemy("zpool create -o cachefile=none -R DIR/in ev DIR/theirs/0");
    enemy(&format!("zpool reguid -g {} ev", guid.trim()));
    enemy("zfs set mountpoint=/place ev");
    enemy("zpool export ev");
    // as it would be mounted without another root
    let full = world.dir.join("in/place");
    fs::create_dir_all(&full).unwrap();
    fs::write(full.join("own"), "x").unwrap();
    for options in ["", "-o suid"] {
        let imported = world.run_as(&format!("zpool import -f -N -d DIR/theirs {options} ev"), "7");
        assert_eq!(imported.code, Some(0), "{}", imported.err);
        world.done(&world.text("zfs set -u mountpoint=DIR/in/place ev"));
        // over nothing that is there, as nobody here has asked for that
        let refused = world.run("zfs mount ev");
        assert!(refused.code == Some(1) && refused.err.contains("directory is not empty"), "{}", refused.err);
        world.done("zfs mount -O ev");
        assert_eq!(world.mounted_at("DIR/in/place").unwrap().contains("nosuid"), options.is_empty());
        world.done("zpool export ev");
    }
    world.check();
}
