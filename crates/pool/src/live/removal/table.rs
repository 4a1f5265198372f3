//! Tables of vdevs that are removed, as objects of the MOS ([`format::removal`]): where what was there is now, how much of
//! it nobody needs, and in which groups it was copied.

use base::Result;
use dmu::INDIRECT_SHIFT;
use dsl::write::{Change, feature};
use format::blkptr::Dva;
use format::dnode::Dnode;
use format::feature::OBSOLETE_COUNTS;
use format::ids::ObjectId;
use format::object_type::ObjectType;
use format::removal::{COUNTS_TYPE, TABLE_TYPE, TableHeader, table_entry};
use vdev::MapEntry;

/// Bytes of a block of these objects.
const BLOCK_SIZE: u64 = 128 << 10;

/// A range of a vdev, and where it is from now on.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry {
    /// Where it begins on the vdev, in bytes.
    pub(super) offset: u64,
    /// As many bytes there.
    pub(super) to: Dva,
    /// Bytes of it that nobody needs.
    pub(super) obsolete: u32,
}

impl NewEntry {
    /// As the vdev's table has it in memory.
    pub(super) fn in_memory(&self) -> MapEntry {
        MapEntry {
            src_offset: self.offset,
            dst_top: self.to.vdev(),
            dst_offset: self.to.offset(),
            asize: self.to.asize(),
        }
    }
}

/// Makes an empty table; returns its object. It counts what is obsolete if the pool has the feature for that.
pub(super) fn create_table(change: &Change<'_>) -> Result<ObjectId> {
    let mut header = TableHeader::default();
    if feature::uses(change, OBSOLETE_COUNTS)?.is_some() {
        header.counts_object = change.mos.allocate(change.tx, dnode(COUNTS_TYPE, None))?.id();
        feature::count(change, OBSOLETE_COUNTS, 1)?;
    }
    Ok(change.mos.allocate(change.tx, dnode(TABLE_TYPE, Some(header.bonus())))?.id())
}

/// Makes an empty list of births; returns its object.
pub(super) fn create_births(change: &Change<'_>) -> Result<ObjectId> {
    Ok(change.mos.allocate(change.tx, dnode(TABLE_TYPE, Some(vec![0; 8])))?.id())
}

fn dnode(kind: ObjectType, bonus: Option<Vec<u8>>) -> Dnode {
    let mut dnode = Dnode::new(kind, BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
    if let Some(bonus) = bonus {
        (dnode.bonus_type, dnode.bonus) = (kind, bonus);
    }
    dnode
}

/// What the bonus buffer of a table says.
pub(super) fn header(change: &Change<'_>, table: ObjectId) -> Result<TableHeader> {
    let object = change.mos.object(table)?;
    TableHeader::parse(object.bonus()).map_err(|e| e.at_block(object.bookmark(0, 0)))
}

/// Adds entries, in order, behind all that are there. What fails before the last step leaves the table as it was.
pub(super) fn append(change: &Change<'_>, table: ObjectId, entries: &[NewEntry]) -> Result<()> {
    let mut header = header(change, table)?;
    let object = change.mos.object(table)?;
    let bytes: Vec<u8> = entries.iter().flat_map(|entry| table_entry(entry.offset, &entry.to)).collect();
    object.write(change.tx, header.count * TableHeader::ENTRY_SIZE, &bytes)?;
    if header.counts_object.is_some() {
        let counts: Vec<u8> = entries.iter().flat_map(|entry| entry.obsolete.to_le_bytes()).collect();
        let object = change.mos.object(header.counts_object)?;
        object.write(change.tx, header.count * TableHeader::COUNT_SIZE, &counts)?;
    }
    for entry in entries {
        header.end = entry.offset.saturating_add(entry.to.asize());
        header.mapped_bytes = header.mapped_bytes.saturating_add(entry.to.asize());
        header.count += 1;
    }
    object.update(change.tx, |dnode| dnode.bonus = header.bonus())
}

/// Notes that all up to `end` was copied in this group, or before.
pub(super) fn add_birth(change: &Change<'_>, births: ObjectId, end: u64) -> Result<()> {
    let object = change.mos.object(births)?;
    let count = base::Endian::Little.u64(object.bonus()).unwrap_or(0);
    let at = count.checked_mul(16).filter(|at| *at <= object.dnode().size_max());
    let at = at.ok_or_else(|| base::Error::corrupt("impossible births of a removed device"))?;
    let entry = [end.to_le_bytes(), change.tx.txg().get().to_le_bytes()].concat();
    object.write(change.tx, at, &entry)?;
    object.update(change.tx, |dnode| dnode.bonus = (count + 1).to_le_bytes().to_vec())
}

/// Frees a table.
pub(super) fn free_table(change: &Change<'_>, table: ObjectId) -> Result<()> {
    let counts = header(change, table)?.counts_object;
    if counts.is_some() {
        change.free_object(counts)?;
        feature::count(change, OBSOLETE_COUNTS, -1)?;
    }
    change.free_object(table)
}
