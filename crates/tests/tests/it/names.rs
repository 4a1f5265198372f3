//! What ARCHITECTURE.md names is there.

use std::path::{Path, PathBuf};

/// The sources of a crate, as one text.
fn sources(root: &Path) -> String {
    let mut text = String::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                left.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(entry).unwrap());
            }
        }
    }
    text
}

/// Names in back quotes that look like paths of Rust, such as `zio::Zio::read_batch`.
fn named(text: &str) -> Vec<Vec<String>> {
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|name| name.contains("::") && !name.contains(['/', ' ', '{']));
    paths.map(|name| name.split("::").map(str::to_owned).collect()).collect()
}

#[test]
fn what_the_architecture_names_exists() {
    let project = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(project.join("ARCHITECTURE.md")).unwrap();
    let names = named(&text);
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let sources = sources(&project.join("crates").join(&name[0]).join("src"));
        for part in &name[1..] {
            let declared = ["fn ", "struct ", "enum ", "trait ", "mod ", "type "].iter().any(|kind| {
                sources.match_indices(&format!("{kind}{part}")).any(|(at, found)| {
                    let after = sources[at + found.len()..].chars().next();
                    !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
                })
            });
            assert!(declared, "ARCHITECTURE.md names {}, and {part} is not there", name.join("::"));
        }
    }
}
