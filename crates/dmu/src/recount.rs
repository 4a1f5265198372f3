//! How far a set is whose objects are counted anew; `sync/recount` does it.

use std::ops::Range;

use format::ids::Txg;

use crate::owners::AccountKinds;

/// Accounts that are being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recount {
    pub(crate) counts: AccountKinds,
    pub(crate) place: RecountPlace,
    /// The latest group that made a step.
    pub(crate) txg: Txg,
    pub(crate) is_stalled: bool,
}

/// How far a walk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecountPlace {
    /// The table of projects is to be emptied.
    Begin,
    /// Blocks of dnodes before this one have been walked.
    Block(u64),
    /// All is counted.
    End,
}

/// What is counted in a group.
pub(crate) struct GroupCounts {
    /// As flags of a head.
    pub(crate) flags: u64,
    /// Objects before the start were counted by project before the group, those before the end are after it.
    pub(crate) projects: Range<u64>,
}

#[cfg(test)]
impl Recount {
    /// As if the first step had been made.
    pub(crate) fn skip_first(&mut self) {
        self.place = RecountPlace::Block(0);
    }
}
