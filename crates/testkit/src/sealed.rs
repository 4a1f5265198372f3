//! Encrypted datasets of the corpus, with their keys; and all of their blocks.

use std::fs;
use std::sync::Arc;

use base::{Bookmark, Error, Result};
use dmu::{Keep, Mode, Objset, ReadRequest};
use dsl::{Dataset, SetOfKeys};
use format::blkptr::BlkPtr;
use format::dnode::{Dnode, SLOT_SIZE};
use format::objset::ObjsetPhys;
use pool::Pool;

use crate::corpus::Case;

/// Number that bookmarks have for spill blocks.
const SPILL: u64 = u64::MAX;

/// A block of an encrypted set.
#[derive(Clone, Copy, Debug)]
pub struct SealedBlock {
    /// Its pointer.
    pub bp: BlkPtr,
    /// Where it is.
    pub bookmark: Bookmark,
}

impl SealedBlock {
    /// How it is asked for.
    pub fn request(&self) -> ReadRequest {
        ReadRequest { bp: self.bp, bookmark: self.bookmark, mode: Mode::Plain }
    }
}

/// What the file with the key of an encryption root holds, without the end of its line. Errors: `Corrupt` if the case has
/// no such key.
pub fn key_text(case: &Case, root: &str, is_raw: bool) -> Result<Vec<u8>> {
    let path = case.dir().join("keys").join(format!("{}.key", root.replace('/', "+")));
    let mut text = fs::read(path).map_err(|e| Error::corrupt(format!("the key of {root}: {e}")))?;
    if !is_raw && text.ends_with(b"\n") {
        text.pop();
    }
    Ok(text)
}

/// The keys of an encrypted dataset or snapshot. Errors: those of unwrapping them.
pub fn keys(case: &Case, pool: &Pool, dataset: &Dataset) -> Result<Arc<SetOfKeys>> {
    let dir = pool.dsl().find_dir(dataset.name.split('@').next().unwrap_or(&dataset.name))?;
    let none = || Error::corrupt("no key object");
    let root = pool.dsl().encryption_root(&dir)?.ok_or_else(none)?;
    let mut text = key_text(case, &root.name, root.format == dsl::KeyFormat::Raw)?;
    let keys = pool.dsl().unwrap_keys(&dir, &root.wrapping_key(&mut text)?)?;
    keys.map(Arc::new).ok_or_else(none)
}

/// All encrypted datasets and snapshots of a pool.
pub fn datasets(pool: &Pool) -> Result<Vec<Dataset>> {
    let mut all = Vec::new();
    for dir in pool.dsl().walk()?.into_iter().filter(|dir| dir.phys.head_dataset.is_some()) {
        let head = pool.dsl().head(&dir)?;
        all.extend(pool.dsl().snapshots(&head)?);
        all.push(head);
    }
    all.retain(|dataset| dataset.phys.bp.uses_crypt());
    Ok(all)
}

/// All blocks of a set that was opened with its keys, but those of its log. Errors: of the first that cannot be read.
pub fn blocks(objset: &Objset) -> Result<Vec<SealedBlock>> {
    let head = Bookmark { objset: objset.id().get(), object: 0, level: Objset::HEAD_LEVEL, blkid: 0 };
    let mut all = vec![SealedBlock { bp: objset.rootbp(), bookmark: head }];
    let contents = objset.cache().get(all[0].request(), Keep::NOTHING)?;
    let phys = ObjsetPhys::parse(&contents)?;
    below(objset, 0, &phys.meta_dnode, &mut all)?;
    for (dnode, number) in phys.accounting.iter().flatten().zip(1..) {
        below(objset, u64::MAX - number, dnode, &mut all)?;
    }
    Ok(all)
}

/// What is below a dnode.
fn below(objset: &Objset, object: u64, dnode: &Dnode, all: &mut Vec<SealedBlock>) -> Result<()> {
    let at = |level: i64, blkid| Bookmark { objset: objset.id().get(), object, level, blkid };
    let top = i64::from(dnode.levels) - 1;
    let mut waiting: Vec<SealedBlock> =
        (0..).zip(&dnode.blkptrs).map(|(blkid, bp)| SealedBlock { bp: *bp, bookmark: at(top, blkid) }).collect();
    waiting.extend(dnode.spill.map(|bp| SealedBlock { bp, bookmark: at(0, SPILL) }));
    while let Some(block) = waiting.pop() {
        if block.bp.is_hole() {
            continue;
        }
        all.push(block);
        let contents = objset.cache().get(block.request(), Keep::NOTHING)?;
        let Bookmark { level, blkid, .. } = block.bookmark;
        if level > 0 {
            let first = blkid << dnode.pointers_shift();
            let pointers = (first..).zip(BlkPtr::slice(&contents));
            waiting.extend(pointers.map(|(blkid, bp)| SealedBlock { bp: *bp, bookmark: at(level - 1, blkid) }));
        } else if object == 0 {
            let first = blkid * (contents.len() / SLOT_SIZE) as u64;
            let mut slot = 0;
            while slot * SLOT_SIZE < contents.len() {
                let bytes = &contents[slot * SLOT_SIZE..];
                if let Some(dnode) = Dnode::parse(bytes)? {
                    below(objset, first + slot as u64, &dnode, all)?;
                }
                slot += Dnode::slots_at(bytes)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
