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
//! Health, counters, dirty time logs and the tables of removed vdevs change behind shared references, so that
//! readers never wait for each other.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use base::{Env, Error, Kind as ErrorKind, Mutex, Result, RwLock, RwLockReadGuard};
use device::meter::{Purpose, Ticket};
use device::{Device, Slot};

use crate::draid::Layout;
use crate::dtl::TxgRanges;
use crate::expansion::{self, Order};
use crate::health::{Aux, Health, State, Stats};
use crate::indirect::{MapEntry, Mapping};
use crate::opened::{Asked, health_at_open};
use crate::raidz::{Geometry, Row};
use crate::shapes::{Kept, Shapes};
use crate::spec::{Kind, LeafSpec, Spec, TopSpec};

/// A vdev of a [`Tree`]: its shape, and the index in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VdevId {
    shape: usize,
    index: usize,
}

/// The vdevs of a pool.
#[derive(Debug)]
pub struct Tree {
    shapes: Shapes,
    /// Held by who changes the shape, and shared by those who need it to stay until they are done.
    changing: RwLock<()>,
    /// Why what was written last may not be there; see [`Tree::flush`].
    pub(crate) unflushable: Mutex<Option<Error>>,
    clock: OnceLock<Env>,
    /// How far an expansion of a raidz has come.
    moved: OnceLock<u64>,
}

/// One vdev of a [`Tree`].
#[derive(Debug)]
pub struct Vdev {
    id: VdevId,
    parent: Option<VdevId>,
    children: Vec<VdevId>,
    /// As configured, without what is below it.
    spec: Spec,
    name: String,
    layout: Place,
    /// Whether it is a raidz or draid, or one is below it.
    has_parity: bool,
    kept: Arc<Kept>,
}

/// How a vdev finds bytes.
#[derive(Debug)]
pub(crate) enum Place {
    /// On its device.
    Device,
    /// The same on each child.
    Copies,
    /// Dealt over the children.
    Raidz(Geometry),
    /// Permuted over the children.
    Draid(Layout),
    /// On the children of that draid.
    DraidSpare {
        /// The draid.
        draid: VdevId,
        /// Which of its spares.
        spare: usize,
    },
    /// On other top-level vdevs; empty until the table has been read.
    Indirect(OnceLock<Mapping>),
    /// Nowhere.
    None,
}

impl Tree {
    /// Opens the vdevs of `spec`, which is a root; `devices` are the leaves' devices by guid.
    ///
    /// A leaf without a device, or with one that cannot be right, is no error but a state. Errors:
    /// [`ErrorKind::Corrupt`] if two leaves have one guid, or a draid or its spare is impossible.
    pub fn open(spec: Spec, devices: &HashMap<u64, Arc<dyn Device>>) -> Result<Tree> {
        if spec.kind != Kind::Root {
            return Err(Error::new(ErrorKind::Invalid, "the tree's outermost vdev is not a root"));
        }
        let tree = Tree {
            shapes: Shapes::default(),
            changing: RwLock::default(),
            unflushable: Mutex::default(),
            clock: OnceLock::new(),
            moved: OnceLock::new(),
        };
        tree.shapes.put(0, Tree::build(0, spec, devices, &|_| None)?);
        Ok(tree)
    }

    /// The vdevs of shape `number`; `kept` tells what those keep that have been there before.
    pub(crate) fn build(
        number: usize,
        spec: Spec,
        devices: &HashMap<u64, Arc<dyn Device>>,
        kept: &dyn Fn(u64) -> Option<Arc<Kept>>,
    ) -> Result<Vec<Vdev>> {
        let mut builder = Builder { shape: number, vdevs: Vec::new(), devices, kept };
        builder.add(spec, None, Asked { ashift: 9, bytes: 0 })?;
        builder.connect_draid_spares()?;
        let mut seen = HashMap::new();
        for leaf in builder.vdevs.iter().filter(|v| v.is_leaf()) {
            if let Some(other) = seen.insert(leaf.guid(), leaf.name()) {
                return Err(Error::corrupt(format!("{other} and {} have the same guid", leaf.name())));
            }
        }
        Ok(builder.vdevs)
    }

    /// Tells how far an expansion has come, as the uberblock does whose state is to be read; once.
    ///
    /// An error of [`ErrorKind::Unsupported`] if that is its first step.
    pub fn set_reflow(&self, reflow: u64) -> Result<()> {
        let _ = self.moved.set(expansion::moved_bytes(reflow)?);
        Ok(())
    }

    /// Times all requests to devices from now on, by the clock of `env`.
    pub fn set_clock(&self, env: &Env) {
        let _ = self.clock.set(env.clone());
    }

    /// For a request to a leaf; `None` as long as there is no clock.
    pub(crate) fn ticket<'a>(&'a self, leaf: &'a Vdev, purpose: Purpose, bytes: usize) -> Option<Ticket<'a>> {
        self.clock.get().map(|env| leaf.stats().meter.ticket(env, purpose, bytes))
    }

    /// The root.
    pub fn root(&self) -> &Vdev {
        &self.now()[0]
    }

    /// The vdevs of the shape in force.
    fn now(&self) -> &[Vdev] {
        self.shapes.get(self.shapes.latest())
    }

    pub(crate) fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    pub(crate) fn changing(&self) -> &RwLock<()> {
        &self.changing
    }

    /// Keeps the shape as it is until this is dropped, for whoever writes something and then relies on where it is.
    /// Not to be asked for twice at a time.
    pub fn hold_shape(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read()
    }

    /// The vdev with that id, which is of this tree.
    pub fn vdev(&self, id: VdevId) -> &Vdev {
        &self.shapes.get(id.shape)[id.index]
    }

    /// All vdevs, each before those below it.
    pub fn iter(&self) -> impl Iterator<Item = &Vdev> {
        self.now().iter()
    }

    /// The top-level vdevs, in the order of their numbers.
    pub fn tops(&self) -> impl ExactSizeIterator<Item = &Vdev> {
        let root = self.root();
        root.children.iter().map(|&id| self.vdev(id))
    }

    /// The top-level vdev with that number; an error of [`ErrorKind::Corrupt`] if there is none.
    pub fn top(&self, number: u64) -> Result<&Vdev> {
        let id = usize::try_from(number).ok().and_then(|n| self.root().children.get(n));
        id.map(|&id| self.vdev(id)).ok_or_else(|| Error::corrupt(format!("there is no vdev {number} in the pool")))
    }

    /// The leaf with that guid.
    pub fn leaf(&self, guid: u64) -> Option<&Vdev> {
        self.iter().find(|v| v.is_leaf() && v.guid() == guid)
    }

    /// Bytes that a block of `size` bytes takes up on top-level vdev `number`, parity and padding
    /// included.
    pub fn asize(&self, number: u64, size: u64) -> Result<u64> {
        let top = self.top(number)?;
        Ok(self.asize_below(top, size).max(size.next_multiple_of(1 << top.ashift())))
    }

    /// Bytes of data that the least that top-level vdev `number` allocates has room for. Errors as of [`Tree::asize`].
    pub fn shortest_block(&self, number: u64) -> Result<u64> {
        let top = self.top(number)?;
        let sectors = if let Kind::Draid(shape) = top.kind() { shape.ndata } else { 1 };
        Ok(sectors << top.ashift())
    }

    /// Bytes of data that `asize` bytes of top-level vdev `number` stand for in all accounts of space:
    /// how much of a block of 128 KiB is not parity or padding there decides. Errors as of
    /// [`Tree::asize`].
    pub fn deflate(&self, number: u64, asize: u64) -> Result<u64> {
        let ratio = (128 << 10) / (self.asize(number, 128 << 10)? >> 9);
        Ok((asize >> 9).saturating_mul(ratio))
    }

    fn asize_below(&self, vdev: &Vdev, size: u64) -> u64 {
        match &vdev.layout {
            // by the width it had at first: accounts of space must not change with an expansion
            Place::Raidz(geometry) => {
                let expansion = vdev.top_spec().and_then(|top| top.expansion.as_ref());
                let width = expansion.and_then(|expansion| expansion.first_width(geometry.width));
                Geometry { width: width.unwrap_or(geometry.width), ..*geometry }.asize(size)
            }
            Place::Draid(layout) => layout.asize(size),
            Place::Copies if vdev.has_parity => {
                vdev.children.iter().map(|&c| self.asize_below(self.vdev(c), size)).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Tells which transaction groups the leaf with that guid has missed. False if there is none.
    pub fn set_missing(&self, guid: u64, txgs: TxgRanges) -> bool {
        let Some(leaf) = self.leaf(guid) else { return false };
        leaf.kept.missing_any.store(!txgs.is_empty(), Ordering::Relaxed);
        *leaf.kept.missing.write() = txgs;
        true
    }

    /// Gives the removed vdev `number` the table of where its contents are, sorted by source.
    ///
    /// Errors: [`ErrorKind::Corrupt`] if the table is impossible, [`ErrorKind::Invalid`] if the
    /// vdev is not a removed one, or has its table.
    pub fn set_indirect(&self, number: u64, entries: Vec<MapEntry>) -> Result<()> {
        let mapping = Mapping::new(number, self.tops().len() as u64, entries)?;
        match &self.top(number)?.layout {
            Place::Indirect(table) => table
                .set(mapping)
                .map_err(|_| Error::new(ErrorKind::Invalid, format!("the removed vdev {number} has its table"))),
            _ => Err(Error::new(ErrorKind::Invalid, format!("vdev {number} has not been removed"))),
        }
    }

    /// Sets the state of a leaf, for what only its label tells. False if there is no such leaf.
    pub fn set_health(&self, guid: u64, health: Health) -> bool {
        let Some(leaf) = self.leaf(guid) else { return false };
        leaf.set_health(health);
        true
    }

    /// The state of a vdev, which for those with others below follows from theirs: a mirror of which one side is
    /// stale ([`Tree::is_stale`]) is degraded.
    pub fn health(&self, id: VdevId) -> Health {
        let vdev = self.vdev(id);
        if vdev.children.is_empty() {
            return vdev.kept.health.get();
        }
        let (mut gone, mut degraded, mut offline, mut corrupt) = (0, 0, 0, false);
        for &child in &vdev.children {
            let (health, child) = (self.health(child), self.vdev(child));
            // what was removed has no say
            if matches!(child.kind(), Kind::Indirect | Kind::Hole) {
                continue;
            }
            offline += usize::from(health.state == State::Offline);
            corrupt |= health.aux == Aux::CorruptData;
            match health.state {
                State::Healthy => degraded += usize::from(self.is_stale(child)),
                State::Degraded => degraded += 1,
                // a pool without its log can be opened, without what is in the log
                _ if vdev.kind() == Kind::Root && child.is_log() => degraded += 1,
                _ => gone += 1,
            }
        }
        let count = vdev.children.len();
        let bearable = match vdev.layout {
            Place::Copies => count - 1,
            Place::Raidz(geometry) => geometry.nparity,
            Place::Draid(ref layout) => layout.nparity(),
            _ => 0,
        };
        match vdev.layout {
            Place::Copies if offline == count => Health::new(State::Offline, Aux::ChildrenOffline),
            _ if gone > bearable && vdev.kind() == Kind::Root && corrupt => {
                Health::new(State::Unavail, Aux::CorruptData)
            }
            _ if gone > bearable => Health::new(State::Unavail, Aux::NoReplicas),
            _ if gone + degraded > 0 => Health::new(State::Degraded, Aux::None),
            _ => Health::HEALTHY,
        }
    }

    /// Whether a leaf that is used lacks what others beside it have: it awaits a resilver. A leaf that is alone, or
    /// is being replaced, has its own state for that.
    pub fn is_stale(&self, vdev: &Vdev) -> bool {
        let has_others = vdev.parent.is_some_and(|parent| {
            matches!(self.vdev(parent).kind(), Kind::Mirror | Kind::Raidz { .. } | Kind::Draid(_))
        });
        vdev.is_leaf() && vdev.is_usable() && vdev.is_missing_something() && has_others
    }

    /// The rows of `size` bytes at `offset` of a raidz or draid that were written in `txg`; and how their
    /// sectors are put into order, if they do not follow each other as the block has them.
    pub(crate) fn rows(&self, vdev: &Vdev, offset: u64, size: usize, txg: u64) -> Result<(Vec<Row>, Option<Order>)> {
        match &vdev.layout {
            Place::Raidz(geometry) => {
                if let Some(expansion) = vdev.top_spec().and_then(|top| top.expansion.as_ref())
                    && let then = expansion.width_at(geometry.width, txg)
                    && then != geometry.width
                {
                    let moved = expansion.is_running.then(|| self.moved.get().copied().unwrap_or(0));
                    let (rows, order) = expansion::map(geometry, then, moved, offset, size)?;
                    return Ok((rows, Some(order)));
                }
                Ok((vec![geometry.map(offset, size)?], None))
            }
            Place::Draid(layout) => Ok((layout.map(offset, size)?, None)),
            _ => unreachable!("{} has no rows", vdev.name),
        }
    }

    pub(crate) fn child(&self, vdev: &Vdev, number: usize) -> &Vdev {
        self.vdev(vdev.children[number])
    }
}

impl Vdev {
    /// Its id in the tree.
    pub fn id(&self) -> VdevId {
        self.id
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.spec.kind
    }

    /// Unique id.
    pub fn guid(&self) -> u64 {
        self.spec.guid
    }

    /// Position among its parent's children; of a top-level vdev, the number that DVAs name.
    pub fn number(&self) -> u64 {
        self.spec.id
    }

    /// The vdev above; none above the root.
    pub fn parent(&self) -> Option<VdevId> {
        self.parent
    }

    /// The vdevs below, in order.
    pub fn children(&self) -> &[VdevId] {
        &self.children
    }

    /// What the configuration says of it; its list of children is empty.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// What a top-level vdev says of its space.
    pub fn top_spec(&self) -> Option<&TopSpec> {
        self.spec.top.as_ref()
    }

    /// What a leaf says of its device.
    pub fn leaf_spec(&self) -> Option<&LeafSpec> {
        self.spec.leaf.as_ref()
    }

    /// Name for messages: of a leaf the path where it was found, or where it was last if it was not
    /// found; type and number of others (`raidz1-0`).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a top-level vdev for the intent log only.
    pub fn is_log(&self) -> bool {
        self.spec.top.as_ref().is_some_and(|top| top.is_log)
    }

    /// Whether it is a leaf.
    pub fn is_leaf(&self) -> bool {
        self.spec.kind.is_leaf()
    }

    /// The device of a leaf, if it has ever been found.
    pub fn device(&self) -> Option<&Slot> {
        self.kept.device.get()
    }

    /// From now on the leaf's device is this one.
    pub(crate) fn set_device(&self, device: Arc<dyn Device>) {
        match self.kept.device.get() {
            Some(slot) => slot.replace(device),
            // who else sets it does so with a device that is as good
            None => drop(self.kept.device.set(Slot::new(device))),
        }
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.kept.stats
    }

    pub(crate) fn kept(&self) -> &Arc<Kept> {
        &self.kept
    }

    /// Whether it lacks blocks born in `txg`.
    pub fn is_missing(&self, txg: u64) -> bool {
        self.kept.missing_any.load(Ordering::Relaxed) && self.kept.missing.read().contains(txg)
    }

    /// Whether it lacks anything.
    fn is_missing_something(&self) -> bool {
        self.kept.missing_any.load(Ordering::Relaxed)
    }

    /// The transaction groups that it has missed.
    pub fn missing(&self) -> TxgRanges {
        self.kept.missing.read().clone()
    }

    /// Whether it lacks blocks born in any of `txgs`.
    pub(crate) fn is_missing_any(&self, txgs: &Range<u64>) -> bool {
        self.kept.missing_any.load(Ordering::Relaxed) && self.kept.missing.read().intersects(txgs)
    }

    /// Notes that it has missed `txgs`.
    pub(crate) fn miss(&self, txgs: Range<u64>) {
        if !txgs.is_empty() {
            self.kept.missing.write().insert(txgs);
            self.kept.missing_any.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that it was written for `txgs`, which may be empty, and needs a flush.
    pub(crate) fn note_written(&self, txgs: Range<u64>) {
        let mut unflushed = self.kept.unflushed.lock();
        *unflushed = Some(match unflushed.take() {
            Some(old) if txgs.is_empty() => old,
            Some(old) if !old.is_empty() => old.start.min(txgs.start)..old.end.max(txgs.end),
            _ => txgs,
        });
    }

    /// The transaction groups that it was written for since they were last taken.
    pub(crate) fn written(&self) -> Option<Range<u64>> {
        self.kept.unflushed.lock().clone()
    }

    /// The transaction groups that it was written for since this was last asked; `None` if it was
    /// not written.
    pub(crate) fn take_written(&self) -> Option<Range<u64>> {
        self.kept.unflushed.lock().take()
    }

    pub(crate) fn place(&self) -> &Place {
        &self.layout
    }

    pub(crate) fn has_parity(&self) -> bool {
        self.has_parity
    }

    /// Binary logarithm of a top-level vdev's sector size.
    pub(crate) fn ashift(&self) -> u32 {
        self.spec.top.as_ref().map_or(9, |top| top.ashift)
    }

    /// The device of a leaf that may be read.
    pub(crate) fn readable_device(&self) -> Option<&dyn Device> {
        self.device().filter(|_| self.is_usable()).map(|slot| slot as &dyn Device)
    }

    pub(crate) fn set_health(&self, health: Health) {
        self.kept.health.set(health);
    }

    /// Whether the state of a leaf allows reads.
    pub(crate) fn is_usable(&self) -> bool {
        self.kept.health.get().is_readable()
    }
}

/// Makes the vdevs of a shape.
struct Builder<'a> {
    shape: usize,
    vdevs: Vec<Vdev>,
    devices: &'a HashMap<u64, Arc<dyn Device>>,
    kept: &'a dyn Fn(u64) -> Option<Arc<Kept>>,
}

impl Builder<'_> {
    fn add(&mut self, mut spec: Spec, parent: Option<VdevId>, above: Asked) -> Result<VdevId> {
        let above = spec.top.as_ref().map_or(above, Asked::top);
        let ashift = above.ashift;
        let below = std::mem::take(&mut spec.children);
        let asked = above.child(spec.kind, below.len());
        let layout = match spec.kind {
            Kind::Disk | Kind::File => Place::Device,
            Kind::Mirror | Kind::Replacing | Kind::Spare => Place::Copies,
            Kind::Raidz { nparity } => Place::Raidz(Geometry { ashift, width: below.len(), nparity }),
            Kind::Draid(shape) => Place::Draid(Layout::new(ashift, shape)?),
            Kind::Indirect => Place::Indirect(OnceLock::new()),
            Kind::Root | Kind::Hole | Kind::Missing | Kind::DraidSpare { .. } => Place::None,
        };
        let device = matches!(layout, Place::Device).then(|| self.devices.get(&spec.guid).cloned()).flatten();
        let kept = (self.kept)(spec.guid);
        let device = kept.as_ref().and_then(|kept| kept.device.get()).map(Slot::now).or(device);
        let id = VdevId { shape: self.shape, index: self.vdevs.len() };
        self.vdevs.push(Vdev {
            id,
            parent,
            children: Vec::with_capacity(below.len()),
            name: device.as_ref().map_or_else(|| name_of(&spec), |device| device.path().to_owned()),
            kept: kept.unwrap_or_else(|| {
                let health = health_at_open(&spec, device.as_deref(), above.bytes);
                Arc::new(Kept::new(health, device))
            }),
            spec,
            has_parity: matches!(layout, Place::Raidz(_) | Place::Draid(_)),
            layout,
        });
        for child in below {
            let child = self.add(child, Some(id), asked)?;
            self.vdevs[id.index].children.push(child);
            self.vdevs[id.index].has_parity |= self.vdevs[child.index].has_parity;
        }
        Ok(id)
    }

    /// Finds the draid of each distributed spare.
    fn connect_draid_spares(&mut self) -> Result<()> {
        for i in 0..self.vdevs.len() {
            let Kind::DraidSpare { draid_guid, spare } = self.vdevs[i].spec.kind else { continue };
            let draid = self.vdevs.iter().find(|v| v.guid() == draid_guid).map(|v| (v.id, &v.layout));
            let Some((draid, Place::Draid(layout))) = draid else {
                return Err(Error::corrupt(format!(
                    "distributed spare of a draid with guid {draid_guid}, which is not there"
                )));
            };
            if spare >= layout.nspares() as u64 {
                return Err(Error::corrupt(format!(
                    "distributed spare {spare} of a draid that has {}",
                    layout.nspares()
                )));
            }
            self.vdevs[i].layout = Place::DraidSpare { draid, spare: spare as usize };
        }
        Ok(())
    }
}

fn name_of(spec: &Spec) -> String {
    let id = spec.id;
    let path = || spec.leaf.as_ref().and_then(|leaf| leaf.path.clone()).unwrap_or_else(|| spec.guid.to_string());
    match spec.kind {
        Kind::Root => "root".to_owned(),
        Kind::Disk | Kind::File | Kind::DraidSpare { .. } => path(),
        Kind::Mirror => format!("mirror-{id}"),
        Kind::Replacing => format!("replacing-{id}"),
        Kind::Spare => format!("spare-{id}"),
        Kind::Raidz { nparity } => format!("raidz{nparity}-{id}"),
        Kind::Draid(shape) => {
            let (nparity, ndata, children, nspares) = (shape.nparity, shape.ndata, shape.children, shape.nspares);
            format!("draid{nparity}:{ndata}d:{children}c:{nspares}s-{id}")
        }
        Kind::Indirect => format!("indirect-{id}"),
        Kind::Hole => format!("hole-{id}"),
        Kind::Missing => format!("missing-{id}"),
    }
}
