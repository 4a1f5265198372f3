//! Keys and values, as they are written in the data of logins and text requests: `key=value`, each with a zero behind.

use base::{Error, Result};

/// Longest texts of one request, over all its PDUs.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 10;
/// Longest key and value.
const KEY_BYTES_MAX: usize = 63;
const VALUE_BYTES_MAX: usize = 8192;
/// Keys of one request.
const KEYS_MAX: usize = 128;

/// Parses all keys with their values. Errors: `Corrupt`.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for one in bytes.split(|byte| *byte == 0).filter(|one| !one.is_empty()) {
        let text = std::str::from_utf8(one).map_err(|_| Error::corrupt("a key that is no UTF-8"))?;
        let (key, value) = text.split_once('=').ok_or_else(|| Error::corrupt("a key without a value"))?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX || pairs.len() >= KEYS_MAX {
            return Err(Error::corrupt("keys or values that are too long, or too many"));
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

/// Adds a key and its value.
pub(crate) fn push(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend(key.as_bytes());
    out.push(b'=');
    out.extend(value.as_bytes());
    out.push(0);
}

/// Bytes that are written as `0x` and hexadecimal digits, or `0b` and base64; `None` for anything else.
pub(crate) fn binary(text: &str) -> Option<Vec<u8>> {
    let (form, digits) = text.split_at_checked(2)?;
    match form {
        "0x" | "0X" if digits.len() % 2 == 0 => {
            digits.as_bytes().chunks(2).map(|two| hex(two[0])?.checked_mul(16)?.checked_add(hex(two[1])?)).collect()
        }
        "0b" | "0B" => base64(digits),
        _ => None,
    }
}

/// The first of these forms.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        // writing to a string does not fail
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn base64(digits: &str) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for digit in digits.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits & 0xffff) << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values() {
        let mut out = Vec::new();
        push(&mut out, "A", "b=c");
        push(&mut out, "D", "");
        assert_eq!(out, b"A=b=c\0D=\0");
        assert_eq!(parse(&out).unwrap(), [("A".into(), "b=c".into()), ("D".into(), "".into())]);
        for wrong in [&b"A\0"[..], b"=b\0", b"\xff=\0", &[b'x'; 70]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&b"a=b\0".repeat(KEYS_MAX + 1)).is_err());
    }

    #[test]
    fn binary_values() {
        assert_eq!(binary("0x01fF").unwrap(), [1, 255]);
        assert_eq!(binary("0bAf8A").unwrap(), [1, 255, 0]);
        assert_eq!(binary("0bAf8=").unwrap(), [1, 255]);
        assert_eq!(to_hex(&[1, 255]), "0x01ff");
        for wrong in ["0x123", "0xgg", "0b*", "12", "0", ""] {
            assert_eq!(binary(wrong), None, "{wrong}");
        }
    }
}
