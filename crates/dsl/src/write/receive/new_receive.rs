//! What is asked of a receive.

use base::{Error, Kind, Result};
use format::ids::{Guid, ObjectId};
use format::nvlist::NvList;
use format::objset::ObjsetType;
use format::stream::{StreamBegin, StreamFeatures};

/// What is to be received, and into what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReceive {
    /// The file system or volume.
    pub target: String,
    /// Name of the snapshot behind `@`.
    pub snapshot: String,
    /// How the stream begins.
    pub begin: StreamBegin,
    /// Guid of the snapshot that is sent.
    pub to_guid: Guid,
    /// Give up what has changed since the snapshot that it begins from.
    pub force: bool,
    /// Keep what came, if the rest does not come.
    pub resumable: bool,
    /// The snapshot that it is a clone of.
    pub origin: Option<String>,
    /// The object and offset where the stream says it goes on.
    pub resume: Option<(ObjectId, u64)>,
    /// What the stream says of redaction.
    pub redaction: StreamRedaction,
}

impl NewReceive {
    /// What the stream is of.
    pub fn kind(&self) -> ObjsetType {
        ObjsetType::of_number(self.begin.objset_type.into())
    }

    /// Whether a dataset begins with the stream: it is whole, or of a clone, and no rest.
    pub fn makes_dataset(&self) -> bool {
        let is_clone = self.origin.is_some() || self.begin.flags & StreamBegin::FLAG_CLONE != 0;
        let is_rest = self.begin.features.has(StreamFeatures::RESUMING);
        (self.begin.from_guid.is_none() || is_clone) && !is_rest
    }

    /// Guids of the snapshots that the stream is redacted for; `None` if all is in it.
    pub(super) fn redacted_for(&self) -> Option<&[Guid]> {
        self.redaction.snapshots.as_deref().filter(|_| self.begin.features.has(StreamFeatures::REDACTED))
    }
}

/// What a stream says of what was left out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRedaction {
    /// Guids of the snapshots that it was redacted for.
    pub snapshots: Option<Vec<Guid>>,
    /// It begins from something redacted: guids of the snapshots that this was redacted for.
    pub from_snapshots: Option<Vec<Guid>>,
}

impl StreamRedaction {
    /// What the list behind BEGIN says.
    pub fn of(list: &NvList) -> StreamRedaction {
        StreamRedaction {
            snapshots: list.opt_guids("redact_snaps"),
            from_snapshots: list.opt_guids("redact_from_snaps"),
        }
    }
}

/// It is refused.
pub(super) fn refused<T>(kind: Kind, what: impl Into<String>) -> Result<T> {
    Err(Error::new(kind, what.into()))
}
