//! Versions of bytes that several sources hold, each with its own versions: sides of a mirror of
//! which at least one is a raidz.

use std::ops::Range;

use super::{Copy, Source};
use crate::tree::{Tree, VdevId};

/// Several sources of the same range.
pub(super) struct Any {
    range: Range<usize>,
    branches: Vec<Source>,
    /// Versions found so far: number of the branch, and of its version.
    versions: Vec<(usize, usize)>,
    /// For each branch that may have more, in turn: its number, and how many versions were found.
    open: std::collections::VecDeque<(usize, usize)>,
}

impl Any {
    pub(super) fn new(range: Range<usize>, branches: Vec<Source>) -> Any {
        let open = (0..branches.len()).map(|i| (i, 0)).collect();
        Any { range, branches, versions: Vec::new(), open }
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    pub(super) fn copies(&self) -> impl Iterator<Item = &Copy> {
        self.branches.iter().flat_map(Source::copies)
    }

    pub(super) fn fill(&mut self, tree: &Tree, n: usize, out: &mut [u8]) -> bool {
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
    pub(super) fn without(&mut self, _: &Tree, _: &[VdevId]) -> Option<usize> {
        None
    }

    pub(super) fn compare(&self, right: &[u8], f: &mut dyn FnMut(&Copy, &[u8])) {
        self.branches.iter().for_each(|branch| branch.compare(right, f));
    }

    pub(super) fn load_all(&mut self, tree: &Tree) {
        self.branches.iter_mut().for_each(|branch| branch.load_all(tree));
    }
}
