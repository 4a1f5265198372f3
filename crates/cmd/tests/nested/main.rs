//! File systems that are mounted inside one another, and kill -9 or a panic of the process that serves them, at
//! any moment: it is gone at once, and the next import finds nothing in its way.
//!
//! ```text
//!   DIR/mnt/nest            of one process
//!   DIR/mnt/nest/a            in the mount above,
//!   DIR/mnt/nest/a/b          and so on: who makes, looks at, mounts and unmounts these asks that process
//! ```
//!
//! Needs root and /dev/fuse. In the environment: CENOTE_KILL_ROUNDS (12), CENOTE_KILL_SEED.

mod panics;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use base::{Mutex, MutexGuard};

/// What any command may take, and then some.
const COMMAND_TIME: Duration = Duration::from_secs(60);
/// What a killed process may take to be gone.
const DEATH_TIME: Duration = Duration::from_secs(10);
const DATASETS: [&str; 7] = ["nest", "nest/a", "nest/a/b", "nest/a/b/c", "nest/d", "nest/d/e", "nest/d/e/f"];

/// A pool with nested file systems, in a folder of its own.
struct Nest {
    dir: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

/// Dead mounts are told apart by the names of their pools, and the tests' pools have the same.
static ALONE: Mutex<()> = Mutex::new(());

impl Nest {
    /// `None`, loudly, where nothing can be mounted.
    fn new(name: &str) -> Option<Nest> {
        if !nix::unistd::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED {}: needs root and /dev/fuse", file!());
            return None;
        }
        let alone = ALONE.lock();
        let dir = std::env::temp_dir().join(format!("cenote-nested-{name}-{}", std::process::id()));
        fs::create_dir_all(dir.join("img")).unwrap();
        // a kill is to be a power cut
        fs::create_dir(dir.join("parameters")).unwrap();
        fs::write(dir.join("parameters/cenote_deaths_max"), "0").unwrap();
        File::create(dir.join("img/0")).unwrap().set_len(256 << 20).unwrap();
        let nest = Nest { dir, _alone: alone };
        nest.done("zpool create -o cachefile=none -R DIR/mnt nest DIR/img/0");
        for dataset in &DATASETS[1..] {
            nest.done(&format!("zfs create {dataset}"));
        }
        for dataset in DATASETS {
            fs::write(nest.marker(dataset), dataset).unwrap();
        }
        nest.done("zpool sync nest");
        Some(nest)
    }

    fn marker(&self, dataset: &str) -> PathBuf {
        self.dir.join("mnt").join(dataset).join("marker")
    }

    fn start(&self, line: &str) -> Child {
        self.start_with("", line)
    }

    /// Starts a command; `fails` is the failpoint of the pool's process that it starts.
    fn start_with(&self, fails: &str, line: &str) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.env("CENOTE_FAIL", fails);
        self.spawn(command, line)
    }

    /// Starts a command with a limit of prlimit(1).
    fn start_limited(&self, limit: &str, line: &str) -> Child {
        let mut command = Command::new("prlimit");
        command.arg(limit).arg(env!("CARGO_BIN_EXE_cenote"));
        self.spawn(command, line)
    }

    fn spawn(&self, mut command: Command, line: &str) -> Child {
        let line = line.replace("DIR", self.dir.to_str().unwrap());
        command.args(line.split_whitespace()).current_dir("/").env("CENOTE_RUN", self.dir.join("run"));
        command.env("CENOTE_PARAMETERS", self.dir.join("parameters"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The output of a command, which must not take for ever.
    fn run(&self, line: &str) -> Output {
        self.finish(self.start(line), line)
    }

    fn finish(&self, mut child: Child, line: &str) -> Output {
        if !within(COMMAND_TIME, || child.try_wait().unwrap().is_some()) {
            self.abort();
            panic!("'{line}' hangs");
        }
        child.wait_with_output().unwrap()
    }

    fn done(&self, line: &str) {
        let output = self.run(line);
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(output.status.success() && text.is_empty(), "{line}: {}: {text}", output.status);
    }

    fn import(&self) {
        self.done(IMPORT);
    }

    /// Processes of this program that belong to this pool, by the command that they run.
    fn processes(&self, command: &str) -> Vec<u32> {
        let mark = format!("CENOTE_RUN={}", self.dir.join("run").display());
        let is_ours = |pid: &u32| {
            let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let has = |bytes: Vec<u8>, word: &str| bytes.split(|&byte| byte == 0).any(|one| one == word.as_bytes());
            has(read("cmdline"), command) && has(read("environ"), &mark)
        };
        let names = Path::new("/proc").read_dir().unwrap().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).filter(is_ours).collect()
    }

    /// Kills the pool's processes; in time, nothing of them is left.
    fn kill(&self) -> usize {
        let killed = self.processes("serve");
        for pid in &killed {
            // it may be gone by itself
            drop(Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status());
        }
        if !within(DEATH_TIME, || killed.iter().all(|&pid| is_gone(pid))) {
            let stacks: String = killed.iter().map(|&pid| stacks(pid)).collect();
            self.abort();
            panic!("a killed process is still there, and waits for itself:\n{stacks}");
        }
        assert!(within(DEATH_TIME, || self.processes("mount-helper").is_empty()), "its helper is still there");
        killed.len()
    }

    /// Lines of mountinfo about mounts of this pool.
    fn mounts(&self) -> Vec<String> {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mark = format!(" {}/mnt/", self.dir.display());
        text.lines().filter(|line| line.contains(&mark)).map(str::to_owned).collect()
    }

    /// All is mounted, once, and shows what it should.
    fn check(&self) {
        assert_eq!(self.mounts().iter().filter(|line| !line.contains("/new")).count(), DATASETS.len());
        for dataset in DATASETS {
            assert_eq!(fs::read_to_string(self.marker(dataset)).unwrap(), dataset);
        }
    }

    /// Breaks the connections, so that whoever waits for them goes on.
    fn abort(&self) {
        // where it is mounted already, this fails
        drop(Command::new("mount").args(["-t", "fusectl", "fusectl", "/sys/fs/fuse/connections"]).output());
        for line in self.mounts() {
            let minor = line.split([' ', ':']).nth(3).unwrap_or_default();
            drop(fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1"));
        }
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort();
        }
        drop(self.start("zpool export -f nest").wait());
        if self.mounts().is_empty() {
            drop(fs::remove_dir_all(&self.dir));
        }
    }
}

const IMPORT: &str = "zpool import -d DIR/img -o cachefile=none -R DIR/mnt nest";

/// Does it come true in time?
fn within(time: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + time;
    while !is_true() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Threads of a process that have not ended: the process as a whole seems dead when its first thread is.
fn threads(pid: u32) -> Vec<PathBuf> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let lives = |task: &PathBuf| {
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
    };
    tasks.read_dir().into_iter().flatten().flatten().map(|task| task.path()).filter(lives).collect()
}

fn is_gone(pid: u32) -> bool {
    threads(pid).is_empty()
}

fn stacks(pid: u32) -> String {
    let stack = |task: PathBuf| format!("{}:\n{}", task.display(), fs::read_to_string(task.join("stack")).unwrap());
    threads(pid).into_iter().map(stack).collect()
}

/// Numbers that look random (a linear congruential generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn killed_at_any_moment() {
    let Some(nest) = Nest::new("kill") else { return };
    let seed = from_env("CENOTE_KILL_SEED", u64::from(std::process::id()));
    println!("CENOTE_KILL_SEED={seed}");
    let mut numbers = Numbers(seed);
    let mut cut_short = 0;
    for round in 0..from_env("CENOTE_KILL_ROUNDS", 12) {
        // what it is doing when it is killed
        let (line, most_ms) = match numbers.below(4) {
            0 => ("zfs unmount -a".to_owned(), 30),
            1 => ("zfs mount -a".to_owned(), 60),
            2 => (format!("zfs create -p nest/d/e/f/new{round}/x/y/z"), 200),
            _ => (IMPORT.to_owned(), 400),
        };
        match line.as_str() {
            "zfs mount -a" => nest.done("zfs unmount -a"),
            IMPORT => nest.done("zpool export nest"),
            _ => {}
        }
        let child = nest.start(&line);
        std::thread::sleep(Duration::from_micros(numbers.below(most_ms * 1000)));
        let mut killed = nest.kill();
        let output = nest.finish(child, &line);
        // an import may have begun after the first look
        killed += nest.kill();
        assert!(killed == 1 || line == IMPORT, "{line}: {killed} processes");
        cut_short += usize::from(!output.status.success());
        nest.import();
        nest.check();
    }
    println!("{cut_short} commands were cut short");
    nest.done("zpool export nest");
    assert_eq!(nest.mounts(), Vec::<String>::new());
}

#[test]
fn what_is_used_is_busy() {
    let Some(nest) = Nest::new("busy") else { return };
    let user = File::open(nest.marker("nest/a")).unwrap();
    let busy = |line: &str| {
        let output = nest.run(line);
        let text = String::from_utf8(output.stderr).unwrap().replace(nest.dir.to_str().unwrap(), "DIR");
        assert_eq!(text, "cannot unmount 'DIR/mnt/nest/a': pool or dataset is busy\n", "{line}");
        assert_eq!(output.status.code(), Some(1));
        // what lies in it was unmounted before
        nest.done("zfs mount -a");
        nest.check();
    };
    busy("zpool export nest");
    busy("zfs unmount nest/a");
    // a signal is no question
    let process = nest.processes("serve")[0];
    assert!(Command::new("kill").arg(process.to_string()).status().unwrap().success());
    assert!(within(COMMAND_TIME, || is_gone(process)), "{}", stacks(process));
    assert_eq!(nest.mounts(), Vec::<String>::new());
    drop(user);
    nest.import();
    nest.check();
}

/// Properties reach a mount that is in use.
#[test]
fn what_is_used_takes_what_it_can() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    use rustix::io::Errno;
    let Some(nest) = Nest::new("live") else { return };
    let marker = nest.marker("nest/a");
    let attribute = || getxattr(&marker, "user.a", &mut [0; 8][..]);
    setxattr(&marker, "user.a", b"1", XattrFlags::empty()).unwrap();
    let user = File::open(&marker).unwrap();
    nest.done("zfs set xattr=off nest/a");
    assert_eq!(attribute(), Err(Errno::OPNOTSUPP));
    nest.done("zfs set xattr=sa nest/a");
    assert_eq!(attribute(), Ok(1));

    let is_so = |word: &str| nest.mounts().iter().any(|line| line.contains(" nest/a ") && line.contains(word));
    let acl = "system.posix_acl_access";
    let acl_of = || getxattr(&marker, acl, &mut [0; 64][..]);
    // user::rw-, user:1000:r--, group::---, mask::r--, other::---
    let entries = [(1u16, 6u16, u32::MAX), (2, 4, 1000), (4, 0, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)];
    let bytes = |(tag, rights, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list = [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(bytes).collect()].concat();
    let set_acl = || setxattr(&marker, acl, &list, XattrFlags::empty());
    assert_eq!((acl_of(), set_acl()), (Err(Errno::NODATA), Err(Errno::OPNOTSUPP)));
    nest.done("zfs set acltype=posix nest/a");
    assert_eq!((acl_of(), set_acl()), (Err(Errno::NODATA), Ok(())));
    assert_eq!(acl_of(), Ok(list.len()));
    nest.done("zfs set acltype=off nest/a");
    assert_eq!((acl_of(), set_acl()), (Err(Errno::NODATA), Err(Errno::OPNOTSUPP)));
    nest.done("zfs set acltype=posix nest/a");
    assert_eq!(acl_of(), Ok(list.len()));
    nest.done("zfs set atime=off nest/a");
    assert!(is_so("noatime"), "{:?}", nest.mounts());
    nest.done("zfs set xattr=off nest/a");
    assert_eq!(attribute(), Err(Errno::OPNOTSUPP));
    drop(user);
    nest.check();
}

/// What was said of a mount alone holds until it ends, and a property changes that one only.
#[test]
fn what_a_mount_was_told_stays() {
    let Some(nest) = Nest::new("told") else { return };
    let options = || {
        let line = nest.mounts().into_iter().find(|line| line.contains(" nest/d/e/f ")).unwrap();
        let mut words: Vec<String> = line.split(' ').nth(5).unwrap().split(',').map(str::to_owned).collect();
        words.sort();
        words.join(",")
    };
    let source = |property: &str| {
        let out = nest.run(&format!("zfs get -Ho value,source {property} nest/d/e/f")).stdout;
        String::from_utf8(out).unwrap().trim().replace('\t', " ")
    };
    nest.done("zfs unmount nest/d/e/f");
    nest.done("zfs mount -o ro,noexec,nosuid,nodev,noatime nest/d/e/f");
    assert_eq!(options(), "noatime,nodev,noexec,nosuid,ro");
    assert_eq!((source("exec"), source("readonly")), ("off temporary".into(), "on temporary".into()));
    nest.done("zfs set readonly=off nest/d/e/f");
    assert_eq!(options(), "noatime,nodev,noexec,nosuid,rw");
    nest.done("zfs set snapdir=visible nest");
    nest.done("zfs inherit exec nest/d/e/f");
    assert_eq!(options(), "noatime,nodev,nosuid,rw");
    nest.done("zfs set acltype=posix nest/d/e/f");
    assert_eq!(options(), "noatime,nodev,nosuid,rw");
    assert_eq!((source("devices"), source("exec")), ("off temporary".into(), "on default".into()));
    nest.done("zfs unmount nest/d/e/f");
    nest.done("zfs mount nest/d/e/f");
    assert_eq!(options(), "relatime,rw");
}

/// Who is unmounted is the one that was named, not the one at its path; and a name that changes is changed for mounts.
#[test]
fn mounts_go_by_their_datasets() {
    let Some(nest) = Nest::new("names") else { return };
    let mounted = || {
        let text = String::from_utf8(nest.run("zfs mount").stdout).unwrap().replace(nest.dir.to_str().unwrap(), "DIR");
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<String>>()
    };
    let read = |place: &str| fs::read_to_string(nest.dir.join("mnt").join(place).join("marker")).unwrap();
    nest.done("zfs unmount nest/d/e/f");
    nest.done("zfs set mountpoint=/nest/a/b/c nest/d/e/f");
    assert_eq!(read("nest/a/b/c"), "nest/d/e/f");
    let covered = nest.run("zfs unmount nest/a/b/c");
    assert_eq!(String::from_utf8(covered.stderr).unwrap().lines().count(), 1);
    assert_eq!(read("nest/a/b/c"), "nest/d/e/f", "what covers it is still there");
    nest.done("zfs unmount -f nest/d/e/f");
    assert_eq!(read("nest/a/b/c"), "nest/a/b/c");

    nest.done("zfs rename -u nest/a nest/z");
    let paths = ["nest DIR/mnt/nest", "nest/z DIR/mnt/nest/a", "nest/z/b DIR/mnt/nest/a/b"];
    assert!(paths.iter().all(|path| mounted().contains(&(*path).to_owned())), "{:?}", mounted());
    assert_eq!(read("nest/a/b"), "nest/a/b");
    nest.done("zfs unmount nest/z/b");
    assert!(mounted().iter().all(|line| !line.starts_with("nest/z/b")));
    nest.done("zfs mount nest/z/b");
    assert_eq!(read("nest/z/b"), "nest/a/b");
}

/// File systems that were not mounted are, when they get a place, and so are those that have it from them. What is
/// mounted below one that is not to be mounted any more stays.
#[test]
fn a_place_is_for_being_mounted() {
    let Some(nest) = Nest::new("place") else { return };
    let read = |place: &str| fs::read_to_string(nest.dir.join("mnt").join(place).join("marker")).ok();
    let check = |place: &str, datasets: [&str; 3]| {
        for (below, dataset) in ["", "e", "e/f"].iter().zip(datasets) {
            let is = read(&format!("{place}/{below}"));
            assert_eq!(is.as_deref(), Some(dataset).filter(|name| !name.is_empty()), "{place}/{below}");
        }
    };
    let all = ["nest/d", "nest/d/e", "nest/d/e/f"];
    nest.done("zfs unmount nest/d");
    check("nest/d", ["", "", ""]);
    nest.done("zfs set -u mountpoint=/nest/not-yet nest/d");
    check("nest/not-yet", ["", "", ""]);
    nest.done("zfs set mountpoint=/nest/moved nest/d");
    check("nest/moved", all);
    nest.done("zfs set mountpoint=none nest/d");
    check("nest/moved", ["", "", ""]);
    nest.done("zfs inherit mountpoint nest/d");
    check("nest/d", all);
    nest.done("zfs set canmount=off nest/d");
    check("nest/d", ["", "nest/d/e", "nest/d/e/f"]);
    nest.done("zfs set canmount=noauto nest/d/e/f");
    nest.done("zfs unmount nest/d/e/f");
    nest.done("zfs set mountpoint=/nest/again nest/d/e");
    assert_eq!((read("nest/again").as_deref(), read("nest/again/f")), (Some("nest/d/e"), None));
}

/// Without any mount helper, nothing can be mounted, which is said; the pool is exported all the same.
#[test]
fn killed_helpers_keep_nothing_back() {
    let Some(nest) = Nest::new("helpers") else { return };
    let kill_helpers = || {
        for pid in nest.processes("mount-helper") {
            // the second one may have ended with the first
            drop(Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status());
        }
        assert!(within(DEATH_TIME, || nest.processes("mount-helper").is_empty()));
    };
    kill_helpers();
    for line in ["zfs unmount nest/d/e/f", "zfs create nest/new"] {
        let said = nest.run(line);
        let text = String::from_utf8(said.stderr).unwrap();
        let is_told =
            text.contains("the mount helper of the pool's process was killed") && text.contains("import it again");
        assert!(said.status.code() == Some(1) && is_told, "{line}: {text}");
    }
    nest.check();
    let user = File::open(nest.marker("nest/a")).unwrap();
    let busy = nest.run("zpool export nest");
    let text = String::from_utf8(busy.stderr).unwrap();
    assert!(busy.status.code() == Some(1) && text.ends_with("is busy\n"), "{text}");
    drop(user);
    nest.done("zpool export nest");
    assert_eq!(nest.mounts(), Vec::<String>::new());
    nest.import();
    nest.check();
    // a signal ends it in order as far as that can be
    kill_helpers();
    let process = nest.processes("serve")[0];
    assert!(Command::new("kill").arg(process.to_string()).status().unwrap().success());
    assert!(within(COMMAND_TIME, || is_gone(process)), "{}", stacks(process));
    nest.import();
    nest.check();
}
