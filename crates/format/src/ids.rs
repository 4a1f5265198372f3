//! Numbers that name things: each kind has a type of its own, so that none is taken for another.
//!
//! What is read from a disk or a socket becomes one of them in the parser; what is written or stored as a plain number
//! is taken out by `get`. Nothing here overflows: a number from a disk can be any.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use base::Env;
use serde::{Deserialize, Serialize};

/// A kind of numbers: a type of its own around one, which is shown, parsed and sent as the plain number.
macro_rules! kind_of_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// That of this number.
            pub const fn new(number: u64) -> $name {
                $name(number)
            }

            /// Its number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<$name, ParseIntError> {
                text.parse().map($name)
            }
        }
    };
}

kind_of_number! {
    /// The number of a transaction group. Where groups are counted, 0 is before the first.
    Txg
}

kind_of_number! {
    /// A random number by which a pool, a vdev, a dataset or a snapshot is known wherever it is, whatever its name.
    Guid
}

kind_of_number! {
    /// The number of a top-level vdev: which of the root's children it is. DVAs name it.
    VdevNumber
}

impl VdevNumber {
    /// Its place in a list of all top-level vdevs; of a number that is too large for any, the last.
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

kind_of_number! {
    /// The number of an object in its object set.
    ObjectId
}

kind_of_number! {
    /// The number of a dataset, a head or a snapshot: that of its object in the MOS, by which its object set is known, too.
    DatasetId
}

kind_of_number! {
    /// The number of a directory of datasets: that of its object in the MOS.
    DirId
}

impl DatasetId {
    /// By which the object set is known that is no dataset's, but has all of them: the MOS.
    pub const MOS: DatasetId = DatasetId(0);

    /// The dataset that is kept in that object of the MOS.
    pub const fn of_object(object: ObjectId) -> DatasetId {
        DatasetId(object.0)
    }

    /// Its object in the MOS.
    pub const fn object(self) -> ObjectId {
        ObjectId(self.0)
    }
}

impl DirId {
    /// The directory that is kept in that object of the MOS.
    pub const fn of_object(object: ObjectId) -> DirId {
        DirId(object.0)
    }

    /// Its object in the MOS.
    pub const fn object(self) -> ObjectId {
        ObjectId(self.0)
    }
}

/// For kinds of numbers of which 0 says that there is nothing.
macro_rules! zero_is_none {
    ($($name:ident),*) => {
        $(impl $name {
            /// That of nothing.
            pub const NONE: $name = $name(0);

            /// Whether it is that of nothing.
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }

            /// Whether it is that of something.
            pub const fn is_some(self) -> bool {
                self.0 != 0
            }
        })*
    };
}

zero_is_none!(Guid, ObjectId, DatasetId, DirId);

impl ObjectId {
    /// That of the object of all dnodes, the meta dnode's.
    pub const META_DNODE: ObjectId = ObjectId(0);
    /// The last number. It and a few before it stand for objects that lie outside the meta dnode.
    pub const LAST: ObjectId = ObjectId(u64::MAX);
    /// Bits of the number of an object that can be allocated.
    pub const BITS: u32 = 48;

    /// The object whose dnode is in that slot of a block of the meta dnode; a block has so many slots.
    pub const fn in_block(blkid: u64, slot: u64, per_block: u64) -> ObjectId {
        ObjectId(blkid.saturating_mul(per_block).saturating_add(slot))
    }

    /// The block of the meta dnode that holds its dnode, and the slot in it; a block has so many slots. Panics if it has
    /// none.
    pub const fn place(self, per_block: u64) -> (u64, u64) {
        (self.0 / per_block, self.0 % per_block)
    }

    /// Whether an object in the meta dnode can have it.
    pub const fn is_possible(self) -> bool {
        self.0 != 0 && self.0 >> ObjectId::BITS == 0
    }

    /// The number after it; after the last, the same.
    pub const fn next(self) -> ObjectId {
        self.plus(1)
    }

    /// The number before it; before 0, the same.
    pub const fn previous(self) -> ObjectId {
        ObjectId(self.0.saturating_sub(1))
    }

    /// That of so many slots later, at most [`ObjectId::LAST`].
    pub const fn plus(self, slots: u64) -> ObjectId {
        ObjectId(self.0.saturating_add(slots))
    }

    /// How many numbers it is behind `first`; 0 if it is not.
    pub const fn behind(self, first: ObjectId) -> u64 {
        self.0.saturating_sub(first.0)
    }

    /// It and those after it, without `end`.
    pub fn until(self, end: ObjectId) -> impl Iterator<Item = ObjectId> {
        (self.0..end.0).map(ObjectId)
    }
}

impl Guid {
    /// A new one.
    pub fn random(env: &Env) -> Guid {
        Guid(env.random().max(1))
    }
}

impl Txg {
    /// Before all groups; in many fields on disk: none.
    pub const ZERO: Txg = Txg(0);
    /// The first group of a new pool.
    pub const INITIAL: Txg = Txg(4);
    /// The last that is believed of an uberblock: space maps that count groups hold numbers twice as high. No pool lives
    /// to see it.
    pub const BELIEVED_MAX: Txg = Txg(1 << 46);
    /// After all groups.
    pub const MAX: Txg = Txg(u64::MAX);

    /// Whether it is 0, which in many fields on disk says that there is no group.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The group after it; after the last number, the same.
    pub const fn next(self) -> Txg {
        self.plus(1)
    }

    /// The group before it; before 0, the same.
    pub const fn previous(self) -> Txg {
        self.minus(1)
    }

    /// So many groups later, at most [`Txg::MAX`].
    pub const fn plus(self, groups: u64) -> Txg {
        Txg(self.0.saturating_add(groups))
    }

    /// So many groups earlier, at least [`Txg::ZERO`].
    pub const fn minus(self, groups: u64) -> Txg {
        Txg(self.0.saturating_sub(groups))
    }

    /// How many groups it is later than `earlier`; 0 if it is not.
    pub const fn since(self, earlier: Txg) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// It and those after it, without `end`.
    pub fn until(self, end: Txg) -> impl Iterator<Item = Txg> {
        (self.0..end.0).map(Txg)
    }

    /// Its place in a ring of `slots`, where each group takes the place after that of the one before it. Panics if
    /// there are no slots.
    pub const fn slot(self, slots: usize) -> usize {
        (self.0 % slots as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_places_in_blocks() {
        let object = ObjectId::new(70);
        assert_eq!((object.place(32), ObjectId::in_block(2, 6, 32)), ((2, 6), object));
        assert_eq!(
            (object.previous().next(), object.behind(ObjectId::new(64)), ObjectId::NONE.behind(object)),
            (object, 6, 0)
        );
        assert_eq!(ObjectId::new(68).until(object).map(ObjectId::get).collect::<Vec<_>>(), [68, 69]);
        assert_eq!((ObjectId::LAST.next(), ObjectId::in_block(u64::MAX, 1, 32)), (ObjectId::LAST, ObjectId::LAST));
        let possible =
            [ObjectId::META_DNODE, ObjectId::new(1 << 48), ObjectId::LAST, object].map(ObjectId::is_possible);
        assert_eq!(possible, [false, false, false, true]);
        assert_eq!(DatasetId::of_object(object).object(), object);
    }

    #[test]
    fn groups_do_not_overflow() {
        let last = Txg::new(u64::MAX);
        assert_eq!((last.next(), last.plus(7), Txg::ZERO.previous()), (last, last, Txg::ZERO));
        assert_eq!((Txg::new(9).minus(2), Txg::new(9).since(Txg::new(4))), (Txg::new(7), 5));
        assert_eq!((Txg::new(4).since(Txg::new(9)), Txg::new(11).slot(4), last.slot(4)), (0, 3, 3));
        assert_eq!(format!("{:>6}|{}", Txg::new(42), Txg::new(7)), "    42|7");
        assert_eq!(format!("{:x}|{:#x}", Txg::new(42), Txg::new(42)), "2a|0x2a");
    }
}
