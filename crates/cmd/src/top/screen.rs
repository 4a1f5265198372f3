//! A terminal that is used as a whole: it gets back what it showed before, whatever ends the program but SIGKILL.
//!
//! Source: ECMA-48, and xterm's private modes 25 (cursor) and 1049 (another screen).

use std::io::{self, IsTerminal, Read, Write};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Once};

use nix::sys::signal::{SigSet, Signal};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::view::{ScreenLine, Size};

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
/// What is assumed of a terminal that does not know its size.
const USUAL: Size = Size { columns: 80, rows: 24 };
/// Keys that end: q, Q, Ctrl-C, Ctrl-D.
const ENDING_KEYS: &[u8] = b"qQ\x03\x04";

/// Something that happens at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalEvent {
    /// The user, or a signal, wants an end.
    End,
    /// Its size is another one.
    Resized,
}

/// A terminal in use; dropping it gives it back.
pub struct Screen {
    lent: Arc<Lent>,
}

/// A terminal that is to be given back, once.
struct Lent {
    /// How it took input before, if that was changed.
    before: Option<Termios>,
    returned: Once,
}

impl Screen {
    /// The terminal that standard output is; `None` if it is none, or one that only prints.
    pub fn enter() -> Option<Screen> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if is_dumb || !io::stdout().is_terminal() {
            return None;
        }
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut now = before.clone();
            // keys come at once and are not shown, and none is a signal
            now.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &now);
        }
        let screen = Screen { lent: Arc::new(Lent { before, returned: Once::new() }) };
        // so that what it says can be read
        let (lent, hook) = (screen.lent.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            lent.give_back();
            hook(panic);
        }));
        put(ENTER).ok()?;
        Some(screen)
    }

    /// How large it is now.
    pub fn size(&self) -> Size {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { columns: size.ws_col.into(), rows: size.ws_row.into() }
            }
            _ => USUAL,
        }
    }

    /// Shows these lines, which fit, and nothing else. Errors: the terminal has gone.
    pub fn show(&self, lines: &[ScreenLine]) -> io::Result<()> {
        put(&frame(lines))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.lent.give_back();
    }
}

/// What draws these lines over what was there, without a moment in which nothing is.
fn frame(lines: &[ScreenLine]) -> String {
    let line = |line: &ScreenLine| match line.is_heading {
        true => format!("{BOLD}{}{PLAIN}{CLEAR_LINE}", line.text),
        false => format!("{}{CLEAR_LINE}", line.text),
    };
    let lines: Vec<String> = lines.iter().map(line).collect();
    format!("{HOME}{}{CLEAR_BELOW}", lines.join("\r\n"))
}

/// Tells of what happens at the terminal, and of signals that end programs, from now on. To be called before there
/// are other threads.
pub fn listen(events: &Sender<TerminalEvent>) {
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH];
    let signals = SigSet::from_iter(signals);
    if signals.thread_block().is_ok() {
        let events = events.clone();
        std::thread::spawn(move || {
            while let Ok(signal) = signals.wait() {
                let event = if signal == Signal::SIGWINCH { TerminalEvent::Resized } else { TerminalEvent::End };
                if events.send(event).is_err() {
                    return;
                }
            }
        });
    }
    if io::stdin().is_terminal() {
        let events = events.clone();
        std::thread::spawn(move || {
            let ends = |key: io::Result<u8>| key.is_ok_and(|key| ENDING_KEYS.contains(&key));
            if io::stdin().lock().bytes().take_while(Result::is_ok).any(ends) {
                // it may be ending already
                let _ = events.send(TerminalEvent::End);
            }
        });
    }
}

impl Lent {
    fn give_back(&self) {
        self.returned.call_once(|| {
            // nothing can be done if it has gone
            let _ = put(LEAVE);
            if let Some(before) = &self.before {
                let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
            }
        });
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_replaces_the_one_before() {
        let line = |text: &str, is_heading| ScreenLine { text: text.to_owned(), is_heading };
        let drawn = frame(&[line("A", true), line("b", false)]);
        assert_eq!(drawn, "\x1b[H\x1b[1mA\x1b[0m\x1b[K\r\nb\x1b[K\x1b[J");
        assert_eq!(frame(&[]), "\x1b[H\x1b[J");
    }
}
