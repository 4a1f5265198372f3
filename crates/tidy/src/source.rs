//! The source files of the project, parsed.

use std::fs;
use std::path::{Path, PathBuf};

use syn::Attribute;

/// One file of Rust.
pub struct SourceFile {
    /// From the project's folder: `crates/zio/src/read.rs`.
    pub path: String,
    /// The folder of its crate: `crates/zio`.
    pub krate: String,
    pub text: String,
    pub file: syn::File,
}

impl SourceFile {
    pub fn new(path: &str, text: &str) -> Result<SourceFile, String> {
        let file = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
        let krate = path.split('/').take(if path.starts_with("crates/") { 2 } else { 1 }).collect::<Vec<_>>().join("/");
        Ok(SourceFile { path: path.to_string(), krate, text: text.to_string(), file })
    }

    /// Its place below `src`, if it may be part of the product: not a test, a bench or a program of its own.
    pub fn place(&self) -> Option<&str> {
        let place = self.path.strip_prefix(&self.krate)?.strip_prefix("/src/")?;
        let is_of_tests = place.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "bin"));
        (!is_of_tests).then_some(place)
    }
}

/// All files below `crates` and `fuzz`.
pub fn read_all(root: &Path) -> Result<Vec<SourceFile>, String> {
    let mut paths = Vec::new();
    for folder in ["crates", "fuzz"] {
        collect(&root.join(folder), &mut paths)?;
    }
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            SourceFile::new(&path.strip_prefix(root).unwrap_or(path).to_string_lossy(), &text)
        })
        .collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, paths)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

/// Is what has these attributes built for tests only?
pub fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string();
        list.path.is_ident("cfg") && condition.contains("test") && !condition.contains("not")
    })
}
