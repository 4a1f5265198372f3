//! Devices that have become larger, by a command (`online -e`) or by themselves (property `autoexpand`).
//!
//! ```text
//!   leaf has grown ─▶ task: its last labels at the new end
//!                       └▶ all leaves of a top-level vdev have room for more? ─▶ array of its space maps, shape,
//!                          maps, allocator ─▶ configuration
//! ```
//!
//! A cut before the group is on disk leaves the vdev as it was: nothing is in the new metaslabs, and the first two labels of
//! the leaf are where they were.

use std::collections::HashMap;
use std::ops::Range;

use base::Result;
use format::ids::{Guid, VdevNumber};
use vdev::{Edit, LeafVdev, Vdev};

use crate::live::vdevs::no_such_device;
use crate::live::{LivePool, SyncContext};
use crate::metaslabs;

impl LivePool {
    /// Uses all bytes that the device of a leaf has by now. Its top-level vdev grows if all its leaves have room for
    /// more. Errors: `NotFound`, those of writing; `Suspended`.
    pub(super) fn grow(&self, guid: Guid) -> Result<()> {
        self.tree().leaf(guid).ok_or_else(no_such_device)?;
        self.run(move |context| context.grow(&[guid]))
    }

    /// Uses what has grown, with the next group, if that is to happen by itself, and it is time to look.
    pub(super) fn look_for_growth(&self) {
        if self.suspended().is_some() || !self.leaf_watch().is_growth_due() {
            return;
        }
        let grown = self.tree().leaves().filter(|leaf| leaf.has_grown());
        let grown: Vec<Guid> = grown.map(|leaf| leaf.guid()).collect();
        if grown.is_empty() && !self.tree().tops().any(|top| self.growth_of(top).is_some()) {
            return;
        }
        self.run_later(move |context| {
            context.grow(&grown)?;
            let leaves = grown.iter().filter_map(|&guid| context.pool.tree().leaf(guid));
            leaves.for_each(|leaf| context.pool.notify("vdev_autoexpand", Some(leaf.vdev())));
            Ok(())
        });
    }

    /// The address space that a top-level vdev could have, if that is by a metaslab more than it has.
    fn growth_of(&self, top: &Vdev) -> Option<u64> {
        let spec = top.top_spec()?;
        let room = self.tree().room_of(top)?;
        (spec.metaslab_array.is_some()
            && spec.metaslab_shift != 0
            && room >> spec.metaslab_shift > metaslabs::count(top))
        .then_some(room)
    }

    /// Bytes of data that the vdevs for all that has no place of its own stand for.
    fn normal_bytes(&self) -> Result<u64> {
        let allocator = self.cache().zio().allocator()?;
        let is_normal = |top: &&Vdev| top.top_spec().is_some_and(|spec| !spec.is_log && spec.bias.is_none());
        let bytes = |top: &Vdev| {
            let size = allocator.top_space(top.number()).map_or(0, |space| space.size);
            self.tree().deflate(top.number(), size)
        };
        self.tree().tops().filter(|top| top.kind().is_concrete()).filter(is_normal).map(bytes).sum()
    }
}

impl SyncContext<'_> {
    /// Uses all bytes of the devices of these leaves, and lets all top-level vdevs grow that can.
    fn grow(&self, leaves: &[Guid]) -> Result<()> {
        let (pool, tree) = (self.pool, self.pool.tree());
        let grown = leaves.iter().filter_map(|&guid| tree.leaf(guid)).filter(|leaf| leaf.has_grown());
        let grown: Vec<LeafVdev<'_>> = grown.collect();
        for leaf in &grown {
            if let Err(error) = leaf.grow() {
                tracing::warn!(pool = pool.name(), vdev = leaf.name(), "labels at its new end: {error}");
            }
        }
        let before = pool.normal_bytes()?;
        let tops: Vec<(VdevNumber, u64)> =
            tree.tops().filter_map(|top| Some((top.number(), pool.growth_of(top)?))).collect();
        for &(number, asize) in &tops {
            self.grow_top(number, asize)?;
        }
        if !tops.is_empty() {
            let now = pool.normal_bytes()?;
            let about = format!("pool '{}' size: {now}(+{})", pool.name(), now - before);
            self.log_event("vdev online", &about);
        }
        if grown.is_empty() && tops.is_empty() { Ok(()) } else { self.write_config() }
    }

    /// Lets a top-level vdev grow if it can.
    pub(in crate::live) fn grow_one(&self, number: VdevNumber) -> Result<()> {
        match self.pool.growth_of(self.pool.tree().top(number)?) {
            Some(asize) => self.grow_top(number, asize),
            None => Ok(()),
        }
    }

    /// Gives a top-level vdev more metaslabs.
    fn grow_top(&self, number: VdevNumber, asize: u64) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        let top = pool.tree().top(number)?;
        let before = metaslabs::count(top);
        let spec = top.top_spec().ok_or_else(no_such_device)?;
        let added = (asize >> spec.metaslab_shift) - before;
        // entries that nobody reads, if the vdev does not grow after all
        change.mos.object(spec.metaslab_array)?.write(change.tx, before * 8, &vec![0; added as usize * 8])?;
        pool.tree().edit(Edit::Grow { number, asize }, &HashMap::new())?;
        let top = pool.tree().top(number)?;
        let ranges: Vec<Range<u64>> =
            (before..before + added).map(|metaslab| metaslabs::range(top, metaslab)).collect();
        pool.maps().grow_top(number, &ranges);
        pool.cache().zio().allocator()?.grow_top(number, ranges)?;
        tracing::info!(pool = pool.name(), vdev = top.name(), "it has {added} metaslabs more");
        Ok(())
    }
}
