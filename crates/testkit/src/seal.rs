//! Pools that lie under a good seal: a field is changed, and every checksum above it is made right again.
//!
//! ```text
//!   devices ─▶ Atlas: every block, found from the uberblock, and what points to it
//!                │
//!              Forge: other contents for some of them
//!                │ seal: children first │ compress │ sum │ pointer in each parent │
//!                └─▶ devices: blocks in their places, the uberblock and labels in all copies
//! ```
//!
//! A block stays where it is, with whatever redundancy it has there. If its new contents do not shrink as
//! the old ones did, it grows within what is allocated for it, or is compressed harder: so the space maps
//! stay true, and the pool is wrong in nothing but what was changed.
//!
//! What another byte order, encryption or a gang block keeps from being sealed again is not in the atlas.

mod forge;
mod physical;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::HashMap;
use std::sync::Arc;

use base::{Endian, Env, Error, Kind, Result};
use device::Device;
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::nvlist::NvList;
use format::object_type::ObjectType;
use format::uberblock::Uberblock;
use pool::FoundDevice;
use vdev::VdevSpec;

pub use forge::Forge;

/// The number of the MOS among object sets; a dataset's is that of its object there.
pub const MOS: u64 = 0;
/// The number of the object whose data are a set's dnodes.
pub const META: u64 = 0;

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The head of an object set.
    Objset,
    /// A block of dnodes.
    Dnodes,
    /// Pointers to blocks one level below.
    Indirect,
    /// An object's data.
    Data,
    /// What did not fit into an object's bonus buffer.
    Spill,
    /// A block of an intent log.
    Log,
}

/// A block of a pool, as it was found.
#[derive(Clone, Debug)]
pub struct FoundBlock {
    /// What it is for.
    pub role: Role,
    /// The object set that it was first found in.
    pub objset: u64,
    /// The object there.
    pub object: u64,
    /// Its level; 0 is data.
    pub level: u8,
    /// Its number on that level.
    pub blkid: u64,
    /// What leads to it.
    pub bp: BlkPtr,
    /// Its contents; of a log block, its bytes on disk.
    pub contents: Arc<[u8]>,
    parents: Vec<Parent>,
}

impl FoundBlock {
    /// Type of the object that it belongs to.
    pub fn object_type(&self) -> ObjectType {
        self.bp.object_type()
    }
}

/// What points to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    Uberblock,
    /// A block, and the pointer's offset in its contents.
    Block(usize, usize),
}

/// A place in a block of an [`Atlas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtlasPlace {
    /// Number of the block.
    pub block: usize,
    /// Offset in its contents, bytes.
    pub at: usize,
}

/// All blocks of a pool, and what its labels say.
pub struct Atlas {
    /// Name of the pool.
    pub name: String,
    uberblock: Uberblock,
    blocks: Vec<FoundBlock>,
    by_name: HashMap<(u64, u64, u8, u64), usize>,
    spills: HashMap<(u64, u64), usize>,
    dnodes: HashMap<(u64, u64), AtlasPlace>,
    /// The heads of datasets, by object.
    heads: HashMap<u64, usize>,
    spec: VdevSpec,
    /// Of each device: guid of the leaf and its label's configuration, if it has any.
    labels: Vec<Option<(u64, NvList)>>,
}

impl Atlas {
    /// Finds all blocks of the one pool on these devices.
    ///
    /// Errors: as of [`pool::Pool::open`]; `Unsupported` if it was written in the other byte order.
    pub fn of(devices: &[Arc<dyn Device>]) -> Result<Atlas> {
        let pool = crate::survey::open(devices, &Env::fixed(0))?;
        let uberblock = pool.uberblock().clone();
        if uberblock.endian != Endian::Little {
            return Err(Error::new(Kind::Unsupported, "a pool of the other byte order cannot be sealed"));
        }
        let no_tree = || Error::corrupt("the pool's configuration has no vdevs");
        let spec = VdevSpec::parse_root(pool.config().opt_list("vdev_tree").ok_or_else(no_tree)?)?;
        let labels = devices.iter().map(|device| {
            let found = FoundDevice::examine(device.path(), device.clone()).ok()?.into_iter().next()?;
            Some((found.guid()?, found.config))
        });
        let mut atlas = Atlas {
            name: pool.name().to_owned(),
            uberblock,
            blocks: Vec::new(),
            by_name: HashMap::new(),
            spills: HashMap::new(),
            dnodes: HashMap::new(),
            heads: HashMap::new(),
            spec,
            labels: labels.collect(),
        };
        atlas.walk(pool.cache().zio());
        Ok(atlas)
    }

    /// The root that it was found from.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// All blocks; others speak of them by their numbers here.
    pub fn blocks(&self) -> &[FoundBlock] {
        &self.blocks
    }

    /// The head of an object set.
    pub fn head(&self, objset: u64) -> Option<usize> {
        if objset == MOS { Some(0) } else { self.heads.get(&objset).copied() }
    }

    /// A block of an object.
    pub fn block(&self, objset: u64, object: u64, level: u8, blkid: u64) -> Option<usize> {
        self.by_name.get(&(objset, object, level, blkid)).copied()
    }

    /// The data blocks of an object, in order.
    pub fn data(&self, objset: u64, object: u64) -> Vec<usize> {
        let is_its = |(name, _): &(&(u64, u64, u8, u64), &usize)| (name.0, name.1, name.2) == (objset, object, 0);
        let mut found: Vec<(u64, usize)> = self.by_name.iter().filter(is_its).map(|(name, &id)| (name.3, id)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// An object's spill block.
    pub fn spill(&self, objset: u64, object: u64) -> Option<usize> {
        self.spills.get(&(objset, object)).copied()
    }

    /// Where an object's dnode begins.
    pub fn dnode_place(&self, objset: u64, object: u64) -> Option<AtlasPlace> {
        self.dnodes.get(&(objset, object)).copied()
    }

    /// An object's dnode.
    pub fn dnode(&self, objset: u64, object: u64) -> Option<Dnode> {
        let place = self.dnode_place(objset, object)?;
        Dnode::parse(&self.blocks[place.block].contents[place.at..]).ok()?
    }

    /// Where an object's bonus buffer begins.
    pub fn bonus_place(&self, objset: u64, object: u64) -> Option<AtlasPlace> {
        let pointers = self.dnode(objset, object)?.blkptrs.len();
        self.dnode_place(objset, object)
            .map(|place| AtlasPlace { at: place.at + 64 + pointers * BlkPtr::SIZE, ..place })
    }

    /// All objects that were found, with their object sets, in order.
    pub fn objects(&self) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> = self.dnodes.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The label's configuration on each device that has one.
    pub fn labels(&self) -> impl Iterator<Item = (usize, &NvList)> {
        self.labels.iter().enumerate().filter_map(|(number, label)| Some((number, &label.as_ref()?.1)))
    }
}
