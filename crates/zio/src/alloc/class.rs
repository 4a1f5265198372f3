//! What the space of a top-level vdev is for, and how much of it there is.

use std::ops::Add;

/// Transaction groups that must be on disk after the one that freed a run before it is used again.
pub const TXG_DEFER: u64 = 2;

/// What a top-level vdev's space is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Everything that has no place of its own.
    Normal = 0,
    /// The intent log.
    Log = 1,
    /// Metadata and small blocks.
    Special = 2,
    /// Dedup tables.
    Dedup = 3,
}

impl Class {
    /// The class, and those that stand in for it where it has no vdev or no room.
    pub(super) fn or_else(self) -> impl Iterator<Item = Class> {
        let others: &[Class] = match self {
            Class::Normal => &[],
            Class::Log | Class::Special => &[Class::Normal],
            Class::Dedup => &[Class::Special, Class::Normal],
        };
        std::iter::once(self).chain(others.iter().copied())
    }
}

/// Whether blocks are allocated on a top-level vdev.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serving {
    /// They are.
    #[default]
    Open,
    /// Nothing new goes there; what is there can be freed.
    Closed,
    /// It has been removed, and counts no more.
    Gone,
}

/// How much room there is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// In all metaslabs.
    pub size: u64,
    /// In use.
    pub allocated: u64,
    /// Freed, and to be kept for some transaction groups.
    pub deferred: u64,
    /// What may be allocated; without metaslabs that were set aside.
    pub free: u64,
}

impl Add for Space {
    type Output = Space;
    fn add(self, other: Space) -> Space {
        Space {
            size: self.size + other.size,
            allocated: self.allocated + other.allocated,
            deferred: self.deferred + other.deferred,
            free: self.free + other.free,
        }
    }
}
