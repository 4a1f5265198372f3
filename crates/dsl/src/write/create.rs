//! Making datasets, and the first objects of a pool's dataset layer.
//!
//! ```text
//!   object directory ─ root_dataset ─▶ tank ─┬─ $MOS      accounts of the MOS
//!                    ─ free_bpobj            ├─ $FREE     accounts of what is being freed
//!                    ─ sync_bplist           ├─ $ORIGIN   head, and its snapshot $ORIGIN@$ORIGIN: both empty
//!                                            └─ home, ... clones of that snapshot
//! ```
//!
//! That every dataset is a clone of an empty snapshot spares all else the case of one without an origin.
//!
//! The object set of a new head is a hole: its creator makes its contents, and a [`super::DatasetLedger`]
//! writes its pointer into the record.

use base::{Error, Kind, Result, ResultExt};
use dmu::bpobj::{self, Bpobj};
use format::dsl::{DatasetPhys, DirPhys};
use format::ids::{DatasetId, DirId, ObjectId, Txg};
use format::object_type::ObjectType;

use super::deadlist::Deadlist;
use super::{Change, DIRECTORY, counts, feature, props, room, versions};
use crate::name::{NameKinds, check_new_name};
use crate::property::rules::{self, Given};
use crate::property::{DatasetKind, ValueOrigin, needs};
use crate::{Dsl, Property, PropertyValue, accounting, contents};

/// Names of snapshots can be compared without case.
const TO_UPPER: u64 = 2;
/// Bytes of a block of the list of deferred frees.
const DEFERRED_BLOCK_SIZE: u64 = 16 << 10;
/// The snapshot that all begin with is older than anything else.
const ORIGIN_TXG: Txg = Txg::new(1);
const ORIGIN: &str = "$ORIGIN";

/// The first objects of the dataset layer, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolDsl {
    /// Directory of the root file system.
    pub root_dir: DirId,
    /// Its head, whose object set is a hole yet.
    pub root_dataset: DatasetId,
    /// The snapshot that all begin with.
    pub origin: DatasetId,
    /// List of what destroyed snapshots leave to be freed.
    pub free_list: ObjectId,
    /// List of what is to be freed with the next group.
    pub deferred_list: ObjectId,
}

/// What a new dataset is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewDataset<'a> {
    /// File system or volume.
    pub kind: DatasetKind,
    /// Names and values of properties, as `zfs create -o` gets them.
    pub properties: &'a [(String, String)],
}

/// A dataset that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// File system or volume.
    pub kind: DatasetKind,
    /// Its directory.
    pub dir: DirId,
    /// Its head, whose object set is a hole yet.
    pub dataset: DatasetId,
    /// What belongs inside of the object set: of a file system `version`, `utf8only`, `normalization`,
    /// `casesensitivity`, and default quotas if there are any; of a volume `volsize`, `volblocksize`.
    pub contents: Vec<(Property, u64)>,
}

/// Makes the first objects of a new pool's dataset layer; `properties` are those of the root file system.
///
/// Makes the object directory, too, if there is none. Tables of features should be there already, as datasets
/// count what they use. Errors: those of wrong properties.
pub fn create_pool_dsl(change: &Change<'_>, properties: &[(String, String)]) -> Result<(PoolDsl, Created)> {
    let kind = DatasetKind::FileSystem;
    let given = rules::check_all(properties, kind)?;
    needs::check(&given, feature::enabled(change)?, true)?;
    change.create_table_at(DIRECTORY, ObjectType::OBJECT_DIRECTORY)?;
    let root_dir = create_dir(change, None)?;
    change.add(DIRECTORY, "root_dataset", root_dir.get())?;
    create_dir(change, Some((root_dir, "$MOS")))?;
    create_dir(change, Some((root_dir, "$FREE")))?;
    let free_list = Bpobj::create(change.mos, change.tx, bpobj::BLOCK_SIZE, true)?;
    change.add(DIRECTORY, "free_bpobj", free_list.get())?;
    let origin = create_origin(change, root_dir)?;
    let root_dataset = create_head(change, root_dir, origin)?;
    let deferred_list = Bpobj::create(change.mos, change.tx, DEFERRED_BLOCK_SIZE, false)?;
    change.add(DIRECTORY, "sync_bplist", deferred_list.get())?;
    props::store_given(change, root_dir, root_dataset, &given)?;
    let contents = own_contents(kind, &given, change.mos.pool_version()?, &|_| Ok(None))?;
    let pool = PoolDsl { root_dir, root_dataset, origin, free_list, deferred_list };
    Ok((pool, Created { kind, dir: root_dir, dataset: root_dataset, contents }))
}

/// Makes the file system or volume of that full name, whose parent is there. `dsl` is that of the MOS that is
/// being changed; `usable_bytes` is the size of the pool without parity and without what ZFS keeps for itself.
///
/// Errors, as `zfs create` words them: `Encrypted` below an encrypted one if it does not say `encryption=off`, `Exists`, `NotFound` without a parent, those of [`check_new_name`], those
/// of wrong properties, `NoSpace` for a reservation.
pub fn create_dataset(
    change: &Change<'_>,
    dsl: &Dsl,
    name: &str,
    new: &NewDataset<'_>,
    usable_bytes: u64,
) -> Result<Created> {
    check_new_name(name, NameKinds::HEADS)?;
    let missing = || Error::new(Kind::Invalid, "missing dataset name");
    let (above, own_name) = name.rsplit_once('/').ok_or_else(missing)?;
    let parent = match dsl.subject(above) {
        Err(e) if e.kind() == Kind::NotFound => return Err(Error::new(Kind::NotFound, "parent does not exist")),
        parent => parent?,
    };
    if parent.kind() != DatasetKind::FileSystem {
        return Err(Error::new(Kind::Invalid, "parent is not a filesystem"));
    }
    let parent_dir = change.dir(parent.dir().id)?;
    if change.number(parent_dir.child_zap, own_name)?.is_some() {
        return Err(Error::new(Kind::Exists, "dataset already exists"));
    }
    let given = rules::check_all(new.properties, new.kind)?;
    if !given.iter().any(|given| given.property == Some(Property::Encryption)) {
        dsl.refuse_encrypted(parent.dir())?;
    }
    needs::check(&given, feature::enabled(change)?, true)?;
    let inherited = |property| match parent.dataset() {
        Some(dataset) if !dataset.phys.bp.is_hole() => contents::of_file_system(&dsl.raw_objset(dataset)?, property),
        _ => Ok(None),
    };
    let contents = own_contents(new.kind, &given, change.mos.pool_version()?, &inherited)?;
    room::check_for_new(dsl, &parent, &given, usable_bytes)?;

    let origin = common_origin(change)?;
    let dir = create_dir(change, Some((parent.dir().id, own_name)))?;
    let dataset = create_head(change, dir, origin)?;
    counts::count_new(change, parent.dir().id, dir)?;
    props::store_given(change, dir, dataset, &given).in_dataset(name)?;
    Ok(Created { kind: new.kind, dir, dataset, contents })
}

/// The snapshot that all begin with; none in pools that are too old to have one.
pub(super) fn common_origin(change: &Change<'_>) -> Result<DatasetId> {
    if !change.is_since(versions::ORIGIN)? {
        return Ok(DatasetId::NONE);
    }
    let head = change.dir(change.own_dir(ORIGIN)?)?.head_dataset;
    Ok(change.dataset(head)?.prev_snap)
}

/// Makes a directory, and links it to its parent.
pub(super) fn create_dir(change: &Change<'_>, parent: Option<(DirId, &str)>) -> Result<DirId> {
    let object = change.create_object(ObjectType::DSL_DIR, (ObjectType::DSL_DIR, DirPhys::default().bonus()))?;
    let phys = DirPhys {
        creation_time_s: change.env.now_s(),
        parent: parent.map_or(DirId::NONE, |(id, _)| id),
        props_zap: change.create_table(ObjectType::DSL_PROPS)?,
        child_zap: change.create_table(ObjectType::DSL_DIR_CHILD_MAP)?,
        flags: if change.is_since(versions::USED_BREAKDOWN)? { DirPhys::FLAG_USED_BREAKDOWN } else { 0 },
        ..DirPhys::default()
    };
    object.update(change.tx, |dnode| dnode.bonus = phys.bonus())?;
    if let Some((parent, name)) = parent {
        change.add(change.dir(parent)?.child_zap, name, object.id().get())?;
    }
    Ok(DirId::of_object(object.id()))
}

pub(super) fn blank_dataset(change: &Change<'_>, dir: DirId) -> Result<DatasetPhys> {
    let txg = change.tx.txg();
    Ok(DatasetPhys {
        dir,
        prev_snap: DatasetId::NONE,
        prev_snap_txg: Txg::ZERO,
        next_snap: DatasetId::NONE,
        snapnames_zap: ObjectId::NONE,
        num_children: 0,
        creation_time_s: change.env.now_s(),
        creation_txg: if txg == Txg::INITIAL { ORIGIN_TXG } else { txg },
        deadlist: ObjectId::NONE,
        referenced_bytes: 0,
        compressed_bytes: 0,
        uncompressed_bytes: 0,
        unique_bytes: 0,
        fsid_guid: change.new_fsid(),
        guid: change.new_guid(),
        flags: if change.is_since(versions::UNIQUE_ACCURATE)? { DatasetPhys::FLAG_UNIQUE_ACCURATE } else { 0 },
        bp: format::blkptr::BlkPtr::HOLE,
        next_clones_zap: ObjectId::NONE,
        props_zap: ObjectId::NONE,
        userrefs_zap: ObjectId::NONE,
    })
}

pub(super) fn put_dataset(change: &Change<'_>, phys: &DatasetPhys) -> Result<DatasetId> {
    let object = change.create_object(ObjectType::DSL_DATASET, (ObjectType::DSL_DATASET, phys.bonus()))?;
    Ok(DatasetId::of_object(object.id()))
}

/// The directory `$ORIGIN` with its empty head and snapshot. Returns the snapshot.
pub(super) fn create_origin(change: &Change<'_>, root_dir: DirId) -> Result<DatasetId> {
    let dir = create_dir(change, Some((root_dir, ORIGIN)))?;
    let mut head = blank_dataset(change, dir)?;
    head.snapnames_zap =
        change.create_table_with(ObjectType::DSL_SNAP_MAP, (ObjectType::NONE, Vec::new()), TO_UPPER)?;
    let head_id = put_dataset(change, &head)?;
    let dead = Deadlist::create(change)?;
    let snapshot = DatasetPhys {
        next_snap: head_id,
        num_children: 1,
        creation_txg: ORIGIN_TXG,
        deadlist: dead.id(),
        ..blank_dataset(change, dir)?
    };
    let snapshot_id = put_dataset(change, &snapshot)?;
    let dead = dead.clone_parts(Txg::MAX, DatasetId::NONE)?;
    dead.add_key(Txg::ZERO)?;
    head.deadlist = dead.id();
    (head.prev_snap, head.prev_snap_txg) = (snapshot_id, ORIGIN_TXG);
    change.update_dataset(head_id, |phys| *phys = head.clone())?;
    change.add(head.snapnames_zap, ORIGIN, snapshot_id.get())?;
    change.update_dir(dir, |phys| phys.head_dataset = head_id)?;
    Ok(snapshot_id)
}

/// Makes the head of a directory, a clone of `origin`; in an old pool that may be none.
pub(super) fn create_head(change: &Change<'_>, dir: DirId, origin: DatasetId) -> Result<DatasetId> {
    if origin.is_none() {
        let names = change.create_table_with(ObjectType::DSL_SNAP_MAP, (ObjectType::NONE, Vec::new()), TO_UPPER)?;
        let deadlist = Deadlist::create(change)?.id();
        let head = DatasetPhys { snapnames_zap: names, deadlist, ..blank_dataset(change, dir)? };
        let id = put_dataset(change, &head)?;
        change.update_dir(dir, |phys| phys.head_dataset = id)?;
        return Ok(id);
    }
    let from = change.dataset(origin)?;
    let inherited = DatasetPhys::FLAG_INCONSISTENT | DatasetPhys::FLAG_CASE_INSENSITIVE;
    let mut head = DatasetPhys {
        prev_snap: origin,
        prev_snap_txg: from.creation_txg,
        referenced_bytes: from.referenced_bytes,
        compressed_bytes: from.compressed_bytes,
        uncompressed_bytes: from.uncompressed_bytes,
        bp: from.bp,
        snapnames_zap: change.create_table_with(ObjectType::DSL_SNAP_MAP, (ObjectType::NONE, Vec::new()), TO_UPPER)?,
        ..blank_dataset(change, dir)?
    };
    head.flags |= from.flags & inherited;
    let origin_head = change.dataset(change.dir(from.dir)?.head_dataset)?;
    head.deadlist = Deadlist::open(change, origin_head.deadlist)?.clone_parts(head.prev_snap_txg, origin)?.id();
    let id = put_dataset(change, &head)?;
    feature::copy_all(change, origin, id)?;
    change.update_dataset(origin, |phys| phys.num_children += 1)?;
    if change.is_since(versions::ORIGIN)? {
        note_next_clone(change, origin, id)?;
    }
    if change.is_since(versions::DEADLISTS)? {
        note_clone(change, from.dir, id)?;
    }
    change.update_dir(dir, |phys| (phys.origin, phys.head_dataset) = (origin, id))?;
    Ok(id)
}

/// A snapshot has a clone, or the oldest snapshot of one, behind it.
pub(super) fn note_next_clone(change: &Change<'_>, of: DatasetId, next: DatasetId) -> Result<()> {
    let clones = match change.dataset(of)?.next_clones_zap {
        ObjectId::NONE => change.create_table(ObjectType::NEXT_CLONES)?,
        table => table,
    };
    change.add_number(clones, next.object())?;
    change.update_dataset(of, |phys| phys.next_clones_zap = clones)
}

/// A snapshot of a directory has that head as a clone.
pub(super) fn note_clone(change: &Change<'_>, dir: DirId, head: DatasetId) -> Result<()> {
    if change.dir(dir)?.clones_zap.is_none() {
        let table = change.create_table(ObjectType::DSL_CLONES)?;
        change.update_dir(dir, |phys| phys.clones_zap = table)?;
    }
    change.add_number(change.dir(dir)?.clones_zap, head.object())
}

/// What is given, or the parent has, or is the default, of all that belongs inside of an object set.
fn own_contents(
    kind: DatasetKind,
    given: &[Given],
    pool_version: u64,
    inherited: &dyn Fn(Property) -> Result<Option<u64>>,
) -> Result<Vec<(Property, u64)>> {
    let given = |property| {
        given.iter().find_map(|given| match given.value {
            PropertyValue::Number(number) if given.property == Some(property) => Some(number),
            _ => None,
        })
    };
    if kind == DatasetKind::Volume {
        let block_size = given(Property::Volblocksize).unwrap_or(Property::Volblocksize.default_number());
        let size = given(Property::Volsize).ok_or_else(|| Error::new(Kind::Invalid, "missing volume size"))?;
        if size == 0 {
            return Err(Error::new(Kind::Invalid, "volume size cannot be zero"));
        }
        if size % block_size != 0 {
            return Err(Error::new(Kind::Invalid, "volume size must be a multiple of volume block size"));
        }
        return Ok(vec![(Property::Volsize, size), (Property::Volblocksize, block_size)]);
    }
    let latest = needs::files_version_in(pool_version);
    let mut contents = vec![(Property::Version, given(Property::Version).unwrap_or(latest))];
    for property in [Property::Normalization, Property::Utf8only, Property::Casesensitivity] {
        debug_assert_eq!(property.info().from, ValueOrigin::Contents);
        let number = match given(property) {
            Some(number) => number,
            None => inherited(property)?.unwrap_or(property.default_number()),
        };
        contents.push((property, number));
    }
    let limits = Property::all().filter(|property| accounting::limited_by(*property).is_some());
    contents.extend(limits.filter_map(|property| given(property).map(|limit| (property, limit))));
    Ok(contents)
}
