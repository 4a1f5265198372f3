//! Datasets and their properties: what `zfs create`, `destroy`, `rename`, `set` and `inherit` ask for.

use std::sync::{Arc, Weak};

use base::tunables::SPA_ASIZE_INFLATION;
use base::{Error, Kind, Result};
use dmu::{Cache, Growth, Needs, Objset, ObjsetPolicy, OnFailure, Tx};
use dsl::accounting::{Counted, Owner};
use dsl::property::DatasetKind;
use dsl::write::{Created, Destroyed, DestroyedDataset, GoneSnapshot, NewDataset, RefusedChanges};
use dsl::{Dsl, Level, Property};
use format::ids::{DatasetId, VdevNumber};
use format::nvlist;
use vdev::Tree;
use zio::alloc::{Class, TXG_DEFER};

use super::head::{Head, HeadRoom};
use super::rooms::{FreeSpace, KnownRoom};
use super::space_check::SpaceCheck;
use super::{LivePool, SyncContext};
use crate::usable::slop;

/// Groups until what logs took, or what was freed, is free again.
pub(super) const GROUPS_UNTIL_FREE: u64 = TXG_DEFER + 2;
/// Bytes of a property's value that are reckoned as a block.
const PROPERTY_BLOCK_BYTES: usize = 1 << 10;
/// Bytes of the least block.
const BLOCK_BYTES_MIN: u64 = 512;

impl LivePool {
    /// The object set of a file system's head, to be changed. `id` is the dataset's object.
    pub fn head(&self, id: DatasetId) -> Result<Arc<Objset>> {
        self.open_head(id).map(|head| head.objset().clone())
    }

    /// The head of a dataset, which is opened if it is not yet. `id` is the dataset's object.
    pub fn open_head(&self, id: DatasetId) -> Result<Head> {
        if let Some(head) = self.heads().get(id) {
            return Ok(head);
        }
        self.open_from(self.view().dsl(), self.cache(), id)
    }

    /// Opens the head of a dataset as `dsl` has it. What it reads meanwhile waits as `cache` says, and later not.
    fn open_from(&self, dsl: &Dsl, cache: &Arc<Cache>, id: DatasetId) -> Result<Head> {
        let name = dsl.name_of(id)?;
        let subject = dsl.subject(&name)?;
        let policy = self.policy_of(subject.levels());
        let dataset = dsl.find(&name)?;
        let kind = format::objset::ObjsetType::Zfs;
        let objset = Objset::open_live(cache.clone(), id, dataset.phys.bp, kind, &name, policy)?;
        let head = self.add_head(objset.reading(OnFailure::Fail))?;
        self.renew_policy(&head, subject.levels())?;
        Ok(head)
    }

    /// Takes up the head of a dataset.
    pub(super) fn add_head(&self, objset: Arc<Objset>) -> Result<Head> {
        let room = Arc::new(RoomInPool { pool: self.weak(), id: objset.id() });
        let pool = self.weak();
        self.heads().add(objset, room, move || pool.upgrade().ok_or_else(closed)?.sync_now())
    }

    /// How the blocks of a head are written, as its properties say.
    pub(super) fn policy_of(&self, levels: &Level) -> ObjsetPolicy {
        dsl::write::write_policy(levels, self.config().enabled)
    }

    /// Makes a file system, whose parent is there. `make` makes its contents; if it fails, there is no file system.
    /// Errors: as from [`dsl::write::create_dataset`].
    pub fn create_dataset(
        &self,
        name: &str,
        properties: Vec<(String, String)>,
        make: impl FnOnce(&Arc<Objset>, &Tx<'_>, &Created) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.create_head(name, DatasetKind::FileSystem, properties, make)
    }

    /// The same of a volume; among its properties is its size.
    pub fn create_volume(
        &self,
        name: &str,
        properties: Vec<(String, String)>,
        make: impl FnOnce(&Arc<Objset>, &Tx<'_>, &Created) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.create_head(name, DatasetKind::Volume, properties, make)
    }

    fn create_head(
        &self,
        name: &str,
        kind: DatasetKind,
        properties: Vec<(String, String)>,
        make: impl FnOnce(&Arc<Objset>, &Tx<'_>, &Created) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.check_space(SpaceCheck::Normal, 5)?;
        let (name, usable) = (name.to_owned(), self.view().usable_bytes()?);
        self.run(move |context| {
            let new = NewDataset { kind, properties: &properties };
            let created = dsl::write::create_dataset(&context.change, &context.dsl()?, &name, &new, usable)?;
            let made = context.make_head(&created, make);
            if made.is_err() {
                context.pool.heads().remove(created.dataset);
                let destroyed = dsl::write::destroy_dataset(&context.change, &context.dsl()?, &name)?;
                context.finish_destroyed(destroyed)?;
                return made;
            }
            let dataset = (name.as_str(), created.dataset);
            context.log_dataset_event(dataset, "create", " ");
            for (property, value) in &properties {
                context.log_dataset_event(dataset, "set", &format!("{property}={value}"));
            }
            Ok(())
        })
    }

    /// Destroys a file system or volume without snapshots and children, which nobody may have open. Errors: as from
    /// [`dsl::write::destroy_dataset`].
    pub fn destroy_dataset(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.run_without_roots(move |context| {
            let dsl = context.dsl()?;
            let id = dsl.find(&name)?.id;
            if context.pool.receives().is_active(id) || context.pool.kept_snapshots().has(id) {
                return Err(Error::new(Kind::Busy, "dataset is busy"));
            }
            if let Some(origin) = dsl::write::gone_with_clone(&context.change, id)?
                && context.pool.kept_snapshots().has(origin)
            {
                return Err(Error::new(Kind::Busy, "dataset is busy"));
            }
            let head = context.open_head(id);
            let destroyed = dsl::write::destroy_dataset(&context.change, &dsl, &name)?;
            // it has no changes: the heads were synced before
            context.pool.heads().remove(id);
            context.pool.scan().destroyed(id, None);
            match head {
                Ok(head) => context.free_log(&head),
                // its blocks cannot be found either
                Err(error) => tracing::warn!(name, "the intent log of what was destroyed: {error}"),
            }
            context.finish_destroyed(destroyed)?;
            context.pool.frees().wake();
            context.log_dataset_event((&name, id), "destroy", " ");
            Ok(())
        })
    }

    /// Renames a file system or volume and all below it. Errors: as from [`dsl::write::rename_dataset`].
    pub fn rename_dataset(&self, old: &str, new: &str) -> Result<()> {
        self.check_space(SpaceCheck::Reserved, 3)?;
        let (old, new) = (old.to_owned(), new.to_owned());
        self.run(move |context| {
            let dsl = context.dsl()?;
            let id = dsl.find(&old).map_or(DatasetId::NONE, |dataset| dataset.id);
            dsl::write::rename_dataset(&context.change, &dsl, &old, &new)?;
            context.log_dataset_event((&old, id), "rename", &format!("-> {new}"));
            Ok(())
        })
    }

    /// Sets a property. Errors: as from [`dsl::write::set_property`]; `Unsupported` for a default quota
    /// if the file system keeps no accounts.
    pub fn set_property(&self, dataset: &str, name: &str, value: &str) -> Result<()> {
        self.check_space(SpaceCheck::Reserved, 2 + value.len() / PROPERTY_BLOCK_BYTES)?;
        let (of, name, value) = (dataset.to_owned(), name.to_owned(), value.to_owned());
        let usable = self.view().usable_bytes()?;
        let in_contents = self.run(move |context| {
            let dsl = context.dsl()?;
            let in_contents = dsl::write::set_property(&context.change, &dsl, &of, &name, &value, usable)?;
            let id = dsl.find(&of).map_or(DatasetId::NONE, |dataset| dataset.id);
            context.log_dataset_event((&of, id), "set", &format!("{name}={value}"));
            Ok(in_contents)
        })?;
        match in_contents {
            Some((Property::Version, _)) => {
                Err(Error::new(Kind::Invalid, "files are for others to bring to a version"))
            }
            // of all that is in contents, these alone can be set
            Some((property, limit)) => self.set_default_limit(dataset, property, limit),
            None => self.renew_policies(),
        }
    }

    /// Notes in the history that a file system came to a later version, when that is on disk.
    pub fn log_files_version(&self, name: &str, before: u64, version: u64) -> Result<()> {
        let name = name.to_owned();
        self.run(move |context| {
            let id = context.dsl()?.find(&name)?.id;
            context.log_dataset_event((&name, id), "upgrade", &format!("oldver={before} newver={version}"));
            Ok(())
        })
    }

    /// Notes in the history that a volume has another size.
    pub fn log_resize(&self, name: &str, size: u64) -> Result<()> {
        let name = name.to_owned();
        self.run(move |context| {
            let id = context.dsl()?.find(&name)?.id;
            context.log_dataset_event((&name, id), "set", &format!("volsize={size}"));
            Ok(())
        })
    }

    /// Stores the properties that a stream says; what was refused of it. Errors: as from
    /// [`dsl::write::set_received`].
    pub fn set_received(&self, dataset: &str, values: Vec<(String, nvlist::Value)>) -> Result<RefusedChanges> {
        self.check_space(SpaceCheck::Reserved, 2 * values.len())?;
        let (dataset, usable) = (dataset.to_owned(), self.view().usable_bytes()?);
        let refused = self.run(move |context| {
            dsl::write::set_received(&context.change, &context.dsl()?, &dataset, &values, usable)
        })?;
        self.renew_policies()?;
        Ok(refused)
    }

    /// Makes a property inherited, or with `received` what was received. Errors: as from
    /// [`dsl::write::inherit_property`].
    pub fn inherit_property(&self, dataset: &str, name: &str, received: bool) -> Result<()> {
        self.check_space(SpaceCheck::Reserved, 2)?;
        let (dataset, name) = (dataset.to_owned(), name.to_owned());
        let usable = self.view().usable_bytes()?;
        self.run(move |context| {
            let dsl = context.dsl()?;
            dsl::write::inherit_property(&context.change, &dsl, &dataset, &name, received, usable)?;
            let id = dsl.find(&dataset).map_or(DatasetId::NONE, |dataset| dataset.id);
            context.log_dataset_event((&dataset, id), "inherit", &format!("{name}="));
            Ok(())
        })?;
        self.renew_policies()
    }

    /// Adds a command line to the pool's history.
    pub fn record_history(&self, command: &str) -> Result<()> {
        let command = command.to_owned();
        self.run(move |context| context.log_history(&command))
    }

    /// Adds the line of a command that is done to the pool's history. A pool that is suspended meanwhile gets the line
    /// when it goes on: nobody waits for that. Errors: those of writing.
    pub fn record_done(&self, command: &str) -> Result<()> {
        if self.suspended().is_some() {
            self.record_later(command);
            return Ok(());
        }
        let line = command.to_owned();
        match self.run_unless_suspended(move |context| context.log_history(&line)) {
            Err(error) if error.kind() == Kind::Suspended => Ok(()),
            recorded => recorded,
        }
    }

    /// Adds a command line to the pool's history, some time soon.
    pub fn record_later(&self, command: &str) {
        let command = command.to_owned();
        self.run_later(move |context| context.log_history(&command));
    }

    /// May `bytes` more be written to the head of dataset object `id`? What frees more than it writes may always.
    ///
    /// Nobody knows what changes will take on disk before they are there, but what they take at most: blocks without
    /// compression, with their copies and parity, and what leads to them. As long as that may be more than there is room
    /// for, an operation that writes waits for a group to be synced. Only what is on disk by then decides; what one more
    /// operation takes beyond the limit, the pool's slop has room for.
    ///
    /// The devices must have that room, too: what intent logs take, and what was freed a moment ago, is there again some
    /// groups later. Errors: `NoSpace`, `Quota`; `Suspended`, as from [`dmu::Txgs::begin`].
    pub fn admit(&self, id: DatasetId, bytes: u64, frees: bool) -> Result<()> {
        if frees {
            return self.wait_for_frees(id);
        }
        self.await_room(id, WantedRoom { bytes, least: bytes.max(1), portion: bytes }).map(drop)
    }

    /// How many of `bytes` more may be written to a head: as many as there is room for, but `portion` as long as there is
    /// any. Otherwise as [`LivePool::admit`].
    pub fn admit_some(&self, id: DatasetId, bytes: u64, portion: u64) -> Result<u64> {
        self.await_room(id, WantedRoom { bytes, least: 1, portion })
    }

    fn await_room(&self, id: DatasetId, wanted: WantedRoom) -> Result<u64> {
        self.suspension().check_running()?;
        let allocator = self.cache().zio().allocator()?;
        let mut groups = 0;
        loop {
            // before the room: what is synced in between counts twice, rather than not at all
            let changes = self.txgs().dirty_changes();
            let KnownRoom { room, growth, free, needs, .. } = self.room_of(id)?;
            let waiting = changes.most_bytes(&growth);
            if changes.is_empty() && room.bytes < wanted.least {
                let what =
                    if room.refusal == Kind::Quota { "disk quota exceeded" } else { "no space left in the pool" };
                return Err(Error::new(room.refusal, what));
            }
            let bytes = room.bytes.saturating_sub(waiting).max(wanted.portion).min(wanted.bytes);
            let is_short =
                groups <= GROUPS_UNTIL_FREE && free.is_short(allocator, needs.bytes(&changes).saturating_add(bytes));
            if waiting < room.bytes && wanted.least <= room.bytes && !is_short {
                return Ok(bytes);
            }
            self.sync_now()?;
            groups += 1;
        }
    }

    /// How many bytes more may be written to a head, changes counted that are not on disk: 0 where owners have limits. Errors:
    /// those of reading.
    pub fn room_left(&self, id: DatasetId) -> Result<u64> {
        if self.has_owner_limits(id)? {
            return Ok(0);
        }
        let changes = self.txgs().dirty_changes();
        let KnownRoom { room, growth, .. } = self.room_of(id)?;
        Ok(room.bytes.saturating_sub(changes.most_bytes(&growth)))
    }

    /// The room of a head as of the latest group on disk.
    pub(super) fn room_of(&self, id: DatasetId) -> Result<KnownRoom> {
        let txg = self.txgs().synced_txg();
        if let Some(known) = self.rooms().get(id, txg) {
            return Ok(known);
        }
        let view = self.view();
        let subject = view.dsl().subject(&view.dsl().name_of(id)?)?;
        let missing = || Error::new(Kind::NotFound, "dataset does not exist");
        let head = subject.dataset().ok_or_else(missing)?;
        let room = view.dsl().room(subject.dir(), head, view.usable_bytes()?)?;
        let free = FreeSpace::of(self.cache().zio().allocator()?);
        let known = KnownRoom { txg, room, growth: self.growth(Tree::deflate), free, needs: self.txgs().needs() };
        self.rooms().note(id, known);
        Ok(known)
    }

    /// Says what the groups in memory may need on the devices, so that it stays free.
    pub(super) fn note_needs(&self) {
        let Ok(allocator) = self.cache().zio().allocator() else { return };
        let spare = slop(allocator.class_space(Class::Normal).size, 0) / 4;
        self.txgs().set_needs(Needs::new(self.growth(|_, _, asize| Ok(asize)), spare));
        self.limit_frees(allocator);
    }

    /// How much changes may grow, of whose bytes on a vdev `counted` are counted. What is small may come to lie in blocks
    /// of the least size, each with the sectors, the parity and the copies that it needs, and a quarter for the pointers
    /// to them; else a byte may come to take as many as tunable spa_asize_inflation says.
    fn growth(&self, counted: impl Fn(&Tree, VdevNumber, u64) -> Result<u64>) -> Growth {
        let most = |bytes| self.most_bytes_of(bytes, &counted);
        let least = most(BLOCK_BYTES_MIN).saturating_mul(5);
        let inflation = least.div_ceil(BLOCK_BYTES_MIN * 4).max(self.env().tunable(SPA_ASIZE_INFLATION));
        Growth::new(inflation, most)
    }

    /// How many bytes the copies of a block take at most, wherever they lie, as `counted`.
    fn most_bytes_of(&self, bytes: u64, counted: impl Fn(&Tree, VdevNumber, u64) -> Result<u64>) -> u64 {
        let tree = self.tree();
        let tops = tree.tops().filter(|top| top.kind().is_concrete() && !top.is_log());
        let of_top = |number| counted(tree, number, tree.asize(number, bytes).ok()?).ok();
        let most = tops.filter_map(|top| of_top(top.number())).max().unwrap_or(bytes);
        most.saturating_mul(self.rooms().copies_max().into())
    }

    /// Lets all open heads be written as their properties say now.
    pub(super) fn renew_policies(&self) -> Result<()> {
        let view = self.view();
        for (id, head) in self.heads().all() {
            let subject = match view.dsl().name_of(id).and_then(|name| view.dsl().subject(&name)) {
                // it was made after that group, with its properties, or is being destroyed
                Err(error) if error.kind() == Kind::NotFound => continue,
                subject => subject?,
            };
            self.renew_policy(&head, subject.levels())?;
        }
        self.rooms().forget_all();
        Ok(())
    }

    /// Lets a head be written as its properties say.
    pub(super) fn renew_policy(&self, head: &Head, levels: &Level) -> Result<()> {
        let policy = self.policy_of(levels);
        self.rooms().note_copies(policy.copies);
        head.set_policy(policy, levels)
    }
}

/// What an operation asks for.
struct WantedRoom {
    bytes: u64,
    /// So many have to fit.
    least: u64,
    /// So many are admitted if any are.
    portion: u64,
}

/// The room of one head, of which the pool knows.
struct RoomInPool {
    pool: Weak<LivePool>,
    id: DatasetId,
}

impl RoomInPool {
    fn pool(&self) -> Result<Arc<LivePool>> {
        self.pool.upgrade().ok_or_else(closed)
    }
}

impl HeadRoom for RoomInPool {
    fn admit(&self, bytes: u64, frees: bool) -> Result<()> {
        self.pool()?.admit(self.id, bytes, frees)
    }

    fn admit_some(&self, bytes: u64, portion: u64) -> Result<u64> {
        self.pool()?.admit_some(self.id, bytes, portion)
    }

    fn has_owner_limits(&self) -> Result<bool> {
        self.pool()?.has_owner_limits(self.id)
    }

    fn admit_owner(&self, owner: Owner, counted: Counted, key: u64) -> Result<()> {
        self.pool()?.admit_owner(self.id, owner, counted, key)
    }
}

fn closed() -> Error {
    Error::new(Kind::Suspended, "the pool is closed")
}

impl SyncContext<'_> {
    /// The dataset layer of the MOS that is being changed.
    pub fn dsl(&self) -> Result<Dsl> {
        Dsl::open(self.change.mos.clone(), self.pool.name())
    }

    /// The head of a dataset, as [`LivePool::open_head`]; reading it waits for devices that fail, as the group does.
    pub(super) fn open_head(&self, id: DatasetId) -> Result<Head> {
        match self.pool.heads().get(id) {
            Some(head) => Ok(head),
            None => self.pool.open_from(&self.dsl()?, self.change.mos.cache(), id),
        }
    }

    /// Does what is left to do of what was destroyed.
    pub(super) fn finish_destroyed(&self, destroyed: DestroyedDataset) -> Result<()> {
        destroyed.origin.iter().for_each(|origin| self.finish_snapshot(origin));
        self.free_discarded(destroyed.blocks)
    }

    /// Tells of a snapshot that went with its last hold or clone.
    pub(super) fn finish_snapshot(&self, gone: &GoneSnapshot) {
        self.pool.scan().destroyed(gone.id, Some(gone.next));
        self.log_dataset_event((&gone.name, gone.id), "destroy", " ");
    }

    /// Frees blocks that no head has any more, or sees to it that this is done in groups to come.
    pub(super) fn free_discarded(&self, blocks: Destroyed) -> Result<()> {
        match blocks {
            Destroyed::Nothing => {}
            Destroyed::Queued => self.pool.frees().wake(),
            Destroyed::Blocks { root, since_txg } => {
                dsl::write::free_tree(&self.change, &root, since_txg, &mut |bp| self.pool.free(&self.change, bp))?;
            }
        }
        Ok(())
    }
}
