//! Opening what is to be written. A process that is confined may open nothing of the machine for writing: another one,
//! which looks at what that is, opens it in its place.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use base::{Error, Kind};

/// A file or disk that is open for reading and writing.
#[derive(Debug)]
pub struct OpenedDevice {
    /// Of a disk: open so that the kernel gives it to nobody else.
    pub claim: Option<File>,
    /// Open through the page cache.
    pub cached: File,
    /// Open past the page cache, where that is possible and wanted.
    pub direct: Option<File>,
}

/// Opens the file or disk at a path, also past the page cache if the second argument says so.
pub type WriteOpener = dyn Fn(&Path, bool) -> io::Result<OpenedDevice> + Send + Sync;

/// How long a disk may be in use before that is believed.
const PATIENCE: Duration = Duration::from_millis(200);

static OPENER: OnceLock<Box<WriteOpener>> = OnceLock::new();

/// From now on, this process opens by `opener` what is to be written. Of several calls, the first one counts.
pub fn open_for_writing_by(opener: Box<WriteOpener>) {
    // the one that is set stays
    let _ = OPENER.set(opener);
}

/// Opens it by the opener of this process, if there is one.
pub(crate) fn open(path: &Path, is_direct: bool) -> io::Result<OpenedDevice> {
    match OPENER.get() {
        Some(opener) => opener(path, is_direct),
        None => open_here(path, is_direct, std::fs::metadata(path)?.file_type().is_block_device()),
    }
}

/// Opens it in this process; `is_disk` if it is a block device. Errors: those of open(2), `EBUSY` of a disk that is in use.
pub fn open_here(path: &Path, is_direct: bool, is_disk: bool) -> io::Result<OpenedDevice> {
    // O_NONBLOCK: if it has become a named pipe that nobody writes, the open must not wait forever
    let open = |flags| File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK | flags).open(path);
    // O_EXCL of a disk claims it; of a file it would mean nothing
    let claim = if is_disk { Some(claimed(|| open(libc::O_EXCL))?) } else { None };
    let cached = open(0)?;
    let direct = if is_direct { open(libc::O_DIRECT).ok() } else { None };
    Ok(OpenedDevice { claim, cached, direct })
}

/// Claims a disk. One that is in use is asked for again, for a moment: between fork and exec, a program that another thread
/// starts still has the files of this process, also of a disk that it has just closed.
fn claimed(open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let began = Instant::now();
    loop {
        match open() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && began.elapsed() < PATIENCE => {
                std::thread::sleep(PATIENCE / 20);
            }
            result => return result,
        }
    }
}

/// The error of open(2), which has a kind of its own when another has claimed the disk.
pub(crate) fn busy(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EBUSY) => Error::new(Kind::Busy, "the device is in use").with_source(error),
        _ => error.into(),
    }
}

/// Opens a file or disk that is only read; see [`open_here`] for the flag.
pub(crate) fn open_to_read(path: &str, flags: libc::c_int) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | flags).open(path)
}
