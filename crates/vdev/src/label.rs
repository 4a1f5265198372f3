//! The four labels of a device: reading and writing them, and the sums that they carry.
//!
//! ```text
//!   0      256K    512K               4M               size (rounded down to 256 KiB)
//!   | L0   | L1    | boot area       | data ...        | L2   | L3   |
//!
//!   a label:   0      8K      16K                    128K                  256K
//!              | free | boot  | configuration, tail  | uberblock ring      |
//!                       env                            slots of max(1 KiB, 1 << ashift), at most 8 KiB
//! ```
//!
//! Labels are written two at a time, so that one pair is always whole; any of the four may be bad.
//! The configuration and each uberblock carry their own checksum, seeded with their offset on the
//! device, so a copy of a label elsewhere does not pass.
//!
//! This file knows where things are and whether their sums are right; what the bytes mean is
//! known to `format`. Source: the published ZFS on-disk specification, chapter 1.

mod layout;
mod read;
mod write;

pub(crate) use layout::end_of;
pub use layout::{COUNT, LABEL_BYTES, LabelRegion, slot_bytes, slot_count};
pub use read::{Label, Labels, UberblockSlot, read_label, read_labels};
pub(crate) use write::{LabelPart, config_parts, initialize_end, naming, uberblock_parts};
pub use write::{clear, clear_sound, initialize, write_config, write_heartbeat, write_uberblock};
