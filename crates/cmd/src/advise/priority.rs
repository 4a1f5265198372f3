//! Things drawn at random, each with odds as its weight, so that sums over all can be told from few.
//!
//! Source: Duffield, Lund, Thorup, "Priority sampling for estimation of arbitrary subset sums", JACM 2007.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use base::next_mixed;

/// The next number of a generator above 0, and 1 at most.
pub fn next_unit(state: &mut u64) -> f64 {
    ((next_mixed(state) >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// So many things at most; see the top of the file.
pub struct PrioritySample<T> {
    kept: BinaryHeap<Reverse<Prioritized<T>>>,
    wanted: usize,
    numbers: u64,
    /// The highest priority of what was not kept.
    threshold: f64,
}

struct Prioritized<T> {
    priority: f64,
    weight: f64,
    thing: T,
}

impl<T> PrioritySample<T> {
    /// Keeps so many things; another seed draws others.
    pub fn new(wanted: usize, seed: u64) -> PrioritySample<T> {
        PrioritySample { kept: BinaryHeap::new(), wanted, numbers: seed, threshold: 0.0 }
    }

    /// One thing more, which is made only if it is kept for now.
    pub fn add(&mut self, weight: f64, make: impl FnOnce() -> T) {
        let priority = weight / next_unit(&mut self.numbers);
        if self.kept.len() >= self.wanted {
            match self.kept.peek().is_some_and(|Reverse(least)| least.priority < priority) {
                true => {
                    let gone = self.kept.pop().map_or(0.0, |Reverse(gone)| gone.priority);
                    self.threshold = self.threshold.max(gone);
                }
                false => {
                    self.threshold = self.threshold.max(priority);
                    return;
                }
            }
        }
        self.kept.push(Reverse(Prioritized { priority, weight, thing: make() }));
    }

    /// What was kept, each with the weight that it stands for, in random order.
    pub fn into_things(self) -> Vec<(f64, T)> {
        let threshold = self.threshold;
        self.kept.into_iter().map(|Reverse(kept)| (kept.weight.max(threshold), kept.thing)).collect()
    }
}

impl<T> PartialEq for Prioritized<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Prioritized<T> {}

impl<T> PartialOrd for Prioritized<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Prioritized<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority.total_cmp(&other.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_parts_are_right_on_average() {
        let weight = |n: u64| if n.is_multiple_of(10) { 1000.0 } else { 1.0 + (n % 7) as f64 };
        let truth: f64 = (0..500).filter(|n| n % 3 == 0).map(weight).sum();
        let mut sum = 0.0;
        for seed in 0..400 {
            let mut sample = PrioritySample::new(60, seed);
            (0..500).for_each(|n| sample.add(weight(n), || n));
            let kept = sample.into_things();
            assert_eq!(kept.len(), 60);
            // what weighs most is in each sample
            assert!(kept.iter().filter(|(_, n)| n % 10 == 0).count() >= 40);
            sum += kept.iter().filter(|(_, n)| n % 3 == 0).map(|(weight, _)| weight).sum::<f64>() / 400.0;
        }
        assert!((sum / truth - 1.0).abs() < 0.01, "{sum} instead of {truth}");
    }

    #[test]
    fn what_fits_stands_for_itself() {
        let mut sample = PrioritySample::new(5, 1);
        (1..=5).for_each(|n| sample.add(f64::from(n), || n));
        assert!(sample.into_things().iter().all(|(weight, n)| *weight == f64::from(*n)));
    }
}
