//! Tells the program which commit it is built from: `CENOTE_COMMIT`, empty if that is not known.
//!
//! The files of git are read, without its program: it may be missing, or refuse a folder of another user's. A package that
//! is built without them sets `CENOTE_COMMIT` in the environment. The same sources give the same program.

use std::fs;
use std::path::{Path, PathBuf};

/// Digits of a commit's name that are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CENOTE_COMMIT");
    let given = std::env::var("CENOTE_COMMIT").ok();
    let commit = given.or_else(|| commit_of(&git_folder()?)).unwrap_or_default();
    let short: String = commit.trim().chars().take_while(char::is_ascii_hexdigit).take(DIGITS).collect();
    println!("cargo::rustc-env=CENOTE_COMMIT={short}");
}

/// The folder of git for these sources; in another work tree it is named by a file.
fn git_folder() -> Option<PathBuf> {
    let root = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR")?).join("../..");
    let git = root.join(".git");
    match fs::read_to_string(&git) {
        Ok(text) => Some(root.join(text.trim().strip_prefix("gitdir: ")?)),
        Err(_) => git.is_dir().then_some(git),
    }
}

/// The commit that is checked out. Cargo runs this again when it changes, and only then.
fn commit_of(git: &Path) -> Option<String> {
    let head = read(&git.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else { return Some(head) };
    let common =
        fs::read_to_string(git.join("commondir")).map_or_else(|_| git.to_owned(), |text| git.join(text.trim()));
    // a branch has a file of its own from its next commit on
    let packed = common.join("packed-refs");
    read(&common.join(name)).or_else(|| {
        let refs = read(&packed)?;
        println!("cargo::rerun-if-changed={}", common.join("refs/heads").display());
        refs.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' ').map(str::to_owned))
    })
}

/// A file that cargo looks at from now on. One that is not there is not looked at: its absence would run this every time.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text)
}
