//! Reads that try every way until the bytes are right.
//!
//! An extent is cut into *sources*, each of which gives a range of its bytes in one or more
//! *versions*: a mirror has one for each side ([`copies`]), a row of a raidz one for each set of
//! columns that may be wrong ([`rows`]). Mostly there is one source; a block on a removed vdev has
//! several if it was split, a draid's block two where a group ends, and one of before a raidz was
//! expanded has one for each line. The search goes through
//! combinations of versions, those with the fewest surprises first:
//!
//! 1. the first version of every source;
//! 2. for each leaf, each two, each three: the versions that do without them, in case disks are bad throughout;
//! 3. all combinations, ordered by the sum of the versions' numbers, up to a limit.
//!
//! Sources read leaves only as versions are called for. At the end, if the right bytes are known,
//! every leaf that returned others is charged a checksum error; if they are not, every leaf that
//! returned anything. What is wrong is not mended by the reader: see [`heal`].

mod copies;
mod copy;
mod heal;
mod lacking;
mod rows;
mod search;
mod source;
mod sources;

use base::{AlignedBuf, Error, Result};

use crate::health::VdevStats;
use crate::locate::Extent;
use crate::tree::Tree;
use crate::vdev::VdevId;
pub use heal::ExtentCopies;
pub use lacking::Lacking;
use source::VersionSource;

/// Leaves named in an error at most.
const NAMES_MAX: usize = 16;

impl Tree {
    /// Reads `extent` into `buf` in every way that there is, until `good` says that the bytes are
    /// right.
    ///
    /// Counts a read error on every leaf that fails, and a checksum error on every leaf whose bytes
    /// were wrong, unless it is known to have missed the block's birth. If no way is good, `buf`'s
    /// contents are unspecified and the error is [`base::Kind::Checksum`], or, if not even wrong
    /// bytes could be had, that of a leaf ([`base::Kind::Io`], [`base::Kind::Missing`]); it names the
    /// leaves tried. Panics if `buf` is not as long as the extent.
    ///
    /// Whether a leaf was charged, so that [`Tree::heal`] has something to do.
    pub fn read_verified(&self, extent: Extent, buf: &mut [u8], good: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool> {
        self.read_any(extent, buf, good, true)
    }

    /// As [`Tree::read_verified`], for what may rightly not be there, such as the block behind the last of
    /// a log: if no way is good, nobody is charged for wrong bytes.
    pub fn probe(&self, extent: Extent, buf: &mut [u8], good: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        self.read_any(extent, buf, good, false).map(drop)
    }

    fn read_any(
        &self,
        extent: Extent,
        buf: &mut [u8],
        good: &mut dyn FnMut(&[u8]) -> bool,
        must_be_there: bool,
    ) -> Result<bool> {
        let size = self.padded_size(&extent, buf.len())?;
        // sectors must not be moved under a reader, which charges leaves
        let _steady = self.expanding().map(|_| self.hold_shape());
        let (mut sources, order) = self.sources(&extent, size)?;
        let mut block = AlignedBuf::zeroed(size);
        let wanted = buf.len();
        let outcome = search::search(self, &mut sources, &mut block, &mut |block| match &order {
            None => good(&block[..wanted]),
            Some(order) => {
                order.restore(block, buf);
                good(buf)
            }
        });
        sources.iter().flat_map(VersionSource::copies).for_each(|copy| copy.charge_failure(self));
        match outcome {
            Ok(()) => {
                let mut is_wounded = false;
                for source in &sources {
                    source.compare(&block[source.range()], &mut |copy, right| {
                        copy.charge(self, Some(right));
                        is_wounded |= copy.is_wounded(right);
                    });
                }
                if order.is_none() {
                    buf.copy_from_slice(&block[..wanted]);
                }
                self.count_block(&extent, VdevStats::count_read);
                tracing::debug!(top = %extent.top, offset = extent.offset, "read it in another way");
                Ok(is_wounded)
            }
            Err(error) => {
                if must_be_there {
                    sources.iter().flat_map(VersionSource::copies).for_each(|copy| copy.charge(self, None));
                }
                Err(self.naming(error, &sources))
            }
        }
    }

    /// Adds to `error` which leaves were tried.
    fn naming(&self, error: Error, sources: &[VersionSource]) -> Error {
        let mut leaves: Vec<VdevId> = sources.iter().flat_map(VersionSource::tried).collect();
        leaves.sort_unstable();
        leaves.dedup();
        let mut names: Vec<&str> = leaves.iter().take(NAMES_MAX).map(|&leaf| self.vdev(leaf).name()).collect();
        if leaves.len() > NAMES_MAX {
            names.push("others");
        }
        if names.is_empty() { error } else { error.at_vdev(names.join(", ")) }
    }
}
