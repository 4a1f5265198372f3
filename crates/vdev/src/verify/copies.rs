//! Versions of bytes of which leaves hold copies: what each leaf returns, equal ones once.

use std::ops::Range;

use base::{CopyKind, count_copy};

use super::copy::{LeafCopy, load};
use crate::tree::Tree;
use crate::vdev::VdevId;

/// A range of an extent on a leaf or a mirror.
pub(super) struct Copies {
    range: Range<usize>,
    /// In the order in which they are tried.
    copies: Vec<LeafCopy>,
    /// How many of them have been tried.
    tried: usize,
    /// Numbers of those that differ from all before them.
    versions: Vec<usize>,
}

impl Copies {
    pub(super) fn new(range: Range<usize>, copies: Vec<LeafCopy>) -> Copies {
        Copies { range, copies, tried: 0, versions: Vec::new() }
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    pub(super) fn copies(&self) -> impl Iterator<Item = &LeafCopy> {
        self.copies.iter()
    }

    pub(super) fn fill(&mut self, tree: &Tree, n: usize, out: &mut [u8]) -> bool {
        while self.versions.len() <= n && self.tried < self.copies.len() {
            let number = self.tried;
            self.tried += 1;
            load(tree, std::iter::once((&mut self.copies[number], self.range.len())));
            let Some(bytes) = self.copies[number].get() else { continue };
            if self.versions.iter().all(|&v| self.copies[v].get() != Some(bytes)) {
                self.versions.push(number);
            }
        }
        let Some(bytes) = self.versions.get(n).and_then(|&v| self.copies[v].get()) else { return false };
        count_copy(CopyKind::FromColumns, bytes.len());
        out.copy_from_slice(bytes);
        true
    }

    pub(super) fn without(&mut self, tree: &Tree, leaves: &[VdevId]) -> Option<usize> {
        let mut scratch = vec![0; self.range.len()];
        for n in 0..self.copies.len() {
            if !self.fill(tree, n, &mut scratch) {
                break;
            }
            if !leaves.contains(&self.copies[self.versions[n]].from.leaf) {
                return Some(n);
            }
        }
        None
    }

    /// All copies, with their sizes.
    pub(super) fn copies_mut(&mut self) -> impl Iterator<Item = (&mut LeafCopy, usize)> {
        self.copies.iter_mut().map(|copy| (copy, self.range.len()))
    }
}
