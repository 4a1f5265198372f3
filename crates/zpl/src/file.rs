//! Contents of regular files.

use std::sync::Arc;

use base::{Error, Kind, Piece, Result, UserOp};
use dmu::{Object, RequestTimer};
use format::ids::ObjectId;
use format::sa::Attr;

use crate::{Counters, FileKind, Zpl};

/// An open file: its size and where its blocks are. Reads may run in parallel.
///
/// If the file system can be changed, it shows every change at once.
pub struct File {
    object: Object,
    size: u64,
    counters: Arc<Counters>,
    /// The file system, if it can be changed.
    zpl: Option<Zpl>,
}

impl Zpl {
    /// Opens a regular file. Errors: `IsDirectory`, `Invalid` for what is neither, those of reading.
    pub fn open_file(&self, ino: ObjectId) -> Result<File> {
        self.placed(ino, self.open_node(ino))
    }

    fn open_node(&self, ino: ObjectId) -> Result<File> {
        let node = self.node(ino)?;
        let attrs = self.attributes(&node)?;
        match FileKind::of_mode(attrs.u64(Attr::Mode)?) {
            FileKind::File => {}
            FileKind::Directory => return Err(Error::new(Kind::IsDirectory, "is a directory")),
            _ => return Err(Error::new(Kind::Invalid, "not a regular file")),
        }
        let size = attrs.u64(Attr::Size)?;
        drop(attrs);
        let zpl = self.is_writable().then(|| self.clone());
        Ok(File { object: node.into_object(), size, counters: self.counters().clone(), zpl })
    }
}

impl File {
    /// Bytes in the file; 0 if it has been freed.
    pub fn size(&self) -> u64 {
        match &self.zpl {
            Some(zpl) => self.object.fresh().and_then(|object| zpl.size_of(&object)).unwrap_or(0),
            None => self.size,
        }
    }

    /// The object that holds the contents.
    pub fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn ino(&self) -> ObjectId {
        self.object.id()
    }

    /// The file system, if it can be changed.
    pub(crate) fn zpl(&self) -> Option<&Zpl> {
        self.zpl.as_ref()
    }

    /// Times a request, if somebody asks for that.
    pub(crate) fn timed(&self, op: UserOp) -> RequestTimer<'_> {
        self.object.objset().time_request(op)
    }

    /// Tells of a request, if somebody wants to know.
    pub(crate) fn note(&self, op: UserOp, offset: u64, len: usize) {
        self.object.objset().note_request(op, self.object.id(), (offset, len as u64));
    }

    /// Fills `buf` from byte `offset` on and returns how many bytes that were: fewer than its length only
    /// at the end of the file.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _timed = self.timed(UserOp::Read);
        self.with(|object, size| {
            let len = buf.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
            self.note(UserOp::Read, offset, len);
            object.read(offset, &mut buf[..len])?;
            self.counters.read(len);
            Ok(len)
        })
    }

    /// Up to `len` bytes from byte `offset` on, in the blocks that hold them: fewer only at the end of the file.
    /// With `direct` past the cache: see [`Object::direct`].
    pub fn read_pieces(&self, offset: u64, len: usize, direct: bool) -> Result<Vec<Piece>> {
        let _timed = self.timed(UserOp::Read);
        self.with(|object, size| {
            let len = len.min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
            self.note(UserOp::Read, offset, len);
            let pieces = match direct {
                true => object.direct().read_pieces(offset, len)?,
                false => object.read_pieces(offset, len)?,
            };
            self.counters.read(len);
            Ok(pieces)
        })
    }

    /// The first byte at or after `offset` that is data; `None` if there is only a hole up to the end, or
    /// `offset` is behind it.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.with(|object, size| {
            if offset >= size {
                return Ok(None);
            }
            object.next_allocated(offset..size)
        })
    }

    /// The first byte at or after `offset` that is in a hole, the end of the file being one; `None` if
    /// `offset` is at the end or behind it.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.with(|object, size| {
            if offset >= size {
                return Ok(None);
            }
            object.next_hole(offset..size).map(Some)
        })
    }

    /// Gives `f` the object and its size as they are now, and keeps both so until it returns.
    fn with<T>(&self, f: impl FnOnce(&Object, u64) -> Result<T>) -> Result<T> {
        let _held = self.zpl.as_ref().map(|zpl| zpl.shared(self.ino()));
        let (object, size) = self.now()?;
        f(&object, size)
    }

    /// The object and its size as they are at this moment.
    pub(crate) fn now(&self) -> Result<(Object, u64)> {
        let Some(zpl) = &self.zpl else { return Ok((self.object.clone(), self.size)) };
        let object = self.object.fresh()?;
        let size = zpl.size_of(&object)?;
        Ok((object, size))
    }
}
