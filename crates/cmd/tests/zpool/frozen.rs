//! `zpool freeze`: what happens from then on is in intent logs only, and is there again after an import.

use std::fs::{self, File};
use std::path::Path;

use super::World;
use super::suspended::noise;

#[test]
fn what_a_frozen_pool_was_told_is_in_its_logs() {
    let world = World::new("frozen", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED frozen: nothing can be mounted here");
        return;
    }
    world.disks(&["a", "l"]);
    world.check("create -R DIR/mnt tank DIR/a log DIR/l", 0, "");
    let place = world.dir.join("mnt/tank");
    let sync = |name: &str, bytes: &[u8]| {
        fs::write(place.join(name), bytes).unwrap();
        File::open(place.join(name)).unwrap().sync_all().unwrap();
    };
    // as OpenZFS's, a log that has not begun cannot begin any more
    sync("first", b"first");
    world.check("freeze tank", 0, "");
    world.check("set comment=x tank", 1, "cannot set property for 'tank': the pool is frozen\n");
    let bytes = noise(300_000, 1);
    sync("a", &bytes);
    fs::create_dir(place.join("dir")).unwrap();
    fs::rename(place.join("a"), place.join("dir/b")).unwrap();
    fs::remove_file(place.join("first")).unwrap();
    assert_eq!(world.zfs("unmount tank"), (String::new(), 0));
    world.check("export tank", 0, "");
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    assert!(fs::read(place.join("dir/b")).unwrap() == bytes);
    let names: Vec<_> = place.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["dir"]);
    world.check("export tank", 0, "");
    world.judge_by_zdb("tank");
    let (text, status) = world.told("zpool freeze");
    assert!(status == 2 && text.starts_with("missing pool name\nusage: zpool command args"), "{text}");
}
