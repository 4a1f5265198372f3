//! From which version of pools on there is what. A pool that is older is changed as its version has it.
//!
//! Source: the published list of versions, as `zpool upgrade -v` prints it.

/// Metadata has more copies than data.
pub(super) const COPIES: u64 = 2;
/// Lists of dead blocks tell the sizes before and after compression.
pub(super) const SIZES_IN_LISTS: u64 = 3;
/// A dataset knows how much is only its own.
pub(super) const UNIQUE_ACCURATE: u64 = 9;
/// All datasets are clones of an empty snapshot, and snapshots know their clones.
pub(super) const ORIGIN: u64 = 11;
/// Snapshots have properties of their own.
pub(super) const SNAPSHOT_PROPERTIES: u64 = 12;
/// Directories tell what their space is used for.
pub(super) const USED_BREAKDOWN: u64 = 13;
/// Snapshots can be held.
pub(super) const HOLDS: u64 = 18;
/// Dead lists have parts by age, directories know their clones, and what is freed is charged to one of its own.
pub(super) const DEADLISTS: u64 = 26;
