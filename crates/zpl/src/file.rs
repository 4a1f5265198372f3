//! Contents of regular files.

use base::{Error, Kind, Result};
use dmu::Object;
use format::sa::Attr;

use crate::{FileKind, Zpl};

/// An open file: its size and where its blocks are. Reads may run in parallel.
pub struct File {
    object: Object,
    size: u64,
}

impl Zpl {
    /// Opens a regular file. Errors: `IsDirectory`, `Invalid` for what is neither, those of reading.
    pub fn open_file(&self, ino: u64) -> Result<File> {
        self.placed(ino, self.open_node(ino))
    }

    fn open_node(&self, ino: u64) -> Result<File> {
        let node = self.node(ino)?;
        let attrs = self.attributes(&node)?;
        match FileKind::of_mode(attrs.u64(Attr::Mode)?) {
            FileKind::File => {}
            FileKind::Directory => return Err(Error::new(Kind::IsDirectory, "is a directory")),
            _ => return Err(Error::new(Kind::Invalid, "not a regular file")),
        }
        let size = attrs.u64(Attr::Size)?;
        drop(attrs);
        Ok(File { object: node.into_object(), size })
    }
}

impl File {
    /// Bytes in the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The object that holds the contents.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Fills `buf` from byte `offset` on and returns how many bytes that were: fewer than its length only
    /// at the end of the file.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = buf.len().min(usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX));
        self.object.read(offset, &mut buf[..len])?;
        Ok(len)
    }

    /// The first byte at or after `offset` that is data; `None` if there is only a hole up to the end, or
    /// `offset` is behind it.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        if offset >= self.size {
            return Ok(None);
        }
        Ok(self.object.next_allocated(offset)?.filter(|&at| at < self.size))
    }

    /// The first byte at or after `offset` that is in a hole, the end of the file being one; `None` if
    /// `offset` is at the end or behind it.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        if offset >= self.size {
            return Ok(None);
        }
        Ok(Some(self.object.next_hole(offset)?.min(self.size)))
    }
}
