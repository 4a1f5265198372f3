//! What all commands print with: exit codes, error lines, quoted names, and quiet ends.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Shown, ShownLines};
use clap::Parser;
use nix::sys::signal::{SigSet, Signal};

/// Exit code: something that was asked for could not be done.
pub const FAILED: u8 = 1;
/// Exit code: the command line makes no sense.
pub const USAGE: u8 = 2;

/// From now on, writing to a pipe that nobody reads ends the program quietly, as it ends `cat`.
pub fn end_with_reader() {
    // SAFETY: the default action replaces Rust's choice to ignore the signal; no handler is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// From now on, and in the threads that come, SIGINT and SIGTERM run `act` in a thread of its own, and nothing else.
pub fn on_interrupt(mut act: impl FnMut() + Send + 'static) {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    if signals.thread_block().is_err() {
        return;
    }
    std::thread::spawn(move || {
        while signals.wait().is_ok() {
            act();
        }
    });
}

/// Becomes true with the first SIGINT or SIGTERM; the second one ends the program at once, whatever a device does.
pub fn interruption() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    on_interrupt(move || {
        if set.swap(true, Ordering::Relaxed) {
            std::process::exit(FAILED.into());
        }
    });
    flag
}

/// The arguments as `A` has them; if they are none, or ask for help, that has been said, and the exit
/// code is returned.
pub fn parse_args<A: Parser>(args: &[OsString]) -> Result<A, ExitCode> {
    A::try_parse_from(args).map_err(|e| {
        // nothing is left to do if not even this can be written
        let _ = e.print();
        if e.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS }
    })
}

/// Runs a command with its arguments: why it failed is said in its name.
pub fn run_command<A: Parser>(
    command: &str,
    args: &[OsString],
    work: impl FnOnce(A) -> Result<(), String>,
) -> ExitCode {
    match parse_args(args).map(work) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(why)) => {
            complain(command, why);
            FAILED.into()
        }
        Err(code) => code,
    }
}

/// One line on standard error, in the name of a command.
pub fn complain(command: &str, what: impl fmt::Display) {
    eprintln!("cenote {command}: {}", Shown(what.to_string()));
}

/// Prints to standard output; to a terminal, as [`ShownLines`] shows it, since names and values come from disks. If it
/// cannot be written, as on a full disk, the program says so, and ends.
pub fn print(text: fmt::Arguments<'_>) {
    let mut out = io::stdout();
    let written = write_lines(&mut out, text, io::stdout().is_terminal()).and_then(|()| out.flush());
    if let Err(error) = written {
        eprintln!("cannot write to standard output: {error}");
        std::process::exit(FAILED.into());
    }
}

fn write_lines(out: &mut dyn Write, text: fmt::Arguments<'_>, to_terminal: bool) -> io::Result<()> {
    if to_terminal { write!(out, "{}", ShownLines(text.to_string())) } else { out.write_fmt(text) }
}

/// Prints to standard error. Nothing can be told if that cannot be written.
pub fn eprint(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Tells that standard output failed, and returns false.
pub fn written(command: &str, result: io::Result<()>) -> bool {
    result.map_err(|e| complain(command, format_args!("writing output: {e}"))).is_ok()
}

/// Standard output, buffered.
pub fn stdout() -> io::BufWriter<io::StdoutLock<'static>> {
    io::BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

/// The same for what only people read: nothing that is printed moves their cursor.
pub fn for_people() -> io::BufWriter<ForPeople> {
    io::BufWriter::with_capacity(64 << 10, ForPeople(io::stdout().lock()))
}

/// Standard output that shows bytes as [`ShownLines`] does.
pub struct ForPeople(io::StdoutLock<'static>);

impl Write for ForPeople {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write!(self.0, "{}", ShownLines(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A name of any bytes as text: what is not printable ASCII, and `%`, `"` and `\`, as `%XX`.
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&byte| match byte {
            b'%' | b'"' | b'\\' => write!(f, "%{byte:02X}"),
            b' '..=b'~' => f.write_str(char::from(byte).encode_utf8(&mut [0; 4])),
            _ => write!(f, "%{byte:02X}"),
        })
    }
}

/// A name as it is; to a terminal, as [`Shown`] shows it.
pub fn write_name(out: &mut dyn Write, name: &[u8], to_terminal: bool) -> io::Result<()> {
    if to_terminal { write!(out, "{}", Shown(name)) } else { out.write_all(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_scripts_move_no_cursor_of_a_terminal() {
        for (to_terminal, expect) in [(true, "t\ta:b\tx\\033[2J\\015\tlocal\n"), (false, "t\ta:b\tx\x1b[2J\r\tlocal\n")]
        {
            let mut out = Vec::new();
            write_lines(&mut out, format_args!("t\ta:b\t{}\tlocal\n", "x\x1b[2J\r"), to_terminal).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expect);
        }
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(Quoted("a b~%\"\\\n\u{e9}".as_bytes()).to_string(), "a b~%25%22%5C%0A%C3%A9");
        let mut out = Vec::new();
        write_name(&mut out, b"a\x1b[2J", true).unwrap();
        write_name(&mut out, b"\n", false).unwrap();
        assert_eq!(out, b"a\\033[2J\n");
    }
}
