//! Changing a large table.
//!
//! ```text
//!   put ─▶ leaf has room ──────────────────────────────▶ insert, count
//!            │ no
//!            ├─ prefix as long as the table's index ───▶ double the table
//!            └─▶ split the leaf: the new one takes the upper half of its pointers ─▶ again
//!
//!   remove ─▶ the leaf is empty, and so is its twin, which has the same prefix but for the last bit
//!            └─▶ one of them takes the pointers of both, the other's block is free ─▶ again
//! ```
//!
//! A step reads and checks all it needs before it changes a block. The table of pointers is doubled in one go;
//! if another writer had begun to do so bit by bit, that is brought to its end first.

use std::ops::Range;

use base::{Block, Error, Kind, Result};
use format::zap::{self, LeafMut, NewLeafEntry, TextPrep, ZapHeader, ZapLeaf, ZapPosition, hash_name, hash_u64s};

use crate::zap::leaves::{leaf_blkid, leaf_in};
use crate::zap::store::{PutMode, ZapStore};
use crate::zap::value::ZapValue;
use crate::zap::wanted::{WantedName, refuse_doubtful};

/// Most bytes of a value.
const VALUE_MAX: usize = 8 << 10;
/// Most pointers that the table has for each leaf, as a shift. With hashes that are random it has far fewer;
/// without a limit some names chosen for their hashes would make it grow to the hash's full width.
const POINTERS_PER_LEAF_SHIFT: u32 = 12;
/// The same of a table of more than this many pointers, also as a shift: then there are so many leaves that chance
/// does not make one much deeper than the others.
const LARGE_TABLE_SHIFT: u32 = 22;
const POINTERS_PER_LEAF_SHIFT_LARGE: u32 = 8;
/// No table has so many blocks.
const BLKID_MAX: u64 = 1 << 48;
/// So many hash bits are never used to index the table.
const SPARE_HASH_BITS: u32 = 2;

/// A large table, and its header as it is in block 0.
pub(super) struct Fat<'a> {
    store: &'a dyn ZapStore,
    header: ZapHeader,
}

/// What is looked for, or put.
pub(super) enum ZapTarget<'k> {
    Name(WantedName<'k>),
    Ints(&'k [u64]),
}

impl ZapTarget<'_> {
    fn hash(&self, header: &ZapHeader) -> u64 {
        match self {
            ZapTarget::Name(wanted) => hash_name(header.salt, header.flags, &header.prep.apply(wanted.name)),
            ZapTarget::Ints(key) => hash_u64s(header.salt, header.flags, key),
        }
    }

    fn is(&self, leaf: &ZapLeaf<'_>, entry: &zap::LeafEntry) -> Result<bool> {
        match self {
            ZapTarget::Ints(key) => Ok(leaf.key(entry)? == *key),
            ZapTarget::Name(wanted) => match wanted.exact() {
                Some(name) => leaf.is_named(entry, name),
                None => Ok(wanted.is(&leaf.name(entry)?)),
            },
        }
    }

    /// The key as it is stored, and the number of its bytes or integers.
    fn stored(&self) -> (Vec<u8>, u16) {
        match self {
            ZapTarget::Name(wanted) => ([wanted.name, b"\0"].concat(), wanted.name.len() as u16 + 1),
            ZapTarget::Ints(key) => (key.iter().flat_map(|word| word.to_be_bytes()).collect(), key.len() as u16),
        }
    }
}

impl<'a> Fat<'a> {
    /// Makes an empty table in `store`, which has blocks of its size.
    pub(super) fn create(store: &'a dyn ZapStore, flags: u64, normflags: u64, salt: u64) -> Result<Fat<'a>> {
        let size = store.block_size();
        if !size.is_power_of_two() || !(512..=1 << 20).contains(&size) {
            return Err(Error::new(Kind::Invalid, format!("a large table in blocks of {size} bytes")));
        }
        store.modify(0, &mut |block| {
            ZapHeader::init(block, salt, normflags, flags);
            Ok(())
        })?;
        store.modify(1, &mut |block| {
            LeafMut::init(block, 0, 0, normflags != 0);
            Ok(())
        })?;
        Fat::of_head(store, &store.block(0)?)
    }

    pub(super) fn of_head(store: &'a dyn ZapStore, head: &Block) -> Result<Fat<'a>> {
        let header = ZapHeader::parse(head).map_err(|e| e.at_block(store.bookmark(0)))?;
        Ok(Fat { store, header })
    }

    pub(super) fn prep(&self) -> TextPrep {
        self.header.prep
    }

    pub(super) fn has_u64_keys(&self) -> bool {
        self.header.has_u64_keys()
    }

    pub(super) fn entries(&self) -> u64 {
        self.header.entries
    }

    pub(super) fn lookup(&self, target: &ZapTarget<'_>) -> Result<Option<ZapValue>> {
        let hash = self.hash_of(target)?;
        self.in_leaf(hash, |_, leaf| {
            let found = leaf.find(hash, |entry| target.is(leaf, entry))?;
            found.map(|entry| ZapValue::of_leaf(leaf, &entry)).transpose()
        })
    }

    pub(super) fn put(&mut self, target: &ZapTarget<'_>, value: &ZapValue, how: PutMode) -> Result<()> {
        self.put_entry(target, value, how, None)
    }

    /// Adds an entry that is not there, with that collision differentiator.
    pub(super) fn put_with_cd(&mut self, target: &ZapTarget<'_>, value: &ZapValue, cd: u32) -> Result<()> {
        self.put_entry(target, value, PutMode::Add, Some(cd))
    }

    fn put_entry(&mut self, target: &ZapTarget<'_>, value: &ZapValue, how: PutMode, cd: Option<u32>) -> Result<()> {
        let hash = self.hash_of(target)?;
        let (key, key_len) = target.stored();
        let (width, bytes) = (value.width(), value.bytes());
        let mut record =
            NewLeafEntry { position: ZapPosition { hash, cd: 0 }, key: &key, key_len, width, value: bytes };
        loop {
            let (blkid, step) = self.in_leaf(hash, |blkid, leaf| {
                if bytes.len() > VALUE_MAX || record.chunks() > leaf.chunk_count() {
                    return Err(Error::new(Kind::TooBig, format!("a table entry's value of {} bytes", bytes.len())));
                }
                let step = match leaf.find(hash, |entry| target.is(leaf, entry))? {
                    Some(_) if how == PutMode::Add => {
                        return Err(Error::new(Kind::Exists, "the table has an entry of that name"));
                    }
                    Some(entry) if leaf.has_room_for_value(&entry, bytes.len()) => PutStep::SetValue(entry),
                    None if record.chunks() <= usize::from(leaf.free_chunks()) => {
                        record.position.cd = cd.map_or_else(|| leaf.unused_cd(hash), Ok)?;
                        PutStep::Insert
                    }
                    _ => PutStep::Split,
                };
                Ok((blkid, step))
            })?;
            match step {
                PutStep::Split => self.split(blkid, hash)?,
                PutStep::SetValue(entry) => {
                    return self.modify_leaf(blkid, &mut |leaf| leaf.set_value(&entry, width, bytes));
                }
                PutStep::Insert => {
                    if let ZapTarget::Name(wanted) = target
                        && cd.is_none()
                    {
                        refuse_doubtful(self.header.prep, wanted.name)?;
                    }
                    self.modify_leaf(blkid, &mut |leaf| leaf.insert(&record))?;
                    self.header.entries = self.header.entries.saturating_add(1);
                    return self.store_header();
                }
            }
        }
    }

    /// Removes the first entry that matches, and returns its name.
    pub(super) fn remove(&mut self, target: &ZapTarget<'_>) -> Result<Vec<u8>> {
        let hash = self.hash_of(target)?;
        let u64_keys = self.has_u64_keys();
        let (blkid, entry, name, was_last) = self.in_leaf(hash, |blkid, leaf| {
            let found = leaf.find(hash, |entry| target.is(leaf, entry))?;
            let entry = found.ok_or_else(|| Error::new(Kind::NotFound, "the table has no entry of that name"))?;
            let name = if u64_keys { Vec::new() } else { leaf.name(&entry)? };
            Ok((blkid, entry, name, leaf.entry_count() == 1))
        })?;
        self.modify_leaf(blkid, &mut |leaf| leaf.remove(&entry, u64_keys).map(|()| true))?;
        self.header.entries = self.header.entries.saturating_sub(1);
        if was_last {
            // where a block is damaged, all stays as it is
            while let Ok(Some(twins)) = self.empty_twins(hash) {
                self.merge(&twins)?;
            }
        }
        self.store_header()?;
        Ok(name)
    }

    /// The leaf for a hash, and the one whose prefix is the same but for the last bit, if both are empty.
    fn empty_twins(&self, hash: u64) -> Result<Option<Twins>> {
        let of_empty = |hash| {
            self.in_leaf(hash, |blkid, leaf| {
                Ok((leaf.entry_count() == 0).then(|| (blkid, leaf.prefix(), leaf.prefix_bits())))
            })
        };
        let Some((blkid, prefix, bits)) = of_empty(hash)? else { return Ok(None) };
        if bits == 0 || self.header.table.next_block != 0 {
            return Ok(None);
        }
        let Some((twin, ..)) = of_empty(hash ^ 1 << (u64::BITS - bits))?.filter(|(.., of_twin)| *of_twin == bits)
        else {
            return Ok(None);
        };
        let blkids = if prefix & 1 == 0 { [blkid, twin] } else { [twin, blkid] };
        let pointers = 1 << (self.header.table.shift - bits);
        let first = (prefix & !1) * pointers;
        self.check_pointers(first..first + pointers, blkids[0])?;
        self.check_pointers(first + pointers..first + 2 * pointers, blkids[1])?;
        Ok(Some(Twins { blkids, pointers: first..first + 2 * pointers, prefix: prefix >> 1, bits: bits - 1 }))
    }

    /// Makes one leaf of two that are empty. The table of pointers stays as large as it is.
    fn merge(&mut self, twins: &Twins) -> Result<()> {
        // the last block can be used again
        let [kept, given] = [twins.blkids[0].min(twins.blkids[1]), twins.blkids[0].max(twins.blkids[1])];
        let sorted = self.header.prep != TextPrep::default();
        self.store.modify(kept, &mut |block| {
            LeafMut::init(block, twins.prefix, twins.bits, sorted);
            Ok(())
        })?;
        self.set_pointers(twins.pointers.clone(), kept)?;
        self.header.leaves = self.header.leaves.saturating_sub(1);
        if given + 1 == self.header.free_block {
            self.header.free_block = given;
        }
        self.store.discard(given, 1)
    }

    /// The hash under which the target is, or would be. A name whose form is doubtful is looked for everywhere.
    fn hash_of(&self, target: &ZapTarget<'_>) -> Result<u64> {
        let hash = target.hash(&self.header);
        let ZapTarget::Name(wanted) = target else { return Ok(hash) };
        if !self.header.prep.is_doubtful(wanted.name)
            || self.in_leaf(hash, |_, leaf| leaf.find(hash, |entry| target.is(leaf, entry)))?.is_some()
        {
            return Ok(hash);
        }
        let mut next = Some(0);
        while let Some(at) = next {
            let found = self.in_leaf(at, |_, leaf| {
                next = leaf.next_hash();
                for entry in leaf.entries()? {
                    if leaf.covers(entry.position.hash) && target.is(leaf, &entry)? {
                        return Ok(Some(entry.position.hash));
                    }
                }
                Ok(None)
            })?;
            if let Some(hash) = found {
                return Ok(hash);
            }
        }
        Ok(hash)
    }

    /// Splits the leaf in `blkid`, the one for `hash`, after doubling the pointer table if it has to be.
    fn split(&mut self, blkid: u64, hash: u64) -> Result<()> {
        let (sorted, u64_keys) = (self.header.prep != TextPrep::default(), self.has_u64_keys());
        let (prefix, bits) = self.in_leaf(hash, |_, leaf| Ok((leaf.prefix(), leaf.prefix_bits())))?;
        while self.header.table.next_block != 0 || bits == self.header.table.shift {
            self.grow_table()?;
        }
        let new_blkid = self.allocate(1, blkid)?;
        let table = &self.header.table;
        let halves = self.in_leaf(hash, |_, leaf| leaf.split(sorted, u64_keys))?;
        let pointers = 1 << (table.shift - bits - 1);
        let first = (prefix << 1 | 1) * pointers;
        self.check_pointers(first..first + pointers, blkid)?;

        self.header.leaves = self.header.leaves.saturating_add(1);
        for (blkid, half) in [blkid, new_blkid].into_iter().zip(halves) {
            self.store.modify(blkid, &mut |block| {
                block.copy_from_slice(&half);
                Ok(())
            })?;
        }
        self.set_pointers(first..first + pointers, new_blkid)?;
        self.store_header()
    }

    /// Doubles the pointer table.
    fn grow_table(&mut self) -> Result<()> {
        let table = self.header.table.clone();
        let begun = table.next_block != 0;
        if table.shift + SPARE_HASH_BITS >= self.header.hash_bits() || !self.has_leaves_for(table.shift)? {
            let what = format!("a ZAP with a pointer table of {} bits has too many names of similar hash", table.shift);
            return Err(Error::new(Kind::NoSpace, what).at_block(self.store.bookmark(0)));
        }
        let blocks = (table.blocks * 2).max(1);
        let first = if begun { table.next_block } else { self.allocate(blocks, 0)? };
        let copied = |old: u64, pointers: Range<usize>| -> Result<()> {
            let source = self.store.block(old)?;
            let in_head = table.blocks == 0;
            let read = |index: usize| match in_head {
                true => self.header.embedded(&source, index as u64),
                false => ZapHeader::pointer(&source, index),
            };
            if pointers.clone().any(|index| read(index) == 0) {
                return Err(Error::corrupt("ZAP pointer table with an empty place").at_block(self.store.bookmark(old)));
            }
            let half = if in_head { 0 } else { pointers.start / pointers.len() };
            let target = first + if in_head { 0 } else { 2 * (old - table.block) + half as u64 };
            self.store.modify(target, &mut |block| {
                for (place, index) in pointers.clone().enumerate() {
                    ZapHeader::set_pointer(block, 2 * place, read(index));
                    ZapHeader::set_pointer(block, 2 * place + 1, read(index));
                }
                Ok(())
            })
        };
        let half = self.store.block_size() / 16;
        if table.blocks == 0 {
            copied(0, 0..half)?;
        }
        for old in table.block..table.block + table.blocks {
            copied(old, 0..half)?;
            copied(old, half..2 * half)?;
        }
        if table.blocks > 0 {
            self.store.discard(table.block, table.blocks)?;
        }
        self.header.table =
            zap::PointerTable { block: first, blocks, shift: table.shift + 1, next_block: 0, blocks_copied: 0 };
        self.store_header()
    }

    /// Whether there are so many leaves that the table of pointers may be doubled. What the header says of their
    /// number nothing confirms, so they are counted: each covers hashes of its own.
    fn has_leaves_for(&self, shift: u32) -> Result<bool> {
        let per_leaf = if shift > LARGE_TABLE_SHIFT { POINTERS_PER_LEAF_SHIFT_LARGE } else { POINTERS_PER_LEAF_SHIFT };
        let needed = 1_u64 << shift.saturating_sub(per_leaf);
        let (mut found, mut next) = (0, Some(0));
        while let Some(hash) = next.filter(|_| found < needed) {
            next = self.in_leaf(hash, |_, leaf| Ok(leaf.next_hash()))?;
            found += 1;
        }
        Ok(found >= needed)
    }

    /// Blocks that were never used. `used` is one that was.
    fn allocate(&mut self, count: u64, used: u64) -> Result<u64> {
        let (first, table) = (self.header.free_block, &self.header.table);
        if first <= used || first < table.block.saturating_add(table.blocks) || first > BLKID_MAX {
            let what = format!("ZAP header says that block {first} is free");
            return Err(Error::corrupt(what).at_block(self.store.bookmark(0)));
        }
        self.header.free_block += count;
        Ok(first)
    }

    /// Checks that all these pointers lead to that leaf, as the leaf's prefix says.
    fn check_pointers(&self, pointers: Range<u64>, blkid: u64) -> Result<()> {
        self.for_each_table_block(pointers, &mut |table_blkid, indices| {
            let block = self.store.block(table_blkid)?;
            let read = |index| match self.header.table.blocks {
                0 => self.header.embedded(&block, index as u64),
                _ => ZapHeader::pointer(&block, index),
            };
            match { indices }.all(|index| read(index) == blkid) {
                true => Ok(()),
                false => {
                    Err(Error::corrupt(format!("ZAP pointer table does not have leaf {blkid} where its prefix is"))
                        .at_block(self.store.bookmark(table_blkid)))
                }
            }
        })
    }

    fn set_pointers(&self, pointers: Range<u64>, blkid: u64) -> Result<()> {
        let set = match self.header.table.blocks {
            0 => ZapHeader::set_embedded,
            _ => ZapHeader::set_pointer,
        };
        self.for_each_table_block(pointers, &mut |table_blkid, indices| {
            self.store.modify(table_blkid, &mut |block| {
                indices.clone().for_each(|index| set(block, index, blkid));
                Ok(())
            })
        })
    }

    /// Calls `f` with each block that has some of these pointers, and their indices in it.
    fn for_each_table_block(
        &self,
        pointers: Range<u64>,
        f: &mut dyn FnMut(u64, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        if self.header.table.blocks == 0 {
            return f(0, pointers.start as usize..pointers.end as usize);
        }
        let mut at = pointers.start;
        while at < pointers.end {
            let (blkid, index) = self.header.external(at);
            let count = (pointers.end - at).min((1 << (self.header.block_shift - 3)) - index as u64);
            f(blkid, index..index + count as usize)?;
            at += count;
        }
        Ok(())
    }

    /// Gives `f` the leaf for a hash and its block number, and adds the place to its errors.
    fn in_leaf<T>(&self, hash: u64, f: impl FnOnce(u64, &ZapLeaf<'_>) -> Result<T>) -> Result<T> {
        let head = self.store.block(0)?;
        let (table_blkid, blkid) = leaf_blkid(&self.header, &head, hash, |blkid| self.store.block(blkid))?;
        drop(head);
        if blkid == 0 {
            let what = format!("ZAP pointer table has no leaf for hash {hash:#x}");
            return Err(Error::corrupt(what).at_block(self.store.bookmark(table_blkid)));
        }
        let block = self.store.block(blkid)?;
        let result = leaf_in(&block, &self.header, hash).and_then(|leaf| f(blkid, &leaf));
        result.map_err(|e| e.at_block(self.store.bookmark(blkid)))
    }

    /// Changes a leaf by something for which there is room.
    fn modify_leaf(&self, blkid: u64, f: &mut dyn FnMut(&mut LeafMut<'_>) -> Result<bool>) -> Result<()> {
        let result = self.store.modify(blkid, &mut |block| match f(&mut LeafMut::parse(block)?)? {
            true => Ok(()),
            false => Err(Error::corrupt("ZAP leaf has less room than it says")),
        });
        result.map_err(|e| e.at_block(self.store.bookmark(blkid)))
    }

    fn store_header(&self) -> Result<()> {
        self.store.modify(0, &mut |block| {
            self.header.store(block);
            Ok(())
        })
    }
}

/// Two empty leaves that can be one: their blocks, the pointers to them, and the prefix that both have.
struct Twins {
    blkids: [u64; 2],
    pointers: Range<u64>,
    prefix: u64,
    bits: u32,
}

/// What is done next to put an entry.
enum PutStep {
    SetValue(zap::LeafEntry),
    Insert,
    Split,
}
