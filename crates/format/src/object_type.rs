//! The type of an object or block (`dmu_object_type`): its name, and how it is turned to the other
//! byte order.
//!
//! ```text
//! below 0x80: an index into the table below
//! from 0x80:  | 1 | metadata | encrypted | byte order class (5 bits) |
//! ```

use std::fmt;

/// The type number of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ObjectType(pub u8);

/// How blocks of a type are turned to the other byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapClass {
    /// Bytes stay as they are.
    U8,
    /// An array of 16-bit numbers.
    U16,
    /// An array of 32-bit numbers.
    U32,
    /// An array of 64-bit numbers.
    U64,
    /// ZAP blocks.
    Zap,
    /// Dnodes.
    Dnode,
    /// The head of an object set.
    Objset,
    /// The fixed znode of ZPL versions 1 to 4.
    Znode,
    /// An ACL of ZPL version 1 and 2.
    OldAcl,
    /// An ACL of ZPL version 3 and later.
    Acl,
}

use SwapClass::*;

impl ObjectType {
    /// Numbers that are metadata, of no older type.
    pub const U64_METADATA: ObjectType = ObjectType(0xc3);
    /// A table that is metadata, of no older type.
    pub const ZAP_METADATA: ObjectType = ObjectType(0xc4);
    /// Bytes that are data, of no older type.
    pub const U8_DATA: ObjectType = ObjectType(0x80);

    /// Name as zdb prints it; also for numbers that no version has defined.
    pub fn name(self) -> &'static str {
        match TABLE.get(usize::from(self.0)) {
            Some(row) => row.name,
            None if self.is_new_style() => match self.swap_class() {
                Some(U8) if self.is_metadata() => "uint8 (metadata)",
                Some(U8) => "uint8",
                Some(U16) => "uint16",
                Some(U32) => "uint32",
                Some(U64) if self.is_metadata() => "uint64 (metadata)",
                Some(U64) => "uint64",
                Some(Zap) if self.is_metadata() => "zap (metadata)",
                Some(Zap) => "zap",
                Some(_) => "other",
                None => "UNKNOWN",
            },
            None => "UNKNOWN",
        }
    }

    /// Whether a version of ZFS has defined the number.
    pub fn is_valid(self) -> bool {
        usize::from(self.0) < TABLE.len() || self.is_new_style() && self.swap_class().is_some()
    }

    /// Whether blocks of the type are metadata.
    pub fn is_metadata(self) -> bool {
        match TABLE.get(usize::from(self.0)) {
            Some(row) => row.metadata,
            None => self.0 & 0x40 != 0,
        }
    }

    /// Whether an encrypted dataset encrypts blocks (or bonus buffers) of the type.
    pub fn is_encrypted(self) -> bool {
        match TABLE.get(usize::from(self.0)) {
            Some(row) => row.encrypted,
            None => self.0 & 0x20 != 0,
        }
    }

    /// How to turn to the other byte order; `None` for a number that no version has defined.
    pub fn swap_class(self) -> Option<SwapClass> {
        match TABLE.get(usize::from(self.0)) {
            Some(row) => Some(row.swap),
            None if self.is_new_style() => {
                [U8, U16, U32, U64, Zap, Dnode, Objset, Znode, OldAcl, Acl].get(usize::from(self.0 & 0x1f)).copied()
            }
            None => None,
        }
    }

    fn is_new_style(self) -> bool {
        self.0 & 0x80 != 0
    }
}

impl fmt::Display for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

struct TypeRow {
    swap: SwapClass,
    metadata: bool,
    encrypted: bool,
    name: &'static str,
}

const fn meta(swap: SwapClass, name: &'static str) -> TypeRow {
    TypeRow { swap, metadata: true, encrypted: false, name }
}

const fn meta_encrypted(swap: SwapClass, name: &'static str) -> TypeRow {
    TypeRow { swap, metadata: true, encrypted: true, name }
}

const fn data(swap: SwapClass, encrypted: bool, name: &'static str) -> TypeRow {
    TypeRow { swap, metadata: false, encrypted, name }
}

/// Makes a constant and a row of the table of each type; numbers are in order. The facts are OpenZFS's.
macro_rules! object_types {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $row:expr;)*) => {
        impl ObjectType {
            $($(#[$doc])* pub const $name: ObjectType = ObjectType($number);)*
        }

        const TABLE: &[TypeRow] = &[$($row),*];

        #[cfg(test)]
        const NUMBERS: &[u8] = &[$($number),*];
    };
}

object_types! {
    /// No object.
    NONE = 0, meta(U8, "unallocated");
    /// The MOS's root ZAP.
    OBJECT_DIRECTORY = 1, meta(Zap, "object directory");
    /// An array of numbers of objects.
    OBJECT_ARRAY = 2, meta(U64, "object array");
    /// Pool configuration.
    PACKED_NVLIST = 3, meta(U8, "packed nvlist");
    /// How long a packed list is, in a bonus buffer.
    PACKED_NVLIST_SIZE = 4, meta(U64, "packed nvlist size");
    /// A list of block pointers.
    BPOBJ = 5, meta(U64, "bpobj");
    /// Head of such a list, in a bonus buffer.
    BPOBJ_HEADER = 6, meta(U64, "bpobj header");
    /// Head of a space map, in a bonus buffer.
    SPACE_MAP_HEADER = 7, meta(U64, "SPA space map header");
    /// Space map.
    SPACE_MAP = 8, meta(U64, "SPA space map");
    /// Log block.
    INTENT_LOG = 9, meta_encrypted(U64, "ZIL intent log");
    /// Block of dnodes.
    DNODE = 10, meta_encrypted(Dnode, "DMU dnode");
    /// Head of an object set.
    OBJSET = 11, meta(Objset, "DMU objset");
    /// DSL directory, in a bonus buffer.
    DSL_DIR = 12, meta(U64, "DSL directory");
    /// Children of a DSL directory by name.
    DSL_DIR_CHILD_MAP = 13, meta(Zap, "DSL directory child map");
    /// Snapshots of a dataset by name.
    DSL_SNAP_MAP = 14, meta(Zap, "DSL dataset snap map");
    /// Properties of a directory or snapshot.
    DSL_PROPS = 15, meta(Zap, "DSL props");
    /// DSL dataset, in a bonus buffer.
    DSL_DATASET = 16, meta(U64, "DSL dataset");
    /// The fixed znode, in a bonus buffer.
    ZNODE = 17, meta(Znode, "ZFS znode");
    /// ACL of ZPL version 1 and 2.
    OLD_ACL = 18, meta_encrypted(OldAcl, "ZFS V0 ACL");
    /// Data of a file.
    PLAIN_FILE_CONTENTS = 19, data(U8, true, "ZFS plain file");
    /// Names of a directory.
    DIRECTORY_CONTENTS = 20, meta_encrypted(Zap, "ZFS directory");
    /// A file system's object 1.
    MASTER_NODE = 21, meta(Zap, "ZFS master node");
    /// Files that are open and have no name any more.
    UNLINKED_SET = 22, meta_encrypted(Zap, "ZFS delete queue");
    /// Data of a volume.
    ZVOL = 23, data(U8, true, "zvol object");
    /// Properties of a volume.
    ZVOL_PROP = 24, meta(Zap, "zvol prop");
    /// Bytes, of tests.
    PLAIN_OTHER = 25, data(U8, true, "other uint8[]");
    /// Numbers, of tests.
    U64_OTHER = 26, data(U64, true, "other uint64[]");
    /// A table, of tests.
    ZAP_OTHER = 27, meta(Zap, "other ZAP");
    /// Blocks without a right copy.
    ERROR_LOG = 28, meta(Zap, "persistent error log");
    /// History of the pool.
    SPA_HISTORY = 29, meta(U8, "SPA history");
    /// Where that begins and ends, in a bonus buffer.
    SPA_HISTORY_OFFSETS = 30, meta(U64, "SPA history offsets");
    /// Properties of the pool.
    POOL_PROPS = 31, meta(Zap, "Pool properties");
    /// What users may do with a dataset.
    DSL_PERMISSIONS = 32, meta(Zap, "DSL permissions");
    /// ACL of ZPL version 3 and later.
    ACL = 33, meta_encrypted(Acl, "ZFS ACL");
    /// ACL of a system; no version writes it.
    SYSACL = 34, meta_encrypted(U8, "ZFS SYSACL");
    /// Domains of users.
    FUID = 35, meta_encrypted(U8, "FUID table");
    /// How long that table is, in a bonus buffer.
    FUID_SIZE = 36, meta(U64, "FUID table size");
    /// Clones of a snapshot.
    NEXT_CLONES = 37, meta(Zap, "DSL dataset next clones");
    /// Datasets that a scan has yet to visit.
    SCAN_QUEUE = 38, meta(Zap, "scan work queue");
    /// Space of users, groups and projects.
    USERGROUP_USED = 39, meta_encrypted(Zap, "ZFS user/group/project used");
    /// Their quotas.
    USERGROUP_QUOTA = 40, meta_encrypted(Zap, "ZFS user/group/project quota");
    /// Holds on a snapshot.
    USERREFS = 41, meta(Zap, "snapshot refcount tags");
    /// Dedup table.
    DDT_ZAP = 42, meta(Zap, "DDT ZAP algorithm");
    /// Sums of a dedup table.
    DDT_STATS = 43, meta(Zap, "DDT statistics");
    /// System attributes, in a bonus or spill buffer.
    SA = 44, meta_encrypted(U8, "System attributes");
    /// Where the tables of system attributes are.
    SA_MASTER_NODE = 45, meta_encrypted(Zap, "SA master node");
    /// Names and sizes of system attributes.
    SA_ATTR_REGISTRATION = 46, meta_encrypted(Zap, "SA attr registration");
    /// In which orders they lie.
    SA_ATTR_LAYOUTS = 47, meta_encrypted(Zap, "SA attr layouts");
    /// Datasets that took the place of others during a scan.
    SCAN_XLATE = 48, meta(Zap, "scan translations");
    /// Dedup data.
    DEDUP = 49, data(U8, true, "deduplicated block");
    /// Dead list, by the group after which its blocks were born.
    DEADLIST = 50, meta(Zap, "DSL deadlist map");
    /// Head of a dead list, in a bonus buffer.
    DEADLIST_HEADER = 51, meta(U64, "DSL deadlist map hdr");
    /// Clones of a DSL directory.
    DSL_CLONES = 52, meta(Zap, "DSL dir clones");
    /// Lists that a list of block pointers has taken up.
    BPOBJ_SUBLISTS = 53, meta(U64, "bpobj subobj");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order() {
        assert!(NUMBERS.iter().enumerate().all(|(at, number)| at == usize::from(*number)) && TABLE.len() == 54);
    }

    #[test]
    fn known_numbers() {
        assert_eq!(TABLE.len(), 54);
        assert_eq!(ObjectType::SA.name(), "System attributes");
        assert_eq!(ObjectType::DEDUP.name(), "deduplicated block");
        assert_eq!(ObjectType(196).swap_class(), Some(Zap));
        assert!(ObjectType(196).is_metadata());
        assert!(!ObjectType(60).is_valid());
        assert!(!ObjectType(0x9f).is_valid());
    }
}
