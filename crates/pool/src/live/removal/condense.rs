//! Tables of removed vdevs become shorter: entries of which nobody needs a byte are left out.
//!
//! ```text
//!   map of obsolete bytes is large ─▶ it is set aside, and an empty table stands beside the old one: state in the MOS
//!   steps    entries that somebody needs ─▶ new table, with counts of what is obsolete in each
//!   the end  the new table is that of the vdev; the old one goes, with the map
//! ```
//!
//! What becomes obsolete meanwhile is noted in another map. A job as OpenZFS has it on disk: begun by either, it is gone on
//! with by the other. One table at a time.

use std::collections::HashMap;

use base::{Error, Result, tunables};
use dmu::zap::ZapValue;
use dsl::write::feature;
use format::blkptr::Dva;
use format::feature::{OBSOLETE_COUNTS, SPACEMAP_HISTOGRAM};
use format::ids::{ObjectId, VdevNumber};
use format::removal::{CONDENSING, CondensingPhys, TableHeader};
use vdev::{Edit, MapEntry, VdevKind};

use super::super::space_maps::{OBSOLETE_MAP, ObsoleteMap};
use super::super::{LivePool, SyncContext};
use super::table::{self, NewEntry};
use crate::mos::{self, DIRECTORY};

/// Entries of the old table that are looked at in one group.
const ENTRIES_PER_TXG: usize = 64 << 10;
/// Most bytes of the counts of a table, and of a map of obsolete bytes.
const COUNTS_BYTES_MAX: u64 = 128 << 20;
const MAP_BYTES_MAX: u64 = 512 << 20;

impl LivePool {
    /// Whether a table is being condensed, or may be worth it.
    pub(in crate::live) fn has_condensing_work(&self) -> bool {
        let is_stalled = self.removal().condensing().is_stalled();
        let is_enabled = self.env().tunable(tunables::ZFS_CONDENSE_INDIRECT_VDEVS_ENABLE) != 0;
        !is_stalled && is_enabled && (self.removal().condensing().phys().is_some() || self.maps().has_more_obsolete())
    }
}

impl SyncContext<'_> {
    /// Goes on with the table that is being condensed, or begins with one that is worth it.
    pub(in crate::live) fn step_condensing(&self) -> Result<()> {
        let pool = self.pool;
        if pool.removal().condensing().phys().is_none() {
            pool.maps().obsolete_was_looked_at();
            for (number, map) in pool.maps().obsolete_maps() {
                let top = pool.tree().top(number)?;
                let table = top.top_spec().and_then(|spec| spec.indirect).filter(|_| top.kind() == VdevKind::Indirect);
                if let Some(table) = table
                    && self.is_worth_condensing(table.mapping_object, map.map)?
                {
                    self.begin_condensing(number, map)?;
                    break;
                }
            }
        }
        match pool.removal().condensing().phys() {
            Some(phys) => self.condense_some(phys),
            None => Ok(()),
        }
    }

    /// Whether much of a table is obsolete, or its map of that is large.
    fn is_worth_condensing(&self, table: ObjectId, map: ObjectId) -> Result<bool> {
        if map.is_none() {
            return Ok(false);
        }
        let tunable = |tunable| self.change.env.tunable(tunable);
        let header = table::header(&self.change, table)?;
        let map = mos::space_map_header(self.change.mos, map)?;
        let obsolete = u128::from(map.allocated.unsigned_abs()) * 100;
        let percent = obsolete.checked_div(header.mapped_bytes.into()).unwrap_or(0);
        let bytes = header.count.saturating_mul(TableHeader::ENTRY_SIZE);
        let is_obsolete = percent >= tunable(tunables::ZFS_CONDENSE_INDIRECT_OBSOLETE_PCT).into()
            && bytes > tunable(tunables::ZFS_CONDENSE_MIN_MAPPING_BYTES);
        Ok(is_obsolete || map.length >= tunable(tunables::ZFS_CONDENSE_MAX_OBSOLETE_BYTES))
    }

    fn begin_condensing(&self, number: VdevNumber, ObsoleteMap { zap, map }: ObsoleteMap) -> Result<()> {
        let next_table = table::create_table(&self.change)?;
        let phys = CondensingPhys { vdev: number, obsolete_map: map, next_table };
        self.change.remove(zap, OBSOLETE_MAP)?;
        self.pool.maps().add_obsolete(number, ObsoleteMap { zap, map: ObjectId::NONE });
        self.change.set(DIRECTORY, CONDENSING, &ZapValue::new(8, &phys.words()))?;
        self.pool.removal().condensing().set(Some(phys));
        tracing::info!(pool = self.pool.name(), vdev = %number, "its table is condensed");
        Ok(())
    }

    /// Brings some entries into the new table; with the last of them it is that of the vdev.
    fn condense_some(&self, phys: CondensingPhys) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        let top = pool.tree().top(phys.vdev)?;
        let old = top.top_spec().and_then(|spec| spec.indirect).filter(|_| top.kind() == VdevKind::Indirect);
        let old = old.ok_or_else(|| Error::corrupt(format!("vdev {} has no table to be condensed", phys.vdev)))?;
        let entries = mos::indirect_mapping(change.mos, old.mapping_object)?;
        let counts = self.obsolete_counts(&entries, old.mapping_object, phys.obsolete_map)?;
        let done = table::header(change, phys.next_table)?.end;
        let first = entries.partition_point(|entry| entry.src_offset < done);
        let end = entries.len().min(first + ENTRIES_PER_TXG);
        let needed: Vec<NewEntry> = entries[first..end]
            .iter()
            .zip(&counts[first..end])
            .filter(|(entry, obsolete)| u64::from(**obsolete) < entry.asize)
            .map(|(entry, obsolete)| NewEntry {
                offset: entry.src_offset,
                to: Dva::new(entry.dst_top, entry.dst_offset, entry.asize, false),
                obsolete: *obsolete,
            })
            .collect();
        if !needed.is_empty() {
            table::append(change, phys.next_table, &needed)?;
        }
        let is_over =
            end == entries.len() || needed.is_empty() && self.rest_is_obsolete(&entries[end..], &counts[end..]);
        if is_over { self.end_condensing(phys, old.mapping_object) } else { Ok(()) }
    }

    fn rest_is_obsolete(&self, entries: &[MapEntry], counts: &[u32]) -> bool {
        entries.iter().zip(counts).all(|(entry, obsolete)| u64::from(*obsolete) >= entry.asize)
    }

    /// Bytes that nobody needs, of each entry of a table: what its counts say, and what has been noted in a map since.
    fn obsolete_counts(&self, entries: &[MapEntry], table: ObjectId, map: ObjectId) -> Result<Vec<u32>> {
        let mos = self.change.mos;
        let mut counts = vec![0u32; entries.len()];
        let counts_object = table::header(&self.change, table)?.counts_object;
        if counts_object.is_some() {
            let bytes = mos.object(counts_object)?.read_whole(counts.len() as u64 * 4, COUNTS_BYTES_MAX)?;
            for (count, raw) in counts.iter_mut().zip(bytes.chunks_exact(4)) {
                *count = u32::from_le_bytes(*raw.first_chunk().expect("chunks of 4"));
            }
        }
        for run in mos::space_map(mos, map, MAP_BYTES_MAX)? {
            let end = run.offset.saturating_add(run.len);
            let first = entries.partition_point(|entry| entry.src_offset + entry.asize <= run.offset);
            for (entry, count) in entries[first..].iter().zip(&mut counts[first..]) {
                if entry.src_offset >= end {
                    break;
                }
                let both = end.min(entry.src_offset + entry.asize) - run.offset.max(entry.src_offset);
                *count = count.saturating_add(u32::try_from(both).unwrap_or(u32::MAX));
            }
        }
        Ok(counts)
    }

    fn end_condensing(&self, phys: CondensingPhys, old_table: ObjectId) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        let entries = mos::indirect_mapping(change.mos, phys.next_table)?;
        pool.tree().condense_indirect(phys.vdev, entries)?;
        pool.tree().edit(Edit::SetTable(phys.vdev, phys.next_table), &HashMap::new())?;
        table::free_table(change, old_table)?;
        change.free_object(phys.obsolete_map)?;
        feature::count(change, SPACEMAP_HISTOGRAM, -1)?;
        feature::count(change, OBSOLETE_COUNTS, -1)?;
        change.remove(DIRECTORY, CONDENSING)?;
        pool.removal().condensing().set(None);
        self.write_config()
    }
}
