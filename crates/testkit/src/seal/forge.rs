//! Changes to the blocks of an atlas, and the seal over them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use base::{Error, Kind, Result};
use device::Device;
use format::blkptr::BlkPtr;
use format::ids::{DatasetId, Guid, ObjectId};
use format::nvlist::NvList;
use format::uberblock::Uberblock;
use format::zap::{LeafMut, Micro, MicroEntry, MicroMut, NewLeafEntry, ZapLeaf};
use vdev::label::{COUNT, write_config};
use vdev::{Reflow, Tree};

use super::blocks::{AtlasPlace, Parent};
use super::{Atlas, physical};

/// Other contents for some blocks of a pool; nothing is written before [`Forge::seal`].
pub struct Forge<'a> {
    atlas: &'a Atlas,
    changed: BTreeMap<usize, Vec<u8>>,
    uberblock: Uberblock,
    labels: BTreeMap<usize, Vec<u8>>,
}

impl<'a> Forge<'a> {
    /// One that has changed nothing.
    pub fn new(atlas: &'a Atlas) -> Forge<'a> {
        Forge { atlas, changed: BTreeMap::new(), uberblock: atlas.uberblock.clone(), labels: BTreeMap::new() }
    }

    /// The contents of a block as they are to be.
    pub fn contents(&self, block: usize) -> &[u8] {
        self.changed.get(&block).map_or(&self.atlas.blocks()[block].contents, |bytes| bytes)
    }

    /// The same, to be changed.
    pub fn contents_mut(&mut self, block: usize) -> &mut [u8] {
        self.changed.entry(block).or_insert_with(|| self.atlas.blocks()[block].contents.to_vec())
    }

    /// Puts bytes at a place.
    pub fn put(&mut self, place: AtlasPlace, bytes: &[u8]) {
        self.contents_mut(place.block)[place.at..place.at + bytes.len()].copy_from_slice(bytes);
    }

    /// Puts a word at a place.
    pub fn put_u64(&mut self, place: AtlasPlace, word: u64) {
        self.put(place, &word.to_le_bytes());
    }

    /// The uberblock as it is to be.
    pub fn uberblock_mut(&mut self) -> &mut Uberblock {
        &mut self.uberblock
    }

    /// Changes the configuration in the labels of the device of that number.
    pub fn change_label(&mut self, device: usize, change: impl FnOnce(&mut NvList)) {
        let Some((_, label)) = self.atlas.labels.get(device).and_then(Option::as_ref) else { return };
        let mut label = label.clone();
        change(&mut label);
        self.labels.insert(device, label.pack());
    }

    /// Puts bytes, an XDR list or not, where the configuration is in the labels of the device of that number.
    pub fn put_label(&mut self, device: usize, packed: Vec<u8>) {
        self.labels.insert(device, packed);
    }

    /// Calls an entry of a ZAP by another name, which leaves it where the hash of its old name led.
    ///
    /// Errors: `NotFound` if there is no such entry, `NoSpace` for a name that has no room.
    pub fn rename_entry(&mut self, objset: DatasetId, object: ObjectId, old: &[u8], new: &[u8]) -> Result<()> {
        for block in self.atlas.data(objset, object) {
            let contents = self.contents_mut(block);
            if let Ok(micro) = Micro::parse(contents) {
                let Some(slot) = micro.find(old) else { continue };
                let MicroEntry { value, cd, .. } = micro.entry(slot).ok_or_else(not_found)?;
                if !(1..=MicroMut::NAME_MAX).contains(&new.len()) {
                    return Err(no_room());
                }
                MicroMut::parse(contents)?.put(slot, &MicroEntry { name: new, value, cd });
                return Ok(());
            }
            let Ok(leaf) = ZapLeaf::parse(contents) else { continue };
            let entries = leaf.entries()?;
            let Some(entry) = entries.iter().find(|entry| leaf.is_named(entry, old).unwrap_or(false)) else { continue };
            let (entry, value) = (*entry, leaf.value(entry)?);
            let key = [new, &[0]].concat();
            let (position, width, key_len) = (entry.position, entry.value_width, key.len() as u16);
            let mut leaf = LeafMut::parse(contents)?;
            leaf.remove(&entry, false)?;
            let record = NewLeafEntry { position, key: &key, key_len, width, value: &value };
            return if leaf.insert(&record)? { Ok(()) } else { Err(no_room()) };
        }
        Err(not_found())
    }

    /// Gives an entry of a ZAP another value: a number in a micro ZAP, any bytes in a fat one, where numbers are
    /// big-endian and strings end with NUL.
    ///
    /// Errors: `NotFound` if there is no such entry, `NoSpace` if the value has no room in its leaf.
    pub fn set_entry(
        &mut self,
        objset: DatasetId,
        object: ObjectId,
        name: &[u8],
        width: u8,
        value: &[u8],
    ) -> Result<()> {
        for block in self.atlas.data(objset, object) {
            let contents = self.contents_mut(block);
            if let Ok(micro) = Micro::parse(contents) {
                let Some(slot) = micro.find(name) else { continue };
                let number = value.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
                MicroMut::parse(contents)?.set_value(slot, number);
                return Ok(());
            }
            let Ok(leaf) = ZapLeaf::parse(contents) else { continue };
            let entries = leaf.entries()?;
            let Some(hash) = entries.iter().find(|entry| leaf.is_named(entry, name).unwrap_or(false)) else { continue };
            let entry = leaf.find(hash.position.hash, |entry| leaf.is_named(entry, name))?.ok_or_else(not_found)?;
            return match LeafMut::parse(contents)?.set_value(&entry, width, value)? {
                true => Ok(()),
                false => Err(no_room()),
            };
        }
        Err(not_found())
    }

    /// Writes what was changed to `devices`, which hold what those of the atlas did, in the same order, and makes
    /// every sum above right.
    ///
    /// A pointer that was changed itself stays as it was made. Errors: `NoSpace` if a block has no room for its
    /// new contents, as of the devices; some blocks may have been written then.
    pub fn seal(mut self, devices: &[Arc<dyn Device>]) -> Result<()> {
        let guids = self.atlas.labels.iter().zip(devices);
        let by_guid: HashMap<Guid, Arc<dyn Device>> =
            guids.filter_map(|(label, device)| Some((label.as_ref()?.0, device.clone()))).collect();
        let tree = Tree::open(self.atlas.spec.clone(), &by_guid)?;
        tree.set_reflow(Reflow::of_field(self.atlas.uberblock.raidz_reflow));
        // all that is above a changed block, and how much of what is below each waits to be sealed
        let mut waiting: HashMap<usize, usize> = HashMap::new();
        let mut pending: Vec<usize> = self.changed.keys().copied().collect();
        let mut affected: BTreeSet<usize> = pending.iter().copied().collect();
        while let Some(block) = pending.pop() {
            for above in self.above(block) {
                *waiting.entry(above).or_default() += 1;
                if affected.insert(above) {
                    pending.push(above);
                }
            }
        }
        let mut ready: Vec<usize> = affected.iter().copied().filter(|block| !waiting.contains_key(block)).collect();
        while let Some(number) = ready.pop() {
            let block = &self.atlas.blocks()[number];
            let sealed = physical::write(&tree, block, self.contents(number))?;
            for parent in &block.parents {
                self.lead_to(*parent, &sealed);
            }
            for above in self.above(number) {
                let left = waiting.get_mut(&above).expect("it was counted");
                *left -= 1;
                if *left == 0 {
                    ready.push(above);
                }
            }
        }
        for (number, packed) in &self.labels {
            write_config(&*devices[*number], &Vec::from_iter(0..COUNT), packed)?;
        }
        tree.write_uberblock(&self.uberblock)
    }

    /// The blocks whose pointers to `block` carry its sum; those to log blocks carry none.
    fn above(&self, block: usize) -> Vec<usize> {
        let block = &self.atlas.blocks()[block];
        let above = |parent: &Parent| match parent {
            Parent::Block(number, _) if block.role != super::Role::Log => Some(*number),
            _ => None,
        };
        block.parents.iter().filter_map(above).collect()
    }

    fn lead_to(&mut self, parent: Parent, sealed: &BlkPtr) {
        match parent {
            Parent::Uberblock if self.uberblock.rootbp == self.atlas.uberblock.rootbp => {
                self.uberblock.rootbp = physical::patched(&self.uberblock.rootbp, sealed);
            }
            Parent::Uberblock => {}
            Parent::Block(number, at) => {
                let range = at..at + BlkPtr::SIZE;
                let old = self.atlas.blocks()[number].contents[range.clone()].to_vec();
                let bytes = &mut self.contents_mut(number)[range];
                if bytes == old {
                    let old = BlkPtr::parse(&old).expect("128 bytes");
                    bytes.copy_from_slice(physical::patched(&old, sealed).raw());
                }
            }
        }
    }
}

fn no_room() -> Error {
    Error::new(Kind::NoSpace, "there is no room for it in the ZAP's block")
}

fn not_found() -> Error {
    Error::new(Kind::NotFound, "no such entry")
}
