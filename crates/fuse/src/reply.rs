//! The answer to one request.
//!
//! Above, each function that answers a request uses one up; below, [`channel`](crate::channel) sends it
//! on the descriptor on which the request came, as the kernel demands.
//!
//! Invariant: every request gets one answer, also if its function fails to give one, or panics: then it is EIO.

use std::io::IoSlice;
use std::sync::Arc;

use base::{Piece, Result};

use crate::attr::{FuseAttr, FuseEntry, major_minor};
use crate::channel::Channel;
use crate::legacy::NotedFact;
use crate::lifetimes::{AttrLifetime, NameLifetime};
use crate::ring_slot::RingSlot;
use crate::statfs::Statfs;
use crate::wire::{OUT_HEADER_BYTES, Out, out_header};

/// The last nanosecond of a second: more, which only a damaged file has, count as that.
const NANOS_MAX: u32 = 999_999_999;
/// More pieces than that are copied into one: the kernel takes 1024, and small ones are not worth their while.
const PIECES_MAX: usize = 256;

/// What the kernel is told of a file that it has opened: `FOPEN_` flags, and a number that it names it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenedFile {
    pub(crate) handle: u64,
    pub(crate) flags: u32,
}

/// The way on which an answer goes to the kernel: that on which the request came.
pub(crate) enum ReplyWay {
    /// A descriptor of /dev/fuse.
    Device(Arc<Channel>),
    /// A slot of io_uring.
    Ring(RingSlot),
}

/// The answer that is still to be given to a request.
pub(crate) struct Reply {
    unique: u64,
    /// `None` when it has been given, or if none is due.
    way: Option<ReplyWay>,
    /// What holds until the answer is given.
    noted: Vec<NotedFact>,
}

impl Reply {
    pub(crate) fn new(unique: u64, way: ReplyWay) -> Reply {
        Reply { unique, way: Some(way), noted: Vec::new() }
    }

    /// The number of the request, with the mark of one that came before.
    pub(crate) fn unique(&self) -> u64 {
        self.unique
    }

    /// The same, with facts that hold until the answer is given.
    pub(crate) fn noted(mut self, noted: impl IntoIterator<Item = NotedFact>) -> Reply {
        self.noted.extend(noted);
        self
    }

    /// The request is one that gets no answer.
    pub(crate) fn none(mut self) {
        if let Some(ReplyWay::Ring(slot)) = self.way.take() {
            // there, the kernel waits for each
            slot.answer(self.unique, 0, &[]);
        }
    }

    pub(crate) fn error(mut self, errno: i32) {
        self.send(errno, &[]);
    }

    /// [`Reply::error`], as the end of a request that is as it has to be.
    pub(crate) fn refuse(self, errno: i32) -> Result<()> {
        self.error(errno);
        Ok(())
    }

    /// [`Reply::ok`], likewise.
    pub(crate) fn done(self) -> Result<()> {
        self.ok();
        Ok(())
    }

    pub(crate) fn ok(self) {
        self.bytes(&[]);
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) {
        self.send(0, &[bytes]);
    }

    /// What was read from a file.
    pub(crate) fn pieces(mut self, pieces: &[Piece]) {
        match pieces.len() > PIECES_MAX {
            true => self.send(0, &[&pieces.iter().flat_map(|piece| piece.iter()).copied().collect::<Vec<u8>>()]),
            false => self.send(0, &pieces.iter().map(|piece| &**piece).collect::<Vec<_>>()),
        }
    }

    /// `fuse_entry_out`.
    pub(crate) fn entry(self, entry: &FuseEntry, name_ttl: NameLifetime) {
        self.bytes(&put_entry(Out::default(), entry, name_ttl));
    }

    /// `fuse_entry_out` of no node: the name does not exist, for as long.
    pub(crate) fn no_entry(self, name_ttl: NameLifetime) {
        let none = FuseEntry { attr: FuseAttr::default(), attr_ttl: AttrLifetime::NONE, generation: 0 };
        self.bytes(&put_entry(Out::default(), &none, name_ttl));
    }

    /// `fuse_attr_out`.
    pub(crate) fn attr(self, entry: &FuseEntry) {
        let (seconds, nanos) = entry.attr_ttl.parts();
        let out = Out::default().u64(seconds).u32(nanos).u32(0);
        self.bytes(&put_attr(out, &entry.attr));
    }

    /// `fuse_statx_out`.
    pub(crate) fn statx(self, entry: &FuseEntry) {
        let (seconds, nanos) = entry.attr_ttl.parts();
        let out = Out::default().u64(seconds).u32(nanos).u32(0);
        self.bytes(&put_statx(out.padded(32), &entry.attr));
    }

    /// `fuse_open_out`.
    pub(crate) fn opened(self, opened: OpenedFile) {
        self.bytes(&put_opened(Out::default(), opened));
    }

    /// `fuse_entry_out` and `fuse_open_out`.
    pub(crate) fn created(self, entry: &FuseEntry, name_ttl: NameLifetime, opened: OpenedFile) {
        self.bytes(&put_opened(put_entry(Out::default(), entry, name_ttl), opened));
    }

    /// `fuse_write_out` or `fuse_getxattr_out`: a number of bytes.
    pub(crate) fn count(self, bytes: u32) {
        self.bytes(&Out::default().u32(bytes).u32(0));
    }

    /// `fuse_lseek_out`.
    pub(crate) fn offset(self, offset: u64) {
        self.bytes(&Out::default().u64(offset));
    }

    /// `fuse_statfs_out`.
    pub(crate) fn statfs(self, of: &Statfs) {
        let out = Out::default().u64(of.blocks).u64(of.blocks_free).u64(of.blocks_free).u64(of.files);
        let out = out.u64(of.files_free).u32(of.block_bytes).u32(of.name_bytes_max).u32(of.block_bytes);
        self.bytes(&out.padded(80));
    }

    fn send(&mut self, errno: i32, parts: &[&[u8]]) {
        match self.way.take() {
            None => {}
            Some(ReplyWay::Device(channel)) => send_on(&channel, self.unique, errno, parts),
            Some(ReplyWay::Ring(slot)) => slot.answer(self.unique, errno, parts),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.send(libc::EIO, &[]);
    }
}

fn send_on(channel: &Channel, unique: u64, errno: i32, parts: &[&[u8]]) {
    let len = OUT_HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
    let whole = out_header(len, errno, unique);
    let slices: Vec<IoSlice<'_>> = std::iter::once(&*whole).chain(parts.iter().copied()).map(IoSlice::new).collect();
    match channel.send(&slices) {
        // the task that asked was killed meanwhile, or all is unmounted
        Ok(()) | Err(nix::errno::Errno::ENOENT | nix::errno::Errno::ENODEV) => {}
        Err(error) => {
            tracing::error!("a reply of {len} bytes was not taken: {error}");
            // so that nobody waits for ever; if this is not taken either, nothing is
            let _ = channel.send(&[IoSlice::new(&out_header(OUT_HEADER_BYTES, libc::EIO, unique))]);
        }
    }
}

fn put_attr(out: Out, attr: &FuseAttr) -> Out {
    let times = [attr.atime, attr.mtime, attr.ctime];
    let mut out = out.u64(attr.ino).u64(attr.size).u64(attr.blocks);
    for (seconds, _) in times {
        out = out.u64(seconds.cast_unsigned());
    }
    for (_, nanos) in times {
        out = out.u32(nanos.min(NANOS_MAX));
    }
    let out = out.u32(attr.mode).u32(attr.nlink).u32(attr.uid).u32(attr.gid);
    out.u32(attr.rdev).u32(attr.block_bytes).u32(0)
}

/// `fuse_statx`: all of [`put_attr`], and the birth time.
fn put_statx(out: Out, attr: &FuseAttr) -> Out {
    let begin = out.len();
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    let out = out.u32(mask).u32(attr.block_bytes).u64(0).u32(attr.nlink).u32(attr.uid).u32(attr.gid);
    // the mode has 16 bits there, and 16 that say nothing behind them
    let mode = [(attr.mode as u16).to_ne_bytes(), [0; 2]].concat();
    let mut out = out.bytes(&mode).u64(attr.ino).u64(attr.size).u64(attr.blocks).u64(0);
    for (seconds, nanos) in [attr.atime, attr.btime, attr.ctime, attr.mtime] {
        out = out.u64(seconds.cast_unsigned()).u32(nanos.min(NANOS_MAX)).u32(0);
    }
    let (major, minor) = major_minor(attr.rdev);
    out.u32(major).u32(minor).padded(begin + 256)
}

/// `fuse_open_out`
fn put_opened(out: Out, opened: OpenedFile) -> Out {
    out.u64(opened.handle).u32(opened.flags).u32(0)
}

/// `fuse_entry_out`, the one form in which a name is told: both lifetimes stand side by side.
fn put_entry(out: Out, entry: &FuseEntry, name_ttl: NameLifetime) -> Out {
    let FuseEntry { attr, attr_ttl, generation } = entry;
    let (names, attrs) = (name_ttl.parts(), attr_ttl.parts());
    let out = out.u64(attr.ino).u64(*generation).u64(names.0).u64(attrs.0);
    put_attr(out.u32(names.1).u32(attrs.1), attr)
}

/// A part of a listing, as long as the kernel has room for it.
pub(crate) struct Listing {
    out: Out,
    room: usize,
}

impl Listing {
    pub(crate) fn new(room: usize) -> Listing {
        Listing { out: Out::default(), room }
    }

    /// Adds a `fuse_dirent`, behind the `fuse_entry_out` of its node if that is told. Is there room for it?
    pub(crate) fn add(
        &mut self,
        entry: Option<(&FuseEntry, NameLifetime)>,
        (ino, cookie, mode): (u64, u64, u32),
        name: &[u8],
    ) -> bool {
        const ENTRY_BYTES: usize = 128;
        const DIRENT_BYTES: usize = 24;
        let bytes = (DIRENT_BYTES + name.len()).next_multiple_of(8) + entry.map_or(0, |_| ENTRY_BYTES);
        let end = self.out.len() + bytes;
        if end > self.room {
            return false;
        }
        let mut out = std::mem::take(&mut self.out);
        if let Some((entry, ttl)) = entry {
            out = put_entry(out, entry, ttl);
        }
        // DT_* are the upper four bits of a mode, DT_UNKNOWN is 0
        let out = out.u64(ino).u64(cookie).u32(name.len() as u32).u32(mode >> 12);
        self.out = out.bytes(name).padded(end);
        true
    }
}

impl std::ops::Deref for Listing {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_protocol() {
        let attr = FuseAttr { atime: (-1, u32::MAX), ..FuseAttr::default() };
        let bytes = put_attr(Out::default(), &attr);
        assert_eq!(bytes.len(), 88);
        assert_eq!(bytes[24..32], (-1i64).to_ne_bytes());
        assert_eq!(bytes[48..52], 999_999_999u32.to_ne_bytes());
        let entry = FuseEntry { attr, attr_ttl: AttrLifetime::UNSETTLED, generation: 1 };
        let out = put_entry(Out::default(), &entry, NameLifetime::NONE);
        assert_eq!(out.len(), 128);
        assert_eq!(out[16..32], [0u64, 1].map(u64::to_ne_bytes).concat()[..], "of the name, then of the attributes");
        let attr = FuseAttr { btime: (7, 8), mode: libc::S_IFCHR | 0o600, rdev: 0x0ab0_0102, ..attr };
        let bytes = put_statx(Out::default().padded(32), &attr);
        assert_eq!((bytes.len(), &bytes[32..36]), (288, &0xfffu32.to_ne_bytes()[..]));
        assert_eq!(bytes[32 + 28..32 + 32], [(attr.mode as u16).to_ne_bytes(), [0; 2]].concat()[..]);
        assert_eq!(bytes[32 + 80..32 + 92], [&7u64.to_ne_bytes()[..], &8u32.to_ne_bytes()].concat()[..]);
        assert_eq!(bytes[32 + 128..32 + 136], [1u32.to_ne_bytes(), 0xab02u32.to_ne_bytes()].concat()[..]);
        let mut listing = Listing::new(200);
        assert!(listing.add(None, (5, 7, libc::S_IFDIR), b"name"));
        assert_eq!((listing.len(), listing[20]), (32, libc::DT_DIR));
        assert!(listing.add(Some((&entry, NameLifetime::NONE)), (5, 8, 0), b"12345678"));
        assert_eq!(listing.len(), 32 + 128 + 32);
        assert!(!listing.add(None, (5, 9, 0), b""));
        assert_eq!(out_header(16, libc::EIO, 9)[4..8], (-5i32).to_ne_bytes());
    }
}
