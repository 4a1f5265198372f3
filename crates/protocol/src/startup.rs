//! Becoming a process of its own, and telling the command that started it how that went.
//!
//! ```text
//!   zpool import                       cenote serve --notify
//!     start ──────── fork, exec ─────────▶ setsid
//!     relay ◀── notices on its stdout ──── opens, mounts
//!       │    ◀── ready, or failed ──────── then stdout and stdin are /dev/null, stderr is its log
//!     exit code
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::{Error, Kind, Result, ShownLines};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use serde::{Deserialize, Serialize};

/// The first descriptor behind the standard ones.
const FIRST_OF_CALLER: i32 = 3;

/// What a pool process tells the command that started it, one a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Notice {
    /// For standard output.
    Out(String),
    /// For standard error.
    Err(String),
    /// From here on, its standard error is that file.
    Log(PathBuf),
    /// The pool is imported, and all that can be mounted is.
    Ready,
    /// It is not, and the process ends.
    Failed,
}

/// Where a pool process tells how it goes.
#[derive(Clone, Copy, Debug)]
pub struct Notify {
    listener: Listener,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    /// At a terminal.
    Person,
    /// A command that reads notices from standard output.
    Command,
    /// Standard error is a log.
    Nobody,
}

impl Notify {
    /// For a process that was started by [`start`], or by hand.
    pub fn new(is_started: bool) -> Notify {
        Notify { listener: if is_started { Listener::Command } else { Listener::Person } }
    }

    /// For a process that nobody waits for: its standard error is a log.
    pub fn unheard() -> Notify {
        Notify { listener: Listener::Nobody }
    }

    /// Whether no person reads what it says.
    pub fn is_for_programs(&self) -> bool {
        self.listener != Listener::Person
    }

    /// Text for standard output.
    pub fn out(&self, text: &str) {
        self.tell(&Notice::Out(text.to_owned()));
    }

    /// Lines for standard error.
    pub fn err(&self, text: &str) {
        self.tell(&Notice::Err(text.to_owned()));
    }

    /// That all went wrong.
    pub fn failed(&self) {
        self.tell(&Notice::Failed);
    }

    /// That the pool is imported, or could be if that was all that was asked. From then on, the command that started it
    /// is gone.
    pub fn ready(&self) -> Result<()> {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        self.tell(&Notice::Ready);
        if self.listener != Listener::Person {
            dup2_stdin(null.as_fd()).and_then(|()| dup2_stdout(null.as_fd())).map_err(std::io::Error::from)?;
        }
        Ok(())
    }

    /// Becomes the leader of a session of its own, so that no terminal's signal reaches it.
    pub fn detach(&self) {
        if self.listener != Listener::Person {
            // fails only for a process that is one already
            let _ = setsid();
        }
    }

    /// From now on, standard error is `log`, whose path is `path`.
    pub fn log_to(&self, log: &File, path: &Path) -> Result<()> {
        if self.listener != Listener::Person {
            self.tell(&Notice::Log(path.to_owned()));
            dup2_stderr(log.as_fd()).map_err(std::io::Error::from)?;
        }
        Ok(())
    }

    fn tell(&self, notice: &Notice) {
        let mut stdout = std::io::stdout().lock();
        let written = match notice {
            _ if self.listener == Listener::Command => {
                let line = serde_json::to_string(notice).unwrap_or_default();
                writeln!(stdout, "{line}").and_then(|()| stdout.flush())
            }
            Notice::Out(text) => write!(stdout, "{text}").and_then(|()| stdout.flush()),
            Notice::Err(text) => writeln!(std::io::stderr(), "{text}"),
            Notice::Log(_) | Notice::Ready | Notice::Failed => Ok(()),
        };
        if let Err(e) = written {
            tracing::debug!("nobody listens: {e}");
        }
    }
}

/// The program as the command `cenote`, whatever its file is called: one that is called `zpool` would take what follows for
/// commands of `zpool`.
fn command_of(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg0(program.with_file_name("cenote"));
    command
}

/// Starts `cenote serve` with `args` as a process of its own, waits until its pool is imported or it
/// has failed, and says what it has to say. Returns whether the pool is imported.
pub fn start(args: &[OsString]) -> Result<bool> {
    start_with(args, &[])
}

/// The same, with `input` on its standard input.
pub fn start_with(args: &[OsString], input: &[u8]) -> Result<bool> {
    let program = std::env::current_exe()?;
    let mut command = command_of(&program);
    command.args(["serve", "--notify"]).args(args).current_dir("/");
    // it outlives the command: it is not to hold a lock or a pipe of those that called that
    close_fds::set_fds_cloexec(FIRST_OF_CALLER, &[]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take()
        && let Err(e) = stdin.write_all(input)
    {
        // it says itself why it did not want to hear
        tracing::debug!("the pool's process does not listen: {e}");
    }
    let notices = child.stdout.take().ok_or_else(|| Error::new(Kind::Io, "the pool's process cannot be heard"))?;
    let mut log = None;
    for line in BufReader::new(notices).lines() {
        match serde_json::from_str(&line?) {
            // the pool comes also where nobody can be told
            Ok(Notice::Out(text)) => drop(write!(std::io::stdout(), "{}", ShownLines(text))),
            Ok(Notice::Err(text)) => drop(writeln!(std::io::stderr(), "{}", ShownLines(text))),
            Ok(Notice::Log(path)) => log = Some(path),
            Ok(Notice::Ready) => return Ok(true),
            Ok(Notice::Failed) => {
                child.wait()?;
                return Ok(false);
            }
            Err(e) => return Err(Error::corrupt(format!("the pool's process makes no sense: {e}"))),
        }
    }
    let status = child.wait()?;
    let place = log.map_or_else(|| "above".to_owned(), |log| format!("in {}", log.display()));
    Err(Error::new(Kind::Missing, format!("the pool's process ended early, and says {place} why: {status}")))
}
