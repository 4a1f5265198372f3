//! How much times vary: a sequence of numbers that a seed decides.

/// See the top of the file.
#[derive(Clone, Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn new(seed: u64) -> Jitter {
        Jitter(seed)
    }

    /// The next number from 0 to 1.
    pub(super) fn part(&mut self) -> f64 {
        (base::next_mixed(&mut self.0) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A factor around 1 that differs from it by at most `most`.
    pub(super) fn factor(&mut self, most: f64) -> f64 {
        1.0 + most * (2.0 * self.part() - 1.0)
    }
}
