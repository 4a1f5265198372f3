//! A volume that an export has open, whatever becomes of its root.

use std::sync::Arc;

use base::{Mutex, Result};
use format::ids::DatasetId;
use zvol::Zvol;

use crate::live::ServedPool;
use crate::volumes::OpenVolumes;

/// An open volume, or a snapshot of one.
pub struct VolumeHandle {
    pool: Arc<ServedPool>,
    volumes: Arc<OpenVolumes>,
    dataset: DatasetId,
    /// As it was when it was used last, and how often roots had been replaced then.
    volume: Mutex<(u64, Arc<Zvol>)>,
}

impl VolumeHandle {
    /// The volume of that dataset object. Errors: as from [`OpenVolumes::open`].
    pub fn open(pool: Arc<ServedPool>, volumes: Arc<OpenVolumes>, dataset: DatasetId) -> Result<VolumeHandle> {
        let replaced = volumes.replaced();
        let volume = volumes.open(&pool, &pool.view().dsl().name_of(dataset)?)?;
        Ok(VolumeHandle { pool, volumes, dataset, volume: Mutex::new((replaced, volume)) })
    }

    /// The object of its dataset.
    pub fn dataset(&self) -> DatasetId {
        self.dataset
    }

    /// The volume under the root that it has now. Errors: those of opening it.
    pub fn now(&self) -> Result<Arc<Zvol>> {
        let mut known = self.volume.lock();
        let replaced = self.volumes.replaced();
        if known.0 != replaced {
            let name = self.pool.view().dsl().name_of(self.dataset)?;
            *known = (replaced, self.volumes.open(&self.pool, &name)?);
        }
        Ok(known.1.clone())
    }
}
