//! Files without a name: they wait in a queue until nobody uses them any more.
//!
//! ```text
//!   last name goes ──▶ in the queue, 0 links ──▶ reclaim: freed, with its extended attributes
//!                                  └─ crash ──▶ clean_unlinked, when the file system is opened again
//! ```
//!
//! The queue is a table: the object's number in hexadecimal digits, and the number itself.

use base::{Kind, Result};
use dmu::zap::{Editor, Value, Zap};
use format::sa::Attr;

use crate::dir::dirent;
use crate::live::Op;
use crate::names::NAME_BYTES;
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
        self.live()?;
        let queue = Zap::open(self.objset.object(self.master.delete_queue)?)?;
        let orphans: Vec<u64> = queue.entries()?.iter().filter_map(|entry| entry.value.first_u64()).collect();
        for &ino in &orphans {
            match self.free_orphan(ino) {
                Err(error) if error.kind() == Kind::NotFound => {
                    let op = self.begin(NAME_BYTES, true)?;
                    op.queue_remove(ino)?;
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
            return op.queue_remove(ino);
        }
        if let Some(dir) = xattrs {
            op.free_xattr_dir(dir, dir != ino)?;
        }
        op.queue_remove(ino)?;
        op.live.unnamed().remove(&ino);
        self.objset.free_object(&op.tx, ino)
    }
}

impl Op<'_> {
    /// Puts an object into the queue.
    pub(crate) fn queue_add(&self, ino: u64) -> Result<()> {
        let _held = self.live.queue();
        let queue = self.zpl.objset.object(self.zpl.master.delete_queue)?;
        Editor::new(&queue.changing(&self.tx)).set(key(ino).as_bytes(), &Value::one(ino))?;
        self.zpl.counters.queued();
        Ok(())
    }

    /// Takes an object out of the queue, if it is in it.
    pub(crate) fn queue_remove(&self, ino: u64) -> Result<()> {
        let _held = self.live.queue();
        let queue = self.zpl.objset.object(self.zpl.master.delete_queue)?;
        match Editor::new(&queue.changing(&self.tx)).remove(key(ino).as_bytes()) {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            removed => removed.map(|_| self.zpl.counters.unqueued()),
        }
    }

    /// Frees the files in a directory of extended attributes, and the directory itself if `whole`. What
    /// is not there any more need not be freed.
    fn free_xattr_dir(&self, dir: u64, whole: bool) -> Result<()> {
        let object = match self.zpl.objset.object(dir) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            object => object?,
        };
        for entry in Zap::open(object)?.entries()? {
            let file = dirent(&entry.value)?.object;
            match self.zpl.objset.free_object(&self.tx, file) {
                Err(error) if error.kind() != Kind::NotFound => return Err(error),
                _ => {}
            }
        }
        if whole { self.zpl.objset.free_object(&self.tx, dir) } else { Ok(()) }
    }
}

fn key(ino: u64) -> String {
    format!("{ino:x}")
}
