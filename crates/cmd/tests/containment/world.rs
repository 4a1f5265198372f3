//! A folder with canaries, pools that are forged, and the program.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, FileDevice, OpenMode};
use format::ids::{DatasetId, ObjectId};
use testkit::loops::LoopDevice;
use testkit::seal::{Atlas, Forge};

/// What any command may take, and then some.
const COMMAND_TIME: Duration = Duration::from_secs(120);
/// Set in the process that runs in its own mount namespace.
const INSIDE: &str = "CENOTE_TEST_CONTAINED";
/// Bytes of a pool's file.
const IMAGE_BYTES: u64 = 128 << 20;

/// A folder with canaries; `DIR` in command lines.
pub struct World {
    pub dir: PathBuf,
    canaries: String,
    mounted: Vec<String>,
    disk: Option<LoopDevice>,
    _temp: tempfile::TempDir,
}

/// What a command did.
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl World {
    /// A world in a mount namespace of its own, for the test of that name. `None` outside of it: there the test
    /// has been run, or skipped.
    pub fn of(test: &str) -> Option<World> {
        if std::env::var_os(INSIDE).is_none() {
            run_inside(test);
            return None;
        }
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        for folder in ["in", "img", "outside/folder"] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        fs::write(dir.join("outside/file"), "canary").unwrap();
        fs::write(dir.join("outside/folder/file"), "canary").unwrap();
        fs::write(dir.join("outside/disk"), vec![b'c'; 1 << 20]).unwrap();
        symlink("folder", dir.join("outside/link")).unwrap();
        let mut world = World { dir, canaries: String::new(), mounted: Vec::new(), disk: None, _temp: temp };
        world.canaries = world.look();
        world.mounted = world.mounts();
        Some(world)
    }

    /// A loop device over the canary disk. `None`, loudly, if there can be none.
    pub fn disk(&mut self) -> Option<String> {
        self.disk = LoopDevice::over(&self.dir.join("outside/disk"), &[]);
        if self.disk.is_none() {
            eprintln!("SKIPPED a part of {}: no loop device can be had", file!());
        }
        self.disk.as_ref().map(|disk| disk.name().to_owned())
    }

    /// Runs the program; it must not take for ever.
    pub fn run(&self, line: &str) -> Done {
        self.run_as(line, "0")
    }

    /// The same with that host id.
    pub fn run_as(&self, line: &str, hostid: &str) -> Done {
        let line = self.text(line);
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(line.split_whitespace()).current_dir("/");
        command.env("CENOTE_RUN", self.dir.join("run")).env("ZFS_HOSTID", hostid);
        self.finish(command, &line)
    }

    /// Runs a command.
    pub fn finish(&self, mut command: Command, line: &str) -> Done {
        let out = [self.dir.join("out"), self.dir.join("err")];
        let [stdout, stderr] = [&out[0], &out[1]].map(|path| File::create(path).unwrap());
        let mut child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > COMMAND_TIME {
                drop(child.kill());
                panic!("'{line}' does not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let [out, err] = out.map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
        Done { code: status.code(), out, err }
    }

    /// Runs the program, which must have nothing to complain of.
    pub fn done(&self, line: &str) -> String {
        let done = self.run(line);
        assert!(done.code == Some(0) && done.err.is_empty(), "{line}: {:?} {} {}", done.code, done.out, done.err);
        done.out
    }

    pub fn text(&self, line: &str) -> String {
        line.replace("DIR", self.dir.to_str().unwrap())
    }

    /// Makes pool `ev` in the file `img/0`, imported below `in`.
    pub fn create(&self) {
        File::create(self.dir.join("img/0")).unwrap().set_len(IMAGE_BYTES).unwrap();
        self.done("zpool create -o cachefile=none -R DIR/in ev DIR/img/0");
    }

    /// Exports it, and changes it as `forge` says.
    pub fn forge(&self, forge: impl FnOnce(&mut Forge<'_>, &pool::Pool, &Atlas)) {
        self.done("zpool export ev");
        let path = self.dir.join("img/0");
        let device = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
        let devices: Vec<Arc<dyn Device>> = vec![Arc::new(device)];
        let pool = testkit::survey::open(&devices, &base::Env::fixed(0)).unwrap();
        let atlas = Atlas::of(&devices).unwrap();
        let mut forged = Forge::new(&atlas);
        forge(&mut forged, &pool, &atlas);
        forged.seal(&devices).unwrap();
    }

    /// All canaries sing.
    pub fn check(&self) {
        assert_eq!(self.look(), self.canaries, "something outside of the named folder changed");
        // others' may go, if they remove the folder in another namespace
        let new: Vec<_> = self.mounts().into_iter().filter(|mount| !self.mounted.contains(mount)).collect();
        assert_eq!(new, [""; 0], "something was mounted outside of the named folder");
    }

    /// What is mounted at a path: type and options; the last mount there.
    pub fn mounted_at(&self, path: &str) -> Option<String> {
        let path = self.text(path);
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut fields = text.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
        fields.find(|fields| fields[4] == path).map(|fields| fields[5].to_owned())
    }

    /// All files outside, in words.
    fn look(&self) -> String {
        let mut text = String::new();
        let mut stack = vec![self.dir.join("outside")];
        while let Some(path) = stack.pop() {
            let meta = path.symlink_metadata().unwrap();
            let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
            // of the disk the contents count: its times change when it is looked at as a disk
            let times = if path.ends_with("disk") { (0, 0, 0, 0) } else { times };
            let contents = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            let sum: u64 = contents.iter().fold(7, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
            let who = (meta.mode(), meta.uid(), meta.gid(), meta.nlink(), meta.len());
            writeln!(text, "{} {who:?} {times:?} {sum:x}", path.display()).unwrap();
            if meta.is_dir() {
                let mut names: Vec<PathBuf> = path.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
                names.sort();
                stack.extend(names);
            }
        }
        let mut top: Vec<PathBuf> =
            self.dir.join("..").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        // others use that folder, too
        top.retain(|path| path.to_string_lossy().contains("victim"));
        writeln!(text, "beside: {top:?}").unwrap();
        text
    }

    /// What is mounted outside.
    fn mounts(&self) -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let inside = self.dir.join("in");
        let outside = |line: &&str| !Path::new(line.split(' ').nth(4).unwrap()).starts_with(&inside);
        mounts.lines().filter(outside).map(str::to_owned).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.run("zpool export -f ev"));
    }
}

/// A file of the pool's root file system: its object set, and its object there.
pub fn object_of(pool: &pool::Pool, path: &str) -> (DatasetId, ObjectId) {
    let head = pool.dsl().head(&pool.dsl().root().unwrap()).unwrap();
    let zpl = zpl::Zpl::open(pool.dsl().objset(&head, dmu::Mode::Plain).unwrap()).unwrap();
    (head.id, zpl.resolve(path.as_bytes()).unwrap())
}

fn run_inside(test: &str) {
    let unshare = || {
        let mut command = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--propagation", "private"]);
        command
    };
    let can = unshare().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !can || !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED {test}: needs /dev/fuse, and root or user namespaces");
        return;
    }
    let mut inside = unshare();
    inside.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let output = inside.env(INSIDE, "1").output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    text[1].lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| eprintln!("{line}"));
    assert!(output.status.success(), "{}{}", text[0], text[1]);
}
