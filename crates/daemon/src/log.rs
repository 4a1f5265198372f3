//! What a pool's process logs before it has its log. No terminal shows it: the command that waits says what matters.

use std::io::{self, Write};

use base::Mutex;

/// More than any import logs.
const BYTES_MAX: usize = 1 << 20;

/// What was logged so far, while it is kept.
static EARLY: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Starts logging to standard error. With `keeps`, only from [`begin`] on. `CENOTE_LOG` says what, and shows it at once.
pub fn start(keeps: bool) {
    use tracing_subscriber::EnvFilter;
    let wished = EnvFilter::try_from_env("CENOTE_LOG");
    *EARLY.lock() = (keeps && wished.is_err()).then(Vec::new);
    let filter = wished.unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| EarlyLog).with_ansi(false);
    // somebody else's is as good
    let _ = subscriber.try_init();
}

/// Standard error is the log now: it gets what was kept.
pub fn begin() {
    let early = EARLY.lock().take().unwrap_or_default();
    let _ = io::stderr().write_all(&early);
}

struct EarlyLog;

impl Write for EarlyLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *EARLY.lock() {
            Some(kept) if kept.len() + bytes.len() <= BYTES_MAX => kept.extend(bytes),
            Some(_) => {}
            None => return io::stderr().write(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
