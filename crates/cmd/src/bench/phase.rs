//! What the processes of a load do at the same time, and what each tells of it.

use serde::{Deserialize, Serialize};

/// What all processes do at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub enum LoadPhase {
    Write,
    Read { verify: bool },
    RemoveFiles,
    MakeTree,
    CreateFolders,
    StatFolders,
    RemoveFolders,
    CreateFiles,
    StatFiles,
    ReadFiles,
    RemoveNames,
    RemoveTree,
}

/// How a process has done a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseTold {
    /// Seconds for opening, for reading or writing, and for closing.
    pub open_s: f64,
    pub work_s: f64,
    pub close_s: f64,
    /// Operations.
    pub count: u64,
    /// Where bytes are wrong: how many transfers are, and the first place.
    pub wrong: u64,
    pub first_wrong: String,
    /// Why it could not be done.
    pub failed: Option<String>,
}
