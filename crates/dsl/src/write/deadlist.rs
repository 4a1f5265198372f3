//! Dead lists: blocks that died in a dataset after its previous snapshot, and which that, or an older one, has.
//!
//! ```text
//!   table: key ─▶ list of pointers            bonus: used, compressed, uncompressed bytes of all lists
//!            0 ─▶ born after txg 0, up to 15
//!           15 ─▶ born after txg 15, up to 40        keys: txgs of the older snapshots
//!           40 ─▶ born after txg 40
//! ```
//!
//! Lists are empty more often than not, so all empty ones can be one object, if the pool has that feature. In
//! pools before version 26 a dead list is one plain list.
//!
//! Lists go from one dead list to another, or to the list of what is to be freed, as a whole: no block in them is
//! looked at.

use std::collections::BTreeMap;

use base::{Error, Kind, Result};
use dmu::bpobj::{self, Bpobj, Totals};
use dmu::zap::ZapValue;
use format::blkptr::BlkPtr;
use format::feature::EMPTY_BPOBJ;
use format::object_type::ObjectType;

use super::{Change, DIRECTORY, feature, versions};

const HEADER_SIZE: usize = 320;
/// Words of the head of a plain list, and of one that tells no sizes before and after compression.
const PLAIN_WORDS: usize = 4;
const OLDEST_WORDS: usize = 2;
const EMPTY: &str = "empty_bpobj";
/// More clones of clones than are there.
const CLONES_MAX: usize = 1 << 20;

/// A dead list of the MOS that is being changed.
pub(super) struct Deadlist<'a> {
    change: &'a Change<'a>,
    id: u64,
    /// It is one plain list.
    is_plain: bool,
}

impl<'a> Deadlist<'a> {
    /// Makes a dead list without parts; in a pool that is older than these, a plain one.
    pub(super) fn create(change: &'a Change<'a>) -> Result<Deadlist<'a>> {
        if !change.is_since(versions::DEADLISTS)? {
            let words = if change.is_since(versions::SIZES_IN_LISTS)? { PLAIN_WORDS } else { OLDEST_WORDS };
            let id = Bpobj::create_old(change.mos, change.tx, bpobj::BLOCK_SIZE, words)?;
            return Ok(Deadlist { change, id, is_plain: true });
        }
        let id =
            change.create_table_with(ObjectType::DEADLIST, (ObjectType::DEADLIST_HEADER, vec![0; HEADER_SIZE]), 0)?;
        Ok(Deadlist { change, id, is_plain: false })
    }

    /// Dead list `id`. Errors: `NotFound`.
    pub(super) fn open(change: &'a Change<'a>, id: u64) -> Result<Deadlist<'a>> {
        let is_plain = change.mos.object(id)?.dnode().object_type == ObjectType::BPOBJ;
        Ok(Deadlist { change, id, is_plain })
    }

    /// Whether it is one plain list.
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// All blocks of a plain list.
    pub(super) fn all(&self) -> Result<Vec<BlkPtr>> {
        let mut all = Vec::new();
        bpobj::for_each(self.change.mos, self.id, &mut |listed| {
            all.push(listed.bp);
            Ok(())
        })?;
        Ok(all)
    }

    /// Its object number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Refuses a plain list, for what needs its parts by age. Errors: `Unsupported`.
    pub(super) fn check_parts(&self) -> Result<()> {
        match self.is_plain {
            false => Ok(()),
            true => Err(Error::new(Kind::Unsupported, "its dead list is of a version of the pool before 26")),
        }
    }

    /// Makes an empty dead list with the parts whose key is below `end_txg`. If this one is plain, and the pool has parts
    /// by now, it gets those of snapshot `latest` and all before it.
    pub(super) fn clone_parts(&self, end_txg: u64, latest: u64) -> Result<Deadlist<'a>> {
        let list = Deadlist::create(self.change)?;
        if list.is_plain {
            return Ok(list);
        }
        if self.is_plain {
            let (mut at, mut before_txg) = (latest, u64::MAX);
            while at != 0 {
                let phys = self.change.dataset(at)?;
                if phys.prev_snap_txg >= before_txg {
                    return Err(Error::corrupt("chain of snapshots does not go back in time"));
                }
                list.add_key(phys.prev_snap_txg)?;
                (at, before_txg) = (phys.prev_snap, phys.prev_snap_txg);
            }
            return Ok(list);
        }
        for (key, _) in self.parts()?.into_iter().filter(|(key, _)| *key < end_txg) {
            list.add_key(key)?;
        }
        Ok(list)
    }

    /// Adds a part for blocks born after `key`; a plain list has none.
    pub(super) fn add_key(&self, key: u64) -> Result<()> {
        if self.is_plain {
            return Ok(());
        }
        let part = create_empty_list(self.change)?;
        self.change.add(self.id, &format!("{key:x}"), part)
    }

    /// The same, for a part that can tell of frees.
    pub(super) fn add_key_with_frees(&self, key: u64) -> Result<()> {
        let part = match feature::is_enabled(self.change, EMPTY_BPOBJ)? {
            true => create_empty_list(self.change)?,
            false => Bpobj::create_with_frees(self.change.mos, self.change.tx)?,
        };
        self.change.add(self.id, &format!("{key:x}"), part)
    }

    /// Removes a part, and gives up what is in it.
    pub(super) fn take_part(&self, (key, part): (u64, u64)) -> Result<()> {
        self.change.remove(self.id, &format!("{key:x}"))?;
        if Some(part) == self.change.number(DIRECTORY, EMPTY)? {
            return leave_empty_list(self.change);
        }
        self.count(Bpobj::open(self.change.mos, part)?.totals()?, true)?;
        Bpobj::free(self.change.mos, self.change.tx, part)
    }

    /// Gives a part, which can tell of frees, other blocks.
    pub(super) fn replace_part(&self, (key, part): (u64, u64), bps: &[BlkPtr]) -> Result<()> {
        let Change { mos, tx, size_of, .. } = *self.change;
        self.take_part((key, part))?;
        let new = Bpobj::create_with_frees(mos, tx)?;
        let list = Bpobj::open(mos, new)?;
        list.append(tx, bps, size_of)?;
        self.count(list.totals()?, false)?;
        self.change.add(self.id, &format!("{key:x}"), new)
    }

    /// Removes a part; what is in it goes to the part before. Nothing happens if there is none with that key.
    pub(super) fn remove_key(&self, key: u64) -> Result<()> {
        if self.is_plain {
            return Ok(());
        }
        let parts = self.parts()?;
        let Some(at) = parts.iter().position(|(one, _)| *one == key) else { return Ok(()) };
        let before = at.checked_sub(1).map(|before| parts[before]);
        let before = before.ok_or_else(|| Error::corrupt("dead list without a part for older blocks"))?;
        self.append_to(before, parts[at].1)?;
        self.change.remove(self.id, &format!("{key:x}")).map(drop)
    }

    /// What all blocks in it count for.
    pub(super) fn totals(&self) -> Result<Totals> {
        if self.is_plain {
            return Bpobj::open(self.change.mos, self.id)?.totals();
        }
        let object = self.change.mos.object(self.id)?;
        let word = |at: usize| base::Endian::Little.u64(object.bonus().get(at * 8..).unwrap_or_default());
        let short = || Error::corrupt("dead list without a header");
        let [used, compressed, uncompressed] = [word(0), word(1), word(2)].map(|word| word.ok_or_else(short));
        Ok(Totals { used: used?, compressed: compressed?, uncompressed: uncompressed? })
    }

    /// What blocks in it count for that were born after `after_txg`, and not after `up_to_txg`. Both are keys, or less
    /// or more than all.
    pub(super) fn totals_born(&self, after_txg: u64, up_to_txg: u64) -> Result<Totals> {
        let mut sum = Totals::default();
        if self.is_plain {
            bpobj::for_each(self.change.mos, self.id, &mut |listed| {
                let birth = listed.bp.reference_birth();
                if birth > after_txg && birth <= up_to_txg {
                    sum = sum.plus(self.change.totals(&listed.bp));
                }
                Ok(())
            })?;
            return Ok(sum);
        }
        for (key, part) in self.parts()? {
            if key >= after_txg && key < up_to_txg {
                sum = sum.plus(Bpobj::open(self.change.mos, part)?.totals()?);
            }
        }
        Ok(sum)
    }

    /// Moves all parts of `from`, which is to be freed, into this one's.
    pub(super) fn merge(&self, from: &Deadlist<'_>) -> Result<()> {
        self.check_parts()?;
        if from.is_plain {
            return self.insert(&from.all()?);
        }
        let parts = self.parts()?;
        self.count(from.totals()?, false)?;
        for (key, part) in from.parts()? {
            let at = parts.partition_point(|(own, _)| *own <= key).saturating_sub(1);
            let own = parts.get(at).ok_or_else(|| Error::corrupt("dead list without parts"))?;
            // an empty part may have become a list of its own by now
            let own = (own.0, self.change.number(self.id, &format!("{:x}", own.0))?.unwrap_or(own.1));
            self.append_to(own, part)?;
            from.change.remove(from.id, &format!("{key:x}"))?;
        }
        from.count(from.totals()?, true)
    }

    /// Moves all parts for blocks born after `since_txg` to list `to`, and removes their keys.
    pub(super) fn move_since(&self, since_txg: u64, to: &Bpobj) -> Result<()> {
        self.check_parts()?;
        for (key, part) in self.parts()?.into_iter().filter(|(key, _)| *key >= since_txg) {
            self.change.remove(self.id, &format!("{key:x}"))?;
            if Some(part) == self.change.number(DIRECTORY, EMPTY)? {
                leave_empty_list(self.change)?;
                continue;
            }
            self.count(Bpobj::open(self.change.mos, part)?.totals()?, true)?;
            to.append_list(self.change.tx, part)?;
        }
        Ok(())
    }

    /// Frees the dead list, not the blocks in it.
    pub(super) fn free(self) -> Result<()> {
        let Change { mos, tx, .. } = *self.change;
        if self.is_plain {
            return Bpobj::free(mos, tx, self.id);
        }
        for (_, part) in self.parts()? {
            if Some(part) == self.change.number(DIRECTORY, EMPTY)? {
                leave_empty_list(self.change)?;
            } else {
                Bpobj::free(mos, tx, part)?;
            }
        }
        self.change.free_object(self.id)
    }

    /// Puts blocks on it.
    pub(super) fn insert(&self, bps: &[BlkPtr]) -> Result<()> {
        self.put(bps, None)
    }

    /// Puts blocks on parts that can tell of frees, as born or as freed.
    pub(super) fn insert_marked(&self, bps: &[BlkPtr], are_free: bool) -> Result<()> {
        self.put(bps, Some(are_free))
    }

    fn put(&self, bps: &[BlkPtr], marked: Option<bool>) -> Result<()> {
        let are_free = marked == Some(true);
        let Change { mos, tx, size_of, .. } = *self.change;
        if bps.is_empty() {
            return Ok(());
        }
        if self.is_plain {
            return Bpobj::open(mos, self.id)?.append(tx, bps, size_of);
        }
        let parts = self.parts()?;
        let mut by_part: BTreeMap<(u64, u64), Vec<BlkPtr>> = BTreeMap::new();
        let mut sum = Totals::default();
        for bp in bps {
            // the first part has to take what would be in none
            let part = parts.partition_point(|(key, _)| *key < bp.reference_birth()).saturating_sub(1);
            let part = parts.get(part).ok_or_else(|| Error::corrupt("dead list without parts"))?;
            by_part.entry(*part).or_default().push(*bp);
            sum = sum.plus(self.change.totals(bp));
        }
        for ((key, part), bps) in by_part {
            let mut part = part;
            if Some(part) == self.change.number(DIRECTORY, EMPTY)? {
                part = match marked {
                    None => Bpobj::create(mos, tx, bpobj::BLOCK_SIZE, true)?,
                    Some(_) => Bpobj::create_with_frees(mos, tx)?,
                };
                leave_empty_list(self.change)?;
                self.change.set(self.id, &format!("{key:x}"), &ZapValue::one(part))?;
            }
            Bpobj::open(mos, part)?.append_marked(tx, &bps, are_free, size_of)?;
        }
        self.count(sum, are_free)
    }

    /// Key and list of each part, by key.
    pub(super) fn parts(&self) -> Result<Vec<(u64, u64)>> {
        self.change.by_number(self.id)
    }

    /// Adds list `part` to the one of another part.
    fn append_to(&self, (key, to): (u64, u64), part: u64) -> Result<()> {
        let empty = self.change.number(DIRECTORY, EMPTY)?;
        if Some(part) == empty {
            return leave_empty_list(self.change);
        }
        if Some(to) == empty {
            leave_empty_list(self.change)?;
            return self.change.set(self.id, &format!("{key:x}"), &ZapValue::one(part));
        }
        Bpobj::open(self.change.mos, to)?.append_list(self.change.tx, part)
    }

    /// Adds to the sums in the header, or takes from them.
    fn count(&self, totals: Totals, is_less: bool) -> Result<()> {
        let Totals { used, compressed, uncompressed } = if is_less { Totals::default().minus(totals) } else { totals };
        self.change.mos.object(self.id)?.update(self.change.tx, |dnode| {
            for (place, add) in dnode.bonus.chunks_exact_mut(8).zip([used, compressed, uncompressed]) {
                let before = u64::from_le_bytes(place.try_into().expect("chunks are 8 bytes"));
                place.copy_from_slice(&before.wrapping_add(add).to_le_bytes());
            }
        })
    }
}

/// An empty list: one that all share, if the pool has that.
fn create_empty_list(change: &Change<'_>) -> Result<u64> {
    let Some(count) = feature::uses(change, EMPTY_BPOBJ)? else {
        return Bpobj::create(change.mos, change.tx, bpobj::BLOCK_SIZE, true);
    };
    if count == 0 {
        let list = Bpobj::create(change.mos, change.tx, bpobj::BLOCK_SIZE, true)?;
        change.add(DIRECTORY, EMPTY, list)?;
    }
    feature::count(change, EMPTY_BPOBJ, 1)?;
    change.in_directory(EMPTY)
}

/// One user less of the empty list.
fn leave_empty_list(change: &Change<'_>) -> Result<()> {
    if feature::count(change, EMPTY_BPOBJ, -1)? == 0 {
        let list = change.in_directory(EMPTY)?;
        change.remove(DIRECTORY, EMPTY)?;
        change.free_object(list)?;
    }
    Ok(())
}

/// The heads of all clones of later snapshots, and of these clones', need no part of their own any more for blocks
/// born after `txg`.
pub(super) fn remove_key_of_clones(change: &Change<'_>, dir: u64, txg: u64) -> Result<()> {
    let (mut left, mut seen) = (vec![dir], 0);
    while let Some(dir) = left.pop() {
        seen += 1;
        if seen > CLONES_MAX {
            return Err(Error::corrupt("clones of each other"));
        }
        let table = change.dir(dir)?.clones_zap;
        if table == 0 {
            continue;
        }
        for (_, clone) in change.by_number(table)? {
            let clone = change.dataset(clone)?;
            let origin = change.dir(clone.dir)?.origin;
            if origin != 0 && change.dataset(origin)?.creation_txg > txg {
                Deadlist::open(change, clone.deadlist)?.remove_key(txg)?;
                left.push(clone.dir);
            }
        }
    }
    Ok(())
}
