//! Sending: a snapshot, or what changed between two, as a stream of records ([`format::stream`]).
//!
//! ```text
//!   changed blocks of dnodes ─▶ objects ─▶ their changed blocks ─▶ batches of reads ─▶ StreamWriter: sums, bytes out
//!                                  └▶ free numbers    └▶ holes ────────────────────────────┘  joins frees
//! ```
//!
//! What was born before the earlier snapshot is passed over with all below it, so an incremental stream costs what
//! changed. The same walk without reading data gives the exact size of a stream.

mod walk;
mod writer;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{Env, Error, Kind, Result, ResultExt, WorkKind};
use dmu::zap::Zap;
use dmu::{Mode, Objset};
use format::dsl::DatasetPhys;
use format::feature::{
    EMBEDDED_DATA, LARGE_BLOCKS, LARGE_DNODE, LARGE_MICROZAP, LONGNAME, LZ4_COMPRESS, REDACTED_DATASETS, ZSTD_COMPRESS,
};
use format::ids::{Guid, ObjectId, Txg};
use format::nvlist::{NvList, Value};
use format::objset::ObjsetType;
use format::stream::{RecordFields, StreamBegin, StreamFeatures, StreamRecord};

use crate::dir::DIRECTORY;
use crate::property::rules::ZPL_VERSION;
use crate::{Dataset, DatasetBookmark, Dsl, Property, contents};
use walk::{RedactionLists, SendRange, SendWalk};
pub use writer::StreamWriter;

/// What an incremental stream begins from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendFrom {
    /// Guid of the snapshot.
    pub guid: Guid,
    /// The group that it was taken in.
    pub txg: Txg,
    /// It is of another dataset, which this one is a clone of.
    pub is_clone: bool,
}

/// What a stream may have in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// Blocks of more than 128 KiB.
    pub large_blocks: bool,
    /// Data as it is embedded in pointers.
    pub embedded: bool,
    /// Data as it is compressed on disk.
    pub compressed: bool,
}

/// A stream of one snapshot.
pub struct SendRequest<'a> {
    /// The snapshot; also the head of an interrupted receive.
    pub snapshot: &'a Dataset,
    /// What it begins from; `None` if it is whole.
    pub from: Option<SendFrom>,
    /// What it may have in it.
    pub flags: SendFlags,
    /// The object and offset where it goes on.
    pub resume: Option<(ObjectId, u64)>,
    /// It is what an interrupted receive has left: the stream has no end then.
    pub saved: Option<SavedPart>,
    /// What is left out, and what was left out before.
    pub redaction: SendRedaction,
}

/// What is redacted of a stream, and of what it begins from.
#[derive(Clone, Debug, Default)]
pub struct SendRedaction {
    /// Blocks in the list of that bookmark are left out.
    pub by: Option<DatasetBookmark>,
    /// It begins from that redaction bookmark: what its list has is sent, changed or not.
    pub from: Option<DatasetBookmark>,
    /// It begins from a redacted snapshot: guids of those that this was made for.
    pub from_snapshots: Option<Vec<Guid>>,
}

/// How much of a stream has been received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPart {
    /// Name of the snapshot that it was to become.
    pub name: String,
    /// Its guid.
    pub guid: Guid,
    /// Object and offset that came last: what is behind them is not what was sent.
    pub until: (ObjectId, u64),
}

impl Dsl {
    /// Sends a snapshot to `out`. Errors: those of reading; `Io` from `out`; `Unsupported`, `Encrypted`.
    pub fn send(&self, request: &SendRequest<'_>, out: &mut dyn Write, sent: &AtomicU64) -> Result<()> {
        self.stream(request, StreamWriter::new(out, sent)).in_dataset(&request.snapshot.name)
    }

    /// Bytes of the stream that [`Dsl::send`] would send. Errors: as there.
    pub fn send_size(&self, request: &SendRequest<'_>) -> Result<u64> {
        let bytes = AtomicU64::new(0);
        self.stream(request, StreamWriter::counting(&bytes)).in_dataset(&request.snapshot.name)?;
        Ok(bytes.into_inner())
    }

    fn stream(&self, request: &SendRequest<'_>, mut out: StreamWriter<'_>) -> Result<()> {
        let snapshot = request.snapshot;
        let objset = self.objset(snapshot, Mode::Plain)?;
        let features = self.stream_features(request, &objset)?;
        let to_guid = request.saved.as_ref().map_or(snapshot.phys.guid, |saved| saved.guid);
        let (list, lists) = self.redaction_of(request)?;
        let mut flags = StreamBegin::FLAG_FREE_RECORDS | StreamBegin::FLAG_SPILL_BLOCK;
        if request.from.is_some_and(|from| from.is_clone) {
            flags |= StreamBegin::FLAG_CLONE;
        }
        if snapshot.phys.flags & DatasetPhys::FLAG_CASE_INSENSITIVE != 0 {
            flags |= StreamBegin::FLAG_CASE_INSENSITIVE;
        }
        let begin = StreamBegin {
            is_package: false,
            features,
            creation_time_s: snapshot.phys.creation_time_s,
            objset_type: objset.kind().number() as u32,
            flags,
            from_guid: request.from.map_or(Guid::NONE, |from| from.guid),
            name: request.saved.as_ref().map_or(&snapshot.name, |saved| &saved.name).clone(),
            list_len: list.len() as u32,
        };
        out.record(StreamRecord { fields: RecordFields::Begin(begin), to_guid, sum: [0; 4] }, &list)?;
        let since_txg = request.from.map_or(Txg::ZERO, |from| from.txg);
        let range = SendRange { since_txg, resume: request.resume, until: request.saved.as_ref().map(|one| one.until) };
        // it can wait for those that wait: what it reads of metadata holds up what is read ahead of it, else
        Env::doing(WorkKind::Ahead, || SendWalk::new(&objset, (features, to_guid), range, lists, &mut out).run())?;
        if request.saved.is_none() {
            out.finish(to_guid)?;
        }
        Ok(())
    }

    /// The packed list of BEGIN, and the lists of what is and was left out. Errors: `Invalid` for a list that is not
    /// complete.
    fn redaction_of(&self, request: &SendRequest<'_>) -> Result<(Vec<u8>, RedactionLists)> {
        let complete = |bookmark: &Option<DatasetBookmark>| {
            let Some(bookmark) = bookmark else { return Ok(None) };
            let list = self.redaction_list(bookmark)?;
            match list.head().is_complete() {
                true => Ok(Some(list)),
                false => Err(Error::new(Kind::Invalid, "incomplete redaction bookmark provided")),
            }
        };
        let (by, from) = (complete(&request.redaction.by)?, complete(&request.redaction.from)?);
        let redact_snaps = match &by {
            Some(list) => Some(list.head().snapshots.clone()),
            None => self.redacted_for(request.snapshot)?,
        };
        let from_snaps = from.as_ref().map(|list| list.head().snapshots.clone());
        let from_snaps = from_snaps.or_else(|| request.redaction.from_snapshots.clone());
        let mut list = NvList::new();
        for (name, guids) in [("redact_snaps", redact_snaps), ("redact_from_snaps", from_snaps)] {
            guids.into_iter().for_each(|guids| list.set(name, Value::of_guids(&guids)));
        }
        if let Some((object, offset)) = request.resume {
            list.set("resume_object", Value::U64(object.get()));
            list.set("resume_offset", Value::U64(offset));
        }
        let mut packed = if list.is_empty() { Vec::new() } else { list.pack() };
        // what follows a record has whole words
        packed.resize(packed.len().next_multiple_of(8), 0);
        Ok((packed, RedactionLists { by: by.map(|list| list.cursor()), from: from.map(|list| list.cursor()) }))
    }

    fn stream_features(&self, request: &SendRequest<'_>, objset: &Arc<Objset>) -> Result<StreamFeatures> {
        use StreamFeatures as Features;
        let SendRequest { snapshot, flags, .. } = request;
        let has = |guid: &str| Ok::<bool, Error>(self.dataset_field(snapshot, guid)?.is_some());
        let mut features = Features::default();
        let mut set = |is_used: bool, feature: Features| {
            if is_used {
                features = features.with(feature);
            }
        };
        if objset.kind() == ObjsetType::Zfs {
            let version = contents::of_file_system(objset, Property::Version)?;
            set(version.is_some_and(|version| version >= ZPL_VERSION), Features::SA_SPILL);
        }
        let with_large = flags.large_blocks && has(LARGE_BLOCKS)?;
        set(with_large, Features::LARGE_BLOCKS);
        let with_embedded = flags.embedded && self.is_feature_active(EMBEDDED_DATA)?;
        set(with_embedded, Features::EMBED_DATA);
        set(flags.compressed, Features::COMPRESSED);
        let is_packed = with_embedded || flags.compressed;
        set(is_packed && self.is_feature_active(LZ4_COMPRESS)?, Features::LZ4);
        set(flags.compressed && has(ZSTD_COMPRESS)?, Features::ZSTD);
        set(request.resume.is_some(), Features::RESUMING);
        // also what was received so: its receiver has to know that it is not whole
        set(request.redaction.by.is_some() || has(REDACTED_DATASETS)?, Features::REDACTED);
        set(has(LARGE_DNODE)?, Features::LARGE_DNODE);
        set(has(LONGNAME)?, Features::LONGNAME);
        if has(LARGE_MICROZAP)? {
            if !with_large {
                let what = "source snapshot contains large microzaps, need -L (--large-block) or -w (--raw) to generate \
                            stream";
                return Err(Error::new(Kind::Unsupported, what));
            }
            set(true, Features::LARGE_MICROZAP);
        }
        Ok(features)
    }

    /// Whether a feature of the pool is enabled, and in use.
    pub fn is_feature_active(&self, guid: &str) -> Result<bool> {
        let directory = Zap::open(self.mos().object(DIRECTORY)?)?;
        for table in ["features_for_write", "features_for_read"] {
            let Some(table) = directory.object_id(table)? else { continue };
            if Zap::open(self.mos().object(table)?)?.u64(guid)?.is_some_and(|count| count > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
