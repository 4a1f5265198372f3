//! What the log in memory keeps over the death of the process: all that programs were told is done, on disk or not.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::fcntl::{RenameFlags, renameat2};

use super::volumes::{errno, open};
use super::{Surviving, change_all_ways};
use crate::suspended::{noise, wait_for};

/// All that stat(2) tells of what is below a folder, and the contents of files, as lines.
fn listed(folder: &Path, lines: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let of = fs::symlink_metadata(&path).unwrap();
        let times = [(of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec())];
        let contents = match of.file_type() {
            kind if kind.is_file() => {
                format!("{:x?}", fs::read(&path).unwrap().iter().rev().take(40).collect::<Vec<_>>())
            }
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
            _ => String::new(),
        };
        let xattr = Some(&path).filter(|_| of.is_file()).map(|path| {
            let listed =
                std::process::Command::new("getfattr").args(["-d", "-m", ".", "--absolute-names"]).arg(path).output();
            listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
        });
        lines.push(format!(
            "{} {} {:o} {} {} {} {} {times:?} {contents} {xattr:?}",
            path.display(),
            of.ino(),
            of.mode(),
            of.nlink(),
            of.uid(),
            of.gid(),
            of.len()
        ));
        if of.is_dir() {
            listed(&path, lines);
        }
    }
}

fn tree(pool: &Surviving) -> Vec<String> {
    let mut lines = Vec::new();
    listed(&pool.mnt, &mut lines);
    lines
}

/// Changes of each kind that a record can tell. Groups come only when they are asked for.
fn change(pool: &Surviving, round: u32) {
    let at = |name: &str| pool.at(&format!("{name}.{round}"));
    let write = |name: &str, contents: &[u8]| fs::write(at(name), contents).unwrap();
    fs::create_dir(at("folder")).unwrap();
    write("small", b"small");
    write("large", &noise(3 << 20, u64::from(round)));
    write("cut", &noise(300_000, 2));
    OpenOptions::new().write(true).open(at("cut")).unwrap().set_len(1000).unwrap();
    write("grown", b"grown");
    OpenOptions::new().write(true).open(at("grown")).unwrap().set_len(1 << 20).unwrap();
    write("moved", b"moved");
    fs::rename(at("moved"), at("folder").join("inside")).unwrap();
    write("over", b"over");
    write("under", b"under");
    fs::rename(at("over"), at("under")).unwrap();
    write("gone", b"gone");
    fs::remove_file(at("gone")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::remove_dir(at("empty")).unwrap();
    fs::hard_link(at("small"), at("linked")).unwrap();
    symlink("small", at("symlink")).unwrap();
    fs::set_permissions(at("grown"), Permissions::from_mode(0o604)).unwrap();
    std::os::unix::fs::chown(at("grown"), Some(77), Some(88)).unwrap();
    write("timed", b"timed");
    let earlier = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    File::options().write(true).open(at("timed")).unwrap().set_modified(earlier).unwrap();
    let root = File::open(&pool.mnt).unwrap();
    write("this", b"this");
    write("that", b"that");
    let [this, that] = ["this", "that"].map(|name| format!("{name}.{round}"));
    renameat2(root.as_fd(), &*this, root.as_fd(), &*that, RenameFlags::RENAME_EXCHANGE).unwrap();
    // one that is committed in the middle, with the names up to here
    write("synced", b"synced");
    File::open(at("synced")).unwrap().sync_all().unwrap();
    OpenOptions::new().append(true).open(at("synced")).unwrap().write_all(b", and not").unwrap();
    // a number that is used again
    for again in 0..3 {
        write("again", &noise(5000 + again * 100, again as u64));
        fs::remove_file(at("again")).unwrap();
    }
    write("again", b"again");
}

#[test]
fn nothing_is_lost_with_the_process() {
    let Some(pool) = Surviving::new("reattach-kept", "-O xattr=sa") else { return };
    pool.world.tune("zfs_txg_timeout", 1000);
    for round in 0..4 {
        change(&pool, round);
        let before = tree(&pool);
        let folder = File::open(&pool.mnt).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(pool.at(&format!("large.{round}"))).unwrap();
        // also where the next one dies, too
        pool.kill();
        let log = fs::read_to_string(pool.world.dir.join("run/tank.log")).unwrap();
        assert!(log.contains("operations of the process before are done again"), "{log}");
        (0..round % 2).for_each(|_| pool.kill());
        let after = tree(&pool);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(after, before, "round {round}");
        }
        assert_eq!(after.len(), before.len());
        file.sync_all().unwrap();
        folder.sync_all().unwrap();
        file.write_all_at(b"on", 5).unwrap();
    }
    let (events, _) = pool.world.told("zpool events");
    assert!(!events.contains("changes_lost"), "{events}");
    pool.leaves();
}

/// Each process dies at a place of a commit, or of a group, again and again, and nothing is lost nor done twice.
#[test]
#[cfg(debug_assertions)]
fn deaths_at_each_place_lose_nothing() {
    if !crate::can_mount("reattach-places") {
        return;
    }
    for (place, every) in [("log write", 5), ("log flush", 6), ("group closed", 40), ("group on disk", 41)] {
        let name = format!("reattach-{}", place.replace(' ', "-"));
        let pool = Surviving::failing(&name, &format!("/{place}/{every}"), "standard");
        let mut trees = Vec::new();
        for round in 0..6 {
            change(&pool, round);
            for synced in 0..4 {
                let file = File::create(pool.at(&format!("{round}.{synced}"))).unwrap();
                (&file).write_all(&noise(20_000, synced)).unwrap();
                file.sync_all().unwrap();
                pool.world.told("zpool sync tank");
            }
            trees = tree(&pool);
        }
        pool.kill();
        assert_eq!(tree(&pool), trees, "{place}");
        let (events, _) = pool.world.told("zpool events");
        assert!(!events.contains("changes_lost"), "{place}: {events}");
        wait_for("the export", || pool.world.told("zpool export tank").1 == 0);
        pool.world.check("import -N -d DIR tank", 0, "");
        pool.leaves();
    }
}

/// A file without a name keeps what was written to it, and its room is free when nobody uses it any more, also if that was
/// told to a process that died.
#[test]
fn files_without_a_name_keep_what_was_written() {
    let Some(pool) = Surviving::new("reattach-nameless", "-O compression=off") else { return };
    pool.world.tune("zfs_txg_timeout", 1000);
    let contents = noise(8 << 20, 3);
    let [open, closed] = ["open", "closed"].map(|name| File::create_new(pool.at(name)).unwrap());
    for file in [&open, &closed] {
        file.write_all_at(&contents[..1 << 20], 0).unwrap();
    }
    fs::remove_file(pool.at("open")).unwrap();
    fs::remove_file(pool.at("closed")).unwrap();
    for file in [&open, &closed] {
        file.write_all_at(&contents[1 << 20..], 1 << 20).unwrap();
    }
    drop(closed);
    pool.kill();
    let mut read = vec![0; contents.len()];
    open.read_exact_at(&mut read, 0).unwrap();
    assert!(read == contents);
    open.sync_all().unwrap();
    let used = || -> u64 {
        pool.world.check("sync tank", 0, "");
        pool.world.zfs("list -Hpo refer tank").0.trim().parse().unwrap()
    };
    wait_for("the room of the closed file", || used() < 9 << 20);
    drop(open);
    wait_for("the room of the other one", || used() < 1 << 20);
    pool.leaves();
}

/// Where a change cannot be told by a record, its group is lost, and that is told; and later ones are kept again.
#[test]
fn what_cannot_be_kept_is_told() {
    let Some(pool) = Surviving::new("reattach-gap", "-O acltype=posix") else { return };
    pool.world.tune("zfs_txg_timeout", 1000);
    fs::write(pool.at("file"), "earlier").unwrap();
    pool.world.check("sync tank", 0, "");
    let file = OpenOptions::new().read(true).write(true).open(pool.at("file")).unwrap();
    file.write_all_at(b"a gap  ", 0).unwrap();
    let acl = std::process::Command::new("setfacl").args(["-m", "u:77:rw"]).arg(pool.at("file")).status();
    if !acl.is_ok_and(|status| status.success()) {
        return pool.leaves();
    }
    pool.kill();
    assert_eq!(errno(file.sync_all()), Some(nix::libc::EIO));
    assert_eq!(fs::read_to_string(pool.at("file")).unwrap(), "earlier");
    file.write_all_at(b"later  ", 0).unwrap();
    pool.kill();
    assert_eq!(errno(file.sync_all()), None);
    assert_eq!(fs::read_to_string(pool.at("file")).unwrap(), "later  ");
    drop(file);
    pool.leaves();
}

#[test]
fn volumes_keep_what_was_written() {
    let Some(pool) = Surviving::new("reattach-keptvolumes", "-O mountpoint=none") else { return };
    pool.world.tune("zfs_txg_timeout", 1000);
    for volume in ["vol", "other"] {
        assert_eq!(pool.world.zfs(&format!("create -V 32M tank/{volume}")), (String::new(), 0));
    }
    let contents = noise(5 << 20, 9);
    open(&pool, "vol").write_all_at(&contents, 12345).unwrap();
    let other = open(&pool, "other");
    other.write_all_at(&contents[..1000], 0).unwrap();
    other.sync_all().unwrap();
    other.write_all_at(&contents[1000..2000], 500).unwrap();
    drop(other);
    // the first one after the death is asked of neither
    pool.kill();
    pool.kill();
    for (volume, at, expected) in
        [("vol", 12345, contents.clone()), ("other", 0, [&contents[..500], &contents[1000..2000]].concat())]
    {
        let file = open(&pool, volume);
        assert_eq!(errno(file.sync_all()), None, "{volume}");
        let mut found = vec![0; expected.len()];
        file.read_exact_at(&mut found, at).unwrap();
        assert!(found == expected, "{volume}");
    }
    pool.leaves();
}

/// A program that changes names in all ways, and is killed under: the model of names is right, and nobody is told of a loss.
#[test]
fn all_ways_are_kept() {
    let Some(pool) = Surviving::new("reattach-ways", "") else { return };
    pool.world.tune("zfs_txg_timeout", 1000);
    change_all_ways(&pool);
    let before = tree(&pool);
    pool.kill();
    assert_eq!(tree(&pool), before);
    pool.leaves();
}
