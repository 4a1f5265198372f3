//! The order in which combinations of versions are tried.

use base::{Error, Kind as ErrorKind, Result};

use super::source::VersionSource;
use crate::locate::nothing_left;
use crate::tree::Tree;
use crate::vdev::VdevId;

/// Combinations tried at most, for small blocks.
const ATTEMPTS_MAX: usize = 1 << 16;
/// Combinations that are always allowed: all ways to lose three columns of twenty.
const ATTEMPTS_MIN: usize = 1 << 12;
/// Bytes checked at most, within those limits.
const BYTES_MAX: usize = 16 << 30;

/// Leaves that may be bad throughout: as many as the highest parity level bears.
const SUSPECTS_MAX: usize = 3;

/// Fills `block` with combinations of the versions of `sources` until one is good.
pub(super) fn search(
    tree: &Tree,
    sources: &mut [VersionSource],
    block: &mut [u8],
    good: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<()> {
    let attempts = (BYTES_MAX / block.len()).clamp(ATTEMPTS_MIN, ATTEMPTS_MAX);
    let mut state = Search { tree, good, attempts, now: vec![usize::MAX; sources.len()] };
    let zero = vec![0; sources.len()];
    if let Some(empty) = state.first_without_version(sources, block) {
        return Err(reason(&sources[empty]));
    }
    if state.attempt(sources, block, &zero) {
        return Ok(());
    }
    if sources.len() > 1 {
        let mut leaves: Vec<VdevId> = sources.iter().flat_map(|s| s.copies().map(|copy| copy.from.leaf)).collect();
        leaves.sort_unstable();
        leaves.dedup();
        state.attempts = attempts / 2;
        for count in 1..=SUSPECTS_MAX {
            if state.any_without(sources, block, &leaves, &mut Vec::new(), count) {
                return Ok(());
            }
        }
        state.attempts += attempts / 2;
    }
    // with one source this is all there is to it
    let mut sum = 1;
    while state.attempts > 0 {
        let mut wanted = zero.clone();
        match state.all_of_sum(sources, block, &mut wanted, 0, sum) {
            SearchStep::Good => return Ok(()),
            SearchStep::None => break,
            SearchStep::Some => sum += 1,
        }
    }
    Err(Error::new(ErrorKind::Checksum, "checksum mismatch in every copy and combination of parity"))
}

struct Search<'a> {
    tree: &'a Tree,
    good: &'a mut dyn FnMut(&[u8]) -> bool,
    /// How many more combinations may be tried.
    attempts: usize,
    /// The versions that the block holds.
    now: Vec<usize>,
}

/// What came of a set of combinations.
#[derive(PartialEq)]
enum SearchStep {
    /// One was good.
    Good,
    /// Some were tried, none was good.
    Some,
    /// There were none.
    None,
}

impl Search<'_> {
    /// Fills in first versions; the number of the first source that has none.
    fn first_without_version(&mut self, sources: &mut [VersionSource], block: &mut [u8]) -> Option<usize> {
        (0..sources.len()).find(|&i| !self.fill(sources, block, i, 0))
    }

    /// Whether source `i` has a version `n`, which is then in the block.
    fn fill(&mut self, sources: &mut [VersionSource], block: &mut [u8], i: usize, n: usize) -> bool {
        if self.now[i] != n {
            let range = sources[i].range();
            if !sources[i].fill(self.tree, n, &mut block[range]) {
                return false;
            }
            self.now[i] = n;
        }
        true
    }

    /// Whether this combination exists and is good.
    fn attempt(&mut self, sources: &mut [VersionSource], block: &mut [u8], wanted: &[usize]) -> bool {
        if self.attempts == 0 || !(0..sources.len()).all(|i| self.fill(sources, block, i, wanted[i])) {
            return false;
        }
        self.attempts -= 1;
        (self.good)(block)
    }

    /// Tries the versions that owe nothing to `guilty` and any `more` of `leaves`.
    fn any_without(
        &mut self,
        sources: &mut [VersionSource],
        block: &mut [u8],
        leaves: &[VdevId],
        guilty: &mut Vec<VdevId>,
        more: usize,
    ) -> bool {
        if more == 0 {
            let wanted: Vec<usize> = sources.iter_mut().map(|s| s.without(self.tree, guilty).unwrap_or(0)).collect();
            return self.attempt(sources, block, &wanted);
        }
        for (i, &leaf) in leaves.iter().enumerate() {
            guilty.push(leaf);
            let is_good = self.any_without(sources, block, &leaves[i + 1..], guilty, more - 1);
            guilty.pop();
            if is_good || self.attempts == 0 {
                return is_good;
            }
        }
        false
    }

    /// Tries all combinations in which the versions of the sources from `i` on add up to `sum`;
    /// those before are as in `wanted`.
    fn all_of_sum(
        &mut self,
        sources: &mut [VersionSource],
        block: &mut [u8],
        wanted: &mut [usize],
        i: usize,
        sum: usize,
    ) -> SearchStep {
        if i + 1 == sources.len() {
            if self.attempts == 0 || !self.fill(sources, block, i, sum) {
                return SearchStep::None;
            }
            wanted[i] = sum;
            return if self.attempt(sources, block, wanted) { SearchStep::Good } else { SearchStep::Some };
        }
        let mut step = SearchStep::None;
        for n in 0..=sum {
            if self.attempts == 0 || !self.fill(sources, block, i, n) {
                break;
            }
            wanted[i] = n;
            match self.all_of_sum(sources, block, wanted, i + 1, sum - n) {
                SearchStep::Good => return SearchStep::Good,
                SearchStep::Some => step = SearchStep::Some,
                SearchStep::None => {}
            }
        }
        step
    }
}

/// Why a source has no version at all.
fn reason(source: &VersionSource) -> Error {
    let mut errors = source.copies().filter_map(|copy| copy.error());
    let Some(first) = errors.next() else { return nothing_left("not enough of it") };
    let what = "no way to read it: too many devices fail";
    Error::new(first.kind(), what).with_source(first.to_string())
}
