//! Small tables: one block, searched from end to end, or through an index once one is needed.
//!
//! The block keeps entries in no order and without their hashes. Listing needs both, and so do
//! look-ups where names are normalized (forming every name again each time would be slow); the index
//! is made then and kept.

use std::sync::OnceLock;

use base::Result;
use format::zap::{Micro, MicroEntry, TextPrep, ZapPosition, hash_name};

use super::value::{ZapEntry, ZapKey, ZapValue};
use super::wanted::WantedName;
use crate::Block;

/// Micro tables have no flags.
const FLAGS: u64 = 0;

pub(super) struct MicroZap {
    block: Block,
    index: OnceLock<Vec<Indexed>>,
}

/// Where an entry stands in the listing, and its slot in the block.
struct Indexed {
    position: ZapPosition,
    slot: usize,
}

impl MicroZap {
    /// Takes a block that [`Micro::parse`] accepts.
    pub(super) fn new(block: Block) -> Result<MicroZap> {
        Micro::parse(&block)?;
        Ok(MicroZap { block, index: OnceLock::new() })
    }

    pub(super) fn salt(&self) -> u64 {
        self.micro().salt()
    }

    pub(super) fn prep(&self) -> TextPrep {
        self.micro().prep()
    }

    pub(super) fn block_size(&self) -> usize {
        self.block.len()
    }

    pub(super) fn len(&self) -> u64 {
        self.micro().entries().count() as u64
    }

    pub(super) fn find(&self, wanted: &WantedName<'_>) -> Option<(Vec<u8>, ZapValue)> {
        let micro = self.micro();
        let found = if micro.prep().is_exact() {
            micro.entries().find(|entry| wanted.name == entry.name)
        } else {
            let hash = hash_name(micro.salt(), FLAGS, &wanted.hashed);
            let index = self.index();
            let first = index.partition_point(|indexed| indexed.position.hash < hash);
            let same_hash = index[first..].iter().take_while(|indexed| indexed.position.hash == hash);
            same_hash.filter_map(|indexed| micro.entry(indexed.slot)).find(|entry| wanted.is(entry.name))
        };
        found.map(|entry| (entry.name.to_vec(), ZapValue::one(entry.value)))
    }

    pub(super) fn entries_from(&self, cookie: u64) -> impl Iterator<Item = ZapEntry> {
        let from = ZapPosition::from_cookie(cookie, FLAGS);
        let index = self.index();
        let first = index.partition_point(|indexed| indexed.position < from);
        let micro = self.micro();
        index[first..].iter().filter_map(move |indexed| {
            let MicroEntry { name, value, .. } = micro.entry(indexed.slot)?;
            let cookie = indexed.position.cookie_after(FLAGS);
            Some(ZapEntry { name: ZapKey::Bytes(name.to_vec()), value: ZapValue::one(value), cookie })
        })
    }

    fn micro(&self) -> Micro<'_> {
        Micro::parse(&self.block).expect("parsed when the table was opened")
    }

    fn index(&self) -> &[Indexed] {
        self.index.get_or_init(|| {
            let micro = self.micro();
            let (salt, prep) = (micro.salt(), micro.prep());
            let indexed = |slot| {
                let entry = micro.entry(slot)?;
                let hash = match prep.is_exact() {
                    true => hash_name(salt, FLAGS, entry.name),
                    false => hash_name(salt, FLAGS, &prep.apply(entry.name)),
                };
                Some(Indexed { position: ZapPosition { hash, cd: entry.cd }, slot })
            };
            let mut index: Vec<Indexed> = (0..micro.slots()).filter_map(indexed).collect();
            index.sort_by_key(|indexed| indexed.position);
            index
        })
    }
}
