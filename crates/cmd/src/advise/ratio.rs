//! A ratio of two sums, of a sample, and how far off it may be.
//!
//! Source: Cochran, "Sampling Techniques", chapter 6: the variance of a ratio estimate by linearization.

/// Standard deviations within which 95 of 100 samples are.
pub const DEVIATIONS: f64 = 1.96;

/// A figure, and the interval that holds the truth 95 times of 100.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Sums over pairs of numbers, drawn independently.
#[derive(Clone, Copy, Debug, Default)]
pub struct RatioSum {
    count: f64,
    above: f64,
    below: f64,
    above_squares: f64,
    below_squares: f64,
    products: f64,
}

impl RatioSum {
    /// One pair more.
    pub fn add(&mut self, above: f64, below: f64) {
        self.count += 1.0;
        self.above += above;
        self.below += below;
        self.above_squares += above * above;
        self.below_squares += below * below;
        self.products += above * below;
    }

    /// The sum of the first ones over that of the second ones; 1 where there are none.
    pub fn interval(&self) -> Interval {
        if self.below <= 0.0 {
            return Interval { value: 1.0, low: 1.0, high: 1.0 };
        }
        let ratio = self.above / self.below;
        let squares = self.above_squares - 2.0 * ratio * self.products + ratio * ratio * self.below_squares;
        let variance = squares.max(0.0) / (self.count - 1.0).max(1.0);
        let half = DEVIATIONS * (variance / self.count).sqrt() / (self.below / self.count);
        Interval { value: ratio, low: ratio - half, high: ratio + half }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_the_truth() {
        let mut rng = testkit::rng::Rng::new(3);
        let (mut held, rounds) = (0, 1000);
        for _ in 0..rounds {
            let mut sum = RatioSum::default();
            for _ in 0..400 {
                // 128 KiB, that take from 4 to 128 KiB: 66 on average
                sum.add(128.0, (4 * (1 + rng.below(32))) as f64);
            }
            let Interval { value, low, high } = sum.interval();
            assert!(low < value && value < high && high - low < 0.4);
            held += u32::from((low..high).contains(&(128.0 / 66.0)));
        }
        assert!((920..980).contains(&held), "{held} of {rounds}");
    }

    #[test]
    fn nothing_is_not_divided_by() {
        assert_eq!(RatioSum::default().interval().value, 1.0);
        let mut sum = RatioSum::default();
        sum.add(5.0, 0.0);
        assert_eq!(sum.interval(), Interval { value: 1.0, low: 1.0, high: 1.0 });
        let mut sum = RatioSum::default();
        sum.add(6.0, 3.0);
        assert_eq!(sum.interval(), Interval { value: 2.0, low: 2.0, high: 2.0 });
    }
}
