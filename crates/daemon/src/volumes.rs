//! The volumes of an imported pool that are open: each once, whatever gives it out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::{Error, Kind, Mutex, Result};
use dmu::Mode;
use dsl::write::file_system_options;
use dsl::{Property, PropertyValue, Subject};
use format::ids::DatasetId;
use pool::Pool;
use zil::MemoryLog;
use zvol::{VolumeCounters, VolumeUse, Zvol};

use crate::live::{ServedPool, sync_mode, tell_replayed};
use crate::volume_losses::VolumeLosses;

/// The open volumes. One is open as long as somebody has it.
pub struct OpenVolumes {
    losses: Arc<VolumeLosses>,
    /// By the object of the dataset.
    open: Mutex<HashMap<DatasetId, Weak<Zvol>>>,
    /// How they are used: what opens a volume may do its log again for long, with the other one locked.
    counted: Mutex<HashMap<DatasetId, Weak<VolumeCounters>>>,
    replaced: AtomicU64,
}

impl OpenVolumes {
    /// None is open; what they lost with the process before is told by their flushes.
    pub fn new(losses: VolumeLosses) -> OpenVolumes {
        OpenVolumes {
            losses: Arc::new(losses),
            open: Mutex::default(),
            counted: Mutex::default(),
            replaced: AtomicU64::default(),
        }
    }

    /// Opens the volumes that the process before may have changed, which does again what it left of them in the log in memory,
    /// `left`; then tells which lost changes.
    pub fn take_up(&self, pool: &ServedPool, left: Option<&MemoryLog>) {
        if let Some(memory) = left {
            let (lost, view) = (self.losses.lost().0, pool.view());
            // what cannot be opened, and what is none, has lost it
            for name in lost.iter().chain(&memory.left()).filter_map(|id| view.dsl().name_of(*id).ok()) {
                if let Err(error) = self.open(pool, &name) {
                    tracing::debug!(dataset = name, "nothing of it is done again: {error}");
                }
            }
            if let Err(error) = pool.sync(true).and_then(|()| memory.taken_over()) {
                tracing::warn!("the log in memory is of no use: {error}");
            }
        }
        self.report_losses(pool);
    }

    /// Tells which volumes lost changes with the process before, by events and the log.
    fn report_losses(&self, pool: &ServedPool) {
        let (lost, are_all) = self.losses.lost();
        let (ServedPool::Live(live), view) = (pool, pool.view()) else { return };
        // one that is gone cannot have anything told
        let names = lost.iter().filter_map(|dataset| view.dsl().name_of(*dataset).ok());
        for name in names.chain(are_all.then(|| view.name().to_owned())) {
            tracing::error!(
                dataset = name,
                "changes of volumes were lost with the process before: the next flush fails"
            );
            live.notify_of_lost_files(&name, std::iter::empty(), true);
        }
    }

    /// The volume, or snapshot of one, of that name; it may be changed if it is no snapshot and the pool can be. Errors:
    /// `NotFound`, `Invalid` if it is none, those of reading it and of what its log has to do again.
    pub fn open(&self, pool: &ServedPool, name: &str) -> Result<Arc<Zvol>> {
        let view = pool.view();
        let subject = view.dsl().subject(name)?;
        let id = view.dsl().find(name)?.id;
        // held while it is opened, so that its log is replayed once
        let mut open = self.open.lock();
        if let Some(volume) = open.get(&id).and_then(Weak::upgrade)
            && has_root(pool, id, &volume)?
        {
            return Ok(volume);
        }
        open.retain(|_, volume| volume.strong_count() > 0);
        let volume = Arc::new(open_one(pool, &view, &subject)?);
        if volume.is_writable() {
            if volume.has_lost_nothing() {
                self.losses.settle(id);
            }
            self.losses.watch(id, &volume);
        }
        open.insert(id, Arc::downgrade(&volume));
        self.counted.lock().insert(id, Arc::downgrade(volume.used()));
        Ok(volume)
    }

    /// Whether somebody has one.
    pub fn are_any(&self) -> bool {
        self.open.lock().values().any(|volume| volume.strong_count() > 0)
    }

    /// How much those that are open were used, by the objects of their datasets.
    pub fn used(&self) -> Vec<(DatasetId, VolumeUse)> {
        let mut counted = self.counted.lock();
        counted.retain(|_, volume| volume.strong_count() > 0);
        counted.iter().filter_map(|(id, volume)| Some((*id, volume.upgrade()?.sums()))).collect()
    }

    /// How often roots of volumes have been replaced: what is of one is to be opened again when this has changed.
    pub fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::SeqCst)
    }

    /// The root of a volume has been replaced.
    pub fn note_replaced(&self) {
        self.replaced.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets volumes be written as their properties say now. One whose properties cannot be read stays as it is.
    pub fn renew(&self, pool: &ServedPool) {
        let open: Vec<(DatasetId, Arc<Zvol>)> =
            self.open.lock().iter().filter_map(|(id, volume)| Some((*id, volume.upgrade()?))).collect();
        let view = pool.view();
        for (id, volume) in open {
            match view.dsl().name_of(id).and_then(|name| view.dsl().subject(&name)) {
                Ok(subject) => set_up(&volume, &view, &subject),
                // it has just been destroyed, most likely, and its number may be another object's
                Err(error) => tracing::debug!(dataset = id.get(), "an open volume has no properties: {error}"),
            }
        }
    }
}

/// Opens a volume, or a snapshot of one. What a crash has left in its intent log is done again.
fn open_one(pool: &ServedPool, view: &Pool, subject: &Subject) -> Result<Zvol> {
    let no_volume = || Error::new(Kind::Invalid, "dataset is not a volume").in_dataset(subject.name());
    let dataset = subject.dataset().ok_or_else(no_volume)?;
    let live = match pool {
        ServedPool::Live(live) if !dataset.is_snapshot() => live,
        _ => {
            let objset = view.dsl().objset(dataset, Mode::Plain)?;
            dsl::write::set_reads(&objset, subject.levels());
            return Zvol::open(&objset);
        }
    };
    let head = live.open_head(dataset.id)?;
    head.log().reopen();
    let (objset, log, room) = (head.objset().clone(), head.log().clone(), head);
    let admit = move |bytes, frees| room.admit(bytes, frees);
    let volume = Zvol::open_writable(&objset, live.txgs().clone(), log, Box::new(admit))?;
    set_up(&volume, view, subject);
    tell_replayed(subject.name(), volume.replay_log()?);
    Ok(volume)
}

/// Whether a volume is of the root that its head has now.
fn has_root(pool: &ServedPool, id: DatasetId, volume: &Zvol) -> Result<bool> {
    match pool {
        ServedPool::Live(live) if volume.is_writable() => {
            Ok(Arc::ptr_eq(live.open_head(id)?.objset(), volume.objset()))
        }
        _ => Ok(true),
    }
}

/// Lets a volume be written as its properties say.
fn set_up(volume: &Zvol, view: &Pool, subject: &Subject) {
    volume.set_sync(sync_mode(file_system_options(subject.levels(), view.features().enabled()).sync, false));
    let read_only = subject.levels().find(Property::Readonly).map(|sourced| sourced.value);
    volume.set_read_only(read_only == Some(PropertyValue::Number(1)));
}
