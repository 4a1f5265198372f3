//! Flushes: for a group, of all that was written; for the intent log, of the vdevs that it is on, while groups go on
//! with the others.
//!
//! What [`Tree::flush`] is to flush for a group stays to be flushed when the log flushes: its flush has to begin when
//! the last of the group's writes has ended, and that of the log may have begun before.
//!
//! A flush that fails tells nothing of which writes were lost, so the leaf is taken to have missed every transaction
//! group that was written since the last one.
//!
//! A vdev that is there for logs only keeps no group from disk, whatever it has lost: nothing that the groups
//! lead to is on it. A writer that relied on it for a log block is told, and waits for the group.

use std::ops::Range;

use base::{Error, Result};
use device::{Device, flush_batch};
use format::ids::{Txg, VdevNumber};

use crate::tree::Tree;
use crate::vdev::{LeafVdev, Vdev};

/// A leaf to be flushed, and the groups that it was written for.
type ToFlush<'a> = (LeafVdev<'a>, Range<Txg>);

/// The leaves whose flush failed, and the first error.
struct Failed<'a> {
    leaves: Vec<ToFlush<'a>>,
    error: Error,
}

impl Tree {
    /// Flushes every leaf that has been written since its last flush, all at once.
    ///
    /// A leaf that fails has the error counted, and is taken to have missed every transaction group
    /// that was written to it since. `Ok` if the vdevs' redundancy makes up for it, those set aside for logs not
    /// counted, otherwise the leaf's error ([`base::Kind::Io`], [`base::Kind::Missing`]). Then every later flush
    /// fails, too, until somebody writes again what may be lost ([`Tree::begin_again`]).
    pub fn flush(&self) -> Result<()> {
        self.lost_writes().check()?;
        let written = self.leaves().filter_map(|leaf| Some((leaf, leaf.state().take_written()?)));
        let Some(failed) = flush_leaves(written.collect()) else { return Ok(()) };
        if self.tops().filter(|top| !top.is_log()).all(|top| self.survives_flush(top, &failed)) {
            return Ok(());
        }
        self.lost_writes().note(&failed.error);
        Err(failed.error)
    }

    /// Flushes all leaves of some top-level vdevs. Errors: that of a leaf, if the redundancy does not make up
    /// for it; and as from [`Tree::top`].
    pub fn flush_tops(&self, tops: &[VdevNumber]) -> Result<()> {
        let tops: Vec<&Vdev> = tops.iter().map(|top| self.top(*top)).collect::<Result<_>>()?;
        let leaves = tops.iter().flat_map(|top| self.leaves_of(top.id()));
        let usable = leaves.filter(|leaf| leaf.usable_device().is_some());
        let written = usable.map(|leaf| (leaf, leaf.state().written().unwrap_or_default()));
        let Some(failed) = flush_leaves(written.collect()) else { return Ok(()) };
        let mut lost = tops.iter().filter(|top| !self.survives_flush(top, &failed)).peekable();
        if lost.peek().is_none() {
            return Ok(());
        }
        if !lost.all(|top| top.is_log()) {
            self.lost_writes().note(&failed.error);
        }
        Err(failed.error)
    }

    /// Whether what is on a top-level vdev can be read, whatever the leaves have lost that failed.
    fn survives_flush(&self, top: &Vdev, failed: &Failed<'_>) -> bool {
        // what another has lost, a leaf must have
        let is_lost = |leaf: LeafVdev<'_>| {
            failed.leaves.iter().any(|(other, txgs)| other.guid() == leaf.guid() || leaf.state().dtl().intersects(txgs))
        };
        self.survives(top, &is_lost)
    }

    /// All that a flush may have lost is about to be written again: the next flush may succeed. If that
    /// is all of group `txg`, what leaves have missed of it so far does not count.
    pub fn begin_again(&self, txg: Option<Txg>) {
        self.lost_writes().forget();
        let Some(txg) = txg else { return };
        self.leaves().for_each(|leaf| leaf.state().dtl().remove(txg..txg.next()));
    }
}

/// Flushes leaves, all at once. `None` if none failed.
fn flush_leaves(leaves: Vec<ToFlush<'_>>) -> Option<Failed<'_>> {
    let slots = leaves.iter().map(|(leaf, _)| leaf.state().device().expect("it was written"));
    let devices: Vec<&dyn Device> = slots.map(|slot| slot as &dyn Device).collect();
    let results = flush_batch(&devices);
    let (mut failed, mut error) = (Vec::new(), None);
    for ((leaf, txgs), result) in leaves.into_iter().zip(results) {
        if let Err(e) = result {
            // a later flush may succeed without bringing back what this one has lost
            leaf.state().dtl().insert(txgs.clone());
            leaf.state().dtl().note_lost_fill();
            leaf.state().charge_write(&e);
            failed.push((leaf, txgs));
            error = error.or(Some(e));
        }
    }
    error.map(|error| Failed { leaves: failed, error })
}
