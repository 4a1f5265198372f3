//! What a case of the fuzzer was allowed to do, and what it found.

/// What went wrong in a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What tells it from others: the place of a panic, or what kind of wrong it is.
    pub key: String,
    /// All that is known.
    pub what: String,
}

impl Finding {
    pub(super) fn new(key: impl Into<String>, what: impl Into<String>) -> Finding {
        Finding { key: key.into(), what: what.into() }
    }
}

/// How a case ended.
#[derive(Clone, Debug, Default)]
pub struct CaseOutcome {
    /// The base, and what was changed in it.
    pub story: String,
    /// Whether it could be imported for writing.
    pub was_writable: bool,
    /// What went wrong.
    pub findings: Vec<Finding>,
}

/// How far what was changed may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Nothing was changed.
    Nothing,
    /// What files and names of one file system say of themselves: no pointer, no space.
    Contents,
    /// Anything.
    Anything,
}
