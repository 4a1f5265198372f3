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
//! Invariant: a damaged list that contains itself ends, as each is entered once.

use std::collections::HashSet;
use std::sync::Arc;

use base::{Endian, Error, Reader, Result};
use format::blkptr::BlkPtr;

use crate::{Object, Objset};

/// Bytes of a list that are read at once.
const CHUNK: usize = 128 << 10;
/// More sublists than any list has.
const SUBLISTS_MAX: u64 = 1 << 24;

/// A pointer in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The pointer, without its checksum.
    pub bp: BlkPtr,
    /// Whether it tells that the block was freed; in lists that also tell of allocations.
    pub is_free: bool,
}

/// The head of a list.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    pointers: u64,
    sublists_object: u64,
    sublists: u64,
}

/// Calls `f` with each pointer of list `id` and of its sublists, until it fails.
pub fn for_each(objset: &Arc<Objset>, id: u64, f: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
    let (mut entered, mut left) = (HashSet::new(), vec![id]);
    while let Some(id) = left.pop() {
        let object = objset.object(id)?;
        let at_list = |e: Error| e.at_block(object.bookmark(0, 0));
        if !entered.insert(id) {
            return Err(at_list(Error::corrupt("list of block pointers is in itself")));
        }
        let head = Head::of(&object).map_err(at_list)?;
        pointers(&object, head.pointers, f)?;
        left.extend(sublists(objset, &object, head)?);
    }
    Ok(())
}

fn pointers(object: &Object, count: u64, f: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
    let end = count.checked_mul(BlkPtr::SIZE as u64).filter(|end| *end <= object.dnode().size_max());
    let end = end.filter(|_| count > 0).unwrap_or(0);
    if end == 0 && count > 0 {
        let what = format!("list of {count} block pointers in an object of {} bytes", object.dnode().size_max());
        return Err(Error::corrupt(what).at_block(object.bookmark(0, 0)));
    }
    // a list has no holes; one that says so would take forever to read
    if end > 0 && object.next_hole(0)? < end {
        return Err(Error::corrupt(format!("list of {count} block pointers has holes")).at_block(object.bookmark(0, 0)));
    }
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    while at < end {
        let len = CHUNK.min((end - at) as usize);
        object.read(at, &mut buf[..len])?;
        let listed = |bp: &BlkPtr| Listed { bp: *bp, is_free: bp.is_free_mark() };
        BlkPtr::slice(&buf[..len]).iter().map(listed).try_for_each(&mut *f)?;
        at += len as u64;
    }
    Ok(())
}

fn sublists(objset: &Arc<Objset>, object: &Object, head: Head) -> Result<Vec<u64>> {
    if head.sublists_object == 0 || head.sublists == 0 {
        return Ok(Vec::new());
    }
    if head.sublists > SUBLISTS_MAX {
        let what = format!("list of block pointers with {} sublists", head.sublists);
        return Err(Error::corrupt(what).at_block(object.bookmark(0, 0)));
    }
    let bytes = objset.object(head.sublists_object)?.read_whole(head.sublists * 8, SUBLISTS_MAX * 8)?;
    Ok(bytes.chunks_exact(8).filter_map(|raw| Endian::Little.u64(raw)).collect())
}

impl Head {
    fn of(object: &Object) -> Result<Head> {
        let mut r = Reader::new(object.bonus(), Endian::Little);
        let pointers = r.u64().map_err(|_| Error::corrupt("object is no list of block pointers"))?;
        let mut later = || r.u64().unwrap_or(0);
        let (_bytes, _compressed, _uncompressed) = (later(), later(), later());
        Ok(Head { pointers, sublists_object: later(), sublists: later() })
    }
}
