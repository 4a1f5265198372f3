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

pub(crate) mod directory;
pub(crate) mod log;
pub(crate) mod packed;
pub(crate) mod sums;
mod tables;

use base::{Endian, Result, ResultExt};
use codec::checksum::Checksum;
use dmu::Object;
use dmu::zap::Zap;
use format::ddt::DdtKey;
use format::ids::ObjectId;

use crate::clones::{CLONES_PREFIX, CloneHeader};
use crate::{Pool, object_directory};
pub use sums::{BUCKETS, Clones, Dedup, DedupSums};
pub use tables::{DedupEntry, DedupLog, DedupTable, DedupTables, TableSize};

/// The directory's entry for the sums of all tables.
pub(crate) const STATISTICS: &str = "DDT-statistics";
/// The tables of a checksum.
pub(crate) const CLASSES: [&str; 3] = ["ditto", "duplicate", "unique"];
/// Which of them has blocks with several pointers, and which those with one.
pub(crate) const DUPLICATE: usize = 1;
pub(crate) const UNIQUE: usize = 2;
/// Bytes that OpenZFS takes for an entry of a log in RAM, beside its value.
const LOGGED_ENTRY_BYTES: u64 = 72;

impl Pool {
    /// The dedup tables in sums, with what their logs hold. They are read once: nothing changes in a view.
    pub fn dedup(&self) -> Result<Dedup> {
        if let Some(known) = self.known_dedup().get() {
            return Ok(known.clone());
        }
        let dedup = self.read_dedup().in_pool(self.name())?;
        Ok(self.known_dedup().get_or_init(|| dedup).clone())
    }

    /// The clone tables in sums.
    pub fn clones(&self) -> Result<Clones> {
        self.read_clones().in_pool(self.name())
    }

    fn read_dedup(&self) -> Result<Dedup> {
        let mut dedup = Dedup::default();
        let directory = object_directory(self.mos())?;
        if let Some(id) = directory.object_id(STATISTICS)? {
            dedup.histogram = vec![DedupSums::default(); BUCKETS];
            for row in Zap::open(self.mos().object(id)?)?.entries()? {
                for (sums, words) in dedup.histogram.iter_mut().zip(row.value.u64s().chunks(8)) {
                    sums.add(&DedupSums::of(words));
                }
            }
        }
        for row in directory.entries()? {
            let (name, Some(id)) = (row.name.to_string(), row.value.first_object()) else { continue };
            if is_table(&name) {
                self.add_table(id, &mut dedup)?;
            } else if is_folder(&name) {
                let mut logs = Vec::new();
                for row in Zap::open(self.mos().object(id)?)?.entries()? {
                    let (name, Some(id)) = (row.name.to_string(), row.value.first_object()) else { continue };
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
        let salt = self.cache().zio().env().random();
        log::for_each(logs, salt, &mut |key, value| {
            let blocks = packed::blocks_of(value, Endian::Little)?;
            let sums = DedupSums::of_entry(self.tree(), &DdtKey::from_words(key), &blocks);
            dedup.entries += 1;
            dedup.core_bytes = dedup.core_bytes.saturating_add(LOGGED_ENTRY_BYTES + value.len() as u64);
            if let Some(bucket) = sums.ref_blocks.checked_ilog2() {
                dedup.histogram.resize(BUCKETS, DedupSums::default());
                dedup.histogram[bucket as usize].add(&sums);
            }
            Ok(())
        })
    }

    fn add_table(&self, id: ObjectId, dedup: &mut Dedup) -> Result<()> {
        let TableSize { disk_bytes, core_bytes, entries } = TableSize::of(self.mos().object(id)?)?;
        dedup.disk_bytes = dedup.disk_bytes.saturating_add(disk_bytes);
        dedup.core_bytes = dedup.core_bytes.saturating_add(core_bytes);
        dedup.entries = dedup.entries.saturating_add(entries);
        Ok(())
    }

    fn read_clones(&self) -> Result<Clones> {
        let mut clones = Clones::default();
        for row in object_directory(self.mos())?.entries()? {
            let (true, Some(id)) = (row.name.to_string().starts_with(CLONES_PREFIX), row.value.first_object()) else {
                continue;
            };
            let header = CloneHeader::of(&self.mos().object(id)?)?;
            clones.used_bytes = clones.used_bytes.saturating_add(header.used_bytes);
            clones.saved_bytes = clones.saved_bytes.saturating_add(header.saved_bytes);
        }
        Ok(clones)
    }
}

/// The name of a dedup table: `DDT-sha256-zap-unique`.
pub(crate) fn table_name(checksum: Checksum, class: &str) -> String {
    format!("DDT-{}-zap-{class}", checksum.name())
}

/// Whether that is the name of a dedup table: `DDT-sha256-zap-unique`.
pub(crate) fn is_table(name: &str) -> bool {
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
}
