//! Which files and disks the helper of a pool's process opens for it to be written: such as may be devices of a pool.
//!
//! A hostile pool may have taken the process over. So nothing is opened
//!
//! - that is neither a disk nor a regular file: a tape, a watchdog, a terminal;
//! - in folders of the system and of the kernel, or that is a program, for others would run what is written there;
//! - that is a disk that is mounted or has another user: it is opened with `O_EXCL`.
//!
//! A file that is too small for any device is opened to be read only.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use device::{OpenedDevice, open_here};
use rustix::fs::{Mode, OFlags};

/// The smallest device of a pool.
const BYTES_MIN: u64 = 64 << 20;

/// Folders with programs, their settings, and files of the kernel.
const OF_SYSTEM: &[&str] =
    &["/bin", "/boot", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr"];

/// How programs begin.
const PROGRAMS: &[&[u8]] = &[b"\x7fELF", b"#!"];

/// Opens a file or disk. Errors: those of open(2); `PermissionDenied`, and why, if it may not be written.
pub(crate) fn open(path: &Path, is_direct: bool) -> io::Result<OpenedDevice> {
    // this does nothing to the file yet, and it is the same file by that name from then on
    let place = File::from(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    let same = PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()));
    let metadata = place.metadata()?;
    let kind = metadata.file_type();
    if kind.is_block_device() {
        return open_here(&same, is_direct, true);
    }
    if !kind.is_file() {
        return Err(refused("neither a regular file nor a disk"));
    }
    let real = std::fs::read_link(&same)?;
    if OF_SYSTEM.iter().any(|folder| real.starts_with(folder)) {
        return Err(refused("the process of a pool may not write in a folder of the system"));
    }
    let mut file = File::open(&same)?;
    if metadata.len() < BYTES_MIN {
        return Ok(OpenedDevice { claim: None, cached: file, direct: None });
    }
    let mut start = Vec::new();
    file.by_ref().take(4).read_to_end(&mut start)?;
    if PROGRAMS.iter().any(|program| start.starts_with(program)) {
        return Err(refused("the process of a pool may not write to a program"));
    }
    open_here(&same, is_direct, false)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn opened(path: &Path) -> Result<bool, ErrorKind> {
        open(path, true).map(|opened| (&opened.cached).write_all(b"x").is_ok()).map_err(|error| error.kind())
    }

    #[test]
    fn only_what_may_be_a_device_is_opened_for_writing() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, start: &[u8], len: u64| {
            let path = dir.path().join(name);
            std::fs::write(&path, start).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
            path
        };
        assert_eq!(opened(&file("image", b"", BYTES_MIN)), Ok(true));
        assert_eq!(opened(&file("small", b"", BYTES_MIN - 1)), Ok(false));
        for start in PROGRAMS {
            assert_eq!(opened(&file("program", start, BYTES_MIN)), Err(ErrorKind::PermissionDenied));
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        for path in [&link, Path::new("/etc/passwd"), Path::new("/dev/null"), dir.path(), Path::new("/proc/self/mem")] {
            assert_eq!(opened(path), Err(ErrorKind::PermissionDenied), "{}", path.display());
        }
        assert_eq!(opened(&dir.path().join("missing")), Err(ErrorKind::NotFound));
    }
}
