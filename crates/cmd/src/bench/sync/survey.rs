//! What was measured.

use crate::bench::measure::Measured;

/// All that was measured of one target.
pub(super) struct TargetSurvey {
    pub(super) path: String,
    /// `folder` or `device`.
    pub(super) kind: &'static str,
    pub(super) rows: Vec<Measured>,
}
