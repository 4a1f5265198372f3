//! Features that keep a pool from being used: from an error of the engine, and as text.

use base::{Error, Kind};

/// The features that an error names, one a line behind a tab.
pub fn in_error(error: &Error) -> Vec<(String, String)> {
    if error.kind() != Kind::Unsupported {
        return Vec::new();
    }
    let feature = |line: &str| match line.split_once(" (") {
        Some((guid, about)) => (guid.to_owned(), about.trim_end_matches(')').to_owned()),
        None => (line.to_owned(), String::new()),
    };
    error.what().lines().filter_map(|line| line.strip_prefix('\t')).map(feature).collect()
}

/// Features, each on a line of its own.
pub fn lines(features: &[(String, String)]) -> String {
    let line = |(guid, about): &(String, String)| match about.as_str() {
        "" => format!("\t{guid}\n"),
        _ => format!("\t{guid} ({about})\n"),
    };
    features.iter().map(line).collect()
}
