//! Destroying heads that have neither snapshots nor children.
//!
//! The records go at once. The blocks of a clone are found by its list ([`super::livelist`]), if it has one. Others go to the
//! queue of destroyed heads ([`super::bptree`]), if the pool has the feature, and their accounts to the directory `$FREE`; else the caller frees them in this group.

use base::{Error, Kind, Result, ResultExt};
use dmu::bpobj::Totals;
use dmu::zap::{Zap, ZapValue};
use format::blkptr::BlkPtr;
use format::dsl::DatasetPhys;
use format::feature::ASYNC_DESTROY;
use format::ids::{DatasetId, DirId, ObjectId, Txg};

use super::bookmark::Bookmarks;
use super::bptree::Destroyed;
use super::deadlist::Deadlist;
use super::hold::GoneSnapshot;
use super::space::{Delta, UsedColumn};
use super::{Change, bptree, counts, destroy_snapshot, feature, hold, livelist, room, space};
use crate::Dsl;
use crate::key::KEY_FIELD;

/// How many directories have a wrapped key.
const KEY_USERS: &str = "DSL_CRYPTO_REFCOUNT";

/// What is left to do of a destroyed file system or volume.
#[derive(Clone, Debug, PartialEq)]
pub struct DestroyedDataset {
    /// What is to be done with its blocks.
    pub blocks: Destroyed,
    /// Its origin, if the destruction of that had waited for it.
    pub origin: Option<GoneSnapshot>,
}

/// Destroys the file system or volume of that name. `dsl` is that of the MOS that is being changed.
///
/// Nobody may have it open. An origin whose destruction has waited for that goes, too. Errors: `NotFound`; `NotEmpty`
/// if it has snapshots or children.
pub fn destroy_dataset(change: &Change<'_>, dsl: &Dsl, name: &str) -> Result<DestroyedDataset> {
    let dir = dsl.find_dir(name)?;
    let head = dsl.head(&dir)?;
    if dir.phys.parent.is_none() {
        return Err(Error::new(Kind::Invalid, "operation does not apply to pools"));
    }
    let has_snapshots = change.entries_of(head.phys.snapnames_zap)? > 0;
    if has_snapshots || change.entries_of(dir.phys.child_zap)? > 0 {
        return Err(Error::new(Kind::NotEmpty, "filesystem has children"));
    }
    let origin = match head.phys.prev_snap {
        DatasetId::NONE => None,
        origin => Some((origin, dsl.name_of(origin)?)),
    };
    let blocks = destroy_head(change, dir.id, head.id, name).in_dataset(name)?;
    let origin = match origin {
        Some((origin, name)) => hold::remove_if_deferred(change, origin, &name)?,
        None => None,
    };
    Ok(DestroyedDataset { blocks, origin })
}

fn destroy_head(change: &Change<'_>, dir: DirId, id: DatasetId, name: &str) -> Result<Destroyed> {
    forget_refreservation(change, dir, id)?;
    let head = change.dataset(id)?;
    leave_origin(change, &head, id)?;
    Deadlist::open(change, head.deadlist)?.free()?;
    let destroyed = match livelist::destroy(change, dir)? {
        true => Destroyed::Queued,
        false => give_up_blocks(change, dir, &head)?,
    };
    Bookmarks::open(change, id)?.free()?;
    feature::leave_all(change, id)?;
    destroy_snapshot::forget_boot_file_system(change, id)?;
    change.free_object(head.snapnames_zap)?;
    feature::free_record(change, id.object())?;
    destroy_dir(change, dir, name.rsplit_once('/').map_or(name, |(_, name)| name))?;
    Ok(destroyed)
}

fn forget_refreservation(change: &Change<'_>, dir: DirId, head: DatasetId) -> Result<()> {
    let reserved = room::refreservation_of(change, dir)?;
    let unique = change.dataset(head)?.unique_bytes;
    match reserved.saturating_sub(unique) as i64 {
        0 => Ok(()),
        rest => space::charge(change, dir, UsedColumn::Refreservation, Delta::used(rest.wrapping_neg())),
    }
}

fn leave_origin(change: &Change<'_>, head: &DatasetPhys, id: DatasetId) -> Result<()> {
    if head.prev_snap.is_none() {
        return Ok(());
    }
    let origin = change.dataset(head.prev_snap)?;
    let key = format!("{id:x}");
    if origin.next_clones_zap.is_some() {
        change.remove(origin.next_clones_zap, &key)?;
    }
    change.update_dataset(head.prev_snap, |phys| phys.num_children = phys.num_children.saturating_sub(1))?;
    match change.dir(origin.dir)?.clones_zap {
        ObjectId::NONE => Ok(()),
        clones => change.remove(clones, &key).map(drop),
    }
}

/// Takes the head's blocks from its directory's accounts, and into the queue.
fn give_up_blocks(change: &Change<'_>, dir: DirId, head: &DatasetPhys) -> Result<Destroyed> {
    let phys = change.dir(dir)?;
    let all = Delta {
        used: phys.used_bytes as i64,
        compressed: phys.compressed_bytes as i64,
        uncompressed: phys.uncompressed_bytes as i64,
    };
    let totals =
        Totals { used: phys.used_bytes, compressed: phys.compressed_bytes, uncompressed: phys.uncompressed_bytes };
    space::charge(change, dir, UsedColumn::Head, all.negative())?;
    discard(change, &head.bp, head.prev_snap_txg, totals)
}

/// Gives up the blocks below a root that were born after `since_txg`, and which nothing refers to any more.
pub(super) fn discard(change: &Change<'_>, root: &BlkPtr, since_txg: Txg, totals: Totals) -> Result<Destroyed> {
    if root.is_hole() || root.reference_birth() <= since_txg {
        return Ok(Destroyed::Nothing);
    }
    if !feature::is_enabled(change, ASYNC_DESTROY)? {
        return Ok(Destroyed::Blocks { root: *root, since_txg });
    }
    space::charge(change, change.own_dir("$FREE")?, UsedColumn::Head, Delta::between(Totals::default(), totals))?;
    bptree::queue(change, root, since_txg, totals)?;
    Ok(Destroyed::Queued)
}

fn destroy_dir(change: &Change<'_>, id: DirId, name: &str) -> Result<()> {
    space::reserve(change, id, 0)?;
    let dir = change.dir(id)?;
    // what receives is not counted
    if !name.starts_with('%') {
        counts::adjust(change, dir.parent, -1, 0)?;
    }
    for table in [dir.child_zap, dir.props_zap, dir.clones_zap] {
        change.free_object(table)?;
    }
    if dir.deleg_zap.is_some() {
        // one table of permissions for each user, group or set
        for entry in Zap::open(change.mos.object(dir.deleg_zap)?)?.entries()? {
            change.free_object(entry.value.first_object().unwrap_or_default())?;
        }
        change.free_object(dir.deleg_zap)?;
    }
    leave_key(change, id)?;
    let parent = change.dir(dir.parent)?;
    change.remove(parent.child_zap, name)?;
    feature::free_record(change, id.object())
}

/// The wrapped key of a directory goes with the last one that has it: clones have that of their origin.
fn leave_key(change: &Change<'_>, dir: DirId) -> Result<()> {
    if !feature::is_zapified(change, dir.object())? {
        return Ok(());
    }
    let Some(key) = change.object_id(dir.object(), KEY_FIELD)? else { return Ok(()) };
    match change.number(key, KEY_USERS)? {
        Some(users) if users > 1 => change.set(key, KEY_USERS, &ZapValue::one(users - 1)),
        _ => change.free_object(key),
    }
}
