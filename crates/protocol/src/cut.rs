//! Snapshots of many pools at one moment: what `cenote cut` tells the process of each pool, and a helper of its own on each host.
//!
//! ```text
//!   command                                  each pool's process
//!     CutOrder ─────────────────────────────▶ checks, brings what is written to disk
//!        ◀─────────────────────────── Ready
//!     Calm ─────────────────────────────────▶ writes that the kernel would keep wait
//!     Flush ────────────────────────────────▶ the kernel sends what it keeps
//!     Park ─────────────────────────────────▶ no request is done
//!     Take, as soon as all pools are parked ▶ takes the snapshots, lets go
//!     Keep, as soon as all have taken ──────▶ ends
//! ```
//!
//! Each step is told when all have answered the one before. The end of the connection before `Keep`, and the end of the time
//! that writes may wait, let go and destroy what was taken: the process sees to that by itself.
//!
//! Nothing that a program did after another pool was parked is in a snapshot: it would have had to be answered.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lists;

/// The property of users that snapshots of one cut have in common, of all pools.
pub const CUT_PROPERTY: &str = "org.cenote:cut";
/// Longest message of a step or of what is told of it, in bytes.
pub const CUT_BYTES_MAX: u32 = 4 << 20;
/// How long `Keep` may be waited for, when writes wait no more.
pub const KEEP_TIME: Duration = Duration::from_secs(10);

/// Snapshots to be taken of some pools: of one, as its process gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutOrder {
    /// Full names of snapshots.
    #[serde(deserialize_with = "lists::names")]
    pub names: Vec<String>,
    /// Also of all datasets below.
    pub recursive: bool,
    /// The value of [`CUT_PROPERTY`].
    pub id: String,
    /// How long writes may wait, in milliseconds.
    pub limit_ms: u64,
    /// A line for the history of the pool.
    pub history: String,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the drawing is the documentation
pub enum CutStep {
    Calm,
    Flush,
    Park,
    Take,
    Keep,
}

/// What has been done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutStage {
    /// It waits for the first step.
    Ready,
    /// A step is done; after `Take`, for how long writes waited.
    Done(CutStep, Vec<HeldPool>),
}

/// How long writes to a pool waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldPool {
    /// The pool.
    pub pool: String,
    /// So long, in microseconds.
    pub held_us: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
}

/// What a host's helper is asked, on its standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostOrder {
    /// To cut, as steps say that follow.
    Cut(CutOrder),
    /// To destroy what a cut left.
    Undo(CutOrder),
}

/// What it tells, on its standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostTold {
    /// All its pools have come so far.
    Stage(CutStage),
    /// Why it ends.
    Failed(String),
}
