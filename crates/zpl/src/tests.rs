//! File systems in memory: each rule, and random operations beside a model.

mod contents;
mod flags;
mod model;
mod names;
mod portions;
mod threads;
mod xattrs;

use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Env, Kind, Result};
use device::{Device, MemDevice};
use dmu::{Cache, Ledger, Objset, ObjsetPolicy, Throttle, Txgs};
use format::blkptr::BlkPtr;
use format::ids::{DatasetId, Guid, ObjectId, Txg, VdevNumber};
use format::objset::ObjsetType;
use format::space_map::Run;
use vdev::{Tree, VdevSpec};
use zio::Zio;
use zio::alloc::{Allocator, Class, SpaceMapSource, TopShape};

use crate::*;

const NOW_S: u64 = 1_700_000_000;

const DISK_BYTES: u64 = 256 << 20;

/// Space maps of a disk that is empty.
struct Empty;

impl SpaceMapSource for Empty {
    fn runs(&self, _top: VdevNumber, _metaslab: u64) -> Result<Vec<Run>> {
        Ok(Vec::new())
    }
}

/// Frees what dies.
struct Frees<'a>(&'a Zio, Txg);

impl Ledger for Frees<'_> {
    fn born(&mut self, _bp: &BlkPtr) {}

    fn killed(&mut self, bp: &BlkPtr) -> Result<()> {
        self.0.free(self.1, bp, dmu::OnFailure::Fail).map(drop)
    }
}

/// A pool of one disk.
fn cache() -> Arc<Cache> {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new("disk", vec![0; DISK_BYTES as usize + (5 << 20)]));
    let guid = Guid::new(9);
    let tree = Arc::new(Tree::open(VdevSpec::of_file(guid, DISK_BYTES, 24), &[(guid, device)].into()).unwrap());
    let zio = Zio::new(tree.clone(), Env::fixed(0));
    let allocator = Allocator::new(tree, Box::new(Empty));
    let metaslabs = (0..DISK_BYTES >> 24).map(|i| (i << 24..(i + 1) << 24, 0)).collect();
    allocator
        .add_top(TopShape { top: VdevNumber::new(0), class: Class::Normal, metaslab_shift: 24, metaslabs })
        .unwrap();
    zio.set_allocator(Arc::new(allocator));
    Arc::new(Cache::new(Arc::new(zio), 4 << 20))
}

struct Fs {
    zpl: Zpl,
    txgs: Arc<Txgs>,
    root: ObjectId,
}

fn fs_with(new: NewFs, options: ZplOptions) -> Fs {
    fs_counting(new, options, true)
}

/// With objects counted by user and group, and all by project or not.
fn fs_counting(new: NewFs, options: ZplOptions, by_project: bool) -> Fs {
    let objset =
        Objset::open_live(cache(), DatasetId::new(54), BlkPtr::HOLE, ObjsetType::Zfs, "t/fs", ObjsetPolicy::default())
            .unwrap();
    objset.count_objects(by_project);
    let txgs = Arc::new(Txgs::new(Txg::new(4), Throttle::of(&Env::fixed(0), 8 << 30)));
    let new = NewFs { now: (NOW_S - 1, 5), ..new };
    create_fs(&objset, &txgs.begin().unwrap(), &new).unwrap();
    let zpl = Zpl::open_writable(objset, txgs.clone(), Env::fixed(NOW_S), options, None).unwrap();
    Fs { root: zpl.root(), zpl, txgs }
}

fn fs() -> Fs {
    fs_with(NewFs::default(), ZplOptions::default())
}

fn new(kind: NewKind<'_>, mode: u32) -> New<'_> {
    New { kind, mode, umask: 0, uid: 10, gid: 20 }
}

impl Fs {
    /// Closes the group and brings it to disk; `between` is called when the next one is open already.
    fn sync(&self, between: impl FnOnce()) {
        let set = self.zpl.objset();
        let txg = self.txgs.close();
        between();
        let zio = set.cache().zio();
        let synced = set.sync(&self.txgs.in_sync(txg), &mut Frees(zio, txg)).unwrap();
        zio.finish_writes().unwrap();
        if let Some(synced) = synced {
            set.commit(synced);
        }
        zio.allocator().unwrap().take_changes(txg);
        zio.allocator().unwrap().synced(txg);
        self.txgs.synced(txg);
    }

    /// The same file system as it is on disk, as after a crash.
    fn reopened(&self) -> Fs {
        let set = self.zpl.objset();
        let cache = Arc::new(Cache::new(set.cache().zio().clone(), 1 << 20));
        let set = Objset::open_live(
            cache,
            DatasetId::new(54),
            set.rootbp(),
            ObjsetType::Zfs,
            "t/fs",
            ObjsetPolicy::default(),
        )
        .unwrap();
        let options = self.zpl.live().unwrap().options();
        let zpl = Zpl::open_writable(set, self.txgs.clone(), Env::fixed(NOW_S), options, None).unwrap();
        Fs { root: zpl.root(), zpl, txgs: self.txgs.clone() }
    }

    fn file(&self, dir: ObjectId, name: &str) -> ObjectId {
        self.zpl.create(dir, name.as_bytes(), &new(NewKind::File, 0o644)).unwrap().ino
    }

    fn dir(&self, dir: ObjectId, name: &str) -> ObjectId {
        self.zpl.create(dir, name.as_bytes(), &new(NewKind::Directory, 0o755)).unwrap().ino
    }

    fn stat(&self, ino: ObjectId) -> Stat {
        self.zpl.stat(ino).unwrap()
    }

    fn names(&self, dir: ObjectId) -> Vec<String> {
        let mut names = Vec::new();
        self.zpl
            .readdir(dir, 2, &mut |entry| {
                names.push(String::from_utf8_lossy(&entry.name).into_owned());
                ControlFlow::Continue(())
            })
            .unwrap();
        names.sort();
        names
    }

    fn contents(&self, ino: ObjectId) -> Vec<u8> {
        let file = self.zpl.open_file(ino).unwrap();
        let mut bytes = vec![0xee; file.size() as usize + 10];
        let len = file.read(0, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    fn queued(&self) -> usize {
        let queue = self.zpl.objset().object(self.zpl.master().delete_queue).unwrap();
        dmu::zap::Zap::open(queue).unwrap().len() as usize
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> Kind {
    result.unwrap_err().kind()
}
