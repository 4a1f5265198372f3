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
use zerocopy::IntoBytes;

use crate::blkptr::BlkPtr;
use crate::ids::{DatasetId, DirId, Guid, ObjectId, Txg};

/// A directory of the dataset tree: one for each file system or volume.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)] // see the drawing
pub struct DirPhys {
    /// Seconds; nothing reads it.
    pub creation_time_s: u64,
    pub head_dataset: DatasetId,
    pub parent: DirId,
    pub origin: DatasetId,
    pub child_zap: ObjectId,
    pub used_bytes: u64,
    pub compressed_bytes: u64,
    pub uncompressed_bytes: u64,
    pub quota: u64,
    pub reserved: u64,
    pub props_zap: ObjectId,
    pub deleg_zap: ObjectId,
    pub flags: u64,
    /// By head, snapshots, children, child reservations, refreservation; valid with flag 1.
    pub used_breakdown: [u64; 5],
    pub clones_zap: ObjectId,
}

impl DirPhys {
    /// `used_breakdown` is kept.
    pub const FLAG_USED_BREAKDOWN: u64 = 1;
    /// Bytes of the bonus buffer.
    pub const SIZE: usize = 256;

    /// From a bonus buffer.
    pub fn parse(bonus: &[u8]) -> Result<DirPhys> {
        let mut r = Reader::new(bonus, Endian::Little);
        let mut next = || r.u64().map_err(|_| Error::corrupt("DSL directory: bonus buffer too short"));
        Ok(DirPhys {
            creation_time_s: next()?,
            head_dataset: DatasetId::new(next()?),
            parent: DirId::new(next()?),
            origin: DatasetId::new(next()?),
            child_zap: ObjectId::new(next()?),
            used_bytes: next()?,
            compressed_bytes: next()?,
            uncompressed_bytes: next()?,
            quota: next()?,
            reserved: next()?,
            props_zap: ObjectId::new(next()?),
            deleg_zap: ObjectId::new(next()?),
            flags: next()?,
            used_breakdown: [next()?, next()?, next()?, next()?, next()?],
            clones_zap: ObjectId::new(next()?),
        })
    }

    /// The bonus buffer.
    pub fn bonus(&self) -> Vec<u8> {
        let [head, snapshots, children, child_reservation, reservation] = self.used_breakdown;
        let words = [
            self.creation_time_s,
            self.head_dataset.get(),
            self.parent.get(),
            self.origin.get(),
            self.child_zap.get(),
            self.used_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.quota,
            self.reserved,
            self.props_zap.get(),
            self.deleg_zap.get(),
            self.flags,
            head,
            snapshots,
            children,
            child_reservation,
            reservation,
            self.clones_zap.get(),
        ];
        padded(words.iter().flat_map(|word| word.to_le_bytes()).collect(), DirPhys::SIZE)
    }
}

fn padded(mut bytes: Vec<u8>, size: usize) -> Vec<u8> {
    bytes.resize(size, 0);
    bytes
}

/// A dataset: the head of a directory, or a snapshot.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // see the drawing
pub struct DatasetPhys {
    pub dir: DirId,
    pub prev_snap: DatasetId,
    pub prev_snap_txg: Txg,
    pub next_snap: DatasetId,
    pub snapnames_zap: ObjectId,
    pub num_children: u64,
    pub creation_time_s: u64,
    pub creation_txg: Txg,
    pub deadlist: ObjectId,
    pub referenced_bytes: u64,
    pub compressed_bytes: u64,
    pub uncompressed_bytes: u64,
    pub unique_bytes: u64,
    pub fsid_guid: u64,
    pub guid: Guid,
    pub flags: u64,
    pub bp: BlkPtr,
    pub next_clones_zap: ObjectId,
    pub props_zap: ObjectId,
    pub userrefs_zap: ObjectId,
}

impl DatasetPhys {
    /// Bytes of the bonus buffer.
    pub const SIZE: usize = 320;
    /// Most children: numbers of objects have 48 bits.
    const CHILDREN_MAX: u64 = 1 << 48;
    /// A receive is under way, or broke off.
    pub const FLAG_INCONSISTENT: u64 = 1 << 0;
    /// `unique_bytes` is exact.
    pub const FLAG_UNIQUE_ACCURATE: u64 = 1 << 2;
    /// A clone of it cannot be promoted; of old pools.
    pub const FLAG_NO_PROMOTE: u64 = 1 << 1;
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
            dir: DirId::new(next()?),
            prev_snap: DatasetId::new(next()?),
            prev_snap_txg: Txg::new(next()?),
            next_snap: DatasetId::new(next()?),
            snapnames_zap: ObjectId::new(next()?),
            num_children: next()?,
            creation_time_s: next()?,
            creation_txg: Txg::new(next()?),
            deadlist: ObjectId::new(next()?),
            referenced_bytes: next()?,
            compressed_bytes: next()?,
            uncompressed_bytes: next()?,
            unique_bytes: next()?,
            fsid_guid: next()?,
            guid: Guid::new(next()?),
            flags: next()?,
            bp: BlkPtr::HOLE,
            next_clones_zap: ObjectId::NONE,
            props_zap: ObjectId::NONE,
            userrefs_zap: ObjectId::NONE,
        };
        if phys.num_children > DatasetPhys::CHILDREN_MAX {
            return Err(Error::corrupt(format!("DSL dataset: {} children", phys.num_children)));
        }
        phys.bp = r.take(BlkPtr::SIZE).ok().and_then(BlkPtr::parse).ok_or_else(short)?;
        // version 1 of the pool ended here or a little later
        for field in [&mut phys.next_clones_zap, &mut phys.props_zap, &mut phys.userrefs_zap] {
            *field = ObjectId::new(r.u64().unwrap_or(0));
        }
        Ok(phys)
    }

    /// The bonus buffer.
    pub fn bonus(&self) -> Vec<u8> {
        let head = [
            self.dir.get(),
            self.prev_snap.get(),
            self.prev_snap_txg.get(),
            self.next_snap.get(),
            self.snapnames_zap.get(),
            self.num_children,
            self.creation_time_s,
            self.creation_txg.get(),
            self.deadlist.get(),
            self.referenced_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.unique_bytes,
            self.fsid_guid,
            self.guid.get(),
            self.flags,
        ];
        let tail = [self.next_clones_zap, self.props_zap, self.userrefs_zap].map(ObjectId::get);
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        padded([&words(&head)[..], self.bp.as_bytes(), &words(&tail)].concat(), DatasetPhys::SIZE)
    }

    /// Whether this is a snapshot, not a head.
    pub fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer in which every word has another value, and of which `used` words mean something.
    fn sample(words: usize, used: usize) -> Vec<u8> {
        let word = |i: usize| if i < used { (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { 0 };
        (0..words).flat_map(|i| word(i).to_le_bytes()).collect()
    }

    #[test]
    fn what_is_written_reads_back() {
        let dir = sample(32, 19);
        assert_eq!(DirPhys::parse(&dir).unwrap().bonus(), dir);
        let mut dataset = sample(40, 35);
        dataset[46..48].fill(0); // of the number of children
        assert_eq!(DatasetPhys::parse(&dataset).unwrap().bonus(), dataset);
        dataset[47] = 1;
        assert!(DatasetPhys::parse(&dataset).is_err());
    }

    #[test]
    fn fields_are_in_their_places() {
        let words: Vec<u8> = (0..40u64).flat_map(u64::to_le_bytes).collect();
        let dir = DirPhys::parse(&words).unwrap();
        assert_eq!(
            (dir.creation_time_s, dir.quota, dir.used_breakdown, dir.clones_zap.get()),
            (0, 8, [13, 14, 15, 16, 17], 18)
        );
        let dataset = DatasetPhys::parse(&words).unwrap();
        assert_eq!(
            (dataset.guid.get(), dataset.flags, dataset.next_clones_zap.get(), dataset.userrefs_zap.get()),
            (14, 15, 32, 34)
        );
        assert_eq!(DatasetPhys::parse(&words[..256]).unwrap().next_clones_zap, ObjectId::NONE);
        assert!(DatasetPhys::parse(&words[..255]).is_err() && DirPhys::parse(&words[..151]).is_err());
    }
}
