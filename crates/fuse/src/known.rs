//! The nodes of the live tree that the kernel knows, and when an object without a name goes.

use std::sync::Arc;

use base::Result;
use export::Parking;
use zpl::ObjectId;

use crate::faults::FaultLog;
use crate::legacy::NotedFact;
use crate::node::NodeId;
use crate::opened::OpenFiles;
use crate::tree::{FileTree, Source};
use crate::trees::Trees;
use crate::wire::{InHeader, RequestBody};

/// The nodes that the kernel knows of one mount; counted only if it is writable.
pub(crate) struct KnownNodes<S: Source> {
    trees: Arc<Trees<S>>,
    files: Arc<OpenFiles<S>>,
    faults: Arc<FaultLog<S>>,
    parking: Arc<Parking>,
}

impl<S: Source> KnownNodes<S> {
    pub(crate) fn new(
        trees: Arc<Trees<S>>,
        files: Arc<OpenFiles<S>>,
        faults: Arc<FaultLog<S>>,
        parking: Arc<Parking>,
    ) -> KnownNodes<S> {
        KnownNodes { trees, files, faults, parking }
    }

    /// The kernel is told of a node, and that the file has this generation. The fact, if there is one, is to hold until it has
    /// heard of it.
    #[must_use]
    pub(crate) fn told(&self, node: u64, generation: u64) -> Option<NotedFact> {
        match NodeId::parse(node) {
            NodeId::InTree { tree: 0, object } if self.trees.is_writable() => {
                self.trees.known().add(object, generation)
            }
            _ => None,
        }
    }

    /// FORGET: the kernel forgets a node.
    pub(crate) fn forget(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>) -> Result<()> {
        self.forgotten(header.node, body.u64()?);
        Ok(())
    }

    /// BATCH_FORGET: it forgets several.
    pub(crate) fn batch_forget(self: &Arc<Self>, mut body: RequestBody<'_>) -> Result<()> {
        let count = body.u32()?;
        body.skip(4)?;
        for _ in 0..count {
            let (node, uses) = (body.u64()?, body.u64()?);
            self.forgotten(node, uses);
        }
        Ok(())
    }

    fn forgotten(self: &Arc<Self>, node: u64, count: u64) {
        if self.trees.is_writable()
            && let NodeId::InTree { tree: 0, object } = NodeId::parse(node)
            && self.trees.known().remove(object, count)
        {
            self.reclaim(object);
        }
    }

    /// An object lost its last name.
    pub(crate) fn orphaned(self: &Arc<Self>, object: Option<ObjectId>) {
        if let Some(object) = object
            && self.trees.known().orphan(object)
        {
            self.reclaim(object);
        }
    }

    /// Frees the files without a name of which the kernel knows nothing, as it told that to the process before, or could tell
    /// nobody; `knows` asks it about a node.
    pub(crate) fn reclaim_unknown(self: &Arc<Self>, knows: impl Fn(u64) -> bool) {
        for object in self.trees.known().orphans() {
            if !knows(object.get()) && self.trees.known().take_unknown(object) {
                self.reclaim(object);
            }
        }
    }

    /// The kernel is gone, and with it all users of files.
    pub(crate) fn reclaim_all(self: &Arc<Self>) {
        for object in self.trees.known().take_orphans() {
            self.reclaim(object);
        }
    }

    fn reclaim(self: &Arc<Self>, object: ObjectId) {
        // first: its number may be given to another file at once
        self.files.remove(object.get());
        self.parking.change(
            self,
            move |known| known.trees.live().tree.reclaim(object),
            move |known, done| {
                if let Err(error) = done {
                    known.faults.fail("forget", object.get(), error);
                }
            },
        );
    }
}
