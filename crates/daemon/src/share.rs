//! `cenote reflink` on the pool process's side: a file takes blocks of another one.
//!
//! The kernel asks for such copies only within a mount. The command has both files open, so that neither goes meanwhile,
//! and their modes have been looked at; it copies what cannot be shared.

use std::sync::Arc;

use base::{Error, Kind, Result};
use dmu::Mode;
use format::feature::BLOCK_CLONING;
use pool::FeatureState;
use protocol::share::{ShareOrder, SharedFile};
use zpl::{File, Zpl};

use crate::live::ServedPool;
use crate::mounts::Mounts;

/// Bytes that one request shares at most: a command can be interrupted in between.
const SHARE_BYTES_MAX: u64 = 1 << 30;

/// Shares blocks: how many bytes of the file have been; 0 if the first of them have to be copied. Errors: `Unsupported` if
/// the pool has no clones; `NotFound` of what is not mounted, or gone; those of [`File::share`].
pub fn share(pool: &ServedPool, mounts: &Mounts, order: &ShareOrder) -> Result<u64> {
    let view = pool.view();
    if view.features().state(BLOCK_CLONING) == FeatureState::Disabled {
        return Err(Error::new(
            Kind::Unsupported,
            format!("feature@block_cloning is disabled for pool '{}'", view.name()),
        ));
    }
    let ShareOrder { source_offset, target, offset, .. } = order;
    let (source, len) = (open(pool, mounts, &order.source)?, order.len.min(SHARE_BYTES_MAX));
    mounts.change_file(&target.dataset, target.inode, &|zpl, object| {
        zpl.open_file(object)?.share(*offset, &source, *source_offset, len)
    })
}

fn open(pool: &ServedPool, mounts: &Mounts, file: &SharedFile) -> Result<File> {
    let view = pool.view();
    let dataset = view.dsl().find(&file.dataset)?;
    let object = fuse::object_of(file.inode).ok_or_else(|| Error::new(Kind::Invalid, "not a file of a file system"))?;
    let zpl = match dataset.is_snapshot() {
        true if view.dsl().redacted_for(&dataset)?.is_some() => {
            return Err(Error::new(Kind::Permission, "its sender redacted some of it").in_dataset(&file.dataset));
        }
        true => Arc::new(Zpl::open(view.dsl().objset(&dataset, Mode::Plain)?)?),
        false => mounts
            .contents_of(dataset.id)
            .ok_or_else(|| Error::new(Kind::NotFound, "not currently mounted").in_dataset(&file.dataset))?,
    };
    zpl.open_file(object)
}
