//! For how long the kernel may keep what it is told: of a name, and of attributes.
//!
//! They are types of their own, as every reply that carries a name has room for both, and a name whose spelling has
//! aliases must never hold for as long as attributes do.

use std::time::Duration;

/// Nothing changes.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a name leads to its node, or to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameLifetime(Duration);

impl NameLifetime {
    /// The kernel asks again for each use of the name.
    pub(crate) const NONE: NameLifetime = NameLifetime(Duration::ZERO);
    pub(crate) const FOREVER: NameLifetime = NameLifetime(FOREVER);

    /// Seconds and nanoseconds.
    pub(crate) fn parts(self) -> (u64, u32) {
        (self.0.as_secs(), self.0.subsec_nanos())
    }
}

/// How long the attributes of a node hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttrLifetime(Duration);

impl AttrLifetime {
    /// The kernel asks for them whenever it needs them.
    pub(crate) const NONE: AttrLifetime = AttrLifetime(Duration::ZERO);
    pub(crate) const FOREVER: AttrLifetime = AttrLifetime(FOREVER);
    /// Those of what changed lately, where the kernel is told when its group is on disk. Groups take less, mostly; and where the
    /// process dies before, nobody tells.
    pub(crate) const UNTIL_GROUP: AttrLifetime = AttrLifetime(Duration::from_secs(20));
    /// Those of what changed lately, where nobody tells.
    pub(crate) const UNSETTLED: AttrLifetime = AttrLifetime(Duration::from_secs(1));

    /// Seconds and nanoseconds.
    pub(crate) fn parts(self) -> (u64, u32) {
        (self.0.as_secs(), self.0.subsec_nanos())
    }
}
