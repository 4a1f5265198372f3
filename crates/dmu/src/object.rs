//! Objects: reading the bytes under a dnode.

use std::sync::Arc;

use base::{Bookmark, CopyKind, Error, Mutex, Piece, Result, ResultExt, count_copy};
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::ids::ObjectId;

use crate::node::{BlockSource, Node, SPILL_BLKID};
use crate::prefetch::{self, Streams};
use crate::{Block, Keep, Objset, OnFailure, ReadRequest, Which};

/// Blocks of an object that [`Object::cached_bytes`] looks at.
const LOOKS_MAX: u64 = 1 << 20;

/// An allocated object; clones are cheap and share the state of sequential reading.
///
/// In a set that is being changed, what is read from it is what it holds at that moment; its dnode is as
/// it was when this handle was got.
#[derive(Clone)]
pub struct Object {
    objset: Arc<Objset>,
    id: ObjectId,
    dnode: Arc<Dnode>,
    streams: Arc<Mutex<Streams>>,
    node: Option<Arc<Node>>,
    is_direct: bool,
}

/// A pointer, its level, and the block that it is in, with the pointer to that.
type PointerAndAbove = (BlkPtr, u8, Option<(BlkPtr, Block)>);

impl Object {
    pub(crate) fn new(objset: Arc<Objset>, id: ObjectId, dnode: Arc<Dnode>) -> Object {
        Object { objset, id, dnode, streams: Arc::default(), node: None, is_direct: false }
    }

    /// The object of a node; `None` if it has been freed.
    pub(crate) fn of_node(objset: Arc<Objset>, node: Arc<Node>) -> Option<Object> {
        let dnode = node.read().dnode.clone()?;
        let (id, streams) = (node.id, node.streams.clone());
        Some(Object { objset, id, dnode, streams, node: Some(node), is_direct: false })
    }

    /// The same, read past the cache: what is in there is used, but data that is not does not go there, and nothing
    /// is read ahead.
    pub fn direct(&self) -> Object {
        Object { is_direct: true, ..self.clone() }
    }

    /// The same, to read what nobody waits for yet: without waiting for devices that fail.
    fn ahead_of_readers(&self) -> Object {
        Object { objset: self.objset.reading(OnFailure::Fail), ..self.clone() }
    }

    /// Its changes, if its set is being changed.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    /// The dnode of its tree on disk.
    pub(crate) fn tree(&self) -> Arc<Dnode> {
        self.node.as_ref().map_or_else(|| self.dnode.clone(), |node| node.read().tree.clone())
    }

    /// Where a block is.
    pub(crate) fn find(&self, blkid: u64) -> BlockSource {
        self.node.as_ref().map_or_else(|| BlockSource::OnDisk(self.dnode.clone()), |node| node.read().find(blkid))
    }

    /// An object whose dnode lies outside the meta dnode, such as those of space accounting.
    pub fn outside(objset: Arc<Objset>, id: ObjectId, dnode: Dnode) -> Object {
        Object::new(objset, id, Arc::new(dnode))
    }

    /// Its number.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Its set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// Its dnode.
    pub fn dnode(&self) -> &Dnode {
        &self.dnode
    }

    /// The contents of its bonus buffer.
    pub fn bonus(&self) -> &[u8] {
        &self.dnode.bonus
    }

    /// The address of one of its blocks, for errors.
    pub fn bookmark(&self, level: u8, blkid: u64) -> Bookmark {
        Bookmark { objset: self.objset.id().get(), object: self.id.get(), level: level.into(), blkid }
    }

    /// Adds the place of one of its blocks to an error that has none yet.
    pub fn placed(&self, error: Error, level: u8, blkid: u64) -> Error {
        error.at_block(self.bookmark(level, blkid)).in_dataset(self.objset.name())
    }

    /// The spill block, which continues the bonus buffer; `None` if there is none.
    pub fn spill(&self) -> Result<Option<Block>> {
        let on_disk = match self.find(SPILL_BLKID) {
            BlockSource::Changed(block) => return Ok(Some(block)),
            BlockSource::Cloned(_) | BlockSource::Hole => return Ok(None),
            BlockSource::OnDisk(tree) => tree.spill,
        };
        match on_disk {
            Some(bp) if !bp.is_hole() => self.get(&self.dnode, bp, 0, SPILL_BLKID).map(Some),
            _ => Ok(None),
        }
    }

    /// Data block number `blkid`; a hole reads as zeros.
    pub fn block(&self, blkid: u64) -> Result<Block> {
        let size = self.block_size()?;
        let tree = match self.find(blkid) {
            BlockSource::Changed(block) => return Ok(block),
            BlockSource::Cloned(bp) => return self.get_clone(bp, blkid),
            BlockSource::Hole => return Ok(Block::zeroed(size as usize)),
            BlockSource::OnDisk(tree) => tree,
        };
        let (bp, _) = self.pointer(&tree, 0, blkid)?;
        if bp.is_hole() { Ok(Block::zeroed(size as usize)) } else { self.get(&tree, bp, 0, blkid) }
    }

    /// Fills `buf` from byte `offset` on; what is not there reads as zeros.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        count_copy(CopyKind::IntoBuffers, buf.len());
        let mut rest = buf;
        for piece in self.read_pieces(offset, rest.len())? {
            let (part, tail) = rest.split_at_mut(piece.len());
            part.copy_from_slice(&piece);
            rest = tail;
        }
        Ok(())
    }

    /// The `len` bytes from byte `offset` on, in the blocks that hold them; what is not there reads as zeros.
    pub fn read_pieces(&self, offset: u64, len: usize) -> Result<Vec<Piece>> {
        let size = self.block_size()?;
        if len == 0 {
            return Ok(Vec::new());
        }
        let last = offset.saturating_add(len as u64 - 1);
        if !self.is_direct {
            self.read_ahead(offset, len as u64);
        }

        let mut requests = Vec::new();
        let mut found = Vec::new();
        for blkid in offset / size..=last / size {
            found.push(match self.find(blkid) {
                BlockSource::OnDisk(tree) => match self.pointer(&tree, 0, blkid)?.0 {
                    bp if bp.is_hole() => BlockSource::Hole,
                    bp => {
                        requests.push(self.request(bp, 0, blkid));
                        BlockSource::OnDisk(tree)
                    }
                },
                BlockSource::Cloned(bp) => {
                    requests.push(self.request(bp, 0, blkid));
                    BlockSource::Cloned(bp)
                }
                other => other,
            });
        }
        let keep = if self.is_direct { Keep::NOTHING } else { self.objset.keep() };
        let mut blocks = self.objset.cache().get_batch(&requests, keep).into_iter();
        let mut pieces = Vec::with_capacity(found.len());
        let mut rest = len;
        let mut skip = (offset % size) as usize;
        for found in found {
            let part = rest.min(size as usize - skip);
            let block = match found {
                BlockSource::Hole => None,
                BlockSource::Changed(block) => Some(block),
                BlockSource::OnDisk(_) | BlockSource::Cloned(_) => {
                    Some(blocks.next().expect("one block a request").in_dataset(self.objset.name())?)
                }
            };
            match block {
                Some(block) => pieces.push(Piece::of(block, skip..skip + part)),
                None => pieces.extend(Piece::zeros(part)),
            }
            rest -= part;
            skip = 0;
        }
        Ok(pieces)
    }

    /// All the bytes up to `len`, which is at most `len_max`: for small objects that are read whole.
    pub fn read_whole(&self, len: u64, len_max: u64) -> Result<Vec<u8>> {
        if len > len_max {
            let what = format!("object of {len} bytes where {len_max} are the most");
            return Err(self.placed(Error::corrupt(what), 0, 0));
        }
        let mut bytes = vec![0; len as usize];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// The pointer on disk to data block `blkid`, or a hole; checked against what the dnode says.
    pub fn data_pointer(&self, blkid: u64) -> Result<BlkPtr> {
        self.pointer(&self.tree(), 0, blkid).map(|(bp, _)| bp)
    }

    /// The pointer on disk to block `blkid` of any level, or to the spill block; a hole if there is none.
    pub fn pointer_on_disk(&self, level: u8, blkid: u64) -> Result<BlkPtr> {
        let tree = self.tree();
        match blkid {
            SPILL_BLKID => Ok(tree.spill.unwrap_or(BlkPtr::HOLE)),
            _ => self.pointer(&tree, level, blkid).map(|(bp, at)| if at == level { bp } else { BlkPtr::HOLE }),
        }
    }

    /// The number of the block of a level that leads to data block `blkid`; of level 0, the same.
    pub fn number_above(&self, level: u8, blkid: u64) -> u64 {
        let tree = self.tree();
        let shift = if tree.levels == 1 { 0 } else { tree.pointers_shift() };
        blkid.checked_shr(u32::from(level) * shift).unwrap_or(0)
    }

    /// The number of the last block of a level that it can have.
    pub fn last_block(&self, level: u8) -> u64 {
        self.number_above(level, self.tree().block_max)
    }

    /// Bytes of its blocks on disk that are in memory, as long as they are unpacked. Nothing is read: what lies below a
    /// block that is not there does not count. Of an object of very many blocks, the first [`LOOKS_MAX`] are looked at.
    pub fn cached_bytes(&self) -> u64 {
        let tree = self.tree();
        let (top, mut looks) = (tree.levels.saturating_sub(1), LOOKS_MAX);
        (0..).zip(&tree.blkptrs).map(|(blkid, bp)| self.cached_below(&tree, bp, (top, blkid), &mut looks)).sum()
    }

    fn cached_below(&self, tree: &Dnode, bp: &BlkPtr, (level, blkid): (u8, u64), looks: &mut u64) -> u64 {
        if *looks == 0 || bp.is_hole() || self.check(tree, bp, level, blkid).is_err() {
            return 0;
        }
        *looks -= 1;
        let request = self.request(*bp, level, blkid);
        let (cache, keep) = (self.objset.cache(), self.objset.keep());
        if level == 0 {
            return if cache.holds(&request, keep) { bp.lsize() } else { 0 };
        }
        let Some(block) = cache.peek(&request, keep) else { return 0 };
        let first = blkid.checked_shl(tree.pointers_shift()).unwrap_or(u64::MAX);
        let below = (0..)
            .zip(BlkPtr::slice(&block))
            .map(|(at, bp)| self.cached_below(tree, bp, (level - 1, first.saturating_add(at)), looks));
        below.fold(bp.lsize(), u64::saturating_add)
    }

    /// In a tree of this object: the pointer to block `blkid` of level `to`, and `to`; or the hole that
    /// covers it, and that hole's level.
    pub(crate) fn pointer(&self, tree: &Dnode, to: u8, blkid: u64) -> Result<(BlkPtr, u8)> {
        self.pointer_and_above(tree, to, blkid).map(|(bp, level, _)| (bp, level))
    }

    /// As [`Object::pointer`], and the block that it is in, with the pointer to that; `None` if that is the dnode.
    pub(crate) fn pointer_and_above(&self, tree: &Dnode, to: u8, blkid: u64) -> Result<PointerAndAbove> {
        let top = tree.levels - 1;
        let shift = if top == 0 { 0 } else { tree.pointers_shift() };
        let index_at = |level: u8| blkid.checked_shr(u32::from(level - to) * shift).unwrap_or(0);
        if to > top || blkid > tree.block_max.checked_shr(u32::from(to) * shift).unwrap_or(0) {
            return Ok((BlkPtr::HOLE, to, None));
        }
        let mut level = top;
        let Some(mut bp) = usize::try_from(index_at(top)).ok().and_then(|i| tree.blkptrs.get(i)).copied() else {
            let what = format!("block {blkid} is beyond the dnode's {} levels", tree.levels);
            return Err(self.placed(Error::corrupt(what), to, blkid));
        };
        let mut above = None;
        while level > to && !bp.is_hole() {
            let block = self.get(tree, bp, level, index_at(level))?;
            level -= 1;
            let in_block = index_at(level) & ((1 << shift) - 1);
            let below = BlkPtr::slice(&block)[in_block as usize];
            above = Some((bp, block));
            bp = below;
        }
        if !bp.is_hole() {
            self.check(tree, &bp, to, blkid)?;
        }
        Ok((bp, level, above))
    }

    /// Reads a block of a tree of this object through the cache.
    pub(crate) fn get(&self, tree: &Dnode, bp: BlkPtr, level: u8, blkid: u64) -> Result<Block> {
        self.check(tree, &bp, level, blkid)?;
        self.objset.cache().get(self.request(bp, level, blkid), self.objset.keep()).in_dataset(self.objset.name())
    }

    /// Reads a block that is in no tree yet.
    pub(crate) fn get_clone(&self, bp: BlkPtr, blkid: u64) -> Result<Block> {
        self.objset.cache().get(self.request(bp, 0, blkid), self.objset.keep()).in_dataset(self.objset.name())
    }

    pub(crate) fn request(&self, bp: BlkPtr, level: u8, blkid: u64) -> ReadRequest {
        ReadRequest { bp, bookmark: self.bookmark(level, blkid), mode: self.objset.mode() }
    }

    /// Refuses a pointer whose level or size is not what its place in the tree demands.
    fn check(&self, tree: &Dnode, bp: &BlkPtr, level: u8, blkid: u64) -> Result<()> {
        let size = match level {
            0 if blkid == SPILL_BLKID => bp.lsize(),
            0 => tree.block_size,
            _ => 1 << tree.indirect_shift,
        };
        if bp.level() != level || bp.lsize() != size {
            let what = format!(
                "pointer to a level {} block of {} bytes where level {level} and {size} bytes belong",
                bp.level(),
                bp.lsize()
            );
            return Err(self.placed(Error::corrupt(what), level, blkid));
        }
        if level > 0 && bp.is_embedded() {
            return Err(self.placed(Error::corrupt("block that leads to others is in its pointer"), level, blkid));
        }
        Ok(())
    }

    pub(crate) fn block_size(&self) -> Result<u64> {
        let now = self.node.as_ref().and_then(|node| node.read().dnode.as_ref().map(|dnode| dnode.block_size));
        match now.unwrap_or(self.dnode.block_size) {
            0 => Err(self.placed(Error::corrupt("dnode with data blocks of 0 bytes"), 0, 0)),
            size => Ok(size),
        }
    }

    /// Starts reading what a sequential reader will ask for next.
    fn read_ahead(&self, offset: u64, len: u64) {
        let cache = self.objset.cache();
        if !cache.ahead().is_enabled() || self.objset.ahead() == Which::Nothing {
            return;
        }
        let ranges = {
            let mut streams = self.streams.lock();
            streams.advance(offset, len, self.dnode.size_max(), cache.ahead())
        };
        for lot in prefetch::lots(ranges) {
            let object = self.ahead_of_readers();
            // errors are for the reader that asks for the block
            cache.zio().env().background(move || drop(object.load(lot)));
        }
    }

    /// Starts reading data blocks that will be asked for soon.
    pub fn prefetch(&self, blkids: Vec<u64>) {
        if self.objset.ahead() == Which::Nothing {
            return;
        }
        let object = self.ahead_of_readers();
        // errors are for the reader that asks for the block
        self.objset.cache().zio().env().background(move || drop(object.load_blocks(blkids)));
    }

    /// Brings the blocks of byte ranges, which are in order, into the cache; of data whose dataset wants no more, just
    /// the pointers to them.
    fn load(&self, ranges: Vec<std::ops::Range<u64>>) -> Result<()> {
        let size = self.block_size()?;
        let mut blkids: Vec<u64> =
            ranges.into_iter().flat_map(|range| range.start / size..range.end.div_ceil(size)).collect();
        blkids.dedup();
        self.objset.cache().ahead().issue(|| self.load_blocks(blkids))
    }

    fn load_blocks(&self, blkids: impl IntoIterator<Item = u64>) -> Result<()> {
        let with_blocks = self.objset.ahead() == Which::All || self.dnode.object_type.is_metadata();
        let mut requests = Vec::new();
        for blkid in blkids {
            let BlockSource::OnDisk(tree) = self.find(blkid) else { continue };
            let (bp, _) = self.pointer(&tree, 0, blkid)?;
            if with_blocks {
                requests.push(self.request(bp, 0, blkid));
            }
        }
        self.objset.cache().prefetch(&requests, self.objset.keep());
        Ok(())
    }
}
