//! What the mount tests share: a mounted tree with a directory of its own, and system calls that the
//! standard library does not make.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use base::{Env, Kind};
use fuse::{Helper, Mount, MountOptions, Transport, Unmount};
use nix::mount::MntFlags;

use crate::memory::{Memory, MemorySource};

/// Returns from the test, loudly, where it cannot run.
macro_rules! require {
    (fuse) => {
        if !std::path::Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED {}:{}: there is no /dev/fuse", file!(), line!());
            return;
        }
    };
    (root) => {
        require!(fuse);
        if !nix::unistd::geteuid().is_root() {
            eprintln!("SKIPPED {}:{}: not root", file!(), line!());
            return;
        }
    };
}
pub(crate) use require;

/// A fresh directory, removed at the end.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Dir {
        static CLEARED: Once = Once::new();
        CLEARED.call_once(clear_killed);
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("cenote-fuse-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // never recursively: a mount may have stayed there
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Returns when it comes true, which must not take long.
///
/// Needed also where only a file is closed: whenever a test starts a program, the child has all files of this
/// process until it runs that.
pub fn wait_until(mut is_true: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_true() {
        assert!(Instant::now() < until, "it does not come true");
        std::thread::yield_now();
    }
}

/// Unmounts what nobody uses.
pub fn unmount(mount: &Mount) {
    wait_until(|| match mount.unmount(Unmount::IfUnused) {
        Err(error) if error.kind() == Kind::Busy => false,
        done => {
            done.unwrap();
            true
        }
    });
}

/// A run that is killed while one thread waits for another one's answer cannot end before its mounts
/// are broken by force: the thread waits on, and keeps the connection open. Does that for all runs
/// that are dead but for such threads.
fn clear_killed() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    for point in mounts.lines().filter_map(|line| line.split(' ').nth(4)) {
        let name = Path::new(point).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(pid) = name.strip_prefix("cenote-fuse-").and_then(|rest| rest.split('-').next()) else { continue };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.rsplit(") ").next().is_none_or(|state| state.is_empty() || state.starts_with('Z')) {
            let _ = nix::mount::umount2(point, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
            let _ = std::fs::remove_dir(point);
        }
    }
}

/// A mounted source. The fields are dropped in this order.
pub struct Mounted {
    pub mount: Mount,
    pub source: Arc<MemorySource>,
    dir: Dir,
}

impl Mounted {
    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.0.join(path)
    }

    pub fn live(&self) -> &Memory {
        &self.source.live
    }
}

/// Mounts as the real clock and a helper of ours have it. Environment variable `CENOTE_TRANSPORT` can be `io_uring`.
pub fn mount<S: fuse::Source>(source: Arc<S>, options: &MountOptions) -> base::Result<Mount> {
    let mut options = options.clone();
    if std::env::var("CENOTE_TRANSPORT").is_ok_and(|transport| transport == "io_uring") {
        options.transport = Transport::IoUring;
    }
    fuse::mount(source, &options, &Env::real(), &helper())
}

/// A mount helper: this test binary, started once more.
pub fn helper() -> Helper {
    Helper::new("/proc/self/exe", &["--ignored", "--exact", "harness::help"])
}

#[test]
#[ignore = "the mount helper of other tests"]
fn help() {
    // by hand, standard input is no socket
    let _ = fuse::help(std::io::stdin().as_fd());
}

/// Mounts a tree; `tweak` changes the options.
pub fn mounted(source: MemorySource, tweak: impl FnOnce(&mut MountOptions)) -> Mounted {
    let dir = Dir::new();
    let source = Arc::new(source);
    let mut options = MountOptions::new("tank/home", &dir.0);
    tweak(&mut options);
    let mount = mount(source.clone(), &options).unwrap();
    Mounted { mount, source, dir }
}

pub fn mounted_tree(tree: Memory) -> Mounted {
    mounted(MemorySource::new(tree), |_| {})
}

/// Runs `f` on a thread that acts for an ordinary user.
pub fn as_user<R: Send>(uid: u32, gid: u32, f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // the system calls themselves change one thread only; the C library's functions change all
            let unchanged = -1i32;
            // SAFETY: calls with plain numbers, which affect this short-lived thread alone.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, unchanged, gid, unchanged), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, unchanged, uid, unchanged), 0);
            }
            f()
        });
        thread.join().unwrap()
    })
}

/// An empty file system in which everybody may write.
pub fn writable() -> Mounted {
    mounted_tree(Memory::writable())
}

pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// The result of a system call.
pub fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// getxattr(2) with a buffer of `size` bytes: the result, and what was put into the buffer.
pub fn get_xattr(path: &Path, name: &str, size: usize) -> io::Result<(usize, Vec<u8>)> {
    let (path, name, mut buf) = (c_path(path), CString::new(name).unwrap(), vec![0u8; size]);
    // SAFETY: all pointers are to live buffers of the lengths given.
    let n = checked(unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), buf.as_mut_ptr().cast(), size) })?;
    buf.truncate(n);
    Ok((n, buf))
}

/// setxattr(2).
pub fn set_xattr(path: &Path, name: &str, value: &[u8], flags: i32) -> io::Result<()> {
    let (path, name) = (c_path(path), CString::new(name).unwrap());
    // SAFETY: as above.
    let result = unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) };
    checked(result as isize).map(|_| ())
}

/// removexattr(2).
pub fn remove_xattr(path: &Path, name: &str) -> io::Result<()> {
    let (path, name) = (c_path(path), CString::new(name).unwrap());
    // SAFETY: as above.
    checked(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) } as isize).map(|_| ())
}

/// listxattr(2), likewise.
pub fn list_xattr(path: &Path, size: usize) -> io::Result<(usize, Vec<u8>)> {
    let (path, mut buf) = (c_path(path), vec![0u8; size]);
    // SAFETY: as above.
    let n = checked(unsafe { libc::llistxattr(path.as_ptr(), buf.as_mut_ptr().cast(), size) })?;
    buf.truncate(n);
    Ok((n, buf))
}

/// The errno of a failed call.
pub fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("must fail").raw_os_error().unwrap()
}

/// The line of /proc/self/mountinfo for a mountpoint.
pub fn mount_line(point: &Path) -> Option<String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = format!(" {} ", point.display());
    text.lines().find(|line| line.contains(&point)).map(str::to_owned)
}

/// Does the kernel keep what `look` looks at, so that `asked` counts no more requests? One that is short of memory
/// drops some of it, but not each time.
pub fn is_kept(asked: &dyn Fn() -> u64, look: &dyn Fn()) -> bool {
    (0..8).any(|_| {
        let before = asked();
        look();
        asked() == before
    })
}
