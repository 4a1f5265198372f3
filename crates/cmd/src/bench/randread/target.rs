//! What is read: a disk or a file, past the page cache if that can be.

use std::fs::{File, Metadata};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use base::Result;
use device::{Device, FileDevice, OpenMode};
use protocol::words::nicenum::nicebytes;
use rustix::fs::{Advice, fadvise, fstatfs, major, minor};

/// The sizes of reads: 512 bytes to 1 MiB.
pub(super) const SIZES: std::ops::RangeInclusive<u32> = 9..=20;

/// File systems that have no device: tmpfs and ramfs, as statfs(2) has them.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// See the top of the file.
pub struct ReadTarget {
    device: FileDevice,
    /// What is read through the page cache, if it cannot be read past it.
    cached: Option<File>,
    /// Places and sizes of reads are multiples of this.
    unit: u64,
    /// Why something else than a device may answer.
    doubts: Vec<&'static str>,
}

impl ReadTarget {
    /// Opens it for reading.
    pub fn open(path: &Path) -> std::result::Result<ReadTarget, String> {
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
        let path_of = path.canonicalize().map_err(|e| failed(&e))?;
        let text = path_of.to_str().ok_or_else(|| failed(&"the path is not UTF-8"))?;
        // before it is opened by another call, which a named pipe would never let go
        let device = FileDevice::open(text, OpenMode::ReadOnly).map_err(|e| failed(&e))?;
        let file = File::open(text).map_err(|e| failed(&e))?;
        let direct = device.raw().and_then(|raw| raw.direct);
        let unit = direct.map_or(rustix::param::page_size() as u64, |direct| direct.offset_align);
        let mut doubts = file.metadata().map(|found| doubts(&file, &found)).map_err(|e| failed(&e))?;
        if direct.is_none() {
            doubts.insert(0, "reads go through the page cache, as it cannot be read past it; each is dropped from it");
        }
        // the other sizes are multiples of both
        if device.size() < unit.max(1 << SIZES.start()) {
            return Err(failed(&"too small to be read at random"));
        }
        let cached = direct.is_none().then_some(file);
        if let Some(file) = &cached {
            // no reading ahead, and nothing left from before
            let advised = fadvise(file, 0, None, Advice::Random).and(fadvise(file, 0, None, Advice::DontNeed));
            advised.map_err(|e| failed(&e))?;
        }
        Ok(ReadTarget { device, cached, unit, doubts })
    }

    pub fn path(&self) -> &str {
        self.device.path()
    }

    /// In bytes.
    pub fn size(&self) -> u64 {
        self.device.size()
    }

    /// The smallest size of reads.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Whether reads go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.cached.is_none()
    }

    pub fn doubts(&self) -> &[&'static str] {
        &self.doubts
    }

    /// Whether reads of this size can be measured: a power of two.
    pub fn can_read(&self, size: u64) -> bool {
        (self.unit..=self.size()).contains(&size)
    }

    /// Fills `buf`, whose length [`ReadTarget::can_read`] has admitted, from a multiple of that length.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let Some(file) = &self.cached else { return self.device.read_at(at, buf) };
        file.read_exact_at(buf, at)?;
        Ok(fadvise(file, at, NonZeroU64::new(buf.len() as u64), Advice::DontNeed).map_err(std::io::Error::from)?)
    }

    /// For people.
    pub fn describe(&self) -> String {
        let way = if self.is_direct() { "past" } else { "through" };
        format!("{}: {}, read {way} the page cache", self.path(), nicebytes(self.size()))
    }
}

/// What is suspicious of a file or disk.
fn doubts(file: &File, metadata: &Metadata) -> Vec<&'static str> {
    if metadata.file_type().is_block_device() {
        let is_cached = is_cached_loop(metadata.rdev());
        return is_cached
            .then_some("the page cache of the file below this loop device may answer")
            .into_iter()
            .collect();
    }
    let is_in_memory = fstatfs(file).is_ok_and(|found| IN_MEMORY.contains(&(found.f_type as u32)));
    let has_holes = metadata.blocks().saturating_mul(512) < metadata.len();
    [(is_in_memory, "it lies in memory"), (has_holes, "it has holes or is compressed: not all of it is on a device")]
        .into_iter()
        .filter_map(|(is_so, doubt)| is_so.then_some(doubt))
        .collect()
}

/// Whether a disk is, or is a part of, a loop device that reads its file through the page cache.
fn is_cached_loop(rdev: u64) -> bool {
    let of = |inner: &str| format!("/sys/dev/block/{}:{}/{inner}loop/dio", major(rdev), minor(rdev));
    ["", "../"].iter().any(|inner| std::fs::read_to_string(of(inner)).is_ok_and(|dio| dio.trim() == "0"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn what_cannot_be_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let open = |path: &Path| ReadTarget::open(path).err().unwrap_or_default();
        assert!(open(dir.path()).contains("neither a regular file nor a disk"), "{}", open(dir.path()));
        assert!(open(&path).contains("file"));
        file(&path, 100);
        assert!(open(&path).contains("too small"));
        file(&path, 10_000);
        let target = ReadTarget::open(&path).unwrap();
        assert!(target.can_read(8192) && !target.can_read(16_384) && !target.can_read(target.unit() / 2));
    }

    #[test]
    fn both_ways_read_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mut target = ReadTarget::open(&path).unwrap();
        for _ in 0..2 {
            for (size, at) in [(8192, 16_384), (8192, 0), (1 << 16, 1 << 19)] {
                let mut buf = base::AlignedBuf::zeroed(size);
                target.read(at, &mut buf).unwrap();
                assert!(buf[..] == bytes[at as usize..][..size]);
            }
            target.cached = Some(File::open(&path).unwrap());
            assert!(target.describe().contains("through"));
        }
        let past = target.size();
        assert!(target.read(past, &mut base::AlignedBuf::zeroed(8192)).is_err());
    }

    #[test]
    fn holes_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        File::create(&path).unwrap().set_len(10 << 20).unwrap();
        let doubts = |path: &Path| ReadTarget::open(path).unwrap().doubts().join(", ");
        assert!(doubts(&path).contains("holes"));
        file(&path, 10 << 20);
        File::open(&path).unwrap().sync_all().unwrap();
        assert!(!doubts(&path).contains("holes"), "{}", doubts(&path));
    }
}
