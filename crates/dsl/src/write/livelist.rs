//! What clones wrote, and freed of that again: with it a clone is destroyed without looking for its blocks.
//!
//! ```text
//!   directory ── "com.delphix:livelist" ──▶ table: txg ─▶ part: the blocks born after it, and not after the next key
//!                                             part: + block  + block  - block ...
//!   object directory ── "com.delphix:deleted_clones" ──▶ tables of clones that were destroyed: their parts are freed
//! ```
//!
//! A block is freed in the part that it was born in, so each part can be dealt with alone: what is born in it and not
//! freed is the clone's own still. A part that is full gets no blocks of later groups. Two that follow each other and have
//! become small are made one. When most of what a clone holds is its own, its blocks are found as quickly by walking its
//! tree, and the list goes.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Error, Result, tunables};
use dmu::Objset;
use dmu::bpobj::{self, Bpobj, ListedBlkPtr, Totals};
use dmu::zap::Zap;
use format::blkptr::BlkPtr;
use format::dsl::{DatasetPhys, DirPhys};
use format::feature::LIVELIST;
use format::ids::{DirId, ObjectId, Txg};
use format::object_type::ObjectType;

use super::deadlist::Deadlist;
use super::space::{Delta, UsedColumn};
use super::{Change, DIRECTORY, feature, space};

const FIELD: &str = "com.delphix:livelist";
const DESTROYED: &str = "com.delphix:deleted_clones";
/// Pointers of a part at most that are dealt with: more are in no part that was made as they should be.
const PART_MAX: u64 = 4 << 20;

/// What tells one birth of a block from others: where it is, and when it was born.
type BirthKey = ([u64; 2], Txg);

/// Makes an empty list for a new clone, if the pool has the feature.
pub(super) fn create(change: &Change<'_>, dir: DirId) -> Result<()> {
    if !feature::is_enabled(change, LIVELIST)? {
        return Ok(());
    }
    feature::zapify(change, dir.object())?;
    let list = Deadlist::create(change)?;
    change.add(dir.object(), FIELD, list.id().get())?;
    feature::count(change, LIVELIST, 1).map(drop)
}

/// The list of a directory's clone.
pub(super) fn find(mos: &Arc<Objset>, dir: DirId) -> Result<Option<ObjectId>> {
    let object = mos.object(dir.object())?;
    match object.dnode().object_type {
        ObjectType::ZAP_METADATA => Zap::open(object)?.object_id(FIELD),
        _ => Ok(None),
    }
}

/// Gives up the list of a clone, if it has one: it would be wrong from now on, and a wrong one frees what is in use.
pub(super) fn drop_of(change: &Change<'_>, dir: DirId) -> Result<()> {
    let Some(list) = find(change.mos, dir)? else { return Ok(()) };
    Deadlist::open(change, list)?.free()?;
    change.remove(dir.object(), FIELD)?;
    feature::count(change, LIVELIST, -1).map(drop)
}

/// The blocks that a clone wrote in a group, and those that it freed, of those born after its origin.
#[derive(Default)]
pub(super) struct LiveChanges {
    pub(super) born: Vec<BlkPtr>,
    pub(super) freed: Vec<BlkPtr>,
}

/// Notes what a clone, whose record is `head`, wrote and freed in this group. The list goes if it is of no use any more.
pub(super) fn add(change: &Change<'_>, list: ObjectId, head: &DatasetPhys, changes: &LiveChanges) -> Result<()> {
    let max = change.env.tunable(tunables::ZFS_LIVELIST_MAX_ENTRIES);
    let live = Deadlist::open(change, list)?;
    let parts = live.parts()?;
    let is_full = match parts.last() {
        None => true,
        Some((_, part)) => {
            let (all, frees) = Bpobj::open(change.mos, *part)?.counts()?;
            all.saturating_sub(frees) > max
        }
    };
    if is_full {
        live.add_key_with_frees(change.tx.txg().previous())?;
    }
    live.insert_marked(&changes.born, false)?;
    live.insert_marked(&changes.freed, true)?;
    condense(change, &live, max)?;
    match is_of_use(change, head, &change.dir(head.dir)?) {
        true => Ok(()),
        false => drop_of(change, head.dir),
    }
}

/// Whether so much of a clone is shared with its origin that the list is of use.
fn is_of_use(change: &Change<'_>, head: &DatasetPhys, dir: &DirPhys) -> bool {
    let least = change.env.tunable(tunables::ZFS_LIVELIST_MIN_PERCENT_SHARED);
    let own = dir.used_breakdown[UsedColumn::Head as usize];
    let shared = head.referenced_bytes.saturating_sub(own);
    head.referenced_bytes == 0 || u128::from(shared) * 100 / u128::from(head.referenced_bytes) > u128::from(least)
}

/// Makes one part of two that have become small; the latest part grows still, and stays as it is.
fn condense(change: &Change<'_>, live: &Deadlist<'_>, max: u64) -> Result<()> {
    let parts = live.parts()?;
    let mut counts = Vec::new();
    for (_, part) in parts.iter().take(parts.len().saturating_sub(1)) {
        counts.push(Bpobj::open(change.mos, *part)?.counts()?);
    }
    let left = |(all, frees): (u64, u64)| all.saturating_sub(frees.saturating_mul(2));
    let Some(at) = counts.windows(2).position(|pair| left(pair[0]).saturating_add(left(pair[1])) < max) else {
        return Ok(());
    };
    let mut blocks = still_live(change, parts[at].1)?;
    blocks.extend(still_live(change, parts[at + 1].1)?);
    live.replace_part(parts[at], &blocks)?;
    live.take_part(parts[at + 1])
}

/// The blocks of a part that are not freed.
fn still_live(change: &Change<'_>, part: ObjectId) -> Result<Vec<BlkPtr>> {
    let key = |bp: &BlkPtr| -> BirthKey { (bp.dvas()[0].words(), bp.birth()) };
    let (mut freed, mut count): (HashMap<BirthKey, u64>, u64) = (HashMap::new(), 0);
    let mut born = Vec::new();
    bpobj::for_each(change.mos, part, &mut |ListedBlkPtr { bp, is_free }| {
        count += 1;
        if count > PART_MAX {
            return Err(Error::corrupt(format!("a part of a clone's list of more than {PART_MAX} blocks")));
        }
        match is_free {
            true => *freed.entry(key(&bp)).or_default() += 1,
            false => born.push(bp),
        }
        Ok(())
    })?;
    born.retain(|bp| match freed.get_mut(&key(bp)) {
        Some(left @ 1..) => {
            *left -= 1;
            false
        }
        _ => true,
    });
    match freed.values().all(|left| *left == 0) {
        true => Ok(born),
        false => Err(Error::corrupt("a clone's list frees what it has not")),
    }
}

/// Gives the blocks of a clone that is destroyed to [`free_clones`], by its list. False if it has none, or one that does not
/// say what the accounts say: then it has been given up.
pub(super) fn destroy(change: &Change<'_>, dir: DirId) -> Result<bool> {
    let Some(list) = find(change.mos, dir)? else { return Ok(false) };
    let phys = change.dir(dir)?;
    let totals = Deadlist::open(change, list)?.totals()?;
    if (totals.used, totals.compressed) != (phys.used_bytes, phys.compressed_bytes) {
        drop_of(change, dir)?;
        return Ok(false);
    }
    let all =
        Totals { used: phys.used_bytes, compressed: phys.compressed_bytes, uncompressed: phys.uncompressed_bytes };
    space::charge(change, dir, UsedColumn::Head, Delta::between(all, Totals::default()))?;
    space::charge(change, change.own_dir("$FREE")?, UsedColumn::Head, Delta::between(Totals::default(), totals))?;
    let table = match change.object_id(DIRECTORY, DESTROYED)? {
        Some(table) => table,
        None => {
            let table = change.create_table(ObjectType::ZAP_METADATA)?;
            change.add(DIRECTORY, DESTROYED, table.get())?;
            table
        }
    };
    change.add_number(table, list)?;
    change.remove(dir.object(), FIELD)?;
    Ok(true)
}

/// Whether lists of destroyed clones wait.
pub(super) fn has_clones(change: &Change<'_>) -> Result<bool> {
    Ok(change.object_id(DIRECTORY, DESTROYED)?.is_some())
}

/// Frees up to `count` blocks of destroyed clones: calls `free` with each. Returns how many; fewer only if there are none
/// left. Errors: those of reading the lists; what was freed before is noted.
pub(super) fn free_clones(change: &Change<'_>, count: u64, free: &mut dyn FnMut(&BlkPtr)) -> Result<u64> {
    let Some(table) = change.object_id(DIRECTORY, DESTROYED)? else { return Ok(0) };
    let mut done = 0;
    for (_, list) in change.by_number(table)? {
        let live = Deadlist::open(change, ObjectId::new(list))?;
        for part in live.parts()? {
            if done >= count {
                return Ok(done);
            }
            done += free_part(change, &live, part, count - done, free)?;
        }
        if !live.parts()?.is_empty() {
            return Ok(done);
        }
        live.free()?;
        change.remove(table, &format!("{list:x}"))?;
        feature::count(change, LIVELIST, -1)?;
    }
    change.remove(DIRECTORY, DESTROYED)?;
    change.free_object(table)?;
    Ok(done)
}

/// Frees up to `count` blocks of a part, which keeps the rest.
fn free_part(
    change: &Change<'_>,
    live: &Deadlist<'_>,
    part: (Txg, ObjectId),
    count: u64,
    free: &mut dyn FnMut(&BlkPtr),
) -> Result<u64> {
    let mut blocks = still_live(change, part.1)?;
    let rest = blocks.split_off(blocks.len().min(usize::try_from(count).unwrap_or(usize::MAX)));
    let totals = blocks.iter().fold(Totals::default(), |sum, bp| sum.plus(change.totals(bp)));
    match rest.is_empty() {
        true => live.take_part(part)?,
        false => live.replace_part(part, &rest)?,
    }
    let delta = Delta::between(totals, Totals::default());
    space::charge(change, change.own_dir("$FREE")?, UsedColumn::Head, delta)?;
    blocks.iter().for_each(&mut *free);
    Ok(blocks.len() as u64)
}
