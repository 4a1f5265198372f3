//! The labels of all leaves of a pool.
//!
//! Nothing here flushes. A change of a pool's labels keeps one pair whole at all times:
//!
//! ```text
//!   write labels 0 and 2, flush │ write uberblocks, flush │ write labels 1 and 3, flush
//! ```
//!
//! A cut in front of the uberblocks leaves labels 1 and 3 as they were, and one behind them leaves
//! labels 0 and 2 as they are to be.

use base::{Error, Kind as ErrorKind, Result};
use device::meter::Purpose;
use device::{Device, Write, write_batch};
use format::ids::{Guid, Txg};
use format::uberblock::Uberblock;

use crate::label::{self, LabelPart, config_parts, naming, read_label, slot_count, uberblock_parts};
use crate::tree::Tree;
use crate::vdev::{LeafVdev, Vdev};

impl Tree {
    /// Writes the uberblock into its slot of all labels of all leaves, log devices among them.
    ///
    /// `Ok` if at least one copy was written elsewhere than on a log device. Leaves that fail have their errors counted. Errors:
    /// that of a leaf, or [`ErrorKind::Missing`] if there is none to write to.
    pub fn write_uberblock(&self, uberblock: &Uberblock) -> Result<()> {
        let (good, error) = self.write_parts(&|leaf, ashift| uberblock_parts(device_of(leaf), uberblock, ashift))?;
        if self.tops().zip(good).any(|(top, good)| good > 0 && !top.is_log()) {
            return Ok(());
        }
        Err(error.unwrap_or_else(|| Error::new(ErrorKind::Missing, "no device is there for the uberblock")))
    }

    /// Writes the uberblock into the slot of label `number` (0 to 3) of a leaf that is kept for heartbeats. Its errors
    /// are not counted. Errors: those of the device; [`ErrorKind::Missing`] if the leaf is not there.
    pub fn write_heartbeat(&self, guid: Guid, number: usize, uberblock: &Uberblock) -> Result<()> {
        let (device, ashift) = self.heart_of(guid)?;
        label::write_heartbeat(device, number, uberblock, ashift)
    }

    /// The uberblock in that slot now; `None` if there is none.
    pub fn read_heartbeat(&self, guid: Guid, number: usize) -> Result<Option<Uberblock>> {
        let (device, ashift) = self.heart_of(guid)?;
        let label = read_label(device, number)?;
        let last = label.uberblocks(ashift).find(|slot| slot.slot + 1 == slot_count(ashift));
        Ok(last.and_then(|slot| Uberblock::parse(slot.bytes.ok()?).ok().flatten()))
    }

    /// The device of a leaf that takes heartbeats, and the ashift of its labels.
    fn heart_of(&self, guid: Guid) -> Result<(&dyn Device, u32)> {
        let leaf = self.leaf(guid).map(LeafVdev::vdev);
        let found = leaf.and_then(|leaf| Some((leaf.usable_device()?, self.top_of(leaf).ashift())));
        found.ok_or_else(|| Error::new(ErrorKind::Missing, "the device is not there"))
    }

    /// Guids of the leaves that take heartbeats.
    pub fn hearts(&self) -> Vec<Guid> {
        self.leaves().filter(|leaf| leaf.usable_device().is_some()).map(|leaf| leaf.guid()).collect()
    }

    /// Writes its configuration, an XDR list that `config_of` makes, into those labels of `which` (0
    /// to 3) on every leaf, log devices among them.
    ///
    /// `Ok` if at least one label of every top-level vdev, those for the log aside, was written.
    /// Leaves that fail have their errors counted. Errors: that of a leaf; [`ErrorKind::Missing`] if
    /// a top-level vdev has no leaf to write to; [`ErrorKind::TooBig`] if a configuration does not
    /// fit, and nothing has been written then.
    pub fn write_labels(&self, which: &[usize], config_of: &dyn Fn(&Vdev) -> Vec<u8>) -> Result<()> {
        let (good, error) =
            self.write_parts(&|leaf, _| config_parts(device_of(leaf), which, &config_of(leaf.vdev())))?;
        let matters = |top: &Vdev| top.kind().is_concrete() && !top.is_log();
        match self.tops().zip(good).find(|(top, good)| matters(top) && *good == 0) {
            None => Ok(()),
            Some((top, _)) => {
                let missing = || Error::new(ErrorKind::Missing, "no device is there for the label").at_vdev(top.name());
                Err(error.unwrap_or_else(missing))
            }
        }
    }

    /// Writes the parts that `parts_of` makes for each leaf that is there, given the ashift of its
    /// top-level vdev, all at once. How many were written on each top-level vdev, and the first error.
    fn write_parts(
        &self,
        parts_of: &dyn Fn(LeafVdev<'_>, u32) -> Result<Vec<LabelPart>>,
    ) -> Result<(Vec<usize>, Option<Error>)> {
        let mut all: Vec<(usize, LeafVdev<'_>, LabelPart)> = Vec::new();
        for (number, top) in self.tops().enumerate() {
            for leaf in self.leaves_of(top.id()).into_iter().filter(|leaf| leaf.usable_device().is_some()) {
                let parts = parts_of(leaf, top.ashift())?;
                all.extend(parts.into_iter().map(|part| (number, leaf, part)));
            }
        }
        let writes =
            all.iter().map(|(_, leaf, part)| self.write_of(leaf.id(), part.offset, &part.bytes, Purpose::SyncWrite));
        let mut writes: Vec<Write<'_>> = writes.collect();
        write_batch(&mut writes);
        let (mut good, mut error) = (vec![0; self.tops().len()], None);
        for (write, (number, leaf, part)) in writes.into_iter().zip(&all) {
            match write.result {
                Ok(()) => {
                    good[*number] += 1;
                    leaf.state().note_written(Txg::ZERO..Txg::ZERO);
                }
                Err(e) => {
                    leaf.state().charge_write(&e);
                    error = error.or(Some(naming(e, part)));
                }
            }
        }
        Ok((good, error))
    }
}

fn device_of(leaf: LeafVdev<'_>) -> &dyn Device {
    leaf.state().device().expect("only leaves with a device are written")
}
