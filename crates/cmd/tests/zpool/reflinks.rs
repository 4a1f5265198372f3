//! Copies that share blocks: between file systems, and out of snapshots.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use testkit::rng::Rng;

use super::can_mount;
use super::snapshots::Fresh;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| rng.number().to_le_bytes()).take(len).collect()
}

/// What the command says.
fn reflink(fresh: &Fresh, from: &Path, to: &Path) -> (String, String) {
    let output = fresh.world.cenote(&format!("reflink {} {}", from.display(), to.display()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&fresh.world.dir.display().to_string(), "DIR");
    assert_eq!(output.status.success(), output.stderr.is_empty());
    (text(&output.stdout), text(&output.stderr))
}

fn saved(fresh: &Fresh) -> u64 {
    let output = fresh.world.zpool("get -Hpo value bclonesaved fresh");
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

#[test]
fn file_systems_share_blocks() {
    if !can_mount("copies that share blocks") {
        return;
    }
    const LEN: u64 = (8 << 20) + 1000;
    let fresh = Fresh::new("reflinks");
    let place = |name: &str| fresh.world.dir.join(name);
    for name in ["a", "c"] {
        fresh.does(&format!("set mountpoint={} fresh/{name}", place(&format!("mnt/{name}")).display()));
    }
    let (first, second) = (bytes(1, LEN as usize), bytes(2, LEN as usize));
    let image = place("mnt/a/img");
    fs::write(&image, &first).unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o640)).unwrap();

    let (_, why) = reflink(&fresh, &image, &place("mnt/c/img"));
    assert_eq!(why, "cenote reflink: feature@block_cloning is disabled for pool 'fresh'\n");
    assert!(!place("mnt/c/img").exists());
    fresh.world.check("set feature@block_cloning=enabled fresh", 0, "");
    let all = |name: &str| (format!("DIR/mnt/{name}: 8.00M shared, 0B copied\n"), String::new());
    assert_eq!(reflink(&fresh, &image, &place("mnt/c")), all("c/img"));
    assert!(fs::read(place("mnt/c/img")).unwrap() == first);
    assert_eq!(fs::metadata(place("mnt/c/img")).unwrap().permissions().mode() & 0o777, 0o640);
    fresh.world.check("sync fresh", 0, "");
    let one = saved(&fresh);
    assert!(one >= LEN, "{one}");

    // what the kernel has of a file that is there already, and is longer, goes
    fs::write(place("mnt/a/second"), &second).unwrap();
    fs::write(place("mnt/c/there"), bytes(3, 9 << 20)).unwrap();
    assert_eq!(fs::read(place("mnt/c/there")).unwrap().len(), 9 << 20);
    let open = fs::File::open(place("mnt/c/there")).unwrap();
    assert_eq!(reflink(&fresh, &place("mnt/a/second"), &place("mnt/c/there")), all("c/there"));
    assert!(fs::read(place("mnt/c/there")).unwrap() == second);
    let mut byte = [0];
    assert_eq!((open.read_at(&mut byte, LEN - 1).unwrap(), byte[0]), (1, second[LEN as usize - 1]));
    assert_eq!(open.read_at(&mut byte, LEN).unwrap(), 0);

    // a snapshot has what is written over since; out of it, cp shares, too, within the file system
    fresh.does("snapshot fresh/a@before");
    fs::write(&image, &second).unwrap();
    let before = place("mnt/a/.zfs/snapshot/before/img");
    assert_eq!(reflink(&fresh, &before, &place("mnt/c/old")), all("c/old"));
    fresh.world.check("sync fresh", 0, "");
    let three = saved(&fresh);
    let copied = std::process::Command::new("cp").args([&before, &place("mnt/a/back")]).status().unwrap();
    assert!(copied.success());
    fresh.world.check("sync fresh", 0, "");
    assert!(saved(&fresh) >= three + LEN - (1 << 20), "{} {three}", saved(&fresh));

    refusals(&fresh);

    // what was taken stays, whatever goes; also what is changed afterwards is changed alone
    fresh.does("destroy fresh/a@before");
    let to_write = fs::OpenOptions::new().write(true).open(place("mnt/c/img")).unwrap();
    to_write.write_all_at(b"other bytes", 5 << 20).unwrap();
    drop((to_write, open));
    fresh.does("destroy -r fresh/a");
    fresh.world.check("sync fresh", 0, "");
    assert!(fs::read(place("mnt/c/old")).unwrap() == first && fs::read(place("mnt/c/there")).unwrap() == second);
    let mut expect = first;
    expect[5 << 20..][..11].copy_from_slice(b"other bytes");
    assert!(fs::read(place("mnt/c/img")).unwrap() == expect);
    fresh.world.check("export fresh", 0, "");
    let output = fresh.world.cenote("zdb -e -p DIR -bcc fresh");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("No leaks"), "{text}");
}

/// What cannot be is told, and changes nothing.
fn refusals(fresh: &Fresh) {
    let place = |name: &str| fresh.world.dir.join(name);
    let refused = |from: &str, to: &str| reflink(fresh, &place(from), &place(to)).1;
    assert_eq!(refused("mnt/c/img", "mnt/c/img"), "cenote reflink: 'DIR/mnt/c/img' is the source itself\n");
    assert_eq!(refused("mnt/c", "mnt/a/x"), "cenote reflink: 'DIR/mnt/c': not a regular file\n");
    assert_eq!(refused("mnt/c/img", "x"), "cenote reflink: 'DIR/x': not a ZFS filesystem\n");
    assert!(refused("mnt/c/img", "mnt/a/.zfs/snapshot/before/new").contains("Read-only file system"));
    assert!(!place("x").exists() && !place("mnt/a/x").exists());
}
