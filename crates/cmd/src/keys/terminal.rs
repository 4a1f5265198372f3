//! Asking a terminal for what must not be seen.
//!
//! While it is asked, the terminal neither shows what is typed nor sends signals: Ctrl-C comes as a byte. So the terminal
//! is always left as it was.

use std::io::{self, Read, Write};

use base::{Error, Kind, Result};
use codec::seal::wipe;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Bytes of a line, at most.
const LINE_MAX: usize = 512;
/// What keys send that edit a line.
const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const CTRL_U: u8 = 21;
const DELETE: u8 = 127;

/// Puts the terminal back as it was.
struct Restored(Termios);

impl Drop for Restored {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
        eprintln!();
    }
}

/// A line that is typed after `question`, which is written to standard error. Errors: `Interrupted` by Ctrl-C; `Io`.
pub(super) fn ask(question: &str) -> Result<Vec<u8>> {
    let failed = |e: io::Error| Error::new(Kind::Io, format!("the terminal: {e}"));
    let before = tcgetattr(io::stdin()).map_err(|e| failed(e.into()))?;
    let mut quiet = before.clone();
    quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG | LocalModes::ICANON);
    // what was typed before this would be lost, and shown
    tcsetattr(io::stdin(), OptionalActions::Flush, &quiet).map_err(|e| failed(e.into()))?;
    let _restored = Restored(before);
    eprint!("{question}");
    io::stderr().flush().map_err(failed)?;
    line(&mut io::stdin().lock())
}

/// A line of bytes as keys send them.
fn line(keys: &mut dyn Read) -> Result<Vec<u8>> {
    let mut line = Vec::with_capacity(LINE_MAX);
    let mut key = [0];
    loop {
        match keys.read(&mut key) {
            Ok(0) => return Ok(line),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::new(Kind::Io, format!("the terminal: {e}"))),
            Ok(_) => match key[0] {
                b'\n' | b'\r' | CTRL_D => return Ok(line),
                CTRL_C => {
                    wipe(&mut line);
                    return Err(Error::new(Kind::Interrupted, "stopped"));
                }
                BACKSPACE | DELETE => drop(line.pop()),
                CTRL_U => {
                    wipe(&mut line);
                    line.clear();
                }
                _ if line.len() == LINE_MAX => {
                    wipe(&mut line);
                    return Err(Error::new(Kind::TooLong, format!("more than {LINE_MAX} bytes were typed")));
                }
                byte => line.push(byte),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_edited() {
        let typed = |mut keys: &[u8]| line(&mut keys).map_err(|e| e.kind());
        assert_eq!(typed(b"secret\nmore").unwrap(), b"secret");
        assert_eq!(typed(b"wrong\x15secreu\x7ft\r").unwrap(), b"secret");
        assert_eq!(typed(b"\x7f\x08a\x04").unwrap(), b"a");
        assert_eq!(typed(b"secret\x03\n").unwrap_err(), Kind::Interrupted);
        assert_eq!(typed(&[b'a'; 600]).unwrap_err(), Kind::TooLong);
        assert_eq!(typed(b"").unwrap(), b"");
    }
}
