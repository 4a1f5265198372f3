//! Changing an object: its bytes, its bonus buffer, its spill block.
//!
//! A block that is only partly overwritten is read first, without a lock held; then the change is made to
//! a copy in the open layer, unless another writer put one there meanwhile.

use base::{AlignedBuf, Block, Bookmark, Data, Error, Kind, Result};
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::ids::Txg;
use zio::Compressed;

use crate::node::{BlockSource, Node, NodeState, SPILL_BLKID};
use crate::zap::ZapStore;
use crate::{Object, Tx};

use std::sync::Arc;

impl Object {
    /// Writes `data` from byte `offset` on; the object grows as needed. What comes in a block of the size of
    /// those of the object is not copied. Errors: those of reading blocks that are partly overwritten; `TooBig`
    /// beyond the last block that can be.
    pub fn write<'a>(&self, tx: &Tx<'_>, offset: u64, data: impl Into<Data<'a>>) -> Result<()> {
        let size = self.current_block_size()?;
        let mut rest = data.into();
        let mut at = offset;
        while !rest.is_empty() {
            let skip = (at % size) as usize;
            let len = rest.len().min(size as usize - skip);
            let part = rest.part(0..len);
            match part.as_block().filter(|block| block.len() as u64 == size) {
                Some(block) => self.replace(tx, at / size, block, None)?,
                None => self.modify(tx, at / size, len as u64 == size, &mut |block| {
                    part.copy_to(&mut block[skip..skip + len]);
                    Ok(())
                })?,
            }
            at = at.checked_add(len as u64).ok_or_else(too_big)?;
            rest = rest.part(len..usize::MAX);
        }
        Ok(())
    }

    /// Writes what comes with its compressed form, which is what will be on disk if the object's blocks are of that
    /// size and nothing else is written there meanwhile. Errors: as from [`Object::write`].
    pub fn write_compressed(&self, tx: &Tx<'_>, offset: u64, new: &Block, compressed: Compressed) -> Result<()> {
        let size = self.current_block_size()?;
        if new.len() as u64 != size || !offset.is_multiple_of(size) {
            return self.write(tx, offset, &**new);
        }
        self.replace(tx, offset / size, new, Some(compressed))
    }

    /// Replaces one block, and shares the new one.
    fn replace(&self, tx: &Tx<'_>, blkid: u64, new: &Block, compressed: Option<Compressed>) -> Result<()> {
        let node = self.writable()?;
        if let BlockSource::OnDisk(tree) = self.find(blkid) {
            self.check_path(&tree, blkid)?;
        }
        let mut state = node.write();
        if state.dnode_mut()?.block_size != new.len() as u64 {
            return Err(Error::new(Kind::Invalid, "the size of blocks changed while one was written"));
        }
        self.enter(tx, node, &mut state)?;
        match state.open_block(tx, blkid) {
            Some(block) => *block = new.clone(),
            None => state.put_new(tx, blkid, new.clone())?,
        }
        if let Some(compressed) = compressed {
            state.put_compressed(blkid, new.clone(), compressed);
        }
        Ok(())
    }

    /// Changes one block by `f`, which gets its contents, or anything if it will write all of it.
    pub fn modify(
        &self,
        tx: &Tx<'_>,
        blkid: u64,
        whole: bool,
        f: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let node = self.writable()?;
        let mut read: Option<(Arc<Dnode>, Block)> = None;
        let mut clone: Option<(BlkPtr, Block)> = None;
        let mut is_checked = false;
        loop {
            let mut state = node.write();
            let size = state.dnode_mut()?.block_size as usize;
            let before = match state.find(blkid) {
                BlockSource::Changed(block) => block,
                BlockSource::OnDisk(tree) if !is_checked && (whole || blkid > tree.block_max) => {
                    drop(state);
                    self.check_path(&tree, blkid)?;
                    is_checked = true;
                    continue;
                }
                BlockSource::Hole | BlockSource::OnDisk(_) | BlockSource::Cloned(_) if whole => {
                    AlignedBuf::for_overwrite(size).into()
                }
                BlockSource::Hole => Block::zeroed(size),
                BlockSource::Cloned(bp) => match &clone {
                    Some((of, block)) if *of == bp => block.clone(),
                    _ => {
                        drop(state);
                        clone = Some((bp, self.get_clone(bp, blkid)?));
                        continue;
                    }
                },
                BlockSource::OnDisk(tree) => match &read {
                    Some((of, block)) if Arc::ptr_eq(of, &tree) => block.clone(),
                    _ => {
                        drop(state);
                        read = Some((tree.clone(), self.block_of(&tree, blkid, size)?));
                        continue;
                    }
                },
            };
            self.enter(tx, node, &mut state)?;
            match state.open_block(tx, blkid) {
                Some(block) => {
                    drop(before);
                    return f(block.make_mut());
                }
                None => {
                    let mut block = before;
                    f(block.make_mut())?;
                    return state.put_new(tx, blkid, block);
                }
            }
        }
    }

    /// Frees `len` bytes from `offset` on: whole blocks become holes, the rest of others zeros.
    pub fn free_range(&self, tx: &Tx<'_>, offset: u64, len: u64) -> Result<()> {
        let size = self.current_block_size()?;
        let end = offset.saturating_add(len);
        let (first, last) = (offset.div_ceil(size), end / size);
        if first > last {
            return self.zero(tx, offset, end);
        }
        if offset < first * size {
            self.zero(tx, offset, first * size)?;
        }
        if last.saturating_mul(size) < end {
            self.zero(tx, last * size, end)?;
        }
        if first < last {
            let node = self.writable()?;
            self.check_pointers(first..last)?;
            let mut state = node.write();
            self.enter(tx, node, &mut state)?;
            state.punch(first, last);
            tx.dirty(512);
        }
        Ok(())
    }

    /// Writes zeros within one block, if there is anything in it.
    fn zero(&self, tx: &Tx<'_>, from: u64, to: u64) -> Result<()> {
        let size = self.current_block_size()?;
        let blkid = from / size;
        let is_hole = match self.find(blkid) {
            BlockSource::Changed(_) | BlockSource::Cloned(_) => false,
            BlockSource::Hole => true,
            BlockSource::OnDisk(tree) => self.pointer(&tree, 0, blkid)?.0.is_hole(),
        };
        if is_hole || from == to {
            return Ok(());
        }
        let (skip, len) = ((from % size) as usize, (to - from) as usize);
        self.modify(tx, blkid, false, &mut |block| {
            block[skip..skip + len].fill(0);
            Ok(())
        })
    }

    /// Changes the dnode: its bonus buffer and types. Block pointers, levels and used bytes are not for
    /// callers to change.
    pub fn update(&self, tx: &Tx<'_>, f: impl FnOnce(&mut Dnode)) -> Result<()> {
        let node = self.writable()?;
        let mut state = node.write();
        self.enter(tx, node, &mut state)?;
        f(state.dnode_mut()?);
        Ok(())
    }

    /// Replaces the spill block; `None` removes it.
    pub fn set_spill(&self, tx: &Tx<'_>, contents: Option<&[u8]>) -> Result<()> {
        let node = self.writable()?;
        let mut state = node.write();
        self.enter(tx, node, &mut state)?;
        match contents {
            Some(bytes) => {
                let mut block = Block::zeroed(bytes.len().next_multiple_of(512));
                block.make_mut()[..bytes.len()].copy_from_slice(bytes);
                tx.dirty_block(block.len() as u64, 1);
                state.put(SPILL_BLKID, block);
                state.dnode_mut()?.spill.get_or_insert(BlkPtr::HOLE);
            }
            None => {
                state.punch(SPILL_BLKID, SPILL_BLKID + 1);
                state.dnode_mut()?.spill = None;
            }
        }
        Ok(())
    }

    /// Changes the size of its blocks while it has at most one; what is in that stays, cut or with zeros
    /// behind it. Errors: `Invalid` if it has more.
    pub fn set_block_size(&self, tx: &Tx<'_>, bytes: u64) -> Result<()> {
        let before = self.fresh()?;
        if before.dnode().block_size == bytes {
            return Ok(());
        }
        if before.dnode().block_max > 0 {
            return Err(Error::new(Kind::Invalid, "the size of many blocks cannot be changed"));
        }
        let old = if before.has_contents()? { Some(before.block(0)?) } else { None };
        let node = self.writable()?;
        let mut state = node.write();
        self.enter(tx, node, &mut state)?;
        let Some(old) = old else {
            state.dnode_mut()?.block_size = bytes;
            return Ok(());
        };
        let mut block = Block::zeroed(bytes as usize);
        let len = old.len().min(bytes as usize);
        block.make_mut()[..len].copy_from_slice(&old[..len]);
        state.dnode_mut()?.block_size = bytes;
        state.put(0, block);
        tx.dirty_block(bytes, 1);
        Ok(())
    }

    /// Whether there is anything of block 0: at least a hole that remembers when it was made, and its size.
    fn has_contents(&self) -> Result<bool> {
        Ok(match self.find(0) {
            BlockSource::Changed(_) | BlockSource::Cloned(_) => true,
            BlockSource::Hole => false,
            BlockSource::OnDisk(tree) => {
                let (bp, _) = self.pointer(&tree, 0, 0)?;
                !bp.is_hole() || bp.birth() != Txg::ZERO
            }
        })
    }

    /// This object with the dnode that it has now.
    pub fn fresh(&self) -> Result<Object> {
        let node = self.writable()?;
        let gone = || Error::new(Kind::NotFound, "object has been freed");
        Object::of_node(self.objset().clone(), node.clone()).ok_or_else(gone)
    }

    fn current_block_size(&self) -> Result<u64> {
        self.fresh()?.block_size()
    }

    pub(crate) fn writable(&self) -> Result<&Arc<Node>> {
        self.node().ok_or_else(|| Error::new(Kind::ReadOnly, "this object is open read-only"))
    }

    pub(crate) fn enter(&self, tx: &Tx<'_>, node: &Arc<Node>, state: &mut NodeState) -> Result<()> {
        if state.enter(tx) {
            self.objset().live()?.mark(tx.txg(), node);
            tx.dirty(512);
        }
        Ok(())
    }

    /// A block of the tree on disk, of `size` bytes.
    fn block_of(&self, tree: &Dnode, blkid: u64, size: usize) -> Result<Block> {
        let (bp, _) = self.pointer(tree, 0, blkid)?;
        if bp.is_hole() { Ok(Block::zeroed(size)) } else { self.get(tree, bp, 0, blkid) }
    }
}

/// An object and the group in which it is being changed: where a table is kept while it is edited.
pub struct Changing<'a> {
    object: &'a Object,
    tx: &'a Tx<'a>,
}

impl Object {
    /// This object, to be changed in `tx` by a [`crate::zap::Editor`].
    pub fn changing<'a>(&'a self, tx: &'a Tx<'a>) -> Changing<'a> {
        Changing { object: self, tx }
    }
}

impl ZapStore for Changing<'_> {
    fn block_size(&self) -> usize {
        // one without block size is refused by every other method
        self.object.block_size().map_or(0, |bytes| bytes as usize)
    }

    fn block(&self, blkid: u64) -> Result<Block> {
        self.object.block(blkid)
    }

    fn modify(&self, blkid: u64, f: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<()> {
        self.object.modify(self.tx, blkid, false, f)
    }

    fn set_block_size(&self, bytes: usize) -> Result<()> {
        self.object.set_block_size(self.tx, bytes as u64)
    }

    fn discard(&self, first: u64, count: u64) -> Result<()> {
        let size = self.object.block_size()?;
        self.object.free_range(self.tx, first.saturating_mul(size), count.saturating_mul(size))
    }

    fn bookmark(&self, blkid: u64) -> Bookmark {
        self.object.bookmark(0, blkid)
    }
}

fn too_big() -> Error {
    Error::new(Kind::TooBig, "beyond the largest offset")
}
