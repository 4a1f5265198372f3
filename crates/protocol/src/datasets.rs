//! What `zfs` asks the process of a pool, and what it gets back.
//!
//! ```text
//!   zfs list/get ... ── Request::Datasets ──▶ answer(host, request) ──▶ Response::Datasets ── table, JSON
//!        (client)                                 (pool process)                (client)
//! ```
//!
//! Values travel as they are stored, numbers and names; only the client turns them into text. Every
//! request is about one pool; a command about several asks each of them.

use format::ids::Txg;
use serde::{Deserialize, Serialize};

pub use format::objset::Owner;

use crate::cut::{CutOrder, CutStage};
use crate::diff::DiffOrder;
use crate::lists;
use crate::streams::{ReceiveOrder, SendOrder, StreamNote};
pub use crate::wanted::WantedProperty;

/// A request about the datasets of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DatasetRequest {
    /// Datasets and their properties.
    Datasets(Select),
    /// Space used by users, groups or projects of a file system or snapshot.
    Space {
        /// Name of the file system or snapshot.
        dataset: String,
        /// By whom.
        owner: Owner,
    },
    /// Holds on snapshots.
    Holds {
        /// Names of snapshots; with `recursive`, also those of the same name in all file systems below.
        #[serde(deserialize_with = "lists::names")]
        snapshots: Vec<String>,
        /// Whether to look below, too.
        recursive: bool,
    },
    /// The file systems that are mounted.
    Mounts,
    /// Mounts file systems.
    Mount(MountRequest),
    /// Which file systems a request of [`DatasetRequest::Mount`] would mount.
    Mountable(MountRequest),
    /// Mounts a file system or snapshot where mount(8) says.
    MountAt(MountAt),
    /// Unmounts file systems.
    Unmount(UnmountRequest),
    /// Changes datasets.
    Change {
        /// What.
        change: ChangeRequest,
        /// A line for the history of the pool.
        history: Option<String>,
    },
    /// Sends a stream to the descriptor that comes with it.
    Send(SendOrder),
    /// Receives a stream from the descriptor that comes with it.
    Receive(ReceiveOrder),
    /// Writes what differs between two states of a file system to the descriptor that comes with it.
    Diff(DiffOrder),
    /// Takes snapshots, as steps say that come by the descriptor beside it: a socket.
    Cut(CutOrder),
    /// How many files of a file system have no name, and are not freed yet.
    Unlinked {
        /// Its name.
        dataset: String,
    },
    /// Destroys what an interrupted receive has left.
    AbortReceive {
        /// Of that file system or volume.
        dataset: String,
        /// A line for the history of the pool.
        history: String,
    },
}

impl DatasetRequest {
    /// Whether a stream goes through the pool's process for as long as it is answered.
    pub fn is_stream(&self) -> bool {
        match self {
            DatasetRequest::Send(order) => !order.dry_run,
            DatasetRequest::Receive(order) => !order.dry_run,
            DatasetRequest::Cut(_) => true,
            _ => false,
        }
    }
}

/// A change of datasets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub enum ChangeRequest {
    Create(CreateChange),
    Destroy(DestroyChange),
    /// With `no_mount`, file systems stay mounted where they are, or unmounted.
    Set {
        dataset: String,
        properties: Vec<(String, String)>,
        no_mount: bool,
    },
    Inherit {
        dataset: String,
        property: String,
        received: bool,
        recursive: bool,
    },
    Rename(RenameChange),
    Snapshots(SnapshotRequest),
}

/// A change of snapshots, and of what grows from them. Names are full ones; with `recursive` it is also about snapshots
/// of the same name of all datasets below.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotRequest {
    /// Takes snapshots, all or none.
    Take {
        /// Names.
        names: Vec<String>,
        /// See above.
        recursive: bool,
        /// Properties of users, for each of them.
        properties: Vec<(String, String)>,
    },
    /// Destroys snapshots.
    Destroy(DestroySnapshots),
    /// Destroys a bookmark.
    DestroyBookmark {
        /// Its name.
        name: String,
    },
    /// Holds snapshots, or with `release` takes holds away.
    Hold {
        /// The tag.
        tag: String,
        /// Names.
        snapshots: Vec<String>,
        /// See above.
        recursive: bool,
        /// Takes holds away.
        release: bool,
    },
    /// Makes a bookmark.
    Bookmark {
        /// Of that snapshot or bookmark.
        source: String,
        /// Its name.
        bookmark: String,
        /// See above.
        recursive: bool,
    },
    /// Makes a redaction bookmark.
    Redact {
        /// Of that snapshot.
        snapshot: String,
        /// The part of its name behind `#`.
        bookmark: String,
        /// Names of later snapshots: what none of them has any more is redacted.
        later: Vec<String>,
    },
    /// Gives a snapshot another name.
    Rename {
        /// Present name.
        from: String,
        /// New name.
        to: String,
        /// See above.
        recursive: bool,
    },
    /// Lets a file system or volume go back to a snapshot.
    Rollback {
        /// The snapshot.
        snapshot: String,
        /// Destroy later snapshots and bookmarks.
        later: bool,
        /// Destroy their clones, too.
        clones: bool,
        /// Unmount clones by force.
        force: bool,
    },
    /// Makes a file system or volume of a snapshot.
    Clone {
        /// The snapshot.
        snapshot: String,
        /// Name of the new one.
        target: String,
        /// Make also those above it.
        parents: bool,
        /// Whether to mount it.
        mount: bool,
        /// Properties.
        properties: Vec<(String, String)>,
    },
    /// Makes a clone the origin of what it was cloned from.
    Promote {
        /// The clone.
        dataset: String,
    },
}

/// Snapshots to be destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroySnapshots {
    /// Of that file system or volume.
    pub dataset: String,
    /// Names behind `@`, with commas between; two with `%` between are these and all snapshots taken in between.
    pub spec: String,
    /// Also those of all datasets below.
    pub recursive: bool,
    /// Also all clones of them, and what is below and grows from these.
    pub clones: bool,
    /// What is held or has clones goes with the last of these.
    pub defer: bool,
    /// Unmount clones by force.
    pub force: bool,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Say what is done.
    pub verbose: bool,
    /// Say it for programs.
    pub parsable: bool,
}

/// A file system or volume to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateChange {
    /// Full name.
    pub dataset: String,
    /// A volume, whose size is among its properties.
    pub volume: Option<NewVolumeSpace>,
    /// Also those above it, and no error if it is there.
    pub parents: bool,
    /// Properties.
    pub properties: Vec<(String, String)>,
    /// Whether to mount it.
    pub mount: bool,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Say what is done.
    pub verbose: bool,
    /// Say it for programs.
    pub parsable: bool,
}

/// What is reserved for a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub enum NewVolumeSpace {
    Reserved,
    Sparse,
}

/// A file system or volume to be destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyChange {
    /// Full name.
    pub dataset: String,
    /// Also all below it.
    pub recursive: bool,
    /// Also all clones of it and of those below.
    pub clones: bool,
    /// Unmount by force.
    pub force: bool,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Say what is done.
    pub verbose: bool,
    /// Say it for programs.
    pub parsable: bool,
}

/// A file system or volume to be renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameChange {
    /// Present full name.
    pub from: String,
    /// New full name, in the same pool.
    pub to: String,
    /// Make those above it, too.
    pub parents: bool,
    /// Unmount by force.
    pub force: bool,
    /// Leave it mounted where it is.
    pub no_unmount: bool,
}

/// What a pool process answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// To [`DatasetRequest::Datasets`].
    Datasets(FoundDatasets),
    /// To [`DatasetRequest::Space`].
    Space(Vec<OwnerUsage>),
    /// To [`DatasetRequest::Holds`], in the order of the names.
    Holds(Vec<SnapshotHolds>, Vec<Failure>),
    /// To [`DatasetRequest::Mounts`].
    Mounts(Vec<Mounted>),
    /// To [`DatasetRequest::Unlinked`]: 0 also if it is not mounted, as nothing frees them then; in its place, why it cannot
    /// be told.
    Unlinked(Result<u64, Failure>),
    /// To [`DatasetRequest::Mount`], [`DatasetRequest::MountAt`] and [`DatasetRequest::Unmount`]: worded for the user, what failed of it, and
    /// what was done, but not as was asked for.
    Done {
        /// What failed.
        failures: Vec<Failure>,
        /// What else there is to say.
        notes: Vec<String>,
    },
    /// To [`DatasetRequest::Cut`], and while it is at work.
    Cut(CutStage),
    /// While [`DatasetRequest::Send`] or [`DatasetRequest::Receive`] is at work.
    Note(StreamNote),
    /// To [`DatasetRequest::Mountable`].
    Mountable {
        /// Names.
        names: Vec<String>,
        /// What could not be mounted anyway.
        failures: Vec<Failure>,
    },
    /// To [`DatasetRequest::Change`].
    Changed {
        /// Text for standard output.
        out: String,
        /// What there is to say of it beside: warnings.
        notes: Vec<String>,
        /// What went wrong, worded for the user.
        failures: Vec<Failure>,
    },
}

/// Which datasets are wanted, and what of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Select {
    /// Names of datasets, snapshots and bookmarks; none stands for the pool's root file system.
    #[serde(deserialize_with = "lists::names")]
    pub roots: Vec<String>,
    /// The types that roots may have.
    pub root_types: Types,
    /// How many levels below the roots to go: 0 are only the roots, `None` is all the way.
    pub depth: Option<u32>,
    /// The types that are wanted.
    pub types: Types,
    /// Whether snapshots below the roots are wanted only if the pool's property `listsnapshots` is on.
    pub ask_listsnapshots: bool,
    /// The properties that are wanted, each once.
    #[serde(deserialize_with = "lists::properties")]
    pub properties: Vec<WantedProperty>,
    /// Whether all properties that users made up are wanted, too.
    pub user_properties: bool,
    /// Whether the values that were received are wanted, too.
    pub received: bool,
}

/// A set of dataset types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub struct Types {
    pub file_systems: bool,
    pub volumes: bool,
    pub snapshots: bool,
    pub bookmarks: bool,
}

/// The type of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub enum DatasetType {
    FileSystem,
    Volume,
    Snapshot,
    Bookmark,
}

/// The datasets of one pool that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDatasets {
    /// Each once, in no order.
    pub rows: Vec<DatasetRow>,
    /// The roots that could not be opened.
    pub failures: Vec<Failure>,
}

/// A dataset and its properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRow {
    /// Full name.
    pub name: String,
    /// Its type.
    pub kind: DatasetType,
    /// Txg in which it was made.
    pub createtxg: Txg,
    /// What was wanted, in the same order; what does not apply or has no value is `None`.
    pub cells: Vec<Option<Cell>>,
    /// Name and value of the properties that users made up, if these were wanted.
    pub user: Vec<(String, Cell)>,
}

/// The value of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The value.
    pub value: CellValue,
    /// Where it comes from.
    pub source: ValueSource,
    /// The value that was received, if that was wanted and there is one.
    pub received: Option<CellValue>,
}

/// A value before it becomes text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the documentation
pub enum CellValue {
    Number(u64),
    Text(String),
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ValueSource {
    /// Nobody can set it.
    None,
    /// Nobody set it.
    Default,
    /// Set on the dataset itself.
    Local,
    /// Came with a receive.
    Received,
    /// In force only until the file system is unmounted.
    Temporary,
    /// Set on the dataset of that name.
    Inherited(String),
}

/// What one user, group or project uses and may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerUsage {
    /// Domain of the number; empty for the system's own.
    pub domain: String,
    /// Number of the user, group or project.
    pub id: u64,
    /// Bytes in use.
    pub used_bytes: Option<u64>,
    /// Bytes allowed; 0 is no limit.
    pub quota_bytes: Option<u64>,
    /// Objects in use.
    pub objects_used: Option<u64>,
    /// Objects allowed; 0 is no limit.
    pub objects_quota: Option<u64>,
}

/// The holds on one snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHolds {
    /// Full name.
    pub snapshot: String,
    /// Tag and time, seconds since 1970, of each hold.
    pub holds: Vec<(String, u64)>,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Its name.
    pub dataset: String,
    /// Where.
    pub path: String,
    /// Options in force, such as `ro` and `noexec`.
    pub options: Vec<String>,
}

/// Which file systems to mount, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRequest {
    /// The one; `None` is all that are mounted by themselves.
    pub dataset: Option<String>,
    /// Mount also what is below that one in the tree and mounted by itself.
    pub recursive: bool,
    /// Options beyond those that its properties say.
    pub options: Vec<String>,
    /// Mount over a directory that has something in it, whatever the property `overlay` says.
    pub overlay: bool,
    /// Mount also what holds only part of its files (redacted).
    pub force: bool,
    /// Keys of encrypted ones are to be loaded.
    pub load_keys: bool,
}

/// What mount(8) asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountAt {
    /// A file system or snapshot.
    pub dataset: String,
    /// A folder: absolute, without links.
    pub point: String,
    /// The words behind `-o`.
    pub options: Vec<String>,
    /// Pass over words that are none.
    pub sloppy: bool,
    /// Only look whether it could be done.
    pub fake: bool,
}

/// Which file systems to unmount, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmountRequest {
    /// Which ones.
    pub what: UnmountWhat,
    /// Also if somebody is using it.
    pub force: bool,
}

/// See [`UnmountRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnmountWhat {
    /// All of the pool that were mounted by themselves.
    All,
    /// That file system, and those mounted below its mountpoint.
    Dataset(String),
}

/// Why a thing was not done: the whole line for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What it is about: the root as it was asked for, or the dataset.
    pub about: String,
    /// The line, such as `cannot open 'tank/x': dataset does not exist`.
    pub line: String,
}

impl Types {
    /// File systems, volumes and snapshots.
    pub const DATASETS: Types = Types { bookmarks: false, ..Types::ALL };
    /// Whatever there is.
    pub const ALL: Types = Types { file_systems: true, volumes: true, snapshots: true, bookmarks: true };
    /// Nothing.
    pub const NONE: Types = Types { file_systems: false, volumes: false, snapshots: false, bookmarks: false };
    /// Only file systems.
    pub const FILE_SYSTEMS: Types = Types { file_systems: true, ..Types::NONE };
    /// Only volumes.
    pub const VOLUMES: Types = Types { volumes: true, ..Types::NONE };
    /// Only snapshots.
    pub const SNAPSHOTS: Types = Types { snapshots: true, ..Types::NONE };
    /// Only bookmarks.
    pub const BOOKMARKS: Types = Types { bookmarks: true, ..Types::NONE };

    /// Whether the set is just that of snapshots, or just that of bookmarks.
    pub fn is_points_only(self) -> bool {
        self == Types::SNAPSHOTS || self == Types::BOOKMARKS
    }

    /// What is in either set.
    pub fn and(self, other: Types) -> Types {
        Types {
            file_systems: self.file_systems || other.file_systems,
            volumes: self.volumes || other.volumes,
            snapshots: self.snapshots || other.snapshots,
            bookmarks: self.bookmarks || other.bookmarks,
        }
    }

    /// Whether the set has that type.
    pub fn has(self, kind: DatasetType) -> bool {
        match kind {
            DatasetType::FileSystem => self.file_systems,
            DatasetType::Volume => self.volumes,
            DatasetType::Snapshot => self.snapshots,
            DatasetType::Bookmark => self.bookmarks,
        }
    }
}
