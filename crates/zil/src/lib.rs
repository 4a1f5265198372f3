//! The intent log: what was promised to be on disk before its transaction group was.
//!
//! ```text
//!   head of an object set ── Header ── log block ── log block ── ... ── a block that was never written
//!                                        │ records
//!                                        └ a large write: pointer to its data, which is where it stays
//! ```
//!
//! Each object set has a chain of log blocks of its own. The pointer to a block is made before the
//! block is, so the chain ends where a block's sum is not what its predecessor promised: that is no
//! damage, but the usual end.
//!
//! - reading: [`walk()`] visits blocks and records, for a check of the pool
//! - writing: a [`Log`] takes [`Itx`]s from operations, and commits them
//! - after a crash: [`Claim`] when the pool is opened, [`Log::replay`] when the file system is
//!
//! Below are `zio`, which knows log blocks, and `dmu`, whose groups make a log superfluous; above are the
//! dataset layer, the pool, which syncs the heads, and the file system.

mod chain;
mod claim;
mod draft;
mod entry;
mod header;
mod in_place;
mod intent;
mod log;
mod memory_log;
mod pace;
mod record;
mod rehearsal;
mod replay;
mod stats;
mod sync_mode;
mod turns;
mod unsettled;
mod walk;

pub use chain::Update;
pub use claim::Claim;
pub use entry::{Itx, ItxBody, LoggedContents, Scope};
pub use header::ZilHeader;
pub use intent::{AclEntry, Born, Create, Extra, Intent, LoggedAcl, LoggedSetAttr, Made, Rename, Renamed, WrittenData};
pub use log::Log;
pub use memory_log::{LeftOperation, MemoryLog, OperationDetails};
pub use record::{Record, WriteRecord, fuzz};
pub use rehearsal::{CommitRehearsal, RehearsedDevice};
pub use replay::Replayed;
pub use stats::{COMMIT_BUCKETS, Stats};
pub use sync_mode::SyncMode;
pub use unsettled::{LostChanges, SettledBy, Unsettled, UnsettledChange, UntoldLosses};
pub use walk::{LogVisitor, WalkEnd, walk};
