//! The pools that cases begin with: some made here, with everything that a file system can hold, and small ones
//! of the corpus.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::{Env, Result};
use device::Device;
use dsl::PropertyValue;
use format::feature::{LIVELIST, REDACTED_DATASETS, REDACTION_BOOKMARKS, USEROBJ_ACCOUNTING, ZPOOL_CHECKPOINT};
use format::ids::{DatasetId, ObjectId};
use format::object_type::ObjectType;
use pool::{LivePool, NewPool, PoolState};
use testkit::corpus;
use testkit::rng::Rng;
use testkit::seal::{Atlas, MOS};
use testkit::sparse::SparseDevice;
use testkit::survey::{self, Survey};
use testkit::workload::{self, FEATURES, PoolLayout};
use zpl::{New, NewFs, NewKind, XattrMode, Zpl, create_fs};

/// The dataset of our pools that nobody changes.
pub(super) const WITNESS: &str = "p/witness";
const DEVICE_BYTES: u64 = 64 << 20;
/// Cases of the corpus that are small, and have what our own pools lack.
const CORPUS: [&str; 27] = [
    "single",
    "snapshots",
    "errlog",
    "checkpoint",
    "zil",
    "zilslog",
    "dedup",
    "fastdedup",
    "removal",
    "logcache",
    "special",
    "dnodesize",
    "xattr",
    "nofeatures",
    "raidz1",
    "v28",
    "draid",
    "be-mixed",
    "cloned",
    "encrypted",
    "fuse-snapshots",
    "largemicrozap",
    "longnames",
    "redaction",
    "rewritten",
    "expanded",
    "expanding",
];

/// Features of our pools beside those that all tests use.
const MORE_FEATURES: [&str; 5] =
    [LIVELIST, REDACTION_BOOKMARKS, REDACTED_DATASETS, USEROBJ_ACCOUNTING, ZPOOL_CHECKPOINT];

/// A pool to begin with.
pub struct BasePool {
    /// What it is.
    pub name: String,
    devices: Vec<SparseDevice>,
    pub(super) atlas: Atlas,
    /// What [`WITNESS`] holds; of the corpus, nothing.
    pub(super) truth: Survey,
    /// Datasets that are worked in.
    pub(super) worked_in: Vec<String>,
    /// Whether it can be imported for writing as it is.
    pub(super) is_writable: bool,
    /// The dataset object of [`WITNESS`].
    pub(super) witness: Option<DatasetId>,
    /// Blocks of the same kind: each kind is changed as often.
    pub(super) groups: Vec<Vec<usize>>,
    /// All objects, with their object sets.
    pub(super) objects: Vec<(DatasetId, ObjectId)>,
    /// Those with a bonus buffer, by its type.
    pub(super) with_bonus: BTreeMap<ObjectType, Vec<(DatasetId, ObjectId)>>,
}

impl BasePool {
    fn of(name: String, devices: Vec<SparseDevice>) -> Result<BasePool> {
        let shared: Vec<Arc<dyn Device>> = devices.iter().map(|device| Arc::new(device.copy()) as _).collect();
        let atlas = Atlas::of(&shared)?;
        let view = survey::open(&shared, &Env::fixed(0))?;
        let truth = Survey::of_those(&view, &|dataset| dataset == WITNESS);
        let heads = view.dsl().walk()?.into_iter().map(|dir| dir.name).filter(|name| name != WITNESS);
        let worked_in = heads.collect();
        let candidate = workload::candidate(&shared)?;
        let is_writable =
            LivePool::import(&Env::fixed(0), &candidate, &workload::options(), (7, "here".into())).is_ok();
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (number, block) in atlas.blocks().iter().enumerate() {
            groups.entry((block.objset == MOS, block.role, block.object_type())).or_default().push(number);
        }
        let objects = atlas.objects();
        let mut with_bonus: BTreeMap<_, Vec<(DatasetId, ObjectId)>> = BTreeMap::new();
        for &(set, object) in &objects {
            if let Some(dnode) = atlas.dnode(set, object).filter(|dnode| !dnode.bonus.is_empty()) {
                with_bonus.entry(dnode.bonus_type).or_default().push((set, object));
            }
        }
        let witness = view.dsl().find(WITNESS).ok().map(|dataset| dataset.id);
        let groups = groups.into_values().collect();
        Ok(BasePool { name, devices, atlas, truth, worked_in, is_writable, witness, groups, objects, with_bonus })
    }

    /// Its devices, to be changed.
    pub fn copy(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().map(|device| Arc::new(device.copy()) as Arc<dyn Device>).collect()
    }
}

/// All bases; a few of each kind only, if they have to be there soon.
pub fn bases(is_quick: bool) -> Vec<BasePool> {
    let layouts: &[PoolLayout] = if is_quick { &[PoolLayout::Single, PoolLayout::Raidz1] } else { &PoolLayout::ALL };
    let mut bases = Vec::new();
    for (number, &layout) in layouts.iter().enumerate() {
        for exported in [true, false] {
            let devices = make(layout, number as u64, exported).expect("a pool can be made");
            let how = if exported { "exported" } else { "crashed" };
            bases.push(BasePool::of(format!("{layout:?} {how}"), devices).expect("the pool is whole"));
        }
    }
    let cases = CORPUS.iter().take(if is_quick { 3 } else { CORPUS.len() });
    for case in cases.map(|name| corpus::case(name)) {
        let devices = case.load().iter().map(|device| sparse(&**device)).collect::<Result<Vec<_>>>();
        let base = devices.and_then(|devices| BasePool::of(case.name.clone(), devices));
        bases.push(base.unwrap_or_else(|e| panic!("{}: {e}", case.name)));
    }
    bases
}

fn sparse(device: &dyn Device) -> Result<SparseDevice> {
    let copy = SparseDevice::new(device.path(), device.size());
    let mut buf = vec![0; 16 << 10];
    for at in (0..device.size()).step_by(buf.len()) {
        let len = buf.len().min((device.size() - at) as usize);
        device.read_at(at, &mut buf[..len])?;
        if buf[..len].iter().any(|&byte| byte != 0) {
            copy.write_at(at, &buf[..len])?;
        }
    }
    Ok(copy)
}

/// Opens a head to be changed, as after a crash.
pub(super) fn open(env: &Env, pool: &LivePool, name: &str, options: zpl::ZplOptions) -> Result<Zpl> {
    let view = pool.view();
    let id = view.dsl().find(name)?.id;
    let options = zpl::ZplOptions { shares: Some(pool.root_holder()), ..options };
    let zpl = Zpl::open_writable(pool.head(id)?, pool.txgs().clone(), env.clone(), options, Some(pool.log(id)?))?;
    zpl.replay_log()?;
    zpl.clean_unlinked()?;
    Ok(zpl)
}

/// Makes an empty file system.
pub(super) fn make_fs(pool: &LivePool, name: &str, properties: &[(&str, &str)]) -> Result<()> {
    let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    pool.create_dataset(name, properties, |set, tx, _| {
        create_fs(set, tx, &NewFs { now: (1000, 0), salt: 5, ..NewFs::default() })
    })
}

/// A pool with a few file systems. One that is not exported has a log to be replayed.
fn make(layout: PoolLayout, seed: u64, is_exported: bool) -> Result<Vec<SparseDevice>> {
    let env = &Env::fixed(1000);
    let own: Vec<Arc<SparseDevice>> =
        (0..layout.devices()).map(|n| Arc::new(SparseDevice::new(format!("/d{n}"), DEVICE_BYTES))).collect();
    let devices: Vec<Arc<dyn Device>> = own.iter().map(|device| device.clone() as _).collect();
    let by_path: HashMap<_, _> = devices.iter().map(|device| (device.path().into(), device.clone())).collect();
    let new = NewPool {
        name: "p".into(),
        temporary_name: None,
        vdevs: layout.vdevs(&devices),
        spares: Vec::new(),
        caches: Vec::new(),
        ashift: Some(layout.ashift()),
        features: FEATURES.into_iter().chain(MORE_FEATURES).map(str::to_owned).collect(),
        properties: Vec::new(),
        fs_properties: vec![("compression".into(), "lz4".into())],
        history: "zpool create p".into(),
        host: (7, "here".into()),
    };
    let pool = LivePool::create(env, &new, &by_path, |set, tx, _| {
        create_fs(set, tx, &NewFs { now: (1000, 0), salt: 5, ..NewFs::default() })
    })?;
    make_fs(&pool, "p/fs", &[("compression", "zstd"), ("quota", "40M")])?;
    make_fs(&pool, "p/fs/kid", &[("copies", "2"), ("org.cenote:colour", "blue")])?;
    make_fs(&pool, "p/fs/kid/deep", &[])?;
    make_fs(&pool, "p/other", &[("mountpoint", "/srv/other/place"), ("compression", "off"), ("checksum", "sha256")])?;
    make_fs(&pool, WITNESS, &[])?;
    pool.set_pool_properties(vec![("comment".into(), PropertyValue::Text("a pool".into()))])?;
    let rng = &mut Rng::new(seed);
    for (name, xattr_sa) in [("p/fs", true), ("p/fs/kid", false), ("p/other", true), (WITNESS, true)] {
        let options = zpl::ZplOptions { xattr_sa, record_bytes: 16 << 10, ..zpl::ZplOptions::default() };
        let zpl = open(env, &pool, name, options)?;
        fill(&zpl, rng)?;
        pool.sync()?;
        if !is_exported && name != WITNESS {
            let dir = zpl.create(zpl.root(), b"logged", &new_file(NewKind::Directory))?.ino;
            for number in 0..6 {
                let file = zpl.create(dir, format!("l{number}").as_bytes(), &new_file(NewKind::File))?.ino;
                zpl.open_file(file)?.write(number * 3000, &noise(rng, 5000)[..])?;
            }
            zpl.rename((dir, b"l1"), (zpl.root(), b"moved"), zpl::RenameMode::Replace)?;
            zpl.unlink(dir, b"l2")?;
            zpl.set_attr(dir, &zpl::SetAttr { mode: Some(0o700), uid: Some(5), ..zpl::SetAttr::default() })?;
            zpl.sync()?;
        }
    }
    make_history(env, &pool, rng)?;
    if is_exported {
        pool.close(PoolState::Exported)?;
    }
    Ok(own.iter().map(|device| device.copy()).collect())
}

/// A clone that was changed, by which its origin is redacted, and in it a copy that shares its blocks.
fn make_history(env: &Env, pool: &LivePool, rng: &mut Rng) -> Result<()> {
    pool.snapshot(&["p/fs/kid@a".to_owned()], &[])?;
    pool.clone_snapshot("p/fs/kid@a", "p/clone", &[])?;
    let clone = open(env, pool, "p/clone", zpl::ZplOptions { record_bytes: 16 << 10, ..zpl::ZplOptions::default() })?;
    let dir = clone.lookup(clone.root(), b"d")?;
    let file = clone.open_file(clone.lookup(dir, b"n4")?)?;
    file.write(0, &noise(rng, 90_000)[..])?;
    pool.sync()?;
    let copy = clone.create(dir, b"copy", &new_file(NewKind::File))?.ino;
    clone.open_file(copy)?.copy_from(0, &file, 0, 80 << 10)?;
    pool.sync()?;
    pool.snapshot(&["p/clone@b".to_owned()], &[])?;
    pool.redact("p/fs/kid@a", "redacted", &["p/clone@b".to_owned()])
}

pub(super) fn new_file(kind: NewKind<'_>) -> New<'_> {
    New { kind, mode: 0o644, umask: 0, uid: 1000, gid: 100 }
}

pub(super) fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.next_multiple_of(8)];
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&rng.number().to_le_bytes()));
    bytes.truncate(len);
    bytes
}

/// One of everything that a file system can hold.
fn fill(zpl: &Zpl, rng: &mut Rng) -> Result<()> {
    let root = zpl.root();
    let dir = zpl.create(root, b"d", &new_file(NewKind::Directory))?.ino;
    // the names of child datasets: there they are mounted
    for name in [&b"kid"[..], b"deep"] {
        zpl.create(root, name, &new_file(NewKind::Directory))?;
    }
    for number in 0..6 {
        let file = zpl.create(dir, format!("n{number}").as_bytes(), &new_file(NewKind::File))?.ino;
        let bytes = if number % 2 == 0 { noise(rng, 100 << (2 * number)) } else { b"text ".repeat(20 << number) };
        zpl.open_file(file)?.write(0, &bytes[..])?;
    }
    let sparse = zpl.create(root, b"sparse", &new_file(NewKind::File))?.ino;
    for at in [0, 3 << 20, 50 << 20] {
        zpl.open_file(sparse)?.write(at, &noise(rng, 20_000)[..])?;
    }
    let fat = zpl.create(root, b"fat", &new_file(NewKind::Directory))?.ino;
    for number in 0..40 {
        let name = format!("{number:02}{}", "-a long name".repeat(5));
        zpl.create(fat, name.as_bytes(), &new_file(NewKind::File))?;
    }
    zpl.create(root, b"short", &new_file(NewKind::Symlink(b"d/n1")))?;
    zpl.create(root, b"out", &new_file(NewKind::Symlink(b"../../../../etc")))?;
    zpl.create(root, b"long", &new_file(NewKind::Symlink(&b"/far/away".repeat(60))))?;
    zpl.create(root, b"pipe", &new_file(NewKind::Fifo))?;
    zpl.create(root, b"disk", &new_file(NewKind::BlockDevice(0x700)))?;
    zpl.link(sparse, dir, b"again")?;
    let entries = [(1u16, 6u16, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (0x10, 6, u32::MAX), (0x20, 4, u32::MAX)];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend([&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    zpl.set_xattr(dir, b"system.posix_acl_access", &acl, XattrMode::Any)?;
    zpl.set_xattr(dir, b"system.posix_acl_default", &acl, XattrMode::Any)?;
    zpl.set_xattr(sparse, b"user.small", b"blue", XattrMode::Any)?;
    zpl.set_xattr(sparse, b"user.medium", &noise(rng, 700), XattrMode::Any)?;
    zpl.set_xattr(fat, b"user.large", &noise(rng, 9000), XattrMode::Any)?;
    // lost its name while in use: the next that opens the file system frees it
    let orphan = zpl.create(root, b"orphan", &new_file(NewKind::File))?.ino;
    zpl.open_file(orphan)?.write(0, &noise(rng, 40_000)[..])?;
    zpl.unlink(root, b"orphan")?;
    Ok(())
}
