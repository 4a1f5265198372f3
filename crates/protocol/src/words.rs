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
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// The bytes of such digits; `None` for what is not pairs of digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    let pairs = text.as_bytes().chunks_exact(2);
    if pairs.remainder().is_empty() { pairs.map(pair).collect() } else { None }
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
        assert_eq!(unhex("00fF10"), Some(vec![0, 255, 16]));
        assert_eq!([unhex("0"), unhex("0g"), unhex("\u{e9}")], [None, None, None]);
    }
}
