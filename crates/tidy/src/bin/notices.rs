//! Writes the licences of all that is linked into `cenote`, with its source's notices: `notices FILE`.
//!
//! Cargo tells which crates these are, and where their sources lie.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde::Deserialize;

/// What `cargo metadata` tells, as far as it is asked.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

impl Package {
    /// What runs in the compiler is not linked.
    fn is_linked(&self) -> bool {
        !self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
}

/// The crates of others that the binary of `root` is linked with, by name and version.
fn linked<'a>(metadata: &'a Metadata, root: &str) -> Vec<&'a Package> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let mut ways: Vec<&str> =
        metadata.packages.iter().filter(|p| p.name == root && p.source.is_none()).map(|p| p.id.as_str()).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = ways.pop() {
        if !packages[id].is_linked() || !found.insert(id) {
            continue;
        }
        let deps = nodes[id].deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        ways.extend(deps.map(|dep| dep.pkg.as_str()));
    }
    let mut linked: Vec<&Package> = found.iter().map(|id| packages[id]).filter(|p| p.source.is_some()).collect();
    linked.sort_by_key(|p| (&p.name, &p.version));
    linked
}

/// The licence files below a folder; programs and examples that come with a C library are not linked.
fn licences(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    const NOT_LINKED: [&str; 7] = ["programs", "contrib", "examples", "tests", "doc", "scripts", "target"];
    const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("the folder can be listed").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if depth > 0 && !NOT_LINKED.contains(&name) {
                licences(&path, depth - 1, found);
            }
        } else if NAMES.iter().any(|start| name.to_ascii_uppercase().starts_with(start)) && !name.ends_with(".rs") {
            found.push(path);
        }
    }
}

fn main() {
    let to = env::args_os().nth(1).expect("notices FILE");
    let out = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let metadata: Metadata = serde_json::from_slice(&out.stdout).expect("cargo metadata writes JSON");
    let packages = linked(&metadata, "cmd");

    // a text and the crates that have it; texts are alike if their words are
    let mut texts: Vec<(String, String, Vec<String>)> = Vec::new();
    let mut list = String::new();
    for package in &packages {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or("see below");
        writeln!(list, "{name}: {licence}").expect("strings can be written to");
        let mut files = Vec::new();
        licences(package.manifest_path.parent().expect("a manifest lies in a folder"), 3, &mut files);
        // one that may be used under the licence of this project needs no text of its own
        if files.is_empty() && licence.contains("Apache-2.0") {
            files.push(PathBuf::from("LICENSE-APACHE"));
        }
        assert!(!files.is_empty(), "{name} brings no text of its licence");
        for file in files {
            let text = String::from_utf8_lossy(&fs::read(&file).expect("the file can be read")).into_owned();
            // the other choice of what is under a permissive licence, too
            if text.contains("GNU GENERAL PUBLIC LICENSE") {
                continue;
            }
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            match texts.iter_mut().find(|(known, ..)| *known == words) {
                Some((.., users)) if users.contains(&name) => {}
                Some((.., users)) => users.push(name.clone()),
                None => {
                    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
                    texts.push((words, lines.join("\n").trim_matches('\n').to_owned(), vec![name.clone()]));
                }
            }
        }
    }

    let mut page = format!(
        "The work of others that is linked into cenote, and the terms under which it is used.\n\
         Written by `./x notices`; `./x lint` fails if it is not current.\n\n\
         Where a crate leaves the choice, either licence will do. With all of them goes Rust's standard library:\n\
         MIT OR Apache-2.0, copyright the Rust Project contributors.\n\n{list}"
    );
    for (_, text, users) in texts {
        write!(page, "\n{}\n{}\n\n{text}\n", "=".repeat(80), users.join(", ")).expect("strings can be written to");
    }
    fs::write(&to, page).expect("the file can be written");
}
