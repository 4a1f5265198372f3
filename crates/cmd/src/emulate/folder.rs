//! The folder with emulated devices, as a tree that can be mounted.

use std::ops::ControlFlow;
use std::sync::Arc;

use base::{AlignedBuf, Data, Error, Kind, Piece, Result};
use device::emulated::{EmulatedDevice, EmulatedKind, SAYS_ATTRIBUTE};
use device::{Device, DeviceOp};
use format::ids::ObjectId;
use fuse::{Allocate, DatasetSpace, FileTree, SetAttr, Snapshot, Source, TreeFile};
use zpl::{DirEntry, FileKind, Stat};

const ROOT: ObjectId = ObjectId::new(1);
/// The object of the first file; others follow.
const FIRST: u64 = 16;
/// Cookies below that are those of `.`, `..`, and nobody's.
const FIRST_COOKIE: u64 = 4;

/// One file of the folder.
pub(super) struct EmulatedFile {
    pub name: String,
    pub kind: EmulatedKind,
    pub device: Arc<EmulatedDevice>,
}

/// See the top of the file.
pub(super) struct EmulatedFolder {
    files: Arc<Vec<EmulatedFile>>,
    owner: (u32, u32),
}

impl EmulatedFolder {
    /// Errors, for the user: a name comes twice.
    pub(super) fn new(files: Vec<EmulatedFile>) -> std::result::Result<EmulatedFolder, String> {
        let mut names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two files have the name '{}'", twice[0]));
        }
        let owner = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        Ok(EmulatedFolder { files: Arc::new(files), owner })
    }

    fn file(&self, object: ObjectId) -> Result<&EmulatedFile> {
        let at = object.get().checked_sub(FIRST).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.files.get(at)).ok_or_else(|| Error::new(Kind::NotFound, "no such object"))
    }
}

fn object_of(at: usize) -> ObjectId {
    ObjectId::new(FIRST + at as u64)
}

impl Source for EmulatedFolder {
    type Tree = EmulatedFolder;

    fn tree(&self) -> Arc<EmulatedFolder> {
        Arc::new(EmulatedFolder { files: self.files.clone(), owner: self.owner })
    }

    fn space(&self) -> Result<DatasetSpace> {
        let bytes = self.files.iter().fold(0u64, |sum, file| sum.saturating_add(file.device.size()));
        Ok(DatasetSpace {
            referenced_bytes: bytes,
            objects_used: self.files.len() as u64,
            record_bytes: 4096,
            name_bytes_max: 255,
            ..DatasetSpace::default()
        })
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(Vec::new())
    }

    fn open_snapshot(&self, _snapshot: &Snapshot) -> Result<Arc<EmulatedFolder>> {
        Err(Error::new(Kind::NotFound, "no snapshots"))
    }
}

impl FileTree for EmulatedFolder {
    type File = DeviceFile;

    fn root(&self) -> ObjectId {
        ROOT
    }

    fn stat(&self, object: ObjectId) -> Result<Stat> {
        let (kind, mode, size) = match object {
            ROOT => (FileKind::Directory, 0o555, self.files.len() as u64 + 2),
            _ => (FileKind::File, 0o600, self.file(object)?.device.size()),
        };
        Ok(Stat { parent: ROOT, ..Stat::made(object, kind, mode, self.owner, size) })
    }

    fn lookup(&self, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        if directory != ROOT {
            return Err(Error::new(Kind::NotDirectory, "not a directory"));
        }
        let at = self.files.iter().position(|file| file.name.as_bytes() == name);
        at.map(object_of).ok_or_else(|| Error::new(Kind::NotFound, "no such file"))
    }

    fn readdir(
        &self,
        directory: ObjectId,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        if directory != ROOT {
            return Err(Error::new(Kind::NotDirectory, "not a directory"));
        }
        let dots = [(1, "."), (2, "..")].map(|(cookie, name)| (cookie, name.as_bytes(), ROOT, FileKind::Directory));
        let files = self
            .files
            .iter()
            .enumerate()
            .map(|(at, file)| (FIRST_COOKIE + at as u64, file.name.as_bytes(), object_of(at), FileKind::File));
        for (at, name, ino, kind) in dots.into_iter().chain(files).filter(|(at, ..)| *at > cookie) {
            if each(DirEntry { ino, kind: Some(kind), name: name.to_vec(), cookie: at }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn readlink(&self, _object: ObjectId) -> Result<Vec<u8>> {
        Err(Error::new(Kind::Invalid, "not a symbolic link"))
    }

    fn open_file(&self, object: ObjectId) -> Result<DeviceFile> {
        Ok(DeviceFile(self.file(object)?.device.clone()))
    }

    fn xattr_names(&self, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        let has_any = object != ROOT && self.file(object).is_ok();
        Ok(if has_any { vec![SAYS_ATTRIBUTE.into()] } else { Vec::new() })
    }

    fn xattr(&self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        match self.file(object) {
            Ok(file) if name == SAYS_ATTRIBUTE.as_bytes() => Ok(file.kind.says().to_string().into_bytes()),
            _ => Err(Error::new(Kind::NoAttribute, "no such attribute")),
        }
    }

    fn is_writable(&self) -> bool {
        true
    }

    /// A device keeps its attributes, and its size when it is opened to be truncated.
    fn set_attr(&self, object: ObjectId, _set: &SetAttr) -> Result<Stat> {
        self.stat(object)
    }

    fn sync(&self, object: ObjectId, _data_only: bool) -> Result<()> {
        if object == ROOT { Ok(()) } else { self.file(object)?.device.flush() }
    }
}

/// An open device.
pub(super) struct DeviceFile(Arc<EmulatedDevice>);

impl DeviceFile {
    /// As many of `len` bytes from an offset on as there are.
    fn within(&self, offset: u64, len: usize) -> usize {
        let left = self.0.size().saturating_sub(offset);
        usize::try_from(left).map_or(len, |left| left.min(len))
    }
}

impl TreeFile for DeviceFile {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = self.within(offset, buf.len());
        if len > 0 {
            self.0.read_at(offset, &mut buf[..len])?;
        }
        Ok(len)
    }

    fn read_pieces(&self, offset: u64, len: usize, _direct: bool) -> Result<Vec<Piece>> {
        let mut buf = AlignedBuf::for_overwrite(self.within(offset, len));
        let read = self.read(offset, &mut buf)?;
        Ok(vec![Piece::of(buf.into(), 0..read)])
    }

    fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok((offset < self.0.size()).then_some(offset))
    }

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        let size = self.0.size();
        Ok((offset < size).then_some(size))
    }

    fn write(&self, offset: u64, data: Data<'_>) -> Result<usize> {
        let len = self.within(offset, data.len());
        if len == 0 {
            return Err(Error::new(Kind::NoSpace, "the device ends here"));
        }
        self.0.timed(DeviceOp::Write, offset, len, |below| {
            let mut at = offset;
            for slice in data.part(0..len).slices() {
                below.write_at(at, slice)?;
                at += slice.len() as u64;
            }
            Ok(len)
        })
    }

    fn allocate(&self, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let size = self.0.size();
        if how != Allocate::PunchHole {
            return Err(Error::new(Kind::Unsupported, "a device has all of its blocks"));
        }
        match size.saturating_sub(offset).min(len) {
            0 => Ok(()),
            len => self.0.below().discard(offset, len, false),
        }
    }
}
