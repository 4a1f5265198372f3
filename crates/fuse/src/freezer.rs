//! Replacing the root under a mount: programs see the old one, then nothing, then the new one, and never one as the other.
//!
//! ```text
//!   freeze   what the kernel is told from now on it is not to keep
//!            what it has of contents and attributes it writes back and drops, names it will ask for again
//!            the gate is closed: no request is done
//!     ...    the root is replaced
//!   thaw     nodes whose file is not in the new root are stale: ESTALE
//!            the gate is opened; what the kernel was told meanwhile it drops, and names that it took for absent
//!            names of files that are not in the new root it drops whole: a program may have been given an answer before
//!            all this, and only now tells the kernel how long that may be kept. Those of directories only expire, as
//!            what is mounted there is to stay
//! ```
//!
//! The kernel does not ask for the size of a file before it appends to it, or reads it by way of memory that is mapped. So
//! it is told of files that have become longer, and what it appends goes to the true end (`lookup_counts`). With its write-back
//! cache it asks for no file's size and time of last change at all: those that are others in the new root it takes over from a
//! helper that goes there ([`visit`](crate::visit)).
//!
//! The kernel is told to drop something only while the gate is open: it may hold what it needs for that until another
//! request is answered. So between opening the gate and the end of `thaw` it may still show what it was told of the old
//! root while that was frozen; no request is answered so any more.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Error, Kind, Mutex, NameFact, Result};
use export::Gate;
use zpl::{DirEntry, FileKind, ObjectId};

use crate::accesses::Accesses;
use crate::channel::{expiry, invalidation};
use crate::entries::Entries;
use crate::legacy::LostObjects;
use crate::negotiated::Negotiated;
use crate::node::{OpenTree, ROOT, SNAPSHOTS};
use crate::notifier::Notifier;
use crate::opened::OpenFiles;
use crate::tree::{FileTree, Source, TreeFile};
use crate::trees::Trees;
use crate::write_back::WriteBack;

/// What a mount asks of its session, whatever trees that has.
pub(crate) trait Freeze: Send + Sync {
    /// As of [`export::Export::freeze`].
    fn freeze(&self) -> Result<()>;
    /// As of [`export::Export::thaw`].
    fn thaw(&self) -> Result<()>;
    /// Snapshots may have been made, renamed or destroyed. Errors: those of reading which there are.
    fn snapshots_changed(&self) -> Result<()>;
    /// What was changed before is on disk: how much room it takes is known.
    fn settled(&self);
    /// As of [`Mount::send_pages`](crate::Mount::send_pages).
    fn send_pages(&self);
    /// As of [`export::Export::calm`].
    fn calm(&self);
    /// As of [`export::Export::flush`].
    fn flush(&self);
    /// No request is done from now on; those that are being done are answered first.
    fn hold(&self);
    /// Requests are done again.
    fn go_on(&self);
    /// There are ACLs now, or none any more.
    fn acls_changed(&self);
    /// As of [`Mount::change_file`](crate::Mount::change_file).
    fn change_file(&self, inode: u64, change: &mut dyn FnMut(ObjectId)) -> Result<()>;
    /// Object number of the live tree's root.
    fn root(&self) -> ObjectId;
}

/// A name of a file that the kernel may have: in the directory of a node, and for which object.
pub(crate) struct KnownName {
    directory: ObjectId,
    name: Vec<u8>,
    object: ObjectId,
}

/// Sends messages to the kernel.
pub(crate) type TellKernel<'a> = &'a mut dyn FnMut(&[Vec<u8>]) -> Result<()>;

/// Messages that are kept until they are sent together, but for those of one directory.
const MESSAGES_KEPT_MAX: usize = 1000;

/// Freezes one mount.
pub(crate) struct Freezer<S: Source> {
    pub(crate) trees: Arc<Trees<S>>,
    pub(crate) accesses: Arc<Accesses<S>>,
    pub(crate) entries: Arc<Entries<S>>,
    pub(crate) files: Arc<OpenFiles<S>>,
    pub(crate) negotiated: Arc<Negotiated>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) write_back: Arc<WriteBack>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) frozen: Mutex<Option<OldRoot>>,
}

/// While it is frozen: what the kernel may have of the old root.
pub(crate) struct OldRoot {
    names: Vec<KnownName>,
    /// Sizes of files, and when they were last changed.
    files: HashMap<ObjectId, KnownState>,
}

/// The size of a file, and when it was last changed.
type KnownState = (u64, (i64, u32));

impl<S: Source> Freeze for Freezer<S> {
    fn freeze(&self) -> Result<()> {
        if !self.trees.is_writable() {
            return Err(Error::new(Kind::Unsupported, "it is mounted so that it can only be read: unmount it first"));
        }
        if self.negotiated.keeps_written() {
            self.check_visits()?;
        }
        self.adopt_known()?;
        let mut frozen = self.frozen.lock();
        self.trees.set_freezing(true);
        // when it was closed once, all answers that let the kernel keep something have been given
        self.gate.close();
        self.gate.open();
        let mut names = Vec::new();
        self.have_kernel_forget(|directory, DirEntry { ino: object, kind, name, .. }| {
            let is_file = kind.is_some_and(|kind| kind != FileKind::Directory);
            if is_file && self.trees.known().contains(object) {
                names.push(KnownName { directory, name, object });
            }
        });
        self.gate.close();
        self.accesses.write_all();
        *frozen = Some(OldRoot { names, files: self.file_states() });
        Ok(())
    }

    fn thaw(&self) -> Result<()> {
        let mut frozen = self.frozen.lock();
        let Some(OldRoot { names, files }) = frozen.take() else { return Ok(()) };
        let replaced = self.replace(&files);
        self.trees.set_freezing(false);
        self.gate.open();
        // attributes and contents were told meanwhile also if the root is the same, but these are right
        if !matches!(replaced, Ok(false)) {
            self.have_kernel_forget(|_, _| {});
            for known in names.iter().filter(|known| self.is_gone(known)) {
                self.notifier.invalidate_name(known.directory.get(), &known.name);
            }
            self.tell_sizes();
            self.correct_changed(&files);
        }
        replaced.map(drop)
    }

    fn snapshots_changed(&self) -> Result<()> {
        for name in self.trees.snapshots().changed_names()? {
            self.notifier.expire_name(SNAPSHOTS, name.as_bytes());
            self.notifier.invalidate(SNAPSHOTS);
        }
        Ok(())
    }

    fn settled(&self) {
        self.entries.told_lately().forget(&self.notifier);
    }

    fn send_pages(&self) {
        self.write_back.send();
    }

    fn hold(&self) {
        self.gate.close();
        self.accesses.write_all();
    }

    fn calm(&self) {
        self.write_back.calm();
    }

    fn flush(&self) {
        self.write_back.flush();
    }

    fn go_on(&self) {
        self.gate.open();
        self.write_back.go_on();
    }

    fn acls_changed(&self) {
        if let Err(error) = self.adopt_known() {
            tracing::warn!("the kernel may keep ACLs of files that it knows from another process: {error}");
        }
        // the kernel keeps them with attributes
        let known = self.trees.known().all().into_iter().filter(|&object| object != ROOT);
        known.chain([ROOT]).for_each(|known| self.notifier.forget_attributes(known.get()));
    }

    fn change_file(&self, inode: u64, change: &mut dyn FnMut(ObjectId)) -> Result<()> {
        // a page that was stored into before would be written over it
        self.notifier.invalidate(inode);
        {
            let _passage = self.gate.pass();
            let object = self.trees.changeable(inode)?;
            change(object);
            if let Some(size) = self.size_of(object) {
                self.trees.known().reaches(object, size);
            }
            self.files.attributes_changed(inode);
        }
        self.notifier.invalidate(inode);
        Ok(())
    }

    fn root(&self) -> ObjectId {
        self.trees.live().tree.root()
    }
}

impl<S: Source> Freezer<S> {
    /// Finds out which files the kernel knows from the process before, if there was one: it is asked about each object, as it
    /// has no list. Errors: those of reading which objects there are.
    fn adopt_known(&self) -> Result<()> {
        let (live, known) = (self.trees.live(), self.trees.known());
        if !known.is_inherited() {
            return Ok(());
        }
        let mut last = ObjectId::new(0);
        while let Some(object) = live.tree.next_object(last)? {
            // what has no attributes is no file
            if object != live.tree.root()
                && let Ok(stat) = live.tree.stat(object)
                && live.node(object).is_ok_and(|node| self.notifier.knows(node))
            {
                known.adopt(object, stat.generation);
            }
            last = object;
        }
        known.all_adopted();
        Ok(())
    }

    /// Takes the new root, if there is one.
    fn replace(&self, files: &HashMap<ObjectId, KnownState>) -> Result<bool> {
        match self.trees.source().reopened() {
            Ok(None) => return Ok(false),
            Ok(Some(tree)) => {
                let sizes = files.iter().map(|(&object, (size, _))| (object, *size)).collect();
                self.trees.replace_live(tree, &sizes);
            }
            Err(error) => {
                self.trees.lose_live();
                return Err(error);
            }
        }
        self.files.clear();
        self.accesses.clear();
        Ok(true)
    }

    /// Whether a helper can go to the files of the mount. Has the kernel send what it keeps of them, with their times. Errors:
    /// it cannot.
    fn check_visits(&self) -> Result<()> {
        if self.trees.remountable().is_read_only() {
            return Err(Error::new(Kind::Unsupported, "it is read-only, and was not: unmount it first"));
        }
        // the root is no file, but what is mounted is found out
        self.write_back.visits().send(&self.write_back.stored()).map_err(|error| {
            Error::new(Kind::Unsupported, "the kernel keeps sizes of its files: unmount it first").with_source(error)
        })
    }

    /// The sizes and times of the files that the kernel knows.
    fn file_states(&self) -> HashMap<ObjectId, KnownState> {
        let state = |object| self.state_of(object).map(|state| (object, state));
        self.trees.known().all().into_iter().filter_map(state).collect()
    }

    fn state_of(&self, object: ObjectId) -> Option<KnownState> {
        self.trees.live_file(object).map(|stat| (stat.size, stat.mtime))
    }

    fn size_of(&self, object: ObjectId) -> Option<u64> {
        self.state_of(object).map(|(size, _)| size)
    }

    /// With its write-back cache, has the kernel take over the states of files that are others than `before`.
    fn correct_changed(&self, before: &HashMap<ObjectId, KnownState>) {
        if !self.negotiated.keeps_written() {
            return;
        }
        let live = self.trees.live();
        let differs =
            |&(&object, state): &(&ObjectId, &KnownState)| self.state_of(object).is_some_and(|now| now != *state);
        let changed = before.iter().filter(differs).filter_map(|(&object, _)| live.node(object).ok());
        self.correct(&changed.collect::<Vec<_>>());
    }

    fn correct(&self, nodes: &[u64]) {
        if let Err(error) = self.write_back.visits().correct(nodes) {
            tracing::warn!("the kernel may take files for longer than they are: {error}");
        }
    }

    /// With its write-back cache, has the kernel take over sizes and times of objects that lost changes.
    pub(crate) fn correct_lost(&self, lost: &LostObjects) {
        if !self.negotiated.keeps_written() {
            return;
        }
        let live = self.trees.live();
        let nodes = lost_in(&live, lost).filter_map(|object| live.node(object).ok());
        self.correct(&nodes.filter(|node| self.notifier.knows(*node)).collect::<Vec<_>>());
    }

    /// Tells the kernel how long files are that it takes for shorter: their last byte, which it is then to drop again, as
    /// somebody may have changed it meanwhile.
    fn tell_sizes(&self) {
        let live = self.trees.live();
        for (object, size) in self.trees.known().taken_for_shorter(|object| self.size_of(object)) {
            let mut last = [0];
            let read = live.tree.open_file(live.object(object)).and_then(|file| file.read(size - 1, &mut last));
            if matches!(read, Ok(1)) {
                self.notifier.store(object.get(), size - 1, &last);
                self.trees.known().reaches(object, size);
                self.notifier.invalidate(object.get());
            }
        }
    }

    /// Has the kernel drop all that it has of the live tree: of the nodes that it knows, and of the names that the
    /// directories among them have: of these, `each` is told the directory, as its node names it, and the entry.
    fn have_kernel_forget(&self, mut each: impl FnMut(ObjectId, DirEntry)) {
        let known = self.trees.known().all().into_iter().filter(|&object| object != ROOT);
        for known in known.chain([ROOT]) {
            let node = known.get();
            self.notifier.invalidate(node);
            let Ok(object) = self.trees.live_object(known) else { continue };
            // what is no directory has no names; one that cannot be read has none that are known
            let _ = self.trees.live().tree.readdir(object, 0, &mut |entry| {
                if !matches!(&entry.name[..], b"." | b"..") {
                    self.notifier.expire_name(node, &entry.name);
                    each(known, entry);
                }
                ControlFlow::Continue(())
            });
        }
    }

    /// Has the kernel drop, by `tell`, what it keeps of objects that lost changes. Errors: those of `tell`.
    pub(crate) fn drop_lost(&self, lost: &LostObjects, tell: TellKernel<'_>) -> Result<()> {
        let live = self.trees.live();
        self.each_lost(
            lost,
            &mut |object, messages| {
                messages.extend(live.node(object).ok().map(|node| invalidation(node, 0)));
            },
            tell,
        )
    }

    /// Has the kernel ask again, by `tell`, for the names that directories among objects that lost changes have, and for those
    /// that were given in the time that was lost to objects that are there. Any other name that is not there any more leads
    /// it to an object that is stale. Errors: those of `tell`.
    pub(crate) fn expire_lost(&self, lost: &LostObjects, tell: TellKernel<'_>) -> Result<()> {
        let live = self.trees.live();
        for names in lost.names.chunks(MESSAGES_KEPT_MAX) {
            let node = |given: &NameFact| live.node(ObjectId::new(given.directory)).ok();
            let given = names.iter().filter_map(|given| Some(expiry(node(given)?, &given.name)));
            tell(&given.collect::<Vec<_>>())?;
        }
        self.each_lost(
            lost,
            &mut |object, messages| {
                let Ok(node) = live.node(object) else { return };
                // what is no directory has no names
                let _ = live.tree.readdir(object, 0, &mut |entry| {
                    if !matches!(&entry.name[..], b"." | b"..") {
                        messages.push(expiry(node, &entry.name));
                    }
                    ControlFlow::Continue(())
                });
            },
            tell,
        )
    }

    /// Tells the kernel what `put` makes of each object that lost changes, in portions.
    fn each_lost(
        &self,
        lost: &LostObjects,
        put: &mut dyn FnMut(ObjectId, &mut Vec<Vec<u8>>),
        tell: TellKernel<'_>,
    ) -> Result<()> {
        let (live, mut messages) = (self.trees.live(), Vec::new());
        for object in lost_in(&live, lost) {
            put(object, &mut messages);
            if messages.len() >= MESSAGES_KEPT_MAX {
                tell(&std::mem::take(&mut messages))?;
            }
        }
        tell(&messages)
    }

    /// Whether a name of the old root is not in the new one, or another file's there.
    fn is_gone(&self, known: &KnownName) -> bool {
        let found = self
            .trees
            .live_object(known.directory)
            .and_then(|directory| self.trees.live().tree.lookup(directory, &known.name));
        found.ok() != Some(known.object) || self.trees.known().is_stale(known.object)
    }
}

/// The objects of the live tree that lost changes.
fn lost_in<'a, T: FileTree>(live: &'a OpenTree<T>, lost: &'a LostObjects) -> impl Iterator<Item = ObjectId> + 'a {
    let after = |last: &ObjectId| live.tree.next_object(*last).ok().flatten();
    let all = std::iter::successors(after(&ObjectId::new(0)).filter(|_| lost.are_all), after);
    lost.objects().chain(all)
}
