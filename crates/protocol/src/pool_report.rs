//! What a pool process tells of its pool: the one structure that `zpool list`, `status` and `get` print
//! from, each in its own way.
//!
//! It holds facts, not text: sizes in bytes, times in seconds since 1970, states as types. The process
//! makes it; it travels over the socket; the commands word it. For a pool
//! that could be imported the command makes it itself, from labels.

pub use dsl::PropertyValue;
use format::ids::{Guid, Txg, VdevNumber};
pub use pool::{Checkpoint, ErrorScrub, Progress, Rebuild, Removal, TopSpace};
use serde::{Deserialize, Serialize};
pub use vdev::{Aux, VdevState};

/// A pool, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolReport {
    /// Name under which it is imported.
    pub name: String,
    /// Guid of the pool.
    pub guid: Guid,
    /// A number that is another one each time the pool is opened.
    pub load_guid: Guid,
    /// Whether it is open for writing.
    #[serde(default)]
    pub is_writable: bool,
    /// Whether nothing is written to it at present, and what becomes of operations that want to.
    #[serde(default)]
    pub suspended: Option<Suspended>,
    /// Pool version.
    pub version: u64,
    /// Txg that it was opened at.
    pub txg: Txg,
    /// Hint about an old incompatibility that it has; 0 if it has none.
    pub errata: u64,
    /// Where its mountpoints are, if not below `/`.
    pub altroot: Option<String>,
    /// The property `cachefile`, if it was given.
    #[serde(default)]
    pub cachefile: Option<String>,
    /// The vdevs.
    pub root: VdevReport,
    /// Hot spares.
    pub spares: Vec<VdevReport>,
    /// Cache devices.
    pub caches: Vec<VdevReport>,
    /// Space of the classes that data goes to.
    pub space: SpaceReport,
    /// Number of blocks in the error log.
    pub error_count: u64,
    /// The last scrub or resilver.
    pub scan: Option<ScanReport>,
    /// Whether a resilver will begin by itself.
    pub is_resilver_due: bool,
    /// The last scrub of known errors.
    pub error_scrub: Option<ErrorScrub>,
    /// The last removal of a vdev.
    pub removal: Option<Removal>,
    /// The expansion of a raidz that is under way, or the last one.
    pub expansion: Option<ExpansionReport>,
    /// The checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Guids of all features that the pool lists, and whether each is in use.
    pub features: Vec<(String, bool)>,
    /// Features in use that this program does not know, each with its description; they forbid writing.
    pub unwritable: Vec<(String, String)>,
    /// Properties that are stored in the pool.
    pub stored: Vec<(String, PropertyValue)>,
    /// Comment in the configuration.
    pub comment: Option<String>,
    /// Names of the feature sets that it keeps to.
    pub compatibility: Option<String>,
    /// Name of the dataset to boot from.
    pub bootfs: Option<String>,
    /// Referenced bytes for each 100 bytes in the dedup tables.
    pub dedup_ratio_percent: u64,
    /// Bytes that the dedup tables take up.
    pub dedup_table_bytes: u64,
    /// Bytes of them that are in memory.
    pub dedup_cached_bytes: u64,
    /// Bytes of cloned blocks.
    pub clone_used_bytes: u64,
    /// Bytes that cloning saves.
    pub clone_saved_bytes: u64,
    /// Referenced bytes for each 100 bytes of cloned blocks.
    pub clone_ratio_percent: u64,
    /// Bytes still to be freed.
    pub freeing_bytes: u64,
    /// Bytes that cannot be freed.
    pub leaked_bytes: u64,
    /// Txg up to which the last scrub went.
    pub last_scrubbed_txg: Txg,
}

/// How a pool is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Suspended {
    /// Operations that change something wait.
    Wait,
    /// It is an I/O error.
    Continue,
    /// Another host may have it: everybody waits.
    Multihost,
}

/// Space of a pool, in bytes: of its data, special and dedup devices together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub struct SpaceReport {
    pub size_bytes: u64,
    pub allocated_bytes: u64,
    pub expandable_bytes: u64,
    pub checkpoint_bytes: u64,
    pub fragmentation: Option<u64>,
}

/// A vdev and all below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VdevReport {
    /// Its type as in a configuration: `root`, `disk`, `mirror`, `raidz`...
    pub kind: String,
    /// Position among its parent's children.
    pub id: u64,
    /// Unique id.
    pub guid: Guid,
    /// State.
    pub state: VdevState,
    /// Reason for the state.
    pub aux: Aux,
    /// Path of a leaf.
    pub path: Option<String>,
    /// Path by bus and slot.
    pub phys_path: Option<String>,
    /// Id from the driver.
    pub devid: Option<String>,
    /// Whether the whole disk was given to the pool.
    pub is_whole_disk: bool,
    /// Whether it was gone when the pool was last open.
    pub is_not_present: bool,
    /// Parity level of a raidz or draid.
    pub nparity: u64,
    /// Data columns and distributed spares of a draid.
    pub draid: Option<(u64, u64)>,
    /// Whether it holds the intent log only.
    pub is_log: bool,
    /// What else it was set aside for: `special` or `dedup`.
    pub bias: Option<String>,
    /// Whether its removal is under way.
    pub is_removing: bool,
    /// Whether it lacks what was written while it was away.
    #[serde(default)]
    pub awaits_resilver: bool,
    /// Whether it gets that by the resilver after the one under way.
    #[serde(default)]
    pub is_deferred: bool,
    /// Reads that failed, writes that failed, blocks that were wrong.
    pub errors: [u64; 3],
    /// Whether a leaf of a raidz or draid is not read for a while; `None` of others.
    #[serde(default)]
    pub sits_out: Option<bool>,
    /// Requests that its device took very long for.
    #[serde(default)]
    pub slow_ios: u64,
    /// Bytes that were wrong on it, and have been written anew since the last scan began.
    #[serde(default)]
    pub healed_bytes: u64,
    /// Reads and writes, and the bytes of each.
    #[serde(default)]
    pub operations: [u64; 2],
    #[serde(default)]
    #[allow(missing_docs)] // see above
    pub bytes: [u64; 2],
    /// Binary logarithm of the sector size of a top-level vdev; 0 of others.
    #[serde(default)]
    pub ashift: u64,
    /// Properties that are stored in the pool.
    #[serde(default)]
    pub stored: Vec<(String, PropertyValue)>,
    /// Space of a top-level vdev, or of the root.
    pub space: Option<TopSpace>,
    /// Bytes of a leaf's device.
    pub device_bytes: u64,
    /// Least bytes that a leaf in its place must have.
    pub min_bytes: u64,
    /// State of writing to all of a leaf once: state, time, bytes done.
    pub initialize: Option<(Activity, u64, u64)>,
    /// State of telling a leaf what is free: state, time, bytes done.
    pub trim: Option<(Activity, u64, u64)>,
    /// The last sequential resilver of a top-level vdev.
    pub rebuild: Option<Rebuild>,
    /// Vdevs below, in order.
    pub children: Vec<VdevReport>,
}

/// State of something that goes through a whole device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub enum Activity {
    Active,
    Canceled,
    Suspended,
    Complete,
}

/// A scrub or resilver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub struct ScanReport {
    pub is_resilver: bool,
    pub progress: Progress,
    pub is_paused: bool,
    pub start_s: u64,
    pub end_s: u64,
    pub to_examine_bytes: u64,
    pub examined_bytes: u64,
    pub skipped_bytes: u64,
    pub processed_bytes: u64,
    pub errors: u64,
    /// Bytes of blocks that were verified; those examined are found, no more.
    pub issued_bytes: u64,
    /// When it was begun, or the pool was imported.
    pub pass_start_s: u64,
    /// What was found, and verified, since then.
    pub pass_examined_bytes: u64,
    pub pass_issued_bytes: u64,
    /// When it was paused; 0 if it is not.
    pub paused_s: u64,
    /// Seconds that it was paused before.
    pub spent_paused_s: u64,
}

/// The expansion of a raidz.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub struct ExpansionReport {
    pub progress: Progress,
    pub vdev: VdevNumber,
    pub start_s: u64,
    pub end_s: u64,
    pub to_copy_bytes: u64,
    pub copied_bytes: u64,
}

/// The dedup tables in sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DedupReport {
    /// Number of entries.
    pub entries: u64,
    /// Bytes on the devices.
    pub disk_bytes: u64,
    /// Bytes in RAM.
    pub core_bytes: u64,
    /// Sums by the binary logarithm of the references: blocks, lsize, psize, dsize, and the same of
    /// all references.
    pub histogram: Vec<[u64; 8]>,
    /// Sum of all buckets.
    pub total: [u64; 8],
}

impl PoolReport {
    /// Whether a resilver is under way, of either kind.
    pub fn is_resilvering(&self) -> bool {
        let is_rebuilt = |top: &VdevReport| top.rebuild.as_ref().is_some_and(|it| it.progress == Progress::Running);
        self.scan.as_ref().is_some_and(|scan| scan.is_resilver && scan.progress == Progress::Running)
            || self.root.children.iter().any(is_rebuilt)
    }

    /// The top-level vdev of that number.
    pub fn top(&self, number: VdevNumber) -> Option<&VdevReport> {
        self.root.children.iter().find(|top| top.id == number.get())
    }

    /// The word for the whole pool.
    pub fn word(&self) -> &'static str {
        if self.suspended.is_some() { "SUSPENDED" } else { self.root.word() }
    }
}

impl VdevReport {
    /// The vdev and all below it, each before those below it.
    pub fn all(&self) -> Vec<&VdevReport> {
        let mut all = vec![self];
        self.children.iter().for_each(|child| all.extend(child.all()));
        all
    }

    /// The word in the STATE column.
    pub fn word(&self) -> &'static str {
        self.state.word(self.aux)
    }

    /// Whether it stands for the place of a removed log device.
    pub fn is_hole(&self) -> bool {
        self.kind == "hole"
    }

    /// Whether it is a device that was removed.
    pub fn is_indirect(&self) -> bool {
        self.kind == "indirect"
    }

    /// Whether it is listed among the data devices, and not under a heading of its own.
    pub fn is_normal(&self) -> bool {
        !self.is_log && self.bias.is_none() && !self.is_hole()
    }
}
