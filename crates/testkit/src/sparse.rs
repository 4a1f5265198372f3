//! A device in memory that keeps only what was written, and of which a copy costs next to nothing.
//!
//! Bytes are kept in pages that copies share; a write to a page that is shared goes to a page of its own.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use base::{Error, Kind, Result, RwLock};
use device::Device;

use crate::rng::Rng;

/// What a device writes at once or not at all, in bytes.
pub(crate) const SECTOR: usize = 512;
const PAGE_SIZE: usize = 16 << 10;

type Page = Arc<[u8; PAGE_SIZE]>;

/// A device of zeros until something is written.
pub struct SparseDevice {
    name: String,
    size: u64,
    pages: RwLock<Vec<Option<Page>>>,
}

impl SparseDevice {
    /// A device of `size` bytes; `name` is for messages.
    pub fn new(name: impl Into<String>, size: u64) -> SparseDevice {
        let pages = vec![None; size.div_ceil(PAGE_SIZE as u64) as usize];
        SparseDevice { name: name.into(), size, pages: RwLock::new(pages) }
    }

    /// A device with the same name and contents; what is written to one is not seen in the other.
    pub fn copy(&self) -> SparseDevice {
        let pages = self.pages.read().clone();
        SparseDevice { name: self.name.clone(), size: self.size, pages: RwLock::new(pages) }
    }

    /// Bytes of memory that it takes, as if it shared nothing.
    pub fn used_bytes(&self) -> u64 {
        let pages = self.pages.read();
        pages.iter().flatten().count() as u64 * PAGE_SIZE as u64
    }

    /// The ranges of bytes in which something was written: a page each.
    pub fn used(&self) -> Vec<Range<u64>> {
        let pages = self.pages.read();
        let range =
            |number: usize| (number * PAGE_SIZE) as u64..((number + 1) * PAGE_SIZE).min(self.size as usize) as u64;
        (0..pages.len()).filter(|&number| pages[number].is_some()).map(range).collect()
    }

    /// Writes it to a file with holes, for other programs.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        let pages = self.pages.read();
        for (number, page) in pages.iter().enumerate() {
            let Some(page) = page else { continue };
            let at = (number * PAGE_SIZE) as u64;
            file.write_all_at(&page[..PAGE_SIZE.min((self.size - at) as usize)], at)?;
        }
        Ok(())
    }

    /// Writes some of the sectors of `bytes`, which `rng` chooses, as if a write was interrupted.
    pub fn write_torn(&self, offset: u64, bytes: &[u8], rng: &mut Rng) -> Result<()> {
        for (number, sector) in bytes.chunks(SECTOR).enumerate() {
            if rng.below(2) == 0 {
                self.write_at(offset + (number * SECTOR) as u64, sector)?;
            }
        }
        Ok(())
    }

    fn check(&self, what: &str, offset: u64, len: usize) -> Result<()> {
        match offset.checked_add(len as u64).is_some_and(|end| end <= self.size) {
            true => Ok(()),
            false => {
                let what = format!("{what} of {len} bytes ends behind the device's {} bytes", self.size);
                Err(Error::new(Kind::Io, what).at_vdev(&*self.name).at_offset(offset))
            }
        }
    }
}

/// The pages that a range touches: the number of each, where in it the range begins, and how long it is there.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut at = offset as usize;
    let end = at + len;
    std::iter::from_fn(move || {
        let skip = at % PAGE_SIZE;
        let len = (PAGE_SIZE - skip).min(end - at);
        let piece = (at / PAGE_SIZE, skip, len);
        at += len;
        (len > 0).then_some(piece)
    })
}

impl std::fmt::Debug for SparseDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SparseDevice({}, {} bytes)", self.name, self.size)
    }
}

impl Device for SparseDevice {
    fn path(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check("read", offset, buf.len())?;
        let pages = self.pages.read();
        let mut rest = buf;
        for (number, skip, len) in pieces(offset, rest.len()) {
            let (part, tail) = rest.split_at_mut(len);
            match &pages[number] {
                Some(page) => part.copy_from_slice(&page[skip..skip + len]),
                None => part.fill(0),
            }
            rest = tail;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check("write", offset, buf.len())?;
        let mut pages = self.pages.write();
        let mut rest = buf;
        for (number, skip, len) in pieces(offset, rest.len()) {
            let (part, tail) = rest.split_at(len);
            let page = pages[number].get_or_insert_with(|| Arc::new([0; PAGE_SIZE]));
            Arc::make_mut(page)[skip..skip + len].copy_from_slice(part);
            rest = tail;
        }
        Ok(())
    }

    /// Memory has nothing to flush.
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_go_their_own_way() {
        let device = SparseDevice::new("d", 3 * PAGE_SIZE as u64 + 512);
        let across = PAGE_SIZE as u64 - 2;
        device.write_at(across, b"abcd").unwrap();
        let copy = device.copy();
        device.write_at(across + 1, b"XY").unwrap();
        copy.write_at(3 * PAGE_SIZE as u64 + 508, b"last").unwrap();
        let read = |device: &SparseDevice, at: u64| {
            let mut bytes = [9; 4];
            device.read_at(at, &mut bytes).unwrap();
            bytes
        };
        assert_eq!((&read(&device, across), &read(&copy, across)), (b"aXYd", b"abcd"));
        assert_eq!(read(&device, 3 * PAGE_SIZE as u64 + 508), [0; 4]);
        assert_eq!((device.used_bytes(), copy.used_bytes()), (2 * PAGE_SIZE as u64, 3 * PAGE_SIZE as u64));
        assert!(copy.write_at(3 * PAGE_SIZE as u64 + 509, b"last").is_err());
    }
}
