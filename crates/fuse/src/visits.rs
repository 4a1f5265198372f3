//! The visits of helpers to the files of one mount: see [`visit`](crate::visit).

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use base::{Env, Error, Kind, Mutex, Result};
use zpl::{SetAttr, SetTime};

use crate::helper::Helper;
use crate::visit::{MountVisit, VisitedFile};

/// Most files of one visit: each takes less than a hundred bytes of a message.
const FILES_MAX: usize = 500;
/// How long a visit may take.
const VISIT_MAX: Duration = Duration::from_secs(120);
/// A size that no file has, with a secret in its lower bits.
const NO_SIZE: u64 = 1 << 62;
const SECRET_BITS: u64 = 40;

/// The visits to one mount.
pub(crate) struct Visits {
    env: Env,
    /// Tells of a file by its node; `None` if the live tree has none there.
    look: Box<dyn Fn(u64) -> Option<VisitedFile> + Send + Sync>,
    place: OnceLock<MountPlace>,
    /// Held during a correction: there is one at a time.
    turn: Mutex<()>,
    correction: Mutex<Option<Correction>>,
}

/// Where a mount is, and what goes there.
pub(crate) struct MountPlace {
    pub(crate) helper: Helper,
    pub(crate) point: PathBuf,
    pub(crate) dev: String,
}

/// Files of which the kernel is about to be told size and time.
struct Correction {
    size: u64,
    nodes: HashSet<u64>,
}

impl Visits {
    pub(crate) fn new(env: Env, look: impl Fn(u64) -> Option<VisitedFile> + Send + Sync + 'static) -> Visits {
        Visits {
            env,
            look: Box::new(look),
            place: OnceLock::new(),
            turn: Mutex::default(),
            correction: Mutex::default(),
        }
    }

    /// It is mounted there.
    pub(crate) fn mounted(&self, place: MountPlace) {
        // nobody has set it before: it is mounted once
        let _ = self.place.set(place);
    }

    /// Has the kernel send what it keeps, times included: when this returns, all of these nodes has come. Not from within a
    /// request. Errors: a helper cannot go there.
    pub(crate) fn send(&self, nodes: &[u64]) -> Result<()> {
        let files: Vec<VisitedFile> = nodes.iter().filter_map(|node| (self.look)(*node)).collect();
        // also without any file: the kernel may have times of others
        let (first, others) = files.split_at(files.len().min(FILES_MAX));
        for some in std::iter::once(first).chain(others.chunks(FILES_MAX)) {
            self.go(MountVisit::Send(some.to_vec()))?;
        }
        Ok(())
    }

    /// Has the kernel take over sizes and times of these nodes from the tree. Not from within a request. Errors: a helper
    /// cannot go there, or to some of them.
    pub(crate) fn correct(&self, nodes: &[u64]) -> Result<()> {
        let _turn = self.turn.lock();
        let size = NO_SIZE | self.env.random() & ((1 << SECRET_BITS) - 1);
        for some in nodes.chunks(FILES_MAX) {
            let files: Vec<VisitedFile> = some.iter().filter_map(|node| (self.look)(*node)).collect();
            *self.correction.lock() = Some(Correction { size, nodes: some.iter().copied().collect() });
            let gone = self.go(MountVisit::Correct(files, size));
            *self.correction.lock() = None;
            gone?;
        }
        Ok(())
    }

    /// Is this change of a node a helper's, which only wants to be answered?
    pub(crate) fn is_correction(&self, node: u64, set: &SetAttr) -> bool {
        let correction = self.correction.lock();
        let Some(Correction { size, .. }) = correction.as_ref().filter(|correction| correction.nodes.contains(&node))
        else {
            return false;
        };
        let is_its_time = || match set {
            SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: Some(mtime), .. } => {
                (self.look)(node).is_some_and(|file| *mtime == SetTime::At(file.mtime.0, file.mtime.1))
            }
            _ => false,
        };
        set.size == Some(*size) || is_its_time()
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
        let visits = Visits::new(Env::real(), move |node| (node < 9).then(|| file(node)));
        let sized = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let timed = |at| SetAttr { mtime: Some(at), ctime: Some((9, 9)), ..SetAttr::default() };
        assert!(!visits.is_correction(7, &sized(NO_SIZE)), "there is none");
        *visits.correction.lock() = Some(Correction { size: NO_SIZE | 3, nodes: [7, 10].into() });
        assert!(visits.is_correction(7, &sized(NO_SIZE | 3)) && visits.is_correction(7, &timed(SetTime::At(-5, 7))));
        assert!(!visits.is_correction(8, &sized(NO_SIZE | 3)) && !visits.is_correction(8, &timed(SetTime::At(-5, 7))));
        for other in [sized(NO_SIZE), sized(0), timed(SetTime::At(-5, 8)), timed(SetTime::Now), SetAttr::default()] {
            assert!(!visits.is_correction(7, &other), "{other:?}");
        }
        let with_mode = SetAttr { mode: Some(0), ..timed(SetTime::At(-5, 7)) };
        assert!(!visits.is_correction(7, &with_mode) && !visits.is_correction(10, &timed(SetTime::At(-5, 7))));
        assert_eq!(visits.send(&[7]).unwrap_err().kind(), Kind::Missing, "it is mounted nowhere");
    }
}
