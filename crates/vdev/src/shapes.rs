//! The shapes that a tree has had since it was opened.
//!
//! ```text
//!   shape 0      ── add a mirror ──▶ shape 1      ── detach a leaf ──▶ shape 2, the latest
//!    root               root                              root
//!     └ leaf a           ├ leaf a                          ├ leaf a
//!                        └ mirror ─ leaves b, c            └ leaf b
//! ```
//!
//! A shape never changes. Whoever has begun with one goes on with it, without a lock, while others use the
//! next: so an id names the shape that it is of. What a vdev is like does change, and belongs to all shapes that
//! it is in ([`Kept`]). Old shapes stay until the pool is closed; each change of the vdevs makes one, and they
//! are small.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Error, Kind as ErrorKind, Mutex, Result, RwLock};
use device::{Device, Slot};

use crate::dtl::TxgRanges;
use crate::health::{Health, HealthCell, Stats};
use crate::spec::{Kind, Spec};
use crate::tree::{Tree, Vdev};

/// Each chunk of shapes is twice as long as the one before.
const CHUNKS: usize = 24;

/// A place for one shape.
type Place = OnceLock<Vec<Vdev>>;

/// See the top of the file.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    chunks: [OnceLock<Box<[Place]>>; CHUNKS],
    latest: AtomicUsize,
}

impl Shapes {
    /// The number of the shape in force; there is one as soon as the tree is open.
    pub(crate) fn latest(&self) -> usize {
        self.latest.load(Ordering::Acquire)
    }

    /// The vdevs of a shape, the root first.
    pub(crate) fn get(&self, number: usize) -> &[Vdev] {
        let (chunk, at) = place_of(number);
        let place = self.chunks[chunk].get().and_then(|chunk| chunk[at].get());
        place.expect("ids are only of shapes that there are")
    }

    /// Puts shape `number` in its place, which is free, and in force.
    pub(crate) fn put(&self, number: usize, vdevs: Vec<Vdev>) {
        let (chunk, at) = place_of(number);
        let places = self.chunks[chunk].get_or_init(|| (0..1 << chunk).map(|_| Place::new()).collect());
        places[at].set(vdevs).expect("one shape is made at a time");
        self.latest.store(number, Ordering::Release);
    }
}

/// The chunk that a shape is in, and where.
fn place_of(number: usize) -> (usize, usize) {
    let chunk = (number + 1).ilog2() as usize;
    (chunk, number + 1 - (1 << chunk))
}

/// What a vdev keeps from one shape to the next.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) device: OnceLock<Slot>,
    pub(crate) health: HealthCell,
    pub(crate) missing: RwLock<TxgRanges>,
    pub(crate) missing_any: AtomicBool,
    /// The transaction groups written since the last flush; `None` if nothing was written.
    pub(crate) unflushed: Mutex<Option<Range<u64>>>,
    pub(crate) stats: Stats,
}

impl Kept {
    /// Of a vdev that is new.
    pub(crate) fn new(health: Health, device: Option<Arc<dyn Device>>) -> Kept {
        Kept {
            device: device.map(|device| OnceLock::from(Slot::new(device))).unwrap_or_default(),
            health: HealthCell::new(health),
            missing: RwLock::default(),
            missing_any: AtomicBool::new(false),
            unflushed: Mutex::default(),
            stats: Stats::default(),
        }
    }
}

impl Tree {
    /// Gives the tree another shape: that of `spec`, which is a root. Vdevs keep what they had by their guid; with
    /// `renamed`, the one whose guid is the second of the pair has had the first one. New leaves have their devices in
    /// `devices`. `allowed` is asked at last, while nobody holds the shape.
    ///
    /// One caller at a time. Errors: as from [`Tree::open`], and [`ErrorKind::Unsupported`] of trees with removed
    /// vdevs or distributed spares; those of `allowed`. Nothing has changed then.
    pub fn reshape(
        &self,
        spec: Spec,
        devices: &HashMap<u64, Arc<dyn Device>>,
        renamed: Option<(u64, u64)>,
        allowed: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        if self.iter().any(|vdev| matches!(vdev.kind(), Kind::Indirect | Kind::DraidSpare { .. })) {
            let what = "the vdevs of a pool with removed devices, or draid vdevs, cannot be changed";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let (guid_before, guid_now) = renamed.unwrap_or_default();
        let kept = |guid: u64| {
            let guid = if guid == guid_now { guid_before } else { guid };
            self.iter().find(|vdev| vdev.guid() == guid && guid != 0).map(Vdev::kept).cloned()
        };
        let number = self.shapes().latest() + 1;
        let vdevs = Tree::build(number, spec, devices, &kept)?;
        // who relies on what it writes with the old shape has to be done
        let _alone = self.changing().write();
        allowed()?;
        self.shapes().put(number, vdevs);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::health::{Aux, State};
    use crate::spec::{LeafSpec, TopSpec};

    #[test]
    fn every_shape_has_a_place_of_its_own() {
        let places: Vec<(usize, usize)> = (0..7).map(place_of).collect();
        assert_eq!(places, [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]);
    }

    fn vdev(kind: Kind, id: u64, guid: u64, children: Vec<Spec>) -> Spec {
        let leaf = kind.is_leaf().then(LeafSpec::default);
        Spec { kind, id, guid, create_txg: 4, top: None, leaf, children }
    }

    fn root(mut top: Spec) -> Spec {
        let measures = Spec::hole(0).top;
        top.top = measures.map(|measures| TopSpec { ashift: 9, ..measures });
        vdev(Kind::Root, 0, 99, vec![top])
    }

    #[test]
    fn a_leaf_keeps_what_it_had_under_another_guid() {
        let sides = vec![vdev(Kind::File, 0, 1, Vec::new()), vdev(Kind::File, 1, 2, Vec::new())];
        let tree = Tree::open(root(vdev(Kind::Mirror, 0, 7, sides)), &HashMap::new()).unwrap();
        let one = tree.leaf(1).unwrap();
        one.stats().read_errors.store(5, Ordering::Relaxed);
        tree.miss(1, 10..12);
        let alone = || root(vdev(Kind::File, 0, 7, Vec::new()));
        let no = || Err(Error::new(ErrorKind::Busy, "no"));
        assert!(tree.reshape(alone(), &HashMap::new(), Some((1, 7)), &no).is_err());
        assert!(tree.leaf(1).is_some() && tree.tops().len() == 1, "nothing has changed");
        tree.reshape(alone(), &HashMap::new(), Some((1, 7)), &|| Ok(())).unwrap();
        let last = tree.leaf(7).unwrap();
        assert_eq!((last.stats().errors(), last.is_missing(11), tree.iter().count()), ([5, 0, 0], true, 2));
        assert!(tree.leaf(1).is_none() && tree.leaf(2).is_none());
        // who has begun with the old shape goes on with it, and both see what happens to the leaf
        assert_eq!(tree.vdev(one.parent().unwrap()).guid(), 7);
        assert_eq!(tree.vdev(one.parent().unwrap()).children().len(), 2);
        tree.set_health(7, Health::new(State::Faulted, Aux::External));
        assert_eq!(tree.health(one.id()).state, State::Faulted);
    }
}
