//! Faults of pools in use: what `zinject` asks, and what it is told.

use format::ids::{Guid, ObjectId};
use pool::inject::{InjectedEffect, InjectedRequests, Injection, InjectionTarget};
use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectionRequest {
    /// Which faults there are.
    List,
    /// To let something go wrong.
    Add {
        /// By which number it is known.
        number: u64,
        /// Where.
        place: InjectionPlace,
        /// What.
        effect: InjectedEffect,
        /// With which requests.
        requests: InjectedRequests,
        /// With how many of a million of them.
        per_million: u32,
    },
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

/// Where something is to go wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectionPlace {
    /// As the pool knows it.
    Known(InjectionTarget),
    /// With a file.
    File {
        /// Its dataset.
        dataset: String,
        /// The number of its object.
        object: ObjectId,
        /// Whether it goes wrong with its dnode, not with its contents.
        is_dnode: bool,
        /// The level of its blocks.
        level: u8,
        /// Bytes of the file, from the first to before the last; all without.
        range: Option<(u64, u64)>,
        /// Which copies, a bit each.
        copies: u8,
    },
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
