//! The volumes of a pool as files: a tree that is laid out as `/dev/zvol` is.
//!
//! ```text
//!   RUN/zvol/tank/            file systems that have volumes below are folders
//!     vm/disk0                a volume is a file of its size, and stays so whatever is written to it
//!     vm/disk0@monday         its snapshots are there with snapdev=visible
//! ```
//!
//! Numbers of objects are those of datasets in the MOS. Names are looked for in the pool each time, as other ways than
//! this mount change them: the kernel keeps none. It tells when a file is opened and closed, and that is counted, so that
//! nobody's disk is destroyed.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Data, Env, Error, Kind, Mutex, Piece, Result};
use dsl::property::DatasetKind;
use dsl::{Property, PropertyValue, Subject};
use format::ids::{DatasetId, ObjectId};
use fuse::{Allocate, DatasetSpace, FileTree, SetAttr, Snapshot, Source, TreeFile};
use pool::Pool;
use protocol::volumes::{SNAPDEV_HIDDEN, VOLMODE_NONE};
use zpl::{DirEntry, FileKind, Stat};
use zvol::Zvol;

use crate::live::ServedPool;
use crate::volume_handle::VolumeHandle;
use crate::volumes::OpenVolumes;

/// Modes of a folder, of a volume, and of what can only be read.
const MODES: [u32; 3] = [0o755, 0o600, 0o400];
const SECTOR_BYTES: u64 = 512;

/// The volumes of a pool as files.
pub struct VolumeTree {
    pool: Arc<ServedPool>,
    volumes: Arc<OpenVolumes>,
    env: Env,
    /// How often each file is open.
    users: Mutex<HashMap<ObjectId, u64>>,
    /// Folders that were listed, with the names in them: the kernel may keep these.
    listed: Mutex<HashMap<ObjectId, HashSet<Vec<u8>>>>,
}

/// An open file.
pub struct VolumeFile(VolumeHandle);

/// What is mounted: the tree, and nothing beside it.
pub struct VolumeSource(pub Arc<VolumeTree>);

impl VolumeTree {
    /// The volumes of `pool`, of which `volumes` are open.
    pub fn new(pool: Arc<ServedPool>, volumes: Arc<OpenVolumes>, env: Env) -> VolumeTree {
        VolumeTree { pool, volumes, env, users: Mutex::default(), listed: Mutex::default() }
    }

    /// Whether programs have the file of a dataset open.
    pub fn is_in_use(&self, dataset: DatasetId) -> bool {
        self.users.lock().contains_key(&dataset.object())
    }

    /// Whether a dataset is a volume of the pool.
    pub fn has_volume(&self, name: &str) -> bool {
        self.pool.view().dsl().subject(name).is_ok_and(|subject| subject.kind() == DatasetKind::Volume)
    }

    /// The folders that the kernel may have a listing of, and the names in it: it is to be told that they have changed.
    pub fn take_listed(&self) -> HashMap<ObjectId, HashSet<Vec<u8>>> {
        std::mem::take(&mut self.listed.lock())
    }

    fn subject(&self, view: &Pool, dataset: DatasetId) -> Result<Subject> {
        view.dsl().subject(&view.dsl().name_of(dataset)?)
    }

    fn children(&self, view: &Pool, folder: &Subject) -> Result<Vec<Subject>> {
        let mut children = Vec::new();
        for child in view.dsl().subjects_below(folder)? {
            // what cannot be read is not there
            let Ok(child) = child else { continue };
            match child.kind() {
                DatasetKind::Volume => {
                    children.extend(shown_snapshots(view, &child)?);
                    if is_shown(view, &child)? {
                        children.push(child);
                    }
                }
                _ if has_volumes(view, &child)? => children.push(child),
                _ => {}
            }
        }
        children.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(children)
    }

    fn stat_of(&self, view: &Pool, subject: &Subject) -> Result<Stat> {
        let dataset = subject.dataset().ok_or_else(not_found)?;
        let born = (i64::try_from(dataset.phys.creation_time_s).unwrap_or(0), 0);
        let is_folder = subject.kind() == DatasetKind::FileSystem;
        let (size, block_size) = match is_folder {
            true => (2, SECTOR_BYTES),
            false => {
                let volume = self.volumes.open(&self.pool, subject.name())?;
                (volume.size(), volume.block_size())
            }
        };
        let can_be_written = self.pool.is_writable() && subject.kind() == DatasetKind::Volume;
        let is_fixed = !can_be_written || number(view, subject, Property::Readonly)? != 0;
        let now = self.env.now();
        let kind = if is_folder { FileKind::Directory } else { FileKind::File };
        let mode = MODES[if is_folder { 0 } else { 1 + usize::from(is_fixed) }];
        let owner = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        Ok(Stat {
            generation: dataset.phys.creation_txg.get(),
            blocks: dataset.phys.referenced_bytes / SECTOR_BYTES,
            block_size,
            atime: born,
            mtime: born,
            // so that nobody keeps the size for long
            ctime: (i64::try_from(now.0).unwrap_or(0), now.1),
            btime: born,
            ..Stat::made(dataset.id.object(), kind, mode, owner, size)
        })
    }
}

impl FileTree for VolumeTree {
    type File = VolumeFile;

    fn root(&self) -> ObjectId {
        // it has been read when the pool was imported
        self.pool
            .view()
            .dsl()
            .root_subject()
            .ok()
            .and_then(|root| Some(root.dataset()?.id))
            .map_or(ObjectId::NONE, DatasetId::object)
    }

    fn stat(&self, object: ObjectId) -> Result<Stat> {
        let view = self.pool.view();
        self.stat_of(&view, &self.subject(&view, DatasetId::of_object(object))?)
    }

    fn lookup(&self, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let view = self.pool.view();
        let folder = self.subject(&view, DatasetId::of_object(directory))?;
        let name = std::str::from_utf8(name).map_err(|_| not_found())?;
        if name.contains(['/', '#']) || folder.kind() != DatasetKind::FileSystem {
            return Err(not_found());
        }
        let subject = view.dsl().subject(&format!("{}/{name}", folder.name())).map_err(|e| match e.kind() {
            Kind::NotFound | Kind::Invalid | Kind::TooLong => not_found(),
            _ => e,
        })?;
        let is_there = match subject.kind() {
            DatasetKind::FileSystem => true,
            _ => is_shown(&view, &subject)?,
        };
        subject.dataset().filter(|_| is_there).map(|dataset| dataset.id.object()).ok_or_else(not_found)
    }

    fn readdir(
        &self,
        directory: ObjectId,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        let view = self.pool.view();
        let folder = self.subject(&view, DatasetId::of_object(directory))?;
        let kind = Some(FileKind::Directory);
        let above = |name: &[u8], cookie| DirEntry { ino: directory, kind, name: name.to_vec(), cookie };
        let mut entries = vec![above(b".", 1), above(b"..", 2)];
        for (cookie, child) in (4..).zip(self.children(&view, &folder)?) {
            let Some(dataset) = child.dataset() else { continue };
            let name = child.name().rsplit('/').next().unwrap_or_default().as_bytes().to_vec();
            let kind = if child.kind() == DatasetKind::FileSystem { FileKind::Directory } else { FileKind::File };
            entries.push(DirEntry { ino: dataset.id.object(), kind: Some(kind), name, cookie });
        }
        let names = entries.iter().map(|entry| entry.name.clone());
        self.listed.lock().entry(directory).or_default().extend(names.skip(2));
        for entry in entries.into_iter().filter(|entry| entry.cookie > cookie) {
            if each(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn readlink(&self, _: ObjectId) -> Result<Vec<u8>> {
        Err(Error::new(Kind::Invalid, "no symbolic link"))
    }

    fn open_file(&self, object: ObjectId) -> Result<VolumeFile> {
        VolumeHandle::open(self.pool.clone(), self.volumes.clone(), DatasetId::of_object(object)).map(VolumeFile)
    }

    fn opened(&self, object: ObjectId) {
        *self.users.lock().entry(object).or_default() += 1;
    }

    fn closed(&self, object: ObjectId) {
        let mut users = self.users.lock();
        if let Some(count) = users.get_mut(&object) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                users.remove(&object);
            }
        }
    }

    fn xattr_names(&self, _: ObjectId) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn xattr(&self, _: ObjectId, _: &[u8]) -> Result<Vec<u8>> {
        Err(Error::new(Kind::NoAttribute, "no such attribute"))
    }

    fn remove_xattr(&self, _: ObjectId, _: &[u8]) -> Result<()> {
        Err(Error::new(Kind::NoAttribute, "no such attribute"))
    }

    fn is_writable(&self) -> bool {
        self.pool.is_writable()
    }

    /// So that the kernel asks for each use of a name.
    fn has_aliases(&self) -> bool {
        true
    }

    /// The size of a disk does not change by `O_TRUNC`; its times are nobody's. Its rights are those of the process.
    fn set_attr(&self, object: ObjectId, set: &SetAttr) -> Result<Stat> {
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            return Err(Error::new(Kind::Permission, "the rights of volumes cannot be changed"));
        }
        self.stat(object)
    }

    fn touch_atime(&self, _: ObjectId, _: (i64, u32)) -> Result<()> {
        Ok(())
    }

    fn sync(&self, object: ObjectId, _: bool) -> Result<()> {
        let view = self.pool.view();
        match self.subject(&view, DatasetId::of_object(object))? {
            subject if subject.kind() == DatasetKind::Volume => self.volumes.open(&self.pool, subject.name())?.flush(),
            _ => Ok(()),
        }
    }
}

impl VolumeFile {
    /// The length of what is in the volume of `len` bytes from `offset` on.
    fn within(volume: &Zvol, offset: u64, len: u64) -> u64 {
        len.min(volume.size().saturating_sub(offset))
    }
}

impl TreeFile for VolumeFile {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        for piece in self.read_pieces(offset, buf.len(), false)? {
            buf[done..done + piece.len()].copy_from_slice(&piece);
            done += piece.len();
        }
        Ok(done)
    }

    fn read_pieces(&self, offset: u64, len: usize, direct: bool) -> Result<Vec<Piece>> {
        let volume = self.0.now()?;
        volume.read(offset.min(volume.size()), VolumeFile::within(&volume, offset, len as u64) as usize, direct)
    }

    fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.0.now()?.next_data(offset..u64::MAX)
    }

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        let volume = self.0.now()?;
        if offset < volume.size() { volume.next_hole(offset..u64::MAX).map(Some) } else { Ok(None) }
    }

    fn write(&self, offset: u64, data: Data<'_>) -> Result<usize> {
        let volume = self.0.now()?;
        let len = VolumeFile::within(&volume, offset, data.len() as u64) as usize;
        if len == 0 && !data.is_empty() {
            return Err(Error::new(Kind::NoSpace, "behind the end of the volume"));
        }
        volume.write(offset, data.part(0..len), false)?;
        Ok(len)
    }

    fn allocate(&self, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let volume = self.0.now()?;
        match how {
            Allocate::PunchHole | Allocate::ZeroRange { keep_size: true } => {
                let len = VolumeFile::within(&volume, offset, len);
                if len == 0 { Ok(()) } else { volume.zero(offset, len, false) }
            }
            Allocate::ZeroRange { keep_size: false } => volume.zero(offset, len, false),
            // what has room reserved has it, and what has none cannot have it
            Allocate::Reserve { .. } if offset.saturating_add(len) <= volume.size() => Ok(()),
            Allocate::Reserve { .. } => Err(Error::new(Kind::NoSpace, "behind the end of the volume")),
        }
    }
}

impl Source for VolumeSource {
    type Tree = VolumeTree;

    fn tree(&self) -> Arc<VolumeTree> {
        self.0.clone()
    }

    fn space(&self) -> Result<DatasetSpace> {
        let view = self.0.pool.view();
        let root = view.dsl().root_subject()?;
        let usable = view.usable_bytes()?;
        let number = |property| -> Result<u64> {
            Ok(match view.dsl().property(&root, property, usable)?.map(|sourced| sourced.value) {
                Some(PropertyValue::Number(number)) => number,
                _ => 0,
            })
        };
        Ok(DatasetSpace {
            referenced_bytes: number(Property::Used)?,
            available_bytes: number(Property::Available)?,
            record_bytes: SECTOR_BYTES as u32,
            name_bytes_max: 255,
            ..DatasetSpace::default()
        })
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(Vec::new())
    }

    fn open_snapshot(&self, _: &Snapshot) -> Result<Arc<VolumeTree>> {
        Err(not_found())
    }

    fn wait_resumed(&self) -> Result<()> {
        self.0.pool.wait_resumed()
    }

    fn sync(&self) -> Result<()> {
        self.0.pool.sync(false)
    }
}

/// Whether a volume, or a snapshot of one, is given out.
pub fn is_shown(view: &Pool, subject: &Subject) -> Result<bool> {
    if subject.head_kind() != DatasetKind::Volume || subject.is_inconsistent() || subject.dataset().is_none() {
        return Ok(false);
    }
    let head = match subject.name().split_once('@') {
        Some((head, _)) => view.dsl().subject(head)?,
        None => subject.clone(),
    };
    let is_snapshot = subject.kind() == DatasetKind::Snapshot;
    if is_snapshot && number(view, &head, Property::Snapdev)? == SNAPDEV_HIDDEN
        || view.dsl().key_object(head.dir())?.is_some()
    {
        return Ok(false);
    }
    Ok(number(view, &head, Property::Volmode)? != VOLMODE_NONE)
}

/// The snapshots of a volume that are given out. What cannot be read is not there. Errors: those of reading the volume's
/// properties.
pub fn shown_snapshots(view: &Pool, volume: &Subject) -> Result<Vec<Subject>> {
    if number(view, volume, Property::Snapdev)? == SNAPDEV_HIDDEN || !is_shown(view, volume)? {
        return Ok(Vec::new());
    }
    Ok(view.dsl().subjects_of_snapshots(volume)?.into_iter().flatten().collect())
}

/// Whether a volume that is given out is below a file system.
pub fn has_volumes(view: &Pool, folder: &Subject) -> Result<bool> {
    let mut waiting = vec![folder.clone()];
    let mut entered = HashSet::new();
    while let Some(subject) = waiting.pop() {
        if subject.kind() == DatasetKind::Volume && is_shown(view, &subject)? {
            return Ok(true);
        }
        // in a damaged tree, one might come by again and again
        if subject.kind() == DatasetKind::FileSystem && entered.insert(subject.dir().id) {
            waiting.extend(view.dsl().subjects_below(&subject)?.into_iter().flatten());
        }
    }
    Ok(false)
}

/// The number that a property of a dataset has. Errors: those of reading it.
pub fn number(view: &Pool, subject: &Subject, property: Property) -> Result<u64> {
    Ok(match view.dsl().property(subject, property, 0)?.map(|sourced| sourced.value) {
        Some(PropertyValue::Number(number)) => number,
        _ => property.default_number(),
    })
}

fn not_found() -> Error {
    Error::new(Kind::NotFound, "no such file or directory")
}
