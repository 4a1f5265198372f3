//! Looks at files that end, also below a mount whose process does not answer: the kernel would wait for it for ever.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long a file system may take for one answer.
const LIMIT: Duration = Duration::from_secs(10);

/// The path without links, as of `std::fs::canonicalize`. Errors: those of that; `TimedOut` if a file system on the way
/// does not answer.
pub fn real_path(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    within(LIMIT, move || std::fs::canonicalize(path))
}

/// What is known of a file, as of `std::fs::metadata`. Errors: as of [`real_path`].
pub fn metadata(path: impl AsRef<Path>) -> io::Result<std::fs::Metadata> {
    let path = path.as_ref().to_owned();
    within(LIMIT, move || std::fs::metadata(path))
}

/// What `look` finds, which goes on by itself if it takes too long; it ends with the program.
fn within<T: Send + 'static>(limit: Duration, look: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("look".to_owned()).spawn(move || drop(tell.send(look())))?;
    match told.recv_timeout(limit) {
        Ok(found) => found,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the file system there does not answer"))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(io::Error::other("a thread that looks has panicked")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_ends() {
        assert_eq!(real_path("/proc/self/../..").unwrap(), Path::new("/"));
        assert_eq!(metadata("/no/such/file").unwrap_err().kind(), io::ErrorKind::NotFound);
        let (hold, held) = mpsc::channel::<()>();
        let never = within(Duration::from_millis(50), move || held.recv().map_err(io::Error::other));
        assert_eq!(never.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(hold);
    }
}
