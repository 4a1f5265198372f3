//! The program under test, as a user would run it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The `cenote` of this build, or the one that `CENOTE` names.
///
/// Test programs are in `TARGET/PROFILE/deps`, and the program beside that folder; cargo builds it before
/// these tests only if it is told to (`./x test` does).
pub fn path() -> PathBuf {
    if let Some(path) = std::env::var_os("CENOTE") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("a program knows where it is");
    let profile = test.ancestors().nth(2).expect("tests are in TARGET/PROFILE/deps");
    let path = profile.join("cenote");
    assert!(path.exists(), "there is no {}: build it with `cargo build -p cmd`", path.display());
    path
}

/// Runs it to its end.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    let output = Command::new(path()).args(args).stdin(Stdio::null()).output().expect("the program runs");
    Ran(output)
}

/// What came of it.
#[derive(Debug)]
pub struct Ran(Output);

impl Ran {
    /// What it wrote to standard output.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    /// What it complained of.
    pub fn complaints(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Its exit code; `None` if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    /// The output, if it went well and without complaint.
    pub fn well(&self) -> Result<String, String> {
        match self.code() {
            Some(0) if self.0.stderr.is_empty() => Ok(self.out()),
            _ => Err(format!("{}\n{}", self.0.status, self.complaints())),
        }
    }
}
