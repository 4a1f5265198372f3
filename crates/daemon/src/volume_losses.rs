//! Volumes that lost changes which programs were told are done, as the process before this one died: the next flush of
//! each fails, once, whatever way it comes by.
//!
//! ```text
//!   change of a volume ─▶ zil::Unsettled ─▶ facts, which the keeper has      until a commit or its group is on disk
//!   kill -9, the next process ─▶ its facts ─▶ untold ─▶ EIO of a flush
//! ```

use std::os::fd::AsFd;
use std::sync::Arc;

use base::{FactFile, FactSlot, FoundFacts, Mutex, Result};
use format::ids::DatasetId;
use fuse::Helper;
use zil::{LostChanges, Unsettled, UntoldLosses};
use zvol::Zvol;

/// What volumes lost, and what they would lose.
pub struct VolumeLosses {
    /// Where changes are noted that are not on disk, once a volume was opened that can be changed. `None` in it: nobody
    /// keeps it.
    file: Mutex<Option<Option<Arc<FactFile>>>>,
    helper: Helper,
    /// By the objects of their datasets; with each its fact, for the process after this one.
    untold: Mutex<UntoldLosses<FactSlot>>,
}

impl VolumeLosses {
    /// Of a process that found these facts of the one before; `helper` is to keep its own.
    pub fn new(helper: Helper, before: Option<Result<FoundFacts>>) -> VolumeLosses {
        let is_known = before.is_some();
        let (lost, are_all) = match before {
            Some(Ok(facts)) => (Unsettled::lost(&facts), facts.is_incomplete),
            Some(Err(_)) => (Vec::new(), true),
            None => (Vec::new(), false),
        };
        let losses = VolumeLosses { file: Mutex::default(), helper, untold: Mutex::new(UntoldLosses::new([], false)) };
        let file = if is_known { losses.file() } else { None };
        let note = |object| file.as_ref()?.put(LostChanges { object, born: None }.fact());
        let noted = lost.into_iter().map(|LostChanges { object, .. }| (object, note(object)));
        *losses.untold.lock() = UntoldLosses::new(noted, are_all);
        losses
    }

    /// The volumes that lost something; and whether all may have.
    pub fn lost(&self) -> (Vec<DatasetId>, bool) {
        let untold = self.untold.lock();
        (untold.objects().map(DatasetId::of_object).collect(), untold.are_all())
    }

    /// A volume was opened that can be changed.
    pub fn watch(self: &Arc<Self>, dataset: DatasetId, volume: &Zvol) {
        if let Some(file) = self.file() {
            volume.keep_unsettled(Arc::new(Unsettled::new(file)), dataset.object());
        }
        let this = Arc::downgrade(self);
        volume.tell_losses(move || this.upgrade().is_some_and(|losses| losses.take(dataset)));
    }

    /// A volume has lost nothing.
    pub fn settle(&self, dataset: DatasetId) {
        self.take(dataset);
    }

    /// Whether a volume lost something and was not told; it is taken to be told then.
    fn take(&self, dataset: DatasetId) -> bool {
        let Some(slot) = self.untold.lock().take(dataset.object()) else { return false };
        if let (Some(slot), Some(file)) = (slot, self.file()) {
            file.take(slot);
        }
        true
    }

    fn file(&self) -> Option<Arc<FactFile>> {
        self.file
            .lock()
            .get_or_insert_with(|| {
                let made = FactFile::new().and_then(|file| self.helper.keep_volumes(file.as_fd()).map(|()| file));
                // then nobody is to serve them after this process
                made.inspect_err(|error| tracing::debug!("volumes end with this process: {error}")).ok().map(Arc::new)
            })
            .clone()
    }
}
