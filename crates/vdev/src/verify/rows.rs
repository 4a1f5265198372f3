//! Versions of a row of a raidz or draid.
//!
//! A *view* picks, for each column, one of the copies that leaves returned for it: mostly there is
//! one. Within a view, a *way* declares some data columns lost, those that could not be read among
//! them, and rebuilds them from as many of the parity columns. With parity level 2 and both parity
//! columns there, the ways are: nothing lost; D0 from P, D0 from Q, D1 from P, ...; D0 and D1 from
//! both, D0 and D2, ... So any set of wrong columns, parity included, that is no larger than the
//! parity level has a way that uses none of them.
//!
//! Ways that lose fewer columns come first, and among them those that lose columns of leaves that
//! have had checksum errors before: one bad disk is found out once, and guessed right thereafter.
//!
//! The first view is of copies without blemish; the second, of every column that can be had at
//! all, stale ones too; the rest exchange one column for another copy of it, where a spare or a
//! replacement holds one.

use std::ops::Range;
use std::sync::atomic::Ordering;

use base::{CopyKind, count_copy};

use super::copy::{LeafCopy, load};
use crate::raidz::{Row, split_columns};
use crate::tree::Tree;
use crate::vdev::VdevId;

/// Ways of one view at most.
const WAYS_MAX: usize = 1 << 16;

/// A row, what leaves return for its columns, and the ways to make sense of that.
pub(super) struct RowVersions {
    row: Row,
    /// The row's bytes of the extent.
    range: Range<usize>,
    /// For each column, parity first, its copies in the order in which they are tried.
    cells: Vec<Vec<LeafCopy>>,
    views: Vec<View>,
    ways: Vec<Way>,
    /// How many views have been turned into ways.
    expanded: usize,
    /// Whether all copies have been read.
    exhausted: bool,
}

/// For each column, which of its copies is used; none if it is lost. Empty columns are never lost.
type View = Vec<Option<usize>>;

/// A set of data columns to be rebuilt from a set of parity columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    view: usize,
    lost: Lost,
    /// Bit *n*: parity column *n* is used.
    parity: u8,
}

/// Up to three numbers of data columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lost {
    numbers: [u8; 3],
    count: u8,
}

impl Lost {
    fn with(mut self, number: usize) -> Lost {
        self.numbers[usize::from(self.count)] = number as u8;
        self.count += 1;
        self
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.numbers[..usize::from(self.count)].iter().map(|&n| usize::from(n))
    }
}

impl RowVersions {
    /// `base` is the offset in the extent of the block that the row is of.
    pub(super) fn new(row: Row, base: usize, cells: Vec<Vec<LeafCopy>>) -> RowVersions {
        let start = base + row.start;
        let range = start..start + row.len();
        RowVersions { row, range, cells, views: Vec::new(), ways: Vec::new(), expanded: 0, exhausted: false }
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    pub(super) fn copies(&self) -> impl Iterator<Item = &LeafCopy> {
        self.cells.iter().flatten()
    }

    pub(super) fn fill(&mut self, tree: &Tree, n: usize, out: &mut [u8]) -> bool {
        while self.ways.len() <= n {
            if !self.more(tree) {
                return false;
            }
        }
        let way = self.ways[n];
        let view = &self.views[way.view];
        let nparity = self.row.nparity;
        let mut columns = split_columns(&self.row, out);
        for (number, column) in columns.iter_mut().enumerate() {
            if let Some(bytes) = self.bytes(view, nparity + number) {
                count_copy(CopyKind::FromColumns, bytes.len());
                column.copy_from_slice(bytes);
            }
        }
        let parity: Vec<Option<&[u8]>> =
            (0..nparity).map(|p| self.bytes(view, p).filter(|_| way.parity >> p & 1 == 1)).collect();
        let lost: Vec<usize> = way.lost.iter().collect();
        codec::parity::reconstruct(&mut columns, &lost, &parity).expect("a way has as much parity as it loses");
        true
    }

    pub(super) fn without(&mut self, tree: &Tree, leaves: &[VdevId]) -> Option<usize> {
        while self.expanded == 0 {
            if !self.more(tree) {
                return None;
            }
        }
        let nparity = self.row.nparity;
        let used =
            |column: &usize| self.views[0][*column].is_some_and(|i| leaves.contains(&self.cells[*column][i].from.leaf));
        let parity = (0..nparity).filter(used).fold(0u8, |set, p| set | 1 << p);
        let data: Vec<usize> = (nparity..self.cells.len()).filter(used).map(|column| column - nparity).collect();
        let innocent = |way: &Way| {
            way.view == 0 && way.parity & parity == 0 && data.iter().all(|&n| way.lost.iter().any(|lost| lost == n))
        };
        self.ways.iter().position(innocent)
    }

    pub(super) fn compare(&self, right: &[u8], f: &mut dyn FnMut(&LeafCopy, &[u8])) {
        let (parity, columns) = columns_of(&self.row, right);
        let all = parity.iter().map(Vec::as_slice).chain(columns);
        for (cell, right) in self.cells.iter().zip(all) {
            cell.iter().for_each(|copy| f(copy, right));
        }
    }

    fn bytes(&self, view: &View, column: usize) -> Option<&[u8]> {
        self.cells[column][view[column]?].get()
    }

    fn is_empty_column(&self, column: usize) -> bool {
        self.row.columns[column].size == 0
    }

    /// Turns the next view into ways, reading what it takes; false if there is no other view.
    fn more(&mut self, tree: &Tree) -> bool {
        if self.views.is_empty() {
            self.read_trusted(tree);
            self.views.push(self.view_of(|copy| copy.from.trusted));
        } else if self.expanded == self.views.len() {
            if self.exhausted {
                return false;
            }
            self.exhausted = true;
            load(tree, self.copies_mut());
            self.add_other_views();
            if self.expanded == self.views.len() {
                return false;
            }
        }
        let view = self.expanded;
        self.expanded += 1;
        self.add_ways(tree, view);
        true
    }

    /// Reads of every column copies that have missed nothing, until one succeeds.
    fn read_trusted(&mut self, tree: &Tree) {
        loop {
            let mut next: Vec<(&mut LeafCopy, usize)> = Vec::new();
            for (column, cell) in self.cells.iter_mut().enumerate() {
                let wanted = self.row.columns[column].size > 0 && cell.iter().all(|copy| copy.get().is_none());
                let unread = |copy: &&mut LeafCopy| copy.from.trusted && copy.is_unread();
                let size = self.row.columns[column].size;
                next.extend(cell.iter_mut().find(unread).filter(|_| wanted).map(|copy| (copy, size)));
            }
            if next.is_empty() {
                return;
            }
            load(tree, next.into_iter());
        }
    }

    /// The copies of all columns that there are, with their sizes.
    pub(super) fn copies_mut(&mut self) -> impl Iterator<Item = (&mut LeafCopy, usize)> {
        let cells = self.cells.iter_mut().zip(&self.row.columns).filter(|(_, column)| column.size > 0);
        cells.flat_map(|(cell, column)| cell.iter_mut().map(move |copy| (copy, column.size)))
    }

    /// The first copy of each column that was read and that `fits`.
    fn view_of(&self, fits: impl Fn(&LeafCopy) -> bool) -> View {
        self.cells.iter().map(|cell| cell.iter().position(|copy| copy.get().is_some() && fits(copy))).collect()
    }

    /// When all copies have been read: the views beside the first.
    fn add_other_views(&mut self) {
        let best = self.view_of(|_| true);
        if best != self.views[0] {
            self.views.push(best.clone());
        }
        for (column, cell) in self.cells.iter().enumerate() {
            let mut seen = vec![best[column].and_then(|i| cell[i].get())];
            for (i, copy) in cell.iter().enumerate().filter(|(_, copy)| copy.get().is_some()) {
                if !seen.contains(&copy.get()) {
                    seen.push(copy.get());
                    let mut view = best.clone();
                    view[column] = Some(i);
                    self.views.push(view);
                }
            }
        }
    }

    fn add_ways(&mut self, tree: &Tree, view: usize) {
        let nparity = self.row.nparity;
        let chosen = &self.views[view];
        let there = (0..nparity).filter(|&p| chosen[p].is_some()).fold(0u8, |set, p| set | 1 << p);
        let (mut must, mut may) = (Vec::new(), Vec::new());
        for column in (nparity..self.cells.len()).filter(|&column| !self.is_empty_column(column)) {
            match chosen[column] {
                None => must.push(column - nparity),
                Some(i) => {
                    let stats = tree.vdev(self.cells[column][i].from.charged()).stats();
                    may.push((stats.checksum_errors.load(Ordering::Relaxed), column - nparity));
                }
            }
        }
        let available = there.count_ones() as usize;
        if must.len() > available {
            return;
        }
        let must = must.into_iter().fold(Lost::default(), Lost::with);
        may.sort_by_key(|&(errors, _)| std::cmp::Reverse(errors));
        let may: Vec<usize> = may.into_iter().map(|(_, number)| number).collect();
        let limit = self.ways.len() + WAYS_MAX;
        for count in usize::from(must.count)..=available {
            let parities: Vec<u8> =
                (0..8).filter(|&set: &u8| set & !there == 0 && set.count_ones() as usize == count).collect();
            for_each_superset(must, &may, count, &mut |lost| {
                self.ways.extend(parities.iter().map(|&parity| Way { view, lost, parity }));
                self.ways.len() < limit
            });
        }
    }
}

/// What the parity columns and the data columns of a row have, whose data begin with the first byte of `data`.
pub(super) fn columns_of<'a>(row: &Row, data: &'a [u8]) -> (Vec<Vec<u8>>, Vec<&'a [u8]>) {
    let mut rest = data;
    let mut columns = Vec::with_capacity(row.data().len());
    for column in row.data() {
        let (bytes, tail) = rest.split_at(column.size);
        columns.push(bytes);
        rest = tail;
    }
    let mut parity = vec![vec![0; row.columns[0].size]; row.nparity];
    codec::parity::generate(&columns, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    (parity, columns)
}

/// Calls `f` with `lost` completed from `may` to `count` numbers, in every way, until it says false.
fn for_each_superset(lost: Lost, may: &[usize], count: usize, f: &mut dyn FnMut(Lost) -> bool) -> bool {
    if usize::from(lost.count) == count {
        return f(lost);
    }
    (0..may.len()).all(|i| for_each_superset(lost.with(may[i]), &may[i + 1..], count, f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supersets_are_complete_and_different() {
        let must = Lost::default().with(9);
        for count in 1..=3 {
            let mut all = Vec::new();
            for_each_superset(must, &[5, 3, 1, 0], count, &mut |lost| {
                let mut numbers: Vec<usize> = lost.iter().collect();
                numbers.sort_unstable();
                all.push(numbers);
                true
            });
            assert_eq!(all.len(), [1, 4, 6][count - 1]);
            assert!(all.iter().all(|numbers| numbers.len() == count && numbers.contains(&9)));
            all.sort();
            all.dedup();
            assert_eq!(all.len(), [1, 4, 6][count - 1]);
        }
        let mut calls = 0;
        for_each_superset(Lost::default(), &[0, 1, 2], 2, &mut |_| {
            calls += 1;
            false
        });
        assert_eq!(calls, 1);
    }
}
