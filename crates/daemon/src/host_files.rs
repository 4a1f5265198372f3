//! Reading what properties name on the host: [`in_time`].
//!
//! A path may lead to a file system that does not answer, as that of a server that is gone, or of this very pool while it
//! is suspended. A client that asks for a volume does not wait for that.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use base::{Error, Kind, Result, or_abort};

/// How long a file may take.
const TIME_MAX: Duration = Duration::from_secs(5);
/// How many threads may wait for files.
const READERS_MAX: usize = 8;

/// Threads that wait for files.
static READERS: AtomicUsize = AtomicUsize::new(0);

/// Reads a file or folder, on a thread of its own. Errors: those of `read`; `Io` if that takes too long, or if too many wait
/// for others already.
pub(crate) fn in_time<T: Send + 'static>(
    path: &Path,
    read: impl FnOnce(&Path) -> Result<T> + Send + 'static,
) -> Result<T> {
    within(&READERS, TIME_MAX, path, read)
}

fn within<T: Send + 'static>(
    readers: &'static AtomicUsize,
    time_max: Duration,
    path: &Path,
    read: impl FnOnce(&Path) -> Result<T> + Send + 'static,
) -> Result<T> {
    let failed = |why: &str| Error::new(Kind::Io, format!("{}: {why}", path.display()));
    if readers.fetch_add(1, Ordering::SeqCst) >= READERS_MAX {
        readers.fetch_sub(1, Ordering::SeqCst);
        return Err(failed("not read, as other files that properties name do not answer"));
    }
    let (send, sent) = mpsc::channel();
    let owned = path.to_owned();
    let work = move || {
        let read = or_abort(|| read(&owned));
        readers.fetch_sub(1, Ordering::SeqCst);
        // it may have taken too long
        let _ = send.send(read);
    };
    if std::thread::Builder::new().name("host-file".to_owned()).spawn(work).is_err() {
        readers.fetch_sub(1, Ordering::SeqCst);
        return Err(failed("the system gives no more threads"));
    }
    match sent.recv_timeout(time_max) {
        Ok(read) => read,
        Err(RecvTimeoutError::Timeout) => Err(failed("its file system does not answer")),
        Err(RecvTimeoutError::Disconnected) => Err(failed("it cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_file_that_does_not_answer() {
        static READERS: AtomicUsize = AtomicUsize::new(0);
        let path = Path::new("/srv/secret");
        let read = |wait: Option<mpsc::Receiver<()>>| {
            let time_max = if wait.is_some() { Duration::from_millis(20) } else { TIME_MAX };
            within(&READERS, time_max, path, move |path| {
                wait.map(|wait| wait.recv());
                Ok(path.to_owned())
            })
        };
        assert_eq!(read(None).unwrap(), path);
        let mut held = Vec::new();
        for _ in 0..READERS_MAX {
            let (hold, wait) = mpsc::channel();
            held.push(hold);
            let error = read(Some(wait)).unwrap_err();
            assert_eq!(error.what(), "/srv/secret: its file system does not answer");
        }
        // not one thread more for each that asks
        assert!(read(None).unwrap_err().what().contains("not read"));
        drop(held);
        while READERS.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(read(None).unwrap(), path);
        let refused = within(&READERS, TIME_MAX, path, |_| Err::<(), _>(Error::new(Kind::Invalid, "no")));
        assert_eq!(refused.unwrap_err().kind(), Kind::Invalid);
    }
}
