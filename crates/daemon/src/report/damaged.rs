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
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Error, Kind, Result};
use dmu::Mode;
use format::ids::{DatasetId, ObjectId};
use pool::{DamagedObject, Pool};
use protocol::datasets::Mounted;
use zpl::Zpl;

/// How deep directories may nest.
const DEPTH_MAX: usize = 4096;

/// What tells the files of a dataset as they are now, if it is mounted.
type FilesNow<'a> = &'a dyn Fn(DatasetId) -> Option<Arc<Zpl>>;

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
        let path = zpl.as_ref().and_then(|zpl| path_of(zpl, object).ok());
        let mounted = self.mounts.iter().find(|mounted| mounted.dataset == *dataset);
        match (path, mounted) {
            (Some(path), Some(mounted)) => format!("{}{path}", mounted.path),
            (Some(path), None) => format!("{dataset}:{path}"),
            (None, _) => format!("{dataset}:<0x{object:x}>"),
        }
    }
}

fn open(pool: &Pool, now: FilesNow<'_>, id: DatasetId) -> Option<NamedFiles> {
    let name = pool.dsl().name_of(id).ok()?;
    let head = pool.dsl().dataset(id, &name).ok()?;
    let on_disk = || pool.dsl().objset(&head, Mode::Plain).and_then(Zpl::open).map(Arc::new).ok();
    Some(NamedFiles { zpl: now(id).or_else(on_disk), dataset: name })
}

/// The path of an object from the root of its file system. Errors: `NotFound` if it has none.
fn path_of(zpl: &Zpl, object: ObjectId) -> Result<String> {
    let absent = || Error::new(Kind::NotFound, format!("object {object} has no path"));
    let mut parts = Vec::new();
    let mut at = object;
    while at != zpl.root() {
        if parts.len() > DEPTH_MAX {
            return Err(Error::corrupt("directories go round in a circle"));
        }
        let parent = zpl.stat(at)?.parent;
        let mut name = None;
        zpl.readdir(parent, 0, &mut |entry| {
            let is_it = entry.ino == at && entry.name != b"." && entry.name != b"..";
            if is_it {
                name = Some(String::from_utf8_lossy(&entry.name).into_owned());
            }
            if is_it { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        parts.push(name.ok_or_else(absent)?);
        at = parent;
    }
    parts.reverse();
    Ok(format!("/{}", parts.join("/")))
}
