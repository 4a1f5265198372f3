//! Tables of cloned blocks: what a group has added and released changes their entries. See [`super::clone_changes`].

use std::collections::BTreeMap;

use base::{Endian, Error, Result};
use dmu::zap::{Editor, ZapValue};
use dmu::{INDIRECT_SHIFT, Object};
use dsl::write::feature;
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::feature::{BLOCK_CLONING, BLOCK_CLONING_ENDIAN};
use format::ids::{ObjectId, VdevNumber};
use format::object_type::ObjectType;
use format::zap::ZapHeader;
use vdev::spec::TopSpec;

use super::SyncContext;
use super::clone_changes::{ChangedClones, CloneEntry};
use crate::clones::{CloneHeader, count_of, header_name, value_like};
use crate::mos::DIRECTORY;

/// log2 of the bytes of the blocks of a new table.
const TABLE_SHIFT: u8 = 12;
/// Bytes of the blocks of what counts its entries by range.
const COUNTS_BLOCK_BYTES: u64 = 32 << 10;
/// Bytes of a range.
const RANGE_BYTES: u64 = 16 << 20;

impl SyncContext<'_> {
    /// Counts what heads take from elsewhere with the group. Errors: those of reading the tables.
    pub(super) fn count_new_clones(&self) -> Result<()> {
        for (_, head) in self.pool.heads().all() {
            let mut outcome = Ok(());
            head.objset().clones_in(self.change.tx.txg(), &mut |bp| {
                if outcome.is_ok() {
                    outcome = self.count_clone(bp);
                }
            })?;
            outcome?;
        }
        Ok(())
    }

    /// There is a pointer more to a block: its dedup table counts it, or else the table of clones. Errors: those of reading
    /// the tables.
    pub(super) fn count_clone(&self, bp: &BlkPtr) -> Result<()> {
        match bp.is_embedded() || self.pool.dedup_changes().add_clone(bp)? {
            true => Ok(()),
            false => self.pool.clone_changes().add(bp),
        }
    }

    /// Brings what the group has changed of cloned blocks into the tables.
    pub(super) fn write_clone_tables(&self) -> Result<()> {
        let ChangedClones { entries, put_off, .. } = self.pool.clone_changes().take();
        let mut by_vdev: BTreeMap<VdevNumber, Vec<(u64, CloneEntry)>> = BTreeMap::new();
        for ((vdev, offset), entry) in entries.into_iter().filter(|(_, entry)| entry.before != entry.left) {
            by_vdev.entry(vdev).or_default().push((offset, entry));
        }
        by_vdev.into_iter().try_for_each(|(vdev, entries)| self.write_clone_table(vdev, &entries))?;
        if !put_off.is_empty() {
            self.pool.put_off_list(&self.change)?.append(self.change.tx, &put_off, self.change.size_of)?;
            // so that the next group comes soon
            self.pool.frees().put_off(true);
        }
        Ok(())
    }

    fn write_clone_table(&self, vdev: VdevNumber, changed: &[(u64, CloneEntry)]) -> Result<()> {
        let (change, name) = (&self.change, header_name(vdev));
        let id = match change.object_id(DIRECTORY, &name)? {
            Some(id) => id,
            None => self.create_clone_table(vdev)?,
        };
        let object = change.mos.object(id)?;
        let mut header = CloneHeader::of(&object)?;
        let entries = change.mos.object(header.entries)?;
        let entries = entries.changing(change.tx);
        let editor = Editor::new(&entries);
        let form = self.entry_form(&header)?;
        for &(offset, CloneEntry { before, left, bytes }) in changed {
            // sums from disk may be anything
            header.saved_bytes = match left > before {
                true => header.saved_bytes.saturating_add(bytes.saturating_mul(left - before)),
                false => header.saved_bytes.saturating_sub(bytes.saturating_mul(before - left)),
            };
            let like = match before {
                0 => form.clone(),
                _ => {
                    let gone = || Error::corrupt(format!("the entry of block {vdev}:{offset:x} left its clone table"));
                    editor.lookup_u64_key(&[offset])?.ok_or_else(gone)?
                }
            };
            debug_assert_eq!(count_of(&like, header.endian)?, before);
            match left {
                0 => editor.remove_u64_key(&[offset])?,
                _ => editor.set_u64_key(&[offset], &value_like(&like, left, header.endian))?,
            }
            if before == 0 || left == 0 {
                self.count_clone_entry(&object, &mut header, (vdev, offset, bytes), left > 0)?;
            }
        }
        if editor.len()? > 0 {
            return change.mos.object(id)?.update(change.tx, |dnode| dnode.bonus = header.to_bytes());
        }
        change.remove(DIRECTORY, &name)?;
        change.free_object(header.entries)?;
        change.free_object(id)?;
        feature::count(change, BLOCK_CLONING, -1)?;
        if self.counts_are_numbers()? {
            feature::count(change, BLOCK_CLONING_ENDIAN, -1)?;
        }
        Ok(())
    }

    /// Makes the table of a vdev, without entries; its header's object.
    fn create_clone_table(&self, vdev: VdevNumber) -> Result<ObjectId> {
        let change = &self.change;
        let dnode = Dnode::new(ObjectType::ZAP_METADATA, 1 << TABLE_SHIFT, TABLE_SHIFT, 1, 1);
        let entries = change.mos.allocate(change.tx, dnode)?;
        let flags = ZapHeader::FLAG_HASH64 | ZapHeader::FLAG_UINT64_KEY;
        Editor::create(&entries.changing(change.tx), flags, 0, change.env.random())?;
        let header = CloneHeader {
            entries: entries.id(),
            ranges: self.clone_ranges(vdev, RANGE_BYTES)?,
            endian: Endian::Little,
            count: 0,
            range_bytes: RANGE_BYTES,
            used_bytes: 0,
            saved_bytes: 0,
        };
        let mut dnode = Dnode::new(ObjectType::U64_METADATA, COUNTS_BLOCK_BYTES, INDIRECT_SHIFT, 1, 1);
        (dnode.bonus_type, dnode.bonus) = (ObjectType::U64_METADATA, header.to_bytes());
        let object = change.mos.allocate(change.tx, dnode)?;
        change.add(DIRECTORY, &header_name(vdev), object.id().get())?;
        // the first table says how all of them store counts
        let is_first = feature::uses(change, BLOCK_CLONING)? == Some(0);
        if is_first || self.counts_are_numbers()? {
            feature::count(change, BLOCK_CLONING_ENDIAN, 1)?;
        }
        feature::count(change, BLOCK_CLONING, 1)?;
        Ok(object.id())
    }

    /// Ranges that the metaslabs of a vdev lie in.
    fn clone_ranges(&self, vdev: VdevNumber, range_bytes: u64) -> Result<u64> {
        let in_metaslabs = |spec: &TopSpec| spec.asize >> spec.metaslab_shift.min(63) << spec.metaslab_shift.min(63);
        Ok(self.pool.tree().top(vdev)?.top_spec().map_or(0, in_metaslabs).div_ceil(range_bytes))
    }

    /// Whether entries are numbers, rather than bytes.
    fn counts_are_numbers(&self) -> Result<bool> {
        Ok(feature::uses(&self.change, BLOCK_CLONING_ENDIAN)?.is_some_and(|uses| uses > 0))
    }

    /// An entry without further pointers, as it is in a table.
    fn entry_form(&self, header: &CloneHeader) -> Result<ZapValue> {
        match self.counts_are_numbers()? {
            true => Ok(ZapValue::one(0)),
            false => Ok(value_like(&ZapValue::of_bytes(&[0; 8]), 0, header.endian)),
        }
    }

    /// Counts an entry that came or went.
    fn count_clone_entry(
        &self,
        object: &Object,
        header: &mut CloneHeader,
        (vdev, offset, bytes): (VdevNumber, u64, u64),
        is_new: bool,
    ) -> Result<()> {
        let with: fn(u64, u64) -> u64 = if is_new { u64::saturating_add } else { u64::saturating_sub };
        header.used_bytes = with(header.used_bytes, bytes);
        header.count = with(header.count, 1);
        let range = offset / header.range_bytes;
        if is_new && range >= header.ranges {
            // the vdev has grown
            header.ranges = self.clone_ranges(vdev, header.range_bytes)?.max(header.ranges);
        }
        if range >= header.ranges {
            return Ok(());
        }
        let mut count = [0; 2];
        object.read(range * 2, &mut count)?;
        let step: fn(u16) -> u16 = if is_new { |n| n.saturating_add(1) } else { |n| n.saturating_sub(1) };
        let count = match header.endian {
            Endian::Little => step(u16::from_le_bytes(count)).to_le_bytes(),
            Endian::Big => step(u16::from_be_bytes(count)).to_be_bytes(),
        };
        object.write(self.change.tx, range * 2, &count[..])
    }
}
