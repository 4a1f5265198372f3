//! Tables of names and values kept in an object (ZAP): looking one up, listing all, changing ([`Editor`]).
//!
//! A [`Zap`] reads blocks of its object as it needs them, one or two for a look-up however large the
//! table. Listings go in the order of hash and collision differentiator, which is the same for the
//! small and the large kind of table; the cookie of an entry stands for the place behind it, fits in
//! 64 bits, has the form that OpenZFS uses, and stays valid while the table changes.
//!
//! Tables that normalize names hash the normalized form. Where OpenZFS may have come to another form, and
//! so to another chain ([`TextPrep::is_doubtful`]), a look-up that finds nothing goes through the table.
//!
//! Invariant: listing a damaged table ends, and each cookie leads further. Every leaf must cover the
//! hashes that the pointer table sends to it, and hold only entries with such hashes.

mod edit;
mod leaves;
mod micro;
mod store;
#[cfg(test)]
mod tests;
mod value;
mod wanted;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use base::{Bookmark, Error, Kind, Result};
use format::ids::ObjectId;
use format::zap::{TextPrep, ZapBlockKind, ZapHeader, ZapLeaf, ZapPosition, hash_name, hash_u64s};

use crate::{Block, Object};
pub use edit::Editor;
use leaves::{leaf_blkid, leaf_in};
use micro::MicroZap;
pub use store::ZapStore;
pub use value::{ZapEntry, ZapKey, ZapValue};
pub use wanted::Match;
use wanted::WantedName;

/// Blocks of a table that are prefetched when a listing begins.
const PREFETCH_BLOCKS_MAX: u64 = 512;

/// A table; cheap to open.
pub struct Zap {
    source: Box<dyn ZapSource>,
    body: ZapBody,
}

enum ZapBody {
    Micro(MicroZap),
    /// The first block, and its header.
    Fat(Block, ZapHeader),
}

/// What is known of a table without reading more than its first block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapInfo {
    /// Bytes of a block.
    pub block_size: usize,
    /// Number of entries.
    pub entries: u64,
    /// What the hash starts from.
    pub salt: u64,
    /// How names are compared.
    pub prep: TextPrep,
    /// The header of a fat table.
    pub fat: Option<ZapHeader>,
}

/// Where a table's blocks come from.
trait ZapSource: Send + Sync {
    fn block(&self, blkid: u64) -> Result<Block>;
    fn bookmark(&self, blkid: u64) -> Bookmark;
    /// Says that these will be asked for soon.
    fn prefetch(&self, blkids: Vec<u64>);
}

impl ZapSource for Object {
    fn block(&self, blkid: u64) -> Result<Block> {
        Object::block(self, blkid)
    }

    fn bookmark(&self, blkid: u64) -> Bookmark {
        Object::bookmark(self, 0, blkid)
    }

    fn prefetch(&self, blkids: Vec<u64>) {
        Object::prefetch(self, blkids);
    }
}

/// Reads a table where it is being changed.
struct OfStore(Box<dyn ZapStore + Send + Sync>);

impl ZapSource for OfStore {
    fn block(&self, blkid: u64) -> Result<Block> {
        self.0.block(blkid)
    }

    fn bookmark(&self, blkid: u64) -> Bookmark {
        self.0.bookmark(blkid)
    }

    fn prefetch(&self, _blkids: Vec<u64>) {}
}

impl Zap {
    /// The table in `store`, as it is now: what it shows is undefined once that is changed.
    pub fn of_store(store: Box<dyn ZapStore + Send + Sync>) -> Result<Zap> {
        Zap::over(Box::new(OfStore(store)))
    }

    /// The table in `object`. Errors: as from reading a block, or `Corrupt` if it is no table.
    pub fn open(object: Object) -> Result<Zap> {
        Zap::over(Box::new(object))
    }

    fn over(source: Box<dyn ZapSource>) -> Result<Zap> {
        let head = source.block(0)?;
        let body = match ZapBlockKind::of(&head) {
            ZapBlockKind::Micro => MicroZap::new(head).map(ZapBody::Micro),
            _ => ZapHeader::parse(&head).map(|header| ZapBody::Fat(head, header)),
        };
        let body = body.map_err(|e| e.at_block(source.bookmark(0)))?;
        Ok(Zap { source, body })
    }

    /// The value of exactly that name.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<ZapValue>> {
        Ok(self.lookup_match(name, Match::Exact)?.map(|(_, value)| value))
    }

    /// The first entry whose name matches, with the name as it is in the table.
    pub fn lookup_match(&self, name: &[u8], how: Match) -> Result<Option<(Vec<u8>, ZapValue)>> {
        if matches!(&self.body, ZapBody::Fat(_, header) if header.has_u64_keys()) {
            return Err(Error::new(Kind::Invalid, "look-up of a name in a table of integer keys"));
        }
        let wanted = WantedName::new(name, how, self.prep());
        let found = match &self.body {
            ZapBody::Micro(micro) => micro.find(&wanted),
            ZapBody::Fat(_, header) => self.find_in_leaf(header, &wanted)?,
        };
        if found.is_some() || !self.prep().is_doubtful(name) {
            return Ok(found);
        }
        let mut found = None;
        self.for_each_from(0, &mut |entry| match entry.name {
            ZapKey::Bytes(name) if wanted.is(&name) => {
                found = Some((name, entry.value));
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        })?;
        Ok(found)
    }

    /// The value of an integer key.
    pub fn lookup_u64_key(&self, key: &[u64]) -> Result<Option<ZapValue>> {
        let ZapBody::Fat(_, header) = &self.body else { return Ok(None) };
        if !header.has_u64_keys() {
            return Err(Error::new(Kind::Invalid, "look-up of an integer key in a table of names"));
        }
        let hash = hash_u64s(header.salt, header.flags, key);
        self.in_leaf(header, hash, |leaf| {
            let found = leaf.find(hash, |entry| Ok(leaf.key(entry)? == key))?;
            found.map(|entry| ZapValue::of_leaf(leaf, &entry)).transpose()
        })
    }

    /// Says that these integer keys will be looked up soon; errors are for the look-ups.
    pub fn prefetch_u64_keys<K: AsRef<[u64]>>(&self, keys: impl IntoIterator<Item = K>) {
        let ZapBody::Fat(head, header) = &self.body else { return };
        let leaf_of = |key: K| {
            let hash = hash_u64s(header.salt, header.flags, key.as_ref());
            leaf_blkid(header, head, hash, |blkid| self.source.block(blkid)).ok().map(|(_, blkid)| blkid)
        };
        let leaves: BTreeSet<u64> = keys.into_iter().filter_map(leaf_of).collect();
        self.source.prefetch(leaves.into_iter().collect());
    }

    /// The first number in the value of that name.
    pub fn u64(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.lookup(name.as_bytes())?.and_then(|value| value.first_u64()))
    }

    /// As [`Zap::u64`]; that there is none is an error of kind `NotFound`.
    pub fn require_u64(&self, name: &str) -> Result<u64> {
        let absent = || Error::new(Kind::NotFound, format!("no entry '{name}'")).at_block(self.source.bookmark(0));
        self.u64(name)?.ok_or_else(absent)
    }

    /// As [`Zap::u64`], of the number of an object.
    pub fn object_id(&self, name: &str) -> Result<Option<ObjectId>> {
        Ok(self.u64(name)?.map(ObjectId::new))
    }

    /// As [`Zap::require_u64`], of the number of an object.
    pub fn require_object_id(&self, name: &str) -> Result<ObjectId> {
        self.require_u64(name).map(ObjectId::new)
    }

    /// All entries, in listing order.
    pub fn entries(&self) -> Result<Vec<ZapEntry>> {
        let mut entries = Vec::new();
        self.for_each_from(0, &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    /// Calls `f` with each entry in listing order until it breaks, starting at the place that `cookie`
    /// stands for: 0 is the beginning, the cookie of an entry the place behind it.
    pub fn for_each_from(&self, cookie: u64, f: &mut dyn FnMut(ZapEntry) -> ControlFlow<()>) -> Result<()> {
        let (_, header) = match &self.body {
            ZapBody::Micro(micro) => {
                let _ = micro.entries_from(cookie).try_for_each(f);
                return Ok(());
            }
            ZapBody::Fat(head, header) => (head, header),
        };
        if cookie == 0 && header.leaves > 1 {
            // Most listings go on to the end, and the order of hashes is not that of the blocks.
            self.source.prefetch((1..header.free_block.min(PREFETCH_BLOCKS_MAX)).collect());
        }
        let mut at = ZapPosition::from_cookie(cookie, header.flags);
        loop {
            let next = self.in_leaf(header, at.hash, |leaf| {
                let flow = for_each_in_leaf(header, leaf, at, f)?;
                Ok(if flow.is_break() { None } else { leaf.next_hash() })
            })?;
            match next {
                // Each leaf covers the hash that led to it, so this gets further with each one.
                Some(hash) => at = ZapPosition { hash, cd: 0 },
                None => return Ok(()),
            }
        }
    }

    /// Number of entries, by the table's own count if it is a large one.
    pub fn len(&self) -> u64 {
        match &self.body {
            ZapBody::Micro(micro) => micro.len(),
            ZapBody::Fat(_, header) => header.entries,
        }
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How the table is made.
    pub fn info(&self) -> ZapInfo {
        let (block_size, salt, fat) = match &self.body {
            ZapBody::Micro(micro) => (micro.block_size(), micro.salt(), None),
            ZapBody::Fat(head, header) => (head.len(), header.salt, Some(header.clone())),
        };
        ZapInfo { block_size, entries: self.len(), salt, prep: self.prep(), fat }
    }

    /// The address of its first block, for errors.
    pub fn bookmark(&self) -> Bookmark {
        self.source.bookmark(0)
    }

    fn prep(&self) -> TextPrep {
        match &self.body {
            ZapBody::Micro(micro) => micro.prep(),
            ZapBody::Fat(_, header) => header.prep,
        }
    }

    fn find_in_leaf(&self, header: &ZapHeader, wanted: &WantedName<'_>) -> Result<Option<(Vec<u8>, ZapValue)>> {
        let hash = hash_name(header.salt, header.flags, &wanted.hashed);
        self.in_leaf(header, hash, |leaf| {
            let found = leaf.find(hash, |entry| match wanted.exact() {
                Some(name) => leaf.is_named(entry, name),
                None => Ok(wanted.is(&leaf.name(entry)?)),
            })?;
            found.map(|entry| Ok((leaf.name(&entry)?, ZapValue::of_leaf(leaf, &entry)?))).transpose()
        })
    }

    /// Gives `f` the leaf for a hash, and adds the place to its errors.
    fn in_leaf<T>(&self, header: &ZapHeader, hash: u64, f: impl FnOnce(&ZapLeaf<'_>) -> Result<T>) -> Result<T> {
        let ZapBody::Fat(head, _) = &self.body else { unreachable!("small tables have no leaves") };
        let (table_blkid, blkid) = leaf_blkid(header, head, hash, |blkid| self.source.block(blkid))?;
        if blkid == 0 {
            let what = format!("ZAP pointer table has no leaf for hash {hash:#x}");
            return Err(Error::corrupt(what).at_block(self.source.bookmark(table_blkid)));
        }
        let block = self.source.block(blkid)?;
        let result = leaf_in(&block, header, hash).and_then(|leaf| f(&leaf));
        result.map_err(|e| e.at_block(self.source.bookmark(blkid)))
    }
}

fn for_each_in_leaf(
    header: &ZapHeader,
    leaf: &ZapLeaf<'_>,
    from: ZapPosition,
    f: &mut dyn FnMut(ZapEntry) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    for entry in leaf.entries()? {
        let position = entry.position;
        if !leaf.covers(position.hash) || !position.is_possible(header.flags) {
            return Err(Error::corrupt(format!("ZAP entry with hash {:#x} in the wrong leaf", position.hash)));
        }
        if position < from {
            continue;
        }
        let name = match header.has_u64_keys() {
            true => ZapKey::U64s(leaf.key(&entry)?),
            false => ZapKey::Bytes(leaf.name(&entry)?),
        };
        let value = ZapValue::of_leaf(leaf, &entry)?;
        if f(ZapEntry { name, value, cookie: position.cookie_after(header.flags) }).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
