//! Taste as a test: `tidy check` holds the source against the rules below, `tidy shrink` takes from the list of
//! exceptions what is mended. Run it in the project's folder; `./x lint` does.
//!
//! | rule | key of an exception | its number |
//! |---|---|---|
//! | no circle of modules in a crate | `circle FILE` | files in the circle |
//! | no file over 600 lines | `file FILE` | lines |
//! | no function over 70 lines | `function FILE NAME` | lines |
//! | methods that use fields that are not `pub` stand in the file of their type | `foreign FILE TYPE` | methods |
//! | a type's name means one thing | `reused NAME` | places |
//! | `unsafe` stands only in known places | `unsafe FILE` | blocks, functions and impls |
//! | tests stand in `mod tests`, or in `tests/NAME/` | `place FILE` | modules |
//! | comments are about things | `person CRATE` | lines with a pronoun of persons |
//!
//! Four rules have no exceptions: ARCHITECTURE.md names only paths and items that exist, its ladder is that of
//! Cargo.toml, the ladder of Cargo.toml is kept, and no script pipes into `grep -q`.
//!
//! The list of exceptions (`tests/tidy.txt`) says exactly what there is: a number may not grow, and one that has become
//! smaller is written down, so that it cannot grow again.

mod circles;
mod exceptions;
mod map;
mod modules;
mod names;
mod places;
mod scripts;
mod sizes;
mod source;

use std::path::Path;
use std::process::ExitCode;

use exceptions::{Exceptions, LIST, grown, parse, print};
use source::SourceFile;

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    let outcome = match command.as_deref() {
        Some("check") => check(false),
        Some("shrink") => check(true),
        _ => Err("usage: tidy check | tidy shrink, in the project's folder".to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn check(may_shrink: bool) -> Result<(), String> {
    let sources = source::read_all(Path::new("."))?;
    let found = find(&sources);
    let listed = parse(&std::fs::read_to_string(LIST).unwrap_or_default())?;
    let mut errors = map::errors(Path::new("."), &sources)?;
    errors.extend(scripts::errors(Path::new("."))?);
    errors.extend(grown(&found, &listed));
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    if found == listed {
        return Ok(());
    }
    if may_shrink {
        return std::fs::write(LIST, print(&found)).map_err(|error| format!("{LIST}: {error}"));
    }
    Err(format!("{LIST} lists what is mended: run `cargo run -p tidy -- shrink`, and commit the shorter list"))
}

/// Everything that breaks a rule.
fn find(sources: &[SourceFile]) -> Exceptions {
    let mut found = sizes::find(sources);
    let modules = modules::Modules::of(sources);
    found.extend(circles::find(&modules));
    found.extend(modules.foreign_impls());
    found.extend(names::find(sources));
    found.extend(places::find(sources));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate `a` of the given files, below `crates/a/src`.
    fn sources(files: &[(&str, &str)]) -> Vec<SourceFile> {
        files.iter().map(|(name, text)| SourceFile::new(&format!("crates/a/src/{name}"), text).unwrap()).collect()
    }

    fn found(files: &[(&str, &str)]) -> String {
        let found = find(&sources(files));
        found.iter().map(|(key, number)| format!("{} {number}\n", key.replace("crates/a/src/", ""))).collect()
    }

    #[test]
    fn circles_are_seen_through_imports_and_paths_and_faces() {
        let lib = ("lib.rs", "mod b; mod c; mod d; pub use b::B;");
        let b = ("b.rs", "use crate::c::C; pub struct B(C);");
        let d = ("d.rs", "use crate::B; pub fn g(b: B) {}");
        assert_eq!(
            found(&[lib, b, ("c.rs", "pub struct C; fn f() { super::d::g(); }"), d]),
            "circle b.rs 3\ncircle c.rs 3\ncircle d.rs 3\n"
        );
        assert_eq!(found(&[lib, b, ("c.rs", "pub struct C;"), d]), "");
        // tests may use whatever they test
        let tests = "pub struct C; #[cfg(test)] mod tests { use crate::B; }";
        assert_eq!(found(&[lib, b, ("c.rs", tests), d]), "");
    }

    #[test]
    fn a_parent_and_its_child_can_be_a_circle() {
        let lib = ("lib.rs", "mod b;");
        assert_eq!(
            found(&[
                lib,
                ("b.rs", "mod c; pub struct B; fn f() { c::g() }"),
                ("b/c.rs", "use super::B; pub fn g() {}")
            ]),
            "circle b.rs 2\ncircle b/c.rs 2\n"
        );
        assert_eq!(found(&[lib, ("b.rs", "mod c; pub struct B;"), ("b/c.rs", "use super::B; fn g() {}")]), "");
    }

    #[test]
    fn methods_stand_with_their_type() {
        let lib = ("lib.rs", "mod b; mod c;");
        let b = ("b.rs", "pub struct B { x: u8, pub open: u8 } impl B { fn h(&self) { self.x } }");
        let c = ("c.rs", "use crate::b::B; impl B { fn f(&self) { self.x.y() } fn g(&self) { self.open; self.f() } }");
        assert_eq!(found(&[lib, b, c]), "foreign c.rs B 1\n");
    }

    #[test]
    fn long_things_and_unsafe_and_persons_are_counted() {
        let long = ["/// Wh", "o does it.\nfn f() {\n", &"    g();\n".repeat(700), "}"].concat();
        assert_eq!(found(&[("lib.rs", &long)]), "file lib.rs 703\nfunction lib.rs f 702\nperson crates/a 1\n");
        assert_eq!(found(&[("lib.rs", "// a whole thing\nfn f() { unsafe { g() } }")]), "unsafe lib.rs 1\n");
    }

    #[test]
    fn tests_have_their_place() {
        let lib = "#[cfg(test)] mod tests; #[cfg(test)] mod more; #[path = \"c.rs\"] mod b; mod d;";
        assert_eq!(found(&[("lib.rs", lib)]), "place lib.rs 2\n");
        let outside = ["crates/a/tests/it.rs", "crates/a/tests/it/main.rs"];
        let sources = outside.map(|path| SourceFile::new(path, "").unwrap());
        assert_eq!(find(&sources).into_keys().collect::<Vec<_>>(), ["place crates/a/tests/it.rs"]);
    }

    #[test]
    fn a_name_means_one_thing() {
        let lib = ("lib.rs", "mod b; mod c;");
        assert_eq!(found(&[lib, ("b.rs", "struct Args;"), ("c.rs", "enum Args {}")]), "reused Args 2\n");
    }

    #[test]
    fn pipes_that_may_break_are_seen() {
        let broken = ["a | grep -q b", "a |& grep -E -iq b || c", "a |\n    grep --quiet b", "a | b \\\n| egrep -vq c"];
        for script in broken {
            assert_eq!(scripts::broken_pipes(script).len(), 1, "{script}");
        }
        for script in ["grep -q b <<<\"$(a)\"", "a || grep -q b c", "a | grep -c q", "a | grep -c -- -q; b | grep q"] {
            assert_eq!(scripts::broken_pipes(script), Vec::<String>::new(), "{script}");
        }
    }

    #[test]
    fn the_list_only_shrinks() {
        let list = |text| parse(text).unwrap();
        assert_eq!(grown(&list("a b 3\nc 1\n"), &list("# x\na b 3\nc 2\n")), Vec::<String>::new());
        assert_eq!(grown(&list("a b 4\nd 1\n"), &list("a b 3\n")).len(), 2);
        assert_eq!(list(&print(&list("a b 4\nd 1\n"))), list("a b 4\nd 1\n"));
    }
}
