//! What a dataset, a snapshot and a bookmark are.

use format::dsl::DatasetPhys;
use format::ids::{DatasetId, Guid, ObjectId, Txg};

/// A head dataset or a snapshot.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Object number in the MOS, which is also the number of its object set.
    pub id: DatasetId,
    /// Full name, with `@snapshot` if it is one.
    pub name: String,
    /// Its record.
    pub phys: DatasetPhys,
}

/// What is left of a snapshot for incremental sends.
#[derive(Clone, Debug)]
pub struct DatasetBookmark {
    /// Full name, with `#bookmark`.
    pub name: String,
    /// Guid of the snapshot.
    pub guid: Guid,
    /// Txg of the snapshot.
    pub creation_txg: Txg,
    /// When the snapshot was made, seconds since 1970.
    pub creation_time_s: u64,
    /// Object of the redaction list; 0 if it is no redaction bookmark.
    pub redaction_object: ObjectId,
    /// Bytes that the snapshot referenced, if the bookmark tells.
    pub referenced_bytes: Option<u64>,
    /// The same before compression, if the bookmark tells.
    pub uncompressed_bytes: Option<u64>,
    /// Of the bytes that the snapshot referenced, those that were dead in the next one, if the bookmark tells.
    pub freed_before_next_bytes: Option<u64>,
    /// Guid of the snapshot's set of initialization vectors; 0 if it was not encrypted.
    pub ivset_guid: Guid,
}

impl DatasetBookmark {
    /// It tells about space.
    pub(crate) const FLAG_SPACE: u64 = 1;
}

impl Dataset {
    /// Whether it is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.phys.is_snapshot()
    }

    /// The part of the name before `@`.
    pub fn file_system(&self) -> &str {
        self.name.split('@').next().unwrap_or(&self.name)
    }
}
