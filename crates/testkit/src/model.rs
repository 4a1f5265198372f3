//! What a pool should hold: a model that is changed beside the pool, and compared.
//!
//! A dataset is one of plain objects, or a file system (see [`crate::files`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Result;
use dmu::{Mode, Objset};
use format::dnode::Dnode;
use format::dsl::DatasetPhys;
use format::ids::ObjectId;
use format::object_type::ObjectType;
use pool::Pool;
use zpl::Zpl;

use crate::files::Files;

/// Bytes of the longest object.
pub const SIZE_MAX: usize = 128 << 10;

/// The contents of all datasets and snapshots, by name. A copy shares objects until they are changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// What is in each dataset.
    pub sets: BTreeMap<String, DatasetContents>,
}

/// What is in a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatasetContents {
    /// Objects, by number.
    Objects(Objects),
    /// Files.
    Files(Files),
}

/// Objects of a dataset, by number.
pub type Objects = BTreeMap<ObjectId, Arc<ObjectModel>>;

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectModel {
    /// Bytes of a block.
    pub block_size: u64,
    /// Slots of the dnode.
    pub slots: usize,
    /// log2 of the bytes of an indirect block.
    pub indirect_shift: u8,
    /// What is in the bonus buffer.
    pub bonus: Vec<u8>,
    /// What is in the spill block, with the zeros behind it.
    pub spill: Option<Vec<u8>>,
    /// Its bytes; behind them are zeros.
    pub data: Vec<u8>,
}

impl ObjectModel {
    /// An object without contents.
    pub fn new(block_size: u64, slots: usize, indirect_shift: u8) -> ObjectModel {
        ObjectModel { block_size, slots, indirect_shift, bonus: Vec::new(), spill: None, data: Vec::new() }
    }

    /// A dnode for it.
    pub fn dnode(&self) -> Dnode {
        let mut dnode =
            Dnode::new(ObjectType::PLAIN_FILE_CONTENTS, self.block_size, self.indirect_shift, 1, self.slots);
        dnode.bonus_type = ObjectType::U8_DATA;
        dnode.bonus.clone_from(&self.bonus);
        dnode
    }

    /// Puts bytes in.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.data.resize(self.data.len().max(end), 0);
        self.data[offset..end].copy_from_slice(bytes);
    }

    /// Makes bytes zero.
    pub fn free_range(&mut self, offset: usize, len: usize) {
        let end = (offset + len).min(self.data.len());
        if offset < end {
            self.data[offset..end].fill(0);
        }
    }
}

impl Model {
    /// The first way in which a pool is not what the model says; `None` if it is.
    pub fn difference(&self, pool: &Pool) -> Option<String> {
        self.compare(pool).unwrap_or_else(|error| Some(format!("cannot be read: {error:#?}")))
    }

    fn compare(&self, pool: &Pool) -> Result<Option<String>> {
        let mut names = Vec::new();
        for dir in pool.dsl().walk()?.into_iter().filter(|dir| !dir.name.contains('$')) {
            let head = pool.dsl().head(&dir)?;
            // what takes a stream is nothing that the pool holds yet
            if head.phys.flags & DatasetPhys::FLAG_INCONSISTENT != 0 {
                continue;
            }
            let snapshots = pool.dsl().snapshots(&head)?;
            names.push(dir.name);
            names.extend(snapshots.into_iter().map(|snapshot| snapshot.name));
        }
        for name in &names {
            let Some(contents) = self.sets.get(name) else { return Ok(Some(format!("dataset {name} is there"))) };
            if let Some(what) = compare_set(pool, name, contents)? {
                return Ok(Some(format!("{name}: {what}")));
            }
        }
        Ok(self.sets.keys().find(|name| !names.contains(name)).map(|name| format!("dataset {name} is missing")))
    }
}

fn compare_set(pool: &Pool, name: &str, contents: &DatasetContents) -> Result<Option<String>> {
    let dataset = pool.dsl().find(name)?;
    let set = pool.dsl().objset(&dataset, Mode::Plain)?;
    match contents {
        DatasetContents::Objects(objects) => compare_objects(&set, objects),
        DatasetContents::Files(files) => files.compare(&Zpl::open(set)?),
    }
}

fn compare_objects(set: &Arc<Objset>, objects: &Objects) -> Result<Option<String>> {
    let mut at = ObjectId::NONE;
    let mut expected = objects.iter();
    loop {
        let (found, wanted) = (set.next_object(at)?, expected.next());
        match (found, wanted) {
            (None, None) => return Ok(None),
            (Some(id), Some((&wanted, object))) if id == wanted => {
                if let Some(what) = compare_object(&set.object(id)?, object)? {
                    return Ok(Some(format!("object {id}: {what}")));
                }
                at = id;
            }
            (found, wanted) => {
                let wanted = wanted.map(|(id, _)| *id);
                return Ok(Some(format!("the object behind {at} is {found:?}, not {wanted:?}")));
            }
        }
    }
}

fn compare_object(found: &dmu::Object, model: &ObjectModel) -> Result<Option<String>> {
    let dnode = found.dnode();
    if (dnode.block_size, dnode.slots) != (model.block_size, model.slots) {
        let what = format!("blocks of {} bytes, {} slots", dnode.block_size, dnode.slots);
        return Ok(Some(format!("{what}, not {} and {}", model.block_size, model.slots)));
    }
    if found.bonus() != model.bonus {
        return Ok(Some("another bonus".into()));
    }
    let spill = found.spill()?;
    if spill.as_deref() != model.spill.as_deref() {
        let len = |bytes: Option<&[u8]>| bytes.map(<[u8]>::len);
        let (found, wanted) = (len(spill.as_deref()), len(model.spill.as_deref()));
        return Ok(Some(format!("another spill block: {found:?} bytes, not {wanted:?}")));
    }
    let len = model.data.len().max(((dnode.block_max + 1) * dnode.block_size) as usize);
    if len > SIZE_MAX * 2 {
        return Ok(Some(format!("{len} bytes long")));
    }
    let mut bytes = vec![0; len];
    found.read(0, &mut bytes)?;
    let wanted = model.data.iter().chain(std::iter::repeat(&0));
    let wrong = bytes.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    Ok(wrong.map(|at| format!("byte {at} is another, in block {}", at as u64 / model.block_size)))
}
