//! What the kernel is told of objects: their attributes, and for how long these and their names hold.

use std::sync::Arc;

use base::{Env, Error, Kind, Result};
use zpl::{FileKind, ObjectId, Stat};

use crate::accesses::Accesses;
use crate::attr::{FuseEntry, file_attr, made_up_directory};
use crate::lifetimes::{AttrLifetime, NameLifetime};
use crate::negotiated::Negotiated;
use crate::node::{CONTROL, NodeId, OpenTree, SHARES, SNAPSHOTS};
use crate::room::RoomWatch;
use crate::told_lately::ToldLately;
use crate::tree::{FileTree, Source};
use crate::trees::{NodePlace, Trees};

/// Makes the entries of one mount.
pub(crate) struct Entries<S: Source> {
    trees: Arc<Trees<S>>,
    accesses: Arc<Accesses<S>>,
    told_lately: Arc<ToldLately>,
    negotiated: Arc<Negotiated>,
    room: Arc<RoomWatch>,
    env: Env,
}

impl<S: Source> Entries<S> {
    pub(crate) fn new(
        trees: Arc<Trees<S>>,
        accesses: Arc<Accesses<S>>,
        (negotiated, room): (Arc<Negotiated>, Arc<RoomWatch>),
        env: Env,
    ) -> Entries<S> {
        Entries { trees, accesses, told_lately: Arc::default(), negotiated, room, env }
    }

    /// The nodes that were told how much room they take before that was known.
    pub(crate) fn told_lately(&self) -> &Arc<ToldLately> {
        &self.told_lately
    }

    /// The attributes of a node under its `st_ino`.
    pub(crate) fn of_node(&self, node: u64) -> Result<FuseEntry> {
        self.of_place(&self.trees.place(node)?)
    }

    fn of_place(&self, place: &NodePlace<S::Tree>) -> Result<FuseEntry> {
        let made_up = |ino, time_s| {
            Ok(FuseEntry { attr: made_up_directory(ino, time_s), attr_ttl: AttrLifetime::FOREVER, generation: 0 })
        };
        match place {
            NodePlace::Control => made_up(CONTROL, self.trees.born_s()),
            NodePlace::Shares => made_up(SHARES, self.trees.born_s()),
            NodePlace::Snapshots => made_up(SNAPSHOTS, self.trees.source().snapshots_changed_s()?),
            NodePlace::Object(branch, object) => {
                if branch.is_live() {
                    self.accesses.write_one(*object);
                }
                Ok(self.of_stat(branch, *object, &branch.tree.stat(*object)?))
            }
        }
    }

    /// The attributes of an object, as the tree has just told them.
    pub(crate) fn of_stat(&self, branch: &OpenTree<S::Tree>, object: ObjectId, stat: &Stat) -> FuseEntry {
        if branch.is_live() {
            self.trees.known().size_told(object);
        }
        let mut attr = file_attr(branch.ino(object), stat);
        if self.trees.lists_control(branch, object) {
            // for the `..` in .zfs
            attr.nlink = attr.nlink.saturating_add(1);
        }
        let attr_ttl = self.attr_ttl(branch, object, stat);
        FuseEntry { attr, attr_ttl, generation: stat.generation }
    }

    /// A place that has been found by a name.
    pub(crate) fn of_name(&self, place: &NodePlace<S::Tree>) -> Result<FuseEntry> {
        let FuseEntry { mut attr, attr_ttl, generation } = self.of_place(place)?;
        let node = match place {
            NodePlace::Object(branch, object) => branch.node(*object)?,
            NodePlace::Control | NodePlace::Shares | NodePlace::Snapshots => attr.ino,
        };
        if node == attr.ino {
            return Ok(FuseEntry { attr, attr_ttl, generation });
        }
        attr.ino = node;
        // a root: the kernel insists on 0 for that of the mount
        Ok(FuseEntry { attr, attr_ttl: AttrLifetime::NONE, generation: 0 })
    }

    /// An object that a directory names. That it does not exist is then no "no such file".
    pub(crate) fn of_named_object(&self, branch: &OpenTree<S::Tree>, object: ObjectId) -> Result<FuseEntry> {
        // before the tree is asked: most numbers that cannot be are cheap to tell
        branch.node(object)?;
        self.of_name(&NodePlace::Object(branch.clone(), object)).map_err(|error| match error.kind() {
            Kind::NotFound => {
                Error::corrupt(format!("a directory names object {object}, which does not exist")).with_source(error)
            }
            _ => error,
        })
    }

    /// An object of the live tree that has just been given a name.
    pub(crate) fn of_new(&self, stat: &Stat) -> Result<FuseEntry> {
        let live = self.trees.live();
        live.node(stat.ino)?;
        Ok(self.of_stat(&live, stat.ino, stat))
    }

    /// The kernel itself drops attributes that a request of its own changes, and nobody else changes
    /// them; all but one.
    fn attr_ttl(&self, branch: &OpenTree<S::Tree>, object: ObjectId, stat: &Stat) -> AttrLifetime {
        if !self.trees.is_writable() || !branch.is_live() {
            return AttrLifetime::FOREVER;
        }
        // the kernel may have to ask before each write
        let is_asked_for = stat.kind == FileKind::File && self.negotiated.keeps_written() && self.room.must_ask();
        if is_asked_for || !self.trees.may_be_kept() {
            return AttrLifetime::NONE;
        }
        let Ok(node) = branch.node(object) else { return AttrLifetime::UNSETTLED };
        let changed_s = u64::try_from(stat.ctime.0).unwrap_or(0);
        self.told_lately.lifetime(node, changed_s, self.env.now_s())
    }

    /// How long names hold in a directory, and that they are not there. One that has aliases does not hold at all: the
    /// kernel knows each spelling for itself, and does not hear that another one was removed, moved or made.
    pub(crate) fn name_ttl(&self, directory: u64) -> NameLifetime {
        let is_live = matches!(NodeId::parse(directory), NodeId::InTree { tree: 0, .. });
        let may_change = || !self.trees.may_be_kept() || self.trees.live().tree.has_aliases();
        match self.trees.is_writable() && is_live && may_change() {
            true => NameLifetime::NONE,
            false => NameLifetime::FOREVER,
        }
    }
}
