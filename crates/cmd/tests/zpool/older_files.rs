//! File systems that are older than features of their pool.

use std::fs::{self, File};

use super::suspended::wait_for;
use super::{World, can_mount};

/// A pool without accounts of objects and projects, with two files, that gets these features.
fn upgraded(name: &str) -> Option<World> {
    if !can_mount(name) {
        return None;
    }
    let world = World::new(name, &[]);
    File::create(world.dir.join("a")).unwrap().set_len(256 << 20).unwrap();
    let without = "-o feature@project_quota=disabled -o feature@userobj_accounting=disabled";
    world.check(&format!("create {without} -o cachefile=none -R DIR/mnt older DIR/a"), 0, "");
    let top = world.dir.join("mnt/older");
    fs::create_dir(top.join("d")).unwrap();
    fs::write(top.join("f"), "f").unwrap();
    let (text, code) = world.zfs("project -s -p 5 DIR/mnt/older/d");
    assert!(code != 0 && text.contains("DIR/mnt/older/d"), "{text}");
    Some(world)
}

fn enable_accounts(world: &World) {
    world.check("set feature@userobj_accounting=enabled older", 0, "");
    world.check("set feature@project_quota=enabled older", 0, "");
}

fn use_accounts(world: &World) {
    assert_eq!(world.zfs("project -s -r -p 55 DIR/mnt/older/d"), (String::new(), 0));
    assert_eq!(world.zfs("set userobjquota@2001=3 older"), (String::new(), 0));
    world.check("sync older", 0, "");
    assert_eq!(world.zfs("projectspace -H -o name,objused older"), ("0\t2\n55\t1\n".to_owned(), 0));
    assert_eq!(world.zfs("userspace -Hn -o name,objused,objquota older").0, "0\t3\tnone\n2001\t0\t3\n");
    world.check("get -H -o value feature@project_quota,feature@userobj_accounting older", 0, "active\nactive\n");
}

#[test]
fn a_file_system_gets_accounts_when_it_is_mounted() {
    let Some(world) = upgraded("older") else { return };
    assert_eq!(world.zfs("unmount older").1, 0);
    enable_accounts(&world);
    world.check("export older", 0, "");
    world.check("import -d DIR -R DIR/mnt -o cachefile=none older", 0, "");
    wait_for("accounts", || world.zfs("set groupobjquota@7=5 older").1 == 0);
    use_accounts(&world);
    let history = world.text("history -i older");
    assert!(history.contains("accounts complete: objects=true projects=true"), "{history}");
    world.check("export older", 0, "");
}

#[test]
fn a_file_system_gets_accounts_when_its_version_is_asked_for() {
    let Some(world) = upgraded("asked") else { return };
    assert_eq!(world.zfs("unmount older").1, 0);
    world.check("export older", 0, "");
    world.check("import -N -d DIR -R DIR/mnt -o cachefile=none older", 0, "");
    enable_accounts(&world);
    world.check("get -H -o value feature@project_quota older", 0, "enabled\n");
    // it is of that version already, and not mounted
    assert_eq!(world.zfs("set version=current older"), (String::new(), 0));
    world.check("get -H -o value feature@project_quota older", 0, "active\n");
    assert_eq!(world.zfs("mount older").1, 0);
    use_accounts(&world);
    world.check("export older", 0, "");
}
