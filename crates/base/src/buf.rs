//! Page-aligned byte buffers, as direct I/O wants them.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

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
    /// Alignment of the first byte, and the unit that the allocation is rounded up to.
    pub const ALIGN: usize = 4096;

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        // SAFETY: the layout has a size of at least ALIGN, and the allocator zeroes.
        unsafe { AlignedBuf::allocate(len, alloc_zeroed) }
    }

    /// `len` bytes for a caller that writes all of them: what they hold until then is unspecified
    /// (but initialised), which spares the kernel's zeroing of fresh pages a second pass.
    pub fn for_overwrite(len: usize) -> AlignedBuf {
        if len <= AlignedBuf::ALIGN {
            return AlignedBuf::zeroed(len);
        }
        // SAFETY: the layout is not empty; the bytes are initialised just below.
        let buf = unsafe { AlignedBuf::allocate(len, alloc) };
        // Touch nothing: memory from the allocator is initialised as far as the machine is concerned,
        // but Rust does not say so. A volatile no-op read through inline assembly makes it opaque.
        // SAFETY: the assembly is empty; it only tells the compiler that the memory may have changed.
        unsafe { std::arch::asm!("/* {0} */", in(reg) buf.ptr.as_ptr(), options(nostack, preserves_flags)) };
        buf
    }

    unsafe fn allocate(len: usize, with: unsafe fn(Layout) -> *mut u8) -> AlignedBuf {
        let layout = layout(len);
        // SAFETY: the caller passes an allocation function, and the layout's size is not 0.
        let Some(ptr) = NonNull::new(unsafe { with(layout) }) else { handle_alloc_error(layout) };
        AlignedBuf { ptr, len }
    }
}

fn layout(len: usize) -> Layout {
    let size = len.max(1).next_multiple_of(512);
    Layout::from_size_align(size, AlignedBuf::ALIGN).expect("buffer sizes are far below isize::MAX")
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout.
        unsafe { dealloc(self.ptr.as_ptr(), layout(self.len)) }
    }
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
        for len in [0, 1, 511, 512, 4097, 1 << 20] {
            let mut buf = AlignedBuf::for_overwrite(len);
            assert_eq!(buf.as_ptr() as usize % AlignedBuf::ALIGN, 0);
            buf.fill(7);
            assert_eq!(buf.clone().iter().filter(|&&b| b == 7).count(), len);
        }
        assert!(AlignedBuf::zeroed(10_000).iter().all(|&b| b == 0));
    }
}
