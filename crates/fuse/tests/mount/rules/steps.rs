//! The steps: system calls with arguments at random, of few names, so that they meet.

use std::ffi::CString;
use std::path::Path;

use testkit::rng::Rng;

use super::actor::Answer;
use super::marks::Mark;
use crate::harness::c_path;

/// One system call of one user.
#[derive(Clone, Debug)]
pub struct Step {
    /// Index into `actor::USERS`.
    pub user: usize,
    /// From which the step is made.
    pub seed: u64,
    umask: u32,
    call: Call,
}

#[derive(Clone, Debug)]
enum Call {
    /// Opens, writes so many bytes if it may, and closes.
    Open(String, i32, u32, usize),
    Mkdir(String, u32),
    Mknod(String, u32, u64),
    Symlink(String, String),
    Link(String, String, i32),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, u32),
    Chmod(String, u32),
    Chown(String, u32, u32, bool),
    Truncate(String, i64),
    /// Opened with these flags.
    Ftruncate(String, i32, i64),
    Fallocate(String, i32, i64, i64),
    /// Copies a byte onto the first one.
    Copy(String),
    Times(String, [i64; 2], bool),
    Access(String, i32),
    Readlink(String),
    Stat(String),
    Mark(Mark),
}

/// A seed with this bit makes steps also about flags, projects and attributes.
pub const WITH_MARKS: u64 = 1 << 63;
/// With this one, also about other projects than 0.
pub const WITH_PROJECTS: u64 = 1 << 62;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

impl Step {
    /// Any step.
    pub fn random(seed: u64) -> Step {
        let rng = &mut Rng::new(seed);
        let user = *rng.pick(&[0, 0, 1, 1, 1, 2, 3, 4, 5, 6]);
        let umask = *rng.pick(&[0, 0, 0o022, 0o077]);
        let call = match seed & WITH_MARKS != 0 && rng.below(4) == 0 {
            true => Call::Mark(Mark::random(path(rng), seed & WITH_PROJECTS != 0, rng)),
            false => Call::random(rng),
        };
        Step { user, seed, umask, call }
    }

    /// Is it a chown(2) that changes no owner? FUSE says no word of that to the file system, but that set-id bits go.
    pub fn changes_no_owner(&self) -> bool {
        matches!(self.call, Call::Chown(_, u32::MAX, u32::MAX, _))
    }

    /// Does it ask what only file systems of the kernel answer by flags?
    pub fn asks_for_writing(&self) -> bool {
        matches!(self.call, Call::Access(_, how) if how & libc::W_OK != 0)
    }

    /// Takes it, in the working directory. The answer is what is to be equal everywhere.
    pub fn take(&self) -> Answer {
        // SAFETY: no pointers; the thread has a umask of its own.
        unsafe { libc::umask(self.umask) };
        self.call.make()
    }
}

impl Call {
    fn random(rng: &mut Rng) -> Call {
        let mode = *rng.pick(&[
            0o777, 0o755, 0o700, 0o644, 0o600, 0, 0o4755, 0o2755, 0o6711, 0o1777, 0o2775, 0o111, 0o2666, 0o6777,
        ]);
        let path = path(rng);
        match rng.below(30) {
            0..=3 => Call::Open(path, open_flags(rng), mode, rng.below(3000) as usize),
            4..=6 => Call::Mkdir(path, mode),
            7 => {
                let kind = *rng.pick(&[libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFREG, libc::S_IFCHR, libc::S_IFBLK]);
                Call::Mknod(path, kind | mode & 0o777, libc::makedev(1, *rng.pick(&[3, 5, 7])))
            }
            8 | 9 => Call::Symlink(target(rng), path),
            10 | 11 => Call::Link(path, self::path(rng), *rng.pick(&[0, libc::AT_SYMLINK_FOLLOW])),
            12 => Call::Unlink(path),
            13 => Call::Rmdir(path),
            14..=16 => Call::Rename(path, self::path(rng), *rng.pick(&[0, 0, 0, 1, 2, 3])),
            17 | 18 => Call::Chmod(path, mode),
            19 | 20 => {
                let id = |rng: &mut Rng| *rng.pick(&[0, 1000, 1001, 2000, 2001]);
                let (uid, gid) = (id(rng), id(rng));
                let (uid, gid) = *rng.pick(&[(uid, gid), (uid, u32::MAX), (u32::MAX, gid), (u32::MAX, u32::MAX)]);
                Call::Chown(path, uid, gid, rng.below(2) == 0)
            }
            21 => Call::Truncate(path, length(rng)),
            22 => Call::Ftruncate(path, open_flags(rng) & libc::O_ACCMODE, length(rng)),
            23 => {
                let how = *rng.pick(&[0, libc::FALLOC_FL_KEEP_SIZE, 3, libc::FALLOC_FL_PUNCH_HOLE]);
                Call::Fallocate(path, how, length(rng), length(rng))
            }
            24 => {
                let time = |rng: &mut Rng| *rng.pick(&[0, 1, 1_000_000_000, libc::UTIME_NOW, libc::UTIME_OMIT]);
                Call::Times(path, [time(rng), time(rng)], rng.below(2) == 0)
            }
            25 => Call::Access(path, rng.below(8) as i32),
            26 => Call::Readlink(path),
            27 | 28 => Call::Copy(path),
            _ => Call::Stat(path),
        }
    }

    fn make(&self) -> Answer {
        let text = |path: &str| CString::new(path).unwrap();
        let here = libc::AT_FDCWD;
        // SAFETY: all strings and structures live until the call returns.
        unsafe {
            match self {
                Call::Open(path, flags, mode, len) => with_file(path, *flags, *mode, |fd| {
                    let bytes = vec![b'x'; *len];
                    answer(libc::write(fd, bytes.as_ptr().cast(), *len) as i64)
                }),
                Call::Mkdir(path, mode) => answer(libc::mkdir(text(path).as_ptr(), *mode).into()),
                Call::Mknod(path, mode, dev) => answer(libc::mknod(text(path).as_ptr(), *mode, *dev).into()),
                Call::Symlink(to, path) => answer(libc::symlink(text(to).as_ptr(), text(path).as_ptr()).into()),
                Call::Link(from, to, flags) => {
                    answer(libc::linkat(here, text(from).as_ptr(), here, text(to).as_ptr(), *flags).into())
                }
                Call::Unlink(path) => answer(libc::unlink(text(path).as_ptr()).into()),
                Call::Rmdir(path) => answer(libc::rmdir(text(path).as_ptr()).into()),
                Call::Rename(from, to, flags) => {
                    let (from, to) = (text(from), text(to));
                    answer(libc::syscall(libc::SYS_renameat2, here, from.as_ptr(), here, to.as_ptr(), *flags))
                }
                Call::Chmod(path, mode) => answer(libc::chmod(text(path).as_ptr(), *mode).into()),
                Call::Chown(path, uid, gid, follow) => {
                    let flags = if *follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
                    answer(libc::fchownat(here, text(path).as_ptr(), *uid, *gid, flags).into())
                }
                Call::Truncate(path, len) => answer(libc::truncate(text(path).as_ptr(), *len).into()),
                Call::Ftruncate(path, flags, len) => {
                    with_file(path, *flags, 0, |fd| answer(libc::ftruncate(fd, *len).into()))
                }
                Call::Fallocate(path, how, offset, len) => {
                    with_file(path, libc::O_RDWR, 0, |fd| {
                        answer(libc::fallocate(fd, *how, *offset, *len).into())?;
                        // room that is there already is no change here, as in OpenZFS; in ext4 the times tell of it
                        answer(libc::futimens(fd, std::ptr::null()).into())
                    })
                }
                Call::Copy(path) => with_file(path, libc::O_RDWR, 0, |fd| {
                    let (mut from, mut to) = (1, 0);
                    answer(libc::copy_file_range(fd, &mut from, fd, &mut to, 1, 0) as i64)
                }),
                Call::Times(path, times, follow) => set_times(path, *times, *follow),
                Call::Access(path, how) => {
                    answer(libc::faccessat(here, text(path).as_ptr(), *how, libc::AT_EACCESS).into())
                }
                Call::Readlink(path) => {
                    let mut buf = [0; 4096];
                    answer(libc::readlink(text(path).as_ptr(), buf.as_mut_ptr(), buf.len()) as i64)
                }
                Call::Mark(mark) => mark.make(),
                Call::Stat(path) => {
                    let mut stat: libc::stat = std::mem::zeroed();
                    answer(libc::stat(text(path).as_ptr(), &mut stat).into()).map(|_| i64::from(stat.st_mode))
                }
            }
        }
    }
}

/// A path: mostly one or two names, sometimes one that cannot be.
fn path(rng: &mut Rng) -> String {
    let name = |rng: &mut Rng| (*rng.pick(&NAMES)).to_owned();
    match rng.below(40) {
        0 => String::new(),
        1 => name(rng) + "/",
        2 => name(rng) + "/.",
        3 => name(rng) + "/..",
        4 => "n".repeat(255),
        5 => "n".repeat(256),
        6 => format!("{}/{}", name(rng), "n".repeat(256)),
        7 => "a/".repeat(2100),
        8..=20 => format!("{}/{}", name(rng), name(rng)),
        21..=24 => format!("{}/{}/{}", name(rng), name(rng), name(rng)),
        _ => name(rng),
    }
}

/// What a symbolic link leads to: mostly something that may be there.
fn target(rng: &mut Rng) -> String {
    match rng.below(12) {
        0 => String::new(),
        1 => "t".repeat(4095),
        2 => "t".repeat(4096),
        3 => "../a".to_owned(),
        _ => format!("{}{}", if rng.below(2) == 0 { "" } else { "../" }, rng.pick(&NAMES)),
    }
}

fn length(rng: &mut Rng) -> i64 {
    *rng.pick(&[-1, 0, 1, 100, 512, 5000, 131_072, 200_001, i64::from(u32::MAX)])
}

fn open_flags(rng: &mut Rng) -> i32 {
    let mut flags = *rng.pick(&[libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR]);
    let more = [libc::O_CREAT, libc::O_CREAT, libc::O_EXCL, libc::O_TRUNC, libc::O_APPEND, libc::O_NOFOLLOW];
    for flag in more {
        if rng.below(2) == 0 {
            flags |= flag;
        }
    }
    flags | if rng.below(8) == 0 { libc::O_DIRECTORY } else { 0 }
}

/// Opens without ever waiting for the other end of a pipe, and without the controlling terminal.
pub fn with_file(path: &str, flags: i32, mode: u32, work: impl FnOnce(i32) -> Answer) -> Answer {
    let path = CString::new(path).unwrap();
    // what a descriptor of a device does is the device's
    let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: a live string, and a descriptor of ours.
    unsafe {
        let fd = answer(libc::open(path.as_ptr(), flags, mode).into())? as i32;
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &mut stat);
        let is_plain = matches!(stat.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR);
        let result = if is_plain { work(fd) } else { Ok(0) };
        libc::close(fd);
        result
    }
}

fn set_times(path: &str, times: [i64; 2], follow: bool) -> Answer {
    let time = |time: i64| match time {
        libc::UTIME_NOW | libc::UTIME_OMIT => libc::timespec { tv_sec: 0, tv_nsec: time },
        _ => libc::timespec { tv_sec: time, tv_nsec: 0 },
    };
    let times = times.map(time);
    let path = CString::new(path).unwrap();
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: a live string and a live array.
    answer(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) }.into())
}

/// What a system call returned, or its error.
pub fn answer(returned: i64) -> Answer {
    if returned >= 0 { Ok(returned) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
}

/// Makes the last modification of all files below `root` lie in the past.
pub fn age(root: &Path, secs: i64) {
    for entry in std::fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            age(&entry.path(), secs);
        }
    }
    let times = [libc::timespec { tv_sec: secs, tv_nsec: 0 }; 2];
    let path = c_path(root);
    // SAFETY: a live string and a live array.
    unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) };
    for entry in std::fs::read_dir(root).unwrap() {
        let path = c_path(&entry.unwrap().path());
        // SAFETY: as above.
        unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) };
    }
}
