//! Memory for large buffers: slabs of 2 MiB, each cut into buffers of one size.
//!
//! ```text
//!   class 128 KiB   slab [ # # . # . . . . ]   slab [ # # # # # # # # ]      # in use
//!   class 2 MiB     slab [       #         ]                                 . free
//! ```
//!
//! Fresh memory costs a page fault for every 4 KiB of it, which is more than copying a block into it; so all
//! pages of a slab are asked for at once. (As one huge page they would cost far less, but in a virtual machine
//! that gives free memory back to its host far more.) A slab goes back to the system when all of it is free,
//! and more than [`FREE_BYTES_MAX`] is, or when memory is short ([`give_memory_back`]).
//!
//! Invariant: memory that is handed out is initialised: to zeros by the system, or by whoever had it before.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// log2 of the bytes of the smallest buffers, and how many sizes there are: each is twice the one before.
const SHIFT_MIN: u32 = 12;
const CLASSES: usize = 13;
/// Bytes of a slab whose buffers are smaller, and what every slab begins on.
const SLAB_BYTES: usize = 2 << 20;
/// Free bytes that are kept, unless told otherwise: about half of what may wait to be written.
const FREE_BYTES_MAX: usize = 256 << 20;
static FREE_MAX: AtomicUsize = AtomicUsize::new(FREE_BYTES_MAX);

/// The slabs of one size of buffers.
struct Class {
    /// By address: the places that are free.
    slabs: BTreeMap<usize, Vec<u16>>,
    /// Addresses of those with a free place.
    with_room: Vec<usize>,
}

static FREE_BYTES: AtomicUsize = AtomicUsize::new(0);
static ALL: [Mutex<Class>; CLASSES] =
    [const { Mutex::new(Class { slabs: BTreeMap::new(), with_room: Vec::new() }) }; CLASSES];

/// The bytes that a buffer of `len` takes; `None` for one that is too large for a slab.
pub(crate) fn size_for(len: usize) -> Option<usize> {
    let size = len.max(1 << SHIFT_MIN).checked_next_power_of_two()?;
    (class_of(size) < CLASSES).then_some(size)
}

/// A buffer of `size` bytes, one of [`size_for`], that begins on a page; `None` if the system has no memory.
pub(crate) fn take(size: usize) -> Option<NonNull<u8>> {
    let mut class = ALL[class_of(size)].lock().unwrap_or_else(PoisonError::into_inner);
    let slab = match class.with_room.last() {
        Some(&slab) => slab,
        None => {
            let slab = map(SLAB_BYTES.max(size))?;
            class.slabs.insert(slab, (0..count(size)).rev().map(|place| place as u16).collect());
            class.with_room.push(slab);
            FREE_BYTES.fetch_add(SLAB_BYTES.max(size), Ordering::Relaxed);
            slab
        }
    };
    let places = class.slabs.get_mut(&slab)?;
    let place = places.pop()?;
    if places.is_empty() {
        class.with_room.pop();
    }
    FREE_BYTES.fetch_sub(size, Ordering::Relaxed);
    NonNull::new((slab + usize::from(place) * size) as *mut u8)
}

/// Gives a buffer back.
///
/// # Safety
///
/// It is from [`take`] with the same size, and nobody uses it any more.
pub(crate) unsafe fn give(buffer: NonNull<u8>, size: usize) {
    let address = buffer.as_ptr() as usize;
    let slab = if size >= SLAB_BYTES { address } else { address & !(SLAB_BYTES - 1) };
    let mut class = ALL[class_of(size)].lock().unwrap_or_else(PoisonError::into_inner);
    let Class { slabs, with_room } = &mut *class;
    let Some(places) = slabs.get_mut(&slab) else { return };
    places.push(((address - slab) / size) as u16);
    if places.len() == 1 {
        with_room.push(slab);
    }
    let free = FREE_BYTES.fetch_add(size, Ordering::Relaxed) + size;
    if places.len() == count(size) && free > FREE_MAX.load(Ordering::Relaxed) {
        slabs.remove(&slab);
        with_room.retain(|other| *other != slab);
        FREE_BYTES.fetch_sub(SLAB_BYTES.max(size), Ordering::Relaxed);
        // SAFETY: mapped with this length, and all of it is free.
        unsafe { libc::munmap(slab as *mut libc::c_void, SLAB_BYTES.max(size)) };
    }
}

/// Keeps no more free bytes than so many, where memory is small.
pub fn keep_free_at_most(bytes: u64) {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    FREE_MAX.store(bytes.min(FREE_BYTES_MAX), Ordering::Relaxed);
}

/// Gives all memory that is free back to the system: slabs of which all is, and the free buffers in others.
pub fn give_memory_back() {
    for (number, class) in ALL.iter().enumerate() {
        let size = 1 << (number as u32 + SHIFT_MIN);
        let mut class = class.lock().unwrap_or_else(PoisonError::into_inner);
        let Class { slabs, with_room } = &mut *class;
        slabs.retain(|&slab, places| {
            let is_free = places.len() == count(size);
            if is_free {
                FREE_BYTES.fetch_sub(SLAB_BYTES.max(size), Ordering::Relaxed);
                // SAFETY: mapped with this length, and all of it is free.
                unsafe { libc::munmap(slab as *mut libc::c_void, SLAB_BYTES.max(size)) };
            } else {
                for place in places.iter() {
                    let buffer = slab + usize::from(*place) * size;
                    // SAFETY: within a slab, whole pages, and nobody uses them; they read as zeros from now on.
                    unsafe { libc::madvise(buffer as *mut libc::c_void, size, libc::MADV_DONTNEED) };
                }
            }
            !is_free
        });
        with_room.retain(|slab| slabs.contains_key(slab));
    }
}

fn class_of(size: usize) -> usize {
    (size.trailing_zeros() - SHIFT_MIN) as usize
}

/// Buffers of that size in a slab.
fn count(size: usize) -> usize {
    (SLAB_BYTES / size).max(1)
}

/// The address of so many fresh bytes; a multiple of [`SLAB_BYTES`].
fn map(bytes: usize) -> Option<usize> {
    // where the system puts them is not known: ask for more, and give back what is not needed
    let all = bytes + SLAB_BYTES;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, where nothing else is.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), all, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start as usize;
    let slab = start.next_multiple_of(SLAB_BYTES);
    for (from, to) in [(start, slab), (slab + bytes, start + all)] {
        if from < to {
            // SAFETY: part of the new mapping, which nobody knows of.
            unsafe { libc::munmap(from as *mut libc::c_void, to - from) };
        }
    }
    // SAFETY: within the mapping. Before Linux 5.14 there is no such advice, and pages come as they are used.
    unsafe { libc::madvise(slab as *mut libc::c_void, bytes, libc::MADV_POPULATE_WRITE) };
    Some(slab)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_come_and_go() {
        assert_eq!([0, 1, 4096, 4097, 16 << 20].map(size_for), [4096, 4096, 4096, 8192, 16 << 20].map(Some));
        assert_eq!((size_for((16 << 20) + 1), size_for(usize::MAX)), (None, None));
        // more than is kept free, of a size that no other test uses
        let size = 1 << 20;
        let buffers: Vec<_> = (0..FREE_BYTES_MAX / size + 5).map(|_| take(size).unwrap()).collect();
        let mut addresses: Vec<usize> = buffers.iter().map(|buffer| buffer.as_ptr() as usize).collect();
        addresses.sort_unstable();
        assert!(addresses.windows(2).all(|pair| pair[0] + size <= pair[1]), "they do not overlap");
        assert!(addresses.iter().all(|address| address % 4096 == 0));
        let slabs = || ALL[class_of(size)].lock().unwrap().slabs.len();
        let most = slabs();
        // SAFETY: each was taken, once.
        buffers.into_iter().for_each(|buffer| unsafe { give(buffer, size) });
        assert!(slabs() < most && FREE_BYTES.load(Ordering::Relaxed) <= FREE_BYTES_MAX + SLAB_BYTES);

        // one that is in use keeps its bytes while those around it are given back
        let size = 256 << 10;
        let buffers: Vec<_> = (0..16).map(|_| take(size).unwrap()).collect();
        // SAFETY: it was taken with this size.
        unsafe { buffers[0].as_ptr().write_bytes(7, size) };
        // SAFETY: each was taken, once.
        buffers[1..].iter().for_each(|buffer| unsafe { give(*buffer, size) });
        give_memory_back();
        assert_eq!(ALL[class_of(size)].lock().unwrap().slabs.len(), 1);
        // SAFETY: still in use.
        assert!(unsafe { std::slice::from_raw_parts(buffers[0].as_ptr(), size) }.iter().all(|byte| *byte == 7));
        let again = take(size).unwrap();
        // SAFETY: each was taken, once.
        [buffers[0], again].into_iter().for_each(|buffer| unsafe { give(buffer, size) });
    }
}
