//! How full a file system is, as OpenZFS tells `statfs`.

use crate::tree::{DatasetSpace, ProjectSpace};

/// Bytes of a dnode: no file can have less.
const DNODE_BYTES: u64 = 512;

/// The numbers of statfs(2).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statfs {
    /// Bytes of a block, both "optimal" and "fragment": programs use either for the other.
    pub(crate) block_bytes: u32,
    /// Blocks in use and free.
    pub(crate) blocks: u64,
    pub(crate) blocks_free: u64,
    pub(crate) files: u64,
    pub(crate) files_free: u64,
    pub(crate) name_bytes_max: u32,
}

impl From<DatasetSpace> for Statfs {
    fn from(space: DatasetSpace) -> Statfs {
        let block_bytes = if space.record_bytes.is_power_of_two() { space.record_bytes } else { 128 << 10 };
        let block = u64::from(block_bytes);
        // at least one block is in use, so that nobody divides by zero
        let used = space.referenced_bytes.clamp(1, u64::MAX - block).next_multiple_of(block);
        let files_free = space.objects_available.min(space.available_bytes / DNODE_BYTES);
        Statfs {
            block_bytes,
            blocks: used.saturating_add(space.available_bytes) / block,
            blocks_free: space.available_bytes / block,
            files: files_free.saturating_add(space.objects_used),
            files_free,
            name_bytes_max: space.name_bytes_max,
        }
    }
}

impl Statfs {
    /// As seen from a directory that hands its project on: the project's limits are the size of all.
    pub(crate) fn within(mut self, project: &ProjectSpace) -> Statfs {
        let block = u64::from(self.block_bytes);
        if let Some((used, limit)) = project.bytes {
            self.blocks = limit / block;
            self.blocks_free = limit.saturating_sub(used) / block;
        }
        if let Some((used, limit)) = project.objects {
            self.files = limit;
            self.files_free = limit.saturating_sub(used);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_openzfs_counts() {
        let space = DatasetSpace {
            referenced_bytes: 24 << 10,
            available_bytes: 10 << 20,
            objects_used: 6,
            objects_available: 1 << 40,
            record_bytes: 128 << 10,
            name_bytes_max: 255,
        };
        let expect = Statfs {
            block_bytes: 128 << 10,
            blocks: 81,
            blocks_free: 80,
            files: 20486,
            files_free: 20480,
            name_bytes_max: 255,
        };
        assert_eq!(Statfs::from(space), expect);
        let project = ProjectSpace { bytes: Some((1 << 20, 3 << 20)), objects: Some((7, 5)) };
        let within = Statfs::from(space).within(&project);
        assert_eq!((within.blocks, within.blocks_free, within.files, within.files_free), (24, 16, 5, 0));
        assert_eq!(Statfs::from(space).within(&ProjectSpace::default()), expect);
        let full = Statfs::from(DatasetSpace::default());
        assert_eq!((full.blocks, full.blocks_free, full.files), (1, 0, 0));
        // nonsense gives nonsense, but no panic
        let _ = Statfs::from(DatasetSpace {
            referenced_bytes: u64::MAX,
            available_bytes: u64::MAX,
            record_bytes: 7,
            ..space
        });
    }
}
