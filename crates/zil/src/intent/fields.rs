//! Fields that records of several kinds have.

use base::{Endian, Error, Reader, Result};
use format::blkptr::BlkPtr;
use format::ids::ObjectId;

/// A block pointer in a block that has not been turned.
pub(crate) fn blkptr(bytes: &[u8], endian: Endian) -> Result<BlkPtr> {
    let mut r = Reader::new(bytes, endian);
    let mut turned = [0; BlkPtr::SIZE];
    for word in turned.chunks_exact_mut(8) {
        word.copy_from_slice(&r.u64()?.to_le_bytes());
    }
    Ok(BlkPtr::parse(&turned).expect("as long as a block pointer"))
}

/// The number of an object.
pub(crate) fn object(r: &mut Reader<'_>) -> Result<ObjectId> {
    r.u64().map(ObjectId::new)
}

/// The bytes up to the next NUL, which is taken, too.
pub(super) fn name<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    let len = r.rest().iter().position(|byte| *byte == 0);
    let len = len.ok_or_else(|| Error::corrupt("a name in a log record does not end"))?;
    let name = r.take(len)?;
    r.take(1)?;
    Ok(name)
}

/// Names of domains that the owners of a file are of.
pub(super) fn domains<'a>(r: &mut Reader<'a>, count: u64) -> Result<Vec<&'a [u8]>> {
    // each takes a byte at least
    (0..count.min(r.rest().len() as u64 + 1)).map(|_| name(r)).collect()
}

/// A record that is being written.
pub(super) struct RecordWriter(pub(super) Vec<u8>);

impl RecordWriter {
    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut RecordWriter {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn u64s(&mut self, words: &[u64]) -> &mut RecordWriter {
        words.iter().fold(self, |out, word| out.raw(&word.to_le_bytes()))
    }

    pub(super) fn name(&mut self, name: &[u8]) -> &mut RecordWriter {
        self.raw(name).raw(&[0])
    }

    pub(super) fn pointer(&mut self, bp: &BlkPtr) -> &mut RecordWriter {
        self.raw(bp.raw())
    }
}
