//! Page-aligned byte buffers, as direct I/O wants them.
//!
//! Blocks come and go by the ten thousand a second, so their memory comes from slabs (see `slab`): one of
//! 100 KiB takes 112 KiB there. Only what is larger than any block is for the allocator.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::copies::{CopyKind, count_copy};
use crate::slab;

/// An owned, fixed-size byte buffer that starts on a 4 KiB boundary.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    /// Bytes of it that take no memory, as they are 0.
    given_back: AtomicUsize,
}

// SAFETY: the buffer owns its memory, and its bytes have no interior mutability.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Alignment of the first byte.
    pub const ALIGN: usize = 4096;

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::for_overwrite(len);
        if slab::size_for(len).is_some() {
            buf.fill(0);
        }
        buf
    }

    /// Bytes of memory that it takes.
    pub fn footprint(&self) -> usize {
        slab::size_for(self.len).unwrap_or(self.len) - self.given_back.load(Ordering::Relaxed)
    }

    /// Lets the system have the memory of pages that are all 0, until they are written. For what is kept, and mostly 0.
    fn give_zeros_back(&self) {
        if slab::size_for(self.len).is_some() {
            // SAFETY: taken from slabs, and as long as that.
            let given_back = unsafe { slab::give_zeros(self.ptr, self.len) };
            self.given_back.store(given_back, Ordering::Relaxed);
        }
    }

    /// `len` bytes for a caller that writes all of them; what they hold until then is anything.
    pub fn for_overwrite(len: usize) -> AlignedBuf {
        let ptr = match slab::size_for(len) {
            Some(size) => slab::take(size),
            // SAFETY: the layout's size is not 0.
            None => NonNull::new(unsafe { alloc_zeroed(layout(len)) }),
        };
        AlignedBuf { ptr: ptr.unwrap_or_else(|| handle_alloc_error(layout(len))), len, given_back: AtomicUsize::new(0) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        match slab::size_for(self.len) {
            // SAFETY: taken with this size, and dropped once.
            Some(size) => unsafe { slab::give(self.ptr, size) },
            // SAFETY: allocated with this very layout.
            None => unsafe { dealloc(self.ptr.as_ptr(), layout(self.len)) },
        }
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len.max(1), AlignedBuf::ALIGN).expect("buffer sizes are far below isize::MAX")
}

/// The contents of a block; clones share them.
#[derive(Clone, Debug)]
pub struct Block(Arc<AlignedBuf>);

impl Block {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Block {
        AlignedBuf::zeroed(len).into()
    }

    /// The bytes, to be changed, if nobody else has them.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(&mut self.0).map(|buf| &mut **buf)
    }

    /// Whether both share their contents.
    pub fn is_shared_with(&self, other: &Block) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Bytes of memory that the contents take.
    pub fn footprint(&self) -> usize {
        self.0.footprint()
    }

    /// Lets the system have the memory of pages that are all 0, and counts them no more to [`Block::footprint`]. For what is
    /// kept, and mostly 0.
    pub fn give_zeros_back(&self) {
        self.0.give_zeros_back();
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

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are allocated and initialised.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        *self.given_back.get_mut() = 0;
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl From<&[u8]> for AlignedBuf {
    fn from(bytes: &[u8]) -> AlignedBuf {
        count_copy(CopyKind::IntoNew, bytes.len());
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
        let lens = [0, 1, 511, 512, 4097, 16_384, 100_000, 1 << 20, (16 << 20) + 1];
        // Miri takes a second for 64 KiB
        for len in lens.into_iter().filter(|len| !cfg!(miri) || *len < 64 << 10) {
            let mut buf = AlignedBuf::for_overwrite(len);
            assert_eq!(buf.as_ptr() as usize % AlignedBuf::ALIGN, 0);
            buf.fill(7);
            assert_eq!(buf.clone().iter().filter(|&&b| b == 7).count(), len);
            drop(buf);
            assert!(AlignedBuf::zeroed(len).iter().all(|&b| b == 0), "recycled memory is cleared");
        }
    }

    #[test]
    fn zeros_take_no_memory() {
        if cfg!(miri) {
            return;
        }
        let resident = |buf: &AlignedBuf| {
            let mut pages = vec![0u8; buf.len().div_ceil(4096)];
            // SAFETY: the buffer begins on a page, and there is a byte for each of its pages.
            let known = unsafe { libc::mincore(buf.ptr.as_ptr().cast(), buf.len(), pages.as_mut_ptr()) };
            assert_eq!(known, 0);
            pages.iter().filter(|page| **page & 1 == 1).count()
        };
        let mut buf = AlignedBuf::zeroed(128 << 10);
        (buf[5000], buf[60_000]) = (1, 2);
        let block = Block::from(buf);
        assert_eq!((resident(&block.0), block.footprint()), (32, 128 << 10));
        block.give_zeros_back();
        block.give_zeros_back();
        assert_eq!((resident(&block.0), block.footprint()), (2, 8 << 10));
        assert!(block.iter().enumerate().all(|(at, byte)| *byte
            == [(5000, 1), (60_000, 2)].iter().find(|(known, _)| *known == at).map_or(0, |(_, byte)| *byte)));
        let mut copy = block.clone();
        copy.make_mut()[100_000] = 3;
        assert_eq!((copy.footprint(), block.footprint(), block[100_000]), (128 << 10, 8 << 10, 0));
        drop(block);
        copy.give_zeros_back();
        copy.make_mut()[0] = 4;
        assert_eq!((copy.footprint(), copy[0], copy[5000], copy[100_000]), (128 << 10, 4, 1, 3));
        let odd = Block::zeroed(10_001);
        odd.give_zeros_back();
        assert_eq!(odd.footprint(), (12 << 10) - (8 << 10), "the last page is not all of it");
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
