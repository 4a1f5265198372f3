//! What dedup and clone tables hold, in sums.

use format::blkptr::Dva;
use format::ddt::{DdtKey, DdtPhys};
use vdev::Tree;

/// Buckets of [`Dedup::histogram`].
pub const BUCKETS: usize = 64;

/// Sums over blocks: as they are stored, and as if each reference were stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub struct DedupSums {
    pub blocks: u64,
    pub lsize_bytes: u64,
    pub psize_bytes: u64,
    pub dsize_bytes: u64,
    pub ref_blocks: u64,
    pub ref_lsize_bytes: u64,
    pub ref_psize_bytes: u64,
    pub ref_dsize_bytes: u64,
}

/// The dedup tables of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dedup {
    /// Sums by the binary logarithm of the number of references; [`BUCKETS`] of them, or none.
    pub histogram: Vec<DedupSums>,
    /// Number of entries.
    pub entries: u64,
    /// Bytes that the tables take up on the devices.
    pub disk_bytes: u64,
    /// Bytes that they take up in RAM when read whole.
    pub core_bytes: u64,
}

/// Blocks that clones share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clones {
    /// Bytes of shared blocks.
    pub used_bytes: u64,
    /// Bytes that sharing saves.
    pub saved_bytes: u64,
}

impl DedupSums {
    /// Adds other sums.
    pub fn add(&mut self, other: &DedupSums) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.lsize_bytes = self.lsize_bytes.saturating_add(other.lsize_bytes);
        self.psize_bytes = self.psize_bytes.saturating_add(other.psize_bytes);
        self.dsize_bytes = self.dsize_bytes.saturating_add(other.dsize_bytes);
        self.ref_blocks = self.ref_blocks.saturating_add(other.ref_blocks);
        self.ref_lsize_bytes = self.ref_lsize_bytes.saturating_add(other.ref_lsize_bytes);
        self.ref_psize_bytes = self.ref_psize_bytes.saturating_add(other.ref_psize_bytes);
        self.ref_dsize_bytes = self.ref_dsize_bytes.saturating_add(other.ref_dsize_bytes);
    }

    /// Of one entry of a table, by the devices that its blocks are on.
    pub(crate) fn of_entry(tree: &Tree, key: &DdtKey, blocks: &[DdtPhys]) -> DedupSums {
        let deflated = |dva: &Dva| tree.deflate(dva.vdev(), dva.asize()).unwrap_or(dva.asize());
        let mut sums = DedupSums::default();
        for block in blocks.iter().filter(|block| !block.is_none()) {
            let dsize = key.dvas(block).map(deflated).fold(0, u64::saturating_add);
            let references = block.references;
            sums.add(&DedupSums {
                blocks: 1,
                lsize_bytes: key.lsize(),
                psize_bytes: key.psize(),
                dsize_bytes: dsize,
                ref_blocks: references,
                ref_lsize_bytes: key.lsize().saturating_mul(references),
                ref_psize_bytes: key.psize().saturating_mul(references),
                ref_dsize_bytes: dsize.saturating_mul(references),
            });
        }
        sums
    }

    /// In the order of the fields, as they are stored.
    pub fn words(&self) -> [u64; 8] {
        [
            self.blocks,
            self.lsize_bytes,
            self.psize_bytes,
            self.dsize_bytes,
            self.ref_blocks,
            self.ref_lsize_bytes,
            self.ref_psize_bytes,
            self.ref_dsize_bytes,
        ]
    }

    pub(crate) fn of(words: &[u64]) -> DedupSums {
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        DedupSums {
            blocks: at(0),
            lsize_bytes: at(1),
            psize_bytes: at(2),
            dsize_bytes: at(3),
            ref_blocks: at(4),
            ref_lsize_bytes: at(5),
            ref_psize_bytes: at(6),
            ref_dsize_bytes: at(7),
        }
    }
}

impl Dedup {
    /// Sum of all buckets.
    pub fn total(&self) -> DedupSums {
        let mut total = DedupSums::default();
        self.histogram.iter().for_each(|sums| total.add(sums));
        total
    }

    /// Referenced bytes for each 100 bytes stored.
    pub fn ratio_percent(&self) -> u64 {
        let total = self.total();
        let ratio = (u128::from(total.ref_dsize_bytes) * 100).checked_div(u128::from(total.dsize_bytes));
        ratio.map_or(100, |percent| percent.try_into().unwrap_or(u64::MAX))
    }
}

impl Clones {
    /// Referenced bytes for each 100 bytes stored.
    pub fn ratio_percent(&self) -> u64 {
        let sum = u128::from(self.used_bytes) + u128::from(self.saved_bytes);
        (sum * 100).checked_div(u128::from(self.used_bytes)).map_or(100, |p| p.try_into().unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios() {
        let mut dedup = Dedup::default();
        assert_eq!((dedup.ratio_percent(), Clones::default().ratio_percent()), (100, 100));
        dedup.histogram = vec![DedupSums::of(&[1, 2, 3, 100, 5, 6, 7, 266]), DedupSums::of(&[])];
        assert_eq!(dedup.ratio_percent(), 266);
        assert_eq!(Clones { used_bytes: 3, saved_bytes: 6 }.ratio_percent(), 300);
        dedup.histogram.push(DedupSums::of(&[0, 0, 0, 0, 0, 0, 0, u64::MAX]));
        assert!(dedup.ratio_percent() > 1 << 50);
    }
}
