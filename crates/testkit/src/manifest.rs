//! Manifests: what the files of a dataset must be, one JSON object a line.
//!
//! The format is in `tests/corpus/README.md`. Files are matched by path, so two manifests may differ in
//! order; a key that the expectation lacks is not compared.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value};

/// Differences that are told of one comparison; the rest are counted.
const TOLD_MAX: usize = 20;

/// From here on, a number is none of an object but one of `.zfs` (OpenZFS counts them down from 2^48).
const CONTROL_INO_MIN: u64 = 1 << 47;

/// The files of a dataset by path, as the manifest writes it.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    files: BTreeMap<String, Map<String, Value>>,
}

impl Manifest {
    /// Reads the text of a manifest.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let mut files = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |what: &dyn std::fmt::Display| format!("line {}: {what}: {line}", number + 1);
            let file: Map<String, Value> = serde_json::from_str(line).map_err(|e| wrong(&e))?;
            let path = file.get("path").and_then(Value::as_str).ok_or_else(|| wrong(&"no path"))?.to_owned();
            if files.insert(path, file).is_some() {
                return Err(wrong(&"the second of that path"));
            }
        }
        Ok(Manifest { files })
    }

    /// Without what is not on disk but made by the mount that the manifest was read through: a visible
    /// `.zfs`, which also counts as a link of the root; and the number that a snapshot's root has as
    /// `.zfs/snapshot/NAME`.
    #[must_use]
    pub fn on_disk(mut self) -> Manifest {
        let files = self.files.len();
        self.files.retain(|path, _| path != ".zfs" && !path.starts_with(".zfs/"));
        let has_control = self.files.len() < files;
        if let Some(root) = self.files.get_mut(".") {
            if has_control {
                root.remove("nlink");
            }
            if root.get("ino").and_then(Value::as_u64).is_some_and(|ino| ino >= CONTROL_INO_MIN) {
                root.remove("ino");
            }
        }
        self
    }

    /// Without what has a longer name than `bytes`, or is in a directory that has.
    #[must_use]
    pub fn with_names_up_to(mut self, bytes: usize) -> Manifest {
        self.files.retain(|path, _| unescape(path).split(|&byte| byte == b'/').all(|name| name.len() <= bytes));
        self
    }

    /// Without what these keys say.
    #[must_use]
    pub fn without(mut self, keys: &[&str]) -> Manifest {
        self.files.values_mut().for_each(|file| file.retain(|key, _| !keys.contains(&&**key)));
        self
    }

    /// Every file: its path in bytes, and what is said of it.
    pub fn files(&self) -> impl Iterator<Item = (Vec<u8>, &Map<String, Value>)> {
        self.files.iter().map(|(path, file)| (unescape(path), file))
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Where `found` is not what is expected, in words, or `None`.
    pub fn differences(&self, found: &Manifest) -> Option<String> {
        let mut all = Vec::new();
        for (path, expect) in &self.files {
            match found.files.get(path) {
                None => all.push(format!("{path}: is not there")),
                Some(found) => differing_keys(path, expect, found, &mut all),
            }
        }
        let extra = found.files.keys().filter(|path| !self.files.contains_key(*path));
        all.extend(extra.map(|path| format!("{path}: is there, and should not be")));
        report(&all)
    }
}

fn differing_keys(path: &str, expect: &Map<String, Value>, found: &Map<String, Value>, all: &mut Vec<String>) {
    for (key, value) in expect {
        match found.get(key) {
            Some(other) if other == value => {}
            Some(other) => all.push(format!("{path}: {key} is {}, not {}", short(other), short(value))),
            None => all.push(format!("{path}: has no {key}, which is {}", short(value))),
        }
    }
    if let (Some(xattrs), None) = (found.get("xattrs"), expect.get("xattrs")) {
        all.push(format!("{path}: has xattrs that should not be: {}", short(xattrs)));
    }
}

/// A list of differences as text, not too long; `None` if it is empty.
pub fn report(all: &[String]) -> Option<String> {
    let mut text = all.iter().take(TOLD_MAX).fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "  {line}");
        text
    });
    if all.len() > TOLD_MAX {
        let _ = writeln!(text, "  and {} more", all.len() - TOLD_MAX);
    }
    (!all.is_empty()).then_some(text)
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(200) {
        Some((at, _)) => format!("{}... ({} characters)", &text[..at], text.len()),
        None => text,
    }
}

/// The bytes that a manifest's text stands for: `%XX` is the byte of that number.
pub fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let code = (byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                out.push(code);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(unescape("a%25b%0A%ff"), b"a%b\n\xff");
        assert_eq!(unescape("odd %, %2, %zz"), b"odd %, %2, %zz");
    }

    #[test]
    fn differences_are_found() {
        let expect = Manifest::parse("{\"path\":\".\",\"ino\":1}\n{\"path\":\"a\",\"size\":5}\n").unwrap();
        let same = Manifest::parse("{\"path\":\"a\",\"size\":5,\"more\":1}\n{\"path\":\".\",\"ino\":1}\n").unwrap();
        assert_eq!(expect.differences(&same), None);
        let other = Manifest::parse("{\"path\":\".\",\"xattrs\":{}}\n{\"path\":\"b\"}\n").unwrap();
        let told = expect.differences(&other).unwrap();
        for line in ["has no ino", "has xattrs", "a: is not there", "b: is there"] {
            assert!(told.contains(line), "{told}");
        }
    }

    #[test]
    fn what_a_mount_adds_is_dropped() {
        let text =
            "{\"path\":\".\",\"ino\":281474976710511,\"nlink\":3}\n{\"path\":\".zfs/a\"}\n{\"path\":\".zfsx\"}\n";
        let found = Manifest::parse("{\"path\":\".\",\"ino\":34,\"nlink\":2}\n{\"path\":\".zfsx\"}\n").unwrap();
        let expect = Manifest::parse(text).unwrap();
        assert!(expect.differences(&found).is_some());
        assert_eq!(expect.on_disk().differences(&found), None);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Manifest::parse("{\"path\":\"a\"}\n{\"path\":\"a\"}\n").is_err());
        assert!(Manifest::parse("{}\n").is_err());
        assert!(Manifest::parse("x").is_err());
    }
}
