//! The intent log: what was promised to be on disk before its transaction group was.
//!
//! ```text
//!   head of an object set ── Header ── log block ── log block ── ... ── a block that was never written
//!                                        │ records
//!                                        └ a large write: pointer to its data
//! ```
//!
//! Each object set has a chain of log blocks of its own. The pointer to a block is made before the
//! block is, so the chain ends where a block's sum is not what its predecessor promised: that is no
//! damage, but the usual end.
//!
//! What is here reads: [`walk()`] visits blocks and records, for a check of the pool. Below is `zio`,
//! which checks sums; above are the dataset layer and the file system.

mod header;
mod record;
mod walk;

pub use header::Header;
pub use record::{Record, Write, fuzz};
pub use walk::{End, Visitor, walk};
