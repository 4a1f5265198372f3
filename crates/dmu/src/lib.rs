//! Objects: arrays of blocks under a dnode, and the sets that dnodes live in.
//!
//! ```text
//!  Objset ── meta dnode ── blocks of dnodes ── dnode of object 7 ── [L2] ── [L1] [L1] ── [data] [data] ...
//! ```
//!
//! Below are `arc` and `zio`, which turn block pointers into bytes; above are the dataset layer, the
//! file system and every tool that looks inside a pool. What a block pointer leads to is checked
//! against what the pointer above it promised (level, size), so that a damaged tree is an error.

mod allocate;
pub mod bpobj;
mod changed;
mod clone;
mod dirty;
mod dnodes;
mod early;
mod live;
mod node;
mod object;
mod objset;
mod owners;
mod policy;
mod portion;
mod prefetch;
mod recount;
mod request_times;
mod roots;
mod seek;
pub mod sync;
mod throttle;
pub mod traverse;
mod txg;
mod write;
pub mod zap;

pub use arc::{Block, Cache, Keep, Which};
pub use changed::ChangedPart;
pub use clone::CloneSource;
pub use dirty::{Changes, Growth, Needs};
pub use early::OpenBlock;
pub use object::Object;
pub use objset::Objset;
pub use policy::{INDIRECT_SHIFT, ObjsetPolicy, Redundant};
pub use portion::Portion;
pub use request_times::{REQUEST_BUCKETS, RequestHistograms, RequestTimer};
pub use roots::{ChangingRoots, HeldRoots, RootHolder, Roots};
pub use sync::{Ledger, Synced, dsize};
pub use throttle::Throttle;
pub use txg::{SuspendedGroups, Tx, Txgs};
pub use write::Changing;
pub use zio::{DedupMode, Mode, OnFailure, ReadRequest};
