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

mod blocks;
mod forge;
mod physical;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::Arc;

use base::{Endian, Env, Error, Kind, Result};
use device::Device;
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::ids::{DatasetId, Guid, ObjectId};
use format::nvlist::NvList;
use format::uberblock::Uberblock;
use pool::FoundDevice;
use vdev::VdevSpec;

use walk::BlockMap;

pub use blocks::{AtlasPlace, FoundBlock, META, MOS, Role};
pub use forge::Forge;

/// All blocks of a pool, and what its labels say.
pub struct Atlas {
    /// Name of the pool.
    pub name: String,
    uberblock: Uberblock,
    map: BlockMap,
    spec: VdevSpec,
    /// Of each device: guid of the leaf and its label's configuration, if it has any.
    labels: Vec<Option<(Guid, NvList)>>,
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
        let root = uberblock.rootbp;
        Ok(Atlas {
            name: pool.name().to_owned(),
            uberblock,
            map: BlockMap::of(pool.cache().zio(), root),
            spec,
            labels: labels.collect(),
        })
    }

    /// The root that it was found from.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// All blocks; others speak of them by their numbers here.
    pub fn blocks(&self) -> &[FoundBlock] {
        &self.map.blocks
    }

    /// The head of an object set.
    pub fn head(&self, objset: DatasetId) -> Option<usize> {
        if objset == MOS { Some(0) } else { self.map.heads.get(&objset).copied() }
    }

    /// A block of an object.
    pub fn block(&self, objset: DatasetId, object: ObjectId, level: u8, blkid: u64) -> Option<usize> {
        self.map.by_name.get(&(objset, object, level, blkid)).copied()
    }

    /// The data blocks of an object, in order.
    pub fn data(&self, objset: DatasetId, object: ObjectId) -> Vec<usize> {
        let is_its =
            |(name, _): &(&(DatasetId, ObjectId, u8, u64), &usize)| (name.0, name.1, name.2) == (objset, object, 0);
        let mut found: Vec<(u64, usize)> =
            self.map.by_name.iter().filter(is_its).map(|(name, &id)| (name.3, id)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// An object's spill block.
    pub fn spill(&self, objset: DatasetId, object: ObjectId) -> Option<usize> {
        self.map.spills.get(&(objset, object)).copied()
    }

    /// Where an object's dnode begins.
    pub fn dnode_place(&self, objset: DatasetId, object: ObjectId) -> Option<AtlasPlace> {
        self.map.dnodes.get(&(objset, object)).copied()
    }

    /// An object's dnode.
    pub fn dnode(&self, objset: DatasetId, object: ObjectId) -> Option<Dnode> {
        let place = self.dnode_place(objset, object)?;
        Dnode::parse(&self.map.blocks[place.block].contents[place.at..]).ok()?
    }

    /// Where an object's bonus buffer begins.
    pub fn bonus_place(&self, objset: DatasetId, object: ObjectId) -> Option<AtlasPlace> {
        let pointers = self.dnode(objset, object)?.blkptrs.len();
        self.dnode_place(objset, object)
            .map(|place| AtlasPlace { at: place.at + 64 + pointers * BlkPtr::SIZE, ..place })
    }

    /// All objects that were found, with their object sets, in order.
    pub fn objects(&self) -> Vec<(DatasetId, ObjectId)> {
        let mut all: Vec<(DatasetId, ObjectId)> = self.map.dnodes.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The label's configuration on each device that has one.
    pub fn labels(&self) -> impl Iterator<Item = (usize, &NvList)> {
        self.labels.iter().enumerate().filter_map(|(number, label)| Some((number, &label.as_ref()?.1)))
    }
}
