//! How numbers, bytes, times and errors are worded for people.

pub mod nicenum;
pub mod time;

/// A system error in the system's words, without its number.
pub fn of_system(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Bytes as two digits each.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // writing to a string does not fail
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Text from a label or a pool as it may go to a terminal.
pub fn one_line(text: &str) -> String {
    base::Shown(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_two_digits() {
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
    }
}
