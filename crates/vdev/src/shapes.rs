//! The shapes that a tree has had since it was opened.
//!
//! ```text
//!   shape 0      ── add a mirror ──▶ shape 1      ── detach a leaf ──▶ shape 2, the latest
//!    root               root                              root
//!     └ leaf a           ├ leaf a                          ├ leaf a
//!                        └ mirror ─ leaves b, c            └ leaf b
//! ```
//!
//! A shape never changes. What has begun with one goes on with it, without a lock, while others use the
//! next: so an id names the shape that it is of. What a vdev is like does change, and belongs to all shapes that
//! it is in ([`crate::leaf_state`]). Old shapes stay until the pool is closed; each change of the vdevs makes one, and they
//! are small.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::vdev::{Vdev, VdevId};

/// Each chunk of shapes is twice as long as the one before.
const CHUNKS: usize = 24;

/// A place for one shape.
type ShapeCell = OnceLock<Vec<Vdev>>;

/// See the top of the file.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    chunks: [OnceLock<Box<[ShapeCell]>>; CHUNKS],
    latest: AtomicUsize,
    /// Held while the shape is changed, and shared by those that need it to stay until they are done.
    changing: RwLock<()>,
}

impl Shapes {
    /// The number of the shape in force; there is one as soon as the tree is open.
    pub(crate) fn latest(&self) -> usize {
        self.latest.load(Ordering::Acquire)
    }

    /// Keeps the shape as it is.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read()
    }

    /// Waits until nobody holds the shape, and lets nobody hold it.
    pub(crate) fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.changing.write()
    }

    /// The vdev with that id.
    pub(crate) fn vdev(&self, id: VdevId) -> &Vdev {
        &self.get(id.shape)[id.index]
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
        let places = self.chunks[chunk].get_or_init(|| (0..1 << chunk).map(|_| ShapeCell::new()).collect());
        places[at].set(vdevs).expect("one shape is made at a time");
        self.latest.store(number, Ordering::Release);
    }
}

/// The chunk that a shape is in, and where.
fn place_of(number: usize) -> (usize, usize) {
    let chunk = (number + 1).ilog2() as usize;
    (chunk, number + 1 - (1 << chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_a_place_of_its_own() {
        let places: Vec<(usize, usize)> = (0..7).map(place_of).collect();
        assert_eq!(places, [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]);
    }
}
