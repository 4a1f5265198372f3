//! Reading what belongs to datasets, snapshots and bookmarks: contents, later additions, holds, clones.

use std::sync::Arc;

use base::{Error, Kind, Result, ResultExt};
use dmu::zap::Zap;
use dmu::{Cache, Mode, Objset};
use format::dsl::DatasetPhys;
use format::ids::{DatasetId, Guid, ObjectId, Txg};
use format::object_type::ObjectType;
use zio::SetKeys;

use crate::key::{KEY_FIELD, SetOfKeys};
use crate::{Dataset, DatasetBookmark, Dir, Dsl};

impl Dsl {
    /// The object set of a dataset. Errors: as from opening it; with [`Mode::Plain`], `Encrypted` for
    /// an encrypted one.
    pub fn objset(&self, dataset: &Dataset, mode: Mode) -> Result<Arc<Objset>> {
        let bp = dataset.phys.bp;
        if mode == Mode::Plain && bp.uses_crypt() {
            let what = "dataset is encrypted, and is read only by commands that take its key (-K)";
            return Err(Error::new(Kind::Encrypted, what).in_dataset(&dataset.name));
        }
        self.open_set(self.mos().cache().clone(), dataset, mode)
    }

    /// The object set of an encrypted dataset, to be read with its keys. Errors: as from opening it; `Checksum` if its head
    /// is not what was authenticated with them.
    pub fn sealed_objset(&self, dataset: &Dataset, keys: Arc<SetOfKeys>) -> Result<Arc<Objset>> {
        let cache = self.mos().cache().of_set(SetKeys::Open(keys));
        self.open_set(Arc::new(cache), dataset, Mode::Plain)
    }

    fn open_set(&self, cache: Arc<Cache>, dataset: &Dataset, mode: Mode) -> Result<Arc<Objset>> {
        let bp = dataset.phys.bp;
        if dataset.phys.flags & DatasetPhys::FLAG_INCONSISTENT != 0 && bp.is_hole() {
            let what = "dataset holds only the beginning of an interrupted receive";
            return Err(Error::new(Kind::Busy, what).in_dataset(&dataset.name));
        }
        Objset::open(cache, dataset.id, bp, mode, &dataset.name)
    }

    /// Object of the wrapped encryption key of a directory; `None` if it is not encrypted.
    pub fn key_object(&self, dir: &Dir) -> Result<Option<ObjectId>> {
        Ok(self.dir_field(dir, KEY_FIELD)?.map(ObjectId::new))
    }

    /// One of the later additions to a directory, which are kept in a ZAP beside its record.
    pub fn dir_field(&self, dir: &Dir, field: &str) -> Result<Option<u64>> {
        if !dir.is_zap {
            return Ok(None);
        }
        Zap::open(self.mos().object(dir.id.object())?)?.u64(field).in_dataset(&dir.name)
    }

    /// One of the later additions to a dataset.
    pub fn dataset_field(&self, dataset: &Dataset, field: &str) -> Result<Option<dmu::zap::ZapValue>> {
        let object = self.mos().object(dataset.id.object())?;
        if object.dnode().object_type != ObjectType::ZAP_METADATA {
            return Ok(None);
        }
        Zap::open(object)?.lookup(field.as_bytes()).in_dataset(&dataset.name)
    }

    /// Number of holds on a snapshot.
    pub fn userrefs(&self, dataset: &Dataset) -> Result<u64> {
        match dataset.phys.userrefs_zap {
            ObjectId::NONE => Ok(0),
            zap => Ok(Zap::open(self.mos().object(zap)?)?.entries()?.len() as u64),
        }
    }

    /// Tag of each hold on a snapshot, and when it was put there, seconds since 1970.
    pub fn holds(&self, snapshot: &Dataset) -> Result<Vec<(String, u64)>> {
        match snapshot.phys.userrefs_zap {
            ObjectId::NONE => Ok(Vec::new()),
            zap => {
                let entries = Zap::open(self.mos().object(zap)?)?.entries().in_dataset(&snapshot.name)?;
                Ok(entries.iter().map(|e| (e.name.to_string(), e.value.first_u64().unwrap_or(0))).collect())
            }
        }
    }

    /// Names of the clones of a snapshot: file systems and volumes, in the order of the table.
    pub fn clones(&self, snapshot: &Dataset) -> Result<Vec<String>> {
        let count = snapshot.phys.num_children.saturating_sub(1);
        let entries = match snapshot.phys.next_clones_zap {
            ObjectId::NONE => Vec::new(),
            zap => Zap::open(self.mos().object(zap)?)?.entries().in_dataset(&snapshot.name)?,
        };
        if entries.len() as u64 != count {
            // before version 11 of the pool there was no such table, and later ones may lack entries
            let clones = self.walk()?.into_iter().filter(|dir| dir.phys.origin == snapshot.id);
            return Ok(clones.map(|dir| dir.name).collect());
        }
        let mut names = Vec::new();
        for entry in entries {
            let id = entry.value.first_u64().ok_or_else(|| Error::corrupt("clone without object number"))?;
            let id = DatasetId::new(id);
            // the table leads to the oldest snapshot of the clone, if it has any
            let name = self.name_of(id)?;
            names.push(name.split('@').next().unwrap_or(&name).to_owned());
        }
        Ok(names)
    }

    /// The bookmark of that full name. Errors: `NotFound`; those of reading.
    pub fn bookmark(&self, name: &str) -> Result<DatasetBookmark> {
        let (fs, _) = crate::name::split_bookmark(name)?;
        let all = self.bookmarks(&self.head(&self.find_dir(fs)?)?)?;
        let found = all.into_iter().find(|bookmark| bookmark.name == name);
        found.ok_or_else(|| Error::new(Kind::NotFound, format!("bookmark '{name}' does not exist.")))
    }

    pub(crate) fn read_bookmarks(&self, head: &Dataset) -> Result<Vec<DatasetBookmark>> {
        let Some(zap) = self.dataset_field(head, "com.delphix:bookmarks")?.and_then(|value| value.first_object())
        else {
            return Ok(Vec::new());
        };
        let mut bookmarks = Vec::new();
        for entry in Zap::open(self.mos().object(zap)?)?.entries()? {
            let words = entry.value.u64s();
            let word = |i: usize| words.get(i).copied().unwrap_or(0);
            if words.len() < 3 {
                return Err(Error::corrupt(format!("bookmark of {} words", words.len())));
            }
            let tells_space = word(4) & DatasetBookmark::FLAG_SPACE != 0;
            bookmarks.push(DatasetBookmark {
                name: format!("{}#{}", head.name, entry.name),
                guid: Guid::new(word(0)),
                creation_txg: Txg::new(word(1)),
                creation_time_s: word(2),
                redaction_object: ObjectId::new(word(3)),
                referenced_bytes: tells_space.then(|| word(5)),
                uncompressed_bytes: tells_space.then(|| word(7)),
                freed_before_next_bytes: tells_space.then(|| word(8)),
                ivset_guid: Guid::new(word(11)),
            });
        }
        bookmarks.sort_by_key(|bookmark| bookmark.creation_txg);
        Ok(bookmarks)
    }
}
