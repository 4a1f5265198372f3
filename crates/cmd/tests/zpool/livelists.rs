//! Clones that keep a list of what they wrote, as a user and zdb meet them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::snapshots::Fresh;

/// Bytes of the file that clones share, in blocks of 8 KiB.
const SHARED: usize = 8 << 20;

struct Cloned {
    fresh: Fresh,
    point: PathBuf,
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..len as u64 / 8).map(|n| (n ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(|word| (word ^ word >> 29).to_le_bytes()).collect()
}

impl Cloned {
    /// A file system with a file, and a clone of it that is mounted.
    fn new(name: &str) -> Cloned {
        let fresh = Fresh::new(name);
        fresh.world.tune("zfs_livelist_max_entries", 40);
        fresh.does("set recordsize=8K fresh/a");
        let origin = fresh.world.dir.join("a.mnt");
        fresh.does(&format!("set mountpoint={} fresh/a", origin.display()));
        fs::write(origin.join("shared"), noise(1, SHARED)).unwrap();
        fresh.does("snapshot fresh/a@s");
        fresh.does("unmount fresh/a");
        let mut cloned = Cloned { fresh, point: PathBuf::new() };
        cloned.point = cloned.clone_as("k");
        cloned
    }

    fn clone_as(&self, name: &str) -> PathBuf {
        let point = self.fresh.world.dir.join(format!("{name}.mnt"));
        self.fresh.does(&format!("clone -o mountpoint={} fresh/a@s fresh/{name}", point.display()));
        point
    }

    fn feature(&self) -> String {
        let output = self.fresh.world.cenote("zpool get -H -o value feature@livelist fresh").stdout;
        String::from_utf8(output).unwrap().trim().to_owned()
    }

    fn sync(&self) {
        self.fresh.world.check("sync fresh", 0, "");
    }

    /// Some groups that write, overwrite, free and truncate.
    fn changes(&self, point: &Path) {
        let shared = fs::OpenOptions::new().write(true).open(point.join("shared")).unwrap();
        for round in 0..12u64 {
            shared.write_all_at(&noise(round, 65_536), round % 5 * 40_960).unwrap();
            fs::write(point.join(format!("new{}", round % 3)), noise(90 + round, 150_000)).unwrap();
            self.sync();
        }
        fs::remove_file(point.join("new1")).unwrap();
        self.sync();
    }

    /// zdb finds all blocks of all clones in their lists.
    fn looked_at(&self) {
        self.fresh.world.check("export fresh", 0, "");
        let output = std::process::Command::new("zdb")
            .args(["-bccy", "-e", "-p"])
            .arg(&self.fresh.world.dir)
            .arg("fresh")
            .output();
        if let Ok(output) = output {
            let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
            assert!(output.status.success() && text.contains("No leaks"), "{text}");
            assert!(!text.contains("ERROR"), "{text}");
        }
        self.fresh.world.check("import -d DIR fresh", 0, "");
    }

    fn is_freed(&self) {
        let began = Instant::now();
        loop {
            self.sync();
            let freeing = self.fresh.world.cenote("zpool get -Hp -o value freeing fresh").stdout;
            if freeing == b"0\n" && self.feature() == "enabled" {
                return;
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{} {}",
                String::from_utf8_lossy(&freeing),
                self.feature()
            );
        }
    }
}

#[test]
fn a_clone_is_destroyed_by_its_list() {
    let cloned = Cloned::new("livelist");
    assert_eq!(cloned.feature(), "active");
    cloned.changes(&cloned.point);
    // a snapshot keeps what is overwritten behind it
    cloned.fresh.does("snapshot fresh/k@mid");
    cloned.changes(&cloned.point);
    assert_eq!(cloned.feature(), "active");
    cloned.looked_at();
    cloned.fresh.does("destroy fresh/k@mid");
    cloned.changes(&cloned.point);
    cloned.looked_at();
    // in small portions, with a crash between
    cloned.fresh.world.tune("zfs_async_block_max_blocks", 7);
    cloned.fresh.does("destroy fresh/k");
    cloned.sync();
    cloned.fresh.world.kill("fresh");
    cloned.fresh.world.check("import -d DIR fresh", 0, "");
    cloned.fresh.world.tune("zfs_async_block_max_blocks", 1000);
    cloned.is_freed();
    cloned.fresh.judge();
}

#[test]
fn a_list_that_is_of_no_use_goes() {
    let cloned = Cloned::new("unlisted");
    // most of it is its own now
    fs::write(cloned.point.join("shared"), noise(5, SHARED / 2)).unwrap();
    cloned.sync();
    assert_eq!(cloned.feature(), "enabled");
    let other = cloned.clone_as("l");
    cloned.changes(&other);
    assert_eq!(cloned.feature(), "active");
    cloned.fresh.does("promote fresh/l");
    assert_eq!(cloned.feature(), "enabled");
    cloned.looked_at();
    cloned.fresh.does("destroy -r fresh/k");
    cloned.is_freed();
    cloned.fresh.judge();
}
