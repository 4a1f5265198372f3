//! The volumes of an imported pool that are open: each once, whatever gives it out.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use base::{Mutex, Result};
use pool::Pool;
use zvol::Volume;

use crate::live::ServedPool;

/// The open volumes, by the object of the dataset. One is open as long as somebody has it.
#[derive(Default)]
pub struct OpenVolumes(Mutex<HashMap<u64, Weak<Volume>>>);

impl OpenVolumes {
    /// The volume, or snapshot of one, of that name; it may be changed if it is no snapshot and the pool can be. Errors:
    /// `NotFound`, `Invalid` if it is none, those of reading it and of what its log has to do again.
    pub fn open(&self, pool: &ServedPool, name: &str) -> Result<Arc<Volume>> {
        let view: Arc<Pool> = pool.view();
        let subject = view.dsl().subject(name)?;
        let id = view.dsl().find(name)?.id;
        // held while it is opened, so that its log is replayed once
        let mut open = self.0.lock();
        if let Some(volume) = open.get(&id).and_then(Weak::upgrade)
            && pool.has_root(id, volume.objset())?
        {
            return Ok(volume);
        }
        open.retain(|_, volume| volume.strong_count() > 0);
        let volume = Arc::new(pool.open_volume(&subject)?);
        open.insert(id, Arc::downgrade(&volume));
        Ok(volume)
    }

    /// Lets volumes be written as their properties say now. Errors: those of reading the pool.
    pub fn renew(&self, pool: &ServedPool) -> Result<()> {
        let open: Vec<(u64, Arc<Volume>)> =
            self.0.lock().iter().filter_map(|(id, volume)| Some((*id, volume.upgrade()?))).collect();
        let view = pool.view();
        for (id, volume) in open {
            let subject = view.dsl().subject(&view.dsl().name_of(id)?)?;
            volume.set_sync(pool.sync_mode(&subject, false));
        }
        Ok(())
    }
}
