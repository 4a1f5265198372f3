//! Labs: on emulated devices in their short form, killed and gone on with; and devices that they refuse.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base::next_mixed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{World, can_mount, look_at_page};

const STUDIES: [&str; 6] = ["sync", "judge", "randread", "matrix", "practice", "vmcache"];

/// Cells of the short form, about.
const CELLS: u64 = 40;

/// A lab in a folder of the world.
fn lab(world: &World, words: &str) -> Command {
    let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
    command.arg("lab").args(words.split_whitespace()).arg("--out").arg(out(world));
    command
}

fn out(world: &World) -> PathBuf {
    world.dir.join("out")
}

/// The lines of the journal that are whole.
fn journal(world: &World) -> Vec<String> {
    let text = fs::read_to_string(out(world).join("journal.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

/// Names of the cells of a journal.
fn cells(lines: &[String]) -> Vec<String> {
    let name = |line: &String| serde_json::from_str::<Value>(line).unwrap()["cell"].as_str().unwrap().to_owned();
    lines.iter().skip(1).map(name).collect()
}

fn is_anything_mounted(below: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|line| line.contains(below.to_str().unwrap()))
}

/// Loop devices over files below a folder.
fn loops(below: &Path) -> Vec<String> {
    let files = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path().join("loop/backing_file"));
    let files = files.filter_map(|file| fs::read_to_string(file).ok());
    files.filter(|file| file.contains(below.to_str().unwrap())).collect()
}

/// Neither a mount nor a loop device nor a file is left at work.
fn is_nothing_left(world: &World) -> bool {
    !is_anything_mounted(&out(world)) && loops(&out(world)).is_empty() && !out(world).join("work").exists()
}

/// Waits until it has said so many lines, then sends a signal and waits for its end.
fn end_after(mut child: Child, lines: usize, later: Duration, signal: Signal) -> bool {
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let said = stdout.lines().take(lines).count();
    std::thread::sleep(later);
    let _ = kill(Pid::from_raw(child.id() as i32), signal);
    let status = child.wait().unwrap();
    said == lines && !status.success()
}

/// CENOTE_LAB_KILLS says how often it is killed; once in each study if it is not set.
#[test]
fn a_lab_that_was_killed_measures_what_is_missing_only() {
    if !can_mount(file!()) {
        return;
    }
    let world = World::new("lab", &[]);
    let kills: u64 = std::env::var("CENOTE_LAB_KILLS").map_or(3, |text| text.parse().unwrap());
    // so that they are spread over the whole lab
    let cells_max = (CELLS / kills).max(1) + 1;
    let mut seed = 47;
    let mut killed = 0;
    let mut before: Vec<String> = Vec::new();
    for n in 0..kills {
        let child = lab(&world, "--emulate --short").stdout(Stdio::piped()).spawn().unwrap();
        // the lines of the studies' times come first
        let lines = STUDIES.len() + (next_mixed(&mut seed) % cells_max) as usize;
        let was_killed = end_after(child, lines, Duration::from_millis(next_mixed(&mut seed) % 700), Signal::SIGKILL);
        let now = journal(&world);
        assert_eq!(now[..before.len().min(now.len())], before, "kill {n}: what was finished is as it was");
        before = now;
        if !was_killed {
            break;
        }
        killed += 1;
    }
    println!("killed {killed} times");
    let done = lab(&world, "--emulate --short").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let after = journal(&world);
    assert_eq!(after[..before.len()], before);
    let failed: Vec<&String> = after.iter().filter(|line| line.contains("\"failed\"")).collect();
    // fio is Debian's, and may be missing
    assert!(failed.iter().all(|line| line.contains("is not installed")), "{failed:?}");
    let mut names = cells(&after);
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "no cell is measured twice");
    for study in STUDIES {
        assert!(names.iter().any(|name| name.starts_with(&format!("{study}/"))), "{study}: {names:?}");
    }
    assert!(is_nothing_left(&world));

    let report: Value = serde_json::from_slice(&fs::read(out(&world).join("report.json")).unwrap()).unwrap();
    let text = report["chapters"][0]["words"].as_array().unwrap().iter().map(|words| words.as_str().unwrap());
    let text: Vec<&str> = text.collect();
    // which answers they are is a matter of times, and of a quiet machine
    assert!(text.iter().any(|words| words.starts_with("15k disks as a log of 10k disks ")), "{text:?}");
    assert!(text.iter().any(|words| words.starts_with("A log on this SSD ")), "{text:?}");
    let page = fs::read_to_string(out(&world).join("report.html")).unwrap();
    assert!(page.len() < 2 << 20 && !page.contains("<script") && !page.contains("http://cenote"), "{}", page.len());
    look_at_page(&format!("file://{}", out(&world).join("report.html").display()), &[]);
    let csv = fs::read_to_string(out(&world).join("cells.csv")).unwrap();
    assert!(csv.lines().count() > all, "three runs of each");

    // finished, it makes the same report, and another lab does not go on with it
    let again = lab(&world, "--emulate --short").output().unwrap();
    assert!(again.status.success() && journal(&world) == after);
    let other = lab(&world, "--emulate").output().unwrap();
    assert!(!other.status.success() && String::from_utf8_lossy(&other.stderr).contains("other devices or options"));
}

#[test]
fn an_interrupted_lab_leaves_nothing_behind() {
    if !can_mount(file!()) {
        return;
    }
    let world = World::new("lab-interrupted", &[]);
    let child = lab(&world, "sync --emulate --short").stdout(Stdio::piped()).spawn().unwrap();
    assert!(end_after(child, 2, Duration::from_millis(200), Signal::SIGINT));
    assert!(is_nothing_left(&world));
    let lines = journal(&world);
    assert!(lines.len() >= 2, "{lines:?}");
}

/// Killed, and then interrupted, while it measures ext4.
#[test]
fn file_systems_beside_ours_go_with_the_lab() {
    if !can_mount(file!()) {
        return;
    }
    let can_make = Command::new("mkfs.ext4").arg("-V").output().is_ok() && Path::new("/dev/loop-control").exists();
    if !can_make || !fs::read_to_string("/proc/filesystems").unwrap().contains("\text4\n") {
        eprintln!("NOT TESTED: file systems beside ours, as there is no ext4 (package e2fsprogs) or no loop device");
        return;
    }
    let world = World::new("lab-peers", &[]);
    fs::create_dir_all(out(&world)).unwrap();
    // pools, which come before, are finished
    let mut text = r#"{"version":1,"is_emulated":true,"is_short":true,"runs":3,"devices":[],"tree":null}"#.to_owned();
    for setting in ["default", "compression=lz4", "dedup=on"] {
        for cell in ["write, ratio 1.0", "write, ratio 4.0", "read, ratio 4.0"] {
            let head = format!(r#"{{"cell":"matrix/{setting}/{cell}","unit":"MiB/s","command":"","#);
            text += &format!("\n{head}\"runs\":[{{\"value\":1.0}}]}}");
        }
    }
    fs::write(out(&world).join("journal.jsonl"), text + "\n").unwrap();
    let began = journal(&world).len();
    for (n, signal) in [Signal::SIGKILL, Signal::SIGINT].into_iter().enumerate() {
        let child = lab(&world, "matrix --emulate --short").stdout(Stdio::piped()).spawn().unwrap();
        // the line of the study's time comes first
        assert!(end_after(child, 2, Duration::from_millis(50), signal), "{signal}");
        let lines = journal(&world);
        assert!(lines.len() > began + n && lines[began + n].contains("matrix/ext4/write"), "{lines:?}");
        assert!(!lines[began + n].contains("\"failed\""), "{lines:?}");
        assert_eq!(signal == Signal::SIGKILL, !is_nothing_left(&world), "{signal}");
    }
}

/// The pool of a setting is made, and its volume is larger than it.
#[test]
fn a_setting_that_cannot_be_made_is_not_in_the_way_of_others() {
    if !can_mount(file!()) {
        return;
    }
    let world = World::new("lab-half-made", &[]);
    fs::create_dir_all(&world.dir).unwrap();
    // there is room for the files of the other study, of 64 MiB each
    fs::write(world.dir.join("ssd"), vec![0; 224 << 20]).unwrap();
    let words = format!("judge sync --short --ssd {}", world.dir.join("ssd").display());
    let done = lab(&world, &words).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let lines = journal(&world);
    let (judge, sync): (Vec<&String>, Vec<&String>) =
        lines.iter().skip(1).partition(|line| line.contains("\"cell\":\"judge/"));
    assert!(judge.len() >= 2 && judge.iter().all(|line| line.contains("out of space")), "{judge:?}");
    assert!(sync.len() == 2 && sync.iter().all(|line| !line.contains("\"failed\"")), "{sync:?}");
}

#[test]
fn a_lab_refuses_what_is_not_blank() {
    let world = World::new("lab-refuses", &[]);
    fs::create_dir_all(&world.dir).unwrap();
    let disk = world.dir.join("disk");
    let mut bytes = vec![0; 64 << 20];
    bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    fs::write(&disk, &bytes).unwrap();
    let why = |words: &str| {
        let done = lab(&world, &words.replace("DIR", world.dir.to_str().unwrap())).output().unwrap();
        assert!(!done.status.success(), "{words}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    assert!(why("--disk DIR/disk").contains("not touched"));
    assert!(fs::read(&disk).unwrap() == bytes);
    assert!(why("--disk DIR/none").contains("none"));
    assert!(why("sync").contains("there are no devices"));
    fs::write(&disk, vec![0; 64 << 20]).unwrap();
    assert!(why("--disk DIR/disk --ssd DIR/disk").contains("twice"));
}
