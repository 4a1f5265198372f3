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
    /// No object.
    pub const NONE: ObjectType = ObjectType(0);
    /// The MOS's root ZAP.
    pub const OBJECT_DIRECTORY: ObjectType = ObjectType(1);
    /// Pool configuration.
    pub const PACKED_NVLIST: ObjectType = ObjectType(3);
    /// A list of block pointers.
    pub const BPOBJ: ObjectType = ObjectType(5);
    /// Space map.
    pub const SPACE_MAP: ObjectType = ObjectType(8);
    /// Log block.
    pub const INTENT_LOG: ObjectType = ObjectType(9);
    /// Block of dnodes.
    pub const DNODE: ObjectType = ObjectType(10);
    /// Head of an object set.
    pub const OBJSET: ObjectType = ObjectType(11);
    /// DSL directory, in a bonus buffer.
    pub const DSL_DIR: ObjectType = ObjectType(12);
    /// Properties of a directory or snapshot.
    pub const DSL_PROPS: ObjectType = ObjectType(15);
    /// DSL dataset, in a bonus buffer.
    pub const DSL_DATASET: ObjectType = ObjectType(16);
    /// The fixed znode, in a bonus buffer.
    pub const ZNODE: ObjectType = ObjectType(17);
    /// ACL of ZPL version 1 and 2.
    pub const OLD_ACL: ObjectType = ObjectType(18);
    /// Data of a file.
    pub const PLAIN_FILE_CONTENTS: ObjectType = ObjectType(19);
    /// Names of a directory.
    pub const DIRECTORY_CONTENTS: ObjectType = ObjectType(20);
    /// A file system's object 1.
    pub const MASTER_NODE: ObjectType = ObjectType(21);
    /// Data of a volume.
    pub const ZVOL: ObjectType = ObjectType(23);
    /// Properties of a volume.
    pub const ZVOL_PROP: ObjectType = ObjectType(24);
    /// ACL of ZPL version 3 and later.
    pub const ACL: ObjectType = ObjectType(33);
    /// System attributes, in a bonus or spill buffer.
    pub const SA: ObjectType = ObjectType(44);
    /// Dedup data.
    pub const DEDUP: ObjectType = ObjectType(49);

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

struct Row {
    swap: SwapClass,
    metadata: bool,
    encrypted: bool,
    name: &'static str,
}

const fn meta(swap: SwapClass, name: &'static str) -> Row {
    Row { swap, metadata: true, encrypted: false, name }
}

const fn meta_encrypted(swap: SwapClass, name: &'static str) -> Row {
    Row { swap, metadata: true, encrypted: true, name }
}

const fn data(swap: SwapClass, encrypted: bool, name: &'static str) -> Row {
    Row { swap, metadata: false, encrypted, name }
}

/// Numbers 0 to 53; the facts are OpenZFS's.
const TABLE: &[Row] = &[
    meta(U8, "unallocated"),
    meta(Zap, "object directory"),
    meta(U64, "object array"),
    meta(U8, "packed nvlist"),
    meta(U64, "packed nvlist size"),
    meta(U64, "bpobj"),
    meta(U64, "bpobj header"),
    meta(U64, "SPA space map header"),
    meta(U64, "SPA space map"),
    meta_encrypted(U64, "ZIL intent log"),
    meta_encrypted(Dnode, "DMU dnode"),
    meta(Objset, "DMU objset"),
    meta(U64, "DSL directory"),
    meta(Zap, "DSL directory child map"),
    meta(Zap, "DSL dataset snap map"),
    meta(Zap, "DSL props"),
    meta(U64, "DSL dataset"),
    meta(Znode, "ZFS znode"),
    meta_encrypted(OldAcl, "ZFS V0 ACL"),
    data(U8, true, "ZFS plain file"),
    meta_encrypted(Zap, "ZFS directory"),
    meta(Zap, "ZFS master node"),
    meta_encrypted(Zap, "ZFS delete queue"),
    data(U8, true, "zvol object"),
    meta(Zap, "zvol prop"),
    data(U8, true, "other uint8[]"),
    data(U64, true, "other uint64[]"),
    meta(Zap, "other ZAP"),
    meta(Zap, "persistent error log"),
    meta(U8, "SPA history"),
    meta(U64, "SPA history offsets"),
    meta(Zap, "Pool properties"),
    meta(Zap, "DSL permissions"),
    meta_encrypted(Acl, "ZFS ACL"),
    meta_encrypted(U8, "ZFS SYSACL"),
    meta_encrypted(U8, "FUID table"),
    meta(U64, "FUID table size"),
    meta(Zap, "DSL dataset next clones"),
    meta(Zap, "scan work queue"),
    meta_encrypted(Zap, "ZFS user/group/project used"),
    meta_encrypted(Zap, "ZFS user/group/project quota"),
    meta(Zap, "snapshot refcount tags"),
    meta(Zap, "DDT ZAP algorithm"),
    meta(Zap, "DDT statistics"),
    meta_encrypted(U8, "System attributes"),
    meta_encrypted(Zap, "SA master node"),
    meta_encrypted(Zap, "SA attr registration"),
    meta_encrypted(Zap, "SA attr layouts"),
    meta(Zap, "scan translations"),
    data(U8, true, "deduplicated block"),
    meta(Zap, "DSL deadlist map"),
    meta(U64, "DSL deadlist map hdr"),
    meta(Zap, "DSL dir clones"),
    meta(U64, "bpobj subobj"),
];

#[cfg(test)]
mod tests {
    use super::*;

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
