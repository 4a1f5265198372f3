//! Extended attributes, under the names that OpenZFS on Linux shows (`visible`).
//!
//! They are in one of two places, or some in each: packed into a system attribute, or as files in a
//! directory of the file's own that no path leads to.

use std::ops::ControlFlow;

use base::{Error, Kind, Result, ResultExt};
use dmu::zap::Zap;
use format::ids::ObjectId;
use format::sa::Attr;
use format::xattr;

use crate::kind::FileKind;
use crate::nodes::{Attributes, FileNode};
use crate::zpl::Zpl;

/// Most bytes of a value that are read; Linux hands out no more.
pub(crate) const VALUE_SIZE_MAX: u64 = 64 << 10;
impl Zpl {
    /// The names of all extended attributes, packed ones first.
    pub fn xattr_names(&self, ino: ObjectId) -> Result<Vec<Vec<u8>>> {
        self.placed(ino, self.list_xattrs(ino))
    }

    fn list_xattrs(&self, ino: ObjectId) -> Result<Vec<Vec<u8>>> {
        let _held = self.shared(ino);
        let node = self.node(ino)?;
        let attrs = self.attributes(&node)?;
        let mut names: Vec<Vec<u8>> = Vec::new();
        if let Some(packed) = attrs.bytes(Attr::Dxattr)? {
            let pairs = xattr::unpack(&packed).at_block(node.object().bookmark(0, 0))?;
            names.extend(pairs.iter().filter_map(|(name, _)| self.visible().shown(name)));
        }
        if let Some(dir) = self.xattr_node(&attrs)? {
            Zap::open(dir.into_object())?.for_each_from(0, &mut |entry| {
                names.extend(self.visible().shown(entry.name.bytes()));
                ControlFlow::Continue(())
            })?;
        }
        Ok(names)
    }

    /// The value of an extended attribute. Errors: `NoAttribute`, `TooBig` if it is a file of more than
    /// 64 KiB, those of reading.
    pub fn xattr(&self, ino: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        self.placed(ino, self.find_xattr(ino, name))
    }

    fn find_xattr(&self, ino: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        let _held = self.shared(ino);
        let node = self.node(ino)?;
        let attrs = self.attributes(&node)?;
        for stored in self.visible().stored(name) {
            if let Some(value) = self.xattr_stored(&node, &attrs, stored)? {
                return Ok(value);
            }
        }
        Err(Error::new(Kind::NoAttribute, "no such extended attribute"))
    }

    /// Object number of the directory that holds a file's attributes, if it has one: through it,
    /// attributes of any size can be listed and opened.
    pub fn xattr_dir(&self, ino: ObjectId) -> Result<Option<ObjectId>> {
        let node = self.node(ino)?;
        self.attributes(&node)?.xattr_dir()
    }

    pub(crate) fn xattr_node(&self, attrs: &Attributes<'_>) -> Result<Option<FileNode>> {
        attrs.xattr_dir()?.map(|dir| self.directory(dir)).transpose()
    }

    /// The value that is stored under a name. An attribute is locked with its file, and so are the hidden
    /// directory and what is in it.
    pub(crate) fn xattr_stored(&self, node: &FileNode, attrs: &Attributes<'_>, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(packed) = attrs.bytes(Attr::Dxattr)? {
            let pairs = xattr::unpack(&packed).at_block(node.object().bookmark(0, 0))?;
            if let Some((_, value)) = pairs.into_iter().find(|(stored, _)| **stored == *name) {
                return Ok(Some(value.into_owned()));
            }
        }
        let Some(dir) = self.xattr_node(attrs)? else { return Ok(None) };
        let Some(file) = self.entry(dir, name)? else { return Ok(None) };
        let file = self.node(file)?;
        let (kind, size) = (self.kind_of(&file)?, self.attributes(&file)?.u64(Attr::Size)?);
        if kind != FileKind::File {
            return Err(Error::new(Kind::Invalid, "an extended attribute that is no file"));
        }
        if size > VALUE_SIZE_MAX {
            return Err(Error::new(Kind::TooBig, format!("extended attribute of {size} bytes")));
        }
        file.object().read_whole(size, VALUE_SIZE_MAX).map(Some)
    }
}
