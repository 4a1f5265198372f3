//! Versions: of this program, and of OpenZFS that its commands are like.
//!
//! Programs compare what `zfs version` prints with versions of OpenZFS, to know what commands and properties there are.

use std::process::ExitCode;

/// What `zfs version` says of the commands: the version of OpenZFS that they are those of, then this program's.
pub const USERLAND: &str = concat!("zfs-2.4.4-cenote-", env!("CARGO_PKG_VERSION"));
/// What it says of the file system. The program is both, so they are never of two versions.
pub const KERNEL: &str = concat!("zfs-kmod-2.4.4-cenote-", env!("CARGO_PKG_VERSION"));
/// The commit that the program is built from; empty if that is not known.
const COMMIT: &str = env!("CENOTE_COMMIT");

/// The two lines of `zfs version` and `zpool version`.
pub fn of_openzfs() -> String {
    format!("{USERLAND}\n{KERNEL}\n")
}

/// `cenote version`.
pub fn run(_: &[std::ffi::OsString]) -> ExitCode {
    println!("{}", this());
    ExitCode::SUCCESS
}

/// This program, with the commit if that is known.
pub fn this() -> String {
    own(env!("CARGO_PKG_VERSION"), COMMIT)
}

fn own(version: &str, commit: &str) -> String {
    match commit {
        "" => format!("cenote {version}"),
        commit => format!("cenote {version} (commit {commit})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_programs_compare() {
        let lines: Vec<String> = of_openzfs().lines().map(str::to_owned).collect();
        for (line, head) in lines.iter().zip(["zfs-", "zfs-kmod-"]) {
            let numbers = line.strip_prefix(head).unwrap().split('-').next().unwrap();
            let numbers: Vec<u32> = numbers.split('.').map(|number| number.parse().unwrap()).collect();
            assert_eq!(numbers, [2, 4, 4], "{line}");
        }
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn the_commit_is_told() {
        assert_eq!(own("1.0", "0123456789ab"), "cenote 1.0 (commit 0123456789ab)");
        assert_eq!(own("1.0", ""), "cenote 1.0");
        assert!(COMMIT.len() <= 12 && COMMIT.chars().all(|digit| digit.is_ascii_hexdigit()), "{COMMIT}");
    }
}
