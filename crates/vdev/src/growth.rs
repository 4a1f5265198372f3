//! Leaves whose devices have become larger, and what the vdevs above have room for then.
//!
//! ```text
//!   before   | L0 L1 | data          | L2 L3 |
//!   after    | L0 L1 | data            data, of old labels what is left     | L2 L3 |    empty yet
//! ```
//!
//! Until the group is on disk in which a leaf grows, its first two labels are those that count: nobody finds the others
//! where they are to be.

use std::collections::HashMap;

use base::Result;
use format::ids::Txg;

use crate::geometry::{self, leaf_asize};
use crate::label;
use crate::tree::Tree;
use crate::vdev::{LeafVdev, Vdev};

impl LeafVdev<'_> {
    /// Whether its device has more bytes by now than are used.
    pub fn has_grown(self) -> bool {
        let usable = self.usable_device();
        usable.is_some_and(|device| label::end_of(device.look_for_growth()) > label::end_of(device.size()))
    }

    /// From now on all bytes of its device are used. The labels at the new end are empty, whatever was there, until the
    /// configuration is written. Errors: those of writing them; the leaf has grown all the same.
    pub fn grow(self) -> Result<()> {
        let Some(device) = self.usable_device() else { return Ok(()) };
        device.grow();
        self.state().note_written(Txg::ZERO..Txg::ZERO);
        label::initialize_end(device).inspect_err(|error| self.state().charge_write(error))
    }
}

impl Tree {
    /// Bytes of address space that the devices of a top-level vdev have room for, which may be less than it has. `None` if
    /// a device is not used now, so that nothing is known of it; of a vdev that is being removed, or given more children;
    /// and of one that no device is behind.
    pub fn room_of(&self, top: &Vdev) -> Option<u64> {
        let spec = top.top_spec()?;
        let is_changing = spec.removing || spec.is_expanding();
        if !top.kind().is_concrete() || is_changing {
            return None;
        }
        let mut rooms = HashMap::new();
        for leaf in self.leaves_of(top.id()) {
            rooms.insert(leaf.guid(), leaf_asize(leaf.usable_device()?.size()).ok()?);
        }
        geometry::asize(&self.spec(top), &|guid| Ok(rooms.get(&guid).copied().unwrap_or(0))).ok()
    }
}
