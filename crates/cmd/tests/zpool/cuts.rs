//! Snapshots of many pools at one moment, under programs that write to them in turn. More of it: `CENOTE_CUTS=100`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::killed::number_from;
use super::nbd::{NbdClient, READ, WRITE};
use super::suspended::wait_for;
use super::{World, can_mount};

const POOLS: [&str; 4] = ["acut", "bcut", "ccut", "dcut"];
/// Writers, each of which writes to every pool in another way.
const WRITERS: usize = 3;
/// The limit, and what a busy machine may add to it.
const LIMIT: Duration = Duration::from_secs(2);
const SLACK: Duration = Duration::from_secs(4);

/// Four pools: two of a host, and one of each of two others, as far as run folders make hosts.
struct Cluster {
    worlds: [World; 3],
}

/// How a writer tells a pool its number.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// In a file, by write(2), which the kernel keeps.
    Contents,
    /// By the name of a folder.
    Name,
    /// In a volume, by NBD.
    Volume,
}

fn way_of(writer: usize, pool: usize) -> Way {
    [Way::Contents, Way::Name, Way::Volume][(writer + pool) % 3]
}

impl Cluster {
    fn new(name: &str) -> Option<Cluster> {
        if !can_mount(name) {
            return None;
        }
        let worlds = ["near", "far", "farther"].map(|host| World::new(&format!("{name}-{host}"), &[]));
        let cluster = Cluster { worlds };
        // a process that dies is followed by another one
        cluster.worlds.iter().for_each(|world| world.tune("cenote_deaths_max", 1000));
        for (at, pool) in POOLS.iter().enumerate() {
            let world = cluster.world(at);
            File::create(world.dir.join(pool)).unwrap().set_len(512 << 20).unwrap();
            world.check(&format!("create -R DIR/mnt {pool} DIR/{pool}"), 0, "");
            for writer in 0..WRITERS {
                fs::create_dir(cluster.mnt(at).join(format!("folders-{writer}"))).unwrap();
                let volume = format!("create -s -V 1M -o snapdev=visible -o org.cenote:nbd=on {pool}/v{writer}");
                assert_eq!(world.zfs(&volume), (String::new(), 0));
            }
        }
        Some(cluster)
    }

    fn world(&self, pool: usize) -> &World {
        &self.worlds[pool.saturating_sub(1)]
    }

    fn mnt(&self, pool: usize) -> PathBuf {
        self.world(pool).dir.join("mnt").join(POOLS[pool])
    }

    fn volume(&self, pool: usize, name: &str) -> NbdClient {
        let mut client = NbdClient::connect_at(&self.world(pool).dir.join(format!("run/nbd/{}.sock", POOLS[pool])));
        assert_eq!(client.go(&format!("{}/{name}", POOLS[pool])), Ok(1 << 20));
        client
    }

    /// The words behind `--via` for a host.
    fn via(&self, world: usize) -> String {
        let dir = self.worlds[world].dir.display();
        format!("env CENOTE_RUN={dir}/run CENOTE_PARAMETERS={dir}/parameters")
    }

    fn command(&self, options: &[&str]) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_cenote"));
        let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut command = self.worlds[0].command(program.to_str().unwrap());
        command.env("PATH", path).arg("cut").args(options);
        command.args([POOLS[0], POOLS[1], "--via", &self.via(1), POOLS[2], "--via", &self.via(2), POOLS[3]]);
        command
    }

    fn cut(&self, options: &[&str]) -> Output {
        self.command(options).output().unwrap()
    }

    fn snapshots(&self) -> Vec<String> {
        let list = |world: &World| world.told("zfs list -Ho name -t snapshot").0;
        let all = self.worlds.iter().map(list).collect::<String>();
        all.lines().filter(|line| line.contains('@')).map(str::to_owned).collect()
    }

    /// What a writer had told each pool when the snapshots of that name were taken.
    fn told(&self, writer: usize, snapshot: &str) -> [u64; 4] {
        std::array::from_fn(|pool| {
            let files = self.mnt(pool).join(format!(".zfs/snapshot/{snapshot}"));
            match way_of(writer, pool) {
                Way::Contents => {
                    let bytes = fs::read(files.join(format!("file-{writer}"))).unwrap();
                    bytes.try_into().map_or(0, u64::from_le_bytes)
                }
                Way::Name => {
                    let folders = files.join(format!("folders-{writer}")).read_dir().unwrap().flatten();
                    folders.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).max().unwrap_or(0)
                }
                Way::Volume => {
                    let mut client = self.volume(pool, &format!("v{writer}@{snapshot}"));
                    let answer = client.ask(0, READ, 0, 8, &[]).remove(0).1;
                    // a hole is told by its length alone
                    answer.get(8..16).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
                }
            }
        })
    }

    /// Writes a number that grows to one pool after the other, until `ends`.
    fn write(&self, writer: usize, ends: &AtomicBool) {
        let files: Vec<File> =
            (0..4).map(|pool| File::create(self.mnt(pool).join(format!("file-{writer}"))).unwrap()).collect();
        let mut volumes: Vec<NbdClient> = (0..4).map(|pool| self.volume(pool, &format!("v{writer}"))).collect();
        let mut number = 0u64;
        while !ends.load(Ordering::SeqCst) {
            number += 1;
            for pool in 0..4 {
                match way_of(writer, pool) {
                    Way::Contents => files[pool].write_all_at(&number.to_le_bytes(), 0).unwrap(),
                    Way::Name => {
                        let folders = self.mnt(pool).join(format!("folders-{writer}"));
                        fs::create_dir(folders.join(number.to_string())).unwrap();
                        // the one before the last is left
                        drop(fs::remove_dir(folders.join(number.saturating_sub(2).to_string())));
                    }
                    Way::Volume => {
                        let data = [&number.to_le_bytes()[..], &[0; 4088]].concat();
                        assert_eq!(volumes[pool].ask(0, WRITE, 0, 4096, &data), [(0, Vec::new())]);
                    }
                }
            }
        }
    }

    /// `work` under writers.
    fn under_load<T>(&self, work: impl FnOnce() -> T) -> T {
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let ends = &ends;
                scope.spawn(move || self.write(writer, ends));
            }
            let done = work();
            ends.store(true, Ordering::SeqCst);
            done
        })
    }

    /// Which of these snapshots are not of one moment, by what writers had told.
    fn torn(&self, snapshots: &[String]) -> Vec<(String, [u64; 4])> {
        let mut torn = Vec::new();
        for snapshot in snapshots {
            for writer in 0..WRITERS {
                let told = self.told(writer, snapshot);
                let falls = told.is_sorted_by(|earlier, later| earlier >= later);
                if !falls || told[0] - told[3] > 1 {
                    torn.push((format!("{snapshot} of writer {writer}"), told));
                }
            }
        }
        torn
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// For how long writes waited at most, as a cut tells.
fn waited_ms(output: &Output) -> f64 {
    let last = String::from_utf8_lossy(&output.stdout).lines().last().unwrap().to_owned();
    last.split("waited ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap()
}

#[test]
fn cuts_are_one_moment_and_snapshots_one_by_one_are_not() {
    let Some(cluster) = Cluster::new("cuts") else { return };
    let cuts = number_from("CENOTE_CUTS").unwrap_or(12);
    let (names, singly) = cluster.under_load(|| {
        thread::sleep(Duration::from_millis(500));
        let mut waited = Vec::new();
        let take = |number: u64| {
            let name = format!("cut{number}");
            let output = cluster.cut(&["-r", &name]);
            assert!(output.status.success(), "{}", text(&output));
            waited.push(waited_ms(&output));
            thread::sleep(Duration::from_millis(50));
            name
        };
        let names: Vec<String> = (0..cuts).map(take).collect();
        waited.sort_by(f64::total_cmp);
        eprintln!(
            "{cuts} cuts: writes waited {:.1} ms at the median, {:.1} at most",
            waited[waited.len() / 2],
            waited[waited.len() - 1]
        );
        assert!(waited[waited.len() / 2] < 1000.0, "{waited:?}");
        let take_singly = |number: u32| {
            for (at, pool) in POOLS.iter().enumerate() {
                assert_eq!(cluster.world(at).zfs(&format!("snapshot -r {pool}@plain{number}")), (String::new(), 0));
            }
            format!("plain{number}")
        };
        (names, (0..4).map(take_singly).collect::<Vec<String>>())
    });
    let first = cluster.told(0, &names[0]);
    assert!(first[3] > 0 && first < cluster.told(0, &names[names.len() - 1]), "the writers write: {first:?}");
    assert_eq!(cluster.torn(&names), []);
    assert!(!cluster.torn(&singly).is_empty(), "this test cannot fail");
    // all of a cut have one mark, and another cut another one
    let mark = |at: usize, name: &str| {
        cluster.world(at).told(&format!("zfs get -Ho value org.cenote:cut {}@{name}", POOLS[at])).0
    };
    let marks: Vec<String> = (0..4).map(|at| mark(at, "cut0")).collect();
    assert!(marks.iter().all(|one| *one == marks[0] && one.len() > 9) && mark(0, "cut1") != marks[0], "{marks:?}");
}

#[test]
fn nothing_stays_of_a_cut_that_fails() {
    let Some(cluster) = Cluster::new("cutfails") else { return };
    let fails = |options: &[&str], why: &str| {
        let began = Instant::now();
        let output = cluster.cut(options);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(why), "{}", text(&output));
        assert_eq!(cluster.snapshots(), Vec::<String>::new(), "{}", text(&output));
        began.elapsed()
    };
    let writes = || (0..4).for_each(|pool| fs::write(cluster.mnt(pool).join("file"), "goes on").unwrap());
    writes();
    // hooks, and what they are told
    let heard = cluster.worlds[0].dir.join("heard");
    let after = format!("echo $CENOTE_CUT >> {}", heard.display());
    fails(&["--before", "exit 3", "--after", &after, "x"], "before it failed: exit status: 3");
    assert!(!heard.exists(), "nothing had begun");
    let output = cluster.cut(&["--before", "true", "--after", &after, "x"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(cluster.snapshots().len(), 4);
    // a name that one pool has
    for at in [0, 1, 3] {
        assert_eq!(cluster.world(at).zfs(&format!("destroy {}@x", POOLS[at])), (String::new(), 0));
    }
    let output = cluster.cut(&["--after", &after, "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("snapshot 'ccut@x' exists"), "{}", text(&output));
    assert_eq!(cluster.snapshots(), ["ccut@x"]);
    assert_eq!(fs::read_to_string(&heard).unwrap(), "taken\nfailed\n");
    assert_eq!(cluster.world(2).zfs("destroy ccut@x"), (String::new(), 0));
    // no such name, no such pool, no such host
    fails(&["a/b"], "'acut@a/b'");
    let run = |words: &[&str]| {
        let output = cluster.worlds[0].command(env!("CARGO_BIN_EXE_cenote")).arg("cut").args(words).output().unwrap();
        assert_eq!(cluster.snapshots(), Vec::<String>::new());
        (text(&output), output.status.code().unwrap())
    };
    assert_eq!(run(&["x", "acut", "acut"]), ("cenote cut: pool 'acut' is named twice\n".into(), 1));
    let absent = "cenote cut: pool 'nope': it is not imported; nothing is cut\n";
    assert_eq!(run(&["x", "acut", "nope"]), (absent.into(), 1));
    let (said, code) = run(&["x", "acut", "--via", "false", "other"]);
    assert!(code == 1 && said.contains("host of 'false': the connection has ended"), "{said}");
    // a process that hangs: the others go on in time
    let process = cluster.world(3).process_of("dcut");
    let signal = |how: &str, process: &str| {
        assert!(Command::new("kill").args([how, process]).status().unwrap().success());
    };
    thread::scope(|scope| {
        let hang = || {
            thread::sleep(Duration::from_millis(500));
            signal("-STOP", &process);
        };
        scope.spawn(hang);
        thread::sleep(Duration::from_millis(900));
        let output = cluster.cut(&["x"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("host of"), "{}", text(&output));
        let began = Instant::now();
        (0..3).for_each(|pool| fs::write(cluster.mnt(pool).join("file"), "goes on").unwrap());
        assert!(began.elapsed() < SLACK);
        signal("-CONT", &process);
    });
    wait_for("the pool that hung", || cluster.snapshots().is_empty());
    writes();
}

/// A cut that is killed at some step.
fn killed_cut(cluster: &Cluster, after: Duration) {
    let mut cut: Child = cluster.command(&["x"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    thread::sleep(after);
    drop(cut.kill());
    drop(cut.wait());
}

#[test]
fn a_cut_that_is_killed_lets_go() {
    let Some(cluster) = Cluster::new("cutkilled") else { return };
    let mut whole = 0;
    cluster.under_load(|| {
        for number in 0..30u64 {
            killed_cut(&cluster, Duration::from_millis(number * 8));
            // writes go on, everywhere
            let began = Instant::now();
            (0..4).for_each(|pool| fs::write(cluster.mnt(pool).join("other"), "goes on").unwrap());
            assert!(began.elapsed() < LIMIT + SLACK, "{:?}", began.elapsed());
            let settled = || {
                let left = cluster.snapshots();
                let is_settled = matches!(left.len(), 0 | 4);
                if !is_settled && began.elapsed() > LIMIT + SLACK {
                    panic!("killed after {} ms: {left:?}", number * 8);
                }
                is_settled
            };
            wait_for("all or none", settled);
            whole += u64::from(!cluster.snapshots().is_empty());
            for (at, pool) in POOLS.iter().enumerate() {
                drop(cluster.world(at).zfs(&format!("destroy {pool}@x")));
            }
        }
    });
    eprintln!("of 30 cuts that were killed, {whole} were taken before");
}

/// The process of a pool is killed while it is cut: the others have no snapshot, and neither has it.
#[test]
fn the_process_of_a_pool_dies() {
    let Some(cluster) = Cluster::new("cutdies") else { return };
    for number in 0..6u64 {
        let before = cluster.world(3).process_of("dcut");
        let output = thread::scope(|scope| {
            let cut = scope.spawn(|| cluster.cut(&["x"]));
            thread::sleep(Duration::from_millis(20 + number * 12));
            assert!(Command::new("kill").args(["-9", &before]).status().unwrap().success());
            cut.join().unwrap()
        });
        wait_for("the next process", || cluster.world(3).told("zpool list -Ho health dcut").0 == "ONLINE\n");
        let left = cluster.snapshots();
        match output.status.success() {
            true => assert_eq!(left.len(), 4, "{}", text(&output)),
            // it says so if one may be left
            false => assert!(left.is_empty() || text(&output).contains("may be left"), "{left:?} {}", text(&output)),
        }
        for (at, pool) in POOLS.iter().enumerate() {
            drop(cluster.world(at).zfs(&format!("destroy {pool}@x")));
        }
    }
}
