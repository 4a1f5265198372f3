//! What the intent log reads of files when it writes its records.

use std::sync::Arc;

use base::{Kind, Result};
use dmu::{OpenBlock, Tx};
use format::ids::ObjectId;
use format::sa::Attr;
use zil::LoggedContents;

use crate::locks::ObjectLocks;
use crate::nodes::{FileNode, Nodes};

/// Files as the log sees them, when it fetches what was written to them.
pub(crate) struct LoggedFiles {
    nodes: Nodes,
    locks: Arc<ObjectLocks>,
}

impl LoggedFiles {
    pub(crate) fn new(nodes: Nodes, locks: Arc<ObjectLocks>) -> LoggedFiles {
        LoggedFiles { nodes, locks }
    }

    /// A file of that generation, if it reaches to `offset`.
    fn find(&self, object: ObjectId, generation: u64, offset: u64) -> Result<Option<FileNode>> {
        let node = match self.nodes.node(object) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Corrupt) => return Ok(None),
            node => node?,
        };
        let attrs = self.nodes.attributes(&node)?;
        let (born, size) = (attrs.u64(Attr::Gen)?, attrs.u64(Attr::Size)?);
        drop(attrs);
        Ok((born == generation && offset < size).then_some(node))
    }
}

impl LoggedContents for LoggedFiles {
    fn read(&self, object: ObjectId, generation: u64, offset: u64, buf: &mut [u8]) -> Result<bool> {
        let _held = self.locks.shared(object);
        let Some(node) = self.find(object, generation, offset)? else { return Ok(false) };
        // what is behind the end is zeros
        node.object().read(offset, buf)?;
        Ok(true)
    }

    fn open_block(&self, tx: &Tx<'_>, object: ObjectId, generation: u64, offset: u64) -> Result<Option<OpenBlock>> {
        let _held = self.locks.shared(object);
        let node = self.find(object, generation, offset)?;
        node.map_or(Ok(None), |node| node.object().open_block(tx, offset))
    }
}
