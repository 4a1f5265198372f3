//! Devices that an import finds: twice, by several names, or such that nothing can be written to them; and what it says
//! where it fails.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use testkit::loops::LoopDevice;

use super::suspended::Small;
use super::{World, uberblocks};

impl World {
    /// Whether the process of a pool has a file in this folder open.
    fn has_open(&self, pool: &str, file: &str) -> bool {
        let files = Path::new("/proc").join(self.process_of(pool)).join("fd").read_dir().unwrap();
        files.flatten().any(|fd| fd.path().read_link().is_ok_and(|link| link == self.dir.join(file)))
    }
}

#[test]
fn of_a_disk_and_its_copies_one_is_used() {
    let world = World::new("copied", &[]);
    world.disks(&["a", "b"]);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    world.check("export tank", 0, "");
    fs::copy(world.dir.join("a"), world.dir.join("0")).unwrap();
    let copy = fs::read(world.dir.join("0")).unwrap();
    let whole = "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\n";
    // its label is as new, but tells of another path
    world.check("import -d DIR tank", 0, "");
    assert_eq!(world.tree("tank"), whole);
    assert!(world.has_open("tank", "a") && !world.has_open("tank", "0"));
    // the label stays as it is while groups are written
    world.check("sync -f tank", 0, "");
    fs::copy(world.dir.join("a"), world.dir.join("1")).unwrap();
    (0..5).for_each(|_| world.check("sync -f tank", 0, ""));
    world.kill("tank");
    fs::rename(world.dir.join("a"), world.dir.join("z")).unwrap();
    fs::rename(world.dir.join("1"), world.dir.join("a")).unwrap();
    let older = fs::read(world.dir.join("a")).unwrap();
    world.check("import -d DIR tank", 0, "");
    assert_eq!(world.tree("tank"), whole.replace("DIR/a", "DIR/z"));
    assert!(world.has_open("tank", "z") && !world.has_open("tank", "a") && !world.has_open("tank", "0"));
    world.check("set comment=changed tank", 0, "");
    world.check("export tank", 0, "");
    assert!(fs::read(world.dir.join("0")).unwrap() == copy, "nothing was written to the copy");
    assert!(fs::read(world.dir.join("a")).unwrap() == older, "nothing was written to the older copy");
}

#[test]
fn a_device_with_several_names_is_found_once() {
    let world = World::new("named", &[]);
    world.disks(&["a", "b"]);
    world.check("create -O mountpoint=none tank mirror DIR/a DIR/b", 0, "");
    world.check("export tank", 0, "");
    fs::create_dir(world.dir.join("by-id")).unwrap();
    symlink("../a", world.dir.join("by-id/one")).unwrap();
    fs::hard_link(world.dir.join("b"), world.dir.join("by-id/two")).unwrap();
    // by the names that the pool knows, if it is among them
    world.check("import -d DIR/by-id -d DIR tank", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nmirror-0 ONLINE\nDIR/a ONLINE\nDIR/b ONLINE\n");
    world.check("export tank", 0, "");
    world.check("import -d DIR/by-id tank", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nmirror-0 ONLINE\nDIR/by-id/one ONLINE\nDIR/by-id/two ONLINE\n");
    world.check("export tank", 0, "");
}

fn remount(path: &Path, how: &str) {
    let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(path).status();
    assert!(done.unwrap().success());
}

#[test]
fn devices_that_cannot_be_written_to() {
    let world = World::new("unwritable", &[]);
    let folder = world.dir.join("fixed");
    let Some(_mounted) = Small::mount_sized(&folder, "300m") else {
        eprintln!("SKIPPED unwritable: nothing can be mounted here");
        return;
    };
    world.disks(&["fixed/a", "fixed/c", "b"]);
    world.check("create -O mountpoint=none tank mirror DIR/fixed/a DIR/b", 0, "");
    world.check("create -O mountpoint=none alone DIR/fixed/c", 0, "");
    world.check("export tank", 0, "");
    world.check("export alone", 0, "");
    remount(&folder, "ro");
    let refused = "cannot import 'alone': one or more devices is read only\n\
                   \tDIR/fixed/c: the file system is read-only\n\
                   \tThe pool can be imported using '-o readonly=on'.\n";
    world.check("import -d DIR/fixed alone", 1, refused);
    world.check("import -d DIR/fixed -o readonly=on alone", 0, "");
    assert_eq!(world.tree("alone"), "alone ONLINE\nDIR/fixed/c ONLINE\n");
    world.check("export alone", 0, "");
    let whole = "tank ONLINE\nmirror-0 ONLINE\nDIR/fixed/a ONLINE\nDIR/b ONLINE\n";
    let import = "import -d DIR -d DIR/fixed";
    world.check(&format!("{import} -o readonly=on tank"), 0, "");
    assert_eq!(world.tree("tank"), whole);
    world.check("export tank", 0, "");
    let left_out = "The devices below cannot be written to, and are left out:\n\
                    \t    DIR/fixed/a: the file system is read-only\n\n";
    world.check(&format!("{import} tank"), 0, left_out);
    assert_eq!(world.tree("tank"), "tank DEGRADED\nmirror-0 DEGRADED\nDIR/fixed/a UNAVAIL\nDIR/b ONLINE\n");
    world.check("set comment=changed tank", 0, "");
    world.check("export tank", 0, "");
    remount(&folder, "rw");
    world.check(&format!("{import} tank"), 0, "");
    world.becomes("tank", whole);
    world.check("wait -t resilver tank", 0, "");
    world.check("offline tank DIR/b", 0, "");
    world.check("set comment=newest tank", 0, "");
    world.check("export tank", 0, "");
    remount(&folder, "ro");
    // what was written last is on the device that nothing can be written to
    let text = world.text(&format!("{import} tank"));
    let refused =
        "cannot import 'tank': one or more devices is read only\n\tDIR/fixed/a: the file system is read-only\n";
    assert!(text.starts_with(refused), "{text}");
    world.check("list", 0, "no pools available\n");
}

#[test]
fn disks_that_can_only_be_read() {
    let world = World::new("fixeddisk", &[]);
    world.disks(&["a"]);
    world.check("create -O mountpoint=none tank DIR/a", 0, "");
    world.check("export tank", 0, "");
    let Some(device) = LoopDevice::over(&world.dir.join("a"), &["-r"]) else {
        return eprintln!("SKIPPED fixeddisk: there are no loop devices here");
    };
    let disk = device.name().to_owned();
    let [refused, imported, exported, made] = [
        format!("import -d {disk} tank"),
        format!("import -d {disk} -o readonly=on tank"),
        "export tank".into(),
        format!("create -f -O mountpoint=none other {disk}"),
    ]
    .map(|line| world.text(&line));
    drop(device);
    let why = format!(
        "cannot import 'tank': one or more devices is read only\n\t{disk}: the disk is read-only\n\
         \tThe pool can be imported using '-o readonly=on'.\n"
    );
    assert_eq!([refused, imported, exported], [why, String::new(), String::new()]);
    assert!(made.contains("the disk is read-only"), "{made}");
}

/// Overwrites what uberblocks of the only disk of a pool lead to.
fn spoil_roots(pool: &str, disk: &Path, is_wanted: impl Fn(&serde_json::Value) -> bool) {
    let file = fs::OpenOptions::new().write(true).open(disk).unwrap();
    for uberblock in uberblocks(pool, disk).iter().filter(|uberblock| is_wanted(uberblock)) {
        for copy in uberblock["rootbp"].as_str().unwrap().split("=<0:").skip(1) {
            let offset = u64::from_str_radix(copy.split(':').next().unwrap(), 16).unwrap();
            file.write_all_at(&[0xa5; 512], offset + (4 << 20)).unwrap();
        }
    }
}

#[test]
fn what_helps_is_said_where_an_import_fails() {
    let world = World::new("advice", &[]);
    world.disks(&["a"]);
    let disk = world.dir.join("a");
    world.check("create -O mountpoint=none back DIR/a", 0, "");
    world.check("export back", 0, "");
    spoil_roots("back", &disk, |uberblock| uberblock["in_force"] == true);
    let text = world.text("import -d DIR back");
    let (first, rest) = text.split_once("\tRecovery is possible, but will result in some data loss.\n").expect(&text);
    assert!(first.starts_with("cannot import 'back': I/O error\n"), "{text}");
    let dated = world.text("import -F -n -d DIR back");
    let date = dated.split_once("to its state as of ").unwrap().1.lines().next().unwrap().trim_end_matches('.');
    assert!(
        rest.starts_with(&format!("\tReturning the pool to its state as of {date}\n\tshould correct the problem.")),
        "{text}"
    );
    let words = rest.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" Recovery can be attempted by executing 'zpool import -F back'."), "{text}");
    assert!(!text.contains("Destroy"), "{text}");
    // nothing is left to go back to
    spoil_roots("back", &disk, |_| true);
    let text = world.text("import -d DIR back");
    assert!(text.ends_with("\tDestroy and re-create the pool from\n\ta backup source.\n"), "{text}");
    assert!(!text.contains("Recovery"), "{text}");
}

#[test]
fn what_came_after_a_checkpoint_is_free() {
    let world = World::new("abandoned", &[]);
    world.disks(&["a", "b", "c", "d"]);
    world.check("create -O mountpoint=none tank DIR/a", 0, "");
    world.check("checkpoint tank", 0, "");
    world.check("add tank DIR/b", 0, "");
    world.check("add tank DIR/c", 0, "");
    world.check("export tank", 0, "");
    world.check("import --rewind-to-checkpoint -d DIR tank", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nDIR/a ONLINE\n");
    let used = "invalid vdev specification\nuse '-f' to override the following errors:\n\
                DIR/a is part of active pool 'tank'\n";
    world.check("create -O mountpoint=none other DIR/a", 1, used);
    world.check("create -O mountpoint=none other DIR/b", 0, "");
    world.check("add tank DIR/c", 0, "");
    assert_eq!(world.tree("tank"), "tank ONLINE\nDIR/a ONLINE\nDIR/c ONLINE\n");
    // what is attached later is in use, too
    world.check("attach -w tank DIR/a DIR/d", 0, "");
    world.check("create -O mountpoint=none more DIR/d", 1, &used.replace("DIR/a", "DIR/d"));
    world.check("export tank", 0, "");
    world.check("import -d DIR tank", 0, "");
}
