//! A dataset with all that its properties are told from: [`Subject`].
//!
//! ```text
//!              ┌ Stored    levels of stored values, nearest first
//!   property ──┼ Dir, Dataset, Key   records in the MOS
//!              ├ Contents  the object set itself
//!              └ Available limits on the way down from the pool's size
//! ```
//!
//! A value that was computed wins over a stored one of the same name, whose source it takes over:
//! `quota` is in force as the directory's record says, and was set by whom the ZAP says.

use std::sync::Arc;

use base::{Error, Kind, Result, ResultExt};
use dmu::{Mode, Objset};
use format::dsl::{DatasetPhys, DirPhys};
use format::ids::{DatasetId, Guid, Txg};
use format::objset::ObjsetType;

use crate::property::{Applies, DatasetKind, Setting, ValueKind, ValueOrigin};
use crate::{Dataset, DatasetBookmark, Dir, Dsl, Level, Property, PropertySource, PropertyValue, Sourced, contents};

/// The property `keystatus` of encrypted datasets: no key is ever loaded.
const KEY_UNAVAILABLE: u64 = 1;

/// A file system, volume, snapshot or bookmark.
#[derive(Clone)]
pub struct Subject {
    kind: DatasetKind,
    head_kind: DatasetKind,
    dir: Arc<Dir>,
    of: Of,
    levels: Arc<Level>,
}

#[derive(Clone)]
enum Of {
    Dataset(Box<Dataset>),
    Bookmark(Box<DatasetBookmark>),
}

impl Subject {
    /// Full name.
    pub fn name(&self) -> &str {
        match &self.of {
            Of::Dataset(dataset) => &dataset.name,
            Of::Bookmark(bookmark) => &bookmark.name,
        }
    }

    /// What it is.
    pub fn kind(&self) -> DatasetKind {
        self.kind
    }

    /// What it is, or for a snapshot or bookmark what it is one of.
    pub fn head_kind(&self) -> DatasetKind {
        self.head_kind
    }

    /// Its directory.
    pub fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }

    /// Its dataset; a bookmark has none.
    pub fn dataset(&self) -> Option<&Dataset> {
        match &self.of {
            Of::Dataset(dataset) => Some(dataset),
            Of::Bookmark(_) => None,
        }
    }

    /// Its properties as they are stored.
    pub fn levels(&self) -> &Arc<Level> {
        &self.levels
    }

    /// Txg in which it was made; of a bookmark, in which its snapshot was.
    pub fn creation_txg(&self) -> Txg {
        match &self.of {
            Of::Dataset(dataset) => dataset.phys.creation_txg,
            Of::Bookmark(bookmark) => bookmark.creation_txg,
        }
    }

    /// Whether it holds only what an unfinished receive brought.
    pub fn is_inconsistent(&self) -> bool {
        self.dataset().is_some_and(|dataset| dataset.phys.flags & DatasetPhys::FLAG_INCONSISTENT != 0)
    }
}

impl Dsl {
    /// The file system, volume, snapshot or bookmark of that full name. Errors: `NotFound`.
    pub fn subject(&self, name: &str) -> Result<Subject> {
        let end = name.find(['@', '#']).unwrap_or(name.len());
        let dir = self.find_dir(&name[..end])?;
        let levels = self.levels(&dir)?;
        let head = self.subject_of_head(dir, levels)?;
        match name.as_bytes().get(end) {
            None => Ok(head),
            Some(b'@') => {
                let snapshot = self.find(name)?;
                self.subject_of_snapshot(&head, snapshot)
            }
            Some(_) => {
                let found = self.subjects_of_bookmarks(&head)?.into_iter().find(|bookmark| bookmark.name() == name);
                let absent = || Error::new(Kind::NotFound, "bookmark does not exist");
                found.ok_or_else(absent).in_dataset(name)
            }
        }
    }

    /// The root file system of the pool.
    pub fn root_subject(&self) -> Result<Subject> {
        let dir = self.root()?;
        let levels = self.levels(&dir)?;
        self.subject_of_head(dir, levels)
    }

    /// The file systems and volumes right below `head`, in the order of their names; in their place,
    /// the errors of those that cannot be read.
    pub fn subjects_below(&self, head: &Subject) -> Result<Vec<Result<Subject>>> {
        let children = self.children(&head.dir)?;
        let subject = |dir: Result<Dir>| {
            let dir = dir?;
            let levels = self.level_below(&head.levels, &dir)?;
            self.subject_of_head(dir, levels)
        };
        Ok(children.into_iter().map(subject).collect())
    }

    /// The snapshots of `head`, oldest first; none of what is no file system or volume.
    pub fn subjects_of_snapshots(&self, head: &Subject) -> Result<Vec<Result<Subject>>> {
        let Some(dataset) = head.dataset().filter(|dataset| !dataset.is_snapshot()) else { return Ok(Vec::new()) };
        let snapshots = self.snapshots(dataset)?;
        Ok(snapshots.into_iter().map(|snapshot| self.subject_of_snapshot(head, snapshot)).collect())
    }

    /// The bookmarks of `head`, oldest first; none of what is no file system or volume.
    pub fn subjects_of_bookmarks(&self, head: &Subject) -> Result<Vec<Subject>> {
        let Some(dataset) = head.dataset().filter(|dataset| !dataset.is_snapshot()) else { return Ok(Vec::new()) };
        let bookmarks = self.bookmarks(dataset)?;
        let subject =
            |bookmark| Subject { kind: DatasetKind::Bookmark, of: Of::Bookmark(Box::new(bookmark)), ..head.clone() };
        Ok(bookmarks.into_iter().map(subject).collect())
    }

    fn subject_of_head(&self, dir: Dir, levels: Arc<Level>) -> Result<Subject> {
        let dataset = self.head(&dir)?;
        let kind = match self.raw_objset(&dataset).map(|objset| objset.kind()) {
            Ok(ObjsetType::Zvol) => DatasetKind::Volume,
            Ok(_) => DatasetKind::FileSystem,
            // the contents are gone, but what the MOS knows can still be told
            Err(_) if levels.find(Property::Volsize).is_some() => DatasetKind::Volume,
            Err(_) => DatasetKind::FileSystem,
        };
        Ok(Subject { kind, head_kind: kind, dir: Arc::new(dir), of: Of::Dataset(Box::new(dataset)), levels })
    }

    fn subject_of_snapshot(&self, head: &Subject, snapshot: Dataset) -> Result<Subject> {
        let levels = self.level_of_snapshot(&head.levels, &snapshot)?;
        Ok(Subject {
            kind: DatasetKind::Snapshot,
            head_kind: head.head_kind,
            dir: head.dir.clone(),
            of: Of::Dataset(Box::new(snapshot)),
            levels,
        })
    }

    /// A native property of a dataset; `None` if it does not apply, or has no value.
    ///
    /// `usable_bytes` is the size of the pool without parity, and without what ZFS keeps for itself.
    /// Properties that only the system knows have no value here.
    pub fn property(&self, subject: &Subject, property: Property, usable_bytes: u64) -> Result<Option<Sourced>> {
        let info = property.info();
        if !applies(subject, property) {
            return Ok(None);
        }
        let computed = match (info.from, &subject.of) {
            (ValueOrigin::System, _) => return Ok(None),
            (ValueOrigin::Stored, Of::Dataset(_)) => None,
            (ValueOrigin::Dir, Of::Dataset(_)) => self.in_dir(subject, property)?,
            (ValueOrigin::Dataset, Of::Dataset(dataset)) => self.in_dataset_record(subject, dataset, property)?,
            (ValueOrigin::Key, Of::Dataset(_)) => self.in_key(subject, property)?,
            (ValueOrigin::Contents, _) => {
                let value = self.in_contents(subject, property).in_dataset(subject.name())?;
                if info.applies.has(DatasetKind::FileSystem) {
                    // what a file system says of itself has no source, and no default
                    return Ok(value.map(|value| Sourced { value, source: PropertySource::None }));
                }
                value
            }
            (ValueOrigin::Available, Of::Dataset(dataset)) => {
                Some(self.left_by_limits(subject, dataset, usable_bytes)?)
            }
            (_, Of::Bookmark(bookmark)) => self.in_bookmark(bookmark, property)?,
        };
        Ok(merge(property, computed, subject.levels.find(property)))
    }

    fn in_dir(&self, subject: &Subject, property: Property) -> Result<Option<PropertyValue>> {
        let (dir, phys) = (&*subject.dir, &subject.dir.phys);
        let breakdown = (phys.flags & DirPhys::FLAG_USED_BREAKDOWN != 0).then_some(phys.used_breakdown);
        Ok(match property {
            Property::Quota => number(phys.quota),
            Property::Reservation => number(phys.reserved),
            Property::Logicalused => number(phys.uncompressed_bytes),
            Property::Usedbydataset => breakdown.and_then(|used| number(used[0])),
            Property::Usedbysnapshots => breakdown.and_then(|used| number(used[1])),
            Property::Usedbychildren => breakdown.and_then(|used| number(used[2].saturating_add(used[3]))),
            Property::Usedbyrefreservation => breakdown.and_then(|used| number(used[4])),
            Property::FilesystemCount => self.dir_field(dir, "com.joyent:filesystem_count")?.and_then(number),
            Property::SnapshotCount => self.dir_field(dir, "com.joyent:snapshot_count")?.and_then(number),
            Property::SnapshotsChanged => self.snapshots_changed(dir)?.and_then(number),
            Property::Origin if self.is_clone(dir)? => Some(PropertyValue::Text(self.name_of(phys.origin)?)),
            _ => None,
        })
    }

    fn in_dataset_record(
        &self,
        subject: &Subject,
        dataset: &Dataset,
        property: Property,
    ) -> Result<Option<PropertyValue>> {
        let (dir, phys) = (&subject.dir.phys, &dataset.phys);
        let is_head = !dataset.is_snapshot();
        let flag = |flag: u64| number(u64::from(phys.flags & flag != 0));
        Ok(match property {
            Property::Name => Some(PropertyValue::Text(dataset.name.clone())),
            Property::Creation => number(phys.creation_time_s),
            Property::Createtxg => number(phys.creation_txg.get()),
            Property::Guid => number(phys.guid.get()),
            Property::Objsetid => number(dataset.id.get()),
            Property::Used if is_head => number(dir.used_bytes),
            Property::Used | Property::Unique => number(phys.unique_bytes),
            Property::Referenced => number(phys.referenced_bytes),
            Property::Logicalreferenced => number(phys.uncompressed_bytes),
            Property::CompressRatio if is_head => number(ratio(dir.uncompressed_bytes, dir.compressed_bytes)),
            Property::CompressRatio | Property::RefCompressRatio => {
                number(ratio(phys.uncompressed_bytes, phys.compressed_bytes))
            }
            Property::Written => self.written(dataset)?.and_then(number),
            Property::Numclones => number(phys.num_children.saturating_sub(1)),
            Property::Clones => match self.clones(dataset)? {
                names if names.is_empty() => None,
                names => Some(PropertyValue::Text(names.join(","))),
            },
            Property::Userrefs => number(self.userrefs(dataset)?),
            Property::DeferDestroy => flag(DatasetPhys::FLAG_DEFER_DESTROY),
            Property::Inconsistent => flag(DatasetPhys::FLAG_INCONSISTENT),
            Property::Prevsnap => self.previous_snapshot(subject, dataset)?.map(PropertyValue::Text),
            Property::ReceiveResumeToken => self.resume_token(&subject.dir, dataset)?.map(PropertyValue::Text),
            Property::Ivsetguid => self.number_field(dataset, "com.datto:ivset_guid")?,
            Property::RedactSnaps => self.redacted_for(dataset)?.map(|guids| PropertyValue::Text(list_of(&guids))),
            Property::Redacted => number(u64::from(self.redacted_for(dataset)?.is_some())),
            _ => None,
        })
    }

    fn in_bookmark(&self, bookmark: &DatasetBookmark, property: Property) -> Result<Option<PropertyValue>> {
        Ok(match property {
            Property::Name => Some(PropertyValue::Text(bookmark.name.clone())),
            Property::Creation => number(bookmark.creation_time_s),
            Property::Createtxg => number(bookmark.creation_txg.get()),
            Property::Guid => number(bookmark.guid.get()),
            Property::Ivsetguid => number(bookmark.ivset_guid.get()),
            Property::Referenced => bookmark.referenced_bytes.and_then(number),
            Property::Logicalreferenced => bookmark.uncompressed_bytes.and_then(number),
            Property::RedactSnaps if bookmark.redaction_object.is_some() => {
                Some(PropertyValue::Text(list_of(&self.redaction_list(bookmark)?.head().snapshots)))
            }
            _ => None,
        })
    }

    fn in_key(&self, subject: &Subject, property: Property) -> Result<Option<PropertyValue>> {
        let Some(key) = self.key_info(&subject.dir)? else { return Ok(None) };
        Ok(match property {
            Property::Encryption => key.suite.and_then(number),
            Property::Keyguid => key.guid.and_then(|guid| number(guid.get())),
            Property::Keyformat => key.format.and_then(number),
            Property::Pbkdf2salt => key.salt.and_then(number),
            Property::Pbkdf2iters => key.iterations.and_then(number),
            Property::Encryptionroot => key.root.map(PropertyValue::Text),
            Property::Keystatus => number(KEY_UNAVAILABLE),
            _ => None,
        })
    }

    fn in_contents(&self, subject: &Subject, property: Property) -> Result<Option<PropertyValue>> {
        if property == Property::Type {
            let name = match subject.kind {
                DatasetKind::FileSystem => "filesystem",
                DatasetKind::Volume => "volume",
                DatasetKind::Snapshot => "snapshot",
                DatasetKind::Bookmark => "bookmark",
            };
            return Ok(Some(PropertyValue::Text(name.to_owned())));
        }
        let Some(dataset) = subject.dataset().filter(|_| !subject.is_inconsistent()) else { return Ok(None) };
        let objset = self.raw_objset(dataset)?;
        Ok(match objset.kind() {
            _ if property == Property::Useraccounting => number(objset.phys().flags & 1),
            ObjsetType::Zfs => contents::of_file_system(&objset, property)?.and_then(number),
            ObjsetType::Zvol => contents::of_volume(&objset, property)?.and_then(number),
            _ => None,
        })
    }

    fn left_by_limits(&self, subject: &Subject, head: &Dataset, usable_bytes: u64) -> Result<PropertyValue> {
        let set = |property| match subject.levels.find(property).map(|sourced| sourced.value) {
            Some(PropertyValue::Number(number)) => number,
            _ => 0,
        };
        let (refquota, refreservation) = (set(Property::Refquota), set(Property::Refreservation));
        self.available(&subject.dir, head, refquota, refreservation, usable_bytes).map(PropertyValue::Number)
    }

    /// The object set of a dataset, as far as it can be read without a key.
    pub fn raw_objset(&self, dataset: &Dataset) -> Result<Arc<Objset>> {
        self.objset(dataset, Mode::Raw)
    }

    /// Whether the directory was cloned, and not made empty.
    fn is_clone(&self, dir: &Dir) -> Result<bool> {
        Ok(dir.phys.origin.is_some() && Some(dir.phys.origin) != self.empty_snapshot()?)
    }

    /// The snapshot that all datasets begin with that are not clones; pools before version 11 have none.
    fn empty_snapshot(&self) -> Result<Option<DatasetId>> {
        let origin = self.child_ids(&self.root()?)?.into_iter().find(|(name, _)| name == "$ORIGIN");
        let Some((name, id)) = origin else { return Ok(None) };
        Ok(Some(self.head(&self.dir(id, &name)?)?.phys.prev_snap))
    }

    /// Random numbers that the pool has had since it was made, and that no command tells others.
    pub fn hidden_numbers(&self) -> Result<[u64; 4]> {
        let of = |dataset: &Dataset| [dataset.phys.guid.get(), dataset.phys.fsid_guid];
        let root = self.head(&self.root()?)?;
        let origin = match self.empty_snapshot()? {
            Some(id) => self.dataset(id, "$ORIGIN@$ORIGIN")?,
            None => root.clone(),
        };
        let ([a, b], [c, d]) = (of(&origin), of(&root));
        Ok([a, b, c, d])
    }

    fn previous_snapshot(&self, subject: &Subject, head: &Dataset) -> Result<Option<String>> {
        let id = head.phys.prev_snap;
        if head.is_snapshot() || id.is_none() || Some(id) == self.empty_snapshot()? {
            return Ok(None);
        }
        let name = self.name_of(id)?;
        Ok(Some(name).filter(|name| name.split('@').next() == Some(&subject.dir.name)))
    }

    /// In seconds since 1970; nothing in pools of before 2.2.
    fn snapshots_changed(&self, dir: &Dir) -> Result<Option<u64>> {
        if !dir.is_zap {
            return Ok(None);
        }
        let zap = dmu::zap::Zap::open(self.mos().object(dir.id.object())?)?;
        let value = zap.lookup(b"com.ixsystems:snapshots_changed").in_dataset(&dir.name)?;
        Ok(value.and_then(|value| value.first_u64()))
    }

    fn number_field(&self, dataset: &Dataset, field: &str) -> Result<Option<PropertyValue>> {
        Ok(self.dataset_field(dataset, field)?.and_then(|value| value.first_u64()).and_then(number))
    }
}

/// Whether a property has a meaning for that dataset. Numbers and choices of a snapshot must also have
/// one for what it is a snapshot of.
fn applies(subject: &Subject, property: Property) -> bool {
    let info = property.info();
    let is_text = matches!(info.kind, ValueKind::Text(_));
    info.applies.has(subject.kind)
        && (subject.kind != DatasetKind::Snapshot
            || is_text
            || info.applies == Applies::SNAPSHOT
            || info.applies.has(subject.head_kind))
}

/// Puts together what was computed and what is stored.
fn merge(property: Property, computed: Option<PropertyValue>, stored: Option<Sourced>) -> Option<Sourced> {
    let info = property.info();
    let is_text = |value: &PropertyValue| matches!(value, PropertyValue::Text(_));
    let should_be_text = matches!(info.kind, ValueKind::Text(_));
    let stored = stored.filter(|sourced| is_text(&sourced.value) == should_be_text);
    let default = match info.kind {
        ValueKind::Text(default) => default.map(|text| PropertyValue::Text(text.to_owned())),
        ValueKind::Number(default, _) | ValueKind::Choice(default, _) => Some(PropertyValue::Number(default)),
    };
    let is_countable = matches!(property, Property::FilesystemCount | Property::SnapshotCount);
    let has_default = info.setting != Setting::ReadOnly;
    let (value, source) = match (computed, stored) {
        (Some(value), Some(stored)) => (value, stored.source),
        (Some(value), None) if has_default && Some(&value) == default.as_ref() => (value, PropertySource::Default),
        (Some(value), None) => (value, PropertySource::None),
        (None, Some(stored)) => (stored.value, stored.source),
        (None, None) if has_default || is_countable => (default?, PropertySource::Default),
        (None, None) => return None,
    };
    let source = match source {
        PropertySource::None if is_set_here(property) => PropertySource::Local,
        source => source,
    };
    Some(Sourced { value, source })
}

/// Properties that, if they have another value than the default, can only have been set on the dataset.
fn is_set_here(property: Property) -> bool {
    matches!(
        property,
        Property::Canmount
            | Property::Volsize
            | Property::Quota
            | Property::Refquota
            | Property::Reservation
            | Property::Refreservation
            | Property::FilesystemLimit
            | Property::SnapshotLimit
            | Property::FilesystemCount
            | Property::SnapshotCount
    )
}

fn number(number: u64) -> Option<PropertyValue> {
    Some(PropertyValue::Number(number))
}

/// Hundredths.
fn ratio(uncompressed: u64, compressed: u64) -> u64 {
    if compressed == 0 { 100 } else { (u128::from(uncompressed) * 100 / u128::from(compressed)) as u64 }
}

/// Guids with commas, or `none`.
fn list_of(guids: &[Guid]) -> String {
    match guids {
        [] => "none".to_owned(),
        guids => guids.iter().map(Guid::to_string).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PropertyValue::{Number, Text};

    fn check(
        property: Property,
        computed: Option<u64>,
        stored: Option<(u64, PropertySource)>,
        expect: Option<(u64, PropertySource)>,
    ) {
        let stored = stored.map(|(number, source)| Sourced { value: Number(number), source });
        let expect = expect.map(|(number, source)| Sourced { value: Number(number), source });
        assert_eq!(merge(property, computed.map(Number), stored), expect, "{}", property.name());
    }

    #[test]
    fn sources_of_values() {
        use PropertySource::{Default, Inherited, Local, None as Nobody, Received};
        check(Property::Used, Some(0), None, Some((0, Nobody)));
        check(Property::Used, None, None, None);
        check(Property::Quota, Some(0), None, Some((0, Default)));
        check(Property::Quota, Some(5), None, Some((5, Local)));
        check(Property::Quota, Some(5), Some((7, Received)), Some((5, Received)));
        check(Property::Atime, None, None, Some((1, Default)));
        check(Property::Atime, None, Some((0, Inherited("t".into()))), Some((0, Inherited("t".into()))));
        check(Property::Volblocksize, Some(16384), None, Some((16384, Default)));
        check(Property::Volblocksize, Some(512), None, Some((512, Nobody)));
        check(Property::FilesystemCount, None, None, Some((u64::MAX, Default)));
        check(Property::FilesystemCount, Some(3), None, Some((3, Local)));
        check(Property::Keystatus, None, None, None);
    }

    #[test]
    fn values_of_the_wrong_type_do_not_count() {
        let text = Sourced { value: Text("yes".into()), source: PropertySource::Local };
        let merged = merge(Property::Atime, None, Some(text)).unwrap();
        assert_eq!(merged, Sourced { value: Number(1), source: PropertySource::Default });
    }

    #[test]
    fn ratios() {
        assert_eq!((ratio(0, 0), ratio(150, 100), ratio(u64::MAX, 1)), (100, 150, (u128::from(u64::MAX) * 100) as u64));
    }
}
