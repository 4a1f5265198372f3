//! Faults of pools in use: what `zinject` asks, and what it is told.

use format::ids::{Guid, ObjectId};
use pool::inject::{InjectedEffect, InjectedRequests, Injection};
use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectionRequest {
    /// Which faults there are.
    List,
    /// To let something go wrong.
    Add {
        /// What.
        injection: Injection,
        /// By which number it is known.
        number: u64,
    },
    /// To let something go wrong with a file.
    AddToFile(FileInjection),
    /// To say of a device that it is faulted, or degraded.
    SetState {
        /// Its guid.
        vdev: Guid,
        /// Whether it is faulted.
        is_fault: bool,
    },
    /// To end a fault; all without a number.
    Cancel(Option<u64>),
    /// To have nothing in memory that is on disk.
    ForgetCached,
}

/// Something that goes wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInjection {
    /// Its dataset.
    pub dataset: String,
    /// The number of its object.
    pub object: ObjectId,
    /// Whether it goes wrong with its dnode, not with its contents.
    pub is_dnode: bool,
    /// The level of its blocks.
    pub level: u8,
    /// Bytes of the file, from the first to before the last; all without.
    pub range: Option<(u64, u64)>,
    /// Which copies, a bit each.
    pub copies: u8,
    /// What.
    pub effect: InjectedEffect,
    /// With which requests.
    pub requests: InjectedRequests,
    /// With how many of a million of them.
    pub per_million: u32,
    /// By which number it is known.
    pub number: u64,
}

/// A fault that there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectionReport {
    /// By which number it is known.
    pub number: u64,
    /// What goes wrong.
    pub injection: Injection,
    /// How many requests it concerned, and how many of them went wrong.
    pub counts: [u64; 2],
}
