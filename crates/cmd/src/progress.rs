//! A progress bar for what takes longer than two seconds, on a terminal only.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How long something may take without a bar.
const QUIET: Duration = Duration::from_secs(2);

/// How far a command is, in bytes.
pub struct ProgressDisplay {
    bar: ProgressBar,
    began: Instant,
    may_show: bool,
}

impl ProgressDisplay {
    /// Begins at 0 of `total` bytes, if that is known.
    pub fn new(total: Option<u64>) -> ProgressDisplay {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = match total {
            Some(_) => "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left {wide_msg}",
            None => "{bytes} {bytes_per_sec} {elapsed} {wide_msg}",
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the templates are right"));
        ProgressDisplay { bar, began: Instant::now(), may_show: stderr().is_terminal() }
    }

    /// So many bytes more are done.
    pub fn add(&mut self, bytes: u64) {
        self.bar.inc(bytes);
        if self.may_show && self.began.elapsed() > QUIET {
            self.may_show = false;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// What is being done now.
    pub fn now(&mut self, what: impl FnOnce() -> String) {
        if !self.bar.is_hidden() {
            self.bar.set_message(what());
        }
    }

    /// Prints something while the bar is out of the way.
    pub fn aside(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
