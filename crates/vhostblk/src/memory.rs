//! The memory of a guest, as far as its monitor has given it.
//!
//! It is mapped, so what becomes of its file becomes of the mapping: a page that is gone is a signal that ends the
//! process. So only that is mapped which cannot go: a `memfd` of ordinary pages that is sealed against shrinking, and has
//! all that the region says. QEMU's `memory-backend-memfd` is one.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::{Error, Kind, Result};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use crate::message::RegionPlace;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// What `fstatfs` says of a `memfd` of ordinary pages; huge ones may fail to be there when they are touched.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The memory of a guest.
pub(crate) struct GuestRam {
    map: GuestMemoryMmap,
    places: Vec<RegionPlace>,
}

impl GuestRam {
    /// None of it.
    pub(crate) fn none() -> GuestRam {
        GuestRam { map: GuestMemoryMmap::new(), places: Vec::new() }
    }

    /// Regions, with the file of each. Errors: `Invalid` for what cannot be mapped, or is not to be.
    pub(crate) fn map(mut places: Vec<RegionPlace>, files: Vec<OwnedFd>) -> Result<GuestRam> {
        if places.len() != files.len() {
            let what = format!("{} regions of memory, and {} descriptors", places.len(), files.len());
            return Err(Error::new(Kind::Invalid, what));
        }
        let mut regions = places
            .iter()
            .zip(files)
            .map(|(place, file)| Ok((place.guest, map_one(place, file)?)))
            .collect::<Result<Vec<_>>>()?;
        regions.sort_by_key(|(guest, _)| *guest);
        let regions = regions.into_iter().map(|(_, region)| region).collect();
        let map = GuestMemoryMmap::from_regions(regions).map_err(|error| refused(format!("memory: {error}")))?;
        places.sort_by_key(|place| place.monitor);
        Ok(GuestRam { map, places })
    }

    /// It, to be read and written.
    pub(crate) fn bytes(&self) -> &GuestMemoryMmap {
        &self.map
    }

    /// It, and a page that no guest has, which begins with `bytes`: for what is to be read as if the guest had it. Errors:
    /// `Invalid` if there is no room; there is no memory.
    pub(crate) fn with_page(&self, bytes: &[u8]) -> Result<(GuestMemoryMmap, GuestAddress)> {
        // the sum was checked when it was mapped
        let end = self.places.iter().map(|place| place.guest + place.size).max().unwrap_or(0);
        let no_room = || refused("no room behind a guest's memory".to_owned());
        let at = end.max(1).checked_next_multiple_of(PAGE_BYTES).map(GuestAddress).ok_or_else(no_room)?;
        let page = MmapRegion::new(PAGE_BYTES as usize)
            .map_err(|error| refused(format!("memory cannot be mapped: {error}")))?;
        let page = GuestRegionMmap::new(page, at).ok_or_else(no_room)?;
        let map = self.map.insert_region(Arc::new(page)).map_err(|error| refused(format!("memory: {error}")))?;
        map.write_slice(bytes, at).map_err(|error| refused(format!("memory: {error}")))?;
        Ok((map, at))
    }

    /// Where the guest has what the monitor has at an address. Errors: `Invalid` for one in no region.
    pub(crate) fn guest_address(&self, monitor: u64) -> Result<u64> {
        let within = |place: &&RegionPlace| monitor.checked_sub(place.monitor).is_some_and(|at| at < place.size);
        let place = self.places.iter().find(within);
        // the sum was checked when it was mapped
        place
            .map(|place| place.guest + (monitor - place.monitor))
            .ok_or_else(|| refused(format!("address {monitor:#x} is in no region of memory")))
    }
}

fn map_one(place: &RegionPlace, file: OwnedFd) -> Result<GuestRegionMmap> {
    let mapping = map_sealed(file, place.offset, place.size)?;
    GuestRegionMmap::new(mapping, GuestAddress(place.guest))
        .ok_or_else(|| refused(format!("a region from {:#x} on behind the end of all addresses", place.guest)))
}

/// Maps a part of a file that can neither shrink nor fail to be there. Errors: `Invalid` for one that could.
pub(crate) fn map_sealed(file: OwnedFd, offset: u64, bytes: u64) -> Result<MmapRegion> {
    let end = offset.checked_add(bytes).filter(|_| bytes > 0);
    let end = end.ok_or_else(|| refused(format!("a region of {bytes:#x} bytes")))?;
    let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let is_ordinary = fstatfs(&file).is_ok_and(|fs| fs.f_type == TMPFS_MAGIC);
    if !is_sealed || !is_ordinary {
        let what = "memory that is no memfd of ordinary pages, sealed against shrinking \
                    (QEMU: -object memory-backend-memfd,share=on)";
        return Err(refused(what.to_owned()));
    }
    // after the seal: it cannot become smaller any more
    let size = fstat(&file).map_err(std::io::Error::from)?.st_size;
    if u64::try_from(size).is_ok_and(|size| end > size) {
        return Err(refused(format!("a region up to {end:#x} in a file of {size:#x} bytes")));
    }
    let len = usize::try_from(bytes).map_err(|_| refused("a region too large".to_owned()))?;
    MmapRegion::from_file(FileOffset::new(File::from(file), offset), len)
        .map_err(|error| refused(format!("memory cannot be mapped: {error}")))
}

fn refused(what: String) -> Error {
    Error::new(Kind::Invalid, what)
}
