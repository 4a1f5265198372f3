//! The bonus buffers of the dataset and snapshot layer: directories and datasets.
//!
//! ```text
//! directory (256 bytes of u64)              dataset (320 bytes of u64)
//!   0  creation time (unused)                 0  directory object
//!   1  head dataset object                    1  previous snapshot object
//!   2  parent directory object                2  previous snapshot txg
//!   3  origin snapshot object                 3  next snapshot object
//!   4  ZAP of child directories               4  ZAP of snapshot names; 0 in a snapshot
//!   5  used bytes, with children              5  clones and next snapshots
//!   6  compressed bytes                       6  creation time, seconds
//!   7  uncompressed bytes                     7  creation txg
//!   8  quota                                  8  deadlist object
//!   9  reservation                            9  referenced bytes
//!  10  ZAP of properties                     10  compressed bytes
//!  11  ZAP of delegations                    11  uncompressed bytes
//!  12  flags                                 12  unique bytes
//!  13  used: head, snapshots, children,      13  fsid guid
//!      child reservation, ref. reservation   14  guid
//!  18  ZAP of clones                         15  flags
//!                                            16  block pointer of the object set
//!                                            32  ZAP of next clones
//!                                            33  ZAP of properties (snapshots only)
//!                                            34  ZAP of holds
//! ```
//!
//! Source: the published ZFS on-disk specification, chapter 4.

use base::{Endian, Error, Reader, Result};

use crate::blkptr::BlkPtr;

/// A directory of the dataset tree: one for each file system or volume.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // see the drawing
pub struct DirPhys {
    pub head_dataset: u64,
    pub parent: u64,
    pub origin: u64,
    pub child_zap: u64,
    pub used_bytes: u64,
    pub compressed_bytes: u64,
    pub uncompressed_bytes: u64,
    pub quota: u64,
    pub reserved: u64,
    pub props_zap: u64,
    pub deleg_zap: u64,
    pub flags: u64,
    /// By head, snapshots, children, child reservations, refreservation; valid with flag 1.
    pub used_breakdown: [u64; 5],
    pub clones_zap: u64,
}

impl DirPhys {
    /// `used_breakdown` is kept.
    pub const FLAG_USED_BREAKDOWN: u64 = 1;

    /// From a bonus buffer.
    pub fn parse(bonus: &[u8]) -> Result<DirPhys> {
        let mut r = Reader::new(bonus, Endian::Little);
        let mut next = || r.u64().map_err(|_| Error::corrupt("DSL directory: bonus buffer too short"));
        next()?;
        Ok(DirPhys {
            head_dataset: next()?,
            parent: next()?,
            origin: next()?,
            child_zap: next()?,
            used_bytes: next()?,
            compressed_bytes: next()?,
            uncompressed_bytes: next()?,
            quota: next()?,
            reserved: next()?,
            props_zap: next()?,
            deleg_zap: next()?,
            flags: next()?,
            used_breakdown: [next()?, next()?, next()?, next()?, next()?],
            clones_zap: next()?,
        })
    }
}

/// A dataset: the head of a directory, or a snapshot.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // see the drawing
pub struct DatasetPhys {
    pub dir: u64,
    pub prev_snap: u64,
    pub prev_snap_txg: u64,
    pub next_snap: u64,
    pub snapnames_zap: u64,
    pub num_children: u64,
    pub creation_time_s: u64,
    pub creation_txg: u64,
    pub deadlist: u64,
    pub referenced_bytes: u64,
    pub compressed_bytes: u64,
    pub uncompressed_bytes: u64,
    pub unique_bytes: u64,
    pub fsid_guid: u64,
    pub guid: u64,
    pub flags: u64,
    pub bp: BlkPtr,
    pub next_clones_zap: u64,
    pub props_zap: u64,
    pub userrefs_zap: u64,
}

impl DatasetPhys {
    /// A receive is under way, or broke off.
    pub const FLAG_INCONSISTENT: u64 = 1 << 0;
    /// `unique_bytes` is exact.
    pub const FLAG_UNIQUE_ACCURATE: u64 = 1 << 2;
    /// To be destroyed with its last hold or clone.
    pub const FLAG_DEFER_DESTROY: u64 = 1 << 3;
    /// Names differ in case only.
    pub const FLAG_CASE_INSENSITIVE: u64 = 1 << 16;

    /// From a bonus buffer.
    pub fn parse(bonus: &[u8]) -> Result<DatasetPhys> {
        let short = || Error::corrupt("DSL dataset: bonus buffer too short");
        let mut r = Reader::new(bonus, Endian::Little);
        let mut next = || r.u64().map_err(|_| short());
        let mut phys = DatasetPhys {
            dir: next()?,
            prev_snap: next()?,
            prev_snap_txg: next()?,
            next_snap: next()?,
            snapnames_zap: next()?,
            num_children: next()?,
            creation_time_s: next()?,
            creation_txg: next()?,
            deadlist: next()?,
            referenced_bytes: next()?,
            compressed_bytes: next()?,
            uncompressed_bytes: next()?,
            unique_bytes: next()?,
            fsid_guid: next()?,
            guid: next()?,
            flags: next()?,
            bp: BlkPtr::HOLE,
            next_clones_zap: 0,
            props_zap: 0,
            userrefs_zap: 0,
        };
        phys.bp = r.take(BlkPtr::SIZE).ok().and_then(BlkPtr::parse).ok_or_else(short)?;
        // version 1 of the pool ended here or a little later
        for field in [&mut phys.next_clones_zap, &mut phys.props_zap, &mut phys.userrefs_zap] {
            *field = r.u64().unwrap_or(0);
        }
        Ok(phys)
    }

    /// Whether this is a snapshot, not a head.
    pub fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }
}
