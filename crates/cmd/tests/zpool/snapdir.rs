//! `.zfs/snapshot`: folders that are made, removed and moved there are snapshots.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::snapshots::Fresh;

#[test]
fn folders_are_snapshots() {
    let fresh = Fresh::new("snapdir");
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    fs::write(point.join("file"), "before").unwrap();
    let folder = point.join(".zfs/snapshot");
    let kind = |result: std::io::Result<()>| result.map_err(|error| error.kind());

    fs::create_dir(folder.join("one")).unwrap();
    fresh.says("list -Hr -t snapshot -o name fresh", "fresh/a@one\n");
    fs::write(point.join("file"), "after").unwrap();
    assert_eq!(fs::read_to_string(folder.join("one/file")).unwrap(), "before");
    assert_eq!(kind(fs::create_dir(folder.join("one"))), Err(ErrorKind::AlreadyExists));
    for bad in ["a@b", "a b%c", "a#b"] {
        assert_eq!(kind(fs::create_dir(folder.join(bad))), Err(ErrorKind::InvalidInput), "{bad}");
    }
    assert!(fs::create_dir(folder.join("one/sub")).is_err() && fs::create_dir(point.join(".zfs/sub")).is_err());

    fs::rename(folder.join("one"), folder.join("first")).unwrap();
    fresh.says("list -Hr -t snapshot -o name fresh", "fresh/a@first\n");
    assert_eq!(fs::read_to_string(folder.join("first/file")).unwrap(), "before");
    fs::create_dir(folder.join("second")).unwrap();
    assert_eq!(kind(fs::rename(folder.join("second"), folder.join("first"))), Err(ErrorKind::AlreadyExists));
    assert_eq!(kind(fs::rename(folder.join("second"), point.join("second"))), Err(ErrorKind::InvalidInput));
    assert!(fs::rename(point.join("file"), folder.join("file")).is_err());
    fresh.does("rename fresh/a@second fresh/a@third");
    assert_eq!(fs::read_to_string(folder.join("third/file")).unwrap(), "after");

    // others than root
    let as_nobody = |name: &str| {
        let mut command = Command::new(name);
        command.uid(65534).gid(65534);
        command
    };
    for (command, args) in [("mkdir", &["fourth"][..]), ("rmdir", &["first"]), ("mv", &["first", "fourth"])] {
        let output = as_nobody(command).args(args.iter().map(|name| folder.join(name))).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("Operation not permitted") || said.contains("Permission denied"), "{command}: {said}");
    }

    fresh.does("hold keep fresh/a@third");
    assert_eq!(kind(fs::remove_dir(folder.join("third"))), Err(ErrorKind::ResourceBusy));
    fresh.does("release keep fresh/a@third");
    fs::remove_dir(folder.join("third")).unwrap();
    assert_eq!(kind(fs::remove_dir(folder.join("third"))), Err(ErrorKind::NotFound));
    fresh.says("list -Hr -t snapshot -o name fresh", "fresh/a@first\n");
    fresh.world.tune("zfs_admin_snapshot", 0);
    assert_eq!(kind(fs::remove_dir(folder.join("first"))), Err(ErrorKind::PermissionDenied));
    fresh.judge();
}

/// When snapshots came or went is told by the times of their folder.
#[test]
fn the_folder_tells_when_snapshots_changed() {
    let fresh = Fresh::new("snaptime");
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    let time = || {
        let seconds = std::os::unix::fs::MetadataExt::mtime(&fs::metadata(point.join(".zfs/snapshot")).unwrap());
        let (text, _) = fresh.world.zfs("get -Hpo value snapshots_changed fresh/a");
        (seconds.to_string(), text.trim().to_owned())
    };
    assert_eq!(time(), ("0".to_owned(), "-".to_owned()));
    fresh.does("snapshot fresh/a@one");
    let (first, told) = time();
    assert_eq!(first, told);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    fresh.does("destroy fresh/a@one");
    let (second, told) = time();
    assert!(second == told && second > first, "{first} {second}");
    fresh.does("unmount fresh/a");
    fresh.does("mount fresh/a");
    assert_eq!(time(), (second, told));
}

/// What is open in a snapshot keeps it from nothing, and shows nothing else afterwards.
#[test]
fn a_snapshot_in_use_is_destroyed() {
    let fresh = Fresh::new("snapuse");
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    let content = vec![7u8; 3 << 20];
    fs::write(point.join("file"), &content).unwrap();
    fresh.does("snapshot fresh/a@one");
    let mut file = File::open(point.join(".zfs/snapshot/one/file")).unwrap();
    let folder = File::open(point.join(".zfs/snapshot/one")).unwrap();
    file.read_exact(&mut [0; 10]).unwrap();
    fs::remove_file(point.join("file")).unwrap();
    fresh.does("destroy fresh/a@one");
    for round in 0..3u8 {
        fs::write(point.join("other"), vec![round + 8; 3 << 20]).unwrap();
        fresh.world.check("sync fresh", 0, "");
    }
    file.seek(std::io::SeekFrom::Start(0)).unwrap();
    let mut read = Vec::new();
    // what the kernel had of it already is right
    let is_error = file.read_to_end(&mut read).is_err();
    assert!(is_error || read.len() == content.len(), "{}", read.len());
    assert!(read.iter().all(|&byte| byte == 7));
    assert!(fs::read_dir(point.join(".zfs/snapshot/one")).is_err());
    drop((file, folder));
    fs::remove_file(point.join("other")).unwrap();
    fresh.judge();
}
