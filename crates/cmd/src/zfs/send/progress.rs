//! How far a stream is: a bar on a terminal, or lines, on standard error; and the title of the process.

use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};
use protocol::words::nicenum::{nicebytes, nicenum};
use protocol::words::time;

use super::title::ProcessTitle;
use crate::progress::ProgressDisplay;

/// What is shown of a stream on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendShown {
    /// A line each second, or a bar if people read it on a terminal; without, a line for each SIGUSR1.
    pub(super) lines: bool,
    /// As programs read it.
    pub(super) parsable: bool,
    /// The title of the process.
    pub(super) title: bool,
}

/// Shows how far a stream is.
pub(super) struct SendProgress {
    shown: SendShown,
    title: Option<ProcessTitle>,
    /// SIGUSR1 has come since the last line.
    is_asked: Arc<AtomicBool>,
    /// What the lines or the bar are of, and how far it was.
    snapshot: String,
    sent: u64,
    has_bars: bool,
    bar: Option<ProgressDisplay>,
}

impl SendProgress {
    /// Begins to take SIGUSR1, which would end the process. Errors: the title cannot be set.
    pub(super) fn begin(shown: SendShown) -> std::io::Result<SendProgress> {
        let title = shown.title.then(ProcessTitle::open).transpose()?;
        let is_asked = Arc::new(AtomicBool::new(false));
        let signals: SigSet = [Signal::SIGUSR1].into_iter().collect();
        signals.thread_block()?;
        let asked = is_asked.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            while signals.wait().is_ok() {
                asked.store(true, Ordering::Relaxed);
            }
        })?;
        let has_bars = shown.lines && !shown.parsable && stderr().is_terminal();
        Ok(SendProgress { shown, title, is_asked, snapshot: String::new(), sent: 0, has_bars, bar: None })
    }

    /// So many bytes of a snapshot's stream have been sent, of so many.
    pub(super) fn tell(&mut self, snapshot: &str, bytes: u64, size: u64) {
        if let Some(title) = &self.title {
            // what cannot be shown is no reason to stop
            let _ = title.set(&title_of(snapshot, bytes, size));
        }
        let was_asked = self.is_asked.swap(false, Ordering::Relaxed);
        if self.has_bars {
            self.move_bar(snapshot, bytes, size);
        }
        if (!self.shown.lines || self.has_bars) && !was_asked {
            return;
        }
        let clock = time::local(time::now(), c"%H:%M:%S");
        if self.shown.parsable {
            eprintln!("{clock}\t{bytes}\t{snapshot}");
            return;
        }
        if self.shown.lines && !self.has_bars && self.snapshot != snapshot {
            snapshot.clone_into(&mut self.snapshot);
            eprintln!("TIME        SENT   SNAPSHOT {snapshot}");
        }
        self.aside(|| eprintln!("{clock}   {:>5}   {snapshot}", nicebytes(bytes)));
    }

    /// Prints something while no bar is in its way.
    pub(super) fn aside(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.aside(print),
            None => print(),
        }
    }

    fn move_bar(&mut self, snapshot: &str, bytes: u64, size: u64) {
        if self.snapshot != snapshot || bytes < self.sent {
            snapshot.clone_into(&mut self.snapshot);
            (self.sent, self.bar) = (0, None);
        }
        let bar = self.bar.get_or_insert_with(|| ProgressDisplay::new(Some(size)));
        bar.add(bytes - self.sent);
        self.sent = bytes;
        bar.now(|| snapshot.to_owned());
    }
}

fn title_of(snapshot: &str, bytes: u64, size: u64) -> String {
    let percent = bytes.checked_div(size / 100).unwrap_or(100).min(100);
    format!("zfs: sending {snapshot} ({percent}%: {}/{})", nicenum(bytes), nicenum(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles() {
        assert_eq!(title_of("a/b@c", 512 << 20, 1 << 30), "zfs: sending a/b@c (50%: 512M/1G)");
        assert_eq!(title_of("a@c", 700, 600), "zfs: sending a@c (100%: 700/600)");
        assert_eq!(title_of("a@c", 70, 60), "zfs: sending a@c (100%: 70/60)");
    }
}
