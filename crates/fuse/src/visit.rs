//! Going into a mount as a program does: so the kernel sends what it keeps of files, and takes over their sizes and times.
//!
//! With its write-back cache the kernel asks nobody how long a file is, or when it was last changed: it takes the word of
//! programs that call ftruncate(2) and utimensat(2). Where the tree says otherwise, as its root was replaced, or changes
//! were lost, a helper makes these calls. The size that it gives stands for none ([`NO_SIZE`]): the tree is not changed, and the
//! answer has the true one. It is the same for all processes, as the kernel may send the request again to the next one.
//!
//! Only a helper does this: see [`helper`](crate::helper). The pool's process asks for it in [`visits`](crate::visits).

use std::fs::{File, FileTimes, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use base::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::asker::{Asker, CAP_DAC_READ_SEARCH};
use crate::mountinfo;

/// The size that root gives a file which is to be told the one that it has: drawn once, and no file's.
pub(crate) const NO_SIZE: u64 = 0x4ce0_7e5d_19f3_a2b7;
/// The type of the kernel's handles of files by node and generation (source: linux/exportfs.h, `FILEID_INO64_GEN`).
const HANDLE_TYPE: i32 = 0x81;
/// Its length in bytes: the upper half of the node, the lower one, the generation.
const HANDLE_BYTES: usize = 12;

/// A file of a mount as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VisitedFile {
    pub(crate) node: u64,
    pub(crate) generation: u32,
    /// When it was last changed: seconds since 1970, nanoseconds.
    pub(crate) mtime: (i64, u32),
}

/// What a helper does in a mount.
#[derive(Serialize, Deserialize)]
pub(crate) enum MountVisit {
    /// The kernel sends what it keeps of all files; that of these has come at the end.
    Send(Vec<VisitedFile>),
    /// The same, without any lock of a file that a program may hold while it waits for an answer, where the kernel can do that.
    Flush(Vec<VisitedFile>),
    /// The kernel takes over the sizes and times of these files.
    Correct(Vec<VisitedFile>),
}

/// The handle of a file, as open_by_handle_at(2) takes it.
#[repr(C)]
struct KernelHandle {
    head: libc::file_handle,
    bytes: [u8; HANDLE_BYTES],
}

/// Does it, in the mount of device `dev` at `point`; returns how many files could not be reached. Errors: it is not mounted
/// there.
pub(crate) fn visit(point: &Path, dev: &str, visit: &MountVisit) -> Result<usize> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let root = OpenOptions::new().read(true).custom_flags(flags).open(point)?;
    if mountinfo::dev_text(root.metadata()?.dev()) != dev {
        return Err(Error::new(Kind::Missing, format!("something else is mounted at {}", point.display())));
    }
    let no_locks = waits_for_pages_without_locks();
    let each = |files: &[VisitedFile], flags: i32, work: &dyn Fn(&File, &VisitedFile) -> std::io::Result<()>| {
        let reached = |file: &&VisitedFile| match open(&root, file, flags).and_then(|opened| work(&opened, file)) {
            Ok(()) => true,
            // there is no such file any more
            Err(error) => matches!(error.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)),
        };
        files.iter().filter(|file| !reached(file)).count()
    };
    Ok(match visit {
        MountVisit::Flush(files) if no_locks => {
            let _ = nix::unistd::syncfs(&root);
            let mut opened_files = Vec::new();
            let missed = files.iter().filter(|file| match open(&root, file, libc::O_RDONLY) {
                Ok(opened) => {
                    send_pages(&opened);
                    opened_files.push(opened);
                    false
                }
                Err(error) => !matches!(error.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)),
            });
            let missed = missed.count();
            // close(2) wants the lock; without a thread it waits for it here
            let closes = std::thread::Builder::new().name("closes".to_owned()).spawn(move || drop(opened_files));
            drop(closes);
            missed
        }
        MountVisit::Send(files) | MountVisit::Flush(files) => {
            // an error is one of writing: pages that cannot be written are dropped, and programs are told
            let _ = nix::unistd::syncfs(&root);
            // close(2) waits for the file's pages
            each(files, libc::O_RDONLY, &|_, _| Ok(()))
        }
        MountVisit::Correct(files) => each(files, libc::O_WRONLY | libc::O_APPEND, &|opened, file| {
            // what was written behind the true end is sent first, by a close(2): it makes that end a later one
            drop(open(&root, file, libc::O_RDONLY)?);
            opened.set_len(NO_SIZE)?;
            opened.set_times(FileTimes::new().set_modified(system_time(file.mtime)))
        }),
    })
}

/// Has the kernel send the pages of a file, and waits until they are answered for. An error is one of writing, which programs
/// are told.
fn send_pages(file: &File) {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open, and no memory is handed over.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, all) };
}

/// Does sync_file_range(2) wait for the answers of FUSE? Since Linux 6.16; before, the kernel sent copies of its pages.
fn waits_for_pages_without_locks() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 16)
}

/// Opens a file of the mount that `root` is in.
fn open(root: &File, file: &VisitedFile, flags: i32) -> std::io::Result<File> {
    let mut bytes = [0; HANDLE_BYTES];
    let words = [(file.node >> 32) as u32, file.node as u32, file.generation];
    bytes.chunks_exact_mut(4).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_ne_bytes()));
    let head = libc::file_handle { handle_bytes: HANDLE_BYTES as u32, handle_type: HANDLE_TYPE, f_handle: [] };
    let mut handle = KernelHandle { head, bytes };
    let flags = flags | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOFOLLOW;
    // SAFETY: the kernel reads `handle_bytes` bytes behind the head, which are there; it has just made what it returns for us,
    // and nobody else knows it.
    unsafe {
        match libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), flags) {
            ..0 => Err(std::io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

fn system_time((seconds, nanos): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let at = if seconds < 0 { SystemTime::UNIX_EPOCH - whole } else { SystemTime::UNIX_EPOCH + whole };
    at + Duration::from_nanos(u64::from(nanos))
}

/// May this process open files by their handles? Linux wants `CAP_DAC_READ_SEARCH` where the machine has it,
/// and not only a container.
pub(crate) fn may_visit() -> bool {
    let own = Asker::own();
    own.has(CAP_DAC_READ_SEARCH) && own.has_all_users()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970() {
        let since = |time: (i64, u32)| system_time(time).duration_since(SystemTime::UNIX_EPOCH);
        assert_eq!(since((3, 5)).unwrap(), Duration::new(3, 5));
        assert_eq!(since((-3, 5)).unwrap_err().duration(), Duration::new(3, 0) - Duration::from_nanos(5));
    }
}
