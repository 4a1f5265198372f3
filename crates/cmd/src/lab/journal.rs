//! The journal: which cells are finished, and what they gave. Each line is one JSON object; the first tells which lab it is.
//!
//! Invariants: a line is written and flushed before the cell counts as finished. A last line that is cut off is one that was
//! being written when the lab was killed: its cell is measured again.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::plan::CellRun;

/// Bytes of a journal that are read.
const JOURNAL_BYTES_MAX: u64 = 256 << 20;
/// How long another process may have it.
const LOCK_TIME: Duration = Duration::from_millis(200);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Which lab it is: one with other words does not go on with the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabIdentity {
    /// Of the journal.
    pub version: u32,
    pub is_emulated: bool,
    pub is_short: bool,
    pub runs: u32,
    /// Disks, then SSDs.
    pub devices: Vec<LabDeviceId>,
    pub tree: Option<PathBuf>,
}

/// A device of the user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabDeviceId {
    pub path: PathBuf,
    /// The number of a disk, or the file system and number of a file.
    pub number: [u64; 2],
}

impl LabIdentity {
    /// Errors, for the user: there is no such device.
    pub fn new(
        is_emulated: bool,
        devices: [&[PathBuf]; 2],
        (is_short, runs): (bool, u32),
        tree: Option<&Path>,
    ) -> Result<LabIdentity, String> {
        let id = |path: &PathBuf| {
            let found = std::fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
            let number = if found.rdev() == 0 { [found.dev(), found.ino()] } else { [found.rdev(), 0] };
            Ok(LabDeviceId { path: path.clone(), number })
        };
        let devices = devices.into_iter().flatten().map(id).collect::<Result<_, String>>()?;
        Ok(LabIdentity { version: 1, is_emulated, is_short, runs, devices, tree: tree.map(Path::to_owned) })
    }
}

/// A finished cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// `study/setting/cell`.
    pub cell: String,
    pub unit: String,
    /// How it is had by hand.
    pub command: String,
    /// Empty if it failed.
    pub runs: Vec<CellRun>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Locks it until it is closed. Errors, for the user: another lab has it.
fn lock(file: &File) -> Result<(), String> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            // between fork and exec, a child has the files of its parent, also of one that was killed
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_TIME => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err("another lab uses it".to_owned()),
            Err(TryLockError::Error(e)) => return Err(e.to_string()),
        }
    }
}

/// The name of a cell.
pub fn cell_name(study: &str, setting: &str, cell: &str) -> String {
    format!("{study}/{setting}/{cell}")
}

/// What cells gave, by name.
#[derive(Debug, Default)]
pub struct LabResults(BTreeMap<String, CellRecord>);

impl LabResults {
    /// A cell that is finished.
    pub fn get(&self, cell: &str) -> Option<&CellRecord> {
        self.0.get(cell)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &CellRecord> {
        self.0.values()
    }

    #[cfg(test)]
    pub fn of(records: Vec<CellRecord>) -> LabResults {
        LabResults(records.into_iter().map(|record| (record.cell.clone(), record)).collect())
    }
}

/// See the top of the file.
pub struct LabJournal {
    path: PathBuf,
    file: File,
    is_new: bool,
    results: LabResults,
}

impl LabJournal {
    /// Opens it, or makes an empty one. Errors, for the user: it is that of another lab, another lab uses it, or no journal.
    pub fn open(path: &Path, identity: &LabIdentity) -> Result<LabJournal, String> {
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
        let file = File::options().create(true).read(true).append(true).open(path).map_err(|e| failed(&e))?;
        lock(&file).map_err(|why| failed(&why))?;
        let len = file.metadata().map_err(|e| failed(&e))?.len();
        if len > JOURNAL_BYTES_MAX {
            return Err(failed(&"too large for a journal"));
        }
        let text = std::fs::read(path).map_err(|e| failed(&e))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(|e| failed(&e))?;
        let mut lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut results = LabResults::default();
        let Some(first) = lines.next() else {
            return Ok(LabJournal { path: path.to_owned(), file, is_new: true, results });
        };
        let found: LabIdentity =
            serde_json::from_slice(first).map_err(|e| failed(&format!("no journal of a lab: {e}")))?;
        if found != *identity {
            return Err(failed(&"it is that of a lab with other devices or options; give another --out, or remove it"));
        }
        for (n, line) in lines.enumerate() {
            let record: CellRecord =
                serde_json::from_slice(line).map_err(|e| failed(&format!("line {}: {e}", n + 2)))?;
            results.0.insert(record.cell.clone(), record);
        }
        Ok(LabJournal { path: path.to_owned(), file, is_new: false, results })
    }

    /// Whether nothing was measured yet.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// What is finished.
    pub fn results(&self) -> &LabResults {
        &self.results
    }

    /// Writes which lab it is. Errors, for the user: it cannot be written.
    pub fn begin(&mut self, identity: &LabIdentity) -> Result<(), String> {
        if std::mem::take(&mut self.is_new) { self.write(identity) } else { Ok(()) }
    }

    /// A cell is finished. Errors, for the user: it cannot be written.
    pub fn add(&mut self, record: CellRecord) -> Result<(), String> {
        self.write(&record)?;
        self.results.0.insert(record.cell.clone(), record);
        Ok(())
    }

    fn write(&mut self, what: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_vec(what).map_err(|e| e.to_string())?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|e| format!("{}: {e}", self.path.display()))
    }
}
