//! Steps about what POSIX does not know: flags of files, projects and extended attributes.

use std::ffi::CString;
use std::fs::FileType;
use std::path::Path;

use testkit::rng::Rng;

use super::actor::Answer;
use super::steps::{answer, with_file};
use crate::harness::c_path;

/// `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`, and flags: those that every file system takes for the same.
const GET_FLAGS: libc::Ioctl = 0x8008_6601u32 as libc::Ioctl;
const SET_FLAGS: libc::Ioctl = 0x4008_6602;
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
/// `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`: flags, three numbers, project, two of no meaning; and the flags.
const GET_PROJECT: libc::Ioctl = 0x801c_581fu32 as libc::Ioctl;
const SET_PROJECT: libc::Ioctl = 0x401c_5820;
const X_IMMUTABLE: u32 = 0x8;
const X_APPEND: u32 = 0x10;
const X_PROJINHERIT: u32 = 0x200;

const ATTRIBUTES: [&str; 4] = ["user.one", "user.two", "trusted.one", "security.capability"];

/// A call about them.
#[derive(Clone, Debug)]
pub enum Mark {
    Flags(String, u32),
    Project(String, u32, u32),
    SetAttribute(String, &'static str, usize, i32),
    RemoveAttribute(String, &'static str),
    Attribute(String, &'static str),
}

impl Mark {
    pub fn random(path: String, has_projects: bool, rng: &mut Rng) -> Mark {
        let attribute = *rng.pick(&ATTRIBUTES);
        match rng.below(10) {
            // what cannot be changed must not stay so for long
            0..3 => Mark::Flags(path, *rng.pick(&[0, 0, 0, 0, 0, 0, IMMUTABLE, APPEND, IMMUTABLE | APPEND])),
            3..5 => {
                let flags = *rng.pick(&[0, 0, 0, X_PROJINHERIT, X_PROJINHERIT, X_IMMUTABLE, X_APPEND]);
                Mark::Project(path, flags, if has_projects { *rng.pick(&[0, 0, 7, 8]) } else { 0 })
            }
            5..8 => {
                let flags = *rng.pick(&[0, 0, libc::XATTR_CREATE, libc::XATTR_REPLACE]);
                Mark::SetAttribute(path, attribute, *rng.pick(&[0, 5, 20, 300]), flags)
            }
            8 => Mark::RemoveAttribute(path, attribute),
            _ => Mark::Attribute(path, attribute),
        }
    }

    pub fn make(&self) -> Answer {
        let text = |path: &str| CString::new(path).unwrap();
        // SAFETY: all strings and structures live until the call returns.
        unsafe {
            match self {
                Mark::Flags(path, flags) => with_file(path, libc::O_RDONLY, 0, |fd| {
                    // others say how ext4 stores the file
                    let mut all = 0u64;
                    answer(libc::ioctl(fd, GET_FLAGS, &mut all).into())?;
                    // in ext4 a file that stays immutable gets no other flags, in OpenZFS it does
                    if all & u64::from(flags & IMMUTABLE) != 0 {
                        return Ok(0);
                    }
                    let all = all & !u64::from(IMMUTABLE | APPEND) | u64::from(*flags);
                    answer(libc::ioctl(fd, SET_FLAGS, &all).into())
                }),
                Mark::Project(path, flags, project) => with_file(path, libc::O_RDONLY, 0, |fd| {
                    let mut words = [0u32; 7];
                    answer(libc::ioctl(fd, GET_PROJECT, &mut words).into())?;
                    if words[0] & flags & X_IMMUTABLE != 0 {
                        return Ok(0);
                    }
                    // ext4 refuses that flag for others than directories, OpenZFS does not
                    let known = if is_directory(fd) { *flags } else { *flags & !X_PROJINHERIT };
                    answer(libc::ioctl(fd, SET_PROJECT, &[known, 0, 0, *project, 0, 0, 0]).into())
                }),
                Mark::SetAttribute(path, name, len, flags) => {
                    let value = value(name, *len);
                    let (path, name) = (text(path), text(name));
                    let (path, name, value, len) = (path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len());
                    answer(libc::lsetxattr(path, name, value, len, *flags).into())
                }
                Mark::RemoveAttribute(path, name) => {
                    answer(libc::lremovexattr(text(path).as_ptr(), text(name).as_ptr()).into())
                }
                Mark::Attribute(path, name) => attribute(&text(path), &text(name)).map(|value| value.len() as i64),
            }
        }
    }
}

fn is_directory(fd: i32) -> bool {
    // SAFETY: room for the answer, which is all numbers.
    let mode = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &mut stat);
        stat.st_mode
    };
    mode & libc::S_IFMT == libc::S_IFDIR
}

/// What an attribute is set to: a capability is one.
fn value(name: &str, len: usize) -> Vec<u8> {
    match name {
        "security.capability" => {
            let mut value = vec![0; 20];
            value[3] = 2;
            value[5] = 0x20;
            value
        }
        _ => vec![b'v'; len],
    }
}

fn attribute(path: &CString, name: &CString) -> Result<Vec<u8>, i32> {
    let mut room = vec![0u8; 1000];
    // SAFETY: live strings and room of that length.
    let len =
        answer(unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), room.as_mut_ptr().cast(), room.len()) } as i64)?;
    room.truncate(len as usize);
    Ok(room)
}

/// What a file has of them: by flags and a project only a regular file or a directory. New regular files inherit the flag that
/// makes projects inherited in OpenZFS, not in ext4; in both it does nothing there.
pub fn describe(path: &Path, kind: FileType) -> String {
    let path = c_path(path);
    let mut text = String::new();
    for name in ATTRIBUTES {
        if let Ok(value) = attribute(&path, &CString::new(name).unwrap()) {
            text += &format!(" {name} {value:?}");
        }
    }
    if kind.is_file() || kind.is_dir() {
        // SAFETY: a live string and room for the answer; the descriptor is closed.
        let words = unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_NOATIME | libc::O_NOFOLLOW | libc::O_CLOEXEC);
            let mut words = [0u32; 7];
            libc::ioctl(fd, GET_PROJECT, &mut words);
            libc::close(fd);
            words
        };
        let inherited = if kind.is_dir() { X_PROJINHERIT } else { 0 };
        let flags = words[0] & (X_IMMUTABLE | X_APPEND | inherited);
        text += &format!(" flags {flags:x} project {}", words[3]);
    }
    text
}
