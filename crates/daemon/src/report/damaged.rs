//! The names of damaged files, on the pool process's side.
//!
//! An entry of the error log names an object; its path is found upwards, from each directory's parent.
//! What has no path is shown by numbers:
//!
//! ```text
//!   /tank/home/file                 mounted there
//!   tank/home:/file                 not mounted
//!   tank/home@snap:/file            a snapshot
//!   tank/home:<0x5>                 no file, or one that is gone
//!   <0x36>:<0x5>                    a dataset that is gone
//!   <metadata>:<0x3d>               the pool's own object
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use base::Result;
use format::ids::DatasetId;
use pool::{DamagedObject, Pool};
use protocol::datasets::Mounted;
use zpl::Zpl;

use crate::report::paths::{FilesNow, PathFinder, files};

/// The names of all damaged files, sorted by dataset and object: those that they have `now`, else those of the last group
/// on disk.
pub fn damaged(pool: &Pool, mounts: &[Mounted], now: FilesNow<'_>) -> Result<Vec<String>> {
    let mut naming = Naming { pool, mounts, now, open: HashMap::new() };
    Ok(pool.damaged_objects()?.iter().map(|damaged| naming.name(damaged)).collect())
}

struct Naming<'a> {
    pool: &'a Pool,
    mounts: &'a [Mounted],
    now: FilesNow<'a>,
    /// Datasets, as far as they can be read.
    open: HashMap<DatasetId, Option<NamedFiles>>,
}

/// A dataset's name, and its files if it has some that can be read.
struct NamedFiles {
    dataset: String,
    zpl: Option<Arc<Zpl>>,
}

impl Naming<'_> {
    fn name(&mut self, damaged: &DamagedObject) -> String {
        let object = damaged.object;
        if damaged.dataset == DatasetId::MOS {
            return format!("<metadata>:<0x{object:x}>");
        }
        let open = self.open.entry(damaged.dataset).or_insert_with(|| open(self.pool, self.now, damaged.dataset));
        let Some(NamedFiles { dataset, zpl }) = open else {
            return format!("<0x{:x}>:<0x{object:x}>", damaged.dataset);
        };
        let path = zpl.as_ref().and_then(|zpl| PathFinder::new(zpl, u64::MAX).paths(&[object]).pop().flatten());
        let mounted = self.mounts.iter().find(|mounted| mounted.dataset == *dataset);
        match (path, mounted) {
            (Some(path), Some(mounted)) => format!("{}{path}", mounted.path),
            (Some(path), None) => format!("{dataset}:{path}"),
            (None, _) => format!("{dataset}:<0x{object:x}>"),
        }
    }
}

fn open(pool: &Pool, now: FilesNow<'_>, id: DatasetId) -> Option<NamedFiles> {
    let dataset = pool.dsl().name_of(id).ok()?;
    Some(NamedFiles { zpl: files(pool, now, id, &dataset), dataset })
}
