//! Memory for large buffers: slabs of 2 MiB, each cut into buffers of one size.
//!
//! ```text
//!   class 128 KiB   slab [ # # . # . . . . ]   slab [ # # # # # # # # ]      # in use
//!   class 112 KiB   slab [ # . # # o # # # # . # # # # # # # # ]             . free   o free, without memory
//! ```
//!
//! There are four sizes between one power of two and the next: compressed blocks are of all sizes, and are kept.
//!
//! Fresh memory costs a page fault for every 4 KiB of it, which is more than copying a block into it; so all
//! pages of a buffer are asked for at once, by the thread that takes it, with no lock held; those of small ones
//! together.
//! (As one huge page a slab would cost far less, but in a virtual machine that gives free memory back to its host far
//! more.) What is free keeps its memory, up to [`FREE_BYTES_MAX`] in
//! all; beyond that, or when memory is short ([`give_memory_back`]), it goes back to the system: whole slabs that
//! are free, and the pages of free buffers in others.
//!
//! Invariant: memory that is handed out is initialised: to zeros by the system, or by those that had it before.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::locks::Mutex;

/// Bytes of a page, and of the smallest buffers.
const PAGE: usize = 4096;
/// Sizes from one power of two to the next.
const STEPS: usize = 4;
/// How many sizes there are: up to 16 MiB.
const CLASSES: usize = 11 * STEPS;
/// Bytes of a slab whose buffers are smaller, and what every slab begins on.
const SLAB_BYTES: usize = 2 << 20;
/// Larger buffers have a slab each, that is no larger.
const SHARED_MAX: usize = SLAB_BYTES / 4;
/// Bytes of fresh memory that are asked for at once, at least.
const FILL_BYTES: usize = 128 << 10;
/// Free bytes that are kept, unless told otherwise: about half of what may wait to be written.
const FREE_BYTES_MAX: usize = 256 << 20;
static FREE_MAX: AtomicUsize = AtomicUsize::new(FREE_BYTES_MAX);

/// The slabs of one size of buffers.
struct SizeClass {
    /// By address: the places that are free.
    slabs: BTreeMap<usize, Vec<FreePlace>>,
    /// Addresses of those with a free place.
    with_room: Vec<usize>,
}

/// A free place in a slab.
#[derive(Clone, Copy)]
struct FreePlace {
    number: u16,
    /// It has memory, which may hold anything.
    is_resident: bool,
}

/// Bytes of free places that have memory.
static FREE_BYTES: AtomicUsize = AtomicUsize::new(0);
static ALL: [Mutex<SizeClass>; CLASSES] =
    [const { Mutex::new(SizeClass { slabs: BTreeMap::new(), with_room: Vec::new() }) }; CLASSES];

/// The bytes that a buffer of `len` takes; `None` for one that is too large for a slab. Sanitizers see more without
/// slabs: each buffer is then an allocation of its own.
pub(crate) fn size_for(len: usize) -> Option<usize> {
    let class = class_of(len);
    (class < CLASSES && !cfg!(any(miri, no_slabs))).then(|| size_of(class))
}

/// A buffer of `size` bytes, one of [`size_for`], that begins on a page; `None` if the system has no memory.
pub(crate) fn take(size: usize) -> Option<NonNull<u8>> {
    let (buffer, fresh) = reserve(size)?;
    if fresh > 0 {
        // SAFETY: within a slab that stays as long as the buffer is in use, and what memory holds already it keeps.
        // Before Linux 5.14 there is no such advice, and pages come as they are used.
        unsafe { libc::madvise(buffer.as_ptr().cast(), fresh, libc::MADV_POPULATE_WRITE) };
    }
    Some(buffer)
}

/// A buffer, and how many bytes from there on have no memory yet.
fn reserve(size: usize) -> Option<(NonNull<u8>, usize)> {
    let mut class = ALL[class_of(size)].lock();
    let slab = match class.with_room.last() {
        Some(&slab) => slab,
        None => {
            let slab = map(slab_bytes(size))?;
            let place = |number| FreePlace { number: number as u16, is_resident: false };
            class.slabs.insert(slab, (0..count(size)).rev().map(place).collect());
            class.with_room.push(slab);
            slab
        }
    };
    let places = class.slabs.get_mut(&slab)?;
    let place = places.pop()?;
    let fresh = if place.is_resident { 0 } else { size + fill(places, place.number, size) };
    if places.is_empty() {
        class.with_room.pop();
    }
    if place.is_resident {
        FREE_BYTES.fetch_sub(size, Ordering::Relaxed);
    }
    NonNull::new((slab + usize::from(place.number) * size) as *mut u8).map(|buffer| (buffer, fresh))
}

/// Marks the free places behind one as resident that get memory along with it; how many bytes they are.
fn fill(places: &mut [FreePlace], number: u16, size: usize) -> usize {
    let more = FILL_BYTES.saturating_sub(size) / size;
    let behind = places.iter_mut().rev().zip(number + 1..).take(more);
    let filled = behind.take_while(|(place, number)| place.number == *number && !place.is_resident);
    let bytes = filled.map(|(place, _)| place.is_resident = true).count() * size;
    FREE_BYTES.fetch_add(bytes, Ordering::Relaxed);
    bytes
}

/// Gives a buffer back.
///
/// # Safety
///
/// It is from [`take`] with the same size, and nobody uses it any more.
pub(crate) unsafe fn give(buffer: NonNull<u8>, size: usize) {
    let address = buffer.as_ptr() as usize;
    let slab = address & !(SLAB_BYTES - 1);
    let mut class = ALL[class_of(size)].lock();
    let SizeClass { slabs, with_room } = &mut *class;
    let Some(places) = slabs.get_mut(&slab) else { return };
    places.push(FreePlace { number: ((address - slab) / size) as u16, is_resident: true });
    if places.len() == 1 {
        with_room.push(slab);
    }
    let free = FREE_BYTES.fetch_add(size, Ordering::Relaxed) + size;
    if free <= FREE_MAX.load(Ordering::Relaxed) {
        return;
    }
    if places.len() == count(size) {
        unmap(slab, size, places);
        slabs.remove(&slab);
        with_room.retain(|other| *other != slab);
    } else if let Some(place) = places.last_mut() {
        empty(slab, size, place);
    }
}

/// Gives the memory of those pages of a buffer back that are all 0, which they still are then; how many bytes.
///
/// # Safety
///
/// It is from [`take`], with as many bytes at least, and nobody writes it meanwhile.
pub(crate) unsafe fn give_zeros(buffer: NonNull<u8>, len: usize) -> usize {
    // SAFETY: as above, and memory that is handed out is initialised.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), len) };
    let is_zero = |page: &&[u8]| page.iter().all(|byte| *byte == 0);
    let (mut at, mut given) = (0, 0);
    while at < len {
        let zeros = bytes[at..].chunks_exact(PAGE).take_while(is_zero).count() * PAGE;
        if zeros > 0 {
            // SAFETY: within the buffer; a page that was 0 reads as 0 afterwards.
            let done = unsafe { libc::madvise(buffer.as_ptr().add(at).cast(), zeros, libc::MADV_DONTNEED) };
            given += if done == 0 { zeros } else { 0 };
        }
        at += zeros + PAGE;
    }
    given
}

/// Keeps no more free bytes than so many, where memory is small.
pub fn keep_free_at_most(bytes: u64) {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    FREE_MAX.store(bytes.min(FREE_BYTES_MAX), Ordering::Relaxed);
}

/// Bytes of memory that are free, and could be given back.
pub fn free_bytes() -> u64 {
    FREE_BYTES.load(Ordering::Relaxed) as u64
}

/// Gives all memory that is free back to the system.
pub fn give_memory_back() {
    for (number, class) in ALL.iter().enumerate() {
        let size = size_of(number);
        let mut class = class.lock();
        let SizeClass { slabs, with_room } = &mut *class;
        slabs.retain(|&slab, places| {
            let is_free = places.len() == count(size);
            match is_free {
                true => unmap(slab, size, places),
                false => places.iter_mut().for_each(|place| empty(slab, size, place)),
            }
            !is_free
        });
        with_room.retain(|slab| slabs.contains_key(slab));
    }
}

/// Gives pages back to the system that the allocator of small things keeps, though nothing is in them. That takes a few
/// milliseconds, and others wait: seldom, and from the background.
pub fn give_small_memory_back() {
    #[cfg(all(target_env = "gnu", not(miri)))]
    // SAFETY: what is in use is not touched.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Unmaps a slab, all of whose places are free.
fn unmap(slab: usize, size: usize, places: &[FreePlace]) {
    let resident = places.iter().filter(|place| place.is_resident).count();
    FREE_BYTES.fetch_sub(resident * size, Ordering::Relaxed);
    unmap_range(slab, slab + slab_bytes(size));
}

/// Unmaps what is part of a mapping of ours, and what nobody uses.
fn unmap_range(from: usize, to: usize) {
    // SAFETY: mapped by `map`, and nothing there is in use.
    unsafe { libc::munmap(from as *mut libc::c_void, to - from) };
}

/// Takes the memory of a free place.
fn empty(slab: usize, size: usize, place: &mut FreePlace) {
    if std::mem::take(&mut place.is_resident) {
        FREE_BYTES.fetch_sub(size, Ordering::Relaxed);
        let buffer = slab + usize::from(place.number) * size;
        // SAFETY: within a slab, whole pages, and nobody uses them; they read as zeros from now on.
        unsafe { libc::madvise(buffer as *mut libc::c_void, size, libc::MADV_DONTNEED) };
    }
}

/// The class of buffers that have room for so many bytes: 1, 2, 3, 4 pages; then 5 to 8 of a unit that doubles.
fn class_of(len: usize) -> usize {
    let pages = len.div_ceil(PAGE).max(1);
    if pages <= STEPS {
        return pages - 1;
    }
    let shift = ((pages - 1) / STEPS).ilog2();
    let units = (pages - 1 >> shift) + 1;
    STEPS * (shift as usize + 1) + units - STEPS - 1
}

/// Bytes of the buffers of a class.
fn size_of(class: usize) -> usize {
    match class / STEPS {
        0 => (class + 1) * PAGE,
        doubled => (STEPS + class % STEPS + 1) * (PAGE << (doubled - 1)),
    }
}

/// Buffers of that size in a slab.
fn count(size: usize) -> usize {
    slab_bytes(size) / size
}

/// Bytes of the slabs that buffers of that size are in.
fn slab_bytes(size: usize) -> usize {
    if size <= SHARED_MAX { SLAB_BYTES } else { size }
}

/// The address of so many bytes without memory; a multiple of [`SLAB_BYTES`].
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
            unmap_range(from, to);
        }
    }
    Some(slab)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(any(miri, no_slabs), ignore = "there are no slabs")]
    fn slabs_come_and_go() {
        assert_eq!([0, 1, 4096, 4097, 16 << 20].map(size_for), [4096, 4096, 4096, 8192, 16 << 20].map(Some));
        assert_eq!([16_385, 70_000, 81_920, 81_921].map(size_for), [20 << 10, 80 << 10, 80 << 10, 96 << 10].map(Some));
        assert_eq!((size_for((16 << 20) + 1), size_for(usize::MAX)), (None, None));
        for class in 0..CLASSES {
            let size = size_of(class);
            assert_eq!((class_of(size), class_of(size - PAGE + 1), class_of(size + 1)), (class, class, class + 1));
            assert!(count(size) * size <= slab_bytes(size) && count(size) <= usize::from(u16::MAX));
        }
        // more than is kept free, of a size that no other test uses
        let size = 1 << 20;
        let buffers: Vec<_> = (0..FREE_BYTES_MAX / size + 5).map(|_| take(size).unwrap()).collect();
        let mut addresses: Vec<usize> = buffers.iter().map(|buffer| buffer.as_ptr() as usize).collect();
        addresses.sort_unstable();
        assert!(addresses.windows(2).all(|pair| pair[0] + size <= pair[1]), "they do not overlap");
        assert!(addresses.iter().all(|address| address % 4096 == 0));
        let slabs = || ALL[class_of(size)].lock().slabs.len();
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
        assert_eq!(ALL[class_of(size)].lock().slabs.len(), 1);
        // SAFETY: still in use.
        assert!(unsafe { std::slice::from_raw_parts(buffers[0].as_ptr(), size) }.iter().all(|byte| *byte == 7));
        let again = take(size).unwrap();
        // where no free bytes are kept, a free buffer loses its memory at once, and is zeros when it is used again
        keep_free_at_most(0);
        // SAFETY: it was taken with this size, once; it is not used after that.
        unsafe {
            again.as_ptr().write_bytes(7, size);
            give(again, size);
        }
        let anew = take(size).unwrap();
        assert_eq!(anew, again);
        // SAFETY: it was taken with this size.
        assert!(unsafe { std::slice::from_raw_parts(anew.as_ptr(), size) }.iter().all(|byte| *byte == 0));
        keep_free_at_most(FREE_BYTES_MAX as u64);
        // SAFETY: each was taken, once.
        [buffers[0], anew].into_iter().for_each(|buffer| unsafe { give(buffer, size) });
    }
}
