//! Lists of block pointers kept in an object (`bpobj`): what is dead but not freed yet.
//!
//! ```text
//!   bonus: pointers u64 | bytes u64 | compressed u64 | uncompressed u64 | object of sublists u64 |
//!          sublists u64 | of the pointers, those that tell of a free u64     (older ones are shorter)
//!   data:  the pointers, 128 bytes each
//! ```
//!
//! A sublist is another list, named in an array of object numbers. Pointers in a list have lost their
//! checksums, which makes the list compress better, so they cannot be read.
//!
//! [`Bpobj`] changes a list: pointers are added at its end, and taken off from there.
//!
//! Invariant: a damaged list that contains itself ends, as each is entered once.

use std::collections::HashSet;
use std::sync::Arc;

use base::{Endian, Error, Kind, Reader, Result};
use format::blkptr::{BlkPtr, Embedded};
use format::dnode::Dnode;
use format::ids::ObjectId;
use format::object_type::ObjectType;

use crate::policy::INDIRECT_SHIFT;
use crate::{Object, Objset, Tx};

/// Bytes of a list that are read at once.
const CHUNK: usize = 128 << 10;
/// More sublists than any list has.
const SUBLISTS_MAX: u64 = 1 << 24;
/// Bytes of a block of a list, unless it is short of life.
pub const BLOCK_SIZE: u64 = 128 << 10;
/// Bytes of the bonus buffer of a list that tells of no frees, and of one that does.
const HEADER_SIZE: usize = 48;
const HEADER_SIZE_WITH_FREES: usize = 56;
/// How deep sublists may be in each other; OpenZFS makes one level.
const DEPTH_MAX: usize = 8;

/// A pointer in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedBlkPtr {
    /// The pointer, without its checksum.
    pub bp: BlkPtr,
    /// Whether it tells that the block was freed; in lists that also tell of allocations.
    pub is_free: bool,
}

/// Sizes of blocks, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes on disk.
    pub used: u64,
    /// Bytes after compression.
    pub compressed: u64,
    /// Bytes before compression; of metadata, after it.
    pub uncompressed: u64,
}

/// The head of a list.
#[derive(Clone, Copy, Debug, Default)]
struct BpobjHead {
    pointers: u64,
    totals: Totals,
    sublists_object: ObjectId,
    sublists: u64,
    frees: u64,
}

/// Calls `f` with each pointer of list `id` and of its sublists, until it fails.
pub fn for_each(objset: &Arc<Objset>, id: ObjectId, f: &mut dyn FnMut(ListedBlkPtr) -> Result<()>) -> Result<()> {
    let (mut entered, mut left) = (HashSet::new(), vec![id]);
    while let Some(id) = left.pop() {
        let object = objset.object(id)?;
        let at_list = |e: Error| e.at_block(object.bookmark(0, 0));
        if !entered.insert(id) {
            return Err(at_list(Error::corrupt("list of block pointers is in itself")));
        }
        let head = BpobjHead::of(&object).map_err(at_list)?;
        pointers(&object, head.pointers, f)?;
        left.extend(sublists(objset, &object, head)?);
    }
    Ok(())
}

fn pointers(object: &Object, count: u64, f: &mut dyn FnMut(ListedBlkPtr) -> Result<()>) -> Result<()> {
    let end = count.checked_mul(BlkPtr::SIZE as u64).filter(|end| *end <= object.dnode().size_max());
    let end = end.filter(|_| count > 0).unwrap_or(0);
    if end == 0 && count > 0 {
        let what = format!("list of {count} block pointers in an object of {} bytes", object.dnode().size_max());
        return Err(Error::corrupt(what).at_block(object.bookmark(0, 0)));
    }
    // a list has no holes; one that says so would take forever to read
    if end > 0 && object.next_hole(0..end)? < end {
        return Err(Error::corrupt(format!("list of {count} block pointers has holes")).at_block(object.bookmark(0, 0)));
    }
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    while at < end {
        let len = CHUNK.min((end - at) as usize);
        object.read(at, &mut buf[..len])?;
        let listed = |bp: &BlkPtr| ListedBlkPtr { bp: *bp, is_free: bp.is_free_mark() };
        BlkPtr::slice(&buf[..len]).iter().map(listed).try_for_each(&mut *f)?;
        at += len as u64;
    }
    Ok(())
}

fn sublists(objset: &Arc<Objset>, object: &Object, head: BpobjHead) -> Result<Vec<ObjectId>> {
    if head.sublists_object.is_none() || head.sublists == 0 {
        return Ok(Vec::new());
    }
    if head.sublists > SUBLISTS_MAX {
        let what = format!("list of block pointers with {} sublists", head.sublists);
        return Err(Error::corrupt(what).at_block(object.bookmark(0, 0)));
    }
    let bytes = objset.object(head.sublists_object)?.read_whole(head.sublists * 8, SUBLISTS_MAX * 8)?;
    Ok(bytes.chunks_exact(8).filter_map(|raw| Endian::Little.u64(raw)).map(ObjectId::new).collect())
}

impl BpobjHead {
    fn of(object: &Object) -> Result<BpobjHead> {
        let mut r = Reader::new(object.bonus(), Endian::Little);
        let pointers = r.u64().map_err(|_| Error::corrupt("object is no list of block pointers"))?;
        let mut later = || r.u64().unwrap_or(0);
        let totals = Totals { used: later(), compressed: later(), uncompressed: later() };
        Ok(BpobjHead { pointers, totals, sublists_object: ObjectId::new(later()), sublists: later(), frees: later() })
    }

    /// Writes it over a bonus buffer, as far as that goes: older ones end earlier.
    fn put(&self, bonus: &mut [u8]) {
        let Totals { used, compressed, uncompressed } = self.totals;
        let words =
            [self.pointers, used, compressed, uncompressed, self.sublists_object.get(), self.sublists, self.frees];
        for (place, word) in bonus.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
}

impl Totals {
    /// What one block counts for, of which `used` bytes are on disk.
    pub fn of(bp: &BlkPtr, used: u64) -> Totals {
        let compressed = if bp.is_embedded() { 0 } else { bp.psize() };
        let is_metadata = bp.level() > 0 || bp.object_type().is_metadata();
        let uncompressed = match bp.is_embedded() && bp.embedded() != Embedded::Data {
            _ if is_metadata => compressed,
            true => 0,
            false => bp.lsize(),
        };
        Totals { used, compressed, uncompressed }
    }

    /// The sum; it wraps.
    pub fn plus(self, other: Totals) -> Totals {
        Totals {
            used: self.used.wrapping_add(other.used),
            compressed: self.compressed.wrapping_add(other.compressed),
            uncompressed: self.uncompressed.wrapping_add(other.uncompressed),
        }
    }

    /// The difference; it wraps.
    pub fn minus(self, other: Totals) -> Totals {
        self.plus(other.negative())
    }

    fn negative(self) -> Totals {
        Totals {
            used: self.used.wrapping_neg(),
            compressed: self.compressed.wrapping_neg(),
            uncompressed: self.uncompressed.wrapping_neg(),
        }
    }
}

/// How many bytes on disk a block counts for.
pub type SizeOf<'a> = &'a dyn Fn(&BlkPtr) -> u64;

/// A list in a set that is being changed, by one thread.
pub struct Bpobj {
    object: Object,
}

impl Bpobj {
    /// Makes an empty list, and returns its object number. Lists that are short of life have blocks of
    /// less than [`BLOCK_SIZE`]; `compressed` is false for one that changes while a group converges, so that
    /// the space it takes does not depend on what is in it.
    pub fn create(objset: &Arc<Objset>, tx: &Tx<'_>, block_size: u64, compressed: bool) -> Result<ObjectId> {
        let mut dnode = Dnode::new(ObjectType::BPOBJ, block_size, INDIRECT_SHIFT, 1, 1);
        dnode.bonus_type = ObjectType::BPOBJ_HEADER;
        dnode.bonus = vec![0; HEADER_SIZE];
        if !compressed {
            dnode.compress = codec::compress::Compress::Off as u8;
        }
        Ok(objset.allocate(tx, dnode)?.id())
    }

    /// Makes an empty list that can tell of frees, too.
    pub fn create_with_frees(objset: &Arc<Objset>, tx: &Tx<'_>) -> Result<ObjectId> {
        let mut dnode = Dnode::new(ObjectType::BPOBJ, BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
        dnode.bonus_type = ObjectType::BPOBJ_HEADER;
        dnode.bonus = vec![0; HEADER_SIZE_WITH_FREES];
        Ok(objset.allocate(tx, dnode)?.id())
    }

    /// Makes an empty list of an older form, which knows no sublists: its head has so many words.
    pub fn create_old(objset: &Arc<Objset>, tx: &Tx<'_>, block_size: u64, words: usize) -> Result<ObjectId> {
        let mut dnode = Dnode::new(ObjectType::BPOBJ, block_size, INDIRECT_SHIFT, 1, 1);
        (dnode.bonus_type, dnode.bonus) = (ObjectType::BPOBJ_HEADER, vec![0; words * 8]);
        Ok(objset.allocate(tx, dnode)?.id())
    }

    /// List `id`. Errors: `NotFound`, `Corrupt` if it is none.
    pub fn open(objset: &Arc<Objset>, id: ObjectId) -> Result<Bpobj> {
        let object = objset.object(id)?;
        let list = Bpobj { object };
        list.head()?;
        if list.object.dnode().object_type != ObjectType::BPOBJ {
            return Err(list.at(Error::corrupt("object is no list of block pointers")));
        }
        Ok(list)
    }

    /// Sizes of all blocks in the list and its sublists.
    pub fn totals(&self) -> Result<Totals> {
        Ok(self.head()?.totals)
    }

    /// How many pointers are in it, without sublists, and how many of these tell of frees.
    pub fn counts(&self) -> Result<(u64, u64)> {
        self.head().map(|head| (head.pointers, head.frees))
    }

    /// Whether there is nothing in it, and no sublist.
    pub fn is_empty(&self) -> Result<bool> {
        let head = self.head()?;
        Ok(head.pointers == 0 && head.sublists == 0)
    }

    /// Adds blocks, none of them a hole. Errors: those of reading its last block.
    pub fn append(&self, tx: &Tx<'_>, bps: &[BlkPtr], size_of: SizeOf<'_>) -> Result<()> {
        self.append_marked(tx, bps, false, size_of)
    }

    /// The same; with `are_free`, it tells that they were freed, and its sizes become smaller by theirs. Errors: `Corrupt`
    /// if it is a list that cannot tell that.
    pub fn append_marked(&self, tx: &Tx<'_>, bps: &[BlkPtr], are_free: bool, size_of: SizeOf<'_>) -> Result<()> {
        let mut head = self.head()?;
        if are_free && self.object.bonus().len() < HEADER_SIZE_WITH_FREES {
            return Err(self.at(Error::corrupt("a list that cannot tell of frees")));
        }
        let mut bytes = Vec::with_capacity(std::mem::size_of_val(bps));
        for bp in bps {
            assert!(!bp.is_hole(), "a hole is put on a list of dead blocks");
            let mut one = stripped(bp);
            one[FREE_MARK_AT] = are_free.into();
            bytes.extend_from_slice(&one);
            let totals = Totals::of(bp, size_of(bp));
            head.totals = if are_free { head.totals.minus(totals) } else { head.totals.plus(totals) };
        }
        let more = bps.len() as u64;
        let Some(frees) = head.frees.checked_add(if are_free { more } else { 0 }) else {
            return Err(self.at(Error::corrupt(format!("a list with {} frees", head.frees))));
        };
        self.object.write(tx, head.pointers * BlkPtr::SIZE as u64, &bytes)?;
        self.set_head(tx, BpobjHead { pointers: head.pointers + more, frees, ..head })
    }

    /// Adds all that list `id` has, and is the only one to have that list from then on. What fits into one block is
    /// copied, and list `id` freed; what is more becomes a sublist, so that this takes no longer for long lists.
    ///
    /// Errors: `Unsupported` for a list of the oldest form, which knows no sublists; those of reading both.
    pub fn append_list(&self, tx: &Tx<'_>, id: ObjectId) -> Result<()> {
        let objset = self.object.objset();
        if id == self.object.id() {
            return Err(self.at(Error::corrupt("list of block pointers is in itself")));
        }
        let other = Bpobj::open(objset, id)?;
        let (mut head, mut theirs) = (self.head()?, other.head()?);
        if theirs.pointers == 0 && theirs.sublists == 0 {
            return Bpobj::free(objset, tx, id);
        }
        if self.object.bonus().len() < HEADER_SIZE {
            return Err(self.at(Error::new(Kind::Unsupported, "a list of dead blocks that knows no sublists")));
        }
        let names = match theirs.sublists_object {
            ObjectId::NONE => None,
            names => Some(objset.object(names)?),
        };
        let are_few = names.as_ref().is_none_or(|names| theirs.sublists * 8 <= names.dnode().block_size);
        let is_short = theirs.pointers * BlkPtr::SIZE as u64 <= other.object.dnode().block_size.min(CHUNK as u64);
        if let Some(names) = names.filter(|_| are_few) {
            let ids = names.read_whole(theirs.sublists * 8, SUBLISTS_MAX * 8)?;
            self.append_sublists(tx, &mut head, &ids)?;
            objset.free_object(tx, theirs.sublists_object)?;
            (theirs.sublists_object, theirs.sublists) = (ObjectId::NONE, 0);
            other.set_head(tx, theirs)?;
        }
        if are_few && is_short {
            let size = theirs.pointers * BlkPtr::SIZE as u64;
            let bytes = other.object.read_whole(size, CHUNK as u64)?;
            self.object.write(tx, head.pointers * BlkPtr::SIZE as u64, &bytes)?;
            head.pointers += theirs.pointers;
            objset.free_object(tx, id)?;
        } else {
            self.append_sublists(tx, &mut head, &id.get().to_le_bytes())?;
        }
        head.totals = head.totals.plus(theirs.totals);
        self.set_head(tx, head)
    }

    /// Adds the object numbers of sublists.
    fn append_sublists(&self, tx: &Tx<'_>, head: &mut BpobjHead, ids: &[u8]) -> Result<()> {
        let objset = self.object.objset();
        if ids.is_empty() {
            return Ok(());
        }
        if head.sublists_object.is_none() {
            let dnode = Dnode::new(ObjectType::BPOBJ_SUBLISTS, BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
            head.sublists_object = objset.allocate(tx, dnode)?.id();
        }
        objset.object(head.sublists_object)?.write(tx, head.sublists * 8, ids)?;
        head.sublists += (ids.len() / 8) as u64;
        Ok(())
    }

    /// Takes up to `count` pointers off the end, sublists last, and calls `f` with each when it is off the
    /// list. Returns how many: fewer only if the list is empty now.
    pub fn drain(
        &self,
        tx: &Tx<'_>,
        count: u64,
        size_of: SizeOf<'_>,
        f: &mut dyn FnMut(&BlkPtr) -> Result<()>,
    ) -> Result<u64> {
        Ok(self.drain_at(tx, count, size_of, f, 0)?.0)
    }

    /// As [`Bpobj::drain`], at some depth of sublists; returns also the sizes of what was taken off.
    fn drain_at(
        &self,
        tx: &Tx<'_>,
        count: u64,
        size_of: SizeOf<'_>,
        f: &mut dyn FnMut(&BlkPtr) -> Result<()>,
        depth: usize,
    ) -> Result<(u64, Totals)> {
        if depth > DEPTH_MAX {
            return Err(self.at(Error::corrupt("lists of block pointers in each other")));
        }
        let (mut done, mut taken) = (0, Totals::default());
        while done < count {
            let head = self.head()?;
            let (n, totals) = match (head.pointers, head.sublists) {
                (0, 0) => break,
                (0, _) => self.drain_sublist(tx, head, count - done, size_of, f, depth)?,
                _ => self.drain_own(tx, head, count - done, size_of, f)?,
            };
            (done, taken) = (done + n, taken.plus(totals));
        }
        Ok((done, taken))
    }

    fn drain_own(
        &self,
        tx: &Tx<'_>,
        mut head: BpobjHead,
        count: u64,
        size_of: SizeOf<'_>,
        f: &mut dyn FnMut(&BlkPtr) -> Result<()>,
    ) -> Result<(u64, Totals)> {
        let n = count.min(head.pointers).min((CHUNK / BlkPtr::SIZE) as u64);
        let size = BlkPtr::SIZE as u64;
        let at = (head.pointers - n) * size;
        let mut buf = vec![0; (n * size) as usize];
        self.object.read(at, &mut buf)?;
        let bps = BlkPtr::slice(&buf);
        // one that says it is long and has nothing would take for ever
        if bps.iter().all(BlkPtr::is_hole) {
            return Err(self.at(Error::corrupt(format!("list of {} block pointers has holes", head.pointers))));
        }
        let taken = bps.iter().fold(Totals::default(), |sum, bp| sum.plus(Totals::of(bp, size_of(bp))));
        head.pointers -= n;
        head.totals = head.totals.minus(taken);
        self.set_head(tx, head)?;
        self.object.free_range(tx, at, n * size)?;
        bps.iter().rev().filter(|bp| !bp.is_hole()).try_for_each(f)?;
        Ok((n, taken))
    }

    fn drain_sublist(
        &self,
        tx: &Tx<'_>,
        mut head: BpobjHead,
        count: u64,
        size_of: SizeOf<'_>,
        f: &mut dyn FnMut(&BlkPtr) -> Result<()>,
        depth: usize,
    ) -> Result<(u64, Totals)> {
        let objset = self.object.objset();
        let names = objset.object(head.sublists_object)?;
        let mut raw = [0; 8];
        names.read((head.sublists - 1) * 8, &mut raw)?;
        let sublist = Bpobj::open(objset, ObjectId::new(u64::from_le_bytes(raw))).map_err(|e| self.at(e))?;
        let (n, taken) = sublist.drain_at(tx, count, size_of, f, depth + 1)?;
        head.totals = head.totals.minus(taken);
        if sublist.is_empty()? {
            objset.free_object(tx, sublist.object.id())?;
            head.sublists -= 1;
            if head.sublists == 0 {
                objset.free_object(tx, head.sublists_object)?;
                head.sublists_object = ObjectId::NONE;
            }
        }
        self.set_head(tx, head)?;
        Ok((n, taken))
    }

    /// Frees list `id` and its sublists, not the blocks in them.
    pub fn free(objset: &Arc<Objset>, tx: &Tx<'_>, id: ObjectId) -> Result<()> {
        let (mut entered, mut left) = (HashSet::new(), vec![id]);
        while let Some(id) = left.pop() {
            let list = Bpobj::open(objset, id)?;
            if !entered.insert(id) {
                return Err(list.at(Error::corrupt("list of block pointers is in itself")));
            }
            let head = list.head()?;
            left.extend(sublists(objset, &list.object, head)?);
            for object in [id, head.sublists_object] {
                match objset.free_object(tx, object) {
                    Err(e) if object.is_none() && e.kind() == Kind::NotFound => {}
                    result => result?,
                }
            }
        }
        Ok(())
    }

    fn head(&self) -> Result<BpobjHead> {
        let object = self.object.fresh()?;
        let head = BpobjHead::of(&object).map_err(|e| self.at(e))?;
        let end = head.pointers.checked_mul(BlkPtr::SIZE as u64);
        if end.is_none_or(|end| end > object.dnode().size_max()) || head.sublists > SUBLISTS_MAX {
            let what = format!("list of {} block pointers and {} sublists is shorter", head.pointers, head.sublists);
            return Err(self.at(Error::corrupt(what)));
        }
        Ok(head)
    }

    fn set_head(&self, tx: &Tx<'_>, head: BpobjHead) -> Result<()> {
        self.object.update(tx, |dnode| head.put(&mut dnode.bonus))
    }

    fn at(&self, error: Error) -> Error {
        error.at_block(self.object.bookmark(0, 0))
    }
}

/// The lowest byte of the place of the fill count, of which the lowest bit tells of a free.
const FREE_MARK_AT: usize = 88;

/// The bytes of a pointer in a list: without its checksum, which nothing needs but the dedup table, and
/// without an embedded payload.
fn stripped(bp: &BlkPtr) -> [u8; BlkPtr::SIZE] {
    let mut bytes = [0; BlkPtr::SIZE];
    bytes.copy_from_slice(bp.raw());
    if bp.is_embedded() {
        bytes[..48].fill(0);
        bytes[56..80].fill(0);
        bytes[88..].fill(0);
    } else if !bp.is_dedup() {
        bytes[96..].fill(0);
    }
    // the fill count's place tells of frees
    bytes[88..96].fill(0);
    bytes
}
