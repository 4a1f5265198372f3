//! What a process of `cenote bench mdtest` does: makes, looks at and removes names.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::phase::{LoadPhase, PhaseTold};

/// The part of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NameOrder {
    /// The folder of the test.
    pub root: PathBuf,
    /// Each process has a folder of its own.
    pub unique: bool,
    /// Folders, and files, that each process makes.
    pub items: u64,
    pub rank: u64,
    /// Whose names it looks at.
    pub looks_at: u64,
}

impl NameOrder {
    pub fn run(&self, phase: LoadPhase) -> Result<PhaseTold, String> {
        let began = Instant::now();
        let count = match phase {
            LoadPhase::MakeTree => self.make_tree(),
            LoadPhase::RemoveTree => self.remove_tree(),
            LoadPhase::CreateFolders => self.each(self.rank, "dir", |path| fs::create_dir(path)),
            LoadPhase::StatFolders => self.each(self.looks_at, "dir", |path| expect(path, fs::Metadata::is_dir)),
            LoadPhase::RemoveFolders => self.each(self.rank, "dir", |path| fs::remove_dir(path)),
            LoadPhase::CreateFiles => self.each(self.rank, "file", |path| File::create_new(path).map(drop)),
            LoadPhase::StatFiles => self.each(self.looks_at, "file", |path| expect(path, fs::Metadata::is_file)),
            LoadPhase::ReadFiles => self.each(self.looks_at, "file", |path| fs::read(path).map(drop)),
            LoadPhase::RemoveNames => self.each(self.rank, "file", |path| fs::remove_file(path)),
            _ => Err("no phase of a load of names".to_owned()),
        }?;
        Ok(PhaseTold { work_s: began.elapsed().as_secs_f64(), count, ..PhaseTold::default() })
    }

    fn folder(&self, rank: u64) -> PathBuf {
        if self.unique { self.root.join(format!("mdtest_tree.{rank}.0")) } else { self.root.join("mdtest_tree.0") }
    }

    fn make_tree(&self) -> Result<u64, String> {
        let folder = self.folder(self.rank);
        match fs::create_dir_all(&folder) {
            Ok(()) => Ok(1),
            Err(e) => Err(format!("{}: {e}", folder.display())),
        }
    }

    fn remove_tree(&self) -> Result<u64, String> {
        let folder = self.folder(self.rank);
        match fs::remove_dir(&folder) {
            Ok(()) => Ok(1),
            // another process has the same one
            Err(e) if e.kind() == ErrorKind::NotFound && !self.unique => Ok(0),
            Err(e) => Err(format!("{}: {e}", folder.display())),
        }
    }

    fn each(&self, rank: u64, kind: &str, work: impl Fn(&PathBuf) -> std::io::Result<()>) -> Result<u64, String> {
        let folder = self.folder(rank);
        for number in 0..self.items {
            let path = folder.join(format!("{kind}.mdtest.{rank}.{number}"));
            work(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(self.items)
    }
}

/// Looks at a name. Errors: it is of another kind.
fn expect(path: &PathBuf, is_right: fn(&fs::Metadata) -> bool) -> std::io::Result<()> {
    match is_right(&fs::symlink_metadata(path)?) {
        true => Ok(()),
        false => Err(std::io::Error::other("it is of another kind than it was made")),
    }
}
