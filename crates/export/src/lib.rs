//! What all exports share. An export makes a dataset usable by programs that know nothing of ZFS: today as files that
//! the kernel mounts (`fuse`).
//!
//! ```text
//!   turns.rs     several threads take requests from one connection: which of them takes the next one
//!   parking.rs   requests that fail because the pool is suspended wait, outside of the threads that take requests
//! ```
//!
//! Nothing here knows a protocol or an object set.

mod parking;
mod turns;

pub use parking::Parking;
pub use turns::{Seat, Turns};
