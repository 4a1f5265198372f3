//! What a pool's process logs, and where to before it has its log: no terminal shows it, as the command that waits says
//! what matters.
//!
//! Many lines are of what clients, guests and devices do, and some of these could go on for ever. So each place that
//! logs has a limit ([`LogLimit`]).

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Instant;

use base::{LogLimit, MessageFate, Mutex};
use tracing::callsite::Identifier;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// More than any import logs.
const BYTES_MAX: usize = 1 << 20;
/// Lines of one place that pass at once, of those that tell that all is well: each of many file systems is mounted.
const INFO_BURST: u32 = 200;

/// What was logged so far, while it is kept.
static EARLY: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Starts logging to standard error. With `keeps`, only from [`begin`] on. `CENOTE_LOG` says what, and shows it at once.
pub fn start(keeps: bool) {
    let wished = EnvFilter::try_from_env("CENOTE_LOG");
    *EARLY.lock() = (keeps && wished.is_err()).then(Vec::new);
    let filter = wished.unwrap_or_else(|_| EnvFilter::new("info"));
    // somebody else's is as good
    let _ = tracing::subscriber::set_global_default(subscriber(filter));
}

fn subscriber(filter: EnvFilter) -> impl Subscriber + Send + Sync {
    let limited = LimitedLog { limits: Mutex::default(), began: Instant::now() };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(limited).with_ansi(false).finish()
}

/// Standard error is the log now: it gets what was kept.
pub fn begin() {
    let early = EARLY.lock().take().unwrap_or_default();
    let _ = io::stderr().write_all(&early);
}

/// A log whose places have limits, each its own.
struct LimitedLog {
    limits: Mutex<HashMap<Identifier, LogLimit>>,
    began: Instant,
}

/// Where a line goes: to the log, or nowhere.
enum LogLine {
    Passes,
    IsHeldBack,
}

impl LimitedLog {
    fn fate(&self, of: &Metadata<'_>) -> MessageFate {
        // more is logged only where it is wished
        if *of.level() > Level::INFO {
            return MessageFate::Pass(0);
        }
        let limit = || if *of.level() == Level::INFO { LogLimit::of(INFO_BURST) } else { LogLimit::default() };
        self.limits.lock().entry(of.callsite()).or_insert_with(limit).fate(self.began.elapsed().as_secs())
    }
}

impl<'a> MakeWriter<'a> for LimitedLog {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine::Passes
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> LogLine {
        let note = |note: String| drop(EarlyLog.write_all(note.as_bytes()));
        match self.fate(of) {
            MessageFate::Pass(held_back) => {
                if held_back > 0 {
                    note(format!("{} {held_back} lines like the next one were held back\n", of.target()));
                }
                LogLine::Passes
            }
            MessageFate::HoldFirst(seconds) => {
                note(format!("{} more lines like the last one are held back for {seconds} s\n", of.target()));
                LogLine::IsHeldBack
            }
            MessageFate::Hold => LogLine::IsHeldBack,
        }
    }
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            LogLine::Passes => EarlyLog.write(bytes),
            LogLine::IsHeldBack => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_fills_the_log() {
        let logged = |what: fn()| {
            *EARLY.lock() = Some(Vec::new());
            tracing::subscriber::with_default(subscriber(EnvFilter::new("debug")), what);
            String::from_utf8(EARLY.lock().take().unwrap()).unwrap()
        };
        let text = logged(|| {
            for n in 0..5000 {
                tracing::warn!(n, "a request of a guest failed");
                tracing::debug!("looked at");
            }
            tracing::warn!("another place");
            (0..5000).for_each(|n| tracing::info!(n, "mounted"));
        });
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert_eq!((count("a request of a guest failed"), count("another place")), (20, 1));
        assert_eq!((count("looked at"), count("mounted")), (5000, INFO_BURST as usize));
        assert_eq!(count("more lines like the last one are held back for"), 2, "{text}");
    }
}
