//! Tables of cloned blocks: what a group has released goes from their entries. See [`super::clone_releases`].

use std::collections::BTreeMap;

use base::{Endian, Error, Result};
use dmu::zap::Editor;
use dsl::write::feature;
use format::feature::{BLOCK_CLONING, BLOCK_CLONING_ENDIAN};

use super::SyncContext;
use super::clone_releases::{CloneEntry, ReleasedClones};
use crate::clones::{CloneHeader, count_of, header_name, value_like};
use crate::mos::DIRECTORY;

impl SyncContext<'_> {
    /// Brings what the group has released of cloned blocks into the tables.
    pub(super) fn write_clone_tables(&self) -> Result<()> {
        let ReleasedClones { entries, put_off, .. } = self.pool.clone_releases().take();
        let mut by_vdev: BTreeMap<u64, Vec<(u64, CloneEntry)>> = BTreeMap::new();
        for ((vdev, offset), entry) in entries {
            by_vdev.entry(vdev).or_default().push((offset, entry));
        }
        by_vdev.into_iter().try_for_each(|(vdev, entries)| self.write_clone_table(vdev, &entries))?;
        if !put_off.is_empty() {
            self.pool.put_off_list(&self.change)?.append(self.change.tx, &put_off, self.change.size_of)?;
            // so that the next group comes soon
            self.pool.frees().wake();
        }
        Ok(())
    }

    fn write_clone_table(&self, vdev: u64, changed: &[(u64, CloneEntry)]) -> Result<()> {
        let (change, name) = (&self.change, header_name(vdev));
        let id = change.in_directory(&name)?;
        let object = change.mos.object(id)?;
        let mut header = CloneHeader::of(&object)?;
        let entries = change.mos.object(header.entries)?;
        let entries = entries.changing(change.tx);
        let editor = Editor::new(&entries);
        for &(offset, CloneEntry { before, left, bytes }) in changed {
            let gone = || Error::corrupt(format!("the entry of block {vdev}:{offset:x} left its clone table"));
            let value = editor.lookup_u64_key(&[offset])?.ok_or_else(gone)?;
            debug_assert_eq!(count_of(&value, header.endian)?, before);
            // sums from disk may be anything
            header.saved_bytes = header.saved_bytes.saturating_sub(bytes.saturating_mul(before - left));
            if left > 0 {
                editor.set_u64_key(&[offset], &value_like(&value, left, header.endian))?;
                continue;
            }
            editor.remove_u64_key(&[offset])?;
            header.used_bytes = header.used_bytes.saturating_sub(bytes);
            header.count = header.count.saturating_sub(1);
            let range = offset / header.range_bytes;
            if range < header.ranges {
                let mut count = [0; 2];
                object.read(range * 2, &mut count)?;
                let count = match header.endian {
                    Endian::Little => u16::from_le_bytes(count).saturating_sub(1).to_le_bytes(),
                    Endian::Big => u16::from_be_bytes(count).saturating_sub(1).to_be_bytes(),
                };
                object.write(change.tx, range * 2, &count[..])?;
            }
        }
        if editor.len()? > 0 {
            return change.mos.object(id)?.update(change.tx, |dnode| dnode.bonus = header.to_bytes());
        }
        change.remove(DIRECTORY, &name)?;
        change.free_object(header.entries)?;
        change.free_object(id)?;
        feature::count(change, BLOCK_CLONING, -1)?;
        if feature::uses(change, BLOCK_CLONING_ENDIAN)?.is_some_and(|uses| uses > 0) {
            feature::count(change, BLOCK_CLONING_ENDIAN, -1)?;
        }
        Ok(())
    }
}
