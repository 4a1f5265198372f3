//! ARCHITECTURE.md against the project: its ladder is that of Cargo.toml, and what it names in backquotes exists; so do
//! the paths in CONTRIBUTING.md.
//!
//! A name is looked for in the crate named before it: `` `fuse` `point` ``, `` `zil` `turns`, `pace` ``, a row of the
//! ladder, or `` `zio::Zio::heal` ``. Names of no crate are not looked for.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::source::SourceFile;

const MAP: &str = "ARCHITECTURE.md";
const GUIDE: &str = "CONTRIBUTING.md";

/// All that the map, or Cargo.toml, says and is not so.
pub fn errors(root: &Path, sources: &[SourceFile]) -> Result<Vec<String>, String> {
    let read = |path: &str| fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let ladder = members(&read("Cargo.toml")?);
    let map = read(MAP)?;
    let mut errors = Vec::new();
    let mut uses = BTreeMap::new();
    for (at, name) in ladder.iter().enumerate() {
        let used = dependencies(&read(&format!("crates/{name}/Cargo.toml"))?, &ladder);
        for above in ladder[..=at].iter().filter(|above| used.contains(above)) {
            errors.push(format!("crates/{name}/Cargo.toml: uses {above}, which is not below it"));
        }
        uses.insert(name.as_str(), used);
    }
    errors.extend(ladder_errors(&map, &ladder, &uses));
    errors.extend(Names::new(sources).errors(&map));
    errors.extend(missing_paths(root, &read(GUIDE)?));
    Ok(errors)
}

/// The paths in backquotes that lead to nothing, in the project's folder or in `crates`.
fn missing_paths(root: &Path, guide: &str) -> Vec<String> {
    let quoted = guide.split('`').skip(1).step_by(2);
    let is_path = |name: &&str| name.contains('/') && !name.starts_with(['.', '/']) && !name.contains(' ');
    let is_missing = |name: &&str| !root.join(name).exists() && !root.join("crates").join(name).exists();
    quoted.filter(is_path).filter(is_missing).map(|name| format!("{GUIDE}: there is no `{name}`")).collect()
}

/// The crates of the product, in the order of the workspace.
fn members(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| !line.starts_with("members")).skip(1);
    let product = lines.take_while(|line| !line.contains("not part of the product") && !line.starts_with(']'));
    product.filter_map(|line| line.trim().strip_prefix("\"crates/")?.strip_suffix("\",").map(str::to_string)).collect()
}

/// The crates of the ladder that a manifest names as dependencies, in the ladder's order from below.
fn dependencies(manifest: &str, ladder: &[String]) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let names: Vec<&str> =
        lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split(['.', ' ']).next()).collect();
    ladder.iter().rev().filter(|name| names.contains(&name.as_str())).cloned().collect()
}

/// The rows of the map's table of crates: name, and what it says that the crate uses.
fn rows(map: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let table =
        map.lines().skip_while(|line| *line != "## The ladder").skip(1).take_while(|line| !line.starts_with('#'));
    table.filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.strip_suffix('`')?;
        let lives = cells.next()?;
        Some((name, lives, cells.next()?.trim_end_matches(" |")))
    })
}

fn ladder_errors(map: &str, ladder: &[String], uses: &BTreeMap<&str, Vec<String>>) -> Vec<String> {
    let mut errors = Vec::new();
    let names: Vec<&str> = rows(map).map(|(name, ..)| name).collect();
    if names != ladder.iter().map(String::as_str).collect::<Vec<_>>() {
        errors.push(format!("{MAP}: its ladder is {}, and that of Cargo.toml {}", names.join(" "), ladder.join(" ")));
    }
    for (name, _, said) in rows(map) {
        let mut said: Vec<&str> = said.split_whitespace().collect();
        let is_list = said.iter().all(|word| ladder.iter().any(|name| name == word));
        let mut used: Vec<&str> = uses.get(name).into_iter().flatten().map(String::as_str).collect();
        said.sort_unstable();
        used.sort_unstable();
        if is_list && said != used {
            errors.push(format!("{MAP}: {name} uses {}, not {}", used.join(" "), said.join(" ")));
        }
    }
    errors
}

/// What the crates have names for.
struct Names<'a> {
    sources: BTreeMap<&'a str, Vec<&'a SourceFile>>,
}

impl<'a> Names<'a> {
    fn new(sources: &'a [SourceFile]) -> Names<'a> {
        let mut by_crate: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
        for source in sources {
            by_crate.entry(source.krate.trim_start_matches("crates/")).or_default().push(source);
        }
        Names { sources: by_crate }
    }

    fn is_crate(&self, name: &str) -> bool {
        self.sources.contains_key(name)
    }

    /// Is there a file, a folder or an item of this name?
    fn has(&self, krate: &str, name: &str) -> bool {
        let name = name.trim_end_matches('/');
        let sources = self.sources.get(krate).map_or(&[][..], Vec::as_slice);
        sources.iter().any(|source| {
            source
                .place()
                .is_some_and(|place| place.strip_suffix(".rs") == Some(name) || place.starts_with(&format!("{name}/")))
                || defines(&source.text, name)
        })
    }

    fn errors(&self, map: &str) -> Vec<String> {
        let mut errors = Vec::new();
        for (number, line) in map.lines().enumerate() {
            let row =
                line.strip_prefix("| `").and_then(|rest| rest.split('`').next()).filter(|name| self.is_crate(name));
            let mut near = None;
            let mut parts = line.split('`');
            let mut before = parts.next().unwrap_or_default();
            while let (Some(name), after) = (parts.next(), parts.next()) {
                if !matches!(before, " " | ", ") {
                    near = None;
                }
                let missing = if self.is_crate(name) {
                    near = Some(name);
                    false
                } else if let Some((krate, items)) = name.split_once("::").filter(|(first, _)| self.is_crate(first)) {
                    items.split("::").any(|item| !self.has(krate, item))
                } else {
                    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '/'));
                    is_name && near.or(row).is_some_and(|krate| !self.has(krate, name))
                };
                if missing {
                    errors.push(format!("{MAP}:{}: there is no `{name}`", number + 1));
                }
                before = after.unwrap_or_default();
            }
        }
        errors
    }
}

/// Does the text define an item `name`?
fn defines(text: &str, name: &str) -> bool {
    ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "mod "].iter().any(|kind| {
        text.match_indices(&format!("{kind}{name}")).any(|(at, found)| {
            let after = text[at + found.len()..].chars().next();
            !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str =
        "members = [\n    \"crates/a\",\n    \"crates/b\",\n    # not part of the product\n    \"crates/t\",\n]\n";

    #[test]
    fn the_ladder_is_read() {
        let ladder = members(MANIFEST);
        assert_eq!(ladder, ["a", "b"]);
        assert_eq!(dependencies("[dependencies]\nb.workspace = true\nlibc = \"0\"\n[x]\na = 1", &ladder), ["b"]);
        let uses = BTreeMap::from([("a", vec!["b".to_string()]), ("b", vec![])]);
        let table = |rows| format!("# M\n## The ladder\n\n| crate | what | uses |\n|---|---|---|\n{rows}\n## Next\n");
        let errors = |rows: &str| ladder_errors(&table(rows.to_string()), &ladder, &uses);
        assert_eq!(errors("| `a` | all `x` | b |\n| `b` | rest | std |"), Vec::<String>::new());
        assert_eq!(errors("| `a` | all | b |").len(), 1);
        assert_eq!(errors("| `a` | all | a b |\n| `b` | rest | std |").len(), 1);
    }

    #[test]
    fn paths_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(
            missing_paths(&root, "`tidy/src/map.rs` and `crates/tidy`, `./x test`, `a b/c`"),
            Vec::<String>::new()
        );
        assert_eq!(missing_paths(&root, "`tidy/src/gone.rs`").len(), 1);
    }

    #[test]
    fn names_exist() {
        let source = |path: &str, text: &str| SourceFile::new(path, text).unwrap();
        let sources = [
            source("crates/a/src/lib.rs", "mod deep;"),
            source("crates/a/src/deep/inner.rs", "pub struct Thing; impl Thing { pub fn act(&self) {} }"),
        ];
        let names = Names::new(&sources);
        let good = "| `a` | `deep/`, (`deep/inner`) |\n(`a` `deep`, `deep/inner`) `a::Thing::act` `other` `Thing`";
        assert_eq!(names.errors(good), Vec::<String>::new());
        for bad in ["`a` `gone`", "`a` `deep`, `gone`", "| `a` | `gone/` |", "`a::Thing::gone`", "`a::Thin`"] {
            assert_eq!(names.errors(bad).len(), 1, "{bad}");
        }
    }
}
