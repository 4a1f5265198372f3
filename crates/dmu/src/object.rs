//! Objects: reading the bytes under a dnode.

use std::sync::{Arc, Mutex};

use base::{AlignedBuf, Bookmark, Error, Result, ResultExt};
use format::blkptr::BlkPtr;
use format::dnode::Dnode;

use crate::prefetch::Stream;
use crate::{Block, Objset, ReadRequest};

/// An allocated object; clones are cheap and share the state of sequential reading.
#[derive(Clone)]
pub struct Object {
    objset: Arc<Objset>,
    id: u64,
    dnode: Arc<Dnode>,
    stream: Arc<Mutex<Stream>>,
}

impl Object {
    /// The number that bookmarks give a spill block.
    pub(crate) const SPILL_BLKID: u64 = u64::MAX - 1;

    pub(crate) fn new(objset: Arc<Objset>, id: u64, dnode: Arc<Dnode>) -> Object {
        Object { objset, id, dnode, stream: Arc::default() }
    }

    /// An object whose dnode lies outside the meta dnode, such as those of space accounting.
    pub fn outside(objset: Arc<Objset>, id: u64, dnode: Dnode) -> Object {
        Object::new(objset, id, Arc::new(dnode))
    }

    /// Its number.
    pub fn id(&self) -> u64 {
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
        Bookmark { objset: self.objset.id(), object: self.id, level: level.into(), blkid }
    }

    /// Adds the place of one of its blocks to an error that has none yet.
    pub fn placed(&self, error: Error, level: u8, blkid: u64) -> Error {
        error.at_block(self.bookmark(level, blkid)).in_dataset(self.objset.name())
    }

    /// The spill block, which continues the bonus buffer; `None` if there is none.
    pub fn spill(&self) -> Result<Option<Block>> {
        match self.dnode.spill {
            Some(bp) if !bp.is_hole() => self.get(bp, 0, Object::SPILL_BLKID).map(Some),
            _ => Ok(None),
        }
    }

    /// Data block number `blkid`; a hole reads as zeros.
    pub fn block(&self, blkid: u64) -> Result<Block> {
        let size = self.block_size()?;
        let bp = self.data_pointer(blkid)?;
        if bp.is_hole() { Ok(AlignedBuf::zeroed(size as usize).into()) } else { self.get(bp, 0, blkid) }
    }

    /// Fills `buf` from byte `offset` on; what is not there reads as zeros.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = self.block_size()?;
        if buf.is_empty() {
            return Ok(());
        }
        let last = offset.saturating_add(buf.len() as u64 - 1);
        let blkids = offset / size..=last / size;
        self.read_ahead(offset, buf.len() as u64);

        let mut requests = Vec::new();
        let mut bps = Vec::new();
        for blkid in blkids.clone() {
            let bp = self.data_pointer(blkid)?;
            if !bp.is_hole() {
                requests.push(self.request(bp, 0, blkid));
            }
            bps.push(bp);
        }
        let mut blocks = self.objset.cache().get_batch(&requests).into_iter();
        let mut rest = buf;
        let mut skip = (offset % size) as usize;
        for bp in bps {
            let (part, tail) = rest.split_at_mut(rest.len().min(size as usize - skip));
            if bp.is_hole() {
                part.fill(0);
            } else {
                let block = blocks.next().expect("one block a request").in_dataset(self.objset.name())?;
                part.copy_from_slice(&block[skip..skip + part.len()]);
            }
            rest = tail;
            skip = 0;
        }
        Ok(())
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

    /// The pointer to data block `blkid`, or a hole; checked against what the dnode says.
    pub fn data_pointer(&self, blkid: u64) -> Result<BlkPtr> {
        self.lowest_pointer(blkid).map(|(bp, _)| bp)
    }

    /// The pointer to data block `blkid` and 0, or the hole that covers it and that hole's level.
    pub(crate) fn lowest_pointer(&self, blkid: u64) -> Result<(BlkPtr, u8)> {
        let dnode = &*self.dnode;
        let top = dnode.levels - 1;
        if blkid > dnode.block_max {
            return Ok((BlkPtr::HOLE, 0));
        }
        let index_at = |level: u8| blkid.checked_shr(u32::from(level) * self.pointers_shift()).unwrap_or(0);
        let mut level = top;
        let Some(mut bp) = usize::try_from(index_at(top)).ok().and_then(|i| dnode.blkptrs.get(i)).copied() else {
            let what = format!("block {blkid} is beyond the dnode's {} levels", dnode.levels);
            return Err(self.placed(Error::corrupt(what), 0, blkid));
        };
        while level > 0 && !bp.is_hole() {
            let block = self.get(bp, level, index_at(level))?;
            level -= 1;
            let in_block = index_at(level) & ((1 << self.pointers_shift()) - 1);
            bp = BlkPtr::slice(&block)[in_block as usize];
        }
        if !bp.is_hole() {
            self.check(&bp, 0, blkid)?;
        }
        Ok((bp, level))
    }

    fn pointers_shift(&self) -> u32 {
        if self.dnode.levels == 1 { 0 } else { self.dnode.pointers_shift() }
    }

    /// Reads a block of this object through the cache.
    fn get(&self, bp: BlkPtr, level: u8, blkid: u64) -> Result<Block> {
        self.check(&bp, level, blkid)?;
        self.objset.cache().get(self.request(bp, level, blkid)).in_dataset(self.objset.name())
    }

    pub(crate) fn request(&self, bp: BlkPtr, level: u8, blkid: u64) -> ReadRequest {
        ReadRequest { bp, bookmark: self.bookmark(level, blkid), mode: self.objset.mode() }
    }

    /// Refuses a pointer whose level or size is not what its place in the tree demands.
    fn check(&self, bp: &BlkPtr, level: u8, blkid: u64) -> Result<()> {
        let size = match level {
            0 if blkid == Object::SPILL_BLKID => bp.lsize(),
            0 => self.dnode.block_size,
            _ => 1 << self.dnode.indirect_shift,
        };
        if bp.level() != level || bp.lsize() != size {
            let what = format!(
                "pointer to a level {} block of {} bytes where level {level} and {size} bytes belong",
                bp.level(),
                bp.lsize()
            );
            return Err(self.placed(Error::corrupt(what), level, blkid));
        }
        Ok(())
    }

    pub(crate) fn block_size(&self) -> Result<u64> {
        match self.dnode.block_size {
            0 => Err(self.placed(Error::corrupt("dnode with data blocks of 0 bytes"), 0, 0)),
            size => Ok(size),
        }
    }

    /// Starts reading what a sequential reader will ask for next.
    fn read_ahead(&self, offset: u64, len: u64) {
        let ahead = {
            let mut stream = self.stream.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            stream.advance(offset, len, self.dnode.size_max())
        };
        for range in ahead {
            let object = self.clone();
            // errors are for the reader who asks for the block
            self.objset.cache().zio().env().background(move || drop(object.load(range)));
        }
    }

    /// Starts reading data blocks that will be asked for soon.
    pub fn prefetch(&self, blkids: Vec<u64>) {
        let object = self.clone();
        // errors are for the reader who asks for the block
        self.objset.cache().zio().env().background(move || drop(object.load_blocks(blkids)));
    }

    /// Brings the blocks of a byte range into the cache.
    fn load(&self, range: std::ops::Range<u64>) -> Result<()> {
        let size = self.block_size()?;
        self.load_blocks(range.start / size..range.end.div_ceil(size))
    }

    fn load_blocks(&self, blkids: impl IntoIterator<Item = u64>) -> Result<()> {
        let mut requests = Vec::new();
        for blkid in blkids {
            let bp = self.data_pointer(blkid)?;
            let request = self.request(bp, 0, blkid);
            if !bp.is_hole() && !bp.is_embedded() && self.objset.cache().peek(&request).is_none() {
                requests.push(request);
            }
        }
        self.objset.cache().get_batch(&requests).into_iter().try_for_each(|block| block.map(drop))
    }
}
