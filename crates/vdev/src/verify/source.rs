//! A range of an extent in versions, wherever they come from.

use std::collections::VecDeque;
use std::ops::Range;

use super::copies::Copies;
use super::copy::{LeafCopy, load};
use super::lacking::Lacking;
use super::rows::RowVersions;
use crate::tree::Tree;
use crate::vdev::VdevId;

/// A range of an extent, in versions.
pub(super) enum VersionSource {
    Copies(Copies),
    Row(RowVersions),
    Any(Any),
}

impl VersionSource {
    /// The bytes of the extent that it gives.
    pub(super) fn range(&self) -> Range<usize> {
        match self {
            VersionSource::Copies(s) => s.range(),
            VersionSource::Row(s) => s.range(),
            VersionSource::Any(s) => s.range(),
        }
    }

    /// Puts version `n` into `out`, which is as long as the range; false if there are not so many.
    pub(super) fn fill(&mut self, tree: &Tree, n: usize, out: &mut [u8]) -> bool {
        match self {
            VersionSource::Copies(s) => s.fill(tree, n, out),
            VersionSource::Row(s) => s.fill(tree, n, out),
            VersionSource::Any(s) => s.fill(tree, n, out),
        }
    }

    /// The number of the first version that owes nothing to any of `leaves`, if there is one.
    pub(super) fn without(&mut self, tree: &Tree, leaves: &[VdevId]) -> Option<usize> {
        match self {
            VersionSource::Copies(s) => s.without(tree, leaves),
            VersionSource::Row(s) => s.without(tree, leaves),
            VersionSource::Any(s) => s.without(tree, leaves),
        }
    }

    /// Calls `f` with each copy and the bytes that it should have, by the right bytes of the range.
    pub(super) fn compare(&self, right: &[u8], f: &mut dyn FnMut(&LeafCopy, &[u8])) {
        match self {
            VersionSource::Copies(s) => s.copies().for_each(|copy| f(copy, right)),
            VersionSource::Row(s) => s.compare(right, f),
            VersionSource::Any(s) => s.compare(right, f),
        }
    }

    /// Reads all copies that have not been read, but for those that a resilver only writes to.
    pub(super) fn load_all(&mut self, tree: &Tree, lacking: Lacking) {
        load(tree, self.copies_mut().filter(|(copy, _)| copy.is_worth_reading(lacking)));
    }

    /// All copies, with their sizes.
    pub(super) fn copies_mut(&mut self) -> Box<dyn Iterator<Item = (&mut LeafCopy, usize)> + '_> {
        match self {
            VersionSource::Copies(s) => Box::new(s.copies_mut()),
            VersionSource::Row(s) => Box::new(s.copies_mut()),
            VersionSource::Any(s) => Box::new(s.branches.iter_mut().flat_map(VersionSource::copies_mut)),
        }
    }

    pub(super) fn copies(&self) -> Box<dyn Iterator<Item = &LeafCopy> + '_> {
        match self {
            VersionSource::Copies(s) => Box::new(s.copies()),
            VersionSource::Row(s) => Box::new(s.copies()),
            VersionSource::Any(s) => Box::new(s.copies()),
        }
    }

    /// The leaves that were read.
    pub(super) fn tried(&self) -> impl Iterator<Item = VdevId> {
        self.copies().filter(|copy| !copy.is_unread()).map(|copy| copy.from.leaf)
    }
}

/// Several sources of the same range, each with its own versions: sides of a mirror of which at least one is a raidz.
pub(super) struct Any {
    range: Range<usize>,
    branches: Vec<VersionSource>,
    /// Versions found so far: number of the branch, and of its version.
    versions: Vec<(usize, usize)>,
    /// For each branch that may have more, in turn: its number, and how many versions were found.
    open: VecDeque<(usize, usize)>,
}

impl Any {
    pub(super) fn new(range: Range<usize>, branches: Vec<VersionSource>) -> Any {
        let open = (0..branches.len()).map(|i| (i, 0)).collect();
        Any { range, branches, versions: Vec::new(), open }
    }

    fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    fn copies(&self) -> impl Iterator<Item = &LeafCopy> {
        self.branches.iter().flat_map(VersionSource::copies)
    }

    fn fill(&mut self, tree: &Tree, n: usize, out: &mut [u8]) -> bool {
        while self.versions.len() <= n {
            let Some((branch, next)) = self.open.pop_front() else { return false };
            if self.branches[branch].fill(tree, next, out) {
                self.versions.push((branch, next));
                self.open.push_back((branch, next + 1));
            }
        }
        let (branch, version) = self.versions[n];
        self.branches[branch].fill(tree, version, out)
    }

    /// Not worth the search: vdevs are not removed from pools with parity, so there are never many
    /// sources of this kind in a block.
    fn without(&mut self, _: &Tree, _: &[VdevId]) -> Option<usize> {
        None
    }

    fn compare(&self, right: &[u8], f: &mut dyn FnMut(&LeafCopy, &[u8])) {
        self.branches.iter().for_each(|branch| branch.compare(right, f));
    }
}
