//! The most of a linear sum under linear bounds: a small, dense simplex.
//!
//! ```text
//!   the most of  gains · x    where  row · x <= limit  for each row,  x >= 0,  each limit >= 0
//! ```
//!
//! All zeros are within the bounds, so the search begins there. It takes the steepest way first, and when that has been long,
//! the first one that goes up, which never goes in circles.
//! Source: Bland, "New finite pivoting rules for the simplex method", Mathematics of Operations Research, 1977.

/// What counts as nothing.
const TINY: f64 = 1e-11;
/// Steps by the steepest way, for each row, and steps in all.
const STEEP_STEPS: usize = 20;
const STEPS_MAX: usize = 20_000;

/// See the top of the file. Bounds are rows with their limits, as long as what they are about.
#[derive(Clone, Debug, Default)]
pub(super) struct LinearProgram {
    gains: Vec<f64>,
    rows: Vec<(Vec<f64>, f64)>,
}

/// The rows, a column for the slack of each, and the limits as the last column; the last row is what can still be gained.
struct Tableau {
    rows: Vec<Vec<f64>>,
    /// The variable of each row.
    basis: Vec<usize>,
}

impl LinearProgram {
    pub(super) fn new(gains: Vec<f64>) -> LinearProgram {
        LinearProgram { gains, rows: Vec::new() }
    }

    /// Demands that the sum is at most that limit, which is not negative.
    pub(super) fn bound(&mut self, row: Vec<f64>, limit: f64) {
        self.rows.push((row, limit));
    }

    /// The values with which the sum is the largest; `None` if it has no bound, or none that was found in time.
    pub(super) fn solve(&self) -> Option<Vec<f64>> {
        let mut tableau = self.tableau();
        let steep = STEEP_STEPS * self.rows.len();
        for step in 0..STEPS_MAX {
            let Some(column) = tableau.entering(step < steep) else {
                return Some(tableau.values(self.gains.len()));
            };
            let row = tableau.leaving(column)?;
            tableau.pivot(row, column);
        }
        None
    }

    fn tableau(&self) -> Tableau {
        let (count, slacks) = (self.gains.len(), self.rows.len());
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(slacks + 1);
        for (at, (row, limit)) in self.rows.iter().enumerate() {
            let mut line = row.clone();
            line.resize(count + slacks + 1, 0.0);
            line[count + at] = 1.0;
            line[count + slacks] = *limit;
            rows.push(line);
        }
        let mut gains: Vec<f64> = self.gains.clone();
        gains.resize(count + slacks + 1, 0.0);
        rows.push(gains);
        Tableau { rows, basis: (count..count + slacks).collect() }
    }
}

impl Tableau {
    /// A variable that gains something.
    fn entering(&self, is_steep: bool) -> Option<usize> {
        let (_, gains) = self.rows.last()?.split_last()?;
        let mut gaining = gains.iter().enumerate().filter(|(_, gain)| **gain > TINY);
        let found = if is_steep { gaining.max_by(|a, b| a.1.total_cmp(b.1)) } else { gaining.next() };
        found.map(|(column, _)| column)
    }

    /// The row that bounds a variable first; of several, that of the first variable.
    fn leaving(&self, column: usize) -> Option<usize> {
        let mut least: Option<(f64, usize)> = None;
        for (row, line) in self.rows[..self.basis.len()].iter().enumerate().filter(|(_, line)| line[column] > TINY) {
            let ratio = line[line.len() - 1] / line[column];
            let is_less = least.is_none_or(|(best, at)| {
                ratio < best - TINY || ratio < best + TINY && self.basis[row] < self.basis[at]
            });
            if is_less {
                least = Some((ratio, row));
            }
        }
        least.map(|(_, row)| row)
    }

    fn pivot(&mut self, row: usize, column: usize) {
        let factor = self.rows[row][column];
        self.rows[row].iter_mut().for_each(|cell| *cell /= factor);
        let own = self.rows[row].clone();
        for line in self.rows.iter_mut().enumerate().filter(|(at, _)| *at != row).map(|(_, line)| line) {
            let times = line[column];
            if times != 0.0 {
                line.iter_mut().zip(&own).for_each(|(cell, own)| *cell -= times * own);
                line[column] = 0.0;
            }
        }
        self.basis[row] = column;
    }

    fn values(&self, count: usize) -> Vec<f64> {
        let mut values = vec![0.0; count];
        for (line, variable) in self.rows.iter().zip(&self.basis).filter(|(_, variable)| **variable < count) {
            values[*variable] = line[line.len() - 1].max(0.0);
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solved(gains: &[f64], rows: &[(&[f64], f64)]) -> Option<Vec<f64>> {
        let mut program = LinearProgram::new(gains.to_vec());
        rows.iter().for_each(|(row, limit)| program.bound(row.to_vec(), *limit));
        program.solve().map(|values| values.into_iter().map(|value| (value * 1e6).round() / 1e6).collect())
    }

    #[test]
    fn the_corner_that_gains_most() {
        let rows: [(&[f64], f64); 3] = [(&[1.0, 0.0], 4.0), (&[0.0, 2.0], 12.0), (&[3.0, 2.0], 18.0)];
        assert_eq!(solved(&[3.0, 5.0], &rows), Some(vec![2.0, 6.0]));
        assert_eq!(solved(&[-1.0, -1.0], &rows), Some(vec![0.0, 0.0]));
        assert_eq!(solved(&[1.0, 1.0], &[(&[1.0, 0.0], 1.0)]), None, "the second has no bound");
    }

    /// Beale's example, in which the steepest way goes in circles.
    #[test]
    fn it_ends() {
        let rows: [(&[f64], f64); 3] =
            [(&[0.25, -60.0, -0.04, 9.0], 0.0), (&[0.5, -90.0, -0.02, 3.0], 0.0), (&[0.0, 0.0, 1.0, 0.0], 1.0)];
        assert_eq!(solved(&[0.75, -150.0, 0.02, -6.0], &rows), Some(vec![0.04, 0.0, 1.0, 0.0]));
    }
}
