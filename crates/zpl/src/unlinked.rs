//! Files without a name: they wait in a queue until nobody uses them any more.
//!
//! ```text
//!   last name goes ──▶ in the queue, 0 links ──▶ reclaim: freed, with its extended attributes
//!                                  └─ crash ──▶ clean_unlinked, when the file system is opened again
//! ```

use base::{Kind, Result};
use dmu::zap::Zap;
use format::sa::Attr;

use crate::dir::dirent;
use crate::names::NAME_BYTES;
use crate::op::Op;
use crate::{FileKind, Zpl};

impl Zpl {
    /// Frees an object that [`Zpl::unlink`], [`Zpl::rmdir`], [`Zpl::rename`] or [`Zpl::create_unnamed`]
    /// returned, as nobody uses it any more. One that has got a name since stays.
    pub fn reclaim(&self, ino: u64) -> Result<()> {
        self.placed(ino, self.free_orphan(ino))
    }

    /// Frees all objects without a name: for a file system that has just been opened. How many there were;
    /// entries that lead nowhere, as other systems may have left them, are removed.
    pub fn clean_unlinked(&self) -> Result<u64> {
        let orphans = self.live()?.orphans().all()?;
        for &ino in &orphans {
            match self.free_orphan(ino) {
                Err(error) if error.kind() == Kind::NotFound => {
                    let op = self.begin(NAME_BYTES, true)?;
                    op.live().orphans().remove(op.tx(), ino)?;
                }
                freed => self.placed(ino, freed)?,
            }
        }
        Ok(orphans.len() as u64)
    }

    fn free_orphan(&self, ino: u64) -> Result<()> {
        let op = self.begin(NAME_BYTES, true)?;
        let _held = op.alone(&[ino]);
        let node = self.node(ino)?;
        let attrs = self.attributes(&node)?;
        let (links, flags) = (attrs.u64(Attr::Links)?, attrs.u64(Attr::Flags)?);
        // a directory of attributes has links as long as it is there
        let is_xattr_dir =
            flags & format::znode::FLAG_XATTR != 0 && FileKind::of_mode(attrs.u64(Attr::Mode)?) == FileKind::Directory;
        let xattrs = if is_xattr_dir { Some(ino) } else { attrs.opt_u64(Attr::Xattr)?.filter(|&dir| dir != 0) };
        drop(attrs);
        if links > 0 && !is_xattr_dir {
            return op.live().orphans().remove(op.tx(), ino);
        }
        if let Some(dir) = xattrs {
            op.free_xattr_dir(dir, dir != ino)?;
        }
        op.live().orphans().remove(op.tx(), ino)?;
        op.live().orphans().remove_unnamed(ino);
        self.objset().free_object(op.tx(), ino)
    }
}

impl Op<'_> {
    /// Frees the files in a directory of extended attributes, and the directory itself if `whole`. What
    /// is not there any more need not be freed.
    fn free_xattr_dir(&self, dir: u64, whole: bool) -> Result<()> {
        let object = match self.zpl().objset().object(dir) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            object => object?,
        };
        for entry in Zap::open(object)?.entries()? {
            let file = dirent(&entry.value)?.object;
            match self.zpl().objset().free_object(self.tx(), file) {
                Err(error) if error.kind() != Kind::NotFound => return Err(error),
                _ => {}
            }
        }
        if whole { self.zpl().objset().free_object(self.tx(), dir) } else { Ok(()) }
    }
}
