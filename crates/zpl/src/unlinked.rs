//! Files without a name: they wait in a queue until nobody uses them any more.
//!
//! ```text
//!   last name goes ──▶ in the queue, 0 links ──▶ reclaim: freed, with its extended attributes
//!                                  │                └─ large: in the background, a portion at a time (`drain`)
//!                                  └─ crash ──▶ clean_unlinked, when the file system is opened again
//! ```

use base::{Kind, Result};
use dmu::zap::{Editor, Zap, ZapKey};
use format::ids::ObjectId;
use format::sa::Attr;

use crate::dir::dirent;
use crate::names::NAME_BYTES;
use crate::op::Op;
use crate::zpl::WeakZpl;
use crate::{FileKind, Zpl};

/// Files of extended attributes that are freed in one operation.
const XATTRS_AT_ONCE: usize = 256;

/// What is to be known of an object without a name.
struct Orphan {
    /// It has got one since.
    has_name: bool,
    /// Its directory of extended attributes, which may be itself.
    xattrs: Option<ObjectId>,
    /// The object of a long ACL.
    acl: Option<ObjectId>,
}

impl Zpl {
    /// Frees an object that [`Zpl::unlink`], [`Zpl::rmdir`], [`Zpl::rename`] or [`Zpl::create_unnamed`]
    /// returned, as nobody uses it any more; a large one in the background. One that has got a name since stays.
    pub fn reclaim(&self, ino: ObjectId) -> Result<()> {
        let live = self.live()?;
        let is_small = self.placed(ino, self.admit_small(ino))?;
        // what the log tells next may take the object's number
        let may_wait = !is_small && !live.is_replaying() && !self.placed(ino, self.orphan(ino))?.has_name;
        let start = || {
            let env = self.objset().cache().zio().env();
            self.downgrade().is_some_and(|weak| env.spawn("z_unlinked_drain", move || drain(&weak)))
        };
        if may_wait && live.drain().take(ino, start) {
            return Ok(());
        }
        self.placed(ino, self.free_orphan(ino, is_small))
    }

    /// All objects without a name.
    /// Errors: `ReadOnly`; those of reading.
    pub fn unlinked(&self) -> Result<Vec<ObjectId>> {
        self.live()?.orphans().all()
    }

    /// Frees all objects without a name, large ones in the background: for a file system that has just been opened. How
    /// many there were; entries that lead nowhere, as other systems may have left them, are removed. What is damaged so
    /// that it cannot be freed stays there, and is told.
    pub fn clean_unlinked(&self) -> Result<u64> {
        let orphans = self.unlinked()?;
        for &ino in &orphans {
            match self.reclaim(ino) {
                Err(error) if error.kind() == Kind::NotFound => {
                    let op = self.begin(NAME_BYTES, true)?;
                    op.live().orphans().remove(op.tx(), ino)?;
                }
                Err(error) if matches!(error.kind(), Kind::Checksum | Kind::Corrupt | Kind::Io) => {
                    report(self, ino, Err(error));
                }
                freed => freed?,
            }
        }
        Ok(orphans.len() as u64)
    }

    /// Frees an object, unless it has a name. What one operation may not free goes in others before; what is small has
    /// been admitted.
    fn free_orphan(&self, ino: ObjectId, is_small: bool) -> Result<()> {
        let mut is_emptied = false;
        loop {
            let op = self.begin(NAME_BYTES, true)?;
            let held = op.alone(&[ino]);
            let orphan = self.orphan(ino)?;
            if orphan.has_name {
                return op.live().orphans().remove(op.tx(), ino);
            }
            if is_emptied || is_small && orphan.xattrs.is_none() {
                return self.free_emptied(&op, ino, orphan);
            }
            drop(held);
            drop(op);
            orphan.xattrs.map_or(Ok(()), |dir| self.empty_xattr_dir(dir))?;
            if !is_small {
                self.free_most(ino, 0..u64::MAX, &|_, _| Ok(()))?;
            }
            is_emptied = true;
        }
    }

    /// Frees an object that is small, and has nothing in its directory of extended attributes.
    fn free_emptied(&self, op: &Op<'_>, ino: ObjectId, orphan: Orphan) -> Result<()> {
        let Orphan { xattrs, acl, .. } = orphan;
        // the directory's number is another's once it is freed: not while the file may stay
        self.objset().object(ino)?.check_freeable()?;
        if let Some(dir) = xattrs.filter(|&dir| dir != ino) {
            match self.objset().free_object(op.tx(), dir) {
                Err(error) if error.kind() != Kind::NotFound => return Err(error),
                _ => {}
            }
        }
        op.live().orphans().remove(op.tx(), ino)?;
        op.live().orphans().remove_unnamed(ino);
        acl.map_or(Ok(()), |acl| op.free_acl(acl))?;
        self.objset().free_object(op.tx(), ino)
    }

    fn orphan(&self, ino: ObjectId) -> Result<Orphan> {
        let node = self.node(ino)?;
        let attrs = self.attributes(&node)?;
        let (links, flags) = (attrs.u64(Attr::Links)?, attrs.u64(Attr::Flags)?);
        // a directory of attributes has links as long as it is there
        let is_xattr_dir =
            flags & format::znode::FLAG_XATTR != 0 && FileKind::of_mode(attrs.u64(Attr::Mode)?) == FileKind::Directory;
        let xattrs = if is_xattr_dir { Some(ino) } else { attrs.xattr_dir()? };
        let acl = attrs.fixed().map(|znode| znode.acl.object).filter(|&id| id.is_some());
        Ok(Orphan { has_name: links > 0 && !is_xattr_dir, xattrs, acl })
    }

    /// Frees the files in a directory of extended attributes, some at a time, and takes them out of it: their numbers
    /// may be given to others before it is gone. What is not there any more need not be freed.
    fn empty_xattr_dir(&self, dir: ObjectId) -> Result<()> {
        let object = match self.objset().object(dir) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            object => object?,
        };
        for some in Zap::open(object.clone())?.entries()?.chunks(XATTRS_AT_ONCE) {
            for entry in some {
                self.free_most(dirent(&entry.value)?.object, 0..u64::MAX, &|_, _| Ok(()))?;
            }
            let op = self.begin(NAME_BYTES, true)?;
            let _held = op.alone(&[dir]);
            let store = object.changing(op.tx());
            for entry in some {
                match self.objset().free_object(op.tx(), dirent(&entry.value)?.object) {
                    Err(error) if error.kind() != Kind::NotFound => return Err(error),
                    _ => {}
                }
                if let ZapKey::Bytes(name) = &entry.name {
                    Editor::new(&store).remove(name)?;
                }
            }
        }
        self.free_most(dir, 0..u64::MAX, &|_, _| Ok(()))
    }
}

/// Frees large files, until none waits or the file system is closed.
fn drain(weak: &WeakZpl) {
    let next = || weak.upgrade()?.live().ok()?.drain().next();
    while let Some(ino) = next() {
        let mut end = u64::MAX;
        loop {
            // not held for longer than a step: the file system may be closed between two
            let Some(zpl) = weak.upgrade() else { return };
            match zpl.free_some(ino, 0..end, &|_, _| Ok(())) {
                Ok(Some(rest)) => end = rest,
                Ok(None) => match zpl.free_orphan(ino, true) {
                    Err(error) if error.kind() == Kind::Suspended && is_resumed(&zpl) => {}
                    done => {
                        report(&zpl, ino, done);
                        break;
                    }
                },
                Err(error) if error.kind() == Kind::Suspended && is_resumed(&zpl) => {}
                Err(error) => {
                    report(&zpl, ino, Err(error));
                    break;
                }
            }
        }
    }
}

/// Waits until a suspended pool goes on; false if it never does.
fn is_resumed(zpl: &Zpl) -> bool {
    zpl.live().is_ok_and(|live| live.txgs().wait_resumed().is_ok())
}

fn report(zpl: &Zpl, ino: ObjectId, done: Result<()>) {
    if let Err(error) = zpl.placed(ino, done) {
        tracing::warn!(%ino, "a file without a name waits until its file system is mounted again: {error}");
    }
}
