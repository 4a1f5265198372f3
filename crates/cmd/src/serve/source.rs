//! A dataset as the FUSE adapter mounts it.

use std::sync::{Arc, OnceLock};

use base::{Error, Kind, Result};
use dmu::Mode;
use dsl::{Dataset, Property, PropertyValue, Subject};
use fuse::{Snapshot, Source, Space};
use pool::{FeatureState, Pool};
use zpl::{Visible, Zpl};

/// Most objects that an object set can have.
const OBJECTS_MAX: u64 = 1 << 48;

/// A file system of an imported pool, with its snapshots.
pub struct FileSystem {
    pool: Arc<Pool>,
    subject: Subject,
    head: Dataset,
    visible: Visible,
    live: Arc<Zpl>,
    snapshots: OnceLock<Vec<Dataset>>,
    space: OnceLock<Space>,
}

impl FileSystem {
    /// The file system `name`. Errors: `NotFound`, `Encrypted`, those of reading the pool.
    pub fn open(pool: &Arc<Pool>, name: &str) -> Result<FileSystem> {
        let subject = pool.dsl().subject(name)?;
        let head = subject.dataset().cloned();
        let head = head.ok_or_else(|| Error::new(Kind::Invalid, "dataset is not a file system").in_dataset(name))?;
        let number = |property| number(pool, &subject, property, 0);
        let visible = Visible::from_properties(number(Property::Xattr)?, number(Property::Acltype)?);
        let live = Arc::new(Zpl::open(pool.dsl().objset(&head, Mode::Plain)?)?.showing(visible));
        let (snapshots, space) = (OnceLock::new(), OnceLock::new());
        Ok(FileSystem { pool: pool.clone(), subject, head, visible, live, snapshots, space })
    }

    fn listed(&self) -> Result<&[Dataset]> {
        if let Some(snapshots) = self.snapshots.get() {
            return Ok(snapshots);
        }
        let snapshots = self.pool.dsl().snapshots(&self.head)?;
        Ok(self.snapshots.get_or_init(|| snapshots))
    }

    fn compute_space(&self) -> Result<Space> {
        let usable_bytes = self.pool.usable_bytes()?;
        let objects_used = self.head.phys.bp.fill();
        let has_long_names = self.pool.features().state("org.zfsonlinux:longname") == FeatureState::Active;
        Ok(Space {
            referenced_bytes: self.head.phys.referenced_bytes,
            available_bytes: number(&self.pool, &self.subject, Property::Available, usable_bytes)?,
            objects_used,
            objects_available: OBJECTS_MAX.saturating_sub(objects_used),
            record_bytes: number(&self.pool, &self.subject, Property::Recordsize, usable_bytes)?
                .try_into()
                .unwrap_or(128 << 10),
            name_bytes_max: if has_long_names { 1023 } else { 255 },
        })
    }
}

impl Source for FileSystem {
    type Tree = Zpl;

    fn tree(&self) -> Arc<Zpl> {
        self.live.clone()
    }

    /// Computed once: nothing changes in a pool that is read-only.
    fn space(&self) -> Result<Space> {
        if let Some(space) = self.space.get() {
            return Ok(*space);
        }
        let space = self.compute_space()?;
        Ok(*self.space.get_or_init(|| space))
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let snapshot = |dataset: &Dataset| Snapshot {
            name: dataset.name.split_once('@').map_or("", |(_, name)| name).to_owned(),
            dataset: dataset.id,
            created_s: dataset.phys.creation_time_s,
        };
        Ok(self.listed()?.iter().map(snapshot).collect())
    }

    fn open_snapshot(&self, snapshot: &Snapshot) -> Result<Arc<Zpl>> {
        let dataset = self.listed()?.iter().find(|dataset| dataset.id == snapshot.dataset);
        let dataset = dataset.ok_or_else(|| Error::new(Kind::NotFound, "no such snapshot"))?;
        Ok(Arc::new(Zpl::open(self.pool.dsl().objset(dataset, Mode::Plain)?)?.showing(self.visible)))
    }
}

fn number(pool: &Pool, subject: &Subject, property: Property, usable_bytes: u64) -> Result<u64> {
    let value = pool.dsl().property(subject, property, usable_bytes)?.map(|sourced| sourced.value);
    Ok(match value {
        Some(PropertyValue::Number(number)) => number,
        _ => property.default_number(),
    })
}
