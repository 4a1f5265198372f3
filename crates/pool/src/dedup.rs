//! What the dedup and clone tables of a pool hold, in sums.
//!
//! ```text
//!   object directory
//!     ├─ DDT-statistics ──▶ ZAP: "DDT-sha256-zap-duplicate" ──▶ 64 buckets by references, 8 sums each
//!     ├─ DDT-sha256-zap-duplicate, ... ──▶ the tables                     (as it was first)
//!     ├─ DDT-sha256 ──▶ ZAP: "DDT-sha256-zap-unique", ... ──▶ the tables  (feature fast_dedup)
//!     │                      "DDT-log-sha256-0", ... ──▶ entries that are in no sum yet
//!     └─ com.fudosecurity:brt:vdev:N ──▶ sums of the clones on one vdev
//! ```

pub(crate) mod log;
pub(crate) mod packed;

use base::{Endian, Reader, Result, ResultExt};
use dmu::Object;
use dmu::zap::Zap;
use format::blkptr::Dva;
use format::ddt::{Block, Key};
use vdev::Tree;

use crate::{Pool, object_directory};

/// The directory's entry for the sums of all tables.
pub(crate) const STATISTICS: &str = "DDT-statistics";
/// Buckets of [`Dedup::histogram`].
pub const BUCKETS: usize = 64;

/// Bytes that OpenZFS takes for an entry of a log in RAM, beside its value.
const LOGGED_ENTRY_BYTES: u64 = 72;

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
    fn add(&mut self, other: &DedupSums) {
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
    pub(crate) fn of_entry(tree: &Tree, key: &Key, blocks: &[Block]) -> DedupSums {
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

    /// As they are stored.
    pub(crate) fn words(&self) -> [u64; 8] {
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

    fn of(words: &[u64]) -> DedupSums {
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

impl Pool {
    /// The dedup tables in sums, with what their logs hold.
    pub fn dedup(&self) -> Result<Dedup> {
        self.read_dedup().in_pool(self.name())
    }

    /// The clone tables in sums.
    pub fn clones(&self) -> Result<Clones> {
        self.read_clones().in_pool(self.name())
    }

    fn read_dedup(&self) -> Result<Dedup> {
        let mut dedup = Dedup::default();
        let directory = object_directory(self.mos())?;
        if let Some(id) = directory.u64(STATISTICS)? {
            dedup.histogram = vec![DedupSums::default(); BUCKETS];
            for row in Zap::open(self.mos().object(id)?)?.entries()? {
                for (sums, words) in dedup.histogram.iter_mut().zip(row.value.u64s().chunks(8)) {
                    sums.add(&DedupSums::of(words));
                }
            }
        }
        for row in directory.entries()? {
            let (name, Some(id)) = (row.name.to_string(), row.value.first_u64()) else { continue };
            if is_table(&name) {
                self.add_table(id, &mut dedup)?;
            } else if is_folder(&name) {
                let mut logs = Vec::new();
                for row in Zap::open(self.mos().object(id)?)?.entries()? {
                    let (name, Some(id)) = (row.name.to_string(), row.value.first_u64()) else { continue };
                    if is_table(&name) {
                        self.add_table(id, &mut dedup)?;
                    } else if log::is_log(&name) {
                        logs.push(self.mos().object(id)?);
                    }
                }
                self.add_logs(&logs, &mut dedup)?;
            }
        }
        Ok(dedup)
    }

    /// Adds what is in the logs of a checksum: the sums of tables are without it.
    fn add_logs(&self, logs: &[Object], dedup: &mut Dedup) -> Result<()> {
        for log in logs {
            dedup.disk_bytes = dedup.disk_bytes.saturating_add(log.dnode().used_bytes);
        }
        for (key, value) in log::read(logs)? {
            let blocks = packed::blocks_of(&value, Endian::Little)?;
            let sums = DedupSums::of_entry(self.tree(), &Key::from_words(key), &blocks);
            dedup.entries += 1;
            dedup.core_bytes = dedup.core_bytes.saturating_add(LOGGED_ENTRY_BYTES + value.len() as u64);
            if let Some(bucket) = sums.ref_blocks.checked_ilog2() {
                dedup.histogram.resize(BUCKETS, DedupSums::default());
                dedup.histogram[bucket as usize].add(&sums);
            }
        }
        Ok(())
    }

    fn add_table(&self, id: u64, dedup: &mut Dedup) -> Result<()> {
        let object = self.mos().object(id)?;
        let dnode = object.dnode();
        let filled: u64 = dnode.blkptrs.iter().fold(0, |sum, bp| sum.saturating_add(bp.fill()));
        dedup.disk_bytes = dedup.disk_bytes.saturating_add(dnode.used_bytes);
        dedup.core_bytes = dedup.core_bytes.saturating_add(filled.saturating_mul(dnode.block_size));
        dedup.entries = dedup.entries.saturating_add(Zap::open(object)?.len());
        Ok(())
    }

    fn read_clones(&self) -> Result<Clones> {
        let mut clones = Clones::default();
        for row in object_directory(self.mos())?.entries()? {
            let (true, Some(id)) =
                (row.name.to_string().starts_with("com.fudosecurity:brt:vdev:"), row.value.first_u64())
            else {
                continue;
            };
            let object = self.mos().object(id)?;
            let mut bonus = Reader::new(object.bonus(), Endian::Little);
            // entries, size, byte order, count, size of a range
            bonus.take(5 * 8)?;
            clones.used_bytes = clones.used_bytes.saturating_add(bonus.u64()?);
            clones.saved_bytes = clones.saved_bytes.saturating_add(bonus.u64()?);
        }
        Ok(clones)
    }
}

/// Whether that is the name of a dedup table: `DDT-sha256-zap-unique`.
fn is_table(name: &str) -> bool {
    let is_class = ["-zap-ditto", "-zap-duplicate", "-zap-unique"].iter().any(|class| name.ends_with(class));
    name.starts_with("DDT-") && is_class
}

/// Whether that is the name of the folder of one checksum's dedup tables: `DDT-sha256`.
pub(crate) fn is_folder(name: &str) -> bool {
    name.strip_prefix("DDT-").is_some_and(|checksum| checksum != "statistics" && !checksum.contains('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(is_table("DDT-sha256-zap-unique") && !is_table("DDT-statistics") && !is_table("DDT-log-sha256-0"));
        assert!(is_folder("DDT-blake3") && !is_folder("DDT-statistics") && !is_folder("DDT-sha256-zap-unique"));
    }

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
