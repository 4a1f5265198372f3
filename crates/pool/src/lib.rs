//! Pools: finding them on devices, opening them, and what is known about them as a whole.
//!
//! ```text
//!  scan: paths ─▶ devices ─▶ labels ─▶ candidates (one a pool guid)
//!  open: candidate ─▶ vdev tree from labels ─▶ best uberblock ─▶ MOS ─▶ config in the MOS
//!                  ─▶ vdev tree from that ─▶ features ─▶ removed devices ─▶ datasets
//! ```
//!
//! Below is everything but the file system; above are the commands and the pool process.

mod activity;
mod candidate;
pub mod check;
mod clones;
mod dedup;
mod discover;
mod errata;
mod errlog;
mod features;
mod history;
mod import;
mod live;
mod metaslabs;
mod mos;
mod props;
mod rewind;

mod space;
mod status;
mod table_prefetch;
mod tops;
mod usable;
mod vdev_props;
mod volume_space;

pub use activity::{CLAIM_FAILED, CLAIM_MISSING};
pub use arc::check_memory;
pub use candidate::{Candidate, PoolState};
pub use dedup::{
    BUCKETS as DEDUP_BUCKETS, Clones, Dedup, DedupEntry, DedupLog, DedupSums, DedupTable, DedupTables, TableSize,
};
pub use discover::{Discovery, FoundDevice, LabelKind, discover};
pub use dsl::write::RefusedChanges;
pub use errlog::DamagedObject;
pub use features::{FeatureState, Features};
pub use history::History;
pub use import::{ImportAttempt, OpenOptions, Pool, Rewind};
pub use live::inject;
pub use live::{
    AttachAs, DeviceOpener, DeviceTotals, Events, EventsSince, GROUPS_UNDER_WAY, GroupRecord, GroupStage, Head,
    HeadKind, HealedSnapshot, HeartbeatPlace, HeartbeatRecord, LivePool, LogMoment, LogTotals, NewDevices, NewLeaf,
    NewPool, NewVdev, NewVdevShape, PruneAmount, Receiving, ScanPass, ScrubRange, SweepAction, SweepKind, SyncContext,
};
pub use mos::{directory_u64s, object_directory, packed_nvlist};
pub use rewind::{PoolStatePreview, PreviewFindings, findings, newest_before, newest_whole, preview};
pub use space::SpaceByVdev;
pub use status::{
    Checkpoint, ErrorScrub, ExpansionStatus, Progress, Rebuild, Removal, ScanFunction, ScanStatus, Status,
};
pub use table_prefetch::{PoolTables, prefetch_tables};
pub use tops::{TopSpace, class_fragmentation};
pub use vdev::OfflineReason;
