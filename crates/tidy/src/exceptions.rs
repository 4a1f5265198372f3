//! The list of what breaks rules yet.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What breaks a rule, and by how much.
pub type Exceptions = BTreeMap<String, usize>;

/// Where they are listed.
pub const LIST: &str = "tests/tidy.txt";

pub fn grown(found: &Exceptions, listed: &Exceptions) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, &number) in found {
        match listed.get(key) {
            None => lines.push(format!("{key}: {number}, and no such thing is allowed (see crates/tidy/src/main.rs)")),
            Some(&before) if number > before => lines.push(format!("{key}: {number}, and may be {before} at most")),
            Some(_) => {}
        }
    }
    lines
}

/// The lines of the list: a key, and a number after the last space. Of a key that stands there twice, as after a merge,
/// the smaller number counts.
pub fn parse(text: &str) -> Result<Exceptions, String> {
    let mut listed = Exceptions::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, number) = line.rsplit_once(' ').ok_or_else(|| format!("{LIST}: no number in '{line}'"))?;
        let number: usize = number.parse().map_err(|error| format!("{LIST}: '{line}': {error}"))?;
        listed.entry(key.to_string()).and_modify(|least| *least = number.min(*least)).or_insert(number);
    }
    Ok(listed)
}

pub fn print(exceptions: &Exceptions) -> String {
    let mut text = String::from("# What is not tidy yet; see crates/tidy/src/main.rs. This list only shrinks.\n");
    for (key, number) in exceptions {
        let _ = writeln!(text, "{key} {number}");
    }
    text
}
