//! Changing a table: adding, setting and removing entries.
//!
//! ```text
//!   Editor ── small table: in its one block ──▶ Store::modify(0)
//!      │            │ too full, or an entry that it cannot hold
//!      │            ▼
//!      └─────── large table (`fat`): header, leaves, pointer table
//! ```
//!
//! A table starts small and grows in steps of 512 bytes. It becomes a large one, in blocks of 16 KiB, with the
//! first entry that does not fit: a long name, a value other than one 64-bit number, or one too many. The large
//! table is made in memory first, so that the change is whole or not at all.
//!
//! An [`Editor`] keeps nothing between calls, and must be the only one at work on its table.
//!
//! Names are added under the hash of their normalized form. Where OpenZFS could come to another form
//! ([`TextPrep::is_doubtful`](format::zap::TextPrep::is_doubtful)) it would not find them, so they are refused.

mod fat;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;

use base::{Block, Bookmark, Error, Kind, Result};
use format::zap::{Micro, MicroEntry, MicroMut, NAME_MAX, TextPrep, ZapBlockKind, hash_name};

use super::store::{PutMode, ZapStore};
use super::value::ZapValue;
use super::wanted::{Match, WantedName, refuse_doubtful};
use fat::{Fat, ZapTarget};

/// Most bytes of a small table's block: it is searched from end to end for each change. OpenZFS lets it grow to
/// 128 KiB, and so may come tables that are larger.
const MICRO_SIZE_MAX: usize = 32 << 10;
/// By how much a small table grows.
const MICRO_SIZE_STEP: usize = 512;
/// Block size of a table that became large.
const FAT_BLOCK_SIZE: usize = 16 << 10;
/// So many entries of one hash fit in a leaf of a table that became large: each takes up to 5 of 638 chunks.
const SAME_HASH_MAX: usize = 120;

/// Changes one table.
#[derive(Clone, Copy)]
pub struct Editor<'a> {
    store: &'a dyn ZapStore,
}

impl<'a> Editor<'a> {
    /// For the table that is in `store`.
    pub fn new(store: &'a dyn ZapStore) -> Editor<'a> {
        Editor { store }
    }

    /// Makes an empty table in `store`, which has no blocks yet but a block size.
    ///
    /// `flags` are those of [`ZapHeader`](format::zap::ZapHeader); with any of them the table is a large one from the start, and the block
    /// size has to be a power of two. `normflags` say how names are compared. `salt` is to be random.
    pub fn create(store: &'a dyn ZapStore, flags: u64, normflags: u64, salt: u64) -> Result<Editor<'a>> {
        let salt = salt | 1;
        if flags == 0 {
            store.modify(0, &mut |block| {
                MicroMut::init(block, salt, normflags);
                Ok(())
            })?;
        } else {
            Fat::create(store, flags, normflags, salt)?;
        }
        Ok(Editor { store })
    }

    /// Adds an entry. Errors: `Exists` if there is one of exactly that name; `TooLong`, `TooBig`, `Invalid` for a
    /// name or value that no table can hold; `Unsupported` for names that OpenZFS would not find; `NoSpace` if too
    /// many names have one hash.
    pub fn add(&self, name: &[u8], value: &ZapValue) -> Result<()> {
        self.put(name, value, PutMode::Add)
    }

    /// Adds an entry, or changes the value of the one of exactly that name. Errors: as of [`Editor::add`].
    pub fn set(&self, name: &[u8], value: &ZapValue) -> Result<()> {
        self.put(name, value, PutMode::Set)
    }

    /// The value of exactly that name.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<ZapValue>> {
        let head = self.store.block(0)?;
        match self.micro(&head)? {
            Some(micro) => Ok(find_slot(&micro, &exact(name)).map(|(_, entry)| ZapValue::one(entry.value))),
            None => self.fat(&head)?.lookup(&ZapTarget::Name(exact(name))),
        }
    }

    /// Adds `delta` to the number of that name, which is 0 if there is none, and returns the sum; an entry that
    /// comes to 0 is removed. The sum wraps.
    pub fn increment(&self, name: &[u8], delta: i64) -> Result<u64> {
        let old = self.lookup(name)?;
        let sum = old.as_ref().and_then(ZapValue::first_u64).unwrap_or(0).wrapping_add_signed(delta);
        match (sum, old) {
            (0, Some(_)) => self.remove(name)?,
            (0, None) => {}
            _ => self.set(name, &ZapValue::one(sum))?,
        }
        Ok(sum)
    }

    /// Removes the entry of exactly that name. Errors: `NotFound`.
    pub fn remove(&self, name: &[u8]) -> Result<()> {
        self.remove_match(name, Match::Exact).map(drop)
    }

    /// Removes the first entry whose name matches, and returns its name. Errors: `NotFound`.
    pub fn remove_match(&self, name: &[u8], how: Match) -> Result<Vec<u8>> {
        let head = self.store.block(0)?;
        let Some(micro) = self.micro(&head)? else {
            let mut fat = self.fat(&head)?;
            let wanted = WantedName::new(name, how, fat.prep());
            drop(head);
            return fat.remove(&ZapTarget::Name(wanted));
        };
        let found = find_slot(&micro, &WantedName::new(name, how, micro.prep()));
        let (slot, name) = found.map(|(slot, entry)| (slot, entry.name.to_vec())).ok_or_else(|| self.absent())?;
        drop(head);
        self.modify_micro(&mut |micro| micro.clear(slot))?;
        Ok(name)
    }

    /// As [`Editor::add`], in a table of integer keys.
    pub fn add_u64_key(&self, key: &[u64], value: &ZapValue) -> Result<()> {
        self.put_u64_key(key, value, PutMode::Add)
    }

    /// As [`Editor::set`], in a table of integer keys.
    pub fn set_u64_key(&self, key: &[u64], value: &ZapValue) -> Result<()> {
        self.put_u64_key(key, value, PutMode::Set)
    }

    /// As [`Editor::remove`], in a table of integer keys.
    pub fn remove_u64_key(&self, key: &[u64]) -> Result<()> {
        self.fat_of_keys()?.remove(&ZapTarget::Ints(key)).map(drop)
    }

    /// As [`Editor::lookup`], in a table of integer keys.
    pub fn lookup_u64_key(&self, key: &[u64]) -> Result<Option<ZapValue>> {
        self.fat_of_keys()?.lookup(&ZapTarget::Ints(key))
    }

    /// Number of entries.
    pub fn len(&self) -> Result<u64> {
        let head = self.store.block(0)?;
        Ok(match self.micro(&head)? {
            Some(micro) => micro.entries().count() as u64,
            None => Fat::of_head(self.store, &head)?.entries(),
        })
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    fn put(&self, name: &[u8], value: &ZapValue, how: PutMode) -> Result<()> {
        if name.is_empty() || name.contains(&0) {
            return Err(Error::new(Kind::Invalid, "a table entry has an empty name, or one with a NUL in it"));
        }
        if name.len() > NAME_MAX {
            return Err(Error::new(Kind::TooLong, format!("a table entry's name of {} bytes", name.len())));
        }
        let head = self.store.block(0)?;
        if self.micro(&head)?.is_some() {
            if self.put_in_micro(head, name, value, how)? {
                return Ok(());
            }
            self.upgrade()?;
        } else {
            drop(head);
        }
        let mut fat = self.fat(&self.store.block(0)?)?;
        let wanted = WantedName::new(name, Match::Exact, fat.prep());
        fat.put(&ZapTarget::Name(wanted), value, how)
    }

    fn put_u64_key(&self, key: &[u64], value: &ZapValue, how: PutMode) -> Result<()> {
        self.fat_of_keys()?.put(&ZapTarget::Ints(key), value, how)
    }

    /// Puts an entry in a small table; `false` if that cannot hold it.
    fn put_in_micro(&self, head: Block, name: &[u8], value: &ZapValue, how: PutMode) -> Result<bool> {
        let micro = Micro::parse(&head).map_err(|e| self.at(e))?;
        match (find_slot(&micro, &exact(name)), value.single()) {
            (Some(_), _) if how == PutMode::Add => Err(self.exists()),
            (Some((slot, _)), Some(number)) => {
                drop(head);
                self.modify_micro(&mut |micro| micro.set_value(slot, number))?;
                Ok(true)
            }
            (None, Some(number)) if name.len() <= MicroMut::NAME_MAX => self.add_to_micro(head, name, number),
            _ => Ok(false),
        }
    }

    /// Adds an entry that is not there, in the first free slot; `false` if there is none and can be none.
    fn add_to_micro(&self, head: Block, name: &[u8], value: u64) -> Result<bool> {
        let micro = Micro::parse(&head).map_err(|e| self.at(e))?;
        refuse_doubtful(micro.prep(), name)?;
        let (salt, prep) = (micro.salt(), micro.prep());
        let hash_of = |name: &[u8]| match prep.is_exact() {
            true => hash_name(salt, 0, name),
            false => hash_name(salt, 0, &prep.apply(name)),
        };
        let hash = hash_of(name);
        let mut free = None;
        let mut cds = Vec::new();
        for slot in 0..micro.slots() {
            match micro.entry(slot) {
                Some(entry) if hash_of(entry.name) == hash => cds.push(entry.cd),
                Some(_) => {}
                None => free = free.or(Some(slot)),
            }
        }
        if cds.len() >= SAME_HASH_MAX {
            let what = format!("{} names of a table have the hash {hash:#x}", cds.len());
            return Err(self.at(Error::new(Kind::NoSpace, what)));
        }
        let cd = (0..).find(|cd| !cds.contains(cd)).expect("there are more numbers than slots");
        let (slot, size) = (free.unwrap_or(micro.slots()), head.len());
        drop(head);
        if free.is_none() {
            if size + MICRO_SIZE_STEP > MICRO_SIZE_MAX {
                return Ok(false);
            }
            self.store.set_block_size(size + MICRO_SIZE_STEP)?;
        }
        self.modify_micro(&mut |micro| micro.put(slot, &MicroEntry { name, value, cd }))?;
        Ok(true)
    }

    fn modify_micro(&self, change: &mut dyn FnMut(&mut MicroMut<'_>)) -> Result<()> {
        self.store.modify(0, &mut |block| {
            change(&mut MicroMut::parse(block)?);
            Ok(())
        })
    }

    /// Makes a small table a large one.
    fn upgrade(&self) -> Result<()> {
        let head = self.store.block(0)?;
        let micro = Micro::parse(&head).map_err(|e| self.at(e))?;
        let memory = MemoryStore { size: FAT_BLOCK_SIZE, blocks: RefCell::default(), of: self.store };
        let mut fat = Fat::create(&memory, 0, micro.normflags(), micro.salt())?;
        for entry in micro.entries() {
            let wanted = WantedName::new(entry.name, Match::Exact, micro.prep());
            fat.put_with_cd(&ZapTarget::Name(wanted), &ZapValue::one(entry.value), entry.cd)?;
        }
        drop(head);
        self.store.set_block_size(FAT_BLOCK_SIZE)?;
        for (blkid, contents) in memory.blocks.into_inner() {
            self.store.modify(blkid, &mut |block| {
                block.copy_from_slice(&contents);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The small table in block 0, if it is one.
    fn micro<'b>(&self, head: &'b [u8]) -> Result<Option<Micro<'b>>> {
        match ZapBlockKind::of(head) {
            ZapBlockKind::Micro => Micro::parse(head).map(Some).map_err(|e| self.at(e)),
            _ => Ok(None),
        }
    }

    fn fat(&self, head: &Block) -> Result<Fat<'a>> {
        let fat = Fat::of_head(self.store, head)?;
        match fat.has_u64_keys() {
            true => Err(self.at(Error::new(Kind::Invalid, "a name in a table of integer keys"))),
            false => Ok(fat),
        }
    }

    fn fat_of_keys(&self) -> Result<Fat<'a>> {
        let head = self.store.block(0)?;
        if self.micro(&head)?.is_none() {
            let fat = Fat::of_head(self.store, &head)?;
            if fat.has_u64_keys() {
                return Ok(fat);
            }
        }
        Err(self.at(Error::new(Kind::Invalid, "an integer key in a table of names")))
    }

    fn at(&self, error: Error) -> Error {
        error.at_block(self.store.bookmark(0))
    }

    fn exists(&self) -> Error {
        self.at(Error::new(Kind::Exists, "the table has an entry of that name"))
    }

    fn absent(&self) -> Error {
        self.at(Error::new(Kind::NotFound, "the table has no entry of that name"))
    }
}

/// Looks for a name as it is, for tables whose form does not matter to the search.
fn exact(name: &[u8]) -> WantedName<'_> {
    WantedName::new(name, Match::Exact, TextPrep::default())
}

/// The matching entry that comes first in the order of cd, which is that of look-ups, and its slot.
fn find_slot<'b>(micro: &Micro<'b>, wanted: &WantedName<'_>) -> Option<(usize, MicroEntry<'b>)> {
    if let Some(name) = wanted.exact() {
        return micro.find(name).and_then(|slot| Some((slot, micro.entry(slot)?)));
    }
    let entries = (0..micro.slots()).filter_map(|slot| Some((slot, micro.entry(slot)?)));
    entries.filter(|(_, entry)| wanted.is(entry.name)).min_by_key(|(_, entry)| entry.cd)
}

/// Blocks that a table is made in before any goes to its place.
struct MemoryStore<'a> {
    size: usize,
    blocks: RefCell<BTreeMap<u64, Block>>,
    of: &'a dyn ZapStore,
}

impl ZapStore for MemoryStore<'_> {
    fn block_size(&self) -> usize {
        self.size
    }

    fn block(&self, blkid: u64) -> Result<Block> {
        Ok(self.blocks.borrow().get(&blkid).cloned().unwrap_or_else(|| Block::zeroed(self.size)))
    }

    fn modify(&self, blkid: u64, f: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<()> {
        f(self.blocks.borrow_mut().entry(blkid).or_insert_with(|| Block::zeroed(self.size)).make_mut())
    }

    fn set_block_size(&self, _bytes: usize) -> Result<()> {
        unreachable!("a large table keeps its block size")
    }

    fn bookmark(&self, blkid: u64) -> Bookmark {
        self.of.bookmark(blkid)
    }
}
