//! The visits of helpers to the files of one mount: see [`visit`](crate::visit).

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use base::{Error, Kind, Mutex, Result};
use zpl::{SetAttr, SetTime};

use crate::channel::{Channel, invalidation};
use crate::helper::Helper;
use crate::visit::{MountVisit, NO_SIZE, VisitedFile};

/// Most files of one visit: each takes less than a hundred bytes of a message.
const FILES_MAX: usize = 500;
/// How long a visit may take.
const VISIT_MAX: Duration = Duration::from_secs(120);

/// The visits to one mount.
pub(crate) struct Visits {
    /// Tells of a file by its node; `None` if the live tree has none there.
    look: Box<dyn Fn(u64) -> Option<VisitedFile> + Send + Sync>,
    place: OnceLock<MountPlace>,
    /// Held during a correction: there is one at a time.
    turn: Mutex<()>,
    /// Nodes of which the kernel is about to be told size and time.
    corrected: Mutex<HashSet<u64>>,
}

/// Where a mount is, and what goes there.
pub(crate) struct MountPlace {
    pub(crate) helper: Helper,
    pub(crate) point: PathBuf,
    pub(crate) dev: String,
    /// If the mount outlives this process: the connection, which the keeper has, too.
    pub(crate) kept: Option<Weak<Channel>>,
}

impl Visits {
    pub(crate) fn new(look: impl Fn(u64) -> Option<VisitedFile> + Send + Sync + 'static) -> Visits {
        Visits { look: Box::new(look), place: OnceLock::new(), turn: Mutex::default(), corrected: Mutex::default() }
    }

    /// It is mounted there.
    pub(crate) fn mounted(&self, place: MountPlace) {
        // nobody has set it before: it is mounted once
        let _ = self.place.set(place);
    }

    /// Has the kernel send and drop what it has of a node's contents from a byte on; false if that is to be done in this process.
    /// A helper does it, as the kernel waits for answers meanwhile: a process that waits for its own does not die when it is
    /// killed, and so none comes after it.
    pub(crate) fn invalidate(&self, node: u64, from: u64) -> bool {
        let Some(MountPlace { helper, kept: Some(kept), .. }) = self.place.get() else { return false };
        let Some(channel) = kept.upgrade() else { return true };
        let told = helper.tell_kernel(channel.as_fd(), &[invalidation(node, from)]);
        told.inspect_err(|error| tracing::debug!(node, "no helper has the kernel drop what it has: {error}")).is_ok()
    }

    /// Has the kernel send what it keeps, times included: when this returns, all of these nodes has come. Not from within a
    /// request. Errors: a helper cannot go there.
    pub(crate) fn send(&self, nodes: &[u64]) -> Result<()> {
        self.go_to(nodes, MountVisit::Send)
    }

    /// The same while writes wait.
    pub(crate) fn flush(&self, nodes: &[u64]) -> Result<()> {
        self.go_to(nodes, MountVisit::Flush)
    }

    fn go_to(&self, nodes: &[u64], visit: impl Fn(Vec<VisitedFile>) -> MountVisit) -> Result<()> {
        let files: Vec<VisitedFile> = nodes.iter().filter_map(|node| (self.look)(*node)).collect();
        // also without any file: the kernel may have times of others
        let (first, others) = files.split_at(files.len().min(FILES_MAX));
        for some in std::iter::once(first).chain(others.chunks(FILES_MAX)) {
            self.go(visit(some.to_vec()))?;
        }
        Ok(())
    }

    /// Has the kernel take over sizes and times of these nodes from the tree. Not from within a request. Errors: a helper
    /// cannot go there, or to some of them.
    pub(crate) fn correct(&self, nodes: &[u64]) -> Result<()> {
        let _turn = self.turn.lock();
        for some in nodes.chunks(FILES_MAX) {
            let files: Vec<VisitedFile> = some.iter().filter_map(|node| (self.look)(*node)).collect();
            *self.corrected.lock() = some.iter().copied().collect();
            let gone = self.go(MountVisit::Correct(files));
            self.corrected.lock().clear();
            gone?;
        }
        Ok(())
    }

    /// Is this change of a node a helper's, which only wants to be answered?
    pub(crate) fn is_correction(&self, node: u64, set: &SetAttr, by_root: bool) -> bool {
        if set.size.is_some() {
            return set.size == Some(NO_SIZE) && by_root;
        }
        let SetAttr { mode: None, uid: None, gid: None, atime: None, mtime: Some(mtime), .. } = set else {
            return false;
        };
        self.corrected.lock().contains(&node)
            && (self.look)(node).is_some_and(|file| *mtime == SetTime::At(file.mtime.0, file.mtime.1))
    }

    fn go(&self, visit: MountVisit) -> Result<()> {
        let place = self.place.get().ok_or_else(|| Error::new(Kind::Missing, "it is not mounted yet"))?;
        match place.helper.visit(&place.point, &place.dev, visit, VISIT_MAX)? {
            0 => Ok(()),
            n => Err(Error::new(Kind::Unsupported, format!("{n} files cannot be reached"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_told_from_other_changes() {
        let file = |node| VisitedFile { node, generation: 1, mtime: (-5, 7) };
        let visits = Visits::new(move |node| (node < 9).then(|| file(node)));
        let sized = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let timed = |at| SetAttr { mtime: Some(at), ctime: Some((9, 9)), ..SetAttr::default() };
        let is = |node, set: &SetAttr| visits.is_correction(node, set, true);
        assert!(is(7, &sized(NO_SIZE)) && !is(7, &timed(SetTime::At(-5, 7))), "the process before began it");
        visits.corrected.lock().extend([7, 10]);
        assert!(is(7, &timed(SetTime::At(-5, 7))) && !is(8, &timed(SetTime::At(-5, 7))));
        for other in [sized(NO_SIZE + 1), sized(0), timed(SetTime::At(-5, 8)), timed(SetTime::Now), SetAttr::default()]
        {
            assert!(!is(7, &other), "{other:?}");
        }
        let with_mode = SetAttr { mode: Some(0), ..timed(SetTime::At(-5, 7)) };
        assert!(!is(7, &with_mode) && !is(10, &timed(SetTime::At(-5, 7))));
        assert_eq!(visits.send(&[7]).unwrap_err().kind(), Kind::Missing, "it is mounted nowhere");
    }
}
