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
//! looked at. A dead list that is open remembers its keys, so that a change of one part reads no others.

use std::cell::{RefCell, RefMut};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use base::{Error, Kind, Result};
use dmu::bpobj::{self, Bpobj, Totals};
use dmu::zap::ZapValue;
use format::blkptr::BlkPtr;
use format::feature::EMPTY_BPOBJ;
use format::ids::{DatasetId, DirId, ObjectId, Txg};
use format::object_type::ObjectType;

use super::{Change, DIRECTORY, feature, versions};

const HEADER_SIZE: usize = 320;
/// Words of the head of a plain list, and of one that tells no sizes before and after compression.
const PLAIN_WORDS: usize = 4;
const OLDEST_WORDS: usize = 2;
const EMPTY: &str = "empty_bpobj";
/// More clones of clones than are there.
const CLONES_MAX: usize = 1 << 20;
/// Dead lists that are kept open at once.
const OPEN_MAX: usize = 64;

/// A dead list of the MOS that is being changed.
pub(super) struct Deadlist<'a> {
    change: &'a Change<'a>,
    id: ObjectId,
    /// It is one plain list.
    is_plain: bool,
    /// The list of each key, once they were read.
    parts: RefCell<Option<BTreeMap<Txg, ObjectId>>>,
}

/// Dead lists that stay open while many snapshots are destroyed, as most of these change the same ones.
pub(super) struct OpenDeadlists<'a> {
    change: &'a Change<'a>,
    open: HashMap<ObjectId, Deadlist<'a>>,
}

impl<'a> OpenDeadlists<'a> {
    pub(super) fn new(change: &'a Change<'a>) -> OpenDeadlists<'a> {
        OpenDeadlists { change, open: HashMap::new() }
    }

    pub(super) fn change(&self) -> &'a Change<'a> {
        self.change
    }

    /// Dead list `id`. Errors: `NotFound`.
    pub(super) fn get(&mut self, id: ObjectId) -> Result<&Deadlist<'a>> {
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&id) {
            self.open.clear();
        }
        Ok(match self.open.entry(id) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => place.insert(Deadlist::open(self.change, id)?),
        })
    }

    /// Dead list `id`, which is to be freed. Errors: `NotFound`.
    pub(super) fn take(&mut self, id: ObjectId) -> Result<Deadlist<'a>> {
        self.open.remove(&id).map_or_else(|| Deadlist::open(self.change, id), Ok)
    }
}

impl<'a> Deadlist<'a> {
    /// Makes a dead list without parts; in a pool that is older than these, a plain one.
    pub(super) fn create(change: &'a Change<'a>) -> Result<Deadlist<'a>> {
        if !change.is_since(versions::DEADLISTS)? {
            let words = if change.is_since(versions::SIZES_IN_LISTS)? { PLAIN_WORDS } else { OLDEST_WORDS };
            let id = Bpobj::create_old(change.mos, change.tx, bpobj::BLOCK_SIZE, words)?;
            return Ok(Deadlist { change, id, is_plain: true, parts: RefCell::new(None) });
        }
        let id =
            change.create_table_with(ObjectType::DEADLIST, (ObjectType::DEADLIST_HEADER, vec![0; HEADER_SIZE]), 0)?;
        Ok(Deadlist { change, id, is_plain: false, parts: RefCell::new(Some(BTreeMap::new())) })
    }

    /// Dead list `id`. Errors: `NotFound`.
    pub(super) fn open(change: &'a Change<'a>, id: ObjectId) -> Result<Deadlist<'a>> {
        let is_plain = change.mos.object(id)?.dnode().object_type == ObjectType::BPOBJ;
        Ok(Deadlist { change, id, is_plain, parts: RefCell::new(None) })
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
    pub(super) fn id(&self) -> ObjectId {
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
    pub(super) fn clone_parts(&self, end_txg: Txg, latest: DatasetId) -> Result<Deadlist<'a>> {
        let list = Deadlist::create(self.change)?;
        if list.is_plain {
            return Ok(list);
        }
        if self.is_plain {
            let (mut at, mut before_txg) = (latest, Txg::MAX);
            while at.is_some() {
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
    pub(super) fn add_key(&self, key: Txg) -> Result<()> {
        if self.is_plain {
            return Ok(());
        }
        let part = create_empty_list(self.change)?;
        self.add_part(key, part)
    }

    /// The same, for a part that can tell of frees.
    pub(super) fn add_key_with_frees(&self, key: Txg) -> Result<()> {
        let part = match feature::is_enabled(self.change, EMPTY_BPOBJ)? {
            true => create_empty_list(self.change)?,
            false => Bpobj::create_with_frees(self.change.mos, self.change.tx)?,
        };
        self.add_part(key, part)
    }

    /// Removes a part, and gives up what is in it.
    pub(super) fn take_part(&self, (key, part): (Txg, ObjectId)) -> Result<()> {
        self.drop_key(key)?;
        if Some(part) == self.change.object_id(DIRECTORY, EMPTY)? {
            return leave_empty_list(self.change, 1);
        }
        self.count(Bpobj::open(self.change.mos, part)?.totals()?, true)?;
        Bpobj::free(self.change.mos, self.change.tx, part)
    }

    /// Gives a part, which can tell of frees, other blocks.
    pub(super) fn replace_part(&self, (key, part): (Txg, ObjectId), bps: &[BlkPtr]) -> Result<()> {
        let Change { mos, tx, size_of, .. } = *self.change;
        self.take_part((key, part))?;
        let new = Bpobj::create_with_frees(mos, tx)?;
        let list = Bpobj::open(mos, new)?;
        list.append(tx, bps, size_of)?;
        self.count(list.totals()?, false)?;
        self.add_part(key, new)
    }

    /// Removes a part; what is in it goes to the part before. Nothing happens if there is none with that key.
    pub(super) fn remove_key(&self, key: Txg) -> Result<()> {
        if self.is_plain {
            return Ok(());
        }
        let parts = self.read_parts()?;
        let Some(part) = parts.get(&key).copied() else { return Ok(()) };
        let before = parts.range(..key).next_back().map(|(key, part)| (*key, *part));
        drop(parts);
        let before = before.ok_or_else(|| Error::corrupt("dead list without a part for older blocks"))?;
        match Some(part) == self.change.object_id(DIRECTORY, EMPTY)? {
            true => leave_empty_list(self.change, 1)?,
            false => self.append_to(before, part)?,
        }
        self.drop_key(key)
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
    pub(super) fn totals_born(&self, after_txg: Txg, up_to_txg: Txg) -> Result<Totals> {
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
        let empty = self.change.object_id(DIRECTORY, EMPTY)?;
        let parts = self.read_parts()?;
        let parts = parts.range(after_txg..up_to_txg.max(after_txg));
        for (_, part) in parts.filter(|(_, part)| Some(**part) != empty) {
            sum = sum.plus(Bpobj::open(self.change.mos, *part)?.totals()?);
        }
        Ok(sum)
    }

    /// Moves all parts of `from` into this one's, and frees it.
    pub(super) fn merge(&self, from: Deadlist<'_>) -> Result<()> {
        self.check_parts()?;
        if from.is_plain {
            self.insert(&from.all()?)?;
            return from.free();
        }
        self.count(from.totals()?, false)?;
        let empty = self.change.object_id(DIRECTORY, EMPTY)?;
        let (mut empties, no_parts) = (0, || Error::corrupt("dead list without parts"));
        for (key, part) in from.parts()? {
            if Some(part) == empty {
                empties += 1;
                continue;
            }
            let parts = self.read_parts()?;
            // the first part has to take what would be in none
            let own = parts.range(..=key).next_back().or_else(|| parts.iter().next());
            let own = own.map(|(key, part)| (*key, *part)).ok_or_else(no_parts)?;
            drop(parts);
            self.append_to(own, part)?;
        }
        leave_empty_list(self.change, empties)?;
        self.change.free_object(from.id)
    }

    /// Moves all parts for blocks born after `since_txg` to list `to`, and removes their keys.
    pub(super) fn move_since(&self, since_txg: Txg, to: &Bpobj) -> Result<()> {
        self.check_parts()?;
        let parts: Vec<(Txg, ObjectId)> =
            self.read_parts()?.range(since_txg..).map(|(key, part)| (*key, *part)).collect();
        let empty = self.change.object_id(DIRECTORY, EMPTY)?;
        let mut empties = 0;
        for (key, part) in parts {
            self.drop_key(key)?;
            if Some(part) == empty {
                empties += 1;
                continue;
            }
            self.count(Bpobj::open(self.change.mos, part)?.totals()?, true)?;
            to.append_list(self.change.tx, part)?;
        }
        leave_empty_list(self.change, empties)
    }

    /// Frees the dead list, not the blocks in it.
    pub(super) fn free(self) -> Result<()> {
        let Change { mos, tx, .. } = *self.change;
        if self.is_plain {
            return Bpobj::free(mos, tx, self.id);
        }
        let empty = self.change.object_id(DIRECTORY, EMPTY)?;
        let mut empties = 0;
        for (_, part) in self.parts()? {
            match Some(part) == empty {
                true => empties += 1,
                false => Bpobj::free(mos, tx, part)?,
            }
        }
        leave_empty_list(self.change, empties)?;
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
        let mut by_part: BTreeMap<(Txg, ObjectId), Vec<BlkPtr>> = BTreeMap::new();
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
            if Some(part) == self.change.object_id(DIRECTORY, EMPTY)? {
                part = match marked {
                    None => Bpobj::create(mos, tx, bpobj::BLOCK_SIZE, true)?,
                    Some(_) => Bpobj::create_with_frees(mos, tx)?,
                };
                leave_empty_list(self.change, 1)?;
                self.set_part(key, part)?;
            }
            Bpobj::open(mos, part)?.append_marked(tx, &bps, are_free, size_of)?;
        }
        self.count(sum, are_free)
    }

    /// Key and list of each part, by key.
    pub(super) fn parts(&self) -> Result<Vec<(Txg, ObjectId)>> {
        Ok(self.read_parts()?.iter().map(|(key, part)| (*key, *part)).collect())
    }

    /// The list of each key. It may not be kept while parts are changed.
    fn read_parts(&self) -> Result<RefMut<'_, BTreeMap<Txg, ObjectId>>> {
        let mut parts = self.parts.borrow_mut();
        if parts.is_none() {
            let found = self.change.by_number(self.id)?.into_iter();
            *parts = Some(found.map(|(key, part)| (Txg::new(key), ObjectId::new(part))).collect());
        }
        Ok(RefMut::map(parts, |parts| parts.get_or_insert_default()))
    }

    fn add_part(&self, key: Txg, part: ObjectId) -> Result<()> {
        self.change.add(self.id, &format!("{key:x}"), part.get())?;
        self.remember(|parts| parts.insert(key, part));
        Ok(())
    }

    fn set_part(&self, key: Txg, part: ObjectId) -> Result<()> {
        self.change.set(self.id, &format!("{key:x}"), &ZapValue::one(part.get()))?;
        self.remember(|parts| parts.insert(key, part));
        Ok(())
    }

    fn drop_key(&self, key: Txg) -> Result<()> {
        self.change.remove(self.id, &format!("{key:x}"))?;
        self.remember(|parts| parts.remove(&key));
        Ok(())
    }

    /// Changes what is remembered as the table was.
    fn remember(&self, change: impl FnOnce(&mut BTreeMap<Txg, ObjectId>) -> Option<ObjectId>) {
        self.parts.borrow_mut().as_mut().map(change);
    }

    /// Adds list `part`, which is not the empty one, to the one of another part.
    fn append_to(&self, (key, to): (Txg, ObjectId), part: ObjectId) -> Result<()> {
        if Some(to) == self.change.object_id(DIRECTORY, EMPTY)? {
            leave_empty_list(self.change, 1)?;
            return self.set_part(key, part);
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
fn create_empty_list(change: &Change<'_>) -> Result<ObjectId> {
    let Some(count) = feature::uses(change, EMPTY_BPOBJ)? else {
        return Bpobj::create(change.mos, change.tx, bpobj::BLOCK_SIZE, true);
    };
    if count == 0 {
        let list = Bpobj::create(change.mos, change.tx, bpobj::BLOCK_SIZE, true)?;
        change.add(DIRECTORY, EMPTY, list.get())?;
    }
    feature::count(change, EMPTY_BPOBJ, 1)?;
    change.in_directory(EMPTY)
}

/// So many users less of the empty list.
fn leave_empty_list(change: &Change<'_>, users: i64) -> Result<()> {
    if users > 0 && feature::count(change, EMPTY_BPOBJ, -users)? == 0 {
        let list = change.in_directory(EMPTY)?;
        change.remove(DIRECTORY, EMPTY)?;
        change.free_object(list)?;
    }
    Ok(())
}

/// The heads of all clones of later snapshots, and of these clones', need no part of their own any more for blocks
/// born after `txg`.
pub(super) fn remove_key_of_clones(lists: &mut OpenDeadlists<'_>, dir: DirId, txg: Txg) -> Result<()> {
    let change = lists.change();
    let (mut left, mut seen) = (vec![dir], 0);
    while let Some(dir) = left.pop() {
        seen += 1;
        if seen > CLONES_MAX {
            return Err(Error::corrupt("clones of each other"));
        }
        let table = change.dir(dir)?.clones_zap;
        if table.is_none() {
            continue;
        }
        for (_, clone) in change.by_number(table)? {
            let clone = change.dataset(DatasetId::new(clone))?;
            let origin = change.dir(clone.dir)?.origin;
            if origin.is_some() && change.dataset(origin)?.creation_txg > txg {
                lists.get(clone.deadlist)?.remove_key(txg)?;
                left.push(clone.dir);
            }
        }
    }
    Ok(())
}
