//! Names: what a name in a directory stands for, `.zfs` among them.

use std::time::Duration;

use base::{Error, Kind, Result};
use zpl::Stat;

use crate::attr::{Attr, file_attr, made_up_directory};
use crate::node::{Branch, CONTROL, NodeId, SHARES, SNAPSHOTS, root_node};
use crate::options::SnapDir;
use crate::session::{FOREVER, Session};
use crate::tree::{Source, Tree};

/// In a writable mount, how long ago an object must have changed that its attributes hold for ever. How
/// much room it takes is known once its transaction group is on disk, of which the kernel does not hear.
const SETTLED_S: u64 = 60;
/// How long the attributes of one that changed lately hold.
const UNSETTLED_TTL: Duration = Duration::from_secs(1);

/// Name of the control directory.
pub(crate) const CONTROL_NAME: &[u8] = b".zfs";
/// Name of the directory in it that OpenZFS has for SMB shares. It is always empty.
pub(crate) const SHARES_NAME: &[u8] = b"shares";
/// Name of the directory of snapshots in it.
pub(crate) const SNAPSHOTS_NAME: &[u8] = b"snapshot";

/// A node that a request names.
pub(crate) enum Place<T> {
    /// `.zfs`
    Control,
    /// `.zfs/shares`
    Shares,
    /// `.zfs/snapshot`
    Snapshots,
    /// An object of a tree.
    Object(Branch<T>, u64),
}

/// What the kernel is told of a name or a node: of a name, `attr.ino` is the node id, else `st_ino`.
pub(crate) struct Entry {
    pub(crate) attr: Attr,
    /// How long the attributes hold. Of a root they do not hold at all, as its node id is not its
    /// `st_ino`, and an entry has room for only one number: the kernel then asks for them.
    pub(crate) attr_ttl: Duration,
    pub(crate) generation: u64,
}

impl<S: Source> Session<S> {
    /// Goes to a node, opening its snapshot if need be.
    pub(crate) fn place(&self, node: u64) -> Result<Place<S::Tree>> {
        match NodeId::parse(node) {
            NodeId::InTree { tree: 0, object } => Ok(Place::Object(self.live.clone(), self.live.object(object))),
            // a file handle from a mount that had one
            _ if self.remountable.snapdir() == SnapDir::Disabled => Err(Error::new(Kind::NotFound, "there is no .zfs")),
            NodeId::Control => Ok(Place::Control),
            NodeId::Shares => Ok(Place::Shares),
            NodeId::Snapshots => Ok(Place::Snapshots),
            NodeId::InTree { tree, object } => {
                let branch = self.snapshots.branch(tree)?;
                let object = branch.object(object);
                Ok(Place::Object(branch, object))
            }
        }
    }

    /// The attributes of a place under its `st_ino`.
    pub(crate) fn attributes(&self, place: &Place<S::Tree>) -> Result<Entry> {
        let made_up = |ino| {
            let attr = made_up_directory(ino, self.born_s);
            Ok(Entry { attr, attr_ttl: FOREVER, generation: 0 })
        };
        match place {
            Place::Control => made_up(CONTROL),
            Place::Shares => made_up(SHARES),
            Place::Snapshots => made_up(SNAPSHOTS),
            Place::Object(branch, object) => {
                if branch.is_live() {
                    self.write_access(*object);
                }
                Ok(self.attributes_of(branch, *object, &branch.tree.stat(*object)?))
            }
        }
    }

    /// The attributes of an object, as the tree has just told them.
    pub(crate) fn attributes_of(&self, branch: &Branch<S::Tree>, object: u64, stat: &Stat) -> Entry {
        let mut attr = file_attr(branch.ino(object), stat);
        if self.lists_control(branch, object) {
            // for the `..` in .zfs
            attr.nlink = attr.nlink.saturating_add(1);
        }
        Entry { attr, attr_ttl: self.attr_ttl(branch, stat), generation: stat.generation }
    }

    /// The kernel itself drops attributes that a request of its own changes, and nobody else changes
    /// them; all but one.
    fn attr_ttl(&self, branch: &Branch<S::Tree>, stat: &Stat) -> Duration {
        if !self.writable || !branch.is_live() {
            return FOREVER;
        }
        let changed_s = u64::try_from(stat.ctime.0).unwrap_or(0);
        match changed_s.saturating_add(SETTLED_S) <= self.env.now_s() {
            true => FOREVER,
            false => UNSETTLED_TTL,
        }
    }

    /// How long names hold in a directory, and that they are not there.
    pub(crate) fn name_ttl(&self, directory: u64) -> Duration {
        let is_live = matches!(NodeId::parse(directory), NodeId::InTree { tree: 0, .. });
        match self.writable && is_live && self.live.tree.has_aliases() {
            true => Duration::ZERO,
            false => FOREVER,
        }
    }

    /// Looks a name up; `NotFound` if the directory does not have it.
    pub(crate) fn find(&self, directory: u64, name: &[u8]) -> Result<Entry> {
        let place = self.place(directory)?;
        match (place, name) {
            (place, b".") => self.entry(&place),
            (place, b"..") => self.entry(&self.parent(&place)?),
            (Place::Control, SHARES_NAME) => self.entry(&Place::Shares),
            (Place::Control, SNAPSHOTS_NAME) => self.entry(&Place::Snapshots),
            (Place::Control | Place::Shares, _) => Err(no_such_name()),
            (Place::Snapshots, name) => {
                let place = self.snapshots.list()?.place(name).ok_or_else(no_such_name)?;
                self.entry(&self.place(root_node(place))?)
            }
            (Place::Object(branch, object), CONTROL_NAME) if self.has_control(&branch, object) => {
                self.entry(&Place::Control)
            }
            (Place::Object(branch, directory), name) => {
                let object = branch.tree.lookup(directory, name)?;
                self.entry_of(&branch, object)
            }
        }
    }

    /// An object that a directory names. That it does not exist is then no "no such file".
    pub(crate) fn entry_of(&self, branch: &Branch<S::Tree>, object: u64) -> Result<Entry> {
        // before the tree is asked: most numbers that cannot be are cheap to tell
        branch.node(object)?;
        self.entry(&Place::Object(branch.clone(), object)).map_err(|error| match error.kind() {
            Kind::NotFound => {
                Error::corrupt(format!("a directory names object {object}, which does not exist")).with_source(error)
            }
            _ => error,
        })
    }

    /// Does this directory have a `.zfs`? Snapshots have none.
    pub(crate) fn has_control(&self, branch: &Branch<S::Tree>, object: u64) -> bool {
        self.remountable.snapdir() != SnapDir::Disabled && branch.is_live() && object == branch.tree.root()
    }

    /// And is it listed?
    pub(crate) fn lists_control(&self, branch: &Branch<S::Tree>, object: u64) -> bool {
        self.remountable.snapdir() == SnapDir::Visible && self.has_control(branch, object)
    }

    fn entry(&self, place: &Place<S::Tree>) -> Result<Entry> {
        let Entry { mut attr, attr_ttl, generation } = self.attributes(place)?;
        let node = match place {
            Place::Object(branch, object) => branch.node(*object)?,
            Place::Control | Place::Shares | Place::Snapshots => attr.ino,
        };
        if node == attr.ino {
            return Ok(Entry { attr, attr_ttl, generation });
        }
        attr.ino = node;
        // a root: the kernel insists on 0 for that of the mount
        Ok(Entry { attr, attr_ttl: Duration::ZERO, generation: 0 })
    }

    /// An object of the live tree that has just been given a name.
    pub(crate) fn entry_of_stat(&self, stat: &Stat) -> Result<Entry> {
        self.live.node(stat.ino)?;
        Ok(self.attributes_of(&self.live, stat.ino, stat))
    }

    fn parent(&self, place: &Place<S::Tree>) -> Result<Place<S::Tree>> {
        match place {
            Place::Control => self.place(root_node(0)),
            Place::Shares | Place::Snapshots => Ok(Place::Control),
            Place::Object(branch, object) if *object == branch.tree.root() => match branch.is_live() {
                true => self.place(root_node(0)),
                false => Ok(Place::Snapshots),
            },
            Place::Object(branch, object) => Ok(Place::Object(branch.clone(), branch.tree.stat(*object)?.parent)),
        }
    }
}

fn no_such_name() -> Error {
    Error::new(Kind::NotFound, "no such name")
}
