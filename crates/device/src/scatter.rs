//! Buffers that one request fills.
//!
//! ```text
//!   on the device   | a a a a | - - | b b | c c c |
//!   vectors           buffer a scratch  b   buffer c
//! ```

use base::AlignedBuf;

/// Buffers whose bytes follow each other on a device, but for gaps between them.
pub(crate) struct Scatter<'a> {
    /// Each with how many bytes are passed over before it.
    parts: Vec<(usize, &'a mut [u8])>,
    /// Takes what lies in gaps; nobody looks at it.
    scratch: AlignedBuf,
    vectors: Vec<libc::iovec>,
    len: usize,
}

impl<'a> Scatter<'a> {
    /// Parts with the bytes that are passed over before each.
    pub(crate) fn new(parts: Vec<(usize, &'a mut [u8])>) -> Scatter<'a> {
        let len = parts.iter().map(|(gap, buf)| gap + buf.len()).sum();
        let gap = parts.iter().map(|(gap, _)| *gap).max().unwrap_or(0);
        let vectors = Vec::with_capacity(2 * parts.len());
        Scatter { parts, scratch: AlignedBuf::for_overwrite(gap), vectors, len }
    }

    /// Bytes of the request, gaps among them.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first buffer. The others are aligned as it is, if that matters.
    pub(crate) fn first(&self) -> &[u8] {
        self.parts.first().map_or(&[], |(_, buf)| buf)
    }

    /// All that is to be filled, in order. It is valid until this is asked for again, and for as long as the borrow of
    /// the buffers.
    pub(crate) fn vectors(&mut self) -> &[libc::iovec] {
        self.vectors.clear();
        let mut add = |buf: &mut [u8]| {
            self.vectors.push(libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() });
        };
        for (gap, buf) in &mut self.parts {
            if *gap > 0 {
                add(&mut self.scratch[..*gap]);
            }
            add(buf);
        }
        &self.vectors
    }
}

impl std::fmt::Debug for Scatter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scatter({} buffers, {} bytes)", self.parts.len(), self.len)
    }
}
