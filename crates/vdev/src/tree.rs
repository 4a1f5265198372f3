//! The vdevs of an open pool.
//!
//! ```text
//!   root
//!    ├── 0 mirror ──┬── disk ── device         DVAs name a top-level vdev (0, 1, 2) and an offset;
//!    │              └── disk ── device         `read` turns that into reads of leaves
//!    ├── 1 raidz ───┬── disk ── device
//!    │              ├── replacing ─┬── disk ── (missing)
//!    │              │              └── disk ── device
//!    │              └── disk ── device
//!    └── 2 indirect ── table ──> 0, 1
//! ```
//!
//! All vdevs of a shape of the tree are in one array, and refer to each other by their index, [`VdevId`]. A
//! shape is fixed; when vdevs are added or go, the tree has another one from then on ([`crate::shapes`]).
//! What changes of a vdev ([`crate::leaf_state`]), and the tables of removed vdevs, does so behind shared references:
//! readers never wait for each other.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use base::{Env, Error, Kind as ErrorKind, Mutex, Result, RwLockReadGuard};
use device::Device;
use device::meter::{Purpose, Ticket};
use format::ids::{Guid, VdevNumber};

use crate::builder::{self, PlannedVdev};
use crate::expansion::ReflowState;
use crate::indirect::{MapEntry, Mapping, MappingTable, TopRange};
use crate::leaf_state::LeafState;
use crate::lost_writes::LostWrites;
use crate::opened::Asked;
use crate::shapes::Shapes;
use crate::spec::{VdevKind, VdevSpec};
use crate::vdev::{LeafVdev, Placement, Vdev, VdevId};

/// The vdevs of a pool.
#[derive(Debug)]
pub struct Tree {
    shapes: Shapes,
    lost_writes: LostWrites,
    clock: OnceLock<Env>,
    /// How far a running expansion of a raidz has come.
    reflow: Mutex<ReflowState>,
}

impl Tree {
    /// Opens the vdevs of `spec`, which is a root; `devices` are the leaves' devices by guid.
    ///
    /// A leaf without a device, or with one that cannot be right, is no error but a state. Errors:
    /// [`ErrorKind::Corrupt`] if two leaves have one guid, or a draid or its spare is impossible.
    pub fn open(spec: VdevSpec, devices: &HashMap<Guid, Arc<dyn Device>>) -> Result<Tree> {
        if spec.kind != VdevKind::Root {
            return Err(Error::new(ErrorKind::Invalid, "the tree's outermost vdev is not a root"));
        }
        let shapes = Shapes::default();
        shapes.put(0, builder::build(0, PlannedVdev::new(spec), devices)?);
        let (lost_writes, clock, reflow) = Default::default();
        Ok(Tree { shapes, lost_writes, clock, reflow })
    }

    /// How far a running expansion of a raidz has come.
    pub(crate) fn reflow_state(&self) -> ReflowState {
        *self.reflow.lock()
    }

    pub(crate) fn set_reflow_state(&self, state: ReflowState) {
        *self.reflow.lock() = state;
    }

    /// Times all requests to devices from now on, by the clock of `env`.
    pub fn set_clock(&self, env: &Env) {
        let _ = self.clock.set(env.clone());
    }

    /// `None` as long as there is no clock.
    pub(crate) fn env(&self) -> Option<&Env> {
        self.clock.get()
    }

    /// For a request to a leaf; `None` as long as there is no clock.
    pub(crate) fn ticket<'a>(&'a self, leaf: &'a LeafState, purpose: Purpose, bytes: usize) -> Option<Ticket<'a>> {
        self.clock.get().map(|env| leaf.stats().meter.ticket(env, purpose, bytes))
    }

    pub(crate) fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    pub(crate) fn lost_writes(&self) -> &LostWrites {
        &self.lost_writes
    }

    /// Keeps the shape as it is until this is dropped, for a writer that then relies on where things are.
    /// Not to be asked for twice at a time.
    pub fn hold_shape(&self) -> RwLockReadGuard<'_, ()> {
        self.shapes.hold()
    }

    /// All vdevs, each before those below it.
    pub fn iter(&self) -> impl Iterator<Item = &Vdev> {
        self.shapes.get(self.shapes.latest()).iter()
    }

    /// All leaves.
    pub fn leaves(&self) -> impl Iterator<Item = LeafVdev<'_>> {
        self.iter().filter_map(Vdev::as_leaf)
    }

    /// The root.
    pub fn root(&self) -> &Vdev {
        &self.shapes.get(self.shapes.latest())[0]
    }

    /// The top-level vdevs, in the order of their numbers.
    pub fn tops(&self) -> impl ExactSizeIterator<Item = &Vdev> {
        self.root().children().iter().map(|&id| self.vdev(id))
    }

    /// The top-level vdev with that number; an error of [`ErrorKind::Corrupt`] if there is none.
    pub fn top(&self, number: VdevNumber) -> Result<&Vdev> {
        let id = self.root().children().get(number.index());
        id.map(|&id| self.vdev(id)).ok_or_else(|| Error::corrupt(format!("there is no vdev {number} in the pool")))
    }

    /// The leaf with that guid.
    pub fn leaf(&self, guid: Guid) -> Option<LeafVdev<'_>> {
        self.leaves().find(|leaf| leaf.guid() == guid)
    }

    /// The vdev with that id, which is of this tree.
    pub fn vdev(&self, id: VdevId) -> &Vdev {
        self.shapes.vdev(id)
    }

    /// The record of a vdev that is a leaf.
    pub(crate) fn state_of(&self, leaf: VdevId) -> &LeafState {
        self.vdev(leaf).leaf_state().expect("only leaves are read and written")
    }

    /// A vdev's child of that number.
    pub(crate) fn child(&self, vdev: &Vdev, number: usize) -> &Vdev {
        self.vdev(vdev.children()[number])
    }

    /// The leaves below a vdev, or itself.
    pub fn leaves_of(&self, id: VdevId) -> Vec<LeafVdev<'_>> {
        let vdev = self.vdev(id);
        match vdev.as_leaf() {
            Some(leaf) => vec![leaf],
            None => vdev.children().iter().flat_map(|&child| self.leaves_of(child)).collect(),
        }
    }

    /// The top-level vdev that a vdev below the root is, or is below.
    pub fn top_of<'a>(&'a self, vdev: &'a Vdev) -> &'a Vdev {
        let mut top = vdev;
        while let Some(parent) = top.parent().map(|id| self.vdev(id)).filter(|parent| parent.parent().is_some()) {
            top = parent;
        }
        top
    }

    /// Bytes behind the labels that a device must have to stand in the place of a leaf.
    pub fn least_asize(&self, leaf: LeafVdev<'_>) -> u64 {
        let mut above = Vec::new();
        let mut next = leaf.parent();
        while let Some(vdev) = next.map(|id| self.vdev(id)).filter(|vdev| vdev.parent().is_some()) {
            above.push(vdev);
            next = vdev.parent();
        }
        let top =
            self.top_of(leaf.vdev()).top_spec().map_or(Asked { ashift: 9, bytes: 0, new_children: 0 }, Asked::top);
        above.iter().rev().fold(top, |asked, vdev| asked.child(vdev.kind(), vdev.children().len())).bytes
    }

    /// Where what was on a removed vdev is now; `None` of a vdev that was not removed. Errors: `NotFound` if there is no
    /// such vdev; `Corrupt` if its table has not all of that.
    pub fn moved(&self, TopRange { top, range }: &TopRange) -> Result<Option<Vec<TopRange>>> {
        let Placement::Indirect(table) = self.top(*top)?.place() else { return Ok(None) };
        let unread = || Error::corrupt(format!("the table of the removed vdev {top} is not read"));
        let table = table.get().ok_or_else(unread)?;
        Ok(Some(table.places(range.clone())?))
    }

    /// Of a range of a vdev that is being removed the part of which there are copies, and where these are; `None` if
    /// there is no such part. Errors: as from [`Tree::moved`].
    pub fn moved_so_far(&self, TopRange { top, range }: &TopRange) -> Result<Option<(TopRange, Vec<TopRange>)>> {
        let Some(table) = self.top(*top)?.moving().and_then(MappingTable::get) else { return Ok(None) };
        let part = range.start..range.end.min(table.end());
        if part.is_empty() {
            return Ok(None);
        }
        let places = table.places(part.clone())?;
        Ok(Some((TopRange { top: *top, range: part }, places)))
    }

    /// Where the copies end of what is on a vdev that is being removed; `None` if it is not being removed.
    pub fn moved_end(&self, top: VdevNumber) -> Option<u64> {
        Some(self.top(top).ok()?.moving()?.get().map_or(0, |table| table.end()))
    }

    /// Notes more copies of what is on a vdev that is being removed, behind the others. Errors: `Invalid` if it is not;
    /// `Corrupt` if entries are impossible, with nothing changed.
    pub fn note_moved(&self, number: VdevNumber, entries: &[MapEntry]) -> Result<()> {
        match self.top(number)?.moving() {
            Some(table) => table.extend(number, self.tops().len(), entries),
            None => Err(Error::new(ErrorKind::Invalid, format!("vdev {number} is not being removed"))),
        }
    }

    /// Gives the removed vdev `number` a table that leads from less to the same places. Errors: as from
    /// [`Tree::set_indirect`].
    pub fn condense_indirect(&self, number: VdevNumber, entries: Vec<MapEntry>) -> Result<()> {
        let mapping = Mapping::new(number, self.tops().len(), entries)?;
        match self.top(number)?.place() {
            Placement::Indirect(table) => {
                table.replace(mapping);
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Invalid, format!("vdev {number} has not been removed"))),
        }
    }

    /// Gives the vdev `number`, which was removed or is being removed, the table of where its contents are, sorted by source.
    ///
    /// Errors: [`ErrorKind::Corrupt`] if the table is impossible, [`ErrorKind::Invalid`] if the
    /// vdev is not a removed one, or has its table.
    pub fn set_indirect(&self, number: VdevNumber, entries: Vec<MapEntry>) -> Result<()> {
        let mapping = Mapping::new(number, self.tops().len(), entries)?;
        let top = self.top(number)?;
        let table = match top.place() {
            Placement::Indirect(table) => table,
            _ => top
                .moving()
                .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("vdev {number} has not been removed")))?,
        };
        if table.get().is_some() {
            return Err(Error::new(ErrorKind::Invalid, format!("the removed vdev {number} has its table")));
        }
        table.replace(mapping);
        Ok(())
    }

    /// Sets the error counts of a vdev and all below it to 0.
    pub fn clear_errors(&self, id: VdevId) {
        let vdev = self.vdev(id);
        match vdev.leaf_state() {
            Some(leaf) => leaf.clear_errors(),
            None => vdev.stats().clear_errors(),
        }
        vdev.children().iter().for_each(|&child| self.clear_errors(child));
    }
}
