//! Mounting and unmounting: refusals, busy mounts, other people's umount, dead processes, ordinary
//! users.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use base::{Kind, RwLock};
use fuse::{Helper, MountOptions, Unmount};

use crate::harness::{Dir, errno, helper, mount, mount_line, mounted, mounted_tree, require, unmount, wait_until};
use crate::memory::{Memory, MemorySource, ROOT};

/// Tells the test binary, started once more, what to mount where.
const SERVE_AT: &str = "CENOTE_TEST_SERVE_AT";
const NOBODY: u32 = 65534;

fn tree() -> Memory {
    let mut tree = Memory::new();
    tree.file(ROOT, "file", 100_000);
    tree
}

#[test]
fn refusals() {
    require!(fuse);
    let dir = Dir::new();
    let source = Arc::new(MemorySource::new(tree()));
    let kind_of = |mountpoint: &Path, overlay| {
        let mut options = MountOptions::new("tank", mountpoint);
        options.overlay = overlay;
        match mount(source.clone(), &options) {
            Ok(_) => panic!("mounted at {}", mountpoint.display()),
            Err(error) => {
                assert!(error.to_string().contains("mountpoint"), "{error}");
                error.kind()
            }
        }
    };
    assert_eq!(kind_of(&dir.0.join("nothing"), true), Kind::NotFound);
    let file = dir.0.join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(kind_of(&file, true), Kind::NotDirectory);
    assert_eq!(kind_of(&dir.0, false), Kind::Exists);
    // with overlay it is mounted over what is there
    let mount = mount(source.clone(), &MountOptions::new("tank", &dir.0)).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().size(), 100_000);
    unmount(&mount);
    assert_eq!(fs::metadata(&file).unwrap().size(), 0);
    fs::remove_file(&file).unwrap();

    // a root directory that cannot be read is said at once
    let mut broken = Memory::new();
    broken.node(ROOT).body = crate::memory::Body::Broken(Kind::Checksum);
    let options = MountOptions::new("tank", &dir.0);
    let error = crate::harness::mount(Arc::new(MemorySource::new(broken)), &options).err().unwrap();
    assert_eq!((error.kind(), error.place().dataset.as_deref()), (Kind::Checksum, Some("tank")));
    assert_eq!(mount_line(&dir.0), None);
}

/// A namespace that is made takes a copy of everybody's mounts, which then do not end when unmounted.
static NAMESPACES: RwLock<()> = RwLock::new(());

#[test]
fn busy() {
    require!(root);
    let _none = NAMESPACES.read();
    let m = mounted_tree(tree());
    let mut file = File::open(m.path("file")).unwrap();
    let mut buf = [0; 10];
    for _ in 0..3 {
        assert_eq!(m.mount.unmount(Unmount::IfUnused).unwrap_err().kind(), Kind::Busy);
        assert!(m.mount.is_mounted());
        file.read_exact(&mut buf).unwrap();
    }
    drop(file);
    unmount(&m.mount);
    assert!(!m.mount.is_mounted() && m.mount.has_ended());
    assert_eq!(fs::read_dir(m.path("")).unwrap().count(), 0);
    unmount(&m.mount);
}

#[test]
fn lazy() {
    require!(fuse);
    let m = mounted_tree(tree());
    let mut file = File::open(m.path("file")).unwrap();
    m.mount.unmount(Unmount::Lazy).unwrap();
    assert!(!m.mount.is_mounted() && !m.mount.has_ended());
    assert_eq!(fs::read_dir(m.path("")).unwrap().count(), 0);
    let mut data = Vec::new();
    file.read_to_end(&mut data).unwrap();
    assert_eq!(data.len(), 100_000, "its users go on");
    drop(file);
    m.mount.wait();
    assert!(m.mount.has_ended());
}

#[test]
fn another_mount_namespace() {
    require!(root);
    let _alone = NAMESPACES.write();
    let m = mounted_tree(tree());
    let mut container = Command::new("unshare");
    container.args(["-m", "sh", "-c", "echo; read end"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut container = container.spawn().unwrap();
    // its line says that it has a copy of the mount
    container.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    unmount(&m.mount);
    assert!(!m.mount.is_mounted() && !m.mount.has_ended());
    drop(container.stdin.take());
    container.wait().unwrap();
    m.mount.wait();
    assert!(m.mount.has_ended());
}

#[test]
fn forced() {
    require!(root);
    let m = mounted_tree(tree());
    let mut file = File::open(m.path("file")).unwrap();
    m.mount.unmount(Unmount::Force).unwrap();
    assert!(!m.mount.is_mounted());
    m.mount.wait();
    assert_eq!(errno(file.read(&mut [0; 10])), libc::ENOTCONN);
}

#[test]
fn somebody_elses_umount() {
    require!(root);
    let m = mounted_tree(tree());
    nix::mount::umount(m.mount.point()).unwrap();
    m.mount.wait();
    assert!(!m.mount.is_mounted());
    // what is mounted there now is not ours, and must stay
    let other = mount(Arc::new(MemorySource::new(tree())), &MountOptions::new("other", m.mount.point())).unwrap();
    unmount(&m.mount);
    m.mount.unmount(Unmount::Force).unwrap();
    assert!(other.is_mounted());
    assert_eq!(fs::metadata(m.path("file")).unwrap().size(), 100_000);
}

/// This test binary, to be started once more: it mounts [`tree`] at `dir` until it is killed or its
/// standard input ends.
fn server(dir: &Path, exe: &Path, uid: Option<u32>) -> Command {
    let mut command = Command::new(exe);
    command.args(["--ignored", "--exact", "lifecycle::serve", "--nocapture"]).env(SERVE_AT, dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid).current_dir("/");
    }
    command
}

/// Starts it, and waits until it has mounted.
fn serve_elsewhere(dir: &Path, exe: &Path, uid: Option<u32>) -> Child {
    let mut child = server(dir, exe, uid).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|line| line.contains("SERVING"));
    assert!(ready, "the other process did not mount");
    child
}

#[test]
#[ignore = "the other process of the tests below"]
fn serve() {
    let Some(dir) = std::env::var_os(SERVE_AT) else { return };
    let options = MountOptions::new("tank/user", dir);
    let mount = mount(Arc::new(MemorySource::new(tree())), &options).unwrap();
    println!("\nSERVING");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    unmount(&mount);
    assert!(!mount.is_mounted());
}

#[test]
fn a_killed_process_is_cleared_away() {
    require!(root);
    let dir = Dir::new();
    let mut child = serve_elsewhere(&dir.0, &std::env::current_exe().unwrap(), None);
    let path = dir.0.join("file");
    assert_eq!(fs::read(&path).unwrap().len(), 100_000);
    let file = File::open(&path).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // the others are of one by io_uring that the kernel is still taking down
    let error = errno(fs::metadata(dir.0.join("other")));
    assert!([libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED].contains(&error), "{error}");
    drop(file);

    let mount = mount(Arc::new(MemorySource::new(tree())), &MountOptions::new("tank", &dir.0)).unwrap();
    assert_eq!(fs::read(&path).unwrap().len(), 100_000);
    unmount(&mount);
    assert_eq!(mount_line(&dir.0), None, "nothing dead is left below");
}

fn kill(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// How many threads of this process have a name that begins so.
fn threads_named(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.starts_with(name))).count()
}

#[test]
fn requests_by_io_uring() {
    require!(root);
    let offered = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if !offered.is_ok_and(|offered| offered.starts_with('Y')) {
        return eprintln!("SKIPPED: FUSE over io_uring (try: echo Y > /sys/module/fuse/parameters/enable_uring)");
    }
    let m = mounted(MemorySource::new(tree()), |options| options.transport = fuse::Transport::IoUring);
    // a thread gives itself its name
    wait_until(|| threads_named("fuse-ring") > 1);
    // more programs than threads of a core, and each waits for others' answers
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(fs::read(m.path("file")).unwrap().len(), 100_000);
                    assert_eq!(errno(fs::metadata(m.path("absent"))), libc::ENOENT);
                    nix::sys::statvfs::statvfs(&m.path("")).unwrap();
                }
            });
        }
    });
    unmount(&m.mount);
    m.mount.wait();
    assert!(m.mount.has_ended());
}

#[test]
fn a_stopped_process_is_not_waited_for() {
    require!(root);
    let dir = Dir::new();
    let mut child = serve_elsewhere(&dir.0, &std::env::current_exe().unwrap(), None);
    kill("-STOP", child.id());
    let refused = helper().clear_dead(&dir.0, "zfs", Duration::from_secs(1)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Busy);
    assert!(refused.what().ends_with("does not answer"), "{refused}");
    kill("-CONT", child.id());
    assert_eq!(helper().clear_dead(&dir.0, "zfs", Duration::from_secs(60)).unwrap(), 0);
    assert_eq!(fs::metadata(dir.0.join("file")).unwrap().size(), 100_000);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn helpers_are_replaced_and_tell_what_is_wrong() {
    let mark = format!("mark-{}", std::process::id());
    let helper = Helper::new("/proc/self/exe", &["--ignored", "--exact", "harness::help", "--skip", &mark]);
    let is_one = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != std::process::id() && line.split(|&byte| byte == 0).any(|word| word == mark.as_bytes())
    };
    let ids = || {
        let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).filter(is_one).collect::<Vec<u32>>()
    };
    let dir = Dir::new();
    let point = dir.0.join("a/b");
    let there = MountOptions::new("tank", &point);
    assert_eq!(helper.make_folders(&there).unwrap(), 2);
    let first = ids();
    assert_eq!((first.len(), helper.make_folders(&there).unwrap()), (1, 0));
    assert_eq!(ids(), first, "one is enough");
    // killed between two requests
    kill("-KILL", first[0]);
    wait_until(|| threads_are(first[0], 'Z'));
    helper.remove_folders(&there, 2);
    assert!(!dir.0.join("a").exists());

    // killed before it looks at one
    let second = ids();
    assert_eq!(second.len(), 1);
    kill("-STOP", second[0]);
    wait_until(|| threads_are(second[0], 'T'));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| helper.make_folders(&MountOptions::new("tank", dir.0.join("c"))).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!asking.is_finished());
        kill("-KILL", second[0]);
        assert_eq!(asking.join().unwrap(), 1);
    });

    // kind, text and cause as they are without another process between
    let error = fuse::mount(
        Arc::new(MemorySource::new(tree())),
        &MountOptions::new("tank", &point),
        &base::Env::real(),
        &helper,
    );
    let error = error.err().unwrap();
    let cause = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!((error.kind(), cause.raw_os_error()), (Kind::NotFound, Some(libc::ENOENT)));
    assert_eq!(error.what(), format!("mountpoint {}", point.display()));

    drop(helper);
    wait_until(|| ids().is_empty());
}

/// Whether each thread that the process still has is in this state.
fn threads_are(pid: u32, state: char) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut states = threads.map(|thread| fs::read_to_string(thread.path().join("stat")).unwrap_or_default());
    states.all(|stat| stat.is_empty() || stat.contains(&format!(") {state} ")))
}

/// A mountpoint of user nobody's, and a test binary that nobody may run.
struct Nobodys {
    dir: Dir,
    point: PathBuf,
    exe: PathBuf,
}

impl Nobodys {
    fn new() -> Option<Nobodys> {
        if !["/usr/bin/fusermount3", "/bin/fusermount3"].iter().any(|path| Path::new(path).exists()) {
            eprintln!("SKIPPED {}:{}: there is no fusermount3", file!(), line!());
            return None;
        }
        let dir = Dir::new();
        let (point, exe) = (dir.0.join("mnt"), dir.0.join("exe"));
        fs::create_dir(&point).unwrap();
        chown(&point, Some(NOBODY), Some(NOBODY)).unwrap();
        // by another process: what this one has open for writing, the child of another test's thread has, too, for a moment
        assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&exe).status().unwrap().success());
        fs::set_permissions(&exe, PermissionsExt::from_mode(0o755)).unwrap();
        Some(Nobodys { dir, point, exe })
    }
}

impl Drop for Nobodys {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.exe);
        let _ = fs::remove_dir(&self.point);
    }
}

#[test]
fn an_ordinary_user() {
    require!(root);
    let Some(Nobodys { point, exe, .. }) = &Nobodys::new() else { return };
    let mut child = serve_elsewhere(point, exe, Some(NOBODY));
    let line = mount_line(point).unwrap();
    assert!(line.contains(" - fuse.zfs tank/user ro,"), "{line}");
    assert!(line.contains(&format!("user_id={NOBODY}")) && line.contains("ro,nosuid,nodev"), "{line}");
    let as_nobody = |command: &str| {
        let mut sh = Command::new("sh");
        sh.args(["-c", command]).uid(NOBODY).gid(NOBODY).current_dir("/").stderr(Stdio::null());
        String::from_utf8(sh.output().unwrap().stdout).unwrap()
    };
    let path = point.display();
    let seen = as_nobody(&format!("wc -c < {path}/file; ls {path}; df --output=fstype {path} | tail -1"));
    assert_eq!(seen, "100000\nfile\nfuse.zfs\n");
    assert_eq!(errno(fs::metadata(point.join("file"))), libc::EACCES, "not even root, without allow_other");

    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(mount_line(point), None);
}

#[test]
fn what_an_ordinary_user_is_told() {
    require!(root);
    let Some(Nobodys { dir, point, exe }) = &Nobodys::new() else { return };
    let refusal = |point: &Path, path: &str| {
        let output = server(point, exe, Some(NOBODY)).env("PATH", path).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let no_helper = refusal(point, "/nonexistent");
    assert!(no_helper.contains("Missing(there is no fusermount3"), "{no_helper}");
    let roots = dir.0.join("roots");
    fs::create_dir(&roots).unwrap();
    let no_access = refusal(&roots, "/usr/bin:/bin");
    assert!(no_access.contains("Permission(fusermount3: user has no write access to mountpoint"), "{no_access}");
    fs::remove_dir(&roots).unwrap();
}
