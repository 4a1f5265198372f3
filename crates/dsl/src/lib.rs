//! The dataset and snapshot layer: the tree of file systems and volumes in a pool, their snapshots,
//! clones, bookmarks and properties.
//!
//! ```text
//!   directory "tank" ── head dataset ──▶ previous snapshot ──▶ previous snapshot ...
//!        │                  └─ ZAP: snapshot name ──▶ dataset object
//!        └─ ZAP: child name ──▶ directory "tank/home" ── ...
//! ```
//!
//! [`mod@write`] changes all of that, in the MOS of the group that is being synced.
//!
//! Everything here lives in the MOS. Below is `dmu`; above are the pool, the file system and the
//! commands. Trees on disk may be damaged: depth and count of what is walked are bounded, and a
//! directory is entered once.

pub mod accounting;
mod contents;
mod dataset;
mod datasets;
mod dir;
mod key;
mod lineage;
mod name;
pub mod property;
mod props;
pub mod receive;
pub mod redact;
pub mod redaction;
pub mod resume;
pub mod scan;
pub mod send;
mod space;
mod subject;
pub mod traverse;
pub mod write;

pub use dataset::{Dataset, DatasetBookmark};
pub use dir::{DEPTH_MAX, Dir, Dsl};
pub use key::{EncryptionRoot, KeyFormat, KeyInfo, SetOfKeys};
pub use name::{NameKinds, check_moved_name, check_name, check_new_name};
pub use property::Property;
pub use props::{INHERIT_SUFFIX, Level, PropertySource, PropertyValue, RECEIVED_SUFFIX, Sourced};
pub use subject::Subject;
