//! Volumes: what an object set means whose contents are the blocks of a disk.
//!
//! ```text
//!   create.rs   the objects of a new one
//!   zvol.rs     an open one: reading, writing, discarding, its size
//!   logged.rs   what its intent log reads of it;  replay.rs  what is done again after a crash
//!   used.rs     how much it was used since it was opened
//! ```
//!
//! Below are `dmu` and `zil`; above are the exports, which give volumes to programs, and the pool's process.
//!
//! Invariant: a record of the log is replayed in one transaction, which also says that it was done.

mod create;
mod logged;
mod replay;
mod used;
mod zvol;

pub use create::{NewVolume, create_volume};
pub use used::{VolumeCounters, VolumeUse};
pub use zil::SyncMode;
pub use zvol::{Admit, Zvol};
