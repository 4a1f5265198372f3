//! `cenote advise cache` of a pool in use: hits at other sizes as they are when the cache really has these sizes, and a
//! tap that closes when its command is gone.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::opens::does;
use super::suspended::{noise, wait_for, write};
use super::{World, can_mount};

const RECORD: usize = 16 << 10;
const RECORDS: u64 = 20_000;
/// The least that the cache can be told to have.
const ARC: u64 = 64 << 20;

/// Reads records, the first ones more often: half of the reads are of a tenth of the file.
fn read_while(file: &File, goes_on: &AtomicBool, seed: u64) {
    let (mut state, mut record) = (seed, vec![0; RECORD]);
    while goes_on.load(Ordering::Relaxed) {
        let part = base::next_mixed(&mut state) as f64 / u64::MAX as f64;
        let at = ((part.powf(3.3) * RECORDS as f64) as u64).min(RECORDS - 1);
        file.read_exact_at(&mut record, at * RECORD as u64).unwrap();
    }
}

/// A pool whose file system no page cache stands before, with a file several times as large as its cache.
fn world(name: &str) -> Option<(World, File)> {
    if !can_mount(name) {
        return None;
    }
    let world = World::new(name, &[]);
    world.tune("zfs_arc_max", ARC);
    world.tune("zfs_prefetch_disable", 1);
    File::create(world.dir.join("disk")).unwrap().set_len(1 << 30).unwrap();
    world.check("create -o cachefile=none -O compression=off -R DIR/mnt fresh DIR/disk", 0, "");
    does(&world, "create -o org.cenote:pagecache=off -o recordsize=16K fresh/data");
    let path = world.dir.join("mnt/fresh/data/file");
    write(&path, &noise(RECORDS as usize * RECORD, 1)).unwrap();
    world.check("sync fresh", 0, "");
    let file = File::open(path).unwrap();
    Some((world, file))
}

fn start(world: &World, line: &str) -> Child {
    let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
    command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_larger_cache_serves_what_was_foretold() {
    let Some((world, file)) = world("cache-advice") else { return };
    let goes_on = AtomicBool::new(true);
    let (foretold, measured) = thread::scope(|scope| {
        for seed in 0..2 {
            let (file, goes_on) = (&file, &goes_on);
            scope.spawn(move || read_while(file, goes_on, seed << 32));
        }
        let watch = || json(&start(&world, "advise cache fresh --for 21s --json").wait_with_output().unwrap());
        // the cache is full when it begins
        thread::sleep(Duration::from_secs(4));
        let foretold = watch();
        world.tune("zfs_arc_max", 2 * ARC);
        thread::sleep(Duration::from_secs(10));
        let measured = watch();
        goes_on.store(false, Ordering::Relaxed);
        (foretold, measured)
    });
    assert_eq!([&foretold["ram"], &measured["ram"]], [ARC, 2 * ARC], "{foretold}");
    let hits_of = |bytes: u64| {
        let sizes = foretold["rams"].as_array().unwrap();
        sizes.iter().find(|size| size["bytes"] == bytes).unwrap()["hits"].as_f64().unwrap()
    };
    let real = |told: &Value| told["live"]["hits"].as_f64().unwrap();
    for (bytes, real) in [(ARC, real(&foretold)), (2 * ARC, real(&measured))] {
        let hits = hits_of(bytes);
        println!("{} MiB: foretold {hits:.4}, really {real:.4}", bytes >> 20);
        assert!((hits - real).abs() < 0.03, "{bytes}: {hits} and {real}: {foretold}");
    }
    assert!(real(&measured) > real(&foretold) + 0.03, "the sizes differ enough to tell");
    assert_eq!(foretold["live"]["page_cache_fill_bytes"], 0);
    drop(file);
    world.check("export fresh", 0, "");
}

/// Ends a command as Ctrl-C does.
fn interrupt(child: &Child) {
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
}

#[test]
fn commands_that_end_leave_the_tap_closed() {
    let Some((world, file)) = world("cache-tap") else { return };
    // of few reads nothing is concluded
    let mut record = vec![0; RECORD];
    let watching = start(&world, "advise cache fresh");
    thread::sleep(Duration::from_secs(2));
    file.read_exact_at(&mut record, 0).unwrap();
    let busy = world.told("advise cache fresh --for 1");
    assert_eq!(busy, ("cenote advise: cannot open 'fresh': another command looks at that already\n".into(), 1));
    interrupt(&watching);
    let output = watching.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("Not enough seen yet: "), "{text}");
    assert!(text.contains("This is the answer of the ARC."), "{text}");
    // one that is killed cannot say so: the process finds out by itself
    let mut killed = start(&world, "advise cache fresh");
    let process = world.process_of("fresh");
    let has_tap = || {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).any(|name| name.trim() == "tap")
    };
    wait_for("the tap", has_tap);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let began = Instant::now();
    wait_for("the tap to close", || !has_tap());
    assert!(began.elapsed() < Duration::from_secs(30));
    let (text, code) = world.told("advise cache fresh --for 0.1");
    assert_eq!(code, 0, "{text}");
    // one that hangs is told in time
    let signal = |name: &str| assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
    signal("-STOP");
    let (text, code) = world.told("advise cache fresh --for 1");
    signal("-CONT");
    assert!(code == 1 && text.contains("does not answer"), "{text}");
    drop(file);
    world.check("export fresh", 0, "");
    assert_eq!(world.told("advise cache fresh").0, "cenote advise: cannot open 'fresh': no such pool is in use\n");
}
