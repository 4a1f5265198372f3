//! The block pipeline: from a block pointer to the bytes it stands for, and back ([`Zio::write_batch`]).
//!
//! ```text
//!            BlkPtr
//!    hole ───┬─────────────────────────────────────────────▶ zeros
//!    embedded┼──────────────────────────────▶ decompress ──▶ bytes
//!    gang ───┼─▶ header, its pointers … ─┐
//!            └─▶ vdev ─▶ verify ─────────┴─▶ decompress ─▶ turn byte order ─▶ bytes
//!                          │ mismatch
//!                          └▶ other sides, parity, other copies
//! ```
//!
//! Reads come in batches: one call to the vdev layer brings the bytes of all blocks of a batch, and
//! checksums and decompression then run on all workers.
//!
//! Writing is drawn in `write`, the way of log blocks in `log`, where space comes from in [`alloc`].
//!
//! Below is `vdev`, which knows redundancy but no checksums; above are the cache and the object layer.

pub mod alloc;
mod contents;
mod damage;
pub mod effort;
mod gang;
mod heal;
mod issue;
mod keys;
mod log;
mod on_failure;
mod pointer;
mod read;
mod refs;
mod sums;
#[cfg(test)]
mod tests;
mod verify;
mod write;
mod zio;

pub use alloc::{Allocator, Class};
pub use contents::{BlockContents, Mode, Physical, ReadRequest};
pub use damage::Damage;
pub use heal::ScrubRun;
pub use keys::{Keys, SetKeys};
pub use on_failure::{DeviceWait, OnFailure};
pub use pointer::is_verifiable;
pub use refs::{CloneTable, RefTable, Twin};
pub use write::{BlockWrite, Compressed, DedupMode, Packed, PlacedBlock, WritePolicy, WrittenBlock, stored_bytes};
pub use zio::Zio;
