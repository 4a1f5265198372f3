//! Text from disks as people are shown it.
//!
//! A name may hold what a terminal takes as a command, or what makes one line look like two, or like another.
//! So control characters, those that turn the direction of writing, and bytes that are no UTF-8 are shown as a
//! backslash and three octal digits for each byte, as `ls -b` does: `a\033[2J`. Everything else is shown as it
//! is, backslashes too: the form is for eyes, not to be read back.

use std::fmt::{self, Write};

/// Shows bytes that are mostly text.
#[derive(Clone, Copy, Debug)]
pub struct Shown<B>(pub B);

/// The same of text with lines and columns: newlines and tabs stay.
#[derive(Clone, Copy, Debug)]
pub struct ShownLines<B>(pub B);

/// Shows what is written to it as [`Shown`] does.
pub struct Shower<W>(pub W);

impl<B: AsRef<[u8]>> fmt::Display for Shown<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Shower(f);
        for chunk in self.0.as_ref().utf8_chunks() {
            out.write_str(chunk.valid())?;
            out.escape(chunk.invalid())?;
        }
        Ok(())
    }
}

impl<B: AsRef<[u8]>> fmt::Display for ShownLines<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cell in self.0.as_ref().split_inclusive(|&byte| is_layout(byte)) {
            match cell.split_last() {
                Some((&end, text)) if is_layout(end) => write!(f, "{}{}", Shown(text), char::from(end))?,
                _ => Shown(cell).fmt(f)?,
            }
        }
        Ok(())
    }
}

fn is_layout(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\t')
}

impl<W: Write> Shower<W> {
    fn escape(&mut self, bytes: &[u8]) -> fmt::Result {
        bytes.iter().try_for_each(|byte| write!(self.0, "\\{byte:03o}"))
    }
}

impl<W: Write> Write for Shower<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut plain = 0;
        for (at, c) in text.char_indices().filter(|(_, c)| misleads(*c)) {
            self.0.write_str(&text[plain..at])?;
            plain = at + c.len_utf8();
            self.escape(&text.as_bytes()[at..plain])?;
        }
        self.0.write_str(&text[plain..])
    }
}

/// Whether a terminal does something else with a character than show it.
fn misleads(c: char) -> bool {
    // line and paragraph separators, and what embeds, overrides or isolates a direction
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(Shown("plain b\u{e4}r \\").to_string(), "plain b\u{e4}r \\");
        assert_eq!(Shown("a\x1b[2J\n\x7f").to_string(), "a\\033[2J\\012\\177");
        assert_eq!(Shown(b"\xff\xc3a\xc2\x9b").to_string(), "\\377\\303a\\302\\233");
        assert_eq!(Shown("x\u{202e}y").to_string(), "x\\342\\200\\256y");
        assert_eq!(ShownLines("a\tb\x07\n\nc\r").to_string(), "a\tb\\007\n\nc\\015");
    }
}
