//! Freeing what has very many blocks, group by group.
//!
//! ```text
//!   |■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■|
//!   |■■■■■■■■■■■■■■■■■■■■■■■■■■■■|            group 7: the last portion
//!   |■■■■■■■■■■■■■■■■■■|                      group 7, or 8 if that one frees much already
//!   ...
//!   |■■■■|                                    the operation itself frees the rest, and says so in the file
//! ```
//!
//! A crash in between leaves a file that is shorter than it says, with zeros at its end, as in OpenZFS; or one in the
//! queue of files without a name, which goes on when the file system is opened again.

use std::ops::Range;

use base::{Kind, Result};
use dmu::{Object, Portion};
use format::ids::ObjectId;

use crate::op::Op;
use crate::zpl::Zpl;

/// Bytes that freeing takes, roughly.
pub(crate) const FREE_BYTES: u64 = 4 << 10;

impl Zpl {
    /// Frees bytes of an object from the end of a range on, until one operation may free the rest. `check` is asked
    /// before each step, with the object locked. Errors: its; `Suspended` and those of reading; what is freed is freed.
    pub(crate) fn free_most(
        &self,
        ino: ObjectId,
        range: Range<u64>,
        check: &dyn Fn(&Op<'_>, &Object) -> Result<()>,
    ) -> Result<()> {
        let mut range = range;
        while let Some(end) = self.free_some(ino, range.clone(), check)? {
            range.end = end;
        }
        Ok(())
    }

    /// Frees the last portion of a range. The byte where the rest ends; `None` if the range was no larger, and is left
    /// to the caller.
    pub(crate) fn free_some(
        &self,
        ino: ObjectId,
        range: Range<u64>,
        check: &dyn Fn(&Op<'_>, &Object) -> Result<()>,
    ) -> Result<Option<u64>> {
        let Some((end, portion)) = self.last_portion(ino, range.clone())? else { return Ok(None) };
        self.live()?.txgs().admit_frees(portion.blocks)?;
        if portion.from <= range.start {
            return Ok(None);
        }
        let op = self.begin(FREE_BYTES, true)?;
        let _held = op.alone(&[ino]);
        let object = self.objset().object(ino)?;
        check(&op, &object)?;
        object.free_range(op.tx(), portion.from, end.saturating_sub(portion.from))?;
        Ok(Some(portion.from))
    }

    /// Admits the frees of all that an object has, if one operation may free it: whether that is so.
    pub(crate) fn admit_small(&self, ino: ObjectId) -> Result<bool> {
        match self.last_portion(ino, 0..u64::MAX)? {
            Some((_, portion)) if portion.from > 0 => Ok(false),
            Some((_, portion)) => self.live()?.txgs().admit_frees(portion.blocks).map(|()| true),
            None => Ok(true),
        }
    }

    /// The last portion of a range, and where it ends; `None` if there is nothing.
    fn last_portion(&self, ino: ObjectId, range: Range<u64>) -> Result<Option<(u64, Portion)>> {
        let object = match self.objset().object(ino) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            object => object?,
        };
        let end = range.end.min(object.dnode().size_max());
        if end <= range.start {
            return Ok(None);
        }
        let blocks_max = self.live()?.txgs().portion_blocks();
        Ok(Some((end, object.last_portion(range.start..end, blocks_max)?)))
    }
}
