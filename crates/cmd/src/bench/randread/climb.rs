//! What was measured.

use crate::bench::measure::Measured;

/// What was measured of one size and target: a number of threads after the other.
#[derive(Clone, Debug)]
pub(super) struct Climb {
    pub(super) tried: Vec<Measured>,
    /// Whether some place was read twice.
    pub(super) has_repeated: bool,
}

impl Climb {
    pub(super) fn alone(&self) -> Option<&Measured> {
        self.tried.first()
    }

    pub(super) fn best(&self) -> Option<&Measured> {
        self.tried.iter().max_by(|a, b| a.rate().total_cmp(&b.rate()))
    }
}

/// One size.
pub(super) struct SizeRow {
    pub(super) size: u64,
    /// Of each target; `None` if it cannot read this size.
    pub(super) climbs: Vec<Option<Climb>>,
}
