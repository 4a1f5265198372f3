//! The entry by which a pool says how far its scrub or resilver is.

use format::ids::ObjectId;
use format::scan::ScanPhys;
use format::zap::{LeafMut, NewLeafEntry, ZapHeader, ZapPosition, hash_name};
use testkit::seal::{AtlasPlace, Forge, MOS};

use super::super::base_pools::BasePool;

/// The object directory of the MOS.
const DIRECTORY: ObjectId = ObjectId::new(1);
const NAME: &[u8] = b"scan";
/// Where the header of a table has its number of entries.
const ENTRIES_AT: usize = 72;

/// Lets the pool say that its scan is so. False if its directory has no room for that, or is of the small kind.
pub(super) fn put(base: &BasePool, forge: &mut Forge<'_>, words: &[u64; ScanPhys::WORDS]) -> bool {
    put_entry(base, forge, words).unwrap_or(false)
}

fn put_entry(base: &BasePool, forge: &mut Forge<'_>, words: &[u64; ScanPhys::WORDS]) -> Option<bool> {
    let head = base.atlas.block(MOS, DIRECTORY, 0, 0)?;
    let header = ZapHeader::parse(forge.contents(head)).ok()?;
    let hash = hash_name(header.salt, header.flags, NAME);
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    for block in base.atlas.data(MOS, DIRECTORY).into_iter().filter(|&block| block != head) {
        let Ok(mut leaf) = LeafMut::parse(forge.contents_mut(block)) else { continue };
        if !leaf.as_leaf().covers(hash) {
            continue;
        }
        let known = leaf.as_leaf().entries().ok()?;
        let is_it = |entry: &&format::zap::LeafEntry| leaf.as_leaf().is_named(entry, NAME).unwrap_or(false);
        if let Some(entry) = known.iter().find(is_it) {
            return leaf.set_value(entry, 8, &value).ok();
        }
        let key = [NAME, &[0]].concat();
        let position = ZapPosition { hash, cd: 0 };
        let record = NewLeafEntry { position, key: &key, key_len: key.len() as u16, width: 8, value: &value };
        let is_in = leaf.insert(&record).ok()?;
        if is_in {
            let entries_at = AtlasPlace { block: head, at: ENTRIES_AT };
            let count = u64::from_le_bytes(forge.contents(head)[ENTRIES_AT..][..8].try_into().ok()?);
            forge.put_u64(entries_at, count + 1);
        }
        return Some(is_in);
    }
    None
}

#[cfg(test)]
mod tests {
    use base::Env;
    use testkit::survey;

    use super::super::super::base_pools::bases;
    use super::*;

    #[test]
    fn a_scan_is_where_the_entry_says() {
        let mut count = 0;
        for base in bases(true) {
            let mut forge = Forge::new(&base.atlas);
            let mut words = [0; ScanPhys::WORDS];
            (words[0], words[1], words[10], words[23]) = (1, 1, 4711, ScanPhys::FLAG_PAUSED);
            if !put(&base, &mut forge, &words) {
                continue;
            }
            let devices = base.copy();
            forge.seal(&devices).unwrap();
            let pool = survey::open(&devices, &Env::fixed(0)).unwrap();
            let scan = pool.status().unwrap().scan.expect("the entry is found");
            assert_eq!((scan.examined_bytes, scan.is_paused), (4711, true), "{}", base.name);
            count += 1;
        }
        assert!(count >= 4, "{count}");
    }
}
