//! Emulated devices, as a folder of files, and what is measured of one.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{World, can_mount};

/// A process that serves devices, and what it says; it is killed if a test fails.
struct Served(Child, BufReader<ChildStdout>);

impl Served {
    /// Serves a disk and an SSD of 64 MiB.
    fn start(world: &World) -> Served {
        let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
        let [disk, ssd] = ["hdd7200=disk", "ssd-plp=ssd"].map(|device| {
            let (kind, name) = device.split_once('=').unwrap();
            format!("{kind}={}", world.dir.join(name).display())
        });
        command.arg("emulate").arg("--at").arg(world.dir.join("mnt")).args(["--size", "64M", &disk, &ssd]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut served = Served(child, stdout);
        // it says so once it is mounted; a dead mount would look as if it were
        let mut line = String::new();
        served.1.read_line(&mut line).unwrap();
        assert!(line.starts_with("hdd7200 "), "nothing is mounted: {line}");
        served
    }

    /// Ends it by a signal, and tells whether it says that all went well.
    fn end(mut self, signal: Signal) -> bool {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
        self.0.wait().unwrap().success()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The time of each of some writes of 4 KiB, one behind the other, with an fsync: the median.
fn synced(file: &File) -> Duration {
    let mut times: Vec<Duration> = (0..15u64)
        .map(|n| {
            let began = Instant::now();
            file.write_all_at(&[n as u8 + 1; 4096], n * 4096).unwrap();
            file.sync_data().unwrap();
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn emulated_devices_are_files() {
    if !can_mount(file!()) {
        return;
    }
    let world = World::new("emulated", &[]);
    fs::create_dir(world.dir.join("mnt")).unwrap();
    let served = Served::start(&world);
    let open = |name: &str| File::options().read(true).write(true).open(world.dir.join("mnt").join(name)).unwrap();
    let (disk, ssd) = (open("disk"), open("ssd"));
    assert_eq!(disk.metadata().unwrap().len(), 64 << 20);
    let (slow, fast) = (synced(&disk), synced(&ssd));
    assert!(slow >= Duration::from_micros(8200), "a revolution takes 8.3 ms: {slow:?}");
    assert!(fast < slow / 2, "{fast:?}, where the disk takes {slow:?}");
    let mut bytes = [0; 4096];
    ssd.read_exact_at(&mut bytes, 7 * 4096).unwrap();
    assert!(bytes == [8; 4096] && disk.write_all_at(&[0], 64 << 20).is_err(), "it does not grow");
    drop((disk, ssd));
    assert!(served.end(Signal::SIGINT));
    assert!(fs::read_dir(world.dir.join("mnt")).unwrap().next().is_none(), "a mount was left behind");
    assert!(fs::read(world.dir.join("ssd")).unwrap()[7 * 4096..8 * 4096] == [8; 4096]);

    // one that is in use goes, too, and what was killed is in nobody's way
    assert!(!Served::start(&world).end(Signal::SIGKILL));
    let served = Served::start(&world);
    let held = open("disk");
    assert!(served.end(Signal::SIGTERM));
    assert!(held.sync_data().is_err() && fs::read_dir(world.dir.join("mnt")).unwrap().next().is_none());
    fs::remove_dir_all(&world.dir).unwrap();
}

#[test]
fn a_log_device_is_measured_and_left_blank() {
    if !can_mount(file!()) {
        return;
    }
    let world = World::new("advise-slog", &[]);
    fs::create_dir(world.dir.join("mnt")).unwrap();
    let served = Served::start(&world);
    let output = world.cenote("advise slog --json --fill 64M DIR/mnt/disk");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!((&json["class"], &json["verdict"]), (&"hdd7200".into(), &"do not buy".into()), "{json}");
    assert_eq!(json["says"]["is_emulated"], true);
    assert!(json["syncs"].as_array().is_some_and(|rows| rows.len() == 12) && json["fill"].is_null(), "{json}");
    assert!(served.end(Signal::SIGINT));
    assert!(fs::read(world.dir.join("disk")).unwrap().iter().all(|byte| *byte == 0), "it is not blank again");

    // what has anything on it is refused, with -f too, and stays as it is
    let mut bytes = vec![0; 64 << 20];
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(world.dir.join("old"), &bytes).unwrap();
    for (line, why) in [
        ("advise slog DIR/old", "partition table of type 'dos'"),
        ("advise slog -f DIR/old", "partition table of type 'dos'"),
        ("advise slog -f --serial X DIR/old", "no serial number"),
    ] {
        let output = world.cenote(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why) && said.contains("/old"), "{line}: {said}");
    }
    assert!(fs::read(world.dir.join("old")).unwrap() == bytes);
    fs::remove_dir_all(&world.dir).unwrap();
}
