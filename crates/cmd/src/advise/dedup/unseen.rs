//! How many different blocks there are in groups of which some were drawn, by how often those that were seen were.
//!
//! ```text
//!   a block in m groups, each of which is drawn with the same odds, is seen j times: binomial(m, odds)
//!   blocks seen once, twice, ... 12 times, more often, each with its error ─▶ all mixtures of m that make such counts
//!                                       of these, that with the least and that with the most different blocks ─▶ interval
//! ```
//!
//! No shape is assumed of how often blocks are there: what is not ruled out by the counts lies within the interval, and where
//! the counts rule out little, it is wide. Which mixtures are possible is a linear program.
//! Sources: Valiant and Valiant, "Estimating the unseen", STOC 2011; Harnik, Khaitzin and Sotnikov, "Estimating Unseen
//! Deduplication - from Theory to Practice", FAST 2016.

use super::simplex::LinearProgram;

/// Counts that are told apart; those that were seen more often are one.
pub(super) const COUNTS: usize = 12;
/// Up to so many groups each number has a variable of its own; beyond, one and the next stand for those between.
const GROUPS_EXACT: u32 = 30;
const GROUPS_STEP: f64 = 1.15;
/// What a count that is too low costs, beside which no difference in blocks matters.
const PENALTY: f64 = 1e6;
/// How much of a count may be missing by rounding.
const MISSING: f64 = 1e-4;

/// What was seen so often, as a share of the bytes of all groups that were drawn, and how far off that may be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeenShare {
    pub(super) is: f64,
    pub(super) error: f64,
}

/// Bytes of different blocks, as a share of the bytes of all groups: at least, as the counts say, and at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DistinctShare {
    pub(super) least: f64,
    pub(super) fit: f64,
    pub(super) most: f64,
}

/// What was seen once, twice, ..., and more often than [`COUNTS`] times, when each group was drawn with odds of `part`, of at
/// most so many groups.
#[derive(Clone, Debug)]
pub(super) struct SeenCounts {
    pub(super) shares: [SeenShare; COUNTS + 1],
    pub(super) part: f64,
    pub(super) groups: f64,
}

impl SeenShare {
    fn low(&self) -> f64 {
        (self.is - self.error).max(0.0)
    }

    fn high(&self) -> f64 {
        (self.is + self.error).max(f64::MIN_POSITIVE)
    }
}

impl SeenCounts {
    /// What these counts allow. `None` if no mixture makes such counts.
    pub(super) fn distinct(&self) -> Option<DistinctShare> {
        let numbers = self.numbers();
        let odds: Vec<[f64; COUNTS + 1]> = numbers.iter().map(|number| seen_odds(*number, self.part)).collect();
        let least = self.extreme(&numbers, &odds, -1.0)?;
        let most = self.extreme(&numbers, &odds, 1.0)?;
        let fit = self.fit(&numbers, &odds)?.clamp(least, most.max(least));
        Some(DistinctShare { least, fit, most })
    }

    /// Numbers of groups that a block may be in.
    fn numbers(&self) -> Vec<f64> {
        let mut numbers: Vec<f64> = (1..=GROUPS_EXACT).map(f64::from).filter(|n| *n <= self.groups.max(1.0)).collect();
        let mut next = f64::from(GROUPS_EXACT) * GROUPS_STEP;
        while next < self.groups {
            numbers.push(next.round());
            next *= GROUPS_STEP;
        }
        numbers
    }

    /// The shares that mixtures make of what is seen so often, with room for `more` variables behind them.
    fn row(&self, odds: &[[f64; COUNTS + 1]], at: usize, more: usize) -> Vec<f64> {
        let mut row: Vec<f64> = odds.iter().map(|odds| odds[at] / self.part).collect();
        row.resize(odds.len() + more, 0.0);
        row
    }

    /// The bytes of different blocks of the mixture within the errors that has most of them, or, with a sign of -1, least.
    fn extreme(&self, numbers: &[f64], odds: &[[f64; COUNTS + 1]], sign: f64) -> Option<f64> {
        let (count, floors) = (numbers.len(), self.shares.iter().filter(|share| share.low() > 0.0).count());
        // how much of each floor is reached has a variable of its own, behind those of the mixture
        let mut gains = vec![sign; count];
        gains.resize(count + floors, PENALTY);
        let mut program = LinearProgram::new(gains);
        let mut floor = count;
        for (at, share) in self.shares.iter().enumerate() {
            let row = self.row(odds, at, floors);
            program.bound(row.iter().map(|cell| cell / share.high()).collect(), 1.0);
            if share.low() > 0.0 {
                let mut reached: Vec<f64> = row.iter().map(|cell| -cell / share.low()).collect();
                reached[floor] = 1.0;
                program.bound(reached, 0.0);
                program.bound(only(floor, count + floors), 1.0);
                floor += 1;
            }
        }
        program.bound(copies(numbers, floors), 1.0);
        let values = program.solve()?;
        let is_reached = values[count..].iter().all(|reached| *reached >= 1.0 - MISSING);
        is_reached.then(|| values[..count].iter().sum())
    }

    /// The bytes of different blocks of the mixture that comes closest to the counts, each measured by its error.
    fn fit(&self, numbers: &[f64], odds: &[[f64; COUNTS + 1]]) -> Option<f64> {
        let (count, rows) = (numbers.len(), self.shares.len());
        // for each count two variables more: what is reached of it, and what is beyond
        let mut gains = vec![0.0; count];
        let weight = |share: &SeenShare| 1.0 / share.error.max(f64::MIN_POSITIVE.sqrt());
        gains.extend(self.shares.iter().flat_map(|share| [weight(share), -weight(share)]));
        let mut program = LinearProgram::new(gains);
        for (at, share) in self.shares.iter().enumerate() {
            let (reached, beyond) = (count + 2 * at, count + 2 * at + 1);
            let mut row = self.row(odds, at, 2 * rows);
            let mut floor: Vec<f64> = row.iter().map(|cell| -cell).collect();
            row[beyond] = -1.0;
            floor[reached] = 1.0;
            program.bound(row, share.is);
            program.bound(floor, 0.0);
            program.bound(only(reached, count + 2 * rows), share.is);
        }
        program.bound(copies(numbers, 2 * rows), 1.0);
        program.solve().map(|values| values[..count].iter().sum())
    }
}

/// A row that is about one variable.
fn only(at: usize, len: usize) -> Vec<f64> {
    let mut row = vec![0.0; len];
    row[at] = 1.0;
    row
}

/// A block in m groups has at least m copies there, and all of them take no more than there is.
fn copies(numbers: &[f64], more: usize) -> Vec<f64> {
    let mut row = numbers.to_vec();
    row.resize(numbers.len() + more, 0.0);
    row
}

/// With which odds a block in so many groups is seen once, twice, ..., and more often than [`COUNTS`] times.
fn seen_odds(groups: f64, part: f64) -> [f64; COUNTS + 1] {
    let mut odds = [0.0; COUNTS + 1];
    // the logarithm of the binomial, from one count to the next
    let mut log = groups * (-part).ln_1p();
    let mut rest = 1.0 - log.exp();
    let step = part.ln() - (-part).ln_1p();
    for (seen, odds) in (0u32..).zip(odds.iter_mut().take(COUNTS)) {
        let left = groups - f64::from(seen);
        if left <= 0.0 {
            rest = 0.0;
            break;
        }
        log += left.ln() - f64::from(seen + 1).ln() + step;
        *odds = log.exp();
        rest -= *odds;
    }
    odds[COUNTS] = rest.max(0.0);
    odds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts that a mixture makes: shares of bytes of different blocks, and in how many groups each is.
    fn counts(mixture: &[(f64, f64)], part: f64, error: f64) -> SeenCounts {
        let mut shares = [SeenShare::default(); COUNTS + 1];
        for (at, share) in shares.iter_mut().enumerate() {
            let is: f64 = mixture.iter().map(|(y, groups)| y * seen_odds(*groups, part)[at] / part).sum();
            *share = SeenShare { is, error };
        }
        SeenCounts { shares, part, groups: 10_000.0 }
    }

    #[test]
    fn odds_are_binomial() {
        let odds = seen_odds(3.0, 0.25);
        let expected = [27.0 / 64.0, 9.0 / 64.0, 1.0 / 64.0, 0.0];
        assert!(odds.iter().zip(expected).all(|(odds, expected)| (odds - expected).abs() < 1e-12), "{odds:?}");
        let many = seen_odds(4000.0, 0.05);
        assert!((many[COUNTS] - 1.0).abs() < 1e-9, "{many:?}");
    }

    #[test]
    fn bounds_hold_what_made_the_counts() {
        let mixtures: [&[(f64, f64)]; 5] = [
            &[(1.0, 1.0)],
            &[(0.5, 2.0)],
            &[(0.4, 1.0), (0.1, 2.0), (0.1, 4.0)],
            &[(0.001, 1000.0)],
            &[(0.5, 1.0), (0.02, 5.0), (0.004, 25.0), (0.0006, 500.0)],
        ];
        for mixture in mixtures {
            let truth: f64 = mixture.iter().map(|(y, _)| y).sum();
            for (part, error, wide) in [(0.05, 1e-5, 0.08), (0.2, 1e-4, 0.02)] {
                let DistinctShare { least, fit, most } = counts(mixture, part, error).distinct().unwrap();
                assert!(least - 1e-6 <= truth && truth <= most + 1e-6, "{mixture:?}: {least} {truth} {most}");
                assert!(most - least < wide && (fit - truth).abs() < wide, "{mixture:?}: {least} {fit} {most}");
            }
        }
    }

    #[test]
    fn what_contradicts_itself_has_no_bounds() {
        let mut counts = counts(&[(1.0, 1.0)], 0.05, 1e-4);
        // more copies than there are bytes
        counts.shares[1] = SeenShare { is: 0.4, error: 0.01 };
        assert_eq!(counts.distinct(), None);
    }
}
