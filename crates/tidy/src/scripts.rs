//! Shell scripts: what pipes into `grep -q` dies of SIGPIPE when that has seen enough, and where `pipefail` is set, as it is
//! in all of them, the check fails though it holds. What is looked at is to be stored first.

use std::fs;
use std::path::{Path, PathBuf};

/// Where scripts are: folders, and files.
const PLACES: [&str; 6] = ["x", "bench", "tests/clients", "tests/demo.sh", "tests/oracle", "tests/mount-stress"];

/// Every line of the project's scripts that does so.
pub fn errors(root: &Path) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    for place in PLACES {
        collect(&root.join(place), &mut paths)?;
    }
    let mut errors = Vec::new();
    for path in paths {
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let is_shell = text.lines().next().is_some_and(|first| first.starts_with("#!") && first.ends_with("sh"));
        if is_shell || path.extension().is_some_and(|extension| extension == "sh") {
            let path = path.strip_prefix(root).unwrap_or(&path).display();
            errors.extend(broken_pipes(&text).iter().map(|line| format!("{path}: a pipe into `grep -q`: {line}")));
        }
    }
    Ok(errors)
}

fn collect(place: &Path, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    if place.is_file() {
        paths.push(place.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(place).map_err(|error| format!("{}: {error}", place.display()))?;
    for entry in entries {
        collect(&entry.map_err(|error| format!("{}: {error}", place.display()))?.path(), paths)?;
    }
    Ok(())
}

/// The lines of a script that pipe into `grep -q`.
pub fn broken_pipes(script: &str) -> Vec<String> {
    let joined = script.replace("\\\n", " ").replace("|\n", "| ");
    joined.lines().filter(|line| pipes_into_quiet_grep(line)).map(|line| line.trim().to_owned()).collect()
}

fn pipes_into_quiet_grep(line: &str) -> bool {
    let parts: Vec<&str> = line.split('|').collect();
    // between the bars of an `or` there is nothing
    let readers = parts.windows(2).filter(|pair| !pair[0].is_empty()).map(|pair| pair[1]);
    readers.map(|reader| reader.trim_start_matches('&')).any(|reader| {
        let mut words = reader.split_whitespace();
        let is_grep = words.next().is_some_and(|word| matches!(word, "grep" | "egrep" | "fgrep" | "zgrep"));
        let is_quiet = |word: &str| word == "--quiet" || !word.starts_with("--") && word.contains('q');
        is_grep && words.take_while(|word| word.starts_with('-') && *word != "--").any(is_quiet)
    })
}
