//! Flushing for the intent log: only the vdevs that it is on, while groups go on with the others.
//!
//! What [`Tree::flush`] is to flush for a group stays to be flushed: its flush has to begin when the last of
//! the group's writes has ended, and this one may have begun before.
//!
//! A vdev that is there for logs only keeps no group from disk, whatever it has lost: nothing that the groups
//! lead to is on it. Whoever relied on it to have a log block is told, and waits for the group.

use base::{Error, Result};
use device::{Device, flush_batch};

use crate::tree::{Tree, Vdev, VdevId};

impl Tree {
    /// Flushes all leaves of some top-level vdevs. Errors: that of a leaf, if the redundancy does not make up
    /// for it; and as from [`Tree::top`].
    pub fn flush_tops(&self, tops: &[u64]) -> Result<()> {
        let tops: Vec<&Vdev> = tops.iter().map(|top| self.top(*top)).collect::<Result<_>>()?;
        let mut leaves = Vec::new();
        tops.iter().for_each(|top| self.usable_leaves(top, &mut leaves));
        let devices: Vec<_> =
            leaves.iter().map(|leaf| leaf.device().expect("a usable leaf has one") as &dyn Device).collect();
        let (mut failed, mut error): (Vec<_>, Option<Error>) = (Vec::new(), None);
        for (leaf, result) in leaves.iter().zip(flush_batch(&devices)) {
            if let Err(e) = result {
                // a later flush may succeed without bringing back what this one has lost
                let txgs = leaf.written().unwrap_or_default();
                leaf.miss(txgs.clone());
                leaf.charge_write(&e);
                failed.push((leaf.guid(), txgs));
                error = error.or(Some(e));
            }
        }
        let Some(error) = error else { return Ok(()) };
        let is_lost = |leaf: &Vdev| failed.iter().any(|(guid, txgs)| *guid == leaf.guid() || leaf.is_missing_any(txgs));
        let lost: Vec<&&Vdev> = tops.iter().filter(|top| !self.survives(top, &is_lost)).collect();
        if lost.is_empty() {
            return Ok(());
        }
        if !lost.iter().all(|top| top.is_log()) {
            self.has_lost(&error);
        }
        Err(error)
    }

    fn usable_leaves<'a>(&'a self, vdev: &'a Vdev, out: &mut Vec<&'a Vdev>) {
        if vdev.is_leaf() && vdev.readable_device().is_some() {
            out.push(vdev);
        }
        let children: &[VdevId] = vdev.children();
        children.iter().for_each(|&child| self.usable_leaves(self.vdev(child), out));
    }
}
