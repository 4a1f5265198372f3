//! Counters of pools in use, as other programs read them.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use super::World;
use super::suspended::{noise, wait_for, write};

impl World {
    /// The numbers and texts of a table.
    pub(super) fn counters(&self, path: &str) -> HashMap<String, String> {
        let text = std::fs::read_to_string(self.dir.join("run/spl/kstat/zfs").join(path)).unwrap_or_default();
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.nth(1)?.to_owned()))
        };
        text.lines().skip(2).filter_map(row).collect()
    }

    /// The table of the dataset of that name.
    fn objset(&self, pool: &str, dataset: &str) -> Option<HashMap<String, String>> {
        let folder = self.dir.join("run/spl/kstat/zfs").join(pool).read_dir().ok()?;
        let names = folder.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let tables =
            names.filter(|name| name.starts_with("objset-0x")).map(|name| self.counters(&format!("{pool}/{name}")));
        tables.into_iter().find(|table| table.get("dataset_name").is_some_and(|name| name == dataset))
    }
}

/// With `primarycache` other than `all`, nobody keeps what a file holds when it is opened again.
#[test]
fn what_is_not_to_be_kept_is_read_again() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED kept: nothing can be mounted here");
        return;
    }
    let world = World::new("kept", &[]);
    world.disks(&["a"]);
    world.check("create -R DIR/mnt kept DIR/a", 0, "");
    for (keep, times) in [("all", 0), ("metadata", 3), ("none", 3)] {
        let name = format!("kept/{keep}");
        assert_eq!(world.zfs(&format!("create -o primarycache={keep} {name}")).1, 0);
        let file = world.dir.join("mnt").join(&name).join("file");
        let bytes = noise(100 << 10, 1);
        write(&file, &bytes).unwrap();
        for _ in 0..3 {
            assert!(std::fs::read(&file).unwrap() == bytes);
        }
        wait_for("what was read", || {
            let table = world.objset("kept", &name);
            table.is_some_and(|table| table.get("nread") == Some(&(times * (100u64 << 10)).to_string()))
        });
    }
    world.check("export kept", 0, "");
}

#[test]
fn what_datasets_do_is_counted() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED counted: nothing can be mounted here");
        return;
    }
    let world = World::new("counted", &[]);
    world.disks(&["a"]);
    world.check("create -R DIR/mnt counted DIR/a", 0, "");
    let mnt = world.dir.join("mnt/counted");
    let bytes = noise(100 << 10, 1);
    write(&mnt.join("file"), &bytes).unwrap();
    std::fs::remove_file(mnt.join("file")).unwrap();
    let is = |name: &str, value: u64| {
        world.objset("counted", "counted").is_some_and(|table| table.get(name) == Some(&value.to_string()))
    };
    wait_for("what was written", || is("nwritten", 100 << 10) && is("nunlinks", 1) && is("nunlinked", 1));
    let table = world.objset("counted", "counted").unwrap();
    assert!(table["writes"] != "0" && table["zil_commit_count"] == "1", "{table:?}");
    assert_eq!([&table["reads"], &table["nread"]], ["0", "0"]);
    assert!(world.counters("dbufstats").contains_key("cache_size_bytes"));
    let io = std::fs::read_to_string(world.dir.join("run/spl/kstat/zfs/counted/io")).unwrap();
    let written: Option<u64> = io.lines().nth(2).and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    assert!(written.is_some_and(|bytes| bytes > 100 << 10), "{io}");
    summaries(&world);
    live_view(&world);
    world.check("export counted", 0, "");
    assert!(!world.dir.join("run/spl/kstat/zfs/counted").exists());
}

#[test]
fn tunables_are_there_and_have_their_effect() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED tunables: nothing can be mounted here");
        return;
    }
    let world = World::new("tuned", &[]);
    world.disks(&["a"]);
    world.tune("zfs_async_block_max_blocks", 0);
    world.check("create -R DIR/mnt tuned DIR/a", 0, "");
    let parameters = world.dir.join("run/module/zfs/parameters");
    let value = |name: &str| std::fs::read_to_string(parameters.join(name)).unwrap_or_default().trim().to_owned();
    for tunable in base::tunables::ALL {
        assert_ne!(value(tunable.name), "", "{}", tunable.name);
    }
    assert_eq!([value("zfs_async_block_max_blocks"), value("zfs_txg_timeout")], ["0", "5"]);
    assert_eq!(world.zfs("create tuned/gone").1, 0);
    write(&world.dir.join("mnt/tuned/gone/file"), &noise(4 << 20, 1)).unwrap();
    assert_eq!(world.zfs("destroy tuned/gone").1, 0);
    let freeing = || String::from_utf8(world.zpool("get -Hpo value freeing tuned").stdout).unwrap();
    let freeing = || freeing().trim().parse::<u64>().unwrap();
    world.check("sync tuned", 0, "");
    assert!(freeing() > 4 << 20, "nothing is freed");
    world.tune("zfs_async_block_max_blocks", 10);
    world.check("sync tuned", 0, "");
    wait_for("what was destroyed", || freeing() == 0);
    wait_for("the file", || value("zfs_async_block_max_blocks") == "10");
    world.check("export tuned", 0, "");
}

/// A pool that is exported and comes back is shown again, below new headings.
#[test]
fn iostat_waits_for_its_pool() {
    let world = World::new("watched", &[]);
    world.disks(&["a"]);
    world.check("create -O mountpoint=none watched DIR/a", 0, "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.args(["zpool", "iostat", "watched", "0.1"]).env("CENOTE_RUN", world.dir.join("run"));
    let [out, err] = ["out", "err"].map(|name| world.dir.join(name));
    command.stdout(std::fs::File::create(&out).unwrap()).stderr(std::fs::File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    let count = |file: &Path, text: &str| std::fs::read_to_string(file).unwrap().matches(text).count();
    wait_for("a row", || count(&out, "\nwatched") > 0);
    world.check("export watched", 0, "");
    wait_for("that there is none", || count(&err, "no pools available\n") > 1);
    world.check("import -d DIR watched", 0, "");
    wait_for("new headings", || count(&out, "capacity") == 2);
    child.kill().unwrap();
    child.wait().unwrap();
    world.check("export watched", 0, "");
}

/// `cenote top`, two looks, and one at a pool that is not there.
fn live_view(world: &World) {
    let top = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.arg("top").args(line.split_whitespace()).env("CENOTE_RUN", world.dir.join("run"));
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(output.status.success(), "{line}: {text}");
        text
    };
    // what is no terminal is written to as with -b
    for line in ["-b -n 2 -d 0.1", "-n 2 -d 0.1 counted"] {
        let text = top(line);
        let looks: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(looks.len(), 2, "{text}");
        for look in looks {
            assert!(look.starts_with("cenote top ") && !look.contains('\x1b'), "{look}");
            assert!(look.contains("\nREADS FROM") && look.contains("\ncounted "), "{look}");
        }
    }
    let absent = top("-n 1 nope");
    assert!(absent.ends_with("not in use: nope\n") && absent.lines().count() == 1, "{absent}");
}

/// `arc_summary` reads the tables of all pools, where it is installed.
fn summaries(world: &World) {
    let run = world.dir.join("run");
    let summary = |section: &str| {
        let line = "mount --bind \"$0\" /proc && exec arc_summary -s \"$1\"";
        Command::new("unshare").args(["-m", "sh", "-c", line]).arg(&run).arg(section).output()
    };
    let is_there = Command::new("unshare").args(["-m", "sh", "-c", "command -v arc_summary"]).output();
    if !is_there.is_ok_and(|found| found.status.success()) {
        eprintln!("SKIPPED arc_summary: it is not installed, or may not be given another /proc");
        return;
    }
    for section in ["arc", "archits", "dmu", "l2arc", "zil"] {
        let output = summary(section).unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(output.status.success() && !text.contains("Traceback") && text.len() > 50, "{section}: {text}");
    }
}
