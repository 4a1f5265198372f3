//! Page-aligned byte buffers, as direct I/O wants them.
//!
//! Blocks come and go by the ten thousand a second, and fresh memory costs a page fault for every
//! 4 KiB of it: more than checksumming the block. So large buffers that are dropped are kept for the
//! next of their size class, up to a limit.
//!
//! ```text
//!   for_overwrite(100 KiB) ─▶ class 128 KiB: [free] [free] ─▶ one of these, or the allocator
//!   drop                   ─▶ back to its class, or to the allocator if enough are there
//! ```

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// An owned, fixed-size byte buffer that starts on a 4 KiB boundary.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns its memory and has no interior mutability.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Alignment of the first byte.
    pub const ALIGN: usize = 4096;

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        match recycled(len) {
            Some(mut buf) => {
                buf.fill(0);
                buf
            }
            None => fresh(len),
        }
    }

    /// `len` bytes for a caller that writes all of them; what they hold until then is anything.
    pub fn for_overwrite(len: usize) -> AlignedBuf {
        recycled(len).unwrap_or_else(|| fresh(len))
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        let capacity = capacity(self.len);
        if let Some(class) = class(capacity) {
            if FREE_BYTES.fetch_add(capacity, Ordering::Relaxed) < FREE_BYTES_MAX {
                lock(&FREE[class]).push(Free(self.ptr));
                return;
            }
            FREE_BYTES.fetch_sub(capacity, Ordering::Relaxed);
        }
        // SAFETY: allocated with this very layout.
        unsafe { dealloc(self.ptr.as_ptr(), layout(self.len)) }
    }
}

/// The contents of a block; clones share them.
#[derive(Clone, Debug)]
pub struct Block(Arc<AlignedBuf>);

impl Block {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Block {
        AlignedBuf::zeroed(len).into()
    }

    /// The bytes, to be changed: copied first if somebody else has them, too.
    pub fn make_mut(&mut self) -> &mut [u8] {
        let buf: &mut AlignedBuf = Arc::make_mut(&mut self.0);
        buf
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<AlignedBuf> for Block {
    fn from(buf: AlignedBuf) -> Block {
        Block(Arc::new(buf))
    }
}

/// Capacities that are kept: powers of two from 16 KiB to 16 MiB.
const CLASS_SHIFT_MIN: u32 = 14;
const CLASSES: usize = 11;
/// Free bytes that are kept: about half of what may wait to be written.
const FREE_BYTES_MAX: usize = 256 << 20;

/// Memory of a dropped buffer; its capacity is that of the class it lies in.
struct Free(NonNull<u8>);

// SAFETY: nobody else knows the memory.
unsafe impl Send for Free {}

static FREE_BYTES: AtomicUsize = AtomicUsize::new(0);
static FREE: [Mutex<Vec<Free>>; CLASSES] = [const { Mutex::new(Vec::new()) }; CLASSES];

/// A buffer of a kept one's memory, which holds what that held.
fn recycled(len: usize) -> Option<AlignedBuf> {
    let free = lock(&FREE[class(capacity(len))?]).pop()?;
    FREE_BYTES.fetch_sub(capacity(len), Ordering::Relaxed);
    Some(AlignedBuf { ptr: free.0, len })
}

fn fresh(len: usize) -> AlignedBuf {
    let layout = layout(len);
    // SAFETY: the layout's size is not 0.
    let Some(ptr) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
    AlignedBuf { ptr, len }
}

fn capacity(len: usize) -> usize {
    let size = len.max(512).next_multiple_of(512);
    let power = size.next_power_of_two();
    // larger and smaller ones are not kept, so they need no rounding
    if class(power).is_some() { power } else { size }
}

fn class(capacity: usize) -> Option<usize> {
    let class = capacity.trailing_zeros().checked_sub(CLASS_SHIFT_MIN)? as usize;
    (capacity.is_power_of_two() && class < CLASSES).then_some(class)
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(capacity(len), AlignedBuf::ALIGN).expect("buffer sizes are far below isize::MAX")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are allocated and initialised.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl From<&[u8]> for AlignedBuf {
    fn from(bytes: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::for_overwrite(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> AlignedBuf {
        AlignedBuf::from(&**self)
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_whole() {
        for len in [0, 1, 511, 512, 4097, 16_384, 100_000, 1 << 20, (16 << 20) + 1] {
            let mut buf = AlignedBuf::for_overwrite(len);
            assert_eq!(buf.as_ptr() as usize % AlignedBuf::ALIGN, 0);
            buf.fill(7);
            assert_eq!(buf.clone().iter().filter(|&&b| b == 7).count(), len);
            drop(buf);
            assert!(AlignedBuf::zeroed(len).iter().all(|&b| b == 0), "recycled memory is cleared");
        }
    }

    #[test]
    fn many_at_once_from_many_threads() {
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                scope.spawn(move || {
                    for round in 0..200usize {
                        let mut bufs: Vec<AlignedBuf> =
                            (0..8).map(|i| AlignedBuf::for_overwrite(10_000 + i * 9_000 + round)).collect();
                        bufs.iter_mut().for_each(|buf| buf.fill(thread));
                        assert!(bufs.iter().all(|buf| buf.iter().all(|&b| b == thread)), "no two share memory");
                    }
                });
            }
        });
    }
}
