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
//! - [`spec`]: what the configuration says; [`tree`]: the open vdevs, of which each shape has one [`vdev`] after the
//!   other; [`edit`]: how they come and go.
//! - [`leaf_state`]: all that is known of a leaf, with what it has missed ([`dtl`]) and what it is like ([`health`]);
//!   `redundancy`: what that means for the vdevs above.
//! - [`raidz`], [`expansion`], [`draid`], [`indirect`]: pure geometry.
//! - `locate`: which leaves hold an extent; `read`, `verify`: the two ways of reading, `write`, `flush` and
//!   `tree_labels`, as methods of [`Tree`].
//! - [`label`]: the four labels of a device; [`geometry`]: the measures of a new vdev; `space`: what blocks take up.
//!
//! Invariants: nothing that a disk says is used before [`spec`] or the geometry has checked it; a
//! block that can be had within the redundancy is had; a leaf is charged only for bytes that it
//! returned itself, and that were wrong.

mod builder;
pub mod draid;
pub mod dtl;
pub mod edit;
mod error_window;
pub mod expansion;
mod flush;
pub mod geometry;
mod growth;
pub mod health;
pub mod indirect;
pub mod label;
mod leaf_ranges;
pub mod leaf_state;
mod locate;
mod lost_writes;
mod opened;
pub mod raidz;
pub mod read;
mod rebuild;
mod rebuild_draid;
mod redundancy;
mod reflow;
mod relocate;
mod shapes;
mod space;
pub mod spec;
mod sweep;
pub mod tree;
mod tree_labels;
pub mod vdev;
mod verify;
mod write;

#[cfg(test)]
mod tests;

pub use device::meter::Purpose;
pub use dtl::{Dtl, TxgRanges};
pub use edit::Edit;
pub use error_window::{ErrorRate, ErrorRates, TooMany};
pub use expansion::Reflow;
pub use health::{Aux, Health, VdevState, VdevStats};
pub use indirect::{MapEntry, TopRange};
pub use label::LabelRegion;
pub use leaf_ranges::region_ranges;
pub use leaf_state::{LeafState, OfflineReason};
pub use locate::Extent;
pub use read::ServedExtent;
pub use rebuild::Rebuilt;
pub use relocate::{Relocated, Relocation};
pub use spec::{VdevKind, VdevSpec};
pub use tree::Tree;
pub use vdev::{LeafVdev, Vdev, VdevId};
pub use verify::{ExtentCopies, Lacking};
