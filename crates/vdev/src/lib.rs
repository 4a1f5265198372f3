//! The tree of virtual devices: from a place in the pool to bytes on devices, with redundancy.
//!
//! Above is `zio`, which knows checksums; below are `device`, which reads one device, `format`,
//! whose name-value lists hold the configuration, and `codec`, whose parity maths rebuilds.
//!
//! ```text
//!   zio: which DVA, which checksum
//!         │ Extent {vdev, offset, size}
//!   read: one batch, first choice, no checksum ──> leaf reads ──> device::read_batch
//!         │ wrong or failed
//!   verify: every other way, until the caller is satisfied; counts errors on those at fault
//!
//!   write: one batch, with parity, to every leaf ──> leaf writes ──> device::write_batch
//! ```
//!
//! - [`spec`]: what the configuration says; [`tree`]: the open vdevs; [`health`]: their states;
//!   [`dtl`]: what a leaf has missed.
//! - [`raidz`], [`draid`], [`indirect`]: pure geometry.
//! - `locate`: which leaves hold an extent; `read`, `verify`: the two ways of reading, and `write`,
//!   as methods of [`Tree`].
//! - [`label`]: the four labels of a device; [`geometry`]: the measures of a new vdev.
//!
//! Invariants: nothing that a disk says is used before [`spec`] or the geometry has checked it; a
//! block that can be had within the redundancy is had; a leaf is charged only for bytes that it
//! returned itself, and that were wrong.

pub mod draid;
pub mod dtl;
pub mod expansion;
mod flush;
pub mod geometry;
pub mod health;
pub mod indirect;
pub mod label;
mod locate;
mod opened;
pub mod raidz;
pub mod read;
mod shapes;
pub mod spec;
pub mod tree;
mod trouble;
mod verify;
mod write;

#[cfg(test)]
mod tests;

pub use device::meter::Purpose;
pub use dtl::TxgRanges;
pub use health::{Aux, Health, State, Stats};
pub use indirect::MapEntry;
pub use read::{Extent, Served};
pub use spec::{Kind, Spec};
pub use tree::{Tree, Vdev, VdevId};
