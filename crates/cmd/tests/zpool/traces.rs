//! `cenote trace record` of a pool in use: what was asked of it is in the trace, and a replay on another pool is the same.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::opens::does;
use super::suspended::{noise, wait_for, write};
use super::{World, can_mount};

/// Counts and bytes of reads, writes and syncs.
type Counts = [(u64, u64); 3];

fn counts_of(json: &Value, of: [&str; 2]) -> Counts {
    let number = |op: &str, name: &str| json[op][name].as_u64().unwrap_or_else(|| panic!("{op} {name}: {json}"));
    ["reads", "writes", "syncs"].map(|op| (number(op, of[0]), number(op, of[1])))
}

/// What is in a trace.
fn shown(world: &World, file: &str) -> (Counts, String) {
    let (text, code) = world.told(&format!("trace show --json DIR/{file}"));
    assert_eq!(code, 0, "{text}");
    let counts = counts_of(&serde_json::from_str(&text).unwrap(), ["requests", "bytes"]);
    (counts, world.told(&format!("trace show -n 1000 DIR/{file}")).0)
}

/// A recording, which notes already.
struct Recording<'a> {
    world: &'a World,
    command: Child,
}

/// Whether the process of the pool has a tap open.
pub(super) fn has_tap(world: &World) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", world.process_of("fresh"))).unwrap().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).any(|name| name.trim() == "tap")
}

impl Recording<'_> {
    fn start<'a>(world: &'a World, name: &str, of: &str) -> Recording<'a> {
        let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
        let command = command.args(["trace", "record"]).args(of.split(' '));
        command.arg("-o").arg(world.dir.join(name)).stdout(Stdio::piped());
        let command = command.spawn().unwrap();
        wait_for("the tap", || has_tap(world));
        Recording { world, command }
    }

    /// Ends it as Ctrl-C does.
    fn end(self) {
        let pid = nix::unistd::Pid::from_raw(self.command.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        let output = self.command.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        wait_for("the tap to close", || !has_tap(self.world));
    }
}

#[test]
fn what_was_asked_is_recorded_and_replayed() {
    if !can_mount("traces") {
        return;
    }
    let world = World::new("traces", &[]);
    File::create(world.dir.join("disk")).unwrap().set_len(512 << 20).unwrap();
    world.check("create -o cachefile=none -O compression=off -R DIR/mnt fresh DIR/disk", 0, "");
    for name in ["used", "other", "copy"] {
        does(&world, &format!("create -o org.cenote:pagecache=off -o atime=off fresh/{name}"));
    }
    let mnt = world.dir.join("mnt/fresh");
    write(&mnt.join("used/file"), &noise(1 << 20, 1)).unwrap();
    let file = File::options().read(true).write(true).open(mnt.join("used/file")).unwrap();
    let use_it = || {
        let mut bytes = vec![7; 4096];
        for n in 0..25 {
            file.write_all_at(&bytes, n * 8192).unwrap();
            file.read_exact_at(&mut bytes, n * 4096).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        file.sync_all().unwrap();
        write(&mnt.join("other/file"), &[1; 512]).unwrap();
    };
    let expect = [(25, 25 * 4096), (25, 25 * 4096), (1, 0)];
    let with_other = [(25, 25 * 4096), (26, 25 * 4096 + 512), (2, 0)];
    for (name, of, expect) in [("one", "fresh/used", expect), ("all", "fresh", with_other)] {
        let recording = Recording::start(&world, name, of);
        use_it();
        recording.end();
        let (counts, list) = shown(&world, name);
        assert_eq!(counts, expect, "{of}: {list}");
        let inode = file.metadata().unwrap().ino().to_string();
        assert!(list.lines().filter(|line| line.split(' ').nth(3) == Some(&inode)).count() >= 51, "{list}");
    }
    // the replay asks the same of another file system, which a second recording sees
    let again = Recording::start(&world, "again", "fresh/copy");
    let (text, code) = world.told("trace replay DIR/one --at DIR/mnt/fresh/copy --json");
    assert_eq!(code, 0, "{text}");
    let replayed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((counts_of(&replayed, ["count", "bytes"]), &replayed["failed"]), (expect, &0.into()));
    again.end();
    let (counts, list) = shown(&world, "again");
    // before, it fills what is read: two parts of 64 KiB, and syncs the file
    assert_eq!(counts, [expect[0], (expect[1].0 + 2, expect[1].1 + (128 << 10)), (2, 0)], "{list}");
    // and the advisor takes it
    let (text, code) = world.told("advise cache --trace DIR/all --ram 64M");
    assert!(code == 0 && text.contains("Too little was read to say anything: 25 reads."), "{text}");
    drop(file);
    world.check("export fresh", 0, "");
}

/// Names are recorded only if they are asked for; one of an attacker does nothing to the terminal.
#[test]
fn names_are_recorded_if_they_are_asked_for() {
    if !can_mount("trace-names") {
        return;
    }
    let world = World::new("trace-names", &[]);
    File::create(world.dir.join("disk")).unwrap().set_len(256 << 20).unwrap();
    world.check("create -o cachefile=none -R DIR/mnt fresh DIR/disk", 0, "");
    does(&world, "create -o org.cenote:pagecache=off -o atime=off fresh/used");
    let mnt = world.dir.join("mnt/fresh/used");
    std::fs::create_dir_all(mnt.join("deep/er")).unwrap();
    let names = ["deep/er/a file", "deep/other", "\u{1b}[31mred\n"];
    let open = |name: &str| File::options().create(true).truncate(false).write(true).open(mnt.join(name)).unwrap();
    let files: Vec<File> = names.iter().map(|name| open(name)).collect();
    let gone = open("gone");
    std::fs::remove_file(mnt.join("gone")).unwrap();
    for (name, of) in [("plain", "fresh/used"), ("named", "fresh/used --names")] {
        let recording = Recording::start(&world, name, of);
        files.iter().chain([&gone]).for_each(|file| file.write_all_at(&[7; 4096], 0).unwrap());
        recording.end();
        let (counts, list) = shown(&world, name);
        assert_eq!(counts[1], (4, 4 * 4096), "{list}");
    }
    let told = |line: &str| {
        let (text, code) = world.told(line);
        assert_eq!(code, 0, "{text}");
        text
    };
    let count = |file: &str| {
        let json: Value = serde_json::from_str(&told(&format!("trace show --json DIR/{file}"))).unwrap();
        json["names"].as_u64().unwrap()
    };
    assert_eq!(["plain", "named"].map(count), [0, 3]);
    assert_eq!(told("trace show --names DIR/plain"), "STREAM OBJECT NAME\n");
    let list = told("trace show --names DIR/named");
    let lines: Vec<&str> = list.lines().skip(1).collect();
    for (file, shown) in files.iter().zip(["/deep/er/a file", "/deep/other", "/\\033[31mred\\012"]) {
        let end = format!(" {} {shown}", file.metadata().unwrap().ino());
        assert!(lines.iter().any(|line| line.ends_with(&end)), "{shown}: {list}");
    }
    assert_eq!(lines.len(), 3, "{list}");
    drop((files, gone));
    world.check("export fresh", 0, "");
}

#[test]
fn recordings_that_cannot_be() {
    let world = World::new("no-trace", &["single"]);
    world.check("import -N -o readonly=on -d DIR/single t_single", 0, "");
    std::fs::write(world.dir.join("mine"), "mine").unwrap();
    let (text, code) = world.told("trace record t_single -o DIR/mine --for 0.1");
    assert!(code == 1 && text.contains("File exists"), "{text}");
    assert_eq!(std::fs::read(world.dir.join("mine")).unwrap(), b"mine");
    let (text, code) = world.told("trace record t_single/none -o DIR/none --for 0.1");
    assert_eq!((text.as_str(), code), ("cenote trace: cannot open 't_single/none': dataset does not exist\n", 1));
    assert!(!world.dir.join("none").exists());
    // nothing is asked of it
    let (text, code) = world.told("trace record t_single -o DIR/none --for 0.1");
    assert_eq!((text.as_str(), code), ("0 reads of 0B, 0 writes of 0B, 0 syncs in 0.0 s\n", 0));
    world.check("export t_single", 0, "");
}
