//! Bringing a name into the form that its table hashes and compares.
//!
//! A table of a file system with a `normalization` or without `casesensitivity=sensitive` keeps names
//! as they were given, but takes names as equal that differ only in the way an accent is written, or
//! only in case. ZFS does this by the rules of Unicode 5.0 with simple (one character to one) upper
//! case, and has to do so for ever, since the hashes on disk depend on it. So a character that Unicode
//! gave a case or a decomposition later is left as it is ([`AFTER_5_0`]), and bytes that are no UTF-8
//! are copied.
//!
//! OpenZFS brings names into form piece by piece, and where a letter bears several marks, or Korean is
//! written in compatibility letters, its form is not always Unicode's. Names in which that can be are
//! doubtful: their hash says nothing for certain.

use std::str::Utf8Chunk;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;

/// How a table compares names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TextPrep {
    /// Case does not count.
    pub upper: bool,
    /// The Unicode form names are compared in, if not as they are.
    pub form: Option<NormalizationForm>,
}

/// A Unicode normalization form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormalizationForm {
    /// Canonical composition.
    C,
    /// Canonical decomposition.
    D,
    /// Compatibility composition.
    Kc,
    /// Compatibility decomposition.
    Kd,
}

const UPPER: u64 = 0x02;
const CANONICAL: u64 = 0x10;
const COMPATIBLE: u64 = 0x20;
const COMPOSE: u64 = 0x40;

impl TextPrep {
    /// From the `normflags` of a table, or of the master node's `normalization`. Unknown bits are ignored.
    pub fn from_flags(flags: u64) -> TextPrep {
        let form = match (flags & COMPATIBLE != 0, flags & CANONICAL != 0, flags & COMPOSE != 0) {
            (true, _, true) => Some(NormalizationForm::Kc),
            (true, _, false) => Some(NormalizationForm::Kd),
            (false, true, true) => Some(NormalizationForm::C),
            (false, true, false) => Some(NormalizationForm::D),
            (false, false, _) => None,
        };
        TextPrep { upper: flags & UPPER != 0, form }
    }

    /// Whether names are compared as they are.
    pub fn is_exact(self) -> bool {
        self == TextPrep::default()
    }

    /// The form of `name` that is hashed and compared.
    pub fn apply(self, name: &[u8]) -> Vec<u8> {
        if self.is_exact() {
            return name.to_vec();
        }
        if name.is_ascii() {
            return if self.upper { name.to_ascii_uppercase() } else { name.to_vec() };
        }
        let mut out = Vec::with_capacity(name.len() * 2);
        name.utf8_chunks().for_each(|chunk| self.apply_chunk(&chunk, &mut out));
        out
    }

    /// Whether OpenZFS may bring `name` into another form than [`TextPrep::apply`] does.
    pub fn is_doubtful(self, name: &[u8]) -> bool {
        if self.is_exact() || name.is_ascii() {
            return false;
        }
        let is_jamo = |c| matches!(c, '\u{1100}'..='\u{11ff}');
        let is_syllable = |c| matches!(c, '\u{ac00}'..='\u{d7a3}');
        name.utf8_chunks().any(|chunk| {
            let text = chunk.valid();
            let mut marks_before = false;
            let mut several_marks = text.nfkd().map(|c| {
                let is_mark = canonical_combining_class(c) != 0;
                std::mem::replace(&mut marks_before, is_mark) && is_mark
            });
            !chunk.invalid().is_empty()
                || text.chars().any(|c| !is_syllable(c) && [c].into_iter().nfkd().any(is_jamo))
                || several_marks.any(|several| several)
        })
    }

    fn apply_chunk(self, chunk: &Utf8Chunk<'_>, out: &mut Vec<u8>) {
        let mut text = chunk.valid();
        while !text.is_empty() {
            let known_len = text.find(is_after_5_0).unwrap_or(text.len());
            let (known, rest) = text.split_at(known_len);
            self.apply_known(known, out);
            let later_len = rest.find(|c| !is_after_5_0(c)).unwrap_or(rest.len());
            out.extend_from_slice(&rest.as_bytes()[..later_len]);
            text = &rest[later_len..];
        }
        out.extend_from_slice(chunk.invalid());
    }

    fn apply_known(self, text: &str, out: &mut Vec<u8>) {
        let upper = self.upper;
        let chars = text.chars().map(|c| if upper { simple_upper(c) } else { c });
        let mut put = |c: char| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        match self.form {
            None => chars.for_each(&mut put),
            Some(NormalizationForm::C) => chars.nfc().for_each(&mut put),
            Some(NormalizationForm::D) => chars.nfd().for_each(&mut put),
            Some(NormalizationForm::Kc) => chars.nfkc().for_each(&mut put),
            Some(NormalizationForm::Kd) => chars.nfkd().for_each(&mut put),
        }
    }
}

/// The upper case that is a single character: the full mapping where that is one, the title case of
/// Greek letters with a subscript iota, else the letter itself.
fn simple_upper(c: char) -> char {
    let title_distance = match c {
        '\u{1f80}'..='\u{1faf}' => !u32::from(c) & 8,
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => 9,
        _ => {
            let mut upper = c.to_uppercase();
            return if upper.len() == 1 { upper.next().unwrap_or(c) } else { c };
        }
    };
    char::from_u32(u32::from(c) + title_distance).unwrap_or(c)
}

fn is_after_5_0(c: char) -> bool {
    let c = u32::from(c);
    let at = AFTER_5_0.partition_point(|&(_, last)| last < c);
    AFTER_5_0.get(at).is_some_and(|&(first, _)| first <= c)
}

/// The characters, and others between them that have no case and no decomposition, whose properties
/// are newer than Unicode 5.0. Found by comparing those of Unicode 18 with what OpenZFS's library
/// makes of each character.
#[rustfmt::skip]
const AFTER_5_0: [(u32, u32); 63] = [
    (0x19b, 0x19b), (0x23f, 0x240), (0x250, 0x252), (0x25c, 0x25c), (0x261, 0x261), (0x264, 0x266),
    (0x26a, 0x26a), (0x26c, 0x26c), (0x271, 0x271), (0x282, 0x282), (0x287, 0x287), (0x29d, 0x29e),
    (0x371, 0x373), (0x377, 0x377), (0x3d7, 0x3d7), (0x3f3, 0x3f3), (0x487, 0x487), (0x515, 0x52f),
    (0x558, 0x558), (0x58b, 0x58c), (0x5c8, 0x5c9), (0x616, 0x61a), (0x65f, 0x65f), (0x7fd, 0x8ff),
    (0x9fe, 0x9fe), (0xc3c, 0xc3c), (0xd3b, 0xd3c), (0xeba, 0xeba), (0x103a, 0x108d), (0x10d0, 0x10fa),
    (0x10fd, 0x10ff), (0x135d, 0x135e), (0x13f8, 0x13fd), (0x1715, 0x1715), (0x1a60, 0x1af0),
    (0x1baa, 0x1cf9), (0x1d79, 0x1d79), (0x1d8e, 0x1d8e), (0x1dcb, 0x1dfd), (0x1efb, 0x1eff),
    (0x2095, 0x209f), (0x20f0, 0x20f0), (0x2150, 0x2152), (0x2189, 0x2189), (0x2c5f, 0x2c5f),
    (0x2c73, 0x2c73), (0x2c7c, 0x2c7d), (0x2cec, 0x2cf3), (0x2d27, 0x2d2d), (0x2d7f, 0x2dff),
    (0x3244, 0x3247), (0x32ff, 0x32ff), (0xa641, 0xa7f9), (0xa82c, 0xabed), (0xfa2e, 0xfa2f),
    (0xfa6b, 0xfa6d), (0xfe24, 0xfe2f), (0x101fd, 0x1037a), (0x104d8, 0x107bf), (0x10ae5, 0x1d128),
    (0x1d250, 0x1d281), (0x1d6a6, 0x1d6a6), (0x1df95, 0x1fbf9),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: u64, name: &str, expect: &str) {
        assert_eq!(TextPrep::from_flags(flags).apply(name.as_bytes()), expect.as_bytes(), "{flags:#x} {name}");
    }

    #[test]
    fn forms_and_case() {
        check(0, "Straße é", "Straße é");
        check(UPPER, "Straße é ᾳ ǆ k", "STRAßE É ᾼ Ǆ K");
        check(CANONICAL, "é각", "e\u{301}\u{1100}\u{1161}\u{11a8}");
        check(CANONICAL | COMPOSE, "e\u{301}ﬁ\u{212b}", "éﬁÅ");
        check(COMPATIBLE | COMPOSE, "e\u{301}ﬁ①", "éfi1");
        check(COMPATIBLE | UPPER, "éﬁ", "E\u{301}fi");
    }

    #[test]
    fn what_came_after_unicode_5_stays() {
        // Cherokee and Georgian capitals, and a compatibility letter, are of Unicode 8, 11 and 14.
        check(UPPER, "ꭰ ა", "ꭰ ა");
        check(COMPATIBLE, "\u{107b2}a\u{327}\u{301}", "\u{107b2}a\u{327}\u{301}");
        assert!(AFTER_5_0.windows(2).all(|pair| pair[0].0 <= pair[0].1 && pair[0].1 < pair[1].0));
    }

    #[test]
    fn doubtful_names() {
        let prep = TextPrep { upper: true, form: Some(NormalizationForm::C) };
        for name in ["plain", "Ärger", "e\u{301}tage", "각하", "日本語", "\u{1f600}"] {
            assert!(!prep.is_doubtful(name.as_bytes()), "{name}");
            assert!(!TextPrep::default().is_doubtful(name.as_bytes()), "{name}");
        }
        for name in ["Vie\u{323}\u{302}t", "Việt", "\u{ffa1}"] {
            assert!(prep.is_doubtful(name.as_bytes()), "{name}");
        }
        assert!(prep.is_doubtful(b"\xff"));
    }

    #[test]
    fn bytes_that_are_no_text_are_copied() {
        let prep = TextPrep { upper: true, form: Some(NormalizationForm::D) };
        assert_eq!(prep.apply(b"a\xff\xc3\xa9\xe2\x82"), b"A\xffE\xcc\x81\xe2\x82");
    }
}
